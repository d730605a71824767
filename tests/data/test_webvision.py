import numpy as np
import pytest
from scipy.io import savemat

import labelhedge as lh
from labelhedge.data import DataError
from tests.data import publishers

WNIDS = [f"n{1440764 + 13 * i:08}" for i in range(1000)]


def webvision_files():
    lines = [f"google/q{label + 1:04}/picture {i}.jpg {label}" for label in (0, 49, 50, 999) for i in range(2)]
    pictures = {
        line.rpartition(" ")[0]: publishers.jpeg(np.full((20, 30, 3), 5 * i, np.uint8)) for i, line in enumerate(lines)
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


def write_flat_with_devkit(root):
    folder = root / "mini-webvision"
    number = {wnid: (i * 31 + 5) % 1000 + 1 for i, wnid in enumerate(WNIDS)}
    files = {f"ILSVRC2012_val_{i:08}.JPEG": content for i, (_, content) in enumerate(validation_images(), 1)}
    publishers.write_folder(folder / "ILSVRC2012_img_val", files)
    truth = "".join(f"{number[wnid]}\n" for wnid, _ in validation_images())
    publishers.write_folder(
        folder / "ILSVRC2012_devkit_t12", {"data/ILSVRC2012_validation_ground_truth.txt": truth.encode()}
    )
    fields = [("ILSVRC2012_ID", "O"), ("WNID", "O"), ("words", "O"), ("gloss", "O"), ("num_children", "O")]
    leaves = [(number[wnid], wnid, "thing", "a thing", 0) for wnid in WNIDS]
    synsets = np.array([*leaves, (1001, "n00000001", "things", "many", 3)], fields)
    savemat(folder / "ILSVRC2012_devkit_t12" / "data" / "meta.mat", {"synsets": synsets[:, None]})


@pytest.mark.parametrize("write", [write_class_folders, write_flat_with_devkit])
def test_mini_webvision(tmp_path, write):
    publishers.write_folder(tmp_path / "mini-webvision" / "webvision", webvision_files())
    write(tmp_path)
    data = lh.data.load("mini-webvision", root=tmp_path)
    assert data.train.labels.tolist() == [0, 0, 49, 49]
    assert data.train.inputs[3].shape == (20, 30, 3)
    assert data.train.inputs[3].mean() == pytest.approx(15, abs=1)
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
        ("info/train_filelist_google.txt", b"google/a.jpg 77\n", "has no images of the first 50 classes"),
        ("info/synsets.txt", b"n01440764 tench\n", "has 1 classes, too few"),
        ("info/synsets.txt", b"\xff", "is not a list that can be read"),
    ],
)
def test_mini_webvision_with_something_else(tmp_path, name, content, message):
    publishers.write_folder(tmp_path / "mini-webvision" / "webvision", {**webvision_files(), name: content})
    write_class_folders(tmp_path)
    with pytest.raises(DataError, match=message):
        lh.data.load("mini-webvision", root=tmp_path)


def test_ilsvrc_with_missing_images_or_a_damaged_table(tmp_path):
    publishers.write_folder(tmp_path / "mini-webvision" / "webvision", webvision_files())
    write_flat_with_devkit(tmp_path)
    folder = tmp_path / "mini-webvision"
    (folder / "ILSVRC2012_img_val" / "ILSVRC2012_val_00000007.JPEG").unlink()
    with pytest.raises(DataError, match=r"has 999 images, .* is for 1,000"):
        lh.data.load("mini-webvision", root=tmp_path)
    (folder / "ILSVRC2012_devkit_t12" / "data" / "meta.mat").write_bytes(b"MATLAB 5.0 MAT-file" + bytes(200))
    with pytest.raises(DataError, match=r"meta\.mat is not the table of classes it should be"):
        lh.data.load("mini-webvision", root=tmp_path)


def test_an_image_that_is_gone_is_named(tmp_path):
    publishers.write_folder(tmp_path / "mini-webvision" / "webvision", webvision_files())
    write_class_folders(tmp_path)
    data = lh.data.load("mini-webvision", root=tmp_path)
    data.train.inputs.paths[0].unlink()
    with pytest.raises(DataError, match=r"picture 0\.jpg is not a whole JPEG image"):
        data.train.inputs[0]


def test_a_class_without_images_is_named(tmp_path):
    publishers.write_folder(tmp_path / "mini-webvision" / "webvision", webvision_files())
    write_class_folders(tmp_path)
    (image,) = (tmp_path / "mini-webvision" / "ILSVRC2012_img_val" / WNIDS[7]).iterdir()
    image.unlink()
    with pytest.raises(DataError, match=f"{WNIDS[7]} has no images"):
        lh.data.load("mini-webvision", root=tmp_path)
