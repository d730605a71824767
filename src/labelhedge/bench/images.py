"""What the protocol says of images: the network, the schedule, and what is done to an image."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from labelhedge._errors import UserError
from labelhedge.data import Dataset
from labelhedge.train.augment import Augmentation
from labelhedge.train.single import ImageRecipe

_CHARACTERS = ("kuzushiji-49",)
"""Data sets whose images mean something else, or nothing, when they are mirrored."""


@dataclass(frozen=True)
class ImageSettings:
    """How networks for images are built and trained; the defaults are the paper's."""

    model: str = "resnet18"
    width: int = 64
    """Channels of the network's first stage."""
    epochs: int = 30
    decay_after: tuple[float, ...] | None = (1 / 3, 2 / 3)
    """Shares of the epochs, at whose end the learning rate is multiplied by ``decay``; None: after every epoch."""
    decay: float = 0.1
    nesterov: bool = False
    image_size: int | None = None
    """Height and width of what the network sees, if not all of the image."""
    resize: int | None = None
    """What the shorter side of images of many sizes is brought to."""
    augmentation: Augmentation | None = None
    """None: cut out of a border of an eighth of the side, and mirrored where that is an image of the same thing. The
    paper says nothing about it."""
    tuning_epochs: int | None = None
    """Configurations are compared by trainings of this many epochs on the first fold, and the best one is trained anew
    to the end; None: all of them are trained to the end."""

    def __post_init__(self) -> None:
        if self.epochs < 1:
            raise UserError(f"epochs must be at least 1, got {self.epochs}")
        if self.tuning_epochs is not None and not 1 <= self.tuning_epochs < self.epochs:
            raise UserError(f"tuning_epochs must be in [1, {self.epochs - 1}], got {self.tuning_epochs}")

    def recipe(self, data: Dataset, batch_size: int, momentum: float, review_after: tuple[float, ...]) -> ImageRecipe:
        """How the networks for a data set are built and trained."""
        every = tuple(range(1, self.epochs))
        return ImageRecipe(
            model=self.model,
            width=self.width,
            image_size=self.image_size,
            resize=self.resize,
            augmentation=self.augmentation or default_augmentation(data, self.image_size or self.resize),
            epochs=self.epochs,
            batch_size=batch_size,
            momentum=momentum,
            nesterov=self.nesterov,
            decay_after=every if self.decay_after is None else _epochs(self.decay_after, self.epochs),
            decay=self.decay,
            review_after=_epochs(review_after, self.epochs),
        )


def default_augmentation(data: Dataset, side: int | None = None) -> Augmentation:
    """A border of an eighth of the side; mirrored, unless it shows characters."""
    side = side or min(np.shape(data.train.inputs[0])[:2])
    return Augmentation(crop=side // 8, flip=data.info.name not in _CHARACTERS)


def _epochs(shares: tuple[float, ...], epochs: int) -> tuple[int, ...]:
    return tuple(after for share in shares if (after := round(share * epochs)))
