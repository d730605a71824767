"""State of training samples: reading it, writing it, and merging what several processes have written."""

from __future__ import annotations

import warnings
from numbers import Integral
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from labelhedge.losses._options import is_free_to_read


def checked_count(name: str, count: Any) -> int | None:
    """A number of samples or classes as an ``int``, or None."""
    if count is None:
        return None
    if isinstance(count, bool) or not isinstance(count, Integral) or count < 1:
        raise ValueError(f"{name} must be an integer of at least 1 or None, got {count!r}")
    return int(count)


def read(values: Tensor, index: Tensor, shape: torch.Size) -> Tensor:
    """The values ``(N, ...)`` of the samples at ``index``, whose shape must be that of the samples."""
    if not isinstance(index, Tensor):
        raise TypeError(f"index must be a tensor, got {type(index).__name__}")
    if index.is_floating_point() or index.dtype == torch.bool or index.shape != shape:
        raise ValueError(
            f"index must hold integers of shape {tuple(shape)}, one per target, "
            f"got {index.dtype} of shape {tuple(index.shape)}"
        )
    flat = index.to(values.device, torch.long).flatten()
    try:
        found = values.gather(0, flat) if values.dim() == 1 else values.index_select(0, flat)
    except (RuntimeError, IndexError):
        raise ValueError(f"index must be in [0, {len(values)}), got {_outside(flat, len(values))}") from None
    return found.view(index.shape + values.shape[1:])


def _outside(index: Tensor, count: int) -> int:
    return int(index[(index < 0) | (index >= count)][0])


@torch.no_grad()
def write(values: Tensor, index: Tensor, new: Tensor) -> None:
    """Write the values of the samples at ``index``; a sample that occurs twice gets the mean."""
    index = index.to(values.device, torch.long).flatten()
    new = new.reshape(len(index), *values.shape[1:]).to(values.dtype)
    if not values.is_floating_point():
        values.index_copy_(0, index, new)
        return
    if is_free_to_read(values):  # quicker, and enough if it leaves every sample with its value
        values.index_copy_(0, index, new)
        if torch.equal(values.index_select(0, index), new):
            return
    # as index_reduce_ would with "mean", whose time and memory grow with the number of all samples
    values.index_fill_(0, index, 0.0).index_add_(0, index, torch.ones_like(new))
    share = new / values.index_select(0, index)
    values.index_fill_(0, index, 0.0).index_add_(0, index, share)


def has_company() -> bool:
    """Whether other processes train the same network."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def warn_of_broadcast(module: nn.Module) -> None:
    """Warn if ``DistributedDataParallel``, inside whose forward pass this is called, overwrites the buffers."""
    outer = DistributedDataParallel._get_active_ddp_module()  # type: ignore[no-untyped-call]
    if outer is not None and outer.will_sync_module_buffers():
        own = {id(buffer) for buffer in module.buffers()}
        if any(id(buffer) in own for buffer in outer.modules_buffers):
            name = type(module).__name__
            warnings.warn(
                f"DistributedDataParallel overwrites what {name} keeps of the training samples, in every step and with "
                f"what the first process keeps; call {name} outside of the module that it wraps",
                stacklevel=4,
            )


@torch.no_grad()
def merge(values: Tensor, touched: Tensor, how: str, group: Any) -> None:
    """Merge ``values`` ``(N, ...)`` of all processes, each of which has ``touched`` ``(N,)`` some of the samples."""
    number = values.dtype if values.is_floating_point() else torch.float64  # which holds large integers
    mine = touched.view(-1, *[1] * (values.dim() - 1))
    count = touched.to(number)
    if how == "max":
        total = torch.where(mine, values.to(number), -torch.inf)
        dist.all_reduce(total, dist.ReduceOp.MAX, group=group)
        dist.all_reduce(count, group=group)
    else:
        total = torch.where(mine, values, 0).to(number)
        dist.all_reduce(count, group=group)
        dist.all_reduce(total, group=group)
        total /= count.clamp(min=1).view(mine.shape)
    if not values.is_floating_point():
        total = total.round()
    values.copy_(torch.where((count > 0).view(mine.shape), total.to(values.dtype), values))
