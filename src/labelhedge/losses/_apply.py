"""The one door every loss goes through: shapes, targets, normaliser, ignored labels, class weights, reduction.

The losses behind it see logits with the classes last and return one value per sample.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any, Literal, NoReturn, TypeAlias, TypedDict, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from labelhedge.losses import _fused as fused
from labelhedge.losses._spec import Interval, LossSpec, check_number, is_free_to_read

Number: TypeAlias = float | Tensor
Normalize: TypeAlias = Literal["l1", "softplus"] | None
Reduction: TypeAlias = Literal["none", "mean", "sum"]
Backend: TypeAlias = Literal["auto", "torch", "triton"]


class Shared(TypedDict, total=False):
    """Options of every loss, but for the normaliser."""

    weight: Tensor | None
    ignore_index: int
    reduction: Reduction
    temperature: Number
    class_dim: int | None
    backend: Backend


class Common(Shared, total=False):
    """Options of every loss.

    Attributes:
        weight: ``(K,)`` weight of each class, as in :func:`torch.nn.functional.cross_entropy`.
        ignore_index: Class-index targets of this value count for nothing.
        reduction: ``"none"``, ``"mean"`` (weighted, over the targets not ignored) or ``"sum"``.
        temperature: Divides the logits after the normaliser.
        class_dim: Where the classes are. None is PyTorch's rule, dimension 1 (0 for a single sample);
            -1 takes stacked logits ``(..., K)``.
        backend: ``"torch"``; ``"triton"``, fused kernels (an error where they cannot serve); ``"auto"``, those
            kernels on a CUDA device where they serve.
        normalize: None; ``"l1"``, logits divided by ``‖f‖₁/K``; ``"softplus"``, the same after a softplus.
    """

    normalize: Normalize


COMMON_DEFAULTS: Common = {
    "weight": None,
    "ignore_index": -100,
    "reduction": "mean",
    "normalize": None,
    "temperature": 1.0,
    "class_dim": None,
    "backend": "auto",
}
_POSITIVE = Interval("(0, inf)")


@dataclass(frozen=True)
class Batch:
    """A checked call: what the formulas need, and how to reduce what they return."""

    logits: Tensor
    """``(..., K)`` in float32 or float64, not yet normalised."""
    target: Tensor | None
    """``(..., 1)`` class indices with ignored ones set to 0; None for class probabilities."""
    probabilities: Tensor | None
    """``(..., K)`` class probabilities; None for class indices."""
    valid: Tensor | None
    """``(..., 1)`` False where the target is ignored; None if nothing is."""
    weight: Tensor | None
    reduction: Reduction
    normalize: Normalize
    temperature: Number
    params: dict[str, Any]
    """The hyperparameters: floats, or tensors ``(..., 1)``."""
    ignore_index: int
    fused: bool
    """Whether it is for the kernels: then the logits are as given, and ignored targets are still there."""
    key: Hashable = None
    """What a batch that can be remembered is remembered by."""

    def with_logits(self, logits: Tensor, target: Tensor | None = None) -> Batch:
        """The same with other logits and, if given, another target; quicker than ``dataclasses.replace``."""
        batch = object.__new__(Batch)
        batch.__dict__.update(self.__dict__, logits=logits, target=self.target if target is None else target)
        return batch

    def plain(self) -> Batch:
        """The same batch, but for the plain formula."""
        if not self.fused:
            return self
        assert self.target is not None
        target, valid = _class_indices(self.target.squeeze(-1), self.logits.shape[-1], self.ignore_index)
        return replace(self, logits=_widened(self.logits), target=target, valid=valid, fused=False)

    def counted(self) -> Tensor | None:
        """``(..., 1)`` False where the target is ignored; None if nothing is."""
        return self.target != self.ignore_index if self.fused and self.target is not None else self.valid

    def scaled_logits(self) -> Tensor:
        """The logits after normaliser and temperature."""
        scaled = normalized(self.logits, self.normalize)
        return scaled / self.temperature if self.has_temperature() else scaled

    def has_temperature(self) -> bool:
        """Whether the logits are divided by something."""
        return isinstance(self.temperature, Tensor) or self.temperature != 1.0

    def reduce(self, values: Tensor) -> Tensor:
        """Weight and reduce values ``(..., 1)``, or ``(..., K)`` if the targets are probabilities."""
        weight = None
        if self.probabilities is not None:
            shares = self.probabilities if self.weight is None else self.probabilities * self.weight
            values = (values * shares).sum(-1, keepdim=True)
        else:
            weight = self._weights(values.dtype)
            if self.valid is not None:
                values = torch.where(self.valid, values, 0.0)
            if weight is not None:
                values = values * weight
        if self.reduction == "none":
            return values.squeeze(-1)
        total = values.sum()
        if self.reduction == "sum":
            return total
        return total / (values.numel() if weight is None else weight.sum())

    def reduce_weighted(self, values: Tensor) -> Tensor:
        """Reduce values that are weighted and divided already, as the kernels leave them."""
        if self.reduction == "none":
            return values
        return values.sum() if values.numel() or self.reduction == "sum" else values.mean()  # the mean of none is NaN

    def gradient_can_come_first(self) -> bool:
        """Whether a gradient computed with the value is good: one upstream number will multiply it.

        In float16 it could be too small to be held before a gradient scaler multiplies it.
        """
        return self.reduction != "none" and self.logits.dtype != torch.float16

    def share_of_each(self) -> Number:
        """The derivative of the reduced loss by each sample's, for class indices: a float or ``(..., 1)``."""
        assert self.target is not None
        weight = self._weights(self.logits.dtype)
        if weight is None:
            return 1 / self.target.numel() if self.reduction == "mean" else 1.0
        if self.reduction != "mean":
            return weight
        total = weight.sum()
        return weight / torch.where(total == 0, 1.0, total)  # all ignored: a loss of 0/0, but a gradient of 0

    def _weights(self, dtype: torch.dtype) -> Tensor | None:
        """What each sample counts, ``(..., 1)``, by its class and by whether it is ignored; None if all count 1."""
        assert self.target is not None
        weight = None if self.weight is None else self.weight[self.target]
        if self.valid is not None:
            weight = self.valid.to(dtype) if weight is None else torch.where(self.valid, weight, 0.0)
        return weight


