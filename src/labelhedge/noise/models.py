"""Noise that looks at the label alone: uniform, class-dependent, by a matrix, and labels that people gave."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from labelhedge._random import uniforms
from labelhedge.noise._labels import NoisyLabels, check_labels, check_rate, noisy


def uniform(labels: ArrayLike, rate: float, *, num_classes: int | None = None, seed: int = 0) -> NoisyLabels:
    """With probability ``rate`` a label becomes any of the K classes, itself included (the paper, section 6).

    So a share of ``rate * (1 - 1/K)`` of the labels really changes. With the same seed, a higher rate changes all that
    a lower one changes, in the same way.

    Args:
        labels: clean labels, ``(N,)``, whole numbers from 0 to K - 1. Never modified.
        rate: in [0, 1].
        num_classes: K; the largest label + 1 if not given.
        seed: the same seed gives the same flips on every machine.

    Example:
        >>> noisy = lh.noise.uniform([0, 1, 2, 3, 0, 1, 2, 3], 0.5, seed=1)
        >>> noisy.labels.tolist()
        [0, 2, 2, 0, 2, 1, 3, 3]
        >>> int(noisy.flipped.sum())
        4
    """
    clean, k = check_labels("labels", labels, num_classes)
    rate = check_rate(rate)
    drawn = uniforms(seed, len(clean)) < rate
    anything = (uniforms(seed, len(clean), stream=1) * k).astype(np.int64)
    return noisy(clean, np.where(drawn, anything, clean), np.full((k, k), rate / k) + (1 - rate) * np.eye(k))


def class_dependent(
    labels: ArrayLike,
    rate: float,
    mapping: Mapping[int, int] | None = None,
    *,
    num_classes: int | None = None,
    seed: int = 0,
) -> NoisyLabels:
    """With probability ``rate`` a label becomes the class that ``mapping`` gives for it (the paper, section 6).

    Args:
        labels: clean labels, ``(N,)``, whole numbers from 0 to K - 1. Never modified.
        rate: in [0, 1].
        mapping: what a class is mistaken for; a class it does not name keeps its labels. Not given: the next class, the
            last becoming the first. ``noise.settings.MAPPINGS`` has the paper's for Letter, Vowel and News20.
        num_classes: K; the largest label + 1 if not given.
        seed: the same seed gives the same flips on every machine.

    Example:
        >>> lh.noise.class_dependent([0, 1, 2, 0, 1, 2], 1.0, {0: 1, 1: 0}).labels.tolist()
        [1, 0, 2, 1, 0, 2]
        >>> lh.noise.class_dependent([0, 1, 2], 1.0).labels.tolist()
        [1, 2, 0]
    """
    clean, k = check_labels("labels", labels, num_classes)
    rate = check_rate(rate)
    if mapping is None:
        target = (np.arange(k) + 1) % k
    else:
        target = np.arange(k)
        for before, after in mapping.items():
            if not (0 <= before < k and 0 <= after < k):
                raise ValueError(f"mapping must name classes in 0 … {k - 1}, got {before}: {after}")
            target[before] = after
    matrix = (1 - rate) * np.eye(k)
    matrix[np.arange(k), target] += rate
    drawn = uniforms(seed, len(clean)) < rate
    return noisy(clean, np.where(drawn, target[clean], clean), matrix)


def transition(labels: ArrayLike, matrix: ArrayLike, *, seed: int = 0) -> NoisyLabels:
    """Draw each label from the row of ``matrix`` that belongs to its class.

    Args:
        labels: clean labels, ``(N,)``, whole numbers from 0 to K - 1. Never modified.
        matrix: ``(K, K)``, non-negative, each row summing to 1: the probability of each label given the clean one.
        seed: the same seed gives the same flips on every machine.

    Example:
        >>> lh.noise.transition([0, 1, 0, 1, 0, 1], [[0.5, 0.5], [0.0, 1.0]], seed=3).labels.tolist()
        [1, 1, 1, 1, 0, 1]
    """
    rows = np.array(matrix, dtype=np.float64)
    if rows.ndim != 2 or rows.shape[0] != rows.shape[1]:
        raise ValueError(f"matrix must be square, one row and one column per class, got {rows.shape}")
    # Written so that NaN fails too.
    if not (np.all(rows >= 0) and np.allclose(rows.sum(1), 1, rtol=0, atol=1e-6)):
        raise ValueError(f"matrix must be non-negative with rows that sum to 1, got rows that sum to {rows.sum(1)}")
    clean, k = check_labels("labels", labels, len(rows))
    cumulative = rows.cumsum(1)
    cumulative /= cumulative[:, -1:]  # the last is exactly 1, so that no draw falls behind it
    draws = uniforms(seed, len(clean))
    labels_out = clean.copy()
    for a in range(k):
        of_class = clean == a
        labels_out[of_class] = np.searchsorted(cumulative[a], draws[of_class], side="right")
    return noisy(clean, labels_out, rows)


def given(labels: ArrayLike, observed: ArrayLike, *, num_classes: int | None = None) -> NoisyLabels:
    """Labels that somebody gave, such as CIFAR-10N's; the transition matrix holds their frequencies.

    Args:
        labels: clean labels, ``(N,)``, whole numbers from 0 to K - 1.
        observed: the labels in their place, ``(N,)``, from the same classes.
        num_classes: K; the largest label of either + 1 if not given.

    Example:
        >>> noisy = lh.noise.given([0, 0, 1, 1], [0, 1, 1, 1])
        >>> noisy.transition.tolist()
        [[0.5, 0.5], [0.0, 1.0]]
    """
    if num_classes is None:
        _, num_classes = check_labels("labels", np.concatenate([np.ravel(labels), np.ravel(observed)]), None)
    clean, k = check_labels("labels", labels, num_classes)
    noisy_labels, _ = check_labels("observed", observed, k)
    if len(clean) != len(noisy_labels):
        raise ValueError(f"observed must have one label for each of the {len(clean)} labels, got {len(noisy_labels)}")
    counts = np.bincount(clean * k + noisy_labels, minlength=k * k).reshape(k, k).astype(np.float64)
    counts[counts.sum(1) == 0] = np.eye(k)[counts.sum(1) == 0]  # of a class never seen, nothing is known to change
    return noisy(clean, noisy_labels, counts / counts.sum(1, keepdims=True))
