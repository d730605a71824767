"""Elementary functions for closed forms: written once, they run here on numbers, NumPy's arrays and torch's tensors.

The kernels put Triton's functions in the place of those here (`kernels/formulas.py`), by their names.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor


def exp(x: Any) -> Any:
    """``e^x``."""
    if isinstance(x, Tensor):
        return x.exp()
    return np.exp(x) if isinstance(x, np.ndarray) else math.exp(x)


def log(x: Any) -> Any:
    """``log x``, -∞ at 0."""
    if isinstance(x, Tensor):
        return x.log()
    if isinstance(x, np.ndarray):
        return np.log(x)
    return math.log(x) if x > 0 else -math.inf


def expm1(x: Any) -> Any:
    """``e^x - 1``, exact near 0."""
    if isinstance(x, Tensor):
        return x.expm1()
    return np.expm1(x) if isinstance(x, np.ndarray) else math.expm1(x)


def log1p(x: Any) -> Any:
    """``log(1 + x)``, exact near 0."""
    if isinstance(x, Tensor):
        return x.log1p()
    return np.log1p(x) if isinstance(x, np.ndarray) else math.log1p(x)


def power(x: Any, exponent: Any) -> Any:
    """``x^exponent`` for a positive x."""
    return x**exponent


def maximum(a: Any, b: Any) -> Any:
    """The larger of two."""
    if isinstance(a, Tensor):
        return torch.maximum(a, b) if isinstance(b, Tensor) else a.clamp(min=b)
    if isinstance(b, Tensor):
        return b.clamp(min=a)
    return np.maximum(a, b) if isinstance(a, np.ndarray) or isinstance(b, np.ndarray) else max(a, b)


def where(condition: Any, yes: Any, no: Any) -> Any:
    """``yes`` where the condition holds, else ``no``."""
    if isinstance(condition, Tensor):
        return torch.where(condition, yes, no)
    if isinstance(condition, np.ndarray):
        return np.where(condition, yes, no)
    return yes if condition else no
