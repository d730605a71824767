"""Mini-WebVision: the first 50 classes of WebVision 1.0's Google images, tested on ILSVRC12's validation images."""

from pathlib import Path, PurePosixPath

import numpy as np

from labelhedge._optional import optional
from labelhedge.data._record import DataError, Dataset, DatasetInfo, Labels, Part
from labelhedge.data._store import Store
from labelhedge.data.formats._damage import expecting
from labelhedge.data.formats.jpeg import ImageFiles

WEBVISION, IMAGENET, DEVKIT = "webvision", "ILSVRC2012_img_val", "ILSVRC2012_devkit_t12"
BY_HAND = (
    f"WebVision 1.0's google_resized_256.tar and info.tar unpacked into the folder {WEBVISION} (so that it has google/ "
    f"and info/), and ILSVRC2012_img_val.tar unpacked into {IMAGENET}: either one folder for each WordNet id, or all "
    f"images in it and ILSVRC2012_devkit_t12.tar.gz unpacked beside it as {DEVKIT}"
)


def read_mini_webvision(info: DatasetInfo, store: Store, seed: int) -> Dataset:
    """The lists are read now, an image when it is asked for."""
    folder = store.folder(info.name)
    if not store.has(info):
        raise DataError(f"{info.name} is not in {folder} and cannot be fetched; put there {BY_HAND}")
    synsets = [line.partition(" ") for line in _lines(folder / WEBVISION / "info" / "synsets.txt")][: info.num_classes]
    if len(synsets) < info.num_classes:
        raise DataError(f"{folder / WEBVISION}/info/synsets.txt has {len(synsets)} classes, too few")
    train = _listed(folder / WEBVISION, "info/train_filelist_google.txt", info.num_classes)
    test = _validation(folder, [wnid for wnid, _, _ in synsets])
    return Dataset(info, train, test, tuple(words or wnid for wnid, _, words in synsets))


def _lines(path: Path) -> list[str]:
    with expecting("a list that can be read", path):
        return path.read_text(encoding="utf-8").splitlines()


def _listed(folder: Path, name: str, num_classes: int) -> Part:
    """Images and labels of the first classes in a list of lines "path label"."""
    found = []
    for number, line in enumerate(_lines(folder / name), 1):
        image, _, label = line.rpartition(" ")
        inside = PurePosixPath(image)
        if not (image and label.isdecimal()) or inside.is_absolute() or ".." in inside.parts:
            raise DataError(f"{folder / name}, line {number}: expected the path of an image and a label, got {line!r}")
        if int(label) < num_classes:
            found.append((folder / inside, int(label)))
    return _part(found, folder / name)


def _validation(folder: Path, wnids: list[str]) -> Part:
    """ILSVRC12's validation images of the classes, in either of the two layouts."""
    images = folder / IMAGENET
    if (images / wnids[0]).is_dir():
        of_class = [sorted((images / wnid).glob("*.JPEG")) for wnid in wnids]
        if not all(of_class):
            raise DataError(f"{images / wnids[of_class.index([])]} has no images")
        return _part([(path, label) for label, paths in enumerate(of_class) for path in paths], images)
    truth = folder / DEVKIT / "data" / "ILSVRC2012_validation_ground_truth.txt"
    numbers = _wordnet_ids(folder / DEVKIT / "data" / "meta.mat")
    label_of = {number: wnids.index(wnid) for number, wnid in numbers if wnid in wnids}
    answers = _lines(truth)
    paths = sorted(images.glob("ILSVRC2012_val_*.JPEG"))
    if len(paths) != len(answers) or not all(line.strip().isdecimal() for line in answers):
        raise DataError(f"{images} has {len(paths):,} images, {truth} is for {len(answers):,}")
    numbered = zip(paths, map(int, answers), strict=True)
    return _part([(path, label_of[number]) for path, number in numbered if number in label_of], images)


def _wordnet_ids(path: Path) -> list[tuple[int, str]]:
    """ILSVRC2012's number of each class and its WordNet id."""
    with expecting("the table of classes it should be", path):
        table = optional("scipy.io", "data").loadmat(path, squeeze_me=True, variable_names=["synsets"])["synsets"]
        return [(int(row["ILSVRC2012_ID"]), str(row["WNID"])) for row in table]


def _part(found: list[tuple[Path, int]], where: Path) -> Part:
    if not found:
        raise DataError(f"{where} has no images of the first 50 classes")
    labels: Labels = np.array([label for _, label in found], np.int64)
    return Part(ImageFiles(tuple(path for path, _ in found)), labels)


MINI_WEBVISION = DatasetInfo(
    name="mini-webvision",
    title="mini-WebVision",
    num_classes=50,
    num_train=65_944,
    num_test=2_500,
    inputs="colour image",
    split="the first 50 classes of WebVision's Google images; the test set is ILSVRC12's validation images of them",
    preprocessing="none; an image is decoded when it is asked for",
    source="https://data.vision.ee.ethz.ch/cvl/webvision/dataset2017.html",
    licence="none stated; ImageNet's terms for the test images",
    citation="W. Li, L. Wang, W. Li, E. Agustsson, L. Van Gool, WebVision Database: Visual Learning and "
    "Understanding from Web Data, arXiv:1708.02862, 2017",
    read=read_mini_webvision,
    by_hand=BY_HAND,
    folders=(WEBVISION, IMAGENET),
)
