"""How long jobs will take, and how much memory."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence

import torch

from labelhedge.bench.jobs import Job
from labelhedge.bench.protocol import entry
from labelhedge.bench.run import Machine, dataset, task, trials
from labelhedge.models.mlp import StackedMLP
from labelhedge.train._plan import bytes_of_stack, trials_at_once
from labelhedge.train._threads import one_thread
from labelhedge.train.stacked import Fold, Recipe, Task, train

_BATCHES = 4
_COMPILING = 15.0
"""Seconds that a GPU's kernels for a loss take to compile, the first time."""
_GPU_STEP = 1e-4
"""Seconds that a step takes on a GPU however small it is."""
_GPU_BANDWIDTH = 1.5e12
"""Bytes per second that small matrix products and losses reach on a data-centre GPU."""


def seconds(jobs: Sequence[Job], machine: Machine, workers: int) -> float:
    """About how long the jobs will take: on a CPU from a short trial on each data set, on a GPU from their size."""
    on_gpu = machine.torch_device.type == "cuda"
    per_step = {}
    total = 0.0
    for job in jobs:
        loaded = dataset(job, machine)
        folds = job.protocol.cross_validation(loaded, job.seed)
        steps = job.protocol.epochs * -(-len(folds[0].train) // job.protocol.batch_size)
        if on_gpu:
            total += _COMPILING + steps * (_GPU_STEP + _bytes_per_step(job, machine) / _GPU_BANDWIDTH)
            continue
        if job.dataset not in per_step:
            per_step[job.dataset] = _trial(job, machine)
        total += steps * job.networks * per_step[job.dataset]
    return total / workers


def networks_at_once(jobs: Sequence[Job], machine: Machine) -> int:
    """The largest stack among the jobs."""
    return max(
        job.protocol.folds
        * trials_at_once(*_size(job, machine, len(trials(job))), machine.memory, machine.torch_device)
        for job in jobs
    )


def least_memory(jobs: Sequence[Job], machine: Machine) -> int:
    """What a worker must have for its stacks, however small it makes them."""
    return max(bytes_of_stack(*_size(job, machine, 1), machine.torch_device, torch.float32) for job in jobs)


def _size(job: Job, machine: Machine, trials: int) -> tuple[Task, int, int, str, Recipe]:
    loaded = dataset(job, machine)
    return task(loaded, job), job.protocol.folds, trials, entry(job.loss).loss, job.protocol.recipe(loaded)


def _bytes_per_step(job: Job, machine: Machine) -> int:
    """Weights are read and written about 7 times, hidden units and logits about 12."""
    loaded = dataset(job, machine)
    recipe = job.protocol.recipe(loaded)
    sizes = (task(loaded, job).inputs.shape[1], *recipe.hidden, loaded.num_classes)
    units = recipe.batch_size * sum(sizes[1:])
    numbers: int = 7 * StackedMLP.count_weights(sizes) + 12 * units
    return 4 * job.networks * numbers


def _trial(job: Job, machine: Machine) -> float:
    """Seconds per network and step of a part of the job, at its second run."""
    loaded = dataset(job, machine)
    recipe = dataclasses.replace(job.protocol.recipe(loaded), epochs=1)
    rows = _BATCHES * recipe.batch_size
    folds = [
        Fold(fold.train[:rows], fold.validation[: rows // job.protocol.splits], fold.seed)
        for fold in job.protocol.cross_validation(loaded, job.seed)
    ]
    some = trials(job)[:32]
    with one_thread():
        for _ in range(2):
            start = time.perf_counter()
            train(task(loaded, job), folds, some, entry(job.loss).loss, recipe, options=entry(job.loss).options)
            elapsed = time.perf_counter() - start
    return elapsed / (len(folds) * len(some) * -(-len(folds[0].train) // recipe.batch_size))
