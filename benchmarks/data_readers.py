"""Times the readers of labelhedge.data, and their memory, against scikit-learn and plain loops on the same files.

    PYTHONPATH=. python benchmarks/data_readers.py [--real FOLDER] [--repeat 3] [--news20]

Every measurement runs in a process of its own. FOLDER may hold real data as npz files (aloi.npz with X_train, y_train,
X_test, y_test; tiny_imagenet_train_{0..3}.npz and tiny_imagenet_val.npz with jpeg, length, y, wnids); without it, files
of the same shape are made up. Memory is the peak of the whole process and, in brackets, what it is above the process
after its imports.
"""

import argparse
import dataclasses
import json
import lzma
import os
import platform
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from tests.data import publishers


def peak() -> float:
    """Most memory that this process has had, in MB; on Linux without that of the process it was forked from."""
    status = Path("/proc/self/status")
    if status.exists():
        return int(re.search(r"VmHWM:\s+(\d+)", status.read_text()).group(1)) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def ours_libsvm(path: Path, num_features: int) -> None:
    from labelhedge.data.formats.libsvm import read_libsvm

    read_libsvm(path, num_features=num_features)


def scikit_learn_libsvm(path: Path, num_features: int) -> None:
    from sklearn.datasets import load_svmlight_file

    load_svmlight_file(str(path), n_features=num_features, dtype=np.float32, zero_based=False)


def load_aloi(path: Path) -> None:
    load_adapted("aloi", path.parent.parent)


def load_tiny_imagenet(path: Path) -> None:
    data = load_adapted("tiny-imagenet", path.parent.parent)
    assert data.train.inputs[::1000].any()


def plain_tiny_imagenet(path: Path) -> None:
    """One JPEG after the other with Pillow, into one array."""
    import io
    import zipfile

    from PIL import Image

    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if name.endswith(".JPEG")]
        out = np.empty((len(names), 64, 64, 3), np.uint8)
        for i, name in enumerate(names):
            with Image.open(io.BytesIO(archive.read(name))) as image:
                out[i] = np.asarray(image.convert("RGB"))


def load_news20(path: Path) -> None:
    data = load_adapted("news20", path.parent.parent)
    assert data.train.inputs[::1000].any()


def load_adapted(name: str, root: Path):
    """Load a data set whose files were written here, so that their checksums are not the publisher's."""
    import labelhedge as lh
    from labelhedge.data._registry import REGISTRY

    files = tuple(dataclasses.replace(file, checksum=None, size=None) for file in REGISTRY[name].files)
    REGISTRY[name] = dataclasses.replace(REGISTRY[name], files=files)
    return lh.data.load(name, root=root, download=False, progress=lambda *_: None)


def measure(task: str, arguments: list) -> None:
    import sklearn.datasets  # noqa: F401 - both are imported for the memory that they take, which is not the reader's

    import labelhedge  # noqa: F401

    start, before = time.perf_counter(), peak()
    globals()[task](*(Path(a) if isinstance(a, str) else a for a in arguments))
    print(json.dumps({"seconds": time.perf_counter() - start, "peak": peak(), "above": peak() - before}))


def run(label: str, task: str, *arguments, repeat: int = 1) -> float:
    command = [
        sys.executable,
        __file__,
        "--measure",
        task,
        json.dumps([a if isinstance(a, int) else str(a) for a in arguments]),
    ]
    runs = [
        json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout) for _ in range(repeat)
    ]
    seconds = statistics.median(r["seconds"] for r in runs)
    print(f"| {label} | {seconds:.2f} | {runs[0]['peak']:.0f} ({runs[0]['above']:.0f}) |", flush=True)
    return seconds


def letter_rows() -> tuple[np.ndarray, np.ndarray]:
    from importlib.resources import files

    with np.load(str(files("labelhedge") / "data" / "letter.npz")) as arrays:
        return arrays["X"] / 7.5 - 1, arrays["y"] + 1


