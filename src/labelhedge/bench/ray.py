"""Jobs on a Ray cluster, one task per job."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from typing import Any

from labelhedge._errors import UserError, portable
from labelhedge._optional import optional
from labelhedge.bench.jobs import Job, missing
from labelhedge.bench.local import do_all
from labelhedge.bench.run import Machine
from labelhedge.results import ResultsStore

_CONNECT = 10.0
"""Seconds to wait for a cluster to answer; Ray itself would wait for minutes, and not quietly."""
_ARRIVE = 60.0
"""Seconds until what another machine has written must be seen from here; network file systems take their time."""


@dataclass(frozen=True)
class Share:
    """What a job has of its node."""

    cpus: int = 1
    gpus: float = 0

    def at_once(self) -> int:
        """How many such jobs the nodes that are there now can do at a time."""
        nodes = [node["Resources"] for node in optional("ray", "ray").nodes() if node["Alive"]]
        needed = {"CPU": self.cpus, "GPU": self.gpus}
        return sum(min(int(node.get(kind, 0) / count) for kind, count in needed.items() if count) for node in nodes)


@contextmanager
def cluster(address: str | None) -> Iterator[None]:
    """Be a driver of a Ray cluster until the end of the block, which ends what is still running there.

    Args:
        address: Of the cluster; None is that of ``RAY_ADDRESS`` or one that runs on this machine, or else one is
            started here for the time being.

    Raises:
        UserError: There is no such cluster.
    """
    ray = optional("ray", "ray")
    address = address or os.environ.get("RAY_ADDRESS") or None
    quiet = {"include_dashboard": False, "logging_level": logging.ERROR, "log_to_driver": False}
    before = signal.getsignal(signal.SIGTERM)
    with redirect_stdout(sys.stderr):  # where Ray prints which workers and nodes it has lost
        try:
            _knock(address or "")
            ray.init(address, namespace="labelhedge", **quiet)
        except Exception as error:  # of many kinds, and all mean the same here
            reason = " ".join(str(error).split())
            raise UserError(f"cannot join the Ray cluster {address or 'here'}: {reason}") from error
        try:
            signal.signal(signal.SIGTERM, signal.default_int_handler)  # like Ctrl-C; Ray would abort with a dump
            yield
        finally:
            ray.shutdown()
            signal.signal(signal.SIGTERM, before)


def _knock(address: str) -> None:
    host, _, port = address.rpartition("/")[2].rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT).close()


def work_off(
    jobs: Sequence[Job],
    store: ResultsStore,
    machine: Machine,
    share: Share,
    retries: int,
    advance: Callable[[int], None],
) -> None:
    """Do all jobs that are not in the store, on the cluster that was joined with :func:`cluster`.

    Args:
        jobs: What to train.
        store: Where the results go: a folder that every node sees under the same path, or a URL.
        machine: Where to train on each node; data sets are read and kept there.
        share: What to keep free for each job.
        retries: How often to do a job again whose worker or node was lost; an error in it is final.
        advance: Told of the network-epochs of a job when it is finished.
    """
    ray = optional("ray", "ray")
    root = store.root if isinstance(store.root, str) else str(store.root.absolute())
    if machine.data is not None:
        machine = replace(machine, data=os.path.abspath(machine.data))
    task = ray.remote(num_cpus=share.cpus, num_gpus=share.gpus, max_retries=retries)(_do)
    running = {task.options(name=job.place).remote(job, root, machine): job for job in jobs}
    try:
        advance(0)  # the clock starts here
        while running:
            (done,), _ = ray.wait(list(running), num_returns=1)
            job = running.pop(done)
            _raise_if_failed(done, job, retries)
            _wait_for_results(job, store)
            advance(job.network_epochs)
    finally:
        for left in running:
            ray.cancel(left, force=True)


def _do(job: Job, root: str, machine: Machine) -> None:
    try:
        do_all([job], ResultsStore(root), machine, lambda _: None)
    except Exception as error:
        raise portable(error) from None


def _raise_if_failed(done: Any, job: Job, retries: int) -> None:
    ray = optional("ray", "ray")
    try:
        ray.get(done)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from error
    except ray.exceptions.RayError as error:
        raise ChildProcessError(
            f"{job.place} was given up: its worker was lost ({type(error).__name__}), and --retries is {retries}; "
            "the same command goes on"
        ) from error


def _wait_for_results(job: Job, store: ResultsStore) -> None:
    end = time.monotonic() + _ARRIVE
    while missing(job, store) is not None:
        if time.monotonic() > end:
            raise FileNotFoundError(
                f"the results of {job.place} are not in {store.root}: "
                "--out must be a folder that all nodes share, or a URL such as s3://bucket/results"
            )
        time.sleep(1)
