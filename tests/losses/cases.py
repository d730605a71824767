"""The registry as test cases: every loss with its defaults, with the paper's grid, and with a few more settings."""

import math
import re

import torch
from torch import Tensor

import labelhedge as lh

MORE = {
    "agce": [{"a": 0.5, "q": 0.4}],
    "aldr-kl": [
        {"lambda0": math.inf},
        {"alpha": 0.05, "lambda0": 10.0},
        {"margin": 0.0, "normalize": None},
        {"normalize": "softplus"},
    ],
    "aul": [{"a": 1.5, "q": 0.4}],
    "ce": [{"normalize": "l1", "temperature": 0.3}],
    "cs": [{"margin": 0.0}],
    "gce": [{"q": 0.0}, {"q": 1.0}],
    "js": [{"pi1": 0.999}],
    "ldr": [
        {"lam": 0.3, "margin": 0.1},
        {"regularizer": "quadratic", "lam": 0.5},
        {"constraint": "capped", "k": 2, "margin": 0.1},
        {"regularizer": "quadratic", "constraint": "capped", "k": 3, "normalize": "l1"},
    ],
    "ldr-k-kl": [{"k": 1}, {"k": 3, "lam": 0.1}, {"lam": 0.0}, {"lam": 20.0, "normalize": "l1"}],
    "ldr-kl": [{"lam": 0.0}, {"lam": math.inf}, {"lam": 200.0}, {"normalize": None}, {"normalize": "softplus"}],
    "ldr-quadratic": [{"k": 1}, {"k": 3, "lam": 0.1}, {"lam": 0.0}, {"lam": math.inf}, {"lam": 20.0}],
    "rce": [{"A": -4.0}],
    "sce": [{"alpha": 0.0}, {"alpha": 1.0}, {"normalize": "l1", "temperature": 0.3}],
    "tgce": [{"k": 0.0}, {"k": 0.9, "q": 0.0}],
    "topk-svm": [{"k": 1}, {"k": 3, "margin": 0.1}],
    "ww": [{"normalize": "l1"}],
}

NAMES = lh.losses.names()
CASES = [(name, dict(params)) for name in NAMES for params in ({}, *lh.losses.get(name).grid[1:], *MORE.get(name, []))]
IDS = [f"{name}-{params}" for name, params in CASES]


def random_batch(rows: int = 8, classes: int = 6, scale: float = 2.0, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Float64 logits and labels; even rows have a label the logits agree with."""
    generator = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(rows, classes, generator=generator, dtype=torch.float64)
    target = torch.randint(classes, (rows,), generator=generator)
    target[::2] = logits[::2].argmax(-1)
    return logits, target


def function(name):
    """The loss as a function."""
    return getattr(lh.functional, re.sub(r"\W", "_", name))


def values(name: str, logits: Tensor, target: Tensor, **params: object) -> Tensor:
    """One value per sample."""
    return lh.losses.create(name, reduction="none", **params)(logits, target)
