"""The inner problem of ALDR-KL: which λ a sample chooses.

For the gaps ``q`` of a sample λ maximises ``λ log mean_k exp(q_k/λ) - (α/2)(λ - λ0)²``. The first term is convex in λ,
so there may be several local maxima. All functions take gaps as ``x = q - max q`` of shape ``(..., K)``, and
hyperparameters as floats or ``(..., 1)``; none is differentiable. ``classes`` is K, or where a class is masked (its gap
is -∞) the number of those that are not, ``(..., 1)``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from labelhedge.losses._formulas import constant
from labelhedge.losses._options import Number, is_free_to_read

_NODES = (1, 4 / 3, 5 / 3, 2)
"""Where the objective is sampled: values of λ0/λ over an octave. Further octaves double them."""
_FINE = 16
"""Points of the interpolated objective between two nodes."""
_OCTAVES = 8
_AT_ONCE = 2**17
"""Gaps for which all nodes are computed in one go; beyond, the temporaries would leave the cache."""
_ZERO = 1e-10
"""A λ, or a ratio λ/λ0, that counts as 0."""
_LOG2 = math.log(2)
_ABSENT = -1e30
"""Stands for a gap of -∞: times an exponential of 0 it is 0."""
NEW = (None, None)
"""No buffers to write into: make new tensors."""


def log_of(classes: Number) -> Number:
    """``log K``, but a little more than 0 where a single class is left, which has no choice of λ to make."""
    return classes.log().clamp(min=_ZERO) if isinstance(classes, Tensor) else math.log(classes)


def strength(alpha: Number | None, lambda0: Number, classes: Number) -> Number:
    """α, by default ``2 log K/λ0``; where λ0 = ∞ any will do, since then λ = ∞."""
    chosen: Number = 2 * log_of(classes) / lambda0 if alpha is None else alpha
    if isinstance(lambda0, Tensor):
        return torch.where(lambda0.isinf(), 1.0, chosen)
    return 1.0 if lambda0 == math.inf else chosen


def penalty(lam: Number, lambda0: Number, alpha: Number | None, classes: Number) -> Number:
    """``(α/2)(λ - λ0)²``, and 0 where λ0 = ∞."""
    excess: Number = 0.0
    if isinstance(lambda0, Tensor):
        excess = torch.where(lambda0.isinf(), 0.0, lam - lambda0)
    elif lambda0 != math.inf:
        excess = lam - lambda0
    return excess * excess * (0.5 * strength(alpha, lambda0, classes))


def smallest(lambda0: Number, alpha: Number | None, classes: Number) -> Number:
    """A lower bound of λ, since ``KL(p, 1/K) <= log K``."""
    return lambda0 - log_of(classes) / strength(alpha, lambda0, classes)


def exponentials(x: Tensor, lam: Number, buffers: Sequence[Tensor | None] = NEW) -> tuple[Tensor, Tensor]:
    """``x/λ`` in units of log 2, and ``exp(x/λ)``, each in its buffer; exp2 takes torch a third of the time of exp."""
    scale = lam * _LOG2 if isinstance(lam, Tensor) or not is_free_to_read(x) else constant(lam * _LOG2, x.dtype)
    exponent = torch.div(x, scale, out=buffers[0])
    return exponent, torch.exp2(exponent, out=buffers[1])


def fixed_point_step(
    x: Tensor,
    lam: Number,
    lambda0: Number,
    alpha: Number | None,
    classes: Number,
    buffers: Sequence[Tensor | None] = NEW,
) -> Tensor:
    """One step of Algorithm 1, ``[λ0 - KL(p(λ), 1/K)/α]₊``."""
    if isinstance(classes, Tensor):
        x = x.clamp(min=_ABSENT)
    exponent, e = exponentials(x, lam.clamp(min=_ZERO) if isinstance(lam, Tensor) else lam, buffers)
    total = e.sum(-1, keepdim=True)
    bits = total.log2().sub_(e.mul_(exponent).sum(-1, keepdim=True).div_(total))  # the entropy of p
    inverse = 1 / strength(alpha, lambda0, classes)
    step = bits.mul_(inverse * _LOG2).add_(lambda0 - log_of(classes) * inverse)
    return step if alpha is None else step.clamp_(min=0)  # by default it is at least λ0/2


def global_maximum(x: Tensor, lambda0: Number, alpha: Number | None, classes: Number) -> Tensor:
    """The λ that maximises the objective over [0, λ0].

    With ``ρ = λ/λ0``, x in units of λ0 and ``A = αλ0`` it maximises ``ρ log mean exp(x/ρ) - (A/2)(1-ρ)²``. The first
    term is sampled with two derivatives at a few ``1/ρ`` and interpolated by quintics; the best two local maxima of the
    interpolated objective are refined on the true one by Newton's method.
    """
    if isinstance(classes, Tensor):
        x = x.clamp(min=_ABSENT)
    a = strength(alpha, lambda0, classes) * lambda0
    if isinstance(lambda0, Tensor):
        a = torch.where(lambda0.isinf(), 1.0, a)
    elif lambda0 == math.inf:
        a = 1.0
    x = (x / lambda0).unsqueeze(-2)
    count = 1 if alpha is None else octaves(a, classes)
    if isinstance(classes, Tensor):
        classes = classes.unsqueeze(-1)
    nodes, basis, ratios = _tables(count, x)
    chunks = nodes.chunk(1 if x.numel() <= _AT_ONCE else len(nodes))
    by_order = zip(*(_cumulants(x, chunk, classes) for chunk in chunks), strict=True)
    samples = torch.cat([part for parts in by_order for part in parts], -2).squeeze(-1)
    interpolated = _in_full_precision(samples, basis)
    coarse = interpolated * ratios - 0.5 * a * (1 - ratios).square()
    ratio, low, high = _best_peaks(coarse, ratios)

    if isinstance(a, Tensor):
        a = a.unsqueeze(-1)
    ratio, value = _newton(x, a, ratio, low, high, classes)
    if ratio.shape[-2] == 2:
        best = value.argmax(-2, keepdim=True)
        ratio, low, high = (v.gather(-2, best) for v in (ratio, low, high))
    if x.dtype == torch.float64:
        for _ in range(2):
            ratio, _ = _newton(x, a, ratio, low, high, classes)
    return torch.where(ratio > _ZERO, ratio, 0.0).squeeze(-2) * lambda0


def _in_full_precision(left: Tensor, right: Tensor) -> Tensor:
    """The matrix product, which autocast would take in half precision; the meta device has no autocast."""
    if left.is_meta:
        return left @ right
    with torch.autocast(left.device.type, enabled=False):
        return left @ right


def octaves(a: Number, classes: Number) -> int:
    """How many octaves of 1/λ, from 1/λ0 on, can hold the maximum (all of them if that is not known)."""
    if isinstance(a, Tensor) or isinstance(classes, Tensor) or a <= math.log(classes):
        return _OCTAVES
    return min(_OCTAVES, max(1, math.ceil(-math.log2(1 - math.log(classes) / a))))


def _cumulants(x: Tensor, scale: Tensor, classes: Number) -> tuple[Tensor, Tensor, Tensor]:
    """``log mean exp(s x)`` and its first two derivatives in s."""
    e = torch.mul(x, scale / _LOG2).exp2_()
    total = e.sum(-1, keepdim=True)
    mean = e.mul_(x).sum(-1, keepdim=True).div_(total)
    variance = e.mul_(x).sum(-1, keepdim=True).div_(total).sub_(mean.square())
    return total.div_(classes).log_(), mean, variance


def interpolation(
    octaves: int, derivative: int = 0, octave: Sequence[float] = _NODES, fine: int = _FINE
) -> tuple[Tensor, Tensor, Tensor]:
    """Nodes ``(n, 1)``, the matrix from samples at the nodes to values at the fine points, and ρ at the fine points.

    Or to derivatives in ``1/ρ``. With more than one octave the last fine point is ρ = 0, where ``ρ log mean exp(x/ρ)``
    is 0.
    """
    nodes = list(octave)
    for _ in range(octaves - 1):
        nodes += [2 * node for node in nodes[1 - len(octave) :]]
    t = torch.arange(fine, dtype=torch.float64) / fine
    powers = torch.stack([math.perm(i, derivative) * t ** max(i - derivative, 0) for i in range(6)], -1)
    # quintic Hermite: rows are value, slope and curvature at 0, then at 1, of t^0 ... t^5
    conditions = torch.tensor(
        [1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0]
        + [1, 1, 1, 1, 1, 1, 0, 1, 2, 3, 4, 5, 0, 0, 2, 6, 12, 20],
        dtype=torch.float64,
    ).view(6, 6)
    weights = powers @ torch.linalg.inv(conditions)
    count = len(nodes)
    basis = torch.zeros(3 * count, (count - 1) * fine + 1 + (octaves > 1), dtype=torch.float64)
    ratios = torch.zeros(basis.shape[1], dtype=torch.float64)
    for j in range(count - 1):
        width = nodes[j + 1] - nodes[j]
        columns = slice(j * fine, (j + 1) * fine)
        ratios[columns] = 1 / (nodes[j] + width * t)
        for order in range(3):
            for end in range(2):
                basis[order * count + j + end, columns] += weights[:, 3 * end + order] * width ** (order - derivative)
    basis[(derivative + 1) * count - 1, (count - 1) * fine] = 1.0
    ratios[(count - 1) * fine] = 1 / nodes[-1]
    return torch.tensor(nodes, dtype=torch.float64).unsqueeze(-1), basis, ratios


_TABLES = {
    (octaves, dtype): tuple(table.to(dtype) for table in interpolation(octaves))
    for octaves in range(1, _OCTAVES + 1)
    for dtype in (torch.float32, torch.float64)
}
_MOVED: dict[tuple[int, torch.dtype, torch.device], tuple[Tensor, ...]] = {}


def _tables(octaves: int, like: Tensor) -> tuple[Tensor, ...]:
    """Of the type and on the device of a tensor, and kept there: CUDA graphs cannot fetch them while they record."""
    tables, key = _TABLES[octaves, like.dtype], (octaves, like.dtype, like.device)
    if like.device.type == "cpu":
        return tables
    if torch.compiler.is_compiling():
        return tuple(table.to(like.device, non_blocking=True) for table in tables)
    if key not in _MOVED:
        _MOVED[key] = tuple(table.to(like.device) for table in tables)
    return _MOVED[key]


def _best_peaks(coarse: Tensor, ratios: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The two highest local maxima, by parabola, and their brackets: ratio, low, high, each ``(..., 2, 1)``.

    Where it can be seen without waiting for a device that no row has a second one, ``(..., 1, 1)``.
    """
    last = coarse.shape[-1] - 1
    rising = coarse[..., 1:] > coarse[..., :-1]
    if is_free_to_read(coarse) and not (rising[..., 1:] > rising[..., :-1]).any():
        index = rising.sum(-1, keepdim=True)
    else:
        yes = torch.ones_like(rising[..., :1])
        peak = torch.cat([yes, rising], -1) & torch.cat([~rising, yes], -1)
        peaks = torch.where(peak, coarse, -math.inf)
        first = peaks.argmax(-1, keepdim=True)  # twice argmax: topk takes several times as long
        second = peaks.scatter(-1, first, -math.inf).max(-1, keepdim=True)
        index = torch.cat([first, torch.where(second.values.isinf(), first, second.indices)], -1)
    before, after = (index - 1).clamp(min=0), (index + 1).clamp(max=last)
    middle, high, low = ratios[index], ratios[before], ratios[after]
    value = coarse.gather(-1, index)
    rise = (coarse.gather(-1, before) - value) / (high - middle)
    fall = (value - coarse.gather(-1, after)) / (middle - low)
    # the slope is `fall` half-way down and `rise` half-way up: the parabola's vertex is where it is 0
    vertex = 0.5 * (middle + low + (high - low) * fall / (fall - rise))
    ratio = torch.where((index > 0) & (index < last), vertex, middle)
    return ratio.unsqueeze(-1), low.unsqueeze(-1), high.unsqueeze(-1)


def _newton(x: Tensor, a: Number, ratio: Tensor, low: Tensor, high: Tensor, classes: Number) -> tuple[Tensor, Tensor]:
    """A Newton step on the true objective within [low, high], and the objective expected there."""
    ratio = ratio.clamp(min=_ZERO)
    scale = 1 / ratio
    log_mean, mean, variance = _cumulants(x, scale, classes)
    rest = a * (1 - ratio)
    slope = log_mean - mean * scale + rest
    curvature = variance * scale**3 - a
    step = torch.where(curvature < 0, -slope / curvature, slope / a)
    new = torch.minimum(torch.maximum(ratio + step, low), high)
    step = new - ratio
    return new, ratio * log_mean - 0.5 * rest * (1 - ratio) + step * (slope + 0.5 * step * curvature)
