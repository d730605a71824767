"""The results of a job as tables, with where they come from."""

from __future__ import annotations

import functools
import json
import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from labelhedge import _version
from labelhedge._optional import optional
from labelhedge.bench.jobs import Job
from labelhedge.train.stacked import Outcome, Trial

if TYPE_CHECKING:
    import pandas as pd


def networks_table(job: Job, tried: Sequence[Trial], outcome: Outcome, device: str) -> pd.DataFrame:
    """A row for every network, trial after trial."""
    origin = {
        "epochs": job.epochs,
        "device": device_name(device),
        "versions": versions(),
        "commit": commit(),
    }
    rows = []
    for number, trial in enumerate(tried):
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


def traces_table(job: Job, tried: Sequence[Trial], outcome: Outcome, chosen: pd.DataFrame) -> pd.DataFrame:
    """The epochs of the chosen networks; they stand in the order of :func:`networks_table`."""
    frames = []
    for row in chosen.index:
        number, fold = divmod(int(row), job.protocol.folds)
        at = fold, number
        frames.append(
            optional("pandas", "bench").DataFrame(
                _cell(job, tried[number].labels, fold)
                | {
                    "epoch": np.arange(1, job.epochs + 1),
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
        f"labelhedge {_version.__version__}, torch {torch.__version__}, numpy {np.__version__}, "
        f"Python {platform.python_version()}"
    )


@functools.cache
def commit() -> str:
    """The commit of labelhedge's own checkout, with a + where files were changed; empty where there is none."""
    folder = Path(_version.__file__).parent

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
