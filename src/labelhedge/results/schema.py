"""The columns of a result."""

from typing import Any

from labelhedge._optional import optional

CELL = ("protocol", "dataset", "noise", "rate", "loss", "seed")
"""What names a job: one loss on one data set with one noise, under one protocol and from one seed."""
CONFIGURATION = ("lr", "weight_decay", "params")
"""What is tuned."""
TEST = tuple(f"test_top{k}" for k in range(1, 6))

_CELL = {
    "protocol": "string",  # name and digest of the protocol: rows of two protocols never mix
    "dataset": "string",
    "noise": "string",  # clean, uniform, class_dependent, or the name of a set of human labels
    "rate": "float64",
    "loss": "string",  # the id of a loss, with @l1 where it is tuned on L1-normalised logits
    "seed": "int64",
    "fold": "int64",
}
NETWORKS = {
    **_CELL,
    "lr": "float64",
    "weight_decay": "float64",
    "params": "string",  # the hyperparameters of the loss as JSON
    "best_epoch": "int64",  # from 1: the first epoch with the highest val_top1
    "val_top1": "float64",  # on the noisy labels of the validation fold, at best_epoch; all accuracies are in [0, 1]
    **dict.fromkeys(TEST, "float64"),  # on the clean test labels, at best_epoch; empty where k is not below the classes
    "epochs": "int64",
    "seconds": "float64",  # this network's share of the time that the epochs of its stack took
    "device": "string",
    "versions": "string",
    "commit": "string",
}
"""One row per trained network."""
TRACES = {
    **_CELL,
    "epoch": "int64",
    "train_loss": "float64",
    "val_top1": "float64",  # on the noisy labels
    "val_clean_top1": "float64",  # the same predictions on the clean labels
    "lam_clean": "float64",  # mean λ of the training samples whose label is right; empty for losses without λ
    "lam_flipped": "float64",  # and of those whose label is wrong
}
"""One row per epoch and fold, of the chosen configuration of each job."""


def arrow_schema(columns: dict[str, str], metadata: dict[str, str] | None = None) -> Any:
    """The columns as a ``pyarrow.Schema``."""
    pa = optional("pyarrow", "bench")
    return pa.schema([(name, getattr(pa, kind)()) for name, kind in columns.items()], metadata=metadata)
