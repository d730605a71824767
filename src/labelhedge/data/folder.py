"""A user's own images in folders: one for training and one for testing, with a folder for each class in both."""

import os
from pathlib import Path

import numpy as np

from labelhedge._errors import DataError
from labelhedge.data._record import Dataset, DatasetInfo, Part
from labelhedge.data._store import Store
from labelhedge.data.formats.jpeg import ImageFiles

ENDINGS = (".jpg", ".jpeg", ".png")
TEST = ("test", "val", "validation")
"""Names that the folder for testing may have; the first that is there counts."""
LAYOUT = "images in train/CLASS and test/CLASS"


def read_folder(path: str | Path) -> Dataset:
    """The images of a folder that has ``train/CLASS/*.jpg`` and ``test/CLASS/*.jpg``, decoded when asked for.

    The endings may be ``.jpg``, ``.jpeg`` or ``.png`` in capital or small letters, and ``test`` may be called ``val``
    or ``validation``. The classes are the folders in ``train``, in the order of their names. Hidden files and folders,
    and files that are not images, are left out.

    Raises:
        DataError: a folder or a class is missing. An image that cannot be read is an error when it is asked for.
    """
    folder = Path(os.path.abspath(os.path.expanduser(path)))
    if not folder.is_dir():
        raise DataError(f"there is no folder {folder}; name one that has {LAYOUT}")
    if not (folder / "train").is_dir():
        raise DataError(f"{folder} has no folder train; put the images to train on into {folder}/train/CLASS")
    test = next((folder / name for name in TEST if (folder / name).is_dir()), None)
    if test is None:
        raise DataError(
            f"{folder} has no folder for testing; put images into {folder}/test/CLASS (val or validation will do too)"
        )
    classes = _class_names(folder / "train", test)
    return _dataset(folder, classes, _part(folder / "train", classes), _part(test, classes))


def _class_names(train: Path, test: Path) -> list[str]:
    """The classes of the training folder, which must be those of the test folder."""
    classes, tested = _folders(train), _folders(test)
    if len(classes) < 2:
        have = f"only the class {classes[0]}" if classes else "no folders of classes"
        raise DataError(f"{train} has {have}; put the images of each class, two at least, into {train}/CLASS")
    if unknown := sorted(set(tested) - set(classes)):
        raise DataError(f"{test / unknown[0]} is a class that {train} does not have; add it there or remove it here")
    if missing := sorted(set(classes) - set(tested)):
        raise DataError(f"{test} has no folder {missing[0]}; put images of that class into {test / missing[0]}")
    return classes


def _folders(path: Path) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error


def _part(folder: Path, classes: list[str]) -> Part:
    images = [_images(folder / name) for name in classes]
    labels = np.repeat(np.arange(len(classes), dtype=np.int64), [len(paths) for paths in images])
    return Part(ImageFiles(tuple(path for paths in images for path in paths)), labels)


def _images(folder: Path) -> list[str]:
    """The images that lie in a folder. Nothing but their names is looked at: there may be a million."""
    try:
        with os.scandir(folder) as entries:
            paths = sorted(entry.path for entry in entries if _is_image(entry))
    except OSError as error:
        raise DataError(f"cannot read {folder}: {error.strerror or error}") from error
    if not paths:
        raise DataError(f"{folder} has no images; put some right into it ({', '.join(ENDINGS)}) or remove the class")
    return paths


def _is_image(entry: os.DirEntry[str]) -> bool:
    return entry.name.lower().endswith(ENDINGS) and not entry.name.startswith(".") and not entry.is_dir()


def _dataset(folder: Path, classes: list[str], train: Part, test: Part) -> Dataset:
    info = DatasetInfo(
        name=folder.name,
        title=folder.name,
        num_classes=len(classes),
        num_train=len(train),
        num_test=len(test),
        inputs="colour image",
        split="the folder's",
        preprocessing="none; an image is decoded when it is asked for",
        source=str(folder),
        licence="",
        citation="",
        read=_read,
        by_hand=LAYOUT,
    )
    return Dataset(info, train, test, tuple(classes))


def _read(info: DatasetInfo, store: Store, seed: int) -> Dataset:
    return read_folder(info.source)
