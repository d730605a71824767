"""Small functions for the kernels: what Triton lacks, and reading an argument that is a number or lies in memory."""

from __future__ import annotations

import math
from typing import Any

import triton
import triton.language as tl

INTERPRETED = tl.constexpr(bool(triton.knobs.runtime.interpret))
"""In Triton's interpreter, where there is no PTX, and a sum of several things at a time would be slow."""
LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)


@triton.constexpr_function
def is_pointer(argument: Any) -> bool:
    """Whether an argument of a kernel is a tensor in memory; the interpreter leaves numbers as they are."""
    return hasattr(argument, "dtype") and argument.dtype.is_ptr()


@triton.constexpr_function
def log_of(number: int) -> float:
    """Computed when the kernel is compiled."""
    return math.log(number)


@triton.jit
def per_row(argument, row):
    """An argument that is a number, or a pointer to one number per row."""
    if is_pointer(argument):
        number = tl.load(argument + row).to(tl.float32)
    else:
        number = tl.full(row.shape, argument, tl.float32)
    return number


@triton.jit
def one_number(argument):
    """An argument that is a number, or a pointer to one."""
    number = argument
    if is_pointer(argument):
        number = tl.load(argument).to(tl.float32)
    return number


@triton.jit
def at_least(x, low):
    """The larger of two, and NaN if there is one."""
    return tl.maximum(x, low, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def signed(amount, f):
    """``amount`` with its sign changed where f is negative."""
    sign = f.to(tl.int32, bitcast=True) & -2147483648
    return (amount.to(tl.int32, bitcast=True) ^ sign).to(tl.float32, bitcast=True)


@triton.jit
def reciprocal(x):
    """``1/x`` in one instruction, for numbers that are not denormal and have no denormal reciprocal."""
    if INTERPRETED:
        return 1.0 / x
    else:
        return tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )


@triton.jit
def quick_log(x):
    """``log x`` to within 2⁻²² of itself, or near x = 1 of 1, in two instructions, if x is not denormal."""
    if INTERPRETED:
        return tl.log(x)
    else:
        log2 = tl.inline_asm_elementwise(
            "lg2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
        return log2 * LN2


@triton.jit
def expm1(x):
    """``exp(x) - 1``: by its series near 0, where the difference would cancel."""
    series = 1.0 + x * (1.0 / 9.0)
    series = 1.0 + x * series * (1.0 / 8.0)
    series = 1.0 + x * series * (1.0 / 7.0)
    series = 1.0 + x * series * (1.0 / 6.0)
    series = 1.0 + x * series * (1.0 / 5.0)
    series = 1.0 + x * series * (1.0 / 4.0)
    series = 1.0 + x * series * (1.0 / 3.0)
    series = 1.0 + x * series * (1.0 / 2.0)
    return tl.where(tl.abs(x) < 0.5, x * series, tl.exp(x) - 1.0)


@triton.jit
def log1p(x):
    """``log(1 + x)``: what rounding 1 + x takes away, the quotient gives back (Kahan)."""
    u = 1.0 + x
    return tl.where(u == 1.0, x, tl.log(u) * (x / tl.where(u == 1.0, 1.0, u - 1.0)))


@triton.jit
def softplus(x):
    """``log(1 + exp(x))``."""
    return tl.maximum(x, 0.0) + log1p(tl.exp(-tl.abs(x)))
