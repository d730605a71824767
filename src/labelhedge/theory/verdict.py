"""What was found about one property of a loss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from torch import Tensor

Outcome = Literal["holds", "fails", "undecided"]
Case = Mapping[str, tuple[float, ...] | float]


@dataclass(frozen=True)
class Verdict:
    """A property, what was found, and the worst case, with which anyone can check it.

    Attributes:
        property: Its name.
        outcome: ``"holds"`` (in every case tried), ``"fails"`` (there is a counterexample) or ``"undecided"``.
        evidence: The worst case in words.
        case: Its numbers, by name: q, f and the like.
    """

    property: str
    outcome: Outcome
    evidence: str
    case: Case = field(default_factory=dict)


def written(numbers: Tensor | tuple[float, ...]) -> str:
    """A vector for readers, with enough digits to compute with."""
    values = numbers.tolist() if isinstance(numbers, Tensor) else numbers
    return "(" + ", ".join(f"{value:.6g}" for value in values) + ")"
