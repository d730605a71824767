"""What there is to train: one loss on one data set from one seed, under several noises at once."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from labelhedge.bench.protocol import Protocol, entry
from labelhedge.noise.settings import Setting
from labelhedge.results import ResultsStore


@dataclass(frozen=True)
class Job:
    """What is trained as one stack and written as one file."""

    protocol: Protocol
    dataset: str
    loss: str
    seed: int
    settings: tuple[Setting, ...]

    @property
    def place(self) -> str:
        """Where its results are: the files of a folder hold different noises of the same comparison."""
        return f"{self.protocol.id}/{self.dataset}/{self.loss}/seed{self.seed}"

    @property
    def configuration(self) -> str:
        """What its numbers depend on beside the protocol: the hyperparameters tried."""
        return json.dumps(self.protocol.tuned(entry(self.loss)), sort_keys=True)

    @property
    def networks(self) -> int:
        """How many it trains."""
        return len(self.protocol.tuned(entry(self.loss))) * self.protocol.folds * len(self.settings)


def jobs(
    protocol: Protocol, datasets: Iterable[str], ids: Sequence[str], settings: Iterable[Setting], seeds: Iterable[int]
) -> list[Job]:
    """Every combination; jobs of the same data set stand together."""
    settings = tuple(settings)
    return [Job(protocol, dataset, loss, seed, settings) for dataset in datasets for seed in seeds for loss in ids]


def missing(job: Job, store: ResultsStore) -> Job | None:
    """What of the job is not in the store yet; None if all of it is there."""
    finished = store.finished(job.place, job.configuration)
    settings = tuple(setting for setting in job.settings if setting.id not in finished)
    return Job(job.protocol, job.dataset, job.loss, job.seed, settings) if settings else None
