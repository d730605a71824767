"""A loss through the kernels: when they serve, what they are given, and their gradient in autograd."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from labelhedge.losses._adaptive import octaves
from labelhedge.losses._with_gradient import is_batched, with_gradient

if TYPE_CHECKING:
    from labelhedge.kernels.launch import Call, Prepared
    from labelhedge.losses._apply import Batch, Number
    from labelhedge.losses._spec import LossSpec


def _has_triton() -> bool:
    try:
        version = importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        return False
    return tuple(int(part) for part in version.split(".")[:2]) >= (3, 4)


_HAS_TRITON = _has_triton()
DTYPES = (torch.float16, torch.bfloat16, torch.float32)


def serves(id: str, backend: str, logits: Tensor, target: Tensor, others: Iterable[Any]) -> bool:
    """Whether to take the kernels for the loss ``id``; raises if they are asked for and cannot serve.

    ``others`` are the hyperparameters and class weights.
    """
    if backend == "torch" or (backend == "auto" and not logits.is_cuda):
        return False
    obstacle = _obstacle(id, logits, target, others)
    if obstacle and backend == "triton":
        raise ValueError(f"backend='triton' cannot serve this call of {id}: {obstacle}")
    return obstacle is None


def _obstacle(id: str, logits: Tensor, target: Tensor, others: Iterable[Any]) -> str | None:
    if not _HAS_TRITON:
        return "Triton 3.4 or newer is not installed"
    from labelhedge.kernels import launch
    from labelhedge.kernels.formulas import FORMULAS

    if id not in FORMULAS:
        return f"there is no kernel for it; there is for {', '.join(FORMULAS)}"
    if torch.version.hip is not None:
        return "the kernels are for NVIDIA's devices"
    if not (logits.is_cuda or launch.INTERPRETED):
        return f"the logits are on {logits.device}, and it needs a CUDA device (or TRITON_INTERPRET=1)"
    if logits.dtype not in DTYPES:
        return f"the logits are {logits.dtype}, and it takes float16, bfloat16 and float32"
    if target.is_floating_point():
        return "the target holds class probabilities, and it takes class indices"
    tensors = [value for value in others if isinstance(value, Tensor)]
    if any(tensor.requires_grad for tensor in tensors):
        return "a hyperparameter or weight requires a gradient"
    if any(tensor.device != logits.device for tensor in (target, *tensors)):
        return f"the logits are on {logits.device}, but not all else"
    if torch._C._are_functorch_transforms_active():
        return "a function transform is tracing"
    return None


def loss(spec: LossSpec, batch: Batch, start: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The reduced loss, and λ of each sample ``(..., 1)`` as a constant (1 for losses without λ).

    For ALDR-KL λ is what the batch gives, or one step of Algorithm 1 from ``start``, or the global maximum.
    """
    if torch.compiler.is_compiling():
        return compiled_loss(kernel_call(spec, batch, start, denominator(batch)), batch, batch.logits)
    visit = _Visit(spec, batch, start)
    if batch.logits.requires_grad and torch.is_grad_enabled():
        return with_gradient(batch.logits, visit), visit.lam
    with torch.no_grad():
        return visit.loss(wants_gradient=False), visit.lam


def compiled_loss(call: Call, batch: Batch, inputs: Tensor, layer: Sequence[Tensor] = ()) -> tuple[Tensor, Tensor]:
    """The same for the compiler; the inputs are logits, or those of a layer."""
    from labelhedge.kernels import compiled

    shape = inputs.shape[:-1]
    value, lam = compiled.visit(call, _rows(inputs), layer)
    return batch.reduce_weighted(value.view(shape)), lam.detach().view(*shape, 1)


def _rows(values: Tensor) -> Tensor:
    """``(N, K)``, each row in one piece."""
    rows = values if values.dim() == 2 else values.reshape(-1, values.shape[-1])
    return rows if rows.stride(-1) == 1 else rows.contiguous()


def _flat(values: Tensor | None) -> Tensor:
    """One number per row, ``(N,)``, next to each other."""
    assert values is not None
    return values.reshape(-1).contiguous()


_PREPARED: dict[Hashable, Prepared] = {}
"""Calls that have been made before, by what their batch is remembered by."""


