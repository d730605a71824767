"""Reading a row of logits, and sums over its classes.

A row is known by its gaps ``d = top - f`` below the largest logit. A program holds them in pieces; since none is
negative, their sign is free to be that of the logit. ``row`` is a tuple: the logits, where the row starts, its label,
the label's gap, ``top`` and the pieces.

``SHAPE`` is a tuple: the number of classes, the length of a piece, the number of pieces, whether the logits go through
a softplus, whether the label is apart from the others (its logit is taken less a margin, or it plays another part),
whether the gaps have the signs of the logits, how many logits next to each other a thread reads at once, and whether
there may be classes masked by -∞. A row that is too long to be held has 0 pieces, and is read again for every sum, from
the cache: BACK says that a pass begins at the row's end, where the pass before it ended.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from labelhedge.kernels._elementary import INTERPRETED, LN2, at_least, expm1, softplus

BEYOND = tl.constexpr(-3e38)
"""The logit of a class that does not exist, or is masked by -∞: exp(-∞), and times 0 it is 0."""
ABSENT = tl.constexpr(1e38)
"""Gaps above it are of such classes, and sums of ``|f|`` above it of rows that have some."""


@triton.constexpr_function
def with_masked_classes(shape: tuple[Any, ...]) -> tuple[Any, ...]:
    """The SHAPE of a row that may have masked classes."""
    return (*shape[:7], True)


@triton.jit
def read(logits, start, column, SHAPE: tl.constexpr):
    """Logits of some classes, after the softplus if asked; beyond the last class any number."""
    return logit_of(load(logits, start, column, False, SHAPE), SHAPE)


@triton.jit
def logit_of(raw, SHAPE: tl.constexpr):
    """What is in memory as a logit."""
    f = raw.to(tl.float32)
    if SHAPE[3]:
        f = tl.where(f < -ABSENT, BEYOND, softplus(f))
    elif SHAPE[7]:
        f = at_least(f, BEYOND)
    return f


@triton.jit
def without_infinities(held, SHAPE: tl.constexpr):
    """The pieces of a row, if it is held, with ``BEYOND`` for masked classes."""
    PIECES: tl.constexpr = SHAPE[2]
    if PIECES == 0:
        return held
    else:
        pieces = (at_least(held[0], BEYOND),)
        for j in tl.static_range(1, PIECES):
            pieces = pieces + (at_least(held[j], BEYOND),)
        return pieces


@triton.jit
def load(logits, start, column, LAST_TIME: tl.constexpr, SHAPE: tl.constexpr):
    """As they are in memory; whether for the last time decides what the cache keeps of a long row."""
    OF_LONG: tl.constexpr = "evict_first" if LAST_TIME else "evict_last"
    POLICY: tl.constexpr = OF_LONG if SHAPE[2] == 0 else ""
    return tl.load(logits + start + column, mask=column < SHAPE[0], other=0.0, eviction_policy=POLICY)


@triton.jit
def columns(piece, SHAPE: tl.constexpr):
    """The classes of a piece."""
    return tl.arange(0, SHAPE[1])[None, :] + piece * SHAPE[1]


@triton.jit
def hold(logits, start, y, SHAPE: tl.constexpr):
    """The pieces of a row, ``Σ|f|`` of all classes, and the largest logit among the pieces.

    A row that is too long is read for the two numbers; its piece is not used.
    """
    BLOCK: tl.constexpr = SHAPE[1]
    PIECES: tl.constexpr = SHAPE[2]
    raw = (read(logits, start, columns(0, SHAPE), SHAPE),)
    for j in tl.static_range(1, PIECES):
        raw = raw + (read(logits, start, columns(j, SHAPE), SHAPE),)
    norm = size_of(raw[0], columns(0, SHAPE), SHAPE)
    held = (others(raw[0], 0, y, SHAPE),)
    top = held[0]
    if PIECES == 0:
        norm = folded((norm,), 1, SHAPE)[0]
        top = largest(top, SHAPE)
    for j in tl.static_range(1, PIECES):
        norm += size_of(raw[j], columns(j, SHAPE), SHAPE)
        held = held + (others(raw[j], j * BLOCK, y, SHAPE),)
        top = tl.maximum(top, held[j])
    if PIECES == 0:
        for begin in range(BLOCK, SHAPE[0], BLOCK):
            column = columns(0, SHAPE) + begin
            f = read(logits, start, column, SHAPE)
            norm += folded((size_of(f, column, SHAPE),), 1, SHAPE)[0]
            top = tl.maximum(top, largest(others(f, begin, y, SHAPE), SHAPE))
    return held, tl.sum(norm, 1, keep_dims=True), tl.max(top, 1, keep_dims=True)


@triton.jit
def others(f, begin, y, SHAPE: tl.constexpr):
    """The logits from the class ``begin`` on, with ``BEYOND`` for the label if it is apart, and behind the last class.

    With one row at a time, a piece that has neither is not searched.
    """
    BLOCK: tl.constexpr = SHAPE[1]
    column = columns(0, SHAPE) + begin
    APART: tl.constexpr = SHAPE[4]
    absent = (column >= SHAPE[0]) | (column == y) if APART else column >= SHAPE[0]
    if y.shape[0] > 1:
        f = tl.where(absent, BEYOND, f)
    else:
        found = begin + BLOCK > SHAPE[0]
        if APART:
            found |= tl.max(y) // BLOCK * BLOCK == begin
        if found:
            f = tl.where(absent, BEYOND, f)
    return f


@triton.jit
def gaps_of(held, top, SHAPE: tl.constexpr):
    """The pieces as gaps."""
    PIECES: tl.constexpr = SHAPE[2]
    gaps = (gap_of(held[0], top, SHAPE),)
    for j in tl.static_range(1, PIECES):
        gaps = gaps + (gap_of(held[j], top, SHAPE),)
    return gaps


@triton.jit
def gap_of(f, top, SHAPE: tl.constexpr):
    """``top - f``, with the sign of f if asked."""
    return _with_sign_of(top - f, f) if SHAPE[5] else top - f


@triton.jit
def _with_sign_of(amount, f):
    """``amount``, which is not negative, or ``-amount``.

    As an instruction of its own: from bit operations the compiler would infer that amount and f are all it needs, and
    hold both.
    """
    if INTERPRETED:
        sign = f.to(tl.int32, bitcast=True) & -2147483648
        return (amount.to(tl.int32, bitcast=True) | sign).to(tl.float32, bitcast=True)
    else:
        return tl.inline_asm_elementwise(
            "copysign.f32 $0, $2, $1;", "=f,f,f", [amount, f], dtype=tl.float32, is_pure=True, pack=1
        )


@triton.jit
def size_of(f, column, SHAPE: tl.constexpr):
    return tl.where(column < SHAPE[0], tl.abs(f), 0.0) if SHAPE[3] else tl.abs(f)


@triton.jit
def count_present(logits, start, y, f_y, held, SHAPE: tl.constexpr):
    """How many classes of a row are not masked, and their ``Σ|f|``."""
    BLOCK: tl.constexpr = SHAPE[1]
    PIECES: tl.constexpr = SHAPE[2]
    if PIECES > 0:
        sums = _present(held[0])
        for j in tl.static_range(1, PIECES):
            sums = plus(sums, _present(held[j]), 2)
    else:
        sums = zeros(2, SHAPE)
        for begin in range(0, SHAPE[0], BLOCK):
            f = others(read(logits, start, columns(0, SHAPE) + begin, SHAPE), begin, y, SHAPE)
            sums = plus(sums, folded(_present(f), 2, SHAPE), 2)
    sums = totals(sums, 2)
    return plus(sums, _present(f_y), 2) if SHAPE[4] else sums


@triton.jit
def _present(f):
    return tl.where(f < -ABSENT, 0.0, 1.0), tl.where(f < -ABSENT, 0.0, tl.abs(f))


@triton.jit
def ahead(row, begin, BACK: tl.constexpr, LAST_TIME: tl.constexpr, SHAPE: tl.constexpr):
    """What is in memory ``begin`` classes from the start or end of a long row, for :func:`again`."""
    LAST: tl.constexpr = (SHAPE[0] - 1) // SHAPE[1] * SHAPE[1]
    first = tl.maximum(LAST - begin, 0) if BACK else tl.minimum(begin, LAST)
    return load(row[0], row[1], columns(0, SHAPE) + first, LAST_TIME, SHAPE)


@triton.jit
def again(row, raw, begin, BACK: tl.constexpr, SHAPE: tl.constexpr):
    """Logits of a long row, ``begin`` classes from its start or end, and their classes."""
    LAST: tl.constexpr = (SHAPE[0] - 1) // SHAPE[1] * SHAPE[1]
    first = LAST - begin if BACK else begin
    return others(logit_of(raw, SHAPE), first, row[2], SHAPE), columns(0, SHAPE) + first


@triton.jit
def _sums(
    row, given, VALUES: tl.constexpr, COUNT: tl.constexpr, CHOICE: tl.constexpr, BACK: tl.constexpr, SHAPE: tl.constexpr
):
    """Sums over the classes of the COUNT numbers that VALUES gives for each."""
    sums = _sums_of_pieces(row, given, VALUES, COUNT, CHOICE, BACK, SHAPE)
    return plus(sums, VALUES(row[3], given, CHOICE), COUNT) if SHAPE[4] else sums


@triton.jit
def _sums_of_pieces(
    row, given, VALUES: tl.constexpr, COUNT: tl.constexpr, CHOICE: tl.constexpr, BACK: tl.constexpr, SHAPE: tl.constexpr
):
    BLOCK: tl.constexpr = SHAPE[1]
    PIECES: tl.constexpr = SHAPE[2]
    if PIECES > 0:
        sums = VALUES(tl.abs(row[5][0]), given, CHOICE)
        for j in tl.static_range(1, PIECES):
            sums = plus(sums, VALUES(tl.abs(row[5][j]), given, CHOICE), COUNT)
    else:
        sums = zeros(COUNT, SHAPE)
        following = ahead(row, 0, BACK, False, SHAPE)
        for begin in range(0, SHAPE[0], BLOCK):
            raw, following = following, ahead(row, begin + BLOCK, BACK, False, SHAPE)
            f, _column = again(row, raw, begin, BACK, SHAPE)
            sums = plus(sums, folded(VALUES(row[4] - f, given, CHOICE), COUNT, SHAPE), COUNT)
    return totals(sums, COUNT)


@triton.jit
def zeros(COUNT: tl.constexpr, SHAPE: tl.constexpr):
    """What sums start from."""
    zero = tl.zeros([1, SHAPE[1] // SHAPE[6]], tl.float32)
    sums = (zero,)
    for _ in tl.static_range(1, COUNT):
        sums = sums + (zero,)
    return sums


@triton.jit
def folded(values, COUNT: tl.constexpr, SHAPE: tl.constexpr):
    """Sums of what a thread has read at once, so that it holds one number for them."""
    sums = (tl.sum(_side_by_side(values[0], SHAPE), 2),)
    for j in tl.static_range(1, COUNT):
        sums = sums + (tl.sum(_side_by_side(values[j], SHAPE), 2),)
    return sums


@triton.jit
def largest(f, SHAPE: tl.constexpr):
    """The largest of what a thread has read at once."""
    return tl.max(_side_by_side(f, SHAPE), 2)


@triton.jit
def _side_by_side(values, SHAPE: tl.constexpr):
    return tl.reshape(values, (1, SHAPE[1] // SHAPE[6], SHAPE[6]))


@triton.jit
def _add_2(a, b, x, y):
    return a + x, b + y


@triton.jit
def _add_3(a, b, c, x, y, z):
    return a + x, b + y, c + z


@triton.jit
def _add_4(a, b, c, d, w, x, y, z):
    return a + w, b + x, c + y, d + z


@triton.jit
def _add_6(a, b, c, d, e, f, u, v, w, x, y, z):
    return a + u, b + v, c + w, d + x, e + y, f + z


@triton.jit
def totals(sums, COUNT: tl.constexpr):
    """Sums over the columns: together, so that the warps of a program wait for each other only once."""
    if COUNT == 2 and not INTERPRETED:
        return tl.reduce(sums, 1, _add_2, keep_dims=True)
    elif COUNT == 3 and not INTERPRETED:
        return tl.reduce(sums, 1, _add_3, keep_dims=True)
    elif COUNT == 4 and not INTERPRETED:
        return tl.reduce(sums, 1, _add_4, keep_dims=True)
    elif COUNT == 6 and not INTERPRETED:
        return tl.reduce(sums, 1, _add_6, keep_dims=True)
    else:
        totals = (tl.sum(sums[0], 1, keep_dims=True),)
        for j in tl.static_range(1, COUNT):
            totals = totals + (tl.sum(sums[j], 1, keep_dims=True),)
        return totals


@triton.jit
def plus(a, b, COUNT: tl.constexpr):
    total = (a[0] + b[0],)
    for j in tl.static_range(1, COUNT):
        total = total + (a[j] + b[j],)
    return total


@triton.jit
def moments(d, rate, ORDER: tl.constexpr):
    """``e = 2^(d·rate)``, ``ed``, ... up to ``ed^ORDER``."""
    e = tl.exp2(d * rate)
    if ORDER == 1:
        return e, e * d
    elif ORDER == 2:
        return e, e * d, e * d * d
    else:
        return e, e * d, e * d * d, e * d * d * d


@triton.jit
def two_moments(row, rate, BACK: tl.constexpr, SHAPE: tl.constexpr):
    """``Σe`` and ``Σed`` with ``e = 2^(d·rate)``."""
    return _sums(row, rate, moments, 2, 1, BACK, SHAPE)


@triton.jit
def label_too(sums, row, rate, ORDER: tl.constexpr, SHAPE: tl.constexpr):
    """The moments of the other classes and the label, if it is apart."""
    return plus(sums, moments(row[3], rate, ORDER), ORDER + 1) if SHAPE[4] else sums


@triton.jit
def exponential_anew(d, rate, SHAPE: tl.constexpr):
    """``2^(d·rate)``; in a wide row so that the compiler does not hold earlier ones, for which there is no room."""
    if INTERPRETED or SHAPE[0] <= 2048:
        return tl.exp2(d * rate)
    else:
        return tl.inline_asm_elementwise(
            "{.reg .f32 t; mul.ftz.f32 t, $1, $2; ex2.approx.ftz.f32 $0, t;}", "=f,f,f", [d, rate],
            dtype=tl.float32, is_pure=True, pack=1,
        )  # fmt: skip


@triton.jit
def three_moments(row, rate, SHAPE: tl.constexpr):
    """``Σe``, ``Σed`` and ``Σed²``."""
    return _sums(row, rate, moments, 3, 2, True, SHAPE)


@triton.jit
def moments_twice(d, rate, CHOICE: tl.constexpr):
    """Three moments of a class at ``rate`` and at twice that."""
    e = tl.exp2(d * rate)
    return e, e * d, e * d * d, e * e, e * e * d, e * e * d * d


@triton.jit
def three_moments_twice(row, rate, SHAPE: tl.constexpr):
    """The three moments at ``rate`` and at twice that, from one exponential."""
    sums = _sums(row, rate, moments_twice, 6, None, True, SHAPE)
    return (sums[0], sums[1], sums[2]), (sums[3], sums[4], sums[5])


@triton.jit
def _near_one(d, rate, CHOICE: tl.constexpr):
    d = tl.where(d > ABSENT, 0.0, d)
    return expm1(d * (rate * LN2)), d


@triton.jit
def sums_near_one(row, rate, SHAPE: tl.constexpr):
    """``Σ(e - 1)`` to full precision, and ``Σd``."""
    return _sums(row, rate, _near_one, 2, None, False, SHAPE)


@triton.jit
def _gap(d, given, CHOICE: tl.constexpr):
    return (tl.where(d > ABSENT, 0.0, d),)


@triton.jit
def sum_of_gaps(row, SHAPE: tl.constexpr):
    """``Σd``."""
    return _sums(row, 0.0, _gap, 1, None, False, SHAPE)[0]


@triton.jit
def _terms(d, given, TERMS: tl.constexpr):
    rate, of_total, scale, params, d_y = given
    absent = d > ABSENT
    d = tl.where(absent, 0.0, d)
    term, psi = TERMS(tl.exp2(d * rate) * of_total, (d_y - d) * scale, params)
    psi = tl.where(absent, 0.0, psi)
    return tl.where(absent, 0.0, term), psi, psi * d


@triton.jit
def sums_of_terms(row, rate, of_total, scale, params, TERMS: tl.constexpr, SHAPE: tl.constexpr):
    """``Σ term`` over the other classes; ``Σψ`` and ``Σψd`` over all."""
    given = (rate, of_total, scale, params, row[3])
    others, own = _sums_of_pieces(row, given, _terms, 3, TERMS, False, SHAPE), _terms(row[3], given, TERMS)
    return others[0], others[1] + own[1], others[2] + own[2]
