"""Bounded losses of the softmax probabilities: Jensen-Shannon, robust log loss, and the asymmetric AGCE and AUL.

Like those of ``probability.py`` they are written in ``log p``, and class probabilities give the expected loss.
"""

from __future__ import annotations

import math
from typing import Any, Unpack

import torch
from torch import Tensor

from labelhedge.losses._closed_form import ClosedForm
from labelhedge.losses._formulas import count_of, log_softmax, masked_classes, take
from labelhedge.losses._loss import Loss
from labelhedge.losses._math import exp, expm1, log1p, power
from labelhedge.losses._options import POSITIVE, Interval, Normalize, Number, Options
from labelhedge.losses._spec import LossSpec, one_by_one

__all__ = ["AGCELoss", "AULLoss", "JSLoss", "RLLLoss"]


def _js(log_p: Any, params: Any) -> Any:
    pi, p, minus_others = params[0], exp(log_p), expm1(log_p)
    log_rest = log1p(-pi)
    log_m = log1p((1.0 - pi) * minus_others)
    log_ratio = log_p - log_m
    share = -1.0 / log_rest  # (1-π)/Z
    value = p * log_ratio * share - minus_others - log_m * (pi / (1.0 - pi) * share)
    return value, p * (log_ratio + log_rest) * share


def _rll_terms(p: Any, q: Any, params: Any) -> Any:
    return log1p(p / params[0]), p / (params[0] + p)


def _rll(log_p: Any, terms: Any, psis: Any, classes: Any, params: Any) -> Any:
    p, alpha, others = exp(log_p), params[0], classes - 1.0
    share = p / (alpha + p)
    average = (psis - classes * share) / others
    return terms / others - log1p(p / alpha), -average, 1.0 / others, -share * classes / others


def agce_and_slope(log_p: Any, a: Any, q: Any) -> Any:
    """AGCE and its derivative in ``log p``."""
    exponent = q * log1p(expm1(log_p) / (a + 1.0))
    p, whole = exp(log_p), -power(a + 1.0, q)
    return expm1(exponent) * (whole / q), exp(exponent) * p * whole / (a + p)


def _agce(log_p: Any, params: Any) -> Any:
    return agce_and_slope(log_p, params[0], params[1])


def aul_and_slope(log_p: Any, a: Any, q: Any) -> Any:
    """AUL and its derivative in ``log p``."""
    minus_others = expm1(log_p)
    exponent = q * log1p(minus_others / (1.0 - a))
    whole = power(a - 1.0, q)
    return expm1(exponent) * (whole / q), exp(exponent) * exp(log_p) * whole / (minus_others + (1.0 - a))


def _aul(log_p: Any, params: Any) -> Any:
    return aul_and_slope(log_p, params[0], params[1])


class JSLoss(Loss):
    """Weighted Jensen-Shannon divergence of ``e_y`` and ``p`` (Englesson and Azizpour, 2021).

    ``(π·KL(e_y, m) + (1-π)·KL(p, m)) / Z`` with ``m = π e_y + (1-π) p`` and ``Z = -(1-π) log(1-π)``. Cross entropy as
    π -> 0; half of :class:`MAELoss`, and symmetric, only in the limit π -> 1.

    Args:
        weight: ``(K,)``, how much each class counts; None: all the same.
        pi1: π in (0, 1), a number or a tensor that broadcasts against the target.
        normalize: What is done to the logits f first. None: nothing; ``"l1"``: divided by ``‖f‖₁/K``; ``"softplus"``:
            the same after a softplus.
        **options: ``ignore_index``, the target that counts for nothing (-100); ``reduction``, ``"none"``, ``"mean"``
            (the default) or ``"sum"``; ``temperature``, which divides the logits after the normaliser (1);
            ``class_dim``, where the classes are (None: PyTorch's rule; -1: the last dimension); ``backend``, ``"auto"``
            (fused kernels where they serve, the default), ``"torch"`` or ``"triton"``. More in
            :class:`labelhedge.losses.Options`.

    Shape:
        Logits ``(N, K)``, ``(K,)``, ``(N, K, d1, ...)`` or, with ``class_dim=-1``, ``(..., K)``. The target holds class
        indices in [0, K), in the shape of the logits without the dimension of the classes, or class probabilities in
        the shape of the logits. The loss is a number, or with ``reduction="none"`` one per sample; in float32
        for half-precision logits.

    Example:
        >>> JSLoss()(torch.zeros(1, 4), torch.tensor([0]))
        tensor(1.0976)
    """

    spec = LossSpec(
        "js",
        "(π·KL(e_y, m) + (1-π)·KL(p, m))/Z",
        domains={"pi1": Interval("(0, 1)")},
        grid=one_by_one(pi1=(0.1, 0.5, 0.9)),
        soft_targets=True,
        closed_form=ClosedForm(_js, ("pi1",)),
        bounded=True,
        reference="Englesson and Azizpour 2021",
    )
    pi1: Number

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        pi1: Number = 0.5,
        normalize: Normalize = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(weight, pi1=pi1, normalize=normalize, **options)

    @staticmethod
    def formula(logits: Tensor, target: Tensor | None, pi1: Number) -> Tensor:
        """The divergence; off the label ``p_k/m_k = 1/(1-π)``, so that part of KL(p, m) is ``-(1 - p_y) log(1-π)``."""
        log_p_y = take(log_softmax(logits), target)
        rest = 1 - pi1
        log_rest = torch.log1p(-pi1) if isinstance(pi1, Tensor) else math.log1p(-pi1)
        minus_others = torch.expm1(log_p_y)
        log_m_y = torch.log1p(rest * minus_others)
        kl_p = minus_others * log_rest + log_p_y.exp() * (log_p_y - log_m_y)
        return (rest * kl_p - pi1 * log_m_y) / (-rest * log_rest)


