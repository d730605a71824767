"""Launching the kernel: what a call needs, how rows are laid out over programs."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch
import triton
from torch import Tensor

from labelhedge.kernels._elementary import INTERPRETED as _INTERPRETED
from labelhedge.kernels._results import LARGE_LAMBDA
from labelhedge.kernels._visit import add_up as _add_up
from labelhedge.kernels._visit import count as _count
from labelhedge.kernels._visit import gradient_of_classes as _gradient_of_classes
from labelhedge.kernels._visit import rescale as _rescale
from labelhedge.kernels._visit import visit as _visit
from labelhedge.kernels.formulas import FORMULAS

Grid: TypeAlias = tuple[int, int, int]
INTERPRETED: bool = _INTERPRETED.value
"""Whether the kernels run on a CPU, in Triton's interpreter."""
LONGEST_ROW = 32_768
"""Classes of a row that a program can hold in its registers."""
ONE_PROGRAM = 2**14
"""Up to so many logits are one program's, which then adds up the values: it is the launches that take time."""
RESCALE_BLOCK, SUM_BLOCK = 8192, 16_384
"""Numbers that a program takes at a time."""
FEW_ROWS = 1024
"""Up to so many, every program counts the targets itself, which costs less than another launch, and torch adds up."""
MOST_ROWS_AT_ONCE = 2**17
"""Up to so many, a single program is quicker than a reduction by torch."""


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


