"""The losses in Lightning: ``pip install 'labelhedge[lightning]'``."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from labelhedge._optional import optional
from labelhedge.integrations._own_steps import OwnSteps
from labelhedge.integrations._predictions import Predictions
from labelhedge.losses import Loss

if TYPE_CHECKING:
    from lightning.pytorch import Callback, LightningModule, Trainer
else:
    Callback = optional("lightning.pytorch", "lightning").Callback


class PerSampleCallback(Callback):
    """Looks after a loss that keeps state of its training samples, such as Algorithm 1 of ALDR-KL, and TGCE.

    It moves the loss to the module's device, lets it learn what it learns, merges the state of all processes after each
    epoch and before each checkpoint, logs it, and saves and restores it with Lightning's checkpoints. The loss may be
    an attribute of the module or not; if it is, its state is saved as part of the module, and DDP is told to leave it
    alone: it would overwrite it by that of the first process in every step.

    Numbers that the loss learns at a rate of its own descend by plain gradient steps, whatever optimizer the module
    has, unless ``configure_optimizers`` gives them to an optimizer; parameters among its hyperparameters always need
    one.

    Logged after each epoch, where there is one number per sample: the mean, such as ``lam_mean``, and for TGCE
    ``keep_mean``, the share of samples that are kept; and the percentiles ``lam_p10`` and ``lam_p90``.

    Args:
        criterion: Such as ``lh.ALDRKLLoss(num_samples=len(train_set))``.
        review_after: Epochs, counted from 1, after which the loss gets predictions for all training samples, if it
            makes use of them: TGCE then chooses what it keeps.
        predict: Needed for that: logits, labels and index of a training batch, from the module and the batch.
        name: Of the loss, if there are several and so several callbacks: goes before what is logged, and into the key
            of the state in checkpoints.

    Example:
        >>> criterion = lh.TGCELoss(num_samples=1000)
        >>> callback = PerSampleCallback(  # for Trainer(callbacks=[callback])
        ...     criterion, review_after=[10, 15], predict=lambda module, batch: (module(batch[0]), batch[1], batch[2])
        ... )
    """

    def __init__(
        self,
        criterion: Loss,
        *,
        review_after: Collection[int] = (),
        predict: Callable[[Any, Any], tuple[Tensor, Tensor, Tensor]] | None = None,
        name: str = "",
    ) -> None:
        if criterion.num_samples is None:
            raise ValueError(f"criterion keeps nothing: create it with {type(criterion).__name__}(num_samples=N)")
        if review_after and predict is None:
            raise ValueError("predict must be given with review_after, to get logits, labels and index of a batch")
        self.criterion, self.review_after, self.predict, self.name = criterion, review_after, predict, name
        self._in_module = False

    @property
    def state_key(self) -> str:
        """What the state is called in checkpoints."""
        return self._generate_state_key(name=self.name) if self.name else super().state_key

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Find out who saves the state, and keep DDP away from it, before it sees the module."""
        names = [name for name, module in pl_module.named_modules() if module is self.criterion]
        self._in_module = bool(names)
        ignored = set(getattr(pl_module, "_ddp_params_and_buffers_to_ignore", ()))
        ignored |= {f"{name}.{kept}" for name in names for kept in self.criterion.state_dict()}
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(  # type: ignore[no-untyped-call]
            pl_module, sorted(ignored)
        )

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Move the state to where the module is by now."""
        self.criterion.to(pl_module.device)
        self._own_steps = OwnSteps(self.criterion, trainer.optimizers)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """In training the state is read and written."""
        self.criterion.train()

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """In validation the loss is that of a new sample, without state."""
        self.criterion.to(pl_module.device).eval()

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Validation may happen in the middle of an epoch."""
        self.criterion.train()

    def on_before_optimizer_step(
        self, trainer: Trainer, pl_module: LightningModule, optimizer: torch.optim.Optimizer
    ) -> None:
        """Let the loss learn."""
        self._own_steps.step(getattr(trainer.precision_plugin, "scaler", None))

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Merge the state of all processes, show the loss its predictions, and log."""
        self.criterion.sync()
        if self.criterion.wants_predictions and trainer.current_epoch + 1 in self.review_after:
            self._review(trainer, pl_module)
        logs: dict[str, Tensor] = {}
        for kind in self.criterion.spec.state:
            if not kind.per_sample or kind.shape:
                continue
            name, state = "_".join(filter(None, [self.name, kind.name])), getattr(self.criterion, kind.name).detach()
            logs[f"{name}_mean"] = state.float().mean()
            if state.is_floating_point():
                ordered = state.sort().values
                logs |= {f"{name}_p{percent}": ordered[percent * (len(state) - 1) // 100] for percent in (10, 90)}
        pl_module.log_dict(logs)

    @torch.no_grad()
    def _review(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert self.predict is not None
        modes = [(module, module.training) for module in pl_module.modules()]
        pl_module.eval()
        predictions = Predictions(self.criterion)
        with trainer.precision_plugin.forward_context():
            for batch in trainer.train_dataloader:  # type: ignore[union-attr]
                batch = trainer.strategy.batch_to_device(batch, pl_module.device)
                predictions.add(*self.predict(pl_module, batch))
        for module, training in modes:
            module.training = training
        predictions.show()

    def state_dict(self) -> dict[str, Any]:
        """What the checkpoint holds under this callback's name. Collective, as saving a checkpoint is."""
        self.criterion.sync()  # also where the module has the values: its state_dict refers to the same memory
        return {} if self._in_module else dict(self.criterion.state_dict())

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` gave."""
        self.criterion.load_state_dict(state_dict)
