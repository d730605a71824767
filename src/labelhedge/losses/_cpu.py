"""Losses on a CPU with value and gradient together, by their closed forms.

A loss of ``log p_y`` takes the log softmax of torch and its derivative; the others go block by block, and a block of
rows stays in the cache through all the steps on it. The formulas of the losses remain the specification; this serves
them in ordinary eager calls. It uses few operations, few kinds of them and few temporaries, because for small batches
that is what the time goes into.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from labelhedge.losses._batch import Batch
from labelhedge.losses._cpu_rows import Found, Solver, as_tensor, rows_of_gaps, rows_of_terms
from labelhedge.losses._few_rows import BLOCK
from labelhedge.losses._formulas import (
    keeps_digits,
    lies_transposed,
    log_softmax,
    masked_classes,
    take,
    through_log_softmax,
)
from labelhedge.losses._options import Number, Reduction, is_free_to_read
from labelhedge.losses._with_gradient import is_batched, with_gradient

Plain: TypeAlias = Callable[[Batch, Tensor | None], tuple[Tensor, Tensor | None]]
"""The values of the specification ``(..., 1)`` and the λ they are at, which is found if it is not given."""


def serves(batch: Batch) -> bool:
    """Whether this path gives a loss of the softmax; the formula of one of terms of the gaps is as quick."""
    form = batch.spec.closed_form
    if form is None or form.needs == "smooth maximum" or (form.needs == "terms" and "margin" in batch.params):
        return False
    return _is_ordinary(batch)


def serves_lambda(batch: Batch, smallest: Number, largest: Number) -> bool:
    """Whether it gives a smooth maximum for λ in [smallest, largest]."""
    if not _is_ordinary(batch):
        return False
    low = smallest.min().item() if isinstance(smallest, Tensor) else smallest
    high = largest.max().item() if isinstance(largest, Tensor) else largest
    return keeps_digits(low, high)


def _is_ordinary(batch: Batch) -> bool:
    """Class indices, no hyperparameter that is learnt, nothing that traces."""
    if batch.target is None or batch.logits.numel() == 0:
        return False
    if batch.memory is not None:  # nothing traces it, and there are no tensors
        if batch.logits.device.type != "cpu":
            return False
    elif not is_free_to_read(batch.logits) or any(
        isinstance(value, Tensor) and value.requires_grad for value in (batch.temperature, *batch.params.values())
    ):
        return False
    return batch.normalize != "softplus" or masked_classes(batch.logits) is None


def loss(
    batch: Batch, lam: Number | None = None, solver: Solver | None = None, plain: Plain | None = None
) -> tuple[Tensor, Tensor | None]:
    """The reduced loss, and the λ of ``solver`` ``(..., 1)`` as a constant where the loss has one.

    A smooth maximum is at ``lam`` or at what the solver finds. ``plain(batch, lam)`` gives the values of the
    specification and their λ, which it finds if ``lam`` is None.
    """
    form = batch.spec.closed_form
    if form is not None and form.needs in ("log p_y", "sum of log p"):
        return _of_log_p(batch.scaled_logits(), batch), None
    if batch.normalize == "softplus":
        batch = replace(batch, logits=F.softplus(batch.logits), normalize="l1")
    call = _CPULoss(batch, lam, solver, plain or _by_formula)
    if batch.logits.requires_grad and torch.is_grad_enabled():
        return with_gradient(batch.logits, call), call.lam
    with torch.no_grad():
        return call.loss(wants_gradient=False), call.lam


def cross_entropy(batch: Batch, weight: Tensor | None = None, reduction: Reduction = "none") -> Tensor:
    """Cross entropy, by torch's own function where it takes the shape."""
    logits = batch.scaled_logits()
    assert batch.target is not None
    if logits.dim() == 2:
        return F.cross_entropy(logits, batch.target.squeeze(-1), weight, reduction=reduction)
    values = -take(log_softmax(logits), batch.target)
    return values.squeeze(-1) if reduction == "none" and weight is None else batch.reduce(values)


