"""How the numbers that a loss learns descend in somebody else's training loop."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch.amp import GradScaler
from torch.optim import Optimizer

from labelhedge.losses import Loss


class OwnSteps:
    """The steps of the numbers that a loss learns at a rate of its own, taken just before those of the network.

    They are plain gradient steps, as the loss declares them, also where the network has Adam, which would go on moving
    the number of a sample long after its last gradient.

    Args:
        criterion: The loss; one that learns nothing takes no steps.
        optimizers: What these hold is left to them.
    """

    def __init__(self, criterion: Loss, optimizers: Iterable[Optimizer] = ()) -> None:
        held = {number for optimizer in optimizers for group in optimizer.param_groups for number in group["params"]}
        groups = [group for group in criterion.parameter_groups() if "lr" in group and not held & {*group["params"]}]
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