class Prepared:
    """A call on logits of one shape and type, examined once for many batches.

    The target, what the loss is divided by and, for Algorithm 1, the λ to start from come with each batch.
    ``gradient`` says whether most visits are to write one: they are laid out for it. ``mean`` says that the loss is to
    be divided by the number of targets that are not ignored, which the kernel counts: for up to ``FEW_ROWS``.
    """

    def __init__(self, call: Call, logits: Tensor, *, gradient: bool = True, mean: bool = False) -> None:
        rows, classes = logits.shape
        formula = FORMULAS[call.formula]
        how = layout(classes, logits.element_size(), call.solve == "exact", gradient, rows)
        apart = call.margin is not None or formula.terms is not None
        align = math.gcd(classes, logits.stride(0), 16)
        self._kernel = _Remembered(_visit, {"num_warps": how.warps, "maxnreg": how.registers})
        self._grid = (triton.cdiv(rows, how.rows), 1, 1)
        self.adds_up = self._grid[0] == 1
        """Whether a visit can give the sum of the values."""
        self._weight, self._ignore_index = call.weight, call.ignore_index
        self._sizes = (rows, logits.stride(0) // align)
        self._scaling = (call.temperature, call.margin)
        self._lam = None if call.solve == "step" else call.lam
        shape = (
            *(classes, how.block, how.pieces, call.normalize == "softplus", apart, call.normalize == "l1"),
            math.gcd(align, 16 // logits.element_size(), max(1, how.block // (32 * how.warps))),
            False,
        )
        self._rest = (
            *(call.lambda0, call.alpha, *call.params, *(None,) * (4 - len(call.params))),
            *(formula.finish, formula.terms, formula.needs, call.normalize, call.solve, call.octaves),
            *(_may_be_large(call), shape, align, how.rows, mean),
        )

    def visit(
        self,
        logits: Tensor,
        target: Tensor,
        denominator: Tensor | None,
        start: Tensor | None = None,
        *,
        value: Tensor | None = None,
        lam: Tensor | None = None,
        gradient: Tensor | None = None,
        gist: Tensor | None = None,
        total: Tensor | None = None,
        upstream: Tensor | None = None,
    ) -> None:
        """Write the value, λ and gradient of each row of ``logits`` ``(N, K)`` into the tensors given.

        ``gradient`` may be the logits themselves. ``gist`` ``(5, N)`` gets what :func:`gradient_of_classes` needs,
        ``total`` the sum of the values.
        ``upstream`` multiplies the gradient: one number, or one per row.
        """
        if self._grid[0] == 0:
            return
        first_lam = self._lam if start is None else start
        self._kernel.launch(
            logits, self._grid,
            (logits, target, self._weight, denominator, upstream, value, lam, gradient, gist, total, first_lam),
            (*self._sizes, int(upstream is not None and upstream.numel() > 1), 0 if gist is None else gist.stride(0)),
            (self._ignore_index, *self._scaling, *self._rest),
        )  # fmt: skip


def visit(call: Call, logits: Tensor, **outputs: Tensor | None) -> None:
    """One launch of :class:`Prepared`; the outputs as there."""
    start = call.lam if isinstance(call.lam, Tensor) and call.solve == "step" else None
    prepared = Prepared(call, logits, gradient=outputs.get("gradient") is not None)
    prepared.visit(logits, call.target, call.denominator, start, **outputs)


class _Remembered:
    """A kernel for arguments that are always of the same types.

    At every launch Triton examines all arguments, which takes the host longer than the launch. Here only what may
    differ is: which tensors are there, and whether they begin at a multiple of 16 bytes.
    """

    def __init__(self, kernel: Any, options: dict[str, Any]) -> None:
        self._kernel, self._options = kernel, options
        self._launchers: dict[tuple[int, ...], Any] = {}

    def launch(
        self, where: Tensor, grid: Grid, tensors: Sequence[Any], sizes: Sequence[int], rest: Sequence[Any]
    ) -> None:
        """Launch it on the device of ``where`` with all arguments. Sizes always have 32 bits, or always more."""
        device = where.get_device()
        if INTERPRETED or device != torch.cuda.current_device():
            with torch.cuda.device(device):
                self._kernel[grid](*tensors, *sizes, *rest, **self._options)
            return
        places = [tensor.data_ptr() if isinstance(tensor, Tensor) else tensor for tensor in tensors]
        key = (grid[0], *[place % 16 if type(place) is int else -1 for place in places])
        launcher = self._launchers.get(key)
        if launcher is None:
            if len(self._launchers) >= 1000:  # rows of ever another number
                self._launchers.clear()
            self._launchers[key] = self._kernel[grid](*tensors, *sizes, *rest, **self._options)[grid]
        else:
            stream = triton.runtime.driver.active.get_current_stream(device)
            launcher(*places, *sizes, *rest, stream=stream)  # of a number Triton does not ask where it is


def gradient_of_classes(call: Call, logits: Tensor, gist: Tensor, first: int) -> None:
    """Turn the logits of the classes from ``first`` on, ``(N, width)``, into their gradient, in place."""
    rows, width = logits.shape
    block = 2048
    if rows:
        with torch.cuda.device(logits.get_device()):
            _gradient_of_classes[(rows, triton.cdiv(width, block))](
                logits, call.target, gist, first, width, logits.stride(0), gist.stride(0),
                NORMALIZE=call.normalize, BLOCK=block,
            )  # fmt: skip


def _may_be_large(call: Call) -> bool:
    """Whether a λ may be so large that the kernel needs another pass."""
    largest = call.lam if call.lambda0 is None else call.lambda0
    return isinstance(largest, Tensor) or (largest is not None and largest > LARGE_LAMBDA.value)


@dataclass(frozen=True)
class Layout:
    """How rows are laid out over programs."""

    block: int
    """Classes of a piece."""
    pieces: int
    """Pieces of a row that a program holds; 0 for a row that it reads again for every sum."""
    rows: int
    """Rows that a program takes at a time."""
    warps: int
    registers: int | None
    """Of a thread; with fewer, more programs run at a time."""


def layout(classes: int, itemsize: int, exact: bool, gradient: bool, rows: int) -> Layout:
    """Chosen by times on an H200. ``itemsize`` is the bytes of a logit."""
    block = max(triton.next_power_of_2(classes), 16)
    size = block * triton.next_power_of_2(max(rows, 1))
    if block <= 1024 and size <= ONE_PROGRAM:
        return Layout(block, 1, size // block, max(1, size // 512), None)
    if classes <= 256:
        warps = 1 if exact else 2
        return Layout(block, 1, warps * max(1, 128 // block), warps, 64 if exact else 40)
    if classes <= 2048:
        return Layout(block, 1, 1, max(1, block // 1024), 128 if exact else 96)
    if classes <= 20_480 or (classes <= LONGEST_ROW and itemsize == 4 and not exact):
        warps = 4 if classes <= 10_240 else 8 if classes <= 20_480 else 16  # up to 80 classes for a thread
        block = 256 * min(warps, 8)
        return Layout(block, triton.cdiv(classes, block), 1, warps, 128)
    # so many programs run at a time that the second-level cache has room for their rows
    warps = 4 if classes * itemsize <= 80_000 else 8 if classes * itemsize <= 160_000 else 16
    if warps == 16 and not gradient:
        return Layout(4096, 0, 1, 8, 64)
    if warps == 16 and exact:
        return Layout(16_384 // itemsize, 0, 1, 8, 128)
    return Layout(512 * warps, 0, 1, warps, 128)


def rescale(gradient: Tensor, upstream: Tensor) -> None:
    """Multiply the gradient in place by the number in ``upstream``, without waiting to see whether it is 1."""
    size = gradient.numel()
    if size <= RESCALE_BLOCK * 4 and gradient.dtype == upstream.dtype:
        gradient.mul_(upstream)
    else:
        grid = (min(-(-size // RESCALE_BLOCK), 1056), 1, 1)
        kernel = _small(_rescale, gradient.dtype, upstream.dtype, gradient.device, size < 2**31)
        kernel.launch(gradient, grid, (gradient, upstream), (size,), (RESCALE_BLOCK,))


def count(target: Tensor, ignore_index: int) -> Tensor:
    """How many targets are not to be ignored, as a float32 number on their device."""
    rows = target.shape[0]
    if rows > MOST_ROWS_AT_ONCE:
        return (target != ignore_index).sum().float()
    number = torch.empty((), dtype=torch.float32, device=target.device)
    kernel = _small(_count, target.dtype, target.device, abs(ignore_index) < 2**31)
    kernel.launch(target, (1, 1, 1), (target, number), (rows, ignore_index), (SUM_BLOCK,))
    return number


def total(values: Tensor) -> Tensor:
    """The sum of float32 values, always in the same order."""
    rows = values.shape[0]
    if rows <= FEW_ROWS or rows > MOST_ROWS_AT_ONCE:
        return values.sum()
    number = torch.empty((), dtype=torch.float32, device=values.device)
    kernel = _small(_add_up, values.device)
    kernel.launch(values, (1, 1, 1), (values, number), (rows,), (SUM_BLOCK,))
    return number


@functools.cache
def _small(kernel: Any, *_types: Any) -> _Remembered:
    return _Remembered(kernel, {"num_warps": 4 if kernel is _rescale else 32})
