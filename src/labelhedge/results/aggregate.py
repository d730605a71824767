"""From trained networks to a leaderboard: the chosen configurations, their accuracies, ranks and significance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from labelhedge._errors import UserError
from labelhedge._optional import optional
from labelhedge.results.schema import CELL, CONFIGURATION, TEST

if TYPE_CHECKING:
    import pandas as pd

SETTING = ("dataset", "noise", "rate")
"""What losses are compared in: one data set with one noise."""
_ROUNDING = 1e-12  # a smaller difference between two mean accuracies comes from the order of a sum, not from a sample


def one_protocol(rows: pd.DataFrame, protocol: str | None = None) -> pd.DataFrame:
    """The rows of one protocol, because accuracies under two protocols must not be averaged.

    Args:
        rows: Networks or traces.
        protocol: The protocol wanted; needed only where there are several.
    """
    known = rows.groupby("protocol")["dataset"].unique()
    listed = ", ".join(f"{name} ({', '.join(sorted(datasets))})" for name, datasets in known.items())
    if protocol is None and len(known) > 1:
        raise UserError(f"there are results of {len(known)} protocols, choose one with --protocol: {listed}")
    if protocol is not None and protocol not in known:
        raise UserError(f"there are no results of protocol {protocol!r}, only of: {listed}")
    return rows if protocol is None else rows[rows["protocol"] == protocol]


def choose(networks: pd.DataFrame, within: Sequence[str] = CELL) -> pd.DataFrame:
    """The networks of the configuration that each cell chooses by validation accuracy; test accuracy plays no part.

    Args:
        networks: Rows of :func:`labelhedge.results.load`, of any number of cells.
        within: The columns that name a cell. With ``params`` among them every choice of hyperparameters has a learning
            rate and a weight decay chosen for it.

    Returns:
        In each cell the rows, one per fold, of the configuration with the highest mean ``val_top1``, in their order
        and with their index. Of equal configurations the first one wins; one with an empty ``val_top1`` loses.
    """
    columns = list(dict.fromkeys([*within, *CONFIGURATION]))
    cell = networks.groupby(list(within), sort=False, dropna=False).ngroup().to_numpy()
    configuration = networks.groupby(columns, sort=False, dropna=False).ngroup().to_numpy()
    means = np.bincount(configuration, networks["val_top1"].to_numpy(float)) / np.bincount(configuration)
    mean = np.nan_to_num(means, nan=-np.inf)[configuration]
    best = np.full(len(networks), -np.inf)
    np.maximum.at(best, cell, mean)
    winners = mean >= best[cell] - _ROUNDING
    first = np.full(len(networks), len(networks))  # configurations are numbered in the order of the rows
    np.minimum.at(first, cell[winners], configuration[winners])
    chosen: pd.DataFrame = networks[configuration == first[cell]]
    return chosen


def accuracies(chosen: pd.DataFrame) -> pd.DataFrame:
    """Mean and standard deviation of the test accuracies over folds and seeds.

    Args:
        chosen: Rows of :func:`choose`, of one protocol.

    Returns:
        One row per data set, noise, rate, loss and k, with ``mean``, ``std`` (that of the population: ddof = 0;
        empty for a single network) and the number of ``networks``. There is no row where a test accuracy is empty.
    """
    long = one_protocol(chosen).melt([*SETTING, "loss"], list(TEST), "k", "accuracy")
    long["k"] = long["k"].str.removeprefix("test_top").astype(int)
    return _mean_and_std(long, [*SETTING, "loss", "k"], "accuracy")


def tuning(networks: pd.DataFrame) -> pd.DataFrame:
    """Mean and standard deviation of the validation top-1 over folds and seeds, for each choice of hyperparameters.

    Args:
        networks: All networks of one protocol. Cells that tried a single choice are left out: they compare nothing.

    Returns:
        One row per data set, noise, rate, loss and ``params``, with ``mean``, ``std`` and ``networks`` as in
        :func:`accuracies`, each with the learning rate and weight decay that :func:`choose` finds for it.
    """
    choices = one_protocol(networks).groupby(list(CELL))["params"].transform("nunique")
    chosen = choose(networks[choices > 1], (*CELL, "params"))
    return _mean_and_std(chosen, [*SETTING, "loss", "params"], "val_top1")


def running_time(chosen: pd.DataFrame) -> pd.DataFrame:
    """Mean and standard deviation of the seconds per epoch of one network over noises, folds and seeds.

    Args:
        chosen: Rows of :func:`choose`, of one protocol.

    Returns:
        One row per data set and loss, with ``mean``, ``std`` and ``networks`` as in :func:`accuracies`.
    """
    rows = one_protocol(chosen).assign(seconds=chosen["seconds"] / chosen["epochs"])
    return _mean_and_std(rows, ["dataset", "loss"], "seconds")


def _mean_and_std(rows: pd.DataFrame, keys: list[str], value: str) -> pd.DataFrame:
    """One row per group that has no empty value."""
    groups = rows.groupby(keys, sort=True)[value]
    table = groups.agg(mean="mean", networks="size", present="count")
    table.insert(1, "std", groups.std(ddof=0).where(table["networks"] > 1))
    complete: pd.DataFrame = table[table["present"] == table["networks"]]
    return complete.drop(columns="present").reset_index()


@dataclass(frozen=True)
class Ranking:
    """Ranks of losses, 1 is best.

    Attributes:
        by_setting: One row per data set, noise, rate and k (the index), one column per loss.
        left_out: The settings (data set, noise, rate) that do not count, each with the losses it has no result of.
    """

    by_setting: pd.DataFrame
    left_out: dict[tuple[str, str, float], tuple[str, ...]]

    @property
    def mean(self) -> pd.DataFrame:
        """Average rank: one row per loss, best overall first; columns 1 to 5 for the k, and ``overall``."""
        table = self.by_setting.groupby(level="k").mean().T
        table["overall"] = self.by_setting.mean()
        return table.sort_values("overall", kind="stable")

    @property
    def std(self) -> pd.DataFrame:
        """Standard deviation (ddof = 0) of the ranks, in the shape and order of :attr:`mean`."""
        table = self.by_setting.groupby(level="k").std(ddof=0).T
        table["overall"] = self.by_setting.std(ddof=0)
        return table.loc[self.mean.index]

    @property
    def settings(self) -> int:
        """The number of settings that count."""
        return self.by_setting.groupby(level=list(SETTING)).ngroups


def ranks(accuracies: pd.DataFrame) -> Ranking:
    """Rank the losses by mean accuracy in each data set, noise, rate and k; equal ones share the average rank.

    Args:
        accuracies: The table of :func:`accuracies`. All losses in it are compared, and only in the settings that have a
            result of every one of them.
    """
    table = accuracies.pivot(index=[*SETTING, "k"], columns="loss", values="mean")
    missing = table.isna().groupby(level=list(SETTING)).any()
    rows = zip(missing.index, missing.to_numpy(), strict=True)
    left_out = {setting: tuple(missing.columns[row]) for setting, row in rows if row.any()}
    counts = table[~table.isna().groupby(level=list(SETTING)).transform("any").any(axis="columns")]
    digits = -round(math.log10(_ROUNDING))
    return Ranking(counts.round(digits).rank(axis="columns", ascending=False), left_out)


@dataclass(frozen=True)
class Significance:
    """Friedman's test, and Nemenyi's critical difference between average ranks.

    Attributes:
        ranks: The average ranks compared, best first.
        settings: How many settings were the blocks of the test.
        statistic: Friedman's chi-squared.
        p: Its p-value: how likely such ranks are if all losses are equally good.
        alpha: The level of the critical difference.
        critical_difference: Average ranks that are at least this far apart differ significantly.
        groups: The largest sets of neighbouring losses of which no two differ significantly.
    """

    ranks: dict[str, float]
    settings: int
    statistic: float
    p: float
    alpha: float
    critical_difference: float
    groups: tuple[tuple[str, ...], ...]


def significance(ranking: Ranking, alpha: float = 0.05) -> Significance | None:
    """Compare the losses by their ranks at k = 1, as Demšar (JMLR 7, 2006) describes.

    The blocks are the settings. Those of one data set are not independent, so the p-value is too small and the critical
    difference too narrow.

    Args:
        ranking: The ranks of the losses.
        alpha: The significance level, in (0, 1).

    Returns:
        None for fewer than three losses or two settings, which Friedman's test cannot compare.
    """
    blocks = ranking.by_setting[ranking.by_setting.index.get_level_values("k") == 1]
    settings, losses = blocks.shape
    if losses < 3 or settings < 2:
        return None
    if (blocks.nunique(axis="columns") == 1).all():
        statistic, p = 0.0, 1.0  # nothing but ties, for which the formula is 0/0
    else:
        statistic, p = optional("scipy.stats", "report").friedmanchisquare(*blocks.to_numpy().T)
    difference = critical_difference(losses, settings, alpha)
    averages = {str(loss): float(rank) for loss, rank in blocks.mean().sort_values(kind="stable").items()}
    groups = _groups(tuple(averages), tuple(averages.values()), difference)
    return Significance(averages, settings, float(statistic), float(p), alpha, difference, groups)


def critical_difference(losses: int, settings: int, alpha: float = 0.05) -> float:
    """Nemenyi's critical difference q √(L(L+1)/6N) of the average ranks of L losses in N settings."""
    q = optional("scipy.stats", "report").studentized_range.ppf(1 - alpha, losses, math.inf) / math.sqrt(2)
    return float(q * math.sqrt(losses * (losses + 1) / (6 * settings)))


def _groups(losses: Sequence[str], averages: Sequence[float], difference: float) -> tuple[tuple[str, ...], ...]:
    groups: list[tuple[int, int]] = []
    for start, average in enumerate(averages):
        end = start
        while end < len(losses) and averages[end] - average < difference:
            end += 1
        inside_the_last = bool(groups) and end <= groups[-1][1]
        if end - start > 1 and not inside_the_last:
            groups.append((start, end))
    return tuple(tuple(losses[start:end]) for start, end in groups)
