"""The losses in Hugging Face's Trainer: ``pip install 'labelhedge[transformers]'``."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset, IterableDataset

from labelhedge._optional import optional
from labelhedge.integrations._own_steps import OwnSteps
from labelhedge.integrations._predictions import Predictions
from labelhedge.losses import Loss

if TYPE_CHECKING:
    from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
    from transformers.trainer_utils import get_last_checkpoint
else:
    optional("accelerate", "transformers")
    Trainer = optional("transformers", "transformers").Trainer
    TrainerCallback = optional("transformers", "transformers").TrainerCallback
    get_last_checkpoint = optional("transformers.trainer_utils", "transformers").get_last_checkpoint

MAY_BE_SHIFTED = re.compile("(?<!Masked)(?<!Seq2Seq)LM|ConditionalGeneration")
"""Names of what models return whose logits may be for the next label."""
FILE = "criterion.pt"
"""The file in a checkpoint's folder that holds what a loss keeps per sample."""


def loss_function(criterion: nn.Module, *, shift_labels: bool | None = None) -> Callable[..., Tensor]:
    """A loss as ``Trainer(compute_loss_func=...)`` wants it.

    For models that return one row of logits per label: sequence, image and token classification, masked and causal
    language models. Labels of -100 are ignored. With gradient accumulation the gradient is that of one large batch.
    (With class weights each part of that batch is a weighted mean of its own.)

    Args:
        criterion: A loss of this package or any other module ``criterion(logits, target)`` that gives a mean. One that
            keeps state of its training samples needs :class:`PerSampleTrainer`.
        shift_labels: Whether the logits at each position are for the label at the next one. It must be given if the
            model returns a ``CausalLMOutput`` or the like: True for nearly all causal language models, False for
            decoders of translation models, such as ``BartForCausalLM``.

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
        if shift_labels is None and MAY_BE_SHIFTED.search(type(outputs).__name__):
            raise ValueError(
                "shift_labels must be given for a causal language model: loss_function(criterion, shift_labels=True) "
                "if logits are for the next label, as is usual; False if the labels have been shifted already"
            )
        if shift_labels:
            labels = F.pad(labels, (0, 1), value=-100)[..., 1:]
        logits, labels = logits.flatten(0, -2), labels.flatten()
        samples = () if index is None else (index,)
        mean: Tensor = criterion.to(logits.device)(logits, labels, *samples)
        count = (labels != -100).sum()
        mean = torch.where(count > 0, mean, 0.0)  # a mean of nothing is NaN
        return mean if num_items_in_batch is None else mean * torch.where(count > 0, count / num_items_in_batch, 0.0)

    return loss


class Indexed(Dataset[dict[str, Any]]):
    """A data set of dictionaries, with the position of each sample as its ``index``.

    Example:
        >>> Indexed([{"labels": 3}, {"labels": 1}])[1]
        {'labels': 1, 'index': 1}
    """

    def __init__(self, samples: Any) -> None:
        if isinstance(samples, IterableDataset) or not hasattr(samples, "__len__"):
            raise TypeError(
                "a data set must have a length and be read by position, as that is how the state of a sample is found; "
                f"got {type(samples).__name__}"
            )
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {**self.samples[index], "index": index}


class PerSampleTrainer(Trainer):
    """A Trainer for losses that keep state of their training samples, such as Algorithm 1 of ALDR-KL, and TGCE.

    It tells the loss which samples it sees, lets it learn what it learns, merges the state of all processes after each
    epoch, and saves and restores it with the Trainer's checkpoints. It lies beside the model, in ``criterion.pt``: as a
    part of it, it would be in what ``save_pretrained`` writes, and DDP would overwrite it by that of the first process
    in every step.

    Numbers that the loss learns at a rate of its own descend by plain gradient steps, whatever optimizer and schedule
    the model has; parameters among its hyperparameters join the optimizer that the Trainer creates. What an optimizer
    of yours holds is left to it. In evaluation the loss is that of a new sample, without state. With
    ``model_init`` each training starts from the state of the first.

    Args:
        model: As for ``transformers.Trainer``.
        args: Likewise.
        criterion: Such as ``lh.ALDRKLLoss(num_samples=len(train_dataset))``.
        review_after: Epochs, counted from 1, after which the loss gets predictions for all training samples, if it
            makes use of them: TGCE then chooses what it keeps.
        **kwargs: The other arguments of ``transformers.Trainer``. A ``data_collator`` must keep ``index``, as those of
            Hugging Face do.
    """

    def __init__(
        self,
        model: Any = None,
        args: TrainingArguments | None = None,
        *,
        criterion: Loss,
        review_after: Collection[int] = (),
        **kwargs: Any,
    ) -> None:
        self.criterion = criterion
        self.review_after = review_after
        self._loss = loss_function(criterion, shift_labels=False)  # a sample has one label
        if kwargs.get("train_dataset") is not None:
            indexed = kwargs["train_dataset"] = Indexed(kwargs["train_dataset"])
            if len(indexed) != criterion.num_samples:
                raise ValueError(f"num_samples must be len(train_dataset), {len(indexed)}, got {criterion.num_samples}")
        super().__init__(model, args, compute_loss_func=self._loss, **kwargs)
        self.add_callback(_LookAfter(self))
        self._at_first = deepcopy(criterion.state_dict()) if self.model_init is not None else None

    def _set_signature_columns_if_needed(self) -> None:
        super()._set_signature_columns_if_needed()
        columns: list[str] = self._signature_columns  # type: ignore[assignment]
        if "index" not in columns:
            columns.append("index")  # or it would not reach the collator

    def compute_loss(self, model: nn.Module, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """The Trainer's, with the samples' index on its way to the loss."""
        index = inputs.pop("index", None)
        if model.training and index is None:
            raise ValueError(
                "index is missing in a batch of the training set: data_collator must keep the 'index' of each sample"
            )
        self.criterion.train(model.training)
        self.compute_loss_func = partial(self._loss, index=index if model.training else None)
        return super().compute_loss(model, inputs, *args, **kwargs)

    def create_optimizer(self, *args: Any, **kwargs: Any) -> torch.optim.Optimizer:
        """The Trainer's, with the parameters among the loss's hyperparameters."""
        is_given = self.optimizer is not None
        self.criterion.to(self.args.device)  # now: what the optimizer keeps of a number is loaded to where that lies
        optimizer = super().create_optimizer(*args, **kwargs)
        for group in [] if is_given else self.criterion.parameter_groups():
            if "lr" not in group:
                optimizer.add_param_group({"weight_decay": 0.0, **group})
        return optimizer

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> Any:
        """The Trainer's, after the state of the checkpoint was read."""
        if resume_from_checkpoint is True:
            assert self.args.output_dir is not None
            last = get_last_checkpoint(self.args.output_dir)  # type: ignore[no-untyped-call]
            resume_from_checkpoint = last or True  # if there is none, the Trainer says so
        if isinstance(resume_from_checkpoint, str):
            path = Path(resume_from_checkpoint, FILE)
            if not path.exists():
                raise FileNotFoundError(f"{path} is missing: the checkpoint was not written by a PerSampleTrainer")
            self.criterion.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
        elif self._at_first is not None:
            self.criterion.load_state_dict(self._at_first)
        return super().train(resume_from_checkpoint, *args, **kwargs)

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """The Trainer's; a checkpoint gets the state of the loss too."""
        super().save_model(output_dir, _internal_call)
        if _internal_call and output_dir is not None:
            self.criterion.sync()
            if self.args.should_save:
                torch.save(self.criterion.state_dict(), Path(output_dir, FILE))

    def review(self) -> None:
        """Let the loss make of the predictions for all training samples what it does after an epoch. Collective."""
        model: Any = self.model
        dataset: Any = self.train_dataset
        model.eval()  # each step of the training turns it back
        self.criterion.sync()
        predictions = Predictions(self.criterion)
        for inputs in self.get_test_dataloader(dataset):
            outputs: Any = self.prediction_step(model, inputs, prediction_loss_only=False)
            _loss, logits, labels = outputs
            logits = logits[0] if isinstance(logits, tuple) else logits  # some models return more
            predictions.add(logits, labels, inputs["index"])
        predictions.show()


class _LookAfter(TrainerCallback):
    """What the Trainer does for its loss at the times of a callback; called in every process."""

    def __init__(self, trainer: PerSampleTrainer) -> None:
        self.trainer = trainer

    def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
        optimizer = self.trainer.optimizer
        self.own_steps = OwnSteps(self.trainer.criterion, () if optimizer is None else (optimizer,))

    def on_pre_optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        self.own_steps.step(self.trainer.accelerator.scaler)

    def on_optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        self.trainer.criterion.zero_grad()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """The end of an epoch, but before a checkpoint of its last step."""
        criterion, epoch = self.trainer.criterion, state.epoch
        if criterion.wants_predictions and epoch in self.trainer.review_after:
            self.trainer.review()

    def on_epoch_end(self, *args: Any, **kwargs: Any) -> None:
        self.trainer.criterion.sync()
