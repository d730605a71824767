"""What every noise model takes and returns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Labels = NDArray[np.int64]
Matrix = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class NoisyLabels:
    """Labels that are partly wrong, and what is known about how they came to be.

    Attributes:
        labels: the noisy labels, ``(N,)``, int64.
        flipped: True where the label differs from the clean one, ``(N,)``. A label that was drawn anew and came out the
            same is not flipped.
        transition: ``(K, K)``, row a: the probability of each label where the clean one is a.
    """

    labels: Labels
    flipped: NDArray[np.bool_]
    transition: Matrix


def noisy(clean: Labels, labels: Labels, transition: Matrix) -> NoisyLabels:
    """The record, with ``flipped`` as what it says: the labels that changed."""
    return NoisyLabels(labels, labels != clean, transition)


def check_labels(name: str, labels: ArrayLike, num_classes: int | None) -> tuple[Labels, int]:
    """The labels as int64 and the number of classes, which is the largest label + 1 if it is not given."""
    array = np.asarray(labels)
    if array.ndim != 1 or not (np.issubdtype(array.dtype, np.integer) or array.size == 0):
        raise ValueError(f"{name} must be a list of whole numbers, one per sample, got {array.dtype} of {array.shape}")
    if num_classes is None:
        if array.size == 0:
            raise ValueError(f"num_classes must be given when {name} is empty")
        num_classes = int(array.max()) + 1
    if num_classes < 2:
        raise ValueError(f"num_classes must be at least 2, got {num_classes}")
    if array.size and not (array.min() >= 0 and array.max() < num_classes):
        raise ValueError(f"{name} must lie in 0 … {num_classes - 1}, got {array.min()} … {array.max()}")
    return array.astype(np.int64), num_classes


def check_rate(rate: float) -> float:
    """The rate, if it is a probability."""
    if not 0 <= rate <= 1:
        raise ValueError(f"rate must be between 0 and 1, got {rate}")
    return float(rate)
