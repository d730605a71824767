"""Value and gradient of some rows on a CPU, by the closed form of a loss."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from labelhedge.losses._batch import Batch
from labelhedge.losses._few_rows import SMALL
from labelhedge.losses._formulas import LOG_2, constant, log_softmax, take, through_log_softmax
from labelhedge.losses._options import Number

Rows: TypeAlias = Callable[[Any], Any]
"""Picks the rows of a block from a hyperparameter; numbers and None pass."""
Solver: TypeAlias = Callable[[Tensor, Rows, Sequence[Tensor | None]], tuple[Tensor, Number]]
"""From the gaps of some rows less their maximum, the hyperparameters and two buffers: λ, and what to subtract."""
Found: TypeAlias = tuple[Tensor, Tensor | None, Tensor | None]
"""Of some rows: the value, λ where the solver has found it, and the gradient where it is wanted."""
_NEW = (None,) * 4
"""No buffers to write into: make new tensors."""


def rows_of_terms(
    f: Tensor,
    y: Tensor,
    batch: Batch,
    share: Number | None,
    at: Rows,
    outputs: Sequence[Tensor | None] = _NEW,
) -> Found:
    """For a loss of a sum of terms of each ``p_k``; ``share`` is None where no gradient is wanted."""
    form = batch.spec.closed_form
    assert form is not None
    assert form.finish is not None
    assert form.terms is not None
    unit, scale = _scales(f, batch, at)
    log_p = log_softmax(f if scale is None else torch.mul(f, as_tensor(scale, f), out=outputs[0]))
    label, is_masked = take(log_p, y), log_p.amin().item() == -math.inf
    p, params = log_p.exp_(), [at(batch.params[name]) for name in form.params]
    term, psi = form.terms(p, None, params)
    terms = term.scatter(-1, y, 0.0).sum(-1, keepdim=True)
    value, on_p, on_psi, on_label = form.finish(label, terms, psi.sum(-1, keepdim=True), float(f.shape[-1]), params)
    if is_masked:
        value = value * math.nan  # the formula knows what to do
    if share is None:
        return value, None, None
    if scale is not None:
        share = share * scale
    gradient = torch.mul(p, as_tensor(on_p * share, p), out=outputs[3]).addcmul_(psi, as_tensor(on_psi * share, p))
    _add_at(gradient, y, on_label * share)
    return value, None, gradient if unit is None else _through_norm(gradient, f, unit, outputs[0])


def rows_of_gaps(
    f: Tensor,
    y: Tensor,
    batch: Batch,
    share: Number | None,
    at: Rows,
    lam: Number | None,
    solver: Solver | None,
    outputs: Sequence[Tensor | None] = _NEW,
) -> Found:
    """For a smooth maximum of the gaps, at ``lam`` or at the λ of ``solver``.

    With the margin taken from the label's logit, and all logits divided by λ, it is ``-λ (log p_y + log K)``.
    """
    unit, scale = _scales(f, batch, at)
    slope = None if share is None else as_tensor(-share, f, y.shape)
    if slope is not None and scale is not None:
        slope = slope * scale
    margin, found = at(batch.params["margin"]), None
    if solver is None:
        assert lam is not None
        lam = at(lam)
        is_small = f.numel() < SMALL
        step = lam if is_small else lam * LOG_2
        scale = 1 / step if scale is None else scale / as_tensor(step, f)
        x = _add_at(_scaled(f, y, unit, scale, outputs[3]), y, -margin / step)
        if is_small:
            value, gradient = _by_log_softmax(x, y, lam, slope)
        else:
            value, gradient = _by_exponentials(x.sub_(x.amax(-1, keepdim=True)), y, step, 0.0, slope)
    else:
        gap = _add_at(_scaled(f, y, unit, scale, outputs[0]), y, -margin)
        gap.sub_(gap.amax(-1, keepdim=True))
        found, penalty = solver(gap, at, outputs[1:3])
        step = found * LOG_2
        x = torch.mul(gap, as_tensor(1 / step, f), out=outputs[3])
        value, gradient = _by_exponentials(x, y, step, penalty, slope)
    if not batch.normalize and f.amin().item() == -math.inf:
        value *= math.nan  # a masked class: the formula knows what to do
    if gradient is None or unit is None:
        return value, found, gradient
    return value, found, _through_norm(gradient, f, unit, outputs[0])


def _by_log_softmax(x: Tensor, y: Tensor, lam: Number, slope: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """From gaps over λ the values, and in their place the gradient for a ``slope`` in the label's gap."""
    log_p, log_count = log_softmax(x), math.log(x.shape[-1])
    if isinstance(lam, Tensor):
        value = take(log_p, y).add_(constant(log_count, x.dtype)).mul_(lam).neg_()
    else:
        value = torch.add(constant(-lam * log_count, x.dtype), take(log_p, y), alpha=-lam)
    return value, None if slope is None else through_log_softmax([slope], log_p, y, x)


def _by_exponentials(
    x: Tensor, y: Tensor, step: Number, penalty: Number, slope: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """The same, less the penalty, from gaps over ``step = λ log 2`` less the largest."""
    label, e = take(x, y), x.exp2_()
    total = e.sum(-1, keepdim=True)
    value = (total / x.shape[-1]).log2_().sub_(label).mul_(step).sub_(penalty)
    return value, None if slope is None else _add_at(e.mul_(slope / total.neg_()), y, slope)


def _scaled(f: Tensor, y: Tensor, unit: Tensor | None, scale: Number | None, buffer: Tensor | None) -> Tensor:
    """The scaled logits; without a normaliser less that of the label, beside which a margin could be lost."""
    if unit is not None:
        return torch.mul(f, as_tensor(scale, f), out=buffer)
    x = torch.sub(f, take(f, y), out=buffer)
    return x if scale is None else x.mul_(as_tensor(scale, f))


def _scales(f: Tensor, batch: Batch, at: Rows) -> tuple[Tensor | None, Number | None]:
    """One over the norm, and what the logits are multiplied by in all; each None where it is 1.

    A row of zeros is left to the formula: it becomes NaN.
    """
    unit: Tensor | None = None
    if batch.normalize:
        unit = torch.div(constant(f.shape[-1], f.dtype), f.abs().sum(-1, keepdim=True))
    if not batch.has_temperature():
        return unit, unit
    return unit, (1.0 if unit is None else unit) / at(batch.temperature)


def _through_norm(gradient: Tensor, f: Tensor, unit: Tensor, buffer: Tensor | None) -> Tensor:
    """The gradient g in f, from g as if the norm were a constant: g less ``(g·f)·unit·sign(f)/K``, in place."""
    along = torch.mul(gradient, f, out=buffer).sum(-1, keepdim=True).mul_(unit)
    return gradient.addcmul_(torch.sign(f, out=buffer), along, value=-1 / f.shape[-1])


def _add_at(values: Tensor, y: Tensor, amount: Any) -> Tensor:
    """Add to the entry of the label, in place."""
    return values.scatter_add_(-1, y, as_tensor(amount, values, y.shape))


def as_tensor(values: Any, like: Tensor, shape: torch.Size | None = None) -> Tensor:
    """Numbers as a tensor of the same type, and if asked of a shape to which they broadcast."""
    if not isinstance(values, Tensor):
        return constant(values, like.dtype, shape)
    if values.dtype != like.dtype:
        values = values.to(like.dtype)
    found: Tensor = values if shape is None or values.shape == shape else values.expand(shape)
    return found
