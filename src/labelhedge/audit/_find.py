"""From features and labels to an audit."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from labelhedge._errors import UserError
from labelhedge._optional import optional
from labelhedge._random import children
from labelhedge.audit._audit import Audit
from labelhedge.audit._features import as_matrix
from labelhedge.audit._noise_model import likeliest, posterior
from labelhedge.train.crossfit import (
    FOLDS,
    SAMPLE,
    SETTINGS,
    WITHIN,
    CrossFit,
    Data,
    Family,
    Setting,
    epochs_for,
    fitted,
    ranked,
    shortlist,
    stratified,
)

if TYPE_CHECKING:
    import pandas as pd

Progress = Callable[[int, int], None]
"""Told how many network-epochs are trained, and of how many."""
HIDDEN = (128,)
FAMILIES = tuple(
    Family(loss, hidden, params)
    for loss, params in (("ce", {}), ("sce", {"alpha": 0.5}), ("gce", {"q": 0.7}), ("js", {"pi1": 0.5}))
    for hidden in ((), HIDDEN)
)
LRS = (0.3, 0.1, 0.03)


def repeats_for(rows: int) -> int:
    return 3 if rows < 3000 else 2 if rows < 12_000 else 1


def find(
    features: pd.DataFrame | ArrayLike,
    labels: ArrayLike,
    *,
    seed: int = 0,
    device: torch.device | str = "cpu",
    progress: Progress = lambda done, total: None,
) -> Audit:
    """Find the labels that are probably wrong.

    Args:
        features: ``(n, d)``, a DataFrame (numbers, categories, booleans, dates; see :func:`encode`) or numbers.
        labels: ``(n,)``, of any type that can be sorted. Every class needs two rows at least.
        seed: the same seed gives the same suspects.
        device: where to train.
        progress: told how far training is.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> features, labels = load_iris(return_X_y=True, as_frame=True)
        >>> labels[0] = 2
        >>> lh.audit.find(features, labels).suspects().head(1)[["row", "given", "suggested"]]
           row given suggested
        0    0     2         0
    """
    return find_encoded(as_matrix(features), labels, seed=seed, device=device, progress=progress)


def find_encoded(
    matrix: NDArray[np.float32],
    labels: ArrayLike,
    *,
    seed: int = 0,
    device: torch.device | str = "cpu",
    progress: Progress = lambda done, total: None,
) -> Audit:
    """Find the labels that are probably wrong, where the features are already a matrix (see :func:`encode`)."""
    classes, given = numbered(labels, len(matrix))
    check_memory(len(given), len(classes))
    data = Data(matrix, given, len(classes))
    networks, settings = trained(data, seed, device, progress)
    return audit_of(mean_probability(networks, data), given, classes, settings)


def audit_of(
    probability: Tensor, given: NDArray[np.int64], classes: NDArray[Any], settings: Sequence[Setting]
) -> Audit:
    """The audit that follows from the probabilities ``(n, K)`` of the classes."""
    likely = likeliest(probability.numpy(), given)
    q, confusion = posterior(likely, len(classes))
    other = 1 + q[:, 1:].argmax(1)
    suggested = likely.classes[np.arange(len(given)), other]
    wrong = np.minimum(q[:, 1:].sum(1), 1.0)  # and not 1 - q[:, 0], which is 0 for too many rows
    return Audit(tuple(classes.tolist()), given, suggested, wrong, confusion, tuple(settings))


def numbered(labels: ArrayLike, rows: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The different labels, and the position of each row's among them."""
    series = optional("pandas", "audit").Series(labels)
    if len(series) != rows:
        raise UserError(f"labels must be one for each of the {rows:,} rows of features, got {len(series):,}")
    if series.isna().any():
        raise UserError(f"labels must not be missing, got {int(series.isna().sum()):,} that are")
    classes, given, counts = np.unique(series.to_numpy(), return_inverse=True, return_counts=True)
    if len(classes) < 2 or counts.min() < 2:
        rarest = classes.tolist()[counts.argmin()]
        rare = f"{rarest!r} with one row" if len(classes) > 1 else f"{rarest!r} alone"
        raise UserError(f"labels must be of two classes or more with two rows or more each, got {rare}")
    return classes, given.astype(np.int64)


