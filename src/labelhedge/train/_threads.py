"""How many threads torch uses."""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch

T = TypeVar("T")


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one thread: as fast for networks this small, and it always gives the same bits."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def in_threads(jobs: Iterable[Callable[[], T]], device: torch.device | str) -> list[T]:
    """Do all, as many at a time as there are cores, each with one thread of torch; on a GPU one after the other."""
    workers = cores() if torch.device(device).type == "cpu" else 1
    with one_thread(), ThreadPoolExecutor(workers) as pool:
        try:
            return list(pool.map(lambda job: job(), jobs))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def cores() -> int:
    """Those that this process may use, where the system tells."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