def apply(spec: LossSpec, logits: Tensor, target: Tensor, common: Common, **params: Any) -> Tensor:
    """The reduced loss of ``spec``."""
    batch = prepare(spec, logits, target, common, params)
    if batch.fused:
        return fused.loss(spec, batch)[0]
    return batch.reduce(spec.formula(batch.scaled_logits(), batch.target, **batch.params))


def prepare(spec: LossSpec, logits: Tensor, target: Tensor, common: Common, params: dict[str, Any]) -> Batch:
    """Check every argument of a call and bring it into the form the formulas expect."""
    key = _key(spec, logits, target, common, params)
    if key is not None and key in _REMEMBERED:
        return _REMEMBERED[key].with_logits(logits, target.unsqueeze(-1))
    options = COMMON_DEFAULTS | common
    if len(options) != len(COMMON_DEFAULTS):
        spec.refuse_unknown(options)
    check_common(options)
    logits = _classes_last(logits, target, options["class_dim"])
    classes = logits.shape[-1]
    if classes < 2 and spec.id != "ce":
        raise ValueError(f"logits must have at least 2 classes for {spec.id}, got {classes}")
    weight = options["weight"]
    if weight is not None:
        if weight.shape != (classes,):
            raise ValueError(f"weight must have shape ({classes},), one per class, got {tuple(weight.shape)}")
        weight = weight.to(_working_dtype(logits))

    others = (weight, options["temperature"], *params.values())
    for_kernels = fused.serves(spec.id, options["backend"], logits, target, others)
    indices = probabilities = valid = None
    if target.is_floating_point():
        if not spec.soft_targets:
            raise ValueError(f"target must be class indices for {spec.id}; it has no reading for class probabilities")
        if options["ignore_index"] >= 0:
            raise ValueError(
                f"ignore_index must be negative with class-probability targets, got {options['ignore_index']}"
            )
        probabilities = _widened(_classes_last(target, target, options["class_dim"]))
    elif for_kernels:
        indices = _as_indices(target).unsqueeze(-1)
    else:
        indices, valid = _class_indices(target, classes, options["ignore_index"])
    for name, value in params.items():
        spec.check(name, value)
        if isinstance(value, Tensor):
            params[name] = per_sample(name, value, logits, indices)
    temperature = options["temperature"]
    if isinstance(temperature, Tensor):
        temperature = per_sample("temperature", temperature, logits, indices)
    batch = Batch(
        logits if for_kernels else _widened(logits),
        indices,
        probabilities,
        valid,
        weight,
        options["reduction"],
        options["normalize"],
        temperature,
        params,
        options["ignore_index"],
        for_kernels,
        key if for_kernels else None,
    )
    if batch.key is not None:
        fused.remember(_REMEMBERED, key, batch.with_logits(logits.new_empty(0)))
    return batch


