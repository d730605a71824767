"""The general LDR family, ``max_{p∈Ω} p·q - λ R(p)``, and three of its members.

R is the KL divergence from the uniform distribution or the squared distance from it; Ω is the simplex or the capped set
``Ω(k) = {p >= 0, Σp <= 1, p <= 1/k}``. The maximising weights p come from one sort; the loss and its gradient, which is
p itself, follow from them.
"""

from __future__ import annotations

import math
from typing import Any, Unpack

from torch import Tensor

from labelhedge.losses._formulas import gaps
from labelhedge.losses._loss import Loss, batch_of
from labelhedge.losses._options import Interval, Normalize, Number, Options, RowOptions
from labelhedge.losses._robust import Constraint, Regularizer, robust_value, robust_weights
from labelhedge.losses._spec import LossSpec
from labelhedge.losses.margin import MARGIN

__all__ = ["LDRLoss", "LDRQuadraticLoss", "LDRkKLLoss", "TopKSVMLoss", "ldr_weights"]

_LAM = Interval("[0, inf]")
_FINITE_LAM = Interval("[0, inf)")
_COUNT = Interval("[1, inf)", integer=True)


class LDRLoss(Loss):
    """The LDR loss, ``max_{p∈Ω} Σ_k p_k q_k - λ R(p)`` with ``q_k = f_k - f_y + c_y [k≠y]`` (equation 1 of Zhu et al.).

    The whole family; :class:`LDRKLLoss`, :class:`LDRkKLLoss` and :class:`LDRQuadraticLoss` are the members with names.

    Args:
        weight: ``(K,)``, how much each class counts; None: all the same.
        regularizer: ``"kl"``, ``R(p) = Σ p_k log(K p_k)``; or ``"quadratic"``, ``R(p) = ‖p - 1/K‖²``.
        constraint: The set Ω: ``"simplex"``; or ``"capped"``, ``Ω(k) = {p >= 0, Σp <= 1, p <= 1/k}``.
        k: Of Ω(k), an integer in [1, K] or a tensor of them that broadcasts against the target.
        lam: λ in [0, ∞], a number or a tensor that broadcasts against the target; ∞ is not allowed for ``"kl"`` on
            ``"capped"``, where the loss would be infinite.
        margin: c in [0, ∞): a number, a tensor of K values c_y, or a tensor of two or more dimensions (or none) that
            broadcasts against the target.
        normalize: What is done to the logits f first. None: nothing; ``"l1"``: divided by ``‖f‖₁/K``; ``"softplus"``:
            the same after a softplus.
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
        >>> LDRLoss(constraint="capped", k=2, lam=0.0)(torch.tensor([[0.0, 2.0, 1.0]]), torch.tensor([0]))
        tensor(1.5000)
    """

    spec = LossSpec(
        "ldr",
        "max_{p∈Ω} p·q - λ R(p)",
        domains={"k": _COUNT, "lam": _LAM, "margin": MARGIN},
        choices={"regularizer": ("kl", "quadratic"), "constraint": ("simplex", "capped")},
        nonnegative=False,
        symmetric_at={"lam": math.inf},
        consistency="all k (0 < λ < ∞, equal margins)",
        reference="Zhu et al. 2023",
    )
    regularizer: Regularizer
    constraint: Constraint
    k: int | Tensor
    lam: Number
    margin: Number

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        regularizer: Regularizer = "kl",
        constraint: Constraint = "simplex",
        k: int | Tensor = 1,
        lam: Number = 1.0,
        margin: Number = 0.0,
        normalize: Normalize = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(
            weight,
            regularizer=regularizer,
            constraint=constraint,
            k=k,
            lam=lam,
            margin=margin,
            normalize=normalize,
            **options,
        )

    @staticmethod
    def formula(
        logits: Tensor,
        target: Tensor | None,
        regularizer: Regularizer,
        constraint: Constraint,
        k: int | Tensor,
        lam: Number,
        margin: Number,
    ) -> Tensor:
        """The value of the inner problem at its solution."""
        assert target is not None
        _refuse_infinite(lam, regularizer, constraint)
        return robust_value(gaps(logits, target, margin), lam, regularizer, None if constraint == "simplex" else k)


