"""The page: one HTML file without scripts, which asks no network for anything.

What comes from the table is text of strangers: all of it passes through :func:`_text`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from html import escape
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelhedge.audit._audit import SUSPECT, Audit
from labelhedge.audit._features import Encoded
from labelhedge.audit._table import Table

MAX_SUSPECTS, OPEN = 100, 5
MAX_CLASSES = 20
MAX_COLUMNS, MAX_LEFT_OUT = 12, 2
TYPICAL, POOL = 3, 200
DIFFERS = 0.5
"""A value is highlighted that is so many standard deviations of its column outside what its class has."""

Rows = NDArray[np.int64]


def page(table: Table, audit: Audit, encoded: Encoded, *, seed: int, day: date) -> str:
    """The page of an audit as text.

    Args:
        table: what was audited.
        audit: what was found, of ``table.labels``.
        encoded: ``table.features`` as numbers.
        seed: with which it was found.
        day: on which it was found.
    """
    package = files("labelhedge.audit")
    more = len(audit.classes) - MAX_CLASSES
    suspects = audit.suspects()["row"].to_numpy(np.int64)
    notes = left_out(table, encoded)
    parts = {
        "css": package.joinpath("page.css").read_text(encoding="utf-8"),
        "label": _text(table.label),
        "source": _text(table.source),
        "title": escape(cut(f"{table.label} in {table.source}", 80)),
        "seed": str(seed),
        "day": day.isoformat(),
        "headline": escape(headline(audit)).replace(" %", "&nbsp;%"),
        "summary": f"{len(audit.given):,} rows with {len(audit.classes):,} different labels were audited, "
        f"by {len(encoded.used):,} of {table.features.shape[1]:,} columns.",
        "left_out": f"<ul>{''.join(f'<li>{_text(note, 300)}</li>' for note in notes)}</ul>" if notes else "",
        "histogram": _histogram(audit.p_wrong),
        "classes": _classes(audit),
        "more_classes": f" {more:,} classes with fewer wrong labels are not shown." if more > 0 else "",
        "confusion": _confusion(audit),
        "more_confusion": f" The {MAX_CLASSES} commonest of {len(audit.classes):,} labels." if more > 0 else "",
        "suspects_text": _suspects_text(len(suspects)),
        "suspects": "\n".join(_suspects(table, audit, encoded, suspects[:MAX_SUSPECTS])),
    }
    template = package.joinpath("page.html").read_text(encoding="utf-8")
    return re.sub(r"{{(\w+)}}", lambda match: parts[match[1]], template)  # one pass: what is put in is not searched


def headline(audit: Audit) -> str:
    """The estimate in a sentence."""
    rows = len(audit.given)
    return f"About {audit.wrong:,.0f} of {rows:,} labels ({100 * audit.wrong / rows:.1f} %) are wrong"


def left_out(table: Table, encoded: Encoded, most: int = 5) -> list[str]:
    """Sentences about the rows and columns that were left out."""
    columns: dict[str, list[str]] = {}
    for name, reason in encoded.left_out:
        columns.setdefault(reason, []).append(repr(cut(name)))
    sentences = list(table.notes)
    for reason, names in columns.items():
        listed = ", ".join(names[:most]) + (f" and {len(names) - most:,} more" if len(names) > most else "")
        column, each = ("column", "it") if len(names) == 1 else ("columns", "each")
        sentences.append(f"{column} {listed} left out: {each} {reason}")
    return sentences if len(sentences) <= 20 else [*sentences[:20], "more columns left out for other reasons"]


def cut(text: str, most: int = 40) -> str:
    """The beginning of a text that is too long."""
    return text if len(text) <= most else text[: most - 1] + "…"


def _text(value: object, most: int = 40) -> str:
    """A value as HTML; one that is cut tells more of itself when pointed at."""
    text = str(value)
    shown = escape(cut(text, most))
    return shown if len(text) <= most else f'<span title="{escape(cut(text, 500))}">{shown}</span>'


def _histogram(p_wrong: NDArray[np.float64]) -> str:
    """Ten bars; those beyond one half are of suspects."""
    counts = np.histogram(p_wrong, bins=10, range=(0, 1))[0].tolist()
    highest = math.log1p(max(counts))
    width, top, bottom = 44, 24, 190
    parts = []
    for i, count in enumerate(counts):
        height = (bottom - top) * math.log1p(count) / highest
        kind = ' class="suspect"' if i >= 10 * SUSPECT else ""
        parts.append(
            f'<rect{kind} x="{23 + width * i}" y="{bottom - height:.1f}" width="{width - 6}" height="{height:.1f}"/>'
            f'<text x="{20 + width * (i + 0.5):.0f}" y="{bottom - height - 6:.1f}">{count:,}</text>'
        )
    parts += [f'<text x="{20 + width * i}" y="{bottom + 18}">{10 * i} %</text>' for i in range(0, 11, 2)]
    return (
        f'<svg viewBox="0 0 {40 + width * 10} {bottom + 26}" role="img" aria-label="Labels by probability">'
        f'<line x1="20" x2="{20 + width * 10}" y1="{bottom}" y2="{bottom}"/>{"".join(parts)}</svg>'
    )


def _classes(audit: Audit) -> str:
    by_class = audit.by_class().sort_values("wrong", ascending=False, kind="stable").head(MAX_CLASSES)
    largest = max(by_class["share"].max(), 1e-9)
    rows = "".join(
        f"<tr><th>{_text(label, 24)}</th><td>{rows:,}</td><td>{wrong:,.1f}</td>"
        f'<td class="share"><i style="width:{50 * share / largest:.1f}%"></i>{100 * share:.1f} %</td></tr>'
        for label, rows, wrong, share in by_class.itertuples(index=False)
    )
    head = '<tr><th>label</th><th>rows</th><th>wrong</th><th class="share">share</th></tr>'
    return f"<table><thead>{head}</thead><tbody>{rows}</tbody></table>"


def _confusion(audit: Audit) -> str:
    """A heat map of the commonest labels; its colours are of the errors alone."""
    commonest = np.sort(np.argsort(-np.bincount(audit.given), kind="stable")[:MAX_CLASSES])
    place = {int(label): i for i, label in enumerate(commonest)}
    counts = np.zeros((len(place), len(place)))
    for true, given, rows in zip(*vars(audit.confusion).values(), strict=True):
        if true in place and given in place:
            counts[place[true], place[given]] = rows
    largest = max(counts[~np.eye(len(counts), dtype=bool)].max(), 0.5)
    names = [_text(audit.classes[label], 24) for label in commonest]
    tall = ' class="tall"' if len(names) > 6 else ""
    head = "".join(f"<th><div{tall}>{name}</div></th>" for name in names)
    cells = [
        "".join(_heat(count, i == j, count / largest) for j, count in enumerate(row)) for i, row in enumerate(counts)
    ]
    body = [f"<tr><th>{name}</th>{row}</tr>" for name, row in zip(names, cells, strict=True)]
    return f"<table><thead><tr><th>true class</th>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"


def _heat(count: float, right: bool, share: float) -> str:
    number = f"{count:,.0f}" if count >= 0.5 else ""
    if right:
        return f'<td class="right">{number}</td>'
    ink = "#fff" if share > 0.55 else "inherit"
    return f'<td style="background:rgba(11,92,173,{share:.2f});color:{ink}">{number}</td>'


def _suspects_text(found: int) -> str:
    if not found:
        return "No label is likelier wrong than right."
    shown = f"The first {MAX_SUSPECTS} of {found:,} labels" if found > MAX_SUSPECTS else f"All {found:,} labels"
    return (
        f"{shown} that are likelier wrong than right, the surest first, each row beside rows whose labels seem right: "
        "those most like it among the rows with its label and among those with the suggested one. Columns in which "
        "it is least like the rows with its label come first, marked where it is far off. Rows count from 0."
    )


@dataclass(frozen=True)
class _Neighbours:
    """Finds the rows that a suspect is to be seen beside."""

    audit: Audit
    matrix: NDArray[np.float32]
    pools: dict[int, Rows] = field(default_factory=dict)

    def pool(self, label: int, suspect: int) -> Rows:
        """Rows with a label that is surely right; others only where there are none."""
        p_wrong = self.audit.p_wrong
        if label not in self.pools:
            rows = np.flatnonzero(self.audit.given == label)
            surest = rows[np.argsort(p_wrong[rows], kind="stable")]
            self.pools[label] = surest[: min(POOL, max(TYPICAL + 1, len(rows) // 2))]
        pool: Rows = self.pools[label][self.pools[label] != suspect]
        right: Rows = pool[p_wrong[pool] <= SUSPECT]
        return right if len(right) else pool

    def nearest(self, label: int, suspect: int) -> list[int]:
        pool = self.pool(label, suspect)
        distance = ((self.matrix[pool] - self.matrix[suspect]) ** 2).sum(1)
        return [int(row) for row in pool[np.argsort(distance, kind="stable")[:TYPICAL]]]

    def difference(self, label: int, suspect: int) -> NDArray[np.float32]:
        """How far each column of the matrix is outside the range of four fifths of the rows with a label."""
        low, high = np.quantile(self.matrix[self.pool(label, suspect)], (0.1, 0.9), axis=0)
        value = self.matrix[suspect]
        outside: NDArray[np.float32] = np.abs(value - np.clip(value, low, high))
        return outside


def _suspects(table: Table, audit: Audit, encoded: Encoded, suspects: Rows) -> Iterator[str]:
    if not len(suspects):
        return
    names = [name for name, _ in encoded.used]
    starts = np.cumsum([0, *encoded.widths[:-1]])
    neighbours = _Neighbours(audit, encoded.matrix)
    for rank, suspect in enumerate(suspects.tolist(), 1):
        given, suggested = int(audit.given[suspect]), int(audit.suggested[suspect])
        groups = [neighbours.nearest(label, suspect) for label in (given, suggested)]
        shown = [suspect, *groups[0], *groups[1]]
        others = [n for n, _ in encoded.left_out if len(set(map(str, _values(table, n, shown)))) > 1][:MAX_LEFT_OUT]
        difference = np.maximum.reduceat(neighbours.difference(given, suspect), starts)
        order = np.argsort(-difference, kind="stable")[: MAX_COLUMNS - len(others)]
        rows = [_compared(names[i], _values(table, names[i], shown), groups, difference[i] >= DIFFERS) for i in order]
        rows += [_compared(name, _values(table, name, shown), groups, False) for name in others]
        labels = [_text(audit.classes[label]) for label in (given, suggested)]
        p = float(audit.p_wrong[suspect])
        head = _head(table.rows[shown].tolist(), labels, groups)
        yield (
            f'<details class="suspect"{" open" if rank <= OPEN else ""}><summary>'
            f'<span class="row">row {table.rows[suspect]:,}</span>'
            f'<span class="labels"><bdi>{labels[0]}</bdi>, rather <b><bdi>{labels[1]}</bdi></b></span>'
            f'<span class="p">{"over 99.9" if p > 0.999 else f"{100 * p:.1f}"} %</span></summary>'
            f'<div class="scroll" tabindex="0" role="region" aria-label="Row {table.rows[suspect]:,} beside others">'
            f"<table><thead>{head}</thead><tbody>{''.join(rows)}</tbody></table></div></details>"
        )


def _values(table: Table, name: str, rows: Sequence[int]) -> list[Any]:
    return table.features[name].iloc[list(rows)].tolist()


def _head(rows: Sequence[int], labels: Sequence[str], groups: Sequence[Sequence[int]]) -> str:
    spans = zip(labels, groups, strict=True)
    over = "".join(f'<th class="begins" colspan="{len(group)}">labelled {label}</th>' for label, group in spans)
    cells = "".join(f"<th{kind}>row {row:,}</th>" for row, kind in zip(rows[1:], _borders(groups), strict=True))
    return f'<tr><th rowspan="2">column</th><th rowspan="2">row {rows[0]:,}</th>{over}</tr><tr>{cells}</tr>'


def _borders(groups: Sequence[Sequence[int]]) -> list[str]:
    return [' class="begins"' if i == 0 else "" for group in groups for i in range(len(group))]


def _compared(name: str, values: Sequence[Any], groups: Sequence[Sequence[int]], differs: bool) -> str:
    kinds = [' class="differs"' if differs else "", *_borders(groups)]
    cells = "".join(f"<td{kind}>{_cell(value)}</td>" for value, kind in zip(values, kinds, strict=True))
    long = ' class="long"' if any(isinstance(value, str) and len(value) > 16 for value in values) else ""
    return f"<tr{long}><th>{_text(name, 32)}</th>{cells}</tr>"


def _cell(value: Any) -> str:
    if value is None or str(value) in ("nan", "NaT", "<NA>"):
        return '<span class="missing">missing</span>'
    if isinstance(value, float):
        return f"{value:.0f}" if value.is_integer() and abs(value) < 1e15 else f"{value:.5g}"
    return _text(value, 60)
