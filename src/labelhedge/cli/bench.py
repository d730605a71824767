"""``labelhedge bench`` and ``labelhedge demo``: train and tune losses on data with wrong labels."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from labelhedge import losses
from labelhedge._optional import optional
from labelhedge.bench import estimate
from labelhedge.bench.jobs import Job, jobs, missing
from labelhedge.bench.local import work_off
from labelhedge.bench.protocol import PRESETS, entry, setting
from labelhedge.bench.run import Machine, device_name
from labelhedge.cli.data import Root
from labelhedge.cli.device import chosen_device
from labelhedge.cli.report import report
from labelhedge.cli.terminal import parse_bytes, print_json, progress
from labelhedge.data import info, load
from labelhedge.data._progress import amount
from labelhedge.noise import settings
from labelhedge.results import ResultsStore
from labelhedge.train._threads import cores

_PROCESS = 400_000_000
"""Bytes of a Python process with torch and pandas."""
_LIBRARIES = 200_000_000
"""Bytes that matrix products, sorting and writing Parquet take on top, as measured."""
Out = Annotated[Path, typer.Option(help="The folder for the results; what is there already is not trained again.")]


def bench(
    preset: Annotated[str, typer.Option(help=f"What to compare, and how: {', '.join(PRESETS)}.")] = "demo",
    dataset: Annotated[str | None, typer.Option(help="Data sets, with commas between.")] = None,
    loss: Annotated[str | None, typer.Option(help="Losses, with commas between; 'paper' stands for its 15.")] = None,
    noise: Annotated[str | None, typer.Option(help="clean, u0.3, cd0.1 or any such; 'paper' stands for its 7.")] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="How many.")] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Fewer for a quick look.")] = None,
    folds: Annotated[int | None, typer.Option(min=1, max=5, help="Fewer for a quick look.")] = None,
    out: Out = Path("results"),
    device: Annotated[str | None, typer.Option(help="cpu or cuda [default: cuda where there is one]")] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes [default: one per core, 1 on a GPU]")] = None,
    memory: Annotated[str | None, typer.Option(help="What the whole run may take, such as 4GB.")] = None,
    root: Root = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON and stop.")] = False,
) -> None:
    """Train and tune losses on data with wrong labels, thousands of networks at a time.

    Example: labelhedge bench --dataset vowel --loss aldr-kl,ce --noise clean,u0.3 --out results

    Then: labelhedge report results

    Safe to interrupt: what is finished is in --out, and the same command goes on. Several processes may share an --out.
    """
    if preset not in PRESETS:
        raise ValueError(f"unknown preset {preset!r}; known presets: {', '.join(PRESETS)}")
    chosen = PRESETS[preset]
    protocol = replace(chosen.protocol, epochs=epochs or chosen.protocol.epochs, folds=folds or chosen.protocol.folds)
    datasets = _names(dataset) or chosen.datasets
    _refuse_images(datasets)
    entries = _names(loss, losses.PAPER) or chosen.losses
    for name in entries:
        entry(name)  # refuses what it does not know
    noises = dict.fromkeys(setting(name) for name in _names(noise, [s.id for s in settings.PAPER])) or chosen.settings
    wanted = jobs(protocol, datasets, entries, noises, range(seeds or chosen.seeds))

    store = ResultsStore(out)
    if as_json:
        print_json([_as_dict(job, missing(job, store) is None) for job in wanted])
        return
    place = chosen_device(device)
    machine = Machine(place, data=None if root is None else str(root))
    limit = None if memory is None else parse_bytes(memory)
    _run(wanted, store, machine, workers or (cores() if place == "cpu" else 1), limit)
    _say(f"results are in {store.root}; now: labelhedge report {store.root}")


def demo(out: Out = Path("labelhedge-demo")) -> None:
    """Rebuild the paper's leaderboard on Vowel: 15 losses, 7 kinds of noise, 5 folds, all tuned; a minute or two.

    Example: labelhedge demo
    """
    preset = PRESETS["demo"]
    wanted = jobs(preset.protocol, preset.datasets, preset.losses, preset.settings, range(preset.seeds))
    _run(wanted, ResultsStore(out), Machine(), cores(), None)
    report(out)
    _say(f"open {out / 'report' / 'index.html'} in a browser")


def _run(wanted: Sequence[Job], store: ResultsStore, machine: Machine, workers: int, memory: int | None) -> None:
    """Tell the plan, then carry it out."""
    open_jobs = [job for job in wanted if missing(job, store) is not None]
    protocol = wanted[0].protocol
    epochs = protocol.epochs
    networks = sum(job.networks for job in wanted)
    _say(
        f"protocol {protocol.id}: {_count(len(wanted), 'job')}, {_count(networks, 'network')} × "
        f"{_count(epochs, 'epoch')}, into {store.root}"
    )
    if len(open_jobs) < len(wanted):
        _say(f"{len(wanted) - len(open_jobs):,} of them are there already")
    if not open_jobs:
        return
    with progress() as tell:
        for name, seed in dict.fromkeys((job.dataset, job.seed) for job in open_jobs):
            load(name, seed=seed, root=machine.data, progress=tell)  # fetched and prepared once, before the workers
    workers = min(workers, len(open_jobs))
    if memory is not None:
        machine = replace(machine, memory=_share(memory, workers, estimate.least_memory(open_jobs, machine), machine))
    within = "" if memory is None else f" within {amount(memory, 'bytes')}"
    _say(
        f"{device_name(machine.device)}, {_count(workers, 'worker')}, "
        f"up to {estimate.networks_at_once(open_jobs, machine):,} networks at once{within}; "
        f"about {_duration(estimate.seconds(open_jobs, machine, workers))}"
    )
    total = sum(job.networks * epochs for job in open_jobs)
    with progress() as tell:
        done = 0

        def advance(newly: int) -> None:
            nonlocal done
            done += newly
            tell("training", min(done, total - 1), total, "network-epochs")

        try:
            work_off(open_jobs, store, machine, workers, advance)
        except KeyboardInterrupt:
            left = sum(missing(job, store) is not None for job in wanted)
            _say(f"interrupted: {len(wanted) - left:,} of {len(wanted):,} jobs are finished; the same command goes on")
            raise
        tell("training", total, total, "network-epochs")


def _names(text: str | None, paper: Sequence[str] = ()) -> tuple[str, ...]:
    """The names in a list with commas, each once; the word 'paper' stands for several."""
    names = () if text is None else tuple(name.strip() for name in text.split(","))
    if "" in names:
        raise ValueError(f"empty name in the list {text!r}")
    return tuple(dict.fromkeys(n for name in names for n in (paper if paper and name == "paper" else (name,))))


def _refuse_images(datasets: Iterable[str]) -> None:
    images = [name for name in datasets if info(name).images]
    if images:
        raise ValueError(
            f"the benchmark trains perceptrons on tables, and these are images: {', '.join(images)}; "
            "use --preset paper-tabular, or name tables with --dataset"
        )


def _share(memory: int, workers: int, least: int, machine: Machine) -> int:
    """What the stacks of a worker may take, of the memory for all of the run; or an error that says what it needs."""
    processes = 0  # a GPU's memory is for stacks alone
    if machine.torch_device.type == "cpu":
        processes = (1 if workers == 1 else workers + 1) * _bytes_of_process()
    needed = processes + workers * least
    if memory < needed:
        raise ValueError(
            f"--memory must be at least {amount(needed, 'bytes')} with {_count(workers, 'worker')}, "
            f"got {amount(memory, 'bytes')}"
        )
    return (memory - processes) // workers


def _bytes_of_process() -> int:
    """What a process takes before its first stack: what this one has now, and some for the libraries at work."""
    optional("pyarrow.parquet", "bench")
    try:
        resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
    except OSError:  # not Linux
        resident = _PROCESS
    return resident + _LIBRARIES


def _count(number: int, of_what: str) -> str:
    return f"{number:,} {of_what}{'s' * (number != 1)}"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _as_dict(job: Job, finished: bool) -> dict[str, object]:
    return {
        "protocol": job.protocol.id,
        "dataset": job.dataset,
        "loss": job.loss,
        "seed": job.seed,
        "noise": [setting.id for setting in job.settings],
        "networks": job.networks,
        "epochs": job.protocol.epochs,
        "finished": finished,
    }


def _say(line: str) -> None:
    typer.echo(line, err=True)
