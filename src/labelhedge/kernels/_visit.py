"""The kernel: value, λ and gradient of any loss in one visit to the logits.

A program holds ``ROWS`` rows. A row that is too long to hold it reads again for each pass, from the cache. The passes
are: norm and maximum; λ; the softmax's sums; further sums for losses that need them; gradient.

With z = f·scale, the softmax is over ``2^(d·rate)`` with ``d = f - top``, where the label's logit is taken less the
margin and ``top`` is the largest. So d is exactly 0 at the maximum, and nothing overflows as λ → 0.
"""

from __future__ import annotations

import triton
import triton.language as tl

from labelhedge.kernels._elementary import LN2, LOG2E, expm1, log1p, per_row, softplus
from labelhedge.kernels._temperature import ZERO, cumulants, highest, newton, step, strength

TINY = tl.constexpr(1.1754943508222875e-38)
LARGE_LAMBDA = tl.constexpr(8.0)
"""Above it ``log mean exp(x/λ)`` is so near 0 that it needs expm1; LARGE says that a λ may be above it."""
MIN_RATE, MAX_RATE = tl.constexpr(1e-30), tl.constexpr(3e38)
"""Stand for the rates at λ = ∞ and 0: with them 0 is 0, and ``BEYOND`` gives exp(-∞)."""
BEYOND = tl.constexpr(-3e38)
"""The logit of a class that does not exist."""


@triton.jit
def _read(row, column, SOFTPLUS: tl.constexpr):
    """Logits of some classes, after the softplus if asked; beyond the last class any number."""
    logits, start, _, _, classes = row
    f = tl.load(logits + start + column, mask=column < classes, other=0.0).to(tl.float32)
    if SOFTPLUS:
        f = softplus(f)
    return f


@triton.jit
def _again(held, row, column, ONE_BLOCK: tl.constexpr, SOFTPLUS: tl.constexpr):
    """Logits of some classes, the label's less its margin: what is held, or for a long row read again."""
    if ONE_BLOCK:
        f = held
    else:
        f = tl.where(column < row[4], _read(row, column, SOFTPLUS), BEYOND)
        f = tl.where(column == row[2], row[3], f)
    return f


@triton.jit
def _signed(amount, f):
    """``amount·sign(f)``."""
    sign = f.to(tl.int32, bitcast=True) & -2147483648
    return tl.where(f == 0.0, 0.0, (amount.to(tl.int32, bitcast=True) ^ sign).to(tl.float32, bitcast=True))


@triton.jit
def _rate(scale, lam):
    """What turns d into ``log₂ e``."""
    return tl.minimum(tl.maximum(scale * LOG2E / tl.maximum(lam, 1e-20), MIN_RATE), MAX_RATE)


@triton.jit
def _sums(e, d):
    """``Σe``, ``Σed`` and ``Σed²``."""
    ed = e * d
    return tl.sum(e, 1, keep_dims=True), tl.sum(ed, 1, keep_dims=True), tl.sum(ed * d, 1, keep_dims=True)


@triton.jit
def _plus(a, b):
    return a[0] + b[0], a[1] + b[1], a[2] + b[2]


@triton.jit
def _sums_at(rate, held, row, column, top, stop, BLOCK: tl.constexpr, ONE_BLOCK: tl.constexpr, SOFTPLUS: tl.constexpr):
    """``Σe``, ``Σed`` and ``Σed²`` over all classes; those that are not used cost nothing."""
    zero = tl.zeros(rate.shape, tl.float32)
    sums = (zero, zero, zero)
    for begin in range(0, stop, BLOCK):
        d = _again(held, row, column + begin, ONE_BLOCK, SOFTPLUS) - top
        sums = _plus(sums, _sums(tl.exp2(d * rate), d))
    return sums


