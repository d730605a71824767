"""What a study gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Study:
    """A study that was carried out.

    Attributes:
        title: What it is about, in a few words.
        paragraph: What the figure shows; the numbers in it come from the data.
        data: What is drawn.
        figure: A matplotlib figure.
    """

    title: str
    paragraph: str
    data: pd.DataFrame
    figure: Any


def reduced(count: int, effort: float) -> int:
    """A share of a number of epochs or of grid points, one at least.

    Example:
        >>> reduced(100, 1.0), reduced(100, 0.05), reduced(100, 0.001)
        (100, 5, 1)
    """
    if not 0 < effort <= 1:
        raise ValueError(f"effort must be in (0, 1], got {effort}")
    return max(1, round(count * effort))
