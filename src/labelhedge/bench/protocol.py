"""How the losses are compared, as data: the paper's protocol, and a fair one."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from labelhedge import losses
from labelhedge._errors import UserError
from labelhedge._random import permutation
from labelhedge.bench.images import ImageSettings
from labelhedge.data import Dataset
from labelhedge.noise.settings import HUMAN, PAPER, Setting
from labelhedge.train.augment import Augmentation
from labelhedge.train.single import ImageRecipe
from labelhedge.train.stacked import Fold, Recipe

TABULAR = ("vowel", "letter", "news20", "aloi")
BALANCED = ("kuzushiji-49",)
"""Data sets whose accuracies are means over the classes."""
NORMALIZED = "@"
"""In the name of an entry, between a loss and the normaliser of its logits."""
_NORMALIZERS = ("l1", "softplus")
_FORMAT = 1
"""Raised when the code changes so that the same protocol gives other numbers."""


@dataclass(frozen=True)
class Protocol:
    """What is trained for every loss, and what it may tune; the defaults are the paper's.

    Learning rate, weight decay and hyperparameters are chosen by the mean validation top-1 over the folds, on noisy
    labels; the epoch by that of each fold. Test labels are clean and read once, at the chosen epochs.
    """

    name: str
    learning_rates: tuple[float, ...] = (0.1, 0.01, 0.001)
    weight_decays: tuple[float, ...] = (5e-3,)
    temperatures: tuple[float, ...] = (0.1, 0.3, 1.0)
    """Of the entries on L1-normalised logits."""
    epochs: int = 100
    decay_after: tuple[float, ...] = (0.5, 0.75)
    """Shares of the epochs, at whose end the learning rate falls to a tenth."""
    review_after: tuple[float, ...] = (0.5, 0.6, 0.7, 0.8, 0.9)
    """Shares of the epochs after which a loss that asks for the predictions for all training samples gets them."""
    batch_size: int = 64
    momentum: float = 0.9
    hidden_layers: int = 2
    splits: int = 5
    """The training rows are cut into this many parts; each is the validation part of one fold."""
    folds: int = 5
    """How many of those folds are trained. With one split there is no validation: all rows train, and the last epoch is
    the one that is tested."""
    grids: bool = True
    """Whether hyperparameters of the losses are tuned; otherwise they have their defaults."""
    images: ImageSettings = field(default_factory=ImageSettings)
    """What holds for images in place of epochs, schedule and layers."""

    def __post_init__(self) -> None:
        if self.epochs < 1:
            raise UserError(f"epochs must be at least 1, got {self.epochs}")
        if not 1 <= self.folds <= self.splits:
            raise UserError(f"folds must be in [1, {self.splits}], got {self.folds}")

    @property
    def id(self) -> str:
        """The name and a digest of every setting: results of two protocols are kept apart by it."""
        chosen = dataclasses.asdict(self)
        for name, default in (("grids", True), ("images", dataclasses.asdict(ImageSettings()))):
            if chosen[name] == default:  # they came later than the first results
                del chosen[name]
        settings = json.dumps([_FORMAT, chosen], sort_keys=True)
        return f"{self.name}-{hashlib.sha256(settings.encode()).hexdigest()[:8]}"

    def image_recipe(self, data: Dataset) -> ImageRecipe:
        """How the networks for a data set of images are built and trained."""
        return self.images.recipe(data, self.batch_size, self.momentum, self.review_after)

    def recipe(self, data: Dataset) -> Recipe:
        """How the networks for a table are built and trained."""
        features = np.shape(data.train.inputs)[1]
        return Recipe(
            hidden=(min(features, data.num_classes),) * self.hidden_layers,
            epochs=self.epochs,
            batch_size=self.batch_size,
            momentum=self.momentum,
            decay_after=tuple(round(share * self.epochs) for share in self.decay_after),
            review_after=tuple(round(share * self.epochs) for share in self.review_after),
        )

    def cross_validation(self, data: Dataset, seed: int) -> list[Fold]:
        """The folds: parts of equal size, and the few rows that are left over always train.

        The rows of a table come in random order, so the parts are pieces of it; images are shuffled by the seed.
        """
        count = len(data.train.labels)
        rows = permutation(seed, count) if data.info.images else np.arange(count)
        if self.splits == 1:
            return [Fold(rows, rows[:0], _fold_seed(seed, 0))]
        size = count // self.splits
        if size == 0:
            raise UserError(f"{data.info.name} has too few rows for {self.splits} folds: {len(rows)}")
        folds = []
        for fold in range(self.folds):
            validation = slice(fold * size, (fold + 1) * size)
            folds.append(Fold(np.delete(rows, validation), rows[validation], _fold_seed(seed, fold)))
        return folds

    def tuned(self, entry: Entry) -> list[tuple[float, float, Mapping[str, float]]]:
        """Every learning rate, weight decay and choice of hyperparameters to try."""
        temperatures = [{"temperature": t} for t in self.temperatures] if entry.is_rival else [{}]
        own = losses.get(entry.loss).grid if self.grids else ({},)
        grid = [{**params, **extra} for params, extra in itertools.product(own, temperatures)]
        return list(itertools.product(self.learning_rates, self.weight_decays, grid))


@dataclass(frozen=True)
class Entry:
    """One line of the leaderboard: a loss, and the options it is always used with."""

    id: str
    loss: str
    options: Mapping[str, Any]

    @property
    def is_rival(self) -> bool:
        """Whether it is a loss on L1-normalised logits that is not so by itself, as LDR-KL and ALDR-KL are."""
        return self.options.get("normalize") == "l1"


def entry(id: str) -> Entry:
    """The entry with this name: the id of a loss, or one with ``@l1`` or ``@softplus`` behind it, a normaliser.

    Example:
        >>> entry("sce@l1")
        Entry(id='sce@l1', loss='sce', options={'normalize': 'l1'})
    """
    loss, _, normalizer = id.partition(NORMALIZED)
    spec = losses.get(loss)
    if id == loss:
        return Entry(id, loss, {})
    if normalizer not in _NORMALIZERS:
        raise UserError(f"unknown normaliser {normalizer!r} in {id!r}; known normalisers: {', '.join(_NORMALIZERS)}")
    if spec.options["normalize"] == normalizer:
        raise UserError(f"{loss} is on L1-normalised logits by itself; there is no {id}")
    return Entry(id, loss, {"normalize": normalizer})


@dataclass(frozen=True)
class Preset:
    """A protocol, and what is compared under it unless the user says otherwise."""

    protocol: Protocol
    datasets: tuple[str, ...]
    losses: tuple[str, ...] = losses.PAPER
    settings: tuple[Setting, ...] = PAPER
    seeds: int = 1


_RIVALS_ON_L1 = tuple(f"{loss}{NORMALIZED}l1" for loss in losses.PAPER if losses.get(loss).options["normalize"] is None)
PRESETS: Mapping[str, Preset] = {
    "demo": Preset(Protocol("paper"), ("vowel",)),
    "paper-tabular": Preset(Protocol("paper"), TABULAR),
    "paper": Preset(Protocol("paper"), (*TABULAR, "kuzushiji-49", "cifar-100", "tiny-imagenet")),
    "fair": Preset(
        Protocol("fair", weight_decays=(5e-3, 5e-4, 0.0)),
        ("vowel", "letter", "news20"),
        losses=(*losses.PAPER, *_RIVALS_ON_L1),
        seeds=3,
    ),
    "kuzushiji-49": Preset(Protocol("paper"), ("kuzushiji-49",)),
    "cifar-100": Preset(Protocol("paper"), ("cifar-100",)),
    "tiny-imagenet": Preset(Protocol("paper"), ("tiny-imagenet",)),
    "mini-webvision": Preset(
        Protocol(
            "webvision",
            learning_rates=(0.4,),
            weight_decays=(3e-5,),
            splits=1,
            folds=1,
            grids=False,
            images=ImageSettings(
                model="resnet50",
                epochs=250,
                decay_after=None,
                decay=0.97,
                nesterov=True,
                image_size=224,
                resize=256,
                augmentation=Augmentation(flip=True, shift=0.1, jitter=0.2),
            ),
        ),
        ("mini-webvision",),
        losses=("nce+rce", "sce", "gce", "js", "ce", "agce", "ldr-kl@softplus", "aldr-kl@softplus"),
        settings=PAPER[:1],
    ),
    "lambda-ablation": Preset(Protocol("paper"), ("cifar-100",), losses=("ldr-kl", "aldr-kl")),
    "running-time": Preset(
        Protocol("running-time", learning_rates=(0.01,), grids=False, folds=1),
        (*TABULAR, "kuzushiji-49", "cifar-100", "tiny-imagenet"),
        settings=PAPER[:1],
    ),
}


def _fold_seed(seed: int, fold: int) -> int:
    return int(np.random.SeedSequence([seed, fold]).generate_state(1)[0])


def setting(id: str) -> Setting:
    """The noise with this name.

    Example:
        >>> setting("u0.3")
        Setting(kind='uniform', rate=0.3)
    """
    kinds = {"u": "uniform", "cd": "class_dependent"}
    prefix = id.rstrip("0123456789.")
    try:
        without_rate = id in ("clean", *HUMAN)
        kind, rate = (id, 0.0) if without_rate else (kinds[prefix], float(id.removeprefix(prefix)))
        found = Setting(kind, rate)  # type: ignore[arg-type]
    except (KeyError, ValueError):
        raise UserError(
            f"unknown noise {id!r}; it is clean, uR or cdR with a rate R such as u0.3, or human labels: "
            f"{', '.join(HUMAN)}"
        ) from None
    if not 0 <= found.rate <= 1:
        raise UserError(f"the rate of noise {id!r} must be in [0, 1]")
    return found
