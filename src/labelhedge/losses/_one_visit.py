"""LDR-KL and ALDR-KL on a CPU in one visit to the logits: value, λ and gradient together, block by block.

A block of rows stays in the cache through all the steps on it, and the gradient is written down in closed form. The
formulas in ``ldr.py`` and ``aldr.py`` remain the specification; this serves them in ordinary eager calls. It uses few
operations, few kinds of them and few temporaries, because for small batches that is what the time goes into.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from labelhedge.losses._adaptive import log_weights
from labelhedge.losses._apply import Batch, Number
from labelhedge.losses._spec import is_free_to_read

BLOCK = 2**18
"""Logits per block: a few buffers of this size fit into the cache."""

Rows: TypeAlias = Callable[[Any], Any]
"""Picks the rows of a block from a hyperparameter; floats and None pass."""
Solver: TypeAlias = Callable[[Tensor, Rows, Sequence[Tensor | None]], tuple[Number, Number]]
"""From the gaps of some rows (up to a constant), their hyperparameters and two buffers: λ, and what to subtract."""


def serves(batch: Batch, smallest: Number, largest: Number) -> bool:
    """Whether this path gives the loss of ``batch`` for λ in [smallest, largest].

    It keeps away from λ = 0 and from λ so large that ``log mean exp`` would lose digits, from hyperparameters that want
    a gradient, and from tracers, which do better with the plain formula.
    """
    if batch.target is None or not is_free_to_read(batch.logits) or batch.logits.numel() == 0:
        return False
    for value in (batch.temperature, *batch.params.values()):
        if isinstance(value, Tensor) and value.requires_grad:
            return False
    low = smallest.min().item() if isinstance(smallest, Tensor) else smallest
    high = largest.max().item() if isinstance(largest, Tensor) else largest
    return low > 1e-6 and high <= 64


def loss(batch: Batch, solver: Solver, plain: Callable[[Batch, Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    """The reduced loss at the λ of ``solver``, and that λ ``(..., 1)`` as a constant.

    ``plain(batch, lam)`` gives the values of the specification; it serves second derivatives.
    """
    if batch.normalize == "softplus":
        batch = replace(batch, logits=F.softplus(batch.logits), normalize="l1")
    wants_gradient = batch.logits.requires_grad and torch.is_grad_enabled()
    with torch.no_grad():
        value, lam, gradient = _visit(batch, solver, wants_gradient)
        reduced = batch.reduce(value)
    if gradient is None:
        return reduced, lam

    def again(logits: Tensor) -> Tensor:
        other = replace(batch, logits=logits)
        return other.reduce(plain(other, lam))

    return _with_gradient(batch.logits, reduced, gradient, again), lam


def _visit(batch: Batch, solver: Solver, wants_gradient: bool) -> tuple[Tensor, Tensor, Tensor | None]:
    """Value and λ, both ``(..., 1)``, and if wanted the gradient of the reduced loss, ``(..., K)``."""
    logits, target = batch.logits.detach(), batch.target
    assert target is not None
    share = batch.share_of_each() if wants_gradient else None
    if logits.numel() <= BLOCK:
        return _visit_rows(logits, target, batch, share, lambda hyperparameter: hyperparameter, solver)

    shape, classes = target.shape, logits.shape[-1]
    flat, flat_target = logits.reshape(-1, classes), target.reshape(-1, 1)
    step = max(1, BLOCK // classes)
    buffers = logits.new_empty(3, step, classes)
    gradient = torch.empty_like(flat) if wants_gradient else None
    parts = []
    for start in range(0, len(flat), step):
        rows = slice(start, start + step)

        def at(hyperparameter: Any, rows: slice = rows) -> Any:
            if not isinstance(hyperparameter, Tensor):
                return hyperparameter
            return hyperparameter.expand(shape).reshape(-1, 1)[rows]

        f = flat[rows]
        outputs = (*buffers[:, : len(f)], None if gradient is None else gradient[rows])
        parts.append(_visit_rows(f, flat_target[rows], batch, at(share), at, solver, outputs)[:2])
    value, lam = (torch.cat(part).view(shape) for part in zip(*parts, strict=True))
    return value, lam, None if gradient is None else gradient.view(logits.shape)


def _visit_rows(
    f: Tensor,
    y: Tensor,
    batch: Batch,
    share: Number | None,
    at: Rows,
    solver: Solver,
    outputs: Sequence[Tensor | None] = (None,) * 4,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The same for rows of logits; ``share`` is None where no gradient is wanted.

    ``outputs`` are three buffers and the place of the gradient, or None to make new tensors.
    """
    classes = f.shape[-1]
    margin, temperature = at(batch.params["margin"]), at(batch.temperature)
    u = torch.abs(f, out=outputs[0])
    unit: Number = 1.0
    if batch.normalize:
        # 1/norm, and 1 for a row of zeros, which keeps its zeros
        unit = u.sum(-1, keepdim=True).reciprocal_().mul_(classes).nan_to_num_(posinf=1.0)
    scale = unit if isinstance(temperature, float) and temperature == 1.0 else unit / temperature
    torch.mul(f, scale, out=u)
    _add_at(u, y, -margin)  # the gaps, up to a constant per row
    lam, offset = solver(u, at, outputs[1:3])
    log_p = log_weights(u, lam, outputs[1:3])
    # q_y = 0, so -log p_y is the log-sum-exp of q/λ
    value = log_p.gather(-1, y).add_(math.log(classes)).mul_(lam).add_(offset).neg_()
    lam = lam if isinstance(lam, Tensor) else torch.full_like(value, lam)
    if share is None:
        return value, lam, None
    g = _add_at(log_p.exp_(), y, -1.0)  # ∂/∂z for z = f·scale
    if batch.normalize:  # ∂/∂f is (g - (g·f) unit sign(f)/K)·scale
        along = torch.mul(g, f, out=u).sum(-1, keepdim=True).mul_(unit)
        g.addcmul_(torch.sign(f, out=u), along, value=-1 / classes)
    return value, lam, torch.mul(g, scale * share, out=outputs[3])


def _add_at(values: Tensor, y: Tensor, amount: Number) -> Tensor:
    """Add to the entry of the label, in place."""
    if isinstance(amount, Tensor):
        return values.scatter_add_(-1, y, amount.expand(y.shape))
    return values.scatter_(-1, y, amount, reduce="add")


class _WithGradient(torch.autograd.Function):
    """A loss that brings its gradient along."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, loss: Tensor, gradient: Tensor, again: Callable[[Tensor], Tensor]) -> Tensor:
        ctx.save_for_backward(logits, gradient)
        ctx.again = again
        return loss

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        logits, gradient = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True: somebody will differentiate this gradient
            (result,) = torch.autograd.grad(ctx.again(logits), logits, upstream, create_graph=True)
        else:
            result = gradient * (upstream.unsqueeze(-1) if upstream.dim() else upstream)
        return result, None, None, None


_with_gradient: Callable[..., Tensor] = _WithGradient.apply
