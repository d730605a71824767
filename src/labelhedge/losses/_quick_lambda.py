"""The λ of ALDR-KL for few rows on a CPU, where the time goes into the number of operations.

The same as `_adaptive.global_maximum` by default, when λ is in [λ0/2, λ0], for rows whose objective has a single peak;
the other rows are left to it. Sums over the classes are torch's; what follows for each row is NumPy's, whose operations
on few numbers take a third of torch's time.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from labelhedge.losses._adaptive import global_maximum, interpolation
from labelhedge.losses._formulas import FEW

Numbers: TypeAlias = npt.NDArray[np.float32]


def _tables() -> tuple[Numbers, ...]:
    """Nodes ``(n, 1)`` and points of λ/λ0, and from samples at the nodes the objective there, its slope and its bend.

    By ``F(σ) = log mean exp(σx/λ0)`` the objective is ``F(σ)/σ`` at ``σ = λ0/λ``, less a penalty.
    """
    F, slope, bend = (interpolation(1, derivative)[1].numpy().T for derivative in range(3))
    nodes, _, ratio = (table.numpy() for table in interpolation(1))
    sigma = 1 / ratio[:, None]
    found = (nodes, ratio, F / sigma, F - sigma * slope, sigma**3 * bend)
    return tuple(np.ascontiguousarray(table, dtype=np.float32) for table in found)


_NODES, _RATIOS, _OBJECTIVE, _SLOPE, _BEND = _tables()
_LOW, _HIGH = np.append(_RATIOS[1:], _RATIOS[-1]), np.append(_RATIOS[0], _RATIOS[:-1])
"""The neighbours of each point."""
_LEFT = 1 - _RATIOS
_PENALTY = (0.5 * _LEFT * _LEFT)[:, None]
_FLAT = np.float32(-1e-3)
"""No curvature is less than this."""


def serves(x: Tensor, lambda0: Any, alpha: Any, classes: Any) -> bool:
    """Whether it takes these gaps less their maximum, ``(N, K)``."""
    plain = alpha is None and type(lambda0) is float and lambda0 < math.inf and type(classes) is float
    return plain and x.dim() == 2 and x.dtype == torch.float32 and 0 < x.shape[0] <= FEW and x.device.type == "cpu"


def quick_lambda(x: Tensor, lambda0: float) -> Tensor:
    """The λ of each row, ``(N, 1)``."""
    strength = np.float32(2 * math.log(x.shape[1]))  # αλ0
    with np.errstate(all="ignore"):  # a row may have a NaN
        samples = _samples(x, lambda0, _NODES).reshape(-1, x.shape[0])
        objective = _OBJECTIVE @ samples - strength * _PENALTY
        rising = objective[1:] > objective[:-1]
        index, rows = np.add.reduce(rising, 0, dtype=np.intp), np.arange(x.shape[0])
        ratio, low, high = _RATIOS[index], _LOW[index], _HIGH[index]
        slope, bend = (_SLOPE @ samples)[index, rows], (_BEND @ samples)[index, rows]
        ratio -= (slope + strength * _LEFT[index]) / np.minimum(bend - strength, _FLAT)
        ratio = np.minimum(np.maximum(ratio, low), high)

        sigma = 1 / ratio
        value, slope, bend = _samples(x, lambda0, sigma)
        slope = value - sigma * slope + strength * (1 - ratio)
        ratio -= slope / np.minimum(bend * sigma * sigma * sigma - strength, _FLAT)
        lam = torch.from_numpy(np.minimum(np.maximum(ratio, low), high)[:, None] * np.float32(lambda0))
        turns = rising[1:] > rising[:-1]
    if turns.any():
        several = torch.from_numpy(turns.any(0))
        lam[several] = global_maximum(x[several], lambda0, None, float(x.shape[1]))
    return lam


def _samples(x: Tensor, lambda0: float, sigma: Numbers) -> Numbers:
    """``log mean exp(σx/λ0)`` and its first two derivatives, for σ ``(..., N)`` or ``(..., 1)``."""
    e = torch.mul(x, torch.from_numpy((sigma * np.float32(1 / (lambda0 * math.log(2))))[..., None])).exp2_()
    total = e.sum(-1).numpy()
    found: Numbers = np.empty((3, *total.shape), dtype=np.float32)
    np.log(total * np.float32(1 / x.shape[1]), out=found[0])
    total *= np.float32(lambda0)
    mean = np.divide(e.mul_(x).sum(-1).numpy(), total, out=found[1])
    total *= np.float32(lambda0)
    np.subtract(e.mul_(x).sum(-1).numpy() / total, mean * mean, out=found[2])
    return found
