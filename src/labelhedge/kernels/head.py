"""A linear layer and a loss on its outputs, which never exist as a whole.

First some rows at a time, with all their classes, which the loss needs. Then some classes at a time, with all rows: the
gradients. So the gradient of each weight is the result of one matrix product, that of the hidden units is summed in
float32, and each is rounded once, at the price of computing the logits a second time.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from labelhedge.kernels.launch import Call, gradient_of_classes, visit

ROWS_AT_A_TIME = 3 / 32
"""Which part of the rows has its logits there at a time; chosen, like the next, by times on an H200."""
CLASSES_AT_A_TIME = 1 / 16
"""Which part of the classes; a little less, for then the float32 sum is there too."""
SMALL = 2**24
"""Logits that are few enough to be there at once."""


def visit_head(
    call: Call,
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    value: Tensor | None = None,
    lam: Tensor | None = None,
    hidden_gradient: Tensor | None = None,
    weight_gradient: Tensor | None = None,
    bias_gradient: Tensor | None = None,
    upstream: Tensor | None = None,
) -> None:
    """Write value and λ of each row of ``hidden`` ``(N, H)`` and the gradients wanted into the tensors given."""
    wants_gradient = any(wanted is not None for wanted in (hidden_gradient, weight_gradient, bias_gradient))
    gist = torch.empty(5, len(hidden), dtype=torch.float32, device=hidden.device) if wants_gradient else None
    for rows in _parts(len(hidden), len(weight), ROWS_AT_A_TIME):
        visit(
            call.of_rows(rows),
            _linear(hidden[rows], weight, bias),
            value=None if value is None else value[rows],
            lam=None if lam is None else lam[rows],
            gist=None if gist is None else gist[:, rows],
            upstream=upstream if upstream is None or upstream.numel() == 1 else upstream[rows],
        )
    if gist is None:
        return
    hidden_total = None if hidden_gradient is None else torch.zeros_like(hidden, dtype=torch.float32)
    for classes in _parts(len(weight), len(hidden), CLASSES_AT_A_TIME):
        logits = _linear(hidden, weight[classes], None if bias is None else bias[classes])
        gradient_of_classes(call, logits, gist, classes.start)
        if hidden_total is not None:
            _add_product(hidden_total, logits, weight[classes])
        if weight_gradient is not None:
            torch.mm(logits.T, hidden, out=weight_gradient[classes])
        if bias_gradient is not None:
            bias_gradient[classes] = logits.sum(0, dtype=torch.float32)
        del logits
    if hidden_gradient is not None and hidden_total is not None:
        hidden_gradient.copy_(hidden_total)


def _linear(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return hidden @ weight.T if bias is None else torch.addmm(bias, hidden, weight.T)


def _add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """Add ``a @ b`` to a float32 ``total``, without rounding it first."""
    if a.is_cuda and a.dtype != torch.float32:
        torch.addmm(total, a, b, out_dtype=torch.float32, out=total)
    else:
        total.addmm_(a.float(), b.float())


def _parts(size: int, other: int, at_a_time: float) -> list[slice]:
    """``size`` rows or classes in parts of a multiple of 64; there are ``other`` of the other."""
    if size * other <= SMALL:
        at_a_time = 1.0
    step = max(64 * math.ceil(size * at_a_time / 64), 1)
    return [slice(start, min(start + step, size)) for start in range(0, size, step)]
