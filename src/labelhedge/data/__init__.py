"""The data sets of the paper and some more, read from their publishers' files, and a user's own folder of images."""

import os
from pathlib import Path

from labelhedge._errors import DataError, UserError
from labelhedge.data._progress import Lines, Progress
from labelhedge.data._record import Dataset, DatasetInfo, Part, RemoteFile
from labelhedge.data._registry import info, names
from labelhedge.data._store import Store, default_root
from labelhedge.data.folder import read_folder

__all__ = [
    "DataError",
    "Dataset",
    "DatasetInfo",
    "Part",
    "RemoteFile",
    "Store",
    "get",
    "info",
    "load",
    "names",
    "open_store",
    "read_folder",
]


def load(
    name: str | Path,
    *,
    seed: int = 0,
    root: str | Path | None = None,
    download: bool = True,
    progress: Progress | None = None,
) -> Dataset:
    """Read a data set, fetching its files first if they are not there.

    Args:
        name: one of ``names()``, or the path of a folder of images as ``read_folder`` takes it. A folder that has the
            name of a data set is meant by ``./name``.
        seed: decides which rows are the test set, for data without an official split; the same on every machine.
        root: the folder that keeps data sets; by default ``LABELHEDGE_DATA``, or the platform's folder for caches.
        download: whether files that are not there may be fetched.
        progress: is told how far long tasks have come; by default lines on stderr.

    Raises:
        DataError: a file is missing, cannot be had, or is damaged. The message names it and what to do.
        ValueError: there is no data set of that name.

    Example:
        >>> vowel = lh.data.load("vowel", seed=1)
        >>> vowel
        Dataset('vowel', train=891, test=99)
        >>> float(vowel.train.inputs.min()), float(vowel.train.inputs.max())
        (-1.0, 1.0)
    """
    if isinstance(name, Path) or (name not in names() and (os.path.dirname(name) or os.path.isdir(name))):
        return read_folder(name)
    try:
        known = info(name)
    except ValueError as error:
        raise UserError(f"{error}; a folder of images may be named too, by its path: ./{name}") from None
    return known.read(known, open_store(root, download=download, progress=progress), seed)


def get(name: str, *, root: str | Path | None = None, progress: Progress | None = None) -> tuple[Path, ...]:
    """Fetch the files of a data set that are not there yet, check them, and return their paths.

    Raises:
        DataError: a file cannot be had or is damaged, or the data set has to be put there by hand.
    """
    known = info(name)
    store = open_store(root, progress=progress)
    if known.by_hand and not store.has(known):
        raise DataError(f"{name} cannot be fetched; put into {store.folder(name)} {known.by_hand}")
    return tuple(store.ensure(file) for file in known.files)


def open_store(root: str | Path | None = None, *, download: bool = True, progress: Progress | None = None) -> Store:
    """The folder that keeps data sets, with what ``load`` does if an argument is not given."""
    return Store(Path(root) if root is not None else default_root(), download, progress or Lines())
