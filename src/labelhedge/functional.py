"""Every loss as a function, as ``torch.nn.functional`` is to ``torch.nn``."""

# written by docs/loss_exports.py
from __future__ import annotations

from typing import Unpack

from torch import Tensor

from labelhedge.losses._loss import value_of
from labelhedge.losses._options import Normalize, Number, Options
from labelhedge.losses._robust import Constraint, Regularizer
from labelhedge.losses.aldr import aldr_kl, aldr_lambda
from labelhedge.losses.bounded import AGCELoss, AULLoss, JSLoss, RLLLoss
from labelhedge.losses.ldr import LDRKLLoss
from labelhedge.losses.ldr_family import LDRkKLLoss, LDRLoss, LDRQuadraticLoss, TopKSVMLoss, ldr_weights
from labelhedge.losses.linear import linear_aldr_kl, linear_ce, linear_ldr_kl
from labelhedge.losses.margin import CSLoss, WWLoss
from labelhedge.losses.normalized import NCEAGCELoss, NCEAULLoss, NCELoss, NCERCELoss
from labelhedge.losses.probability import LOG_1E_4, CELoss, GCELoss, MAELoss, MSELoss, RCELoss, SCELoss
from labelhedge.losses.truncated import tgce

__all__ = [
    "agce",
    "aldr_kl",
    "aldr_lambda",
    "aul",
    "ce",
    "cs",
    "gce",
    "js",
    "ldr",
    "ldr_k_kl",
    "ldr_kl",
    "ldr_quadratic",
    "ldr_weights",
    "linear_aldr_kl",
    "linear_ce",
    "linear_ldr_kl",
    "mae",
    "mse",
    "nce",
    "nce_agce",
    "nce_aul",
    "nce_rce",
    "rce",
    "rll",
    "sce",
    "tgce",
    "topk_svm",
    "ww",
]


def js(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    pi1: Number = 0.5,
    normalize: Normalize = None,
    **options: Unpack[Options],
) -> Tensor:
    """Weighted Jensen-Shannon divergence of ``e_y`` and ``p`` (Englesson and Azizpour, 2021).

    ``(π·KL(e_y, m) + (1-π)·KL(p, m)) / Z`` with ``m = π e_y + (1-π) p`` and ``Z = -(1-π) log(1-π)``. Cross entropy as
    π -> 0; half of :class:`MAELoss`, and symmetric, only in the limit π -> 1.

    Args:
        logits: ``(N, K)``, ``(K,)``, ``(N, K, d1, ...)`` or, with ``class_dim=-1``, ``(..., K)``.
        target: Class indices in [0, K), in the shape of the logits without the dimension of the classes, or class
            probabilities in the shape of the logits.
        weight: ``(K,)``, how much each class counts; None: all the same.
        pi1: π in (0, 1), a number or a tensor that broadcasts against the target.
        normalize: What is done to the logits f first. None: nothing; ``"l1"``: divided by ``‖f‖₁/K``; ``"softplus"``:
            the same after a softplus.
        **options: ``ignore_index``, the target that counts for nothing (-100); ``reduction``, ``"none"``, ``"mean"``
            (the default) or ``"sum"``; ``temperature``, which divides the logits after the normaliser (1);
            ``class_dim``, where the classes are (None: PyTorch's rule; -1: the last dimension); ``backend``, ``"auto"``
            (fused kernels where they serve, the default), ``"torch"`` or ``"triton"``. More in
            :class:`labelhedge.losses.Options`.

    Returns:
        A number, or with ``reduction="none"`` one per sample; in float32 for half-precision logits.

    Example:
        >>> js(torch.zeros(1, 4), torch.tensor([0]))
        tensor(1.0976)
    """
    return value_of(JSLoss, logits, target, weight=weight, pi1=pi1, normalize=normalize, **options)


