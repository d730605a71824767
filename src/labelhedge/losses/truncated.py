"""TGCE: generalised cross entropy that gives up on samples it does not believe."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Unpack

import torch
from torch import Tensor

from labelhedge.losses import _fused as fused
from labelhedge.losses._apply import Batch, Common, Number, log_softmax, per_sample, prepare, take
from labelhedge.losses._per_sample import PerSampleLoss
from labelhedge.losses._spec import Interval, LossSpec, one_by_one, register
from labelhedge.losses.probability import box_cox, of_log_p


def tgce(
    logits: Tensor,
    target: Tensor,
    *,
    q: Number = 0.7,
    k: Number = 0.5,
    keep: Tensor | None = None,
    **common: Unpack[Common],
) -> Tensor:
    """Truncated generalised cross entropy, ``(1 - max(p_y, k)^q)/q`` (Zhang and Sabuncu, 2018).

    As printed it has no gradient wherever ``p_y < k``, so with k = 0.5 a network does not train from a random start.
    Training takes a mask instead: :func:`gce` where ``keep`` is True, the constant ``(1 - k^q)/q`` where it is not. The
    module :class:`TGCELoss` keeps that mask.

    Args:
        logits: As in :func:`ce`.
        target: As in :func:`ce`.
        q: In [0, 1]; a number or a tensor that broadcasts against the class indices.
        k: In [0, 1], likewise.
        keep: Booleans that broadcast against the class indices, or None for the printed formula.
        **common: See :class:`labelhedge.losses.Common`.

    Example:
        >>> tgce(torch.zeros(1, 4), torch.tensor([0]), q=1.0)
        tensor(0.5000)
        >>> tgce(torch.zeros(1, 4), torch.tensor([0]), q=1.0, keep=torch.tensor([True]))
        tensor(0.7500)
    """
    return _reduced(prepare(TGCE, logits, target, common, {"q": q, "k": k}), keep)


def _reduced(batch: Batch, keep: Tensor | None) -> Tensor:
    if keep is not None:
        if keep.dtype != torch.bool:
            raise TypeError(f"keep must be a tensor of booleans, got dtype {keep.dtype}")
        keep = per_sample("keep", keep, batch.logits, batch.target)
    if batch.fused:
        key = batch.key if keep is None else None
        return fused.loss(TGCE, replace(batch, params=batch.params | {"keep": keep}, key=key))[0]
    return batch.reduce(TGCE.formula(batch.scaled_logits(), batch.target, keep=keep, **batch.params))


def _tgce(log_p: Tensor, target: Tensor | None, q: Number, k: Number, keep: Tensor | None = None) -> Tensor:
    log_p_y = take(log_p, target)
    log_k = k.log() if isinstance(k, Tensor) else log_p_y.new_full((), math.log(k) if k > 0 else -math.inf)
    if keep is None:
        return box_cox(torch.maximum(log_p_y, log_k), q)
    return torch.where(keep, box_cox(log_p_y, q), box_cox(log_k, q))


class TGCELoss(PerSampleLoss):
    """Module form of :func:`tgce`, and the way its authors train with it.

    ``TGCELoss()`` is the printed formula. ``TGCELoss(num_samples=N)`` keeps a mask of the training samples in the
    buffer ``keep``, all True at first: it is :func:`gce` on kept samples and constant on the others. Call
    :meth:`refresh` on the whole training set now and then after a warm-up, for example every tenth epoch in the second
    half of training. Like training it needs ``criterion(logits, target, index)``; in eval mode the index may be left
    out, for the printed formula.

    Example:
        >>> criterion = TGCELoss(num_samples=3)
        >>> logits, target, index = torch.tensor([[0.0, 2.0]]), torch.tensor([0]), torch.tensor([1])
        >>> criterion.refresh(logits, target, index)
        >>> criterion.keep
        tensor([ True, False,  True])
    """

    function = staticmethod(tgce)
    buffer = "keep"
    keep: Tensor | None

    def __init__(self, *, num_samples: int | None = None, **options: Any) -> None:
        super().__init__(**options)
        self._register_state(num_samples, True)

    def initial(self) -> bool:
        return True

    def visit(self, logits: Tensor, target: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        return _reduced(self._prepare(logits, target), value), value

    def review(self, logits: Tensor, target: Tensor) -> Tensor:
        """Which samples to keep, those whose ``p_y`` exceeds k; for callers that keep the values, as ``visit`` is."""
        return self._believed(self._prepare(logits, target)).view(target.shape)

    def forward(self, logits: Tensor, target: Tensor, index: Tensor | None = None) -> Tensor:
        return _reduced(self._prepare(logits, target), self._stored(index, target))

    @torch.no_grad()
    def refresh(self, logits: Tensor, target: Tensor, index: Tensor) -> None:
        """Keep the samples at ``index`` whose ``p_y`` exceeds k, and no others."""
        self._stored(index, target)
        batch = self._prepare(logits, target)
        self._store(index, self._believed(batch), batch.counted())

    def _believed(self, batch: Batch) -> Tensor:
        if batch.target is None:
            raise ValueError("target must be class indices")
        batch = batch.plain()
        p_y = take(log_softmax(batch.scaled_logits()).exp(), batch.target)
        return torch.gt(p_y, batch.params["k"])


TGCE = register(
    LossSpec(
        "tgce",
        "(1 - max(p_y, k)^q)/q",
        of_log_p(_tgce),
        tgce,
        TGCELoss,
        domains={"q": Interval("[0, 1]"), "k": Interval("[0, 1]")},
        grid=one_by_one(q=(0.05, 0.7, 0.95)),
        soft_targets=True,
        state="keep",
        bounded=True,
        reference="Zhang and Sabuncu 2018",
    )
)
