"""Losses on a CPU with value and gradient together, by their closed forms.

A loss of ``log p_y`` takes the log softmax of torch and its derivative; the others go block by block, and a block of
rows stays in the cache through all the steps on it. The formulas of the losses remain the specification; this serves
them in ordinary eager calls. It uses few operations, few kinds of them and few temporaries, because for small batches
that is what the time goes into.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from labelhedge.losses._adaptive import exponentials
from labelhedge.losses._batch import Batch
from labelhedge.losses._formulas import (
    constant,
    gaps,
    lies_transposed,
    log_softmax,
    masked_classes,
    take,
    through_log_softmax,
)
from labelhedge.losses._options import Number, Reduction, is_free_to_read
from labelhedge.losses._with_gradient import is_batched, with_gradient

BLOCK = 2**19
"""Logits per block: a few buffers of this size fit into the cache."""

Rows: TypeAlias = Callable[[Any], Any]
"""Picks the rows of a block from a hyperparameter; numbers and None pass."""
Solver: TypeAlias = Callable[[Tensor, Rows, Sequence[Tensor | None]], tuple[Number, Number]]
"""From the gaps of some rows less their maximum, the hyperparameters and two buffers: λ, and what to subtract."""
Plain: TypeAlias = Callable[[Batch, Tensor | None], tuple[Tensor, Tensor | None]]
"""The values of the specification ``(..., 1)`` and the λ they are at, which is found if it is not given."""
Found: TypeAlias = tuple[Tensor, Tensor | None, Tensor | None]
"""Of some rows: the value, λ where the loss has one, and the gradient where it is wanted."""


def serves(batch: Batch) -> bool:
    """Whether this path gives a loss of the softmax."""
    form = batch.spec.closed_form
    return form is not None and form.needs != "smooth maximum" and _is_ordinary(batch)


def serves_lambda(batch: Batch, smallest: Number, largest: Number) -> bool:
    """Whether it gives a smooth maximum for λ in [smallest, largest].

    It keeps away from λ = 0 and from λ so large that ``log mean exp`` would lose digits.
    """
    if not _is_ordinary(batch):
        return False
    low = smallest.min().item() if isinstance(smallest, Tensor) else smallest
    high = largest.max().item() if isinstance(largest, Tensor) else largest
    return low > 1e-6 and high <= 64


def _is_ordinary(batch: Batch) -> bool:
    """Class indices, no hyperparameter that is learnt, nothing that traces."""
    if batch.target is None or batch.logits.numel() == 0 or not is_free_to_read(batch.logits):
        return False
    if batch.key is None:  # there may be tensors
        for value in (batch.temperature, *batch.params.values()):
            if isinstance(value, Tensor) and value.requires_grad:
                return False
    return batch.normalize != "softplus" or masked_classes(batch.logits) is None


def loss(batch: Batch, solver: Solver | None = None, plain: Plain | None = None) -> tuple[Tensor, Tensor | None]:
    """The reduced loss, and the λ of ``solver`` ``(..., 1)`` as a constant where the loss has one.

    ``plain(batch, lam)`` gives the values of the specification and their λ, which it finds if ``lam`` is None.
    """
    form = batch.spec.closed_form
    if form is not None and form.needs == "log p_y":
        return _of_log_p(batch.scaled_logits(), batch), None
    if batch.normalize == "softplus":
        batch = replace(batch, logits=F.softplus(batch.logits), normalize="l1")
    call = _CPULoss(batch, solver, plain or _by_formula)
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
    """The reduced loss from scaled logits, for a loss of ``log p_y``."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, batch: Batch) -> Tensor:
        form = batch.spec.closed_form
        assert form is not None
        log_p = log_softmax(logits)
        value, slope = form.finished(take(log_p, batch.target), [batch.params[name] for name in form.params])
        ctx.save_for_backward(logits)
        ctx.batch, ctx.log_p, ctx.slope = batch, log_p, slope
        return batch.reduce(value)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None]:
        (logits,), batch = ctx.saved_tensors, ctx.batch
        if torch.is_grad_enabled():  # create_graph=True: somebody will differentiate this gradient
            loss = batch.reduce(batch.spec.formula(logits, batch.target, **batch.params))
            return torch.autograd.grad(loss, logits, upstream, create_graph=True)[0], None
        share = batch.share_of_each()
        if is_batched(upstream):
            each = upstream.unsqueeze(-1) if batch.reduction == "none" else upstream
            return through_log_softmax(ctx.slope * share, ctx.log_p, batch.target) * each, None
        factor = share * (upstream.unsqueeze(-1) if upstream.dim() else upstream.item())
        return through_log_softmax(ctx.slope * factor, ctx.log_p, batch.target), None


