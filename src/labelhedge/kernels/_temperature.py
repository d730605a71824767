"""The λ of ALDR-KL for each row, from sums over the classes.

With ``ρ = λ/λ0`` and ``σ = 1/ρ`` the objective is ``ρ F(σ) - (A/2)(1-ρ)²``, where ``F(σ) = log mean exp(σx)``, x are
the gaps less the largest in units of λ0, and ``A = αλ0``. F is sampled with two derivatives and interpolated by
quintics, and the highest point of the interpolated objective is refined on the true one by Newton's method.

By default λ is in [λ0/2, λ0], and for most rows two samples, at the ends, are enough: a third, at the peak, tells the
error of the quintic, and if no other place comes near the peak within that error, the peak is the highest. For the
other rows, and all rows with another α, every octave of σ is divided into eight pieces.

A node is ``(F, mean of -d, variance of d, Σe)`` at some σ, where ``x = -d·unit``.
"""

from __future__ import annotations

import triton
import triton.language as tl

from labelhedge.kernels._elementary import LN2, LOG2E, quick_log, reciprocal
from labelhedge.kernels._row import three_moments
from labelhedge.kernels._survey import moments_at, moments_near_and_twice

ZERO = tl.constexpr(1e-10)
"""A λ, or a ratio λ/λ0, that counts as 0."""
MIN_RATE, MAX_RATE = tl.constexpr(1e-30), tl.constexpr(3e38)
"""Stand for the rates at λ = ∞ and 0."""
TINY = tl.constexpr(1e-30)
"""A curvature that counts as 0."""
CLOSE = tl.constexpr(1e-3)
"""A relative step of ρ so small that Taylor's formula gives the sums after it."""


@triton.jit
def rate_of(scale, lam):
    """What turns d into ``log₂ e``, where ``e = exp(-scale·d/λ)``."""
    return -tl.minimum(tl.maximum(scale * LOG2E * reciprocal(tl.maximum(lam, 1e-20)), MIN_RATE), MAX_RATE)


@triton.jit
def strength(alpha, lambda0, log_count):
    """α, by default ``2 log K/λ0``; where λ0 = ∞ any will do, since then λ = ∞."""
    chosen = 2.0 * log_count / lambda0 if alpha is None else alpha
    return tl.where(lambda0 == float("inf"), 1.0, chosen)


@triton.jit
def algorithm_1(row, scale, start, lambda0, alpha, log_count, SHAPE: tl.constexpr):
    """One step of Algorithm 1, ``[λ0 - KL(p, 1/K)/α]₊`` with p at λ = ``start``."""
    rate = rate_of(scale, tl.maximum(start, ZERO))
    total, weighted = moments_at(row, rate, "step", SHAPE)
    entropy = quick_log(total) - LN2 * rate * weighted * reciprocal(total)
    step = lambda0 - (log_count - entropy) * reciprocal(alpha)
    return tl.where(step == step, tl.maximum(step, 0.0), start)  # a row with a NaN keeps its λ


@triton.jit
def exact(row, scale, lambda0, alpha, of_count, OCTAVES: tl.constexpr, SHAPE: tl.constexpr):
    """The λ that maximises the objective over [0, λ0]; and ``Σe`` and ``Σed`` there."""
    A = tl.where(lambda0 == float("inf"), 1.0, alpha * lambda0)
    unit = scale / lambda0
    if OCTAVES == 1:
        low = tl.full(A.shape, 0.5, tl.float32)
        rho, node, far = _from_the_ends(row, unit, A, of_count, SHAPE)
        if tl.max(far.to(tl.int32)) > 0:
            rho = tl.where(far, _from_pieces(row, unit, A, of_count, OCTAVES, SHAPE), rho)
    else:
        low = tl.zeros(A.shape, tl.float32)
        rho = _from_pieces(row, unit, A, of_count, OCTAVES, SHAPE)
        node, far = (low, low, low, low), low == 0.0
    new = tl.where(far, rho, _newton(node, unit, rho, low, A))
    far = far | (tl.abs(new - rho) > CLOSE * rho)
    for _step in range(5):
        if tl.max(far.to(tl.int32)) > 0:
            rho = tl.maximum(new, ZERO)
            node = _node(row, unit, rho, of_count, SHAPE)
            new = _newton(node, unit, rho, low, A)
            far = tl.abs(new - rho) > CLOSE * rho
    new = tl.where(new > ZERO, new, 0.0)
    move = tl.where(new > 0.0, reciprocal(tl.maximum(new, ZERO)) - reciprocal(rho), 0.0) * unit
    total = node[3] * tl.exp(move * (node[1] + 0.5 * move * node[2]))
    return new * lambda0, total, -total * (node[1] + move * node[2])


