"""The predictions for a whole training set, from batches of it that one or several processes have seen."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

from labelhedge.losses import Loss


class Predictions:
    """Collects what a loss wants to see after an epoch.

    Args:
        criterion: The loss, with ``num_samples``.
    """

    def __init__(self, criterion: Loss) -> None:
        self.criterion = criterion
        self.parts: list[tuple[Tensor, Tensor, Tensor]] = []

    def add(self, logits: Tensor, target: Tensor, index: Tensor) -> None:
        """Those of a batch."""
        self.parts.append((logits, target, index.to(logits.device, torch.long)))

    @torch.no_grad()
    def show(self) -> None:
        """Let the loss see all of them at once. Collective."""
        logits, target, index = (torch.cat(parts) for parts in zip(*self.parts, strict=True))
        samples = self.criterion.num_samples
        seen = logits.new_zeros(samples or 0, dtype=torch.long).index_fill_(0, index, 1)
        count = _summed(seen)
        (rows,) = count.nonzero(as_tuple=True)
        self.criterion.refresh(_of_all(logits, index, count)[rows], _of_all(target, index, count)[rows], rows)
        self.criterion.sync()


def _of_all(values: Tensor, index: Tensor, count: Tensor) -> Tensor:
    """Values by the position of their samples in the training set, each of which ``count`` processes have seen."""
    everywhere = values.new_zeros(len(count), *values.shape[1:])
    everywhere[index] = values
    total, count = _summed(everywhere), count.clamp(min=1).view(-1, *[1] * (values.dim() - 1))
    return total / count if values.is_floating_point() else total // count


def _summed(values: Tensor) -> Tensor:
    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        dist.all_reduce(values)
    return values
