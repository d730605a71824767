"""The kernels as operators of PyTorch, for ``torch.compile``.

The compiler sees two of them: one gives the value and λ of each row, the other the gradient. A compiled backward pass
knows its upstream from the start, so there the gradient is left to it.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor

from labelhedge.kernels.launch import Call
from labelhedge.kernels.launch import visit as _visit

_NUMBERS = ("temperature", "margin", "lam", "lambda0", "alpha")
_REST = ("formula", "ignore_index", "normalize", "solve", "octaves")
assert {field.name for field in fields(Call)} == {"target", "weight", "denominator", "params", *_NUMBERS, *_REST}


def visit(call: Call, logits: Tensor) -> tuple[Tensor, Tensor]:
    """Value and λ of each row of ``logits`` ``(N, K)``; differentiable."""
    hyperparameters = [getattr(call, name) for name in _NUMBERS] + list(call.params)
    tensors = [value for value in hyperparameters if isinstance(value, Tensor)]
    kinds = "".join("-" if v is None else "t" if isinstance(v, Tensor) else "f" for v in hyperparameters)
    numbers = [float(v) if kind == "f" else 0.0 for kind, v in zip(kinds, hyperparameters, strict=True)]
    rest = (call.formula, call.ignore_index, call.normalize, call.solve, call.octaves)
    value, lam = _value(logits, call.target, call.weight, call.denominator, tensors, numbers, kinds, *rest)
    return value, lam


def _unpacked(
    target: Tensor, weight: Any, denominator: Any, tensors: Any, numbers: Any, kinds: str, *rest: Any
) -> Call:
    tensors = iter(tensors)
    given = zip(kinds, numbers, strict=True)
    found: list[Any] = [None if kind == "-" else next(tensors) if kind == "t" else number for kind, number in given]
    options = dict(zip(_REST, rest, strict=True)) | dict(zip(_NUMBERS, found, strict=False))
    params = tuple(found[len(_NUMBERS) :])
    return Call(target=target, weight=weight, denominator=denominator, params=params, **options)


@torch.library.custom_op("labelhedge::value", mutates_args=())
def _value(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    denominator: Tensor | None,
    tensors: list[Tensor],
    numbers: list[float],
    kinds: str,
    formula: str,
    ignore_index: int,
    normalize: str | None,
    solve: str,
    octaves: int,
) -> tuple[Tensor, Tensor]:
    value, lam = (logits.new_empty(len(logits), dtype=torch.float32) for _ in range(2))
    rest = (formula, ignore_index, normalize, solve, octaves)
    _visit(_unpacked(target, weight, denominator, tensors, numbers, kinds, *rest), logits, value=value, lam=lam)
    return value, lam


@torch.library.custom_op("labelhedge::gradient", mutates_args=())
def _gradient(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    denominator: Tensor | None,
    tensors: list[Tensor],
    numbers: list[float],
    kinds: str,
    formula: str,
    ignore_index: int,
    normalize: str | None,
    solve: str,
    octaves: int,
    lam: Tensor,
    upstream: Tensor,
) -> Tensor:
    gradient = torch.empty_like(logits, memory_format=torch.contiguous_format)
    rest = (formula, ignore_index, normalize, solve, octaves)
    call = replace(_unpacked(target, weight, denominator, tensors, numbers, kinds, *rest), lam=lam, solve="given")
    _visit(call, logits, gradient=gradient, upstream=upstream.contiguous())
    return gradient


@_value.register_fake
def _(logits: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    value, lam = (logits.new_empty(logits.shape[0], dtype=torch.float32) for _ in range(2))
    return value, lam


@_gradient.register_fake
def _(logits: Tensor, *rest: Any) -> Tensor:
    return torch.empty_like(logits, memory_format=torch.contiguous_format)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    logits, target, weight, denominator, tensors, *rest = inputs
    ctx.save_for_backward(logits, target, weight, denominator, output[1], *tensors)
    ctx.rest = rest


def _backward(ctx: Any, upstream: Tensor, _: Tensor) -> tuple[Any, ...]:
    logits, target, weight, denominator, lam, *tensors = ctx.saved_tensors
    gradient = _gradient(logits, target, weight, denominator, tensors, *ctx.rest, lam, upstream)
    return gradient, None, None, None, [None] * len(tensors), *[None] * len(ctx.rest)


_value.register_autograd(_backward, setup_context=_keep)
