"""Results on disk, or wherever fsspec reaches: one Parquet file per job, written whole or not at all."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from labelhedge._errors import UserError
from labelhedge._files import write_whole
from labelhedge._optional import optional
from labelhedge.results.schema import NETWORKS, TRACES, arrow_schema

if TYPE_CHECKING:
    import pandas as pd

_CONFIGURATION = b"configuration"
_JOINED = "+"
"""Between the noises in the name of a file."""


class ResultsStore:
    """A folder of results: ``networks/`` and ``traces/``, each with one file per job.

    ``pandas.read_parquet(root / "networks")`` and DuckDB's ``read_parquet('networks/**/*.parquet')`` open it too.

    Args:
        root: A path, or a URL that fsspec knows, such as ``s3://bucket/results``. Locks of a path lie in it; those of a
            URL in a temporary folder of this machine, so that one machine or one Ray cluster at a time works on it.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        for needed in ("filelock", "pandas", "pyarrow"):
            optional(needed, "bench")  # now, and not after the first hours of training
        self._folder = _folder(root)
        self.root: Path | str = self._folder.root

    def finished(self, place: str, *configurations: str) -> set[str]:
        """The noises whose results are in the folder ``place``, computed with one of these configurations.

        Raises:
            UserError: They were computed with another configuration, and new ones must not be mixed with them.
        """
        noises: set[str] = set()
        for path in self._folder.files(f"networks/{place}"):
            with self._folder.open(path) as file, _parsing(path):
                metadata = optional("pyarrow.parquet", "bench").read_schema(file).metadata or {}
            if metadata.get(_CONFIGURATION) not in [configuration.encode() for configuration in configurations]:
                raise UserError(f"{path} was computed with other hyperparameters or data; choose another --out")
            noises.update(path.stem.split(_JOINED))
        return noises

    def write(
        self, place: str, noises: Sequence[str], configuration: str, networks: pd.DataFrame, traces: pd.DataFrame
    ) -> None:
        """Keep the results of a job in the folder ``place``, for :meth:`finished` to find."""
        name = _JOINED.join(noises)
        self._folder.write(f"traces/{place}", name, _parquet(traces, TRACES, configuration))
        # last, since it says that the job is finished
        self._folder.write(f"networks/{place}", name, _parquet(networks, NETWORKS, configuration))

    def claim(self, place: str) -> AbstractContextManager[bool]:
        """Whether this process has the folder ``place`` to itself; others get False until it is done or gone."""
        return _claimed(self._folder.locks / f"{place}.lock")

    def claim_all(self) -> AbstractContextManager[bool]:
        """The same for all of the store, among the processes of this machine; leaves nothing in it."""
        return _claimed(_locks_of_machine(os.path.abspath(self.root)) / "all.lock")


class _Local:
    """A folder of this machine."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.locks = root / "locks"

    def files(self, folder: str) -> list[Path]:
        return sorted((self.root / folder).rglob("[!.]*.parquet"))

    def open(self, path: Path) -> Any:
        return path.open("rb")

    def write(self, folder: str, name: str, content: bytes) -> None:
        target = self.root / folder / f"{name}.parquet"
        for stale in target.parent.glob(f".{name}.*.part"):  # of a process that was killed
            stale.unlink(missing_ok=True)
        write_whole(target, content)


class _Remote:
    """A folder behind a URL, whose files are put there in one piece, as object stores do."""

    def __init__(self, url: str) -> None:
        self.root = url
        try:
            self._system, path = optional("fsspec", "ray").core.url_to_fs(url)
        except (ValueError, ImportError) as error:  # of a kind that is unknown, or whose package is not installed
            raise UserError(f"cannot open {url}: {error}") from error
        self._path = PurePosixPath(path)
        self.locks = _locks_of_machine(url)

    def files(self, folder: str) -> list[PurePosixPath]:
        self._system.invalidate_cache()  # others write there too
        found = sorted(map(PurePosixPath, self._system.find(str(self._path / folder))))
        return [path for path in found if path.suffix == ".parquet" and not path.name.startswith(".")]

    def open(self, path: PurePosixPath) -> Any:
        return self._system.open(str(path), "rb")

    def write(self, folder: str, name: str, content: bytes) -> None:
        target = self._path / folder / f"{name}.parquet"
        self._system.makedirs(str(target.parent), exist_ok=True)
        self._system.pipe_file(str(target), content)


def _locks_of_machine(root: str) -> Path:
    """A folder for the locks of a store; one for each user, so that it can be written."""
    own = hashlib.sha256(f"{os.path.expanduser('~')} {root}".encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"labelhedge-locks-{own}"


@contextmanager
def _claimed(path: Path) -> Iterator[bool]:
    """Whether this process, and no other one, holds the lock in this file."""
    filelock = optional("filelock", "bench")
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(path)
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        yield False
        return
    try:
        yield True
    finally:
        lock.release()


def _folder(root: str | os.PathLike[str]) -> Any:
    """A :class:`_Local` or a :class:`_Remote`."""
    text = os.fspath(root).removeprefix("file://")
    return _Remote(text) if "://" in text else _Local(Path(text))


def _parquet(rows: pd.DataFrame, columns: dict[str, str], configuration: str) -> bytes:
    pa, parquet = optional("pyarrow", "bench"), optional("pyarrow.parquet", "bench")
    schema = arrow_schema(columns, {_CONFIGURATION.decode(): configuration})
    buffer = pa.BufferOutputStream()
    parquet.write_table(pa.Table.from_pandas(rows, schema=schema, preserve_index=False), buffer)
    return buffer.getvalue().to_pybytes()  # type: ignore[no-any-return]


def load(root: str | os.PathLike[str]) -> pd.DataFrame:
    """The trained networks in a folder that ``labelhedge bench --out`` has filled, one row each.

    Args:
        root: The folder, a path or a URL.

    Returns:
        A data frame with the columns of :data:`labelhedge.results.schema.NETWORKS`, in an order that does not depend
        on which job was finished first.
    """
    return _load(root, "networks", NETWORKS)


def load_traces(root: str | os.PathLike[str]) -> pd.DataFrame:
    """The epochs of the chosen networks in such a folder, with the columns of :data:`schema.TRACES`."""
    return _load(root, "traces", TRACES)


def _load(root: str | os.PathLike[str], table: str, columns: dict[str, str]) -> pd.DataFrame:
    pa, parquet = optional("pyarrow", "bench"), optional("pyarrow.parquet", "bench")
    folder = _folder(root)
    files = folder.files(table)
    if not files:
        raise UserError(f"no results in {folder.root}; fill it with: labelhedge bench --out {folder.root}")
    schema = arrow_schema(columns)
    tables = []
    for path in files:
        with folder.open(path) as file, _parsing(path):
            tables.append(parquet.ParquetFile(file).read(list(columns)).cast(schema))
            _check(tables[-1])
    return pa.concat_tables(tables).to_pandas()  # type: ignore[no-any-return]


@contextmanager
def _parsing(path: Any) -> Iterator[None]:
    """Name the file that is damaged, or is no result."""
    try:
        yield
    except MemoryError:  # which Arrow's is too
        raise
    except (optional("pyarrow", "bench").ArrowException, ValueError, OSError) as error:
        raise UserError(f"{path} is no file of results, or a damaged one ({error}); remove it") from error


def _check(table: Any) -> None:
    """Refuse a table of results that lacks what every result has."""
    if not len(table):
        raise ValueError("it has no rows")
    for field in table.schema:
        if str(field.type) != "double" and table[field.name].null_count:
            raise ValueError(f"its column {field.name} has gaps")