@triton.jit
def _from_the_ends(row, unit, A, of_count, SHAPE: tl.constexpr):
    """The peak between samples at about σ = 1 and 2, its node, and whether there may be a higher one.

    They are at ``σ = τ`` and ``2τ``, where τ is near 1, and at t = 0 and 1 of the quintic.
    """
    once, twice, of_tau, tau = moments_near_and_twice(row, rate_of(unit, 1.0), SHAPE)
    a, b, width = _cumulants(once, of_count), _cumulants(twice, of_count), unit * tau
    one = tl.full(A.shape, 1.0, tl.float32)
    best, sigma, elsewhere = _highest(a, b, width, (one, one), (of_tau - 1.0, of_tau), A)
    rho = _peak_near(1.0 + sigma, of_tau, width, a, b, A)
    node = _node(row, unit, rho, of_count, SHAPE)
    # the quintic's error is about C u³ with u = t(1-t), at most C/64; C shows in the value and in the second
    # derivative, where they differ by more than rounding
    t = of_tau * reciprocal(rho) - 1.0
    u = tl.maximum(tl.abs(t * (1.0 - t)), 1e-6)
    of_value = tl.abs(node[0] - _quintic(t, width, a, b)) - 1e-6 * (1.0 - node[0])
    bend = node[2] * width * width
    of_bend = tl.abs(bend - _quintic_bend(t, width, a, b)) - 1e-4 * (1.0 + bend)
    of_u = reciprocal(u)
    C = tl.maximum(of_value * of_u * of_u, of_bend * reciprocal(6.0 * tl.maximum(tl.abs(1.0 - 5.0 * u), 0.2))) * of_u
    error = tl.maximum(C, 0.0) * (1.0 / 64.0)
    # KL falls as λ rises, and A(1-ρ) is KL at every peak: all of them lie in a range that may be narrow
    narrow = 2.0 * b[1] * width - b[0] - (a[1] * width - a[0]) < 0.01 * A
    sure = narrow | (elsewhere < best - 2.0 * error - 1e-5)
    return rho, node, sure == 0


@triton.jit
def _from_pieces(row, unit, A, of_count, OCTAVES: tl.constexpr, SHAPE: tl.constexpr):
    """The highest point of the objective, interpolated in eight pieces of every octave of σ."""
    zero, one = tl.zeros(A.shape, tl.float32), tl.full(A.shape, 1.0, tl.float32)
    best = zero - float("inf")
    rho, sigma, width = best, one, one * 0.125
    a = _node(row, unit, sigma, of_count, SHAPE)
    for piece in range(8 * OCTAVES):
        b = _node(row, unit, reciprocal(sigma + width), of_count, SHAPE)
        value, t, _elsewhere = _highest(a, b, unit * width, (sigma, width), (zero, one), A)
        rho = tl.where(value > best, reciprocal(sigma + width * t), rho)
        best = tl.maximum(value, best)
        a, sigma = b, sigma + width
        width = tl.where(piece % 8 == 7, 2.0 * width, width)
    if OCTAVES > 1:  # and λ = 0
        rho = tl.where(best < -0.5 * A, ZERO, rho)
    return rho


