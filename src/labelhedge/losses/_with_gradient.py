"""A loss that brings its gradient along, in autograd."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor


class LossWithGradient(Protocol):
    """What finds a loss and, if wanted, its gradient at once."""

    def loss(self, wants_gradient: bool) -> Tensor:
        """The reduced loss."""

    def take_gradient(self, logits: Tensor, upstream: Tensor) -> Tensor:
        """The gradient times ``upstream``, one number or one per sample; the caller may keep and change it."""

    def differentiable_loss(self, logits: Tensor) -> Tensor:
        """The loss by the plain formula, for second derivatives."""


class _WithGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, call: LossWithGradient) -> Tensor:
        ctx.save_for_backward(logits)
        ctx.call = call
        return call.loss(wants_gradient=True)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None]:
        (logits,) = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True: somebody will differentiate this gradient
            loss = ctx.call.differentiable_loss(logits)
            return torch.autograd.grad(loss, logits, upstream, create_graph=True)[0], None
        return ctx.call.take_gradient(logits, upstream), None


def is_batched(upstream: Tensor) -> bool:
    """Whether a gradient is asked for many upstreams at once (is_grads_batched=True); then it is not to be read."""
    return bool(torch._C._functorch.is_legacy_batchedtensor(upstream))


with_gradient: Callable[..., Tensor] = _WithGradient.apply
