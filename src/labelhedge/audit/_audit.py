"""What an audit has found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from labelhedge._optional import optional
from labelhedge.audit._noise_model import Confusion
from labelhedge.train.crossfit import Setting

if TYPE_CHECKING:
    import pandas as pd

SUSPECT = 0.5
"""A label that is likelier wrong than right is a suspect."""


@dataclass(frozen=True)
class Audit:
    """Labels with the probability that they are wrong.

    Attributes:
        classes: the different labels, in order.
        given: ``(n,)`` the label of each row, as its position in ``classes``.
        suggested: ``(n,)`` the likeliest other label.
        p_wrong: ``(n,)`` the probability that the label is wrong.
        confusion: which labels seem to have been given instead of which.
        settings: the networks whose predictions these are, each with the share of labels that it has predicted.
    """

    classes: Sequence[Any]
    given: NDArray[np.int64]
    suggested: NDArray[np.int64]
    p_wrong: NDArray[np.float64]
    confusion: Confusion
    settings: tuple[Setting, ...]

    @property
    def wrong(self) -> float:
        """About how many labels are wrong."""
        return float(self.p_wrong.sum())

    def suspects(self, *, all: bool = False) -> pd.DataFrame:
        """Rows whose label is likelier wrong than right, or all rows, the most suspect first.

        The columns are ``row`` (counted from 0), ``given``, ``suggested``, ``p_wrong`` and ``rank`` (from 1).
        """
        order = np.lexsort((np.arange(len(self.given)), -self.p_wrong))
        rows = order if all else order[self.p_wrong[order] > SUSPECT]
        labels = np.asarray(self.classes, dtype=object)
        columns = {
            "row": rows,
            "given": labels[self.given[rows]],
            "suggested": labels[self.suggested[rows]],
            "p_wrong": self.p_wrong[rows],
            "rank": np.arange(1, len(rows) + 1),
        }
        frame: pd.DataFrame = optional("pandas", "audit").DataFrame(columns)
        return frame

    def by_class(self) -> pd.DataFrame:
        """For each label how many rows have it, and about how many of them wrongly."""
        rows = np.bincount(self.given, minlength=len(self.classes))
        wrong = np.bincount(self.given, self.p_wrong, len(self.classes))
        columns = {"label": list(self.classes), "rows": rows, "wrong": wrong, "share": wrong / rows}
        frame: pd.DataFrame = optional("pandas", "audit").DataFrame(columns)
        return frame

    def pairs(self, most: int = 20) -> pd.DataFrame:
        """About how many rows of one class have the label of another, for the commonest pairs."""
        confusion, labels = self.confusion, np.asarray(self.classes, dtype=object)
        apart = np.flatnonzero(confusion.true != confusion.given)
        order = apart[np.argsort(-confusion.rows[apart], kind="stable")][:most]
        columns = {
            "true": labels[confusion.true[order]],
            "given": labels[confusion.given[order]],
            "rows": confusion.rows[order],
        }
        frame: pd.DataFrame = optional("pandas", "audit").DataFrame(columns)
        return frame
