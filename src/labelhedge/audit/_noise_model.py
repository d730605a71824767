"""Which class a row is of, given what its features and its given label say.

With ``p`` the probabilities of the classes given the features, and ``T[k, g]`` the share of the rows of class k that
were given the label g, a row with the label g is of class k with probability ``q ∝ p_k T[k, g]``. T is not known: it is
found together with q, each from the other in turn (the EM algorithm for classes that are seen through errors, Dawid and
Skene 1979, with the features as the prior and one observer).

What the networks confuse would look as if people had confused it. So T is counted on the half of the rows that the
networks are surest of. How far it is believed, rather than errors that are the same for all pairs of classes, is what
best predicts the labels of rows that it was not counted on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
ROUNDS = 30
POWER = 2
"""Of the probabilities: networks that have learned from labels with errors are less sure than they should be."""
TRUSTS = (0.0, 0.25, 0.5, 0.75, 1.0)
"""How far the counted confusion may be believed."""
FOLDS = 5
MOST_TO_CHOOSE = 25_000
"""Rows by which the trust is chosen, at most."""


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


def posterior(likely: Likely, classes: int) -> tuple[Numbers, Confusion]:
    """The probabilities of the same classes when the given label counts too, and the confusion of labels they imply."""
    pairs = _Pairs(likely, classes)
    confidence = likely.probability.max(1)
    sure = np.flatnonzero(confidence >= np.median(confidence))
    p = likely.probability.astype(np.float64) ** POWER + 1e-10
    trust = pairs.trust(p, sure[:: math.ceil(len(sure) / MOST_TO_CHOOSE)])
    q = _normalized(p * pairs.shares(p, sure, [trust])[0][pairs.of_row])
    return q, Confusion(pairs.true, pairs.given, pairs.rows(q, pairs.of_row))


class _Pairs:
    """The pairs of a class and a given label that occur, and the shares ``T[class, label]`` of these."""

    def __init__(self, likely: Likely, classes: int) -> None:
        self.classes = classes
        found, of_row = np.unique(likely.classes * classes + likely.classes[:, :1], return_inverse=True)
        self.of_row = of_row.reshape(likely.classes.shape)
        self.true, self.given = found // classes, found % classes
        self.right = self.true == self.given

    def rows(self, q: Numbers, of_row: NDArray[np.int64]) -> Numbers:
        """How many rows are of each pair."""
        return np.bincount(of_row.ravel(), q.ravel(), len(self.true)).astype(np.float64)

    def shares(self, p: Numbers, rows: NDArray[np.int64], trusts: Sequence[float]) -> list[Numbers]:
        """T counted on these rows, believed as far as each of ``trusts`` says."""
        p, of_row = p[rows], self.of_row[rows]
        made_up = 0.5 * self.right + 0.5 / self.classes  # one row of each class, lest a share be 0
        share = np.where(self.right, 0.8, 0.2 / self.classes)
        for _ in range(ROUNDS):
            counted = self.rows(_normalized(p * share[of_row]), of_row) + made_up
            share = self._per_class(counted)
        error = 1 - counted[self.right].sum() / counted.sum()
        same_for_all = np.where(self.right, 1 - error, error / (self.classes - 1))
        return [self._per_class(share**trust * same_for_all ** (1 - trust)) for trust in trusts]

    def trust(self, p: Numbers, rows: NDArray[np.int64]) -> float:
        """The trust by which the labels of some of these rows are best predicted from the others."""
        fit = np.zeros(len(TRUSTS))
        for fold in range(FOLDS):
            apart = np.arange(len(rows)) % FOLDS == fold
            for number, share in enumerate(self.shares(p, rows[~apart], TRUSTS)):
                fit[number] += np.log((p[rows[apart]] * share[self.of_row[rows[apart]]]).sum(1)).sum()
        return TRUSTS[fit.argmax()]

    def _per_class(self, weights: Numbers) -> Numbers:
        total: Numbers = np.bincount(self.true, weights, self.classes)[self.true]
        return weights / total


def _normalized(weights: Numbers) -> Numbers:
    total: Numbers = weights.sum(1, keepdims=True)
    return weights / total
