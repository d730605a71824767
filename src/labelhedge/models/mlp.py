"""Multilayer perceptrons, M at once: every layer of all of them is one batched matrix product."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Learn = Callable[[int, Tensor, Tensor], None]
_ALIGNMENT = 4
"""Rows of this many numbers are what matrix products read fastest."""


def with_bias(inputs: Tensor) -> Tensor:
    """Rows of features with a 1 behind them, which makes the last weights the biases, and zeros up to the alignment.

    Example:
        >>> with_bias(torch.tensor([[5.0, 6.0]]))
        tensor([[5., 6., 1., 0.]])
    """
    rows, features = inputs.shape
    padded = inputs.new_zeros(rows, _padded(features))
    padded[:, :features], padded[:, features] = inputs, 1
    return padded


def _padded(units: int) -> int:
    return math.ceil((units + 1) / _ALIGNMENT) * _ALIGNMENT


class StackedMLP:
    """``groups × members`` perceptrons with tanh; the members of a group see the same inputs.

    A layer's weights are ``(M, out, in)``, the bias behind the others as in :func:`with_bias`, and activations are
    ``(M, units, B)``: with the samples last, a group's first layer is one matrix product, and small layers are fast
    on a CPU. The way back is written out by hand: no graph, and few operations.

    Args:
        sizes: Features, units of the hidden layers, classes.
        seeds: One per group. Its members start from the same Xavier-normal weights and zero biases, which depend on the
            seed alone.
        members: Networks per group.
        classes_last: Whether logits are ``(M, B, K)`` instead of ``(M, K, B)``.
        device: Where the weights live.
        dtype: Their type.

    Example:
        >>> networks = StackedMLP((4, 3, 2), seeds=[0, 1], members=5)
        >>> inputs = with_bias(torch.zeros(7, 4)).expand(2, -1, -1)
        >>> networks.logits(inputs).shape
        torch.Size([10, 2, 7])
    """

    def __init__(
        self,
        sizes: Sequence[int],
        *,
        seeds: Sequence[int],
        members: int,
        classes_last: bool = False,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.sizes, self.groups, self.members, self.classes_last = tuple(sizes), len(seeds), members, classes_last
        starts = [_xavier_normal(self.sizes, seed) for seed in seeds]
        self.weights = [
            torch.stack(layer).to(device, dtype).repeat_interleave(members, 0) for layer in zip(*starts, strict=True)
        ]
        self._hidden: dict[int, list[Tensor]] = {}

    @staticmethod
    def count_weights(sizes: Sequence[int]) -> int:
        """The numbers that one network has."""
        return sum(outputs * _padded(inputs) for inputs, outputs in itertools.pairwise(sizes))

    def logits(self, inputs: Tensor, weights: Sequence[Tensor] | None = None) -> Tensor:
        """The logits for ``inputs`` ``(groups, B, features)``, of these networks or of others with such ``weights``."""
        first, *others = self.weights if weights is None else weights
        hidden = self._activations(inputs.shape[1])
        net = torch.bmm(first.view(self.groups, -1, first.shape[-1]), inputs.mT).view(len(first), first.shape[1], -1)
        if not others and self.classes_last:
            return net.mT.contiguous()
        for units, weight in zip(hidden, others, strict=True):
            _tanh(net, out=units[:, : net.shape[1]])
            last = weight is others[-1]
            net = torch.bmm(units.mT, weight.mT) if last and self.classes_last else torch.bmm(weight, units)
        return net

    def backward(self, inputs: Tensor, slope: Tensor, learn: Learn) -> None:
        """Go back through the layers from the derivative by the logits, after :meth:`logits` with these ``inputs``.

        Args:
            inputs: As for the logits.
            slope: Of the shape of the logits.
            learn: Called with each layer, last first, and the two factors of its gradient: ``(G, rows, B)`` and
                ``(G, B, in)``, whose product has the numbers of the layer's weights. It may change these weights.
        """
        if self.classes_last:
            slope = slope.mT
        hidden = self._activations(inputs.shape[1])
        for layer in range(len(hidden), 0, -1):
            units, width = hidden[layer - 1], self.sizes[layer]
            before = torch.bmm(self.weights[layer][:, :, :width].mT, slope)
            torch.ops.aten.tanh_backward.grad_input(before, units[:, :width], grad_input=before)
            learn(layer, slope, units.mT)
            slope = before
        learn(0, slope.reshape(self.groups, -1, slope.shape[-1]), inputs)

    def _activations(self, batch: int) -> list[Tensor]:
        """Buffers ``(M, units, B)`` for the hidden layers, with the row of ones for the bias."""
        if batch not in self._hidden:
            self._hidden[batch] = [
                self.weights[0].new_zeros(len(self.weights[0]), _padded(units), batch) for units in self.sizes[1:-1]
            ]
            for units, buffer in zip(self.sizes[1:-1], self._hidden[batch], strict=True):
                buffer[:, units] = 1
        return self._hidden[batch]


def _tanh(values: Tensor, out: Tensor) -> None:
    """tanh; ``values`` are lost. On a CPU as ``2 sigmoid(2x) - 1``: 4 times as fast, and right to 2e-7 in float32."""
    if values.is_cuda:
        torch.tanh(values, out=out)
    else:
        torch.sigmoid(values.mul_(2), out=out).mul_(2).sub_(1)


def _xavier_normal(sizes: Sequence[int], seed: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    layers = []
    for fan_in, fan_out in itertools.pairwise(sizes):
        weight = torch.zeros(fan_out, _padded(fan_in), dtype=torch.float64)
        scale = math.sqrt(2 / (fan_in + fan_out))
        weight[:, :fan_in] = scale * torch.randn(fan_out, fan_in, generator=generator, dtype=torch.float64)
        layers.append(weight)
    return layers
