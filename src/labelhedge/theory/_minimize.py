"""Many small minimisation problems at once, in float64: BFGS with backtracking, a row each."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Objective = Callable[[Tensor, Tensor], Tensor]
"""From points ``(n, d)`` and the numbers ``(n,)`` of the problems they are tried for, to values ``(n,)``."""
_LONGEST_STEP = 8.0
_SUFFICIENT = 1e-4
_HALVINGS = 30


def minimize(objective: Objective, start: Tensor, iterations: int) -> tuple[Tensor, Tensor]:
    """A local minimum of each problem.

    Args:
        objective: Its value for a row depends on that row alone.
        start: ``(P, d)``, one point for each problem.
        iterations: How many steps to make at most; a problem that no step improves is left alone.

    Returns:
        Points ``(P, d)`` and values ``(P,)``, nowhere worse than at the start.

    Example:
        >>> point, value = minimize(lambda x, _: ((x - 1) ** 2).sum(-1), torch.zeros(2, 3, dtype=torch.float64), 20)
        >>> bool((value < 1e-20).all())
        True
    """
    best = start.clone()
    rows = torch.arange(len(start))
    values, slopes = _value_and_slope(objective, best, rows)
    point, value, slope = best, values.clone(), slopes
    inverse = torch.eye(start.shape[1], dtype=start.dtype).repeat(len(start), 1, 1)
    for _ in range(iterations):
        direction, inverse = _direction(inverse, slope)
        step = _backtrack(objective, point, value, direction, slope, rows)
        moves = step > 0
        if not moves.any():
            break
        rows, point, slope, inverse = rows[moves], point[moves], slope[moves], inverse[moves]
        moved = point + (step.unsqueeze(-1) * direction)[moves]
        value, new_slope = _value_and_slope(objective, moved, rows)
        inverse = _updated(inverse, moved - point, new_slope - slope)
        point, slope = moved, new_slope
        best[rows], values[rows] = point, value
    return best, values


def _value_and_slope(objective: Objective, point: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    point = point.detach().requires_grad_()
    value = objective(point, rows)
    (slope,) = torch.autograd.grad(value.sum(), point)
    return value.detach(), slope.nan_to_num(0.0, 0.0, 0.0)


def _direction(inverse: Tensor, slope: Tensor) -> tuple[Tensor, Tensor]:
    """Downhill by the inverse Hessian, or along the slope where that does not go down."""
    direction = -(inverse @ slope.unsqueeze(-1)).squeeze(-1)
    uphill = ~((direction * slope).sum(-1, keepdim=True) < 0)
    direction = torch.where(uphill, -slope, direction)
    identity = torch.eye(slope.shape[1], dtype=slope.dtype)
    inverse = torch.where(uphill.unsqueeze(-1), identity, inverse)
    return direction * (_LONGEST_STEP / direction.norm(dim=-1, keepdim=True).clamp(min=_LONGEST_STEP)), inverse


def _backtrack(
    objective: Objective, point: Tensor, value: Tensor, direction: Tensor, slope: Tensor, rows: Tensor
) -> Tensor:
    """The first of 1, 1/2, 1/4, … at which a value has fallen enough; 0 where none will do."""
    falls = (direction * slope).sum(-1)
    step = torch.ones_like(value)
    waiting = (falls < 0).nonzero().squeeze(-1)
    step[falls >= 0] = 0
    with torch.no_grad():
        for _ in range(_HALVINGS):
            trial = objective(point[waiting] + step[waiting].unsqueeze(-1) * direction[waiting], rows[waiting])
            enough = value[waiting] + _SUFFICIENT * step[waiting] * falls[waiting]
            waiting = waiting[~((trial <= enough) & (trial < value[waiting]))]
            if not len(waiting):
                return step
            step[waiting] /= 2
    step[waiting] = 0
    return step


def _updated(inverse: Tensor, moved: Tensor, bent: Tensor) -> Tensor:
    """BFGS's update of the inverse Hessian, where the slope has risen along the step."""
    curvature = (moved * bent).sum(-1).view(-1, 1, 1)
    good = curvature > 1e-300
    rho = 1 / torch.where(good, curvature, 1.0)
    s, y = moved.unsqueeze(-1), bent.unsqueeze(-1)
    left = torch.eye(moved.shape[1], dtype=moved.dtype) - rho * s @ y.mT
    return torch.where(good, left @ inverse @ left.mT + rho * s @ s.mT, inverse)
