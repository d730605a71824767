"""The kernels as operators of PyTorch, for ``torch.compile``.

The compiler sees two of them: one gives the value and λ of each row, the other the gradients. A compiled backward pass
knows its upstream from the start, so there the gradients are left to it. Both take logits, or hidden units and a layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor

from labelhedge.kernels.head import visit_head
from labelhedge.kernels.launch import Call
from labelhedge.kernels.launch import visit as visit_logits

_NUMBERS = ("temperature", "margin", "lam", "lambda0", "alpha")
_REST = ("formula", "ignore_index", "normalize", "solve", "octaves")
assert {field.name for field in fields(Call)} == {"target", "weight", "denominator", "params", *_NUMBERS, *_REST}


def visit(call: Call, inputs: Tensor, layer: Sequence[Tensor] = ()) -> tuple[Tensor, Tensor]:
    """Value and λ of each row of ``inputs`` ``(N, ...)``; differentiable.

    The inputs are logits, or with a ``layer`` (weights, or weights and biases) its inputs.
    """
    hyperparameters = [getattr(call, name) for name in _NUMBERS] + list(call.params)
    tensors = [value for value in hyperparameters if isinstance(value, Tensor)]
    kinds = "".join("-" if v is None else "t" if isinstance(v, Tensor) else "f" for v in hyperparameters)
    numbers = [float(v) if kind == "f" else 0.0 for kind, v in zip(kinds, hyperparameters, strict=True)]
    rest = (call.formula, call.ignore_index, call.normalize, call.solve, call.octaves)
    layer = list(layer)
    value, lam = _value(inputs, layer, call.target, call.weight, call.denominator, tensors, numbers, kinds, *rest)
    return value, lam


def _unpacked(
    target: Tensor,
    weight: Tensor | None,
    denominator: Tensor | None,
    tensors: list[Tensor],
    numbers: list[float],
    kinds: str,
    *rest: Any,
) -> Call:
    """The call again; an operator takes no records, and of lists only those of one kind."""
    left, given = iter(tensors), zip(kinds, numbers, strict=True)
    found: list[Any] = [None if kind == "-" else next(left) if kind == "t" else number for kind, number in given]
    options = dict(zip(_REST, rest, strict=True)) | dict(zip(_NUMBERS, found, strict=False))
    params = tuple(found[len(_NUMBERS) :])
    return Call(target=target, weight=weight, denominator=denominator, params=params, **options)


@torch.library.custom_op("labelhedge::value", mutates_args=())
def _value(
    inputs: Tensor,
    layer: list[Tensor],
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
    value, lam = (inputs.new_empty(len(inputs), dtype=torch.float32) for _ in range(2))
    rest = (formula, ignore_index, normalize, solve, octaves)
    call = _unpacked(target, weight, denominator, tensors, numbers, kinds, *rest)
    if layer:
        visit_head(call, inputs, *layer, value=value, lam=lam)
    else:
        visit_logits(call, inputs, value=value, lam=lam)
    return value, lam


@torch.library.custom_op("labelhedge::gradients", mutates_args=())
def _gradients(
    inputs: Tensor,
    layer: list[Tensor],
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
) -> list[Tensor]:
    rest = (formula, ignore_index, normalize, solve, octaves)
    call = replace(_unpacked(target, weight, denominator, tensors, numbers, kinds, *rest), lam=lam, solve="given")
    gradients = [torch.empty_like(x, memory_format=torch.contiguous_format) for x in (inputs, *layer)]
    if layer:
        names = ("hidden_gradient", "weight_gradient", "bias_gradient")
        outputs = dict(zip(names, gradients, strict=False))
        visit_head(call, inputs, *layer, **outputs, upstream=upstream.contiguous())
    else:
        visit_logits(call, inputs, gradient=gradients[0], upstream=upstream.contiguous())
    return gradients


@_value.register_fake
def _(inputs: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    value, lam = (inputs.new_empty(inputs.shape[0], dtype=torch.float32) for _ in range(2))
    return value, lam


@_gradients.register_fake
def _(inputs: Tensor, layer: list[Tensor], *rest: Any) -> list[Tensor]:
    return [torch.empty_like(x, memory_format=torch.contiguous_format) for x in (inputs, *layer)]


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    first, layer, target, weight, denominator, tensors, *ctx.rest = inputs
    ctx.sizes = len(layer), len(tensors)
    ctx.save_for_backward(first, target, weight, denominator, output[1], *layer, *tensors)


def _backward(ctx: Any, upstream: Tensor, _: Tensor) -> tuple[Any, ...]:
    inputs, target, weight, denominator, lam, *others = ctx.saved_tensors
    layer, tensors = others[: ctx.sizes[0]], others[ctx.sizes[0] :]
    gradient, *of_layer = _gradients(inputs, layer, target, weight, denominator, tensors, *ctx.rest, lam, upstream)
    return gradient, of_layer, None, None, None, [None] * len(tensors), *[None] * len(ctx.rest)


_value.register_autograd(_backward, setup_context=_keep)
