"""The one door every loss goes through: shapes, targets, normaliser, ignored labels, class weights, reduction.

The losses behind it see logits with the classes last and return one value per sample.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import torch
from torch import Tensor

from labelhedge.losses._few_rows import FewRows
from labelhedge.losses._formulas import divided, masked_classes, normalized
from labelhedge.losses._kernels import serves
from labelhedge.losses._options import Normalize, Number, Reduction, is_free_to_read, is_traced
from labelhedge.losses._spec import LossSpec

_NO_LOGITS = torch.empty(0)


@dataclass(frozen=True)
class Batch:
    """A checked call: what the formulas need, and how to reduce what they return."""

    spec: LossSpec
    logits: Tensor
    """``(..., K)`` in float32 or float64, not yet normalised."""
    target: Tensor | None
    """``(..., 1)`` class indices with ignored ones set to 0; None for class probabilities. For kernels as given."""
    probabilities: Tensor | None
    """``(..., K)`` class probabilities; None for class indices."""
    valid: Tensor | None
    """``(..., 1)`` False where the target is ignored; None if nothing is."""
    weight: Tensor | None
    reduction: Reduction
    normalize: Normalize
    temperature: Number
    params: dict[str, Any]
    """The hyperparameters: numbers, or tensors ``(..., 1)``."""
    ignore_index: int
    for_kernels: bool
    """Whether it is for the kernels: then logits and target are as given, and ignored targets are still there."""
    memory: dict[bool, Any] | None = None
    """For what else has been examined of batches of this kind; None where they are not remembered."""
    few: FewRows | None = None
    """What gives value and gradient of few rows on a CPU, where it serves batches of this kind."""

    def with_logits(self, logits: Tensor) -> Batch:
        """The same with other logits; quicker than ``dataclasses.replace``."""
        batch = object.__new__(Batch)
        batch.__dict__.update(self.__dict__)
        batch.__dict__["logits"] = logits
        return batch

    def without_logits(self) -> Batch:
        """The same, for those who keep it but not the logits."""
        return self.with_logits(_NO_LOGITS)

    def with_params(self, **params: Any) -> Batch:
        """The same with further hyperparameters; not to be remembered."""
        return replace(self, params={**self.params, **params}, memory=None, few=None)

    def plain(self) -> Batch:
        """The same batch, but for the plain formula."""
        if not self.for_kernels:
            return self
        assert self.target is not None
        target, valid = _class_indices(self.target, self.logits.shape[-1], self.ignore_index)
        return replace(self, logits=_counting(self.logits, valid), target=target, valid=valid, for_kernels=False)

    def counted(self) -> Tensor | None:
        """``(..., 1)`` False where the target is ignored; None if nothing is."""
        if not self.for_kernels or self.target is None:
            return self.valid
        return (self.target != self.ignore_index).unsqueeze(-1)

    def scaled_logits(self) -> Tensor:
        """The logits after normaliser and temperature."""
        scaled = normalized(self.logits, self.normalize)
        return divided(scaled, self.temperature) if self.has_temperature() else scaled

    def has_temperature(self) -> bool:
        """Whether the logits are divided by something."""
        return isinstance(self.temperature, Tensor) or self.temperature != 1.0

    def values(self) -> Tensor:
        """The values of the plain formula, not reduced."""
        return self.spec.formula(self.scaled_logits(), self.target, **self.params)

    def loss_of_few_rows(self, start: Tensor | None = None) -> tuple[Tensor, Tensor | None] | None:
        """The reduced loss and λ as :meth:`FewRows.loss` finds them; None where it does not serve."""
        if self.few is None:
            return None
        assert self.target is not None
        return self.few.loss(self.logits, self.target, self.valid, start)

    def reduce(self, values: Tensor) -> Tensor:
        """Weight and reduce values ``(..., 1)``, or ``(..., K)`` if the targets are probabilities."""
        weight = None
        if self.probabilities is not None:
            shares = self.probabilities if self.weight is None else self.probabilities * self.weight
            values = torch.where(shares == 0, 0.0, values * shares)  # a label that never occurs, even if it is masked
            masked = masked_classes(self.logits)
            if masked is not None:
                values = torch.where(masked & (shares > 0), torch.inf, values)
            values = values.sum(-1, keepdim=True)
        else:
            weight = self._weights(values.dtype)
            if self.valid is not None:
                values = torch.where(self.valid, values, 0.0)
            if weight is not None:
                values = values * weight
        if self.reduction == "none":
            return values.squeeze(-1)
        if self.reduction == "sum":
            return values.sum()
        return values.mean() if weight is None else values.sum() / weight.sum()

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


@dataclass(frozen=True)
class Settings:
    """All options of a loss."""

    options: Mapping[str, Any]
    plain: tuple[Any, ...] | None
    """Their values, if there are numbers and names alone among them."""

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Settings:
        """The options as they are."""
        values = tuple(options.values())
        return cls(options, values if all(type(value) in _PLAIN for value in values) else None)


_PLAIN = frozenset({type(None), int, float, str})


def prepare(spec: LossSpec, logits: Tensor, target: Tensor, settings: Settings, kind: Hashable = None) -> Batch:
    """Check every argument of a call, and bring it into the form of the formulas; ``kind`` where it is known."""
    if not (isinstance(logits, Tensor) and isinstance(target, Tensor)):
        name, value = ("target", target) if isinstance(logits, Tensor) else ("logits", logits)
        raise TypeError(f"{name} must be a tensor, got {type(value).__name__}")
    kind = kind or kind_of(spec, logits, target, settings)
    known = None if kind is None else _REMEMBERED.get(kind)
    if known is not None:
        return _again(known, logits, target)
    options = {name: spec.check(name, value) for name, value in settings.options.items()}
    params = {name: options[name] for name in spec.own}
    given, logits = logits, classes_last(logits, target, options["class_dim"])
    classes = logits.shape[-1]
    if classes < spec.min_classes:
        raise ValueError(f"logits must have at least {spec.min_classes} classes for {spec.id}, got {classes}")
    weight, temperature = options["weight"], options["temperature"]
    if weight is not None:
        if weight.shape != (classes,):
            raise ValueError(f"weight must have shape ({classes},), one per class, got {tuple(weight.shape)}")
        weight = weight.to(_working_dtype(logits))

    others = (weight, temperature, *params.values())
    for_kernels = serves(spec, options["backend"], logits, target, others)
    indices = probabilities = valid = None
    if target.is_floating_point():
        if not spec.soft_targets:
            raise ValueError(
                f"target must be class indices for {spec.id}; it has no reading for class probabilities (for mixup and "
                "cutmix combine two calls: share * loss(logits, first) + (1 - share) * loss(logits, second))"
            )
        if options["ignore_index"] >= 0:
            raise ValueError(
                f"ignore_index must be negative with class-probability targets, got {options['ignore_index']}"
            )
        probabilities = _widened(classes_last(target, target, options["class_dim"]))
    elif for_kernels:
        indices = _as_indices(target)
    else:
        indices, valid = _class_indices(target, classes, options["ignore_index"])
    if "margin" in params:
        params["margin"] = _of_labels("margin", params["margin"], target, classes)
    params = {name: per_sample(name, value, logits) for name, value in params.items()}
    batch = Batch(
        spec,
        logits if for_kernels else _counting(logits, valid),
        indices,
        probabilities,
        valid,
        weight,
        options["reduction"],
        options["normalize"],
        per_sample("temperature", temperature, logits),
        params,
        options["ignore_index"],
        for_kernels,
    )
    if kind is not None and logits is given:
        few = spec.module._few_rows(batch) if batch.logits.dtype == logits.dtype else None  # not widened
        batch = replace(batch, memory={}, few=few)
        if len(_REMEMBERED) >= 1000:  # a program whose batches never repeat must not keep them all
            _REMEMBERED.clear()
        _REMEMBERED[kind] = replace(batch, logits=_NO_LOGITS, target=None, valid=None)
    return batch


_REMEMBERED: dict[Hashable, Batch] = {}
"""Batches whose arguments have been checked, without what differs from call to call."""


def kind_of(spec: LossSpec, logits: Tensor, target: Tensor, settings: Settings) -> Hashable:
    """What decides on everything that is to be checked; None where that includes more than plain numbers and names.

    Checking can take longer than the computation, so it is done once for all batches of a kind.
    """
    if not (isinstance(logits, Tensor) and isinstance(target, Tensor)):
        return None
    if settings.plain is None or target.dtype != torch.long or logits.dim() != 2 or is_traced():
        return None
    shapes = (logits.dtype, logits.shape, logits.stride(), logits.device, target.shape, target.device)
    return (spec, shapes, settings.plain)


def remembered_few_rows(kind: Hashable) -> FewRows | None:
    """What gives the loss of few rows of this kind, if such a batch has been checked before."""
    known = None if kind is None else _REMEMBERED.get(kind)
    return None if known is None else known.few


def _again(known: Batch, logits: Tensor, target: Tensor) -> Batch:
    """A batch of a kind that has been checked; only the labels are looked at."""
    batch = object.__new__(Batch)
    batch.__dict__.update(known.__dict__)
    if known.for_kernels:
        batch.__dict__.update(logits=logits, target=target)
    else:
        is_free = logits.device.type == "cpu"  # nothing traces it
        indices, valid = _class_indices(target, logits.shape[-1], known.ignore_index, is_free)
        batch.__dict__.update(logits=_counting(logits, valid), target=indices, valid=valid)
    return batch


def classes_last(values: Tensor, target: Tensor, class_dim: int | None) -> Tensor:
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
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values


def _counting(logits: Tensor, valid: Tensor | None) -> Tensor:
    """The logits as formulas take them, with others in the place of those whose target is ignored.

    What is ignored may have any logits, and infinities would become NaN on their way to a gradient of 0.
    """
    return _widened(logits) if valid is None else torch.where(valid, _widened(logits), 1.0)


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
    return target if target.dtype == torch.long else target.long()


def _class_indices(
    target: Tensor, classes: int, ignore_index: int, is_free: bool | None = None
) -> tuple[Tensor, Tensor | None]:
    """Indices ``(..., 1)`` that are safe to gather with, and which of them count (None: all)."""
    indices = _as_indices(target).unsqueeze(-1)
    if is_free_to_read(target) if is_free is None else is_free:
        if target.numel() == 0:
            return indices, None
        lowest, highest = torch.aminmax(target)
        if lowest.item() >= 0 and highest.item() < classes and not 0 <= ignore_index < classes:
            return indices, None
        valid = indices != ignore_index
        outside = valid & ((indices < 0) | (indices >= classes))
        if outside.any():
            raise ValueError(
                f"target must be in [0, {classes}) or ignore_index={ignore_index}, got {int(indices[outside][0])}"
            )
    else:
        valid = indices != ignore_index
    return torch.where(valid, indices, 0), valid


def per_sample(name: str, value: Any, logits: Tensor) -> Any:
    """A hyperparameter tensor as ``(..., 1)``; numbers stay what they are."""
    if not isinstance(value, Tensor):
        return value
    value = value.to(_working_dtype(logits)) if value.is_floating_point() else value
    return rows_of(name, value, logits).unsqueeze(-1)


def _of_labels(name: str, value: Any, target: Tensor, classes: int) -> Any:
    """A tensor with one number per class as that of each label; whatever else as it is."""
    if not isinstance(value, Tensor) or value.dim() != 1:
        return value
    if value.shape[0] != classes:
        raise ValueError(f"{name} must have {classes} values, one per class, got {value.shape[0]}")
    return value[target.long().clamp(0, classes - 1)]  # an ignored label counts for nothing


def rows_of(name: str, value: Tensor, logits: Tensor, trailing: int = 0) -> Tensor:
    """``value`` if its shape, but for ``trailing`` dimensions, broadcasts against the target; an error otherwise."""
    shape, own = logits.shape[:-1], value.shape[: value.dim() - trailing]
    sizes = zip(reversed(own), reversed(shape), strict=False)
    if len(own) > len(shape) or any(size not in (1, expected) for size, expected in sizes):
        raise ValueError(f"{name} must broadcast against target of shape {tuple(shape)}, got {tuple(value.shape)}")
    return value
