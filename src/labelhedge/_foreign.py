"""Text that strangers wrote, made harmless where it goes: to a terminal, a spreadsheet, a Markdown page."""

from __future__ import annotations

import re
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


def plain(text: str) -> str:
    """One line without anything that a terminal obeys."""
    return "".join(filter(str.isprintable, " ".join(text.split())))


def no_formula(text: str) -> str:
    """Text that spreadsheets do not take for a formula; a plain number such as -1 is none."""
    number = re.fullmatch(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?", text, re.ASCII)
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) and not number else text


def no_formulas(rows: pd.DataFrame) -> pd.DataFrame:
    """The same for all texts of a table that is to become a CSV file."""

    def guarded(value: object) -> object:
        return no_formula(value) if isinstance(value, str) else value

    texts = rows.select_dtypes(exclude="number")
    return rows.assign(**{str(name): column.map(guarded) for name, column in texts.items()})


def file_name(text: str) -> str:
    """Text for a part of the name of a file, which leads to no other folder."""
    return re.sub(r"[/\\:]", "_", plain(text))


def markdown_text(text: str) -> str:
    """Text for a line or a cell of Markdown, without HTML."""
    return re.sub(r"([\\`|*\[\]])", r"\\\1", escape(plain(text), quote=False))
