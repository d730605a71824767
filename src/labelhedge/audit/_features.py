"""Turns the columns of a table into a matrix of numbers.

One column at a time, so that a table of a million rows needs little more than the matrix itself. The formulas are
short enough in NumPy; scikit-learn's transformers would copy the table several times.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from labelhedge._optional import optional
from labelhedge.audit._table import TableError

if TYPE_CHECKING:
    import pandas as pd

MAX_CATEGORIES = 30
"""Columns of the matrix that one column of categories may take."""
NEARLY_ALL = 0.9
"""Share of the texts in a column that must be numbers, or dates, for the others to count as missing."""

_LIMIT = 10.0
_CURRENCY = "[$€£¥]"
_WRITTEN = rf"[+-]?{_CURRENCY}?\s*[\d,.eE+-]+\s*({_CURRENCY}|%)?"
_GROUPED = r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?$"
_DATE = r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d.*)?$"

Values = NDArray[np.float64]  # of one column; NaN is missing
Columns = list[NDArray[np.float32]]


@dataclass(frozen=True)
class Encoded:
    """Numbers for a network.

    Attributes:
        matrix: ``(n, d)``, finite; each column has mean 0 and variance 1 but for values beyond ±10, which are cut.
        used: the columns of the table that are in it, each with its kind.
        left_out: the columns that are not, each with the reason.
        widths: how many columns of the matrix each of those in ``used`` has become.
    """

    matrix: NDArray[np.float32]
    used: tuple[tuple[str, str], ...]
    left_out: tuple[tuple[str, str], ...]
    widths: tuple[int, ...]


class _LeftOutError(Exception):
    """A column that is of no use; its text is the reason."""


def as_matrix(features: pd.DataFrame | ArrayLike) -> NDArray[np.float32]:
    """What :func:`encode` makes of a DataFrame, or of an array of numbers."""
    pandas = optional("pandas", "audit")
    return encode(features if isinstance(features, pandas.DataFrame) else pandas.DataFrame(np.asarray(features))).matrix


def encode(frame: pd.DataFrame) -> Encoded:
    """Turn numbers, booleans, dates and categories into numbers, and leave the other columns out.

    A number becomes one column of the matrix; a category up to 30, one for each frequent value; a date its seconds,
    month, weekday and hour as far as they vary. Missing values (infinite ones too) are replaced by the median and get a
    column that tells them.

    Raises:
        TableError: no column is left.
    """
    columns: Columns = []
    used, left_out, widths = [], [], []
    for name, series in frame.items():
        try:
            kind, found = _encode(series)
        except _LeftOutError as reason:
            left_out.append((str(name), str(reason)))
        else:
            used.append((str(name), kind))
            widths.append(len(found))
            columns += found
    if not columns:
        reasons = "; ".join(f"{name!r} {reason}" for name, reason in left_out[:5])
        raise TableError(f"no column can be used as a feature: {reasons or 'there is none beside the label'}")
    matrix = np.empty((len(frame), len(columns)), np.float32)
    for i in reversed(range(len(columns))):
        matrix[:, i] = columns.pop()
    return Encoded(matrix, tuple(used), tuple(left_out), tuple(widths))


def _encode(series: pd.Series[Any]) -> tuple[str, Columns]:
    types = optional("pandas", "audit").api.types
    if series.isna().all():
        raise _LeftOutError("has no values")
    if types.is_bool_dtype(series.dtype):
        return _boolean(series.to_numpy(np.float64, na_value=np.nan))
    if types.is_datetime64_any_dtype(series.dtype):
        return _date(series)
    if types.is_timedelta64_dtype(series.dtype):
        return _number(series.dt.total_seconds().to_numpy(np.float64))
    if types.is_complex_dtype(series.dtype):
        raise _LeftOutError("has complex numbers")
    if types.is_numeric_dtype(series.dtype):
        return _number(series.to_numpy(np.float64, na_value=np.nan))
    return _text(series)


def _number(values: Values) -> tuple[str, Columns]:
    finite = np.isfinite(values)
    if not finite.all():
        values = np.where(finite, values, np.nan)
    elif _is_id(values):
        raise _LeftOutError("counts the rows like an id")
    return _named("number", finite), _with_indicator([values], finite)


def _boolean(values: Values) -> tuple[str, Columns]:
    there = ~np.isnan(values)
    return _named("boolean", there), _with_indicator([values], there)


def _date(dates: pd.Series[Any]) -> tuple[str, Columns]:
    there = dates.notna().to_numpy()
    dates = dates.dt.as_unit("us")  # a difference in nanoseconds may overflow
    parts = [(dates - dates.min()).dt.total_seconds(), dates.dt.month, dates.dt.day_of_week, dates.dt.hour]
    return _named("date", there), _with_indicator([part.to_numpy(np.float64) for part in parts], there)


def _named(kind: str, there: NDArray[np.bool_]) -> str:
    return kind if there.all() else f"{kind} with missing values"


def _with_indicator(parts: list[Values], there: NDArray[np.bool_]) -> Columns:
    """The parts that vary, and a column that tells missing values if there are any."""
    if not there.any():
        raise _LeftOutError("has no values")
    columns = [_scaled(part) for part in parts if np.nanmin(part) < np.nanmax(part)]
    if not there.all():
        columns.append(_standard(there))
    if not columns:
        raise _LeftOutError("has the same value in all rows")
    return columns


def _scaled(values: Values) -> NDArray[np.float32]:
    """Numbers that vary, with missing ones at the median and outliers pulled in.

    In units of the typical distance from the median (of the values that differ from it, for it may be the value of
    most), z becomes z / √(1 + (z/5)²): it hardly changes ordinary values and keeps the order of all, and no outlier can
    press the others together, as it would by its part in the mean and variance. Quantiles would do it too, but blow up
    the gaps between the few values of a discrete column.
    """
    values = values / np.nanmax(np.abs(values))  # else the distances of the largest numbers overflow
    values -= np.nanmedian(values)
    distance = np.abs(values[values != 0])
    with np.errstate(over="ignore"):
        values /= np.nanmedian(distance)
    np.nan_to_num(values, copy=False, nan=0.0, posinf=1e9, neginf=-1e9)
    return _standard(values / np.hypot(1, values / 5))


def _standard(values: NDArray[Any]) -> NDArray[np.float32]:
    """Mean 0 and variance 1; then a value that is one row's in thousands is cut, lest it dominate the training."""
    centred: Values = values - values.mean(dtype=np.float64)
    centred /= np.sqrt(np.mean(centred**2))
    return centred.clip(-_LIMIT, _LIMIT).astype(np.float32)


