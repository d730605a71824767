"""Mini-WebVision: the first 50 classes of WebVision 1.0's Google images, tested on ILSVRC12's validation images."""

import io
from pathlib import Path, PurePosixPath

import numpy as np

from labelhedge._errors import DataError
from labelhedge._optional import optional
from labelhedge.data._record import Dataset, DatasetInfo, Labels, Part, RemoteFile
from labelhedge.data._store import Store
from labelhedge.data.formats._damage import expecting
from labelhedge.data.formats.jpeg import ImageFiles
from labelhedge.data.formats.tar import read_members

WEBVISION, IMAGENET = "webvision", "ILSVRC2012_img_val"
DEVKIT = RemoteFile(
    "mini-webvision",
    "ILSVRC2012_devkit_t12.tar.gz",
    "https://image-net.org/data/ILSVRC/2012/ILSVRC2012_devkit_t12.tar.gz",
    "sha256:b59243268c0d266621fd587d2018f69e906fb22875aca0e295b48cafaa927953",
)
BY_HAND = (
    f"WebVision 1.0's google_resized_256.tar and info.tar unpacked into the folder {WEBVISION} (so that it has google/ "
    f"and info/), and ILSVRC2012_img_val.tar unpacked into {IMAGENET}: either one folder for each WordNet id, or all "
    f"images in it and {DEVKIT.name} beside it"
)


def read_mini_webvision(info: DatasetInfo, store: Store, seed: int) -> Dataset:
    """The lists are read now, an image when it is asked for."""
    folder = store.folder(info.name)
    if not store.has(info):
        raise DataError(f"{info.name} is not in {folder} and cannot be fetched; put there {BY_HAND}")
    synsets = [line.partition(" ") for line in _lines(folder / WEBVISION / "info" / "synsets.txt")]
    if len(synsets) < info.num_classes:
        raise DataError(f"{folder / WEBVISION}/info/synsets.txt has {len(synsets)} classes, too few")
    first = synsets[: info.num_classes]
    wnids = [wnid for wnid, _, _ in first]
    train = _listed(folder / WEBVISION, "info/train_filelist_google.txt", wnids, len(synsets))
    test = _validation(store, folder / IMAGENET, wnids)
    return Dataset(info, train, test, tuple(words or wnid for wnid, _, words in first))


def _lines(path: Path) -> list[str]:
    with expecting("a list that can be read", path):
        return path.read_text(encoding="utf-8").splitlines()


def _listed(folder: Path, name: str, wnids: list[str], num_classes: int) -> Part:
    """Images and labels of the classes, the first of ``num_classes``, in a list of lines "path label"."""
    found = []
    for number, line in enumerate(_lines(folder / name), 1):
        image, _, label = line.rpartition(" ")
        inside = PurePosixPath(image)
        if not (image and label.isdecimal()) or inside.is_absolute() or ".." in inside.parts:
            raise DataError(f"{folder / name}, line {number}: expected the path of an image and a label, got {line!r}")
        if int(label) >= num_classes:
            raise DataError(
                f"{folder / name}, line {number}: the label {label}, but synsets.txt has {num_classes} classes"
            )
        if int(label) < len(wnids):
            found.append((folder / inside, int(label)))
    if missing := sorted(parent for parent in {path.parent for path, _ in found} if not parent.is_dir()):
        raise DataError(f"{missing[0]} is not there, but {folder / name} has images in it; unpack it anew")
    return _part(found, wnids, folder / name)


def _validation(store: Store, images: Path, wnids: list[str]) -> Part:
    """ILSVRC12's validation images of the classes, in either of the two layouts."""
    if any((images / wnid).is_dir() for wnid in wnids):
        found = [(path, label) for label, wnid in enumerate(wnids) for path in sorted((images / wnid).glob("*.JPEG"))]
    else:
        found = _by_devkit(images, store.ensure(DEVKIT), wnids)
    return _part(found, wnids, images)


def _by_devkit(images: Path, devkit: Path, wnids: list[str]) -> list[tuple[Path, int]]:
    """The images of the classes in a folder that has all 50,000, whose classes the development kit lists.

    SciPy's reader of MATLAB's files can end the process on a damaged one; this one has passed its checksum.
    """
    folder = f"{DEVKIT.name.removesuffix('.tar.gz')}/data"
    table, truth = f"{folder}/meta.mat", f"{folder}/ILSVRC2012_validation_ground_truth.txt"
    with expecting("the development kit it should be", devkit):
        members = read_members(devkit, {table: 16 << 20, truth: 1 << 20})
        synsets = optional("scipy.io", "data").loadmat(io.BytesIO(members[table]), squeeze_me=True)["synsets"]
        number_of = {str(row["WNID"]): int(row["ILSVRC2012_ID"]) for row in synsets}
        label_of = {number_of[wnid]: label for label, wnid in enumerate(wnids)}
        answers = [int(line) for line in members[truth].split()]
    paths = sorted(images.glob("ILSVRC2012_val_*.JPEG"))
    if len(paths) != len(answers):
        raise DataError(f"{images} has {len(paths):,} images, {devkit} is for {len(answers):,}")
    return [(path, label_of[number]) for path, number in zip(paths, answers, strict=True) if number in label_of]


def _part(found: list[tuple[Path, int]], wnids: list[str], where: Path) -> Part:
    if missing := set(range(len(wnids))) - {label for _, label in found}:
        raise DataError(f"{where} has no images of the class {wnids[min(missing)]}; get or unpack it anew")
    labels: Labels = np.array([label for _, label in found], np.int64)
    return Part(ImageFiles(tuple(str(path) for path, _ in found)), labels)


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
