"""A loss through the Triton kernels: when they serve, what they are given, and their gradient in autograd."""

from __future__ import annotations

import contextlib
import importlib.metadata
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from labelhedge.losses._adaptive import octaves
from labelhedge.losses._options import Number, is_traced
from labelhedge.losses._with_gradient import is_batched, with_gradient

if TYPE_CHECKING:
    from labelhedge.kernels.launch import Call, Prepared
    from labelhedge.losses._batch import Batch
    from labelhedge.losses._spec import LossSpec

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
OLDEST_TRITON = (3, 4)


NAMES_OF_TRITON = ("triton", "pytorch-triton", "triton-windows")
"""Under which it is published."""


def _has_triton() -> bool:
    for name in NAMES_OF_TRITON:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return _is_known(importlib.metadata.version(name))
    return False


def _is_known(version: str) -> bool:
    """Whether the kernels know a version such as ``3.5.0``, ``3.5rc1`` or ``3.4.0+git1234``."""
    numbers = re.match(r"(\d+)\.(\d+)", version)
    return numbers is not None and (int(numbers[1]), int(numbers[2])) >= OLDEST_TRITON


_HAS_TRITON = _has_triton()


def serves(spec: LossSpec, backend: str, logits: Tensor, target: Tensor, others: Iterable[Any]) -> bool:
    """Whether to take the kernels for a loss; raises if they are asked for and cannot serve.

    ``others`` are the hyperparameters and class weights.
    """
    if backend == "torch" or (backend == "auto" and not logits.is_cuda):
        return False
    obstacle = _obstacle(spec, logits, target, others)
    if obstacle and backend == "triton":
        raise ValueError(f"backend='triton' cannot serve this call of {spec.id}: {obstacle}")
    return obstacle is None


def _obstacle(spec: LossSpec, logits: Tensor, target: Tensor, others: Iterable[Any]) -> str | None:
    if spec.closed_form is None:
        return "there is no kernel for it, since it declares no closed form"
    if not _HAS_TRITON:
        return f"Triton {'.'.join(map(str, OLDEST_TRITON))} or newer is not installed"
    from labelhedge.kernels import launch

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
    if (is_traced() and not torch.compiler.is_compiling()) or torch._C._are_functorch_transforms_active():
        return "a function transform is tracing"
    return None


