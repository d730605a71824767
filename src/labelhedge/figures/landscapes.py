"""The loss of label 0 over two of three logits, for the 15 losses of the paper."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from labelhedge import losses
from labelhedge._optional import optional
from labelhedge.figures._study import Study, reduced
from labelhedge.figures._style import NORMAL, SMALL, describe, new_figure

if TYPE_CHECKING:
    import pandas as pd

_SIDE = 5.0
_LEVELS = 10


def landscapes(seed: int = 0, *, effort: float = 1.0) -> Study:
    """Every loss at its defaults over f0 (the label's logit) and f1, with f2 = 0. Nothing here is random."""
    steps = 2 * reduced(30, effort) + 1
    axis = torch.linspace(-_SIDE, _SIDE, steps, dtype=torch.float64)
    plane = torch.cartesian_prod(axis, axis)
    logits = torch.cat([plane, torch.zeros(len(plane), 1, dtype=torch.float64)], dim=1).requires_grad_()
    target = torch.zeros(len(plane), dtype=torch.int64)
    data = optional("pandas", "report").DataFrame({"f0": plane[:, 0].numpy(), "f1": plane[:, 1].numpy()})
    corner = int((plane[:, 0] - plane[:, 1]).argmin())
    slopes = {}
    for name in losses.PAPER:
        values = losses.create(name, reduction="none")(logits, target)
        (gradient,) = torch.autograd.grad(values.sum(), logits)
        data[name] = values.detach().numpy()
        slopes[name] = float(gradient[corner].norm()) / float(np.ptp(data[name]))
    return Study("The landscapes of 15 losses", _paragraph(data, slopes), data, _draw(data))


def _paragraph(data: pd.DataFrame, slopes: dict[str, float]) -> str:
    pulling = sorted(slopes, key=lambda name: -slopes[name])
    negative = [name for name in slopes if data[name].min() < 0]
    return (
        f"The loss of label 0 for three classes, over the label's logit f0 and a rival's f1 from {-_SIDE:g} to "
        f"{_SIDE:g}, with f2 = 0 and every loss at its defaults. Each panel has {_LEVELS} steps of equal height from "
        "its lowest to its highest value, which stand below its name: the losses have different units, compare shapes. "
        "In the top left corner the network contradicts the label with confidence. How hard a loss pulls there, as the "
        "length of its gradient in percent of its range over the plane: "
        f"{', '.join(f'{name} {100 * slopes[name]:.1f}' for name in pulling)}. Negative somewhere: "
        f"{', '.join(negative)}. ldr-kl and aldr-kl divide the logits by their mean absolute value, so that along a "
        "ray from the origin they do not change."
    )


def _draw(data: pd.DataFrame) -> Any:
    figure = new_figure(5.0)
    panels = figure.subplots(3, 5, sharex=True, sharey=True)
    x, y = np.unique(data["f0"]), np.unique(data["f1"])
    for panel, name in zip(panels.flat, losses.PAPER, strict=True):
        values = data[name].to_numpy().reshape(len(x), len(y)).T
        low, high = values.min(), values.max()
        levels = np.linspace(low, high, _LEVELS + 1)
        shown = panel.contourf(x, y, values, levels=levels, cmap="cividis")
        panel.contour(x, y, values, levels=levels[1:-1], colors="white", linewidths=0.3, linestyles="solid")
        describe(panel, title=f"{name}\n{low:.2f} to {high:.2f}")
        panel.set(xticks=(-4, 0, 4), yticks=(-4, 0, 4), aspect="equal")
    for panel in panels[-1]:
        panel.set_xlabel("f0 (label)", fontsize=NORMAL)
    for panel in panels[:, 0]:
        panel.set_ylabel("f1", fontsize=NORMAL)
    bar = figure.colorbar(shown, ax=panels, shrink=0.5, aspect=30, ticks=[low, high])
    bar.ax.set_yticklabels(["lowest", "highest"], fontsize=SMALL)
    return figure
