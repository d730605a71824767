"""The first pass over a long row: norm, maximum and, although both are needed for it, sums of exponentials.

They are taken at a rate guessed from the row's first classes, and serve for rates near it; for others the row is read
again. A rate that is right but for a guessed norm is near; so is that of Algorithm 1's next λ once λ has settled.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from labelhedge.kernels._elementary import LN2, at_least
from labelhedge.kernels._row import (
    BEYOND,
    columns,
    folded,
    label_too,
    largest,
    load,
    logit_of,
    moments,
    moments_twice,
    others,
    plus,
    read,
    size_of,
    three_moments_twice,
    totals,
    two_moments,
    zeros,
)

LARGEST = tl.constexpr(50.0)
"""Exponents of 2 up to it are held without loss, squared and in sums."""
NEAR = tl.constexpr(0.02)
"""A change of the rate, times the standard deviation of the gaps, up to which Taylor's formula is precise enough."""
SIMILAR = tl.constexpr(0.03)
"""A relative change of the rate after which a quintic between two rates still covers nearly what it should."""


@triton.jit
def survey(logits, start, y, power, SOLVE: tl.constexpr, SHAPE: tl.constexpr):
    """Sums for :func:`moments_at` or :func:`moments_near_and_twice`, ``Σ|f|`` and the largest logit.

    Args:
        logits: A pointer.
        start: Where the row starts.
        y: The label.
        power: The rate is this, divided by the mean of |f| if the logits are normalised.
        SOLVE: As in ``_visit``.
        SHAPE: As in ``_row``.
    """
    BLOCK: tl.constexpr = SHAPE[1]
    SAMPLED: tl.constexpr = min(2 * BLOCK, SHAPE[0])
    LAST: tl.constexpr = (SHAPE[0] - 1) // BLOCK * BLOCK
    NORMALIZED: tl.constexpr = SHAPE[3] or SHAPE[5]
    VALUES: tl.constexpr = moments_twice if SOLVE == "exact" else moments
    ORDER: tl.constexpr = _order(SOLVE, SHAPE)
    COUNT: tl.constexpr = 6 if SOLVE == "exact" else ORDER + 1
    f = read(logits, start, columns(0, SHAPE), SHAPE)
    more = read(logits, start, columns(1, SHAPE), SHAPE)
    reference = tl.max(tl.maximum(others(f, 0, y, SHAPE), others(more, BLOCK, y, SHAPE)), 1, keep_dims=True)
    reference = tl.maximum(reference, BEYOND)
    guess = power
    if NORMALIZED:
        sizes = size_of(f, columns(0, SHAPE), SHAPE) + size_of(more, columns(1, SHAPE), SHAPE)
        mean_size = tl.sum(sizes, 1, keep_dims=True) * (1.0 / SAMPLED)
        guess = tl.maximum(power / tl.maximum(mean_size, 1e-30), -1e30)
    least = LARGEST / guess
    sums, norm = zeros(COUNT, SHAPE), zeros(1, SHAPE)[0]
    top = norm - float("inf")
    following = load(logits, start, columns(0, SHAPE), False, SHAPE)
    for begin in range(0, SHAPE[0], BLOCK):
        column = columns(0, SHAPE) + begin
        f = logit_of(following, SHAPE)
        following = load(logits, start, tl.minimum(begin + BLOCK, LAST) + columns(0, SHAPE), False, SHAPE)
        norm += folded((size_of(f, column, SHAPE),), 1, SHAPE)[0]
        f = others(f, begin, y, SHAPE)
        top = tl.maximum(top, largest(f, SHAPE))
        sums = plus(sums, folded(VALUES(at_least(reference - f, least), guess, ORDER), COUNT, SHAPE), COUNT)
    found = (totals(sums, COUNT), guess, reference)
    return found, tl.sum(norm, 1, keep_dims=True), tl.max(top, 1, keep_dims=True)


@triton.constexpr_function
def _order(solve: str, shape: tuple[Any, ...]) -> int:
    """Up to which power of the gap there are sums: 3 to carry them to another rate."""
    return 3 if solve == "step" or shape[3] or shape[5] else 1


@triton.jit
def moments_at(row, rate, SOLVE: tl.constexpr, SHAPE: tl.constexpr):
    """``Σe`` and ``Σed``. Of a long row they are carried here from the guessed rate, if it is near.

    By Taylor's formula for the logarithm of a sum of exponentials. With masked classes the first pass has found none.
    """
    if SHAPE[2] > 0 or SHAPE[7]:
        return two_moments(row, rate, True, SHAPE)
    else:
        found, guess, reference = row[5]
        shift = row[4] - reference
        e_sum, mean = found[0], found[1] / found[0]
        near = (shift * rate > -LARGEST) & (e_sum > 0.0)
        growth = tl.where(rate == guess, 0.0, mean)  # of masked classes the mean is NaN
        if _order(SOLVE, SHAPE) == 3:
            move = (rate - guess) * LN2
            square, cube = found[2] / e_sum, found[3] / e_sum
            variance = tl.maximum(square - mean * mean, 0.0)
            third = cube - mean * (3.0 * square - 2.0 * mean * mean)
            growth += move * (0.5 * variance + move * (1.0 / 6.0) * third)
            mean += move * (variance + 0.5 * move * third)
            near &= move * move * variance < NEAR * NEAR
        total = e_sum * tl.exp2((rate - guess) * growth + shift * rate)
        sums = label_too((total, total * (mean + shift)), row, rate, 1, SHAPE)
        if tl.min(near.to(tl.int32)) == 0:
            sums = two_moments(row, rate, True, SHAPE)
        return sums


@triton.jit
def moments_near_and_twice(row, rate, SHAPE: tl.constexpr):
    """Three moments at a rate near ``rate`` and at twice that; and how many times that rate ``rate`` is, and back."""
    one = tl.full(rate.shape, 1.0, tl.float32)
    if SHAPE[2] > 0 or SHAPE[7]:
        once, twice = three_moments_twice(row, rate, SHAPE)
        return once, twice, one, one
    else:
        found, guess, reference = row[5]
        shift = row[4] - reference
        times, back = rate / guess, guess / rate
        once = _shifted(found[0], found[1], found[2], shift, guess)
        twice = _shifted(found[3], found[4], found[5], shift, 2.0 * guess)
        once, twice = label_too(once, row, guess, 2, SHAPE), label_too(twice, row, 2.0 * guess, 2, SHAPE)
        if tl.min(((tl.abs(times - 1.0) < SIMILAR) & (shift * guess > -LARGEST)).to(tl.int32)) == 0:
            once, twice = three_moments_twice(row, rate, SHAPE)
            times, back = one, one
        return once, twice, times, back


@triton.jit
def _shifted(e, ed, edd, shift, rate):
    """Three moments after all gaps have grown by ``shift``."""
    factor = tl.exp2(shift * rate)
    return factor * e, factor * (ed + shift * e), factor * (edd + shift * (2.0 * ed + shift * e))
