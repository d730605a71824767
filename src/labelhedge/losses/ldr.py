"""LDR-KL: a smooth maximum of the gaps, between Crammer-Singer (λ = 0) and the mean gap (λ = ∞)."""

from __future__ import annotations

import math
from typing import Unpack

import torch
from torch import Tensor

from labelhedge.losses import _cpu as cpu
from labelhedge.losses._batch import Batch
from labelhedge.losses._closed_form import ClosedForm
from labelhedge.losses._formulas import count_of, divided, gaps, masked_classes
from labelhedge.losses._loss import Loss, Rows
from labelhedge.losses._options import Interval, Normalize, Number, Options
from labelhedge.losses._spec import LossSpec, one_by_one
from labelhedge.losses.margin import MARGIN

__all__ = ["LDRKLLoss"]


def log_mean_exp(q: Tensor, lam: Number) -> Tensor:
    """``λ log mean_k exp(q_k/λ)`` for λ in [0, ∞], over the classes that are not masked."""
    if not isinstance(lam, Tensor):
        if lam == 0:
            return q.amax(-1, keepdim=True)
        return _mean(q) if lam == math.inf else log_mean_exp_inside(q, lam)
    inside = (lam > 0) & lam.isfinite()
    value = log_mean_exp_inside(q, torch.where(inside, lam, 1.0))
    limit = torch.where(lam == 0, q.amax(-1, keepdim=True), _mean(q))
    return torch.where(inside, value, limit)


def log_mean_exp_inside(q: Tensor, lam: Number) -> Tensor:
    """The same for λ in (0, ∞)."""
    masked = masked_classes(q)
    count = count_of(q, masked)
    top = q.detach().amax(-1, keepdim=True)
    x = divided(q - top, lam)
    # for small x the mean of exp(x) is 1 minus a little, and that little is the answer: keep it with expm1 and log1p
    less_one = x.expm1() if masked is None else torch.where(masked, 0.0, x.expm1())
    mean_less_one = less_one.sum(-1, keepdim=True) / count
    far = (x.exp().sum(-1, keepdim=True) / count).log()
    return top + lam * torch.where(mean_less_one > -0.5, mean_less_one.clamp(min=-0.5).log1p(), far)


def _mean(values: Tensor) -> Tensor:
    """Over the classes that are not masked."""
    masked = masked_classes(values)
    if masked is None:
        return values.mean(-1, keepdim=True)
    return torch.where(masked, 0.0, values).sum(-1, keepdim=True) / count_of(values, masked)


class LDRKLLoss(Loss):
    """LDR-KL on L1-normalised logits, ``λ log[(1/K) Σ_k exp(q_k/λ)]`` with ``q_k = f_k - f_y + c_y [k≠y]``.

    It is the worst case over label weights ``p`` of ``p·q - λ KL(p, 1/K)`` (equation 3 of Zhu et al., 2023); the
    weights are :func:`labelhedge.functional.ldr_weights`. The factor 1/K makes it negative, down to ``-λ log K``, where
    the label leads clearly: that is no error. With λ = 1, no margin and no normaliser it is cross entropy - log K.

    By default the logits are normalised, so that their scale does not matter: pass ``normalize=None`` to keep it.

    Args:
        weight: ``(K,)``, how much each class counts; None: all the same.
        lam: λ in [0, ∞], a number or a tensor that broadcasts against the target. 0 is :class:`CSLoss`, ∞ the mean gap.
        margin: c in [0, ∞): a number, a tensor of K values c_y, or a tensor of two or more dimensions (or none) that
            broadcasts against the target.
        normalize: What is done to the logits f first. ``"l1"``, the default, as in the paper's experiments: divided by
            ``‖f‖₁/K``; ``"softplus"``: the same after a softplus; None: nothing.
        **options: ``ignore_index``, the target that counts for nothing (-100); ``reduction``, ``"none"``, ``"mean"``
            (the default) or ``"sum"``; ``temperature``, which divides the logits after the normaliser (1);
            ``class_dim``, where the classes are (None: PyTorch's rule; -1: the last dimension); ``backend``, ``"auto"``
            (fused kernels where they serve, the default), ``"torch"`` or ``"triton"``. More in
            :class:`labelhedge.losses.Options`.

    Shape:
        Logits ``(N, K)``, ``(K,)``, ``(N, K, d1, ...)`` or, with ``class_dim=-1``, ``(..., K)``. The target holds class
        indices in [0, K), in the shape of the logits without the dimension of the classes. The loss is a number, or
        with ``reduction="none"`` one per sample; in float32 for half-precision logits.

    Example:
        >>> LDRKLLoss(lam=math.inf, margin=0.0)(torch.tensor([[2.0, 0.0, -1.0]]), torch.tensor([0]))
        tensor(-1.6667)
    """

    spec = LossSpec(
        "ldr-kl",
        "λ log[(1/K) Σ_k exp(q_k/λ)]",
        domains={"lam": Interval("[0, inf]"), "margin": MARGIN},
        grid=one_by_one(lam=(0.1, 1.0, 10.0)),
        closed_form=ClosedForm(needs="smooth maximum"),
        nonnegative=False,
        symmetric_at={"lam": math.inf},
        consistency="all k (0 < λ < ∞, equal margins)",
        reference="Zhu et al. 2023",
    )
    lam: Number
    margin: Number

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        lam: Number = 1.0,
        margin: Number = 0.1,
        normalize: Normalize = "l1",
        **options: Unpack[Options],
    ) -> None:
        super().__init__(weight, lam=lam, margin=margin, normalize=normalize, **options)

    @staticmethod
    def formula(logits: Tensor, target: Tensor | None, lam: Number, margin: Number) -> Tensor:
        """A smooth maximum of the gaps."""
        assert target is not None
        return log_mean_exp(gaps(logits, target, margin), lam)

    @classmethod
    def of_batch(cls, batch: Batch, rows: Rows) -> tuple[Tensor, Rows]:
        """On a CPU in one go, where λ is not near its limits."""
        lam = batch.params["lam"]
        if not batch.for_kernels and cpu.serves_lambda(batch, lam, lam):
            return cpu.loss(batch, lam)[0], {}
        return super().of_batch(batch, rows)
