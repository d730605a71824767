"""Networks that are trained at once, epoch by epoch, and what is known of them so far."""

from __future__ import annotations

import functools
import hashlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from labelhedge._errors import UserError
from labelhedge.train import _checkpoint
from labelhedge.train._distributed import place, summed
from labelhedge.train._graph import replayed
from labelhedge.train._network import Network
from labelhedge.train._pixels import Reading, pixels
from labelhedge.train._threads import cores
from labelhedge.train.metrics import balanced_weight, top_k

if TYPE_CHECKING:
    from labelhedge.train.single import Advance, Checkpoints, EpochEnded, ImageRecipe, ImageTask
    from labelhedge.train.stacked import Fold, Trial

_TOLD = 64
"""Steps between two reports of progress."""
_READERS = 8
"""The most worker processes that read images."""
_HASHED = 4096
"""Images whose digest is taken at a time."""


class Data:
    """What the networks of a task share, on the device."""

    def __init__(
        self,
        task: ImageTask,
        recipe: ImageRecipe,
        device: torch.device,
        reading: Reading = lambda done, total: None,
    ) -> None:
        readers = min(_READERS, cores())
        self.device, self.classes, self.balanced = device, task.num_classes, task.balanced
        self.train = pixels(task.images, recipe.resize, device, readers, reading)
        self.test = pixels(task.test_images, recipe.resize, device, readers, lambda done, total: None)
        least = min(self.train.shape[:2])
        if (recipe.image_size or 0) > least:
            raise UserError(
                f"image_size must be at most the {least} pixels of the images, got {recipe.image_size}; "
                "--resize makes them larger"
            )
        if self.test.shape != self.train.shape:
            sizes = [" × ".join(map(str, source.shape)) for source in (self.train, self.test)]
            raise UserError(f"images to train on have {sizes[0]} values, those to test on {sizes[1]}; use --resize")
        self._task = task
        self.labels = torch.from_numpy(task.labels).to(device)
        self.clean = torch.from_numpy(task.clean).to(device)
        self.test_labels = torch.from_numpy(task.test_labels).to(device)

    def close(self) -> None:
        """End the processes that read images."""
        self.train.close()
        self.test.close()

    @functools.cached_property
    def content(self) -> str | None:
        """A digest of everything where the images are arrays; None where each would have to be read for it."""
        digest = hashlib.sha256()
        for images in (self._task.images, self._task.test_images):
            if not isinstance(images, np.ndarray):
                return None
            for start in range(0, len(images), _HASHED):
                digest.update(np.ascontiguousarray(images[start : start + _HASHED]).data)
        for labels in (self._task.labels, self._task.clean, self._task.test_labels):
            digest.update(np.ascontiguousarray(labels).data)
        return digest.hexdigest()[:16]

    def accuracy(self, ranks: Tensor, labels: Tensor, k: int) -> float:
        """Top-k, balanced over the classes where the task says so."""
        weight = balanced_weight(labels, self.classes) if self.balanced else None
        return float(top_k(ranks, k, weight))


