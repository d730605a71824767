"""Results on disk: one Parquet file per job, written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

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
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        for needed in ("filelock", "pandas", "pyarrow"):
            optional(needed, "bench")  # now, and not after the first hours of training
        self.root = Path(root)

    def finished(self, place: str, configuration: str) -> set[str]:
        """The noises whose results are in the folder ``place``.

        Raises:
            ValueError: They were computed with another configuration, and new ones must not be mixed with them.
        """
        noises: set[str] = set()
        for path in _files(self.root / "networks" / place):
            metadata = optional("pyarrow.parquet", "bench").read_schema(path).metadata or {}
            if metadata.get(_CONFIGURATION) != configuration.encode():
                raise ValueError(f"{path} was computed with other hyperparameters; choose another --out")
            noises.update(path.stem.split(_JOINED))
        return noises

    def write(
        self, place: str, noises: Sequence[str], configuration: str, networks: pd.DataFrame, traces: pd.DataFrame
    ) -> None:
        """Keep the results of a job in the folder ``place``, for :meth:`finished` to find."""
        name = _JOINED.join(noises)
        self._write(self.root / "traces" / place, name, configuration, traces, TRACES)
        # last, since it says that the job is finished
        self._write(self.root / "networks" / place, name, configuration, networks, NETWORKS)

    @contextmanager
    def claim(self, place: str) -> Iterator[bool]:
        """Whether this process has the folder ``place`` to itself; others get False until it is done or gone."""
        filelock = optional("filelock", "bench")
        path = self.root / "locks" / f"{place}.lock"
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

    def _write(self, folder: Path, name: str, configuration: str, rows: pd.DataFrame, columns: dict[str, str]) -> None:
        pa, parquet = optional("pyarrow", "bench"), optional("pyarrow.parquet", "bench")
        schema = arrow_schema(columns, {_CONFIGURATION.decode(): configuration})
        folder.mkdir(parents=True, exist_ok=True)
        for stale in folder.glob(f".{name}.*.part"):  # of a process that was killed
            stale.unlink(missing_ok=True)
        part = folder / f".{name}.{os.getpid()}.part"  # readers of Parquet folders skip names that begin with a dot
        try:
            parquet.write_table(pa.Table.from_pandas(rows, schema=schema, preserve_index=False), part)
            with part.open("rb") as file:
                os.fsync(file.fileno())
            part.replace(folder / f"{name}.parquet")
        finally:
            part.unlink(missing_ok=True)


def _files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("[!.]*.parquet"))


def load(root: str | os.PathLike[str]) -> pd.DataFrame:
    """The trained networks in a folder that ``labelhedge bench --out`` has filled, one row each.

    Args:
        root: The folder.

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
    files = _files(Path(root) / table)
    if not files:
        raise ValueError(f"no results in {Path(root)}; fill it with: labelhedge bench --out {Path(root)}")
    schema = arrow_schema(columns)
    tables = [parquet.ParquetFile(file).read(list(columns)).cast(schema) for file in files]
    return pa.concat_tables(tables).to_pandas()  # type: ignore[no-any-return]
