"""The loss under examination, as a function of logits that gives the loss of every label; and whether it is sound."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from labelhedge._errors import UserError
from labelhedge.theory.verdict import written

Loss = Callable[[Tensor, Tensor], Tensor]
"""From logits ``(N, K)`` and class indices ``(N,)`` to one value per sample, ``(N,)``."""


class UnsoundLossError(UserError):
    """What was given is not a loss that anything can be said about; the message says why."""


@dataclass(frozen=True)
class Subject:
    """A loss and the number of classes to examine it with.

    Example:
        >>> Subject(lh.losses.create("ce", reduction="none"), 3).values(torch.zeros(1, 3))
        tensor([[1.0986, 1.0986, 1.0986]])
    """

    loss: Loss
    classes: int
    ball: float | None = None
    """The radius that logits are confined to; longer ones are shortened, which leaves their order alone."""

    def values(self, logits: Tensor) -> Tensor:
        """The loss of every label, ``(N, K)`` for logits ``(N, K)``."""
        if self.ball is not None:
            logits = logits * (self.ball / logits.norm(dim=-1, keepdim=True).clamp(min=self.ball))
        count = len(logits)
        labels = torch.arange(self.classes).repeat_interleave(count)
        found = self.loss(logits.repeat(self.classes, 1), labels)
        return found.view(self.classes, count).T

    def expected(self, logits: Tensor, probabilities: Tensor) -> Tensor:
        """``L(f, q) = Σ_l q_l ψ(f, l)``; a label that never occurs counts nothing, even where its loss is infinite."""
        values = self.values(logits)
        return torch.where(probabilities > 0, values * probabilities, 0.0).sum(-1)


def examine(loss: Loss, classes: int, *, ball: float | None = None, seed: int = 0) -> Subject:
    """Check that a loss can be examined at all.

    Raises:
        UnsoundLossError: It has the wrong shape, is not finite, not deterministic, mixes samples, or its gradient is
            not that of its value.
    """
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(16, classes, generator=generator, dtype=torch.float64)
    labels = torch.arange(16) % classes
    point = logits.clone().requires_grad_()
    try:
        found = loss(point, labels)
    except Exception as error:  # a user's loss may raise anything
        raise UnsoundLossError(f"the loss raises {type(error).__name__}: {error}") from error
    if not isinstance(found, Tensor) or found.shape != (16,):
        shape = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
        raise UnsoundLossError(f"the loss must return one value per sample, (16,) for 16 samples, got {shape}")
    if found.dtype != torch.float64:
        raise UnsoundLossError(f"the loss must keep float64, got {found.dtype}")
    if not found.isfinite().all():
        at = int((~found.isfinite()).nonzero()[0])
        raise UnsoundLossError(
            f"the loss is {found[at].item()} for logits {written(logits[at])} and label {int(labels[at])}"
        )
    if not torch.equal(found, loss(logits.clone().requires_grad_(), labels)):
        raise UnsoundLossError("the loss is not deterministic: the same logits gave two values")
    one_by_one = torch.cat([loss(logits[i : i + 1], labels[i : i + 1]) for i in range(16)])
    if not torch.allclose(one_by_one, found.detach(), rtol=1e-9, atol=1e-12):
        raise UnsoundLossError("the loss of a sample depends on the other samples of its batch")
    _check_gradient(loss, point, labels, found)
    return Subject(loss, classes, ball)


def _check_gradient(loss: Loss, point: Tensor, labels: Tensor, found: Tensor) -> None:
    """Compare the gradient with differences of values; kinks are met with probability 0."""
    if not found.requires_grad:
        raise UnsoundLossError("the loss has no gradient: it is detached from the logits")
    (slope,) = torch.autograd.grad(found.sum(), point, allow_unused=True)
    if slope is None:
        raise UnsoundLossError("the loss has no gradient: it is detached from the logits")
    width = 1e-6
    with torch.no_grad():
        for column in range(point.shape[1]):
            ahead, behind = point.clone(), point.clone()
            ahead[:, column] += width
            behind[:, column] -= width
            differences = (loss(ahead, labels) - loss(behind, labels)) / (2 * width)
            wrong = (differences - slope[:, column]).abs() > 1e-5 * (1 + differences.abs())
            if wrong.any():
                at = int(wrong.nonzero()[0])
                raise UnsoundLossError(
                    f"the gradient is not that of the value: by logit {column} of {written(point[at])} with label "
                    f"{int(labels[at])} it is {slope[at, column]:.6g}, and the value changes by {differences[at]:.6g}"
                )
