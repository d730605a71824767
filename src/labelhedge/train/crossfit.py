"""Out-of-sample predictions: small networks in repeated cross-validation.

No network is asked about a row it has learned from. Which settings predict best is decided by how often their
predictions are the labels given, wrong as some of these may be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from labelhedge.train._plan import rows_at_once
from labelhedge.train._stack import Stack
from labelhedge.train._threads import one_thread
from labelhedge.train.stacked import Recipe, Trial

Advance = Callable[[int], None]
"""Told how many network-epochs have been trained since the last call."""
WEIGHT_DECAY = 5e-4


@dataclass(frozen=True)
class Family:
    """Networks that differ in their learning rate alone."""

    loss: str
    hidden: tuple[int, ...] = ()
    """Units of the hidden layers; none for a linear classifier."""
    params: Mapping[str, float] = field(default_factory=dict)
    """Hyperparameters of the loss."""


@dataclass(frozen=True)
class Setting:
    """A family with a learning rate, and the share of labels that it has predicted."""

    family: Family
    lr: float
    accuracy: float


@dataclass(frozen=True)
class Data:
    """What networks learn from."""

    inputs: NDArray[np.float32]
    """``(n, features)``"""
    labels: NDArray[np.int64]
    """``(n,)``"""
    classes: int
    weight: NDArray[np.float32] | None = None
    """``(n,)`` how much each row counts."""

    def some(self, rows: NDArray[np.int64]) -> Data:
        """Some of the rows."""
        weight = None if self.weight is None else self.weight[rows]
        return Data(self.inputs[rows], self.labels[rows], self.classes, weight)


@dataclass(frozen=True)
class Split:
    """A cross-validation: which fold each row is in."""

    fold: NDArray[np.int64]
    folds: int
    seed: int


def stratified(labels: NDArray[np.int64], folds: int, seed: int) -> Split:
    """Folds of the same size but for one row, with the same share of every class but for one row.

    Example:
        >>> stratified(np.array([0, 0, 1, 1, 1, 1]), folds=2, seed=0).fold
        array([1, 0, 1, 0, 0, 1])
    """
    random = np.random.default_rng(seed).random(len(labels))
    fold = np.empty(len(labels), np.int64)
    fold[np.lexsort((random, labels))] = np.arange(len(labels)) % folds
    return Split(fold, folds, seed)


class CrossFit:
    """Networks of one family: for each learning rate one in every fold of every split.

    Args:
        data: All rows.
        splits: Cross-validations.
        family: What the networks have in common.
        lrs: Learning rates.
        epochs: How long to train.
        device: Where.
        advance: Called as training goes on.
    """

    def __init__(
        self,
        data: Data,
        splits: Sequence[Split],
        family: Family,
        lrs: Sequence[float],
        *,
        epochs: int,
        device: torch.device | str = "cpu",
        advance: Advance = lambda count: None,
    ) -> None:
        folds = [(split, split.fold == fold) for split in splits for fold in range(split.folds)]
        learned = [np.flatnonzero(~outside) for _, outside in folds]
        left_out = [np.flatnonzero(outside) for _, outside in folds]
        fewest, most = min(map(len, learned)), max(map(len, left_out))
        self.rows = torch.from_numpy(np.stack([np.resize(rows, most) for rows in left_out]))
        """``(folds, B)`` the rows that the networks of each fold have not learned from; one may be there twice."""
        seeds = [split.seed * 1000 + number for number, (split, _) in enumerate(folds)]
        self._stack = Stack(
            data.inputs,
            data.labels[None],
            data.classes,
            np.stack([rows[len(rows) - fewest :] for rows in learned]),
            seeds,
            [Trial(lr, WEIGHT_DECAY, family.params) for lr in lrs],
            family.loss,
            Recipe(family.hidden, epochs=epochs, decay_after=(epochs * 6 // 10, epochs * 17 // 20)),
            {},
            torch.device(device),
            torch.float32,
            data.weight,
        )
        with one_thread():
            for _epoch in self._stack.epochs():
                advance(self._stack.networks)

    def out_of_sample(self, columns: slice) -> Tensor:
        """Logits ``(folds, lrs, B, K)`` for some columns of :attr:`rows`."""
        return self._stack.logits(self.rows[:, columns])

    @property
    def rows_at_once(self) -> int:
        """How many columns to take at a time."""
        return rows_at_once(self._stack.networks, max(self._stack.network.sizes[1:]), self._stack.device)

    def blocks(self) -> Iterable[slice]:
        """All columns, so many at a time."""
        step = self.rows_at_once
        return (slice(start, start + step) for start in range(0, self.rows.shape[1], step))

    def accuracy(self, labels: NDArray[np.int64]) -> list[float]:
        """The share of labels that the networks of each learning rate have predicted."""
        target = torch.from_numpy(labels)
        right = torch.zeros(self._stack.shape[1])
        for block in self.blocks():
            predicted = self.out_of_sample(block).argmax(-1).cpu()
            right += (predicted == target[self.rows[:, block]].unsqueeze(1)).sum((0, 2))
        return (right / self.rows.numel()).tolist()


def ranked(
    data: Data,
    families: Sequence[Family],
    lrs: Sequence[float],
    *,
    folds: int,
    epochs: int,
    seed: int,
    device: torch.device | str = "cpu",
    advance: Advance = lambda count: None,
) -> list[Setting]:
    """Every family with every learning rate, that which predicts most labels first."""
    split = stratified(data.labels, folds, seed)
    settings = []
    for family in families:
        networks = CrossFit(data, [split], family, lrs, epochs=epochs, device=device, advance=advance)
        accuracies = networks.accuracy(data.labels)
        settings += [Setting(family, lr, accuracy) for lr, accuracy in zip(lrs, accuracies, strict=True)]
    return sorted(settings, key=lambda setting: -setting.accuracy)


def shortlist(settings: Sequence[Setting], size: int, within: float = 0.03) -> list[Setting]:
    """Up to ``size`` settings that are nearly as good as the first, of linear and other classifiers half each.

    They err in different ways, and where labels are wrong in a way that the inputs foretell, a network with a hidden
    layer learns the errors.
    """
    good = [setting for setting in settings if setting.accuracy >= settings[0].accuracy - within]
    linear = [setting for setting in good if not setting.family.hidden]
    others = [setting for setting in good if setting.family.hidden]
    count = min(len(others), max(size - len(linear), size // 2))
    return others[:count] + linear[: size - count]
