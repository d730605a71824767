"""The figures as SVG files, drawn through matplotlib's objects: no window, no global state."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labelhedge._files import write_whole
from labelhedge._optional import optional
from labelhedge._svg import svg
from labelhedge.report.content import Content
from labelhedge.report.critical_difference import diagram
from labelhedge.report.names import KINDS, LINES, has_rate, noise_label

if TYPE_CHECKING:
    import pandas as pd

_GREY = "#c4c8ce"
_ADAPTIVE = "aldr-kl"


def write_figures(content: Content, folder: Path) -> Iterator[Path]:
    """Draw what the results allow and name the files.

    Args:
        content: The results.
        folder: Where to write.
    """
    if content.significance is not None:
        yield write_whole(folder / "critical_difference.svg", diagram(content.significance))
    draw = {
        "accuracy_by_rate": accuracy_by_rate,
        "convergence": convergence,
        "training_loss": training_loss,
        "lambda": lambdas,
        "seconds_per_epoch": seconds_per_epoch,
    }
    for name, function in draw.items():
        figure = function(content)
        if figure is not None:
            yield write_whole(folder / f"{name}.svg", svg(figure))


def accuracy_by_rate(content: Content) -> Any:
    """Test top-1 accuracy against the noise rate: one row per data set, one column per kind of noise."""
    kinds = [noise for noise in dict.fromkeys(noise for noise, _ in content.noises) if has_rate(noise)]
    top1 = content.accuracies[content.accuracies["k"] == 1]
    datasets = sorted(top1.loc[top1["noise"].isin(kinds), "dataset"].unique())
    if not datasets:
        return None
    figure, panels = _grid(len(datasets), len(kinds), width=3.6, height=2.3)
    for dataset, row in zip(datasets, panels, strict=True):
        for kind, panel in zip(kinds, row, strict=True):
            rows = top1[(top1["dataset"] == dataset) & top1["noise"].isin(["clean", kind])]
            lines = {loss: group.set_index("rate")["mean"].sort_index() * 100 for loss, group in rows.groupby("loss")}
            _lines(panel, lines, content, marker="o")
    _label(panels, datasets, [KINDS.get(kind, kind) for kind in kinds], "noise rate", "test top-1, %")
    return _with_legend(figure, panels, content.highlighted)


def convergence(content: Content) -> Any:
    """Validation accuracy on the clean labels by epoch: one row per data set, one column per noise."""
    if content.curves["val_clean_top1"].isna().all():
        return None
    figure, panels = _grid(len(content.datasets), len(content.noises))
    for dataset, noise, panel in _settings(content, panels):
        curves = _of(content.curves["val_clean_top1"] * 100, dataset, noise)
        _lines(panel, {loss: curve.droplevel("loss") for loss, curve in curves.groupby(level="loss")}, content)
    _label(panels, content.datasets, _labels(content), "epoch", "clean validation top-1, %")
    return _with_legend(figure, panels, content.highlighted)


def training_loss(content: Content) -> Any:
    """Training loss of ALDR-KL by epoch, mean and standard deviation over folds and seeds: one panel per setting."""
    if _ADAPTIVE not in content.losses or content.curves["train_loss"].isna().all():
        return None
    figure, panels = _grid(len(content.datasets), len(content.noises), share_y=False)
    for dataset, noise, panel in _settings(content, panels):
        mean, std = (
            _of(frame["train_loss"], dataset, noise).loc[lambda s: s.index.get_level_values("loss") == _ADAPTIVE]
            for frame in (content.curves, content.spread)
        )
        epochs = mean.index.get_level_values("epoch")
        colour = LINES["light"][0]
        panel.plot(epochs, mean, color=colour)
        panel.fill_between(epochs, mean - std, mean + std, color=colour, alpha=0.2, linewidth=0)
    _label(panels, content.datasets, _labels(content), "epoch", f"{_ADAPTIVE} loss")
    return figure


def lambdas(content: Content) -> Any:
    """λ / λ0 of the samples with a right and with a wrong label by epoch, for the losses that have a λ per sample."""
    curves = content.curves[["lam_clean", "lam_flipped"]].dropna(how="all")
    if curves.empty:
        return None
    losses = [loss for loss in content.losses if loss in set(curves.index.get_level_values("loss"))]
    figure, panels = _grid(len(content.datasets), len(content.noises))
    styles = {"lam_clean": ("-", "right label"), "lam_flipped": ("--", "wrong label")}
    for dataset, noise, panel in _settings(content, panels):
        for loss, colour in zip(losses, LINES["light"], strict=False):
            for column, (style, name) in styles.items():
                curve = _of(curves[column], dataset, noise)
                curve = curve[curve.index.get_level_values("loss") == loss]
                panel.plot(
                    curve.index.get_level_values("epoch"), curve, style, color=colour, label=f"{loss}, {name}", zorder=3
                )
    _label(panels, content.datasets, _labels(content), "epoch", "λ / λ0")
    return _with_legend(figure, panels, tuple(f"{loss}, {name}" for loss in losses for _, name in styles.values()))


def seconds_per_epoch(content: Content) -> Any:
    """Seconds per epoch of one network, in those of cross entropy where it is there: one row per loss."""
    seconds = content.seconds
    compared = "ce" in seconds.index
    values = seconds / seconds.loc["ce"] if compared else seconds
    values = values.loc[values.median(axis="columns").sort_values(ascending=False).index]
    figure = optional("matplotlib.figure", "report").Figure(figsize=(7, 1.2 + 0.24 * len(values)), layout="constrained")
    panel = figure.add_subplot()
    for dataset, colour in zip(values.columns, itertools.cycle(LINES["light"]), strict=False):
        panel.plot(values[dataset], range(len(values)), "o", color=colour, alpha=0.75, markersize=5, label=dataset)
    panel.set_yticks(range(len(values)), values.index)
    panel.set_xlabel("seconds per epoch, those of ce = 1" if compared else "seconds per epoch", fontsize=9)
    if compared:
        panel.axvline(1, color=_GREY, zorder=0)
    panel.grid(axis="y", color="#eceef1")
    _plain(panel)
    figure.legend(*panel.get_legend_handles_labels(), loc="outside upper center", ncols=5, frameon=False, fontsize=9)
    return figure


def _grid(rows: int, columns: int, *, width: float = 1.9, height: float = 1.7, share_y: bool = True) -> tuple[Any, Any]:
    size = (max(columns * width, 5) + 0.5, rows * height + 0.8)  # not narrower than the legend
    figure = optional("matplotlib.figure", "report").Figure(figsize=size, layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, sharey="row" if share_y else False)


def _settings(content: Content, panels: Any) -> Iterator[tuple[str, tuple[str, float], Any]]:
    for dataset, row in zip(content.datasets, panels, strict=True):
        for noise, panel in zip(content.noises, row, strict=True):
            _plain(panel)
            yield dataset, noise, panel


def _of(curves: pd.Series[float], dataset: str, noise: tuple[str, float]) -> pd.Series[float]:
    """The curves of one setting, by loss and epoch."""
    index = curves.index
    wanted = [index.get_level_values(level) for level in ("dataset", "noise", "rate")]
    mask = (wanted[0] == dataset) & (wanted[1] == noise[0]) & (wanted[2] == noise[1])
    return curves[mask].droplevel(["dataset", "noise", "rate"])


def _lines(panel: Any, lines: dict[Any, pd.Series[float]], content: Content, marker: str = "") -> None:
    for loss, line in lines.items():
        if loss in content.highlighted:
            place = content.highlighted.index(loss)
            style = {"color": LINES["light"][place], "linewidth": 1.6, "zorder": 10 - place, "marker": marker}
        else:
            style = {"color": _GREY, "linewidth": 0.8, "zorder": 1}
        panel.plot(line.index, line, label=loss, markersize=3, **style)
    _plain(panel)


def _labels(content: Content) -> list[str]:
    return [noise_label(*noise) for noise in content.noises]


def _label(panels: Any, datasets: list[str], columns: list[str], x: str, y: str) -> None:
    for panel, column in zip(panels[0], columns, strict=True):
        panel.set_title(column, fontsize=9)
    for panel in panels[-1]:
        panel.set_xlabel(x, fontsize=9)
    for panel, dataset in zip(panels[:, 0], datasets, strict=True):
        panel.set_ylabel(f"{dataset}\n{y}", fontsize=9)


def _plain(panel: Any) -> None:
    panel.spines[["top", "right"]].set_visible(False)
    panel.tick_params(labelsize=8)


def _legend(panel: Any) -> Iterator[tuple[Any, str]]:
    return zip(*panel.get_legend_handles_labels(), strict=True)


def _with_legend(figure: Any, panels: Any, names: tuple[str, ...]) -> Any:
    found = {label: handle for panel in panels.flat for handle, label in _legend(panel)}
    shown = [name for name in names if name in found]
    grey = [label for label in found if label not in shown]
    handles = [found[name] for name in shown + grey[:1]]
    labels = shown + (grey if len(grey) < 2 else ["the others"])
    figure.legend(handles, labels, loc="outside upper center", ncols=min(len(labels), 7), frameon=False, fontsize=9)
    return figure