class RLLLoss(Loss):
    """Robust log loss, ``-log(α + p_y) + 1/(K-1) Σ_{i≠y} log(α + p_i)`` (Patel and Sastry, 2021). Symmetric.

    Args:
        weight: ``(K,)``, how much each class counts; None: all the same.
        alpha: α in (0, ∞), a number or a tensor that broadcasts against the target.
        normalize: What is done to the logits f first. None: nothing; ``"l1"``: divided by ``‖f‖₁/K``; ``"softplus"``:
            the same after a softplus.
        **options: ``ignore_index``, the target that counts for nothing (-100); ``reduction``, ``"none"``, ``"mean"``
            (the default) or ``"sum"``; ``temperature``, which divides the logits after the normaliser (1);
            ``class_dim``, where the classes are (None: PyTorch's rule; -1: the last dimension); ``backend``, ``"auto"``
            (fused kernels where they serve, the default), ``"torch"`` or ``"triton"``. More in
            :class:`labelhedge.losses.Options`.

    Shape:
        Logits ``(N, K)``, ``(K,)``, ``(N, K, d1, ...)`` or, with ``class_dim=-1``, ``(..., K)``. The target holds class
        indices in [0, K), in the shape of the logits without the dimension of the classes, or class probabilities in
        the shape of the logits. The loss is a number, or with ``reduction="none"`` one per sample; in float32
        for half-precision logits.

    Example:
        >>> RLLLoss()(torch.tensor([[2.0, 0.0]]), torch.tensor([0]))
        tensor(-0.5191)
    """

    spec = LossSpec(
        "rll",
        "-log(α + p_y) + 1/(K-1) Σ_{i≠y} log(α + p_i)",
        domains={"alpha": POSITIVE},
        grid=one_by_one(alpha=(0.1, 1.0, 10.0)),
        soft_targets=True,
        closed_form=ClosedForm(_rll, ("alpha",), needs="terms", terms=_rll_terms),
        nonnegative=False,
        bounded=True,
        symmetric_at={},
        consistency="none",
        reference="Patel and Sastry 2021",
    )
    alpha: Number

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        alpha: Number = 1.0,
        normalize: Normalize = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(weight, alpha=alpha, normalize=normalize, **options)

    @staticmethod
    def formula(logits: Tensor, target: Tensor | None, alpha: Number) -> Tensor:
        """With ``log(1 + p_i/α)``, since ``log α`` cancels between the two parts."""
        terms = torch.log1p(log_softmax(logits).exp() / alpha)
        others = count_of(logits, masked_classes(logits)) - 1
        return (terms.sum(-1, keepdim=True) - (others + 1) * take(terms, target)) / others


