"""How the figures look: for print at their own size, for colour-blind readers, the same bytes each time.

Drawn through matplotlib's objects: no window, no global state.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

from labelhedge._optional import optional

WIDTH = 7.0
"""Inches: the text width of a page."""
SMALL, NORMAL = 7.5, 8.5
"""Points: numbers at the axes and legends; titles and names of the axes."""

# The colours of Okabe and Ito, which people with any kind of colour vision tell apart.
BLACK, ORANGE, SKY, GREEN, BLUE, RED, PURPLE = (
    "#000000", "#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7",
)  # fmt: skip
GREY = "#8a9099"

LINES: tuple[Mapping[str, Any], ...] = (
    {"color": BLACK, "linestyle": "-"},
    {"color": SKY, "linestyle": "-"},
    {"color": BLUE, "linestyle": (0, (6, 2))},
    {"color": PURPLE, "linestyle": (0, (1, 1))},
    {"color": ORANGE, "linestyle": "-"},
    {"color": RED, "linestyle": (0, (6, 2))},
    {"color": GREEN, "linestyle": (0, (1, 1))},
)
"""Lines that differ in colour and in style."""


def new_figure(height: float) -> Any:
    """An empty figure as wide as the text of a page."""
    return optional("matplotlib.figure", "report").Figure(figsize=(WIDTH, height), layout="constrained")


def describe(panel: Any, *, title: str = "", x: str = "", y: str = "") -> None:
    """Name a panel and its axes, and take away what is not needed."""
    panel.set_title(title, fontsize=NORMAL)
    panel.set_xlabel(x, fontsize=NORMAL)
    panel.set_ylabel(y, fontsize=NORMAL)
    panel.tick_params(labelsize=SMALL)
    panel.spines[["top", "right"]].set_visible(False)


def legend_below(figure: Any, panel: Any, *, columns: int) -> None:
    """One legend for all panels, from the lines of one of them."""
    handles, labels = panel.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False, fontsize=SMALL)


def png(figure: Any) -> bytes:
    """The figure as PNG for print."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=200, metadata={"Software": None})
    return buffer.getvalue()
