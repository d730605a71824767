from pathlib import Path

import numpy as np
import pytest

import labelhedge as lh
from labelhedge.data import DataError
from labelhedge.data._progress import silent
from labelhedge.data.formats.jpeg import _run_decoder, decode_all, decode_image
from tests.data import publishers
from tests.data.conftest import real_arrays

RNG = np.random.default_rng(0)


@pytest.fixture(scope="module")
def tiny():
    """Tiny-ImageNet's files, and how many are for training and testing: all, or a few made up if there are none."""
    if real := real_arrays("tiny_imagenet_val.npz"):
        parts = [real_arrays(f"tiny_imagenet_train_{i}.npz") for i in range(4)]
        train = [pair for part in parts for pair in publishers.labelled_jpegs(part)]
        val = publishers.labelled_jpegs(real)
        return publishers.tiny_imagenet_files(real["wnids"].tolist(), train, val), (100_000, 10_000)
    wnids = [f"n{i * 7919 % 100_000_000:08}" for i in range(1, 201)]
    colour = [
        (publishers.jpeg(RNG.integers(0, 256, (64, 64, 3), np.uint8)), label) for label in np.repeat(range(200), 2)
    ]
    grey = [(publishers.jpeg(RNG.integers(0, 256, (64, 64), np.uint8)), label) for label in range(200)]
    return publishers.tiny_imagenet_files(wnids, colour, grey), (400, 200)


@pytest.fixture
def few(tiny, published):
    """The files with two training images and one test image of each class, about."""
    published("tiny-imagenet", num_train=400, num_test=200)
    files, _ = tiny
    rows = files["val/val_annotations.txt"].decode().splitlines(keepends=True)[:200]
    wanted = {"wnids.txt", "words.txt", *(f"val/images/val_{i}.JPEG" for i in range(200))}
    wanted |= {name for name in files if name.startswith("train/") and name.endswith(("_0.JPEG", "_1.JPEG"))}
    return {name: files[name] for name in wanted} | {"val/val_annotations.txt": "".join(rows).encode()}


def write_zip(root, files):
    publishers.write_zip(root / "tiny-imagenet" / "tiny-imagenet-200.zip", files, "tiny-imagenet-200")


def write_unpacked(root, files):
    publishers.write_folder(root / "tiny-imagenet" / "tiny-imagenet-200", files)


def nothing_half_written(folder):
    """Whether there is nothing beside the publisher's files but locks and the note that they were checked."""
    return all(path.name.endswith((".lock", ".verified")) or "200" in path.name for path in folder.iterdir())


