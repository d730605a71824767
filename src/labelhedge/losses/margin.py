"""Losses of the gaps between the other logits and the label's: Crammer-Singer and Weston-Watkins."""

from __future__ import annotations

from typing import Any, Unpack

from torch import Tensor

from labelhedge.losses._closed_form import ClosedForm
from labelhedge.losses._formulas import gaps
from labelhedge.losses._loss import Loss
from labelhedge.losses._math import maximum, where
from labelhedge.losses._options import Interval, Normalize, Number, Options
from labelhedge.losses._spec import LossSpec, one_by_one

__all__ = ["CSLoss", "WWLoss"]

MARGIN = Interval("[0, inf)")


def _ww(log_p: Any, terms: Any, psis: Any, classes: Any, params: Any) -> Any:
    return terms, 0.0, 1.0, -psis


def _hinge(p: Any, q: Any, params: Any) -> Any:
    return maximum(q, 0.0), where(q > 0.0, 1.0, 0.0)


class CSLoss(Loss):
    """Crammer-Singer loss (multi-class SVM), ``max(0, max_{k≠y} f_k - f_y + c_y)``.

    Args:
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

    Shape:
        Logits ``(N, K)``, ``(K,)``, ``(N, K, d1, ...)`` or, with ``class_dim=-1``, ``(..., K)``. The target holds class
        indices in [0, K), in the shape of the logits without the dimension of the classes. The loss is a number, or
        with ``reduction="none"`` one per sample; in float32 for half-precision logits.

    Example:
        >>> CSLoss()(torch.tensor([[2.0, 1.5, 0.0]]), torch.tensor([0]))
        tensor(0.5000)
    """

    spec = LossSpec(
        "cs",
        "max(0, max_{k≠y} f_k - f_y + c)",
        domains={"margin": MARGIN},
        grid=one_by_one(margin=(0.1, 1.0, 10.0)),
        closed_form=ClosedForm(needs="smooth maximum", lam=0.0),
        consistency="none",
        reference="Crammer and Singer 2001",
    )
    margin: Number

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        margin: Number = 1.0,
        normalize: Normalize = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(weight, margin=margin, normalize=normalize, **options)

    @staticmethod
    def formula(logits: Tensor, target: Tensor, margin: Number) -> Tensor:
        """The largest gap; that of the label is 0."""
        return gaps(logits, target, margin).amax(-1, keepdim=True)


class WWLoss(Loss):
    """Weston-Watkins loss, ``Σ_{k≠y} max(0, f_k - f_y + c_y)``: a sum over the classes, not a mean.

    Args:
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

    Shape:
        Logits ``(N, K)``, ``(K,)``, ``(N, K, d1, ...)`` or, with ``class_dim=-1``, ``(..., K)``. The target holds class
        indices in [0, K), in the shape of the logits without the dimension of the classes. The loss is a number, or
        with ``reduction="none"`` one per sample; in float32 for half-precision logits.

    Example:
        >>> WWLoss()(torch.tensor([[2.0, 1.5, 1.5]]), torch.tensor([0]))
        tensor(1.)
    """

    spec = LossSpec(
        "ww",
        "Σ_{k≠y} max(0, f_k - f_y + c)",
        domains={"margin": MARGIN},
        grid=one_by_one(margin=(0.1, 1.0, 10.0)),
        closed_form=ClosedForm(_ww, needs="terms", terms=_hinge),
        consistency="none",
        reference="Weston and Watkins 1998",
    )
    margin: Number

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        margin: Number = 1.0,
        normalize: Normalize = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(weight, margin=margin, normalize=normalize, **options)

    @staticmethod
    def formula(logits: Tensor, target: Tensor, margin: Number) -> Tensor:
        """The sum of the positive gaps."""
        return gaps(logits, target, margin).relu().sum(-1, keepdim=True)
