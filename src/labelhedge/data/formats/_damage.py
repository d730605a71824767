"""One answer to everything that can be wrong with a file."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from labelhedge.data._record import DataError


@contextmanager
def expecting(what: str, path: Path | str) -> Iterator[None]:
    """Turn whatever a parser raises on a damaged or hostile file into a ``DataError`` that names the file.

    The list of what the parsers underneath can raise is neither short nor documented, so it is not written down.
    """
    try:
        yield
    except (DataError, ImportError):
        raise
    except Exception as error:
        raise DataError(f"{path} is not {what}: {error or type(error).__name__}") from error
