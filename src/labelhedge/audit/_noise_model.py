"""Which class a row is of, given what its features and its given label say.

With ``p`` the probabilities of the classes given the features, and ``T[k, g]`` the share of the rows of class k that
were given the label g, a row with the label g is of class k with probability ``q ∝ p_k T[k, g]``. T is not known: it is
found together with q, each from the other in turn (the EM algorithm for classes that are seen through errors, Dawid and
Skene 1979, with the features as the prior and one observer).

What the networks confuse would look as if people had confused it. So T is counted on the half of the rows that the
networks are surest of, and then moved some way to errors that are the same for all pairs of classes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
ROUNDS = 30
POWER = 2
"""Of the probabilities: networks that have learned from labels with errors are less sure than they should be."""
TRUST = 0.75
"""How far the estimated confusion is believed, from 0 to 1."""


@dataclass(frozen=True)
class Likely:
    """For each row the classes that it may be of, the given label first, and their probabilities, ``(n, m)``."""

    classes: NDArray[np.int64]
    probability: NDArray[np.float32]


@dataclass(frozen=True)
class Confusion:
    """How many rows of class ``true`` seem to have been given the label ``given``, one entry for each such pair."""

    true: NDArray[np.int64]
    given: NDArray[np.int64]
    rows: Numbers


def likeliest(probability: NDArray[np.float32], given: NDArray[np.int64], most: int = 16) -> Likely:
    """The given label and the likeliest other classes of each row, ``most`` together, from all ``(n, K)``.

    Example:
        >>> likeliest(np.array([[0.1, 0.6, 0.3]], np.float32), np.array([2]), most=2).classes
        array([[2, 1]])
    """
    n, classes = probability.shape
    row = np.arange(n)
    others = probability.copy()
    others[row, given] = -1
    count = min(most, classes) - 1
    top = np.argpartition(-others, count - 1, axis=1)[:, :count]
    chosen = np.concatenate([given[:, None], top], axis=1).astype(np.int64)
    return Likely(chosen, probability[row[:, None], chosen])


def posterior(likely: Likely, classes: int) -> tuple[NDArray[np.float32], Confusion]:
    """The probabilities of the same classes when the given label counts too, and the confusion of labels they imply."""
    pairs, pair = np.unique(likely.classes * classes + likely.classes[:, :1], return_inverse=True)
    pair = pair.reshape(likely.classes.shape)
    true, given = pairs // classes, pairs % classes
    right = true == given
    confidence = likely.probability.max(1)
    sure = confidence >= np.median(confidence)
    p = likely.probability.astype(np.float64) ** POWER + 1e-10
    made_up = 0.5 * right + 0.5 / classes  # one row of each class, lest a share be 0
    share = np.where(right, 0.8, 0.2 / classes)
    for _ in range(ROUNDS):
        q = _normalized(p[sure] * share[pair[sure]])
        rows = np.bincount(pair[sure].ravel(), q.ravel(), len(pairs)) + made_up
        share = rows / np.bincount(true, rows, classes)[true]
    error = 1 - rows[right].sum() / rows.sum()
    same_for_all = np.where(right, 1 - error, error / (classes - 1))
    q = _normalized(p * (share**TRUST * same_for_all ** (1 - TRUST))[pair])
    counted = np.bincount(pair.ravel(), q.ravel(), len(pairs)).astype(np.float64)
    return q.astype(np.float32), Confusion(true, given, counted)


def _normalized(weights: Numbers) -> Numbers:
    total: Numbers = weights.sum(1, keepdims=True)
    return weights / total