def loss(batch: Batch, start: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
    """The reduced loss, and of ALDR-KL the λ of each sample ``(..., 1)`` as a constant.

    λ is what the batch gives, or one step of Algorithm 1 from ``start``, or the global maximum.
    """
    if torch.compiler.is_compiling():
        return compiled_loss(kernel_call(batch, start, denominator(batch)), batch, batch.logits)
    call = _KernelLoss(batch, start)
    if batch.logits.requires_grad and torch.is_grad_enabled():
        return with_gradient(batch.logits, call), call.lam
    with torch.no_grad():
        return call.loss(wants_gradient=False), call.lam


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
    if values.dim() != 1:
        values = values.reshape(-1)
    return values.contiguous()


class _KernelLoss:
    """A loss by the kernels, and what they find. It keeps neither the loss, which refers to it, nor the logits."""

    lam: Tensor | None = None
    gradient: Tensor | None = None

    def __init__(self, batch: Batch, start: Tensor | None) -> None:
        self.batch, self.start = batch, start

    def loss(self, wants_gradient: bool) -> Tensor:
        from labelhedge.kernels import launch

        batch, start = self.batch, self.start
        rows, target = _rows(batch.logits), _flat(batch.target)
        number = target.shape[0]
        counted = batch.reduction == "mean" and batch.weight is None and number <= launch.FEW_ROWS
        prepared = self._prepared(rows, counted)
        is_total = prepared.adds_up and batch.reduction != "none" and number > 0
        value = torch.empty(() if is_total else (number,), dtype=torch.float32, device=rows.device)
        lam = value.new_empty(number) if "lambda0" in batch.params else None
        if wants_gradient and batch.gradient_can_come_first():
            self.gradient = torch.empty_like(rows, memory_format=torch.contiguous_format)
        start = None if start is None else _flat(start).float()
        prepared.visit(
            rows,
            target,
            None if counted else denominator(batch),
            start,
            value=None if is_total else value,
            total=value if is_total else None,
            lam=lam,
            gradient=self.gradient,
        )
        if lam is not None:
            self.lam = lam.view(*batch.logits.shape[:-1], 1)
        self.batch, self.start = batch.without_logits(), None
        if is_total:
            return value
        if batch.reduction == "none":
            return value.view(batch.logits.shape[:-1])
        return launch.total(value) if number else batch.reduce_weighted(value)

    def _prepared(self, rows: Tensor, counted: bool) -> Prepared:
        """The call, from the memory of the batch if one of the kind has been made before."""
        from labelhedge.kernels import launch

        memory, kind = self.batch.memory, self.start is None
        prepared: Prepared | None = None if memory is None else memory.get(kind)
        if prepared is None:
            prepared = launch.Prepared(kernel_call(self.batch, self.start), rows, mean=counted)
            if memory is not None:
                memory[kind] = prepared
        return prepared

    def take_gradient(self, logits: Tensor, upstream: Tensor) -> Tensor:
        from labelhedge.kernels import launch

        if is_batched(upstream):
            one = self._gradient(logits, None)
            return one * (upstream if self.batch.reduction != "none" else upstream.unsqueeze(-1))
        gradient, self.gradient = self.gradient, None
        if gradient is None:
            return self._gradient(logits, upstream)
        launch.rescale(gradient, upstream)
        return gradient if gradient.shape == logits.shape else gradient.view(logits.shape)

    def _gradient(self, logits: Tensor, upstream: Tensor | None) -> Tensor:
        """The gradient by a visit of its own, at the λ found."""
        from labelhedge.kernels import launch

        rows = _rows(logits)
        gradient = torch.empty_like(rows, memory_format=torch.contiguous_format)
        call = kernel_call(self.batch.with_logits(logits), None, denominator(self.batch))
        if self.lam is not None:
            call = replace(call, lam=self.lam.view(-1), solve="given")
        launch.visit(
            call, rows, gradient=gradient, upstream=None if upstream is None else upstream.reshape(-1).contiguous()
        )
        return gradient.view(logits.shape)

    def differentiable_loss(self, logits: Tensor) -> Tensor:
        """The loss by the plain formula."""
        batch = self.batch.with_logits(logits).plain()
        return batch.reduce(batch.with_params(**found_lam(batch, self.lam)).values())


def found_lam(batch: Batch, lam: Tensor | None) -> dict[str, Tensor | None]:
    """The λ that was found, for the plain formula of a loss that looks for one."""
    return {"lam": lam} if "lambda0" in batch.params else {}


def kernel_call(batch: Batch, start: Tensor | None = None, denominator: Tensor | None = None) -> Call:
    """The batch as the kernels take it."""
    from labelhedge.kernels import formulas, launch

    assert batch.target is not None
    assert batch.spec.closed_form is not None
    shape, classes = (*batch.target.shape, 1), batch.logits.shape[-1]

    def flat(value: Number | None) -> Any:
        return _flat(value.expand(shape)).float() if isinstance(value, Tensor) else value

    form = batch.spec.closed_form
    params = {name: flat(value) for name, value in batch.params.items()}
    lam, solve, count = params.get("lam", form.lam), "given", 1
    if "lambda0" in params and lam is None:
        lam, solve = (None, "exact") if start is None else (flat(start), "step")
        count = 1 if params["alpha"] is None else octaves(params["alpha"] * params["lambda0"], classes)
    return launch.Call(
        formulas.compiled(batch.spec.id, form.finish, form.terms, form.needs),
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
        params=tuple(params[name] for name in form.params),
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
