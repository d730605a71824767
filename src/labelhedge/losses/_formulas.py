"""What formulas are made of: normaliser, log softmax, the entry of the label, gaps, and classes that are masked.

A class whose logit is -∞ counts as absent: every formula gives what it gives without that class.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from labelhedge.losses._options import Normalize, Number, is_free_to_read

LOG_2 = math.log(2)


@functools.lru_cache(maxsize=4096)
def constant(number: float, dtype: torch.dtype, shape: torch.Size | None = None) -> Tensor:
    """A number as a tensor on the CPU: operations on it take torch a microsecond less than on a Python float."""
    with torch.inference_mode(False):
        found = torch.tensor(number, dtype=dtype, device="cpu")
        return found if shape is None else found.expand(shape)


def normalized(logits: Tensor, normalize: Normalize) -> Tensor:
    """The logits divided by ``‖f‖₁/K``, after a softplus if asked; rows of zeros stay zeros."""
    if normalize is None:
        return logits
    masked = masked_classes(logits)
    if masked is not None:
        logits = torch.where(masked, 0.0, logits)
    if normalize == "softplus":
        logits = F.softplus(logits)
        if masked is not None:
            logits = torch.where(masked, 0.0, logits)
    size = logits.abs()
    scale = size.mean(-1, keepdim=True) if masked is None else size.sum(-1, keepdim=True) / count_of(logits, masked)
    scaled = logits / torch.where(scale > torch.finfo(scale.dtype).tiny, scale, 1.0)
    return scaled if masked is None else torch.where(masked, -torch.inf, scaled)


def masked_classes(logits: Tensor) -> Tensor | None:
    """Where a logit is -∞, ``(..., K)``; None where it can be seen that none is."""
    is_free = is_free_to_read(logits)
    if is_free and (logits.numel() == 0 or logits.detach().amin().item() > -torch.inf):
        return None
    masked = logits == -torch.inf  # a NaN, too, leads here
    return None if is_free and not masked.any() else masked


def divided(values: Tensor, by: Number) -> Tensor:
    """The quotient; what is masked stays so, and has no part in the gradient of a divisor that is learnt."""
    masked = masked_classes(values) if isinstance(by, Tensor) and by.requires_grad else None
    return values / by if masked is None else torch.where(masked, -torch.inf, torch.where(masked, 0.0, values) / by)


def count_of(logits: Tensor, masked: Tensor | None) -> Number:
    """The number of classes that are not masked: a number, or ``(..., 1)``."""
    if masked is None:
        return float(logits.shape[-1])
    return (logits.shape[-1] - masked.sum(-1, keepdim=True)).to(logits.dtype)


def log_softmax(logits: Tensor) -> Tensor:
    """``log p`` over the last dimension, in the memory layout of the logits."""
    return logits.mT.log_softmax(-2).mT if lies_transposed(logits) else logits.log_softmax(-1)


def through_log_softmax(slopes: Sequence[Tensor], log_p: Tensor, target: Tensor, out: Tensor | None = None) -> Tensor:
    """The gradient in the logits, from the derivatives in the label's ``log p`` and, if there is one, in their sum."""
    if lies_transposed(log_p):
        moved = [slope.mT for slope in slopes]
        return _through_log_softmax(moved, log_p.mT, target.mT, -2, None if out is None else out.mT).mT
    return _through_log_softmax(slopes, log_p, target, -1, out)


def _through_log_softmax(
    slopes: Sequence[Tensor], log_p: Tensor, target: Tensor, dim: int, out: Tensor | None
) -> Tensor:
    all_slopes = torch.zeros_like(log_p) if len(slopes) == 1 else slopes[1].expand_as(log_p).contiguous()
    return _LOG_SOFTMAX_BACKWARD(all_slopes.scatter_add_(dim, target, slopes[0]), log_p, dim, log_p.dtype, out=out)


_LOG_SOFTMAX_BACKWARD: Callable[..., Tensor] = torch._log_softmax_backward_data


def take(values: Tensor, target: Tensor | None) -> Tensor:
    """The entry of the label, ``(..., 1)``; with ``target=None`` those of all labels, 0 for one that is masked."""
    if target is None:
        masked = masked_classes(values)
        return values if masked is None else torch.where(masked, 0.0, values)
    if torch.compiler.is_compiling():  # unlike gather it has a gradient that fuses with what is around it
        return torch.where(is_label(target, values), values, 0.0).sum(-1, keepdim=True)
    return values.mT.gather(-2, target.mT).mT if lies_transposed(values) else values.gather(-1, target)


def is_label(target: Tensor, values: Tensor) -> Tensor:
    """Whether a class is the label, ``(..., K)``."""
    return torch.arange(values.shape[-1], device=values.device) == target


def gaps(logits: Tensor, target: Tensor, margin: Number) -> Tensor:
    """``q_k = f_k - f_y + c_y`` for the other classes and 0 for the label, ``(..., K)``; -∞ where a class is masked."""
    others = logits - take(logits, target) + margin
    if torch.compiler.is_compiling():
        return torch.where(is_label(target, logits), 0.0, others)
    return others.scatter(-1, target, 0.0)


def keeps_digits(lowest: float, highest: float) -> bool:
    """Whether ``λ log mean exp(q/λ)`` is exact as it is written: for λ away from 0, and not too large."""
    return lowest > 1e-6 and highest <= 64


def lies_transposed(values: Tensor) -> bool:
    """Whether ``(M, B, K)`` is a view of ``(M, K, B)``.

    torch would copy it and go over rows of K; where it lies, B samples are taken at once, which for few classes is 20
    times faster on a CPU.
    """
    return values.dim() > 1 and values.stride(-1) > values.stride(-2) == 1
