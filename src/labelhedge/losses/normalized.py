"""Normalised cross entropy and its combinations with an active or asymmetric partner (Ma et al., 2020)."""

from __future__ import annotations

from typing import Any, Unpack

import torch
from torch import Tensor

from labelhedge.losses._closed_form import ClosedForm
from labelhedge.losses._formulas import log_softmax, take
from labelhedge.losses._loss import Loss
from labelhedge.losses._options import POSITIVE, Interval, Normalize, Number, Options
from labelhedge.losses._spec import LossSpec, one_by_one
from labelhedge.losses.bounded import AGCELoss, AULLoss, agce_and_slope, aul_and_slope
from labelhedge.losses.probability import LOG_1E_4, NEGATIVE, RCELoss, rce_and_slope

__all__ = ["NCEAGCELoss", "NCEAULLoss", "NCELoss", "NCERCELoss"]

_WEIGHT = Interval("[0, inf)")
_GRID = one_by_one(alpha=(0.1, 5.0, 9.9), beta=(9.9, 5.0, 0.1))


def _nce(log_p: Any, total: Any, params: Any) -> Any:
    value, slope = log_p / total, 1.0 / total
    return value, slope, -value * slope


def _nce_and(log_p: Any, total: Any, alpha: Any, beta: Any, value: Any, slope: Any) -> Any:
    """α·NCE + β·a loss g(log p_y)."""
    nce, share = log_p / total, alpha / total
    return alpha * nce + beta * value, share + beta * slope, -nce * share


def _nce_rce(log_p: Any, total: Any, params: Any) -> Any:
    value, slope = rce_and_slope(log_p, params[2])
    return _nce_and(log_p, total, params[0], params[1], value, slope)


def _nce_agce(log_p: Any, total: Any, params: Any) -> Any:
    value, slope = agce_and_slope(log_p, params[2], params[3])
    return _nce_and(log_p, total, params[0], params[1], value, slope)


def _nce_aul(log_p: Any, total: Any, params: Any) -> Any:
    value, slope = aul_and_slope(log_p, params[2], params[3])
    return _nce_and(log_p, total, params[0], params[1], value, slope)


class NCELoss(Loss):
    """Normalised cross entropy, ``log p_y / Σ_k log p_k`` (Ma et al., 2020). Symmetric.

    Args:
        weight: ``(K,)``, how much each class counts; None: all the same.
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
        >>> NCELoss()(torch.zeros(1, 4), torch.tensor([0]))
        tensor(0.2500)
    """

    spec = LossSpec(
        "nce",
        "log p_y / Σ_k log p_k",
        soft_targets=True,
        closed_form=ClosedForm(_nce, needs="sum of log p"),
        bounded=True,
        symmetric_at={},
        consistency="top 1",
        reference="Ma et al. 2020",
    )

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        normalize: Normalize = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(weight, normalize=normalize, **options)

    @staticmethod
    def formula(logits: Tensor, target: Tensor | None) -> Tensor:
        """``log p_y / Σ_k log p_k``, over the classes that are not masked."""
        log_p = log_softmax(logits)
        return take(log_p, target) / torch.where(log_p == -torch.inf, 0.0, log_p).sum(-1, keepdim=True)


class NCERCELoss(Loss):
    """``α·NCE + β·RCE``, normalised cross entropy with :class:`RCELoss` (Ma et al., 2020).

    Args:
        weight: ``(K,)``, how much each class counts; None: all the same.
        alpha: α in [0, ∞), the weight of :class:`NCELoss`, a number or a tensor that broadcasts against the target.
        beta: β in [0, ∞), the weight of :class:`RCELoss`, a number or a tensor that broadcasts against the target.
        A: What stands for log 0, in (-∞, 0), a number or a tensor that broadcasts against the target; log 1e-4 by
            default.
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
        >>> NCERCELoss(alpha=1.0, beta=1.0, A=-4.0)(torch.zeros(1, 4), torch.tensor([0]))
        tensor(3.2500)
    """

    spec = LossSpec(
        "nce+rce",
        "α·NCE + β·RCE",
        domains={"alpha": _WEIGHT, "beta": _WEIGHT, "A": NEGATIVE},
        grid=_GRID,
        soft_targets=True,
        closed_form=ClosedForm(_nce_rce, ("alpha", "beta", "A"), needs="sum of log p"),
        bounded=True,
        symmetric_at={},
        reference="Ma et al. 2020",
    )
    alpha: Number
    beta: Number
    A: Number

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        alpha: Number = 5.0,
        beta: Number = 5.0,
        A: Number = LOG_1E_4,
        normalize: Normalize = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(weight, alpha=alpha, beta=beta, A=A, normalize=normalize, **options)

    @staticmethod
    def formula(logits: Tensor, target: Tensor | None, alpha: Number, beta: Number, A: Number) -> Tensor:
        """``α·NCE + β·RCE``."""
        return alpha * NCELoss.formula(logits, target) + beta * RCELoss.formula(logits, target, A=A)