_REMEMBERED: dict[Hashable, Batch] = {}
"""Batches for the kernels whose arguments have been checked."""


def _key(spec: LossSpec, logits: Tensor, target: Tensor, common: Common, params: dict[str, Any]) -> Hashable:
    """What decides on everything that is to be checked; None where that includes more than plain numbers and names.

    On a GPU checking takes longer than the kernels do, so that it is done once and not for every batch.
    """
    backend = common.get("backend", "auto")
    if backend == "torch" or not (logits.is_cuda or backend == "triton") or logits.dim() != 2 or target.dim() != 1:
        return None
    if target.dtype != torch.long or torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return None
    values = (*common.values(), *params.values())
    if not all(value is None or isinstance(value, (int, float, str)) for value in values):
        return None
    kind = (logits.dtype, logits.shape, logits.stride(), logits.device, target.shape, target.device)
    return (spec.id, *kind, *common, *values)


def with_normalizer(shared: Shared, normalize: Normalize) -> Common:
    """The options of every loss, put together (PyTorch's compiler cannot call a TypedDict)."""
    return cast(Common, {**shared, "normalize": normalize})


def check_common(options: Common) -> None:
    """Raise if an option of every loss has a value it cannot have."""
    if options["reduction"] not in ("none", "mean", "sum"):
        raise ValueError(f"reduction must be 'none', 'mean' or 'sum', got {options['reduction']!r}")
    if options["normalize"] not in (None, "l1", "softplus"):
        raise ValueError(f"normalize must be None, 'l1' or 'softplus', got {options['normalize']!r}")
    if options["backend"] not in ("auto", "torch", "triton"):
        raise ValueError(f"backend must be 'auto', 'torch' or 'triton', got {options['backend']!r}")
    check_number("temperature", options["temperature"], _POSITIVE)


def normalized(logits: Tensor, normalize: Normalize) -> Tensor:
    """The logits divided by ``‖f‖₁/K``, after a softplus if asked; rows of zeros stay zeros."""
    if normalize is None:
        return logits
    if normalize == "softplus":
        logits = F.softplus(logits)
    scale = logits.abs().mean(-1, keepdim=True)
    return logits / torch.where(scale > torch.finfo(scale.dtype).tiny, scale, 1.0)


def log_softmax(logits: Tensor) -> Tensor:
    """``log p`` over the last dimension, in the memory layout of the logits."""
    return logits.mT.log_softmax(-2).mT if _lies_transposed(logits) else logits.log_softmax(-1)


def take(values: Tensor, target: Tensor | None) -> Tensor:
    """The entry of the label, ``(..., 1)``; with ``target=None`` the entries of all labels."""
    if target is None:
        return values
    if torch.compiler.is_compiling():  # unlike gather it has a gradient that fuses with what is around it
        return torch.where(is_label(target, values), values, 0.0).sum(-1, keepdim=True)
    return values.mT.gather(-2, target.mT).mT if _lies_transposed(values) else values.gather(-1, target)


def is_label(target: Tensor, values: Tensor) -> Tensor:
    """Whether a class is the label, ``(..., K)``."""
    return torch.arange(values.shape[-1], device=values.device) == target


