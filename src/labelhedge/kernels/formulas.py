"""The losses for the kernel: functions written in plain Python, compiled with Triton's elementary functions.

A loss is a function of the scaled logits z; its gradient is written as ``P p_k + V ψ_k + U + E [k=y]``, with p the
softmax. ``finish`` and ``terms`` are those of :class:`labelhedge.losses.ClosedForm`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import torch
import triton
import triton.language as tl

from labelhedge.kernels._elementary import at_least, expm1, log1p


# One each, for the interpreter knows the functions of Triton inside compiled ones alone.
@triton.jit
def _exp(x):
    return tl.exp(x)


@triton.jit
def _log(x):
    return tl.log(x)


@triton.jit
def _power(x, exponent):
    return tl.exp(exponent * tl.log(x))


@triton.jit
def _where(condition, yes, no):
    return tl.where(condition, yes, no)


ELEMENTARY: dict[str, Any] = {
    "exp": _exp,
    "log": _log,
    "expm1": expm1,
    "log1p": log1p,
    "power": _power,
    "maximum": at_least,
    "where": _where,
}
"""What these names mean in a formula."""


@dataclass(frozen=True)
class Formula:
    """One loss for the kernel, and what it needs."""

    finish: Any
    terms: Any
    needs: str


FORMULAS: dict[str, Formula] = {}
"""What has been compiled, by the loss's id: the operators of ``compiled.py`` can be given no more than a name."""


@torch.compiler.assume_constant_result  # so that a compiler that looks on has it added now, not after its first call
def compiled(id: str, finish: Callable[..., Any] | None, terms: Callable[..., Any] | None, needs: str) -> str:
    """The name of the formula in :data:`FORMULAS`, to which it is added when it is first used."""
    if id not in FORMULAS:
        FORMULAS[id] = Formula(finish and _jit(finish), terms and _jit(terms), needs)
    return id


@functools.cache
def _jit(function: Callable[..., Any]) -> Any:
    """A function of numbers for Triton, and those that it calls."""
    assert isinstance(function, FunctionType)
    names = function.__globals__ | ELEMENTARY | {"Any": tl.tensor}  # the compiler looks at annotations
    names["tl"] = tl  # Triton's interpreter looks for its own module here
    for name in function.__code__.co_names:
        if name not in ELEMENTARY and isinstance(names.get(name), FunctionType):
            names[name] = _jit(names[name])
    copy = FunctionType(function.__code__, names, function.__name__, function.__defaults__)
    copy.__module__, copy.__qualname__ = function.__module__, function.__qualname__
    return triton.jit(copy)
