"""Losses of the softmax probability of the label, and of a few sums over the classes.

All are written in ``log p``, so that they stay exact where ``p`` is 0 or 1 to machine precision. Each accepts class
probabilities ``t`` as target; the loss is then its expectation over labels drawn from ``t``, ``Σ_k t_k ψ(f, k)``.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Unpack

import torch
from torch import Tensor

from labelhedge.losses._apply import Common, Number, apply, log_softmax, take
from labelhedge.losses._module import Loss
from labelhedge.losses._spec import Interval, LossSpec, one_by_one, register

_UNIT = Interval("[0, 1]")
LOG_1E_4 = math.log(1e-4)
"""What stands for log 0 in reverse cross entropy (Ma et al., 2020)."""


def of_log_p(formula: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A formula in ``log p`` as a formula in the logits."""

    @functools.wraps(formula)
    def of_logits(logits: Tensor, target: Tensor | None, **params: Number) -> Tensor:
        return formula(log_softmax(logits), target, **params)

    return of_logits


def ce(logits: Tensor, target: Tensor, **common: Unpack[Common]) -> Tensor:
    """Cross entropy, ``-log p_y``: the same numbers as :func:`torch.nn.functional.cross_entropy`.

    Args:
        logits: ``(N, K)``, ``(K,)``, ``(N, K, d1, ...)`` or, with ``class_dim=-1``, ``(..., K)``.
        target: Class indices, or class probabilities of the shape of the logits.
        **common: See :class:`labelhedge.losses.Common`.

    Returns:
        The loss reduced as asked: a scalar, or with ``reduction="none"`` the shape of the class indices. Computed and
        returned in float32 for half-precision logits.

    Example:
        >>> ce(torch.tensor([[2.0, 0.0]]), torch.tensor([0]))
        tensor(0.1269)
    """
    return apply(CE, logits, target, common)


def _ce(log_p: Tensor, target: Tensor | None) -> Tensor:
    return -take(log_p, target)


def mae(logits: Tensor, target: Tensor, **common: Unpack[Common]) -> Tensor:
    """Mean absolute error, ``‖e_y - p‖₁ = 2(1 - p_y)`` (Ghosh et al., 2017). Symmetric.

    Args and result as in :func:`ce`.

    Example:
        >>> mae(torch.zeros(1, 4), torch.tensor([0]))
        tensor(1.5000)
    """
    return apply(MAE, logits, target, common)


def _mae(log_p: Tensor, target: Tensor | None) -> Tensor:
    return -2 * torch.expm1(take(log_p, target))


def mse(logits: Tensor, target: Tensor, **common: Unpack[Common]) -> Tensor:
    """Squared error (Brier score), ``‖e_y - p‖² = 1 - 2 p_y + ‖p‖²`` (Ghosh et al., 2017).

    Args and result as in :func:`ce`.

    Example:
        >>> mse(torch.zeros(1, 4), torch.tensor([0]))
        tensor(0.7500)
    """
    return apply(MSE, logits, target, common)


def _mse(log_p: Tensor, target: Tensor | None) -> Tensor:
    p = log_p.exp()
    # (1 - p_y)² + the other squares: nothing cancels when p_y -> 1
    return torch.expm1(take(log_p, target)).square() + (p.square().sum(-1, keepdim=True) - take(p, target).square())


def gce(logits: Tensor, target: Tensor, *, q: Number = 0.7, **common: Unpack[Common]) -> Tensor:
    """Generalised cross entropy, ``(1 - p_y^q)/q`` (Zhang and Sabuncu, 2018): CE as q -> 0, half of MAE at q = 1.

    Args:
        logits: As in :func:`ce`.
        target: As in :func:`ce`.
        q: In [0, 1]; a number or a tensor that broadcasts against the class indices.
        **common: See :class:`labelhedge.losses.Common`.

    Example:
        >>> gce(torch.zeros(1, 4), torch.tensor([0]), q=1.0)
        tensor(0.7500)
    """
    return apply(GCE, logits, target, common, q=q)


def _gce(log_p: Tensor, target: Tensor | None, q: Number) -> Tensor:
    return box_cox(take(log_p, target), q)


def box_cox(log_p: Tensor, q: Number) -> Tensor:
    """``(1 - p^q)/q``; expm1 keeps it exact as q -> 0, and a q of 1e-19 is 0 in every precision."""
    q = q.clamp(min=1e-19) if isinstance(q, Tensor) else max(q, 1e-19)
    return -torch.expm1(q * log_p) / q