_of_log_p: Callable[..., Tensor] = _OfLogP.apply


def _by_formula(batch: Batch, lam: Tensor | None) -> tuple[Tensor, Tensor | None]:
    return batch.values(), None


class _CPULoss:
    """A loss and what is found with it. It keeps neither the loss, which refers to it, nor the logits."""

    lam: Tensor | None = None
    gradient: Tensor | None = None
    is_odd = False
    """Whether a logit is not finite, so that only the formula will do."""

    def __init__(self, batch: Batch, solver: Solver | None, plain: Plain) -> None:
        self.batch, self.solver, self.plain = batch, solver, plain

    def loss(self, wants_gradient: bool) -> Tensor:
        batch = self.batch
        value, self.lam, self.gradient = _found(batch, self.solver, wants_gradient)
        reduced = batch.reduce(value)
        total = reduced if reduced.dim() == 0 else value.sum()
        if not math.isfinite(total.item()):
            reduced = self._with_care(batch.logits.detach(), wants_gradient)
        self.batch = batch.with_logits(value)
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
            gradient = _found(self.batch.with_logits(logits), solver, wants_gradient=True)[2]
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


def _found(batch: Batch, solver: Solver | None, wants_gradient: bool) -> Found:
    """Value and λ, both ``(..., 1)``, and if wanted the gradient of the reduced loss, ``(..., K)``."""
    logits, target = batch.logits.detach(), batch.target
    assert target is not None
    share = batch.share_of_each() if wants_gradient else None
    rows = _rows_of_probabilities if solver is None else functools.partial(_rows_of_gaps, solver=solver)
    if logits.numel() <= BLOCK or (solver is None and lies_transposed(logits)):
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
        value, lam, _ = rows(f, flat_target[part], batch, at(share), at, outputs=outputs)
        values.append(value)
        lams += [] if lam is None else [lam]
    return (
        torch.cat(values).view(shape),
        torch.cat(lams).view(shape) if lams else None,
        None if gradient is None else gradient.view(logits.shape),
    )


def _all(hyperparameter: Any) -> Any:
    """All rows are in the block."""
    return hyperparameter


_NEW = (None,) * 4
"""No buffers to write into: make new tensors."""


def _rows_of_probabilities(
    f: Tensor,
    y: Tensor,
    batch: Batch,
    share: Number | None,
    at: Rows,
    outputs: Sequence[Tensor | None] = _NEW,
) -> Found:
    """For a loss of the softmax; ``share`` is None where no gradient is wanted."""
    form = batch.spec.closed_form
    assert form is not None
    params = [at(batch.params[name]) for name in form.params]
    unit, scale = _scales(f, batch, at)
    log_p = log_softmax(f if scale is None else torch.mul(f, scale, out=outputs[0]))
    log_p_y = take(log_p, y)
    if share is not None and scale is not None:
        share = share * scale
    value, (on_p, everywhere, on_label) = _with_sums(f, log_p, log_p_y, y, batch, at, scale, params)
    if share is None:
        return value, None, None
    gradient = torch.mul(log_p.exp_(), on_p * share, out=outputs[3])
    if everywhere is not None:
        gradient += everywhere * share
    _add_at(gradient, y, on_label * share)
    return value, None, gradient if unit is None else _through_norm(gradient, f, unit, outputs[0])


