"""Average λ of each sample of the synthetic experiment against its average KL(p, 1/K)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from labelhedge._optional import optional
from labelhedge.figures import synthetic
from labelhedge.figures._study import Study, reduced
from labelhedge.figures._style import BLUE, GREY, ORANGE, RED, SMALL, describe, new_figure
from labelhedge.figures.synthetic import ADDED, ALPHA, LAMBDA0

if TYPE_CHECKING:
    import pandas as pd


def lambda_vs_kl(seed: int = 0, *, effort: float = 1.0) -> Study:
    """The means over the epochs with ALDR-KL of the study ``boundaries``."""
    experiment = synthetic.fine_tuned(seed, reduced(1000, effort), reduced(100, effort))
    samples = experiment.samples
    data = optional("pandas", "report").DataFrame(
        {
            "what": ["sample"] * (len(samples.points) - 2) + list(ADDED),
            "x": samples.points[:, 0].numpy(),
            "y": samples.points[:, 1].numpy(),
            "true_label": samples.true.numpy(),
            "given_label": samples.given.numpy(),
            "mean_kl": experiment.kl.mean(0).numpy(),
            "mean_lam": experiment.lam.mean(0).numpy(),
            "epochs_at_0": (experiment.lam == 0).sum(0).numpy(),
        }
    )
    return Study("λ against KL(p, 1/K)", _paragraph(data, len(experiment.lam)), data, _draw(data))


def _line(kl: Any) -> Any:
    return LAMBDA0 - kl / ALPHA


def _paragraph(data: pd.DataFrame, epochs: int) -> str:
    correlation = float(np.corrcoef(data["mean_kl"], data["mean_lam"])[0, 1])
    clipped = int((data["epochs_at_0"] > 0).sum())
    highest = data.sort_values("mean_lam", ascending=False).head(5)
    right = int((highest["true_label"] == highest["given_label"]).sum())
    place = int((data["mean_lam"] > data.loc[data["what"] == "mislabelled", "mean_lam"].item()).sum()) + 1
    return (
        "Each point is a sample of the study boundaries, whose two added samples were placed by us: its λ and its "
        f"KL(p, 1/K), averaged over {epochs:,} epochs of ALDR-KL. Their correlation is {correlation:.2f}, by "
        "construction: a step of Algorithm 1 sets "
        f"λ = [λ0 - KL/α]₊, the dashed line wherever λ has not been cut off at 0, as it has been at some epoch for "
        f"{clipped} of {len(data)} samples, which lie above the line. A high λ means that p is flat, not that the "
        f"label is wrong: of the {len(highest)} samples with the highest average λ, {right} have the right label; the "
        f"mislabelled one has place {place}."
    )


def _draw(data: pd.DataFrame) -> Any:
    figure = new_figure(3.4)
    panel = figure.add_subplot()
    styles = {
        "sample": {"marker": "o", "s": 16, "color": ORANGE, "alpha": 0.75, "linewidth": 0},
        "hard clean": {"marker": "D", "s": 48, "color": BLUE},
        "mislabelled": {"marker": "X", "s": 62, "color": RED},
    }
    for what, style in styles.items():
        rows = data[data["what"] == what]
        panel.scatter(rows["mean_kl"], rows["mean_lam"], label=what, zorder=3, **style)
    kl = np.array([0.0, min(ALPHA * LAMBDA0, data["mean_kl"].max() * 1.02)])
    panel.plot(kl, _line(kl), color=GREY, linestyle="--", linewidth=1.2, label="λ0 - KL/α")
    describe(panel, x="KL(p, 1/K), mean over the epochs", y="λ, mean over the epochs")
    panel.legend(frameon=False, fontsize=SMALL)
    return figure
