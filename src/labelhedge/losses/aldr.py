"""ALDR-KL: LDR-KL with its own λ for every sample, chosen by the sample itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Unpack

import torch
from torch import Tensor

from labelhedge.losses import _fused as fused
from labelhedge.losses import _one_visit as one_visit
from labelhedge.losses._adaptive import NEW, fixed_point_step, global_maximum, penalty, smallest
from labelhedge.losses._apply import Batch, Normalize, Number, Shared, per_sample, prepare, with_normalizer
from labelhedge.losses._one_visit import Rows
from labelhedge.losses._per_sample import PerSampleLoss
from labelhedge.losses._spec import Interval, LossSpec, one_by_one, register
from labelhedge.losses.ldr import smooth_maximum
from labelhedge.losses.margin import MARGIN, gaps


def aldr_kl(
    logits: Tensor,
    target: Tensor,
    *,
    lambda0: Number = 1.0,
    alpha: Number | None = None,
    margin: Number = 0.1,
    lam: Tensor | None = None,
    normalize: Normalize = "l1",
    **common: Unpack[Shared],
) -> Tensor:
    """ALDR-KL, ``max_{λ≥0} LDR-KL(λ) - (α/2)(λ - λ0)²`` (the paper's equation 4).

    Without ``lam`` the maximum over λ is the global one, found anew in every call: no state and no sample index. The
    gradient takes λ as constant, which is right at the maximum (envelope theorem); so do second derivatives, for which
    it is an approximation. Like :func:`ldr_kl` the loss is negative where the label leads clearly.

    Args:
        logits: As in :func:`ce`.
        target: Class indices. (Class probabilities have no natural reading.)
        lambda0: λ0 in (0, ∞], a number or a tensor that broadcasts against the target.
        alpha: α > 0, likewise; ``2 log K/λ0`` by default, which keeps λ in [λ0/2, λ0].
        margin: As in :func:`ldr_kl`.
        lam: λ at which to take the loss instead, of the shape of the target: for Algorithm 1,
            ``aldr_lambda(..., start=lam)``.
        normalize: As for every loss, but ``"l1"`` by default, as in the paper's experiments.
        **common: See :class:`labelhedge.losses.Common`.

    Example:
        >>> aldr_kl(torch.tensor([[2.0, 0.0, -1.0]]), torch.tensor([0]))
        tensor(-0.8056)
    """
    options = with_normalizer(common, normalize)
    params = {"lambda0": lambda0, "alpha": alpha, "margin": margin, "lam": lam}
    return _loss(prepare(ALDR_KL, logits, target, options, params))[0]


def aldr_lambda(
    logits: Tensor,
    target: Tensor,
    *,
    lambda0: Number = 1.0,
    alpha: Number | None = None,
    margin: Number = 0.1,
    start: Tensor | None = None,
    normalize: Normalize = "l1",
    **common: Unpack[Shared],
) -> Tensor:
    """The λ of :func:`aldr_kl` for every sample: the global maximiser or, from ``start``, one step of Algorithm 1.

    The step is ``[λ0 - KL(p, 1/K)/α]₊`` with ``p = softmax(q/λ)`` at the λ of ``start``.

    Args:
        logits: As in :func:`aldr_kl`, and so are the other arguments.
        target: Class indices.
        lambda0: λ0.
        alpha: α.
        margin: c.
        start: λ in [0, ∞] of the shape of the target.
        normalize: As in :func:`aldr_kl`.
        **common: See :class:`labelhedge.losses.Common`; weight and reduction play no part.

    Returns:
        λ in the shape of the target, without gradient.

    Example:
        >>> aldr_lambda(torch.tensor([[2.0, 0.0, -1.0]]), torch.tensor([0]))
        tensor([0.5944])
    """
    options = with_normalizer(common, normalize)
    params = {"lambda0": lambda0, "alpha": alpha, "margin": margin, "lam": start}
    batch = prepare(ALDR_KL, logits, target, options, params)
    start, batch.params["lam"] = batch.params["lam"], None
    with torch.no_grad():
        return _loss(batch, start)[1].squeeze(-1)


def _loss(batch: Batch, start: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The reduced loss, and λ of each sample ``(..., 1)``.

    λ is what the batch gives, or one step of Algorithm 1 from ``start``, or the global maximum.
    """
    if batch.fused:
        return fused.loss(ALDR_KL, batch, start)
    lambda0, alpha, given = (batch.params[name] for name in ("lambda0", "alpha", "lam"))
    classes = batch.logits.shape[-1]

    def solver(x: Tensor, at: Rows, buffers: Sequence[Tensor | None] = NEW) -> tuple[Tensor, Number]:
        if given is not None:
            lam = at(given)
        elif start is not None:
            lam = fixed_point_step(x, at(start), at(lambda0), at(alpha), buffers)
        else:
            lam = global_maximum(x, at(lambda0), at(alpha))
        return lam, penalty(lam, at(lambda0), at(alpha), classes)

    if one_visit.serves(batch, smallest(lambda0, alpha, classes), lambda0) and (
        given is None or one_visit.serves(batch, given, given)
    ):
        return one_visit.loss(batch, solver, _values)
    with torch.no_grad():
        assert batch.target is not None
        q = gaps(batch.scaled_logits(), batch.target, batch.params["margin"])
        lam, _ = solver(q - q.amax(-1, keepdim=True), lambda hyperparameter: hyperparameter)
    return batch.reduce(_values(batch, lam)), lam


def _values(batch: Batch, lam: Number) -> Tensor:
    return _aldr_kl(batch.scaled_logits(), batch.target, **batch.params | {"lam": lam})


def _aldr_kl(
    logits: Tensor,
    target: Tensor | None,
    lambda0: Number,
    alpha: Number | None,
    margin: Number,
    lam: Number | None = None,
) -> Tensor:
    assert target is not None
    q = gaps(logits, target, margin)
    if lam is None:
        with torch.no_grad():
            lam = global_maximum(q - q.amax(-1, keepdim=True), lambda0, alpha)
    return smooth_maximum(q, lam) - penalty(lam, lambda0, alpha, logits.shape[-1])


class ALDRKLLoss(PerSampleLoss):
    """Module form of :func:`aldr_kl`, and Algorithm 1 of the paper.

    ``ALDRKLLoss()`` finds the exact λ in every call: no state, no index, a drop-in for ``nn.CrossEntropyLoss``.
    ``ALDRKLLoss(num_samples=N)`` is Algorithm 1: it keeps λ_i of every training sample in the buffer ``lam``, starts at
    λ0 and makes one step per visit. It then needs the samples' positions in the training set,
    ``criterion(logits, target, index)``; in eval mode it can do without and takes the exact λ.

    Example:
        >>> criterion = ALDRKLLoss(num_samples=3)
        >>> logits = torch.tensor([[2.0, 0.0, -1.0]], requires_grad=True)
        >>> loss = criterion(logits, torch.tensor([0]), torch.tensor([2]))
        >>> criterion.lam
        tensor([1.0000, 1.0000, 0.7524])
    """

    function = staticmethod(aldr_kl)
    buffer = "lam"
    lam: Tensor | None
    lambda0: Number

    def __init__(self, *, num_samples: int | None = None, **options: Any) -> None:
        super().__init__(**options)
        if num_samples is not None and isinstance(self.lambda0, Tensor) and self.lambda0.dim():
            raise ValueError(f"lambda0 must be a number with num_samples, got shape {tuple(self.lambda0.shape)}")
        self._register_state(num_samples, float(self.lambda0) if num_samples is not None else 0.0)

    def initial(self) -> Number:
        return self.lambda0

    def visit(self, logits: Tensor, target: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        loss, lam = self._loss(logits, target, value)[:2]
        return loss, lam.view(target.shape)

    def forward(self, logits: Tensor, target: Tensor, index: Tensor | None = None) -> Tensor:
        loss, lam, batch = self._loss(logits, target, self._stored(index, target))
        if index is not None and self.training and torch.is_grad_enabled():
            self._store(index, lam, None if batch.fused else batch.counted())  # the kernels know what to ignore
        return loss

    def _loss(self, logits: Tensor, target: Tensor, start: Tensor | None) -> tuple[Tensor, Tensor, Batch]:
        batch = self._prepare(logits, target, lam=None)
        loss, lam = _loss(batch, None if start is None else per_sample("start", start, batch.logits, batch.target))
        return loss, lam, batch


ALDR_KL = register(
    LossSpec(
        "aldr-kl",
        "max_{λ≥0} LDR-KL(λ) - (α/2)(λ - λ0)²",
        _aldr_kl,
        aldr_kl,
        ALDRKLLoss,
        domains={
            "lambda0": Interval("(0, inf]"),
            "alpha": Interval("(0, inf)"),
            "margin": MARGIN,
            "lam": Interval("[0, inf]"),
        },
        optional=frozenset({"alpha", "lam"}),
        grid=one_by_one(lambda0=(0.1, 1.0, 10.0)),
        state="lam",
        nonnegative=False,
        symmetric_at={"lambda0": math.inf},
        consistency="all k (c = 0, log K/λ0 < α)",
        reference="Zhu et al. 2023",
    )
)