@np.errstate(over="ignore")  # a step may be infinite
def _is_id(values: Values) -> bool:
    """Whether finite numbers are integers that number the rows: rising, falling, or shuffled with few gaps."""
    if len(values) < 3 or not np.array_equal(values, np.rint(values)):
        return False
    steps = np.diff(values)
    if (steps > 0).all() or (steps < 0).all():
        return True
    # By chance no twenty numbers of forty are all different
    return len(values) >= 20 and bool(np.ptp(values) < 2 * len(values)) and len(np.unique(values)) == len(values)


def _text(series: pd.Series[Any]) -> tuple[str, Columns]:
    """Texts, and whatever else is no number: what the values are is looked up once for each different value."""
    pandas = optional("pandas", "audit")
    try:
        codes, values = pandas.factorize(series)
    except TypeError as error:  # they cannot be compared
        raise _LeftOutError("has lists or records rather than single values") from error
    # 1 and "1" may both be there, and blanks around them
    again, texts = pandas.factorize(np.array([str(value).strip() for value in values], dtype=object))
    codes = np.where(codes >= 0, again[codes], -1)
    counts = np.bincount(codes[codes >= 0], minlength=len(texts))
    if len(texts) < 9 and {text.lower() for text in texts} <= {"true", "false"}:
        return _boolean(_looked_up(np.array([text.lower() == "true" for text in texts], dtype=np.float64), codes))
    numbers = _as_numbers(texts)
    others = int(counts[np.isnan(numbers)].sum())
    if others <= (1 - NEARLY_ALL) * counts.sum():
        kind, columns = _number(_looked_up(numbers, codes))
        return kind + (f"; {others:,} that are no numbers count as missing" if others else ""), columns
    dates = _as_dates(texts)
    if counts[dates.isna()].sum() <= (1 - NEARLY_ALL) * counts.sum():
        return _date(dates.reindex(codes).reset_index(drop=True))
    return _categories(codes, counts)


