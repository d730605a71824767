"""The λ of ALDR-KL for each row, from sums over the classes.

With ``ρ = λ/λ0`` and ``σ = 1/ρ`` the objective is ``ρ F(σ) - (A/2)(1-ρ)²``, where ``F(σ) = log mean exp(σx)``, x are
the gaps less the largest in units of λ0, and ``A = αλ0``. F is sampled with two derivatives and interpolated by
quintics, and the highest point of the interpolated objective is refined on the true one by Newton's method.

By default λ is in [λ0/2, λ0], and for most rows two samples, at the ends, are enough: a third, at the peak, tells the
error of the quintic, and if no other place comes near the peak within that error, the peak is the highest. For the
other rows, and all rows with another α, every octave of σ is divided into eight pieces.

A node is ``(F, mean of -d, variance of d)`` at some σ, where ``x = -d·unit``.
"""

from __future__ import annotations

import triton
import triton.language as tl

from labelhedge.kernels._elementary import LN2, LOG2E
from labelhedge.kernels._row import three_moments, three_moments_twice
from labelhedge.kernels._survey import first_moments

ZERO = tl.constexpr(1e-10)
"""A λ, or a ratio λ/λ0, that counts as 0."""
MIN_RATE, MAX_RATE = tl.constexpr(1e-30), tl.constexpr(3e38)
"""Stand for the rates at λ = ∞ and 0."""
CLOSE = tl.constexpr(1e-3)
"""A relative step of ρ so small that Taylor's formula gives the sums after it."""


@triton.jit
def rate_of(scale, lam):
    """What turns d into ``log₂ e``, where ``e = exp(-scale·d/λ)``."""
    return -tl.minimum(tl.maximum(scale * LOG2E / tl.maximum(lam, 1e-20), MIN_RATE), MAX_RATE)


@triton.jit
def strength(alpha, lambda0, log_count):
    """α, by default ``2 log K/λ0``; where λ0 = ∞ any will do, since then λ = ∞."""
    chosen = 2.0 * log_count / lambda0 if alpha is None else alpha
    return tl.where(lambda0 == float("inf"), 1.0, chosen)


@triton.jit
def algorithm_1(row, scale, start, lambda0, alpha, log_count, SHAPE: tl.constexpr):
    """One step of Algorithm 1, ``[λ0 - KL(p, 1/K)/α]₊`` with p at λ = ``start``."""
    rate = rate_of(scale, tl.maximum(start, ZERO))
    total, weighted = first_moments(row, rate, SHAPE)
    entropy = LN2 * (tl.log2(total) - rate * weighted / total)
    return tl.maximum(lambda0 - (log_count - entropy) / alpha, 0.0)


@triton.jit
def exact(row, scale, lambda0, alpha, count, OCTAVES: tl.constexpr, SHAPE: tl.constexpr):
    """The λ that maximises the objective over [0, λ0]; and ``Σe`` and ``Σed`` there."""
    A = tl.where(lambda0 == float("inf"), 1.0, alpha * lambda0)
    unit = scale / lambda0
    if OCTAVES == 1:
        low = tl.full(A.shape, 0.5, tl.float32)
        rho, node, far = _from_the_ends(row, unit, A, count, SHAPE)
        if tl.max(far.to(tl.int32)) > 0:
            rho = tl.where(far, _from_pieces(row, unit, A, count, OCTAVES, SHAPE), rho)
    else:
        low = tl.zeros(A.shape, tl.float32)
        rho = _from_pieces(row, unit, A, count, OCTAVES, SHAPE)
        node, far = (low, low, low), low == 0.0
    new = tl.where(far, rho, _newton(node, unit, rho, low, A))
    far = far | (tl.abs(new - rho) > CLOSE * rho)
    for _step in range(5):
        if tl.max(far.to(tl.int32)) > 0:
            rho = tl.maximum(new, ZERO)
            node = _node(row, unit, rho, count, SHAPE)
            new = _newton(node, unit, rho, low, A)
            far = tl.abs(new - rho) > CLOSE * rho
    new = tl.where(new > ZERO, new, 0.0)
    move = tl.where(new > 0.0, 1.0 / tl.maximum(new, ZERO) - 1.0 / rho, 0.0) * unit
    total = count * tl.exp(node[0] + move * (node[1] + 0.5 * move * node[2]))
    return new * lambda0, total, -total * (node[1] + move * node[2])


