"""Random numbers that are the same on every machine and in every version of NumPy."""

import numpy as np
from numpy.typing import NDArray


def uniforms(seed: int, count: int, *, stream: int = 0) -> NDArray[np.float64]:
    """``count`` numbers in [0, 1) that depend on seed and stream alone; a longer draw begins with the shorter one.

    NumPy promises that the bits of ``PCG64`` and ``SeedSequence`` never change, and promises nothing of the kind for
    ``Generator``'s methods. So the numbers are made from the bits: the upper 53 of each 64, times 2^-53.

    Example:
        >>> uniforms(0, 3).round(3).tolist()
        [0.943, 0.316, 0.722]
    """
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ValueError(f"seed must be a whole number of at least 0, got {seed!r}")
    bits = np.random.PCG64(np.random.SeedSequence(int(seed), spawn_key=(stream,))).random_raw(count)
    return np.asarray((bits >> np.uint64(11)) * 2.0**-53)


def children(seed: int, count: int) -> list[int]:
    """Seeds for ``count`` purposes. Two different seeds have none in common, nor have two purposes.

    Example:
        >>> children(0, 2) == children(0, 3)[:2]
        True
        >>> set(children(0, 3)) & set(children(1, 3))
        set()
    """
    return [int(child.generate_state(1, np.uint64)[0]) for child in np.random.SeedSequence(seed).spawn(count)]


def permutation(seed: int, count: int) -> NDArray[np.int64]:
    """The numbers 0 … ``count`` - 1 in random order, with a stream of its own: not tied to noise of the same seed."""
    return np.argsort(uniforms(seed, count, stream=2), kind="stable")
