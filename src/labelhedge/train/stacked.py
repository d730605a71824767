"""Train many small networks as one: every step of all of them is a handful of operations on stacked tensors.

A stack is folds × trials. A fold decides on the data, the order in which it is seen and the starting weights; a trial
on learning rate, weight decay, hyperparameters of the loss and labels. Nothing else enters the result of a network,
in particular not its neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from labelhedge.train._plan import trials_at_once
from labelhedge.train._validated import ValidatedStack

Advance = Callable[[int], None]
"""Told how many network-epochs have been trained since the last call."""


@dataclass(frozen=True)
class Task:
    """What all networks of a stack learn from."""

    inputs: NDArray[np.float32]
    """``(n, features)``"""
    labels: NDArray[np.int64]
    """``(sets, n)`` the labels to train and to validate with, which may be wrong."""
    clean: NDArray[np.int64]
    """``(n,)`` the right ones, for the traces alone."""
    test_inputs: NDArray[np.float32]
    test_labels: NDArray[np.int64]
    num_classes: int
    balanced: bool = False
    """Whether accuracies are means over the classes instead of over the samples."""


@dataclass(frozen=True)
class Fold:
    """Rows to train on, rows to validate on, and the seed of starting weights and of shuffling."""

    train: NDArray[np.int64]
    validation: NDArray[np.int64]
    seed: int


@dataclass(frozen=True)
class Trial:
    """What may differ between networks that see the same data."""

    lr: float
    weight_decay: float
    params: Mapping[str, float]
    """Hyperparameters of the loss; every trial of a stack names the same ones."""
    labels: int = 0
    """Which of the task's sets of labels."""


@dataclass(frozen=True)
class Recipe:
    """How every network is built and trained: momentum SGD in random order, the learning rate falling in steps."""

    hidden: tuple[int, ...]
    """Units of the hidden layers."""
    epochs: int = 100
    batch_size: int = 64
    momentum: float = 0.9
    decay_after: tuple[int, ...] = (50, 75)
    """Epochs at whose end the learning rate is multiplied by ``decay``."""
    decay: float = 0.1
    review_after: tuple[int, ...] = ()
    """Epochs after which a loss that asks for the predictions for all training samples gets them (TGCE does)."""


@dataclass(frozen=True)
class Outcome:
    """What became of the networks; every array begins with ``(folds, trials)``."""

    best_epoch: NDArray[np.int64]
    """From 1: the first epoch with the highest validation accuracy, at which the test accuracies are taken."""
    val_top1: NDArray[np.float64]
    test_top: NDArray[np.float64]
    """``(folds, trials, 5)``: top-1 to top-5; NaN where k is not below the number of classes."""
    train_loss: NDArray[np.float32]
    """``(folds, trials, epochs)``, and so are those below."""
    epoch_val_top1: NDArray[np.float32]
    epoch_val_clean_top1: NDArray[np.float32]
    lam_clean: NDArray[np.float32]
    """Mean λ of the training samples whose label is right; NaN for losses without λ."""
    lam_flipped: NDArray[np.float32]
    seconds: NDArray[np.float64]
    """This network's share of the time of all epochs, without what comes before (a GPU's compiler) and after."""


@torch.inference_mode(False)
def train(
    task: Task,
    folds: Sequence[Fold],
    trials: Sequence[Trial],
    loss: str,
    recipe: Recipe,
    *,
    options: Mapping[str, Any] | None = None,
    memory: int | None = None,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    advance: Advance = lambda count: None,
) -> Outcome:
    """Train ``folds × trials`` networks.

    Args:
        task: The data.
        folds: All with the same numbers of rows.
        trials: One network each in every fold.
        loss: The id of a loss.
        recipe: How to train.
        options: Further options of the loss, the same for all trials, such as ``normalize="l1"``.
        memory: Bytes that data and networks may take; more networks than that are trained one part after another.
        device: Where to train.
        dtype: Type of the weights.
        advance: Called as training goes on.

    Returns:
        The outcome of each network, whatever the parts they were trained in.
    """
    _check(task, folds, trials, recipe)
    device = torch.device(device)
    part = trials_at_once(task, len(folds), len(trials), loss, recipe, memory, device, dtype)
    outcomes = []
    for start in range(0, len(trials), part):
        stack = ValidatedStack(task, folds, trials[start : start + part], loss, recipe, options or {}, device, dtype)
        outcomes.append(Outcome(**stack.train(advance)))
    joined = {f.name: np.concatenate([getattr(o, f.name) for o in outcomes], axis=1) for f in fields(Outcome)}
    return Outcome(**joined)


def _check(task: Task, folds: Sequence[Fold], trials: Sequence[Trial], recipe: Recipe) -> None:
    if not folds or not trials:
        raise ValueError(f"a stack needs a fold and a trial at least, got {len(folds)} and {len(trials)}")
    if len({(len(fold.train), len(fold.validation)) for fold in folds}) > 1:
        raise ValueError("the folds of a stack must have the same numbers of rows")
    if len({tuple(trial.params) for trial in trials}) > 1:
        raise ValueError("the trials of a stack must name the same hyperparameters")
    if not recipe.hidden:
        raise ValueError("hidden must name one layer at least")
    if task.labels.ndim != 2 or task.labels.shape[1] != len(task.inputs):
        raise ValueError(f"labels must be (sets, {len(task.inputs)}), got {task.labels.shape}")
