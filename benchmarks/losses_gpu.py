"""Forward + backward of the fused losses on a CUDA device, beside torch's and Liger's cross entropy in the same run.

    python benchmarks/losses_gpu.py [--rows DTYPE:ROWSxCLASSES ...] [--no-head] [--out FOLDER]

Before anything is timed, each loss is checked against float64. Times are of `triton.testing.do_bench` (the cache is
cleared before every call), as p20/p50/p80 in µs: of calls from Python, and of the same work captured in a CUDA graph,
where the time that Python takes plays no part. "floor" is the time to read the logits once and write the gradient once
at the copy rate measured here; "memory" is what one forward and backward allocate beyond the logits, as a multiple of
their size. Algorithm 1 goes on from the λ of the call before it, as in a network that has settled; "first epoch" sets
every λ back to λ0 before each call. Liger's column is there if liger-kernel is installed. Results of a run are in
docs/results/losses_gpu.md.
"""

import argparse
import functools
import gc
import importlib.metadata
import json
import platform
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
import triton
from torch import Tensor
from triton.testing import do_bench

import labelhedge as lh

ROWS = (
    *("float32:65536x100", "float32:65536x1000", "float32:16384x10000", "float32:8192x32000", "float32:4096x128256"),
    *("bfloat16:65536x1000", "bfloat16:16384x10000", "bfloat16:8192x32000", "bfloat16:4096x128256"),
)
HEAD = (16_384, 2_048, 128_256)
HARD = "ALDR-KL, exact, one class 0 to 20 ahead"
"""Logits like a trained network's. In some of the rows two values of λ compete, and the kernel takes more samples."""
PLAIN, LIGER = "ALDR-KL, exact, plain formula", "Liger CE"
QUANTILES = [0.2, 0.5, 0.8]
Step = Callable[[Tensor, Tensor], Tensor]


def liger() -> dict[str, Step]:
    """Liger's cross entropy, if it is installed. It writes the gradient over the logits."""
    try:
        from liger_kernel.transformers import LigerCrossEntropyLoss
    except ImportError:
        return {}
    return {LIGER: LigerCrossEntropyLoss()}


def ours(rows: int, device: str) -> dict[str, Step]:
    """Both modes of ALDR-KL and LDR-KL as in the paper's experiments, and losses g(log p_y)."""
    index = torch.arange(rows, device=device)
    settled, fresh = (lh.ALDRKLLoss(num_samples=rows).to(device) for _ in range(2))

    def in_the_first_epoch(logits: Tensor, target: Tensor) -> Tensor:
        fresh.lam.fill_(1.0)
        return fresh(logits, target, index)

    others = {name.upper(): lh.losses.create(name) for name in ("ce", "gce", "sce", "mae", "js")}
    return {
        "ALDR-KL, Algorithm 1": lambda logits, target: settled(logits, target, index),
        "ALDR-KL, Algorithm 1, first epoch": in_the_first_epoch,
        "ALDR-KL, exact": lh.ALDRKLLoss(),
        HARD: lh.ALDRKLLoss(),
        "LDR-KL": lh.LDRKLLoss(),
        **others,
    }


def rivals() -> dict[str, Step]:
    torch._dynamo.reset()
    plain = lh.ALDRKLLoss(backend="torch")
    return {
        "torch CE eager": F.cross_entropy,
        "torch CE compiled": torch.compile(F.cross_entropy, dynamic=False),
        PLAIN: plain,
        **liger(),  # the last, since it leaves other logits behind
    }


def batch(rows: int, classes: int, dtype: torch.dtype, device: str) -> tuple[Tensor, Tensor]:
    generator = torch.Generator(device).manual_seed(0)
    logits = torch.randn(rows, classes, generator=generator, device=device, dtype=dtype)
    target = torch.randint(classes, (rows,), generator=generator, device=device)
    return logits.requires_grad_(), target


def forward_and_backward(step: Step, logits: Tensor, target: Tensor) -> None:
    logits.grad = None
    step(logits, target).backward()


def error(actual: Tensor, exact: Tensor) -> float:
    return ((actual.double() - exact).norm() / exact.norm()).item()


