"""Reading a row of logits, and sums over its classes.

``row`` is a tuple: the logits, where the row starts, its label, the label's logit less the margin, the largest logit
``top``, and the pieces that the program holds. ``SHAPE`` is the number of classes, the length of a piece, the number of
pieces, and whether the logits go through a softplus. A row that is too long to be held has 0 pieces, and is read again
for every sum, from the cache.
"""

from __future__ import annotations

import triton
import triton.language as tl

from labelhedge.kernels._elementary import LN2, expm1, softplus

BEYOND = tl.constexpr(-3e38)
"""The logit of a class that does not exist: exp(-∞), and times 0 it is 0."""


@triton.jit
def read(logits, start, column, SHAPE: tl.constexpr, SOFTPLUS: tl.constexpr):
    """Logits of some classes, after the softplus if asked; beyond the last class any number."""
    f = tl.load(logits + start + column, mask=column < SHAPE[0], other=0.0).to(tl.float32)
    if SOFTPLUS:
        f = softplus(f)
    return f


@triton.jit
def columns(piece, SHAPE: tl.constexpr):
    """The classes of a piece."""
    return tl.arange(0, SHAPE[1])[None, :] + piece * SHAPE[1]


@triton.jit
def hold(logits, start, SHAPE: tl.constexpr):
    """The pieces of a row; of a long one the first, which is not used."""
    PIECES: tl.constexpr = SHAPE[2]
    SOFTPLUS: tl.constexpr = SHAPE[3]
    held = (read(logits, start, columns(0, SHAPE), SHAPE, SOFTPLUS),)
    for j in tl.static_range(1, PIECES):
        held = held + (read(logits, start, columns(j, SHAPE), SHAPE, SOFTPLUS),)
    return held


@triton.jit
def lowered(f, column, y, f_label, SHAPE: tl.constexpr):
    """The logits of a piece, the label's less its margin; beyond the last class ``BEYOND``."""
    return tl.where(column == y, f_label, tl.where(column < SHAPE[0], f, BEYOND))


@triton.jit
def hold_lowered(held, y, f_label, SHAPE: tl.constexpr):
    """The same for all pieces, and the largest logit."""
    PIECES: tl.constexpr = SHAPE[2]
    pieces = (lowered(held[0], columns(0, SHAPE), y, f_label, SHAPE),)
    top = pieces[0]
    for j in tl.static_range(1, PIECES):
        pieces = pieces + (lowered(held[j], columns(j, SHAPE), y, f_label, SHAPE),)
        top = tl.maximum(top, pieces[j])
    return pieces, tl.max(top, 1, keep_dims=True)


@triton.jit
def norm_of_held(held, SHAPE: tl.constexpr):
    """``Σ|f|``."""
    PIECES: tl.constexpr = SHAPE[2]
    norm = _size(held[0], columns(0, SHAPE), SHAPE)
    for j in tl.static_range(1, PIECES):
        norm += _size(held[j], columns(j, SHAPE), SHAPE)
    return tl.sum(norm, 1, keep_dims=True)


@triton.jit
def norm_and_top(logits, start, y, SHAPE: tl.constexpr):
    """``Σ|f|`` of a long row, and the largest logit of the other classes."""
    BLOCK: tl.constexpr = SHAPE[1]
    SOFTPLUS: tl.constexpr = SHAPE[3]
    norm = tl.zeros([y.shape[0], BLOCK], tl.float32)
    top = tl.full([y.shape[0], BLOCK], BEYOND, tl.float32)
    for begin in range(0, SHAPE[0], BLOCK):
        column = columns(0, SHAPE) + begin
        f = read(logits, start, column, SHAPE, SOFTPLUS)
        norm += _size(f, column, SHAPE)
        top = tl.maximum(top, lowered(f, column, y, BEYOND, SHAPE))
    return tl.sum(norm, 1, keep_dims=True), tl.max(top, 1, keep_dims=True)


@triton.jit
def _size(f, column, SHAPE: tl.constexpr):
    return tl.where(column < SHAPE[0], f, 0.0) if SHAPE[3] else tl.abs(f)


@triton.jit
def again(row, begin, SHAPE: tl.constexpr):
    """Logits of a long row from the class ``begin`` on, and their classes."""
    logits, start, y, f_label, _, _ = row
    SOFTPLUS: tl.constexpr = SHAPE[3]
    column = columns(0, SHAPE) + begin
    return lowered(read(logits, start, column, SHAPE, SOFTPLUS), column, y, f_label, SHAPE), column


