"""Forward + backward of every loss on this CPU, as a ratio to torch's cross entropy in the same run.

    python benchmarks/losses_cpu.py [--loss ID ...] [--shape ROWSxCLASSES ...] [--rounds N]

Each round times every loss once, right after cross entropy on the same logits; the table shows the median of the
rounds' ratios. Results of a run are in docs/results/losses_cpu.md.
"""

import argparse
import platform
import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

import labelhedge as lh

SHAPES = ("64x26", "64x1000", "4096x100", "4096x1000", "512x32000")
Step = Callable[[Tensor, Tensor], Tensor]


def entries(rows: int, wanted: list[str]) -> dict[str, Step]:
    """What is timed, by name: every registered loss with its defaults, and both modes of ALDR-KL."""
    index = torch.arange(rows)
    stateful = lh.ALDRKLLoss(num_samples=rows)
    found: dict[str, Step] = {"aldr-kl (Algorithm 1)": lambda logits, target: stateful(logits, target, index)}
    for name in lh.losses.names():
        found["aldr-kl (exact)" if name == "aldr-kl" else name] = lh.losses.create(name)
    return {name: step for name, step in found.items() if not wanted or name.split()[0] in wanted}


def seconds(step: Step, logits: Tensor, target: Tensor, budget: float) -> float:
    """Mean time of one forward and backward over as many calls as fit the budget."""
    calls, start = 0, time.perf_counter()
    while calls < 3 or time.perf_counter() - start < budget:
        logits.grad = None
        step(logits, target).backward()
        calls += 1
    return (time.perf_counter() - start) / calls


def ratios(shape: str, wanted: list[str], rounds: int) -> tuple[float, dict[str, float]]:
    """Seconds of cross entropy, and the median ratio of each loss to it."""
    rows, classes = map(int, shape.split("x"))
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(rows, classes, generator=generator, requires_grad=True)
    target = torch.randint(classes, (rows,), generator=generator)
    steps = entries(rows, wanted)
    for step in (F.cross_entropy, *steps.values()):
        seconds(step, logits, target, 0.02)
    reference: list[float] = []
    measured: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            reference.append(seconds(F.cross_entropy, logits, target, 0.1))
            measured[name].append(seconds(step, logits, target, 0.1) / reference[-1])
    return statistics.median(reference), {name: statistics.median(values) for name, values in measured.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loss", nargs="*", default=[], choices=lh.losses.names(), metavar="ID")
    parser.add_argument("--shape", nargs="*", default=SHAPES)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()

    print(
        f"Forward + backward, float32, ratio to F.cross_entropy (median of {args.rounds} rounds). "
        f"torch {torch.__version__}, Python {platform.python_version()}, {platform.machine()}, "
        f"{torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}.\n"
    )
    columns = [ratios(shape, args.loss, args.rounds) for shape in args.shape]
    print(f"| loss | {' | '.join(shape.replace('x', ' × ') for shape in args.shape)} |")
    print(f"|---|{'---:|' * len(args.shape)}")
    print(f"| F.cross_entropy, µs | {' | '.join(f'{reference * 1e6:.0f}' for reference, _ in columns)} |")
    for name in columns[0][1]:
        print(f"| {name} | {' | '.join(f'{column[name]:.2f}' for _, column in columns)} |")


if __name__ == "__main__":
    main()