@triton.jit
def _sums_over_octave(
    rate, held, row, column, top, stop, BLOCK: tl.constexpr, ONE_BLOCK: tl.constexpr, SOFTPLUS: tl.constexpr
):
    """The three sums at 1, 4/3, 5/3 and 2 times ``rate``: one exponential, and its powers."""
    zero = tl.zeros(rate.shape, tl.float32)
    at3, at4, at5, at6 = (zero, zero, zero), (zero, zero, zero), (zero, zero, zero), (zero, zero, zero)
    for begin in range(0, stop, BLOCK):
        d = _again(held, row, column + begin, ONE_BLOCK, SOFTPLUS) - top
        root = tl.exp2(d * (rate * (1.0 / 3.0)))
        square = root * root
        cube = square * root
        at3 = _plus(at3, _sums(cube, d))
        at4 = _plus(at4, _sums(square * square, d))
        at5 = _plus(at5, _sums(square * cube, d))
        at6 = _plus(at6, _sums(cube * cube, d))
    return at3, at4, at5, at6


@triton.jit
def _exact_lambda(
    held, row, column, top, stop, scale, lambda0, alpha, count,
    BLOCK: tl.constexpr, ONE_BLOCK: tl.constexpr, SOFTPLUS: tl.constexpr, OCTAVES: tl.constexpr,
):  # fmt: skip
    """The λ that maximises the objective over [0, λ0]."""
    A = tl.where(lambda0 == float("inf"), 1.0, alpha * lambda0)
    unit = scale / lambda0
    best = tl.full(lambda0.shape, -float("inf"), tl.float32)
    rho, low, high = tl.full(best.shape, 1.0, tl.float32), best, best
    for octave in tl.static_range(OCTAVES):
        factor = 2.0**octave
        x = unit * factor
        n0, n1, n2, n3 = _sums_over_octave(_rate(x, 1.0), held, row, column, top, stop, BLOCK, ONE_BLOCK, SOFTPLUS)
        n0, n1 = cumulants(n0, x, count), cumulants(n1, x, count)
        n2, n3 = cumulants(n2, x, count), cumulants(n3, x, count)
        value, peak, below, above = highest(n0, n1, n2, n3, A, factor)
        better = value > best
        best, rho = tl.where(better, value, best), tl.where(better, peak, rho)
        low, high = tl.where(better, below, low), tl.where(better, above, high)
    if OCTAVES > 1:  # and λ = 0
        zero = best < -0.5 * A
        rho, low = tl.where(zero, 0.0, rho), tl.where(zero, 0.0, low)
    for _ in tl.static_range(1 if OCTAVES == 1 else 3):
        rho = tl.maximum(rho, ZERO)
        sums = _sums_at(_rate(unit, rho), held, row, column, top, stop, BLOCK, ONE_BLOCK, SOFTPLUS)
        rho = newton(cumulants(sums, unit, count), rho, low, high, A)
    return tl.where(rho > ZERO, rho, 0.0) * lambda0


@triton.jit
def _smooth_maximum(
    lam, rate, total, scale, held, row, column, top, stop, count,
    LARGE: tl.constexpr, BLOCK: tl.constexpr, ONE_BLOCK: tl.constexpr, SOFTPLUS: tl.constexpr,
):  # fmt: skip
    """``λ log mean exp(x/λ)``, and the mean of x for λ = ∞."""
    smooth = lam * tl.log(total / count)
    if LARGE and tl.max(lam) > LARGE_LAMBDA:
        less_one, sum_d = tl.zeros(rate.shape, tl.float32), tl.zeros(rate.shape, tl.float32)
        for begin in range(0, stop, BLOCK):
            d = _again(held, row, column + begin, ONE_BLOCK, SOFTPLUS) - top
            d = tl.where(column + begin < row[4], d, 0.0)
            less_one += tl.sum(expm1(d * (rate * LN2)), 1, keep_dims=True)
            sum_d += tl.sum(d, 1, keep_dims=True)
        less_one /= count
        near = (lam > LARGE_LAMBDA) & (less_one > -0.5)
        smooth = tl.where(near, lam * log1p(tl.maximum(less_one, -0.5)), smooth)
        smooth = tl.where(lam == float("inf"), sum_d * scale / count, smooth)
    return smooth


