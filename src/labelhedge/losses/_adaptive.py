"""The inner problem of ALDR-KL: which λ a sample chooses.

For gaps ``q`` of a sample, with ``d = q - max q``, λ maximises ``λ log mean_k exp(d_k/λ) - (α/2)(λ - λ0)²``. The first
term is convex in λ, so there may be several local maxima. All functions take ``d`` as ``(..., K)`` and hyperparameters
as floats or ``(..., 1)``; none is differentiable.
"""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor

Number = float | Tensor

_NODES = (3, 4, 5, 6)
"""Where the objective is sampled, as multiples of 1/(3 λ0): an octave in 1/λ. Further octaves double them."""
_FINE = 16
"""Points of the interpolated objective between two nodes."""
_OCTAVES = 8
_ZERO = 1e-10
"""A ratio λ/λ0 that counts as 0."""


def strength(alpha: Number | None, lambda0: Number, classes: int) -> Number:
    """α, by default ``2 log K/λ0``; where λ0 = ∞ any will do, since then λ = ∞."""
    chosen = 2 * math.log(classes) / lambda0 if alpha is None else alpha
    if isinstance(lambda0, Tensor):
        return torch.where(lambda0.isinf(), 1.0, chosen)
    return 1.0 if math.isinf(lambda0) else chosen


def penalty(lam: Number, lambda0: Number, alpha: Number | None, classes: int) -> Number:
    """``(α/2)(λ - λ0)²``, and 0 where λ0 = ∞."""
    if isinstance(lambda0, Tensor):
        excess = torch.where(lambda0.isinf(), 0.0, lam - lambda0)
    else:
        excess = 0.0 if math.isinf(lambda0) else lam - lambda0
    return 0.5 * strength(alpha, lambda0, classes) * excess**2


def smallest(lambda0: Number, alpha: Number | None, classes: int) -> Number:
    """A lower bound of λ, since ``KL(p, 1/K) <= log K``."""
    return lambda0 - math.log(classes) / strength(alpha, lambda0, classes)


def fixed_point_step(d: Tensor, lam: Number, lambda0: Number, alpha: Number | None) -> Tensor:
    """One step of Algorithm 1, ``[λ0 - KL(p(λ), 1/K)/α]₊``."""
    classes = d.shape[-1]
    if isinstance(lam, Tensor):
        lam = lam.clamp(min=torch.finfo(d.dtype).tiny)
    p = torch.softmax(d / lam, -1)
    # d is 0 at the maximum, so log p there is minus the log-sum-exp
    kl = (p * d).sum(-1, keepdim=True) / lam + (p.amax(-1, keepdim=True) * classes).log()
    return (lambda0 - kl / strength(alpha, lambda0, classes)).clamp(min=0)


def global_maximum(d: Tensor, lambda0: Number, alpha: Number | None) -> Tensor:
    """The λ that maximises the objective over [0, λ0].

    With ``ρ = λ/λ0``, ``x = d/λ0`` and ``A = αλ0`` it maximises ``ρ log mean exp(x/ρ) - (A/2)(1-ρ)²``. The first term
    is sampled with two derivatives at a few ``s = 1/ρ`` (one exp: the others are its powers), interpolated by quintics,
    and the best two local maxima of the interpolant are refined on the true objective by Newton's method.
    """
    classes = d.shape[-1]
    x = d / lambda0
    a = strength(alpha, lambda0, classes) * lambda0
    if isinstance(lambda0, Tensor):
        a = torch.where(lambda0.isinf(), 1.0, a)
    elif math.isinf(lambda0):
        a = 1.0
    octaves = 1 if alpha is None else _octaves(a, classes)
    ratios, basis = _interpolation(octaves, d.dtype, d.device)
    coarse = (_samples(x, octaves) @ basis) * ratios - 0.5 * a * (1 - ratios).square()
    if octaves > 1:  # λ = 0
        ratios = torch.cat([ratios, ratios.new_zeros(1)])
        coarse = torch.cat([coarse, coarse.new_zeros(()).sub(0.5 * a).expand(*coarse.shape[:-1], 1)], -1)
    ratio, low, high = _two_best(coarse, ratios)

    a_pair = a.unsqueeze(-1) if isinstance(a, Tensor) else a
    ratio, value = _newton(x.unsqueeze(-2), a_pair, ratio, low, high)
    first = value[..., :1, :] >= value[..., 1:, :]
    ratio, low, high = (torch.where(first, v[..., :1, :], v[..., 1:, :]).squeeze(-2) for v in (ratio, low, high))
    if d.dtype == torch.float64:
        for _ in range(2):
            ratio, _ = _newton(x, a, ratio, low, high)
    return torch.where(ratio > _ZERO, ratio, 0.0) * lambda0


