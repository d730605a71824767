"""The general LDR family, ``max_{p∈Ω} p·q - λ R(p)``, and three of its members.

R is the KL divergence from the uniform distribution or the squared distance from it; Ω is the simplex or the capped set
``Ω(k) = {p >= 0, Σp <= 1, p <= 1/k}``. The maximising weights p come from one sort; the loss and its gradient, which is
p itself, follow from them.
"""

from __future__ import annotations

import math
from typing import Any, Unpack

from torch import Tensor

from labelhedge.losses._apply import Batch, Common, Normalize, Number, Shared, apply, prepare, with_normalizer
from labelhedge.losses._module import Loss
from labelhedge.losses._robust import Constraint, Regularizer, robust_value, robust_weights
from labelhedge.losses._spec import Interval, LossSpec, register
from labelhedge.losses.margin import MARGIN, gaps

_LAM = Interval("[0, inf]")
_FINITE_LAM = Interval("[0, inf)")
_COUNT = Interval("[1, inf)", integer=True)


def ldr(
    logits: Tensor,
    target: Tensor,
    *,
    regularizer: Regularizer = "kl",
    constraint: Constraint = "simplex",
    k: int | Tensor = 1,
    lam: Number = 1.0,
    margin: Number = 0.0,
    normalize: Normalize = None,
    **common: Unpack[Shared],
) -> Tensor:
    """The LDR loss, ``max_{p∈Ω} Σ_k p_k q_k - λ R(p)`` with ``q_k = f_k - f_y + c_y [k≠y]`` (the paper's equation 1).

    Args:
        logits: As in :func:`ce`.
        target: Class indices. (Class probabilities have no natural reading.)
        regularizer: ``"kl"``, ``R(p) = Σ p_k log(K p_k)``; or ``"quadratic"``, ``R(p) = ‖p - 1/K‖²``.
        constraint: ``"simplex"``; or ``"capped"``, ``Ω(k) = {p >= 0, Σp <= 1, p <= 1/k}``.
        k: Of Ω(k), an integer in [1, K] or a tensor of them that broadcasts against the target.
        lam: λ at least 0, a number or a tensor; ∞ is allowed except for ``"kl"`` on ``"capped"``, where the loss
            would be infinite.
        margin: As in :func:`ldr_kl`.
        normalize: As for every loss.
        **common: See :class:`labelhedge.losses.Common`.

    Example:
        >>> ldr(torch.tensor([[0.0, 2.0, 1.0]]), torch.tensor([0]), constraint="capped", k=2, lam=0.0)
        tensor(1.5000)
    """
    batch = _prepare(logits, target, regularizer, constraint, k, lam, margin, with_normalizer(common, normalize))
    return batch.reduce(_ldr(batch.scaled_logits(), batch.target, regularizer, constraint, **batch.params))


def _ldr(
    logits: Tensor,
    target: Tensor | None,
    regularizer: Regularizer,
    constraint: Constraint,
    k: int | Tensor,
    lam: Number,
    margin: Number,
) -> Tensor:
    assert target is not None
    return robust_value(gaps(logits, target, margin), lam, regularizer, None if constraint == "simplex" else k)


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
    **common: Unpack[Shared],
) -> Tensor:
    """The weights p that attain the maximum in :func:`ldr`, in the shape of the logits with the classes last.

    Args as in :func:`ldr`; weight and reduction play no part.

    Example:
        >>> ldr_weights(torch.tensor([[0.0, 2.0, 1.0]]), torch.tensor([0]), constraint="capped", k=2, lam=0.0)
        tensor([[0.0000, 0.5000, 0.5000]])
    """
    batch = _prepare(logits, target, regularizer, constraint, k, lam, margin, with_normalizer(common, normalize))
    assert batch.target is not None
    q = gaps(batch.scaled_logits(), batch.target, batch.params["margin"])
    return robust_weights(q, batch.params["lam"], regularizer, None if constraint == "simplex" else batch.params["k"])


def ldr_k_kl(
    logits: Tensor,
    target: Tensor,
    *,
    lam: Number = 1.0,
    k: int | Tensor = 2,
    margin: Number = 0.1,
    **common: Unpack[Common],
) -> Tensor:
    """LDR with KL on ``Ω(k)``: a smoothed, consistent top-k SVM (the paper's theorem ldr-k-opt).

    Since ``Σp <= 1`` may be strict, k = 1 is not :func:`ldr_kl`.

    Args:
        logits: As in :func:`ce`.
        target: Class indices. (Class probabilities have no natural reading.)
        lam: λ in [0, ∞); 0 is :func:`topk_svm`.
        k: An integer in [1, K].
        margin: As in :func:`ldr_kl`.
        **common: See :class:`labelhedge.losses.Common`.

    Example:
        >>> ldr_k_kl(torch.tensor([[0.0, 2.0, 1.0]]), torch.tensor([0]), margin=0.0)
        tensor(1.2532)
    """
    return apply(LDR_K_KL, logits, target, common, lam=lam, k=k, margin=margin)


def _ldr_k_kl(logits: Tensor, target: Tensor, lam: Number, k: int | Tensor, margin: Number) -> Tensor:
    return robust_value(gaps(logits, target, margin), lam, "kl", k)