@triton.jit
def _sums_of_terms(
    rate, total, scale, d_y, params, held, row, column, top, stop, TERMS: tl.constexpr,
    BLOCK: tl.constexpr, ONE_BLOCK: tl.constexpr, SOFTPLUS: tl.constexpr,
):  # fmt: skip
    """``Σ term`` over the other classes; ``Σψ``, ``Σψd`` and ``Σd`` over all."""
    zero = tl.zeros(rate.shape, tl.float32)
    terms, psis, psi_d, sum_d = zero, zero, zero, zero
    for begin in range(0, stop, BLOCK):
        present = column + begin < row[4]
        d = _again(held, row, column + begin, ONE_BLOCK, SOFTPLUS) - top
        d = tl.where(present, d, 0.0)
        sum_d += tl.sum(d, 1, keep_dims=True)
        if TERMS is not None:
            term, psi = TERMS(tl.exp2(d * rate) / total, (d - d_y) * scale, params)
            psi = tl.where(present, psi, 0.0)
            terms += tl.sum(tl.where(present & (column + begin != row[2]), term, 0.0), 1, keep_dims=True)
            psis += tl.sum(psi, 1, keep_dims=True)
            psi_d += tl.sum(psi * d, 1, keep_dims=True)
    return terms, psis, psi_d, sum_d


