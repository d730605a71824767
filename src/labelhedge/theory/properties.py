"""Properties of a loss that are seen from its values: each function gives a verdict with the worst case found."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize

from labelhedge.theory._minimize import minimize
from labelhedge.theory.subject import Subject
from labelhedge.theory.verdict import Case, Verdict, written

SCALES = (0.1, 1.0, 5.0, 20.0)
_EXACT = 1e-9
"""Relative difference that rounding explains."""


def sample(classes: int, count: int, seed: int) -> Tensor:
    """Logits at several scales."""
    generator = torch.Generator().manual_seed(seed)
    points = torch.randn(count, classes, generator=generator, dtype=torch.float64)
    scales = torch.tensor(SCALES, dtype=torch.float64).repeat(-(-count // len(SCALES)))[:count]
    return points * scales.unsqueeze(-1)


def class_symmetric(subject: Subject, seed: int = 0) -> Verdict:
    """Whether all classes are treated alike: exchanging two classes, in logits and label, changes nothing."""
    logits = sample(subject.classes, 100, seed)
    values = subject.values(logits)
    name = "class-symmetric"
    for j in range(1, subject.classes):
        order = torch.arange(subject.classes)
        order[0], order[j] = j, 0
        change = ((subject.values(logits[:, order])[:, order] - values).abs() / (1 + values.abs())).amax(-1)
        at = int(change.argmax())
        if change[at] > _EXACT:
            case: Case = {"f": tuple(logits[at].tolist()), "change": float(change[at])}
            text = f"exchanging classes 0 and {j} of f = {written(logits[at])} changes a loss by {change[at]:.4g}"
            return Verdict(name, "fails", f"{text} of itself", case)
    return Verdict(name, "holds", "exchanging any two classes changes nothing")


def symmetric(subject: Subject, seed: int = 0) -> Verdict:
    """Whether the sum of the loss over all labels is the same for all logits: ``Σ_j ψ(f, j)`` constant."""
    logits = sample(subject.classes, 400, seed)
    sums = subject.values(logits).sum(-1)
    low, high = int(sums.argmin()), int(sums.argmax())
    spread = float(sums[high] - sums[low])
    case: Case = {"f": tuple(logits[low].tolist()), "g": tuple(logits[high].tolist()), "spread": spread}
    if spread <= _EXACT * (1 + float(sums.abs().max())):
        return Verdict("symmetric", "holds", f"the sum over labels is {float(sums[low]):.6g} everywhere", case)
    return Verdict(
        "symmetric",
        "fails",
        f"the sum over labels is {float(sums[low]):.6g} at f = {written(logits[low])} and {float(sums[high]):.6g} at "
        f"{written(logits[high])}",
        case,
    )


def non_negative(subject: Subject, seed: int = 0) -> Verdict:
    """Whether the loss is never below 0."""
    start = sample(subject.classes, 200, seed)
    point, value = minimize(lambda f, _: subject.values(f)[:, 0], start, 60)
    at = int(value.argmin())
    least = float(value[at]) + 0.0  # no -0
    case: Case = {"f": tuple(point[at].tolist()), "value": least}
    text = f"the least value found is {least:.6g}, at f = {written(point[at])}, label 0"
    return Verdict("non-negative", "fails" if least < -1e-12 else "holds", text, case)


def bounded(subject: Subject, seed: int = 0) -> Verdict:
    """Whether the values stay within limits as the logits grow."""
    directions = sample(subject.classes, 400, seed)
    directions = directions / directions.norm(dim=-1, keepdim=True)
    largest = []
    for radius in (1e2, 1e4, 1e6):
        values = subject.values(radius * directions).abs()
        at = int(values.amax(-1).argmax())
        largest.append((float(values[at].max()), radius * directions[at]))
    (first, _), _, (last, f) = largest
    case: Case = {"f": tuple(f.tolist()), "value": last}
    if last <= 1.5 * first + _EXACT:
        return Verdict("bounded", "holds", f"at most {last:.6g} for logits up to 1e6", case)
    return Verdict("bounded", "fails", f"{last:.6g} at f = {written(f)}", case)


def shift_invariant(subject: Subject, seed: int = 0) -> Verdict:
    """Whether adding the same number to all logits changes nothing."""
    logits = sample(subject.classes, 200, seed)
    before = subject.values(logits)
    worst, shift_of_worst, at = 0.0, 0.0, 0
    for shift in (-3.0, 0.5, 10.0):
        change = ((subject.values(logits + shift) - before).abs() / (1 + before.abs())).amax(-1)
        if float(change.max()) > worst:
            worst, shift_of_worst, at = float(change.max()), shift, int(change.argmax())
    case: Case = {"f": tuple(logits[at].tolist()), "shift": shift_of_worst, "change": worst}
    if worst <= _EXACT:
        return Verdict("shift-invariant", "holds", f"the largest change is {worst:.1e}", case)
    return Verdict(
        "shift-invariant",
        "fails",
        f"adding {shift_of_worst:g} to f = {written(logits[at])} changes a loss by {worst:.6g} of itself",
        case,
    )


def convex(subject: Subject, seed: int = 0) -> Verdict:
    """Whether the loss is convex in the logits, on segments between random points, long and short."""
    ends = sample(subject.classes, 4000, seed)
    generator = torch.Generator().manual_seed(seed + 1)
    others = ends[torch.randperm(len(ends), generator=generator)]
    near = ends + 0.1 * torch.randn(ends.shape, generator=generator, dtype=torch.float64)
    starts, stops = torch.cat([ends, ends]), torch.cat([others, near])
    middle = subject.values((starts + stops) / 2)[:, 0]
    chord = (subject.values(starts)[:, 0] + subject.values(stops)[:, 0]) / 2
    excess = middle - chord
    tolerance = 1e-12 * (1 + chord.abs())
    at = int((excess / tolerance).argmax())
    case: Case = {"f": tuple(starts[at].tolist()), "g": tuple(stops[at].tolist()), "excess": float(excess[at])}
    if excess[at] <= tolerance[at]:
        return Verdict("convex", "holds", f"no midpoint of {len(starts):,} segments lies above its chord", case)
    return Verdict(
        "convex",
        "fails",
        f"between f = {written(starts[at])} and {written(stops[at])} the middle is {float(excess[at]):.6g} above the "
        "chord",
        case,
    )


def smooth(subject: Subject, seed: int = 0) -> Verdict:
    """Whether the gradient is Lipschitz: the largest constant found, or a place where the gradient jumps.

    Segments are halved, each time keeping the half over which the gradient changes more. Over a jump that change stays
    as large as it was however short the segment gets.
    """
    start = sample(subject.classes, 1000, seed)
    generator = torch.Generator().manual_seed(seed + 1)
    stop = start + torch.randn(start.shape, generator=generator, dtype=torch.float64)
    slope_at_start, slope_at_stop = _slope(subject, start), _slope(subject, stop)
    constant = torch.zeros(len(start), dtype=torch.float64)
    for _ in range(24):
        middle = (start + stop) / 2
        slope = _slope(subject, middle)
        earlier = (slope - slope_at_start).norm(dim=-1) > (slope_at_stop - slope).norm(dim=-1)
        pick = earlier.unsqueeze(-1)
        start, slope_at_start = torch.where(pick, start, middle), torch.where(pick, slope_at_start, slope)
        stop, slope_at_stop = torch.where(pick, middle, stop), torch.where(pick, slope, slope_at_stop)
        change = (slope_at_stop - slope_at_start).norm(dim=-1)
        constant = torch.maximum(constant, change / (stop - start).norm(dim=-1))
    jump = int(change.argmax())
    if change[jump] > 1e-3:
        case: Case = {"f": tuple(start[jump].tolist()), "jump": float(change[jump])}
        return Verdict(
            "smooth", "fails", f"the gradient jumps by {change[jump]:.4g} at f = {written(start[jump])}", case
        )
    steepest = constant.argsort(descending=True)[:20]
    f, largest = _climb(subject, start[steepest], (stop - start)[steepest], generator)
    case = {"f": tuple(f.tolist()), "constant": largest}
    return Verdict(
        "smooth", "holds", f"the largest slope of the gradient found is {largest:.4g}, at {written(f)}", case
    )


def _climb(subject: Subject, point: Tensor, direction: Tensor, generator: torch.Generator) -> tuple[Tensor, float]:
    """Where the gradient changes fastest, and how fast, by trying neighbours that get closer and closer."""

    def neighbours(of: Tensor, radius: float) -> Tensor:
        noise = torch.randn(len(of), 16, of.shape[-1], generator=generator, dtype=torch.float64)
        return torch.cat([of.unsqueeze(1), of.unsqueeze(1) + radius * noise], 1).flatten(0, 1)

    width, radius = 1e-4, 1.0
    while radius > 1e-3:
        points, directions = neighbours(point, radius), neighbours(normalize(direction, dim=-1), radius)
        ahead = width * normalize(directions, dim=-1)
        rate = (_slope(subject, points + ahead) - _slope(subject, points - ahead)).norm(dim=-1) / (2 * width)
        best = rate.view(len(point), -1).argmax(-1) + torch.arange(0, len(points), len(points) // len(point))
        point, direction, radius = points[best], directions[best], 0.8 * radius
    at = int(rate[best].argmax())
    return point[at], float(rate[best[at]])


def _slope(subject: Subject, logits: Tensor) -> Tensor:
    logits = logits.detach().requires_grad_()
    (slope,) = torch.autograd.grad(subject.values(logits)[:, 0].sum(), logits)
    return slope
