"""All that can be found out about a loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from labelhedge.theory import properties
from labelhedge.theory.calibration import Gap, distributions, gaps, infima
from labelhedge.theory.subject import Loss, Subject, examine
from labelhedge.theory.verdict import Case, Verdict, written

_ENDLESS = 1e6
"""An expected loss below minus this has no lower bound."""
_FAILS, _HOLDS = 1e-13, 1e-10
"""A gap below the first is no gap, one above the second is."""


@dataclass(frozen=True)
class Certificate:
    """The verdicts on a loss."""

    classes: int
    verdicts: tuple[Verdict, ...]

    def __getitem__(self, name: str) -> Verdict:
        """The verdict on one property."""
        return next(verdict for verdict in self.verdicts if verdict.property == name)


def certify(loss: Loss, *, classes: int = 4, ball: float | None = None, seed: int = 0) -> Certificate:
    """Find out what a loss is good for.

    Args:
        loss: From logits ``(N, K)`` and class indices ``(N,)`` to one value per sample, differentiable, in float64.
        classes: K.
        ball: Confine the logits to this radius, for a loss that has no lower bound without.
        seed: Of the points that are tried; the same seed gives the same certificate.

    Raises:
        UnsoundLossError: It is not a loss: wrong shape, NaN, random, or with a wrong gradient.

    Example:
        >>> certificate = certify(lh.losses.create("mae", reduction="none"), classes=3)
        >>> certificate["symmetric"].outcome, certificate["top-1 calibrated"].outcome
        ('holds', 'holds')
        >>> certificate["top-2 calibrated"].outcome
        'fails'
    """
    subject = examine(loss, classes, ball=ball, seed=seed)
    free = replace(subject, ball=None)
    alike = properties.class_symmetric(subject, seed)
    tried = distributions(classes, seed)
    if alike.outcome == "fails":  # then it matters which class is the likely one
        tried = torch.cat([tried, tried.flip(-1), tried.roll(1, -1)])
    found = gaps(subject, tried, seed)
    calibrated = [_calibrated(found, k) for k in range(1, classes)]
    return Certificate(
        classes,
        (
            *calibrated,
            _rank_preserving(found),
            properties.symmetric(subject, seed),
            _noise_tolerant(subject, found, seed),
            properties.non_negative(free, seed),
            properties.bounded(free, seed),
            properties.convex(free, seed),
            properties.shift_invariant(free, seed),
            alike,
            properties.smooth(free, seed),
        ),
    )


def _calibrated(found: Sequence[Gap], k: int) -> Verdict:
    name = f"top-{k} calibrated"
    endless = next((gap for gap in found if gap.k == k and gap.best_violating < -_ENDLESS), None)
    if endless is not None:
        text = f"for q = {written(endless.q)} the expected loss has no lower bound, f = {written(endless.f)} gives "
        text += f"{endless.best_violating:.4g}, and is not top-{k} preserving; on a ball it may be otherwise"
        return Verdict(name, "fails", text, {"q": endless.q, "f": endless.f})
    worst = min((gap for gap in found if gap.k == k), key=lambda gap: gap.size / (1 + abs(gap.smallest)))
    case: Case = {"q": worst.q, "f": worst.f, "gap": worst.size, "infimum": worst.smallest}
    size = worst.size / (1 + abs(worst.smallest))
    if size <= _FAILS:
        text = f"for q = {written(worst.q)} the prediction f = {written(worst.f)} is not top-{k} preserving, and its "
        return Verdict(
            name, "fails", text + f"expected loss {worst.best_violating:.10g} is the smallest there is", case
        )
    text = f"the closest call is q = {written(worst.q)}, where violating predictions lose at least {worst.size:.3g}"
    return Verdict(name, "holds" if size >= _HOLDS else "undecided", text, case)


def _rank_preserving(found: Sequence[Gap]) -> Verdict:
    """Whether the minimiser orders the classes as q does."""
    name = "rank preserving"
    for gap in found:
        q, f = torch.tensor(gap.q), torch.tensor(gap.minimizer, dtype=torch.float64)
        ordered = q.unsqueeze(1) > q.unsqueeze(0)
        lead = torch.where(ordered, f.unsqueeze(1) - f.unsqueeze(0), torch.inf)
        if lead.min() <= 1e-9:
            i, j = divmod(int(lead.argmin()), len(q))
            text = f"for q = {written(gap.q)} the minimiser {written(gap.minimizer)} puts class {i} no higher than {j}"
            return Verdict(name, "fails", text, {"q": gap.q, "f": gap.minimizer})
    return Verdict(name, "holds", f"in all {len({gap.q for gap in found})} distributions tried")


def _noise_tolerant(subject: Subject, found: Sequence[Gap], seed: int) -> Verdict:
    """Whether what minimises the loss under uniform noise also minimises it on clean labels."""
    name, classes = "noise-tolerant", subject.classes
    smallest = {gap.q: gap.smallest for gap in found}
    clean = torch.tensor(list(smallest), dtype=torch.float64)
    infimum = torch.tensor(list(smallest.values()), dtype=torch.float64)
    if infimum.min() < -_ENDLESS:
        return Verdict(name, "undecided", "the expected loss has no lower bound; try it on a ball")
    rates = [rate for rate in (0.2, 0.4, 0.6) if rate < 1 - 1 / classes]
    worst, worst_rate, q, f = -1.0, 0.0, clean[0], clean[0]
    for rate in rates:
        noisy = (1 - rate) * clean + rate * (1 - clean) / (classes - 1)
        minimizers, _ = infima(subject, noisy, seed)
        excess = (subject.expected(minimizers, clean) - infimum) / (1 + infimum.abs())
        at = int(excess.argmax())
        if excess[at] > worst:
            worst, worst_rate, q, f = float(excess[at]), rate, clean[at], minimizers[at]
    case: Case = {"q": tuple(q.tolist()), "f": tuple(f.tolist()), "rate": worst_rate, "excess": worst}
    if worst <= 1e-9:
        told = ", ".join(f"{rate:g}" for rate in rates)
        return Verdict(name, "holds", f"what minimises it under U({told}) minimises it without noise", case)
    text = (
        f"for q = {written(q)} the minimiser under U({worst_rate:g}), {written(f)}, loses {worst:.4g} on clean labels"
    )
    return Verdict(name, "fails", text, case)
