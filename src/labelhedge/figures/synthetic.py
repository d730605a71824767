"""The synthetic experiment: four Gaussians, three classes, one hard clean sample and one mislabelled sample.

The paper gives means, standard deviation, learning rate, epochs, λ0 and α. It does not give the numbers marked as our
choice. These were chosen after trying others, because with them λ ends near the paper's values: so that λ ends there is
no finding. With seeds 0 and 1, λ of both samples fell to 0 at the places in ``ELSEWHERE``, and so it did in batches
of 64, which were tried with the two near (0.1, 0.2) and (0.05, -0.3).
"""

from __future__ import annotations

import copy
import functools
import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from labelhedge import losses
from labelhedge.losses import ALDRKLLoss
from labelhedge.losses.ldr_family import ldr_weights

MEANS = ((0.8, 0.8), (0.8, -0.8), (-0.8, 0.8), (-0.8, -0.8))
SPREAD = 0.3
LEARNING_RATE, MOMENTUM = 0.01, 0.9
LAMBDA0, ALPHA = 10.0, 0.05
NUM_CLASSES = 3

# Our choice:
CLASS_OF_MEAN = (0, 0, 1, 2)
SAMPLES_PER_MEAN = 50
HIDDEN = (16, 16)
HARD = (0.25, 0.3)
"""Of class 0 and labelled so, but far from the others."""
MISLABELLED = (0.0, -0.5)
"""Of class 0, labelled as class 2."""
LABEL_OF_MISLABELLED = 2
ELSEWHERE = (((0.2, 0.4), (0.3, -0.6)), ((0.3, 0.5), (0.1, -0.4)))
"""Other places for the two that were tried."""
MARGIN = 0.1

ADDED = ("hard clean", "mislabelled")
PAPERS_LAMBDA = {"hard clean": 0.001, "mislabelled": 8.4}
"""Where λ ends in the paper, whose samples lie elsewhere."""


@dataclass(frozen=True, eq=False)
class Samples:
    """Points of the plane with true and given labels; the last two are the added ones, in the order of ``ADDED``."""

    points: Tensor
    true: Tensor
    given: Tensor


@dataclass(frozen=True, eq=False)
class Experiment:
    """Networks trained from the same start.

    Attributes:
        samples: All of them, with the added two.
        networks: By name: the one that has not seen the two added samples, then one for each loss.
        lam: ``(epochs, samples)`` λ by epoch with ALDR-KL.
        kl: ``(epochs, samples)`` KL(p, 1/K) from which each λ was computed.
        lam_right_label: The same as ``lam`` where the mislabelled sample has its right label.
        lam_elsewhere: ``(places, 2)`` λ of the two at the end if they lie at the places in ``ELSEWHERE``.
    """

    samples: Samples
    networks: Mapping[str, nn.Module]
    lam: Tensor
    kl: Tensor
    lam_right_label: Tensor
    lam_elsewhere: Tensor

    @property
    def mean_lambda(self) -> float:
        """The λ of the network that learns with LDR-KL, as in the paper: the mean over samples and epochs."""
        return float(self.lam.mean())


@functools.cache
def fine_tuned(seed: int, before: int, after: int) -> Experiment:
    """``before`` epochs of cross entropy without the added samples, then ``after`` epochs with them and each loss."""
    start = _network(seed)
    samples = draw(seed)
    _train(start, samples.points[:-2], samples.given[:-2], "ce", before)
    return _continue("before", start, start, samples, after)


@functools.cache
def from_scratch(seed: int, epochs: int) -> Experiment:
    """Each loss from the same random weights; and, to compare with, cross entropy without the added samples."""
    start = _network(seed)
    samples = draw(seed)
    without = copy.deepcopy(start)
    _train(without, samples.points[:-2], samples.given[:-2], "ce", epochs)
    return _continue("without the two", without, start, samples, epochs)


def draw(seed: int) -> Samples:
    """The samples."""
    generator = np.random.default_rng(seed)
    points = np.concatenate([generator.normal(mean, SPREAD, (SAMPLES_PER_MEAN, 2)) for mean in MEANS] + [[HARD]])
    true = [*np.repeat(CLASS_OF_MEAN, SAMPLES_PER_MEAN).tolist(), 0, 0]
    given = [*true[:-1], LABEL_OF_MISLABELLED]
    return Samples(
        torch.tensor(np.concatenate([points, [MISLABELLED]]), dtype=torch.float32),
        torch.tensor(true),
        torch.tensor(given),
    )


def _continue(name: str, reference: nn.Module, start: nn.Module, samples: Samples, epochs: int) -> Experiment:
    networks = {loss: copy.deepcopy(start) for loss in ("ce", "ldr-kl", "aldr-kl")}
    lam, kl = _train_adaptive(networks["aldr-kl"], samples.points, samples.given, epochs)
    control, _ = _train_adaptive(copy.deepcopy(start), samples.points, samples.true, epochs)
    elsewhere = []
    for places in ELSEWHERE:
        points = torch.cat([samples.points[:-2], torch.tensor(places)])
        elsewhere.append(_train_adaptive(copy.deepcopy(start), points, samples.given, epochs)[0][-1, -2:])
    experiment = Experiment(samples, {name: reference, **networks}, lam, kl, control, torch.stack(elsewhere))
    _train(networks["ce"], samples.points, samples.given, "ce", epochs)
    options = {"lam": experiment.mean_lambda, "margin": MARGIN, "normalize": None}
    _train(networks["ldr-kl"], samples.points, samples.given, "ldr-kl", epochs, **options)
    return experiment


def _network(seed: int) -> nn.Module:
    generator = torch.Generator().manual_seed(seed)
    sizes = (2, *HIDDEN, NUM_CLASSES)
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(sizes):
        linear = nn.Linear(inputs, outputs, device="meta").to_empty(device="cpu")  # leaves the global generator alone
        nn.init.xavier_normal_(linear.weight, generator=generator)
        nn.init.zeros_(linear.bias)
        layers += [linear, nn.Tanh()]
    return nn.Sequential(*layers[:-1])


def _train(network: nn.Module, points: Tensor, labels: Tensor, loss: str, epochs: int, **options: object) -> None:
    """Momentum SGD on all samples at once."""
    criterion = losses.create(loss, **options)
    optimizer = torch.optim.SGD(network.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
    for _ in range(epochs):
        optimizer.zero_grad()
        criterion(network(points), labels).backward()
        optimizer.step()


def _train_adaptive(network: nn.Module, points: Tensor, labels: Tensor, epochs: int) -> tuple[Tensor, Tensor]:
    """ALDR-KL with Algorithm 1; λ after each epoch, and the KL(p, 1/K) before it that λ is computed from."""
    options: dict[str, Any] = {"lambda0": LAMBDA0, "alpha": ALPHA, "margin": MARGIN, "normalize": None}
    criterion = ALDRKLLoss(num_samples=len(labels), **options)
    assert criterion.lam is not None
    optimizer = torch.optim.SGD(network.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
    everyone = torch.arange(len(labels))
    lam, kl = [], []
    for _ in range(epochs):
        optimizer.zero_grad()
        logits = network(points)
        weights = ldr_weights(logits.detach(), labels, lam=criterion.lam.clone(), margin=MARGIN)
        kl.append(math.log(NUM_CLASSES) - torch.special.entr(weights).sum(-1))
        criterion(logits, labels, everyone).backward()
        optimizer.step()
        lam.append(criterion.lam.clone())
    return torch.stack(lam), torch.stack(kl)