def rll(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    alpha: Number = 1.0,
    normalize: Normalize = None,
    **options: Unpack[Options],
) -> Tensor:
    """Robust log loss, ``-log(α + p_y) + 1/(K-1) Σ_{i≠y} log(α + p_i)`` (Patel and Sastry, 2021). Symmetric.

    Args:
        logits: ``(N, K)``, ``(K,)``, ``(N, K, d1, ...)`` or, with ``class_dim=-1``, ``(..., K)``.
        target: Class indices in [0, K), in the shape of the logits without the dimension of the classes, or class
            probabilities in the shape of the logits.
        weight: ``(K,)``, how much each class counts; None: all the same.
        alpha: α in (0, ∞), a number or a tensor that broadcasts against the target.
        normalize: What is done to the logits f first. None: nothing; ``"l1"``: divided by ``‖f‖₁/K``; ``"softplus"``:
            the same after a softplus.
        **options: ``ignore_index``, the target that counts for nothing (-100); ``reduction``, ``"none"``, ``"mean"``
            (the default) or ``"sum"``; ``temperature``, which divides the logits after the normaliser (1);
            ``class_dim``, where the classes are (None: PyTorch's rule; -1: the last dimension); ``backend``, ``"auto"``
            (fused kernels where they serve, the default), ``"torch"`` or ``"triton"``. More in
            :class:`labelhedge.losses.Options`.

    Returns:
        A number, or with ``reduction="none"`` one per sample; in float32 for half-precision logits.

    Example:
        >>> rll(torch.tensor([[2.0, 0.0]]), torch.tensor([0]))
        tensor(-0.5191)
    """
    return value_of(RLLLoss, logits, target, weight=weight, alpha=alpha, normalize=normalize, **options)


def agce(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    a: Number = 3.0,
    q: Number = 1.5,
    normalize: Normalize = None,
    **options: Unpack[Options],
) -> Tensor:
    """Asymmetric generalised cross entropy, ``((a+1)^q - (a+p_y)^q)/q`` (Zhou et al., 2021).

    Args:
        logits: ``(N, K)``, ``(K,)``, ``(N, K, d1, ...)`` or, with ``class_dim=-1``, ``(..., K)``.
        target: Class indices in [0, K), in the shape of the logits without the dimension of the classes, or class
            probabilities in the shape of the logits.
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

    Returns:
        A number, or with ``reduction="none"`` one per sample; in float32 for half-precision logits.

    Example:
        >>> agce(torch.zeros(1, 4), torch.tensor([0]), a=1.0, q=1.0)
        tensor(0.7500)
    """
    return value_of(AGCELoss, logits, target, weight=weight, a=a, q=q, normalize=normalize, **options)


def aul(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    a: Number = 6.0,
    q: Number = 1.5,
    normalize: Normalize = None,
    **options: Unpack[Options],
) -> Tensor:
    """Asymmetric unhinged loss, ``((a-p_y)^q - (a-1)^q)/q`` (Zhou et al., 2021).

    Args:
        logits: ``(N, K)``, ``(K,)``, ``(N, K, d1, ...)`` or, with ``class_dim=-1``, ``(..., K)``.
        target: Class indices in [0, K), in the shape of the logits without the dimension of the classes, or class
            probabilities in the shape of the logits.
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

    Returns:
        A number, or with ``reduction="none"`` one per sample; in float32 for half-precision logits.

    Example:
        >>> aul(torch.zeros(1, 4), torch.tensor([0]), a=2.0, q=1.0)
        tensor(0.7500)
    """
    return value_of(AULLoss, logits, target, weight=weight, a=a, q=q, normalize=normalize, **options)


def ldr_kl(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    lam: Number = 1.0,
    margin: Number = 0.1,
    normalize: Normalize = "l1",
    **options: Unpack[Options],
) -> Tensor:
    """LDR-KL on L1-normalised logits, ``λ log[(1/K) Σ_k exp(q_k/λ)]`` with ``q_k = f_k - f_y + c_y [k≠y]``.

    It is the worst case over label weights ``p`` of ``p·q - λ KL(p, 1/K)`` (equation 3 of Zhu et al., 2023); the
    weights are :func:`labelhedge.functional.ldr_weights`. The factor 1/K makes it negative, down to ``-λ log K``, where
    the label leads clearly: that is no error. With λ = 1, no margin and no normaliser it is cross entropy - log K.

    By default the logits are normalised, so that their scale does not matter: pass ``normalize=None`` to keep it.

    Args:
        logits: ``(N, K)``, ``(K,)``, ``(N, K, d1, ...)`` or, with ``class_dim=-1``, ``(..., K)``.
        target: Class indices in [0, K), in the shape of the logits without the dimension of the classes.
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

    Returns:
        A number, or with ``reduction="none"`` one per sample; in float32 for half-precision logits.

    Example:
        >>> ldr_kl(torch.tensor([[2.0, 0.0, -1.0]]), torch.tensor([0]), lam=math.inf, margin=0.0)
        tensor(-1.6667)
    """
    return value_of(LDRKLLoss, logits, target, weight=weight, lam=lam, margin=margin, normalize=normalize, **options)


