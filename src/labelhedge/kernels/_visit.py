"""The kernel: value, λ and gradient of any loss in one visit to the logits.

A program visits ``ROWS`` rows at a time. The passes over a row are: norm and maximum; λ; the softmax's sums; further
sums for losses that need them; gradient. The first is here, the others are in ``_results.py``.
"""

from __future__ import annotations

import triton
import triton.language as tl

from labelhedge.kernels._elementary import per_row, reciprocal, signed, softplus
from labelhedge.kernels._results import results
from labelhedge.kernels._row import ABSENT, hold, with_masked_classes
from labelhedge.kernels._survey import survey
from labelhedge.kernels._temperature import rate_of


@triton.jit
def number_of(target, rows, ignore_index, BLOCK: tl.constexpr):
    """How many targets are not to be ignored."""
    counted = tl.zeros([BLOCK], tl.int32)
    for begin in range(0, rows, BLOCK):
        i = begin + tl.arange(0, BLOCK)
        counted += (tl.load(target + i, mask=i < rows, other=ignore_index) != ignore_index).to(tl.int32)
    return tl.sum(counted).to(tl.float32)


@triton.jit(do_not_specialize=["rows", "row_stride_aligned", "upstream_stride", "gist_stride", "ignore_index"])
def visit(
    logits, target, weight, denominator, upstream, value, lam_out, gradient, gist, total, lam,
    rows, row_stride_aligned, upstream_stride, gist_stride, ignore_index,
    temperature, margin, lambda0, alpha, param0, param1, param2, param3,
    FINISH: tl.constexpr, TERMS: tl.constexpr, NEEDS: tl.constexpr,
    NORMALIZE: tl.constexpr, SOLVE: tl.constexpr, OCTAVES: tl.constexpr, LARGE: tl.constexpr,
    SHAPE: tl.constexpr, ALIGN: tl.constexpr, ROWS: tl.constexpr, COUNT: tl.constexpr,
):  # fmt: skip
    """Value, λ and gradient of ``rows`` rows.

    Pointers: ``logits``, ``target``; ``weight`` (K,), ``denominator`` (one number) and ``upstream`` (one, or one per
    row), or None; the outputs, each of which may be None. The hyperparameters are numbers or pointers to one per row.
    SOLVE says where λ comes from: "given" as ``lam``, a "step" of Algorithm 1 from ``lam`` (no step for a row that is
    to be ignored), or "exact". The distance of rows comes divided by ALIGN, so that the compiler knows how wide it may
    read. COUNT asks for the mean: every program counts the targets, to divide by their number. ``total`` gets the sum
    of the values, for which there may be but one program.
    """
    if COUNT:
        denominator = number_of(target, rows, ignore_index, 128)
    block = tl.program_id(0)
    i, start, y, counts, known, raw_y, unscale, first_lam = of_block(
        logits, target, lam, rows, row_stride_aligned, ignore_index, temperature, block, SHAPE, ALIGN, ROWS
    )
    if SHAPE[2] == 0 and (SOLVE != "exact" or OCTAVES == 1):
        guessed_lam = per_row(lambda0, i) if SOLVE == "exact" else first_lam
        held, norm, top = survey(logits, start, y, rate_of(reciprocal(unscale), guessed_lam), SOLVE, SHAPE)
    else:
        held, norm, top = hold(logits, start, y, SHAPE)

    if (NORMALIZE is not None or NEEDS != "log p_y") and tl.min((norm < ABSENT).to(tl.int32)) == 0:
        added = with_care(
            logits, target, weight, denominator, upstream, value, lam_out, gradient, gist, lam,
            rows, row_stride_aligned, upstream_stride, gist_stride, ignore_index,
            temperature, margin, lambda0, alpha, param0, param1, param2, param3, block,
            FINISH, TERMS, NEEDS, NORMALIZE, SOLVE, OCTAVES, LARGE, with_masked_classes(SHAPE), ALIGN, ROWS,
        )  # fmt: skip
    else:
        values = results(
            logits, weight, denominator, upstream, value, lam_out, gradient, gist, upstream_stride, gist_stride,
            margin, lambda0, alpha, param0, param1, param2, param3,
            i, start, y, counts, known, raw_y, unscale, first_lam, held, norm, top,
            FINISH, TERMS, NEEDS, NORMALIZE, SOLVE, OCTAVES, LARGE, SHAPE,
        )  # fmt: skip
        added = tl.sum(tl.where(tl.arange(0, ROWS)[:, None] < rows, values, 0.0))
    if total is not None:
        tl.store(total, added)


