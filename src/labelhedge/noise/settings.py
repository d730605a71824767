"""The noise of the paper as data: its seven settings, and which classes it mistakes for which."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from numpy.typing import ArrayLike

from labelhedge._errors import UserError
from labelhedge.noise._labels import NoisyLabels
from labelhedge.noise.models import class_dependent, given, uniform

HUMAN = ("aggre", "worse", "random1", "random2", "random3")
"""CIFAR-10N's sets of labels that people gave."""


@dataclass(frozen=True)
class Setting:
    """A kind of noise and its rate.

    Example:
        >>> setting = lh.noise.settings.PAPER[1]
        >>> setting.id
        'u0.3'
        >>> setting.apply([0, 1, 2, 3], num_classes=4, seed=1).labels.tolist()
        [0, 2, 2, 3]
    """

    kind: Literal["clean", "uniform", "class_dependent", "aggre", "worse", "random1", "random2", "random3"]
    """The last ones are sets of labels that people gave (CIFAR-10N); these have no rate."""
    rate: float = 0.0

    @property
    def id(self) -> str:
        """A short name: clean, u0.3, cd0.1, worse."""
        prefix = {"uniform": "u", "class_dependent": "cd"}.get(self.kind)
        return self.kind if prefix is None else f"{prefix}{self.rate:.12g}"

    def apply(
        self,
        labels: ArrayLike,
        *,
        num_classes: int | None = None,
        mapping: Mapping[int, int] | None = None,
        human: Mapping[str, ArrayLike] | None = None,
        seed: int = 0,
    ) -> NoisyLabels:
        """The labels with this noise.

        Args:
            labels: Clean labels.
            num_classes: K; the largest label + 1 if not given.
            mapping: What a class is mistaken for; it matters to class-dependent noise alone.
            human: Sets of labels that people gave, by their name; they matter to noise of that name alone.
            seed: The same seed gives the same flips on every machine.
        """
        if self.kind in HUMAN:
            if not human or self.kind not in human:
                raise UserError(
                    f"there are no human labels {self.kind!r}; there are: {', '.join(human or ()) or 'none'}"
                )
            return given(labels, human[self.kind], num_classes=num_classes)
        if self.kind == "clean":
            return given(labels, labels, num_classes=num_classes)
        if self.kind == "uniform":
            return uniform(labels, self.rate, num_classes=num_classes, seed=seed)
        return class_dependent(labels, self.rate, mapping, num_classes=num_classes, seed=seed)


PAPER = (
    Setting("clean"),
    *(Setting("uniform", rate) for rate in (0.3, 0.6, 0.9)),
    *(Setting("class_dependent", rate) for rate in (0.1, 0.3, 0.5)),
)


def _exchanged(*pairs: tuple[int, int]) -> dict[int, int]:
    return {a: b for pair in pairs for a, b in (pair, pair[::-1])}


MAPPINGS: Mapping[str, Mapping[int, int]] = {
    # B-D, C-G, E-F, H-N, I-L, K-X, M-W, O-Q, P-R, U-V
    "letter": _exchanged((1, 3), (2, 6), (4, 5), (7, 13), (8, 11), (10, 23), (12, 22), (14, 16), (15, 17), (20, 21)),
    # i-I, E-A, a:-Y, C:-O, u:-U, which the data set writes hid-hId, hEd-hAd, had-hYd, hod-hOd, hud-hUd
    "vowel": _exchanged((0, 1), (2, 3), (5, 4), (7, 6), (9, 8)),
    # ms-windows.misc - windows.x, ibm.pc - mac, autos - motorcycles, baseball - hockey, crypt - electronics,
    # religion.christian - politics.misc; the groups are numbered in alphabetical order
    "news20": _exchanged((2, 5), (3, 4), (7, 8), (9, 10), (11, 12), (15, 18)),
}
"""The paper's class-dependent noise by data set; the data sets that are not here have the circular one (None)."""
