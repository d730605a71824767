"""Where the objective of ALDR-KL over λ has two local maxima, and Algorithm 1 ends at the lower one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from labelhedge._optional import optional
from labelhedge.figures._study import Study, reduced
from labelhedge.figures._style import BLACK, BLUE, GREEN, GREY, PURPLE, RED, SMALL, describe, new_figure
from labelhedge.losses.aldr import aldr_kl, aldr_lambda

if TYPE_CHECKING:
    import pandas as pd

_CLASSES = 1000
_LAMBDA0 = 1.0
_SPIKES = (5.10, 5.65)
_DRAWN = (5.30, 5.40, 5.45, 5.53)
_STEP = 0.01
_LOWEST = 0.45
"""The objective is drawn from here to λ0; no maximum is below λ0/2."""


def two_maxima(seed: int = 0, *, effort: float = 1.0) -> Study:
    """One logit stands out among 1,000, and it is not the label's. Nothing here is random."""
    spikes = torch.arange(round(_SPIKES[0] / _STEP), round(_SPIKES[1] / _STEP) + 1, dtype=torch.float64) * _STEP
    logits = torch.zeros(len(spikes), _CLASSES, dtype=torch.float64)
    logits[:, 0] = spikes
    target = torch.ones(len(spikes), dtype=torch.int64)
    lam = torch.linspace(_LOWEST, _LAMBDA0, 20 * reduced(15, effort) + 1, dtype=torch.float64)
    frames = []
    ends = {
        "algorithm 1": _algorithm1(logits, target),
        "exact": aldr_lambda(logits, target, lambda0=_LAMBDA0, normalize=None),
    }
    for place, spike in enumerate(spikes.tolist()):
        row, label = logits[place : place + 1], target[place : place + 1]
        found = torch.cat([lam, *(end[place : place + 1] for end in ends.values())])
        objective = _objective(row, label, found)
        what = ["objective"] * len(lam) + list(ends)
        columns = {"spike": round(spike, 2), "what": what, "lam": found.numpy(), "value": objective.numpy()}
        frames.append(optional("pandas", "report").DataFrame(columns))
    data = optional("pandas", "report").concat(frames, ignore_index=True)
    return Study("Two maxima over λ", _paragraph(data), data, _draw(data))


def _algorithm1(logits: Tensor, target: Tensor) -> Tensor:
    """Where the steps from λ0 end while the logits stay as they are."""
    lam = torch.full(target.shape, _LAMBDA0, dtype=logits.dtype)
    for _ in range(5000):
        before, lam = lam, aldr_lambda(logits, target, lambda0=_LAMBDA0, normalize=None, start=lam)
        if torch.equal(before, lam):
            break
    return lam


def _objective(logits: Tensor, target: Tensor, lam: Tensor) -> Tensor:
    """λ log mean exp(q/λ) - (α/2)(λ - λ0)² of one sample at each λ."""
    many = logits.expand(len(lam), -1), target.expand(len(lam))
    return aldr_kl(*many, lambda0=_LAMBDA0, lam=lam, normalize=None, reduction="none")


def local_maxima(values: Any) -> int:
    """How many values are above both neighbours.

    Example:
        >>> local_maxima([0, 2, 1, 3, 0])
        2
    """
    rises = np.diff(values) > 0
    return int((rises[:-1] & ~rises[1:]).sum())


def _paragraph(data: pd.DataFrame) -> str:
    curves = data[data["what"] == "objective"].groupby("spike")["value"]
    counts = curves.agg(lambda values: local_maxima(values.to_numpy()))
    twice = counts.index[counts == 2]
    ends = data[data["what"] != "objective"].pivot(index="spike", columns="what")
    loss = ends["value"]["exact"] - ends["value"]["algorithm 1"]
    missed = loss[loss > 1e-6]
    where = f"from {twice.min():.2f} to {twice.max():.2f}"
    worst = missed.idxmax()
    shortfall = (
        f"From {missed.index.min():.2f} to {missed.index.max():.2f}, {len(missed)} of the {len(twice)} values with "
        f"two, Algorithm 1 from λ0 stays at the larger λ although the smaller is better: at {worst:.2f} it ends at "
        f"λ = {ends['lam']['algorithm 1'][worst]:.3f}, the maximum is at λ = {ends['lam']['exact'][worst]:.3f}, and "
        f"the objective there is higher by {missed.max():.3f}."
    )
    return (
        f"The objective λ log mean exp(q/λ) - (α/2)(λ - λ0)² for K = {_CLASSES:,} classes, λ0 = {_LAMBDA0:g}, "
        f"α = 2 log K/λ0 and logits of 0 except one, not the label's, in steps of {_STEP:g}. It has two local maxima "
        f"for spikes {where}. {shortfall} The exact λ jumps where the two are equal, Algorithm 1 only where its own "
        "vanishes."
    )


def _draw(data: pd.DataFrame) -> Any:
    figure = new_figure(3.2)
    left, right = figure.subplots(1, 2, width_ratios=(1.35, 1))
    points = {"algorithm 1": ("s", RED, "end of Algorithm 1"), "exact": ("o", BLUE, "exact maximum")}
    lines = ((GREY, "-"), (BLACK, (0, (6, 2))), (PURPLE, "-"), (GREEN, (0, (1, 1))))
    for spike, (line_colour, line) in zip(_DRAWN, lines, strict=True):
        rows = data[data["spike"] == spike]
        curve = rows[rows["what"] == "objective"]
        left.plot(
            curve["lam"], curve["value"], color=line_colour, linestyle=line, linewidth=1.4, label=f"spike {spike:.2f}"
        )
        for what, (marker, colour, _) in points.items():
            end = rows[rows["what"] == what]
            left.plot(end["lam"], end["value"], color=colour, **_marker(marker, 1.4))
    describe(left, x="λ", y="objective")
    left.legend(frameon=False, fontsize=SMALL, loc="lower right")
    for what, (marker, colour, name) in points.items():
        rows = data[data["what"] == what]
        right.plot(rows["spike"], rows["lam"], linestyle="none", color=colour, label=name, **_marker(marker, 1))
    describe(right, x="spike", y="λ")
    right.legend(frameon=False, fontsize=SMALL, loc="lower left")
    return figure


def _marker(marker: str, scale: float) -> dict[str, Any]:
    """Squares are large and hollow, so that a dot is seen inside them."""
    size, fill = (5.0, "none") if marker == "s" else (2.6, "full")
    return {"marker": marker, "markersize": size * scale, "fillstyle": fill}
