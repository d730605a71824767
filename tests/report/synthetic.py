"""Results of a benchmark that was never run, of the shape of real ones."""

import json
import zlib

import numpy as np
import pandas as pd

import labelhedge as lh
from labelhedge.results import ResultsStore
from labelhedge.results.schema import CELL, NETWORKS, TEST, TRACES

CLASSES = {"letter": 26, "vowel": 11, "news20": 20, "cifar-10": 10, "cifar-100": 100, "tiny": 4}
PROTOCOL = "paper-0f3a9c"


def results(
    folder,
    datasets=("letter", "news20", "vowel"),
    noises=lh.noise.settings.PAPER,
    losses=lh.losses.PAPER,
    folds=5,
    seeds=(0,),
    epochs=20,
    lam=True,
    protocol=PROTOCOL,
    without=(),
):
    """Fill a folder with results; ``without`` names (data set, noise id, loss) that have none. Returns the folder."""
    store = ResultsStore(folder)
    for dataset in datasets:
        rows, traces = [], []
        for setting in noises:
            for loss in losses:
                if (dataset, setting.id, loss) not in without:
                    for seed in seeds:
                        values = (protocol, dataset, setting.kind, setting.rate, loss, seed)
                        cell = dict(zip(CELL, values, strict=True))
                        one_cell(cell, losses.index(loss) / len(losses), folds, epochs, lam, rows, traces)
        tables = pd.DataFrame(rows, columns=list(NETWORKS)), pd.DataFrame(traces, columns=list(TRACES))
        store.write(f"{protocol}/{dataset}", [setting.id for setting in noises], protocol, *tables)
    return folder


def one_cell(cell, badness, folds, epochs, lam, rows, traces):
    random = np.random.default_rng(zlib.crc32(repr(list(cell.values())).encode()))
    name = {"aldr-kl": "lambda0", "ldr-kl": "lam"}.get(cell["loss"], "q")
    tuned = 0.08 * np.abs(np.arange(3) - random.integers(3)) + random.normal(0, 0.02, 3)
    harm = cell["rate"] * (1.6 if cell["noise"] == "class_dependent" else 0.8)
    for number, value in enumerate((0.1, 1.0, 10.0)):
        level = 0.92 - harm * (0.35 + 0.5 * badness) - 0.2 * badness - tuned[number]
        for fold in range(folds):
            top1 = np.clip(level + random.normal(0, 0.002), 0.02, 1)
            power = random.uniform(0.7, 0.9)  # so that the ranks depend on k
            tops = [1 - (1 - top1) / k**power if k < CLASSES[cell["dataset"]] else np.nan for k in range(1, 6)]
            epoch = int(random.integers(epochs // 2, epochs))
            rows.append(
                {
                    **cell,
                    "fold": fold,
                    "lr": 0.1,
                    "weight_decay": 5e-3,
                    "params": json.dumps({name: value}),
                    "best_epoch": epoch,
                    "val_top1": top1 * (1 - cell["rate"] / 2),
                    **dict(zip(TEST, tops, strict=True)),
                    "epochs": epochs,
                    "seconds": 0.17 * epochs * (1 + 0.2 * badness + random.uniform(0, 0.05)),
                    "device": "NVIDIA H200",
                    "versions": "labelhedge 0.1.0, torch 2.13.0",
                    "commit": "0fbd313",
                }
            )
            if number == tuned.argmin():
                traces += one_trace(cell, fold, top1, value, epochs, lam and name == "lambda0", random)


def one_trace(cell, fold, top1, lambda0, epochs, lam, random):
    for epoch in range(1, epochs + 1):
        progress = 1 - np.exp(-4 * epoch / epochs)
        wobble = random.normal(0, 0.01)
        yield {
            **cell,
            "fold": fold,
            "epoch": epoch,
            "train_loss": 3.2 * (1 - 0.8 * progress * top1) + wobble,
            "val_top1": top1 * progress * (1 - cell["rate"] / 2) + wobble,
            "val_clean_top1": top1 * progress + wobble,
            "lam_clean": lambda0 * (1 - 0.35 * progress) if lam else np.nan,
            "lam_flipped": lambda0 * (1 - 0.2 * progress) if lam and cell["rate"] else np.nan,
        }
