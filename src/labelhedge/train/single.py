"""Train large networks on images: one over several GPUs, or several on one.

The interface is that of ``stacked``: a network for every fold and trial. Those that are trained at once share nothing
but the GPU.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from labelhedge._errors import UserError
from labelhedge.models import resnet
from labelhedge.train import _checkpoint
from labelhedge.train._distributed import place
from labelhedge.train._network import Pipeline
from labelhedge.train._pixels import Images, Reading
from labelhedge.train._training import Data, Training
from labelhedge.train.augment import Augmentation
from labelhedge.train.stacked import Fold, Outcome, Trial

Advance = Callable[[int], None]
"""Told how many images have been trained on since the last call."""
EpochEnded = Callable[[int, Sequence[float], Sequence[float]], None]
"""Told the number of an epoch, from 1, and mean loss and validation accuracy of every network that is trained."""


@dataclass(frozen=True)
class ImageTask:
    """What all networks learn from.

    Images are uint8 ``(n, height, width, channels)``, which stay on the device if they fit there, or a sequence that
    gives one at a time, which worker processes read as they are needed.
    """

    images: Images
    labels: NDArray[np.int64]
    """``(sets, n)`` the labels to train and to validate with, which may be wrong."""
    clean: NDArray[np.int64]
    """``(n,)`` the right ones, for the traces alone."""
    test_images: Images
    test_labels: NDArray[np.int64]
    num_classes: int
    balanced: bool = False
    """Whether accuracies are means over the classes instead of over the samples."""


@dataclass(frozen=True)
class ImageRecipe:
    """How every network is built and trained: momentum SGD in random order, the learning rate falling in steps."""

    model: str = "resnet18"
    width: int = 64
    """Channels of the first stage."""
    image_size: int | None = None
    """Height and width of what is cut out of an image; None: all of it."""
    resize: int | None = None
    """What the shorter side of an image is brought to before; None for images of one size."""
    augmentation: Augmentation = field(default_factory=Augmentation)
    epochs: int = 30
    batch_size: int = 64
    """Samples that fill no batch wait for another epoch."""
    momentum: float = 0.9
    nesterov: bool = False
    decay_after: tuple[int, ...] = (10, 20)
    """Epochs at whose end the learning rate is multiplied by ``decay``."""
    decay: float = 0.1
    review_after: tuple[int, ...] = ()
    """Epochs after which a loss that asks for the predictions for all training samples gets them (TGCE does)."""

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "width"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} must be at least 1, got {getattr(self, name)}")


@dataclass(frozen=True)
class Checkpoints:
    """What to keep of a training on disk."""

    path: Path
    """A folder, with one file for the networks that are trained at once."""
    every: float = 60.0
    """Seconds between two of them; they are written after an epoch."""
    keep_weights: bool = False
    """Whether the file of a finished training has the best weights."""
    digest: str = ""
    """Of the data, where it tells more than labels and some images do."""
    content: str = ""
    """A digest of all images, where they are not arrays: of those the training takes it."""


@torch.inference_mode(False)
def train(
    task: ImageTask,
    folds: Sequence[Fold],
    trials: Sequence[Trial],
    loss: str,
    recipe: ImageRecipe,
    *,
    options: Mapping[str, Any] | None = None,
    at_once: int = 1,
    pretrained: Mapping[str, Tensor] | None = None,
    checkpoints: Checkpoints | None = None,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    advance: Advance = lambda count: None,
    reading: Reading = lambda done, total: None,
    epoch_ended: EpochEnded = lambda epoch, losses, accuracies: None,
) -> Outcome:
    """Train ``folds × trials`` networks.

    Under ``torch.distributed`` all processes train each network together, on parts of the same batches: the result is
    that of one process.

    Args:
        task: The data.
        folds: All with the same numbers of rows. Without rows to validate on, the last epoch is the best.
        trials: One network each in every fold.
        loss: The id of a loss.
        recipe: How to train.
        options: Further options of the loss, the same for all trials; ``num_samples=None`` is ALDR-KL with the exact λ.
        at_once: How many networks a GPU trains side by side.
        pretrained: Weights to start from, such as torchvision's.
        checkpoints: Where to keep what is known so far. A training that was killed goes on from there, to the same
            result.
        device: Where to train.
        dtype: Type of the weights. In float32 a GPU computes in bfloat16 where that is safe.
        advance: Called as training goes on.
        reading: Called before, while images are read that then stay in memory.
        epoch_ended: Called after each epoch.

    Returns:
        The outcome of each network.
    """
    _check(task, folds, recipe)
    device = torch.device(device)
    pairs = list(itertools.product(range(len(trials)), range(len(folds))))
    size = 1 if device.type != "cuda" or place()[1] > 1 else max(1, at_once)
    data = Data(task, recipe, device, reading)
    parts = []
    try:
        for start in range(0, len(pairs), size):
            group = pairs[start : start + size]
            networks = [(folds[fold], trials[trial]) for trial, fold in group]
            file = checkpoints and replace(checkpoints, path=checkpoints.path / f"{start:04d}-{len(group)}.pt")
            training = Training(data, networks, loss, recipe, options or {}, pretrained, file, dtype)
            parts.append(training.run(advance, epoch_ended))
    except torch.OutOfMemoryError:
        lower = "--networks-at-once or --batch-size" if size > 1 else "--batch-size or --image-size"
        raise MemoryError(
            f"the GPU has too little memory for {size} at once of {recipe.model} with batches of {recipe.batch_size} "
            f"images; lower {lower}"
        ) from None
    finally:
        data.close()
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    by_trial = {name: values.reshape(len(trials), len(folds), *values.shape[1:]) for name, values in joined.items()}
    return Outcome(**{name: values.swapaxes(0, 1) for name, values in by_trial.items()})


def _check(task: ImageTask, folds: Sequence[Fold], recipe: ImageRecipe) -> None:
    for name, labels in (("labels", task.labels), ("clean labels", task.clean), ("test labels", task.test_labels)):
        if labels.size and not 0 <= labels.min() <= labels.max() < task.num_classes:
            raise ValueError(
                f"{name} must lie in 0 … {task.num_classes - 1} for {task.num_classes} classes, "
                f"got {labels.min()} … {labels.max()}"
            )
    samples, processes = len(folds[0].train), place()[1]
    if samples == 0:
        raise UserError("there are no samples to train on")
    if recipe.batch_size % processes:
        raise UserError(f"batch_size must be a multiple of the {processes} processes, got {recipe.batch_size}")
    if recipe.batch_size == processes:
        raise UserError("batch_size must be at least 2 in each process, for batch normalisation")
    if samples < recipe.batch_size and samples % processes:
        raise UserError(
            f"the {samples} samples to train on fill no batch and cannot be shared by {processes} processes; lower "
            "--batch-size"
        )


def export_weights(checkpoint: Path, path: Path, recipe: ImageRecipe, class_names: Sequence[str], name: str) -> None:
    """Write the best weights of a finished training, with its name and what :func:`load_network` needs to use them."""
    state = _checkpoint.read(checkpoint)["state"]
    weights, size = state["weights"][0], state["image_size"]
    network = {
        "model": recipe.model,
        "width": recipe.width,
        "resize": recipe.resize,
        "image_size": size,
        "class_names": list(class_names),
    }
    _checkpoint.save(path, network | {"name": name}, {"weights": weights})


def name_of_training(path: Path) -> str:
    """What :func:`export_weights` was told."""
    return str(_checkpoint.read(path)["configuration"].get("name"))


def is_network(content: object) -> bool:
    """Whether this is what a file of :func:`export_weights` holds."""
    return isinstance(content, dict) and "labelhedge" in content and "class_names" in content.get("configuration", {})


def load_network(path: str | Path) -> tuple[Pipeline, list[str]]:
    """A network that ``labelhedge train`` has made, and the names of its classes.

    Args:
        path: The file ``weights.pt``.

    Returns:
        A module in eval mode that takes uint8 images ``(B, height, width, channels)``, of any size if it was trained
        with ``resize``, and gives logits.
    """
    found = _checkpoint.read(Path(path))
    if not is_network(found):
        raise UserError(f"{path} is a checkpoint; weights.pt is the file with the network")
    about, weights = found["configuration"], found["state"]["weights"]
    model = resnet.create(
        about["model"],
        len(about["class_names"]),
        channels=weights["model.conv1.weight"].shape[1],
        width=about["width"],
        image_size=about["image_size"],
    )
    network = Pipeline(model, Augmentation(), about["image_size"], weights["mean"], weights["std"])
    network.load_state_dict(weights)
    network.resize = about["resize"]
    return network.eval(), about["class_names"]
