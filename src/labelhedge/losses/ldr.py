"""LDR-KL: a smooth maximum of the gaps, between Crammer-Singer (λ = 0) and the mean gap (λ = ∞)."""

from __future__ import annotations

import math
from typing import Unpack

import torch
from torch import Tensor

from labelhedge.losses import _fused as fused
from labelhedge.losses import _one_visit as one_visit
from labelhedge.losses._apply import Batch, Normalize, Number, Shared, prepare, with_normalizer
from labelhedge.losses._module import Loss
from labelhedge.losses._spec import Interval, LossSpec, one_by_one, register
from labelhedge.losses.margin import MARGIN, gaps


def ldr_kl(
    logits: Tensor,
    target: Tensor,
    *,
    lam: Number = 1.0,
    margin: Number = 0.1,
    normalize: Normalize = "l1",
    **common: Unpack[Shared],
) -> Tensor:
    """LDR-KL, ``λ log[(1/K) Σ_k exp(q_k/λ)]`` with ``q_k = f_k - f_y + c_y [k≠y]`` (the paper's equation 3).

    It is the worst case over label weights ``p`` of ``p·q - λ KL(p, 1/K)``; the weights are
    :func:`ldr_weights`. The factor 1/K makes it negative, down to ``-λ log K``, where the label leads clearly: that
    is no error. With λ = 1, no margin and no normaliser it is CE - log K.

    Args:
        logits: As in :func:`ce`.
        target: Class indices. (Class probabilities have no natural reading.)
        lam: λ in [0, ∞], a number or a tensor that broadcasts against the target. 0 is :func:`cs`, ∞ the mean gap.
        margin: c, at least 0: a number, a tensor of K values c_y, or a tensor of two or more dimensions (or none)
            that broadcasts against the target.
        normalize: As for every loss, but ``"l1"`` by default, as in the paper's experiments.
        **common: See :class:`labelhedge.losses.Common`.

    Example:
        >>> ldr_kl(torch.tensor([[2.0, 0.0, -1.0]]), torch.tensor([0]), lam=math.inf, margin=0.0)
        tensor(-1.6667)
    """
    batch = prepare(LDR_KL, logits, target, with_normalizer(common, normalize), {"lam": lam, "margin": margin})
    if batch.fused:
        return fused.loss(LDR_KL, batch)[0]
    if one_visit.serves(batch, smallest=lam, largest=lam):
        return one_visit.loss(batch, lambda x, at, buffers: (at(batch.params["lam"]), 0.0), _values)[0]
    return batch.reduce(_values(batch, batch.params["lam"]))


def _values(batch: Batch, lam: Number) -> Tensor:
    return _ldr_kl(batch.scaled_logits(), batch.target, lam, batch.params["margin"])


def _ldr_kl(logits: Tensor, target: Tensor | None, lam: Number, margin: Number) -> Tensor:
    assert target is not None
    return smooth_maximum(gaps(logits, target, margin), lam)


def smooth_maximum(q: Tensor, lam: Number) -> Tensor:
    """``λ log mean_k exp(q_k/λ)`` over the last dimension, for λ in [0, ∞]."""
    if not isinstance(lam, Tensor):
        if lam == 0:
            return q.amax(-1, keepdim=True)
        if lam == math.inf:
            return q.mean(-1, keepdim=True)
        return _smooth_maximum(q, lam)
    inside = (lam > 0) & lam.isfinite()
    value = _smooth_maximum(q, torch.where(inside, lam, 1.0))
    limit = torch.where(lam == 0, q.amax(-1, keepdim=True), q.mean(-1, keepdim=True))
    return torch.where(inside, value, limit)


def _smooth_maximum(q: Tensor, lam: Number) -> Tensor:
    top = q.detach().amax(-1, keepdim=True)
    x = (q - top) / lam
    # for small x the mean of exp(x) is 1 minus a little, and that little is the answer: keep it with expm1 and log1p
    mean_less_one = x.expm1().mean(-1, keepdim=True)
    log_mean = torch.where(
        mean_less_one > -0.5, mean_less_one.clamp(min=-0.5).log1p(), x.exp().mean(-1, keepdim=True).log()
    )
    return top + lam * log_mean


class LDRKLLoss(Loss):
    """Module form of :func:`ldr_kl`."""

    function = staticmethod(ldr_kl)


LDR_KL = register(
    LossSpec(
        "ldr-kl",
        "λ log[(1/K) Σ_k exp(q_k/λ)]",
        _ldr_kl,
        ldr_kl,
        LDRKLLoss,
        domains={"lam": Interval("[0, inf]"), "margin": MARGIN},
        grid=one_by_one(lam=(0.1, 1.0, 10.0)),
        nonnegative=False,
        symmetric_at={"lam": math.inf},
        consistency="all k (0 < λ < ∞, equal margins)",
        reference="Zhu et al. 2023",
    )
)
