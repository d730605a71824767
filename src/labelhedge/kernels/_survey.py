"""The first pass over a long row: norm, maximum and, although both are needed for it, the softmax's sums.

They are taken at a rate guessed from the row's first classes, and carried from there to the true rate by Taylor's
formula for the logarithm of a sum of exponentials. Where the guess was too far off, the row is read once more.
"""

from __future__ import annotations

import triton
import triton.language as tl

from labelhedge.kernels._elementary import LN2
from labelhedge.kernels._row import columns, label_too, others, read, size_of, totals, two_moments

LARGEST = tl.constexpr(50.0)
"""Exponents of 2 up to it are held without loss."""
NEAR = tl.constexpr(0.02)
"""A change of the rate, times the standard deviation of the gaps, up to which the formula is precise enough."""


@triton.jit
def survey(logits, start, y, power, SHAPE: tl.constexpr):
    """``Σ|f|``, the largest logit, and sums for :func:`first_moments`.

    Args:
        logits: A pointer.
        start: Where the row starts.
        y: The label.
        power: The rate is this, divided by the mean of |f| if the logits are normalised.
        SHAPE: As in ``_row``.
    """
    BLOCK: tl.constexpr = SHAPE[1]
    SAMPLED: tl.constexpr = min(2 * BLOCK, SHAPE[0])
    NORMALIZED: tl.constexpr = SHAPE[3] or SHAPE[5]
    f = read(logits, start, columns(0, SHAPE), SHAPE, SHAPE[3])
    more = read(logits, start, columns(1, SHAPE), SHAPE, SHAPE[3])
    reference = tl.max(tl.maximum(others(f, 0, y, SHAPE), others(more, BLOCK, y, SHAPE)), 1, keep_dims=True)
    guess = power
    if NORMALIZED:
        sizes = size_of(f, columns(0, SHAPE), SHAPE) + size_of(more, columns(1, SHAPE), SHAPE)
        mean_size = tl.sum(sizes, 1, keep_dims=True) * (1.0 / SAMPLED)
        guess = tl.maximum(power / tl.maximum(mean_size, 1e-30), -1e30)
    norm, top = tl.zeros(f.shape, tl.float32), tl.full(f.shape, -float("inf"), tl.float32)
    e_sum, ed_sum, edd_sum, eddd_sum = norm, norm, norm, norm
    for begin in range(0, SHAPE[0], BLOCK):
        column = columns(0, SHAPE) + begin
        f = read(logits, start, column, SHAPE, SHAPE[3])
        norm += size_of(f, column, SHAPE)
        f = others(f, begin, y, SHAPE)
        top = tl.maximum(top, f)
        d = reference - f
        e = tl.exp2(tl.minimum(d * guess, LARGEST))
        e_sum += e
        ed_sum += e * d
        edd_sum += e * d * d
        eddd_sum += e * d * d * d
    sums = totals((e_sum, ed_sum, edd_sum, eddd_sum), 4)
    found = (sums[0], sums[1], sums[2], sums[3], guess, reference)
    return found, tl.sum(norm, 1, keep_dims=True), tl.max(top, 1, keep_dims=True)


@triton.jit
def first_moments(row, rate, SHAPE: tl.constexpr):
    """``Σe`` and ``Σed`` as by ``two_moments``, at the rate that the survey has guessed, if there was one."""
    if SHAPE[2] > 0:
        return two_moments(row, rate, True, SHAPE)
    else:
        e_sum, ed_sum, edd_sum, eddd_sum, guess, reference = row[5]
        shift = row[4] - reference
        move = (rate - guess) * LN2
        mean, square, cube = ed_sum / e_sum, edd_sum / e_sum, eddd_sum / e_sum
        variance = tl.maximum(square - mean * mean, 0.0)
        third = cube - mean * (3.0 * square - 2.0 * mean * mean)
        growth = mean + move * (0.5 * variance + move * (1.0 / 6.0) * third)
        total = e_sum * tl.exp2((rate - guess) * growth + shift * rate)
        mean += move * (variance + 0.5 * move * third) + shift
        sums = label_too((total, total * mean), row, rate, SHAPE)
        near = (move * move * variance < NEAR * NEAR) & (shift * rate > -LARGEST) & (e_sum > 0.0)
        if tl.min(near.to(tl.int32)) == 0:
            again = two_moments(row, rate, True, SHAPE)
            sums = (tl.where(near, sums[0], again[0]), tl.where(near, sums[1], again[1]))
        return sums
