"""What each choice of hyperparameters reaches in validation, as tables and files: the paper's study of λ and λ0."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from labelhedge._files import write_whole
from labelhedge._foreign import file_name, markdown_text, no_formulas
from labelhedge._optional import optional
from labelhedge.report.content import Content
from labelhedge.report.names import choice, choice_order, noise_label, noise_order
from labelhedge.report.paper import HYPERPARAMETERS
from labelhedge.report.tables import Table, entry, in_percent, latex, latex_float, markdown

if TYPE_CHECKING:
    import pandas as pd

_WIDTH = 6
"""The columns that stand side by side, as in the paper; a loss with more has them to itself."""


def hyperparameters(content: Content, dataset: str) -> list[tuple[Table, ...]]:
    """Validation top-1 by noise for each choice of hyperparameters: one table per loss, some of them side by side.

    Args:
        content: The results.
        dataset: A data set; where the paper has such numbers of it, they follow ours.

    Returns:
        Tables that stand side by side have the same title and rows. There are none where no loss had a choice.
    """
    rows = content.tuning[content.tuning["dataset"] == dataset]
    found = _side_by_side(f"Validation top-1 on {dataset}, {in_percent(rows)}", rows, content.losses)
    if found and dataset == "cifar-100":
        papers = _papers([loss for loss in content.losses if loss in set(rows["loss"])])
        found += _side_by_side("The paper's validation top-1 on cifar-100", papers, content.losses)
    return found


def _side_by_side(title: str, rows: pd.DataFrame, losses: Iterable[str]) -> list[tuple[Table, ...]]:
    settings = rows[["noise", "rate"]].drop_duplicates().itertuples(index=False, name=None)
    noises = sorted(settings, key=lambda noise: noise_order(*noise))
    lines: list[tuple[Table, ...]] = []
    for table in (_of_loss(title, rows, loss, noises) for loss in losses if loss in set(rows["loss"])):
        if lines and sum(len(t.columns) for t in (*lines[-1], table)) <= _WIDTH:
            lines[-1] += (table,)
        else:
            lines.append((table,))
    return lines


def _of_loss(title: str, rows: pd.DataFrame, loss: str, noises: list[tuple[str, float]]) -> Table:
    own = rows[rows["loss"] == loss]
    choices = sorted(own["params"].unique(), key=choice_order)
    mean, std = (
        100 * own.pivot(index=["noise", "rate"], columns="params", values=value).reindex(index=noises, columns=choices)
        for value in ("mean", "std")
    )
    printed = mean.round(2)
    best = printed.eq(printed.max(axis="columns"), axis="index").to_numpy()
    return Table(
        title=title,
        kind="noise",
        rows=tuple(noise_label(*noise) for noise in noises),
        columns=tuple(map(choice, choices)),
        entries=tuple(tuple(map(entry, *pair)) for pair in zip(mean.to_numpy(), std.to_numpy(), strict=True)),
        best=tuple(map(tuple, best)),
        group=loss,
    )


def _papers(losses: Iterable[str]) -> pd.DataFrame:
    names = {"ldr-kl": "lam", "aldr-kl": "lambda0"}
    rows = [
        (*noise, loss, json.dumps({names[loss]: value}), mean / 100, std / 100)
        for loss in losses
        for noise, pairs in HYPERPARAMETERS.get(loss, {}).items()
        for value, (mean, std) in zip((0.1, 1.0, 10.0), pairs, strict=True)
    ]
    columns = ["noise", "rate", "loss", "params", "mean", "std"]
    return optional("pandas", "bench").DataFrame(rows, columns=columns)  # type: ignore[no-any-return]


def write_hyperparameters(content: Content, folder: Path) -> Iterator[Path]:
    """Write these tables into a folder and name the files; none where no loss had a choice.

    Args:
        content: The results.
        folder: Where to write.
    """
    if content.tuning.empty:
        return
    yield write_whole(folder / "hyperparameters.csv", no_formulas(content.tuning).to_csv(index=False))
    for dataset in content.datasets:
        found = [(", ".join(t.group for t in line), line) for line in hyperparameters(content, dataset)]
        if found:
            titled = [(markdown_text(f"{line[0].title}: {losses}"), markdown(*line)) for losses, line in found]
            sections = "\n".join(f"### {title}\n\n{tables}" for title, tables in titled)
            yield write_whole(folder / f"hyperparameters-{file_name(dataset)}.md", sections)
            floats = "\n".join(latex_float((f"{line[0].title}: {losses}", latex(*line))) for losses, line in found)
            yield write_whole(folder / f"hyperparameters-{file_name(dataset)}.tex", floats)
