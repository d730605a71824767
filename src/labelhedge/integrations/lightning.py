"""The losses in Lightning: ``pip install 'labelhedge[lightning]'``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from labelhedge._optional import optional
from labelhedge.losses import Loss

if TYPE_CHECKING:
    from lightning.pytorch import Callback, LightningModule, Trainer
else:
    Callback = optional("lightning.pytorch", "lightning").Callback


class PerSampleCallback(Callback):
    """Looks after a loss that keeps state of the training samples, such as Algorithm 1 of ALDR-KL, and TGCE.

    It moves the loss to the module's device, merges the values of all processes after each epoch and before each
    checkpoint, logs them, and saves and restores them with Lightning's checkpoints. The loss may be an attribute of the
    module or not; if it is, its values are saved as part of the module, and DDP is told to leave them alone: it would
    overwrite them by those of the first process in every step.

    Logged after each epoch, for ALDR-KL: ``lam_mean``, ``lam_p10`` and ``lam_p90``, the mean λ and two of its
    percentiles; for TGCE ``keep_mean``, the share of samples that are kept.

    Args:
        criterion: Such as ``lh.ALDRKLLoss(num_samples=len(train_set))``.

    Example:
        >>> criterion = lh.ALDRKLLoss(num_samples=1000)
        >>> callback = PerSampleCallback(criterion)  # for Trainer(callbacks=[callback])
    """

    def __init__(self, criterion: Loss) -> None:
        if criterion.num_samples is None:
            raise ValueError(f"criterion keeps nothing: create it with {type(criterion).__name__}(num_samples=N)")
        self.criterion = criterion
        self._in_module = False

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Find out who saves the values, and keep DDP away from them, before it sees the module."""
        names = [name for name, module in pl_module.named_modules() if module is self.criterion]
        self._in_module = bool(names)
        ignored = set(getattr(pl_module, "_ddp_params_and_buffers_to_ignore", ()))
        ignored |= {f"{name}.{kept}" for name in names for kept in self.criterion.state_dict()}
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(  # type: ignore[no-untyped-call]
            pl_module, sorted(ignored)
        )

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Move the values to where the module is by now."""
        self.criterion.to(pl_module.device)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """In training the values are read and written."""
        self.criterion.train()

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """In validation the loss is that of a new sample, without a value of its own."""
        self.criterion.to(pl_module.device).eval()

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Validation may happen in the middle of an epoch."""
        self.criterion.train()

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Merge the values of all processes, and log them."""
        self.criterion.sync()
        logs: dict[str, Tensor] = {}
        for kind in self.criterion.spec.state:
            name, state = kind.name, getattr(self.criterion, kind.name).detach()
            logs[f"{name}_mean"] = state.float().mean()
            if state.is_floating_point() and state.dim() == 1:
                ordered = state.sort().values
                logs |= {f"{name}_p{percent}": ordered[percent * (len(state) - 1) // 100] for percent in (10, 90)}
        pl_module.log_dict(logs)

    def state_dict(self) -> dict[str, Any]:
        """What the checkpoint holds under this callback's name. Collective, as saving a checkpoint is."""
        self.criterion.sync()  # also where the module has the values: its state_dict refers to the same memory
        return {} if self._in_module else dict(self.criterion.state_dict())

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` gave."""
        self.criterion.load_state_dict(state_dict)
