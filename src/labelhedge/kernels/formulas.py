"""The losses for the kernel: what each makes of the label's probability and of further sums over the classes.

A loss is a function of the scaled logits z; its gradient is written as ``P p_k + V ψ_k + U + E [k=y]``, with p the
softmax. ``finish`` gives the value and those four numbers from sums over the classes; ``terms`` gives, per class, what
is summed for the value (the label's left out) and ψ. Most losses need neither ψ nor U.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import triton
import triton.language as tl

from labelhedge.kernels._elementary import expm1, log1p


@triton.jit
def _of_log_p(value, slope):
    """A loss g(log p_y), from its value and the derivative g'."""
    return value, -slope, 0.0, 0.0, slope


@triton.jit
def _ldr(gap, sums, classes, params):
    return gap, 1.0, 0.0, 0.0, -1.0


@triton.jit
def _ce(log_p, sums, classes, params):
    return _of_log_p(-log_p, -1.0)


@triton.jit
def _mae(log_p, sums, classes, params):
    return _of_log_p(-2.0 * expm1(log_p), -2.0 * tl.exp(log_p))


@triton.jit
def _box_cox(log_p, q):
    q = tl.maximum(q, 1e-19)
    return -expm1(q * log_p) / q, -tl.exp(q * log_p)


@triton.jit
def _gce(log_p, sums, classes, params):
    value, slope = _box_cox(log_p, params[0])
    return _of_log_p(value, slope)


@triton.jit
def _tgce(log_p, sums, classes, params):
    log_k = tl.log(params[1])
    value, slope = _box_cox(tl.maximum(log_p, log_k), params[0])
    passes = tl.where(log_p == log_k, 0.5, (log_p > log_k).to(tl.float32))
    return _of_log_p(value, slope * passes)


@triton.jit
def _tgce_masked(log_p, sums, classes, params):
    keep = params[2] != 0.0
    value, slope = _box_cox(log_p, params[0])
    constant, _ = _box_cox(tl.log(params[1]), params[0])
    return _of_log_p(tl.where(keep, value, constant), tl.where(keep, slope, 0.0))


@triton.jit
def _sce(log_p, sums, classes, params):
    alpha, A = params[0], params[1]
    return _of_log_p(-alpha * log_p + (1.0 - alpha) * A * expm1(log_p), -alpha + (1.0 - alpha) * A * tl.exp(log_p))


@triton.jit
def _rce(log_p, sums, classes, params):
    return _of_log_p(params[0] * expm1(log_p), params[0] * tl.exp(log_p))


@triton.jit
def _js(log_p, sums, classes, params):
    pi, rest, p = params[0], 1.0 - params[0], tl.exp(log_p)
    log_rest = log1p(-pi)
    minus_others = expm1(log_p)
    log_m = log1p(rest * minus_others)
    divergence = minus_others * log_rest + p * (log_p - log_m)
    normalizer = -rest * log_rest
    slope = rest * p * (log_rest + log_p - log_m) / normalizer
    return _of_log_p((rest * divergence - pi * log_m) / normalizer, slope)


@triton.jit
def _power(a, q):
    return tl.exp(q * tl.log(a))


@triton.jit
def _agce_of(log_p, a, q):
    log_ratio = log1p(expm1(log_p) / (a + 1.0))
    p, whole = tl.exp(log_p), _power(a + 1.0, q)
    return -whole * expm1(q * log_ratio) / q, -whole * tl.exp(q * log_ratio) * p / (a + p)


@triton.jit
def _agce(log_p, sums, classes, params):
    value, slope = _agce_of(log_p, params[0], params[1])
    return _of_log_p(value, slope)


@triton.jit
def _aul_of(log_p, a, q):
    minus_others = expm1(log_p)
    log_ratio = log1p(-minus_others / (a - 1.0))
    whole = _power(a - 1.0, q)
    slope = -whole * tl.exp(q * log_ratio) * tl.exp(log_p) / (a - 1.0 - minus_others)
    return whole * expm1(q * log_ratio) / q, slope


@triton.jit
def _aul(log_p, sums, classes, params):
    value, slope = _aul_of(log_p, params[0], params[1])
    return _of_log_p(value, slope)


