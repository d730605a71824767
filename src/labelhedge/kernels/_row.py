"""Reading a row of logits, and sums over its classes.

``row`` is a tuple: the logits, where the row starts, its label, the label's logit less the margin, the largest logit
``top``, and the logits that the program holds. ``SHAPE`` is the number of classes, the length of a block, and whether
the logits go through a softplus. A row of one block is held; a longer one is read again for every sum, from the cache.
"""

from __future__ import annotations

import triton
import triton.language as tl

from labelhedge.kernels._elementary import LN2, expm1, softplus

BEYOND = tl.constexpr(-3e38)
"""The logit of a class that does not exist: exp(-∞), and times 0 it is 0."""


@triton.jit
def read(logits, start, column, CLASSES: tl.constexpr, SOFTPLUS: tl.constexpr):
    """Logits of some classes, after the softplus if asked; beyond the last class any number."""
    f = tl.load(logits + start + column, mask=column < CLASSES, other=0.0).to(tl.float32)
    if SOFTPLUS:
        f = softplus(f)
    return f


@triton.jit
def logits_of(row, column, SHAPE: tl.constexpr):
    """Logits of some classes, the label's less its margin; beyond the last class ``BEYOND``."""
    logits, start, y, f_label, _, held = row
    if SHAPE[0] <= SHAPE[1]:
        f = held
    else:
        f = tl.where(column < SHAPE[0], read(logits, start, column, SHAPE[0], SHAPE[2]), BEYOND)
        f = tl.where(column == y, f_label, f)
    return f


@triton.jit
def blocks_end(SHAPE: tl.constexpr):
    """Where the last block of a row ends, or for a row of one block that block."""
    return SHAPE[1] if SHAPE[0] <= SHAPE[1] else SHAPE[0]


@triton.jit
def _moments(e, d):
    ed = e * d
    return tl.sum(e, 1, keep_dims=True), tl.sum(ed, 1, keep_dims=True), tl.sum(ed * d, 1, keep_dims=True)


@triton.jit
def _plus(a, b):
    return a[0] + b[0], a[1] + b[1], a[2] + b[2]


@triton.jit
def moments(row, rate, SHAPE: tl.constexpr):
    """``Σe``, ``Σed`` and ``Σed²`` with ``e = 2^(d·rate)``; those that are not used cost nothing."""
    zero = tl.zeros(rate.shape, tl.float32)
    sums = (zero, zero, zero)
    for begin in range(0, blocks_end(SHAPE), SHAPE[1]):
        d = logits_of(row, tl.arange(0, SHAPE[1])[None, :] + begin, SHAPE) - row[4]
        sums = _plus(sums, _moments(tl.exp2(d * rate), d))
    return sums


@triton.jit
def moments_twice(row, rate, SHAPE: tl.constexpr):
    """The moments at ``rate`` and at twice that, from one exponential."""
    zero = tl.zeros(rate.shape, tl.float32)
    once, twice = (zero, zero, zero), (zero, zero, zero)
    for begin in range(0, blocks_end(SHAPE), SHAPE[1]):
        d = logits_of(row, tl.arange(0, SHAPE[1])[None, :] + begin, SHAPE) - row[4]
        e = tl.exp2(d * rate)
        once = _plus(once, _moments(e, d))
        twice = _plus(twice, _moments(e * e, d))
    return once, twice


@triton.jit
def sums_near_one(row, rate, SHAPE: tl.constexpr):
    """``Σ(e - 1)`` to full precision, and ``Σd``."""
    less_one, sum_d = tl.zeros(rate.shape, tl.float32), tl.zeros(rate.shape, tl.float32)
    for begin in range(0, blocks_end(SHAPE), SHAPE[1]):
        column = tl.arange(0, SHAPE[1])[None, :] + begin
        d = tl.where(column < SHAPE[0], logits_of(row, column, SHAPE) - row[4], 0.0)
        less_one += tl.sum(expm1(d * (rate * LN2)), 1, keep_dims=True)
        sum_d += tl.sum(d, 1, keep_dims=True)
    return less_one, sum_d


@triton.jit
def sums_of_terms(row, rate, total, scale, params, TERMS: tl.constexpr, SHAPE: tl.constexpr):
    """``Σ term`` over the other classes; ``Σψ``, ``Σψd`` and ``Σd`` over all."""
    zero = tl.zeros(rate.shape, tl.float32)
    terms, psis, psi_d, sum_d = zero, zero, zero, zero
    for begin in range(0, blocks_end(SHAPE), SHAPE[1]):
        column = tl.arange(0, SHAPE[1])[None, :] + begin
        present = column < SHAPE[0]
        d = tl.where(present, logits_of(row, column, SHAPE) - row[4], 0.0)
        sum_d += tl.sum(d, 1, keep_dims=True)
        if TERMS is not None:
            term, psi = TERMS(tl.exp2(d * rate) / total, (d - (row[3] - row[4])) * scale, params)
            psi = tl.where(present, psi, 0.0)
            terms += tl.sum(tl.where(present & (column != row[2]), term, 0.0), 1, keep_dims=True)
            psis += tl.sum(psi, 1, keep_dims=True)
            psi_d += tl.sum(psi * d, 1, keep_dims=True)
    return terms, psis, psi_d, sum_d
