"""The leaderboard: the protocol as data, jobs, and engines that do them."""