@triton.jit
def _nce(log_p, sums, classes, params):
    all_log_p = sums[0]
    value = log_p / all_log_p
    return value, (classes * value - 1.0) / all_log_p, 0.0, -value / all_log_p, 1.0 / all_log_p


@triton.jit
def _nce_and(log_p, sums, classes, alpha, beta, value, slope):
    """α·NCE + β·a loss g(log p_y)."""
    nce, on_p, _, everywhere, on_label = _nce(log_p, sums, classes, ())
    on_p, on_label = alpha * on_p - beta * slope, alpha * on_label + beta * slope
    return alpha * nce + beta * value, on_p, 0.0, alpha * everywhere, on_label


@triton.jit
def _nce_rce(log_p, sums, classes, params):
    value, slope = params[2] * expm1(log_p), params[2] * tl.exp(log_p)
    return _nce_and(log_p, sums, classes, params[0], params[1], value, slope)


@triton.jit
def _nce_agce(log_p, sums, classes, params):
    value, slope = _agce_of(log_p, params[2], params[3])
    return _nce_and(log_p, sums, classes, params[0], params[1], value, slope)


@triton.jit
def _nce_aul(log_p, sums, classes, params):
    value, slope = _aul_of(log_p, params[2], params[3])
    return _nce_and(log_p, sums, classes, params[0], params[1], value, slope)


@triton.jit
def _mse_terms(p, q, params):
    return p * p, p * p


@triton.jit
def _mse(log_p, sums, classes, params):
    p, miss = tl.exp(log_p), expm1(log_p)
    return miss * miss + sums[1], -2.0 * (sums[1] + p * miss), 2.0, 0.0, -2.0 * p


@triton.jit
def _rll_terms(p, q, params):
    return log1p(p / params[0]), p / (params[0] + p)


@triton.jit
def _rll(log_p, sums, classes, params):
    p, alpha, others = tl.exp(log_p), params[0], classes - 1.0
    share = p / (alpha + p)
    average = (sums[2] - classes * share) / others
    return sums[1] / others - log1p(p / alpha), -average, 1.0 / others, 0.0, -share * classes / others


@triton.jit
def _ww_terms(p, q, params):
    return tl.maximum(q, 0.0), (q > 0.0).to(tl.float32)


@triton.jit
def _ww(log_p, sums, classes, params):
    return sums[1], 0.0, 1.0, 0.0, -sums[2]


@dataclass(frozen=True)
class Formula:
    """One loss for the kernel, and what it needs."""

    finish: Any
    params: tuple[str, ...] = ()
    needs: str = "log p_y"
    terms: Any = None


FORMULAS = {
    "ldr-kl": Formula(_ldr, needs="smooth maximum"),
    "aldr-kl": Formula(_ldr, needs="smooth maximum"),
    "cs": Formula(_ldr, needs="smooth maximum"),
    "ce": Formula(_ce),
    "mae": Formula(_mae),
    "gce": Formula(_gce, ("q",)),
    "tgce": Formula(_tgce, ("q", "k")),
    "tgce-masked": Formula(_tgce_masked, ("q", "k", "keep")),
    "sce": Formula(_sce, ("alpha", "A")),
    "rce": Formula(_rce, ("A",)),
    "js": Formula(_js, ("pi1",)),
    "agce": Formula(_agce, ("a", "q")),
    "aul": Formula(_aul, ("a", "q")),
    "nce": Formula(_nce, (), "sum of log p"),
    "nce+rce": Formula(_nce_rce, ("alpha", "beta", "A"), "sum of log p"),
    "nce+agce": Formula(_nce_agce, ("alpha", "beta", "a", "q"), "sum of log p"),
    "nce+aul": Formula(_nce_aul, ("alpha", "beta", "a", "q"), "sum of log p"),
    "mse": Formula(_mse, (), "terms", _mse_terms),
    "rll": Formula(_rll, ("alpha",), "terms", _rll_terms),
    "ww": Formula(_ww, (), "terms", _ww_terms),
}
"""By the loss's id; TGCE has a second one, for its mask. CS is LDR-KL at λ = 0."""
