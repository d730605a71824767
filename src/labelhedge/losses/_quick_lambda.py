"""The λ of ALDR-KL for a small batch on a CPU, where the time goes into the number of operations.

The same as `_adaptive.global_maximum` by default, for rows whose objective has a single peak. Sums over the classes are
torch's; what follows for each row is NumPy's, whose operations on few numbers take a third of torch's time.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from labelhedge.losses._adaptive import interpolation
from labelhedge.losses._closed_form import FEW

_NODES, _BASIS, _RATIOS = (table.numpy().astype(np.float32) for table in interpolation(1))
_BASIS_OF_RATIOS = np.ascontiguousarray((_BASIS * _RATIOS).T)


def serves(x: Tensor, lambda0: Any, alpha: Any, classes: Any) -> bool:
    """Whether to try it on gaps less their maximum, ``(N, K)``."""
    plain = alpha is None and type(lambda0) is float and type(classes) is float
    return plain and x.dim() == 2 and x.dtype == torch.float32 and len(x) <= FEW and x.device.type == "cpu"


def single_peak(x: Tensor, lambda0: float) -> Tensor | None:
    """The λ of each row, ``(N, 1)``; None where a row has several peaks, or a NaN."""
    strength = np.float32(2 * math.log(x.shape[1]))  # αλ0
    rows, last = np.arange(len(x)), len(_RATIOS) - 1
    with np.errstate(all="ignore"):
        samples = _cumulants(x, _NODES[:, :, None], lambda0).reshape(-1, len(x))
        objective = _BASIS_OF_RATIOS @ samples - (0.5 * strength * (1 - _RATIOS) ** 2)[:, None]
        rising = objective[1:] > objective[:-1]
        if (rising[1:] > rising[:-1]).any():
            return None
        index = rising.sum(0)
        before, after = np.maximum(index - 1, 0), np.minimum(index + 1, last)
        middle, high, low = _RATIOS[index], _RATIOS[before], _RATIOS[after]
        value = objective[index, rows]
        rise = (objective[before, rows] - value) / (high - middle)
        fall = (value - objective[after, rows]) / (middle - low)
        # the slope is `fall` half-way down and `rise` half-way up: the parabola's vertex is where it is 0
        vertex = 0.5 * (middle + low + (high - low) * fall / (fall - rise))
        ratio = np.where((index > 0) & (index < last), vertex, middle)

        log_mean, mean, variance = _cumulants(x, (1 / ratio)[:, None], lambda0)
        slope = log_mean - mean / ratio + strength * (1 - ratio)
        curvature = variance / ratio**3 - strength
        ratio = np.clip(ratio - slope / np.where(curvature < 0, curvature, -strength), low, high)
    return torch.from_numpy(ratio * np.float32(lambda0)).unsqueeze(-1)


def _cumulants(x: Tensor, sigma: Any, lambda0: float) -> Any:
    """``log mean exp(σx/λ0)`` and its first two derivatives in σ, one after the other."""
    e = torch.mul(x, torch.from_numpy(sigma * np.float32(1 / (lambda0 * math.log(2))))).exp2_()
    total = e.sum(-1).numpy()
    mean = e.mul_(x).sum(-1).numpy() / (total * np.float32(lambda0))
    square = e.mul_(x).sum(-1).numpy() / (total * np.float32(lambda0 * lambda0))
    return np.stack([np.log(total * np.float32(1 / x.shape[-1])), mean, square - mean * mean])
