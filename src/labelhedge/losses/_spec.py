"""What a loss declares about itself, and the registry that everything else iterates over."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from labelhedge._errors import UserError

if TYPE_CHECKING:
    from labelhedge.losses._module import Loss


@dataclass(frozen=True)
class Interval:
    """A set of allowed values, written as in mathematics: ``Interval("(0, 1]")``."""

    text: str
    integer: bool = False
    bounds: tuple[float, float] = field(init=False)

    def __post_init__(self) -> None:
        low, high = self.text[1:-1].split(",")
        object.__setattr__(self, "bounds", (float(low), float(high)))

    def __contains__(self, value: float) -> bool:
        low, high = self.bounds
        above = low <= value if self.text[0] == "[" else low < value
        below = value <= high if self.text[-1] == "]" else value < high
        return above and below and (not self.integer or value == int(value))

    def __str__(self) -> str:
        return f"{'an integer' if self.integer else 'a number'} in {self.text}"


@dataclass(frozen=True)
class LossSpec:
    """One loss: its formula, its hyperparameters and what it claims.

    ``formula(logits, target, **params)`` is the specification in plain PyTorch. ``logits`` has the classes last,
    ``target`` is ``(..., 1)`` and so is the result. Losses with ``soft_targets`` also take ``target=None``, "every
    label at once", and then return ``(..., K)``.
    """

    id: str
    math: str
    formula: Callable[..., Tensor]
    function: Callable[..., Tensor]
    module: type[Loss]
    domains: Mapping[str, Interval] = field(default_factory=dict)
    grid: tuple[Mapping[str, float], ...] = ({},)
    """The paper's tuning grid; ``({},)`` where it tunes nothing."""
    optional: frozenset[str] = frozenset()
    """Hyperparameters that may be None."""
    soft_targets: bool = False
    state: str | None = None
    """Name of the buffer with one value per training sample, if the module can keep one."""
    nonnegative: bool = True
    bounded: bool = False
    symmetric_at: Mapping[str, float] | None = None
    """Hyperparameters at which the sum over labels is constant; None where it never is."""
    consistency: str = "unknown"
    reference: str = ""

    def __post_init__(self) -> None:
        self.module.spec = self
        own = {"num_samples": None} if self.state else {}
        self.module.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [
                inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)
                for name, default in (own | self.options).items()
            ]
        )

    @functools.cached_property
    def options(self) -> dict[str, Any]:
        """Every option of the module, and its default: hyperparameters, then those of every loss."""
        from labelhedge.losses._apply import COMMON_DEFAULTS

        keywords = inspect.signature(self.function).parameters.values()
        own = {p.name: p.default for p in keywords if p.kind is p.KEYWORD_ONLY and p.name != self.state}
        return own | {name: value for name, value in COMMON_DEFAULTS.items() if name not in own}

    @functools.cached_property
    def defaults(self) -> dict[str, Any]:
        """The hyperparameters and their defaults."""
        return {name: value for name, value in self.options.items() if name in self.domains}

    def refuse_unknown(self, options: Iterable[str]) -> None:
        """Raise if there is a name among ``options`` that this loss does not know."""
        for name in options:
            if name not in self.options:
                raise TypeError(f"{self.id} has no option {name!r}; it takes {', '.join(self.options)}")

    def check(self, name: str, value: Any) -> None:
        """Raise if ``value`` is not allowed for the hyperparameter ``name``."""
        if value is None and name in self.optional:
            return
        check_number(name, value, self.domains[name])


def check_number(name: str, value: float | Tensor, domain: Interval) -> None:
    """Raise unless every entry of ``value`` lies in ``domain`` (tensors only where reading them is free)."""
    if isinstance(value, Tensor):
        if value.is_complex() or value.dtype == torch.bool:
            raise TypeError(f"{name} must be a real tensor, got dtype {value.dtype}")
        if value.numel() and is_free_to_read(value):
            for extreme in torch.aminmax(value.detach()):  # both are NaN if any entry is
                check_number(name, extreme.item(), domain)
    elif isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be {domain} or a tensor, got {value!r}")
    elif value not in domain:  # NaN is in none
        raise UserError(f"{name} must be {domain}, got {value}")


def is_free_to_read(tensor: Tensor) -> bool:
    """Whether Python may look at the values: no device to wait for, no compiler or transform tracing."""
    return (
        tensor.device.type == "cpu"
        and not torch.compiler.is_compiling()
        and not torch._C._are_functorch_transforms_active()
    )


_REGISTRY: dict[str, LossSpec] = {}


def register(spec: LossSpec) -> LossSpec:
    """Add a loss to the registry under its id."""
    if spec.id in _REGISTRY:
        raise ValueError(f"a loss with id {spec.id!r} is registered already")
    _REGISTRY[spec.id] = spec
    return spec


def names() -> list[str]:
    """The ids of all losses."""
    return sorted(_REGISTRY)


def get(id: str) -> LossSpec:
    """The specification of the loss ``id``."""
    if id not in _REGISTRY:
        raise UserError(f"unknown loss {id!r}; known losses: {', '.join(names())}")
    return _REGISTRY[id]


def create(id: str, **options: Any) -> Loss:
    """The loss module with this id.

    Example:
        >>> create("gce", q=0.5)
        GCELoss(q=0.5)
    """
    return get(id).module(**options)


def one_by_one(**values: tuple[float, ...]) -> tuple[Mapping[str, float], ...]:
    """A tuning grid over parallel values: ``one_by_one(q=(0.1, 0.9))`` is ``({"q": 0.1}, {"q": 0.9})``."""
    return tuple(dict(zip(values, column, strict=True)) for column in zip(*values.values(), strict=True))
