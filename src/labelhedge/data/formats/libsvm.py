"""LIBSVM's text: ``label index:value index:value …`` on each line, plain or compressed by bzip2."""

import bz2
import io
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from labelhedge._optional import optional
from labelhedge.data.formats._damage import expecting

CHARACTERS = b"0123456789+-.eE: \t\r\n"


def read_libsvm(path: Path, *, num_features: int, num_rows: int | None = None) -> tuple[Any, NDArray[np.int64]]:
    """The rows as a float32 CSR matrix of SciPy's and the labels as they stand in the file.

    Args:
        path: the file; a name that ends in ``.bz2`` is decompressed on the way.
        num_features: the largest index that may occur; indices begin at 1.
        num_rows: the number of rows that the file must have, if it is known.

    Raises:
        DataError: the file is damaged, cut off, or of another size.
    """
    datasets = optional("sklearn.datasets", "data")
    with expecting("a complete LIBSVM file", path):
        with bz2.open(path) if path.suffix == ".bz2" else path.open("rb") as file:
            text = _Text(file)
            with io.BufferedReader(text, 1 << 20) as lines:
                rows, labels = datasets.load_svmlight_file(
                    lines, n_features=num_features, dtype=np.float32, zero_based=False
                )
        text.check_end()
        if num_rows is not None and len(labels) != num_rows:
            raise ValueError(f"it has {len(labels):,} rows, expected {num_rows:,}")
        if not np.array_equal(labels, labels.round()) or np.abs(labels).max(initial=0) > 1e9:
            raise ValueError("it has labels that are not whole numbers, or too large")
        if not np.isfinite(rows.data).all():
            raise ValueError("it has values that are not finite")
    return rows, labels.astype(np.int64)


class _Text(io.RawIOBase):
    """The file, refusing bytes that LIBSVM's files do not have.

    scikit-learn's parser drops what follows a ``#``, one flipped bit away from a 3, and reads ``1_0`` as 10.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        self.last = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self.file.read(len(buffer))
        if strange := data.translate(None, CHARACTERS):
            raise ValueError(f"it has the byte {strange[:1]!r} in it")
        buffer[: len(data)] = data
        self.last = data[-1:] or self.last
        return len(data)

    def check_end(self) -> None:
        if self.last not in (b"\n", b""):
            raise ValueError("its last line is cut off")