@triton.jit
def of_block(
    logits, target, lam, rows, row_stride_aligned, ignore_index, temperature, block,
    SHAPE: tl.constexpr, ALIGN: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """What is known of the rows of a block before they are read: what ``results`` says, from ``i`` on."""
    i = tl.minimum(block * ROWS + tl.arange(0, ROWS)[:, None], rows - 1)  # the last row may be visited twice
    start = i.to(tl.int64) * row_stride_aligned * ALIGN
    label = tl.load(target + i)
    counts, known = label != ignore_index, (label >= 0) & (label < SHAPE[0])
    y = tl.where(known, label, 0).to(tl.int32)
    raw_y = tl.load(logits + start + y)
    unscale = tl.full([ROWS, 1], 1.0, tl.float32)
    if temperature is not None:
        unscale = per_row(temperature, i)
    first_lam = tl.full([ROWS, 1], 1.0, tl.float32)
    if lam is not None:
        first_lam = per_row(lam, i)
    return i, start, y, counts, known, raw_y, unscale, first_lam


@triton.jit(noinline=True)  # rare and long: the usual way would have fewer registers beside it
def with_care(
    logits, target, weight, denominator, upstream, value, lam_out, gradient, gist, lam,
    rows, row_stride_aligned, upstream_stride, gist_stride, ignore_index,
    temperature, margin, lambda0, alpha, param0, param1, param2, param3, block,
    FINISH: tl.constexpr, TERMS: tl.constexpr, NEEDS: tl.constexpr,
    NORMALIZE: tl.constexpr, SOLVE: tl.constexpr, OCTAVES: tl.constexpr, LARGE: tl.constexpr,
    SHAPE: tl.constexpr, ALIGN: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """The rows of a block in which a class is masked by -∞, or a logit is NaN; returns the sum of their values."""
    i, start, y, counts, known, raw_y, unscale, first_lam = of_block(
        logits, target, lam, rows, row_stride_aligned, ignore_index, temperature, block, SHAPE, ALIGN, ROWS
    )
    held, norm, top = hold(logits, start, y, SHAPE)
    values = results(
        logits, weight, denominator, upstream, value, lam_out, gradient, gist, upstream_stride, gist_stride,
        margin, lambda0, alpha, param0, param1, param2, param3,
        i, start, y, counts, known, raw_y, unscale, first_lam, held, norm, top,
        FINISH, TERMS, NEEDS, NORMALIZE, SOLVE, OCTAVES, LARGE, SHAPE,
    )  # fmt: skip
    return tl.sum(tl.where(tl.arange(0, ROWS)[:, None] < rows, values, 0.0))


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
    g = tl.exp2((top - f) * rate) * on_e
    if NORMALIZE == "l1":
        g -= tl.where(f == 0.0, 0.0, signed(along, f))
    if NORMALIZE == "softplus":
        g = (g - along) * tl.sigmoid(raw)
    g = tl.where(column + first == tl.load(target + i), tl.load(gist + 4 * gist_stride + i), g)
    tl.store(place, g, mask=column < width)


@triton.jit(do_not_specialize=["size"])
def rescale(gradient, upstream, size, BLOCK: tl.constexpr):
    """Multiply the gradient by a number in memory; where it is 1, there is nothing to do."""
    factor = tl.load(upstream).to(tl.float32)
    if factor != 1.0:
        for begin in range(tl.program_id(0).to(tl.int64) * BLOCK, size, tl.num_programs(0) * BLOCK):
            at = begin + tl.arange(0, BLOCK)
            scaled = tl.load(gradient + at, mask=at < size).to(tl.float32) * factor
            tl.store(gradient + at, scaled, mask=at < size)


@triton.jit(do_not_specialize=["rows", "ignore_index"])
def count(target, number, rows, ignore_index, BLOCK: tl.constexpr):
    """How many targets are not to be ignored."""
    tl.store(number, number_of(target, rows, ignore_index, BLOCK))


@triton.jit(do_not_specialize=["rows"])
def add_up(values, number, rows, BLOCK: tl.constexpr):
    """The sum of the values."""
    summed = tl.zeros([BLOCK], tl.float32)
    for begin in range(0, rows, BLOCK):
        i = begin + tl.arange(0, BLOCK)
        summed += tl.load(values + i, mask=i < rows, other=0.0)
    tl.store(number, tl.sum(summed))
