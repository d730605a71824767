"""The options of every loss, and the numbers that hyperparameters may be."""

from __future__ import annotations

from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any, Literal, TypeAlias, TypedDict

import torch
from torch import Tensor

from labelhedge._errors import UserError

Number: TypeAlias = float | Tensor
Normalize: TypeAlias = Literal["l1", "softplus"] | None
Reduction: TypeAlias = Literal["none", "mean", "sum"]
Backend: TypeAlias = Literal["auto", "torch", "triton"]


class RowOptions(TypedDict, total=False):
    """Options of what gives something for each sample, beside ``normalize``.

    Attributes:
        ignore_index: Class-index targets of this value count for nothing; -100 by default.
        temperature: Divides the logits after the normaliser; a number above 0, or a tensor that broadcasts against the
            target. 1 by default.
        class_dim: Where the classes are. None, the default, is PyTorch's rule, dimension 1 (0 for a single sample);
            -1 takes stacked logits ``(..., K)``.
        backend: ``"torch"``; ``"triton"``, fused kernels (an error where they cannot serve); ``"auto"``, the default,
            those kernels on a CUDA device where they serve.
    """

    ignore_index: int
    temperature: Number
    class_dim: int | None
    backend: Backend


class Options(RowOptions, total=False):
    """Options of every loss, beside ``weight`` and ``normalize``: those of :class:`RowOptions`, and the reduction.

    Attributes:
        reduction: ``"none"``, ``"mean"`` (the default: weighted, over the targets not ignored) or ``"sum"``.
    """

    reduction: Reduction


DEFAULTS: dict[str, Any] = {
    "weight": None,
    "ignore_index": -100,
    "reduction": "mean",
    "normalize": None,
    "temperature": 1.0,
    "class_dim": None,
    "backend": "auto",
}
"""Of every loss; LDR-KL and ALDR-KL have another normaliser."""
CHOICES: dict[str, tuple[str | None, ...]] = {
    "reduction": ("none", "mean", "sum"),
    "normalize": (None, "l1", "softplus"),
    "backend": ("auto", "torch", "triton"),
}


@dataclass(frozen=True)
class Interval:
    """A set of allowed values, written as in mathematics: ``Interval("(0, 1]")``."""

    text: str
    integer: bool = False
    bounds: tuple[float, float] = field(init=False)

    def __post_init__(self) -> None:
        low, high = self.text[1:-1].split(",")
        object.__setattr__(self, "bounds", (float(low), float(high)))
        if not self.bounds[0] <= self.bounds[1]:
            raise ValueError(f"{self.text} holds no number")

    def __contains__(self, value: float) -> bool:
        low, high = self.bounds
        above = low <= value if self.text[0] == "[" else low < value
        below = value <= high if self.text[-1] == "]" else value < high
        return above and below and (not self.integer or value == int(value))

    def __str__(self) -> str:
        return f"{'an integer' if self.integer else 'a number'} in {self.text}"


POSITIVE = Interval("(0, inf)")


def checked_number(name: str, value: Any, domain: Interval) -> Any:
    """``value`` as a Python number, or the tensor that it is, if it lies in ``domain``; an error otherwise.

    Tensors are looked at only where that is free.
    """
    if isinstance(value, Tensor):
        if value.is_complex() or value.dtype == torch.bool:
            raise TypeError(f"{name} must be a real tensor, got dtype {value.dtype}")
        if value.numel() and is_free_to_read(value):
            for extreme in torch.aminmax(value.detach()):  # both are NaN if any entry is
                checked_number(name, extreme.item(), domain)
            if domain.integer and value.is_floating_point() and not torch.equal(value, value.round()):
                raise UserError(f"{name} must be {domain}, got a tensor with fractions")
        return value
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be {domain} or a tensor, got {value!r}")
    number = int(value) if isinstance(value, Integral) else float(value)
    if number not in domain:  # NaN is in none
        raise UserError(f"{name} must be {domain}, got {number}")
    return int(number) if domain.integer else number


def checked_integer(name: str, value: Any) -> int:
    """``value`` as an ``int``; an error if it is none."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    return int(value)


def check_choice(name: str, value: Any, allowed: tuple[str | None, ...]) -> None:
    """Raise unless ``value`` is one of those allowed."""
    if value not in allowed:
        *first, last = map(repr, allowed)
        raise UserError(f"{name} must be {', '.join(first)} or {last}, got {value!r}")


def is_traced() -> bool:
    """Whether a compiler, a tracer, a transform of ``torch.func`` or forward-mode differentiation looks on."""
    return (
        torch.compiler.is_compiling()
        or torch._C._is_tracing()
        or torch._C._are_functorch_transforms_active()
        or torch.autograd.forward_ad._current_level >= 0
    )


def is_free_to_read(tensor: Tensor) -> bool:
    """Whether Python may look at the values: they are in memory, and nothing traces what is done to them."""
    return tensor.device.type == "cpu" and not is_traced()
