"""What the paper does to numbers before they are trained on."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelhedge._random import permutation
from labelhedge.data._record import Dataset, DatasetInfo, Labels, Part

BLOCK = 4096  # rows scaled at once in double precision
TENTH = "a tenth of the rows at random, by the seed, is the test set"
TO_UNIT_INTERVAL = "each number to [-1, 1] by the range it has in the training rows"


def split_off_test(count: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Positions of the training rows and of the test rows, a tenth, both in random order."""
    order = permutation(seed, count)
    num_test = round(count / 10)
    return order[num_test:], order[:num_test]


def scale_to_unit_interval(train: NDArray[Any], test: NDArray[Any]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Each column to [-1, 1] by its range in the training rows; a column that is constant there becomes 0 there.

    Example:
        >>> train, test = scale_to_unit_interval(np.array([[0, 5], [4, 5]]), np.array([[3, 6]]))
        >>> train.tolist(), test.tolist()
        ([[-1.0, 0.0], [1.0, 0.0]], [[0.5, 1.0]])
    """
    low, high = train.min(0).astype(np.float64), train.max(0).astype(np.float64)
    middle, half = (high + low) / 2, np.where(high > low, (high - low) / 2, 1)
    scaled = np.empty(train.shape, np.float32), np.empty(test.shape, np.float32)
    for rows, out in zip((train, test), scaled, strict=True):
        for block in range(0, len(rows), BLOCK):
            out[block : block + BLOCK] = (rows[block : block + BLOCK] - middle) / half
    return scaled


def tabular(info: DatasetInfo, rows: NDArray[Any], labels: Labels, class_names: tuple[str, ...], seed: int) -> Dataset:
    """Split rows of numbers, and scale them."""
    train, test = split_off_test(len(rows), seed)
    inputs = scale_to_unit_interval(rows[train], rows[test])
    return Dataset(info, Part(inputs[0], labels[train]), Part(inputs[1], labels[test]), class_names)
