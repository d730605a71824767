"""Momentum SGD with weight decay for stacked layers, as ``torch.optim.SGD`` makes it for one network."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from labelhedge.train._graph import compiled, compiles


class MomentumSGD:
    """Updates weights ``(M, out, in)`` from the two factors of their gradient.

    Args:
        weights: Of each layer.
        lr: ``(M, 1, 1)``
        weight_decay: ``(M, 1, 1)``
        momentum: A number.
    """

    def __init__(self, weights: Sequence[Tensor], lr: Tensor, weight_decay: Tensor, momentum: float) -> None:
        self.weights, self.lr, self.weight_decay, self.momentum = weights, lr, weight_decay, momentum
        self.velocities = [torch.zeros_like(weight) for weight in weights]
        self._descend = compiled(_descend) if compiles(lr.device) else _descend

    def step(self, layer: int, slope: Tensor, inputs: Tensor) -> None:
        """Descend along ``slope @ inputs``, of shapes ``(G, rows, B)`` and ``(G, B, in)`` where ``G·rows = M·out``."""
        velocity = self.velocities[layer]
        velocity.view(*slope.shape[:2], -1).baddbmm_(slope, inputs, beta=self.momentum)
        self._descend(self.weights[layer], velocity, self.lr, self.weight_decay)


def _descend(weight: Tensor, velocity: Tensor, lr: Tensor, decay: Tensor) -> None:
    velocity.addcmul_(weight, decay)
    weight.addcmul_(velocity, lr, value=-1)