def ldr(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    regularizer: Regularizer = "kl",
    constraint: Constraint = "simplex",
    k: int | Tensor = 1,
    lam: Number = 1.0,
    margin: Number = 0.0,
    normalize: Normalize = None,
    **options: Unpack[Options],
) -> Tensor:
    """The LDR loss, ``max_{p∈Ω} Σ_k p_k q_k - λ R(p)`` with ``q_k = f_k - f_y + c_y [k≠y]`` (equation 1 of Zhu et al.).

    The whole family; :class:`LDRKLLoss`, :class:`LDRkKLLoss` and :class:`LDRQuadraticLoss` are the members with names.

    Args:
        logits: ``(N, K)``, ``(K,)``, ``(N, K, d1, ...)`` or, with ``class_dim=-1``, ``(..., K)``.
        target: Class indices in [0, K), in the shape of the logits without the dimension of the classes.
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

    Returns:
        A number, or with ``reduction="none"`` one per sample; in float32 for half-precision logits.

    Example:
        >>> ldr(torch.tensor([[0.0, 2.0, 1.0]]), torch.tensor([0]), constraint="capped", k=2, lam=0.0)
        tensor(1.5000)
    """
    return value_of(
        LDRLoss,
        logits,
        target,
        weight=weight,
        regularizer=regularizer,
        constraint=constraint,
        k=k,
        lam=lam,
        margin=margin,
        normalize=normalize,
        **options,
    )


def ldr_k_kl(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    lam: Number = 1.0,
    k: int | Tensor = 2,
    margin: Number = 0.1,
    normalize: Normalize = None,
    **options: Unpack[Options],
) -> Tensor:
    """LDR with KL on ``Ω(k)``: a smoothed, consistent top-k SVM (theorem ldr-k-opt of Zhu et al., 2023).

    Since ``Σp <= 1`` may be strict, k = 1 is not :class:`LDRKLLoss`.

    Args:
        logits: ``(N, K)``, ``(K,)``, ``(N, K, d1, ...)`` or, with ``class_dim=-1``, ``(..., K)``.
        target: Class indices in [0, K), in the shape of the logits without the dimension of the classes.
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

    Returns:
        A number, or with ``reduction="none"`` one per sample; in float32 for half-precision logits.

    Example:
        >>> ldr_k_kl(torch.tensor([[0.0, 2.0, 1.0]]), torch.tensor([0]), margin=0.0)
        tensor(1.2532)
    """
    return value_of(
        LDRkKLLoss, logits, target, weight=weight, lam=lam, k=k, margin=margin, normalize=normalize, **options
    )


def topk_svm(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    k: int | Tensor = 2,
    margin: Number = 1.0,
    normalize: Normalize = None,
    **options: Unpack[Options],
) -> Tensor:
    """Top-k SVM loss, ``(1/k) Σ_{i<=k} max(0, f - f_y + c)_[i]`` (Lapin et al., 2018): LDR on Ω(k) with λ = 0.

    Args:
        logits: ``(N, K)``, ``(K,)``, ``(N, K, d1, ...)`` or, with ``class_dim=-1``, ``(..., K)``.
        target: Class indices in [0, K), in the shape of the logits without the dimension of the classes.
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

    Returns:
        A number, or with ``reduction="none"`` one per sample; in float32 for half-precision logits.

    Example:
        >>> topk_svm(torch.tensor([[0.0, 2.0, 1.0]]), torch.tensor([0]))
        tensor(2.5000)
    """
    return value_of(TopKSVMLoss, logits, target, weight=weight, k=k, margin=margin, normalize=normalize, **options)