@triton.jit
def _from_the_ends(row, unit, A, count, SHAPE: tl.constexpr):
    """The peak between samples at σ = 1 and 2, its node, and whether there may be a higher one."""
    once, twice = three_moments_twice(row, rate_of(unit, 1.0), SHAPE)
    a, b = _cumulants(once, count), _cumulants(twice, count)
    point = tl.arange(0, 64)[None, :]
    objective = _objective(_quintic(point * (1.0 / 63.0), 1.0, unit, a, b), 1.0 + point * (1.0 / 63.0), A)
    best, index = tl.max(objective, 1, return_indices=True, keep_dims=True)
    rho = _peak_near(index * (1.0 / 63.0), unit, a, b, A)
    node = _node(row, unit, rho, count, SHAPE)
    # the quintic's error is about C u³ with u = t(1-t), at most C/64; C shows in the value and in the second
    # derivative, where they differ by more than rounding
    t = 1.0 / rho - 1.0
    u = t * (1.0 - t)
    of_value = tl.abs(node[0] - _quintic(t, 1.0, unit, a, b)) - 1e-6
    bend = node[2] * unit * unit
    of_bend = tl.abs(bend - _quintic_bend(t, unit, a, b)) - 1e-4 * (1.0 + bend)
    C = tl.maximum(of_value / (u * u * u), of_bend / (6.0 * u * tl.maximum(tl.abs(1.0 - 5.0 * u), 0.2)))
    error = tl.maximum(C, 0.0) * (1.0 / 64.0)
    elsewhere = tl.max(tl.where(tl.abs(point - index) > 5, objective, -float("inf")), 1, keep_dims=True)
    # KL falls as λ rises, and A(1-ρ) is KL at every peak: all of them lie in a range that may be narrow
    narrow = 2.0 * b[1] * unit - b[0] - (a[1] * unit - a[0]) < 0.01 * A
    sure = narrow | (elsewhere < best - 2.0 * error - 1e-5)
    return rho, node, sure == 0


@triton.jit
def _from_pieces(row, unit, A, count, OCTAVES: tl.constexpr, SHAPE: tl.constexpr):
    """The highest point of the objective, interpolated in eight pieces of every octave of σ."""
    point = tl.arange(0, 64)[None, :]
    best = tl.full(A.shape, -float("inf"), tl.float32)
    rho, sigma, width = best, tl.full(A.shape, 1.0, tl.float32), tl.full(A.shape, 0.125, tl.float32)
    a = _node(row, unit, sigma, count, SHAPE)
    for piece in range(8 * OCTAVES):
        b = _node(row, unit, 1.0 / (sigma + width), count, SHAPE)
        t = point * (1.0 / 63.0)
        objective = _objective(_quintic(t, width, unit, a, b), sigma + width * t, A)
        value, index = tl.max(objective, 1, return_indices=True, keep_dims=True)
        rho = tl.where(value > best, 1.0 / (sigma + width * (index * (1.0 / 63.0))), rho)
        best = tl.maximum(value, best)
        a, sigma = b, sigma + width
        width = tl.where(piece % 8 == 7, 2.0 * width, width)
    if OCTAVES > 1:  # and λ = 0
        rho = tl.where(best < -0.5 * A, ZERO, rho)
    return rho


@triton.jit
def _node(row, unit, rho, count, SHAPE: tl.constexpr):
    return _cumulants(three_moments(row, rate_of(unit, rho), SHAPE), count)


