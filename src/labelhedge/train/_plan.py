"""How much memory a stack takes, and how much of it to train at once."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from labelhedge import losses
from labelhedge._errors import UserError
from labelhedge.models.mlp import StackedMLP

if TYPE_CHECKING:
    from labelhedge.train.stacked import Recipe, Task

_WEIGHTS = 5
"""Copies: weights, momenta, the best so far, and two while steps are recorded."""
_LOGITS = 12
"""Tensors of the size of the logits that the largest losses have at a time."""
_EVALUATION = 6
"""Tensors of the size of a block of logits while networks are evaluated."""
_STATE = 6
"""Copies of what a loss keeps of the training samples: the state, its means, and those while steps are recorded."""
_REVIEW = 4
"""Tensors of the size of the predictions for all training samples, where a loss looks at them."""


def bytes_of_stack(
    task: Task, folds: int, trials: int, loss: str, recipe: Recipe, device: torch.device, dtype: torch.dtype
) -> int:
    """About what data and networks take while they train."""
    fixed = _bytes_of_data(task, dtype) + _EVALUATION * _evaluated(device) * dtype.itemsize
    return fixed + trials * folds * _bytes_of_network(task, recipe, loss, dtype)


def trials_at_once(
    task: Task,
    folds: int,
    trials: int,
    loss: str,
    recipe: Recipe,
    memory: int | None,
    device: torch.device,
    dtype: torch.dtype = torch.float32,
) -> int:
    """How many of the trials to train together so that data and networks take no more than ``memory`` bytes."""
    if memory is None:
        return trials
    none, one = (bytes_of_stack(task, folds, count, loss, recipe, device, dtype) for count in (0, 1))
    if memory < one:
        raise UserError(f"memory must be at least {one:,} bytes for {loss} here, got {memory:,}")
    parts = -(-trials // min(trials, (memory - none) // (one - none)))
    return -(-trials // parts)  # parts of about the same size


def _bytes_of_network(task: Task, recipe: Recipe, loss: str, dtype: torch.dtype) -> int:
    """What one more network in a stack takes."""
    sizes = (task.inputs.shape[1], *recipe.hidden, task.num_classes)
    numbers = _WEIGHTS * StackedMLP.count_weights(sizes)
    numbers += recipe.batch_size * (4 * sum(recipe.hidden) + _LOGITS * task.num_classes)
    if recipe.review_after and losses.get(loss).module.wants_predictions:
        numbers += _REVIEW * len(task.inputs) * task.num_classes
    return numbers * dtype.itemsize + _STATE * _bytes_of_state(loss, len(task.inputs), task.num_classes, dtype)


def _bytes_of_state(loss: str, samples: int, classes: int, dtype: torch.dtype) -> int:
    """What a loss keeps of the training samples."""
    return sum(
        math.prod(state.sizes(classes))
        * (samples if state.per_sample else 1)
        * (dtype if state.dtype.is_floating_point else state.dtype).itemsize
        for state in losses.get(loss).state
    )


def _bytes_of_data(task: Task, dtype: torch.dtype) -> int:
    inputs = task.inputs.size + task.test_inputs.size
    return 2 * inputs * dtype.itemsize + 2 * task.labels.nbytes


def rows_at_once(networks: int, width: int, device: torch.device) -> int:
    """How many samples of each network to evaluate together."""
    return max(1, _evaluated(device) // (networks * width))


def _evaluated(device: torch.device) -> int:
    """Numbers in a block: what a GPU needs to be busy, or what fits into a processor's cache."""
    return 2**25 if device.type == "cuda" else 2**18