def aloi_rows(real: Path | None) -> tuple[np.ndarray, np.ndarray]:
    if real:
        with np.load(real / "aloi.npz") as arrays:
            return tuple(np.concatenate([arrays[f"{key}_train"], arrays[f"{key}_test"]]) for key in "Xy")
    return publishers.rows_like_aloi()


def tiny_files(real: Path | None) -> dict[str, bytes]:
    def jpegs(name):
        with np.load(real / name) as arrays:
            return publishers.labelled_jpegs(arrays)

    if real:
        with np.load(real / "tiny_imagenet_val.npz") as arrays:
            wnids = arrays["wnids"].tolist()
        train = [pair for i in range(4) for pair in jpegs(f"tiny_imagenet_train_{i}.npz")]
        return publishers.tiny_imagenet_files(wnids, train, jpegs("tiny_imagenet_val.npz"))
    rng = np.random.default_rng(0)
    pictures = [
        publishers.jpeg(rng.integers(0, 256, (8, 8, 3), np.uint8).repeat(8, 0).repeat(8, 1)) for _ in range(100)
    ]
    wnids = [f"n{i:08}" for i in range(200)]
    train = [(pictures[i % 100], i // 500) for i in range(100_000)]
    return publishers.tiny_imagenet_files(wnids, train, [(pictures[i % 100], i % 200) for i in range(10_000)])


def news20_counts(real: Path) -> tuple:
    from sklearn.feature_extraction.text import CountVectorizer

    with lzma.open(real / "news20_raw_text.json.xz") as file:
        news = json.load(file)
    some = slice(None, 15_935)
    texts, labels = news["train"] + news["test"], np.array(news["y_train"] + news["y_test"])
    return CountVectorizer(max_features=62_060).fit_transform(texts[some]), labels[some] + 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--real", type=Path)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--news20", action="store_true", help="also TF-IDF and PCA of 20 Newsgroups; some minutes")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        measure(args.measure[0], json.loads(args.measure[1]))
        return
    origin = f"the real files of {args.real.name}" if args.real else "made-up files of the same shape"
    print(f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}; {origin}\n")
    print("| what | seconds | MB |\n|---|---:|---:|")
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        letter = publishers.write_libsvm(root / "letter" / "letter.scale", *letter_rows())
        aloi = publishers.write_libsvm(root / "aloi" / "aloi.bz2", *aloi_rows(args.real))
        for name, path, features in (("Letter, text", letter, 16), ("ALOI, bz2", aloi, 128)):
            run(f"{name}: labelhedge", "ours_libsvm", path, features, repeat=args.repeat)
            run(f"{name}: scikit-learn", "scikit_learn_libsvm", path, features, repeat=args.repeat)
        run("ALOI: load, split and scaled", "load_aloi", aloi, repeat=args.repeat)
        tiny = publishers.write_zip(
            root / "tiny-imagenet" / "tiny-imagenet-200.zip", tiny_files(args.real), "tiny-imagenet-200"
        )
        run("Tiny-ImageNet: labelhedge, first load", "load_tiny_imagenet", tiny)
        run("Tiny-ImageNet: labelhedge, later loads", "load_tiny_imagenet", tiny, repeat=args.repeat)
        run("Tiny-ImageNet: Pillow, one after the other", "plain_tiny_imagenet", tiny)
        if args.news20:
            from sklearn.datasets import dump_svmlight_file

            (root / "news20").mkdir()
            path = root / "news20" / "news20"
            dump_svmlight_file(*news20_counts(args.real), str(path), zero_based=False, comment=None)
            run("20 Newsgroups: first load", "load_news20", path)
            run("20 Newsgroups: later loads", "load_news20", path)
            components = np.load(next(root.glob("news20/derived-*/train.npy")), mmap_mode="r").shape
            print(f"\n20 Newsgroups: training rows and components {components}")


if __name__ == "__main__":
    main()