def _lies_transposed(values: Tensor) -> bool:
    """Whether ``(M, B, K)`` is a view of ``(M, K, B)``.

    torch would copy it and go over rows of K; where it lies, B samples are taken at once, which for few classes is 20
    times faster on a CPU.
    """
    return values.dim() > 1 and values.stride(-1) > values.stride(-2) == 1


def _classes_last(values: Tensor, target: Tensor, class_dim: int | None) -> Tensor:
    """Move the classes to the last dimension and check ``values`` against ``target``."""
    if not values.is_floating_point():
        raise TypeError(f"logits must be floating point, got dtype {values.dtype}")
    if values.dim() == 0:
        raise ValueError("logits must have a class dimension, got a tensor of shape ()")
    dim = min(1, values.dim() - 1) if class_dim is None else class_dim
    if not -values.dim() <= dim < values.dim():
        raise ValueError(f"class_dim must be in [{-values.dim()}, {values.dim() - 1}], got {dim}")
    if dim not in (-1, values.dim() - 1):
        values = values.movedim(dim, -1)
    if target.is_floating_point():
        if target.dim() != values.dim() or target.shape != values.movedim(-1, dim).shape:
            _refuse_shapes(values, dim, target)
    elif target.shape != values.shape[:-1]:
        _refuse_shapes(values, dim, target)
    return values


def _working_dtype(logits: Tensor) -> torch.dtype:
    return torch.float32 if logits.dtype in (torch.float16, torch.bfloat16) else logits.dtype


def _widened(values: Tensor) -> Tensor:
    """Half precision as float32."""
    return values.to(_working_dtype(values))


def _refuse_shapes(values: Tensor, dim: int, target: Tensor) -> NoReturn:
    shape = tuple(values.movedim(-1, dim).shape)
    expected = tuple(values.shape[:-1])
    hint = ""
    if dim not in (-1, len(shape) - 1) and tuple(target.shape) == shape[:-1]:
        hint = "; for stacked logits (..., K) pass class_dim=-1"
    raise ValueError(
        f"target must have shape {expected} (class indices) or {shape} (class probabilities) "
        f"for logits of shape {shape}, got {tuple(target.shape)}{hint}"
    )


def _as_indices(target: Tensor) -> Tensor:
    if target.dtype == torch.bool or target.is_complex():
        raise TypeError(f"target must be class indices or class probabilities, got dtype {target.dtype}")
    return target.long()


def _class_indices(target: Tensor, classes: int, ignore_index: int) -> tuple[Tensor, Tensor | None]:
    """Indices ``(..., 1)`` that are safe to gather with, and which of them count (None: all)."""
    target = _as_indices(target).unsqueeze(-1)
    if is_free_to_read(target):
        if target.numel() == 0:
            return target, None
        low, high = (int(extreme) for extreme in torch.aminmax(target))
        if low >= 0 and high < classes and not 0 <= ignore_index < classes:
            return target, None
        valid = target != ignore_index
        outside = valid & ((target < 0) | (target >= classes))
        if outside.any():
            raise ValueError(
                f"target must be in [0, {classes}) or ignore_index={ignore_index}, got {int(target[outside][0])}"
            )
    else:
        valid = target != ignore_index
    return torch.where(valid, target, 0), valid


def per_sample(name: str, value: Tensor, logits: Tensor, target: Tensor | None) -> Tensor:
    """A hyperparameter tensor as ``(..., 1)``; a 1-d margin holds one value per class."""
    value = value.to(_working_dtype(logits)) if value.is_floating_point() else value
    if name == "margin" and value.dim() == 1:
        if value.shape[0] != logits.shape[-1]:
            raise ValueError(f"margin must have {logits.shape[-1]} values, one per class, got {value.shape[0]}")
        assert target is not None
        return value[target.clamp(0, logits.shape[-1] - 1)]  # an ignored target may still be there
    shape = logits.shape[:-1]
    sizes = zip(reversed(value.shape), reversed(shape), strict=False)
    if value.dim() > len(shape) or any(own not in (1, size) for own, size in sizes):
        raise ValueError(f"{name} must broadcast against target of shape {tuple(shape)}, got {tuple(value.shape)}")
    return value.unsqueeze(-1)
