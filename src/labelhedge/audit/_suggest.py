"""Which loss to train with, where some labels may be wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from labelhedge import losses
from labelhedge._optional import optional
from labelhedge._random import children
from labelhedge.audit._audit import Audit
from labelhedge.audit._features import as_matrix
from labelhedge.audit._find import HIDDEN, LRS, Count, Progress, audit_of, check_memory, mean_probability, numbered
from labelhedge.train.crossfit import FOLDS, WITHIN, Data, Family, Setting, epochs_for, fitted, ranked, stratified

if TYPE_CHECKING:
    import pandas as pd

FIRST_ROWS = 1000
"""Rows, at most, on which all losses are compared."""
ROWS = 2000
"""Rows, at most, on which the best are compared once more with cross entropy."""
WIDTH = 64
"""Features, at most; of more, the first principal components are taken."""
FINALISTS = 5
REPEATS = 3
PLAIN = "ce"


@dataclass(frozen=True)
class Suggestion:
    """A loss for these labels, and why.

    Attributes:
        loss: the id of the loss that predicts most labels of rows that it has not learned from.
        params: its hyperparameters.
        lr: the learning rate with which it does, of SGD with momentum 0.9.
        accuracy: the share of the given labels that it predicts.
        gain: how much more that is than with cross entropy.
        error: the standard error of ``gain``.
        audit: of the rows that were used, which labels are probably wrong.
        comparison: all losses, the best first, each with its best hyperparameters and learning rate. ``first`` is the
            share of labels predicted when these were chosen, ``accuracy`` in a new cross-validation of the best.
    """

    loss: str
    params: Mapping[str, float]
    lr: float
    accuracy: float
    gain: float
    error: float
    audit: Audit
    comparison: pd.DataFrame

    @property
    def clear(self) -> bool:
        """Whether the gain is more than twice its standard error."""
        return self.gain > 2 * self.error


def suggest(
    features: pd.DataFrame | ArrayLike,
    labels: ArrayLike,
    *,
    seed: int = 0,
    device: torch.device | str = "cpu",
    progress: Progress = lambda done, total: None,
) -> Suggestion:
    """Suggest a loss for labels of which some may be wrong.

    All losses of the paper, with the hyperparameters of its grids, train small networks on up to 1,000 rows. The five
    that predict most of the labels that they have not seen are compared with cross entropy in three new
    cross-validations on up to 2,000 rows.

    Args:
        features: as for :func:`find`.
        labels: as for :func:`find`.
        seed: the same seed gives the same suggestion.
        device: where to train.
        progress: told how far training is.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> features, labels = load_iris(return_X_y=True, as_frame=True)
        >>> suggestion = lh.suggest(features, labels)
        >>> f"{suggestion.accuracy:.2f}, and about {suggestion.audit.wrong:.0f} wrong labels"
        '0.97, and about 1 wrong labels'
    """
    return suggest_encoded(as_matrix(features), labels, seed=seed, device=device, progress=progress)


def suggest_encoded(
    matrix: NDArray[np.float32],
    labels: ArrayLike,
    *,
    seed: int = 0,
    device: torch.device | str = "cpu",
    progress: Progress = lambda done, total: None,
) -> Suggestion:
    """Suggest a loss, where the features are already a matrix (see :func:`encode`)."""
    classes, given = numbered(labels, len(matrix))
    check_memory(min(ROWS, len(given)), len(classes))
    for_rows, for_first_rows, for_choice, *for_repeats = children(seed, 3 + REPEATS)
    data = _narrow(Data(matrix, given, len(classes)).sample(ROWS, for_rows))
    few = data.sample(FIRST_ROWS, for_first_rows)
    folds, epochs = min(FOLDS, len(few.labels)), epochs_for(len(data.labels))
    families = [Family(name, HIDDEN, params) for name in losses.PAPER for params in losses.get(name).grid]
    networks = folds * (len(families) * len(LRS) + (FINALISTS + 1) * REPEATS)
    count = Count(networks * epochs, progress)
    how: dict[str, Any] = {"epochs": epochs, "device": device, "advance": count}
    by_loss: dict[str, Setting] = {}
    for setting in ranked(few, families, LRS, folds=folds, seed=for_choice, **how):
        by_loss.setdefault(setting.family.loss, setting)
    others = [setting for setting in by_loss.values() if setting.family.loss != PLAIN]
    finalists = [*others[:FINALISTS], by_loss[PLAIN]]
    splits = [stratified(data.labels, folds, repeat) for repeat in for_repeats]
    fits = fitted(data, splits, finalists, **how)
    count.finish()
    right = np.stack([fit.right(data.labels)[0].numpy() for fit in fits]).astype(np.float64)
    accuracy = right.mean(1)
    best = int(accuracy.argmax())
    good = np.flatnonzero(accuracy >= accuracy[best] - WITHIN)
    probability = mean_probability([fits[number] for number in good], data)
    gains = right[best] - right[-1]
    return Suggestion(
        finalists[best].family.loss,
        {**losses.get(finalists[best].family.loss).defaults, **finalists[best].family.params},
        finalists[best].lr,
        float(accuracy[best]),
        float(gains.mean()),
        float(gains.std() / np.sqrt(len(gains))),
        audit_of(probability, data.labels, classes, [finalists[number] for number in good]),
        _comparison(
            by_loss, {setting.family.loss: float(share) for setting, share in zip(finalists, accuracy, strict=True)}
        ),
    )


def _narrow(data: Data) -> Data:
    """With so few features that training takes seconds, of variance 1 on average."""
    if data.inputs.shape[1] <= WIDTH:
        return data
    centred = torch.from_numpy(data.inputs - data.inputs.mean(0))
    left, size, _ = torch.linalg.svd(centred, full_matrices=False)
    components = (left * size)[:, :WIDTH]
    return replace(data, inputs=(components / components.square().mean().sqrt()).numpy())


def _comparison(by_loss: Mapping[str, Setting], accuracy: Mapping[str, float]) -> pd.DataFrame:
    rows = [
        {
            "loss": loss,
            "params": dict(setting.family.params),
            "lr": setting.lr,
            "first": setting.accuracy,
            "accuracy": accuracy.get(loss, np.nan),
        }
        for loss, setting in by_loss.items()
    ]
    frame: pd.DataFrame = optional("pandas", "audit").DataFrame(rows)
    return frame.sort_values(["accuracy", "first"], ascending=False, kind="stable", ignore_index=True)
