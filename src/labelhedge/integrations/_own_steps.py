"""How the numbers that a loss learns descend in somebody else's training loop."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import torch
from torch.amp import GradScaler
from torch.optim import Optimizer

from labelhedge.losses import Loss


def _warn_unless_plain(criterion: Loss, optimizer: Optimizer, group: dict[str, Any]) -> None:
    optimizer = getattr(optimizer, "optimizer", optimizer)  # Accelerate wraps it
    if not isinstance(optimizer, torch.optim.SGD) or group["momentum"] or group["weight_decay"]:
        warnings.warn(
            f"{type(optimizer).__name__} holds numbers that {type(criterion).__name__} declares to learn by plain "
            "steps at a rate of their own; leave them out of the optimizer, and they are learnt so",
            stacklevel=4,
        )


class OwnSteps:
    """The steps of the numbers that a loss learns at a rate of its own, taken just before those of the network.

    They are plain gradient steps, as the loss declares them, also where the network has Adam, which would go on moving
    the number of a sample long after its last gradient.

    Args:
        criterion: The loss; one that learns nothing takes no steps.
        optimizers: What these hold is left to them.
    """

    def __init__(self, criterion: Loss, optimizers: Iterable[Optimizer] = ()) -> None:
        holding = {
            number: (optimizer, group)
            for optimizer in optimizers
            for group in optimizer.param_groups
            for number in group["params"]
        }
        groups = []
        for group in criterion.parameter_groups():
            (number,) = group["params"]
            if "lr" in group and number in holding:
                _warn_unless_plain(criterion, *holding[number])
            elif "lr" in group:
                groups.append(group)
        self.criterion = criterion
        self.optimizer = torch.optim.SGD(groups) if groups else None

    def step(self, scaler: GradScaler | None) -> None:
        """One step, with gradients that ``scaler``, if there is one, has scaled. Collective."""
        self.criterion.sync_gradients()
        if self.optimizer is None or all(number.grad is None for number in self.criterion.parameters()):
            return
        if scaler is None:
            self.optimizer.step()
        else:
            scaler.step(self.optimizer)
        self.optimizer.zero_grad()
