"""A classifier's last layer together with its loss: ``loss(hidden @ weight.T + bias, target)``.

On a CUDA device the logits never exist as a whole, which for many classes is most of the memory of training.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias, TypedDict, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor

from labelhedge._deprecation import warn_renamed
from labelhedge.losses import _kernels as kernels
from labelhedge.losses._batch import Batch, Settings, prepare
from labelhedge.losses._loss import Loss
from labelhedge.losses._options import Backend, Normalize, Number, Reduction
from labelhedge.losses.aldr import ALDRKLLoss, checked_lam
from labelhedge.losses.ldr import LDRKLLoss
from labelhedge.losses.probability import CELoss

__all__ = ["linear_aldr_kl", "linear_ce", "linear_ldr_kl"]

Inputs: TypeAlias = tuple[Tensor, Tensor, Tensor | None]
Wanted: TypeAlias = tuple[bool, bool, bool]
Gradients: TypeAlias = tuple[Tensor | None, Tensor | None, Tensor | None]


class HeadOptions(TypedDict, total=False):
    """Options of the losses with a linear layer: those of every loss, whose classes are always the last dimension.

    Attributes:
        ignore_index: Class-index targets of this value count for nothing; -100 by default.
        reduction: ``"none"``, ``"mean"`` (the default) or ``"sum"``.
        temperature: Divides the logits after the normaliser; 1 by default.
        backend: ``"auto"`` (the default), ``"torch"`` or ``"triton"``.
    """

    ignore_index: int
    reduction: Reduction
    temperature: Number
    backend: Backend


def linear_ce(
    hidden: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    linear_bias: Tensor | None = None,
    *,
    weight: Tensor | None = None,
    normalize: Normalize = None,
    **options: Unpack[HeadOptions],
) -> Tensor:
    """Cross entropy of ``hidden @ linear_weight.T + linear_bias``, without all logits at once.

    Args:
        hidden: ``(N, H)``, or ``(..., H)``.
        linear_weight: ``(K, H)``, as in ``nn.Linear``.
        target: Class indices, ``(N,)`` or ``(...)``.
        linear_bias: ``(K,)`` or None.
        weight: ``(K,)``, how much each class counts; None: all the same.
        normalize: What is done to the logits f first. None: nothing; ``"l1"``: divided by ``‖f‖₁/K``; ``"softplus"``:
            the same after a softplus.
        **options: ``ignore_index``, the target that counts for nothing (-100); ``reduction``, ``"none"``, ``"mean"``
            (the default) or ``"sum"``; ``temperature``, which divides the logits after the normaliser (1); ``backend``,
            ``"auto"`` (fused kernels where they serve, the default), ``"torch"`` or ``"triton"``. More in
            :class:`labelhedge.losses.Options`.

    Returns:
        The loss reduced as asked.

    Example:
        >>> linear_ce(torch.ones(1, 2), torch.tensor([[1.0, 1.0], [0.0, 0.0]]), torch.tensor([0]))
        tensor(0.1269)
    """
    given: dict[str, Any] = {"weight": weight, "normalize": normalize, **options}
    return _loss(CELoss, hidden, linear_weight, target, linear_bias, given)


def linear_ldr_kl(
    hidden: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    linear_bias: Tensor | None = None,
    *,
    lam: Number = 1.0,
    margin: Number = 0.1,
    weight: Tensor | None = None,
    normalize: Normalize = "l1",
    **options: Unpack[HeadOptions],
) -> Tensor:
    """LDR-KL (see :func:`ldr_kl`) of ``hidden @ linear_weight.T + linear_bias``, without all logits at once.

    Args:
        hidden: ``(N, H)``, or ``(..., H)``.
        linear_weight: ``(K, H)``, as in ``nn.Linear``.
        target: Class indices, ``(N,)`` or ``(...)``.
        linear_bias: ``(K,)`` or None.
        weight: ``(K,)``, how much each class counts; None: all the same.
        lam: λ in [0, ∞], a number or a tensor that broadcasts against the target.
        margin: c in [0, ∞), a number or a tensor of K values.
        normalize: What is done to the logits f first. ``"l1"``, the default: divided by ``‖f‖₁/K``; ``"softplus"``: the
            same after a softplus; None: nothing.
        **options: ``ignore_index``, the target that counts for nothing (-100); ``reduction``, ``"none"``, ``"mean"``
            (the default) or ``"sum"``; ``temperature``, which divides the logits after the normaliser (1); ``backend``,
            ``"auto"`` (fused kernels where they serve, the default), ``"torch"`` or ``"triton"``. More in
            :class:`labelhedge.losses.Options`.

    Returns:
        The loss reduced as asked.

    Example:
        >>> linear_ldr_kl(torch.ones(1, 1), torch.tensor([[2.0], [0.0], [-1.0]]), torch.tensor([0]), lam=math.inf)
        tensor(-1.6000)
    """
    given: dict[str, Any] = {"lam": lam, "margin": margin, "weight": weight, "normalize": normalize, **options}
    return _loss(LDRKLLoss, hidden, linear_weight, target, linear_bias, given)


def linear_aldr_kl(
    hidden: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    linear_bias: Tensor | None = None,
    *,
    lambda0: Number = 1.0,
    alpha: Number | None = None,
    margin: Number = 0.1,
    lam: Tensor | None = None,
    weight: Tensor | None = None,
    normalize: Normalize = "l1",
    **options: Unpack[HeadOptions],
) -> Tensor:
    """ALDR-KL (see :func:`aldr_kl`) of ``hidden @ linear_weight.T + linear_bias``, without all logits at once.

    Args:
        hidden: ``(N, H)``, or ``(..., H)``.
        linear_weight: ``(K, H)``, as in ``nn.Linear``.
        target: Class indices, ``(N,)`` or ``(...)``.
        linear_bias: ``(K,)`` or None.
        weight: ``(K,)``, how much each class counts; None: all the same.
        lambda0: λ0 in (0, ∞], a number or a tensor that broadcasts against the target.
        alpha: α in (0, ∞), a number or a tensor that broadcasts against the target; None, the default, is
            ``2 log K/λ0``.
        margin: c in [0, ∞), a number or a tensor of K values.
        lam: λ in [0, ∞] at which to take the loss instead, of the shape of the target.
        normalize: What is done to the logits f first. ``"l1"``, the default: divided by ``‖f‖₁/K``; ``"softplus"``: the
            same after a softplus; None: nothing.
        **options: ``ignore_index``, the target that counts for nothing (-100); ``reduction``, ``"none"``, ``"mean"``
            (the default) or ``"sum"``; ``temperature``, which divides the logits after the normaliser (1); ``backend``,
            ``"auto"`` (fused kernels where they serve, the default), ``"torch"`` or ``"triton"``. More in
            :class:`labelhedge.losses.Options`.

    Returns:
        The loss reduced as asked.

    Example:
        >>> linear_aldr_kl(torch.ones(1, 1), torch.tensor([[2.0], [0.0], [-1.0]]), torch.tensor([0]))
        tensor(-0.8056)
    """
    given: dict[str, Any] = {
        "lambda0": lambda0,
        "alpha": alpha,
        "margin": margin,
        "weight": weight,
        "normalize": normalize,
        **options,
    }
    return _loss(ALDRKLLoss, hidden, linear_weight, target, linear_bias, given, lam)


def _loss(
    kind: type[Loss],
    hidden: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None,
    given: dict[str, Any],
    lam: Tensor | None = None,
) -> Tensor:
    if "class_weight" in given:
        warn_renamed("class_weight", "weight", removed_in="0.3", stacklevel=3)
        given["weight"] = given.pop("class_weight")
    if "bias" in given:
        warn_renamed("bias", "linear_bias", removed_in="0.3", stacklevel=3)
        bias = given.pop("bias")
    if weight.dim() != 2 or hidden.dim() == 0 or hidden.shape[-1] != weight.shape[-1]:
        raise ValueError(
            "hidden must have shape (..., H) and linear_weight (K, H), "
            f"got {tuple(hidden.shape)} and {tuple(weight.shape)}"
        )
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(f"linear_bias must have shape ({len(weight)},), one per class, got {tuple(bias.shape)}")
    if torch.is_autocast_enabled(hidden.device.type):
        dtype = torch.get_autocast_dtype(hidden.device.type)
        hidden, weight, bias = hidden.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype)
    spec = kind.spec
    spec.refuse_unknown(given, without=("class_dim",))
    settings = Settings.of({**spec.options, "class_dim": -1, **given})
    stand_in = hidden.new_empty(()).expand(*hidden.shape[:-1], len(weight))  # of the logits, for the checks
    batch = prepare(spec, stand_in, target, settings)
    if not batch.for_kernels:
        batch = prepare(spec, F.linear(hidden, weight, bias), target, settings)
    if lam is not None:
        batch = batch.with_params(lam=checked_lam("lam", lam, batch))
    if not batch.for_kernels:
        return kind.of_batch(batch, {})[0]
    if torch.compiler.is_compiling():
        layer = [weight] if bias is None else [weight, bias]
        call = kernels.kernel_call(batch, None, kernels.denominator(batch))
        return kernels.compiled_loss(call, batch, hidden, layer)[0]
    head = _Head(batch)
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (hidden, weight, bias)):
        return _with_gradients(hidden, weight, bias, head)
    with torch.no_grad():
        return head.loss((hidden, weight, bias), (False, False, False))


class _Head:
    """A layer with its loss, and what the kernels find; inputs are hidden units, weights and biases."""

    lam: Tensor
    gradients: Gradients | None = None

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.call = kernels.kernel_call(batch, None, kernels.denominator(batch))

    def loss(self, inputs: Inputs, wanted: Wanted) -> Tensor:
        """The reduced loss; the gradients ``wanted`` are kept, if they are good before the upstream is known."""
        shape = inputs[0].shape[:-1]
        value, self.lam = (torch.empty(shape.numel(), dtype=torch.float32, device=inputs[0].device) for _ in range(2))
        now = any(wanted) and self.batch.gradient_can_come_first()
        gradients = self._visit(inputs, wanted if now else (False, False, False), value=value, lam=self.lam)
        self.gradients = gradients if now else None
        return self.batch.reduce_weighted(value.view(shape))

    def take_gradients(self, inputs: Inputs, wanted: Wanted, upstream: Tensor) -> Gradients:
        """The gradients times ``upstream``, for the caller to keep and to change; a second call makes new ones."""
        from labelhedge.kernels import launch

        gradients, self.gradients = self.gradients, None
        if gradients is None:
            self.call = replace(self.call, lam=self.lam, solve="given")
            return self._visit(inputs, wanted, upstream=upstream.reshape(-1).contiguous())
        for gradient in gradients:
            if gradient is not None:
                launch.rescale(gradient, upstream)
        return gradients

    def _visit(self, inputs: Inputs, wanted: Wanted, **others: Tensor) -> Gradients:
        from labelhedge.kernels.head import visit_head

        hidden, weight, bias = inputs
        rows = hidden.reshape(-1, hidden.shape[-1])
        of_hidden = torch.empty_like(rows) if wanted[0] else None
        of_weight = torch.empty_like(weight) if wanted[1] else None
        of_bias = torch.empty_like(bias) if wanted[2] and bias is not None else None
        visit_head(
            self.call,
            rows,
            weight,
            bias,
            hidden_gradient=of_hidden,
            weight_gradient=of_weight,
            bias_gradient=of_bias,
            **others,
        )
        return None if of_hidden is None else of_hidden.view(hidden.shape), of_weight, of_bias

    def differentiable_loss(self, inputs: Inputs) -> Tensor:
        """The loss by a matrix product and the plain formula."""
        hidden, weight, bias = inputs
        batch = replace(self.batch, logits=F.linear(hidden, weight, bias)).plain()
        return batch.reduce(
            batch.with_params(**kernels.found_lam(batch, self.lam.view(*hidden.shape[:-1], 1))).values()
        )


class _WithGradients(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, head: _Head) -> Tensor:
        ctx.save_for_backward(hidden, weight, bias)
        ctx.head = head
        return head.loss((hidden, weight, bias), ctx.needs_input_grad[:3])

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        inputs, wanted = ctx.saved_tensors, ctx.needs_input_grad[:3]
        if not torch.is_grad_enabled():
            return *ctx.head.take_gradients(inputs, wanted, upstream), None
        differentiable = [x for x, want in zip(inputs, wanted, strict=True) if want]
        loss = ctx.head.differentiable_loss(inputs)
        found = iter(torch.autograd.grad(loss, differentiable, upstream, create_graph=True))
        return *(next(found) if want else None for want in wanted), None


_with_gradients: Callable[..., Tensor] = _WithGradients.apply