def ldr_quadratic(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    lam: Number = 1.0,
    k: int | Tensor | None = None,
    margin: Number = 0.1,
    normalize: Normalize = None,
    **options: Unpack[Options],
) -> Tensor:
    """LDR with ``R(p) = ‖p - 1/K‖²``, on the simplex or on Ω(k).

    Args:
        logits: ``(N, K)``, ``(K,)``, ``(N, K, d1, ...)`` or, with ``class_dim=-1``, ``(..., K)``.
        target: Class indices in [0, K), in the shape of the logits without the dimension of the classes.
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

    Returns:
        A number, or with ``reduction="none"`` one per sample; in float32 for half-precision logits.

    Example:
        >>> ldr_quadratic(torch.tensor([[0.0, 2.0, 1.0]]), torch.tensor([0]), margin=0.0)
        tensor(1.4583)
    """
    return value_of(
        LDRQuadraticLoss, logits, target, weight=weight, lam=lam, k=k, margin=margin, normalize=normalize, **options
    )


def cs(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    margin: Number = 1.0,
    normalize: Normalize = None,
    **options: Unpack[Options],
) -> Tensor:
    """Crammer-Singer loss (multi-class SVM), ``max(0, max_{k≠y} f_k - f_y + c_y)``.

    Args:
        logits: ``(N, K)``, ``(K,)``, ``(N, K, d1, ...)`` or, with ``class_dim=-1``, ``(..., K)``.
        target: Class indices in [0, K), in the shape of the logits without the dimension of the classes.
        weight: ``(K,)``, how much each class counts; None: all the same.
        margin: c in [0, ∞): a number, a tensor of K values c_y, or a tensor of two or more dimensions (or none) that
            broadcasts against the target.
        normalize: What is done to the logits f first. None: nothing; ``"l1"``: divided by ``‖f‖₁/K``; ``"softplus"``:
            the same after a softplus.
        **options: ``ignore_index``, the target that counts for nothing (-100); ``reduction``, ``"none"``, ``"mean"``
            (the default) or ``"sum"``; ``temperature``, which divides the logits after the normaliser (1);
            ``class_dim``, where the classes are (None: PyTorch's rule; -1: the last dimension); ``backend``, ``"auto"``
            (fused kernels where they serve, the default), ``"torch"`` or ``"triton"``. More in
            :class:`labelhedge.losses.Options`.

    Returns:
        A number, or with ``reduction="none"`` one per sample; in float32 for half-precision logits.

    Example:
        >>> cs(torch.tensor([[2.0, 1.5, 0.0]]), torch.tensor([0]))
        tensor(0.5000)
    """
    return value_of(CSLoss, logits, target, weight=weight, margin=margin, normalize=normalize, **options)


def ww(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    margin: Number = 1.0,
    normalize: Normalize = None,
    **options: Unpack[Options],
) -> Tensor:
    """Weston-Watkins loss, ``Σ_{k≠y} max(0, f_k - f_y + c_y)``: a sum over the classes, not a mean.

    Args:
        logits: ``(N, K)``, ``(K,)``, ``(N, K, d1, ...)`` or, with ``class_dim=-1``, ``(..., K)``.
        target: Class indices in [0, K), in the shape of the logits without the dimension of the classes.
        weight: ``(K,)``, how much each class counts; None: all the same.
        margin: c in [0, ∞): a number, a tensor of K values c_y, or a tensor of two or more dimensions (or none) that
            broadcasts against the target.
        normalize: What is done to the logits f first. None: nothing; ``"l1"``: divided by ``‖f‖₁/K``; ``"softplus"``:
            the same after a softplus.
        **options: ``ignore_index``, the target that counts for nothing (-100); ``reduction``, ``"none"``, ``"mean"``
            (the default) or ``"sum"``; ``temperature``, which divides the logits after the normaliser (1);
            ``class_dim``, where the classes are (None: PyTorch's rule; -1: the last dimension); ``backend``, ``"auto"``
            (fused kernels where they serve, the default), ``"torch"`` or ``"triton"``. More in
            :class:`labelhedge.losses.Options`.

    Returns:
        A number, or with ``reduction="none"`` one per sample; in float32 for half-precision logits.

    Example:
        >>> ww(torch.tensor([[2.0, 1.5, 1.5]]), torch.tensor([0]))
        tensor(1.)
    """
    return value_of(WWLoss, logits, target, weight=weight, margin=margin, normalize=normalize, **options)


