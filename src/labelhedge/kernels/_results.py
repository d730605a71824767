"""What follows from a row once it has been read: λ, value and gradient.

With z = f·scale, the softmax is over ``e = 2^(d·rate)`` with ``d = top - f``, where the label's logit is taken less the
margin, ``top`` is the largest, and the rate is negative. So d is exactly 0 at the maximum, and nothing overflows as
λ → 0.
"""

from __future__ import annotations

import triton
import triton.language as tl

from labelhedge.kernels._elementary import LN2, log1p, log_of, one_number, per_row, reciprocal, signed
from labelhedge.kernels._row import (
    ABSENT,
    again,
    ahead,
    columns,
    count_present,
    exponential_anew,
    gap_of,
    gaps_of,
    load,
    logit_of,
    sum_of_gaps,
    sums_near_one,
    sums_of_terms,
    without_infinities,
)
from labelhedge.kernels._survey import moments_at
from labelhedge.kernels._temperature import ZERO, algorithm_1, exact, rate_of, strength

TINY = tl.constexpr(1.1754943508222875e-38)
LARGE_LAMBDA = tl.constexpr(8.0)
"""Above it ``log mean exp(x/λ)`` is so near 0 that it needs expm1; LARGE says that a λ may be above it."""


@triton.jit
def _smooth_maximum(row, lam, rate, total, scale, of_count, LARGE: tl.constexpr, SHAPE: tl.constexpr):
    """``λ log mean exp(x/λ)``, and the mean of x for λ = ∞."""
    smooth = lam * tl.log(total * of_count)
    if LARGE and tl.max(lam) > LARGE_LAMBDA:
        less_one, sum_d = sums_near_one(row, rate, SHAPE)
        less_one *= of_count
        near = (lam > LARGE_LAMBDA) & (less_one > -0.5)
        smooth = tl.where(near, lam * log1p(tl.maximum(less_one, -0.5)), smooth)
        smooth = tl.where(lam == float("inf"), -sum_d * scale * of_count, smooth)
    return smooth


