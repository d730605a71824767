"""A user's table: CSV, TSV, Parquet or two NumPy arrays, and one sentence for everything that can be wrong with it.

Text is read by Arrow with every column as text, for three reasons: the labels keep their form ("1" does not become
"1.0"), a column gets its type from all its rows rather than from the first ones, and a line with too few fields is an
error (pandas would fill it up with missing values). Arrow does not say which line; Python's csv module, ten times
slower, does, and it reads the file only when something is wrong.
"""

from __future__ import annotations

import codecs
import csv
import difflib
import gzip
import io
import sys
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from labelhedge._errors import UserError
from labelhedge._optional import optional

if TYPE_CHECKING:
    import pandas as pd

FORMATS = (".csv", ".tsv", ".tab", ".txt", ".parquet")
MISSING = ("", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "null", "NULL", "?")
"""Texts that stand for no value. Not "None", which is the name of a class in many tables."""

_BLOCK = 1 << 22  # bytes read at a time, and the longest row
_LARGE, _RATIO = 1 << 30, 100  # bytes that a packed file may become, and how many times its size beyond them
_SHOWN = 10  # names in a sentence


class TableError(UserError):
    """What is wrong with a table, in one sentence for its owner."""


@dataclass(frozen=True)
class Table:
    """The rows of a table that have a label.

    Attributes:
        features: the other columns.
        labels: the labels as text, in the form that they have in the file.
        label: the name of the label column.
        rows: where each row is in the file, counted from 0 among its data rows.
        notes: what was done to the table and should be said.
        source: the name of the file, or of both.
    """

    features: pd.DataFrame
    labels: pd.Series[str]
    label: str
    rows: NDArray[np.int64]
    notes: tuple[str, ...]
    source: str


def read_table(path: Path, label: str) -> Table:
    """Read a table whose column ``label`` has the labels.

    Args:
        path: a file .csv, .tsv, .tab or .txt, which may be compressed (.csv.gz), or .parquet.
        label: the name of a column.

    Raises:
        TableError: the file or its labels cannot be used.
    """
    with _reading(path):
        suffix = Path(path.name.lower().removesuffix(".gz")).suffix
        if suffix not in FORMATS or path.name.lower().endswith(".parquet.gz"):
            raise TableError(f"{path} is in a format that is not known; known are {', '.join(FORMATS)}")
        if suffix == ".parquet":
            columns, decimal_comma = _read_parquet(path, label), False
        else:
            odd_quotes = _check_bytes(path)
            delimiter = "\t" if suffix in (".tsv", ".tab") else _delimiter(path)
            columns, decimal_comma = _read_text(path, label, delimiter, odd_quotes), delimiter == ";"
        total = len(columns[label])
        labels, rows, notes = _choose_rows(columns.pop(label), f"the label column {_quote(label)} of {path}")
        kept = np.zeros(total, bool)
        kept[rows] = True
        taken = {}
        for name in list(columns):  # one at a time, and each is freed once it is converted
            taken[name] = _typed(columns.pop(name).filter(kept), decimal_comma).to_pandas()
        frame = optional("pandas", "audit").DataFrame(taken, index=labels.index, copy=False)
    return Table(frame, labels, label, rows, notes, path.name)


