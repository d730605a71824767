"""The inner problem of the LDR family, ``max_{p∈Ω} p·q - λ R(p)``: its weights by one sort, its value from them.

R is the KL divergence from the uniform distribution or the squared distance from it. Ω is the simplex (k = None) or
``Ω(k) = {p >= 0, Σp <= 1, p <= 1/k}``. Gaps q are ``(..., K)``, hyperparameters numbers or ``(..., 1)``. A gap of -∞ is
of a class that is masked: it has no weight, and K does not count it.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from labelhedge._errors import UserError
from labelhedge.losses._formulas import count_of, masked_classes
from labelhedge.losses._options import Number, is_free_to_read

Regularizer = Literal["kl", "quadratic"]
Constraint = Literal["simplex", "capped"]


def robust_value(q: Tensor, lam: Number, regularizer: Regularizer, k: int | Tensor | None) -> Tensor:
    """``max_p p·q - λ R(p)``, ``(..., 1)``; k = None is the simplex."""
    masked = masked_classes(q)
    p = _weights(q, lam, regularizer, k, masked)
    fixed, classes = p.detach(), count_of(q, masked)
    if masked is not None:
        q = torch.where(masked, 0.0, q)
    if not isinstance(lam, Tensor) and lam == 0:
        return (fixed * q).sum(-1, keepdim=True)
    if regularizer == "kl":
        divergence = torch.special.xlogy(fixed, fixed * classes).sum(-1, keepdim=True)
    else:
        distance = fixed - 1 / classes
        if masked is not None:
            distance = torch.where(masked, 0.0, distance)
        divergence = distance.square().sum(-1, keepdim=True)
    if isinstance(lam, Tensor):
        lam = torch.where(lam.isinf(), 0.0, lam)  # then p = 1/K, and λ R(p) is 0
    elif lam == math.inf:
        lam = 0.0
    # by the envelope theorem the gradient is p; the last term is 0 and carries the second derivative, ∂p/∂q
    curve = 0.5 * ((p - fixed) * (q - q.detach())).sum(-1, keepdim=True)
    value: Tensor = (fixed * q).sum(-1, keepdim=True) - lam * divergence + curve
    return value


def robust_weights(q: Tensor, lam: Number, regularizer: Regularizer, k: int | Tensor | None) -> Tensor:
    """The maximising p for λ in [0, ∞], ``(..., K)``."""
    return _weights(q, lam, regularizer, k, masked_classes(q))


def _weights(q: Tensor, lam: Number, regularizer: Regularizer, k: int | Tensor | None, masked: Tensor | None) -> Tensor:
    _check_count(k, q)
    classes = count_of(q, masked)
    if masked is not None:
        q = torch.where(masked, _LOWEST, q)
    if isinstance(k, Tensor):
        k = k.to(q.dtype)
    if isinstance(lam, Tensor):
        inside = (lam > 0) & lam.isfinite()
        limit = torch.where(lam == 0, _vertex(q, k), _uniform(q, classes, masked))
        within = _interior(q, torch.where(inside, lam, 1.0), regularizer, k, classes, masked)
        return torch.where(inside, within, limit)
    if lam == 0:
        return _vertex(q, k)
    if lam == math.inf:
        return _uniform(q, classes, masked)
    return _interior(q, lam, regularizer, k, classes, masked)


_LOWEST = -1e30
"""Stands for a gap of -∞: no weight ever falls to it."""


def _check_count(k: int | Tensor | None, q: Tensor) -> None:
    most = k
    if isinstance(k, Tensor):
        most = int(k.max()) if k.numel() and is_free_to_read(k) else None
    if isinstance(most, int) and most > q.shape[-1]:
        raise UserError(f"k must be an integer in [1, {q.shape[-1]}], the number of classes, got {most}")


def _uniform(q: Tensor, classes: Number, masked: Tensor | None) -> Tensor:
    """λ = ∞."""
    uniform = torch.zeros_like(q) + 1 / classes
    return uniform if masked is None else torch.where(masked, 0.0, uniform)


def _vertex(q: Tensor, k: int | Tensor | None) -> Tensor:
    """λ = 0: all weight on the maximum (shared among ties), or 1/k on each of the k largest that are positive."""
    if k is None:
        best = (q == q.amax(-1, keepdim=True)).to(q.dtype)
        return best / best.sum(-1, keepdim=True)
    largest, order = _largest(q, k)
    chosen = (torch.arange(largest.shape[-1], device=q.device) < k) & (largest > 0)
    return torch.zeros_like(q).scatter(-1, order, chosen.to(q.dtype) / k)


def _interior(
    q: Tensor,
    lam: Number,
    regularizer: Regularizer,
    k: int | Tensor | None,
    classes: Number,
    masked: Tensor | None,
) -> Tensor:
    """0 < λ < ∞."""
    if regularizer == "quadratic":
        return _quadratic_weights(q, lam, k, classes, masked)
    return torch.softmax(q / lam, -1) if k is None else _capped_kl_weights(q, lam, k, classes)


def _largest(values: Tensor, k: int | Tensor) -> tuple[Tensor, Tensor]:
    """At least the k largest entries of each row in descending order, and where they are."""
    largest, order = values.topk(values.shape[-1] if isinstance(k, Tensor) else k, -1)
    return largest, order


def _capped_kl_weights(q: Tensor, lam: Number, k: int | Tensor, classes: Number) -> Tensor:
    """Theorem ldr-k-opt: the a-1 largest entries are at the cap 1/k, the others share what is left like a softmax."""
    x = q / lam
    log_classes = classes.log() if isinstance(classes, Tensor) else math.log(classes)
    with torch.no_grad():
        largest, order = _largest(x, k)
        rest = x.scatter(-1, order, -math.inf).logsumexp(-1, keepdim=True)
        tail = torch.cat([rest, largest.flip(-1)], -1).logcumsumexp(-1).flip(-1)[..., :-1]
        position = torch.arange(largest.shape[-1], device=q.device, dtype=q.dtype)
        log_p = largest + ((1 - position / k).clamp(min=0).log() - tail).clamp(max=-1 - log_classes)
        fits = log_p <= (-k.log() if isinstance(k, Tensor) else -math.log(k))
        count = (fits.cumsum(-1) == 0).sum(-1, keepdim=True).to(q.dtype)  # those before the first that fits
        at_cap = torch.zeros_like(x, dtype=torch.bool).scatter(-1, order, position < count)
        left = (1 - count / k).clamp(min=0)
        base = x.masked_fill(at_cap, -math.inf).amax(-1, keepdim=True)
    x = x - base  # small numbers where the weights are large
    log_total = x.masked_fill(at_cap, -math.inf).logsumexp(-1, keepdim=True)
    log_scale = torch.minimum(left.log() - log_total, base - 1 - log_classes)
    return torch.where(at_cap, 1 / k, (x.masked_fill(at_cap, 0.0) + log_scale).exp())


def _quadratic_weights(
    q: Tensor, lam: Number, k: int | Tensor | None, classes: Number, masked: Tensor | None
) -> Tensor:
    """The projection of ``u = 1/K + q/(2λ)`` onto Ω: ``clip(u - τ, 0, cap)``."""
    cap = 1.0 if k is None else 1 / k
    u = q / (2 * lam) + 1 / classes
    if masked is not None:  # as far down as no weight falls, and no farther: the sums below would lose their digits
        u = torch.where(masked, torch.where(masked, math.inf, u.detach()).amin(-1, keepdim=True) - 3, u)
    with torch.no_grad():
        top = u.amax(-1, keepdim=True)
        v = u - top
        # Σ clip(v - τ, 0, cap) is piecewise linear in τ: it gains slope at each v and loses it at each v - cap
        corners, order = torch.cat([v, v - cap], -1).sort(dim=-1, descending=True, stable=True)
        turn = torch.where(order < q.shape[-1], 1.0, -1.0).to(q.dtype)
        slope = turn.cumsum(-1)
        mass = (turn * corners).cumsum(-1) - slope * corners
        last = ((mass <= 1).sum(-1, keepdim=True) - 1).clamp(min=0)  # none where a gap is NaN
        tau = top + corners.gather(-1, last)
        if k is not None:
            tau = tau.clamp(min=0)  # Σp <= 1 is not binding
    u = u - tau  # small numbers where the weights are; what is left of τ comes from the mass still missing
    with torch.no_grad():
        over = (u.clamp(min=0).clamp(max=cap).sum(-1, keepdim=True) - 1) / slope.gather(-1, last).clamp(min=1)
        if k is not None:
            over = over.clamp(min=-tau)
        free = (u > over) & (u < over + cap)
        moving = free if k is None else free & (tau + over > 0)
        share = moving.to(q.dtype) / moving.sum(-1, keepdim=True).clamp(min=1)
    # τ moves with the mean of the free entries: that is its derivative
    u = u - over - (share * (u - u.detach())).sum(-1, keepdim=True)
    return torch.where(free, u, torch.where(u > 0, cap, torch.zeros_like(u)))
