"""What all losses have in common: options, one call, and the state that some keep."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import torch
import torch.distributed as dist
from torch import Tensor, nn

from labelhedge.losses import _cpu as cpu
from labelhedge.losses import _kernels as kernels
from labelhedge.losses import _state as state_of
from labelhedge.losses._batch import Batch, Settings, kind_of, prepare, remembered_few_rows
from labelhedge.losses._few_rows import FewRows, for_few_rows
from labelhedge.losses._options import Backend, Normalize, Number, Reduction
from labelhedge.losses._spec import OF_STATE, LossSpec, State, register

Rows: TypeAlias = dict[str, Tensor]
"""State of the samples of a batch by name: ``(..., *shape)``, where the target is ``(...)``."""


def _nothing_new(logits: Tensor, target: Tensor | None, **params: Any) -> Mapping[str, Tensor]:
    return {}


class Loss(nn.Module):
    """Base of all losses: ``criterion(logits, target, index=None)``.

    A subclass declares its ``spec``, an ``__init__`` with its hyperparameters, and its :meth:`formula`; it is then in
    the registry under the id of its spec. Options that are tensors become buffers, so that ``.to`` moves them and
    ``state_dict`` holds them; those that are parameters can be trained.

    A loss whose spec declares :class:`State` keeps it for ``num_samples`` training samples, and finds it by ``index``,
    the position of each sample in the training set. State is in ``state_dict``, moved by ``.to``, and written only in
    training mode with gradients enabled. A loss without state does nothing with an index.

    Args:
        weight: ``(K,)``, how much each class counts; None: all the same.
        num_samples: How many training samples to keep the state of; None: none.
        num_classes: Their number K, needed where state has a number for every class.
        **options: Hyperparameters of the loss, and the options of every loss.
    """

    spec: ClassVar[LossSpec]
    num_samples: int | None = None
    num_classes: int | None = None
    _keeps = False
    """Whether it keeps or learns anything."""
    _touched: Tensor | None
    """Which samples this process has written since the last ``sync()``; there only if there are other processes."""

    formula: ClassVar[Callable[..., Tensor]]
    """The specification in plain PyTorch, ``formula(logits, target, **params)``, a static method: one value per sample.

    ``logits`` are ``(..., K)`` after normaliser and temperature, in float32 or float64; a class whose logit is -∞
    counts as absent. ``target`` holds ``(..., 1)`` class indices or, where the spec has ``soft_targets``, is None for
    "every label at once". The parameters are the hyperparameters, numbers or ``(..., 1)``; and of each :class:`State`
    what the samples have, ``(..., 1)`` or ``(..., *shape)``, or None for samples that have none, such as those of a
    test; and learnt numbers that all samples share ``(1, ..., *shape)``. The values are ``(..., 1)``, or ``(..., K)``
    without a target.
    """
    update: ClassVar[Callable[..., Mapping[str, Tensor]]] = staticmethod(_nothing_new)
    """The next values of the state that is not learnt, ``update(logits, target, **params)``, a static method.

    It is called before the formula, which sees the new values; its arguments are those of the formula.
    """
    end_of_epoch: ClassVar[Callable[..., Mapping[str, Tensor]]] = staticmethod(_nothing_new)
    """A hook after an epoch: new state from the predictions for all training samples, which it sees at once.

    A static method with the arguments of the formula. A loss that has one gets the predictions from the engines and
    the integrations after the epochs that they are told (``review_after``), and from a loop of one's own by
    :meth:`refresh`. The samples are the last but one dimension of the logits; others before it are networks of a stack.
    """

    wants_predictions: ClassVar[bool] = False
    """Whether the loss has an :meth:`end_of_epoch` of its own."""

    weight: Tensor | None
    ignore_index: int
    reduction: Reduction
    normalize: Normalize
    temperature: Number
    class_dim: int | None
    backend: Backend

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.wants_predictions = cls.end_of_epoch is not _nothing_new
        if "spec" in cls.__dict__:
            cls.spec = cls.__dict__["spec"].of(cls)
            register(cls.spec)
        elif "formula" in cls.__dict__:
            raise TypeError(f"{cls.__name__} has a formula of its own, so it must declare a spec of its own")

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        num_samples: int | None = None,
        num_classes: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        spec = self.spec
        spec.refuse_unknown(options)
        missing = [name for name in spec.own if name not in options]
        if missing:
            raise TypeError(f"{spec.module.__name__}.__init__ must pass on {', '.join(missing)} to super().__init__")
        for name, count in (("num_samples", num_samples), ("num_classes", num_classes)):
            if count is not None and name not in spec.counts:
                raise TypeError(f"{spec.id} takes no {name}: it keeps nothing that depends on it")
        for name, value in {**spec.options, **options, "weight": weight}.items():
            value = spec.check(name, value)
            if name == "weight" or (isinstance(value, Tensor) and not isinstance(value, nn.Parameter)):
                self.register_buffer(name, value)
            else:
                setattr(self, name, value)
        if spec.state:
            self.num_samples = state_of.checked_count("num_samples", num_samples)
            self.num_classes = state_of.checked_count("num_classes", num_classes)
            for state in spec.state:
                self._register_state(state)
            self.register_buffer("_touched", None, persistent=False)

    def _register_state(self, state: State) -> None:
        if self.num_samples is None and (state.per_sample or ("K" in state.shape and self.num_classes is None)):
            self.register_buffer(state.name, None)
            return
        self._keeps = True
        start = self.start_of(state)
        if isinstance(start, Tensor) and start.dim():
            raise ValueError(f"{state.start} must be a number with num_samples, got shape {tuple(start.shape)}")
        count = (self.num_samples or 0,) if state.per_sample else ()
        values = torch.full((*count, *state.sizes(self.num_classes)), float(start)).to(state.dtype)
        if state.lr is None:
            self.register_buffer(state.name, values)
        else:
            self.register_parameter(state.name, nn.Parameter(values))

    @property
    def options(self) -> dict[str, Any]:
        """The options as they are passed to the function."""
        return {name: getattr(self, name) for name in self.spec.options}

    def _prepared(self, logits: Tensor, target: Tensor) -> Batch:
        return prepare(self.spec, logits, target, self._current())

    def _current(self) -> Settings:
        settings: Settings | None = None if torch.compiler.is_compiling() else self.__dict__.get("_settings")
        if settings is None:
            settings = Settings.of(self.options)
            if settings.plain is not None and not torch.compiler.is_compiling():
                self.__dict__["_settings"] = settings
        return settings

    @classmethod
    def _value(cls, logits: Tensor, target: Tensor, settings: Settings) -> Tensor:
        """The reduced loss of samples that have no state."""
        kind = kind_of(cls.spec, logits, target, settings)
        few = remembered_few_rows(kind)
        value = None if few is None else few.loss_of(logits, target)
        if value is not None:
            return value
        batch = prepare(cls.spec, logits, target, settings, kind)
        found = batch.loss_of_few_rows()
        return cls.of_batch(replace(batch, few=None) if batch.few else batch, {})[0] if found is None else found[0]

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        forgotten: Any = None
        super().__setattr__("_settings", forgotten)  # what torch.compile can follow, unlike a deletion

    if TYPE_CHECKING:  # nn.Module's takes anything; like it this returns Any, since Tensor.backward has no types

        def __call__(self, logits: Tensor, target: Tensor, index: Tensor | None = None) -> Any: ...

    def forward(self, logits: Tensor, target: Tensor, index: Tensor | None = None) -> Tensor:
        if not self._keeps:
            return self._value(logits, target, self._current())
        batch = self._prepared(logits, target)
        loss, new = self._step(batch, self._rows(index, batch))
        if index is not None and self.training and torch.is_grad_enabled():
            self._write(index, new)
        return loss

    def step(self, logits: Tensor, target: Tensor, rows: Rows) -> tuple[Tensor, Rows]:
        """The loss of samples that have this state, and their next state; for callers that keep it themselves.

        Args:
            logits: As in a call of the loss.
            target: Class indices or probabilities.
            rows: State by name, ``(..., *shape)``, where class indices are ``(...)``; of learnt numbers that all
                samples share something that broadcasts against that.

        Returns:
            The reduced loss, and the state that is not learnt, in the same shapes. What the module keeps is neither
            read nor written.
        """
        return self._step(self._prepared(logits, target), rows)

    def _step(self, batch: Batch, rows: Rows) -> tuple[Tensor, Rows]:
        loss, new = self.of_batch(batch, self._inside(rows))
        return loss, self._outside(new)

    @torch.no_grad()
    def review(self, logits: Tensor, target: Tensor, rows: Rows) -> Rows:
        """What :meth:`end_of_epoch` makes of samples that have this state; for callers that keep it themselves."""
        batch, inside = self._prepared(logits, target).plain(), self._inside(rows)
        new = self.end_of_epoch(batch.scaled_logits(), batch.target, **batch.params, **inside)
        return self._outside({name: kept(batch, inside[name], value) for name, value in new.items()})

    def _inside(self, rows: Rows) -> Rows:
        """State as formulas take it."""
        return {name: value.unsqueeze(-1) if name in self._numbers else value for name, value in rows.items()}

    def _outside(self, rows: Rows) -> Rows:
        """The inverse of :meth:`_inside`."""
        return {name: value.squeeze(-1) if name in self._numbers else value for name, value in rows.items()}

    @property
    def _numbers(self) -> set[str]:
        """The state that is a single number."""
        return {state.name for state in self.spec.state if state.shape == ()}

    @classmethod
    def of_batch(cls, batch: Batch, rows: Rows) -> tuple[Tensor, Rows]:
        """The reduced loss of a batch, and new values of the state that is not learnt.

        A subclass that has a quicker way than its formula overrides it. Numbers are ``(..., 1)`` here; ignored samples
        keep what they have.
        """
        if rows:
            batch = batch.plain()
            scaled = batch.scaled_logits()
            new: dict[str, Tensor] = {}
            if all(state.name in rows for state in cls.spec.state):
                with torch.no_grad():
                    fixed = {name: value.detach() for name, value in rows.items()}
                    new.update(cls.update(scaled.detach(), batch.target, **batch.params, **fixed))
            values = cls.formula(scaled, batch.target, **batch.params, **{**rows, **new})
            return batch.reduce(values), {name: kept(batch, rows[name], new[name]) for name in new}
        if batch.for_kernels:
            return kernels.loss(batch)[0], {}
        if cpu.serves(batch):
            return cpu.loss(batch)[0], {}
        return batch.reduce(batch.values()), {}

    @staticmethod
    def _few_rows(batch: Batch) -> FewRows | None:
        """What gives value and gradient of few rows on a CPU, for batches like this one; None if nothing does."""
        return for_few_rows(batch)

    def start_of(self, state: State) -> Number:
        """What every sample starts from."""
        start: Number = getattr(self, state.start) if isinstance(state.start, str) else state.start
        return start

    def rate_of(self, state: State) -> Number:
        """The learning rate of learnt state."""
        assert state.lr is not None
        rate: Number = getattr(self, state.lr) if isinstance(state.lr, str) else state.lr
        return rate

    def parameter_groups(self) -> list[dict[str, Any]]:
        """The numbers that the loss learns, with their own settings, to be handed to an optimizer beside the network's.

        Example:
            ``torch.optim.SGD([{"params": network.parameters()}, *criterion.parameter_groups()], lr=0.1)``
        """
        own = {state.name: state for state in self.spec.state if state.lr is not None}
        groups: list[dict[str, Any]] = []
        for name, parameter in self.named_parameters():
            settings = {"lr": self.rate_of(own[name]), "momentum": 0.0, "weight_decay": 0.0} if name in own else {}
            groups.append({"params": [parameter], **settings})
        return groups

    @torch.no_grad()
    def refresh(self, logits: Tensor, target: Tensor, index: Tensor) -> None:
        """Let the loss make of the predictions for the samples at ``index`` what it does after an epoch.

        They should be all samples of the training set in one call, unless the loss looks at each by itself.
        """
        if self.num_samples is None:
            raise ValueError(f"num_samples must be given for refresh: {type(self).__name__}(num_samples=N)")
        rows = self._rows(index, self._prepared(logits, target))
        self._write(index, self.review(logits, target, rows))

    def _rows(self, index: Tensor | None, batch: Batch) -> Rows:
        """The state of the samples at ``index``; only what all share for samples that are not of the training set."""
        shape, classes = batch.logits.shape[:-1], batch.logits.shape[-1]
        if self.num_classes not in (None, classes):
            raise ValueError(f"logits must have num_classes={self.num_classes} classes, got {classes}")
        rows = {}
        for state in self.spec.state:
            values = getattr(self, state.name)
            if values is None:
                continue
            if not state.per_sample:
                rows[state.name] = values.view((1,) * len(shape) + values.shape)
            elif index is not None:
                rows[state.name] = state_of.read(values, index, shape)
            elif self.training:
                raise ValueError(
                    f"index is missing: {type(self).__name__}(num_samples={self.num_samples}) needs the position of "
                    "each sample in the training set, criterion(logits, target, index)"
                )
        return rows

    def _write(self, index: Tensor, new: Rows) -> None:
        buffers = [getattr(self, state.name) for state in self.spec.state if state.per_sample]
        if self.num_samples is not None and buffers and state_of.has_company():
            if self._touched is None:
                self._touched = torch.zeros(self.num_samples, dtype=torch.bool, device=buffers[0].device)
                state_of.warn_of_broadcast(self)
            self._touched.index_fill_(0, index.to(self._touched.device, torch.long).flatten(), True)
        for name, value in new.items():
            state_of.write(getattr(self, name), index, value)

    @torch.no_grad()
    def sync(self, group: Any = None) -> None:
        """Merge the state that each rank of ``torch.distributed`` has written since the last call.

        Collective: every rank calls it, for instance at the end of an epoch and before a checkpoint. A sample that
        several ranks have visited gets the mean, unless its state says otherwise. Does nothing in a process that is
        alone, or where nothing is kept.
        """
        if self.num_samples is None or not state_of.has_company():
            return
        for state in self.spec.state:
            if state.per_sample:
                values = getattr(self, state.name)
                touched = self._touched
                if touched is None:
                    touched = torch.zeros(len(values), dtype=torch.bool, device=values.device)
                state_of.merge(values, touched, state.merge, group)
        if self._touched is not None:
            self._touched.zero_()  # in its place, which a CUDA graph may know

    @torch.no_grad()
    def sync_gradients(self, group: Any = None) -> None:
        """Make the gradients of learnt numbers what one process would have, after each backward pass.

        For several processes whose networks ``DistributedDataParallel`` averages: the numbers of a sample have a
        gradient in its own process alone, and those that all samples share in every one.
        """
        if not state_of.has_company():
            return
        own = {state.name for state in self.spec.state if state.per_sample}
        for name, parameter in self.named_parameters():
            if parameter.grad is not None:
                if name not in own:
                    dist.all_reduce(parameter.grad, group=group)
                parameter.grad /= dist.get_world_size(group)

    def extra_repr(self) -> str:
        default = self.spec.options
        counts = {name: getattr(self, name, None) for name in OF_STATE}
        changed = {n: v for n, v in self.options.items() if isinstance(v, Tensor) or v != default[n]}
        shown = {n: v for n, v in counts.items() if v is not None} | changed
        return ", ".join(
            f"{n}=tensor{tuple(v.shape)}" if isinstance(v, Tensor) else f"{n}={v!r}" for n, v in shown.items()
        )


def value_of(kind: type[Loss], logits: Tensor, target: Tensor, **options: Any) -> Tensor:
    """The loss as a function: what ``kind(**options)`` gives for a batch, without the module."""
    return kind._value(logits, target, _settings_of(kind, options))


def batch_of(kind: type[Loss], logits: Tensor, target: Tensor, without: Collection[str] = (), **options: Any) -> Batch:
    """A call of the function form of a loss, checked; ``without`` some of its options."""
    return prepare(kind.spec, logits, target, _settings_of(kind, options, without))


def _settings_of(kind: type[Loss], options: Mapping[str, Any], without: Collection[str] = ()) -> Settings:
    kind.spec.refuse_unknown(options, without)
    return Settings.of({**kind.spec.options, **options})


def kept(batch: Batch, old: Tensor, new: Tensor) -> Tensor:
    """New state ``(..., *shape)``, but the old for samples whose target is ignored, and in the place of NaN.

    So a state outlives a batch that overflows, whose step a gradient scaler leaves out.
    """
    if new.is_floating_point():
        new = torch.where(new.isnan(), old, new)
    if batch.valid is None:
        return new
    return torch.where(batch.valid.view(*batch.valid.shape, *[1] * (new.dim() - batch.valid.dim())), new, old)
