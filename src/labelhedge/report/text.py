"""What the page says in words."""

from labelhedge.report.content import Content
from labelhedge.report.names import noise_label
from labelhedge.report.paper import LEADERBOARD


def summary(content: Content) -> str:
    """What was compared, in one sentence."""
    return (
        f"{_count(len(content.losses), 'loss', 'losses')} on {_count(len(content.datasets), 'data set')} with "
        f"{_count(len(content.noises), 'noise setting')}: {len(content.networks):,} networks trained in "
        f"{duration(content.networks['seconds'].sum())}."
    )


def leaderboard_text(content: Content) -> list[str]:
    """What the leaderboard shows, or why there is none."""
    ranking = content.ranking
    if len(content.losses) < 2:
        return [f"There is no leaderboard: {content.losses[0]} is the only loss, and ranks compare losses."]
    if ranking is None:
        return [
            "There is no leaderboard yet: no data set and noise has results of all losses. See what is missing below."
        ]
    texts = [
        f"Average rank over {_count(ranking.settings, 'setting')} (a data set with one noise), 1 is best of "
        f"{len(content.losses)}; in brackets the standard deviation. In each setting and for each k the losses are "
        "ranked by mean test accuracy; equal ones share the average rank. Overall is the average over all k. Each loss "
        "was tuned on the noisy validation labels; the test labels played no part in it. Click a column to sort by it."
    ]
    if set(content.losses) & set(LEADERBOARD):
        texts.append(
            "The columns at the right are the paper's, average ranks of 15 losses in 49 settings. Ranks depend on "
            "which losses and settings are compared: where those differ, so do the ranks."
        )
    if content.left_out:
        texts.append(f"{_count(len(content.left_out), 'setting')} without results of all losses did not count.")
    if content.accuracies.groupby(["dataset", "noise", "rate"])["networks"].nunique().max() > 1:
        texts.append("In some settings the losses have unequal numbers of folds or seeds; accuracy.csv counts them.")
    return texts


def significance_text(content: Content) -> list[str]:
    """What the statistical tests say, with what to beware of; or why there are none."""
    result = content.significance
    if result is None:
        return ["Friedman's test needs at least three losses and two settings that have results of all of them."]
    p = "p < 0.0001" if result.p < 1e-4 else f"p = {result.p:.4f}"
    if result.p < result.alpha:
        meaning = (
            f"Not all losses are equally good. By Nemenyi's test two of them differ at the level {result.alpha:g} if "
            f"their average ranks are {result.critical_difference:.2f} or more apart (CD). Bars join those that do not."
        )
    else:
        meaning = (
            f"At the level {result.alpha:g} it does not reject that all losses are equally good, so nothing below "
            "should be read as a difference."
        )
    return [
        f"Friedman's test on the top-1 ranks in {result.settings} settings: χ² = {result.statistic:.1f}, {p}.",
        meaning,
        "As is customary, the blocks of the test are pairs of a data set and a noise. Those of one data set are not "
        "independent, so the true p-value is larger, and the true critical difference wider, than these.",
    ]


def facts(content: Content) -> list[tuple[str, str]]:
    """Where the numbers come from."""
    networks = content.networks
    return [
        ("Protocol", content.protocol),
        ("Data sets", ", ".join(content.datasets)),
        ("Noise", "; ".join(noise_label(*noise) for noise in content.noises)),
        ("Losses", ", ".join(content.losses)),
        ("Folds", str(networks["fold"].nunique())),
        ("Seeds", ", ".join(map(str, sorted(networks["seed"].unique())))),
        ("Networks trained", f"{len(networks):,}"),
        ("Time", f"{duration(networks['seconds'].sum())} in total"),
        ("Device", "; ".join(sorted(networks["device"].unique()))),
        ("Versions", "; ".join(sorted(networks["versions"].unique()))),
        ("Commit", ", ".join(sorted(filter(None, networks["commit"].unique()))) or "not recorded"),
    ]


def left_out(content: Content) -> list[str]:
    """The settings that do not count in the ranks, and what they lack."""
    if len(content.losses) < 2:
        return []
    return [
        f"{dataset}, {noise_label(noise, rate)}: no result of {', '.join(losses)}"
        for (dataset, noise, rate), losses in content.left_out.items()
    ]


def duration(seconds: float) -> str:
    """Seconds in the unit that suits them."""
    for unit, size in (("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:.1f} seconds"


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"