def _octaves(a: Number, classes: int) -> int:
    """How many octaves of 1/λ, from 1/λ0 on, can hold the maximum (all of them if that is not known)."""
    if isinstance(a, Tensor) or a <= math.log(classes):
        return _OCTAVES
    return min(_OCTAVES, max(1, math.ceil(-math.log2(1 - math.log(classes) / a))))


def _samples(x: Tensor, octaves: int) -> Tensor:
    """``log mean exp(s x)`` and its first two derivatives in s at the nodes, ``(..., 3 · nodes)``."""
    root = torch.exp(x / 3)
    square = root * root
    cube = square * root
    powers = [cube, square * square, square * cube, cube * cube]
    for _ in range(octaves - 1):
        powers += [power * power for power in powers[-3:]]
    moments: list[list[Tensor]] = [[], [], []]
    for power in powers:
        first = power * x
        for sums, values in zip(moments, (power, first, first * x), strict=True):
            sums.append(values.sum(-1))
    total, first, second = (torch.stack(sums, -1) for sums in moments)
    mean = first / total
    return torch.cat([(total / x.shape[-1]).log(), mean, second / total - mean.square()], -1)


@functools.cache
def _interpolation(octaves: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Ratios ``ρ = 1/s`` of the fine points, and the matrix that maps the samples at the nodes to values there."""
    nodes = [n / 3 for n in _NODES]
    for _ in range(octaves - 1):
        nodes += [2 * n for n in nodes[-3:]]
    t = torch.arange(_FINE, dtype=torch.float64) / _FINE
    powers = torch.stack([t**i for i in range(6)], -1)
    # quintic Hermite: rows are value, slope and curvature at 0, then at 1, of t^0 ... t^5
    conditions = torch.tensor(
        [1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0]
        + [1, 1, 1, 1, 1, 1, 0, 1, 2, 3, 4, 5, 0, 0, 2, 6, 12, 20],
        dtype=torch.float64,
    ).view(6, 6)
    weights = powers @ torch.linalg.inv(conditions)
    count = len(nodes)
    basis = torch.zeros(3 * count, (count - 1) * _FINE + 1, dtype=torch.float64)
    points = []
    for j in range(count - 1):
        width = nodes[j + 1] - nodes[j]
        points.append(nodes[j] + width * t)
        for order in range(3):
            for end in range(2):
                columns = slice(j * _FINE, (j + 1) * _FINE)
                basis[order * count + j + end, columns] += weights[:, 3 * end + order] * width**order
    basis[count - 1, -1] = 1.0
    points.append(torch.tensor(nodes[-1:], dtype=torch.float64))
    return 1 / torch.cat(points).to(device, dtype), basis.to(device, dtype)


def _two_best(coarse: Tensor, ratios: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The two highest local maxima, by parabola, and their brackets: ratio, low, high, each ``(..., 2, 1)``."""
    edge = torch.full_like(coarse[..., :1], -math.inf)
    padded = torch.cat([edge, coarse, edge], -1)
    peak = (coarse >= padded[..., :-2]) & (coarse >= padded[..., 2:])
    top = torch.where(peak, coarse, -math.inf).topk(2, -1)
    index = torch.where(top.values.isinf(), top.indices[..., :1], top.indices)
    last = len(ratios) - 1
    before, after = (index - 1).clamp(min=0), (index + 1).clamp(max=last)
    middle, high, low = ratios[index], ratios[before], ratios[after]
    value = coarse.gather(-1, index)
    rise = (coarse.gather(-1, before) - value) / (high - middle).clamp(min=1e-30)
    fall = (value - coarse.gather(-1, after)) / (middle - low).clamp(min=1e-30)
    # slope falls from `fall` to `rise` over (high - low)/2: the parabola's vertex is where it is 0
    share = (fall / (fall - rise).clamp(min=1e-30)).clamp(0, 1)
    vertex = 0.5 * ((middle + low) + share * (high - low))
    inside = (index > 0) & (index < last)
    ratio = torch.where(inside, vertex, middle)
    return ratio.unsqueeze(-1), low.unsqueeze(-1), high.unsqueeze(-1)


def _newton(x: Tensor, a: Number, ratio: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """A Newton step on the true objective within [low, high], and the objective expected there."""
    ratio = ratio.clamp(min=_ZERO)
    p = torch.softmax(x / ratio, -1)
    weighted = p * x
    mean = weighted.sum(-1, keepdim=True)
    variance = (weighted * x).sum(-1, keepdim=True) - mean.square()
    log_mean = -(p.amax(-1, keepdim=True) * x.shape[-1]).log()
    slope = log_mean - mean / ratio + a * (1 - ratio)
    curvature = variance / ratio**3 - a
    step = torch.where(curvature < 0, -slope / curvature, slope / a)
    new = torch.minimum(torch.maximum(ratio + step, low), high)
    step = new - ratio
    value = ratio * log_mean - 0.5 * a * (1 - ratio).square()
    return new, value + step * (slope + 0.5 * step * curvature)