def nce(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    normalize: Normalize = None,
    **options: Unpack[Options],
) -> Tensor:
    """Normalised cross entropy, ``log p_y / Σ_k log p_k`` (Ma et al., 2020). Symmetric.

    Args:
        logits: ``(N, K)``, ``(K,)``, ``(N, K, d1, ...)`` or, with ``class_dim=-1``, ``(..., K)``.
        target: Class indices in [0, K), in the shape of the logits without the dimension of the classes, or class
            probabilities in the shape of the logits.
        weight: ``(K,)``, how much each class counts; None: all the same.
        normalize: What is done to the logits f first. None: nothing; ``"l1"``: divided by ``‖f‖₁/K``; ``"softplus"``:
            the same after a softplus.
        **options: ``ignore_index``, the target that counts for nothing (-100); ``reduction``, ``"none"``, ``"mean"``
            (the default) or ``"sum"``; ``temperature``, which divides the logits after the normaliser (1);
            ``class_dim``, where the classes are (None: PyTorch's rule; -1: the last dimension); ``backend``, ``"auto"``
            (fused kernels where they serve, the default), ``"torch"`` or ``"triton"``. More in
            :class:`labelhedge.losses.Options`.

    Returns:
        A number, or with ``reduction="none"`` one per sample; in float32 for half-precision logits.

    Example:
        >>> nce(torch.zeros(1, 4), torch.tensor([0]))
        tensor(0.2500)
    """
    return value_of(NCELoss, logits, target, weight=weight, normalize=normalize, **options)


def nce_rce(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    alpha: Number = 5.0,
    beta: Number = 5.0,
    A: Number = LOG_1E_4,
    normalize: Normalize = None,
    **options: Unpack[Options],
) -> Tensor:
    """``α·NCE + β·RCE``, normalised cross entropy with :class:`RCELoss` (Ma et al., 2020).

    Args:
        logits: ``(N, K)``, ``(K,)``, ``(N, K, d1, ...)`` or, with ``class_dim=-1``, ``(..., K)``.
        target: Class indices in [0, K), in the shape of the logits without the dimension of the classes, or class
            probabilities in the shape of the logits.
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

    Returns:
        A number, or with ``reduction="none"`` one per sample; in float32 for half-precision logits.

    Example:
        >>> nce_rce(torch.zeros(1, 4), torch.tensor([0]), alpha=1.0, beta=1.0, A=-4.0)
        tensor(3.2500)
    """
    return value_of(
        NCERCELoss, logits, target, weight=weight, alpha=alpha, beta=beta, A=A, normalize=normalize, **options
    )


def nce_agce(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    alpha: Number = 5.0,
    beta: Number = 5.0,
    a: Number = 3.0,
    q: Number = 1.5,
    normalize: Normalize = None,
    **options: Unpack[Options],
) -> Tensor:
    """``α·NCE + β·AGCE``, normalised cross entropy with :class:`AGCELoss` (Zhou et al., 2021).

    Args:
        logits: ``(N, K)``, ``(K,)``, ``(N, K, d1, ...)`` or, with ``class_dim=-1``, ``(..., K)``.
        target: Class indices in [0, K), in the shape of the logits without the dimension of the classes, or class
            probabilities in the shape of the logits.
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

    Returns:
        A number, or with ``reduction="none"`` one per sample; in float32 for half-precision logits.

    Example:
        >>> nce_agce(torch.zeros(1, 4), torch.tensor([0]), alpha=1.0, beta=1.0, a=1.0, q=0.5)
        tensor(0.8424)
    """
    return value_of(
        NCEAGCELoss, logits, target, weight=weight, alpha=alpha, beta=beta, a=a, q=q, normalize=normalize, **options
    )


def nce_aul(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    alpha: Number = 5.0,
    beta: Number = 5.0,
    a: Number = 6.0,
    q: Number = 1.5,
    normalize: Normalize = None,
    **options: Unpack[Options],
) -> Tensor:
    """``α·NCE + β·AUL``, normalised cross entropy with :class:`AULLoss` (Zhou et al., 2021).

    Args:
        logits: ``(N, K)``, ``(K,)``, ``(N, K, d1, ...)`` or, with ``class_dim=-1``, ``(..., K)``.
        target: Class indices in [0, K), in the shape of the logits without the dimension of the classes, or class
            probabilities in the shape of the logits.
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

    Returns:
        A number, or with ``reduction="none"`` one per sample; in float32 for half-precision logits.

    Example:
        >>> nce_aul(torch.zeros(1, 4), torch.tensor([0]), alpha=1.0, beta=1.0, a=2.0, q=0.5)
        tensor(0.8958)
    """
    return value_of(
        NCEAULLoss, logits, target, weight=weight, alpha=alpha, beta=beta, a=a, q=q, normalize=normalize, **options
    )


