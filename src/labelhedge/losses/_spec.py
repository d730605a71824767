"""What a loss declares about itself, and the registry that everything else iterates over."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from labelhedge._errors import UserError
from labelhedge.losses._closed_form import ClosedForm
from labelhedge.losses._options import (
    CHOICES,
    DEFAULTS,
    POSITIVE,
    Interval,
    check_choice,
    checked_integer,
    checked_number,
)

if TYPE_CHECKING:
    from labelhedge.losses._loss import Loss

OF_STATE = ("num_samples", "num_classes")
"""Arguments of a class that say how much state to keep."""


@dataclass(frozen=True)
class State:
    """What a loss keeps for every training sample: numbers that it computes, or numbers that it learns.

    It is a buffer of the module, or where it is learnt a parameter, and an argument of the loss's ``formula``.

    Attributes:
        name: Of the buffer or parameter, and of the argument.
        shape: Of one sample's: ``()`` for a number, ``("K",)`` for one per class.
        start: What every sample starts from: a number, or the name of a hyperparameter.
        dtype: Of the numbers.
        merge: What becomes of a sample that several processes have written since the last ``sync()``: the "mean" of
            their values, or the largest ("max").
        lr: Where the numbers are learnt: the learning rate, or the name of the hyperparameter that holds it. They
            descend by plain gradient steps, without momentum and weight decay.
        per_sample: False for learnt numbers that all samples share; ``shape`` is then the whole shape, and the formula
            gets them as ``(1, ..., *shape)``, which broadcasts against ``(..., *shape)``.
        traced: Whether a training reports the mean over samples with right and with wrong labels, as λ.
    """

    name: str
    shape: tuple[int | Literal["K"], ...] = ()
    start: float | bool | str = 0.0
    dtype: torch.dtype = torch.float32
    merge: Literal["mean", "max"] = "mean"
    lr: float | str | None = None
    per_sample: bool = True
    traced: bool = False

    def __post_init__(self) -> None:
        if self.merge not in ("mean", "max"):
            raise ValueError(f"merge of state {self.name!r} must be 'mean' or 'max', got {self.merge!r}")
        if self.lr is None and not self.per_sample:
            raise ValueError(f"state {self.name!r} must be per sample or learnt: give it a learning rate, lr=")
        if self.traced and not self.per_sample:
            raise ValueError(f"state {self.name!r} must be per sample to be traced")

    def sizes(self, classes: int | None) -> tuple[int, ...]:
        """The shape, with the number of classes in the place of K."""
        if "K" in self.shape and classes is None:
            raise ValueError(f"num_classes must be given: {self.name} holds a number for every class")
        return tuple(classes if size == "K" else size for size in self.shape)  # type: ignore[misc]


@dataclass(frozen=True, eq=False)
class LossSpec:
    """One loss: what it is called, what it may be given, and what it claims.

    Attributes:
        id: Its name on the command line and in results.
        math: The value of one sample, as text.
        domains: What each hyperparameter may be.
        choices: What each option of the loss's own that is no number may be.
        grid: The tuning grid, the paper's where it has one; ``({},)`` where nothing is tuned.
        optional: Hyperparameters that may be None.
        soft_targets: Whether class probabilities may be the target; the loss is then its expectation.
        state: What it keeps of every training sample, if it is told how many there are.
        closed_form: Value and gradient for fused code; without it the loss runs by its formula.
        min_classes: Logits must have as many at least.
        nonnegative: Whether no value is below 0.
        bounded: Whether values are bounded.
        symmetric_at: Hyperparameters at which the sum over labels is constant; None where it never is.
        consistency: For which k it is proved to be top-k consistent.
        reference: Where it is from.
        module: The class; it sets this and what follows.
        options: Every option of the module, and its default: the loss's own first, then those of every loss.
        own: The names of the options that the formula takes.
        defaults: The hyperparameters and their defaults.
        counts: Which of ``num_samples`` and ``num_classes`` the class takes, to know how much state to keep.
    """

    id: str
    math: str
    domains: Mapping[str, Interval] = field(default_factory=dict)
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    grid: tuple[Mapping[str, float], ...] = ({},)
    optional: frozenset[str] = frozenset()
    soft_targets: bool = False
    state: tuple[State, ...] = ()
    closed_form: ClosedForm | None = None
    min_classes: int = 2
    nonnegative: bool = True
    bounded: bool = False
    symmetric_at: Mapping[str, float] | None = None
    consistency: str = "unknown"
    reference: str = ""
    module: type[Loss] = field(init=False, repr=False)
    options: Mapping[str, Any] = field(init=False, repr=False)
    own: tuple[str, ...] = field(init=False, repr=False)
    defaults: Mapping[str, Any] = field(init=False, repr=False)
    counts: tuple[str, ...] = field(init=False, repr=False)

    def of(self, module: type[Loss]) -> LossSpec:
        """The same, as the specification of a class."""
        parameters = inspect.signature(module.__init__).parameters.values()
        keywords = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
        given = {name: default for name, default in keywords.items() if name not in OF_STATE}
        own = {name: default for name, default in given.items() if name not in DEFAULTS}
        found = {
            "module": module,
            "options": own | {name: given.get(name, default) for name, default in DEFAULTS.items()},
            "own": tuple(own),
            "defaults": {name: default for name, default in own.items() if name in self.domains},
            "counts": tuple(name for name in OF_STATE if name in keywords),
        }
        for name in (*self.domains, *self.choices, *self.optional):
            if name not in own:
                taken = ", ".join(own) or "none"
                raise ValueError(f"the spec of {self.id!r} speaks of {name!r}, but {module.__name__} takes {taken}")
        spec = dataclasses.replace(self)
        for name, value in found.items():
            object.__setattr__(spec, name, value)
        return spec

    @property
    def formula(self) -> Callable[..., Tensor]:
        """The specification in plain PyTorch: see :meth:`labelhedge.losses.Loss.formula`."""
        return self.module.formula

    def refuse_unknown(self, options: Iterable[str], without: Collection[str] = ()) -> None:
        """Raise if there is a name among ``options`` that this loss does not know, or that is not for this call."""
        known = [name for name in self.options if name not in without]
        for name in options:
            if name not in known:
                raise TypeError(f"{self.id} has no option {name!r}; it takes {', '.join(known)}")

    def check(self, name: str, value: Any) -> Any:
        """The value of an option, numbers as Python's; raise if it is not allowed."""
        if name in self.domains and not (value is None and name in self.optional):
            return checked_number(name, value, self.domains[name])
        if name == "temperature":
            return checked_number(name, value, POSITIVE)
        if name == "weight" and not (value is None or isinstance(value, Tensor)):
            raise TypeError(f"weight must be a tensor of one number per class or None, got {value!r}")
        if name == "ignore_index" or (name == "class_dim" and value is not None):
            return checked_integer(name, value)
        choices = self.choices.get(name, CHOICES.get(name))
        if choices is not None:
            check_choice(name, value, choices)
        return value


_REGISTRY: dict[str, LossSpec] = {}


def register(spec: LossSpec) -> None:
    """Add a loss to the registry under its id; what was there under it is replaced if it is the same class again."""
    known = _REGISTRY.get(spec.id)
    if known is not None and known.module.__qualname__ != spec.module.__qualname__:
        raise ValueError(f"a loss with id {spec.id!r} is registered already: {known.module.__name__}")
    _REGISTRY[spec.id] = spec


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
