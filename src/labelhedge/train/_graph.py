"""Steps that cost a GPU no waiting: fused by torch's compiler and recorded as CUDA graphs. On a CPU, as they are."""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Callable, Sequence
from threading import Lock
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor

_WARM_UP = 3
_NUMBERS = itertools.count()
_RECORDING = Lock()
"""Held while steps are compiled and recorded, of which a process can do one at a time."""


def compiles(device: torch.device) -> bool:
    """Whether torch's compiler pays, and can be had: it brings Triton where it brings CUDA."""
    return device.type == "cuda" and importlib.util.find_spec("triton") is not None


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with its operations fused; dimension 1 of its tensors may vary."""
    fused = torch.compile(_copied(function), fullgraph=True)

    def call(*arguments: Any) -> Any:
        for argument in arguments:
            if isinstance(argument, Tensor) and argument.shape[1] > 1:
                torch._dynamo.maybe_mark_dynamic(argument, 1)
        return fused(*arguments)

    return call


def _copied(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function with code of its own.

    The compiler remembers by its code, and there by its name and line, what it has made of a function. After a few
    losses in one process it would refuse the next ones.
    """
    if isinstance(function, MethodType):
        return MethodType(_copied(function.__func__), function.__self__)
    assert isinstance(function, FunctionType)
    code = function.__code__.replace(co_name=f"{function.__name__}_{next(_NUMBERS)}")
    return FunctionType(code, function.__globals__, code.co_name, function.__defaults__, function.__closure__)


def replayed(step: Callable[[], None], changes: Sequence[Tensor], device: torch.device) -> Callable[[], None]:
    """The step, recorded once and replayed at every call.

    Args:
        step: Works on tensors that stay where they are.
        changes: The tensors that it changes; they are as before when this function returns.
        device: Where the tensors are.
    """
    if device.type != "cuda":
        return step
    with _RECORDING:
        return _recorded(step, changes)


def _recorded(step: Callable[[], None], changes: Sequence[Tensor]) -> Callable[[], None]:
    before = [tensor.clone() for tensor in changes]
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(_WARM_UP):
            step()
            _restore(changes, before)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # what other threads do meanwhile does no harm
        step()
    _restore(changes, before)
    return graph.replay


@torch.no_grad()
def _restore(tensors: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    for tensor, value in zip(tensors, values, strict=True):
        tensor.copy_(value)
