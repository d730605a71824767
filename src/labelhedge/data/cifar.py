"""CIFAR-10 and CIFAR-100 from the publisher's archives, and the human labels of CIFAR-10N."""

import dataclasses

import numpy as np

from labelhedge._errors import DataError
from labelhedge.data._record import Dataset, DatasetInfo, Part, RemoteFile
from labelhedge.data._store import Store
from labelhedge.data.formats.cifar import read_cifar
from labelhedge.data.formats.human_labels import read_human_labels

URL = "https://www.cs.toronto.edu/~kriz"
HUMAN_LABELS = {"aggre": "aggre_label", "worse": "worse_label"} | {f"random{i}": f"random_label{i}" for i in (1, 2, 3)}


def read_cifar_10(info: DatasetInfo, store: Store, seed: int) -> Dataset:
    """The archive's five training batches and its test batch."""
    folder = "cifar-10-batches-py"
    training = [f"{folder}/data_batch_{i}" for i in range(1, 6)]
    batches = dict.fromkeys([*training, f"{folder}/test_batch"], 10_000)
    meta = f"{folder}/batches.meta"
    path = store.ensure(info.files[0])
    parts, names = read_cifar(path, batches, b"labels", meta, b"label_names", info.num_classes)
    images, labels = (np.concatenate(arrays) for arrays in zip(*(parts[name] for name in training), strict=True))
    return Dataset(info, Part(images, labels), Part(*parts[f"{folder}/test_batch"]), names)


def read_cifar_10n(info: DatasetInfo, store: Store, seed: int) -> Dataset:
    """CIFAR-10 with five sets of labels that people gave to its training images."""
    clean = read_cifar_10(info, store, seed)
    path = store.ensure(info.files[1])
    vectors = read_human_labels(path, count=info.num_train, num_classes=info.num_classes)
    try:
        human = {name: vectors[key] for name, key in HUMAN_LABELS.items()}
        same = np.array_equal(vectors["clean_label"], clean.train.labels)
    except KeyError as error:
        raise DataError(f"{path} has no {error.args[0]}") from error
    if not same:
        raise DataError(f"{path} is not in the order of CIFAR-10's training images")
    return dataclasses.replace(clean, human_labels=human)


def read_cifar_100(info: DatasetInfo, store: Store, seed: int) -> Dataset:
    """The archive's two parts with the labels of the 100 fine classes."""
    train, test = "cifar-100-python/train", "cifar-100-python/test"
    batches = {train: info.num_train, test: info.num_test}
    meta = "cifar-100-python/meta"
    path = store.ensure(info.files[0])
    parts, names = read_cifar(path, batches, b"fine_labels", meta, b"fine_label_names", info.num_classes)
    return Dataset(info, Part(*parts[train]), Part(*parts[test]), names)


CIFAR_10 = DatasetInfo(
    name="cifar-10",
    title="CIFAR-10",
    num_classes=10,
    num_train=50_000,
    num_test=10_000,
    inputs="32×32 colour image",
    split="the publisher's",
    preprocessing="none",
    source="https://www.cs.toronto.edu/~kriz/cifar.html",
    licence="none stated",
    citation="A. Krizhevsky, Learning Multiple Layers of Features from Tiny Images, University of Toronto, 2009",
    read=read_cifar_10,
    files=(
        RemoteFile(
            "cifar-10",
            "cifar-10-python.tar.gz",
            f"{URL}/cifar-10-python.tar.gz",
            "sha256:6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
            170_498_071,
        ),
    ),
)
CIFAR_10N = dataclasses.replace(
    CIFAR_10,
    name="cifar-10n",
    title="CIFAR-10N",
    preprocessing=f"none; human_labels: {', '.join(HUMAN_LABELS)}",
    source="http://www.noisylabels.com",
    licence="CC BY-NC 4.0 for the labels; none stated for the images",
    citation="J. Wei et al., Learning with Noisy Labels Revisited: A Study Using Real-World Human Annotations, "
    "ICLR 2022",
    read=read_cifar_10n,
    files=(
        *CIFAR_10.files,
        RemoteFile(
            "cifar-10n",
            "CIFAR-10_human.pt",
            "https://raw.githubusercontent.com/UCSC-REAL/cifar-10-100n/main/data/CIFAR-10_human.pt",
            "sha256:873e69c39cb9b5e97fb6bae2d60bb59b38a5cbc31d2b868f7903dcb2b9dd2310",
        ),
    ),
)
CIFAR_100 = dataclasses.replace(
    CIFAR_10,
    name="cifar-100",
    title="CIFAR-100",
    num_classes=100,
    read=read_cifar_100,
    files=(
        RemoteFile(
            "cifar-100",
            "cifar-100-python.tar.gz",
            f"{URL}/cifar-100-python.tar.gz",
            "sha256:85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
            169_001_437,
        ),
    ),
)
