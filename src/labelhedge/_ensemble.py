"""Trained networks as plain arrays: their mean prediction, and how sure it should be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
LEAST = 1e-12
"""The smallest probability that a mean of networks is taken to give."""


@dataclass(frozen=True)
class Member:
    """The networks of one setting, one for each fold of a cross-validation."""

    layers: tuple[NDArray[np.float32], ...]
    """``(folds, out, in + 1)``, the bias last."""
    epochs: int
    """How long they were trained."""
    sharpness: float = 1.0
    """What the logits are multiplied by: the inverse of a temperature."""

    @property
    def folds(self) -> int:
        return len(self.layers[0])

    def logits(self, inputs: Numbers, fold: int) -> Numbers:
        """Of the network of one fold, ``(n, K)``."""
        units = inputs
        for number, layer in enumerate(self.layers):
            weight = layer[fold].astype(np.float64)
            units = (np.tanh(units) if number else units) @ weight[:, :-1].T + weight[:, -1]
        return units

    def out_of_sample(self, inputs: Numbers, fold: NDArray[np.int64]) -> Numbers:
        """Logits ``(n, K)`` for each row by the network that has not learned from it."""
        logits = np.empty((len(inputs), self.layers[-1].shape[1]))
        for number in range(self.folds):
            logits[fold == number] = self.logits(inputs[fold == number], number)
        return logits


@dataclass(frozen=True)
class Ensemble:
    """The mean of the probabilities of all members' networks, made sharper or less sharp."""

    members: tuple[Member, ...]
    sharpness: float = 1.0

    def log_mean(self, inputs: Numbers) -> Numbers:
        """The logarithm of the networks' mean probabilities for new inputs."""
        blocks = [self._log_mean(inputs[start : start + 4096]) for start in range(0, len(inputs), 4096)]
        return np.concatenate(blocks)

    def probabilities(self, inputs: Numbers) -> Numbers:
        """For new inputs."""
        return softmax(self.sharpness * self.log_mean(inputs))

    def _log_mean(self, inputs: Numbers) -> Numbers:
        return log_mean(
            [
                softmax(member.sharpness * member.logits(inputs, fold))
                for member in self.members
                for fold in range(member.folds)
            ]
        )


def calibrated(
    members: Sequence[Member], inputs: Numbers, fold: NDArray[np.int64], labels: NDArray[np.int64], weight: Numbers
) -> tuple[Ensemble, Numbers]:
    """An ensemble whose members, and then their mean, are as sure as labels that they have not seen allow.

    Returns:
        It, and the logarithm of its mean probabilities ``(n, K)`` for each row by networks that have not seen it.
    """
    sharpened, probabilities = [], []
    for member in members:
        logits = member.out_of_sample(inputs, fold)
        sharpness = best_sharpness(logits, labels, weight)
        sharpened.append(replace(member, sharpness=sharpness))
        probabilities.append(softmax(sharpness * logits))
    out_of_sample = log_mean(probabilities)
    return Ensemble(tuple(sharpened), best_sharpness(out_of_sample, labels, weight)), out_of_sample


def log_mean(probabilities: Sequence[Numbers]) -> Numbers:
    """The logarithm of the mean."""
    mean = sum(probabilities, np.zeros(1)) / len(probabilities)
    logarithm: Numbers = np.log(np.maximum(mean, LEAST))
    return logarithm


def softmax(logits: Numbers) -> Numbers:
    """Over the last axis.

    Example:
        >>> softmax(np.array([[0.0, np.log(3)]]))
        array([[0.25, 0.75]])
    """
    powers: Numbers = np.exp(logits - logits.max(-1, keepdims=True))
    powers /= powers.sum(-1, keepdims=True)
    return powers


def best_sharpness(logits: Numbers, labels: NDArray[np.int64], weight: Numbers) -> float:
    """The β, from 0.001 to 1000, for which ``softmax(β logits)`` has the least log loss: 1/β is the temperature.

    The log loss is convex in β, so that halving finds where its slope is 0. One made-up row that is of every class
    alike keeps β finite where all predictions are right.

    Example:
        >>> logits = np.log([[0.6, 0.4]] * 100)
        >>> round(best_sharpness(logits, np.repeat([0, 1], [84, 16]), np.ones(100)), 1)
        4.0
    """
    share = weight / weight.sum()
    made_up = 1 / (len(labels) + 1)
    label_logit = (1 - made_up) * logits[np.arange(len(labels)), labels] + made_up * logits.mean(1)
    low, high = np.log(1e-3), np.log(1e3)
    for _ in range(40):
        middle = (low + high) / 2
        slope = share @ ((softmax(np.exp(middle) * logits) * logits).sum(1) - label_logit)
        low, high = (middle, high) if slope < 0 else (low, middle)
    return float(np.exp((low + high) / 2))