@triton.jit
def visit(
    logits, target, weight, denominator, upstream, value, lam_out, gradient, gist,
    rows, classes_aligned, row_stride_aligned, upstream_stride, gist_stride, ignore_index,
    temperature, margin, lam, lambda0, alpha, param0, param1, param2, param3,
    FINISH: tl.constexpr, TERMS: tl.constexpr, NEEDS: tl.constexpr,
    NORMALIZE: tl.constexpr, SOLVE: tl.constexpr, OCTAVES: tl.constexpr, LARGE: tl.constexpr,
    ALIGN: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, ONE_BLOCK: tl.constexpr,
):  # fmt: skip
    """Value, λ and gradient of ``rows`` rows.

    Pointers: ``logits``, ``target``; ``weight`` (K,), ``denominator`` (one number) and ``upstream`` (one, or one per
    row), or None; the outputs, each of which may be None. The hyperparameters are numbers or pointers to one per row.
    SOLVE says where λ comes from: "given" as ``lam``, a "step" of Algorithm 1 from ``lam``, or "exact". The number of
    classes and the distance of rows come divided by ALIGN, so that the compiler knows how wide it may read.
    """
    classes = classes_aligned * ALIGN
    SOFTPLUS: tl.constexpr = NORMALIZE == "softplus"
    column = tl.arange(0, BLOCK)[None, :]
    count = tl.full([ROWS, 1], classes, tl.float32)
    stop = BLOCK if ONE_BLOCK else classes
    for block in tl.range(tl.program_id(0), tl.cdiv(rows, ROWS), tl.num_programs(0)):
        i = tl.minimum(block * ROWS + tl.arange(0, ROWS)[:, None], rows - 1)  # the last row may be visited twice
        label = tl.load(target + i)
        counts = label != ignore_index
        known = (label >= 0) & (label < classes)
        y = tl.where(known, label, 0).to(tl.int32)
        start = i.to(tl.int64) * row_stride_aligned * ALIGN
        f_y = tl.load(logits + start + y).to(tl.float32)
        slope_y = 1.0
        if SOFTPLUS:
            slope_y = tl.sigmoid(f_y)
            f_y = softplus(f_y)

        # norm and maximum
        row = (logits, start, y, f_y, classes)
        norm = tl.zeros(f_y.shape, tl.float32)
        top = tl.full(f_y.shape, BEYOND, tl.float32)
        held = _read(row, column, SOFTPLUS)
        for begin in range(0, stop, BLOCK):
            f = held if ONE_BLOCK else _read(row, column + begin, SOFTPLUS)
            if NORMALIZE is not None:
                size = tl.where(column + begin < classes, f, 0.0) if SOFTPLUS else tl.abs(f)
                norm += tl.sum(size, 1, keep_dims=True)
            if not ONE_BLOCK:
                other = (column + begin < classes) & (column + begin != y)
                top = tl.maximum(top, tl.max(tl.where(other, f, BEYOND), 1, keep_dims=True))
        scale = tl.full([ROWS, 1], 1.0, tl.float32)
        if temperature is not None:
            scale = 1.0 / per_row(temperature, i)
        has_norm = norm > TINY * count
        if NORMALIZE is not None:
            scale *= tl.where(has_norm, count / tl.where(has_norm, norm, 1.0), 1.0)
        f_label = f_y
        if margin is not None:
            f_label -= per_row(margin, i) / scale
        if ONE_BLOCK:
            held = tl.where(column == y, f_label, tl.where(column < classes, held, BEYOND))
            top = tl.max(held, 1, keep_dims=True)
        else:
            top = tl.maximum(top, f_label)
        d_y = f_label - top
        row = (logits, start, y, f_label, classes)

        # λ
        penalty = 0.0
        lam_row = tl.full([ROWS, 1], 1.0, tl.float32)
        if SOLVE == "given" and lam is not None:
            lam_row = per_row(lam, i)
        if lambda0 is not None:
            lambda0_row, log_count = per_row(lambda0, i), tl.log(count)
            alpha_row = strength(None if alpha is None else per_row(alpha, i), lambda0_row, log_count)
            if SOLVE == "step":
                rate = _rate(scale, tl.maximum(per_row(lam, i), ZERO))
                sums = _sums_at(rate, held, row, column, top, stop, BLOCK, ONE_BLOCK, SOFTPLUS)
                lam_row = step(sums[0], sums[1] * rate, lambda0_row, alpha_row, log_count)
            if SOLVE == "exact":
                lam_row = _exact_lambda(
                    held, row, column, top, stop, scale, lambda0_row, alpha_row, count,
                    BLOCK, ONE_BLOCK, SOFTPLUS, OCTAVES,
                )  # fmt: skip
            excess = tl.where(lambda0_row == float("inf"), 0.0, lam_row - lambda0_row)
            penalty = 0.5 * alpha_row * excess * excess
        if lam_out is not None:
            tl.store(lam_out + i, lam_row)

        # the softmax, and what the loss makes of it
        rate = _rate(scale, lam_row)
        softmax = _sums_at(rate, held, row, column, top, stop, BLOCK, ONE_BLOCK, SOFTPLUS)
        total, weighted = softmax[0], softmax[1]
        log_p, p_y = d_y * rate * LN2 - tl.log(total), tl.exp2(d_y * rate) / total
        params = (0.0, 0.0, 0.0, 0.0)
        if param0 is not None:
            params = (per_row(param0, i), 0.0, 0.0, 0.0)
        if param1 is not None:
            params = (params[0], per_row(param1, i), 0.0, 0.0)
        if param2 is not None:
            params = (params[0], params[1], per_row(param2, i), 0.0)
        if param3 is not None:
            params = (params[0], params[1], params[2], per_row(param3, i))
        terms, psis, psi_d, sum_d = 0.0, 0.0, 0.0, 0.0
        if NEEDS == "sums":
            terms, psis, psi_d, sum_d = _sums_of_terms(
                rate, total, scale, d_y, params, held, row, column, top, stop, TERMS, BLOCK, ONE_BLOCK, SOFTPLUS
            )
        if NEEDS == "smooth maximum":
            smooth = _smooth_maximum(
                lam_row, rate, total, scale, held, row, column, top, stop, count, LARGE, BLOCK, ONE_BLOCK, SOFTPLUS
            )
            log_p = smooth - d_y * scale - penalty
        sums = (sum_d * rate * LN2 - count * tl.log(total), terms, psis)
        loss, on_p, on_psi, everywhere, on_label = FINISH(log_p, sums, count, params)

        share = tl.where(known | (counts == 0), 1.0, float("nan"))
        if weight is not None:
            share *= tl.load(weight + y).to(tl.float32)
        if denominator is not None:
            share /= tl.load(denominator).to(tl.float32)
        if value is not None:
            tl.store(value + i, tl.where(counts, loss, 0.0) * share)

        if gradient is not None:
            if upstream is not None:
                share *= tl.load(upstream + i * upstream_stride).to(tl.float32)
            share = tl.where(counts, share, 0.0) * scale
            label_psi = 0.0
            if TERMS is not None:
                label_psi = TERMS(p_y, tl.zeros(p_y.shape, tl.float32), params)[1]
            g_y = on_p * p_y + on_psi * label_psi + everywhere + on_label
            along = tl.zeros(p_y.shape, tl.float32)  # of the gradient in z, what goes into the norm
            if NORMALIZE is not None:
                along = on_p * (weighted / total) + on_psi * psi_d + everywhere * sum_d + on_label * d_y
                along = tl.where(has_norm, (along + g_y * (f_y - f_label)) / norm, 0.0)
            out = gradient + i.to(tl.int64) * classes_aligned * ALIGN
            for begin in range(0, stop, BLOCK):
                f = _again(held, row, column + begin, ONE_BLOCK, SOFTPLUS)
                e = tl.exp2((f - top) * rate)
                g = e * (on_p * share / total)
                if NEEDS == "sums":
                    g += everywhere * share
                if TERMS is not None:
                    g += TERMS(e / total, (f - f_label) * scale, params)[1] * (on_psi * share)
                if NORMALIZE == "l1":
                    g -= _signed(along * share, f)
                if SOFTPLUS:
                    g = (g - along * share) * tl.sigmoid(_read(row, column + begin, False))
                tl.store(out + column + begin, g, mask=column + begin < classes)
            tl.debug_barrier()  # the label's comes after
            tl.store(out + y, share * slope_y * (g_y - _signed(along, f_y)))
            if gist is not None:
                tl.store(gist + i, top)
                tl.store(gist + gist_stride + i, rate)
                tl.store(gist + 2 * gist_stride + i, on_p * share / total)
                tl.store(gist + 3 * gist_stride + i, along * share)
                tl.store(gist + 4 * gist_stride + i, share * slope_y * (g_y - _signed(along, f_y)))


