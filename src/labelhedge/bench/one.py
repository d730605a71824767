"""One network with settings that the user chose: train it, and keep its results and its weights."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from labelhedge._errors import UserError
from labelhedge.bench.jobs import Job
from labelhedge.bench.protocol import entry
from labelhedge.bench.rows import networks_table, traces_table
from labelhedge.bench.run import Machine, image_task
from labelhedge.data import Dataset, Part
from labelhedge.data.formats.jpeg import ImageFiles
from labelhedge.results import ResultsStore
from labelhedge.train import single
from labelhedge.train._distributed import place
from labelhedge.train.single import Checkpoints
from labelhedge.train.stacked import Trial


@dataclass(frozen=True)
class Extras:
    """What a single training may be given beside its job."""

    params: Mapping[str, float] = field(default_factory=dict)
    """Hyperparameters of the loss; the others have their defaults."""
    exact: bool = False
    """Whether the loss keeps nothing of the samples: ALDR-KL then finds the exact λ in every step."""
    pretrained: Path | None = None
    """A file of weights to start from, such as torchvision's."""
    every: float = 60.0
    """Seconds between two checkpoints."""


def train_one(
    job: Job,
    loaded: Dataset,
    extras: Extras,
    store: ResultsStore,
    machine: Machine,
    advance: Callable[[int], None],
    reading: Callable[[int, int], None],
    epoch_ended: single.EpochEnded,
) -> None:
    """Train the one network of a job; results go into the store, weights and checkpoint into the folder of it.

    Under ``torch.distributed`` every process calls it, and the first one writes.

    Args:
        job: With one learning rate, weight decay, fold and noise.
        loaded: Its data, which may be a folder of the user's.
        extras: What else the user wants.
        store: A folder of this machine.
        machine: Where to train.
        advance: Told how many images have been trained on since the last call.
        reading: Told how many images have been read into memory, and how many there are.
        epoch_ended: Told how each epoch went.
    """
    chosen = entry(job.loss)
    trial = Trial(job.protocol.learning_rates[0], job.protocol.weight_decays[0], extras.params)
    root = Path(store.root)
    recipe = job.protocol.image_recipe(loaded)
    outcome = single.train(
        image_task(loaded, job),
        job.protocol.cross_validation(loaded, job.seed),
        [trial],
        chosen.loss,
        recipe,
        options=dict(chosen.options) | ({"num_samples": None} if extras.exact else {}),
        pretrained=None if extras.pretrained is None else read_weights(extras.pretrained),
        checkpoints=Checkpoints(
            root / "checkpoint", extras.every, True, _digest(loaded.train), "".join(_contents(loaded))
        ),
        device=machine.device,
        advance=advance,
        reading=reading,
        epoch_ended=epoch_ended,
    )
    if place()[0] > 0:
        return
    name = _name(job, configuration(loaded, extras))
    single.export_weights(root / "checkpoint" / "0000-1.pt", root / "weights.pt", recipe, loaded.class_names, name)
    networks = networks_table(job, [trial], outcome, machine.device)
    traces = traces_table(job, [trial], outcome, networks)
    store.write(job.place, [setting.id for setting in job.settings], configuration(loaded, extras), networks, traces)
    shutil.rmtree(root / "checkpoint", ignore_errors=True)


def is_finished(job: Job, loaded: Dataset, extras: Extras, store: ResultsStore) -> bool:
    """Whether the store has the results; a checkpoint that is then left over is removed.

    Raises:
        UserError: Its folder has the weights of another training, which these would replace.
    """
    weights = Path(store.root) / "weights.pt"
    if job.settings[0].id in store.finished(job.place, configuration(loaded, extras), _names_alone(loaded, extras)):
        _check_whole(weights)
        shutil.rmtree(Path(store.root) / "checkpoint", ignore_errors=True)
        return True
    names = [_name(job, known) for known in (configuration(loaded, extras), _names_alone(loaded, extras))]
    if weights.exists() and single.name_of_training(weights) not in names:
        raise UserError(
            f"{weights} has the weights of another training, with other options, images or labels; choose another --out"
        )
    return False


def _check_whole(weights: Path) -> None:
    """See to it that the weights of a finished training, where they are kept, can be read."""
    try:
        if weights.exists():
            single.name_of_training(weights)
    except UserError as error:
        raise UserError(
            f"{weights} is damaged, and its training is finished; choose another --out, or remove {weights.parent}"
        ) from error


def _name(job: Job, configuration: str) -> str:
    return f"{job.place}/{job.settings[0].id} {configuration}"


def configuration(loaded: Dataset, extras: Extras) -> str:
    """What the numbers depend on beside the protocol: options, where the images are, their names and contents."""
    return json.dumps([*_beside_contents(loaded, extras), *_contents(loaded)], sort_keys=True)


def _names_alone(loaded: Dataset, extras: Extras) -> str:
    """The configuration as it was written before it had the content of the files."""
    return json.dumps(_beside_contents(loaded, extras), sort_keys=True)


def _beside_contents(loaded: Dataset, extras: Extras) -> list[Any]:
    start = None if extras.pretrained is None else str(extras.pretrained)
    digests = [_digest(part) for part in (loaded.train, loaded.test)]
    return [dict(extras.params), extras.exact, start, loaded.info.source, *digests]


def _contents(loaded: Dataset) -> list[str]:
    """Digests of the images where they are files; what is in arrays has been checked when it was read."""
    return [part.inputs.digest for part in (loaded.train, loaded.test) if isinstance(part.inputs, ImageFiles)]


def _digest(part: Part) -> str:
    """Of the labels, and of the names of the files where the images are some."""
    digest = hashlib.sha256(part.labels.tobytes())
    for path in part.inputs.paths if isinstance(part.inputs, ImageFiles) else ():
        digest.update(os.fsencode(path) + b"\0")
    return digest.hexdigest()[:16]


def read_weights(path: Path) -> dict[str, Any]:
    """Weights by their name, as ``torch.save(model.state_dict(), path)`` writes them, or a ``weights.pt`` of ours."""
    try:
        file = path.open("rb")
    except OSError as error:
        raise UserError(f"cannot read the weights {path}: {error.strerror or error}") from None
    with file:
        try:
            found = torch.load(file, map_location="cpu", weights_only=True)
        except Exception as error:  # of whatever kind, depending on what the file is
            raise UserError(f"{path} has no weights that can be read ({type(error).__name__})") from error
    if single.is_network(found):
        weights = found["state"]["weights"]
        return {name.removeprefix("model."): tensor for name, tensor in weights.items() if name.startswith("model.")}
    if not isinstance(found, dict) or not all(isinstance(value, torch.Tensor) for value in found.values()):
        raise UserError(f"{path} has no weights: it must hold tensors by their name, as a state_dict does")
    return found
