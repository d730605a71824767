"""Few rows on a CPU: value and gradient of a loss in few operations, with nothing worked out twice.

For a small batch the time goes into the number of operations and the Python around them. So what all batches of a kind
share is worked out once; and torch computes only what has an entry for every class. What is one number per row is
computed by NumPy, whose operations on few numbers take a third of torch's time.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from labelhedge.losses._formulas import LOG_2, constant, keeps_digits, through_log_softmax
from labelhedge.losses._quick_lambda import quick_lambda, quick_step
from labelhedge.losses._with_gradient import is_batched, with_gradient

if TYPE_CHECKING:
    from labelhedge.losses._batch import Batch

_MOST_ROWS = 4096
"""For more rows torch is as quick as NumPy."""
BLOCK = 2**19
"""A few buffers of so many logits fit into the cache; more are computed in blocks."""
SMALL = 2**15
"""For fewer logits torch's log softmax is quicker than exponentials, which take more operations."""

Found: TypeAlias = tuple[npt.NDArray[Any], Tensor | None, Tensor | None]
"""The values ``(N, 1)``; the gradient of the reduced loss, if it is wanted; λ ``(N, 1)``, if the loss chooses it."""


def for_few_rows(batch: Batch) -> FewRows | None:
    """What serves all batches of a kind, whose hyperparameters are plain numbers; None where this path does not."""
    logits, form = batch.logits, batch.spec.closed_form
    if (
        form is None
        or batch.for_kernels
        or batch.target is None
        or batch.weight is not None
        or batch.reduction == "none"
        or 0 <= batch.ignore_index < logits.shape[-1]
    ):
        return None
    if not (
        logits.device.type == "cpu"
        and logits.dtype in (torch.float32, torch.float64)
        and logits.is_contiguous()
        and 0 < len(logits) <= _MOST_ROWS
        and logits.numel() <= BLOCK
    ):
        return None
    params = batch.params
    if form.needs == "smooth maximum":
        if batch.normalize == "softplus" or params.get("alpha") is not None:
            return None
        if "lambda0" in params:
            lowest, highest = params["lambda0"] / 2, params["lambda0"]
            return _Adaptive(batch) if keeps_digits(lowest, highest) and logits.dtype == torch.float32 else None
        lam = params.get("lam")  # None for Crammer-Singer, whose λ is 0
        return _SmoothMaximum(batch) if lam is not None and keeps_digits(lam, lam) else None
    if batch.normalize is not None or batch.temperature != 1.0 or "margin" in params:
        return None
    return (_OfTerms if form.needs == "terms" else _OfLogP)(batch)


class FewRows(ABC):
    """A loss on few rows of one shape and type; ``batch`` is one of the kind."""

    def __init__(self, batch: Batch) -> None:
        form = batch.spec.closed_form
        assert form is not None
        assert form.finish is not None or form.needs == "smooth maximum"
        rows, self._classes = batch.logits.shape
        self._batch = replace(batch.without_logits(), target=None, valid=None)
        self._finish: Any = form.finish
        self._terms: Any = form.terms
        self._needs_sum = form.needs == "sum of log p"
        self._params = [batch.params[name] for name in form.params]
        self._share: Any = batch.logits.detach().numpy().dtype.type(1 / rows if batch.reduction == "mean" else 1)

    def loss_of(self, logits: Tensor, target: Tensor) -> Tensor | None:
        """The reduced loss of a batch; None where the ordinary way must be taken, as for labels that are no classes."""
        lowest, highest = torch.aminmax(target)
        if lowest.item() < 0 or highest.item() >= self._classes:
            return None
        found = self.loss(logits, target.unsqueeze(-1))
        return None if found is None else found[0]

    def loss(
        self, logits: Tensor, labels: Tensor, valid: Tensor | None = None, start: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None] | None:
        """The reduced loss for labels ``(N, 1)``, and the λ ``(N, 1)`` that a loss chooses, perhaps from a start.

        Rows that are not ``valid`` do not count; the logits must be such that no gradient reaches them. None where a
        number is not finite: then only the formula knows what to do.
        """
        wants_gradient = logits.requires_grad and torch.is_grad_enabled()
        with np.errstate(all="ignore"):  # infinities are in order
            values, gradient, lam = self.found(logits.detach(), labels, start, wants_gradient)
            if valid is not None:
                values = np.where(valid.numpy(), values, 0)
            total: Any = np.add.reduce(values, None) * self._share
            if valid is not None and self._batch.reduction == "mean":
                more = 1 / valid.numpy().mean(dtype=values.dtype)
                total *= more
                gradient = None if gradient is None else gradient.mul_(float(more))
        if not math.isfinite(total):
            return None
        loss = torch.from_numpy(np.asarray(total))
        if wants_gradient:
            loss = with_gradient(logits, _Computed(self._batch, loss, gradient, labels, valid, lam))
        return loss, lam

    @abstractmethod
    def found(self, f: Tensor, y: Tensor, start: Tensor | None, wants_gradient: bool) -> Found:
        """Values, gradient and λ from logits ``(N, K)`` and class indices ``(N, 1)``."""