class _Visit:
    """A visit and what it finds. It keeps neither the loss, which refers to it through the graph, nor the logits."""

    lam: Tensor
    gradient: Tensor | None = None

    def __init__(self, spec: LossSpec, batch: Batch, start: Tensor | None) -> None:
        self.spec, self.batch, self.start = spec, batch, start

    def loss(self, wants_gradient: bool) -> Tensor:
        from labelhedge.kernels import launch

        batch, start = self.batch, self.start
        shape = batch.logits.shape[:-1]
        rows, target = _rows(batch.logits), _flat(batch.target)
        value = torch.empty(target.shape, device=rows.device)
        lam = torch.empty_like(value)
        if wants_gradient and batch.gradient_can_come_first():
            self.gradient = torch.empty_like(rows, memory_format=torch.contiguous_format)
        key = None if batch.key is None else (batch.key, start is None)
        prepared = _PREPARED.get(key)
        if prepared is None:
            prepared = launch.Prepared(kernel_call(self.spec, batch, start), rows)
            if key is not None:
                remember(_PREPARED, key, prepared)
        self.denominator = denominator(batch)
        start = None if start is None else _flat(start).float()
        prepared.visit(rows, target, self.denominator, start, value=value, lam=lam, gradient=self.gradient)
        self.lam = lam.view(*shape, 1)
        self.batch, self.start = batch.with_logits(value), None
        if batch.reduction == "none":
            return value.view(shape)
        return launch.total(value) if value.numel() else batch.reduce_weighted(value)

    def take_gradient(self, logits: Tensor, upstream: Tensor) -> Tensor:
        from labelhedge.kernels import launch

        if is_batched(upstream):
            one = self._gradient(logits, None)
            return one * (upstream if self.batch.reduction != "none" else upstream.unsqueeze(-1))
        gradient, self.gradient = self.gradient, None
        if gradient is None:
            return self._gradient(logits, upstream)
        launch.rescale(gradient, upstream)
        return gradient.view(logits.shape)

    def _gradient(self, logits: Tensor, upstream: Tensor | None) -> Tensor:
        """The gradient by a visit of its own, at the λ found."""
        from labelhedge.kernels import launch

        rows = _rows(logits)
        gradient = torch.empty_like(rows, memory_format=torch.contiguous_format)
        call = kernel_call(self.spec, self.batch.with_logits(logits), None, self.denominator)
        call = replace(call, lam=self.lam.view(-1), solve="given")
        launch.visit(
            call, rows, gradient=gradient, upstream=None if upstream is None else upstream.reshape(-1).contiguous()
        )
        return gradient.view(logits.shape)

    def differentiable_loss(self, logits: Tensor) -> Tensor:
        """The loss by the plain formula."""
        batch = self.batch.with_logits(logits).plain()
        params = batch.params | ({"lam": self.lam} if "lam" in batch.params else {})
        return batch.reduce(self.spec.formula(batch.scaled_logits(), batch.target, **params))


def remember(memory: dict[Hashable, Any], key: Hashable, what: Any) -> None:
    """Keep ``what``; a program whose batches never repeat must not keep them all."""
    if len(memory) >= 1000:
        memory.clear()
    memory[key] = what


def kernel_call(spec: LossSpec, batch: Batch, start: Tensor | None = None, denominator: Tensor | None = None) -> Call:
    """The batch as the kernels take it."""
    from labelhedge.kernels import launch
    from labelhedge.kernels.formulas import FORMULAS

    assert batch.target is not None
    shape, classes = batch.target.shape, batch.logits.shape[-1]

    def flat(value: Number | None) -> Any:
        return _flat(value.expand(shape)).float() if isinstance(value, Tensor) else value

    params = {name: flat(value) for name, value in batch.params.items()}
    formula = "tgce-masked" if params.get("keep") is not None else spec.id
    lam, solve, count = params.get("lam"), "given", 1
    if spec.id == "cs":
        lam = 0.0
    if spec.id == "aldr-kl" and lam is None:
        lam, solve = (None, "exact") if start is None else (flat(start), "step")
        count = 1 if params["alpha"] is None else octaves(params["alpha"] * params["lambda0"], classes)
    return launch.Call(
        formula,
        _flat(batch.target),
        batch.ignore_index,
        weight=None if batch.weight is None else batch.weight.contiguous(),
        denominator=denominator,
        normalize=batch.normalize,
        temperature=flat(batch.temperature) if batch.has_temperature() else None,
        margin=params.get("margin"),
        lam=lam,
        lambda0=params.get("lambda0"),
        alpha=params.get("alpha"),
        solve=solve,
        octaves=count,
        params=tuple(params[name] for name in FORMULAS[formula].params),
    )


def denominator(batch: Batch) -> Tensor | None:
    """What the mean divides by, one number."""
    from labelhedge.kernels import launch

    if batch.reduction != "mean":
        return None
    target = _flat(batch.target)
    if batch.weight is None and not torch.compiler.is_compiling():
        return launch.count(target, batch.ignore_index)
    counts = target != batch.ignore_index
    return counts.sum() if batch.weight is None else (batch.weight[torch.where(counts, target, 0)] * counts).sum()
