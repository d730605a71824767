"""Top-k calibration, straight from its definition.

A loss is top-k calibrated if for every distribution q of the labels, predictions f that are not top-k preserving stay
away from the smallest expected loss: ``inf_{f: not P_k(f, q)} L(f, q) > inf_f L(f, q)``. Here both sides are computed,
by minimisation from many starts, for many q.

``P_k(f, q)``: all l with ``q_l > q_[k+1]`` have ``f_l > f_[k+1]``, and all l with ``q_l < q_[k]`` have ``f_l < f_[k]``.
So f violates it if for some l of the first kind k other classes have ``f_j >= f_l``, or for some l of the second kind
K-k other classes have ``f_j <= f_l``: a union of cones, each of which is searched by itself.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch
from torch import Tensor

from labelhedge.theory._minimize import minimize
from labelhedge.theory.subject import Subject

FAR = (60.0, 1e12)
"""Stand for infinity among the starts: where exponentials of differences are nothing, and where their inverses are."""
_SCOUTING, _POLISHING = 12, 200
_KEPT = 4


@dataclass(frozen=True)
class Cone:
    """Predictions with ``f_j - f_l`` of sign ``signs[j]``, or 0, for every j with a sign other than 0."""

    pivot: int
    signs: tuple[int, ...]


@dataclass(frozen=True)
class Gap:
    """How far the predictions that are not top-k preserving stay from the smallest expected loss, for one q."""

    k: int
    q: tuple[float, ...]
    smallest: float
    best_violating: float
    f: tuple[float, ...]
    """The best prediction found that is not top-k preserving."""
    minimizer: tuple[float, ...]
    """The best prediction found."""

    @property
    def size(self) -> float:
        """The difference of the two."""
        return self.best_violating - self.smallest


def distributions(classes: int, seed: int = 0) -> Tensor:
    """Distributions to try, largest first: even steps, near ties, ties, one-hot, uniform tails, random ones."""
    ranks = torch.arange(classes, 0, -1, dtype=torch.float64)
    rows = [ranks, 1 + 0.05 * ranks, 3 + ranks]
    for first in range(1, classes):
        step = torch.ones(classes, dtype=torch.float64)
        step[:first] = 1.3
        rows += [step, torch.where(torch.arange(classes) < first, step, 0.0)]
    tail = torch.ones(classes, dtype=torch.float64)
    tail[0] = 2.0 * classes
    rows.append(tail)
    generator = torch.Generator().manual_seed(seed)
    rows += list(torch.rand(6, classes, generator=generator, dtype=torch.float64).add(0.3).sort(descending=True).values)
    table = torch.stack(rows)
    return table / table.sum(-1, keepdim=True)


def violations(q: Tensor, k: int) -> list[Cone]:
    """The cones whose union is the predictions that are not top-k preserving for q."""
    classes = len(q)
    ordered = q.sort(descending=True).values
    cones = []
    for pivot in range(classes):
        others = [j for j in range(classes) if j != pivot]
        if q[pivot] > ordered[k]:
            cones += [_cone(pivot, above, 1, classes) for above in itertools.combinations(others, k)]
        if q[pivot] < ordered[k - 1]:
            cones += [_cone(pivot, below, -1, classes) for below in itertools.combinations(others, classes - k)]
    return cones


def _cone(pivot: int, members: tuple[int, ...], sign: int, classes: int) -> Cone:
    return Cone(pivot, tuple(sign if j in members else 0 for j in range(classes)))


def preserves(f: Tensor, q: Tensor, k: int) -> bool:
    """``P_k(f, q)``, from the definition."""
    by_f, by_q = (values.sort(descending=True).values for values in (f, q))
    above = f[q > by_q[k]]
    below = f[q < by_q[k - 1]]
    return bool((above > by_f[k]).all() and (below < by_f[k - 1]).all())


def infima(subject: Subject, q_rows: Tensor, seed: int = 0) -> tuple[Tensor, Tensor]:
    """The best predictions found ``(Q, K)`` and their expected losses ``(Q,)``, for each distribution."""
    whole = Cone(0, (0,) * subject.classes)
    return _search(subject, q_rows, [(row, whole) for row in range(len(q_rows))], _starts(subject.classes, seed))


def gaps(subject: Subject, q_rows: Tensor, seed: int = 0) -> list[Gap]:
    """For every distribution and every k below the number of classes, the gap of the definition."""
    cells = [
        (row, k, cone) for row, q in enumerate(q_rows) for k in range(1, subject.classes) for cone in violations(q, k)
    ]
    points, values = _search(subject, q_rows, [(row, cone) for row, _, cone in cells], _starts(subject.classes, seed))
    best, smallest = infima(subject, q_rows, seed)
    # the best violating points may lie on the way to a better one: go on from them without the constraint
    rows = torch.tensor([row for row, _, _ in cells])
    further, further_values = minimize(lambda f, i: subject.expected(f, q_rows[rows[i]]), points, _POLISHING)
    for row in range(len(q_rows)):
        winner = int(torch.where(rows == row, further_values, torch.inf).argmin())
        if further_values[winner] < smallest[row]:
            best[row], smallest[row] = further[winner], further_values[winner]

    found: dict[tuple[int, int], int] = {}
    for number, (row, k, _) in enumerate(cells):
        if (row, k) not in found or values[number] < values[found[row, k]]:
            found[row, k] = number
    return [
        Gap(
            k,
            tuple(q_rows[row].tolist()),
            float(smallest[row]),
            float(values[number]),
            tuple(points[number].tolist()),
            tuple(best[row].tolist()),
        )
        for (row, k), number in found.items()
    ]


def _starts(classes: int, seed: int) -> Tensor:
    """Near 0, at several scales, and towards infinity in every pattern of directions."""
    generator = torch.Generator().manual_seed(seed)

    def random(count: int, scale: float) -> Tensor:
        return scale * torch.randn(count, classes, generator=generator, dtype=torch.float64)

    patterns = torch.tensor(list(itertools.product((-1.0, 0.0, 1.0), repeat=min(classes, 4))), dtype=torch.float64)
    patterns = torch.nn.functional.pad(patterns, (0, classes - patterns.shape[1]))
    near = [torch.zeros(1, classes, dtype=torch.float64), random(6, 0.1), random(8, 1.0), random(4, 5.0)]
    return torch.cat([*near, *(far * patterns + random(len(patterns), 0.01) for far in FAR)])


def _search(subject: Subject, q_rows: Tensor, cells: list[tuple[int, Cone]], starts: Tensor) -> tuple[Tensor, Tensor]:
    """The best point and value found in each cone, each with its distribution."""
    signs = torch.tensor([cone.signs for _, cone in cells], dtype=torch.float64)
    pivots = torch.tensor([cone.pivot for _, cone in cells]).unsqueeze(1)
    q_of = q_rows[torch.tensor([row for row, _ in cells])]

    def points(free: Tensor, cell: Tensor) -> Tensor:
        """``f_j = f_l ± x_j²`` in a cone, and the variables themselves where they are free."""
        sign = signs[cell]
        return torch.where(sign == 0, free, free.gather(1, pivots[cell]) + sign * free * free)

    def expected(free: Tensor, cell: Tensor) -> Tensor:
        return subject.expected(points(free, cell), q_of[cell])

    count = len(starts)
    cell = torch.arange(len(cells)).repeat_interleave(count)
    free = starts.repeat(len(cells), 1)
    ahead = (free - free.gather(1, pivots[cell])) * signs[cell]
    free = torch.where(signs[cell] == 0, free, ahead.clamp(min=0).sqrt())  # the start itself, where it is in the cone
    scouted, values = minimize(lambda x, rows: expected(x, cell[rows]), free, _SCOUTING)
    best = values.view(-1, count).argsort(-1)[:, :_KEPT] + count * torch.arange(len(cells)).unsqueeze(1)
    kept = cell[best.flatten()]
    polished, values = minimize(lambda x, rows: expected(x, kept[rows]), scouted[best.flatten()], _POLISHING)
    winner = values.view(-1, _KEPT).argmin(-1) + _KEPT * torch.arange(len(cells))
    return points(polished[winner], kept[winner]), values[winner]
