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

from labelhedge.losses import _fused as fused
from labelhedge.losses._apply import Backend, Batch, Normalize, Number, Reduction, prepare
from labelhedge.losses._spec import LossSpec
from labelhedge.losses.aldr import ALDR_KL
from labelhedge.losses.ldr import LDR_KL
from labelhedge.losses.probability import CE

Inputs: TypeAlias = tuple[Tensor, Tensor, Tensor | None]
Wanted: TypeAlias = tuple[bool, bool, bool]
Gradients: TypeAlias = tuple[Tensor | None, Tensor | None, Tensor | None]


class HeadOptions(TypedDict, total=False):
    """Options of the losses with a linear layer: those of every loss, with class weights under another name.

    Attributes:
        class_weight: ``(K,)`` weight of each class.
        ignore_index: As for every loss, and so are the others.
        reduction: ``"none"``, ``"mean"`` or ``"sum"``.
        temperature: Divides the logits after the normaliser.
        backend: ``"auto"``, ``"torch"`` or ``"triton"``.
    """

    class_weight: Tensor | None
    ignore_index: int
    reduction: Reduction
    temperature: Number
    backend: Backend


def linear_ce(
    hidden: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None = None,
    *,
    normalize: Normalize = None,
    **options: Unpack[HeadOptions],
) -> Tensor:
    """:func:`ce` of ``hidden @ weight.T + bias``.

    Args:
        hidden: ``(N, H)``, or ``(..., H)``.
        weight: ``(K, H)``, as in ``nn.Linear``.
        target: Class indices, ``(N,)`` or ``(...)``.
        bias: ``(K,)`` or None.
        normalize: As for every loss.
        **options: See :class:`HeadOptions`.

    Returns:
        The loss reduced as asked.

    Example:
        >>> linear_ce(torch.ones(1, 2), torch.tensor([[1.0, 1.0], [0.0, 0.0]]), torch.tensor([0]))
        tensor(0.1269)
    """
    return _loss(CE, hidden, weight, target, bias, normalize, options, {})


def linear_ldr_kl(
    hidden: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None = None,
    *,
    lam: Number = 1.0,
    margin: Number = 0.1,
    normalize: Normalize = "l1",
    **options: Unpack[HeadOptions],
) -> Tensor:
    """:func:`ldr_kl` of ``hidden @ weight.T + bias``.

    Args and result as in :func:`linear_ce` and :func:`ldr_kl`.

    Example:
        >>> linear_ldr_kl(torch.ones(1, 1), torch.tensor([[2.0], [0.0], [-1.0]]), torch.tensor([0]), lam=math.inf)
        tensor(-1.6000)
    """
    return _loss(LDR_KL, hidden, weight, target, bias, normalize, options, {"lam": lam, "margin": margin})


def linear_aldr_kl(
    hidden: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None = None,
    *,
    lambda0: Number = 1.0,
    alpha: Number | None = None,
    margin: Number = 0.1,
    lam: Tensor | None = None,
    normalize: Normalize = "l1",
    **options: Unpack[HeadOptions],
) -> Tensor:
    """:func:`aldr_kl` of ``hidden @ weight.T + bias``.

    Args and result as in :func:`linear_ce` and :func:`aldr_kl`.

    Example:
        >>> linear_aldr_kl(torch.ones(1, 1), torch.tensor([[2.0], [0.0], [-1.0]]), torch.tensor([0]))
        tensor(-0.8056)
    """
    params = {"lambda0": lambda0, "alpha": alpha, "margin": margin, "lam": lam}
    return _loss(ALDR_KL, hidden, weight, target, bias, normalize, options, params)


def _loss(
    spec: LossSpec,
    hidden: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None,
    normalize: Normalize,
    options: HeadOptions,
    params: dict[str, Any],
) -> Tensor:
    if weight.dim() != 2 or hidden.dim() == 0 or hidden.shape[-1] != weight.shape[-1]:
        raise ValueError(
            f"hidden must have shape (..., H) and weight (K, H), got {tuple(hidden.shape)} and {tuple(weight.shape)}"
        )
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(f"bias must have shape ({len(weight)},), one per class, got {tuple(bias.shape)}")
    if torch.is_autocast_enabled(hidden.device.type):
        dtype = torch.get_autocast_dtype(hidden.device.type)
        hidden, weight, bias = hidden.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype)
    common: Any = {"normalize": normalize, "class_dim": -1, **options}
    common["weight"] = common.pop("class_weight", None)
    stand_in = hidden.new_empty(()).expand(*hidden.shape[:-1], len(weight))  # of the logits, for the checks
    batch = prepare(spec, stand_in, target, common, params.copy())
    if not batch.fused:
        return spec.function(F.linear(hidden, weight, bias), target, **common, **params)
    if torch.compiler.is_compiling():
        layer = [weight] if bias is None else [weight, bias]
        call = fused.kernel_call(spec, batch, None, fused.denominator(batch))
        return fused.compiled_loss(call, batch, hidden, layer)[0]
    visit = _HeadVisit(spec, batch)
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (hidden, weight, bias)):
        return _with_gradients(hidden, weight, bias, visit)
    with torch.no_grad():
        return visit.loss((hidden, weight, bias), (False, False, False))


class _HeadVisit:
    """A visit to the layer and what it finds; inputs are hidden units, weights and biases."""

    lam: Tensor
    gradients: Gradients | None = None

    def __init__(self, spec: LossSpec, batch: Batch) -> None:
        self.spec, self.batch = spec, batch
        self.call = fused.kernel_call(spec, batch, None, fused.denominator(batch))

    def loss(self, inputs: Inputs, wanted: Wanted) -> Tensor:
        """The reduced loss; the gradients ``wanted`` are kept, if they are good before the upstream is known."""
        shape = inputs[0].shape[:-1]
        value, self.lam = (torch.empty(shape.numel(), device=inputs[0].device) for _ in range(2))
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
        params = batch.params | ({"lam": self.lam.view(*hidden.shape[:-1], 1)} if "lam" in batch.params else {})
        return batch.reduce(self.spec.formula(batch.scaled_logits(), batch.target, **params))


class _WithGradients(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, visit: _HeadVisit) -> Tensor:
        ctx.save_for_backward(hidden, weight, bias)
        ctx.visit = visit
        return visit.loss((hidden, weight, bias), ctx.needs_input_grad[:3])

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        inputs, wanted = ctx.saved_tensors, ctx.needs_input_grad[:3]
        if not torch.is_grad_enabled():
            return *ctx.visit.take_gradients(inputs, wanted, upstream), None
        differentiable = [x for x, want in zip(inputs, wanted, strict=True) if want]
        loss = ctx.visit.differentiable_loss(inputs)
        found = iter(torch.autograd.grad(loss, differentiable, upstream, create_graph=True))
        return *(next(found) if want else None for want in wanted), None


_with_gradients: Callable[..., Tensor] = _WithGradients.apply