def check_memory(rows: int, classes: int) -> None:
    """See to it, before anything is trained, that the probabilities and the confusion of all classes can be held."""
    needed = 4 * rows * classes + 8 * classes**2
    if hasattr(os, "sysconf") and needed > os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"):
        raise UserError(
            f"{rows:,} rows of {classes:,} classes take {needed / 1e9:,.0f} GB, more than this machine has; "
            "give it the rows of some classes at a time"
        )


def trained(
    data: Data, seed: int, device: torch.device | str = "cpu", progress: Progress = lambda done, total: None
) -> tuple[list[CrossFit], list[Setting]]:
    """Networks in repeated cross-validation, and the settings that they have."""
    rows = len(data.labels)
    folds = min(FOLDS, rows)
    for_sample, for_choice, *for_repeats = children(seed, 2 + repeats_for(rows))
    sample = data.sample(SAMPLE, for_sample)
    to_choose = len(FAMILIES) * len(LRS) * folds * epochs_for(len(sample.labels))
    to_fit = SETTINGS * folds * repeats_for(rows) * epochs_for(rows)
    count = Count(to_choose + to_fit, progress)
    settings = ranked(
        sample,
        FAMILIES,
        LRS,
        folds=folds,
        epochs=epochs_for(len(sample.labels)),
        seed=for_choice,
        device=device,
        advance=count,
    )
    chosen = shortlist(settings, SETTINGS, WITHIN)
    splits = [stratified(data.labels, folds, repeat) for repeat in for_repeats]
    networks = fitted(data, splits, chosen, epochs=epochs_for(rows), device=device, advance=count)
    count.finish()
    chosen = [replace(s, accuracy=fit.accuracy(data.labels)[0]) for s, fit in zip(chosen, networks, strict=True)]
    best = max(s.accuracy for s in chosen)
    good = [number for number, s in enumerate(chosen) if s.accuracy >= best - WITHIN]
    return [networks[number] for number in good], [chosen[number] for number in good]


class Count:
    """Adds up what has been trained."""

    def __init__(self, total: int, progress: Progress) -> None:
        self._done, self._total, self._progress = 0, total, progress
        self._one_at_a_time = Lock()

    def __call__(self, networks: int) -> None:
        with self._one_at_a_time:
            self._done += networks
            self._progress(min(self._done, self._total), self._total)

    def finish(self) -> None:
        if self._done < self._total:
            self._progress(self._total, self._total)


def mean_probability(networks: Sequence[CrossFit], data: Data) -> Tensor:
    """The mean of the probabilities ``(n, K)`` that networks give to rows that they have not seen."""
    probability = torch.zeros(len(data.labels), data.classes, dtype=torch.float32)
    times = torch.zeros(len(data.labels), dtype=torch.float32)
    for rows, block in _blocks(networks):
        probability.index_add_(0, rows, block)
        times.index_add_(0, rows, torch.ones(len(rows), dtype=torch.float32))
    return probability.div_(times[:, None])


def _blocks(networks: Sequence[CrossFit]) -> Iterator[tuple[Tensor, Tensor]]:
    """Rows, and the mean of the networks' probabilities for them, some at a time."""
    step = min(fit.rows_at_once for fit in networks)
    for start in range(0, networks[0].rows.shape[1], step):
        block = slice(start, start + step)
        probability = torch.stack([fit.out_of_sample(block)[:, 0].softmax(-1) for fit in networks]).mean(0).cpu()
        yield networks[0].rows[:, block].reshape(-1), probability.flatten(0, 1)