def _with_sums(
    f: Tensor,
    log_p: Tensor,
    log_p_y: Tensor,
    y: Tensor,
    batch: Batch,
    at: Rows,
    scale: Number | None,
    params: Sequence[Number],
) -> tuple[Tensor, tuple[Number, Tensor | None, Number]]:
    """The value of a loss that needs sums over the classes; of the gradient P, what all classes get, and E."""
    form = batch.spec.closed_form
    assert form is not None
    psi = None
    if form.terms is None:
        sums: tuple[Any, ...] = (log_p.sum(-1, keepdim=True),)
    else:
        q = gaps(f if scale is None else f * scale, y, at(batch.params["margin"])) if "margin" in batch.params else None
        term, psi = form.terms(log_p.exp(), q, params)
        sums = (0.0, term.scatter(-1, y, 0.0).sum(-1, keepdim=True), psi.sum(-1, keepdim=True))
    value, on_p, on_psi, everywhere, on_label = form.finished(log_p_y, params, sums, float(f.shape[-1]))
    if f.amin().item() == -math.inf:
        value = value * math.nan  # a masked class: the formula knows what to do
    if psi is not None:
        everywhere = psi * on_psi if isinstance(everywhere, float) and everywhere == 0.0 else psi * on_psi + everywhere
    return value, (on_p, everywhere, on_label)


def _rows_of_gaps(
    f: Tensor,
    y: Tensor,
    batch: Batch,
    share: Number | None,
    at: Rows,
    solver: Solver,
    outputs: Sequence[Tensor | None] = _NEW,
) -> Found:
    """For a smooth maximum of the gaps, at the λ of ``solver``."""
    classes = f.shape[-1]
    unit, scale = _scales(f, batch, at)
    x = torch.mul(f, _tensor(1.0 if scale is None else scale, f), out=outputs[0])
    _add_at(x, y, -at(batch.params["margin"]))
    x.sub_(x.amax(-1, keepdim=True))  # the gaps less the largest of them
    lam, offset = solver(x, at, outputs[1:3])
    _, e = exponentials(x, lam, outputs[1:3])
    total = e.sum(-1, keepdim=True)
    value = total.div(constant(classes, f.dtype)).log_().mul_(_tensor(lam, f)).sub_(x.gather(-1, y))
    if isinstance(offset, Tensor) or offset != 0.0:
        value.sub_(_tensor(offset, f))
    if not batch.normalize and f.amin().item() == -math.inf:
        value.fill_(math.nan)  # a masked class: the formula knows what to do
    found = lam if isinstance(lam, Tensor) else None
    if share is None:
        return value, found, None
    share = _tensor(share, f)
    if scale is not None:
        share = share * scale
    # with z = f·scale the gradient in z is p - e_y
    gradient = _add_at(torch.mul(e, share / total, out=outputs[3]), y, -share)
    return value, found, gradient if unit is None else _through_norm(gradient, f, unit, x)


def _scales(f: Tensor, batch: Batch, at: Rows) -> tuple[Tensor | None, Number | None]:
    """One over the norm, and what the logits are multiplied by in all; each None where it is 1."""
    unit: Tensor | None = None
    if batch.normalize:  # 1 for a row of zeros, which keeps its zeros
        unit = torch.div(constant(f.shape[-1], f.dtype), f.abs().sum(-1, keepdim=True)).nan_to_num_(posinf=1.0)
    if not batch.has_temperature():
        return unit, unit
    return unit, (1.0 if unit is None else unit) / at(batch.temperature)


def _through_norm(gradient: Tensor, f: Tensor, unit: Tensor, buffer: Tensor | None) -> Tensor:
    """The gradient g in f, from g as if the norm were a constant: g less ``(g·f)·unit·sign(f)/K``, in place."""
    along = torch.mul(gradient, f, out=buffer).sum(-1, keepdim=True).mul_(unit).div_(constant(f.shape[-1], f.dtype))
    return gradient.sub_(torch.sign(f, out=buffer).mul_(along))


def _add_at(values: Tensor, y: Tensor, amount: Number) -> Tensor:
    """Add to the entry of the label, in place."""
    return values.scatter_add_(-1, y, _tensor(amount, values).expand(y.shape))


def _tensor(value: Number, like: Tensor) -> Tensor:
    return value.to(like.dtype) if isinstance(value, Tensor) else constant(value, like.dtype)
