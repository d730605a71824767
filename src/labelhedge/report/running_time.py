"""Seconds per epoch of each loss on each data set, as a table and files, with the paper's beside."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from labelhedge._files import write_whole
from labelhedge._foreign import no_formulas
from labelhedge._optional import optional
from labelhedge.report.content import Content
from labelhedge.report.paper import LEADERBOARD, RUNNING_TIME
from labelhedge.report.tables import Table, entry, latex, latex_float, markdown

if TYPE_CHECKING:
    import pandas as pd

_TITLE = "Seconds per epoch of one network: mean (standard deviation) over noises, folds and seeds"
_SHARE = (
    "They are those of the chosen configurations. Networks are trained many at once, and the time of one "
    "is its share of theirs."
)
_PAPERS = "The paper's are from a GeForce GTX 1080 Ti."


def running_time(content: Content) -> list[Table]:
    """Our seconds per epoch, and the paper's where it has any of these data sets and losses."""
    tables = [_table(_TITLE, content.running_time, content)]
    paper = _papers()
    paper = paper[paper["dataset"].isin(content.datasets) & paper["loss"].isin(content.losses)]
    if not paper.empty:
        tables.append(_table("The paper's seconds per epoch", paper, content))
    return tables


def caption(tables: Sequence[Table]) -> str:
    """What these tables show."""
    return " ".join([f"{tables[0].title}.", _SHARE, *[_PAPERS] * (len(tables) - 1)])


def _table(title: str, rows: pd.DataFrame, content: Content) -> Table:
    mean, std = (rows.pivot(index="loss", columns="dataset", values=v).reindex(content.losses) for v in ("mean", "std"))
    columns = [_entries(mean[dataset], std[dataset]) for dataset in mean.columns]
    nothing = tuple((False,) * len(columns) for _ in content.losses)
    return Table(title, "loss", content.losses, tuple(mean.columns), tuple(zip(*columns, strict=True)), nothing)


def _entries(mean: pd.Series[float], std: pd.Series[float]) -> list[str]:
    """``mean(std)`` with three digits of the least mean, and as many decimals everywhere."""
    least = mean[mean > 0].min()
    decimals = 2 if math.isnan(least) else max(0, 2 - math.floor(math.log10(least)))
    return [entry(*pair, decimals) for pair in zip(mean, std, strict=True)]


def _papers() -> pd.DataFrame:
    rows = [
        (dataset, loss, mean, std)
        for dataset, times in RUNNING_TIME.items()
        for loss, mean, std in zip(LEADERBOARD, *times, strict=True)
    ]
    return optional("pandas", "bench").DataFrame(rows, columns=["dataset", "loss", "mean", "std"])  # type: ignore[no-any-return]


def running_time_csv(content: Content) -> pd.DataFrame:
    """One row per data set and loss, unrounded, with the paper's figures beside ours."""
    papers = _papers().rename(columns={"mean": "paper_mean", "std": "paper_std"})
    return content.running_time.merge(papers, on=["dataset", "loss"], how="left")


def write_running_time(content: Content, folder: Path) -> Iterator[Path]:
    """Write this table into a folder and name the files.

    Args:
        content: The results.
        folder: Where to write.
    """
    ours, *paper = tables = running_time(content)
    beside = markdown(ours, *(replace(table, group="paper") for table in paper))
    yield write_whole(folder / "running_time.md", f"{caption(tables)}\n\n{beside}")
    captions = (caption(tables), *(table.title for table in paper))
    yield write_whole(folder / "running_time.tex", latex_float(*zip(captions, map(latex, tables), strict=True)))
    yield write_whole(folder / "running_time.csv", no_formulas(running_time_csv(content)).to_csv(index=False))
