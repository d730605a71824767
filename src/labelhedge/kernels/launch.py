"""Launching the kernel: what a call needs, how rows are laid out over programs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
import triton
from torch import Tensor

from labelhedge.kernels._visit import LARGE_LAMBDA
from labelhedge.kernels._visit import gradient_of_classes as _gradient_of_classes
from labelhedge.kernels._visit import rescale as _rescale
from labelhedge.kernels._visit import visit as _visit
from labelhedge.kernels.formulas import FORMULAS

INTERPRETED = bool(triton.knobs.runtime.interpret)
"""Whether the kernels run on a CPU, in Triton's interpreter."""
LONGEST_ROW = 32_768
"""Classes of a row that a program can hold."""
LONG_ROW_BLOCK = 8192
"""Classes that it takes at a time of a row it cannot hold."""


@dataclass(frozen=True)
class Call:
    """A loss on rows of logits.

    Numbers are floats, or float32 tensors with one value per row. Options that are None play no part.
    """

    formula: str
    target: Tensor
    """``(N,)`` int64."""
    ignore_index: int
    weight: Tensor | None = None
    denominator: Tensor | None = None
    """What the loss and its gradient are divided by, one number."""
    normalize: str | None = None
    temperature: float | Tensor | None = None
    margin: float | Tensor | None = None
    lam: float | Tensor | None = None
    lambda0: float | Tensor | None = None
    alpha: float | Tensor | None = None
    solve: str = "given"
    octaves: int = 1
    params: tuple[float | Tensor, ...] = ()

    def of_rows(self, rows: slice) -> Call:
        """The call for some of the rows."""

        def pick(value: Any) -> Any:
            return value[rows] if isinstance(value, Tensor) else value

        names = ("target", "temperature", "margin", "lam", "lambda0", "alpha")
        params = tuple(pick(param) for param in self.params)
        return replace(self, params=params, **{name: pick(getattr(self, name)) for name in names})


def visit(
    call: Call,
    logits: Tensor,
    *,
    value: Tensor | None = None,
    lam: Tensor | None = None,
    gradient: Tensor | None = None,
    gist: Tensor | None = None,
    upstream: Tensor | None = None,
) -> None:
    """Write the value, λ and gradient of each row of ``logits`` ``(N, K)`` into the tensors given.

    ``gradient`` may be the logits themselves. ``gist`` ``(5, N)`` gets what :func:`gradient_of_classes` needs.
    ``upstream`` multiplies the gradient: one number, or one per row.
    """
    rows, classes = logits.shape
    if rows == 0:
        return
    formula = FORMULAS[call.formula]
    block, pieces, rows_at_once, warps = layout(classes)
    align = math.gcd(classes, logits.stride(0), 16)
    params = call.params + (None,) * (4 - len(call.params))
    per_row = upstream is not None and upstream.numel() > 1
    with _device_of(logits):
        _visit[(triton.cdiv(rows, rows_at_once),)](
            logits, call.target, call.weight, call.denominator, upstream, value, lam, gradient, gist,
            rows, logits.stride(0) // align, int(per_row), 0 if gist is None else gist.stride(0),
            call.ignore_index,
            call.temperature, call.margin, call.lam, call.lambda0, call.alpha, *params,
            FINISH=formula.finish, TERMS=formula.terms, NEEDS=formula.needs,
            NORMALIZE=call.normalize, SOLVE=call.solve, OCTAVES=call.octaves, LARGE=_may_be_large(call),
            SHAPE=(classes, block, pieces, call.normalize == "softplus"),
            ALIGN=align, ROWS=rows_at_once, num_warps=warps,
        )  # fmt: skip


def gradient_of_classes(call: Call, logits: Tensor, gist: Tensor, first: int) -> None:
    """Turn the logits of the classes from ``first`` on, ``(N, width)``, into their gradient, in place."""
    rows, width = logits.shape
    block = 1024
    if rows:
        with _device_of(logits):
            _gradient_of_classes[(rows, triton.cdiv(width, block))](
                logits, call.target, gist, first, width, logits.stride(0), gist.stride(0),
                NORMALIZE=call.normalize, BLOCK=block,
            )  # fmt: skip


def _device_of(tensor: Tensor) -> torch.cuda.device_of:
    """Triton launches on the current device, whatever the tensors are on."""
    return torch.cuda.device_of(tensor)  # type: ignore[no-untyped-call]


def _may_be_large(call: Call) -> bool:
    """Whether a λ may be so large that the kernel needs another pass."""
    largest = call.lam if call.lambda0 is None else call.lambda0
    return isinstance(largest, Tensor) or (largest is not None and largest > LARGE_LAMBDA.value)


def layout(classes: int) -> tuple[int, int, int, int]:
    """Classes of a piece, pieces of a row, rows that a program takes at a time, and its warps."""
    if classes > LONGEST_ROW:
        return LONG_ROW_BLOCK, 0, 1, 16
    if classes <= 2048:
        block = max(triton.next_power_of_2(classes), 16)
        return block, 1, max(1, 1024 // block), 1
    block = 2048 if classes <= 16_384 else 4096
    return block, triton.cdiv(classes, block), 1, block // 512


def rescale(gradient: Tensor, upstream: Tensor) -> None:
    """Multiply the gradient in place by the number in ``upstream``, without waiting to see whether it is 1."""
    size = gradient.numel()
    if size:
        with _device_of(gradient):
            _rescale[(min(triton.cdiv(size, 8192), 1056),)](gradient, upstream, size, BLOCK=8192)
