"""What the commands take that work on a table with labels."""

from pathlib import Path
from typing import Annotated

import typer

from labelhedge._errors import UserError
from labelhedge.audit import Table, read_arrays, read_table

DataArgument = Annotated[
    Path | None, typer.Argument(metavar="TABLE", help="A file .csv, .tsv, .txt (also .gz) or .parquet.")
]
LabelOption = Annotated[str | None, typer.Option(metavar="COLUMN", help="The column that has the labels.")]
FeaturesOption = Annotated[Path | None, typer.Option(help="Instead of a table: numbers (n, d) in a file .npy.")]
LabelsOption = Annotated[Path | None, typer.Option(help="With --features: labels (n,) in a file .npy.")]
SeedOption = Annotated[int, typer.Option(min=0, help="Decides everything random.")]
DeviceOption = Annotated[str | None, typer.Option(help="cpu or cuda [default: cuda where there is one]")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def read(data: Path | None, label: str | None, features: Path | None, labels: Path | None) -> Table:
    """The table that the options name."""
    arrays = features is not None or labels is not None
    if (data is not None or label is not None) and arrays:
        raise UserError("give a table with --label, or --features with --labels, but not both")
    if features is not None and labels is not None:
        return read_arrays(features, labels)
    if arrays:
        raise UserError("--features and --labels go together, and one of them is missing")
    if data is None:
        raise UserError("give a table with --label, or --features with --labels")
    if label is None:
        raise UserError(f"--label must name the column of {data} that has the labels")
    return read_table(data, label)
