"""The tables as Markdown, LaTeX and CSV."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from labelhedge._optional import optional
from labelhedge.report.content import KS, Content
from labelhedge.report.names import column, noise_label
from labelhedge.report.paper import LEADERBOARD

if TYPE_CHECKING:
    import pandas as pd

    from labelhedge.results.aggregate import Ranking

_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}


@dataclass(frozen=True)
class Table:
    """Entries as they are printed: one row per loss, mean(std) in each column, the best of a column marked."""

    title: str
    columns: tuple[str, ...]
    losses: tuple[str, ...]
    entries: tuple[tuple[str, ...], ...]
    best: tuple[tuple[bool, ...], ...]


def entry(mean: float, std: float) -> str:
    """``mean(std)`` with two decimals; nothing where there is no number."""
    return "" if math.isnan(mean) else f"{mean:.2f}({std:.2f})"


def _table(title: str, mean: pd.DataFrame, std: pd.DataFrame, *, best: Literal["min", "max"]) -> Table:
    printed = mean.round(2)  # two losses that print the same best number are both marked
    entries = tuple(tuple(map(entry, *rows)) for rows in zip(mean.to_numpy(), std.to_numpy(), strict=True))
    marks = tuple(tuple(row) for row in (printed == printed.agg(best)).to_numpy())
    return Table(title, tuple(map(column, mean.columns)), tuple(mean.index), entries, marks)


def paper_frames(losses: Sequence[str]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The paper's average ranks and their standard deviations, empty for losses that it does not have."""
    pandas = optional("pandas", "bench")
    columns = [*KS, "overall"]
    empty = ((math.nan, math.nan),) * len(columns)
    rows = [LEADERBOARD.get(loss, empty) for loss in losses]
    mean, std = ([[pair[i] for pair in row] for row in rows] for i in (0, 1))
    return pandas.DataFrame(mean, losses, columns), pandas.DataFrame(std, losses, columns)


def leaderboard(ranking: Ranking) -> tuple[Table, Table]:
    """Our average ranks, and the paper's of the same losses in the same order."""
    title = f"Average rank in {ranking.settings} settings (standard deviation)"
    ours = _table(title, ranking.mean, ranking.std, best="min")
    return ours, _table("The paper's average rank", *paper_frames(ours.losses), best="min")


def accuracy(content: Content, dataset: str, noise: str, rate: float) -> Table | None:
    """Test accuracy in percent of every loss on one data set with one noise; None where there are no results."""
    rows = content.accuracies.query("dataset == @dataset and noise == @noise and rate == @rate")
    if rows.empty:
        return None
    losses = [loss for loss in content.losses if loss in set(rows["loss"])]
    mean, std = (100 * rows.pivot(index="loss", columns="k", values=value).loc[losses] for value in ("mean", "std"))
    title = f"Test accuracy on {dataset}, {noise_label(noise, rate)} noise, in percent (standard deviation)"
    return _table(title.replace("clean noise", "clean labels"), mean, std, best="max")


def markdown(*tables: Table) -> str:
    """Tables of the same losses side by side, columns aligned in the source too."""
    header = ["loss", *(name for table in tables for name in table.columns)]
    rows = [[f"`{loss}`"] for loss in tables[0].losses]
    for table in tables:
        for row, entries, best in zip(rows, table.entries, table.best, strict=True):
            row += [f"**{text}**" if bold and text else text for text, bold in zip(entries, best, strict=True)]
    widths = [max(map(len, texts)) for texts in zip(header, *rows, strict=True)]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    lines = [
        " | ".join(
            [row[0].ljust(widths[0]), *(text.rjust(width) for text, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in (header, rule, *rows)
    ]
    return "".join(f"| {line} |\n" for line in lines)


def latex(table: Table) -> str:
    """A tabular that needs no package."""
    lines = [rf"\begin{{tabular}}{{l{'r' * len(table.columns)}}}", r"\hline"]
    lines += [" & ".join(["loss", *map(latex_text, table.columns)]) + r" \\", r"\hline"]
    for loss, entries, best in zip(table.losses, table.entries, table.best, strict=True):
        marked = (rf"\textbf{{{text}}}" if bold and text else text for text, bold in zip(entries, best, strict=True))
        lines.append(" & ".join([latex_text(loss), *marked]) + r" \\")
    return "\n".join([*lines, r"\hline", r"\end{tabular}", ""])


def latex_text(text: str) -> str:
    """Text with LaTeX's special characters escaped."""
    return "".join(_LATEX.get(character, character) for character in text)


def _float(*tables: Table) -> str:
    """A LaTeX float with one tabular above the other: thirteen columns would not fit a page."""
    parts = [f"\\caption{{{latex_text(table.title)}}}\n\\smallskip\n{latex(table)}" for table in tables]
    body = "\\par\\medskip\n".join(parts)
    return f"\\begin{{table}}[htbp]\n\\centering\n\\small\n{body}\\end{{table}}\n"


def leaderboard_csv(ranking: Ranking) -> pd.DataFrame:
    """One row per loss and k, unrounded, with the paper's figures beside ours."""
    frames = (ranking.mean, ranking.std, *paper_frames(tuple(ranking.mean.index)))
    rows = [(loss, k, *(frame.loc[loss, k] for frame in frames)) for loss in frames[0].index for k in frames[0].columns]
    return optional("pandas", "bench").DataFrame(rows, columns=["loss", "k", "mean", "std", "paper_mean", "paper_std"])  # type: ignore[no-any-return]


def write_tables(content: Content, folder: Path) -> Iterator[Path]:
    """Write all tables into a folder and name the files.

    Args:
        content: The results.
        folder: Where to write; it must exist.
    """

    def write(name: str, text: str) -> Path:
        path = folder / name
        path.write_text(text, encoding="utf-8")
        return path

    if content.ranking is not None:
        ours, paper = leaderboard(content.ranking)
        named = Table(paper.title, tuple(f"paper {c}" for c in paper.columns), paper.losses, paper.entries, paper.best)
        yield write("leaderboard.md", f"{ours.title}\n\n{markdown(ours, named)}")
        yield write("leaderboard.tex", _float(ours, paper))
        yield write("leaderboard.csv", leaderboard_csv(content.ranking).to_csv(index=False))
    yield write("accuracy.csv", content.accuracies.to_csv(index=False))
    for dataset in content.datasets:
        found = (accuracy(content, dataset, noise, rate) for noise, rate in content.noises)
        tables = [table for table in found if table is not None]
        yield write(f"accuracy-{dataset}.md", "\n".join(f"### {table.title}\n\n{markdown(table)}" for table in tables))
        yield write(f"accuracy-{dataset}.tex", "\n".join(map(_float, tables)))