@triton.jit
def gradient_of_classes(
    logits, target, gist, first, width, row_stride, gist_stride, NORMALIZE: tl.constexpr, BLOCK: tl.constexpr
):
    """The gradient in some of the classes, in place of their logits, from what ``visit`` has kept of each row."""
    i = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    place = logits + i * row_stride + column
    raw = tl.load(place, mask=column < width, other=0.0).to(tl.float32)
    f = softplus(raw) if NORMALIZE == "softplus" else raw
    top, rate = tl.load(gist + i), tl.load(gist + gist_stride + i)
    on_e, along = tl.load(gist + 2 * gist_stride + i), tl.load(gist + 3 * gist_stride + i)
    g = tl.exp2((f - top) * rate) * on_e
    if NORMALIZE == "l1":
        g -= _signed(along, f)
    if NORMALIZE == "softplus":
        g = (g - along) * tl.sigmoid(raw)
    g = tl.where(column + first == tl.load(target + i), tl.load(gist + 4 * gist_stride + i), g)
    tl.store(place, g, mask=column < width)


@triton.jit
def rescale(gradient, upstream, size, BLOCK: tl.constexpr):
    """Multiply the gradient by a number in memory; where it is 1, there is nothing to do."""
    factor = tl.load(upstream).to(tl.float32)
    if factor != 1.0:
        for begin in range(tl.program_id(0).to(tl.int64) * BLOCK, size, tl.num_programs(0) * BLOCK):
            at = begin + tl.arange(0, BLOCK)
            scaled = tl.load(gradient + at, mask=at < size).to(tl.float32) * factor
            tl.store(gradient + at, scaled, mask=at < size)