def ce(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    normalize: Normalize = None,
    **options: Unpack[Options],
) -> Tensor:
    """Cross entropy, ``-log p_y``: the same numbers as ``torch.nn.CrossEntropyLoss``.

    Args:
        logits: ``(N, K)``, ``(K,)``, ``(N, K, d1, ...)`` or, with ``class_dim=-1``, ``(..., K)``.
        target: Class indices in [0, K), in the shape of the logits without the dimension of the classes, or class
            probabilities in the shape of the logits.
        weight: ``(K,)``, how much each class counts; None: all the same.
        normalize: What is done to the logits f first. None: nothing; ``"l1"``: divided by ``‖f‖₁/K``; ``"softplus"``:
            the same after a softplus.
        **options: ``ignore_index``, the target that counts for nothing (-100); ``reduction``, ``"none"``, ``"mean"``
            (the default) or ``"sum"``; ``temperature``, which divides the logits after the normaliser (1);
            ``class_dim``, where the classes are (None: PyTorch's rule; -1: the last dimension); ``backend``, ``"auto"``
            (fused kernels where they serve, the default), ``"torch"`` or ``"triton"``. More in
            :class:`labelhedge.losses.Options`.

    Returns:
        A number, or with ``reduction="none"`` one per sample; in float32 for half-precision logits.

    Example:
        >>> ce(torch.tensor([[2.0, 0.0]]), torch.tensor([0]))
        tensor(0.1269)
    """
    return value_of(CELoss, logits, target, weight=weight, normalize=normalize, **options)


def mae(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    normalize: Normalize = None,
    **options: Unpack[Options],
) -> Tensor:
    """Mean absolute error, ``‖e_y - p‖₁ = 2(1 - p_y)`` (Ghosh et al., 2017). Symmetric.

    Args:
        logits: ``(N, K)``, ``(K,)``, ``(N, K, d1, ...)`` or, with ``class_dim=-1``, ``(..., K)``.
        target: Class indices in [0, K), in the shape of the logits without the dimension of the classes, or class
            probabilities in the shape of the logits.
        weight: ``(K,)``, how much each class counts; None: all the same.
        normalize: What is done to the logits f first. None: nothing; ``"l1"``: divided by ``‖f‖₁/K``; ``"softplus"``:
            the same after a softplus.
        **options: ``ignore_index``, the target that counts for nothing (-100); ``reduction``, ``"none"``, ``"mean"``
            (the default) or ``"sum"``; ``temperature``, which divides the logits after the normaliser (1);
            ``class_dim``, where the classes are (None: PyTorch's rule; -1: the last dimension); ``backend``, ``"auto"``
            (fused kernels where they serve, the default), ``"torch"`` or ``"triton"``. More in
            :class:`labelhedge.losses.Options`.

    Returns:
        A number, or with ``reduction="none"`` one per sample; in float32 for half-precision logits.

    Example:
        >>> mae(torch.zeros(1, 4), torch.tensor([0]))
        tensor(1.5000)
    """
    return value_of(MAELoss, logits, target, weight=weight, normalize=normalize, **options)


def mse(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    normalize: Normalize = None,
    **options: Unpack[Options],
) -> Tensor:
    """Squared error (Brier score), ``‖e_y - p‖² = 1 - 2 p_y + ‖p‖²`` (Ghosh et al., 2017).

    Args:
        logits: ``(N, K)``, ``(K,)``, ``(N, K, d1, ...)`` or, with ``class_dim=-1``, ``(..., K)``.
        target: Class indices in [0, K), in the shape of the logits without the dimension of the classes, or class
            probabilities in the shape of the logits.
        weight: ``(K,)``, how much each class counts; None: all the same.
        normalize: What is done to the logits f first. None: nothing; ``"l1"``: divided by ``‖f‖₁/K``; ``"softplus"``:
            the same after a softplus.
        **options: ``ignore_index``, the target that counts for nothing (-100); ``reduction``, ``"none"``, ``"mean"``
            (the default) or ``"sum"``; ``temperature``, which divides the logits after the normaliser (1);
            ``class_dim``, where the classes are (None: PyTorch's rule; -1: the last dimension); ``backend``, ``"auto"``
            (fused kernels where they serve, the default), ``"torch"`` or ``"triton"``. More in
            :class:`labelhedge.losses.Options`.

    Returns:
        A number, or with ``reduction="none"`` one per sample; in float32 for half-precision logits.

    Example:
        >>> mse(torch.zeros(1, 4), torch.tensor([0]))
        tensor(0.7500)
    """
    return value_of(MSELoss, logits, target, weight=weight, normalize=normalize, **options)


