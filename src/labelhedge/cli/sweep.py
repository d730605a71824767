"""Carrying out many jobs: the plan in words, progress, and what is left after Ctrl-C."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from labelhedge._errors import UserError
from labelhedge._optional import optional
from labelhedge.bench import estimate, local, ray
from labelhedge.bench.jobs import Job, missing
from labelhedge.bench.rows import device_name
from labelhedge.bench.run import Machine
from labelhedge.cli.terminal import progress, say
from labelhedge.data import load
from labelhedge.data._progress import amount
from labelhedge.results import ResultsStore

_PROCESS = 400_000_000
"""Bytes of a Python process with torch and pandas."""
_LIBRARIES = 200_000_000
"""Bytes that matrix products, sorting and writing Parquet take on top, as measured."""


def run_here(wanted: Sequence[Job], store: ResultsStore, machine: Machine, workers: int, memory: int | None) -> None:
    """Tell the plan, then carry it out on this machine."""
    open_jobs = _tell_plan(wanted, store)
    if not open_jobs:
        return
    with progress() as tell:
        for name, seed in dict.fromkeys((job.dataset, job.seed) for job in open_jobs):
            load(name, seed=seed, root=machine.data, progress=tell)  # fetched and prepared once, before the workers
    workers = min(workers, len(open_jobs))
    tables = [job for job in open_jobs if not job.images]
    if memory is not None and tables:
        machine = replace(machine, memory=_share(memory, workers, estimate.least_memory(tables, machine), machine))
    within = "" if memory is None else f" within {amount(memory, 'bytes')}"
    plan = f"{device_name(machine.device)}, {_count(workers, 'worker')}"
    if tables:
        plan += f", up to {estimate.networks_at_once(tables, machine):,} networks at once{within}; "
        plan += f"about {_duration(estimate.seconds(tables, machine, workers))}"
        plan += " for the tables" * (len(tables) < len(open_jobs))
    say(plan)
    _train(wanted, open_jobs, store, lambda tell: local.work_off(open_jobs, store, machine, workers, tell))


def run_on_ray(
    wanted: Sequence[Job], store: ResultsStore, machine: Machine, share: ray.Share, address: str | None, retries: int
) -> None:
    """The same on a Ray cluster, whose nodes have the data; how long it takes is known to those who know the nodes."""
    open_jobs = _tell_plan(wanted, store)
    if not open_jobs:
        return
    with ray.cluster(address):
        fit = share.at_once()
        each = _count(share.cpus, "CPU") + f" and {share.gpus:g} of a GPU" * (share.gpus > 0)
        say(f"Ray cluster, {_count(fit, 'job')} at once with {each} each" + "; waiting for a node" * (fit == 0))
        _train(wanted, open_jobs, store, lambda tell: ray.work_off(open_jobs, store, machine, share, retries, tell))


def _tell_plan(wanted: Sequence[Job], store: ResultsStore) -> list[Job]:
    """Say what there is to train; the jobs that are left."""
    open_jobs = [job for job in wanted if missing(job, store) is not None]
    protocol = wanted[0].protocol
    networks = sum(job.networks for job in wanted)
    same = {(job.epochs, job.tuning is None) for job in wanted} == {(wanted[0].epochs, True)}
    work = f" × {_count(wanted[0].epochs, 'epoch')}"
    if not same:
        work = f", {_count(sum(job.network_epochs for job in wanted), 'network-epoch')}"
    say(f"protocol {protocol.id}: {_count(len(wanted), 'job')}, {_count(networks, 'network')}{work}, into {store.root}")
    if len(open_jobs) < len(wanted):
        say(f"{len(wanted) - len(open_jobs):,} of them are there already")
    return open_jobs


def _train(
    wanted: Sequence[Job],
    open_jobs: Sequence[Job],
    store: ResultsStore,
    work_off: Callable[[Callable[[int], None]], None],
) -> None:
    """Let an engine do the jobs, and show how far it is."""
    total = sum(job.network_epochs for job in open_jobs)
    with progress() as tell:
        done = 0

        def advance(newly: int) -> None:
            nonlocal done
            done += newly
            tell("training", min(done, total - 1), total, "network-epochs")

        try:
            work_off(advance)
        except KeyboardInterrupt:
            left = sum(missing(job, store) is not None for job in wanted)
            say(f"interrupted: {len(wanted) - left:,} of {len(wanted):,} jobs are finished; the same command goes on")
            raise
        tell("training", total, total, "network-epochs")


def _share(memory: int, workers: int, least: int, machine: Machine) -> int:
    """What the stacks of a worker may take, of the memory for all of the run; or an error that says what it needs."""
    processes = 0  # a GPU's memory is for stacks alone
    if machine.torch_device.type == "cpu":
        processes = (1 if workers == 1 else workers + 1) * _bytes_of_process()
    needed = processes + workers * least
    if memory < needed:
        raise UserError(
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