def read_arrays(features: Path, labels: Path) -> Table:
    """Read features ``(n, d)`` of numbers and labels ``(n,)`` of integers or texts from two files .npy.

    The features are mapped into memory rather than read. The columns are called "feature 0", "feature 1" and so on.

    Raises:
        TableError: the files cannot be used.
    """
    x, y = _read_array(features), _read_array(labels)
    if x.ndim != 2 or x.dtype.kind not in "biuf":
        raise TableError(f"features must be (n, d) real numbers, but {features} has {_described(x)}")
    if y.ndim != 1 or y.dtype.kind not in "biuUS":
        raise TableError(f"labels must be (n,) integers or texts, but {labels} has {_described(y)}")
    if len(x) != len(y):
        raise TableError(f"{features} has {len(x):,} rows, but {labels} has {len(y):,}")
    step = max(1, _BLOCK // max(1, x.shape[1]))
    for start in range(0, len(x), step):
        bad = np.argwhere(~np.isfinite(x[start : start + step]))
        if len(bad):
            row, column = bad[0] + (start, 0)
            raise TableError(
                f"features must be finite, but {features} has {x[row, column]} in row {row}, column {column}"
            )
    with _reading(labels):
        column = optional("pyarrow", "audit").array(y)
        texts, rows, notes = _choose_rows(column, str(labels))
    names = [f"feature {i}" for i in range(x.shape[1])]
    values = x if len(rows) == len(x) else x[rows]
    frame = optional("pandas", "audit").DataFrame(values, index=texts.index, columns=names, copy=False)
    return Table(frame, texts, labels.stem, rows, notes, f"{features.name} and {labels.name}")


def _read_array(path: Path) -> NDArray[Any]:
    with _reading(path):
        try:
            mapped = np.lib.format.open_memmap(path, mode="r")  # never unpickles: an array of objects is refused
        except (ValueError, TypeError, SyntaxError, OverflowError) as error:
            raise TableError(f"{path} cannot be read: {error or type(error).__name__}") from error
    native = mapped.dtype.newbyteorder("=")
    # NumPy's 16-byte numbers are unknown to pandas
    return np.asarray(mapped, dtype=np.float64 if native.kind == "f" and native.itemsize > 8 else native)


def _described(array: NDArray[Any]) -> str:
    return f"the shape {array.shape} and the type {array.dtype}"


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn what Arrow, gzip and the disk raise on a damaged file into a sentence."""
    if not path.is_file():
        raise TableError(f"{path} {'is not a file' if path.exists() else 'does not exist'}")
    try:
        yield
    except MemoryError:  # which Arrow's is too
        raise
    except OSError as error:
        raise TableError(f"{path} cannot be read: {error.strerror or error}") from error
    except _of_damage() as error:
        raise TableError(f"{path} cannot be read: {error or type(error).__name__}") from error


def _of_damage() -> tuple[type[Exception], ...]:
    """What gzip raises, and Arrow if it has been imported."""
    arrow = sys.modules.get("pyarrow")
    return EOFError, zlib.error, *((arrow.ArrowException,) if arrow else ())


def _open(path: Path) -> IO[bytes]:
    return cast(IO[bytes], gzip.open(path)) if path.name.lower().endswith(".gz") else path.open("rb")


def _check_bytes(path: Path) -> bool:
    """Make sure that a file is UTF-8, not binary and no bomb; returns whether its number of quotes is odd."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    offset, line, begin, quotes = 0, 1, 0, 0
    most = max(_LARGE, _RATIO * path.stat().st_size)
    with _open(path) as file:
        while True:
            new = file.read(_BLOCK)
            block = decoder.getstate()[0] + new  # with the first bytes of a character that the last block cut in two
            bad, reason = block.find(b"\0"), "holds a NUL"
            try:
                decoder.decode(new, final=not new)
            except UnicodeDecodeError as error:
                bad, reason = error.start, "is not UTF-8"
            if bad >= 0:
                line += block.count(b"\n", 0, bad)
                raise TableError(f"{path}, line {line}: byte {offset + bad} {reason}; save the table as CSV in UTF-8")
            if not new:
                return quotes % 2 == 1
            whole = len(block) - len(decoder.getstate()[0])
            end_of_line = max(block.rfind(mark, 0, whole) for mark in (b"\n", b"\r"))
            if end_of_line < 0 and offset + whole - begin > _BLOCK:
                raise TableError(f"{path}, line {line} has more than {_BLOCK:,} bytes, too many for a row")
            if offset > most:
                raise TableError(f"{path} becomes more than {_RATIO} times as large; unpack it, if it is meant to be")
            begin = offset + end_of_line + 1 if end_of_line >= 0 else begin
            offset, line, quotes = offset + whole, line + block.count(b"\n", 0, whole), quotes + new.count(b'"')


def _records(path: Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """The line where a record begins, counted from 1, and its fields."""
    line = 1
    with io.TextIOWrapper(_open(path), encoding="utf-8-sig", newline="") as text:
        reader = csv.reader(text, delimiter=delimiter, strict=True)
        try:
            for fields in reader:
                if fields:
                    yield line, fields
                line = reader.line_num + 1
        except csv.Error as error:
            if "expected after" in str(error):
                problem = "text follows a closing quote"
            else:
                problem = f"a quote is not closed, or a field has more than {csv.field_size_limit():,} characters"
            raise TableError(f"{path}, line {line}: {problem}") from error


def _check_records(path: Path, delimiter: str) -> None:
    width = records = 0
    for line, fields in _records(path, delimiter):
        records += 1
        width = width or len(fields)
        if len(fields) != width:
            raise TableError(f"{path}, line {line}: {_count(len(fields), 'field')}, but the header has {width}")
    if records < 2:
        raise TableError(f"{path} has a header but no rows")


def _delimiter(path: Path) -> str:
    with io.TextIOWrapper(_open(path), encoding="utf-8-sig") as text:
        first = next((line for line in text if line.strip("\n")), "")
    return max(",;\t", key=first.count)  # the first of them if none is there


def _read_text(path: Path, label: str, delimiter: str, odd_quotes: bool) -> dict[str, Any]:
    header = next((fields for _, fields in _records(path, delimiter)), None)
    if header is None:
        raise TableError(f"{path} is empty")
    names = _check_names(header, label, path)
    pa, reader = optional("pyarrow", "audit"), optional("pyarrow.csv", "audit")
    try:
        table = reader.read_csv(
            str(path),
            reader.ReadOptions(block_size=_BLOCK),
            reader.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            reader.ConvertOptions(column_types=dict.fromkeys(header, pa.string())),
        )
    except pa.ArrowInvalid as error:
        _check_records(path, delimiter)
        raise TableError(f"{path} cannot be read: {error}") from error
    # Arrow closes a quote that is open at the end of the file, which may have swallowed many lines
    if odd_quotes or (table.num_rows and "\n" in str(table.column(len(names) - 1)[-1])):
        _check_records(path, delimiter)
    return dict(zip(names, table.columns, strict=True))


def _read_parquet(path: Path, label: str) -> dict[str, Any]:
    with optional("pyarrow.parquet", "audit").ParquetFile(path) as file:
        names = _check_names(file.schema_arrow.names, label, path)
        return dict(zip(names, file.read().columns, strict=True))


def _check_names(header: Sequence[str], label: str, path: Path) -> list[str]:
    """The names of the columns, without blanks around them, and with a number for those that have none."""
    names = [name.strip() or f"column {i}" for i, name in enumerate(header, 1)]
    # Not renamed: a second copy of the label among the features would make every label look right
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise TableError(f"{path} has more than one column called {_listed(twice)}; rename or remove the copies")
    if label not in names:
        close = difflib.get_close_matches(label, names) or [name for name in names if name.lower() == label.lower()]
        hint = f"did you mean {_listed(close, ' or ')}?" if close else f"it has {_listed(names)}"
        raise TableError(f"{path} has no column {_quote(label)}; {hint}")
    return names


def _quote(name: str) -> str:
    return repr(name if len(name) <= 40 else name[:39] + "…")


def _listed(names: Iterable[str], last: str = ", ") -> str:
    shown = [_quote(name) for name in names]
    more = f" and {len(shown) - _SHOWN:,} more" if len(shown) > _SHOWN else ""
    return last.join(shown[:_SHOWN]) + more


def _choose_rows(column: Any, what: str) -> tuple[pd.Series[str], NDArray[np.int64], tuple[str, ...]]:
    """The labels as text, the rows that have one and whose class has at least two, and what to say about the others."""
    given = column.cast(optional("pyarrow", "audit").string())
    there = _without_missing(given)
    written = {text.strip() for text in given.filter(there.is_null()).drop_null().unique().to_pylist()} - {""}
    hint = f" (read as no label: {_listed(sorted(written))}; rename it if it is a class)" if written else ""
    labels = there.to_pandas()
    sizes = labels.value_counts()  # of those that are there
    if problem := _problem(sizes, len(labels)):
        raise TableError(f"{what} {problem}{hint}")
    notes = []
    if len(labels) > sizes.sum():
        notes.append(f"{_count(len(labels) - sizes.sum(), 'row')} without a label left out{hint}")
    single = sizes.index[sizes == 1]
    if len(single):
        classes = "class with one row" if len(single) == 1 else "classes with one row each"
        notes.append(f"{len(single):,} {classes} left out: {_listed(single)}")
    rows = np.flatnonzero(labels.notna() & ~labels.isin(single)).astype(np.int64)
    return labels.iloc[rows].reset_index(drop=True), rows, tuple(notes)


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def _problem(sizes: pd.Series[int], total: int) -> str | None:
    """Why labels are no classes that can be learnt from some of their rows and tested on others; None if they are."""
    if total == 0:
        return "has no rows"
    classes, rows, single = len(sizes), int(sizes.sum()), int((sizes == 1).sum())
    if classes == 0:
        return f"is empty in all {_count(total, 'row')}"
    if classes == 1:
        return f"has one class only, {_quote(sizes.index[0])}; at least 2 are needed"
    # Values of which most rows have their own, or thousands that only a few rows share each
    if single > rows / 2 or (classes > 1000 and classes > rows / 4):
        looks = "looks like an id or a number to predict rather than a class"
        return f"has {classes:,} different values in {_count(rows, 'row')} and {looks}"
    if classes - single < 2:
        return f"has {classes} classes, but fewer than 2 of them have at least 2 rows"
    return None


def _without_missing(texts: Any) -> Any:
    """Texts without the blanks around them, null where they stand for no value."""
    pa, compute = optional("pyarrow", "audit"), optional("pyarrow.compute", "audit")
    trimmed = compute.utf8_trim_whitespace(texts)
    nothing = pa.scalar(None, trimmed.type)
    return compute.if_else(compute.is_in(trimmed, pa.array(MISSING, trimmed.type)), nothing, trimmed)


def _typed(column: Any, decimal_comma: bool) -> Any:
    """A column of texts as integers, numbers or booleans if all its values are; others in a type that pandas has."""
    pa = optional("pyarrow", "audit")
    if pa.types.is_decimal(column.type):
        return column.cast(pa.float64())
    if pa.types.is_date(column.type):
        return column.cast(pa.timestamp("s"))
    if not pa.types.is_string(column.type):
        return column
    texts = _without_missing(column)
    numbers = optional("pyarrow.compute", "audit").replace_substring(texts, ",", ".") if decimal_comma else texts
    for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float64(), pa.bool_()):  # the smallest that fits
        try:
            return numbers.cast(kind)
        except pa.ArrowInvalid:
            continue
    return texts
