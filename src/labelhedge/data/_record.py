"""What a data set is: the record that users get, and what is known of it before it is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from labelhedge.data._store import Store

Array = NDArray[Any]
Labels = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Part:
    """The training or the test rows.

    Attributes:
        inputs: float32 numbers ``(N, D)``, uint8 images ``(N, height, width, channels)``, or a sequence that decodes
            an image each time it is asked for one.
        labels: ``(N,)``, int64, clean as far as the publisher's are.
    """

    inputs: Array | Sequence[Array]
    labels: Labels

    def __post_init__(self) -> None:
        if len(self.inputs) != len(self.labels):
            raise ValueError(f"inputs and labels must be of one length, got {len(self.inputs)} and {len(self.labels)}")

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set, split and preprocessed as in the paper.

    Attributes:
        info: name, split rule, source, licence, citation.
        train: what to train and validate on.
        test: what to test on, once.
        class_names: one for each class.
        human_labels: other labels of the training rows that people gave, by their name (CIFAR-10N).

    Example:
        >>> letter = lh.data.load("letter")
        >>> letter.train.inputs.shape, letter.test.inputs.shape, letter.class_names[:3]
        ((13500, 16), (1500, 16), ('A', 'B', 'C'))
    """

    info: DatasetInfo
    train: Part
    test: Part
    class_names: tuple[str, ...]
    human_labels: Mapping[str, Labels] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.class_names) != self.info.num_classes:
            raise ValueError(f"{self.info.name} has {self.info.num_classes} classes, got {len(self.class_names)} names")

    def __repr__(self) -> str:
        return f"Dataset({self.info.name!r}, train={len(self.train)}, test={len(self.test)})"

    @property
    def num_classes(self) -> int:
        """The number of classes, K."""
        return self.info.num_classes


@dataclass(frozen=True)
class RemoteFile:
    """A file as its publisher offers it.

    Attributes:
        folder: folder in the cache, the name of the data set that the file belongs to.
        name: its name there, the publisher's own.
        url: where it is published.
        checksum: ``"sha256:…"`` or ``"md5:…"``; None where none is known, and the first one seen is remembered.
        size: in bytes, if known.
        unpacked: the name of the file or folder that it unpacks to, if that may lie in its place.
    """

    folder: str
    name: str
    url: str
    checksum: str | None = None
    size: int | None = None
    unpacked: str | None = None


@dataclass(frozen=True)
class DatasetInfo:
    """What is known of a data set without reading it.

    Attributes:
        name: what ``load`` takes.
        title: its name in prose.
        num_classes: K.
        num_train: training rows after the split.
        num_test: test rows after the split.
        inputs: what one input is, in words.
        split: the rule by which test rows are chosen.
        preprocessing: what is done to the inputs.
        source: a page about it.
        licence: as the publisher states it.
        citation: who made it.
        read: reads it from a store, with a seed for the split.
        files: what it is read from; empty if it is shipped or put there by hand.
        by_hand: what has to be put where, for data that cannot be downloaded.
        folders: the folders that this makes.
    """

    name: str
    title: str
    num_classes: int
    num_train: int
    num_test: int
    inputs: str
    split: str
    preprocessing: str
    source: str
    licence: str
    citation: str
    read: Callable[[DatasetInfo, Store, int], Dataset] = field(repr=False)
    files: tuple[RemoteFile, ...] = ()
    by_hand: str = ""
    folders: tuple[str, ...] = ()

    @property
    def images(self) -> bool:
        """Whether an input is an image and not a row of numbers."""
        return self.inputs.endswith("image")

    @property
    def shipped(self) -> bool:
        """Whether it comes with the package, or with scikit-learn."""
        return not (self.files or self.by_hand)