class Training:
    """Networks that are trained at once, and what is known of them so far."""

    def __init__(
        self,
        data: Data,
        networks: Sequence[tuple[Fold, Trial]],
        loss: str,
        recipe: ImageRecipe,
        options: Mapping[str, Any],
        pretrained: Mapping[str, Tensor] | None,
        checkpoints: Checkpoints | None,
        dtype: torch.dtype,
        kind: type[Network] = Network,
    ) -> None:
        self.data, self.recipe, self.checkpoints, self.saved = data, recipe, checkpoints, time.monotonic()
        self.networks = [
            kind(
                data.train,
                data.labels[trial.labels],
                data.classes,
                fold,
                trial,
                loss,
                recipe,
                options,
                dtype,
                pretrained,
            )
            for fold, trial in networks
        ]
        self.validation = [torch.from_numpy(fold.validation).to(data.device) for fold, _ in networks]
        self.places = torch.arange(len(self.networks[0].batch), device=data.device)
        count = len(self.networks)
        self.epoch, self.seconds = 0, 0.0
        self.best, self.best_epoch = [-1.0] * count, [0] * count
        self.traces = torch.full((count, 5, recipe.epochs), torch.nan, dtype=torch.float32)
        self.test_top: Tensor | None = None
        self.configuration = {
            "loss": loss,
            "options": {name: str(value) for name, value in options.items()},
            **{name: str(value) for name, value in vars(recipe).items()},
            "learning rate": _listed(trial.lr for _, trial in networks),
            "weight decay": _listed(trial.weight_decay for _, trial in networks),
            "hyperparameters": _listed(dict(trial.params) for _, trial in networks),
            "seed": _listed(fold.seed for fold, _ in networks),
            "digest of images and labels": _digest(data, networks),
            "type of the weights": str(dtype),
            "digest of the weights to start from": _digest_of_weights(pretrained),
            "digest of the files": checkpoints.digest if checkpoints else "",
        }
        content = checkpoints and (checkpoints.content or data.content)
        if content:
            self.configuration[_checkpoint.CONTENT] = content

    def run(self, advance: Advance, epoch_ended: EpochEnded) -> dict[str, np.ndarray[Any, Any]]:
        """Train from the start or from the checkpoint to the end, and test; the arrays of an outcome."""
        self._resume()
        step = self._recorded() if self.epoch < self.recipe.epochs else self._step
        for epoch in range(self.epoch, self.recipe.epochs):
            start = self._now()
            self._train_epoch(epoch, step, advance)
            losses = [network.end(epoch) for network in self.networks]
            self.seconds += self._now() - start
            for number, mean_loss in enumerate(losses):
                self._validate(number, epoch, mean_loss)
            self.epoch = epoch + 1
            epoch_ended(self.epoch, losses, self.traces[:, 1, epoch].tolist())
            if self.checkpoints and time.monotonic() - self.saved >= self.checkpoints.every:
                self._save()
        if self.test_top is None:
            self.test_top = torch.stack([self._test(network) for network in self.networks])
            self._save()
        return self._arrays()

    def _train_epoch(self, epoch: int, step: Callable[[], None], advance: Advance) -> None:
        for network in self.networks:
            network.begin(epoch)
        self.places.copy_(torch.arange(len(self.places)))
        told = 0
        for number, _ in enumerate(zip(*(network.batches() for network in self.networks), strict=True), 1):
            step()
            if number % _TOLD == 0 or number == self.networks[0].steps:
                self._now()
                advance((number - told) * len(self.places) * place()[1] * len(self.networks))
                told = number

    def _recorded(self) -> Callable[[], None]:
        """A step of all networks; recorded once on a GPU, but for several processes, whose messages are not."""
        if place()[1] > 1:
            return self._step
        changes = [tensor for network in self.networks for tensor in network.tensors().values()]
        return replayed(self._step, [*changes, self.places], self.data.device)

    def _step(self) -> None:
        if len(self.networks) == 1:
            self.networks[0].step(self.places)
        else:  # each on a stream of its own, so that the GPU has something to do while one of them waits
            main = torch.cuda.current_stream()
            streams = [torch.cuda.Stream() for _ in self.networks]  # type: ignore[no-untyped-call]
            for network, stream in zip(self.networks, streams, strict=True):
                stream.wait_stream(main)
                with torch.cuda.stream(stream):
                    network.step(self.places)
            for stream in streams:
                main.wait_stream(stream)
        self.places += len(self.places)

    def _validate(self, number: int, epoch: int, mean_loss: float) -> None:
        network, rows = self.networks[number], self.validation[number]
        accuracy, accuracy_on_clean = float("nan"), float("nan")
        if len(rows):
            labels, clean = network.labels, self.data.clean
            ranks, ranks_on_clean = network.ranks(self.data.train, rows, labels, clean)
            accuracy = self.data.accuracy(ranks, labels[rows], 1)
            accuracy_on_clean = self.data.accuracy(ranks_on_clean, clean[rows], 1)
        if not len(rows) or accuracy > self.best[number]:
            self.best[number], self.best_epoch[number] = accuracy, epoch + 1
            network.keep()
        values = [mean_loss, accuracy, accuracy_on_clean, *self._lambda_means(network)]
        self.traces[number, :, epoch] = torch.tensor(values)

    def _lambda_means(self, network: Network) -> tuple[float, float]:
        """Of the training samples whose label is right, and of those whose label is wrong."""
        traced = [getattr(network.criterion, s.name) for s in network.criterion.spec.state if s.traced]
        if not traced or traced[0] is None:
            return float("nan"), float("nan")
        lam = traced[0].detach().to(network.loss_sum.dtype)
        rows = network.train_rows.to(lam.device)
        wrong = (network.labels != self.data.clean)[rows]
        return float(lam[rows][~wrong].mean()), float(lam[rows][wrong].mean())

    def _test(self, network: Network) -> Tensor:
        """Top-1 to top-5 of the best weights; NaN where k is not below the number of classes."""
        network.use_best()
        labels, classes = self.data.test_labels, self.data.classes
        (ranks,) = network.ranks(self.data.test, torch.arange(len(labels)), labels)
        tops = [self.data.accuracy(ranks, labels, k) if k < classes else float("nan") for k in range(1, 6)]
        return torch.tensor(tops, dtype=torch.float64)

    def _save(self) -> None:
        if self.checkpoints is None or place()[0] > 0:
            return
        state: dict[str, Any] = {
            "epoch": self.epoch,
            "seconds": self.seconds,
            "best": self.best,
            "best_epoch": self.best_epoch,
            "traces": self.traces,
            "test_top": self.test_top,
            "image_size": self.networks[0].pipeline.size,
        }
        if self.test_top is None or self.checkpoints.keep_weights:
            state["weights"] = [network.best for network in self.networks]
        if self.test_top is None:
            state["tensors"] = [network.tensors() for network in self.networks]
        _checkpoint.save(self.checkpoints.path, self.configuration, state)
        self.saved = time.monotonic()

    def _resume(self) -> None:
        state = None if self.checkpoints is None else _checkpoint.load(self.checkpoints.path, self.configuration)
        if state is not None:
            for name in ("epoch", "seconds", "best", "best_epoch", "traces", "test_top"):
                setattr(self, name, state[name])
            if self.test_top is None:
                for number, network in enumerate(self.networks):
                    _copy(network.best, state["weights"][number])
                    _copy(network.tensors(), state["tensors"][number])
        epochs = summed(torch.tensor(self.epoch, device=self.data.device))
        if epochs != self.epoch * place()[1]:
            raise UserError("the processes find different checkpoints; --out must be a folder that all of them see")

    def _arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        assert self.test_top is not None
        count = len(self.networks)
        train_loss, val, val_clean, lam_clean, lam_flipped = self.traces.unbind(1)
        return {
            "best_epoch": np.array(self.best_epoch),
            "val_top1": np.array(self.best),
            "test_top": self.test_top.numpy(),
            "train_loss": train_loss.numpy(),
            "epoch_val_top1": val.numpy(),
            "epoch_val_clean_top1": val_clean.numpy(),
            "lam_clean": lam_clean.numpy(),
            "lam_flipped": lam_flipped.numpy(),
            "seconds": np.full(count, self.seconds / count),
        }

    def _now(self) -> float:
        if self.data.device.type == "cuda":
            torch.cuda.synchronize(self.data.device)
        return time.perf_counter()


def _listed(values: Iterable[object]) -> str:
    """Of the networks, one after the other."""
    return ", ".join(map(str, values))


def _copy(into: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> None:
    for name, tensor in into.items():
        tensor.copy_(values[name])


def _digest(data: Data, networks: Sequence[tuple[Fold, Trial]]) -> str:
    """Tells data sets apart: shapes, some images, labels and rows."""
    digest = hashlib.sha256(str((data.train.shape, data.classes, data.balanced)).encode())
    count = data.labels.shape[1]
    for images in data.train.blocks(torch.tensor([0, count // 2, count - 1]), 3):
        digest.update(images.cpu().numpy().tobytes())
    for fold, trial in networks:
        for values in (data.labels[trial.labels].cpu().numpy(), fold.train, fold.validation):
            digest.update(np.ascontiguousarray(values).tobytes())
    return digest.hexdigest()[:16]


def _digest_of_weights(weights: Mapping[str, Tensor] | None) -> str:
    digest = hashlib.sha256()
    for name, tensor in (weights or {}).items():
        digest.update(name.encode())
        digest.update(tensor.cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16] if weights else "random"