class NCEAGCELoss(Loss):
    """``α·NCE + β·AGCE``, normalised cross entropy with :class:`AGCELoss` (Zhou et al., 2021).

    Args:
        weight: ``(K,)``, how much each class counts; None: all the same.
        alpha: α in [0, ∞), the weight of :class:`NCELoss`, a number or a tensor that broadcasts against the target.
        beta: β in [0, ∞), the weight of :class:`AGCELoss`, a number or a tensor that broadcasts against the target.
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
        >>> NCEAGCELoss(alpha=1.0, beta=1.0, a=1.0, q=0.5)(torch.zeros(1, 4), torch.tensor([0]))
        tensor(0.8424)
    """

    spec = LossSpec(
        "nce+agce",
        "α·NCE + β·AGCE",
        domains={"alpha": _WEIGHT, "beta": _WEIGHT, "a": POSITIVE, "q": POSITIVE},
        grid=_GRID,
        soft_targets=True,
        closed_form=ClosedForm(_nce_agce, ("alpha", "beta", "a", "q"), needs="sum of log p"),
        bounded=True,
        symmetric_at={"beta": 0.0},
        reference="Zhou et al. 2021",
    )
    alpha: Number
    beta: Number
    a: Number
    q: Number

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        alpha: Number = 5.0,
        beta: Number = 5.0,
        a: Number = 3.0,
        q: Number = 1.5,
        normalize: Normalize = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(weight, alpha=alpha, beta=beta, a=a, q=q, normalize=normalize, **options)

    @staticmethod
    def formula(logits: Tensor, target: Tensor | None, alpha: Number, beta: Number, a: Number, q: Number) -> Tensor:
        """``α·NCE + β·AGCE``."""
        return alpha * NCELoss.formula(logits, target) + beta * AGCELoss.formula(logits, target, a=a, q=q)


class NCEAULLoss(Loss):
    """``α·NCE + β·AUL``, normalised cross entropy with :class:`AULLoss` (Zhou et al., 2021).

    Args:
        weight: ``(K,)``, how much each class counts; None: all the same.
        alpha: α in [0, ∞), the weight of :class:`NCELoss`, a number or a tensor that broadcasts against the target.
        beta: β in [0, ∞), the weight of :class:`AULLoss`, a number or a tensor that broadcasts against the target.
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
        >>> NCEAULLoss(alpha=1.0, beta=1.0, a=2.0, q=0.5)(torch.zeros(1, 4), torch.tensor([0]))
        tensor(0.8958)
    """

    spec = LossSpec(
        "nce+aul",
        "α·NCE + β·AUL",
        domains={"alpha": _WEIGHT, "beta": _WEIGHT, "a": Interval("(1, inf)"), "q": POSITIVE},
        grid=_GRID,
        soft_targets=True,
        closed_form=ClosedForm(_nce_aul, ("alpha", "beta", "a", "q"), needs="sum of log p"),
        bounded=True,
        symmetric_at={"beta": 0.0},
        reference="Zhou et al. 2021",
    )
    alpha: Number
    beta: Number
    a: Number
    q: Number

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        alpha: Number = 5.0,
        beta: Number = 5.0,
        a: Number = 6.0,
        q: Number = 1.5,
        normalize: Normalize = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(weight, alpha=alpha, beta=beta, a=a, q=q, normalize=normalize, **options)

    @staticmethod
    def formula(logits: Tensor, target: Tensor | None, alpha: Number, beta: Number, a: Number, q: Number) -> Tensor:
        """``α·NCE + β·AUL``."""
        return alpha * NCELoss.formula(logits, target) + beta * AULLoss.formula(logits, target, a=a, q=q)