class AGCELoss(Loss):
    """Asymmetric generalised cross entropy, ``((a+1)^q - (a+p_y)^q)/q`` (Zhou et al., 2021).

    Args:
        weight: ``(K,)``, how much each class counts; None: all the same.
        a: In (0, ∞), a number or a tensor that broadcasts against the target.
        q: In (0, ∞), a number or a tensor that broadcasts against the target.
        normalize: What is done to the logits f first. None: nothing; ``"l1"``: divided by ``‖f‖₁/K``; ``"softplus"``:
            the same after a softplus.
        **options: ``ignore_index``, the target that counts for nothing (-100); ``reduction``, ``"none"``, ``"mean"``
            (the default) or ``"sum"``; ``temperature``, which divides the logits after the normaliser (1);
            ``class_dim``, where the classes are (None: PyTorch's rule; -1: the last dimension); ``backend``, ``"auto"``
            (fused kernels where they serve, the default), ``"torch"`` or ``"triton"``. More in
            :class:`labelhedge.losses.Options`.

    Shape:
        Logits ``(N, K)``, ``(K,)``, ``(N, K, d1, ...)`` or, with ``class_dim=-1``, ``(..., K)``. The target holds class
        indices in [0, K), in the shape of the logits without the dimension of the classes, or class probabilities in
        the shape of the logits. The loss is a number, or with ``reduction="none"`` one per sample; in float32
        for half-precision logits.

    Example:
        >>> AGCELoss(a=1.0, q=1.0)(torch.zeros(1, 4), torch.tensor([0]))
        tensor(0.7500)
    """

    spec = LossSpec(
        "agce",
        "((a+1)^q - (a+p_y)^q)/q",
        domains={"a": POSITIVE, "q": POSITIVE},
        soft_targets=True,
        closed_form=ClosedForm(_agce, ("a", "q")),
        bounded=True,
        consistency="top 1",
        reference="Zhou et al. 2021",
    )
    a: Number
    q: Number

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        a: Number = 3.0,
        q: Number = 1.5,
        normalize: Normalize = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(weight, a=a, q=q, normalize=normalize, **options)

    @staticmethod
    def formula(logits: Tensor, target: Tensor | None, a: Number, q: Number) -> Tensor:
        """``-(a+1)^q·(((a+p_y)/(a+1))^q - 1)/q``."""
        log_ratio = torch.log1p(torch.expm1(take(log_softmax(logits), target)) / (a + 1))
        return -((a + 1) ** q) * torch.expm1(q * log_ratio) / q


class AULLoss(Loss):
    """Asymmetric unhinged loss, ``((a-p_y)^q - (a-1)^q)/q`` (Zhou et al., 2021).

    Args:
        weight: ``(K,)``, how much each class counts; None: all the same.
        a: In (1, ∞), a number or a tensor that broadcasts against the target.
        q: In (0, ∞), a number or a tensor that broadcasts against the target.
        normalize: What is done to the logits f first. None: nothing; ``"l1"``: divided by ``‖f‖₁/K``; ``"softplus"``:
            the same after a softplus.
        **options: ``ignore_index``, the target that counts for nothing (-100); ``reduction``, ``"none"``, ``"mean"``
            (the default) or ``"sum"``; ``temperature``, which divides the logits after the normaliser (1);
            ``class_dim``, where the classes are (None: PyTorch's rule; -1: the last dimension); ``backend``, ``"auto"``
            (fused kernels where they serve, the default), ``"torch"`` or ``"triton"``. More in
            :class:`labelhedge.losses.Options`.

    Shape:
        Logits ``(N, K)``, ``(K,)``, ``(N, K, d1, ...)`` or, with ``class_dim=-1``, ``(..., K)``. The target holds class
        indices in [0, K), in the shape of the logits without the dimension of the classes, or class probabilities in
        the shape of the logits. The loss is a number, or with ``reduction="none"`` one per sample; in float32
        for half-precision logits.

    Example:
        >>> AULLoss(a=2.0, q=1.0)(torch.zeros(1, 4), torch.tensor([0]))
        tensor(0.7500)
    """

    spec = LossSpec(
        "aul",
        "((a-p_y)^q - (a-1)^q)/q",
        domains={"a": Interval("(1, inf)"), "q": POSITIVE},
        soft_targets=True,
        closed_form=ClosedForm(_aul, ("a", "q")),
        bounded=True,
        consistency="top 1",
        reference="Zhou et al. 2021",
    )
    a: Number
    q: Number

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        a: Number = 6.0,
        q: Number = 1.5,
        normalize: Normalize = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(weight, a=a, q=q, normalize=normalize, **options)

    @staticmethod
    def formula(logits: Tensor, target: Tensor | None, a: Number, q: Number) -> Tensor:
        """``(a-1)^q·(((a-p_y)/(a-1))^q - 1)/q``."""
        log_ratio = torch.log1p(-torch.expm1(take(log_softmax(logits), target)) / (a - 1))
        return (a - 1) ** q * torch.expm1(q * log_ratio) / q
