"""The losses in Hugging Face's Trainer: ``pip install 'labelhedge[transformers]'``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from labelhedge._optional import optional
from labelhedge.losses import Loss

if TYPE_CHECKING:
    from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
    from transformers.trainer_utils import get_last_checkpoint
else:
    optional("accelerate", "transformers")
    Trainer = optional("transformers", "transformers").Trainer
    TrainerCallback = optional("transformers", "transformers").TrainerCallback
    get_last_checkpoint = optional("transformers.trainer_utils", "transformers").get_last_checkpoint

FILE = "criterion.pt"
"""The file in a checkpoint's folder that holds what a loss keeps per sample."""


def loss_function(criterion: nn.Module) -> Callable[..., Tensor]:
    """A loss as ``Trainer(compute_loss_func=...)`` wants it.

    For models that return one row of logits per label: sequence, image and token classification, masked language
    models; not causal ones, whose labels are shifted. Labels of -100 are ignored. With gradient accumulation the
    gradient is that of one large batch. (With class weights each part of that batch is a weighted mean of its own.)

    Args:
        criterion: A loss of this package or any other module ``criterion(logits, target)`` that gives a mean. One that
            keeps a value per sample needs :class:`PerSampleTrainer`.

    Returns:
        A function of ``outputs, labels, num_items_in_batch=None``, and of ``index`` where the criterion takes one.

    Example:
        >>> compute_loss = loss_function(nn.CrossEntropyLoss())
        >>> outputs = {"logits": torch.zeros(2, 4)}  # half of what one step of the optimizer sees
        >>> compute_loss(outputs, torch.tensor([0, 3]), num_items_in_batch=4)
        tensor(0.6931)
    """
    for name, needed in {"reduction": "mean", "ignore_index": -100}.items():
        value = getattr(criterion, name, needed)
        if value != needed:
            raise ValueError(f"{name} must be {needed!r} in Hugging Face's Trainer, got {value!r}")

    def loss(
        outputs: Any,
        labels: Tensor,
        num_items_in_batch: Tensor | int | None = None,
        index: Tensor | None = None,
    ) -> Tensor:
        logits = outputs["logits"] if isinstance(outputs, dict) else outputs[0]
        logits, labels = logits.flatten(0, -2), labels.flatten()
        count = (labels != -100).sum()
        if not count:  # a mean of nothing is NaN, and so would be the sum over all parts
            return 0.0 * logits.sum()  # type: ignore[no-any-return]
        samples = () if index is None else (index,)
        mean: Tensor = criterion.to(logits.device)(logits, labels, *samples)
        return mean if num_items_in_batch is None else mean * (count / num_items_in_batch)

    return loss


class Indexed(Dataset[dict[str, Any]]):
    """A data set of dictionaries, with the position of each sample as its ``index``.

    Example:
        >>> Indexed([{"labels": 3}, {"labels": 1}])[1]
        {'labels': 1, 'index': 1}
    """

    def __init__(self, samples: Any) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {**self.samples[index], "index": index}


class PerSampleTrainer(Trainer):
    """A Trainer for losses that keep a value per training sample: Algorithm 1 of ALDR-KL, and TGCE.

    It tells the loss which samples it sees, merges the values of all processes after each epoch, and saves and restores
    them with the Trainer's checkpoints. They lie beside the model, in ``criterion.pt``: as a part of it they would be
    in what ``save_pretrained`` writes, and DDP would overwrite them by those of the first process in every step.

    In evaluation the loss is that of a new sample, without a value of its own.

    Args:
        model: As for ``transformers.Trainer``.
        args: Likewise.
        criterion: Such as ``lh.ALDRKLLoss(num_samples=len(train_dataset))``.
        **kwargs: The other arguments of ``transformers.Trainer``. A ``data_collator`` must keep ``index``, as those of
            Hugging Face do.
    """

    def __init__(
        self, model: Any = None, args: TrainingArguments | None = None, *, criterion: Loss, **kwargs: Any
    ) -> None:
        self.criterion = criterion
        self._loss = loss_function(criterion)
        super().__init__(model, args, compute_loss_func=self._loss, **kwargs)
        self.add_callback(_KeepValues(criterion))
        if self.train_dataset is not None:
            samples = len(self.train_dataset)  # type: ignore[arg-type]
            if samples != criterion.num_samples:
                raise ValueError(f"num_samples must be len(train_dataset), {samples}, got {criterion.num_samples}")
            self.train_dataset = Indexed(self.train_dataset)

    def _set_signature_columns_if_needed(self) -> None:
        super()._set_signature_columns_if_needed()
        columns: list[str] = self._signature_columns  # type: ignore[assignment]
        if "index" not in columns:
            columns.append("index")  # or it would not reach the collator

    def compute_loss(self, model: nn.Module, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """The Trainer's, with the samples' index on its way to the loss."""
        index = inputs.pop("index", None)
        self.criterion.train(model.training)
        self.compute_loss_func = partial(self._loss, index=index if model.training else None)
        return super().compute_loss(model, inputs, *args, **kwargs)

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> Any:
        """The Trainer's, after the values of the checkpoint were read."""
        if resume_from_checkpoint is True:
            assert self.args.output_dir is not None
            last = get_last_checkpoint(self.args.output_dir)  # type: ignore[no-untyped-call]
            resume_from_checkpoint = last or True  # if there is none, the Trainer says so
        if isinstance(resume_from_checkpoint, str):
            path = Path(resume_from_checkpoint, FILE)
            if not path.exists():
                raise FileNotFoundError(f"{path} is missing: the checkpoint was not written by a PerSampleTrainer")
            self.criterion.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
        return super().train(resume_from_checkpoint, *args, **kwargs)


class _KeepValues(TrainerCallback):
    """Merges and saves what a loss keeps per sample; called in every process."""

    def __init__(self, criterion: Loss) -> None:
        self.criterion = criterion

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.criterion.sync()

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self.criterion.sync()
        if args.should_save:
            assert args.output_dir is not None
            torch.save(self.criterion.state_dict(), Path(args.output_dir, f"checkpoint-{state.global_step}", FILE))
