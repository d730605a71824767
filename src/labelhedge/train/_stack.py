"""The networks of one stack while they train."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from labelhedge import losses
from labelhedge.losses import Number, State
from labelhedge.models.mlp import StackedMLP, with_bias
from labelhedge.train._graph import compiled, compiles, replayed
from labelhedge.train._plan import rows_at_once
from labelhedge.train._sgd import MomentumSGD

if TYPE_CHECKING:
    from labelhedge.train.stacked import Recipe, Trial


class Stack:
    """Weights, momenta and values per sample, each of ``M = folds × trials`` networks.

    Args:
        inputs: ``(n, features)``
        labels: ``(sets, n)``
        classes: Their number.
        train_rows: ``(folds, rows)``
        seeds: Of each fold.
        trials: One network each in every fold.
        loss: The id of a loss.
        recipe: How to train.
        options: Further options of the loss.
        device: Where to train.
        dtype: Type of the weights.
        weight: ``(n,)`` how much each sample counts.
    """

    def __init__(
        self,
        inputs: NDArray[np.float32],
        labels: NDArray[np.int64],
        classes: int,
        train_rows: NDArray[np.int64],
        seeds: Sequence[int],
        trials: Sequence[Trial],
        loss: str,
        recipe: Recipe,
        options: Mapping[str, Any],
        device: torch.device,
        dtype: torch.dtype,
        weight: NDArray[np.float32] | None = None,
    ) -> None:
        folds = len(seeds)
        self.recipe, self.shape, self.classes = recipe, (folds, len(trials)), classes
        self.device, self.networks = device, folds * len(trials)

        def of_trials(values: Sequence[float]) -> Tensor:
            return torch.tensor(values, dtype=torch.float64).repeat(folds).to(device, dtype)

        states = [np.random.SeedSequence(seed).generate_state(2).tolist() for seed in seeds]
        self.network = StackedMLP(
            (inputs.shape[1], *recipe.hidden, classes),
            seeds=[start for start, _ in states],
            members=len(trials),
            classes_last=device.type == "cuda",
            device=device,
            dtype=dtype,
        )
        self.class_dim = -1 if self.network.classes_last else 1
        self.shuffles = [torch.Generator().manual_seed(order) for _, order in states]
        self.optimizer = MomentumSGD(
            self.network.weights,
            lr=of_trials([trial.lr for trial in trials]).view(-1, 1, 1),
            weight_decay=of_trials([trial.weight_decay for trial in trials]).view(-1, 1, 1),
            momentum=recipe.momentum,
        )

        params = {name: of_trials([trial.params[name] for trial in trials]).view(-1, 1) for name in trials[0].params}
        fixed = {
            "reduction": "none",
            "class_dim": self.class_dim,
            "backend": "torch",
        }  # the compiler fuses it with more
        self.criterion = losses.create(loss, **fixed, **params, **options)
        learnt = [name for name, _ in self.criterion.named_parameters()]
        if learnt:
            raise ValueError(f"{learnt[0]} cannot be learnt in a stack of networks: pass a number or a tensor")
        self.states = self.criterion.spec.state
        self.state = {state.name: self._start_of(state, len(inputs), dtype) for state in self.states}
        """``(M, n, *shape)``, or ``(M, 1, *shape)`` where all samples share it"""
        self.rates = {
            state.name: of_networks(self.criterion.rate_of(state), state, dtype)
            for state in self.states
            if state.lr is not None
        }

        self.inputs = with_bias(torch.from_numpy(inputs).to(device, dtype))
        self.labels = torch.from_numpy(labels).to(device)
        self.weight = None if weight is None else torch.from_numpy(weight).to(device, dtype)
        self.set_of_trial = torch.tensor([trial.labels for trial in trials], device=device)
        self.first_label = (self.set_of_trial * len(inputs)).repeat(folds).view(-1, 1)
        self.train_rows = torch.from_numpy(train_rows).to(device)

        self.order = self.train_rows.clone()
        self.columns = torch.arange(recipe.batch_size, device=device)
        self.loss_sum = torch.zeros(self.networks, device=device, dtype=dtype)
        self._values_and_slope = self._differentiate
        if compiles(device):
            self._values_and_slope = compiled(self._differentiate_in_one_graph)

    def epochs(self) -> Iterator[int]:
        """Get ready now, and train as this is iterated: after each epoch its number, before the learning rate falls."""
        return self._run_epochs(self._epoch_runner())

    @torch.no_grad()
    def logits(self, rows: Tensor) -> Tensor:
        """The logits ``(folds, trials, B, K)`` for rows of each fold ``(folds, B)``."""
        logits = self.network.logits(self.inputs[rows.to(self.device)])
        classes_last = logits if self.network.classes_last else logits.mT
        return classes_last.reshape(*self.shape, *classes_last.shape[1:])

    def _run_epochs(self, run_epoch: Callable[[], None]) -> Iterator[int]:
        for epoch in range(self.recipe.epochs):
            run_epoch()
            if epoch + 1 in self.recipe.review_after:
                self._review()
            yield epoch
            if epoch + 1 in self.recipe.decay_after:
                self.optimizer.lr.mul_(self.recipe.decay)

    def _epoch_runner(self) -> Callable[[], None]:
        """A function that trains one epoch; on a GPU it replays recorded steps."""
        size = self.recipe.batch_size
        full, rest = divmod(self.train_rows.shape[1], size)
        changes = [*self.network.weights, *self.optimizer.velocities, self.columns, self.loss_sum, *self.state.values()]
        step = replayed(lambda: self._step(size), changes, self.device) if full else None
        last_step = replayed(lambda: self._step(rest), changes, self.device) if rest else None
        start = torch.arange(size, device=self.device)

        def run() -> None:
            for rows, own, generator in zip(self.order, self.train_rows, self.shuffles, strict=True):
                shuffled = torch.randperm(len(own), generator=generator)
                torch.index_select(own, 0, shuffled.to(self.device), out=rows)
            self.columns.copy_(start)
            self.loss_sum.zero_()
            for _ in range(full):
                assert step is not None
                step()
            if last_step is not None:
                last_step()

        return run

    def _step(self, size: int) -> None:
        """One step of every network on its next ``size`` samples."""
        rows = self.order.index_select(1, self.columns[:size])
        self.columns += self.recipe.batch_size
        inputs = self.inputs[rows]
        index = self._per_network(rows)
        target = self._target(index)
        logits = self.network.logits(inputs)
        state = [self._state_at(state, index) for state in self.states]
        counts = None if self.weight is None else self.weight[index]
        values, slope, *new = self._values_and_slope(logits, target, counts, *state)
        for kind, value in zip(self.states, new, strict=True):
            self._keep(kind, index, value)
        self.network.backward(inputs, slope, self.optimizer.step)
        self.loss_sum += values.sum(1)

    def _differentiate(
        self, logits: Tensor, target: Tensor, counts: Tensor | None, *state: Tensor
    ) -> tuple[Tensor, ...]:
        """The loss of each sample, the slope of each network's mean loss, and the new state.

        Samples have these ``counts`` in the mean, or 1 each.
        """
        logits.requires_grad_()
        learnt = [value.requires_grad_() for kind, value in zip(self.states, state, strict=True) if kind.lr is not None]
        losses, new = self._losses(logits, target, state)
        inputs = [logits, *learnt]
        share = torch.full_like(losses, 1 / target.shape[1]) if counts is None else counts / target.shape[1]
        slope, *slopes = torch.autograd.grad(losses, inputs, share)
        return losses.detach(), slope, *self._next(state, new, slopes)

    def _differentiate_in_one_graph(
        self, logits: Tensor, target: Tensor, counts: Tensor | None, *state: Tensor
    ) -> tuple[Tensor, ...]:
        """The same for a compiler, which can then fuse the loss with its slope."""
        places = [number for number, kind in enumerate(self.states) if kind.lr is not None]

        def mean(logits: Tensor, *learnt: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
            given = list(state)
            for place, value in zip(places, learnt, strict=True):
                given[place] = value
            losses, new = self._losses(logits, target, given)
            counted = losses if counts is None else losses * counts
            return counted.sum() / target.shape[1], (losses, *new)

        inputs = (logits, *[state[place] for place in places])
        slopes, (_, (losses, *new)) = torch.func.grad_and_value(mean, tuple(range(len(inputs))), has_aux=True)(*inputs)
        return losses, slopes[0], *self._next(state, new, slopes[1:])

    def _losses(self, logits: Tensor, target: Tensor, state: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """The loss of each sample, and the new state; what is learnt comes back as it was."""
        if not state:
            return self.criterion(logits, target), []
        names = [kind.name for kind in self.states]
        loss, new = self.criterion.step(logits, target, dict(zip(names, state, strict=True)))
        return loss, [new.get(name, value).detach() for name, value in zip(names, state, strict=True)]

    def _next(self, state: Sequence[Tensor], new: Sequence[Tensor], slopes: Sequence[Tensor]) -> list[Tensor]:
        """The new state; what is learnt goes a step down its slope."""
        left, found = iter(slopes), []
        for kind, old, value in zip(self.states, state, new, strict=True):
            found.append(value if kind.lr is None else (old - self.rates[kind.name] * next(left)).detach())
        return found

    def _start_of(self, state: State, samples: int, dtype: torch.dtype) -> Tensor:
        shape = (self.networks, samples if state.per_sample else 1, *state.sizes(self.classes))
        start = of_networks(self.criterion.start_of(state), state, dtype).to(self.device)
        return start.to(dtype if state.dtype.is_floating_point else state.dtype).expand(shape).clone()

    def _state_at(self, state: State, index: Tensor) -> Tensor:
        """The state of each network's samples ``(M, B, *shape)``, or ``(M, 1, *shape)``."""
        values = self.state[state.name]
        return values.gather(1, _expanded(index, values)) if state.per_sample else values.clone()

    def _keep(self, state: State, index: Tensor, new: Tensor) -> None:
        values = self.state[state.name]
        new = new.to(values.dtype)
        if state.per_sample:
            values.scatter_(1, _expanded(index, values), new)
        else:
            values.copy_(new)

    def _per_network(self, rows: Tensor) -> Tensor:
        """Rows of each fold ``(folds, B)`` as those of each network ``(M, B)``."""
        return rows.repeat_interleave(self.shape[1], 0)

    def _blocks(self, rows: Tensor) -> Iterator[Tensor]:
        """Rows ``(folds, N)`` in blocks that fit into memory and, on a CPU, into the cache."""
        size = rows_at_once(self.networks, max(self.network.sizes[1:]), self.device)
        return iter(rows.tensor_split(tuple(range(size, rows.shape[1], size)), 1))

    @torch.no_grad()
    def _review(self) -> None:
        """Let the loss make of the predictions for all training samples what it does after an epoch."""
        if not self.criterion.wants_predictions:
            return
        blocks = [self.network.logits(self.inputs[rows]) for rows in self._blocks(self.train_rows)]
        logits = torch.cat(blocks, 1 if self.network.classes_last else 2)
        index = self._per_network(self.train_rows)
        known = {kind.name: self._state_at(kind, index) for kind in self.states}
        new = self.criterion.review(logits, self._target(index), known)
        for kind in self.states:
            if kind.name in new:
                self._keep(kind, index, new[kind.name])

    def _target(self, index: Tensor) -> Tensor:
        """The labels that each network is to believe at its rows ``(M, B)``."""
        return self.labels.view(-1)[self.first_label + index]


def _expanded(index: Tensor, values: Tensor) -> Tensor:
    """An index ``(M, B)`` for values ``(M, n, *shape)``."""
    if values.dim() == 2:
        return index
    return index.view(*index.shape, *[1] * (values.dim() - 2)).expand(-1, -1, *values.shape[2:])


def of_networks(value: Number, state: State, dtype: torch.dtype) -> Tensor:
    """A number, or one per network ``(M, 1)``, that broadcasts against the state ``(M, n, *shape)``."""
    number = torch.as_tensor(value, dtype=dtype if state.dtype.is_floating_point else state.dtype)
    return number.view(*number.shape, *[1] * len(state.shape)) if number.dim() else number
