"""ALDR-KL: LDR-KL with its own λ for every sample, chosen by the sample itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Unpack

import torch
from torch import Tensor

from labelhedge.losses import _cpu as cpu
from labelhedge.losses import _kernels as kernels
from labelhedge.losses._adaptive import NEW, fixed_point_step, global_maximum, penalty, smallest
from labelhedge.losses._batch import Batch, per_sample
from labelhedge.losses._closed_form import ClosedForm
from labelhedge.losses._cpu_rows import Rows as RowsOfBlock
from labelhedge.losses._formulas import count_of, gaps, masked_classes
from labelhedge.losses._loss import Loss, Rows, batch_of, kept
from labelhedge.losses._options import Interval, Normalize, Number, Options, RowOptions, checked_number
from labelhedge.losses._spec import LossSpec, State, one_by_one
from labelhedge.losses.ldr import log_mean_exp, log_mean_exp_inside
from labelhedge.losses.margin import MARGIN

__all__ = ["ALDRKLLoss", "aldr_kl", "aldr_lambda"]

_LAM = Interval("[0, inf]")


class ALDRKLLoss(Loss):
    """ALDR-KL on L1-normalised logits, ``max_{λ≥0} LDR-KL(λ) - (α/2)(λ - λ0)²``: a λ of its own for every sample.

    ``ALDRKLLoss()`` finds the exact λ, the global maximum, in every call: no state, no index, a drop-in for
    ``torch.nn.CrossEntropyLoss``. ``ALDRKLLoss(num_samples=N)`` is Algorithm 1 of Zhu et al., 2023: it keeps λ_i of
    every training sample in the buffer ``lam``, starts at λ0 and makes one step per visit. It then needs the positions
    of the samples in the training set, ``criterion(logits, target, index)``; in eval mode it can do without and takes
    the exact λ.

    The gradient takes λ as constant, which is right at the maximum (envelope theorem); so do second derivatives, for
    which it is an approximation. Like :class:`LDRKLLoss` the loss is negative where the label leads clearly: that is no
    error. By default the logits are normalised, so that their scale does not matter: pass ``normalize=None`` to keep
    it.

    Args:
        weight: ``(K,)``, how much each class counts; None: all the same.
        lambda0: λ0 in (0, ∞], a number or a tensor that broadcasts against the target.
        alpha: α in (0, ∞), a number or a tensor that broadcasts against the target; None, the default, is ``2 log
            K/λ0``, which keeps λ in [λ0/2, λ0].
        margin: c in [0, ∞): a number, a tensor of K values c_y, or a tensor of two or more dimensions (or none) that
            broadcasts against the target.
        num_samples: How many training samples to keep λ of; None: none.
        normalize: What is done to the logits f first. ``"l1"``, the default, as in the paper's experiments: divided by
            ``‖f‖₁/K``; ``"softplus"``: the same after a softplus; None: nothing.
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
        >>> criterion = ALDRKLLoss(num_samples=3)
        >>> logits = torch.tensor([[2.0, 0.0, -1.0]], requires_grad=True)
        >>> loss = criterion(logits, torch.tensor([0]), torch.tensor([2]))
        >>> criterion.lam
        tensor([1.0000, 1.0000, 0.7524])
    """

    spec = LossSpec(
        "aldr-kl",
        "max_{λ≥0} LDR-KL(λ) - (α/2)(λ - λ0)²",
        domains={"lambda0": Interval("(0, inf]"), "alpha": Interval("(0, inf)"), "margin": MARGIN},
        optional=frozenset({"alpha"}),
        grid=one_by_one(lambda0=(0.1, 1.0, 10.0)),
        state=(State("lam", start="lambda0", traced=True),),
        closed_form=ClosedForm(needs="smooth maximum"),
        nonnegative=False,
        symmetric_at={"lambda0": math.inf},
        consistency="all k (c = 0, log K/λ0 < α)",
        reference="Zhu et al. 2023",
    )
    lambda0: Number
    alpha: Number | None
    margin: Number
    lam: Tensor | None

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        lambda0: Number = 1.0,
        alpha: Number | None = None,
        margin: Number = 0.1,
        num_samples: int | None = None,
        normalize: Normalize = "l1",
        **options: Unpack[Options],
    ) -> None:
        super().__init__(
            weight, lambda0=lambda0, alpha=alpha, margin=margin, num_samples=num_samples, normalize=normalize, **options
        )

    @staticmethod
    def formula(
        logits: Tensor,
        target: Tensor | None,
        lambda0: Number,
        alpha: Number | None,
        margin: Number,
        lam: Number | None = None,
    ) -> Tensor:
        """LDR-KL at λ, less the penalty; at the λ that is best where none is given."""
        assert target is not None
        q = gaps(logits, target, margin)
        classes = count_of(q, masked_classes(q))
        if lam is None:
            with torch.no_grad():
                lam = global_maximum(_below_largest(q), lambda0, alpha, classes)
        return _at(lam, q, lambda0, alpha, classes)

    @classmethod
    def of_batch(cls, batch: Batch, rows: Rows) -> tuple[Tensor, Rows]:
        """The loss at the exact λ, or after one step of Algorithm 1 from the λ that the samples have."""
        start = rows.get("lam")
        loss, lam = _loss(batch, start)
        if start is None:
            return loss, {}
        return loss, {"lam": lam if batch.for_kernels else kept(batch, start, lam)}


def aldr_kl(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    lambda0: Number = 1.0,
    alpha: Number | None = None,
    margin: Number = 0.1,
    lam: Tensor | None = None,
    normalize: Normalize = "l1",
    **options: Unpack[Options],
) -> Tensor:
    """ALDR-KL on L1-normalised logits, ``max_{λ≥0} LDR-KL(λ) - (α/2)(λ - λ0)²`` (equation 4 of Zhu et al., 2023).

    Without ``lam`` the maximum over λ is the global one, found anew in every call: no state and no sample index. The
    gradient takes λ as constant, which is right at the maximum (envelope theorem); so do second derivatives, for which
    it is an approximation. Like :func:`ldr_kl` the loss is negative where the label leads clearly.

    Args:
        logits: ``(N, K)``, ``(K,)``, ``(N, K, d1, ...)`` or, with ``class_dim=-1``, ``(..., K)``.
        target: Class indices in [0, K), in the shape of the logits without the dimension of the classes.
        weight: ``(K,)``, how much each class counts; None: all the same.
        lambda0: λ0 in (0, ∞], a number or a tensor that broadcasts against the target.
        alpha: α in (0, ∞), a number or a tensor that broadcasts against the target; None, the default, is ``2 log
            K/λ0``, which keeps λ in [λ0/2, λ0].
        margin: c in [0, ∞): a number, a tensor of K values c_y, or a tensor of two or more dimensions (or none) that
            broadcasts against the target.
        lam: λ in [0, ∞] at which to take the loss instead, of the shape of the target: for Algorithm 1,
            ``aldr_lambda(..., start=lam)``.
        normalize: What is done to the logits f first. ``"l1"``, the default, as in the paper's experiments: divided by
            ``‖f‖₁/K``; ``"softplus"``: the same after a softplus; None: nothing.
        **options: ``ignore_index``, the target that counts for nothing (-100); ``reduction``, ``"none"``, ``"mean"``
            (the default) or ``"sum"``; ``temperature``, which divides the logits after the normaliser (1);
            ``class_dim``, where the classes are (None: PyTorch's rule; -1: the last dimension); ``backend``, ``"auto"``
            (fused kernels where they serve, the default), ``"torch"`` or ``"triton"``. More in
            :class:`labelhedge.losses.Options`.

    Example:
        >>> aldr_kl(torch.tensor([[2.0, 0.0, -1.0]]), torch.tensor([0]))
        tensor(-0.8056)
    """
    given: dict[str, Any] = {"lambda0": lambda0, "alpha": alpha, "margin": margin, "normalize": normalize, **options}
    batch = batch_of(ALDRKLLoss, logits, target, weight=weight, **given)
    return _loss(batch if lam is None else batch.with_params(lam=checked_lam("lam", lam, batch)))[0]


def aldr_lambda(
    logits: Tensor,
    target: Tensor,
    *,
    lambda0: Number = 1.0,
    alpha: Number | None = None,
    margin: Number = 0.1,
    start: Tensor | None = None,
    normalize: Normalize = "l1",
    **options: Unpack[RowOptions],
) -> Tensor:
    """The λ of :func:`aldr_kl` for every sample: the global maximiser or, from ``start``, one step of Algorithm 1.

    The step is ``[λ0 - KL(p, 1/K)/α]₊`` with ``p = softmax(q/λ)`` at the λ of ``start``.

    Args:
        logits: ``(N, K)``, ``(K,)``, ``(N, K, d1, ...)`` or, with ``class_dim=-1``, ``(..., K)``.
        target: Class indices in [0, K), in the shape of the logits without the dimension of the classes.
        lambda0: λ0 in (0, ∞], a number or a tensor that broadcasts against the target.
        alpha: α in (0, ∞), a number or a tensor that broadcasts against the target; None, the default, is ``2 log
            K/λ0``, which keeps λ in [λ0/2, λ0].
        margin: c in [0, ∞): a number, a tensor of K values c_y, or a tensor of two or more dimensions (or none) that
            broadcasts against the target.
        start: λ in [0, ∞] of the shape of the target.
        normalize: What is done to the logits f first. ``"l1"``, the default, as in the paper's experiments: divided by
            ``‖f‖₁/K``; ``"softplus"``: the same after a softplus; None: nothing.
        **options: ``ignore_index``, the target that counts for nothing (-100); ``temperature``, which divides the
            logits after the normaliser (1); ``class_dim``, where the classes are (None: PyTorch's rule; -1: the last
            dimension); ``backend``, ``"auto"`` (fused kernels where they serve, the default), ``"torch"`` or
            ``"triton"``. More in :class:`labelhedge.losses.RowOptions`.

    Returns:
        λ in the shape of the target, without gradient.

    Example:
        >>> aldr_lambda(torch.tensor([[2.0, 0.0, -1.0]]), torch.tensor([0]))
        tensor([0.5944])
    """
    given: dict[str, Any] = {"lambda0": lambda0, "alpha": alpha, "margin": margin, "normalize": normalize, **options}
    batch = batch_of(ALDRKLLoss, logits, target, without=("weight", "reduction"), **given)
    with torch.no_grad():
        return _loss(batch, None if start is None else checked_lam("start", start, batch))[1].squeeze(-1)


def checked_lam(name: str, lam: Tensor, batch: Batch) -> Tensor:
    """λ of each sample, ``(..., 1)``."""
    found: Tensor = per_sample(name, checked_number(name, lam, _LAM), batch.logits)
    return found


def _loss(batch: Batch, start: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The reduced loss, and λ of each sample ``(..., 1)``.

    λ is what the batch gives, or one step of Algorithm 1 from ``start``, or the global maximum.
    """
    if batch.for_kernels:
        loss, found = kernels.loss(batch, start)
        assert found is not None
        return loss, found
    of_few_rows = batch.loss_of_few_rows(start)
    if of_few_rows is not None:
        loss, found = of_few_rows
        assert found is not None
        return loss, found
    lambda0, alpha, given = (batch.params.get(name) for name in ("lambda0", "alpha", "lam"))
    assert lambda0 is not None

    def solver(
        x: Tensor, at: RowsOfBlock, buffers: Sequence[Tensor | None] = NEW, classes: Number | None = None
    ) -> tuple[Tensor, Number]:
        count = float(x.shape[-1]) if classes is None else classes
        if given is not None:
            lam = at(given)
        elif start is not None:
            lam = fixed_point_step(x, at(start), at(lambda0), at(alpha), count, buffers)
        else:
            lam = global_maximum(x, at(lambda0), at(alpha), count)
        return lam, penalty(lam, at(lambda0), at(alpha), count)

    def plain(batch: Batch, lam: Tensor | None) -> tuple[Tensor, Tensor]:
        assert batch.target is not None
        q = gaps(batch.scaled_logits(), batch.target, batch.params["margin"])
        classes = count_of(q, masked_classes(q))
        if lam is None:
            with torch.no_grad():
                lam, _ = solver(_below_largest(q), lambda number: number, classes=classes)
        is_inside = given is None and alpha is None and isinstance(lambda0, float) and lambda0 < math.inf
        return _at(lam, q, lambda0, alpha, classes, is_inside), lam

    low = smallest(lambda0, alpha, float(batch.logits.shape[-1]))
    if cpu.serves_lambda(batch, low, lambda0) and (given is None or cpu.serves_lambda(batch, given, given)):
        loss, found = cpu.loss(batch, None, solver, plain)
        assert found is not None
        return loss, found
    values, lam = plain(batch, None)
    return batch.reduce(values), lam


def _at(
    lam: Number, q: Tensor, lambda0: Number, alpha: Number | None, classes: Number, is_inside: bool = False
) -> Tensor:
    """The values at λ; ``is_inside`` says that no λ is 0 or ∞."""
    smooth = log_mean_exp_inside(q, lam) if is_inside else log_mean_exp(q, lam)
    return smooth - penalty(lam, lambda0, alpha, classes)


def _below_largest(q: Tensor) -> Tensor:
    """The gaps less the largest of them, as a constant."""
    q = q.detach()
    return q - q.amax(-1, keepdim=True)