def test_tiny_imagenet(tmp_path, published, tiny, monkeypatch):
    files, (num_train, num_test) = tiny
    published("tiny-imagenet", num_train=num_train, num_test=num_test)
    publishers.write_zip(tmp_path / "tiny-imagenet" / "tiny-imagenet-200.zip", files, "tiny-imagenet-200")
    data = lh.data.load("tiny-imagenet", root=tmp_path, download=False)
    wnids = files["wnids.txt"].decode().split()
    words = dict(line.split("\t") for line in files["words.txt"].decode().splitlines())
    assert data.class_names == tuple(words[wnid] for wnid in wnids)
    assert data.train.inputs.shape == (num_train, 64, 64, 3)
    assert np.array_equal(data.train.labels, np.repeat(np.arange(200), num_train // 200))
    for i in RNG.choice(num_train, 50):
        wnid, number = wnids[i // (num_train // 200)], i % (num_train // 200)
        expected = decode_image(files[f"train/{wnid}/images/{wnid}_{number}.JPEG"], "")
        assert np.array_equal(data.train.inputs[i], expected)
    for i, line in enumerate(files["val/val_annotations.txt"].decode().splitlines()[:50]):
        name, wnid = line.split("\t")[:2]
        assert np.array_equal(data.test.inputs[i], decode_image(files[f"val/images/{name}"], ""))
        assert data.test.labels[i] == wnids.index(wnid)

    monkeypatch.setattr("labelhedge.data.tiny_imagenet.decode_all", None)
    again = lh.data.load("tiny-imagenet", root=tmp_path, download=False)
    assert isinstance(again.train.inputs.base, np.memmap)
    assert np.array_equal(again.test.inputs, data.test.inputs)
    again.test.inputs[0] = 0  # a copy of that page alone
    assert lh.data.load("tiny-imagenet", root=tmp_path, download=False).test.inputs[0].any()


def test_tiny_imagenet_unpacked(tmp_path, few):
    folder = publishers.write_folder(tmp_path / "tiny-imagenet" / "tiny-imagenet-200", few)
    data = lh.data.load("tiny-imagenet", root=tmp_path, download=False)
    assert (len(data.train), len(data.test)) == (400, 200)
    name = next(name for name in few if name.endswith("_1.JPEG") and name.startswith("train/"))
    (folder / name).unlink()
    (folder / "wnids.txt").touch()
    with pytest.raises(DataError, match=f"tiny-imagenet has an image that cannot be used: tiny-imagenet-200/{name}"):
        lh.data.load("tiny-imagenet", root=tmp_path, download=False)
    assert not [path for path in folder.parent.glob(".derived*") if path.is_dir()]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("wnids.txt", b"n00000001\n", "do not name 200 classes"),
        ("wnids.txt", b"../../etc\n" * 200, "do not name 200 classes"),
        ("words.txt", b"\xff\xfe", "can't decode"),
        ("val/val_annotations.txt", b"val_0.JPEG\tn00000001\n", "does not name the classes of 200 images"),
        ("val/images/val_3.JPEG", b"\xff\xd8\xff", r"val_3\.JPEG: "),
        ("val/images/val_3.JPEG", publishers.jpeg(np.zeros((65, 64, 3), np.uint8)), "it has 64 × 65 pixels"),
        ("val/images/val_3.JPEG", bytes(20_000_000), "has 20,000,000 bytes, too many"),
    ],
    ids=["one class", "paths for classes", "no text", "one image", "half an image", "another size", "a huge image"],
)
def test_tiny_imagenet_with_something_else(tmp_path, few, name, content, message):
    zip_file = tmp_path / "tiny-imagenet" / "tiny-imagenet-200.zip"
    publishers.write_zip(zip_file, few | {name: content}, "tiny-imagenet-200")
    with pytest.raises(DataError, match=message):
        lh.data.load("tiny-imagenet", root=tmp_path, download=False)
    assert not list(zip_file.parent.glob("derived-*"))


@pytest.mark.parametrize("write", [write_zip, write_unpacked])
@pytest.mark.parametrize(
    ("gone", "message"),
    [
        (
            "train/CLASS/",
            r"cannot be used: \S+/CLASS_0\.JPEG: (there is no \S+|No such file or directory); get or unpack it anew",
        ),
        ("val/", r"tiny-imagenet-200\S* is not Tiny-ImageNet as it is published: .*val_annotations\.txt"),
        ("wnids.txt", r"tiny-imagenet-200.*wnids\.txt"),
    ],
)
def test_tiny_imagenet_with_a_missing_folder_or_file(tmp_path, few, write, gone, message):
    wnid = few["wnids.txt"].decode().split()[7]
    gone, message = gone.replace("CLASS", wnid), message.replace("CLASS", wnid)
    write(tmp_path, {name: content for name, content in few.items() if not name.startswith(gone)})
    with pytest.raises(DataError, match=message):
        lh.data.load("tiny-imagenet", root=tmp_path, download=False)
    assert nothing_half_written(tmp_path / "tiny-imagenet")


@pytest.mark.parametrize("write", [write_zip, write_unpacked])
def test_tiny_imagenet_with_a_cut_off_image(tmp_path, few, write):
    name = next(name for name in few if name.startswith("train/"))
    write(tmp_path, few | {name: few[name][:-200]})
    with pytest.raises(DataError, match=f"has an image that cannot be used: tiny-imagenet-200/{name}: .*[Tt]runcated"):
        lh.data.load("tiny-imagenet", root=tmp_path, download=False)
    assert nothing_half_written(tmp_path / "tiny-imagenet")


def test_a_damaged_zip_file(tmp_path, few):
    path = publishers.write_zip(tmp_path / "tiny-imagenet" / "tiny-imagenet-200.zip", few, "tiny-imagenet-200")
    content = path.read_bytes()
    flipped = bytearray(content)
    flipped[content.index(few["val/images/val_7.JPEG"]) + 200] ^= 1
    for damaged, message in ((content[:-100], "not a zip file"), (bytes(flipped), r"Bad CRC-32 .*val_7\.JPEG")):
        path.write_bytes(damaged)
        path.with_name(f".{path.name}.verified").unlink(missing_ok=True)
        with pytest.raises(DataError, match=message):
            lh.data.load("tiny-imagenet", root=tmp_path, download=False)
        assert not list(path.parent.glob("derived-*"))


def test_a_zip_file_damaged_anywhere(tmp_path, few):
    path = publishers.write_zip(tmp_path / "tiny-imagenet" / "tiny-imagenet-200.zip", few, "tiny-imagenet-200")
    content = path.read_bytes()
    whole = lh.data.load("tiny-imagenet", root=tmp_path, download=False)
    for i, place in enumerate(RNG.choice(len(content), 24)):
        flipped = content[:place] + bytes([content[place] ^ 1 << i % 8]) + content[place + 1 :]
        path.write_bytes(content[:place] if i % 4 == 0 else flipped)
        path.with_name(f".{path.name}.verified").unlink(missing_ok=True)
        try:
            found = lh.data.load("tiny-imagenet", root=tmp_path, download=False)
        except DataError as error:
            found, message = None, str(error)
        if found is None:
            assert "tiny-imagenet-200.zip" in message
        else:
            assert np.array_equal(found.train.inputs, whole.train.inputs)
            assert np.array_equal(found.test.inputs, whole.test.inputs)
            assert np.array_equal(found.test.labels, whole.test.labels)


def test_a_damaged_image_among_very_many(tmp_path, few):
    folder = publishers.write_folder(tmp_path / "tiny-imagenet-200", few)
    names = [f"tiny-imagenet-200/val/images/val_{i % 200}.JPEG" for i in range(20_000)]  # more than a pipe holds
    (folder / "val/images/val_0.JPEG").write_bytes(b"")
    with pytest.raises(DataError, match=r"val_0\.JPEG: it is neither a JPEG nor a PNG file"):
        decode_all(tmp_path, names, (64, 64), tmp_path / "out.npy", silent, "")


def test_a_full_disk_is_told_from_a_damaged_image(tmp_path, few):
    publishers.write_folder(tmp_path / "tiny-imagenet-200", few)
    names = [f"tiny-imagenet-200/val/images/val_{i}.JPEG" for i in range(200)]
    with pytest.raises(OSError, match="No space left on device"):
        _run_decoder(tmp_path, names, (64, 64), Path("/dev/full"), 0, [], lambda count: None)


def test_a_decoder_that_is_killed_is_an_error(tmp_path, few):
    publishers.write_folder(tmp_path / "tiny-imagenet-200", few)
    names = ["tiny-imagenet-200/val/images/val_1.JPEG"] * 100_000
    (tmp_path / "out").touch()
    processes = []

    def kill(count):
        processes[0].kill()

    with pytest.raises(DataError, match="the decoder ended with exit code -9"):
        _run_decoder(tmp_path, names, (64, 64), tmp_path / "out", 0, processes, kill)


def test_progress_ends_once(tmp_path, few):
    publishers.write_folder(tmp_path / "tiny-imagenet-200", few)
    told = []
    names = ["tiny-imagenet-200/val/images/val_1.JPEG"] * 2_000
    decode_all(tmp_path, names, (64, 64), tmp_path / "o.npy", lambda *report: told.append(report[1]), "")
    assert told[0] == 0
    assert told == sorted(set(told))
    assert told[-1] == 2_000


def test_a_list_cannot_point_elsewhere(tmp_path, few):
    wnid = few["wnids.txt"].decode().split()[0]
    rows = f"../../../secret.JPEG\t{wnid}\n" * 200
    files = few | {"val/val_annotations.txt": rows.encode()}
    publishers.write_folder(tmp_path / "tiny-imagenet" / "tiny-imagenet-200", files)
    with pytest.raises(DataError, match="does not name the classes"):
        lh.data.load("tiny-imagenet", root=tmp_path, download=False)
