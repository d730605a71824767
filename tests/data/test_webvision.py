import dataclasses
import hashlib
import io
import shutil
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

import labelhedge as lh
from labelhedge.data import DataError, webvision
from tests.data import publishers

WNIDS = [f"n{1440764 + 13 * i:08}" for i in range(1000)]
NUMBER = {wnid: (i * 31 + 5) % 1000 + 1 for i, wnid in enumerate(WNIDS)}


def webvision_files():
    lines = [f"google/q{label + 1:04}/picture {i}.jpg {label}" for label in (*range(51), 999) for i in range(2)]
    pictures = {
        line.rpartition(" ")[0]: publishers.jpeg(np.full((20, 30, 3), 2 * i, np.uint8)) for i, line in enumerate(lines)
    }
    synsets = "".join(f"{wnid} thing {i}, object\n" for i, wnid in enumerate(WNIDS))
    return pictures | {
        "info/train_filelist_google.txt": "".join(f"{line}\n" for line in lines).encode(),
        "info/synsets.txt": synsets.encode(),
    }


def validation_images():
    """(wnid, JPEG) of one image for each class, in the order of their numbers, which is not that of the wnids."""
    order = [(7 * i + 3) % 1000 for i in range(1000)]
    return [(WNIDS[c], publishers.jpeg(np.full((8, 8, 3), c % 250, np.uint8))) for c in order]


def write_class_folders(root):
    folder = root / "mini-webvision" / "ILSVRC2012_img_val"
    for i, (wnid, content) in enumerate(validation_images(), 1):
        publishers.write_folder(folder / wnid, {f"ILSVRC2012_val_{i:08}.JPEG": content})


@pytest.fixture(scope="module")
def devkit(tmp_path_factory):
    """The bytes of a development kit."""
    fields = [("ILSVRC2012_ID", "O"), ("WNID", "O"), ("words", "O"), ("gloss", "O"), ("num_children", "O")]
    leaves = [(NUMBER[wnid], wnid, "thing", "a thing", 0) for wnid in WNIDS]
    synsets = np.array([*leaves, (1001, "n00000001", "things", "many", 3)], fields)
    table = io.BytesIO()
    savemat(table, {"synsets": synsets[:, None]})
    truth = "".join(f"{NUMBER[wnid]}\n" for wnid, _ in validation_images())
    folder = "ILSVRC2012_devkit_t12/data"
    members = {
        f"{folder}/meta.mat": table.getvalue(),
        f"{folder}/ILSVRC2012_validation_ground_truth.txt": truth.encode(),
    }
    return publishers.write_tar_gz(tmp_path_factory.mktemp("kit") / "kit.tar.gz", members).read_bytes()


@pytest.fixture
def flat(devkit, monkeypatch):
    """Write all images into one folder and the kit beside it, whose checksum is then the one that is known."""

    def write(root):
        checksum = f"sha256:{hashlib.sha256(devkit).hexdigest()}"
        monkeypatch.setattr(webvision, "DEVKIT", dataclasses.replace(webvision.DEVKIT, checksum=checksum))
        files = {f"ILSVRC2012_val_{i:08}.JPEG": content for i, (_, content) in enumerate(validation_images(), 1)}
        folder = root / "mini-webvision"
        publishers.write_folder(folder / "ILSVRC2012_img_val", files)
        (folder / "ILSVRC2012_devkit_t12.tar.gz").write_bytes(devkit)
        return folder / "ILSVRC2012_devkit_t12.tar.gz"

    return write


@pytest.fixture(params=["class folders", "flat"])
def layout(request, flat):
    return flat if request.param == "flat" else write_class_folders


def test_mini_webvision(tmp_path, layout):
    publishers.write_folder(tmp_path / "mini-webvision" / "webvision", webvision_files())
    layout(tmp_path)
    data = lh.data.load("mini-webvision", root=tmp_path)
    assert data.train.labels.tolist() == np.repeat(range(50), 2).tolist()
    assert data.train.inputs[3].shape == (20, 30, 3)
    assert data.train.inputs[3].mean() == pytest.approx(6, abs=1)
    assert data.train.inputs[1:3].paths == data.train.inputs.paths[1:3]
    assert sorted(data.test.labels) == list(range(50))
    for image, label in zip(data.test.inputs, data.test.labels, strict=True):
        assert image.mean() == pytest.approx(label, abs=1)
    assert data.class_names[49] == "thing 49, object"


def test_mini_webvision_that_is_not_there_says_what_to_put_where(tmp_path):
    message = f"is not in {tmp_path}/mini-webvision and cannot be fetched; put there WebVision"
    with pytest.raises(DataError, match=message):
        lh.data.load("mini-webvision", root=tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("info/train_filelist_google.txt", b"google/a.jpg 0\n../../x.jpg 1\n", "line 2: expected the path of an image"),
        ("info/train_filelist_google.txt", b"/etc/x.jpg 1\n", "line 1: expected the path"),
        ("info/train_filelist_google.txt", b"google/a.jpg\n", "line 1: expected the path"),
        ("info/train_filelist_google.txt", b"google/a.jpg 77\n", f"has no images of the class {WNIDS[0]}"),
        ("info/train_filelist_google.txt", b"google/a.jpg 1000\n", "line 1: the label 1000, but synsets.txt has 1000 "),
        ("info/synsets.txt", b"n01440764 tench\n", "has 1 classes, too few"),
        ("info/synsets.txt", b"\xff", "is not a list that can be read"),
    ],
)
def test_mini_webvision_with_something_else(tmp_path, name, content, message):
    publishers.write_folder(tmp_path / "mini-webvision" / "webvision", {**webvision_files(), name: content})
    write_class_folders(tmp_path)
    with pytest.raises(DataError, match=message):
        lh.data.load("mini-webvision", root=tmp_path)


