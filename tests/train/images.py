"""A small problem with images that a small network learns in seconds."""

from collections.abc import Sequence

import numpy as np

from labelhedge.train.augment import Augmentation
from labelhedge.train.single import ImageRecipe, ImageTask
from labelhedge.train.stacked import Fold, Trial

CLASSES = 6
RECIPE = ImageRecipe(
    width=4, epochs=3, batch_size=16, decay_after=(1, 2), augmentation=Augmentation(crop=1, flip=True, jitter=0.1)
)
TRIAL = Trial(0.02, 5e-4, {})


def make_task(count=80, sets=1, channels=3, **changes):
    rng = np.random.default_rng(0)
    clean = rng.integers(0, CLASSES, count)
    shades = rng.integers(0, 256, (CLASSES, 8, 8, channels))
    images = np.clip(shades[clean] + rng.normal(0, 20, (count, 8, 8, channels)), 0, 255).astype(np.uint8)
    noisy = np.where(rng.random((sets, count)) < 0.3, rng.integers(0, CLASSES, (sets, count)), clean)
    arguments = {
        "images": images,
        "labels": noisy,
        "clean": clean,
        "test_images": images[:30],
        "test_labels": clean[:30],
        "num_classes": CLASSES,
    }
    return ImageTask(**arguments | changes)


def make_folds(task, folds=1):
    rows = np.arange(len(task.clean))
    parts = np.array_split(rows, 4)
    return [Fold(np.setdiff1d(rows, parts[number]), parts[number], seed=number) for number in range(folds)]


class OneByOne(Sequence):
    """Images that are made when they are asked for."""

    def __init__(self, images):
        self.images = images

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.images[index]


def same(one, other):
    """Whether two outcomes are equal to the bit, but for the time they took."""
    return all(
        np.array_equal(value, vars(other)[name], equal_nan=True)
        for name, value in vars(one).items()
        if name != "seconds"
    )
