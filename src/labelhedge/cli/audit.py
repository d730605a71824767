"""``labelhedge audit``: the wrong labels in a table."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from labelhedge._files import whole
from labelhedge._foreign import no_formulas, plain
from labelhedge.audit import Audit, Encoded, Table, encode
from labelhedge.audit._find import find_encoded
from labelhedge.audit.page import cut, headline, left_out, page
from labelhedge.cli.device import chosen_device
from labelhedge.cli.out import check_folder, out_option
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
from labelhedge.cli.terminal import print_json, print_table, progress

if TYPE_CHECKING:
    import pandas as pd

SUSPECTS, CLASSES, PAIRS = 20, 20, 10
"""Lines that the tables have at most."""


def audit(
    data: DataArgument = None,
    label: LabelOption = None,
    features: FeaturesOption = None,
    labels: LabelsOption = None,
    out: Annotated[Path | None, out_option(help="Write suspects.csv and index.html to this folder.")] = None,
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
    if out is not None:
        check_folder(out, ("suspects.csv", "index.html"))
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
    files: Sequence[Path] = ()
    if out is not None:
        files = _write(out, suspects, page(table, found, encoded, seed=seed, day=date.today()))
    if as_json:
        print_json(_as_dict(table, found, encoded, suspects, files))
        return
    _print(table, found, encoded, suspects)
    for path in files:
        typer.echo(path, err=True)


def _write(out: Path, suspects: pd.DataFrame, html: str) -> list[Path]:
    """Write both files, or neither."""
    csv = no_formulas(suspects).to_csv(index=False, float_format="%.6f", lineterminator="\n")
    contents = {out / "suspects.csv": csv, out / "index.html": html}
    with ExitStack() as stack:
        for path, content in contents.items():
            stack.enter_context(whole(path)).write(content.encode())
    return list(contents)


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
