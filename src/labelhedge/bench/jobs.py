"""What there is to train: one loss on one data set from one seed, under several noises at once."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from labelhedge.bench.protocol import Protocol, entry
from labelhedge.data import info, names
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
    def lock(self) -> str:
        """What two processes must not do at the same time: images without tuning before are trained noise by noise."""
        apart = self.images and self.tuning is None and len(self.settings) == 1
        return f"{self.place}/{self.settings[0].id}" if apart else self.place

    @property
    def configuration(self) -> str:
        """What its numbers depend on beside the protocol: the hyperparameters tried."""
        return json.dumps(self.protocol.tuned(entry(self.loss)), sort_keys=True)

    @property
    def images(self) -> bool:
        """Whether it trains on images."""
        return self.dataset not in names() or info(self.dataset).images  # a folder of the user's has images

    @property
    def epochs(self) -> int:
        """How long it trains each network."""
        return self.protocol.images.epochs if self.images else self.protocol.epochs

    @property
    def networks(self) -> int:
        """How many it trains, those that it only tunes with included."""
        cells = self.protocol.folds * len(self.settings)
        if self.tuning is None:
            return cells * len(self.protocol.tuned(entry(self.loss)))
        return self.tuning.networks + cells

    @property
    def network_epochs(self) -> int:
        """How much it trains, those that it only tunes with included."""
        if self.tuning is None:
            return self.networks * self.epochs
        return self.tuning.network_epochs + (self.networks - self.tuning.networks) * self.epochs

    @property
    def tuning(self) -> Job | None:
        """The first fold with fewer epochs, to choose what this job trains; None: it tries everything itself."""
        settings = self.protocol.images
        if not self.images or settings.tuning_epochs is None:
            return None
        shorter = replace(settings, epochs=settings.tuning_epochs, tuning_epochs=None)
        return replace(self, protocol=replace(self.protocol, folds=1, images=shorter))


def jobs(
    protocol: Protocol, datasets: Iterable[str], ids: Sequence[str], settings: Iterable[Setting], seeds: Iterable[int]
) -> list[Job]:
    """Every combination; jobs of the same data set stand together.

    On images each noise is a job, if all configurations are trained to the end: those are networks enough for a GPU.
    """
    settings, seeds = tuple(settings), tuple(seeds)
    found = []
    for dataset in datasets:
        apart = info(dataset).images and protocol.images.tuning_epochs is None
        together = [(setting,) for setting in settings] if apart else [settings]
        found += [Job(protocol, dataset, loss, seed, part) for seed in seeds for part in together for loss in ids]
    return found


def missing(job: Job, store: ResultsStore) -> Job | None:
    """What of the job is not in the store yet; None if all of it is there."""
    finished = store.finished(job.place, job.configuration)
    settings = tuple(setting for setting in job.settings if setting.id not in finished)
    return replace(job, settings=settings) if settings else None
