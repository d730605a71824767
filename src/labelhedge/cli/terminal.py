"""What people see: tables and progress bars on a terminal, plain lines in a pipe."""

import json
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import typer
from rich.cells import cell_len
from rich.console import Console, JustifyMethod
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from labelhedge._errors import UserError
from labelhedge.data._progress import Lines, amount
from labelhedge.data._progress import Progress as Report

_LEAST = 8
"""Width of a column of words, on however narrow a terminal."""


def print_json(value: Any) -> None:
    """For programs."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Sequence[str] = ()) -> None:
    """A table on a terminal; in a pipe one line per row with tabs between, the first line naming the columns."""
    console = Console()
    if not console.is_terminal:
        for row in (columns, *rows):
            typer.echo("\t".join(row))
        return
    table = Table(box=None, pad_edge=False)
    for column, *cells in zip(columns, *rows, strict=True):
        justify: JustifyMethod = "right" if column in numbers else "left"
        whole = column in (columns[0], *numbers)  # a number that is cut would be another one
        longest = max(map(cell_len, (column, *cells)))
        least = longest if whole else min(longest, _LEAST)
        table.add_column(column, justify=justify, overflow="fold", no_wrap=whole, min_width=least)
    for row in rows:
        table.add_row(*map(escape, row))  # a cell is never markup
    console.print(table, crop=False)


def say(line: str) -> None:
    """A line for people, on stderr; above the bars where there are some, which ``typer.echo`` would write into."""
    print(line, file=sys.stderr, flush=True)


@contextmanager
def progress() -> Iterator[Report]:
    """Bars on a terminal, lines otherwise, on stderr both."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield Lines()
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[amount]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bars:
        tasks: dict[str, TaskID] = {}

        def report(task: str, done: int, total: int | None, unit: str) -> None:
            if task not in tasks:
                tasks[task] = bars.add_task(task, total=total, amount="")
            so_far = amount(done, unit) if unit == "bytes" else f"{done:,}"
            text = f"{so_far} of {amount(total, unit)}" if unit and total else ""
            bars.update(tasks[task], completed=done, total=total, amount=text)

        yield report


def parse_bytes(text: str) -> int:
    """An amount of memory such as 4GB or 500MB, in bytes."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(kB|MB|GB|TB)?", text, re.IGNORECASE)
    if match is None:
        raise UserError(f"an amount of memory is a number with kB, MB, GB or TB behind it, got {text!r}")
    return int(float(match[1]) * {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}[(match[2] or "").upper()])