class _Computed:
    """A loss and its gradient, as autograd takes them; ``batch`` is one of the kind."""

    def __init__(
        self,
        batch: Batch,
        loss: Tensor,
        gradient: Tensor | None,
        labels: Tensor,
        valid: Tensor | None,
        lam: Tensor | None,
    ) -> None:
        self._batch, self._loss, self._gradient = batch, loss, gradient
        self._labels, self._valid, self._lam = labels, valid, lam

    def loss(self, wants_gradient: bool) -> Tensor:
        loss = self._loss
        del self._loss  # which will refer to this object
        return loss

    def take_gradient(self, logits: Tensor, upstream: Tensor) -> Tensor:
        gradient, self._gradient = self._gradient, None
        if gradient is None:  # it has been taken before
            leaf = logits.detach().requires_grad_()
            with torch.enable_grad():
                return torch.autograd.grad(self.differentiable_loss(leaf), leaf, upstream)[0]
        if is_batched(upstream):
            return gradient * upstream
        return gradient if upstream.item() == 1 else gradient.mul_(upstream)

    def differentiable_loss(self, logits: Tensor) -> Tensor:
        batch = replace(self._batch, logits=logits, target=self._labels, valid=self._valid)
        return batch.reduce((batch if self._lam is None else batch.with_params(lam=self._lam)).values())


class _OfLogP(FewRows):
    """A loss of ``log p_y``, and perhaps of the sum of all ``log p_k``."""

    def found(self, f: Tensor, y: Tensor, start: Tensor | None, wants_gradient: bool) -> Found:
        log_p = f.log_softmax(-1)
        sums = [log_p.gather(-1, y).numpy()]
        if self._needs_sum:
            sums.append(log_p.sum(-1, keepdim=True).numpy())
            if not math.isfinite(sums[1].sum()):  # perhaps a class is masked
                return sums[1], None, None
        values, *slopes = self._finish(*sums, self._params)
        if not wants_gradient:
            return values, None, None
        slopes = [_tensor(slope * self._share, y) for slope in slopes]
        return values, through_log_softmax(slopes, log_p, y), None


class _OfTerms(FewRows):
    """A loss of ``log p_y`` and a sum of terms of each ``p_k``."""

    def found(self, f: Tensor, y: Tensor, start: Tensor | None, wants_gradient: bool) -> Found:
        log_p = f.log_softmax(-1)
        label = log_p.gather(-1, y).numpy()
        if log_p.amin().item() == -math.inf:  # a class is masked
            return label * math.nan, None, None
        p = log_p.exp_()
        term, psi = self._terms(p, None, self._params)
        terms = term.scatter(-1, y, 0.0).sum(-1, keepdim=True).numpy()
        psis = psi.sum(-1, keepdim=True).numpy()
        values, on_p, on_psi, on_label = self._finish(label, terms, psis, float(self._classes), self._params)
        if not wants_gradient:
            return values, None, None
        gradient = p.mul(_tensor(on_p * self._share, y)).addcmul_(psi, _tensor(on_psi * self._share, y))
        return values, gradient.scatter_add_(-1, y, _tensor(on_label * self._share, y)), None