def test_ilsvrc_with_a_missing_image(tmp_path, flat):
    publishers.write_folder(tmp_path / "mini-webvision" / "webvision", webvision_files())
    flat(tmp_path)
    (tmp_path / "mini-webvision" / "ILSVRC2012_img_val" / "ILSVRC2012_val_00000007.JPEG").unlink()
    with pytest.raises(DataError, match=r"has 999 images, .* is for 1,000"):
        lh.data.load("mini-webvision", root=tmp_path)


@pytest.mark.parametrize("number", [0, 7])
def test_ilsvrc_with_a_missing_class_folder(tmp_path, number):
    publishers.write_folder(tmp_path / "mini-webvision" / "webvision", webvision_files())
    write_class_folders(tmp_path)
    shutil.rmtree(tmp_path / "mini-webvision" / "ILSVRC2012_img_val" / WNIDS[number])
    with pytest.raises(DataError, match=f"ILSVRC2012_img_val has no images of the class {WNIDS[number]}"):
        lh.data.load("mini-webvision", root=tmp_path, download=False)


def test_webvision_with_a_missing_class_folder(tmp_path):
    folder = publishers.write_folder(tmp_path / "mini-webvision" / "webvision", webvision_files())
    write_class_folders(tmp_path)
    shutil.rmtree(folder / "google" / "q0051")  # of a class that is not used
    lh.data.load("mini-webvision", root=tmp_path)
    shutil.rmtree(folder / "google" / "q0050")
    with pytest.raises(
        DataError, match=r"google/q0050 is not there, but .*train_filelist_google\.txt has images in it"
    ):
        lh.data.load("mini-webvision", root=tmp_path)


@pytest.mark.parametrize("member", ["meta.mat", "ILSVRC2012_validation_ground_truth.txt"])
def test_a_development_kit_with_something_else(tmp_path, flat, monkeypatch, member):
    publishers.write_folder(tmp_path / "mini-webvision" / "webvision", webvision_files())
    kit = flat(tmp_path)
    monkeypatch.setattr(webvision, "DEVKIT", dataclasses.replace(webvision.DEVKIT, checksum=None))
    publishers.write_tar_gz(kit, {f"ILSVRC2012_devkit_t12/data/{member}": b"nothing"})
    with pytest.raises(DataError, match="is not the development kit it should be: it has no"):
        lh.data.load("mini-webvision", root=tmp_path)


@pytest.mark.parametrize(
    "name",
    [
        "webvision/info/synsets.txt",
        "webvision/info/train_filelist_google.txt",
        "ILSVRC2012_devkit_t12.tar.gz",
    ],
)
def test_a_list_damaged_anywhere(tmp_path, flat, name):
    """Text has no checksum: what can be asked is an error, or images and labels of the 50 classes."""
    publishers.write_folder(tmp_path / "mini-webvision" / "webvision", webvision_files())
    flat(tmp_path)
    path = tmp_path / "mini-webvision" / name
    content = path.read_bytes()
    rng = np.random.default_rng(0)
    for i, place in enumerate(rng.choice(len(content), 60)):
        flipped = content[:place] + bytes([content[place] ^ 1 << i % 8]) + content[place + 1 :]
        path.write_bytes(content[:place] if i % 4 == 0 else flipped)
        try:
            data = lh.data.load("mini-webvision", root=tmp_path)
        except DataError:
            continue
        assert set(data.train.labels) <= set(range(50))
        assert set(data.test.labels) == set(range(50))
        assert len(data.class_names) == 50


def test_an_image_that_is_gone_is_named(tmp_path):
    publishers.write_folder(tmp_path / "mini-webvision" / "webvision", webvision_files())
    write_class_folders(tmp_path)
    data = lh.data.load("mini-webvision", root=tmp_path)
    Path(data.train.inputs.paths[0]).unlink()
    with pytest.raises(DataError, match=r"cannot read .*picture 0\.jpg: No such file"):
        data.train.inputs[0]


def test_a_class_without_images_is_named(tmp_path):
    publishers.write_folder(tmp_path / "mini-webvision" / "webvision", webvision_files())
    write_class_folders(tmp_path)
    (image,) = (tmp_path / "mini-webvision" / "ILSVRC2012_img_val" / WNIDS[7]).iterdir()
    image.unlink()
    with pytest.raises(DataError, match=f"ILSVRC2012_img_val has no images of the class {WNIDS[7]}"):
        lh.data.load("mini-webvision", root=tmp_path)
