"""What several processes that train one network have to agree on."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn


def place() -> tuple[int, int]:
    """The number of this process, and how many there are; (0, 1) without ``torch.distributed``."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


@contextmanager
def joined(device: str) -> Iterator[str]:
    """Join the processes that ``torchrun`` has started; the device of this one, or ``device`` if it is alone."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        yield device
        return
    gpu = torch.device(device).type == "cuda"
    if gpu:
        device = f"cuda:{os.environ['LOCAL_RANK']}"
        torch.cuda.set_device(device)
    # or else DistributedDataParallel imports it when there is a group, which it then keeps, with gloo's threads: those
    # may abort a process that ends (pytorch issue 190489)
    importlib.import_module("torch._dynamo")
    store, rank, processes = next(dist.rendezvous("env://"))  # type: ignore[attr-defined]
    # or else processes that torchrun starts anew find the addresses of those before, unless it makes a new store too
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    store = dist.PrefixStore(f"start {attempt}", store)  # type: ignore[attr-defined]
    dist.init_process_group("nccl" if gpu else "gloo", store=store, rank=rank, world_size=processes)
    try:
        yield device
    finally:
        dist.destroy_process_group()


def summed(values: Tensor) -> Tensor:
    """The sum over all processes, in place."""
    if place()[1] > 1:
        dist.all_reduce(values)
    return values


class SharedBatchNorm(nn.BatchNorm2d):
    """Batch normalisation over the batches of all processes, which are of one size.

    ``nn.SyncBatchNorm`` is the same for GPUs alone.
    """

    def forward(self, input: Tensor) -> Tensor:
        if not self.training:
            return super().forward(input)
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        x = input.to(self.weight.dtype)
        mean = _mean(x.mean((0, 2, 3)))
        centred = x - mean.view(-1, 1, 1)
        variance = _mean(centred.square().mean((0, 2, 3)))
        with torch.no_grad():
            count = input.numel() // input.shape[1] * place()[1]
            self.num_batches_tracked += 1
            self.running_mean.lerp_(mean, self.momentum or 0.0)
            self.running_var.lerp_(variance * (count / (count - 1)), self.momentum or 0.0)
        scale = self.weight * (variance + self.eps).rsqrt()
        return (centred * scale.view(-1, 1, 1) + self.bias.view(-1, 1, 1)).to(input.dtype)


class _Sum(torch.autograd.Function):
    """The sum over all processes. What it is used for in any of them counts in the gradient of all."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        return summed(values.clone())

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return summed(gradient.clone())


def _mean(values: Tensor) -> Tensor:
    total: Tensor = _Sum.apply(values)  # type: ignore[no-untyped-call]
    return total / place()[1]


def share_statistics(network: nn.Module) -> None:
    """Normalise over the batches of all processes from now on."""
    for module in network.modules():
        if type(module) is nn.BatchNorm2d:
            module.__class__ = SharedBatchNorm