def check(dtype: torch.dtype, classes: int, device: str) -> float:
    """The largest relative error of a gradient against float64; raises if the plain formula does better."""
    logits, target = batch(64, classes, dtype, device)
    worst = 0.0
    for name in ("aldr-kl", "ldr-kl", "ce", "gce", "sce", "mae", "js"):
        results = []
        for backend, x in (("auto", logits), ("torch", logits), ("torch", logits.double())):
            leaf = x.detach().requires_grad_()
            loss = lh.losses.create(name, backend=backend)(leaf, target)
            loss.backward()
            results.append((loss.detach(), leaf.grad))
        fused, plain, exact = results
        rounding = torch.finfo(dtype).eps / 8 if dtype != torch.float32 else 1e-5
        if error(fused[0], exact[0]) > error(plain[0], exact[0]) + 1e-5:
            raise SystemExit(f"{name}, {dtype}, {classes} classes: value {fused[0]} is not {exact[0]}")
        if error(fused[1], exact[1]) > error(plain[1], exact[1]) + rounding:
            raise SystemExit(f"{name}, {dtype}, {classes} classes: gradient is off by {error(fused[1], exact[1]):.1e}")
        worst = max(worst, error(fused[1], exact[1]))
    return worst


def captured(run: Callable[[], None]) -> Callable[[], None]:
    """``run``, already warm, as a CUDA graph."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def memory(step: Callable[[], None], size: int) -> float:
    """What ``step`` allocates, as a multiple of ``size``."""
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step()
    return (torch.cuda.max_memory_allocated() - before) / size


def copy_rate(device: str) -> float:
    """Bytes read and written per second by a copy of a gigabyte."""
    source = torch.randn(2**28, device=device)
    target = torch.empty_like(source)
    return 2 * source.nbytes / (do_bench(lambda: target.copy_(source), quantiles=[0.5]) * 1e-3)


def measure(spec: str, rate: float, device: str) -> dict[str, object]:
    """One row of the table."""
    kind, shape = spec.split(":")
    rows, classes = map(int, shape.split("x"))
    dtype = getattr(torch, kind)
    result: dict[str, object] = {"dtype": kind, "rows": rows, "classes": classes}
    result["error"] = check(dtype, classes, device)
    logits, target = batch(rows, classes, dtype, device)
    result["floor"] = 2 * logits.nbytes / rate * 1e6
    result["columns"] = columns = {}
    hard = logits.detach().clone()
    hard[:, 1] += torch.linspace(0, 20, rows, device=device)
    for name, step in {**ours(rows, device), **rivals()}.items():
        used = hard.requires_grad_() if name == HARD else logits
        run = functools.partial(forward_and_backward, step, used, target)
        run()
        used.grad = None
        allocated = memory(run, logits.nbytes)
        columns[name] = {"us": microseconds(run), "memory": allocated}
        if name not in (PLAIN, LIGER):  # they wait for the device, or copy to it, which a graph cannot
            columns[name]["graph us"] = microseconds(captured(run))
        used.grad = None
    torch.cuda.empty_cache()
    return result


def microseconds(run: Callable[[], None]) -> list[float]:
    return [1e3 * t for t in do_bench(run, warmup=20, rep=200, quantiles=QUANTILES)]


def measure_head(device: str) -> dict[str, object]:
    """The last layer and its loss, against a matrix product and cross entropy."""
    rows, width, classes = HEAD
    generator = torch.Generator(device).manual_seed(0)
    hidden = torch.randn(rows, width, generator=generator, device=device, dtype=torch.bfloat16).requires_grad_()
    weight = torch.randn(classes, width, generator=generator, device=device, dtype=torch.bfloat16) / width**0.5
    weight.requires_grad_()
    target = torch.randint(classes, (rows,), generator=generator, device=device)
    steps = {
        "matrix product + torch CE": lambda: F.cross_entropy(F.linear(hidden, weight), target),
        "linear_ce": lambda: lh.functional.linear_ce(hidden, weight, target),
        "linear_ldr_kl": lambda: lh.functional.linear_ldr_kl(hidden, weight, target),
        "linear_aldr_kl, exact": lambda: lh.functional.linear_aldr_kl(hidden, weight, target),
    }
    try:
        from liger_kernel.transformers import LigerFusedLinearCrossEntropyLoss

        steps["Liger fused linear CE"] = lambda: LigerFusedLinearCrossEntropyLoss()(weight, hidden, target)
    except ImportError:
        pass

    def run(step: Callable[[], Tensor]) -> None:
        hidden.grad = weight.grad = None
        step().backward()

    results = {}
    size = rows * classes * 2
    for name, step in steps.items():
        run(step)
        hidden.grad = weight.grad = None
        allocated = memory(lambda step=step: run(step), size) - (hidden.nbytes + weight.nbytes) / size
        times = do_bench(lambda step=step: run(step), warmup=50, rep=400, quantiles=QUANTILES)
        results[name] = {"ms": times, "memory": allocated}
        torch.cuda.empty_cache()
    return results


def versions() -> str:
    found = [f"torch {torch.__version__}", f"triton {triton.__version__}", f"Python {platform.python_version()}"]
    try:
        found.append(f"liger-kernel {importlib.metadata.version('liger-kernel')}")
    except importlib.metadata.PackageNotFoundError:
        found.append("liger-kernel not installed")
    return ", ".join(found)


def table(rate: float, measured: list[dict[str, object]], head: dict[str, object] | None) -> str:
    """Everything as Markdown."""
    shapes = ["", *(f"{m['dtype']} {m['rows']} × {m['classes']}" for m in measured)]
    floors = ["floor", *(f"{m['floor']:.0f}" for m in measured)]
    by_name = {name: [m["columns"][name] for m in measured] for name in measured[0]["columns"]}
    captured = {name: columns for name, columns in by_name.items() if "graph us" in columns[0]}
    lines = [
        f"{torch.cuda.get_device_name()}, {versions()}; copy rate {rate / 1e12:.2f} TB/s. Forward + backward, "
        "p20 / **p50** / p80 in µs.",
        "",
        "Called from Python (memory beyond the logits, as a multiple of their size):",
        "",
        *markdown_rows(shapes, [floors]),
    ]
    for name, columns in by_name.items():
        lines += markdown_rows([], [[name, *(f"{quantiles(c['us'], 0)} ({c['memory']:.2f})" for c in columns)]])
    lines += ["", "Captured in a CUDA graph:", "", *markdown_rows(shapes, [floors])]
    for name, columns in captured.items():
        lines += markdown_rows([], [[name, *(quantiles(c["graph us"], 0) for c in columns)]])
    lines += ["", "Captured in a CUDA graph, p50 as a multiple of the floor:", "", *markdown_rows(shapes, [])]
    for name, columns in captured.items():
        multiples = [f"{c['graph us'][1] / m['floor']:.2f}" for c, m in zip(columns, measured, strict=True)]
        lines += markdown_rows([], [[name, *multiples]])
    if head:
        rows, width, classes = HEAD
        shape = f"{rows} rows × {width} hidden × {classes} classes"
        lines += ["", f"The last layer: {shape}, bfloat16, forward + backward.", ""]
        titles = ["", "ms, p20 / **p50** / p80", "memory beyond inputs and gradients, of the logits' size"]
        lines += markdown_rows(titles, [[n, quantiles(r["ms"], 1), f"{r['memory']:.3f}"] for n, r in head.items()])
    return "\n".join(lines) + "\n"


def markdown_rows(titles: list[str], rows: list[list[str]]) -> list[str]:
    start = [f"| {' | '.join(titles)} |", f"|---|{'---:|' * (len(titles) - 1)}"] if titles else []
    return start + [f"| {' | '.join(row)} |" for row in rows]


def quantiles(times: list[float], digits: int) -> str:
    low, middle, high = (f"{t:.{digits}f}" for t in times)
    return f"{low} / **{middle}** / {high}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="*", default=ROWS)
    parser.add_argument("--no-head", action="store_true", help="leave out the last layer")
    parser.add_argument("--out", type=Path, help="folder for losses_gpu.json and losses_gpu.md")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("this benchmark needs a CUDA device")

    device = "cuda"
    rate = copy_rate(device)
    measured = []
    for spec in args.rows:
        measured.append(measure(spec, rate, device))
        print(f"{spec}: gradients checked, error {measured[-1]['error']:.1e}", flush=True)
    head = None if args.no_head else measure_head(device)
    text = table(rate, measured, head)
    print(text)
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        (args.out / "losses_gpu.md").write_text(text)
        record = {"gpu": torch.cuda.get_device_name(), "versions": versions(), "copy_rate": rate}
        (args.out / "losses_gpu.json").write_text(json.dumps(record | {"rows": measured, "head": head}, indent=1))


if __name__ == "__main__":
    main()
