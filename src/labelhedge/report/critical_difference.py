"""The critical difference diagram as SVG, in the colour of the text around it."""

import math
from collections.abc import Callable, Sequence
from html import escape

from labelhedge.results.aggregate import Significance

WIDTH, MARGIN = 810, 175
_AXIS, _BAR, _ROW = 64, 9, 21


def diagram(significance: Significance) -> str:
    """Average ranks on a line, best at the left; a bar joins losses that do not differ significantly.

    Args:
        significance: The ranks, the critical difference and the groups.
    """
    losses, ranks = list(significance.ranks), list(significance.ranks.values())
    low, high = 1, max(len(losses), 2)

    def x(rank: float) -> float:
        return MARGIN + (WIDTH - 2 * MARGIN) * (rank - low) / (high - low)

    levels = _levels([(losses.index(group[0]), losses.index(group[-1])) for group in significance.groups])
    first_row = _AXIS + 18 + _BAR * (1 + max((level for *_, level in levels), default=0)) + 8
    left = math.ceil(len(losses) / 2)
    height = first_row + _ROW * left + 4
    parts = [_ruler(x, significance.critical_difference), _axis(x, low, high)]
    for start, end, level in levels:
        y = _AXIS + 16 + _BAR * level
        parts.append(_line(x(ranks[start]) - 4, y, x(ranks[end]) + 4, y, width=4))
    for number, (loss, rank) in enumerate(zip(losses, ranks, strict=True)):
        at_left = number < left
        y = first_row + _ROW * (number if at_left else len(losses) - 1 - number) + 8
        edge, anchor, side = (MARGIN - 12, "end", -6) if at_left else (WIDTH - MARGIN + 12, "start", 6)
        parts.append(f'<path d="M{x(rank):.1f} {_AXIS}V{y}H{edge}" fill="none" stroke="currentColor"/>')
        label = f'{escape(loss)} <tspan opacity=".65">{rank:.2f}</tspan>'
        parts.append(f'<text x="{edge + side}" y="{y + 4}" text-anchor="{anchor}">{label}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img" fill="currentColor" font-family="system-ui, sans-serif" font-size="13">'
        f"<title>Average top-1 ranks of {len(losses)} losses and their critical difference</title>"
        f"{''.join(parts)}</svg>\n"
    )


def _levels(groups: Sequence[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """Each group with the first level at which its bar touches no other."""
    ends: list[int] = []
    placed = []
    for start, end in groups:
        level = next((level for level, last in enumerate(ends) if last < start), len(ends))
        ends[level : level + 1] = [end]
        placed.append((start, end, level))
    return placed


def _line(x1: float, y1: float, x2: float, y2: float, width: float = 1) -> str:
    return f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" stroke="currentColor" stroke-width="{width}"/>'


def _ruler(x: Callable[[float], float], difference: float) -> str:
    start, end, y = x(1), x(1 + difference), 24
    ends = "".join(_line(at, y - 4, at, y + 4) for at in (start, end))
    text = f'<text x="{(start + end) / 2:.1f}" y="{y - 8}" text-anchor="middle">CD = {difference:.2f}</text>'
    return _line(start, y, end, y) + ends + text


def _axis(x: Callable[[float], float], low: int, high: int) -> str:
    ticks = range(low, high + 1, math.ceil((high - low) / 30))
    marks = "".join(_line(x(rank), _AXIS - 5, x(rank), _AXIS) for rank in ticks)
    numbers = "".join(
        f'<text x="{x(rank):.1f}" y="{_AXIS - 9}" text-anchor="middle" font-size="11">{rank}</text>' for rank in ticks
    )
    return _line(x(low), _AXIS, x(high), _AXIS) + marks + numbers
