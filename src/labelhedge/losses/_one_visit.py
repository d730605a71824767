"""LDR-KL and ALDR-KL on a CPU in one visit to the logits: value, λ and gradient together, block by block.

A block of rows stays in the cache through all the steps on it, and the gradient is written down in closed form. The
formulas in ``ldr.py`` and ``aldr.py`` remain the specification; this serves them in ordinary eager calls. It uses few
operations, few kinds of them and few temporaries, because for small batches that is what the time goes into.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from labelhedge.losses._adaptive import exponentials
from labelhedge.losses._apply import Batch, Number
from labelhedge.losses._spec import is_free_to_read
from labelhedge.losses._with_gradient import is_batched, with_gradient

BLOCK = 2**19
"""Logits per block: a few buffers of this size fit into the cache."""

Rows: TypeAlias = Callable[[Any], Any]
"""Picks the rows of a block from a hyperparameter; floats and None pass."""
Solver: TypeAlias = Callable[[Tensor, Rows, Sequence[Tensor | None]], tuple[Number, Number]]
"""From the gaps of some rows less their maximum, the hyperparameters and two buffers: λ, and what to subtract."""


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
    visit = _Visit(batch, solver, plain)
    if batch.logits.requires_grad and torch.is_grad_enabled():
        return with_gradient(batch.logits, visit), visit.lam
    with torch.no_grad():
        return visit.loss(wants_gradient=False), visit.lam


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
    x = torch.abs(f, out=outputs[0])
    unit: Number = 1.0
    if batch.normalize:
        # 1/norm, and 1 for a row of zeros, which keeps its zeros
        unit = x.sum(-1, keepdim=True).reciprocal_().mul_(classes).nan_to_num_(posinf=1.0)
    scale = unit if isinstance(temperature, float) and temperature == 1.0 else unit / temperature
    torch.mul(f, scale, out=x)
    _add_at(x, y, -margin)
    x.sub_(x.amax(-1, keepdim=True))  # the gaps less the largest of them
    lam, offset = solver(x, at, outputs[1:3])
    _, e = exponentials(x, lam, outputs[1:3])
    total = e.sum(-1, keepdim=True)
    value = torch.div(total, classes).log_().mul_(lam).sub_(x.gather(-1, y)).sub_(offset)
    lam = lam if isinstance(lam, Tensor) else torch.full_like(value, lam)
    if share is None:
        return value, lam, None
    # with z = f·scale the gradient in z is p - e_y; in f it is g = (p - e_y)·scale, less (g·f)·unit·sign(f)/K
    factor = scale * share
    gradient = _add_at(torch.mul(e, factor / total, out=outputs[3]), y, -factor)
    if batch.normalize:
        along = torch.mul(gradient, f, out=x).sum(-1, keepdim=True).mul_(unit)
        gradient.addcmul_(torch.sign(f, out=x), along, value=-1 / classes)
    return value, lam, gradient


def _add_at(values: Tensor, y: Tensor, amount: Number) -> Tensor:
    """Add to the entry of the label, in place."""
    if isinstance(amount, Tensor):
        return values.scatter_add_(-1, y, amount.expand(y.shape))
    return values.scatter_(-1, y, amount, reduce="add")


class _Visit:
    """A visit and what it finds. It keeps neither the loss, which refers to it through the graph, nor the logits."""

    lam: Tensor
    gradient: Tensor | None

    def __init__(self, batch: Batch, solver: Solver, plain: Callable[[Batch, Tensor], Tensor]) -> None:
        self.batch, self.solver, self.plain = batch, solver, plain

    def loss(self, wants_gradient: bool) -> Tensor:
        value, self.lam, self.gradient = _visit(self.batch, self.solver, wants_gradient)
        reduced = self.batch.reduce(value)
        self.batch = replace(self.batch, logits=value)
        return reduced

    def take_gradient(self, logits: Tensor, upstream: Tensor) -> Tensor:
        gradient, self.gradient = self.gradient, None
        if gradient is None:  # it has been taken before
            batch = replace(self.batch, logits=logits)
            gradient = _visit(batch, lambda x, at, buffers: (at(self.lam), 0.0), wants_gradient=True)[2]
        assert gradient is not None
        if upstream.dim():
            return gradient * upstream.unsqueeze(-1)
        if is_batched(upstream):
            return gradient * upstream
        return gradient if upstream.item() == 1 else gradient.mul_(upstream)

    def differentiable_loss(self, logits: Tensor) -> Tensor:
        """The loss by the plain formula."""
        batch = replace(self.batch, logits=logits)
        return batch.reduce(self.plain(batch, self.lam))
