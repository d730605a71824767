"""Losses that keep one value per training sample."""

from __future__ import annotations

from typing import Any, ClassVar, cast

import torch
import torch.distributed as dist
from torch import Tensor

from labelhedge.losses._apply import Batch, Common, Number, prepare
from labelhedge.losses._module import Loss
from labelhedge.losses._spec import is_free_to_read


class PerSampleLoss(Loss):
    """A loss that keeps one value per training sample if it is told their number.

    The values are a buffer: in ``state_dict``, moved by ``.to``, and written only in training mode with gradients
    enabled. They are found by ``index``, the position of each sample in the training set.
    """

    buffer: ClassVar[str]
    _touched: Tensor | None
    """Which values this process has written since the last ``sync()``; there only if there are other processes."""

    def initial(self) -> Number | bool:
        """The value of a sample that has not been visited yet."""
        raise NotImplementedError

    def visit(self, logits: Tensor, target: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """The loss of samples that have this ``value``, and their next value; for callers that keep the values.

        Args:
            logits: As in a call of the loss.
            target: Class indices.
            value: Of the shape of the target.

        Returns:
            The reduced loss, and values in the shape of the target. The buffer is neither read nor written.
        """
        raise NotImplementedError

    def _register_state(self, num_samples: int | None, initial: float | bool) -> None:
        if num_samples is not None and (not isinstance(num_samples, int) or num_samples < 1):
            raise ValueError(f"num_samples must be an integer of at least 1 or None, got {num_samples!r}")
        self.num_samples = num_samples
        self.register_buffer(self.buffer, None if num_samples is None else torch.full((num_samples,), initial))
        self.register_buffer("_touched", None, persistent=False)

    def _prepare(self, logits: Tensor, target: Tensor, **params: Any) -> Batch:
        options = self.options
        params |= {name: options.pop(name) for name in self._hyperparameters}
        return prepare(self.spec, logits, target, cast(Common, options), params)

    def _stored(self, index: Tensor | None, target: Tensor) -> Tensor | None:
        """The values of the samples at ``index``, or None where there are none to use."""
        state: Tensor | None = getattr(self, self.buffer)
        if state is None:
            if index is not None:
                raise ValueError(f"index needs a loss with state: create it with {type(self).__name__}(num_samples=N)")
            return None
        if index is None:
            if self.training:
                raise ValueError(
                    f"index is missing: {type(self).__name__}(num_samples={self.num_samples}) needs the position of "
                    "each sample in the training set, criterion(logits, target, index)"
                )
            return None
        if index.is_floating_point() or index.dtype == torch.bool or index.shape != target.shape:
            raise ValueError(
                f"index must hold integers of shape {tuple(target.shape)}, one per target, "
                f"got {index.dtype} of shape {tuple(index.shape)}"
            )
        index = index.to(state.device, torch.long)
        try:  # unlike indexing, gather refuses negative numbers
            return state.gather(0, index) if index.dim() == 1 else state.gather(0, index.flatten()).view(index.shape)
        except RuntimeError as error:
            raise ValueError(f"index must be in [0, {len(state)}): {error}") from None

    def _store(self, index: Tensor, new: Tensor, valid: Tensor | None) -> None:
        """Write the values of the samples at ``index``; a sample that occurs twice gets the mean."""
        state = getattr(self, self.buffer)
        index, new = index.to(state.device, torch.long).flatten(), new.flatten().to(state.dtype)
        if _has_company():
            if self._touched is None:
                self._touched = torch.zeros_like(state, dtype=torch.bool)
            self._touched.index_fill_(0, index, True)
        if valid is not None:
            new = torch.where(valid.flatten(), new, state[index])
        if state.dtype == torch.bool:
            state.scatter_(0, index, new)
            return
        if is_free_to_read(state):  # scatter_ is quicker, and enough if it leaves every sample with its value
            state.scatter_(0, index, new)
            if torch.equal(state.gather(0, index), new):
                return
        # as scatter_reduce_ would with "mean", whose time and memory grow with the number of all samples
        state.index_fill_(0, index, 0.0).scatter_add_(0, index, torch.ones_like(new))
        share = new / state.gather(0, index)
        state.index_fill_(0, index, 0.0).scatter_add_(0, index, share)

    def extra_repr(self) -> str:
        count = "" if self.num_samples is None else f"num_samples={self.num_samples}"
        return ", ".join(part for part in (count, super().extra_repr()) if part)

    @torch.no_grad()
    def sync(self, group: Any = None) -> None:
        """Merge the values that each rank of ``torch.distributed`` has written since the last call.

        Collective: every rank calls it, for instance at the end of an epoch and before a checkpoint. A sample that
        several ranks have visited gets the mean. Does nothing in a process that is alone.
        """
        state: Tensor | None = getattr(self, self.buffer)
        if state is None or not _has_company():
            return
        touched = torch.zeros_like(state, dtype=torch.bool) if self._touched is None else self._touched
        count = touched.to(state.dtype if state.is_floating_point() else torch.float32)
        total = torch.where(touched, state, 0).to(count.dtype)
        dist.all_reduce(count, group=group)
        dist.all_reduce(total, group=group)
        merged = total / count.clamp(min=1)
        if state.dtype == torch.bool:
            merged = merged.round()
        state.copy_(torch.where(count > 0, merged.to(state.dtype), state))
        if self._touched is not None:
            self._touched.zero_()  # in its place, which a CUDA graph may know


def _has_company() -> bool:
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
