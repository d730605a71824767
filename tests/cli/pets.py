"""A folder of small images, and a command line that trains on it."""

import os

import numpy as np
from PIL import Image

EPOCHS = 40
LINE = ("--width", "2", "--batch-size", "16", "--noise", "u0.3", "--epochs", str(EPOCHS), "--checkpoint-every", "0")
ONE_THREAD = os.environ | {"OMP_NUM_THREADS": "1"}


def write_pets(folder, seed=0):
    rng = np.random.default_rng(seed)
    for part, count in (("train", 20), ("test", 6)):
        for label, name in enumerate(("cat", "dog", "owl")):
            (folder / part / name).mkdir(parents=True)
            for number in range(count):
                pixels = rng.integers(0, 100, (8, 8, 3), np.uint8)
                pixels[..., label] += 20  # hard enough that the last epoch is not the best
                Image.fromarray(pixels).save(folder / part / name / f"{number:02}.png")
    return folder


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
