"""Tables as Markdown and LaTeX; the leaderboard and the accuracies, which are CSV too."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from labelhedge._files import write_whole
from labelhedge._foreign import file_name, markdown_text, no_formulas
from labelhedge._optional import optional
from labelhedge.report.content import KS, Content
from labelhedge.report.names import column, noisy_labels
from labelhedge.report.paper import LEADERBOARD

if TYPE_CHECKING:
    import pandas as pd

    from labelhedge.results.aggregate import Ranking

_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "λ0": r"$\lambda_0$",  # before λ
    "λ": r"$\lambda$",
    "α": r"$\alpha$",
    "β": r"$\beta$",
    "π1": r"$\pi_1$",
    "τ": r"$\tau$",
}
_SPECIAL = re.compile("|".join(map(re.escape, _LATEX)))


@dataclass(frozen=True)
class Table:
    """Entries as they are printed: mean(std), the best ones marked.

    Attributes:
        title: What the numbers are.
        kind: What the rows are: losses, or noises.
        rows: The names of the rows.
        columns: The names of the columns.
        entries: One tuple per row.
        best: In the shape of the entries.
        group: What stands above all columns; nothing by default.
    """

    title: str
    kind: Literal["loss", "noise"]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    entries: tuple[tuple[str, ...], ...]
    best: tuple[tuple[bool, ...], ...]
    group: str = ""


def entry(mean: float, std: float, decimals: int = 2) -> str:
    """``mean(std)``, ``mean`` of a single number, nothing where there is none."""
    if math.isnan(mean):
        return ""
    return f"{mean:.{decimals}f}" + ("" if math.isnan(std) else f"({std:.{decimals}f})")


def in_percent(rows: pd.DataFrame) -> str:
    """What a table of these rows' ``mean`` and ``std`` has in it; single networks have no standard deviation."""
    return "in percent" + " (standard deviation)" * bool(rows["std"].notna().any())


def _table(title: str, mean: pd.DataFrame, std: pd.DataFrame, *, best: Literal["min", "max"]) -> Table:
    printed = mean.round(2)  # two losses that print the same best number are both marked
    entries = tuple(tuple(map(entry, *rows)) for rows in zip(mean.to_numpy(), std.to_numpy(), strict=True))
    marks = tuple(tuple(row) for row in (printed == printed.agg(best)).to_numpy())
    return Table(title, "loss", tuple(mean.index), tuple(map(column, mean.columns)), entries, marks)


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
    return ours, _table("The paper's average rank", *paper_frames(ours.rows), best="min")


def accuracy(content: Content, dataset: str, noise: str, rate: float) -> Table | None:
    """Test accuracy in percent of every loss on one data set with one noise; None where there are no results."""
    rows = content.accuracies.query("dataset == @dataset and noise == @noise and rate == @rate")
    if rows.empty:
        return None
    losses = [loss for loss in content.losses if loss in set(rows["loss"])]
    mean, std = (100 * rows.pivot(index="loss", columns="k", values=value).loc[losses] for value in ("mean", "std"))
    title = f"Test accuracy on {dataset}, {noisy_labels(noise, rate)}, {in_percent(rows)}"
    return _table(title, mean, std, best="max")


def markdown(*tables: Table) -> str:
    """Tables with the same rows side by side, columns aligned in the source too."""
    kind = tables[0].kind
    header = [kind, *(markdown_text(f"{table.group} {name}".lstrip()) for table in tables for name in table.columns)]
    rows = [[_code(row) if kind == "loss" else markdown_text(row)] for row in tables[0].rows]
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


def _code(name: str) -> str:
    """A loss as code, unless its name would end that."""
    return f"`{name}`" if re.fullmatch(r"[\w@+.-]+", name) else markdown_text(name)


def latex(*tables: Table) -> str:
    """A tabular that needs no package, of tables with the same rows side by side."""
    grouped = any(table.group for table in tables)
    columns = "".join("|" * grouped + "r" * len(table.columns) for table in tables)
    lines = [rf"\begin{{tabular}}{{l{columns}}}", r"\hline"]
    if grouped:
        groups = [rf"\multicolumn{{{len(t.columns)}}}{{c}}{{{latex_text(t.group)}}}" for t in tables]
        lines.append(" & ".join(["", *groups]).lstrip() + r" \\")
    header = [tables[0].kind, *(name for table in tables for name in table.columns)]
    lines += [" & ".join(map(latex_text, header)) + r" \\", r"\hline"]
    for number, name in enumerate(tables[0].rows):
        marked = (
            rf"\textbf{{{text}}}" if bold and text else text
            for table in tables
            for text, bold in zip(table.entries[number], table.best[number], strict=True)
        )
        lines.append(" & ".join([latex_text(name), *marked]) + r" \\")
    return "\n".join([*lines, r"\hline", r"\end{tabular}", ""])


def latex_text(text: str) -> str:
    """Text with LaTeX's special characters escaped, and Greek letters in its way."""
    return _SPECIAL.sub(lambda match: _LATEX[match[0]], text)


def latex_float(*tabulars: tuple[str, str]) -> str:
    """A LaTeX float with captions and tabulars, one above the other: thirteen columns would not fit a page."""
    parts = [f"\\caption{{{latex_text(caption)}}}\n\\smallskip\n{tabular}" for caption, tabular in tabulars]
    body = "\\par\\medskip\n".join(parts)
    return f"\\begin{{table}}[htbp]\n\\centering\n\\small\n{body}\\end{{table}}\n"


def leaderboard_csv(ranking: Ranking) -> pd.DataFrame:
    """One row per loss and k, unrounded, with the paper's figures beside ours."""
    frames = (ranking.mean, ranking.std, *paper_frames(tuple(ranking.mean.index)))
    rows = [(loss, k, *(frame.loc[loss, k] for frame in frames)) for loss in frames[0].index for k in frames[0].columns]
    return optional("pandas", "bench").DataFrame(rows, columns=["loss", "k", "mean", "std", "paper_mean", "paper_std"])  # type: ignore[no-any-return]


def write_tables(content: Content, folder: Path) -> Iterator[Path]:
    """Write leaderboard and accuracies into a folder and name the files.

    Args:
        content: The results.
        folder: Where to write.
    """
    if content.ranking is not None:
        ours, paper = leaderboard(content.ranking)
        beside = markdown(ours, replace(paper, group="paper"))
        yield write_whole(folder / "leaderboard.md", f"{ours.title}\n\n{beside}")
        yield write_whole(folder / "leaderboard.tex", latex_float(*((t.title, latex(t)) for t in (ours, paper))))
        yield write_whole(folder / "leaderboard.csv", no_formulas(leaderboard_csv(content.ranking)).to_csv(index=False))
    yield write_whole(folder / "accuracy.csv", no_formulas(content.accuracies).to_csv(index=False))
    for dataset in content.datasets:
        found = (accuracy(content, dataset, noise, rate) for noise, rate in content.noises)
        tables = [table for table in found if table is not None]
        sections = "\n".join(f"### {markdown_text(table.title)}\n\n{markdown(table)}" for table in tables)
        yield write_whole(folder / f"accuracy-{file_name(dataset)}.md", sections)
        floats = "\n".join(latex_float((table.title, latex(table))) for table in tables)
        yield write_whole(folder / f"accuracy-{file_name(dataset)}.tex", floats)
