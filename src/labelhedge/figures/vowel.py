"""Studies of Algorithm 1 on Vowel, one stack of networks each: λ of right and wrong labels, and convergence.

Networks, folds, weight decay and learning rates are those of the paper's benchmark.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from labelhedge._optional import optional
from labelhedge.bench.jobs import Job
from labelhedge.bench.protocol import PRESETS
from labelhedge.bench.run import task
from labelhedge.data import load
from labelhedge.figures._study import Study, reduced
from labelhedge.figures._style import BLUE, LINES, NORMAL, RED, describe, legend_below, new_figure
from labelhedge.noise.settings import PAPER, Setting
from labelhedge.train.stacked import Outcome, Trial, train

if TYPE_CHECKING:
    import pandas as pd

_PROTOCOL = PRESETS["paper"].protocol
_FOLDS = _PROTOCOL.folds
(_WEIGHT_DECAY,) = _PROTOCOL.weight_decays
_LEARNING_RATES = _PROTOCOL.learning_rates
_FIXED_RATE = 0.01
_LAMBDA0 = 1.0
_LABELLED = {"clean": "right label", "flipped": "wrong label"}


def lambda_vowel(seed: int = 0, *, effort: float = 1.0) -> Study:
    """λ of the samples with a right and with a wrong label by epoch, for λ0 1 and 10 under CD 0.1 and U 0.3."""
    settings = (Setting("class_dependent", 0.1), Setting("uniform", 0.3))
    cases = list(itertools.product((1.0, 10.0), range(len(settings))))
    trials = [Trial(_FIXED_RATE, _WEIGHT_DECAY, {"lambda0": lambda0}, noise) for lambda0, noise in cases]
    outcome = _train(settings, trials, seed, effort)
    rows = []
    for trial, (lambda0, noise) in enumerate(cases):
        for name in _LABELLED:
            values = getattr(outcome, f"lam_{name}")[:, trial]
            rows.append(_by_epoch(values, {"noise": settings[noise].id, "lambda0": lambda0, "labels": name}))
    data = optional("pandas", "report").concat(rows, ignore_index=True)
    return Study("λ of right and wrong labels on Vowel", _lambda_paragraph(data), data, _draw_lambda(data))


def convergence(seed: int = 0, *, effort: float = 1.0) -> Study:
    """The training loss of ALDR-KL by epoch, for margins 0.1, 1 and 10 and the seven kinds of noise."""
    margins = (0.1, 1.0, 10.0)
    cases = list(itertools.product(margins, range(len(PAPER)), _LEARNING_RATES))
    trials = [
        Trial(rate, _WEIGHT_DECAY, {"lambda0": _LAMBDA0, "margin": margin}, noise) for margin, noise, rate in cases
    ]
    outcome = _train(PAPER, trials, seed, effort)
    tuned = outcome.val_top1.mean(0).reshape(-1, len(_LEARNING_RATES)).argmax(1)  # the first of equals
    rows = []
    for place, best in enumerate(tuned):
        trial = place * len(_LEARNING_RATES) + int(best)
        margin, noise, rate = cases[trial]
        case = {"noise": PAPER[noise].id, "margin": margin, "learning_rate": rate}
        rows.append(_by_epoch(outcome.train_loss[:, trial], case))
    data = optional("pandas", "report").concat(rows, ignore_index=True)
    return Study("Convergence of ALDR-KL on Vowel", _convergence_paragraph(data), data, _draw_convergence(data))


def _train(settings: Sequence[Setting], trials: Sequence[Trial], seed: int, effort: float) -> Outcome:
    protocol = replace(_PROTOCOL, epochs=reduced(_PROTOCOL.epochs, effort))
    job = Job(protocol, "vowel", "aldr-kl", seed, tuple(settings))
    data = load(job.dataset, seed=seed)
    return train(task(data, job), protocol.cross_validation(data, seed), trials, job.loss, protocol.recipe(data))


def _by_epoch(values: Any, case: dict[str, Any]) -> pd.DataFrame:
    """Mean and standard deviation over the folds, the first axis of ``values``."""
    epochs = np.arange(1, values.shape[1] + 1)
    columns = {"epoch": epochs, "mean": values.mean(0), "std": values.std(0, ddof=1)}
    frame: pd.DataFrame = optional("pandas", "report").DataFrame(case | columns)
    return frame


def _lambda_paragraph(data: pd.DataFrame) -> str:
    last = data[data["epoch"] == data["epoch"].max()]
    wide = data.pivot(index=["lambda0", "noise", "epoch"], columns="labels", values="mean")
    gap = (wide["flipped"] - wide["clean"]).rename("gap").reset_index()
    relative = 100 * gap["gap"] / gap["lambda0"]
    final = gap[gap["epoch"] == gap["epoch"].max()]
    parts = []
    for lambda0, noise, difference in zip(final["lambda0"], final["noise"], final["gap"], strict=True):
        clean = last[(last["lambda0"] == lambda0) & (last["noise"] == noise) & (last["labels"] == "clean")].iloc[0]
        parts.append(
            f"{difference:+.4f} for λ0 = {lambda0:g} under {_noise(noise)} "
            f"(λ {clean['mean']:.3f}, standard deviation over the folds {clean['std']:.4f})"
        )
    higher = int((final["gap"] > 0).sum())
    return (
        f"λ of the training samples by epoch: mean and standard deviation over {_FOLDS} folds of the samples' mean, "
        f"learning rate {_FIXED_RATE:g}. At the last epoch wrong labels have the higher λ in {higher} of {len(final)} "
        f"cases; λ of wrong labels less λ of right ones is {'; '.join(parts)}. At no epoch is the difference more than "
        f"{relative.abs().max():.2f}% of λ0: the label itself enters λ through the margin alone."
    )


def _convergence_paragraph(data: pd.DataFrame) -> str:
    curves = data.pivot(index="epoch", columns=["margin", "noise"], values="mean")
    fallen = int((curves.iloc[-1] < curves.iloc[0]).sum())
    rise = curves.diff().max().max()
    ends = []
    for margin, end in data[data["epoch"] == data["epoch"].max()].groupby("margin"):
        low, high = end.loc[end["mean"].idxmin()], end.loc[end["mean"].idxmax()]
        ends.append(
            f"{low['mean']:.2f} ({_noise(low['noise'])}) to {high['mean']:.2f} ({_noise(high['noise'])}) "
            f"at c = {margin:g}"
        )
    spread = data.loc[data["epoch"] == data["epoch"].max(), "std"].max()
    return (
        f"Training loss of ALDR-KL (Algorithm 1, λ0 = {_LAMBDA0:g}): mean and standard deviation over {_FOLDS} folds, "
        f"at the learning rate of {', '.join(f'{rate:g}' for rate in _LEARNING_RATES)} with the best validation "
        f"accuracy. It is lower at the end than at the start in {fallen} of {curves.shape[1]} cases; the largest rise "
        f"from one epoch to the next is {rise:.3f}. It ends at {', '.join(ends)}, with a standard deviation of at most "
        f"{spread:.2f}. The loss may be negative: it has a factor 1/K inside the logarithm, and the margin c shifts it."
    )


def _noise(id: str) -> str:
    return id if id == "clean" else f"{id.rstrip('0123456789.').upper()} {id.lstrip('ucd')}"


def _draw_lambda(data: pd.DataFrame) -> Any:
    cases = data.groupby(["lambda0", "noise"], sort=False)
    figure = new_figure(4.0)
    panels = figure.subplots(2, 2, sharex=True, sharey="row")
    styles = {"clean": (BLUE, "-"), "flipped": (RED, (0, (4, 2)))}
    for panel, ((lambda0, noise), rows) in zip(panels.flat, cases, strict=True):
        for labels, (colour, line) in styles.items():
            _band(panel, rows[rows["labels"] == labels], _LABELLED[labels], color=colour, linestyle=line)
        describe(panel, title=f"λ0 = {lambda0:g}, {_noise(str(noise))}")
    for panel in panels[-1]:
        panel.set_xlabel("epoch", fontsize=NORMAL)
    for panel in panels[:, 0]:
        panel.set_ylabel("λ", fontsize=NORMAL)
    legend_below(figure, panels[0, 0], columns=2)
    return figure


def _draw_convergence(data: pd.DataFrame) -> Any:
    figure = new_figure(3.2)
    by_margin = data.groupby("margin", sort=False)
    panels = figure.subplots(1, len(by_margin), squeeze=False)[0]
    for panel, (margin, rows) in zip(panels, by_margin, strict=True):
        for style, (noise, curve) in zip(LINES, rows.groupby("noise", sort=False), strict=True):
            _band(panel, curve, _noise(str(noise)), **style)
        describe(panel, title=f"c = {margin:g}", x="epoch", y="training loss" if panel is panels[0] else "")
    legend_below(figure, panels[0], columns=7)
    return figure


def _band(panel: Any, rows: pd.DataFrame, label: str, **style: Any) -> None:
    panel.plot(rows["epoch"], rows["mean"], label=label, linewidth=1.4, **style)
    low, high = rows["mean"] - rows["std"], rows["mean"] + rows["std"]
    panel.fill_between(rows["epoch"], low, high, color=style["color"], alpha=0.18, linewidth=0)
