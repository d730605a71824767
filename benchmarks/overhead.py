"""Forward and backward of one call from Python, as a ratio to nn.CrossEntropyLoss in the same run.

    python benchmarks/overhead.py [--device cpu|cuda] [--loss ID ...] [--shape ROWSxCLASSES ...] [--rounds N]

For small batches the time goes into the host: checks, launches, autograd. Each round times torch's cross entropy right
before each loss, on the same logits; the table shows the median of the rounds' ratios. On a GPU a round waits for the
device at its end only, so that it measures what a training loop sees. Results of a run are in docs/results/overhead.md.
"""

import argparse
import platform
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

import labelhedge as lh

SHAPES = ("128x10", "128x100", "128x1000")
Step = Callable[[Tensor, Tensor], Tensor]


def entries(rows: int, device: str, wanted: list[str]) -> dict[str, Step]:
    """What is timed, by name: every loss with its defaults, and both modes of ALDR-KL."""
    index = torch.arange(rows, device=device)
    stateful = lh.ALDRKLLoss(num_samples=rows).to(device)
    found: dict[str, Step] = {"aldr-kl (Algorithm 1)": lambda logits, target: stateful(logits, target, index)}
    for name in lh.losses.names():
        found["aldr-kl (exact)" if name == "aldr-kl" else name] = lh.losses.create(name)
    return {name: step for name, step in found.items() if not wanted or name.split()[0] in wanted}


def microseconds(step: Step, logits: Tensor, target: Tensor, calls: int) -> float:
    """Mean time of one forward and backward."""
    if logits.is_cuda:
        torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(calls):
        logits.grad = None
        step(logits, target).backward()
    if logits.is_cuda:
        torch.cuda.synchronize()
    return (time.perf_counter() - start) / calls * 1e6


def ratios(shape: str, device: str, wanted: list[str], rounds: int, calls: int) -> tuple[float, dict[str, float]]:
    """Microseconds of cross entropy, and the median ratio of each loss to it."""
    rows, classes = map(int, shape.split("x"))
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(rows, classes, generator=generator).to(device).requires_grad_()
    target = torch.randint(classes, (rows,), generator=generator).to(device)
    torch_loss = nn.CrossEntropyLoss()
    steps = entries(rows, device, wanted)
    for step in (torch_loss, *steps.values()):
        microseconds(step, logits, target, calls)
    reference: list[float] = []
    measured: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            reference.append(microseconds(torch_loss, logits, target, calls))
            measured[name].append(microseconds(step, logits, target, calls) / reference[-1])
    return statistics.median(reference), {name: statistics.median(values) for name, values in measured.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--loss", nargs="*", default=[], choices=lh.losses.names(), metavar="ID")
    parser.add_argument("--shape", nargs="*", default=SHAPES)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--calls", type=int, default=200)
    args = parser.parse_args()

    machine = torch.cuda.get_device_name() if args.device == "cuda" else f"{torch.get_num_threads()} threads"
    print(
        f"Forward + backward of one call, float32, ratio to nn.CrossEntropyLoss (median of {args.rounds} rounds of "
        f"{args.calls} calls). torch {torch.__version__}, Python {platform.python_version()}, {platform.machine()}, "
        f"{machine}.\n"
    )
    columns = [ratios(shape, args.device, args.loss, args.rounds, args.calls) for shape in args.shape]
    print(f"| loss | {' | '.join(shape.replace('x', ' × ') for shape in args.shape)} |")
    print(f"|---|{'---:|' * len(args.shape)}")
    print(f"| nn.CrossEntropyLoss, µs | {' | '.join(f'{reference:.0f}' for reference, _ in columns)} |")
    for name in columns[0][1]:
        print(f"| {name} | {' | '.join(f'{column[name]:.2f}' for _, column in columns)} |")


if __name__ == "__main__":
    main()
