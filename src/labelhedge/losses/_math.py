"""Elementary functions of numbers and tensors, for closed forms: written once, they run here in torch and in a kernel.

The kernels put Triton's functions in the place of those here (`kernels/formulas.py`), by their names.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

Value = float | Tensor


def exp(x: Any) -> Any:
    """``e^x``."""
    return x.exp() if isinstance(x, Tensor) else math.exp(x)


def log(x: Any) -> Any:
    """``log x``, -∞ at 0."""
    if isinstance(x, Tensor):
        return x.log()
    return math.log(x) if x > 0 else -math.inf


def expm1(x: Any) -> Any:
    """``e^x - 1``, exact near 0."""
    return x.expm1() if isinstance(x, Tensor) else math.expm1(x)


def log1p(x: Any) -> Any:
    """``log(1 + x)``, exact near 0."""
    return x.log1p() if isinstance(x, Tensor) else math.log1p(x)


def power(x: Any, exponent: Any) -> Any:
    """``x^exponent`` for a positive x."""
    return x**exponent


def maximum(a: Any, b: Any) -> Any:
    """The larger of two."""
    if isinstance(a, Tensor):
        return torch.maximum(a, b) if isinstance(b, Tensor) else a.clamp(min=b)
    return b.clamp(min=a) if isinstance(b, Tensor) else max(a, b)


def where(condition: Any, yes: Any, no: Any) -> Any:
    """``yes`` where the condition holds, else ``no``."""
    return torch.where(condition, yes, no) if isinstance(condition, Tensor) else (yes if condition else no)
