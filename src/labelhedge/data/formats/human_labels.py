"""The labels of CIFAR-10N: a dictionary of NumPy arrays, saved by torch."""

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from labelhedge.data._record import Labels
from labelhedge.data.formats._damage import expecting
from labelhedge.data.formats.pickles import load_pickle

LIMIT = 64 << 20  # bytes; the publisher's file has 2.3 million


def read_human_labels(path: Path, *, count: int, num_classes: int) -> dict[str, Labels]:
    """All label vectors of the file by their name.

    Raises:
        DataError: the file is damaged, cut off, or holds something else.
    """
    with expecting("the file of labels it should be", path):
        found = _saved_by_torch(path)
        if not isinstance(found, dict):
            raise ValueError("it does not hold a dictionary")
        return {str(name): _vector(name, value, count, num_classes) for name, value in found.items()}


def _saved_by_torch(path: Path) -> Any:
    if path.stat().st_size > LIMIT:
        raise ValueError("it is too large")
    with zipfile.ZipFile(io.BytesIO(path.read_bytes())) as archive:
        (member,) = (member for member in archive.infolist() if member.filename.endswith("/data.pkl"))
        if member.file_size > LIMIT:
            raise ValueError("it is too large")
        return load_pickle(archive.read(member))


def _vector(name: object, value: Any, count: int, num_classes: int) -> Labels:
    if not isinstance(value, np.ndarray) or value.size != count or value.min() < 0 or value.max() >= num_classes:
        raise ValueError(f"{name} does not hold {count:,} labels from 0 to {num_classes - 1}")
    return value.reshape(-1).astype(np.int64)
