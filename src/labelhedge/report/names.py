"""How things are called and ordered, and which losses stand out, the same in tables, figures and the page."""

import json
from collections.abc import Sequence

HUMAN = ("aggre", "random1", "random2", "random3", "worse")
"""Labels that people gave, CIFAR-10N's sets, in the order of how many are wrong. They have no rate."""
KINDS = {
    "clean": "clean",
    "uniform": "uniform",
    "class_dependent": "class-dependent",
    **{name: f"human, {name}" for name in HUMAN},
}
_SHORT = {"uniform": "u", "class_dependent": "cd"}
_SYMBOLS = {"lam": "λ", "lambda0": "λ0", "alpha": "α", "beta": "β", "pi1": "π1", "temperature": "τ"}

STANDING_OUT = ("aldr-kl", "ldr-kl", "ce")
LINES = {
    "light": ("#c2410c", "#0369a1", "#111827", "#0f766e", "#7e22ce", "#a16207"),
    "dark": ("#fb923c", "#38bdf8", "#f3f4f6", "#2dd4bf", "#c084fc", "#facc15"),
}
"""The colours of the losses that stand out, on a light and on a dark page; the others are grey."""


def has_rate(noise: str) -> bool:
    """Whether a noise of this kind comes at several rates."""
    return noise != "clean" and noise not in HUMAN


def noise_id(noise: str, rate: float) -> str:
    """A short name of a noise: clean, u0.3, cd0.1, worse."""
    return f"{_SHORT.get(noise, noise)}{rate:.12g}" if has_rate(noise) else noise


def noise_label(noise: str, rate: float) -> str:
    """A name of a noise for readers."""
    kind = KINDS.get(noise, noise)
    return f"{kind} {rate:g}" if has_rate(noise) else kind


def noisy_labels(noise: str, rate: float) -> str:
    """A name of labels with a noise: clean labels, uniform 0.3 noise, human labels (worse)."""
    if noise in HUMAN:
        return f"human labels ({noise})"
    return "clean labels" if noise == "clean" else f"{noise_label(noise, rate)} noise"


def noise_order(noise: str, rate: float) -> tuple[int, str, float]:
    """A key that sorts noises: clean, uniform, class-dependent, human, any other; by rate within a kind."""
    kinds = tuple(KINDS)
    return kinds.index(noise) if noise in kinds else len(kinds), noise, rate


def column(k: int | str) -> str:
    """The name of a column: top-1 to top-5, or overall."""
    return k if isinstance(k, str) else f"top-{k}"


def choice(params: str) -> str:
    """The name of a choice of hyperparameters, given as JSON: λ=0.1, or α=0.1, β=9.9."""
    return ", ".join(f"{_SYMBOLS.get(name, name)}={value:g}" for name, value in json.loads(params).items())


def choice_order(params: str) -> list[float]:
    """A key that sorts choices of hyperparameters of one loss: by their values."""
    return list(json.loads(params).values())


def highlighted(losses: Sequence[str]) -> tuple[str, ...]:
    """The losses to draw in colour: ALDR-KL, LDR-KL and cross entropy, then the first others while colours last."""
    named = [loss for loss in STANDING_OUT if loss in losses]
    others = [loss for loss in losses if loss not in named]
    return tuple((named + others)[: len(LINES["light"])])
