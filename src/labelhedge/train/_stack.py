"""The networks of one stack while they train."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from labelhedge import losses
from labelhedge.losses import PerSampleLoss, TGCELoss
from labelhedge.models.mlp import StackedMLP, with_bias
from labelhedge.train._graph import compiled, compiles, replayed
from labelhedge.train._plan import rows_at_once
from labelhedge.train._sgd import MomentumSGD
from labelhedge.train.metrics import balanced_weight, rank_of_label, top_k

if TYPE_CHECKING:
    from labelhedge.train.stacked import Advance, Fold, Recipe, Task, Trial


class Stack:
    """Weights, momenta, values per sample and the best weights so far, each of ``M = folds × trials`` networks."""

    def __init__(
        self,
        task: Task,
        folds: Sequence[Fold],
        trials: Sequence[Trial],
        loss: str,
        recipe: Recipe,
        options: Mapping[str, Any],
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self.recipe, self.shape, self.classes = recipe, (len(folds), len(trials)), task.num_classes
        self.device = device
        self.networks = len(folds) * len(trials)

        def of_trials(values: Sequence[float]) -> Tensor:
            return torch.tensor(values, dtype=torch.float64).repeat(len(folds)).to(device, dtype)

        seeds = [np.random.SeedSequence(fold.seed).generate_state(2).tolist() for fold in folds]
        self.network = StackedMLP(
            (task.inputs.shape[1], *recipe.hidden, task.num_classes),
            seeds=[start for start, _ in seeds],
            members=len(trials),
            classes_last=device.type == "cuda",
            device=device,
            dtype=dtype,
        )
        self.class_dim = -1 if self.network.classes_last else 1
        self.shuffles = [torch.Generator().manual_seed(order) for _, order in seeds]
        self.optimizer = MomentumSGD(
            self.network.weights,
            lr=of_trials([trial.lr for trial in trials]).view(-1, 1, 1),
            weight_decay=of_trials([trial.weight_decay for trial in trials]).view(-1, 1, 1),
            momentum=recipe.momentum,
        )
        self.best_weights = [weight.clone() for weight in self.network.weights]

        params = {name: of_trials([trial.params[name] for trial in trials]).view(-1, 1) for name in trials[0].params}
        fixed = {
            "reduction": "none",
            "class_dim": self.class_dim,
            "backend": "torch",
        }  # the compiler fuses it with more
        self.criterion = losses.create(loss, **fixed, **params, **options)
        self.value: Tensor | None = None
        if isinstance(self.criterion, PerSampleLoss):
            initial = torch.as_tensor(self.criterion.initial(), device=device)
            self.value = initial.expand(self.networks, len(task.inputs)).clone()

        self.inputs = with_bias(torch.from_numpy(task.inputs).to(device, dtype))
        self.labels = torch.from_numpy(task.labels).to(device)
        self.clean = torch.from_numpy(task.clean).to(device)
        self.set_of_trial = torch.tensor([trial.labels for trial in trials], device=device)
        self.first_label = (self.set_of_trial * len(task.inputs)).repeat(len(folds)).view(-1, 1)
        self.train_rows = torch.from_numpy(np.stack([fold.train for fold in folds])).to(device)
        self.validation_rows = torch.from_numpy(np.stack([fold.validation for fold in folds])).to(device)
        self.test_inputs = with_bias(torch.from_numpy(task.test_inputs).to(device, dtype))
        self.test_labels = torch.from_numpy(task.test_labels).to(device)
        self.balanced = task.balanced

        self.order = self.train_rows.clone()
        self.columns = torch.arange(recipe.batch_size, device=device)
        self.loss_sum = torch.zeros(self.networks, device=device, dtype=dtype)
        self._values_and_slope = self._differentiate
        if compiles(device):
            self._values_and_slope = compiled(self._differentiate_in_one_graph)

    def train(self, advance: Advance) -> dict[str, np.ndarray[Any, Any]]:
        """Train all epochs; the arrays of an outcome."""
        epochs, networks = self.recipe.epochs, self.networks
        traces = torch.full((5, epochs, networks), float("nan"), device=self.device)
        best = torch.full((networks,), -1.0, device=self.device, dtype=torch.float64)
        best_epoch = torch.zeros(networks, device=self.device, dtype=torch.long)
        run_epoch, mean_lambdas = self._epoch_runner(), self._lambda_means()
        start = self._now()
        for epoch in range(epochs):
            run_epoch()
            accuracy, accuracy_on_clean = self._validate()
            better = accuracy > best
            best = torch.where(better, accuracy, best)
            best_epoch = torch.where(better, epoch + 1, best_epoch)
            for kept, weight in zip(self.best_weights, self.network.weights, strict=True):
                torch.where(better.view(-1, 1, 1), weight, kept, out=kept)
            traces[0, epoch] = self.loss_sum / self.train_rows.shape[1]
            traces[1, epoch], traces[2, epoch] = accuracy, accuracy_on_clean
            traces[3:, epoch] = mean_lambdas()
            if epoch + 1 in self.recipe.decay_after:
                self.optimizer.lr.mul_(self.recipe.decay)
            if epoch + 1 in self.recipe.review_after:
                self._review()
            advance(networks)
        seconds = self._now() - start
        train_loss, val, val_clean, lam_clean, lam_flipped = (
            trace.T.reshape(*self.shape, epochs).float().cpu().numpy() for trace in traces
        )
        return {
            "best_epoch": best_epoch.view(self.shape).cpu().numpy(),
            "val_top1": best.view(self.shape).cpu().numpy(),
            "test_top": self._test().cpu().numpy(),
            "train_loss": train_loss,
            "epoch_val_top1": val,
            "epoch_val_clean_top1": val_clean,
            "lam_clean": lam_clean,
            "lam_flipped": lam_flipped,
            "seconds": np.full(self.shape, seconds / networks),
        }

    def _now(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()

    def _epoch_runner(self) -> Callable[[], None]:
        """A function that trains one epoch; on a GPU it replays recorded steps."""
        size = self.recipe.batch_size
        full, rest = divmod(self.train_rows.shape[1], size)
        changes = [*self.network.weights, *self.optimizer.velocities, self.columns, self.loss_sum]
        if self.value is not None:
            changes.append(self.value)
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
        if self.value is None:
            values, slope = self._values_and_slope(logits, target)
        else:
            values, slope, new = self._values_and_slope(logits, target, self.value.gather(1, index))
            self.value.scatter_(1, index, new)
        self.network.backward(inputs, slope, self.optimizer.step)
        self.loss_sum += values.sum(1)

    def _differentiate(self, logits: Tensor, target: Tensor, *value: Tensor) -> tuple[Tensor, ...]:
        """The loss of each sample, the slope of each network's mean loss, and new values where the loss has them."""
        logits.requires_grad_()
        losses, *new = self._losses(logits, target, *value)
        (slope,) = torch.autograd.grad(losses, logits, torch.full_like(losses, 1 / target.shape[1]))
        return losses.detach(), slope, *new

    def _differentiate_in_one_graph(self, logits: Tensor, target: Tensor, *value: Tensor) -> tuple[Tensor, ...]:
        """The same for a compiler, which can then fuse the loss with its slope."""

        def mean(logits: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
            losses, *new = self._losses(logits, target, *value)
            return losses.sum() / target.shape[1], (losses, *new)

        slope, (_, (losses, *new)) = torch.func.grad_and_value(mean, has_aux=True)(logits)
        return losses, slope, *new

    def _losses(self, logits: Tensor, target: Tensor, *value: Tensor) -> tuple[Tensor, ...]:
        if not value:
            return (self.criterion(logits, target),)
        assert isinstance(self.criterion, PerSampleLoss)
        return self.criterion.visit(logits, target, *value)

    def _per_network(self, rows: Tensor) -> Tensor:
        """Rows of each fold ``(folds, B)`` as those of each network ``(M, B)``."""
        return rows.repeat_interleave(self.shape[1], 0)

    def _blocks(self, rows: Tensor) -> Iterator[Tensor]:
        """Rows ``(folds, N)`` in blocks that fit into memory and, on a CPU, into the cache."""
        size = rows_at_once(self.networks, max(self.network.sizes[1:]), self.device)
        return iter(rows.tensor_split(tuple(range(size, rows.shape[1], size)), 1))

    @torch.no_grad()
    def _validate(self) -> tuple[Tensor, Tensor]:
        """Top-1 accuracy ``(M,)`` on the validation rows: with the labels to validate with, and with the right ones."""
        ranks, ranks_on_clean = [], []
        for rows in self._blocks(self.validation_rows):
            logits = self.network.logits(self.inputs[rows])
            index = self._per_network(rows)
            ranks.append(rank_of_label(logits, self._target(index), class_dim=self.class_dim))
            ranks_on_clean.append(rank_of_label(logits, self.clean[index], class_dim=self.class_dim))
        weight, weight_on_clean = self._validation_weights
        return (
            top_k(torch.cat(ranks, 1), 1, weight),
            top_k(torch.cat(ranks_on_clean, 1), 1, weight_on_clean),
        )

    @functools.cached_property
    def _validation_weights(self) -> tuple[Tensor | None, Tensor | None]:
        if not self.balanced:
            return None, None
        index = self._per_network(self.validation_rows)
        return balanced_weight(self._target(index), self.classes), balanced_weight(self.clean[index], self.classes)

    @torch.no_grad()
    def _test(self) -> Tensor:
        """Top-1 to top-5 accuracy of the best weights on the test rows, ``(folds, trials, 5)``."""
        rows = torch.arange(len(self.test_labels), device=self.device).expand(self.shape[0], -1)
        ranks = []
        for block in self._blocks(rows):
            logits = self.network.logits(self.test_inputs[block], self.best_weights)
            target = self.test_labels[self._per_network(block)]
            ranks.append(rank_of_label(logits, target, class_dim=self.class_dim))
        weight = balanced_weight(self.test_labels, self.classes) if self.balanced else None
        accuracies = torch.stack([top_k(torch.cat(ranks, 1), k, weight) for k in range(1, 6)], 1)
        accuracies[:, self.classes - 1 :] = torch.nan
        return accuracies.view(*self.shape, 5)

    @torch.no_grad()
    def _review(self) -> None:
        """Let the loss decide anew which training samples it believes."""
        if not isinstance(self.criterion, TGCELoss):
            return
        assert self.value is not None
        for rows in self._blocks(self.train_rows):
            index = self._per_network(rows)
            believed = self.criterion.review(self.network.logits(self.inputs[rows]), self._target(index))
            self.value.scatter_(1, index, believed)

    def _lambda_means(self) -> Callable[[], Tensor]:
        """A function that gives the mean λ of training samples with right and with wrong labels, ``(2, M)``."""
        if self.value is None or not self.value.is_floating_point():
            return lambda: torch.full((2, self.networks), torch.nan, device=self.device)
        trained = torch.zeros(self.shape[0], len(self.clean), device=self.device, dtype=torch.bool)
        trained.scatter_(1, self.train_rows, True)
        wrong = self.labels != self.clean
        groups = torch.stack([trained[:, None] & ~wrong, trained[:, None] & wrong])  # (2, folds, sets, n)
        shares = groups / groups.sum(-1, keepdim=True)  # NaN where a group is empty

        def means() -> Tensor:
            assert self.value is not None
            values = self.value.view(*self.shape, -1)
            of_trials = shares[:, :, self.set_of_trial].to(values.dtype)
            return torch.einsum("ftn,gftn->gft", values, of_trials).flatten(1)

        return means

    def _target(self, index: Tensor) -> Tensor:
        """The labels that each network is to believe at its rows ``(M, B)``."""
        return self.labels.view(-1)[self.first_label + index]
