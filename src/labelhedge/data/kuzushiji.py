"""Kuzushiji-49: handwritten Japanese of old books, from its publisher's npz files."""

import numpy as np

from labelhedge._errors import DataError
from labelhedge.data._record import Dataset, DatasetInfo, Part, RemoteFile
from labelhedge.data._store import Store
from labelhedge.data.formats.npz import read_npz

URL = "http://codh.rois.ac.jp/kmnist/dataset/k49"
CHARACTERS = tuple("あいうえおかきくけこさしすせそたちつてとなにぬねのはひふへほまみむめもやゆよらりるれろわゐゑをんゝ")


def read_kuzushiji_49(info: DatasetInfo, store: Store, seed: int) -> Dataset:
    """The publisher's two parts; images ``(N, 28, 28, 1)``."""
    paths = [store.ensure(file) for file in info.files]
    parts = []
    for images, labels, count in ((paths[0], paths[1], info.num_train), (paths[2], paths[3], info.num_test)):
        inputs = read_npz(images, "arr_0", shape=(count, 28, 28))
        classes = read_npz(labels, "arr_0", shape=(count,))
        if classes.max() >= info.num_classes:
            raise DataError(f"{labels} has the label {classes.max()}, expected 0 … {info.num_classes - 1}")
        parts.append(Part(inputs[..., None], classes.astype(np.int64)))
    return Dataset(info, parts[0], parts[1], CHARACTERS)


KUZUSHIJI_49 = DatasetInfo(
    name="kuzushiji-49",
    title="Kuzushiji-49",
    num_classes=49,
    num_train=232_365,
    num_test=38_547,
    inputs="28×28 grey image",
    split="the publisher's",
    preprocessing="none",
    source="https://github.com/rois-codh/kmnist",
    licence='CC BY-SA 4.0; "KMNIST Dataset" (created by CODH), adapted from "Kuzushiji Dataset" '
    "(created by NIJL and others), doi:10.20676/00000341",
    citation="T. Clanuwat et al., Deep Learning for Classical Japanese Literature, arXiv:1812.01718, 2018",
    read=read_kuzushiji_49,
    files=tuple(
        RemoteFile("kuzushiji-49", name, f"{URL}/{name}", f"md5:{md5}", size)
        for name, md5, size in (
            ("k49-train-imgs.npz", "7ac088b20481cf51dcd01ceaab89d821", 66_117_696),
            ("k49-train-labels.npz", "44a8e1b893f81e63ff38d73cad420f7a", 164_485),
            ("k49-test-imgs.npz", "d352e201d846ce6b94f42c990966f374", 10_971_201),
            ("k49-test-labels.npz", "4da6f7a62e67a832d5eb1bd85c5ee448", 27_450),
        )
    ),
)
