"""Do one job: load, add noise, train, tune, write."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from labelhedge import data
from labelhedge.bench.jobs import Job, missing
from labelhedge.bench.protocol import BALANCED, entry
from labelhedge.bench.rows import networks_table, traces_table
from labelhedge.noise import NoisyLabels
from labelhedge.noise.settings import MAPPINGS, Setting
from labelhedge.results import ResultsStore, choose, load
from labelhedge.train import single, stacked
from labelhedge.train.single import Checkpoints, ImageTask
from labelhedge.train.stacked import Outcome, Task, Trial


@dataclass(frozen=True)
class Machine:
    """Where and within what jobs run."""

    device: str = "cpu"
    memory: int | None = None
    """Bytes that a stack may take."""
    at_once: int = 5
    """Networks for images that a GPU trains side by side."""
    data: str | None = None
    """The folder of the data sets."""

    @property
    def torch_device(self) -> torch.device:
        """The device as an object."""
        return torch.device(self.device)


def run(job: Job, store: ResultsStore, machine: Machine, advance: Callable[[int], None]) -> None:
    """Train everything the job asks for and write its results."""
    loaded = dataset(job, machine)
    tried = trials(job) if job.tuning is None else _best_trials(job.tuning, store, machine, advance)
    if job.images:
        outcome = _train_images(job, loaded, tried, store, machine, advance)
    else:
        outcome = _train_tables(job, loaded, tried, machine, advance)
    networks = networks_table(job, tried, outcome, machine.device)
    traces = traces_table(job, tried, outcome, choose(networks))
    store.write(job.place, [s.id for s in job.settings], job.configuration, networks, traces)
    if job.images and isinstance(store.root, Path):
        shutil.rmtree(_checkpoints(job, store.root), ignore_errors=True)
        with contextlib.suppress(OSError):
            os.removedirs(_checkpoints(job, store.root).parent)  # as far up as they are empty


def _train_tables(
    job: Job, loaded: data.Dataset, tried: Sequence[Trial], machine: Machine, advance: Callable[[int], None]
) -> Outcome:
    return stacked.train(
        task(loaded, job),
        job.protocol.cross_validation(loaded, job.seed),
        tried,
        entry(job.loss).loss,
        job.protocol.recipe(loaded),
        options=entry(job.loss).options,
        memory=machine.memory,
        device=machine.device,
        advance=advance,
    )


def _train_images(
    job: Job,
    loaded: data.Dataset,
    tried: Sequence[Trial],
    store: ResultsStore,
    machine: Machine,
    advance: Callable[[int], None],
) -> Outcome:
    folds, recipe = job.protocol.cross_validation(loaded, job.seed), job.protocol.image_recipe(loaded)
    batch = min(recipe.batch_size, len(folds[0].train))
    per_epoch = len(folds[0].train) // batch * batch
    left_over = 0

    def advance_epochs(images: int) -> None:
        nonlocal left_over
        epochs, left_over = divmod(left_over + images, per_epoch)
        advance(epochs)

    return single.train(
        image_task(loaded, job),
        folds,
        tried,
        entry(job.loss).loss,
        recipe,
        options=entry(job.loss).options,
        at_once=machine.at_once,
        checkpoints=Checkpoints(_checkpoints(job, store.root)) if isinstance(store.root, Path) else None,
        device=machine.device,
        advance=advance_epochs,
    )


def _checkpoints(job: Job, root: Path) -> Path:
    return root / "checkpoints" / job.place / "+".join(setting.id for setting in job.settings)


def _best_trials(short: Job, store: ResultsStore, machine: Machine, advance: Callable[[int], None]) -> list[Trial]:
    """The configuration that a shorter training prefers, for each noise; its results are kept beside the others."""
    tuning = ResultsStore(f"{store.root}/tuning")
    rest = missing(short, tuning)
    if rest is not None:
        run(rest, tuning, machine, advance)
    networks = load(tuning.root)
    ours = {"protocol": short.protocol.id, "dataset": short.dataset, "loss": short.loss, "seed": short.seed}
    chosen = choose(networks[(networks[list(ours)] == list(ours.values())).all(axis=1)])
    best = []
    for number, setting in enumerate(short.settings):
        row = chosen[(chosen["noise"] == setting.kind) & (chosen["rate"] == setting.rate)].iloc[0]
        best.append(Trial(float(row["lr"]), float(row["weight_decay"]), json.loads(row["params"]), number))
    return best


def dataset(job: Job, machine: Machine) -> data.Dataset:
    """The data set of a job; the last one is remembered."""
    return _load(job.dataset, job.seed, machine.data)


@functools.lru_cache(maxsize=1)
def _load(name: str, seed: int, root: str | None) -> data.Dataset:
    return data.load(name, seed=seed, root=root)


def task(loaded: data.Dataset, job: Job) -> Task:
    """The data set with one set of noisy labels per setting."""
    return Task(
        inputs=np.asarray(loaded.train.inputs),
        labels=_noisy(loaded, job),
        clean=loaded.train.labels,
        test_inputs=np.asarray(loaded.test.inputs),
        test_labels=loaded.test.labels,
        num_classes=loaded.num_classes,
        balanced=loaded.info.name in BALANCED,
    )


def image_task(loaded: data.Dataset, job: Job) -> ImageTask:
    """The same for images, which stay where they are."""
    return ImageTask(
        images=loaded.train.inputs,
        labels=_noisy(loaded, job),
        clean=loaded.train.labels,
        test_images=loaded.test.inputs,
        test_labels=loaded.test.labels,
        num_classes=loaded.num_classes,
        balanced=loaded.info.name in BALANCED,
    )


def _noisy(loaded: data.Dataset, job: Job) -> NDArray[np.int64]:
    """A set of labels for each noise."""
    return np.stack([noisy_labels(loaded, setting, job.seed).labels for setting in job.settings])


def noisy_labels(loaded: data.Dataset, setting: Setting, seed: int) -> NoisyLabels:
    """The training labels of a data set with a noise."""
    return setting.apply(
        loaded.train.labels,
        num_classes=loaded.num_classes,
        mapping=MAPPINGS.get(loaded.info.name),
        human=loaded.human_labels,
        seed=seed,
    )


def trials(job: Job) -> list[Trial]:
    """Everything there is to tune, for one setting after the other."""
    return [
        Trial(lr, weight_decay, params, labels)
        for labels in range(len(job.settings))
        for lr, weight_decay, params in job.protocol.tuned(entry(job.loss))
    ]
