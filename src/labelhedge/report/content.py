"""What a report is made from: all that tables, figures and page show, computed once."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from labelhedge._errors import UserError
from labelhedge._foreign import plain
from labelhedge.report.names import highlighted, noise_order
from labelhedge.report.paper import LEADERBOARD
from labelhedge.results import load, load_traces
from labelhedge.results.aggregate import (
    SETTING,
    Ranking,
    Significance,
    accuracies,
    choose,
    one_protocol,
    ranks,
    running_time,
    significance,
    tuning,
)
from labelhedge.results.schema import CELL, CONFIGURATION

if TYPE_CHECKING:
    import pandas as pd

MEASURES = ("train_loss", "val_top1", "val_clean_top1", "lam_clean", "lam_flipped")
KS = (1, 2, 3, 4, 5)


@dataclass(frozen=True)
class Content:
    """The results of one protocol, aggregated.

    Attributes:
        networks: Every network that was trained.
        accuracies: Mean and std of the test accuracies of the chosen networks.
        curves: Mean of each of :data:`MEASURES` over folds and seeds; index data set, noise, rate, loss, epoch. The λ
            are divided by the λ0 that was chosen, so that seeds and settings which chose another λ0 can be compared.
        spread: Their standard deviations (ddof = 0).
        tuning: Mean and std of the validation top-1, for each choice of hyperparameters.
        running_time: Mean and std of the seconds per epoch of the chosen networks.
        losses: Best first, where there are ranks.
        ranking: None for a single loss, or where no setting has results of all losses.
        significance: None where Friedman's test cannot be made.
        left_out: The settings without results of all losses, each with those it lacks.
    """

    networks: pd.DataFrame
    accuracies: pd.DataFrame
    curves: pd.DataFrame
    spread: pd.DataFrame
    tuning: pd.DataFrame
    running_time: pd.DataFrame
    losses: tuple[str, ...]
    ranking: Ranking | None
    significance: Significance | None
    left_out: dict[tuple[str, str, float], tuple[str, ...]]

    @property
    def protocol(self) -> str:
        """The protocol of all results."""
        return str(self.networks["protocol"].iloc[0])

    @property
    def datasets(self) -> list[str]:
        """The data sets, in alphabetical order."""
        return sorted(self.networks["dataset"].unique())

    @property
    def noises(self) -> list[tuple[str, float]]:
        """The noises and their rates, clean first."""
        rows = self.networks[["noise", "rate"]].drop_duplicates().itertuples(index=False, name=None)
        return sorted(rows, key=lambda noise: noise_order(*noise))

    @property
    def seconds(self) -> pd.DataFrame:
        """Seconds per epoch of one network; one row per loss, one column per data set."""
        return self.running_time.pivot(index="loss", columns="dataset", values="mean")

    @property
    def highlighted(self) -> tuple[str, ...]:
        """The losses that are drawn in colour."""
        return highlighted(self.losses)


def gather(root: str | os.PathLike[str], protocol: str | None = None) -> Content:
    """Read and aggregate the results in a folder.

    Args:
        root: The folder that ``labelhedge bench --out`` has filled.
        protocol: The protocol to report on; needed only where there are several.
    """
    if "://" not in os.fspath(root) and not Path(root).is_dir():
        raise UserError(f"the folder {Path(root)} does not exist")
    networks = one_protocol(_printable(load(root)), protocol)
    for params in networks["params"].unique():
        if not _are_numbers(params):
            raise UserError(f"{root} has a result whose params are not numbers in JSON: {params}")
    twice = networks[networks.duplicated([*CELL, *CONFIGURATION, "fold"])]
    if not twice.empty:
        which = ", ".join(f"{name} {value}" for name, value in twice.iloc[0][list(CELL)].items())
        raise UserError(f"{root} has a result twice, of {which}; remove the file that is too many")
    traces = _printable(load_traces(root))
    traces = traces[traces["protocol"] == networks["protocol"].iloc[0]]
    chosen = choose(networks)
    means = accuracies(chosen)
    ranking = ranks(means)
    curves = _relative_lambda(traces, chosen).groupby([*SETTING, "loss", "epoch"])[list(MEASURES)]
    compared = len(ranking.by_setting.columns) > 1 and ranking.settings > 0
    return Content(
        networks=networks,
        accuracies=means,
        curves=curves.mean(),
        spread=curves.std(ddof=0),
        tuning=tuning(networks),
        running_time=running_time(chosen),
        losses=tuple(ranking.mean.index) if compared else _in_papers_order(networks["loss"].unique()),
        ranking=ranking if compared else None,
        significance=significance(ranking) if compared else None,
        left_out=ranking.left_out,
    )


def _printable(rows: pd.DataFrame) -> pd.DataFrame:
    """Names and other texts without what a terminal obeys: the results may be a stranger's."""
    texts = rows.select_dtypes(exclude="number")
    printable = {name: {text: plain(text) for text in column.unique()} for name, column in texts.items()}
    return rows.assign(**{str(name): rows[name].map(plains) for name, plains in printable.items()})


def _are_numbers(params: str) -> bool:
    """Whether this is a JSON object of numbers."""
    try:
        found = json.loads(params or "{}")
    except ValueError:
        return False
    return isinstance(found, dict) and all(isinstance(value, (int, float)) for value in found.values())


def _in_papers_order(losses: Iterable[str]) -> tuple[str, ...]:
    paper = list(LEADERBOARD)
    return tuple(sorted(losses, key=lambda loss: (paper.index(loss) if loss in paper else len(paper), loss)))


def _relative_lambda(traces: pd.DataFrame, chosen: pd.DataFrame) -> pd.DataFrame:
    network = [*CELL, "fold"]
    lambda0 = chosen["params"].map(lambda params: json.loads(params or "{}").get("lambda0", 1.0)).astype(float)
    rows = traces.merge(chosen[network].assign(lambda0=lambda0), on=network, how="left", validate="many_to_one")
    for column in ("lam_clean", "lam_flipped"):
        rows[column] = rows[column] / rows["lambda0"]
    return rows
