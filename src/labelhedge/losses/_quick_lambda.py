"""The λ of ALDR-KL for few rows on a CPU, where the time goes into the number of operations.

The same as `_adaptive.fixed_point_step` and `_adaptive.global_maximum` by default, when λ is in [λ0/2, λ0]; rows whose
objective has more than one peak are left to the latter. Sums over the classes are torch's; what follows for each row is
NumPy's, whose operations on few numbers take a third of torch's time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from labelhedge.losses._adaptive import global_maximum, interpolation

Numbers: TypeAlias = npt.NDArray[Any]
"""In float32."""


class _Search:
    """Where the objective is sampled, and what of it is interpolated there and between.

    By ``F(σ) = log mean exp(σx/λ0)`` the objective is ``F(σ)/σ`` at ``σ = λ0/λ``, less a penalty.
    """

    def __init__(self, octave: Sequence[float], fine: int) -> None:
        nodes, _, ratio = (table.numpy() for table in interpolation(1, 0, octave, fine))
        F, slope, bend = (interpolation(1, order, octave, fine)[1].numpy().T for order in range(3))
        sigma = 1 / ratio[:, None]
        self.count = len(ratio)
        self.sigma = torch.from_numpy(nodes.astype(np.float32)[..., None])
        """The nodes, ``(n, 1, 1)``."""
        self.found = torch.from_numpy(
            np.concatenate([F / sigma, F - sigma * slope, sigma**3 * bend]).astype(np.float32, order="C")
        )
        """From samples at the nodes to the objective, its slope and its bend at the points."""
        neighbours = np.append(ratio[1:], ratio[-1]), np.append(ratio[0], ratio[:-1])
        self.points = np.stack([ratio, *neighbours, 1 - ratio]).astype(np.float32)
        """Of the points: λ/λ0, those of the neighbours, and 1 - λ/λ0."""
        self.penalty = (0.5 * self.points[3] * self.points[3])[:, None]


_MANY, _FEW = _Search((1, 4 / 3, 5 / 3, 2), fine=16), _Search((1, 1.5, 2), fine=12)
_FEW_CLASSES = 100
"""For so many the objective bends so little that three nodes serve: λ is within 2e-6 of the best in the worst rows."""
_FLAT = np.float32(-1e-3)
"""No curvature is less than this."""
_LOG2E, _ZERO = np.float32(1 / math.log(2)), np.float32(1e-10)


def quick_step(x: Tensor, start: Tensor, lambda0: float) -> tuple[Tensor, Numbers]:
    """One step of Algorithm 1 from λ ``(N, 1)``, and the penalty; see :func:`quick_lambda`."""
    exponent = torch.mul(x, torch.from_numpy(np.float32(lambda0) / np.maximum(start.to(x.dtype).numpy(), _ZERO)))
    e = exponent.exp2()
    total = e.sum(-1, keepdim=True).numpy()
    bits = np.log2(total) - e.mul_(exponent).sum(-1, keepdim=True).numpy() / total  # the entropy of p
    least = np.float32(0.5 * lambda0)
    return _with_penalty(bits * (least / np.float32(math.log2(x.shape[1]))) + least, x, lambda0)


def quick_lambda(x: Tensor, lambda0: float) -> tuple[Tensor, Numbers]:
    """The λ of each row, ``(N, 1)``, and its penalty ``(α/2)(λ - λ0)²``; a row may have a NaN, of which NumPy warns.

    x is the gaps less their maximum, ``(N, K)``, in units of ``λ0 log 2``.
    """
    rows = x.shape[0]
    strength = np.float32(2 * math.log(x.shape[1]))  # αλ0
    search = _FEW if x.shape[1] <= _FEW_CLASSES else _MANY
    samples = torch.from_numpy(_samples(x, search.sigma).reshape(-1, rows))
    # NumPy's own threads would wait for torch's, and without ``out`` autocast would take it in half precision
    found: Numbers = torch.mm(search.found, samples, out=x.new_empty(3 * search.count, rows)).numpy()
    objective = found[: search.count] - strength * search.penalty
    rising = objective[1:] > objective[:-1]
    index = np.add.reduce(rising, 0, dtype=np.uint8).astype(np.intp)
    points: Numbers = search.points.take(index, 1)
    there: Numbers = found.reshape(3, -1).take(index * rows + np.arange(rows), 1)
    ratio = _moved(points[0], there[1] + strength * points[3], there[2] - strength, points)

    sigma = 1 / ratio
    value, slope, bend = _samples(x, torch.from_numpy(sigma[:, None]))
    slope = value - sigma * slope + strength * (1 - ratio)
    ratio = _moved(ratio, slope, bend * sigma * sigma * sigma - strength, points)
    lam = ratio[:, None] * np.float32(lambda0)
    turns = rising[1:] > rising[:-1]
    if turns.any():
        several = turns.any(0)
        gaps = x[torch.from_numpy(several)] * (lambda0 * math.log(2))
        lam[several] = global_maximum(gaps, lambda0, None, float(x.shape[1])).numpy()
    return _with_penalty(lam, x, lambda0)


def _with_penalty(lam: Numbers, x: Tensor, lambda0: float) -> tuple[Tensor, Numbers]:
    excess = lam - np.float32(lambda0)
    return torch.from_numpy(lam), excess * excess * np.float32(math.log(x.shape[1]) / lambda0)


def _moved(ratio: Numbers, slope: Numbers, bend: Numbers, points: Numbers) -> Numbers:
    """A Newton step between the neighbours of the points."""
    moved = np.maximum(ratio - slope / np.minimum(bend, _FLAT), points[1])
    found: Numbers = np.minimum(moved, points[2])
    return found


def _samples(x: Tensor, sigma: Tensor) -> Numbers:
    """``log mean exp(σx log 2)`` and its first two derivatives in σ, for σ ``(..., N, 1)`` or ``(..., 1, 1)``."""
    e = torch.mul(x, sigma).exp2_()
    total = e.sum(-1).numpy()
    found: Numbers = np.empty((3, *total.shape), dtype=np.float32)
    np.log(total * np.float32(1 / x.shape[1]), out=found[0])
    total *= _LOG2E
    mean = np.divide(e.mul_(x).sum(-1).numpy(), total, out=found[1])
    total *= _LOG2E
    np.subtract(e.mul_(x).sum(-1).numpy() / total, mean * mean, out=found[2])
    return found
