"""Do one job: load, add noise, train, tune, write."""

from __future__ import annotations

import functools
import json
import platform
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import labelhedge
from labelhedge import data
from labelhedge._optional import optional
from labelhedge.bench.jobs import Job
from labelhedge.bench.protocol import BALANCED, entry
from labelhedge.noise.settings import MAPPINGS
from labelhedge.results import ResultsStore, choose
from labelhedge.train.stacked import Outcome, Task, Trial, train

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Machine:
    """Where and within what jobs run."""

    device: str = "cpu"
    memory: int | None = None
    """Bytes that a stack may take."""
    data: str | None = None
    """The folder of the data sets."""

    @property
    def torch_device(self) -> torch.device:
        """The device as an object."""
        return torch.device(self.device)


def run(job: Job, store: ResultsStore, machine: Machine, advance: Callable[[int], None]) -> None:
    """Train everything the job asks for and write its results."""
    loaded = dataset(job, machine)
    outcome = train(
        task(loaded, job),
        job.protocol.cross_validation(loaded, job.seed),
        trials(job),
        entry(job.loss).loss,
        job.protocol.recipe(loaded),
        options=entry(job.loss).options,
        memory=machine.memory,
        device=machine.device,
        advance=advance,
    )
    networks = _networks(job, outcome, machine.device)
    store.write(
        job.place, [s.id for s in job.settings], job.configuration, networks, _traces(job, outcome, choose(networks))
    )


def dataset(job: Job, machine: Machine) -> data.Dataset:
    """The data set of a job; the last one is remembered."""
    return _load(job.dataset, job.seed, machine.data)


@functools.lru_cache(maxsize=1)
def _load(name: str, seed: int, root: str | None) -> data.Dataset:
    return data.load(name, seed=seed, root=root)


def task(loaded: data.Dataset, job: Job) -> Task:
    """The data set with one set of noisy labels per setting."""
    info, labels = loaded.info, loaded.train.labels
    noisy = [
        setting.apply(labels, num_classes=info.num_classes, mapping=MAPPINGS.get(info.name), seed=job.seed).labels
        for setting in job.settings
    ]
    return Task(
        inputs=np.asarray(loaded.train.inputs),
        labels=np.stack(noisy),
        clean=labels,
        test_inputs=np.asarray(loaded.test.inputs),
        test_labels=loaded.test.labels,
        num_classes=info.num_classes,
        balanced=info.name in BALANCED,
    )


def trials(job: Job) -> list[Trial]:
    """Everything there is to tune, for one setting after the other."""
    return [
        Trial(lr, weight_decay, params, labels)
        for labels in range(len(job.settings))
        for lr, weight_decay, params in job.protocol.tuned(entry(job.loss))
    ]


def _networks(job: Job, outcome: Outcome, device: str) -> pd.DataFrame:
    origin = {
        "epochs": job.protocol.epochs,
        "device": device_name(device),
        "versions": versions(),
        "commit": commit(),
    }
    rows = []
    for number, trial in enumerate(trials(job)):
        for fold in range(job.protocol.folds):
            at = fold, number
            tops = {f"test_top{k}": top for k, top in enumerate(outcome.test_top[at].tolist(), 1)}
            rows.append(
                _cell(job, trial.labels, fold)
                | {"lr": trial.lr, "weight_decay": trial.weight_decay, "params": json.dumps(dict(trial.params))}
                | {"best_epoch": int(outcome.best_epoch[at]), "val_top1": float(outcome.val_top1[at])}
                | tops
                | {"seconds": float(outcome.seconds[at])}
                | origin
            )
    return _frame(rows)


def _traces(job: Job, outcome: Outcome, chosen: pd.DataFrame) -> pd.DataFrame:
    """The epochs of the chosen networks; they stand in the order of ``_networks``, trial after trial."""
    frames = []
    for row in chosen.index:
        number, fold = divmod(int(row), job.protocol.folds)
        at = fold, number
        frames.append(
            optional("pandas", "bench").DataFrame(
                _cell(job, trials(job)[number].labels, fold)
                | {
                    "epoch": np.arange(1, job.protocol.epochs + 1),
                    "train_loss": outcome.train_loss[at],
                    "val_top1": outcome.epoch_val_top1[at],
                    "val_clean_top1": outcome.epoch_val_clean_top1[at],
                    "lam_clean": outcome.lam_clean[at],
                    "lam_flipped": outcome.lam_flipped[at],
                }
            )
        )
    return optional("pandas", "bench").concat(frames, ignore_index=True)  # type: ignore[no-any-return]


def _cell(job: Job, labels: int, fold: int) -> dict[str, Any]:
    setting = job.settings[labels]
    return {
        "protocol": job.protocol.id,
        "dataset": job.dataset,
        "noise": setting.kind,
        "rate": setting.rate,
        "loss": job.loss,
        "seed": job.seed,
        "fold": fold,
    }


def _frame(rows: list[dict[str, Any]]) -> pd.DataFrame:
    return optional("pandas", "bench").DataFrame(rows)  # type: ignore[no-any-return]


@functools.cache
def device_name(device: str) -> str:
    """What computes: the name of the GPU, with TF32 where it rounds matrix products to that, or of the processor."""
    if torch.device(device).type == "cuda":
        rounds = torch.get_float32_matmul_precision() != "highest"
        return torch.cuda.get_device_name(device) + (" with TF32" if rounds else "")
    return f"CPU {platform.processor() or platform.machine()}"


@functools.cache
def versions() -> str:
    """What the numbers were computed with."""
    return (
        f"labelhedge {labelhedge.__version__}, torch {torch.__version__}, numpy {np.__version__}, "
        f"Python {platform.python_version()}"
    )


@functools.cache
def commit() -> str:
    """The commit of labelhedge's own checkout, with a + where files were changed; empty where there is none."""
    folder = Path(labelhedge.__file__).parent

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        if not git("ls-files", "__init__.py"):
            return ""  # installed somewhere inside another project's checkout
        return git("rev-parse", "--short=12", "HEAD") + ("+" if git("status", "--porcelain", "--", ".") else "")
    except (OSError, subprocess.CalledProcessError):
        return ""