class LDRkKLLoss(Loss):
    """LDR with KL on ``Ω(k)``: a smoothed, consistent top-k SVM (theorem ldr-k-opt of Zhu et al., 2023).

    Since ``Σp <= 1`` may be strict, k = 1 is not :class:`LDRKLLoss`.

    Args:
        weight: ``(K,)``, how much each class counts; None: all the same.
        lam: λ in [0, ∞), a number or a tensor that broadcasts against the target; 0 is :class:`TopKSVMLoss`.
        k: An integer in [1, K], or a tensor of them that broadcasts against the target.
        margin: c in [0, ∞): a number, a tensor of K values c_y, or a tensor of two or more dimensions (or none) that
            broadcasts against the target.
        normalize: What is done to the logits f first. None: nothing; ``"l1"``: divided by ``‖f‖₁/K``; ``"softplus"``:
            the same after a softplus.
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
        >>> LDRkKLLoss(margin=0.0)(torch.tensor([[0.0, 2.0, 1.0]]), torch.tensor([0]))
        tensor(1.2532)
    """

    spec = LossSpec(
        "ldr-k-kl",
        "max_{p∈Ω(k)} p·q - λ KL(p, 1/K)",
        domains={"lam": _FINITE_LAM, "k": _COUNT, "margin": MARGIN},
        consistency="all k (λ > 0, equal margins)",
        reference="Zhu et al. 2023",
    )
    lam: Number
    k: int | Tensor
    margin: Number

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        lam: Number = 1.0,
        k: int | Tensor = 2,
        margin: Number = 0.1,
        normalize: Normalize = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(weight, lam=lam, k=k, margin=margin, normalize=normalize, **options)

    @staticmethod
    def formula(logits: Tensor, target: Tensor, lam: Number, k: int | Tensor, margin: Number) -> Tensor:
        """The value of the inner problem at its solution."""
        return robust_value(gaps(logits, target, margin), lam, "kl", k)


class TopKSVMLoss(Loss):
    """Top-k SVM loss, ``(1/k) Σ_{i<=k} max(0, f - f_y + c)_[i]`` (Lapin et al., 2018): LDR on Ω(k) with λ = 0.

    Args:
        weight: ``(K,)``, how much each class counts; None: all the same.
        k: An integer in [1, K], or a tensor of them that broadcasts against the target.
        margin: c in [0, ∞): a number, a tensor of K values c_y, or a tensor of two or more dimensions (or none) that
            broadcasts against the target.
        normalize: What is done to the logits f first. None: nothing; ``"l1"``: divided by ``‖f‖₁/K``; ``"softplus"``:
            the same after a softplus.
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
        >>> TopKSVMLoss()(torch.tensor([[0.0, 2.0, 1.0]]), torch.tensor([0]))
        tensor(2.5000)
    """

    spec = LossSpec(
        "topk-svm",
        "(1/k) Σ_{i≤k} max(0, f - f_y + c)_[i]",
        domains={"k": _COUNT, "margin": MARGIN},
        consistency="none",
        reference="Lapin et al. 2018",
    )
    k: int | Tensor
    margin: Number

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        k: int | Tensor = 2,
        margin: Number = 1.0,
        normalize: Normalize = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(weight, k=k, margin=margin, normalize=normalize, **options)

    @staticmethod
    def formula(logits: Tensor, target: Tensor, k: int | Tensor, margin: Number) -> Tensor:
        """The value of the inner problem at its solution."""
        return robust_value(gaps(logits, target, margin), 0.0, "quadratic", k)


