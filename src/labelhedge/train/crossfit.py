"""Out-of-sample predictions: small networks in repeated cross-validation.

No network is asked about a row it has learned from. Which settings predict best is decided by how often their
predictions are the labels given, wrong as some of these may be.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from labelhedge._random import children
from labelhedge.train._plan import rows_at_once
from labelhedge.train._stack import Stack
from labelhedge.train._threads import Advance, in_threads, one_thread
from labelhedge.train.stacked import Recipe, Trial

FOLDS = 5
SETTINGS = 6
"""Settings whose predictions are averaged, at most."""
WITHIN = 0.03
"""How much less of the labels than the best they may predict."""
SAMPLE = 4000
"""Rows, at most, on which settings are compared."""
WEIGHT_DECAY = 5e-4
LOOKS = 20
"""How often networks that may stop early are looked at."""


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

    def sample(self, most: int, seed: int) -> Data:
        """All rows, or if they are more than ``most``, some with the same share of every class."""
        parts = -(-len(self.labels) // most)
        return self if parts == 1 else self.some(np.flatnonzero(stratified(self.labels, parts, seed).fold == 0))


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
        early_stopping: Whether to keep the networks of each learning rate as they were after the epoch in which they
            predicted most labels.
    """

    @torch.inference_mode(False)
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
        early_stopping: bool = False,
    ) -> None:
        folds = [(split, split.fold == fold) for split in splits for fold in range(split.folds)]
        learned = [np.flatnonzero(~outside) for _, outside in folds]
        left_out = [np.flatnonzero(outside) for _, outside in folds]
        fewest, most = min(map(len, learned)), max(map(len, left_out))
        self.rows = torch.from_numpy(np.stack([np.resize(rows, most) for rows in left_out]))
        """``(folds, B)`` the rows that the networks of each fold have not learned from; one may be there twice."""
        seeds = [seed for split in splits for seed in children(split.seed, split.folds)]
        self._stack = Stack(
            data.inputs,
            data.labels[None],
            data.classes,
            np.stack([rows[len(rows) - fewest :] for rows in learned]),
            seeds,
            [Trial(lr, WEIGHT_DECAY, family.params) for lr in lrs],
            family.loss,
            Recipe(
                family.hidden,
                epochs=epochs,
                decay_after=(epochs * 6 // 10, epochs * 17 // 20),
                review_after=tuple(epochs * tenths // 10 for tenths in range(5, 10)),
            ),
            {},
            torch.device(device),
            torch.float32,
            data.weight,
        )
        self.epochs = [epochs] * len(lrs)
        """After how many epochs the networks of each learning rate are those that are kept."""
        best = _Best(self, data) if early_stopping else None
        with one_thread():
            for epoch in self._stack.epochs():
                advance(self._stack.networks)
                if best is not None and (epochs - epoch - 1) % (1 + epochs // LOOKS) == 0:
                    best.look(epoch)
            if best is not None:
                best.restore()

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

    def accuracy(self, labels: NDArray[np.int64], weight: NDArray[np.float32] | None = None) -> list[float]:
        """The share of labels, or of their ``weight``, that the networks of each learning rate have predicted."""
        counts = torch.from_numpy(np.ones(len(labels), np.float32) if weight is None else weight)
        return (self.right(labels) @ counts / counts.sum()).tolist()

    def right(self, labels: NDArray[np.int64]) -> Tensor:
        """``(lrs, n)`` how many of the networks that have not seen a row have predicted its label, as a share."""
        target = torch.from_numpy(labels)
        right = torch.zeros(self._stack.shape[1], len(labels), dtype=torch.float32)
        asked = torch.zeros(len(labels), dtype=torch.float32)
        for block in self.blocks():
            rows = self.rows[:, block]
            predicted = self.out_of_sample(block).argmax(-1).cpu()
            hits = (predicted == target[rows].unsqueeze(1)).float().transpose(0, 1)
            right.index_add_(1, rows.flatten(), hits.flatten(1))
            asked.index_add_(0, rows.flatten(), torch.ones(rows.numel(), dtype=torch.float32))
        return right / asked

    def layers(self, lr: int) -> tuple[NDArray[np.float32], ...]:
        """The weights ``(folds, out, in + 1)`` of the networks with the learning rate number ``lr``, the bias last."""
        network = self._stack.network
        return tuple(
            weight.view(*self._stack.shape, *weight.shape[1:])[:, lr, :, : inputs + 1].float().cpu().numpy().copy()
            for inputs, weight in zip(network.sizes, network.weights, strict=False)
        )


class _Best:
    """The weights of the epoch in which the networks of each learning rate predicted most labels."""

    def __init__(self, networks: CrossFit, data: Data) -> None:
        self._networks, self._data = networks, data
        self._weights = networks._stack.network.weights
        self._kept = [weight.clone() for weight in self._weights]
        self._accuracy = [-1.0] * networks._stack.shape[1]

    def look(self, epoch: int) -> None:
        accuracies = self._networks.accuracy(self._data.labels, self._data.weight)
        for lr, accuracy in enumerate(accuracies):
            if accuracy >= self._accuracy[lr]:
                self._accuracy[lr], self._networks.epochs[lr] = accuracy, epoch + 1
                for kept, weight in zip(self._kept, self._weights, strict=True):
                    kept[lr :: len(accuracies)] = weight[lr :: len(accuracies)]

    def restore(self) -> None:
        for kept, weight in zip(self._kept, self._weights, strict=True):
            weight.copy_(kept)


def epochs_for(rows: int, least: int = 3) -> int:
    """Long enough for few rows, short enough for many."""
    return max(least, min(400_000 // rows, 60))


def fitted(
    data: Data,
    splits: Sequence[Split],
    settings: Sequence[Setting],
    *,
    epochs: int,
    device: torch.device | str = "cpu",
    advance: Advance = lambda count: None,
) -> list[CrossFit]:
    """The networks of each setting."""

    def fit(setting: Setting, advance: Advance) -> CrossFit:
        return CrossFit(data, splits, setting.family, [setting.lr], epochs=epochs, device=device, advance=advance)

    return in_threads([partial(fit, setting) for setting in settings], device, advance)


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
    early_stopping: bool = False,
) -> list[Setting]:
    """Every family with every learning rate, that which predicts most labels first."""
    split = stratified(data.labels, folds, seed)

    def settings(family: Family, advance: Advance) -> list[Setting]:
        networks = CrossFit(
            data,
            [split],
            family,
            lrs,
            epochs=epochs,
            device=device,
            advance=advance,
            early_stopping=early_stopping,
        )
        accuracies = networks.accuracy(data.labels, data.weight)
        return [Setting(family, lr, accuracy) for lr, accuracy in zip(lrs, accuracies, strict=True)]

    compared = in_threads([partial(settings, family) for family in families], device, advance)
    return best_first(chain.from_iterable(compared))


def best_first(settings: Iterable[Setting]) -> list[Setting]:
    """Those that predict most labels first."""
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
