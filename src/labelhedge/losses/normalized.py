"""Normalised cross entropy and its combinations with an active or asymmetric partner (Ma et al., 2020)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Unpack

from torch import Tensor

from labelhedge.losses._apply import Common, Number, apply, take
from labelhedge.losses._module import Loss
from labelhedge.losses._spec import Interval, LossSpec, one_by_one, register
from labelhedge.losses.bounded import AGCE, AUL, _agce, _aul
from labelhedge.losses.probability import LOG_1E_4, RCE, _rce, of_log_p

_WEIGHT = Interval("[0, inf)")


def nce(logits: Tensor, target: Tensor, **common: Unpack[Common]) -> Tensor:
    """Normalised cross entropy, ``log p_y / Σ_k log p_k`` (Ma et al., 2020). Symmetric.

    Args and result as in :func:`ce`; class probabilities give the expected loss.

    Example:
        >>> nce(torch.zeros(1, 4), torch.tensor([0]))
        tensor(0.2500)
    """
    return apply(NCE, logits, target, common)


def _nce(log_p: Tensor, target: Tensor | None) -> Tensor:
    return take(log_p, target) / log_p.sum(-1, keepdim=True)


def _nce_plus(partner: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The formula ``α·NCE + β·partner``."""

    def combined(log_p: Tensor, target: Tensor | None, alpha: Number, beta: Number, **params: Number) -> Tensor:
        return alpha * _nce(log_p, target) + beta * partner(log_p, target, **params)

    return combined


def nce_rce(
    logits: Tensor,
    target: Tensor,
    *,
    alpha: Number = 5.0,
    beta: Number = 5.0,
    A: Number = LOG_1E_4,
    **common: Unpack[Common],
) -> Tensor:
    """``α·NCE + β·RCE`` (Ma et al., 2020).

    Args:
        logits: As in :func:`ce`.
        target: As in :func:`ce`.
        alpha: Weight of :func:`nce`, at least 0.
        beta: Weight of :func:`rce`, at least 0.
        A: As in :func:`rce`.
        **common: See :class:`labelhedge.losses.Common`.

    Example:
        >>> nce_rce(torch.zeros(1, 4), torch.tensor([0]), alpha=1.0, beta=1.0, A=-4.0)
        tensor(3.2500)
    """
    return apply(NCE_RCE, logits, target, common, alpha=alpha, beta=beta, A=A)


def nce_agce(
    logits: Tensor,
    target: Tensor,
    *,
    alpha: Number = 5.0,
    beta: Number = 5.0,
    a: Number = 3.0,
    q: Number = 1.5,
    **common: Unpack[Common],
) -> Tensor:
    """``α·NCE + β·AGCE`` (Zhou et al., 2021).

    Args:
        logits: As in :func:`ce`.
        target: As in :func:`ce`.
        alpha: Weight of :func:`nce`, at least 0.
        beta: Weight of :func:`agce`, at least 0.
        a: As in :func:`agce`.
        q: As in :func:`agce`.
        **common: See :class:`labelhedge.losses.Common`.

    Example:
        >>> nce_agce(torch.zeros(1, 4), torch.tensor([0]), alpha=1.0, beta=1.0, a=1.0, q=1.0)
        tensor(1.)
    """
    return apply(NCE_AGCE, logits, target, common, alpha=alpha, beta=beta, a=a, q=q)


def nce_aul(
    logits: Tensor,
    target: Tensor,
    *,
    alpha: Number = 5.0,
    beta: Number = 5.0,
    a: Number = 6.0,
    q: Number = 1.5,
    **common: Unpack[Common],
) -> Tensor:
    """``α·NCE + β·AUL`` (Zhou et al., 2021).

    Args:
        logits: As in :func:`ce`.
        target: As in :func:`ce`.
        alpha: Weight of :func:`nce`, at least 0.
        beta: Weight of :func:`aul`, at least 0.
        a: As in :func:`aul`.
        q: As in :func:`aul`.
        **common: See :class:`labelhedge.losses.Common`.

    Example:
        >>> nce_aul(torch.zeros(1, 4), torch.tensor([0]), alpha=1.0, beta=1.0, a=2.0, q=1.0)
        tensor(1.)
    """
    return apply(NCE_AUL, logits, target, common, alpha=alpha, beta=beta, a=a, q=q)


class NCELoss(Loss):
    """Module form of :func:`nce`."""

    function = staticmethod(nce)


class NCERCELoss(Loss):
    """Module form of :func:`nce_rce`."""

    function = staticmethod(nce_rce)


class NCEAGCELoss(Loss):
    """Module form of :func:`nce_agce`."""

    function = staticmethod(nce_agce)


class NCEAULLoss(Loss):
    """Module form of :func:`nce_aul`."""

    function = staticmethod(nce_aul)


NCE = register(
    LossSpec(
        "nce",
        "log p_y / Σ_k log p_k",
        of_log_p(_nce),
        nce,
        NCELoss,
        soft_targets=True,
        bounded=True,
        symmetric_at={},
        consistency="top 1",
        reference="Ma et al. 2020",
    )
)


def _combination(
    partner: LossSpec,
    partner_formula: Callable[..., Tensor],
    function: Callable[..., Tensor],
    module: type[Loss],
    symmetric_at: dict[str, float] | None,
    reference: str,
) -> LossSpec:
    return register(
        LossSpec(
            f"nce+{partner.id}",
            f"α·NCE + β·{partner.id.upper()}",
            of_log_p(_nce_plus(partner_formula)),
            function,
            module,
            domains={"alpha": _WEIGHT, "beta": _WEIGHT, **partner.domains},
            grid=one_by_one(alpha=(0.1, 5.0, 9.9), beta=(9.9, 5.0, 0.1)),
            soft_targets=True,
            bounded=True,
            symmetric_at=symmetric_at,
            reference=reference,
        )
    )


NCE_RCE = _combination(RCE, _rce, nce_rce, NCERCELoss, {}, "Ma et al. 2020")
NCE_AGCE = _combination(AGCE, _agce, nce_agce, NCEAGCELoss, {"beta": 0.0}, "Zhou et al. 2021")
NCE_AUL = _combination(AUL, _aul, nce_aul, NCEAULLoss, {"beta": 0.0}, "Zhou et al. 2021")
