"""A stack whose networks are validated after every epoch, and tested in the end."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from labelhedge.models.mlp import with_bias
from labelhedge.train._stack import Stack
from labelhedge.train.metrics import balanced_weight, rank_of_label, top_k

if TYPE_CHECKING:
    from labelhedge.train.stacked import Advance, Fold, Recipe, Task, Trial


class ValidatedStack(Stack):
    """A stack with the rows to validate on, and the best weights so far."""

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
        super().__init__(
            task.inputs,
            task.labels,
            task.num_classes,
            np.stack([fold.train for fold in folds]),
            [fold.seed for fold in folds],
            trials,
            loss,
            recipe,
            options,
            device,
            dtype,
        )
        self.best_weights = [weight.clone() for weight in self.network.weights]
        self.clean = torch.from_numpy(task.clean).to(device)
        self.validation_rows = torch.from_numpy(np.stack([fold.validation for fold in folds])).to(device)
        self.test_inputs = with_bias(torch.from_numpy(task.test_inputs).to(device, dtype))
        self.test_labels = torch.from_numpy(task.test_labels).to(device)
        self.balanced = task.balanced

    def train(self, advance: Advance) -> dict[str, np.ndarray[Any, Any]]:
        """Train all epochs; the arrays of an outcome."""
        epochs, networks = self.recipe.epochs, self.networks
        traces = torch.full((5, epochs, networks), torch.nan, device=self.device, dtype=torch.float32)
        best = torch.full((networks,), -1.0, device=self.device, dtype=torch.float64)
        best_epoch = torch.zeros(networks, device=self.device, dtype=torch.long)
        running, mean_lambdas = self.epochs(), self._lambda_means()
        start = self._now()
        for epoch in running:
            accuracy, accuracy_on_clean = self._validate()
            better = accuracy > best
            best = torch.where(better, accuracy, best)
            best_epoch = torch.where(better, epoch + 1, best_epoch)
            for kept, weight in zip(self.best_weights, self.network.weights, strict=True):
                torch.where(better.view(-1, 1, 1), weight, kept, out=kept)
            traces[0, epoch] = self.loss_sum / self.train_rows.shape[1]
            traces[1, epoch], traces[2, epoch] = accuracy, accuracy_on_clean
            traces[3:, epoch] = mean_lambdas()
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

    def _lambda_means(self) -> Callable[[], Tensor]:
        """A function that gives the mean λ of training samples with right and with wrong labels, ``(2, M)``."""
        traced = next((state.name for state in self.states if state.traced), None)
        if traced is None:
            return lambda: torch.full((2, self.networks), torch.nan, device=self.device, dtype=torch.float32)
        trained = torch.zeros(self.shape[0], len(self.clean), device=self.device, dtype=torch.bool)
        trained.scatter_(1, self.train_rows, True)
        wrong = self.labels != self.clean
        groups = torch.stack([trained[:, None] & ~wrong, trained[:, None] & wrong])  # (2, folds, sets, n)
        shares = groups / groups.sum(-1, keepdim=True)  # NaN where a group is empty

        def means() -> Tensor:
            kept = self.state[traced].to(self.loss_sum.dtype)
            values = kept.view(*self.shape, len(self.clean), -1).mean(-1)
            of_trials = shares[:, :, self.set_of_trial].to(values.dtype)
            return torch.einsum("ftn,gftn->gft", values, of_trials).flatten(1)

        return means
