"""How many threads torch uses."""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event
from typing import TypeVar

import torch

T = TypeVar("T")
Advance = Callable[[int], None]
"""Told how much has been done since the last call."""


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one thread: as fast for networks this small, and it always gives the same bits."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


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

    with one_thread(), ThreadPoolExecutor(workers) as pool:
        try:
            return list(pool.map(lambda job: job(go_on), jobs))
        except BaseException:
            ended.set()
            pool.shutdown(cancel_futures=True)
            raise


def cores() -> int:
    """Those that this process may use, where the system tells."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