def gce(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    q: Number = 0.7,
    normalize: Normalize = None,
    **options: Unpack[Options],
) -> Tensor:
    """Generalised cross entropy, ``(1 - p_y^q)/q`` (Zhang and Sabuncu, 2018).

    Cross entropy as q -> 0, half of :class:`MAELoss` at q = 1.

    Args:
        logits: ``(N, K)``, ``(K,)``, ``(N, K, d1, ...)`` or, with ``class_dim=-1``, ``(..., K)``.
        target: Class indices in [0, K), in the shape of the logits without the dimension of the classes, or class
            probabilities in the shape of the logits.
        weight: ``(K,)``, how much each class counts; None: all the same.
        q: In [0, 1], a number or a tensor that broadcasts against the target.
        normalize: What is done to the logits f first. None: nothing; ``"l1"``: divided by ``‖f‖₁/K``; ``"softplus"``:
            the same after a softplus.
        **options: ``ignore_index``, the target that counts for nothing (-100); ``reduction``, ``"none"``, ``"mean"``
            (the default) or ``"sum"``; ``temperature``, which divides the logits after the normaliser (1);
            ``class_dim``, where the classes are (None: PyTorch's rule; -1: the last dimension); ``backend``, ``"auto"``
            (fused kernels where they serve, the default), ``"torch"`` or ``"triton"``. More in
            :class:`labelhedge.losses.Options`.

    Returns:
        A number, or with ``reduction="none"`` one per sample; in float32 for half-precision logits.

    Example:
        >>> gce(torch.zeros(1, 4), torch.tensor([0]), q=1.0)
        tensor(0.7500)
    """
    return value_of(GCELoss, logits, target, weight=weight, q=q, normalize=normalize, **options)


def sce(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    alpha: Number = 0.5,
    A: Number = -4.0,
    normalize: Normalize = None,
    **options: Unpack[Options],
) -> Tensor:
    """Symmetric cross entropy, ``α·CE + (1 - α)·RCE`` (Wang et al., 2019), the LDR paper's convex combination.

    Args:
        logits: ``(N, K)``, ``(K,)``, ``(N, K, d1, ...)`` or, with ``class_dim=-1``, ``(..., K)``.
        target: Class indices in [0, K), in the shape of the logits without the dimension of the classes, or class
            probabilities in the shape of the logits.
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

    Returns:
        A number, or with ``reduction="none"`` one per sample; in float32 for half-precision logits.

    Example:
        >>> sce(torch.zeros(1, 4), torch.tensor([0]), alpha=0.0)
        tensor(3.)
    """
    return value_of(SCELoss, logits, target, weight=weight, alpha=alpha, A=A, normalize=normalize, **options)


def rce(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    A: Number = LOG_1E_4,
    normalize: Normalize = None,
    **options: Unpack[Options],
) -> Tensor:
    """Reverse cross entropy, ``-Σ_k p_k log e_y = -A (1 - p_y)``, with A in place of log 0 (Wang et al., 2019).

    Args:
        logits: ``(N, K)``, ``(K,)``, ``(N, K, d1, ...)`` or, with ``class_dim=-1``, ``(..., K)``.
        target: Class indices in [0, K), in the shape of the logits without the dimension of the classes, or class
            probabilities in the shape of the logits.
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

    Returns:
        A number, or with ``reduction="none"`` one per sample; in float32 for half-precision logits.

    Example:
        >>> rce(torch.zeros(1, 4), torch.tensor([0]), A=-4.0)
        tensor(3.)
    """
    return value_of(RCELoss, logits, target, weight=weight, A=A, normalize=normalize, **options)