@triton.jit
def _cumulants(sums, count):
    mean = -sums[1] / sums[0]
    return tl.log(sums[0] / count), mean, sums[2] / sums[0] - mean * mean


@triton.jit
def _newton(node, unit, rho, low, A):
    """A Newton step on the true objective within [low, 1]."""
    log_mean, mean, variance = node[0], node[1] * unit, node[2] * unit * unit
    sigma = 1.0 / rho
    slope = log_mean - mean * sigma + A * (1.0 - rho)
    curvature = variance * sigma * sigma * sigma - A
    move = tl.where(curvature < 0.0, -slope / tl.where(curvature < 0.0, curvature, -1.0), slope / A)
    return tl.minimum(tl.maximum(rho + move, low), 1.0)


@triton.jit
def _objective(F, sigma, A):
    rho = 1.0 / sigma
    return rho * F - 0.5 * A * (1.0 - rho) * (1.0 - rho)


@triton.jit
def _peak_near(t, unit, a, b, A):
    """The peak of the interpolated objective next to ``σ = 1 + t``, as ρ, by a Newton step."""
    sigma = 1.0 + t
    slope = sigma * _quintic_slope(t, unit, a, b) - _quintic(t, 1.0, unit, a, b) - A * (t / sigma)
    bend = sigma * _quintic_bend(t, unit, a, b) - A / (sigma * sigma)
    move = tl.where(bend < 0.0, -slope / tl.where(bend < 0.0, bend, -1.0), 0.0)
    return 1.0 / (sigma + tl.minimum(tl.maximum(move, tl.maximum(-t, -1.0 / 63.0)), tl.minimum(1.0 - t, 1.0 / 63.0)))


@triton.jit
def _quintic(t, width, unit, a, b):
    """F between two nodes that are ``width`` apart."""
    t3 = t * t * t
    x = unit * width
    F = a[0] + (b[0] - a[0]) * (t3 * (10.0 + t * (6.0 * t - 15.0)))
    F += a[1] * x * (t + t3 * (t * (8.0 - 3.0 * t) - 6.0))
    F += b[1] * x * (t3 * (t * (7.0 - 3.0 * t) - 4.0))
    F += a[2] * x * x * (0.5 * t * t + t3 * (t * (1.5 - 0.5 * t) - 1.5))
    F += b[2] * x * x * (t3 * (0.5 + t * (0.5 * t - 1.0)))
    return F


@triton.jit
def _quintic_slope(t, unit, a, b):
    """Its derivative, for nodes that are 1 apart."""
    t2 = t * t
    slope = (b[0] - a[0]) * (30.0 * t2 * (1.0 - t) * (1.0 - t))
    slope += a[1] * unit * (1.0 - t2 * (18.0 - t * (32.0 - 15.0 * t)))
    slope += b[1] * unit * (t2 * (t * (28.0 - 15.0 * t) - 12.0))
    slope += a[2] * unit * unit * (t - t2 * (4.5 - t * (6.0 - 2.5 * t)))
    slope += b[2] * unit * unit * (t2 * (1.5 - t * (4.0 - 2.5 * t)))
    return slope


@triton.jit
def _quintic_bend(t, unit, a, b):
    """Its second derivative, for nodes that are 1 apart."""
    bend = (b[0] - a[0]) * (60.0 * t * (1.0 - t * (3.0 - 2.0 * t)))
    bend += a[1] * unit * (t * (-36.0 + t * (96.0 - 60.0 * t)))
    bend += b[1] * unit * (t * (-24.0 + t * (84.0 - 60.0 * t)))
    bend += a[2] * unit * unit * (1.0 + t * (-9.0 + t * (18.0 - 10.0 * t)))
    bend += b[2] * unit * unit * (t * (3.0 + t * (-12.0 + 10.0 * t)))
    return bend
