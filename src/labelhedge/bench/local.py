"""Jobs on this machine, one process per worker."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

from labelhedge._errors import portable
from labelhedge._interrupt import ignored
from labelhedge.bench.jobs import Job, missing
from labelhedge.bench.run import Machine, run
from labelhedge.results import ResultsStore
from labelhedge.train._threads import one_thread

_POLL = 0.2
"""Seconds between two looks at the workers, and at jobs that another process has in hand."""


def work_off(
    jobs: Sequence[Job], store: ResultsStore, machine: Machine, workers: int, advance: Callable[[int], None]
) -> None:
    """Do all jobs that are not in the store.

    Args:
        jobs: What to train.
        store: Where the results go. Other processes may work on the same jobs: each is done by one of them.
        machine: Where to train.
        workers: How many processes; 1 is this one.
        advance: Told how many network-epochs have been trained since the last call.
    """
    if workers == 1:
        do_all(jobs, store, machine, advance)
        return
    context = multiprocessing.get_context("spawn")
    done = [context.Value("q", 0) for _ in range(workers)]
    errors = context.SimpleQueue()
    processes = [
        context.Process(target=_worker, args=(jobs, store.root, machine, os.getpid(), own, errors)) for own in done
    ]
    with ignored():  # which the workers inherit: Ctrl-C reaches this process, and it ends them
        for process in processes:
            process.start()
    seen = 0
    try:
        while True:
            alive = any(process.is_alive() for process in processes)
            total = sum(own.value for own in done)
            advance(total - seen)
            seen = total
            if not errors.empty():
                raise errors.get()
            lost = [p.exitcode for p in processes if p.exitcode not in (None, 0)]
            if lost:
                raise ChildProcessError(f"a worker ended with exit code {lost[0]}; the same command goes on")
            if not alive:
                return
            time.sleep(_POLL)
    finally:
        for process in processes:
            process.terminate()


def _worker(jobs: Sequence[Job], root: Any, machine: Machine, parent: int, done: Any, errors: Any) -> None:
    def advance(count: int) -> None:
        done.value += count
        if os.getppid() != parent:
            os._exit(1)  # the parent was killed

    try:
        do_all(jobs, ResultsStore(root), machine, advance)
    except Exception as error:  # whatever it is, the parent has to tell it
        errors.put(portable(error))


def do_all(jobs: Sequence[Job], store: ResultsStore, machine: Machine, advance: Callable[[int], None]) -> None:
    """Do in this process what is left of the jobs, but for what others have in hand: wait until they are done."""
    open_jobs = list(jobs)
    with one_thread():
        while open_jobs:
            taken = [job for job in open_jobs if not _do(job, store, machine, advance)]
            if len(taken) == len(open_jobs):
                time.sleep(_POLL)
            open_jobs = taken


def _do(job: Job, store: ResultsStore, machine: Machine, advance: Callable[[int], None]) -> bool:
    """Do what is left of a job; False if another process has it in hand."""
    with store.claim(job.lock) as ours:
        rest = missing(job, store) if ours else None
        if rest is not None:
            run(rest, store, machine, advance)
    return ours
