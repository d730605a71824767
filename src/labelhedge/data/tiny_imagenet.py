"""Tiny-ImageNet from the publisher's zip file, or from the folder that it unpacks to."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np

from labelhedge.data._record import Dataset, DatasetInfo, Labels, Part, RemoteFile
from labelhedge.data._store import Store
from labelhedge.data.formats._damage import expecting
from labelhedge.data.formats._decoder import open_source
from labelhedge.data.formats.jpeg import decode_all

FOLDER = "tiny-imagenet-200"
Read = Callable[[str], bytes]


def read_tiny_imagenet(info: DatasetInfo, store: Store, seed: int) -> Dataset:
    """Decode all images once; afterwards they are mapped into memory from the cache."""
    source = store.ensure(info.files[0])

    def make(target: Path) -> None:
        container = source.parent if source.is_dir() else source
        with expecting("Tiny-ImageNet as it is published", source):
            read = open_source(container)
            classes = _class_names(read, info.num_classes)
            names, labels = _index(read, list(classes), info)
        decode_all(container, names, (64, 64), target / "images.npy", store.progress, "decoding Tiny-ImageNet")
        np.save(target / "labels.npy", labels)
        (target / "classes.txt").write_text("\n".join(classes.values()), encoding="utf-8")

    version = source / "wnids.txt" if source.is_dir() else source
    made = store.derived("tiny-imagenet", "pixels", version, make)
    images = np.load(made / "images.npy", mmap_mode="c", allow_pickle=False)
    labels = np.load(made / "labels.npy", allow_pickle=False)
    names = (made / "classes.txt").read_text(encoding="utf-8").split("\n")
    cut = info.num_train
    return Dataset(info, Part(images[:cut], labels[:cut]), Part(images[cut:], labels[cut:]), tuple(names))


def _class_names(read: Read, num_classes: int) -> dict[str, str]:
    """The names of the classes by their WordNet id, in the publisher's order."""
    wnids = _lines(read, "wnids.txt")
    words = dict(line.partition("\t")[::2] for line in _lines(read, "words.txt"))
    known = {wnid for wnid in wnids if wnid in words and re.fullmatch(r"n\d{8}", wnid)}
    if not len(known) == len(wnids) == num_classes:
        raise ValueError(f"wnids.txt and words.txt do not name {num_classes} classes")
    return {wnid: words[wnid] for wnid in wnids}


def _index(read: Read, wnids: list[str], info: DatasetInfo) -> tuple[list[str], Labels]:
    """The name of every image and its label, those for training first."""
    each = info.num_train // len(wnids)
    train = [f"{FOLDER}/train/{wnid}/images/{wnid}_{i}.JPEG" for wnid in wnids for i in range(each)]
    label_of = {wnid: label for label, wnid in enumerate(wnids)}
    rows = [line.split("\t") for line in _lines(read, "val/val_annotations.txt")]
    if len(rows) != info.num_test or not all(
        len(row) > 1 and row[1] in label_of and re.fullmatch(r"val_\d+\.JPEG", row[0]) for row in rows
    ):
        raise ValueError(f"val/val_annotations.txt does not name the classes of {info.num_test:,} images")
    labels = [*np.repeat(range(len(wnids)), each), *(label_of[row[1]] for row in rows)]
    return train + [f"{FOLDER}/val/images/{row[0]}" for row in rows], np.array(labels, np.int64)


def _lines(read: Read, name: str) -> list[str]:
    return read(f"{FOLDER}/{name}").decode().splitlines()


TINY_IMAGENET = DatasetInfo(
    name="tiny-imagenet",
    title="Tiny-ImageNet",
    num_classes=200,
    num_train=100_000,
    num_test=10_000,
    inputs="64×64 colour image",
    split="the publisher's, with its validation images as the test set",
    preprocessing="none",
    source="https://www.kaggle.com/c/tiny-imagenet",
    licence="ImageNet's terms (research and education, not commercial)",
    citation="Y. Le, X. Yang, Tiny ImageNet Visual Recognition Challenge, Stanford CS 231N, 2015",
    read=read_tiny_imagenet,
    files=(
        RemoteFile(
            "tiny-imagenet",
            "tiny-imagenet-200.zip",
            "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
            "sha256:6198c8ae015e2b3e007c7841da39ec069199b9aa3bfa943a462022fe5e43c821",
            248_100_043,
            unpacked=FOLDER,
        ),
    ),
)
