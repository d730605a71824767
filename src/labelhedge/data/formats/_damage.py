"""One answer to everything that can be wrong with a file."""

import pickle
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from labelhedge._errors import DataError

_OF_DAMAGE = (
    *(ValueError, LookupError, OverflowError, EOFError, OSError),
    *(RuntimeError, zipfile.BadZipFile),  # zipfile's, of a password and of what it does not know
    *(tarfile.TarError, zlib.error, pickle.UnpicklingError),
)


@contextmanager
def expecting(what: str, path: Path | str) -> Iterator[None]:
    """Turn what a damaged or hostile file makes a parser raise into a ``DataError`` that names the file.

    Other kinds of errors, such as a ``TypeError``, are bugs and stay what they are.
    """
    try:
        yield
    except _OF_DAMAGE as error:
        raise DataError(f"{path} is not {what}: {error or type(error).__name__}") from error
