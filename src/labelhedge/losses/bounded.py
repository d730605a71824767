"""Bounded losses of the softmax probabilities: Jensen-Shannon, robust log loss, and the asymmetric AGCE and AUL.

Like those of ``probability.py`` they are written in ``log p``, and class probabilities give the expected loss.
"""

from __future__ import annotations

import math
from typing import Unpack

import torch
from torch import Tensor

from labelhedge.losses._apply import Common, Number, apply, take
from labelhedge.losses._module import Loss
from labelhedge.losses._spec import Interval, LossSpec, one_by_one, register
from labelhedge.losses.probability import of_log_p

_POSITIVE = Interval("(0, inf)")


def js(logits: Tensor, target: Tensor, *, pi1: Number = 0.5, **common: Unpack[Common]) -> Tensor:
    """Weighted Jensen-Shannon divergence of ``e_y`` and ``p`` (Englesson and Azizpour, 2021).

    ``(π·KL(e_y, m) + (1-π)·KL(p, m)) / Z`` with ``m = π e_y + (1-π) p`` and ``Z = -(1-π) log(1-π)``. CE as π -> 0; half
    of MAE, and symmetric, only in the limit π -> 1.

    Args:
        logits: As in :func:`ce`.
        target: As in :func:`ce`.
        pi1: π, in (0, 1).
        **common: See :class:`labelhedge.losses.Common`.

    Example:
        >>> js(torch.zeros(1, 4), torch.tensor([0]))
        tensor(1.0976)
    """
    return apply(JS, logits, target, common, pi1=pi1)


def _js(log_p: Tensor, target: Tensor | None, pi1: Number) -> Tensor:
    log_p_y = take(log_p, target)
    rest = 1 - pi1
    log_rest = torch.log1p(-pi1) if isinstance(pi1, Tensor) else math.log1p(-pi1)
    minus_others = torch.expm1(log_p_y)  # -(1 - p_y)
    log_m_y = torch.log1p(rest * minus_others)
    # off the label p_k/m_k = 1/(1-π), so that part of KL(p, m) is -(1 - p_y) log(1-π)
    kl_p = minus_others * log_rest + log_p_y.exp() * (log_p_y - log_m_y)
    return (rest * kl_p - pi1 * log_m_y) / (-rest * log_rest)


def rll(logits: Tensor, target: Tensor, *, alpha: Number = 1.0, **common: Unpack[Common]) -> Tensor:
    """Robust log loss, ``-log(α + p_y) + 1/(K-1) Σ_{i≠y} log(α + p_i)`` (Patel and Sastry, 2021). Symmetric.

    Args:
        logits: As in :func:`ce`.
        target: As in :func:`ce`.
        alpha: Positive.
        **common: See :class:`labelhedge.losses.Common`.

    Example:
        >>> rll(torch.zeros(1, 4), torch.tensor([0]))
        tensor(0.)
    """
    return apply(RLL, logits, target, common, alpha=alpha)


def _rll(log_p: Tensor, target: Tensor | None, alpha: Number) -> Tensor:
    terms = torch.log1p(log_p.exp() / alpha)  # log α cancels between the two parts
    others = log_p.shape[-1] - 1
    return (terms.sum(-1, keepdim=True) - (others + 1) * take(terms, target)) / others


def agce(logits: Tensor, target: Tensor, *, a: Number = 3.0, q: Number = 1.5, **common: Unpack[Common]) -> Tensor:
    """Asymmetric generalised cross entropy, ``((a+1)^q - (a+p_y)^q)/q`` (Zhou et al., 2021).

    Args:
        logits: As in :func:`ce`.
        target: As in :func:`ce`.
        a: Positive.
        q: Positive.
        **common: See :class:`labelhedge.losses.Common`.

    Example:
        >>> agce(torch.zeros(1, 4), torch.tensor([0]), a=1.0, q=1.0)
        tensor(0.7500)
    """
    return apply(AGCE, logits, target, common, a=a, q=q)


def _agce(log_p: Tensor, target: Tensor | None, a: Number, q: Number) -> Tensor:
    log_ratio = torch.log1p(torch.expm1(take(log_p, target)) / (a + 1))
    return -((a + 1) ** q) * torch.expm1(q * log_ratio) / q


def aul(logits: Tensor, target: Tensor, *, a: Number = 6.0, q: Number = 1.5, **common: Unpack[Common]) -> Tensor:
    """Asymmetric unhinged loss, ``((a-p_y)^q - (a-1)^q)/q`` (Zhou et al., 2021).

    Args:
        logits: As in :func:`ce`.
        target: As in :func:`ce`.
        a: Above 1.
        q: Positive.
        **common: See :class:`labelhedge.losses.Common`.

    Example:
        >>> aul(torch.zeros(1, 4), torch.tensor([0]), a=2.0, q=1.0)
        tensor(0.7500)
    """
    return apply(AUL, logits, target, common, a=a, q=q)


def _aul(log_p: Tensor, target: Tensor | None, a: Number, q: Number) -> Tensor:
    log_ratio = torch.log1p(-torch.expm1(take(log_p, target)) / (a - 1))
    return (a - 1) ** q * torch.expm1(q * log_ratio) / q


class JSLoss(Loss):
    """Module form of :func:`js`."""

    function = staticmethod(js)


class RLLLoss(Loss):
    """Module form of :func:`rll`."""

    function = staticmethod(rll)


class AGCELoss(Loss):
    """Module form of :func:`agce`."""

    function = staticmethod(agce)


class AULLoss(Loss):
    """Module form of :func:`aul`."""

    function = staticmethod(aul)


JS = register(
    LossSpec(
        "js",
        "(π·KL(e_y, m) + (1-π)·KL(p, m))/Z",
        of_log_p(_js),
        js,
        JSLoss,
        domains={"pi1": Interval("(0, 1)")},
        grid=one_by_one(pi1=(0.1, 0.5, 0.9)),
        soft_targets=True,
        bounded=True,
        reference="Englesson and Azizpour 2021",
    )
)
RLL = register(
    LossSpec(
        "rll",
        "-log(α + p_y) + 1/(K-1) Σ_{i≠y} log(α + p_i)",
        of_log_p(_rll),
        rll,
        RLLLoss,
        domains={"alpha": _POSITIVE},
        grid=one_by_one(alpha=(0.1, 1.0, 10.0)),
        soft_targets=True,
        nonnegative=False,
        bounded=True,
        symmetric_at={},
        consistency="none",
        reference="Patel and Sastry 2021",
    )
)
AGCE = register(
    LossSpec(
        "agce",
        "((a+1)^q - (a+p_y)^q)/q",
        of_log_p(_agce),
        agce,
        AGCELoss,
        domains={"a": _POSITIVE, "q": _POSITIVE},
        soft_targets=True,
        bounded=True,
        consistency="top 1",
        reference="Zhou et al. 2021",
    )
)
AUL = register(
    LossSpec(
        "aul",
        "((a-p_y)^q - (a-1)^q)/q",
        of_log_p(_aul),
        aul,
        AULLoss,
        domains={"a": Interval("(1, inf)"), "q": _POSITIVE},
        soft_targets=True,
        bounded=True,
        consistency="top 1",
        reference="Zhou et al. 2021",
    )
)
