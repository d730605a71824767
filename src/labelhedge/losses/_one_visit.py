"""LDR-KL and ALDR-KL on a CPU in one visit to the logits: value, λ and gradient together, block by block.

A block of rows stays in the cache through all the steps on it, and the gradient is written down in closed form. The
formulas in ``ldr.py`` and ``aldr.py`` remain the specification; this serves them in ordinary eager calls.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from labelhedge.losses._apply import Batch, Number, l1_scale
from labelhedge.losses._spec import is_free_to_read

BLOCK = 2**17
"""Logits per block: a few buffers of this size fit into a core's cache."""

Rows = Callable[[Any], Any]
"""Picks the rows of a block from a hyperparameter; floats and None pass."""
Solver = Callable[[Tensor, Rows], Number]
"""Gives the λ of the rows whose ``q - max q`` it is handed, with the rows' part of any hyperparameter."""


def serves(batch: Batch, smallest: Number, largest: Number) -> bool:
    """Whether this path gives the loss of ``batch`` for λ in [smallest, largest].

    It keeps away from λ = 0 and from λ so large that ``log mean exp`` would lose digits, from hyperparameters that want
    a gradient, and from tracers, which do better with the plain formula.
    """
    if batch.target is None or not is_free_to_read(batch.logits):
        return False
    tensors = [v for v in (batch.temperature, smallest, largest, *batch.params.values()) if isinstance(v, Tensor)]
    if any(v.requires_grad for v in tensors) or batch.logits.numel() == 0:
        return False
    low = smallest.min().item() if isinstance(smallest, Tensor) else smallest
    high = largest.max().item() if isinstance(largest, Tensor) else largest
    return low > 1e-6 and high <= 64


def values(batch: Batch, plain: Callable[..., Tensor], solver: Solver) -> tuple[Tensor, Tensor]:
    """LDR-KL ``(..., 1)`` at the λ of ``solver``, and that λ ``(..., 1)`` as a constant.

    ``plain(logits, target, lam, margin)``, the specification, serves second derivatives.
    """
    if batch.normalize == "softplus":
        batch = replace(batch, logits=F.softplus(batch.logits), normalize="l1")
    target, margin = batch.target, batch.params["margin"]
    assert target is not None
    wants_gradient = torch.is_grad_enabled() and batch.logits.requires_grad
    with torch.no_grad():
        value, lam, gradient = (
            None if part is None else part.view(*target.shape[:-1], part.shape[-1])
            for part in _visit(batch, solver, wants_gradient)
        )
    assert value is not None
    assert lam is not None
    if gradient is not None:

        def again(logits: Tensor) -> Tensor:
            return plain(replace(batch, logits=logits).scaled_logits(), target, lam, margin)

        value = _with_gradient(batch.logits, value, gradient, again)
    return value, lam


def _visit(batch: Batch, solver: Solver, wants_gradient: bool) -> tuple[Tensor, Tensor, Tensor | None]:
    """Value ``(rows, 1)``, λ ``(rows, 1)`` and, if wanted, the gradient ``(rows, K)``."""
    assert batch.target is not None
    shape, classes = batch.target.shape, batch.logits.shape[-1]
    logits, target = batch.logits.detach().reshape(-1, classes), batch.target.reshape(-1, 1)
    value, lam = logits.new_empty(len(logits), 1), logits.new_empty(len(logits), 1)
    gradient = torch.empty_like(logits) if wants_gradient else None
    step = max(1, BLOCK // classes)
    for start in range(0, len(logits), step):
        rows = slice(start, start + step)

        def at(hyperparameter: Any, rows: slice = rows) -> Any:
            if not isinstance(hyperparameter, Tensor):
                return hyperparameter
            return hyperparameter.expand(shape).reshape(-1, 1)[rows]

        f, y = logits[rows], target[rows]
        c, temperature = at(batch.params["margin"]), at(batch.temperature)
        unit: Number = 1 / temperature
        if batch.normalize == "l1":
            unit = unit / l1_scale(f)
        d = f * unit
        d.scatter_(-1, y, d.gather(-1, y) - c)  # q up to a constant per row
        d -= d.amax(-1, keepdim=True)
        lam_rows = solver(d, at)
        p = torch.softmax(d / lam_rows, -1)
        d_y = d.gather(-1, y)
        lam[rows] = lam_rows
        value[rows] = -d_y - lam_rows * (p.amax(-1, keepdim=True) * classes).log()
        if gradient is None:
            continue
        # ∂/∂q = p - e_y =: g; through the normaliser f -> f/s it becomes (g - (g·z) sign(f)/K)/s for z = f/s
        along = (p * d).sum(-1, keepdim=True) - d_y + c * (p.gather(-1, y) - 1) if batch.normalize else None
        block = torch.mul(p, unit, out=gradient[rows])
        block.scatter_(-1, y, block.gather(-1, y) - unit)
        if along is not None:
            block.addcmul_(f.sign(), along * (unit * temperature), value=-1 / classes)
    return value, lam, gradient


class _WithGradient(torch.autograd.Function):
    """Values ``(..., 1)`` that bring their gradient with respect to the logits along."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, value: Tensor, gradient: Tensor, again: Callable[[Tensor], Tensor]) -> Tensor:
        ctx.save_for_backward(logits, gradient)
        ctx.again = again
        return value

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None, None]:
        logits, gradient = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True: somebody will differentiate this gradient
            (result,) = torch.autograd.grad(ctx.again(logits), logits, upstream, create_graph=True)
            return result, None, None, None
        return upstream * gradient, None, None, None


_with_gradient: Callable[..., Tensor] = _WithGradient.apply
