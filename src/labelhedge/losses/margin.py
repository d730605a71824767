"""Losses of the gaps between the other logits and the label's: Crammer-Singer and Weston-Watkins."""

from __future__ import annotations

from typing import Unpack

import torch
from torch import Tensor

from labelhedge.losses._apply import Common, Number, apply, is_label, take
from labelhedge.losses._module import Loss
from labelhedge.losses._spec import Interval, LossSpec, one_by_one, register

MARGIN = Interval("[0, inf)")


def gaps(logits: Tensor, target: Tensor, margin: Number) -> Tensor:
    """``q_k = f_k - f_y + c_y`` for the other classes and 0 for the label, ``(..., K)``."""
    others = logits - take(logits, target) + margin
    if torch.compiler.is_compiling():
        return torch.where(is_label(target, logits), 0.0, others)
    return others.scatter(-1, target, 0.0)


def cs(logits: Tensor, target: Tensor, *, margin: Number = 1.0, **common: Unpack[Common]) -> Tensor:
    """Crammer-Singer loss (multi-class SVM), ``max(0, max_{k≠y} f_k - f_y + c_y)``.

    Args:
        logits: As in :func:`ce`.
        target: Class indices. (Class probabilities have no natural reading.)
        margin: c, at least 0: a number, a tensor of K values c_y, or a tensor of two or more dimensions (or none)
            that broadcasts against the target.
        **common: See :class:`labelhedge.losses.Common`.

    Example:
        >>> cs(torch.tensor([[2.0, 1.5, 0.0]]), torch.tensor([0]))
        tensor(0.5000)
    """
    return apply(CS, logits, target, common, margin=margin)


def _cs(logits: Tensor, target: Tensor, margin: Number) -> Tensor:
    return gaps(logits, target, margin).amax(-1, keepdim=True)


def ww(logits: Tensor, target: Tensor, *, margin: Number = 1.0, **common: Unpack[Common]) -> Tensor:
    """Weston-Watkins loss, ``Σ_{k≠y} max(0, f_k - f_y + c_y)``: a sum over the classes, not a mean.

    Args and result as in :func:`cs`.

    Example:
        >>> ww(torch.tensor([[2.0, 1.5, 1.5]]), torch.tensor([0]))
        tensor(1.)
    """
    return apply(WW, logits, target, common, margin=margin)


def _ww(logits: Tensor, target: Tensor, margin: Number) -> Tensor:
    return gaps(logits, target, margin).relu().sum(-1, keepdim=True)


class CSLoss(Loss):
    """Module form of :func:`cs`."""

    function = staticmethod(cs)


class WWLoss(Loss):
    """Module form of :func:`ww`."""

    function = staticmethod(ww)


CS = register(
    LossSpec(
        "cs",
        "max(0, max_{k≠y} f_k - f_y + c)",
        _cs,
        cs,
        CSLoss,
        domains={"margin": MARGIN},
        grid=one_by_one(margin=(0.1, 1.0, 10.0)),
        consistency="none",
        reference="Crammer and Singer 2001",
    )
)
WW = register(
    LossSpec(
        "ww",
        "Σ_{k≠y} max(0, f_k - f_y + c)",
        _ww,
        ww,
        WWLoss,
        domains={"margin": MARGIN},
        grid=one_by_one(margin=(0.1, 1.0, 10.0)),
        consistency="none",
        reference="Weston and Watkins 1998",
    )
)
