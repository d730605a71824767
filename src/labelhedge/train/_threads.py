"""How many threads torch uses."""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event, Lock
from typing import TypeVar

import torch

T = TypeVar("T")
Advance = Callable[[int], None]
"""Told how much has been done since the last call."""


_CHANGING = Lock()


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one thread: as fast for networks this small, and it always gives the same bits.

    Only what the calling thread computes; other threads have the number that they have.
    """
    before = _set_own_threads(1)
    try:
        yield
    finally:
        _set_own_threads(before)


def _set_own_threads(count: int) -> int:
    """How many threads the calling one computes with from now on; returns how many it did.

    Torch makes it the number for threads to come as well, so a new thread puts that back.
    """
    with _CHANGING, ThreadPoolExecutor(1) as new:
        before = torch.get_num_threads()
        if before != count:
            default = new.submit(torch.get_num_threads).result()
            torch.set_num_threads(count)
            new.submit(torch.set_num_threads, default).result()
    return before


def in_threads(jobs: Iterable[Callable[[Advance], T]], device: torch.device | str, advance: Advance) -> list[T]:
    """Do all, as many at a time as there are cores, each with one thread of torch; on a GPU one after the other.

    Args:
        jobs: Each is given what to call when it has come further. That ends it, where another has failed or the user
            has pressed Ctrl-C.
        device: Where they compute.
        advance: Told how far they have come.
    """
    workers = cores() if torch.device(device).type == "cpu" else 1
    ended = Event()

    def go_on(count: int) -> None:
        if ended.is_set():
            raise InterruptedError
        advance(count)

    def do(job: Callable[[Advance], T]) -> T:
        with one_thread():
            return job(go_on)

    with ThreadPoolExecutor(workers) as pool:
        try:
            return list(pool.map(do, jobs))
        except BaseException:
            ended.set()
            pool.shutdown(cancel_futures=True)
            raise


def cores() -> int:
    """Those that this process may use, where the system tells."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
