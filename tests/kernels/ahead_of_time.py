"""Compiles the kernel for a GPU that need not be there: python -m tests.kernels.ahead_of_time

Triton's interpreter takes more of Python than its compiler does, so what runs there may still not compile.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from triton import compile as compile_kernel
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

import labelhedge as lh
from labelhedge.kernels import launch
from labelhedge.losses._kernels import kernel_call

HOPPER = GPUTarget("cuda", 90, 32)
CLASSES = 100
TYPES = {torch.float32: "*fp32", torch.int64: "*i64"}


def signature_of(argument: Any) -> str:
    """Its type, as Triton writes types."""
    if isinstance(argument, Tensor):
        return TYPES[argument.dtype]
    return {float: "fp32", int: "i32"}.get(type(argument), "constexpr")


def compiled(loss: lh.losses.Loss, mean: bool = False) -> str:
    """What the compiler makes of one visit to a batch, value, λ and gradient; ``mean`` as in ``launch.Prepared``."""
    logits, target = torch.zeros(8, CLASSES), torch.zeros(8, dtype=torch.long)
    batch = replace(loss._prepared(logits, target), for_kernels=True, target=target)
    prepared = launch.Prepared(kernel_call(batch), logits, mean=mean)
    remembered = prepared._kernel
    kernel, numbers = remembered._kernel, torch.zeros(8)
    outputs = (numbers, numbers, logits)
    total = numbers if prepared.adds_up else None
    arguments = [logits, target, None, None if mean else numbers, numbers, *outputs, None, total, prepared._lam]
    arguments += [8, 1, 0, 0, -100, *prepared._scaling, *prepared._rest]
    names = kernel.arg_names
    constants = names.index("FINISH")  # from here on
    types = {
        name: "constexpr" if place >= constants else signature_of(argument)
        for place, (name, argument) in enumerate(zip(names, arguments, strict=True))
    }
    fixed = {(place,): arguments[place] for place, name in enumerate(names) if types[name] == "constexpr"}
    return compile_kernel(ASTSource(kernel, types, fixed), target=HOPPER, options=remembered._options).asm["ptx"]


def main() -> None:
    for name in lh.losses.names():
        if lh.losses.get(name).closed_form is not None:
            assert ".target sm_90" in compiled(lh.losses.create(name))
            print(name)
    assert ".target sm_90" in compiled(lh.CELoss(), mean=True)


if __name__ == "__main__":
    main()