def sce(logits: Tensor, target: Tensor, *, alpha: Number = 0.5, A: Number = -4.0, **common: Unpack[Common]) -> Tensor:
    """Symmetric cross entropy, ``α·CE + (1 - α)·RCE`` (Wang et al., 2019), the paper's convex combination.

    Args:
        logits: As in :func:`ce`.
        target: As in :func:`ce`.
        alpha: Weight of CE, in [0, 1]. At 0 the loss is symmetric.
        A: What stands for log 0 in RCE, negative.
        **common: See :class:`labelhedge.losses.Common`.

    Example:
        >>> sce(torch.zeros(1, 4), torch.tensor([0]), alpha=0.0)
        tensor(3.)
    """
    return apply(SCE, logits, target, common, alpha=alpha, A=A)


def _sce(log_p: Tensor, target: Tensor | None, alpha: Number, A: Number) -> Tensor:
    log_p_y = take(log_p, target)
    return -alpha * log_p_y + (1 - alpha) * A * torch.expm1(log_p_y)


def rce(logits: Tensor, target: Tensor, *, A: Number = LOG_1E_4, **common: Unpack[Common]) -> Tensor:
    """Reverse cross entropy, ``-Σ_k p_k log e_y = -A (1 - p_y)``, with A in place of log 0 (Wang et al., 2019).

    Args:
        logits: As in :func:`ce`.
        target: As in :func:`ce`.
        A: Negative; log 1e-4 by default.
        **common: See :class:`labelhedge.losses.Common`.

    Example:
        >>> rce(torch.zeros(1, 4), torch.tensor([0]), A=-4.0)
        tensor(3.)
    """
    return apply(RCE, logits, target, common, A=A)


def _rce(log_p: Tensor, target: Tensor | None, A: Number) -> Tensor:
    return A * torch.expm1(take(log_p, target))


class CELoss(Loss):
    """Module form of :func:`ce`."""

    function = staticmethod(ce)


class MAELoss(Loss):
    """Module form of :func:`mae`."""

    function = staticmethod(mae)


class MSELoss(Loss):
    """Module form of :func:`mse`."""

    function = staticmethod(mse)


class GCELoss(Loss):
    """Module form of :func:`gce`."""

    function = staticmethod(gce)


class SCELoss(Loss):
    """Module form of :func:`sce`."""

    function = staticmethod(sce)


class RCELoss(Loss):
    """Module form of :func:`rce`."""

    function = staticmethod(rce)


CE = register(LossSpec("ce", "-log p_y", of_log_p(_ce), ce, CELoss, soft_targets=True, consistency="all k"))
MAE = register(
    LossSpec(
        "mae",
        "2(1 - p_y)",
        of_log_p(_mae),
        mae,
        MAELoss,
        soft_targets=True,
        bounded=True,
        symmetric_at={},
        consistency="top 1",
        reference="Ghosh et al. 2017",
    )
)
MSE = register(
    LossSpec(
        "mse",
        "1 - 2 p_y + ‖p‖²",
        of_log_p(_mse),
        mse,
        MSELoss,
        soft_targets=True,
        bounded=True,
        consistency="all k",
        reference="Ghosh et al. 2017",
    )
)
GCE = register(
    LossSpec(
        "gce",
        "(1 - p_y^q)/q",
        of_log_p(_gce),
        gce,
        GCELoss,
        domains={"q": _UNIT},
        grid=one_by_one(q=(0.05, 0.7, 0.95)),
        soft_targets=True,
        bounded=True,
        symmetric_at={"q": 1.0},
        consistency="all k (q < 1)",
        reference="Zhang and Sabuncu 2018",
    )
)
SCE = register(
    LossSpec(
        "sce",
        "α·CE + (1-α)·RCE",
        of_log_p(_sce),
        sce,
        SCELoss,
        domains={"alpha": _UNIT, "A": Interval("(-inf, 0)")},
        grid=one_by_one(alpha=(0.05, 0.5, 0.95)),
        soft_targets=True,
        symmetric_at={"alpha": 0.0},
        consistency="all k (α > 0)",
        reference="Wang et al. 2019",
    )
)
RCE = register(
    LossSpec(
        "rce",
        "-A(1 - p_y)",
        of_log_p(_rce),
        rce,
        RCELoss,
        domains={"A": Interval("(-inf, 0)")},
        soft_targets=True,
        bounded=True,
        symmetric_at={},
        consistency="top 1",
        reference="Wang et al. 2019",
    )
)