def _looked_up(values: Values, codes: NDArray[np.int64]) -> Values:
    return np.where(codes >= 0, values[codes], np.nan)


def _as_numbers(texts: NDArray[Any]) -> Values:
    """Numbers as programs and people write them, 5100, 5,100.0 or 5.100,0, $5.1, 5.1 %; NaN where a text is none."""
    pandas = optional("pandas", "audit")
    series = pandas.Series(texts, dtype="str")
    series = series.where(series.str.fullmatch(_WRITTEN))  # what follows would take long with a million sentences

    def read(forms: pd.Series[str]) -> Values:
        ungrouped = forms.mask(forms.str.match(_GROUPED, na=False), forms.str.replace(",", ""))
        numbers: Values = pandas.to_numeric(ungrouped, errors="coerce").to_numpy(np.float64)
        return numbers

    plain = read(series)
    if not np.isnan(plain).any() or series.str.extract(f"({_CURRENCY})")[0].nunique() > 1:
        return plain  # 5 € and 5 $ are not the same
    bare = series.str.replace(rf"^([+-]?){_CURRENCY}\s*|\s*({_CURRENCY}|%)$", r"\1", regex=True)
    readings = read(bare), read(bare.str.translate(str.maketrans(",.", ".,")))
    numbers = min(readings, key=lambda found: int(np.isnan(found).sum()))
    return np.where(series.str.endswith("%"), numbers / 100, numbers)


def _as_dates(texts: NDArray[Any]) -> pd.Series[Any]:
    """Points in time where texts are ISO dates."""
    pandas = optional("pandas", "audit")
    series = pandas.Series(texts, dtype="str")
    series = series.where(series.str.match(_DATE))
    dates: pd.Series[Any] = pandas.to_datetime(series, format="ISO8601", errors="coerce", utc=True)
    return dates


def _categories(codes: NDArray[np.int64], counts: NDArray[np.int64]) -> tuple[str, Columns]:
    """A column for each frequent value, one for all others together, and one for missing values."""
    total, missing = int(counts.sum()), bool((codes < 0).any())
    if len(counts) == 1 and not missing:
        raise _LeftOutError("has the same value in all rows")
    if len(counts) > total / 2:
        raise _LeftOutError(f"has {len(counts):,} different texts in {total:,} rows, like an id or free text")
    least = max(2, min(5, len(codes) // 20))  # rows of a frequent value
    order = np.argsort(-counts, kind="stable")
    frequent = order[counts[order] >= least][: MAX_CATEGORIES - missing]
    if len(frequent) < len(counts):
        frequent = frequent[: MAX_CATEGORIES - 1 - missing]
    groups = np.full(len(counts) + 1, len(frequent))  # the last is the one of code -1
    groups[frequent] = np.arange(len(frequent))
    groups[-1] = -1
    group = groups[codes]
    names = np.unique(group)
    if len(names) == 1:
        raise _LeftOutError(f"has no text in {least} or more rows")
    # Of two columns, one says it all
    columns = [_standard(group == name) for name in (names if len(names) > 2 else names[1:])]
    return _named("category", codes >= 0), columns
