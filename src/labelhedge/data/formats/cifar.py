"""The CIFAR archives: pickles in a tar file, compressed by gzip. Nothing is extracted to the disk."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelhedge.data._record import Labels
from labelhedge.data.formats._damage import expecting
from labelhedge.data.formats.pickles import load_pickle
from labelhedge.data.formats.tar import read_members

PIXELS = 3 * 32 * 32


def read_cifar(
    path: Path, batches: Mapping[str, int], label_key: bytes, meta: str, names_key: bytes, num_classes: int
) -> tuple[dict[str, tuple[NDArray[np.uint8], Labels]], tuple[str, ...]]:
    """Images ``(N, 32, 32, 3)`` and labels of each batch, and the names of the classes.

    Args:
        path: the archive.
        batches: the members to read, and how many images each must have.
        label_key: the key of the labels in them.
        meta: the member that has the names of the classes.
        names_key: the key of the names in it.
        num_classes: how many names there must be.

    Raises:
        DataError: the archive is damaged, cut off, or holds something else.
    """
    limits = {name: count * (PIXELS + 100) + 100_000 for name, count in batches.items()} | {meta: 100_000}
    with expecting("the CIFAR archive it should be", path):
        found = {name: load_pickle(data) for name, data in read_members(path, limits).items()}
        if not all(isinstance(content, dict) for content in found.values()):
            raise ValueError("it holds something that is not a dictionary")
        names = tuple(name.decode() for name in found[meta][names_key] if isinstance(name, bytes))
        if len(names) != num_classes:
            raise ValueError(f"{meta} names {len(names)} classes, expected {num_classes}")
        parts = {name: _batch(found[name], count, label_key, num_classes) for name, count in batches.items()}
    return parts, names


def _batch(batch: Any, count: int, label_key: bytes, num_classes: int) -> tuple[NDArray[np.uint8], Labels]:
    pixels, labels = batch[b"data"], np.array(batch[label_key])
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape != (count, PIXELS):
        raise ValueError(f"a batch does not hold {count:,} images")
    if labels.dtype != np.int64 or labels.shape != (count,) or labels.min() < 0 or labels.max() >= num_classes:
        raise ValueError(f"a batch does not hold {count:,} labels from 0 to {num_classes - 1}")
    return np.ascontiguousarray(pixels.reshape(count, 3, 32, 32).transpose(0, 2, 3, 1)), labels