class _OfLogP(torch.autograd.Function):
    """The reduced loss from scaled logits, for a loss of ``log p_y`` and perhaps the sum of all ``log p_k``."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, batch: Batch) -> Tensor:
        form = batch.spec.closed_form
        assert form is not None
        log_p = log_softmax(logits)
        log_p_y = take(log_p, batch.target)
        assert form.finish is not None
        total = [] if form.needs == "log p_y" else [log_p.sum(-1, keepdim=True)]
        value, *slopes = form.finish(log_p_y, *total, [batch.params[name] for name in form.params])
        share = batch.share_of_each()
        ctx.slopes = [as_tensor(slope * share, log_p, log_p_y.shape) for slope in slopes]
        loss = batch.reduce(value)
        if total and not math.isfinite(total[0].sum().item()):  # perhaps a masked class: the formula knows what to do
            ctx.slopes, loss = None, _by_formula_of(batch, logits)
        ctx.save_for_backward(logits)
        ctx.batch, ctx.log_p = batch, log_p
        return loss

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None]:
        (logits,), batch = ctx.saved_tensors, ctx.batch
        if torch.is_grad_enabled():  # create_graph=True: somebody will differentiate this gradient
            return torch.autograd.grad(_by_formula_of(batch, logits), logits, upstream, create_graph=True)[0], None
        if ctx.slopes is None:
            with torch.enable_grad():
                leaf = logits.detach().requires_grad_()
                return torch.autograd.grad(_by_formula_of(batch, leaf), leaf, upstream)[0], None
        each = upstream.unsqueeze(-1) if batch.reduction == "none" else upstream
        if is_batched(upstream):
            return through_log_softmax(ctx.slopes, ctx.log_p, batch.target) * each, None
        is_one = not upstream.dim() and upstream.item() == 1.0
        slopes = ctx.slopes if is_one else [slope * each for slope in ctx.slopes]
        return through_log_softmax(slopes, ctx.log_p, batch.target), None


_of_log_p: Callable[..., Tensor] = _OfLogP.apply


def _by_formula_of(batch: Batch, scaled_logits: Tensor) -> Tensor:
    return batch.reduce(batch.spec.formula(scaled_logits, batch.target, **batch.params))


def _by_formula(batch: Batch, lam: Tensor | None) -> tuple[Tensor, Tensor | None]:
    return batch.values(), None


class _CPULoss:
    """A loss and what is found with it. It keeps neither the loss, which refers to it, nor the logits."""

    lam: Tensor | None = None
    """What the solver has found."""
    gradient: Tensor | None = None
    is_odd = False
    """Whether a logit is not finite, so that only the formula will do."""

    def __init__(self, batch: Batch, lam: Number | None, solver: Solver | None, plain: Plain) -> None:
        self.batch, self.given, self.solver, self.plain = batch, lam, solver, plain

    def loss(self, wants_gradient: bool) -> Tensor:
        batch = self.batch
        value, self.lam, self.gradient = _found(batch, self.given, self.solver, wants_gradient)
        reduced = batch.reduce(value)
        total = reduced if reduced.dim() == 0 else value.sum()
        if not math.isfinite(total.item()):
            reduced = self._with_care(batch.logits.detach(), wants_gradient)
        self.batch = batch.without_logits()
        return reduced

    def _with_care(self, logits: Tensor, wants_gradient: bool) -> Tensor:
        """The loss by the formula, which knows of masked classes and keeps a NaN to its row."""
        self.is_odd, self.gradient = True, None
        batch = self.batch.with_logits(logits.requires_grad_(wants_gradient))
        with torch.enable_grad():
            values, self.lam = self.plain(batch, None)
            loss = batch.reduce(values)
            if wants_gradient:
                (self.gradient,) = torch.autograd.grad(loss, batch.logits, torch.ones_like(loss))
        return loss.detach()

    def take_gradient(self, logits: Tensor, upstream: Tensor) -> Tensor:
        gradient, self.gradient = self.gradient, None
        if gradient is None:  # it has been taken before
            gradient = self._gradient_again(logits.detach())
        if upstream.dim():
            return gradient * upstream.unsqueeze(-1)
        if is_batched(upstream):
            return gradient * upstream
        return gradient if upstream.item() == 1 else gradient.mul_(upstream)

    def _gradient_again(self, logits: Tensor) -> Tensor:
        """The gradient at the λ found."""
        if not self.is_odd:
            solver = self.solver if self.lam is None else lambda x, at, buffers: (at(self.lam), 0.0)
            gradient = _found(self.batch.with_logits(logits), self.given, solver, wants_gradient=True)[2]
            assert gradient is not None
            return gradient
        leaf = logits.requires_grad_()
        with torch.enable_grad():
            loss = self.differentiable_loss(leaf)
            return torch.autograd.grad(loss, leaf, torch.ones_like(loss))[0]

    def differentiable_loss(self, logits: Tensor) -> Tensor:
        """The loss by the plain formula, at the λ found."""
        batch = self.batch.with_logits(logits)
        return batch.reduce(self.plain(batch, self.lam)[0])


def _found(batch: Batch, lam: Number | None, solver: Solver | None, wants_gradient: bool) -> Found:
    """Value and λ, both ``(..., 1)``, and if wanted the gradient of the reduced loss, ``(..., K)``."""
    logits, target = batch.logits.detach(), batch.target
    assert target is not None
    share = batch.share_of_each() if wants_gradient else None
    of_gaps = batch.spec.closed_form is not None and batch.spec.closed_form.needs == "smooth maximum"
    rows = functools.partial(rows_of_gaps, lam=lam, solver=solver) if of_gaps else rows_of_terms
    if logits.numel() <= BLOCK or (not of_gaps and lies_transposed(logits)):
        return rows(logits, target, batch, share, _all)

    shape, classes = target.shape, logits.shape[-1]
    flat, flat_target = logits.reshape(-1, classes), target.reshape(-1, 1)
    step = max(1, BLOCK // classes)
    buffers = logits.new_empty(3, step, classes)
    gradient = torch.empty_like(flat) if wants_gradient else None
    values, lams = [], []
    for start in range(0, len(flat), step):
        part = slice(start, start + step)

        def at(hyperparameter: Any, part: slice = part) -> Any:
            if not isinstance(hyperparameter, Tensor):
                return hyperparameter
            return hyperparameter.expand(shape).reshape(-1, 1)[part]

        f = flat[part]
        outputs = (*buffers[:, : len(f)], None if gradient is None else gradient[part])
        value, found, _ = rows(f, flat_target[part], batch, at(share), at, outputs=outputs)
        values.append(value)
        lams += [] if found is None else [found]
    return (
        torch.cat(values).view(shape),
        torch.cat(lams).view(shape) if lams else None,
        None if gradient is None else gradient.view(logits.shape),
    )


def _all(hyperparameter: Any) -> Any:
    """All rows are in the block."""
    return hyperparameter
