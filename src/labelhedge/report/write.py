"""Write a report."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from labelhedge._files import write_whole
from labelhedge.report.content import Content, gather
from labelhedge.report.figures import write_figures
from labelhedge.report.hyperparameters import write_hyperparameters
from labelhedge.report.page import page
from labelhedge.report.running_time import write_running_time
from labelhedge.report.tables import write_tables


@dataclass(frozen=True)
class Report:
    """A report that was written.

    Attributes:
        content: The numbers in it.
        files: Its files; the first one is the page.
    """

    content: Content
    files: tuple[Path, ...]


def write(
    root: str | os.PathLike[str], out: str | os.PathLike[str] | None = None, *, protocol: str | None = None
) -> Report:
    """Write the page, the tables and the figures of the results in a folder.

    Args:
        root: The folder that ``labelhedge bench --out`` has filled.
        out: Where to write; by default the folder ``report`` in ``root``.
        protocol: The protocol to report on; needed only where there are results of several.
    """
    content = gather(root, protocol)
    folder = Path(root) / "report" if out is None else Path(out)
    tables, figures = folder / "tables", folder / "figures"
    written = [
        *write_tables(content, tables),
        *write_hyperparameters(content, tables),
        *write_running_time(content, tables),
        *write_figures(content, figures),
    ]
    index = write_whole(folder / "index.html", page(content))
    return Report(content, (index, *written))
