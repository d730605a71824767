"""Losses of the softmax probability of the label, and of a few sums over the classes.

All are written in ``log p``, so that they stay exact where ``p`` is 0 or 1 to machine precision. Each accepts class
probabilities ``t`` as target; the loss is then its expectation over labels drawn from ``t``, ``Σ_k t_k ψ(f, k)``.
"""

from __future__ import annotations

import math
from typing import Any, Unpack

import torch
from torch import Tensor

from labelhedge.losses import _cpu as cpu
from labelhedge.losses._batch import Batch
from labelhedge.losses._closed_form import ClosedForm
from labelhedge.losses._formulas import log_softmax, take
from labelhedge.losses._loss import Loss, Rows
from labelhedge.losses._math import exp, expm1, maximum
from labelhedge.losses._options import Interval, Normalize, Number, Options
from labelhedge.losses._spec import LossSpec, one_by_one

__all__ = ["CELoss", "GCELoss", "MAELoss", "MSELoss", "RCELoss", "SCELoss"]

UNIT = Interval("[0, 1]")
NEGATIVE = Interval("(-inf, 0)")
LOG_1E_4 = math.log(1e-4)
"""What stands for log 0 in reverse cross entropy (Ma et al., 2020)."""


def _ce(log_p: Any, params: Any) -> Any:
    return -log_p, -1.0


def _mae(log_p: Any, params: Any) -> Any:
    return -2.0 * expm1(log_p), -2.0 * exp(log_p)


def _mse(log_p: Any, terms: Any, psis: Any, classes: Any, params: Any) -> Any:
    p, miss = exp(log_p), expm1(log_p)
    return miss * miss + terms, -2.0 * (terms + p * miss), 2.0, -2.0 * p


def _square(p: Any, q: Any, params: Any) -> Any:
    square = p * p
    return square, square


def box_cox_and_slope(log_p: Any, q: Any) -> Any:
    """``(1 - p^q)/q`` and its derivative in ``log p``; a q of 1e-19 is 0 in every precision."""
    q = maximum(q, 1e-19)
    scaled = q * log_p
    return expm1(scaled) * (-1.0 / q), -exp(scaled)


def _gce(log_p: Any, params: Any) -> Any:
    return box_cox_and_slope(log_p, params[0])


def _sce(log_p: Any, params: Any) -> Any:
    alpha, A = params[0], params[1]
    return -alpha * log_p + (1.0 - alpha) * A * expm1(log_p), -alpha + (1.0 - alpha) * A * exp(log_p)


def rce_and_slope(log_p: Any, A: Any) -> Any:
    """Reverse cross entropy and its derivative in ``log p``."""
    return A * expm1(log_p), A * exp(log_p)


def _rce(log_p: Any, params: Any) -> Any:
    return rce_and_slope(log_p, params[0])


def box_cox(log_p: Tensor, q: Number) -> Tensor:
    """``(1 - p^q)/q``; expm1 keeps it exact as q -> 0, and a q of 1e-19 is 0 in every precision."""
    q = q.clamp(min=1e-19) if isinstance(q, Tensor) else max(q, 1e-19)
    return -torch.expm1(q * log_p) / q


