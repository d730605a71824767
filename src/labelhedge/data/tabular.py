"""Vowel and Letter, which are shipped, scikit-learn's digits, and ALOI from LIBSVM's file."""

import string
from importlib.resources import as_file, files
from pathlib import Path

import numpy as np

from labelhedge._errors import DataError
from labelhedge._optional import optional
from labelhedge.data._prepare import TENTH, TO_UNIT_INTERVAL, tabular
from labelhedge.data._record import Dataset, DatasetInfo, Labels, RemoteFile
from labelhedge.data._store import Store
from labelhedge.data.formats.libsvm import read_libsvm
from labelhedge.data.formats.npz import read_npz

LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multiclass"
VOWELS = ("hid", "hId", "hEd", "hAd", "hYd", "had", "hOd", "hod", "hUd", "hud", "hed")


def read_vowel(info: DatasetInfo, store: Store, seed: int) -> Dataset:
    """The shipped rows."""
    with as_file(files("labelhedge") / "data" / "vowel.npz") as path:
        rows = read_npz(path, "X", shape=(990, 10), dtype="float64")
        labels = read_npz(path, "y", shape=(990,))
    return tabular(info, rows, labels.astype(np.int64), VOWELS, seed)


def read_letter(info: DatasetInfo, store: Store, seed: int) -> Dataset:
    """The shipped rows."""
    with as_file(files("labelhedge") / "data" / "letter.npz") as path:
        rows = read_npz(path, "X", shape=(15_000, 16))
        labels = read_npz(path, "y", shape=(15_000,))
    return tabular(info, rows, labels.astype(np.int64), tuple(string.ascii_uppercase), seed)


def read_digits(info: DatasetInfo, store: Store, seed: int) -> Dataset:
    """The rows that come with scikit-learn."""
    rows, labels = optional("sklearn.datasets", "data").load_digits(return_X_y=True)
    return tabular(info, rows, labels.astype(np.int64), tuple(string.digits), seed)


def read_aloi(info: DatasetInfo, store: Store, seed: int) -> Dataset:
    """LIBSVM's file, compressed or not."""
    path = store.ensure(info.files[0])
    rows, labels = read_libsvm(path, num_features=128, num_rows=info.num_train + info.num_test)
    names = tuple(f"object {i}" for i in range(1, 1001))
    return tabular(info, rows.toarray(), count_from_zero(labels, info.num_classes, path), names, seed)


def count_from_zero(labels: Labels, num_classes: int, path: Path) -> Labels:
    """Labels 0 … K - 1 from a file that counts from 0 or 1 and has every class."""
    first = int(labels.min(initial=num_classes))
    if first not in (0, 1) or not np.array_equal(np.unique(labels), np.arange(first, first + num_classes)):
        raise DataError(f"{path} does not have the {num_classes} classes that are expected of it")
    return labels - first


VOWEL = DatasetInfo(
    name="vowel",
    title="Vowel",
    num_classes=11,
    num_train=891,
    num_test=99,
    inputs="10 numbers",
    split=TENTH,
    preprocessing=TO_UNIT_INTERVAL,
    source="https://archive.ics.uci.edu/dataset/152/connectionist+bench+vowel+recognition+deterding+data",
    licence="CC BY 4.0",
    citation="D. Deterding, M. Niranjan, T. Robinson, Connectionist Bench (Vowel Recognition), UCI, 1988",
    read=read_vowel,
)
LETTER = DatasetInfo(
    name="letter",
    title="Letter",
    num_classes=26,
    num_train=13_500,
    num_test=1_500,
    inputs="16 numbers",
    split=f"of the 15,000 rows that LIBSVM offers for training, {TENTH}",
    preprocessing=TO_UNIT_INTERVAL,
    source="https://archive.ics.uci.edu/dataset/59/letter+recognition",
    licence="CC BY 4.0",
    citation="P. W. Frey, D. J. Slate, Letter Recognition Using Holland-Style Adaptive Classifiers, "
    "Machine Learning 6, 1991",
    read=read_letter,
)
DIGITS = DatasetInfo(
    name="digits",
    title="Digits",
    num_classes=10,
    num_train=1_617,
    num_test=180,
    inputs="64 numbers",
    split=TENTH,
    preprocessing=TO_UNIT_INTERVAL,
    source="https://archive.ics.uci.edu/dataset/80/optical+recognition+of+handwritten+digits",
    licence="CC BY 4.0",
    citation="E. Alpaydin, C. Kaynak, Optical Recognition of Handwritten Digits, UCI, 1998",
    read=read_digits,
)
ALOI = DatasetInfo(
    name="aloi",
    title="ALOI",
    num_classes=1_000,
    num_train=97_200,
    num_test=10_800,
    inputs="128 numbers",
    split=TENTH,
    preprocessing=TO_UNIT_INTERVAL,
    source="https://aloi.science.uva.nl",
    licence="none stated",
    citation="J.-M. Geusebroek, G. J. Burghouts, A. W. M. Smeulders, The Amsterdam Library of Object Images, "
    "IJCV 61, 2005",
    read=read_aloi,
    files=(RemoteFile("aloi", "aloi.bz2", f"{LIBSVM}/aloi.bz2", unpacked="aloi"),),
)
