"""One large network while it trains: weights, optimiser, loss, and the order in which it sees its samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from labelhedge import losses
from labelhedge.models import resnet
from labelhedge.train._distributed import place, share_statistics, summed
from labelhedge.train._graph import compiles
from labelhedge.train._pixels import Resident, Streamed, fitted
from labelhedge.train.augment import Augmentation, random_numbers
from labelhedge.train.metrics import rank_of_label

if TYPE_CHECKING:
    from labelhedge.train.single import ImageRecipe
    from labelhedge.train.stacked import Fold, Trial

_EVALUATED = 1024
"""Images evaluated at a time, of 64 × 64 pixels; of larger ones fewer."""
_LOOKED_AT = 4096
"""Images that mean and standard deviation of the channels are taken from."""


class Network:
    """A network, and all that changes while it trains.

    Args:
        source: The images.
        labels: ``(n,)`` those to believe, on the device.
        classes: Number of classes.
        fold: Rows to train on, and the seed.
        trial: Learning rate, weight decay and hyperparameters.
        loss: The id of a loss.
        recipe: How to train.
        options: Further options of the loss.
        dtype: Type of the weights.
        pretrained: Weights to start from.
    """

    def __init__(
        self,
        source: Resident | Streamed,
        labels: Tensor,
        classes: int,
        fold: Fold,
        trial: Trial,
        loss: str,
        recipe: ImageRecipe,
        options: Mapping[str, Any],
        dtype: torch.dtype,
        pretrained: Mapping[str, Tensor] | None,
    ) -> None:
        self.source, self.labels, self.classes = source, labels, classes
        self.recipe, self.device = recipe, labels.device
        self.rank, self.processes = place()
        self.train_rows = torch.from_numpy(fold.train)
        start, self.order_seed = np.random.SeedSequence(fold.seed).generate_state(2).tolist()
        size = recipe.image_size or min(source.shape[:2])
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(start)  # the one of the CPU alone
            model = resnet.create(recipe.model, classes, channels=source.shape[2], width=recipe.width, image_size=size)
        if pretrained is not None:
            resnet.load_pretrained(model, pretrained)
        self.pipeline = Pipeline(model, recipe.augmentation, size, *self._statistics()).to(self.device, dtype)
        self.pipeline.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.forward: Any = self.pipeline
        if self.processes > 1:
            share_statistics(self.pipeline)
            self.forward = DistributedDataParallel(self.pipeline)
        elif compiles(self.device):
            self.forward = torch.compile(self.pipeline, fullgraph=True, dynamic=False)

        counts = {"num_samples": len(labels), "num_classes": classes}
        state = {name: counts[name] for name in losses.get(loss).counts}
        own = deepcopy(dict(options))  # what is learnt is learnt by each network
        self.criterion = losses.create(loss, **trial.params, **{**state, **own}).to(self.device, dtype)
        self.weights = list(self.pipeline.parameters())
        self.learnt = list(self.criterion.parameters())
        self.lr = torch.tensor(trial.lr, device=self.device, dtype=torch.float32)
        self.optimizer = torch.optim.SGD(
            [{"params": self.weights}, *self.criterion.parameter_groups()],
            lr=self.lr,
            momentum=recipe.momentum,
            weight_decay=trial.weight_decay,
            nesterov=recipe.nesterov,
            fused=True,
        )
        self.moving = [w for group in self.optimizer.param_groups if group["momentum"] for w in group["params"]]
        for weight in self.moving:  # now, so that they are there to be kept and put back
            self.optimizer.state[weight]["momentum_buffer"] = torch.zeros_like(weight)
        self.initial_lr = trial.lr
        self.loss_sum = torch.zeros((), device=self.device, dtype=dtype)
        self.best = {name: tensor.clone() for name, tensor in self.pipeline.state_dict().items()}

        self.steps = max(1, len(self.train_rows) // recipe.batch_size)
        seen = self.steps * min(recipe.batch_size, len(self.train_rows)) // self.processes
        self.order = torch.zeros(seen, dtype=torch.long, device=self.device)
        self.seed = torch.zeros((), dtype=torch.long, device=self.device)
        self.batch = torch.zeros(seen // self.steps, *source.shape, dtype=torch.uint8, device=self.device)

    def tensors(self) -> dict[str, Tensor]:
        """All that a step changes."""
        momenta = {
            f"momentum.{number}": self.optimizer.state[weight]["momentum_buffer"]
            for number, weight in enumerate(self.moving)
        }
        values = {f"loss.{name}": tensor for name, tensor in self.criterion.state_dict().items()}
        return {**self.pipeline.state_dict(), **momenta, **values, "loss_sum": self.loss_sum}

    def begin(self, epoch: int) -> None:
        """Shuffle, and decide what happens to each image; from 0. The same epoch always gives the same."""
        order, change = np.random.SeedSequence([self.order_seed, epoch]).generate_state(2).tolist()
        shuffled = self.train_rows[torch.randperm(len(self.train_rows), generator=torch.Generator().manual_seed(order))]
        # of every batch the part of this process; samples that fill no batch wait for another epoch
        batches = shuffled[: len(self.order) * self.processes].view(self.steps, self.processes, len(self.batch))
        self.order.copy_(batches[:, self.rank].flatten())
        self.seed.fill_(change)
        self.loss_sum.zero_()
        self.criterion.train()
        self.pipeline.train()
        self.lr.fill_(self.initial_lr * self.recipe.decay ** sum(after <= epoch for after in self.recipe.decay_after))

    def batches(self) -> Iterator[None]:
        """Fetch the pixels of one batch of the epoch after the other, where :meth:`step` does not find them itself."""
        if isinstance(self.source, Resident):
            yield from (None for _ in range(self.steps))
            return
        for pixels in self.source.blocks(self.order, len(self.batch)):
            self.batch.copy_(pixels, non_blocking=True)
            yield

    def step(self, at: Tensor) -> None:
        """Train on the batch whose samples are at these places of the order."""
        rows, size = self.order[at], len(self.batch)
        places = at + at // size * (size * (self.processes - 1)) + self.rank * size  # in the epoch of all processes
        pixels = self.source.images[rows] if isinstance(self.source, Resident) else self.batch
        with self._autocast():
            logits = self.forward(pixels, places, self.seed)
        loss = self.criterion(logits.to(self.loss_sum.dtype), self.labels[rows], rows)
        if self.processes > 1:
            self.optimizer.zero_grad()
            loss.backward()
            self.criterion.sync_gradients()
        else:  # without autograd's own accumulation, which would not stay on the stream of this network
            changed = [*self.weights, *self.learnt]
            for weight, gradient in zip(changed, torch.autograd.grad(loss, changed), strict=True):
                same_layout = gradient.stride() == weight.stride()  # as the fused optimiser demands
                weight.grad = gradient if same_layout else torch.empty_like(weight).copy_(gradient)
        self.optimizer.step()
        self.loss_sum += loss.detach()

    def end(self, epoch: int) -> float:
        """What is due after an epoch, from 0; its mean loss."""
        self.criterion.sync()
        keeps = self.criterion.num_samples is not None
        if keeps and self.criterion.wants_predictions and epoch + 1 in self.recipe.review_after:
            self._review()
        return float(summed(self.loss_sum)) / (self.steps * self.processes)

    @torch.no_grad()
    def _review(self) -> None:
        """Show the loss the predictions for all training samples, to which each process has contributed."""
        rows = self.train_rows.to(self.device)
        predictions = torch.zeros(len(rows), self.classes, dtype=self.loss_sum.dtype, device=self.device)
        own = predictions.tensor_split(self.processes)[self.rank]
        done = 0
        for block, logits in self.logits(self.source, rows.tensor_split(self.processes)[self.rank]):
            own[done : done + len(block)] = logits
            done += len(block)
        self.criterion.refresh(summed(predictions), self.labels[rows], rows)
        self.criterion.sync()

    @torch.no_grad()
    def ranks(self, source: Resident | Streamed, rows: Tensor, *labels: Tensor) -> list[Tensor]:
        """For each set of labels of the images of ``source`` the place of the label among the classes."""
        ranks = [torch.zeros(len(rows), dtype=torch.long, device=self.device) for _ in labels]
        own = torch.arange(len(rows)).tensor_split(self.processes)[self.rank]
        done = int(own[0]) if len(own) else 0
        for block, logits in self.logits(source, rows[own].to(self.device)):
            for target, into in zip(labels, ranks, strict=True):
                into[done : done + len(block)] = rank_of_label(logits, target[block])
            done += len(block)
        return [summed(places) for places in ranks]

    @torch.no_grad()
    def logits(self, source: Resident | Streamed, rows: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Rows of a source in blocks, and their logits."""
        self.pipeline.eval()
        size = _at_a_time(source)
        for block, pixels in zip(torch.split(rows, size), source.blocks(rows, size), strict=True):
            with self._autocast():
                logits = self.pipeline(pixels)
            yield block, logits.float() if logits.dtype != torch.float64 else logits

    def keep(self) -> None:
        """Remember the weights as the best so far."""
        for name, tensor in self.pipeline.state_dict().items():
            self.best[name].copy_(tensor)

    def use_best(self) -> None:
        """Go back to the best weights."""
        self.pipeline.load_state_dict(self.best)

    def _autocast(self) -> Any:
        half = self.device.type == "cuda" and self.weights[0].dtype == torch.float32
        return torch.autocast(self.device.type, torch.bfloat16, enabled=half)

    def _statistics(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of each channel, of values in [0, 1]."""
        some = self.train_rows[:: max(1, len(self.train_rows) // _LOOKED_AT)]
        sums = torch.zeros(2, self.source.shape[2], dtype=torch.float64, device=self.device)
        count = 0
        for pixels in self.source.blocks(some, _at_a_time(self.source)):
            values = pixels.flatten(0, 2).double() / 255
            sums += torch.stack([values.sum(0), values.square().sum(0)])
            count += len(values)
        mean, square = sums / count
        return mean, (square - mean.square()).clamp(min=1e-8).sqrt()


def _at_a_time(source: Resident | Streamed) -> int:
    height, width, _ = source.shape
    return max(1, min(_EVALUATED, _EVALUATED * 64 * 64 // (height * width)))


class Pipeline(nn.Module):
    """From pixels to logits: augmentation, normalisation and the network."""

    mean: Tensor
    std: Tensor

    def __init__(self, model: nn.Module, augmentation: Augmentation, size: int, mean: Tensor, std: Tensor) -> None:
        super().__init__()
        self.model, self.augmentation, self.size = model, augmentation, size
        self.resize: int | None = None
        """What the shorter side of the images is still to be brought to; in training that has been done."""
        self.register_buffer("mean", mean.view(-1, 1, 1))
        self.register_buffer("std", std.view(-1, 1, 1))

    def forward(self, pixels: Tensor, places: Tensor | None = None, seed: Tensor | None = None) -> Tensor:
        """Logits of uint8 images; with the places of the images in an epoch and its seed, of augmented ones."""
        if pixels.dtype != torch.uint8 or pixels.dim() != 4 or pixels.shape[-1] != len(self.mean):
            raise ValueError(
                f"images must be uint8 (B, height, width, {len(self.mean)}), got {pixels.dtype} {tuple(pixels.shape)}"
            )
        if self.resize is not None:
            pixels = fitted(pixels, torch.Size((self.resize, self.resize, pixels.shape[-1])))
        draws = None if places is None or seed is None else random_numbers(seed, places)
        images = self.augmentation.apply(pixels, draws, self.size, self.mean.dtype)
        logits: Tensor = self.model((images - self.mean) / self.std)
        return logits