class CELoss(Loss):
    """Cross entropy, ``-log p_y``: the same numbers as ``torch.nn.CrossEntropyLoss``.

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
        >>> CELoss()(torch.tensor([[2.0, 0.0]]), torch.tensor([0]))
        tensor(0.1269)
    """

    spec = LossSpec(
        "ce",
        "-log p_y",
        soft_targets=True,
        closed_form=ClosedForm(_ce),
        min_classes=1,
        consistency="all k",
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
        """``-log p_y``."""
        return -take(log_softmax(logits), target)

    @staticmethod
    def _few_rows(batch: Batch) -> None:
        """Nothing, since torch's own function is quicker."""

    @classmethod
    def of_batch(cls, batch: Batch, rows: Rows) -> tuple[Tensor, Rows]:
        """On a CPU torch's own function."""
        if not batch.for_kernels and cpu.serves(batch) and batch.valid is None:
            return cpu.cross_entropy(batch, batch.weight, batch.reduction), {}
        return super().of_batch(batch, rows)


class MAELoss(Loss):
    """Mean absolute error, ``‖e_y - p‖₁ = 2(1 - p_y)`` (Ghosh et al., 2017). Symmetric.

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
        >>> MAELoss()(torch.zeros(1, 4), torch.tensor([0]))
        tensor(1.5000)
    """

    spec = LossSpec(
        "mae",
        "2(1 - p_y)",
        soft_targets=True,
        closed_form=ClosedForm(_mae),
        bounded=True,
        symmetric_at={},
        consistency="top 1",
        reference="Ghosh et al. 2017",
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
        """``2(1 - p_y)``."""
        return -2 * torch.expm1(take(log_softmax(logits), target))


class MSELoss(Loss):
    """Squared error (Brier score), ``‖e_y - p‖² = 1 - 2 p_y + ‖p‖²`` (Ghosh et al., 2017).

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
        >>> MSELoss()(torch.zeros(1, 4), torch.tensor([0]))
        tensor(0.7500)
    """

    spec = LossSpec(
        "mse",
        "1 - 2 p_y + ‖p‖²",
        soft_targets=True,
        closed_form=ClosedForm(_mse, needs="terms", terms=_square),
        bounded=True,
        consistency="all k",
        reference="Ghosh et al. 2017",
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
        """``(1 - p_y)²`` and the other squares: so nothing cancels when p_y -> 1."""
        log_p = log_softmax(logits)
        p = log_p.exp()
        others = p.square().sum(-1, keepdim=True) - take(p, target).square()
        return torch.expm1(take(log_p, target)).square() + others


class GCELoss(Loss):
    """Generalised cross entropy, ``(1 - p_y^q)/q`` (Zhang and Sabuncu, 2018).

    Cross entropy as q -> 0, half of :class:`MAELoss` at q = 1.

    Args:
        weight: ``(K,)``, how much each class counts; None: all the same.
        q: In [0, 1], a number or a tensor that broadcasts against the target.
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
        >>> GCELoss(q=1.0)(torch.zeros(1, 4), torch.tensor([0]))
        tensor(0.7500)
    """

    spec = LossSpec(
        "gce",
        "(1 - p_y^q)/q",
        domains={"q": UNIT},
        grid=one_by_one(q=(0.05, 0.7, 0.95)),
        soft_targets=True,
        closed_form=ClosedForm(_gce, ("q",)),
        bounded=True,
        symmetric_at={"q": 1.0},
        consistency="all k (q < 1)",
        reference="Zhang and Sabuncu 2018",
    )
    q: Number

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        q: Number = 0.7,
        normalize: Normalize = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(weight, q=q, normalize=normalize, **options)

    @staticmethod
    def formula(logits: Tensor, target: Tensor | None, q: Number) -> Tensor:
        """``(1 - p_y^q)/q``."""
        return box_cox(take(log_softmax(logits), target), q)


class SCELoss(Loss):
    """Symmetric cross entropy, ``α·CE + (1 - α)·RCE`` (Wang et al., 2019), the LDR paper's convex combination.

    Args:
        weight: ``(K,)``, how much each class counts; None: all the same.
        alpha: Weight of cross entropy, in [0, 1], a number or a tensor that broadcasts against the target. At 0 the
            loss is symmetric.
        A: What stands for log 0 in reverse cross entropy, in (-∞, 0), a number or a tensor that broadcasts against the
            target.
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
        >>> SCELoss(alpha=0.0)(torch.zeros(1, 4), torch.tensor([0]))
        tensor(3.)
    """

    spec = LossSpec(
        "sce",
        "α·CE + (1-α)·RCE",
        domains={"alpha": UNIT, "A": NEGATIVE},
        grid=one_by_one(alpha=(0.05, 0.5, 0.95)),
        soft_targets=True,
        closed_form=ClosedForm(_sce, ("alpha", "A")),
        symmetric_at={"alpha": 0.0},
        consistency="all k (α > 0)",
        reference="Wang et al. 2019",
    )
    alpha: Number
    A: Number

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        alpha: Number = 0.5,
        A: Number = -4.0,
        normalize: Normalize = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(weight, alpha=alpha, A=A, normalize=normalize, **options)

    @staticmethod
    def formula(logits: Tensor, target: Tensor | None, alpha: Number, A: Number) -> Tensor:
        """``-α log p_y - (1 - α) A (1 - p_y)``."""
        log_p_y = take(log_softmax(logits), target)
        return -alpha * log_p_y + (1 - alpha) * A * torch.expm1(log_p_y)


class RCELoss(Loss):
    """Reverse cross entropy, ``-Σ_k p_k log e_y = -A (1 - p_y)``, with A in place of log 0 (Wang et al., 2019).

    Args:
        weight: ``(K,)``, how much each class counts; None: all the same.
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
        >>> RCELoss(A=-4.0)(torch.zeros(1, 4), torch.tensor([0]))
        tensor(3.)
    """

    spec = LossSpec(
        "rce",
        "-A(1 - p_y)",
        domains={"A": NEGATIVE},
        soft_targets=True,
        closed_form=ClosedForm(_rce, ("A",)),
        bounded=True,
        symmetric_at={},
        consistency="top 1",
        reference="Wang et al. 2019",
    )
    A: Number

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        A: Number = LOG_1E_4,
        normalize: Normalize = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(weight, A=A, normalize=normalize, **options)

    @staticmethod
    def formula(logits: Tensor, target: Tensor | None, A: Number) -> Tensor:
        """``-A (1 - p_y)``."""
        return A * torch.expm1(take(log_softmax(logits), target))
