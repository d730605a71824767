"""``labelhedge audit``: the wrong labels in a table."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from labelhedge.audit import Audit, Encoded, Table, encode
from labelhedge.audit._find import find_encoded
from labelhedge.audit.page import cut, headline, left_out, write_page
from labelhedge.cli.device import chosen_device
from labelhedge.cli.table import (
    DataArgument,
    DeviceOption,
    FeaturesOption,
    JsonOption,
    LabelOption,
    LabelsOption,
    SeedOption,
    read,
)
from labelhedge.cli.terminal import plain, print_json, print_table, progress

if TYPE_CHECKING:
    import pandas as pd

SUSPECTS, CLASSES, PAIRS = 20, 20, 10
"""Lines that the tables have at most."""


def audit(
    data: DataArgument = None,
    label: LabelOption = None,
    features: FeaturesOption = None,
    labels: LabelsOption = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write suspects.csv and index.html to this folder.")
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="In suspects.csv and JSON, all rows and not suspects only.")
    ] = False,
    seed: SeedOption = 0,
    device: DeviceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Find the labels in a table that are probably wrong.

    Prints about how many are wrong, which labels are taken for which, and the rows to look at first. Rows count from
    0. With --out, suspects.csv has all suspects, and index.html shows them beside rows whose labels seem right. In
    suspects.csv an apostrophe is put before a label that a spreadsheet would take for a formula.

    Example: labelhedge audit iris.csv --label species --out audit

    Example: labelhedge audit --features x.npy --labels y.npy
    """
    place = chosen_device(device)
    _check_folder(out)
    table = read(data, label, features, labels)
    encoded = encode(table.features)
    with progress() as tell:
        found = find_encoded(
            encoded.matrix,
            table.labels,
            seed=seed,
            device=place,
            progress=lambda done, total: tell("auditing", done, total, "network-epochs"),
        )
    suspects = found.suspects(all=every)
    suspects["row"] = table.rows[suspects["row"]]
    files = [] if out is None else _write(out, table, found, encoded, suspects)
    if as_json:
        print_json(_as_dict(table, found, encoded, suspects, files))
        return
    _print(table, found, encoded, suspects)
    for path in files:
        typer.echo(path, err=True)


def _check_folder(out: Path | None) -> None:
    """Before hours of work, not after them; nothing is made yet, for the work may end with an error."""
    if out is None:
        return
    there = next(folder for folder in (out.absolute(), *out.absolute().parents) if folder.exists())
    if not there.is_dir():
        raise ValueError(f"--out must be a folder, but {there} is a file")
    if not os.access(there, os.W_OK):
        raise ValueError(f"--out must be a folder to write to, but {there} is read-only")
    for name in ("suspects.csv", "index.html"):
        if (out / name).is_dir():
            raise ValueError(f"--out needs a place for the file {out / name}, but that is a folder")


def _write(out: Path, table: Table, found: Audit, encoded: Encoded, suspects: pd.DataFrame) -> list[Path]:
    """Write all files beside their places first, and then move them there."""

    def csv(path: Path) -> None:
        guarded = suspects.assign(given=suspects["given"].map(_guarded), suggested=suspects["suggested"].map(_guarded))
        guarded.to_csv(path, index=False, float_format="%.6f", lineterminator="\n")

    files: dict[Path, Callable[[Path], None]] = {
        out / "suspects.csv": csv,
        out / "index.html": lambda path: write_page(path, table, found, encoded),
    }
    out.mkdir(parents=True, exist_ok=True)
    parts = {path: path.with_name(f".{path.name}.{os.getpid()}.part") for path in files}
    try:
        for path, write in files.items():
            write(parts[path])
        for path, part in parts.items():
            part.replace(path)
    finally:
        for part in parts.values():
            part.unlink(missing_ok=True)
    return list(files)


def _guarded(label: str) -> str:
    """A label that spreadsheets do not take for a formula; a plain number such as -1 is none."""
    number = re.fullmatch(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?", label, re.ASCII)
    return f"'{label}" if label.startswith(("=", "+", "-", "@", "\t", "\r")) and not number else label


def _print(table: Table, found: Audit, encoded: Encoded, suspects: pd.DataFrame) -> None:
    console = Console()
    terminal = console.is_terminal

    def section(columns: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[str]) -> None:
        typer.echo()
        print_table(columns, rows, numbers=numbers)

    for sentence in (*left_out(table, encoded), headline(found)):
        typer.echo(plain(sentence))
    by_class = found.by_class().sort_values("wrong", ascending=False, kind="stable").head(CLASSES)
    classes = by_class.itertuples(index=False)
    rows = [[_label(name), f"{n:,}", f"{wrong:.1f}", f"{100 * share:.1f} %"] for name, n, wrong, share in classes]
    section(["label", "rows", "wrong", "share"], rows, ["rows", "wrong", "share"])
    if len(found.classes) > CLASSES:
        typer.echo(f"and {len(found.classes) - CLASSES:,} labels with fewer that are wrong")
    pairs = found.pairs(PAIRS).query("rows >= 0.5").itertuples(index=False)
    if rows := [[_label(given), _label(true), f"{n:.1f}"] for true, given, n in pairs]:
        section(["given", "instead of", "rows"], rows, ["rows"])
    most = min(SUSPECTS, max(5, console.height - 4)) if terminal else SUSPECTS
    first = suspects[suspects["p_wrong"] > 0.5].head(most).itertuples(index=False)
    if rows := [[str(row), _label(given), _label(other), f"{p:.3f}"] for row, given, other, p, _ in first]:
        section(["row", "given", "suggested", "p_wrong"], rows, ["row", "p_wrong"])


def _label(text: str) -> str:
    return cut(plain(text), 30)


def _as_dict(
    table: Table, found: Audit, encoded: Encoded, suspects: pd.DataFrame, files: Sequence[Path]
) -> dict[str, Any]:
    return {
        "rows": len(found.given),
        "wrong": found.wrong,
        "share": found.wrong / len(found.given),
        "notes": list(table.notes),
        "left_out": [{"column": column, "reason": reason} for column, reason in encoded.left_out],
        "by_class": found.by_class().to_dict("records"),
        "confusions": found.pairs().to_dict("records"),
        "suspects": suspects.to_dict("records"),
        "files": [str(path) for path in files],
    }