@triton.jit
def _highest(a, b, unit, sigmas, ts, A):
    """The highest of 64 points of the interpolated objective, where it is, from 0 to 1, and the highest away from it.

    ``sigmas`` and ``ts`` are the first point's σ and t, and how much they grow to the last.
    """
    if A.shape[0] == 1:  # in a layout of their own, since in the row's every thread would have many of the points
        a, b = (tl.max(a[0]), tl.max(a[1]), tl.max(a[2])), (tl.max(b[0]), tl.max(b[1]), tl.max(b[2]))
        sigmas, ts = (tl.max(sigmas[0]), tl.max(sigmas[1])), (tl.max(ts[0]), tl.max(ts[1]))
        unit, A, point = tl.max(unit), tl.max(A), tl.arange(0, 64)
        best, index, elsewhere = _highest_of(point, a, b, unit, sigmas, ts, A, 0)
    else:
        best, index, elsewhere = _highest_of(tl.arange(0, 64)[None, :], a, b, unit, sigmas, ts, A, 1)
    return best, index * (1.0 / 63.0), elsewhere


@triton.jit
def _highest_of(point, a, b, unit, sigmas, ts, A, AXIS: tl.constexpr):
    part = point * (1.0 / 63.0)
    F = _quintic(ts[0] + ts[1] * part, unit, a, b)
    rho = reciprocal(sigmas[0] + sigmas[1] * part)
    objective = rho * F - 0.5 * A * (1.0 - rho) * (1.0 - rho)
    objective = tl.where(objective == objective, objective, -float("inf"))  # a row with a NaN has no maximum
    best, index = tl.max(objective, AXIS, return_indices=True, keep_dims=AXIS == 1)
    elsewhere = tl.where(tl.abs(point - index) > 5, objective, -float("inf"))
    return best, index, tl.max(elsewhere, AXIS, keep_dims=AXIS == 1)


@triton.jit
def _node(row, unit, rho, of_count, SHAPE: tl.constexpr):
    return _cumulants(three_moments(row, rate_of(unit, rho), SHAPE), of_count)


@triton.jit
def _cumulants(sums, of_count):
    of_total = reciprocal(sums[0])
    mean = -sums[1] * of_total
    return quick_log(sums[0] * of_count), mean, sums[2] * of_total - mean * mean, sums[0]


@triton.jit
def _newton(node, unit, rho, low, A):
    """A Newton step on the true objective within [low, 1]."""
    log_mean, mean, variance = node[0], node[1] * unit, node[2] * unit * unit
    sigma = reciprocal(rho)
    slope = log_mean - mean * sigma + A * (1.0 - rho)
    curvature = variance * sigma * sigma * sigma - A
    move = -slope * reciprocal(tl.where(curvature < -TINY, curvature, -A))
    return tl.minimum(tl.maximum(rho + move, low), 1.0)


@triton.jit
def _peak_near(sigma, of_tau, unit, a, b, A):
    """The peak of the interpolated objective near σ, as ρ, by a Newton step; ``t = σ/τ - 1``."""
    t = sigma * of_tau - 1.0
    rho = reciprocal(sigma)
    slope = (1.0 + t) * _quintic_slope(t, unit, a, b) - _quintic(t, unit, a, b) - A * (1.0 - rho)
    bend = (1.0 + t) * _quintic_bend(t, unit, a, b) * of_tau - A * rho * rho
    move = tl.where(bend < -TINY, -slope * reciprocal(tl.minimum(bend, -TINY)), 0.0)
    move = tl.minimum(tl.maximum(move, tl.maximum(1.0 - sigma, -1.0 / 63.0)), tl.minimum(2.0 - sigma, 1.0 / 63.0))
    return reciprocal(sigma + move)


@triton.jit
def _quintic(t, x, a, b):
    """F between the nodes a and b, where t is 0 and 1; ``unit`` times their distance is x."""
    t3 = t * t * t
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