class _OfGaps(FewRows):
    """A smooth maximum of the gaps; ``x`` is the gaps in a ``unit``, up to a constant of each row."""

    def __init__(self, batch: Batch, unit: float) -> None:
        super().__init__(batch)
        dtype, shape = batch.logits.dtype, torch.Size((len(batch.logits), 1))
        scale = 1 / (float(batch.temperature) * unit)
        self._scale = constant(scale * self._classes if batch.normalize else scale, dtype)
        self._margin = constant(-batch.params["margin"] / unit, dtype, shape)
        self._on_x = constant(-unit * float(self._share), dtype)

    def found(self, f: Tensor, y: Tensor, start: Tensor | None, wants_gradient: bool) -> Found:
        if not self._batch.normalize:
            x = torch.sub(f, f.gather(-1, y))  # beside the label's logit a margin could be lost
            x = x.mul_(self._scale).scatter_add_(-1, y, self._margin)
            slope = (self._scale * self._on_x).expand(y.shape) if wants_gradient else None
            values, gradient, lam = self.of_gaps(x, y, start, slope)
            return values if f.amin().item() > -math.inf else values * math.nan, gradient, lam  # a class is masked
        norm = f.abs().sum(-1, keepdim=True)
        scale = torch.div(self._scale, norm)
        x = torch.mul(f, scale).scatter_add_(-1, y, self._margin)
        values, gradient, lam = self.of_gaps(x, y, start, scale.mul_(self._on_x) if wants_gradient else None)
        if gradient is not None:  # it has taken the norm for a constant
            along = torch.mul(gradient, f).sum(-1, keepdim=True).div_(norm)
            gradient.addcmul_(f.sign(), along, value=-1)
        return values, gradient, lam

    @abstractmethod
    def of_gaps(self, x: Tensor, y: Tensor, start: Tensor | None, slope: Tensor | None) -> Found:
        """The same from x; ``slope``, if a gradient is wanted, is the derivative of the loss by the label's gap."""


class _SmoothMaximum(_OfGaps):
    """``λ log mean exp(q/λ)``, which is ``-λ (log p_y + log K)``."""

    def __init__(self, batch: Batch) -> None:
        self._lam = batch.params["lam"]
        self._is_small = batch.logits.numel() < SMALL
        super().__init__(batch, self._lam if self._is_small else self._lam * LOG_2)

    def of_gaps(self, x: Tensor, y: Tensor, start: Tensor | None, slope: Tensor | None) -> Found:
        if not self._is_small:
            values, gradient = _by_exponentials(x.sub_(x.amax(-1, keepdim=True)), y, self._lam * LOG_2, slope)
            return values, gradient, None
        log_p = x.log_softmax(-1)
        values = (log_p.gather(-1, y).numpy() + math.log(self._classes)) * -self._lam
        return values, None if slope is None else through_log_softmax([slope], log_p, y, x), None


class _Adaptive(_OfGaps):
    """The same at the λ that each row chooses, less the penalty."""

    def __init__(self, batch: Batch) -> None:
        self._lambda0 = batch.params["lambda0"]
        super().__init__(batch, self._lambda0 * LOG_2)

    def of_gaps(self, x: Tensor, y: Tensor, start: Tensor | None, slope: Tensor | None) -> Found:
        x.sub_(x.amax(-1, keepdim=True))
        lam, penalty = quick_lambda(x, self._lambda0) if start is None else quick_step(x, start, self._lambda0)
        step = lam.numpy()
        x.mul_(torch.from_numpy(np.float32(self._lambda0) / step))
        values, gradient = _by_exponentials(x, y, step * np.float32(LOG_2), slope)
        return values - penalty, gradient, lam


def _by_exponentials(x: Tensor, y: Tensor, step: Any, slope: Tensor | None) -> tuple[Any, Tensor | None]:
    """Values and gradient of ``λ log mean exp(q/λ)`` from ``x = (q - max q)/step``, where ``step = λ log 2``."""
    label, e = x.gather(-1, y), x.exp2_()
    total = e.sum(-1, keepdim=True)
    values = step * (np.log2(total.numpy() * (1 / x.shape[-1])) - label.numpy())
    if slope is None:
        return values, None
    return values, e.mul_(slope / total.neg_()).scatter_add_(-1, y, slope)


def _tensor(numbers: Any, like: Tensor) -> Tensor:
    """Numbers ``(N, 1)`` as a tensor, also where one serves all rows."""
    return torch.from_numpy(numbers) if numbers.ndim else torch.from_numpy(np.asarray(numbers)).expand(like.shape)