def topk_svm(
    logits: Tensor, target: Tensor, *, k: int | Tensor = 2, margin: Number = 1.0, **common: Unpack[Common]
) -> Tensor:
    """Top-k SVM loss, ``(1/k) Σ_{i<=k} max(0, f - f_y + c)_[i]`` (Lapin et al., 2018): LDR on Ω(k) with λ = 0.

    Args:
        logits: As in :func:`ce`.
        target: Class indices. (Class probabilities have no natural reading.)
        k: An integer in [1, K].
        margin: As in :func:`ldr_kl`.
        **common: See :class:`labelhedge.losses.Common`.

    Example:
        >>> topk_svm(torch.tensor([[0.0, 2.0, 1.0]]), torch.tensor([0]))
        tensor(2.5000)
    """
    return apply(TOPK_SVM, logits, target, common, k=k, margin=margin)


def _topk_svm(logits: Tensor, target: Tensor, k: int | Tensor, margin: Number) -> Tensor:
    return robust_value(gaps(logits, target, margin), 0.0, "quadratic", k)


def ldr_quadratic(
    logits: Tensor,
    target: Tensor,
    *,
    lam: Number = 1.0,
    k: int | Tensor | None = None,
    margin: Number = 0.1,
    **common: Unpack[Common],
) -> Tensor:
    """LDR with ``R(p) = ‖p - 1/K‖²``, on the simplex or on Ω(k).

    Args:
        logits: As in :func:`ce`.
        target: Class indices. (Class probabilities have no natural reading.)
        lam: λ in [0, ∞].
        k: None for the simplex, or an integer in [1, K].
        margin: As in :func:`ldr_kl`.
        **common: See :class:`labelhedge.losses.Common`.

    Example:
        >>> ldr_quadratic(torch.tensor([[0.0, 2.0, 1.0]]), torch.tensor([0]), margin=0.0)
        tensor(1.4583)
    """
    return apply(LDR_QUADRATIC, logits, target, common, lam=lam, k=k, margin=margin)


def _ldr_quadratic(logits: Tensor, target: Tensor, lam: Number, k: int | Tensor | None, margin: Number) -> Tensor:
    return robust_value(gaps(logits, target, margin), lam, "quadratic", k)


def _prepare(
    logits: Tensor,
    target: Tensor,
    regularizer: Regularizer,
    constraint: Constraint,
    k: int | Tensor,
    lam: Number,
    margin: Number,
    common: Common,
) -> Batch:
    _check_choices(regularizer, constraint)
    spec = LDR_K_KL if (regularizer, constraint) == ("kl", "capped") else LDR
    return prepare(spec, logits, target, common, {"k": k, "lam": lam, "margin": margin})


def _check_choices(regularizer: Any, constraint: Any) -> None:
    if regularizer not in ("kl", "quadratic"):
        raise ValueError(f"regularizer must be 'kl' or 'quadratic', got {regularizer!r}")
    if constraint not in ("simplex", "capped"):
        raise ValueError(f"constraint must be 'simplex' or 'capped', got {constraint!r}")


class LDRLoss(Loss):
    """Module form of :func:`ldr`."""

    function = staticmethod(ldr)

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        _check_choices(self.regularizer, self.constraint)


class LDRkKLLoss(Loss):
    """Module form of :func:`ldr_k_kl`."""

    function = staticmethod(ldr_k_kl)


class TopKSVMLoss(Loss):
    """Module form of :func:`topk_svm`."""

    function = staticmethod(topk_svm)


class LDRQuadraticLoss(Loss):
    """Module form of :func:`ldr_quadratic`."""

    function = staticmethod(ldr_quadratic)


LDR = LossSpec(
    "ldr",
    "max_{p∈Ω} p·q - λ R(p)",
    _ldr,
    ldr,
    LDRLoss,
    domains={"k": _COUNT, "lam": _LAM, "margin": MARGIN},
    nonnegative=False,
    reference="Zhu et al. 2023",
)
"""Not registered: the family, of which the registry has members."""
LDR_K_KL = register(
    LossSpec(
        "ldr-k-kl",
        "max_{p∈Ω(k)} p·q - λ KL(p, 1/K)",
        _ldr_k_kl,
        ldr_k_kl,
        LDRkKLLoss,
        domains={"lam": _FINITE_LAM, "k": _COUNT, "margin": MARGIN},
        consistency="all k (λ > 0, equal margins)",
        reference="Zhu et al. 2023",
    )
)
TOPK_SVM = register(
    LossSpec(
        "topk-svm",
        "(1/k) Σ_{i≤k} max(0, f - f_y + c)_[i]",
        _topk_svm,
        topk_svm,
        TopKSVMLoss,
        domains={"k": _COUNT, "margin": MARGIN},
        consistency="none",
        reference="Lapin et al. 2018",
    )
)
LDR_QUADRATIC = register(
    LossSpec(
        "ldr-quadratic",
        "max_{p∈Ω} p·q - λ‖p - 1/K‖²",
        _ldr_quadratic,
        ldr_quadratic,
        LDRQuadraticLoss,
        domains={"lam": _LAM, "k": _COUNT, "margin": MARGIN},
        optional=frozenset({"k"}),
        nonnegative=False,
        symmetric_at={"lam": math.inf},
        consistency="all k (0 < λ < ∞, equal margins)",
        reference="Zhu et al. 2023",
    )
)
