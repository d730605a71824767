"""The λ of ALDR-KL for each row, from sums over the classes.

The same method as the plain formula's: with ``ρ = λ/λ0`` and ``σ = 1/ρ`` the objective is ``ρ F(σ) - (A/2)(1-ρ)²``,
where ``F(σ) = log mean exp(σx)``, x are the gaps less the largest in units of λ0, and ``A = αλ0``. F is sampled with
two derivatives at σ = 1, 4/3, 5/3, 2 (and twice that, for further octaves) and interpolated by quintics; the highest
point is refined on the true objective by Newton's method.
"""

from __future__ import annotations

import triton
import triton.language as tl

from labelhedge.kernels._elementary import LN2

ZERO = tl.constexpr(1e-10)
"""A λ, or a ratio λ/λ0, that counts as 0."""


@triton.jit
def strength(alpha, lambda0, log_count):
    """α, by default ``2 log K/λ0``; where λ0 = ∞ any will do, since then λ = ∞."""
    chosen = 2.0 * log_count / lambda0 if alpha is None else alpha
    return tl.where(lambda0 == float("inf"), 1.0, chosen)


@triton.jit
def step(total, weighted_bits, lambda0, alpha, log_count):
    """One step of Algorithm 1, ``[λ0 - KL(p, 1/K)/α]₊``, from ``Σe`` and ``Σ e log₂e``."""
    entropy = LN2 * (tl.log2(total) - weighted_bits / total)
    return tl.maximum(lambda0 - (log_count - entropy) / alpha, 0.0)


@triton.jit
def cumulants(sums, unit, count):
    """``log mean exp`` and its first two derivatives, from ``Σe``, ``Σed``, ``Σed²`` with x = d·unit."""
    mean = sums[1] / sums[0]
    variance = sums[2] / sums[0] - mean * mean
    return tl.log(sums[0] / count), mean * unit, variance * unit * unit


@triton.jit
def highest(node0, node1, node2, node3, A, factor):
    """Of the interpolated objective over an octave: the maximum, where it is (ρ), and its neighbours (low, high).

    The nodes are F and two derivatives at σ/factor = 1, 4/3, 5/3, 2.
    """
    point = tl.arange(0, 64)[None, :]  # σ = factor (1 + point/48)
    piece = tl.minimum(point // 16, 2)
    t = (point - 16 * piece).to(tl.float32) * (1.0 / 16.0)
    t3 = t * t * t
    value1 = t3 * (10.0 + t * (6.0 * t - 15.0))
    slope0 = t + t3 * (t * (8.0 - 3.0 * t) - 6.0)
    slope1 = t3 * (t * (7.0 - 3.0 * t) - 4.0)
    curve0 = 0.5 * t * t + t3 * (t * (1.5 - 0.5 * t) - 1.5)
    curve1 = t3 * (0.5 + t * (0.5 * t - 1.0))
    first, second = piece == 0, piece == 1
    F = tl.where(first, node0[0], tl.where(second, node1[0], node2[0])) * (1.0 - value1)
    F += tl.where(first, node1[0], tl.where(second, node2[0], node3[0])) * value1
    F += tl.where(first, node0[1], tl.where(second, node1[1], node2[1])) * (slope0 * (1.0 / 3.0))
    F += tl.where(first, node1[1], tl.where(second, node2[1], node3[1])) * (slope1 * (1.0 / 3.0))
    F += tl.where(first, node0[2], tl.where(second, node1[2], node2[2])) * (curve0 * (1.0 / 9.0))
    F += tl.where(first, node1[2], tl.where(second, node2[2], node3[2])) * (curve1 * (1.0 / 9.0))
    rho = _rho(point, factor)
    objective = rho * F - 0.5 * A * (1.0 - rho) * (1.0 - rho)
    objective = tl.where(point <= 48, objective, -float("inf"))

    best = tl.max(objective, 1, keep_dims=True)
    index = tl.min(tl.where(objective == best, point, 48), 1, keep_dims=True)
    before = tl.sum(tl.where(point == index - 1, objective, 0.0), 1, keep_dims=True)
    after = tl.sum(tl.where(point == tl.minimum(index + 1, 48), objective, 0.0), 1, keep_dims=True)
    middle, low, high = _rho(index, factor), _rho(index + 1, factor), tl.minimum(_rho(index - 1, factor), 1.0)
    interior = (index > 0) & (index < 48)
    rise = tl.where(interior, (before - best) / tl.where(interior, high - middle, 1.0), -1.0)
    fall = tl.where(interior, (best - after) / (middle - low), 1.0)
    # the slope is `fall` half-way down and `rise` half-way up: the parabola's vertex is where it is 0
    flat = fall == rise
    vertex = 0.5 * (middle + low + (high - low) * fall / tl.where(flat, 1.0, fall - rise))
    return best, tl.where(interior & (flat == 0), vertex, middle), low, high


@triton.jit
def _rho(point, factor):
    return 1.0 / ((1.0 + point.to(tl.float32) * (1.0 / 48.0)) * factor)


@triton.jit
def newton(node, rho, low, high, A):
    """A Newton step on the true objective within [low, high], from F and its derivatives at σ = 1/ρ."""
    log_mean, mean, variance = node
    sigma = 1.0 / rho
    slope = log_mean - mean * sigma + A * (1.0 - rho)
    curvature = variance * sigma * sigma * sigma - A
    move = tl.where(curvature < 0.0, -slope / tl.where(curvature < 0.0, curvature, -1.0), slope / A)
    return tl.minimum(tl.maximum(rho + move, low), high)
