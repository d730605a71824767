"""The results of docs/results/images.md: CIFAR-10N and Tiny-ImageNet from arrays in npz files.

    python benchmarks/image_results.py cifar-10n --data FOLDER --out results
    python benchmarks/image_results.py tiny-imagenet --data FOLDER --out results --noise clean,u0.3,u0.6,cd0.3

From the publishers' files `labelhedge bench --dataset cifar-10n --noise aggre,worse --lr 0.01,0.001 --tuning-epochs 8
--folds 2 …` does the same. FOLDER has cifar10.npz (X_train, y_train, X_test, y_test) and cifarn_labels.npz
(cifar10_aggre_label, …), or tiny_imagenet_train_0 … 3.npz and tiny_imagenet_val.npz (jpeg: all files end to end,
length, y). What is finished is not trained again; --seconds ends the run before a job that begins later.
"""

import argparse
import io
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from PIL import Image

from labelhedge.bench import run as bench_run
from labelhedge.bench.images import ImageSettings
from labelhedge.bench.jobs import jobs, missing
from labelhedge.bench.local import work_off
from labelhedge.bench.protocol import Protocol, setting
from labelhedge.cli.device import chosen_device
from labelhedge.data import Dataset, Part, info
from labelhedge.results import ResultsStore, load

LOSSES = "aldr-kl,ldr-kl,ce,gce,sce,js"
NOISES = {"cifar-10n": "aggre,worse", "tiny-imagenet": "clean,u0.3,u0.6,cd0.3"}


def read_cifar_10n(folder: Path) -> Dataset:
    images, labels = np.load(folder / "cifar10.npz"), np.load(folder / "cifarn_labels.npz")
    train, test = (Part(images[f"X_{part}"], images[f"y_{part}"].astype(np.int64)) for part in ("train", "test"))
    if not np.array_equal(labels["cifar10_clean_label"], train.labels):
        sys.exit("the human labels are not in the order of the images")
    human = {name: labels[f"cifar10_{name}_label"].astype(np.int64) for name in ("aggre", "worse")}
    return Dataset(info("cifar-10n"), train, test, tuple(map(str, range(10))), human)


def decode(files: list[bytes]) -> np.ndarray:
    return np.stack([np.asarray(Image.open(io.BytesIO(file)).convert("RGB")) for file in files])


def read_tiny_imagenet(folder: Path) -> Dataset:
    parts = {
        "train": [folder / f"tiny_imagenet_train_{i}.npz" for i in range(4)],
        "val": [folder / "tiny_imagenet_val.npz"],
    }
    found = []
    for paths in parts.values():
        files, labels = [], []
        for path in paths:
            archive = np.load(path)
            content, ends = archive["jpeg"].tobytes(), np.cumsum(archive["length"])
            files += [content[end - length : end] for end, length in zip(ends, archive["length"], strict=True)]
            labels.append(archive["y"].astype(np.int64))
        with ProcessPoolExecutor() as pool:
            images = list(pool.map(decode, [files[i : i + 500] for i in range(0, len(files), 500)]))
        found.append(Part(np.concatenate(images), np.concatenate(labels)))
    return Dataset(info("tiny-imagenet"), *found, tuple(map(str, range(200))))


READERS = {"cifar-10n": read_cifar_10n, "tiny-imagenet": read_tiny_imagenet}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", choices=READERS)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--losses", default=LOSSES)
    parser.add_argument("--noise")
    parser.add_argument("--lr", default="0.01,0.001")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--tuning-epochs", type=int, default=8)
    parser.add_argument("--folds", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--device")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    args = parser.parse_args()
    start = time.monotonic()
    data = READERS[args.dataset](args.data)
    bench_run._load = lambda name, seed, root: data
    protocol = Protocol(
        "paper-short",
        learning_rates=tuple(map(float, args.lr.split(","))),
        folds=args.folds,
        images=ImageSettings(epochs=args.epochs, tuning_epochs=args.tuning_epochs, width=args.width),
    )
    noises = [setting(name) for name in (args.noise or NOISES[args.dataset]).split(",")]
    store = ResultsStore(args.out)
    machine = bench_run.Machine(chosen_device(args.device), at_once=6)
    for job in jobs(protocol, [args.dataset], args.losses.split(","), noises, [args.seed]):
        if missing(job, store) is None:
            continue
        if time.monotonic() - start > args.seconds:
            print(f"out of time before {job.loss}")
            break
        began = time.monotonic()
        work_off([job], store, machine, 1, lambda count: None)
        seconds = time.monotonic() - began
        print(f"{job.loss}, seed {job.seed}: {job.network_epochs} network-epochs, {seconds:.0f} s", flush=True)
    columns = ["seed", "lr", "params", "fold", "best_epoch", "val_top1", "test_top1", "test_top5", "seconds"]
    print(load(args.out)[["noise", "rate", "loss", *columns]].to_string())


if __name__ == "__main__":
    main()
