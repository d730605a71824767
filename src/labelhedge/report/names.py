"""How noise is called and ordered, and which losses stand out, the same in tables, figures and the page."""

from collections.abc import Sequence

KINDS = {"clean": "clean", "uniform": "uniform", "class_dependent": "class-dependent"}
_SHORT = {"clean": "clean", "uniform": "u", "class_dependent": "cd"}

STANDING_OUT = ("aldr-kl", "ldr-kl", "ce")
LINES = {
    "light": ("#c2410c", "#0369a1", "#111827", "#0f766e", "#7e22ce", "#a16207"),
    "dark": ("#fb923c", "#38bdf8", "#f3f4f6", "#2dd4bf", "#c084fc", "#facc15"),
}
"""The colours of the losses that stand out, on a light and on a dark page; the others are grey."""


def noise_id(noise: str, rate: float) -> str:
    """A short name of a noise: clean, u0.3, cd0.1."""
    return noise if noise == "clean" else f"{_SHORT.get(noise, noise)}{rate:.12g}"


def noise_label(noise: str, rate: float) -> str:
    """A name of a noise for readers."""
    return noise if noise == "clean" else f"{KINDS.get(noise, noise)} {rate:g}"


def noise_order(noise: str, rate: float) -> tuple[int, str, float]:
    """A key that sorts noises: clean, uniform, class-dependent, any other; by rate within a kind."""
    kinds = tuple(KINDS)
    return kinds.index(noise) if noise in kinds else len(kinds), noise, rate


def column(k: int | str) -> str:
    """The name of a column: top-1 to top-5, or overall."""
    return k if isinstance(k, str) else f"top-{k}"


def highlighted(losses: Sequence[str]) -> tuple[str, ...]:
    """The losses to draw in colour: ALDR-KL, LDR-KL and cross entropy, then the first others while colours last."""
    named = [loss for loss in STANDING_OUT if loss in losses]
    others = [loss for loss in losses if loss not in named]
    return tuple((named + others)[: len(LINES["light"])])