@triton.jit
def _sums(row, given, VALUES: tl.constexpr, COUNT: tl.constexpr, CHOICE: tl.constexpr, SHAPE: tl.constexpr):
    """Sums over the classes of the COUNT numbers that VALUES gives for each."""
    BLOCK: tl.constexpr = SHAPE[1]
    PIECES: tl.constexpr = SHAPE[2]
    if PIECES > 0:
        sums = VALUES(row[5][0], columns(0, SHAPE), row, given, CHOICE, SHAPE)
        for j in tl.static_range(1, PIECES):
            sums = _plus(sums, VALUES(row[5][j], columns(j, SHAPE), row, given, CHOICE, SHAPE), COUNT)
    else:
        zero = tl.zeros([row[2].shape[0], BLOCK], tl.float32)
        sums = (zero,)
        for _ in tl.static_range(1, COUNT):
            sums = sums + (zero,)
        for begin in range(0, SHAPE[0], BLOCK):
            f, column = again(row, begin, SHAPE)
            sums = _plus(sums, VALUES(f, column, row, given, CHOICE, SHAPE), COUNT)
    totals = (tl.sum(sums[0], 1, keep_dims=True),)
    for j in tl.static_range(1, COUNT):
        totals = totals + (tl.sum(sums[j], 1, keep_dims=True),)
    return totals


@triton.jit
def _plus(a, b, COUNT: tl.constexpr):
    total = (a[0] + b[0],)
    for j in tl.static_range(1, COUNT):
        total = total + (a[j] + b[j],)
    return total


@triton.jit
def _moments(f, column, row, rate, ORDER: tl.constexpr, SHAPE: tl.constexpr):
    d = f - row[4]
    e = tl.exp2(d * rate)
    if ORDER == 1:
        return e, e * d
    else:
        return e, e * d, e * d * d


@triton.jit
def two_moments(row, rate, SHAPE: tl.constexpr):
    """``Σe`` and ``Σed`` with ``e = 2^(d·rate)``."""
    return _sums(row, rate, _moments, 2, 1, SHAPE)


@triton.jit
def three_moments(row, rate, SHAPE: tl.constexpr):
    """``Σe``, ``Σed`` and ``Σed²``."""
    return _sums(row, rate, _moments, 3, 2, SHAPE)


@triton.jit
def _moments_twice(f, column, row, rate, CHOICE: tl.constexpr, SHAPE: tl.constexpr):
    d = f - row[4]
    e = tl.exp2(d * rate)
    return e, e * d, e * d * d, e * e, e * e * d, e * e * d * d


@triton.jit
def three_moments_twice(row, rate, SHAPE: tl.constexpr):
    """The three moments at ``rate`` and at twice that, from one exponential."""
    sums = _sums(row, rate, _moments_twice, 6, None, SHAPE)
    return (sums[0], sums[1], sums[2]), (sums[3], sums[4], sums[5])


@triton.jit
def _near_one(f, column, row, rate, CHOICE: tl.constexpr, SHAPE: tl.constexpr):
    d = tl.where(column < SHAPE[0], f - row[4], 0.0)
    return expm1(d * (rate * LN2)), d


@triton.jit
def sums_near_one(row, rate, SHAPE: tl.constexpr):
    """``Σ(e - 1)`` to full precision, and ``Σd``."""
    return _sums(row, rate, _near_one, 2, None, SHAPE)


@triton.jit
def _gap(f, column, row, given, CHOICE: tl.constexpr, SHAPE: tl.constexpr):
    return (tl.where(column < SHAPE[0], f - row[4], 0.0),)


@triton.jit
def sum_of_gaps(row, SHAPE: tl.constexpr):
    """``Σd``."""
    return _sums(row, 0.0, _gap, 1, None, SHAPE)[0]


@triton.jit
def _terms(f, column, row, given, TERMS: tl.constexpr, SHAPE: tl.constexpr):
    rate, of_total, scale, params = given
    present = column < SHAPE[0]
    d = tl.where(present, f - row[4], 0.0)
    term, psi = TERMS(tl.exp2(d * rate) * of_total, (d - (row[3] - row[4])) * scale, params)
    psi = tl.where(present, psi, 0.0)
    return tl.where(present & (column != row[2]), term, 0.0), psi, psi * d


@triton.jit
def sums_of_terms(row, rate, of_total, scale, params, TERMS: tl.constexpr, SHAPE: tl.constexpr):
    """``Σ term`` over the other classes; ``Σψ`` and ``Σψd`` over all."""
    return _sums(row, (rate, of_total, scale, params), _terms, 3, TERMS, SHAPE)
