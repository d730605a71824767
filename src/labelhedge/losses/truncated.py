"""TGCE: generalised cross entropy that gives up on samples it does not believe."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import replace
from typing import Any, Unpack

import torch
from torch import Tensor

from labelhedge.losses._batch import Batch, per_sample
from labelhedge.losses._closed_form import ClosedForm
from labelhedge.losses._formulas import log_softmax, take
from labelhedge.losses._loss import Loss, Rows, batch_of
from labelhedge.losses._math import log, maximum, where
from labelhedge.losses._options import Normalize, Number, Options
from labelhedge.losses._spec import LossSpec, State, one_by_one
from labelhedge.losses.probability import UNIT, box_cox, box_cox_and_slope

__all__ = ["TGCELoss", "tgce"]


def _tgce(log_p: Any, params: Any) -> Any:
    log_k = log(params[1])
    value, slope = box_cox_and_slope(maximum(log_p, log_k), params[0])
    return value, where(log_p > log_k, slope, where(log_p == log_k, 0.5 * slope, 0.0))


def _tgce_masked(log_p: Any, params: Any) -> Any:
    keep = params[2] != 0.0
    value, slope = box_cox_and_slope(log_p, params[0])
    constant, _slope = box_cox_and_slope(log(params[1]) + 0.0 * value, params[0])
    return where(keep, value, constant), where(keep, slope, 0.0)


class TGCELoss(Loss):
    """Truncated generalised cross entropy, ``(1 - max(p_y, k)^q)/q``, and the way its authors train with it.

    ``TGCELoss()`` is the formula that Zhang and Sabuncu (2018) print. It has no gradient wherever ``p_y < k``, so with
    k = 0.5 a network does not train from a random start. ``TGCELoss(num_samples=N)`` keeps a mask of the training
    samples in the buffer ``keep``, all True at first: it is :class:`GCELoss` on kept samples and the constant ``(1 -
    k^q)/q`` on the others. Call :meth:`refresh` on the whole training set now and then after a warm-up, for example
    every tenth epoch in the second half of training. Like training it needs ``criterion(logits, target, index)``; in
    eval mode the index may be left out, for the printed formula.

    Args:
        weight: ``(K,)``, how much each class counts; None: all the same.
        q: In [0, 1], a number or a tensor that broadcasts against the target.
        k: In [0, 1], a number or a tensor that broadcasts against the target.
        num_samples: How many training samples to keep the mask of; None: none.
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
        >>> criterion = TGCELoss(num_samples=3)
        >>> logits, target, index = torch.tensor([[0.0, 2.0]]), torch.tensor([0]), torch.tensor([1])
        >>> criterion.refresh(logits, target, index)
        >>> criterion.keep
        tensor([ True, False,  True])
    """

    spec = LossSpec(
        "tgce",
        "(1 - max(p_y, k)^q)/q",
        domains={"q": UNIT, "k": UNIT},
        grid=one_by_one(q=(0.05, 0.7, 0.95)),
        soft_targets=True,
        state=(State("keep", start=True, dtype=torch.bool),),
        closed_form=ClosedForm(_tgce, ("q", "k")),
        bounded=True,
        reference="Zhang and Sabuncu 2018",
    )
    q: Number
    keep: Tensor | None
    k: Number

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        q: Number = 0.7,
        k: Number = 0.5,
        num_samples: int | None = None,
        normalize: Normalize = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(weight, q=q, k=k, num_samples=num_samples, normalize=normalize, **options)

    @staticmethod
    def formula(logits: Tensor, target: Tensor | None, q: Number, k: Number, keep: Tensor | None = None) -> Tensor:
        """The printed formula; GCE or its value at k where ``keep`` says which."""
        log_p_y = take(log_softmax(logits), target)
        log_k = k.log() if isinstance(k, Tensor) else log_p_y.new_full((), math.log(k) if k > 0 else -math.inf)
        if keep is None:
            return box_cox(torch.maximum(log_p_y, log_k), q)
        constant = torch.where(log_p_y.isnan(), log_p_y, log_k)
        return torch.where(keep, box_cox(log_p_y, q), box_cox(constant, q))

    @classmethod
    def of_batch(cls, batch: Batch, rows: Rows) -> tuple[Tensor, Rows]:
        """The mask is a hyperparameter of each sample, which a call leaves as it is."""
        if rows:
            batch = replace(batch.with_params(**rows), spec=_MASKED)
        return super().of_batch(batch, {})[0], {}

    @staticmethod
    def end_of_epoch(logits: Tensor, target: Tensor | None, q: Number, k: Number, keep: Tensor) -> Rows:
        """Keep the samples whose ``p_y`` exceeds k, and no others."""
        if target is None:
            raise ValueError("target must be class indices")
        return {"keep": take(log_softmax(logits).exp(), target) > k}


_MASKED = dataclasses.replace(
    TGCELoss.spec, id="tgce with a mask", closed_form=ClosedForm(_tgce_masked, ("q", "k", "keep"))
).of(TGCELoss)
"""What runs where there is a mask."""


def tgce(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    q: Number = 0.7,
    k: Number = 0.5,
    keep: Tensor | None = None,
    normalize: Normalize = None,
    **options: Unpack[Options],
) -> Tensor:
    """Truncated generalised cross entropy, ``(1 - max(p_y, k)^q)/q`` (Zhang and Sabuncu, 2018).

    As printed it has no gradient wherever ``p_y < k``, so with k = 0.5 a network does not train from a random start.
    Training takes a mask instead: :func:`gce` where ``keep`` is True, the constant ``(1 - k^q)/q`` where it is not. The
    module :class:`TGCELoss` keeps that mask.

    Args:
        logits: ``(N, K)``, ``(K,)``, ``(N, K, d1, ...)`` or, with ``class_dim=-1``, ``(..., K)``.
        target: Class indices in [0, K), in the shape of the logits without the dimension of the classes, or class
            probabilities in the shape of the logits.
        weight: ``(K,)``, how much each class counts; None: all the same.
        q: In [0, 1], a number or a tensor that broadcasts against the target.
        k: In [0, 1], a number or a tensor that broadcasts against the target.
        keep: Booleans that broadcast against the class indices, or None for the printed formula.
        normalize: What is done to the logits f first. None: nothing; ``"l1"``: divided by ``‖f‖₁/K``; ``"softplus"``:
            the same after a softplus.
        **options: ``ignore_index``, the target that counts for nothing (-100); ``reduction``, ``"none"``, ``"mean"``
            (the default) or ``"sum"``; ``temperature``, which divides the logits after the normaliser (1);
            ``class_dim``, where the classes are (None: PyTorch's rule; -1: the last dimension); ``backend``, ``"auto"``
            (fused kernels where they serve, the default), ``"torch"`` or ``"triton"``. More in
            :class:`labelhedge.losses.Options`.

    Example:
        >>> tgce(torch.zeros(1, 4), torch.tensor([0]), q=1.0)
        tensor(0.5000)
        >>> tgce(torch.zeros(1, 4), torch.tensor([0]), q=1.0, keep=torch.tensor([True]))
        tensor(0.7500)
    """
    batch = batch_of(TGCELoss, logits, target, weight=weight, q=q, k=k, normalize=normalize, **options)
    if keep is None:
        return TGCELoss.of_batch(batch, {})[0]
    if not isinstance(keep, Tensor) or keep.dtype != torch.bool:
        raise TypeError(f"keep must be a tensor of booleans, got {getattr(keep, 'dtype', keep)}")
    return TGCELoss.of_batch(batch, {"keep": per_sample("keep", keep, batch.logits)})[0]