@triton.jit
def results(
    logits, weight, denominator, upstream, value, lam_out, gradient, gist, upstream_stride, gist_stride,
    margin, lambda0, alpha, param0, param1, param2, param3,
    i, start, y, counts, known, raw_y, unscale, first_lam, held, norm, top,
    FINISH: tl.constexpr, TERMS: tl.constexpr, NEEDS: tl.constexpr,
    NORMALIZE: tl.constexpr, SOLVE: tl.constexpr, OCTAVES: tl.constexpr, LARGE: tl.constexpr,
    SHAPE: tl.constexpr,
):  # fmt: skip
    """Write value, λ and gradient of the rows ``i``, and return the values.

    The first two lines of arguments are those of ``visit``. The third is what is known of each row: where it starts,
    its label, whether it counts and the label is a class, the label's logit as it is in memory, the temperature, the λ
    that was given, and what the first pass has found.
    """
    CLASSES: tl.constexpr = SHAPE[0]
    BLOCK: tl.constexpr = SHAPE[1]
    PIECES: tl.constexpr = SHAPE[2]
    MASKED: tl.constexpr = SHAPE[7]
    f_y = logit_of(raw_y, SHAPE)
    count, of_count, log_count = 1.0 * CLASSES, 1.0 / CLASSES, log_of(CLASSES)
    if MASKED:
        held = without_infinities(held, SHAPE)
        count, norm = count_present(logits, start, y, f_y, held, SHAPE)
        of_count, log_count = 1.0 / count, tl.maximum(tl.log(count), ZERO)

    of_norm = 0.0  # 1/norm, but for a row of zeros, which keeps its zeros
    if NORMALIZE is not None:
        has_norm = norm > TINY * count
        of_norm = tl.where(has_norm, reciprocal(tl.where(has_norm, norm, 1.0)), 0.0)
        unscale *= tl.where(has_norm, norm * of_count, 1.0)
    scale = reciprocal(unscale)
    shift = per_row(margin, i) * unscale if margin is not None else tl.zeros(scale.shape, tl.float32)
    top = tl.maximum(top, f_y - shift)
    d_y = tl.where(top == f_y - shift, 0.0, top - f_y + shift)  # so that no rounding of f_y - shift goes into it
    if PIECES > 0:
        held = gaps_of(held, top, SHAPE)
    row = (logits, start, y, d_y, top, held)

    penalty = 0.0
    lam_row = first_lam
    if lambda0 is not None:
        lambda0_row = per_row(lambda0, i)
        alpha_row = strength(None if alpha is None else per_row(alpha, i), lambda0_row, log_count)
        if SOLVE == "step":
            lam_row = algorithm_1(row, scale, first_lam, lambda0_row, alpha_row, log_count, SHAPE)
        if SOLVE == "exact":
            lam_row, total, weighted = exact(row, scale, lambda0_row, alpha_row, of_count, OCTAVES, SHAPE)
        excess = tl.where(lambda0_row == float("inf"), 0.0, lam_row - lambda0_row)
        penalty = 0.5 * alpha_row * excess * excess
    if lam_out is not None:
        tl.store(lam_out + i, tl.where(counts, lam_row, first_lam) if SOLVE == "step" else lam_row)

    rate = rate_of(scale, lam_row)
    if SOLVE != "exact":
        total, weighted = moments_at(row, rate, SOLVE, SHAPE)
    of_total = reciprocal(total)
    p_y = tl.exp2(d_y * rate) * of_total
    params = _params(param0, param1, param2, param3, i)
    terms, psis, psi_d, sum_d = 0.0, 0.0, 0.0, 0.0
    if NEEDS == "sum of log p":
        sum_d = sum_of_gaps(row, SHAPE)
    if NEEDS == "terms":
        terms, psis, psi_d = sums_of_terms(row, rate, of_total, scale, params, TERMS, SHAPE)
    if NEEDS == "smooth maximum":
        subject = _smooth_maximum(row, lam_row, rate, total, scale, of_count, LARGE, SHAPE) + d_y * scale - penalty
        loss, on_p, on_psi, everywhere, on_label = subject, 1.0, 0.0, 0.0, -1.0
    else:
        subject = d_y * rate * LN2 - tl.log(total)
        if NEEDS == "log p_y":
            loss, on_label = FINISH(subject, params)
            on_p, on_psi, everywhere = -on_label, 0.0, 0.0
        elif NEEDS == "sum of log p":
            loss, on_label, everywhere = FINISH(subject, sum_d * rate * LN2 - count * tl.log(total), params)
            on_p, on_psi = -on_label - count * everywhere, 0.0
        else:
            loss, on_p, on_psi, on_label = FINISH(subject, terms, psis, count, params)
            everywhere = 0.0

    share = tl.where(known | (counts == 0), 1.0, float("nan"))
    if weight is not None:
        share *= tl.load(weight + y).to(tl.float32)
    if denominator is not None:
        share *= reciprocal(one_number(denominator))
    values = tl.where(counts, loss, 0.0) * share
    if value is not None:
        tl.store(value + i, values)

    if gradient is not None or gist is not None:
        if upstream is not None:
            share *= tl.load(upstream + i * upstream_stride).to(tl.float32)
        share = tl.where(counts, share, 0.0) * scale
        # what is ignored may have any logits: no NaN of theirs is to be multiplied by 0
        on_p, on_psi = tl.where(counts, on_p, 0.0), tl.where(counts, on_psi, 0.0)
        everywhere, on_label = tl.where(counts, everywhere, 0.0), tl.where(counts, on_label, 0.0)
        label_psi = 0.0
        if TERMS is not None:
            label_psi = TERMS(p_y, tl.zeros(p_y.shape, tl.float32), params)[1]
        g_y = on_p * p_y + on_psi * label_psi + everywhere + on_label
        # of the gradient in z, what goes into the norm
        along = on_p * weighted * of_total + on_psi * psi_d + everywhere * sum_d + on_label * d_y
        along = (g_y * shift - along) * of_norm * share
        on_e = on_p * share * of_total
        of_label = g_y * share
        if NORMALIZE is not None:
            of_label -= tl.where(f_y == 0.0, 0.0, signed(along, f_y))
            if NORMALIZE == "softplus":
                of_label *= tl.sigmoid(raw_y.to(tl.float32))
        if gist is not None:
            tl.store(gist + i, top)
            tl.store(gist + gist_stride + i, rate)
            tl.store(gist + 2 * gist_stride + i, on_e)
            tl.store(gist + 3 * gist_stride + i, along)
            tl.store(gist + 4 * gist_stride + i, of_label)
    if gradient is not None:
        out = gradient + i.to(tl.int64) * CLASSES
        given = (rate, of_total, scale, params, share, on_e, on_psi, everywhere, along, out)
        if PIECES > 0:
            for j in tl.static_range(PIECES):
                _write_gradient(held[j], columns(j, SHAPE), row, given, TERMS, NEEDS, NORMALIZE, SHAPE)
        else:
            following = ahead(row, 0, SOLVE == "given", True, SHAPE)
            for begin in range(0, CLASSES, BLOCK):
                raw, following = following, ahead(row, begin + BLOCK, SOLVE == "given", True, SHAPE)
                f, column = again(row, raw, begin, SOLVE == "given", SHAPE)
                gap = gap_of(f, top, SHAPE)
                _write_gradient(gap, column, row, given, TERMS, NEEDS, NORMALIZE, SHAPE)
        tl.debug_barrier()  # the label's comes after
        tl.store(out + y, of_label)
    return values


@triton.jit
def _write_gradient(
    gap, column, row, given, TERMS: tl.constexpr, NEEDS: tl.constexpr, NORMALIZE: tl.constexpr, SHAPE: tl.constexpr
):
    """The gradient in the classes ``column``, from gaps with the signs of the logits; at the label not right yet."""
    rate, of_total, scale, params, share, on_e, on_psi, everywhere, along, out = given
    d = tl.abs(gap)
    e = exponential_anew(d, rate, SHAPE)
    g = e * on_e
    if NEEDS == "sum of log p":
        g += tl.where(d > ABSENT, 0.0, everywhere * share) if SHAPE[7] else everywhere * share
    if TERMS is not None:
        g += TERMS(e * of_total, (row[3] - d) * scale, params)[1] * (on_psi * share)
    if NORMALIZE == "l1":
        without = (d == row[4]) | (d > ABSENT) if SHAPE[7] else d == row[4]
        g -= tl.where(without, 0.0, signed(along, gap))
    if NORMALIZE == "softplus":
        g = (g - along) * tl.sigmoid(load(row[0], row[1], column, False, SHAPE).to(tl.float32))
    tl.store(out + column, g, mask=column < SHAPE[0], eviction_policy="evict_first")


@triton.jit
def _params(param0, param1, param2, param3, i):
    """The loss's own hyperparameters; those that are None are not used."""
    return (
        0.0 if param0 is None else per_row(param0, i),
        0.0 if param1 is None else per_row(param1, i),
        0.0 if param2 is None else per_row(param2, i),
        0.0 if param3 is None else per_row(param3, i),
    )
