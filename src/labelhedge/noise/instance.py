"""Noise that looks at the features: labels are mistaken where two classes are hard to tell apart."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from labelhedge._random import uniforms
from labelhedge.noise._labels import Labels, Matrix, NoisyLabels, check_labels, check_rate, noisy

SHRINKAGE = 1e-3  # of the covariance matrix towards a multiple of the identity, so that it has an inverse
BLOCK = 4096  # rows treated at once, so that memory does not grow with the number of rows times that of the classes


def instance_dependent(
    labels: ArrayLike, rate: float, features: ArrayLike, *, num_classes: int | None = None, seed: int = 0
) -> NoisyLabels:
    """A label becomes its strongest rival, with a probability that is high where the features are ambiguous.

    The construction is the polynomial-margin-diminishing noise of Zhang, Zheng, Wu, Goswami and Chen, *Learning with
    Feature-Dependent Label Noise: A Progressive Approach*, ICLR 2021, type I: with η the class probabilities given the
    features, y the label and s the likeliest other class, the flip y → s has probability ∝ (1 - (η_y - η_s)²)/2, where
    a negative margin η_y - η_s counts as 0. Two things are ours: η comes from linear discriminant analysis on the clean
    labels (they train a network), and the probabilities are scaled, with 1 as the limit, to a mean of ``rate``.

    Args:
        labels: clean labels, ``(N,)``, whole numbers from 0 to K - 1. Never modified.
        rate: the share of labels that is expected to change, in [0, 1].
        features: ``(N, ...)``, numbers; everything after the first dimension is flattened.
        num_classes: K; the largest label + 1 if not given.
        seed: the same seed gives the same flips on every machine, up to the rounding of η (parts in 10^10).

    Returns:
        The labels; ``transition`` is the mean over the samples of each class.

    Example:
        >>> features = [[0.0], [0.1], [0.2], [0.9], [1.1], [1.8], [1.9], [2.0]]
        >>> noisy = lh.noise.instance_dependent([0, 0, 0, 0, 1, 1, 1, 1], 0.25, features, seed=4)
        >>> noisy.flipped.tolist()
        [False, False, False, True, True, False, False, False]
    """
    clean, k = check_labels("labels", labels, num_classes)
    rate = check_rate(rate)
    rows: NDArray[Any] = np.asarray(features)
    if rows.ndim < 2 or len(rows) != len(clean):
        raise ValueError(f"features must be ({len(clean)}, ...), one row for each label, got {rows.shape}")
    rows = rows.reshape(len(rows), -1)
    rival, ambiguity = _rivals(rows, clean, k)
    chance = _scaled_to_mean(ambiguity, rate)
    labels_out = np.where(uniforms(seed, len(clean)) < chance, rival, clean)
    matrix = np.zeros((k, k))
    np.add.at(matrix, (clean, rival), chance)
    np.add.at(matrix, (clean, clean), 1 - chance)
    matrix[matrix.sum(1) == 0] = np.eye(k)[matrix.sum(1) == 0]
    return noisy(clean, labels_out, matrix / matrix.sum(1, keepdims=True))


def _rivals(rows: NDArray[Any], labels: Labels, num_classes: int) -> tuple[Labels, Matrix]:
    """The likeliest other class of each row, and (1 - margin²)/2, between 0 and 1/2."""
    rival = np.empty(len(rows), np.int64)
    ambiguity = np.empty(len(rows))
    for block, log_eta in _discriminant_analysis(rows, labels, num_classes):
        mine = np.arange(len(log_eta)), labels[block]
        log_mine = log_eta[mine]
        log_eta[mine] = -np.inf
        rival[block] = log_eta.argmax(1)
        margin = np.exp(log_mine) - np.exp(log_eta.max(1))
        ambiguity[block] = (1 - np.maximum(margin, 0) ** 2) / 2
    return rival, ambiguity


def _discriminant_analysis(rows: NDArray[Any], labels: Labels, num_classes: int) -> Iterator[tuple[slice, Matrix]]:
    """Log probability of each class, block by block: normal classes with one covariance matrix, slightly shrunk."""
    blocks = [slice(start, start + BLOCK) for start in range(0, len(rows), BLOCK)]
    counts = np.bincount(labels, minlength=num_classes)
    means = np.zeros((num_classes, rows.shape[1]))
    for block in blocks:
        np.add.at(means, labels[block], rows[block].astype(np.float64))
    means /= np.maximum(counts, 1)[:, None]
    within = np.zeros((rows.shape[1],) * 2)
    for block in blocks:
        residual = rows[block] - means[labels[block]]
        within += residual.T @ residual
    within /= max(len(rows), 1)
    size = np.trace(within) / len(within)
    within = (1 - SHRINKAGE) * within + (SHRINKAGE * size + 1e-12) * np.eye(len(within))
    if not np.isfinite(within).all():
        raise ValueError("features must be finite numbers")
    directions = np.linalg.solve(within, means.T)
    with np.errstate(divide="ignore"):
        offset = np.log(counts / max(len(rows), 1)) - (means.T * directions).sum(0) / 2
    for block in blocks:
        score = rows[block] @ directions + offset
        score -= score.max(1, keepdims=True)
        yield block, score - np.log(np.exp(score).sum(1, keepdims=True))


def _scaled_to_mean(ambiguity: Matrix, mean: float) -> Matrix:
    """min(1, c·ambiguity) with the c that gives the mean; a row without ambiguity comes last, not never."""
    ambiguity = np.maximum(ambiguity, 1e-12)
    low, high = 0.0, 1e12
    for _ in range(200):
        c = (low + high) / 2
        low, high = (c, high) if np.minimum(1, c * ambiguity).mean() < mean else (low, c)
    return np.minimum(1, high * ambiguity)