class LDRQuadraticLoss(Loss):
    """LDR with ``R(p) = ‖p - 1/K‖²``, on the simplex or on Ω(k).

    Args:
        weight: ``(K,)``, how much each class counts; None: all the same.
        lam: λ in [0, ∞], a number or a tensor that broadcasts against the target.
        k: None for the simplex, or for Ω(k) an integer in [1, K] or a tensor of them that broadcasts against the
            target.
        margin: c in [0, ∞): a number, a tensor of K values c_y, or a tensor of two or more dimensions (or none) that
            broadcasts against the target.
        normalize: What is done to the logits f first. None: nothing; ``"l1"``: divided by ``‖f‖₁/K``; ``"softplus"``:
            the same after a softplus.
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
        >>> LDRQuadraticLoss(margin=0.0)(torch.tensor([[0.0, 2.0, 1.0]]), torch.tensor([0]))
        tensor(1.4583)
    """

    spec = LossSpec(
        "ldr-quadratic",
        "max_{p∈Ω} p·q - λ‖p - 1/K‖²",
        domains={"lam": _LAM, "k": _COUNT, "margin": MARGIN},
        optional=frozenset({"k"}),
        nonnegative=False,
        symmetric_at={"lam": math.inf},
        consistency="all k (0 < λ < ∞, equal margins)",
        reference="Zhu et al. 2023",
    )
    lam: Number
    k: int | Tensor | None
    margin: Number

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        lam: Number = 1.0,
        k: int | Tensor | None = None,
        margin: Number = 0.1,
        normalize: Normalize = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(weight, lam=lam, k=k, margin=margin, normalize=normalize, **options)

    @staticmethod
    def formula(logits: Tensor, target: Tensor, lam: Number, k: int | Tensor | None, margin: Number) -> Tensor:
        """The value of the inner problem at its solution."""
        return robust_value(gaps(logits, target, margin), lam, "quadratic", k)


def ldr_weights(
    logits: Tensor,
    target: Tensor,
    *,
    regularizer: Regularizer = "kl",
    constraint: Constraint = "simplex",
    k: int | Tensor = 1,
    lam: Number = 1.0,
    margin: Number = 0.0,
    normalize: Normalize = None,
    **options: Unpack[RowOptions],
) -> Tensor:
    """The weights p that attain the maximum in :func:`ldr`, in the shape of the logits with the classes last.

    Args:
        logits: ``(N, K)``, ``(K,)``, ``(N, K, d1, ...)`` or, with ``class_dim=-1``, ``(..., K)``.
        target: Class indices in [0, K), in the shape of the logits without the dimension of the classes.
        regularizer: ``"kl"``, ``R(p) = Σ p_k log(K p_k)``; or ``"quadratic"``, ``R(p) = ‖p - 1/K‖²``.
        constraint: The set Ω: ``"simplex"``; or ``"capped"``, ``Ω(k) = {p >= 0, Σp <= 1, p <= 1/k}``.
        k: Of Ω(k), an integer in [1, K] or a tensor of them that broadcasts against the target.
        lam: λ in [0, ∞], a number or a tensor that broadcasts against the target; finite for ``"kl"`` on ``"capped"``.
        margin: c in [0, ∞): a number, a tensor of K values c_y, or a tensor of two or more dimensions (or none) that
            broadcasts against the target.
        normalize: What is done to the logits f first. None: nothing; ``"l1"``: divided by ``‖f‖₁/K``; ``"softplus"``:
            the same after a softplus.
        **options: ``ignore_index``, the target that counts for nothing (-100); ``temperature``, which divides the
            logits after the normaliser (1); ``class_dim``, where the classes are (None: PyTorch's rule; -1: the last
            dimension). More in :class:`labelhedge.losses.RowOptions`.

    Example:
        >>> ldr_weights(torch.tensor([[0.0, 2.0, 1.0]]), torch.tensor([0]), constraint="capped", k=2, lam=0.0)
        tensor([[0.0000, 0.5000, 0.5000]])
    """
    given: dict[str, Any] = {"regularizer": regularizer, "constraint": constraint, "k": k, "lam": lam, "margin": margin}
    given |= {"normalize": normalize, **options}
    batch = batch_of(LDRLoss, logits, target, without=("weight", "reduction"), **given)
    _refuse_infinite(lam, regularizer, constraint)
    assert batch.target is not None
    q = gaps(batch.scaled_logits(), batch.target, batch.params["margin"])
    return robust_weights(q, batch.params["lam"], regularizer, None if constraint == "simplex" else batch.params["k"])


def _refuse_infinite(lam: Number, regularizer: Regularizer, constraint: Constraint) -> None:
    if (regularizer, constraint, lam) == ("kl", "capped", math.inf):
        raise ValueError(
            "lam must be finite for regularizer='kl' on constraint='capped', where the loss would be infinite"
        )
