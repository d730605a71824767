"""The paper's table of losses (its appendix), with what is found beside what it says."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from labelhedge import losses
from labelhedge.theory.certificate import Certificate, certify

COLUMNS = ("top-1", "all k", "symmetric")


@dataclass(frozen=True)
class Row:
    """A loss with hyperparameters, and what the paper says of it: top-1 consistent, all-k consistent, symmetric."""

    loss: str
    says: tuple[str, str, str]
    """``"yes"``, ``"no"``, or empty where the paper says nothing."""
    params: Mapping[str, Any] = field(default_factory=dict)
    ball: float | None = None
    remark: str = ""
    """Why what is found differs, or what to know about it."""

    @property
    def name(self) -> str:
        """The loss and what is set."""
        told = [f"{name}={_number(value)}" for name, value in self.params.items() if name != "normalize"]
        told += [] if self.ball is None else [f"‖f‖ ≤ {self.ball:g}"]
        return self.loss + (f" ({', '.join(told)})" if told else "")


_PLAIN = {"normalize": None}
ROWS = (
    Row("ce", ("yes", "yes", "no")),
    Row("cs", ("no", "no", "no")),
    Row("ww", ("no", "no", "no")),
    Row("mae", ("yes", "no", "yes")),
    Row(
        "nce",
        ("yes", "no", "yes"),
        remark="The values are at least 0 and add up to 1, so no expected loss is below min q; f = (t, t + 1, t, 0), "
        "the wrong class first, comes as close to that as you like.",
    ),
    Row(
        "rll",
        ("no", "no", "yes"),
        remark="The expected loss is Σ_i log(α + p_i)(1 - K q_i)/(K-1): of the classes above 1/K the most likely one "
        "gets the largest p, so top-1 holds; all below 1/K get p = 0, in any order.",
    ),
    Row("gce", ("yes", "yes", "no"), {"q": 0.7}),
    Row("gce", ("yes", "", "yes"), {"q": 1.0}),
    Row("sce", ("yes", "yes", "no"), {"alpha": 0.5}),
    Row(
        "sce",
        ("yes", "yes", "yes"),
        {"alpha": 0.0},
        remark="The paper's range 0 ≤ α < 1 is reversed: α = 0 is MAE, which is not all-k consistent.",
    ),
    Row("sce", ("yes", "", "no"), {"alpha": 1.0}, remark="α = 1 is cross entropy: all-k consistent."),
    Row("js", ("", "", "no"), {"pi1": 0.5}),
    Row("js", ("", "", "yes"), {"pi1": 0.99}, remark="Symmetric only in the limit π → 1."),
    Row("mse", ("yes", "yes", "no")),
    Row("tgce", ("", "", "no")),
    Row("agce", ("yes", "no", "no")),
    Row("aul", ("yes", "no", "no")),
    *(Row("ldr-kl", ("yes", "yes", "no"), {"lam": lam, **_PLAIN}) for lam in (0.1, 1.0, 10.0)),
    Row("ldr-kl", ("yes", "yes", "yes"), {"lam": math.inf, **_PLAIN}, ball=5.0),
    Row(
        "aldr-kl",
        ("yes", "yes", "no"),
        {"lambda0": 1.0, "margin": 0.0, **_PLAIN},
        remark="With α = 2 log K/λ0, the default. The paper needs α > log K/λ0; from α = log(K/2)/λ0 down top-1 fails: "
        "for q = (1, 0, …) f = (t, t, 0, …) with large t loses as little as any f, -αλ0²/2, where λ is 0.",
    ),
    Row("aldr-kl", ("yes", "yes", "yes"), {"lambda0": math.inf, "margin": 0.0, **_PLAIN}, ball=5.0),
)


def compare(row: Row, certificate: Certificate) -> dict[str, tuple[str, str, bool]]:
    """For each column: what the paper says, what was found, and whether they disagree."""
    by_k = [certificate[f"top-{k} calibrated"].outcome for k in range(1, certificate.classes)]
    every = "fails" if "fails" in by_k else "undecided" if "undecided" in by_k else "holds"
    found = (by_k[0], every, certificate["symmetric"].outcome)
    answers = {"holds": "yes", "fails": "no", "undecided": "undecided"}
    return {
        column: (says, answers[outcome], says in ("yes", "no") and says != answers[outcome])
        for column, says, outcome in zip(COLUMNS, row.says, found, strict=True)
    }


def certify_row(row: Row, classes: int = 4, seed: int = 0) -> Certificate:
    """The certificate of the loss of a row."""
    loss = losses.create(row.loss, reduction="none", **row.params)
    return certify(loss, classes=classes, ball=row.ball, seed=seed)


def _number(value: float) -> str:
    return "∞" if value == math.inf else f"{value:g}"
