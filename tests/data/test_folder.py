import io
import os
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

import labelhedge as lh
from labelhedge.data import DataError, read_folder

RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (6, 9, 3), np.uint8)


def write(path, pixels=PIXELS, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    image = pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)
    image.save(path, "PNG" if path.suffix.lower() == ".png" else "JPEG", **options)
    return path


@pytest.fixture
def pets(tmp_path):
    """Two classes; three images to train on and two to test on."""
    folder = tmp_path / "pets"
    for name in ("train/dog/1.jpg", "train/cat/2.PNG", "train/cat/10.Jpeg", "test/cat/1.jpg", "test/dog/1.png"):
        write(folder / name)
    return folder


def test_a_folder_of_images(pets):
    data = read_folder(pets)
    assert repr(data) == "Dataset('pets', train=3, test=2)"
    assert data.class_names == ("cat", "dog")
    assert data.train.labels.tolist() == [0, 0, 1]
    assert data.test.labels.tolist() == [0, 1]
    assert data.train.labels.dtype == np.int64
    assert data.train.inputs.paths == tuple(
        str(pets / "train" / name) for name in ("cat/10.Jpeg", "cat/2.PNG", "dog/1.jpg")
    )
    assert np.array_equal(data.train.inputs[1], PIXELS)
    assert data.train.inputs[0].shape == data.train.inputs[2].shape == PIXELS.shape
    assert data.info.images
    assert (data.info.name, data.info.num_classes, data.info.num_train, data.info.num_test) == ("pets", 2, 3, 2)
    assert (data.info.split, data.info.source, data.info.shipped) == ("the folder's", str(pets), False)
    again = data.info.read(data.info, None, 0)
    assert again.train.inputs == data.train.inputs
    assert pickle.loads(pickle.dumps(data)).info == data.info


@pytest.mark.parametrize("turn", range(1, 9))
def test_photographs_are_turned_upright(pets, turn):
    exif = Image.Exif()
    exif[0x0112] = turn
    path = write(pets / "train" / "dog" / "1.jpg", exif=exif)
    with Image.open(path) as image:
        expected = np.asarray(ImageOps.exif_transpose(image))
    assert np.array_equal(read_folder(pets).train.inputs[2], expected)


def test_images_are_in_the_order_of_their_names(pets):
    for number in RNG.permutation(range(20, 60)):
        shutil.copy(pets / "train" / "dog" / "1.jpg", pets / "train" / "dog" / f"{number}.jpg")
    found = read_folder(pets).train.inputs.paths[2:]
    assert found == tuple(str(pets / "train" / "dog" / f"{number}.jpg") for number in (1, *range(20, 60)))


@pytest.mark.parametrize("name", ["val", "validation"])
def test_other_names_for_the_test_folder(pets, name):
    (pets / "test").rename(pets / name)
    assert read_folder(pets).test.inputs.paths[0] == str(pets / name / "cat" / "1.jpg")
    write(pets / "test" / "cat" / "7.jpg")
    write(pets / "test" / "dog" / "7.jpg")
    assert read_folder(pets).test.inputs.paths[0] == str(pets / "test" / "cat" / "7.jpg")


def test_what_is_not_an_image_is_left_out(pets):
    expected = read_folder(pets).train.inputs
    for name in (".DS_Store", "Thumbs.db", "._1.jpg", "notes.txt", "jpg", "1.jpg.part"):
        (pets / "train" / "cat" / name).write_bytes(b"no image")
    (pets / "train" / "labels.csv").write_bytes(b"")
    write(pets / "train" / "cat" / "more.jpg" / "1.jpg")
    write(pets / "train" / ".ipynb_checkpoints" / "1.jpg")
    write(pets / "test" / ".ipynb_checkpoints" / "1.jpg")
    assert read_folder(pets).train.inputs == expected


def test_links_are_followed(pets, tmp_path):
    link = tmp_path / "linked"
    (link / "train").mkdir(parents=True)
    (link / "test").symlink_to(pets / "test")
    (link / "train" / "cat").symlink_to(pets / "train" / "cat")
    (link / "train" / "dog").mkdir()
    (link / "train" / "dog" / "a.png").symlink_to(pets / "train" / "cat" / "2.PNG")
    (link / "train" / "dog" / "b.png").symlink_to(pets / "nowhere")
    data = read_folder(link)
    assert data.info.name == "linked"
    assert np.array_equal(data.train.inputs[2], PIXELS)
    with pytest.raises(DataError, match=f"cannot read {link}/train/dog/b.png: No such file"):
        data.train.inputs[3]


def test_load_takes_a_path(pets, monkeypatch):
    monkeypatch.chdir(pets.parent)
    monkeypatch.setenv("HOME", str(pets.parent))
    for name in ("pets", "pets/", "./pets", "pets/../pets", "~/pets", pets, str(pets)):
        data = lh.data.load(name)
        assert (data.info.name, data.info.source, len(data.train)) == ("pets", str(pets), 3)
    monkeypatch.chdir(pets)
    assert lh.data.load("./").info.name == "pets"


def test_the_name_of_a_data_set_is_not_a_folder(pets, monkeypatch):
    monkeypatch.chdir(pets.parent)
    pets.rename("vowel")
    assert len(lh.data.load("vowel").train) == 891
    assert len(lh.data.load("./vowel").train) == len(lh.data.load(Path("vowel")).train) == 3
    with pytest.raises(
        ValueError, match=r"unknown data set 'pets'; known .*, mini-webvision; a folder of images may be "
    ):
        lh.data.load("pets")
    for name in ("./nowhere", Path("nowhere")):
        with pytest.raises(DataError, match=r"there is no folder \S+/nowhere; name one that has images in train/CLASS"):
            lh.data.load(name)


def test_a_file_is_not_a_folder(pets):
    with pytest.raises(DataError, match=r"there is no folder \S+1\.jpg; name one"):
        read_folder(pets / "train" / "dog" / "1.jpg")


@pytest.mark.parametrize(
    ("gone", "message"),
    [
        ("train", "{0} has no folder train; put the images to train on into {0}/train/CLASS"),
        ("test", r"{0} has no folder for testing; put images into {0}/test/CLASS \(val or validation will do too\)"),
        ("train/dog", "{0}/train has only the class cat; put the images of each class, two at least, into {0}/train/"),
        ("test/dog", "{0}/test has no folder dog; put images of that class into {0}/test/dog"),
        ("train/dog/1.jpg", r"{0}/train/dog has no images; put some right into it \(.jpg, .jpeg, .png\) or remove the"),
        ("test/dog/1.png", "{0}/test/dog has no images; put some right into it"),
    ],
)
def test_something_is_missing(pets, gone, message):
    path = pets / gone
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(DataError, match=f"^{message.format(pets)}"):
        read_folder(pets)


@pytest.mark.parametrize("name", ["train", "train/cat"])
def test_a_folder_that_may_not_be_read(pets, monkeypatch, name):
    def scandir(path, scandir=os.scandir):
        if Path(path) == pets / name:
            raise PermissionError(13, "Permission denied")  # root, who runs the tests, may read all
        return scandir(path)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(DataError, match=f"^cannot read {pets / name}: Permission denied$"):
        read_folder(pets)


def test_images_without_folders_of_classes(pets):
    shutil.rmtree(pets / "train")
    write(pets / "train" / "1.jpg")
    with pytest.raises(DataError, match=f"{pets}/train has no folders of classes; put the images of each class"):
        read_folder(pets)


def test_a_class_that_is_only_tested(pets):
    write(pets / "test" / "bird" / "1.jpg")
    with pytest.raises(
        DataError, match=f"{pets}/test/bird is a class that {pets}/train does not have; add it there or"
    ):
        read_folder(pets)


@pytest.mark.parametrize("name", ["train/cat/2.PNG", "train/dog/1.jpg"])
def test_an_image_that_is_cut_off_is_named_when_it_is_asked_for(pets, name):
    path = pets / name
    content = path.read_bytes()
    data = read_folder(pets)
    number = data.train.inputs.paths.index(str(path))
    gif = io.BytesIO()
    Image.fromarray(PIXELS).save(gif, "GIF")
    for damaged in (content[:-20], content[:10], b"", gif.getvalue()):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match=f"^{path} is not a whole JPEG or PNG image .replace it or leave it out"):
            data.train.inputs[number]
    path.write_bytes(content)
    assert data.train.inputs[number].shape == PIXELS.shape


def test_an_image_is_known_by_its_content(pets):
    Image.fromarray(PIXELS).save(pets / "train" / "dog" / "1.jpg", "PNG")
    assert np.array_equal(read_folder(pets).train.inputs[2], PIXELS)


GREY = PIXELS[..., 0]
SEEN = GREY > 100
PALETTE = Image.fromarray(PIXELS).quantize(8)


@pytest.mark.parametrize(
    ("image", "options", "expected"),
    [
        (GREY, {}, GREY[..., None]),
        (SEEN, {}, 255 * SEEN[..., None]),
        (GREY.astype(np.uint16) * 256 + 255, {}, GREY[..., None]),
        (np.dstack([PIXELS, 255 * SEEN]).astype(np.uint8), {}, np.where(SEEN[..., None], PIXELS, 255)),
        (np.dstack([GREY, 255 * SEEN]).astype(np.uint8), {}, np.where(SEEN, GREY, 255)[..., None]),
        (PALETTE, {}, np.asarray(PALETTE.convert("RGB"))),
        (
            PALETTE,
            {"transparency": bytes([255, 0])},
            np.where((np.asarray(PALETTE) == 1)[..., None], 255, np.asarray(PALETTE.convert("RGB"))),
        ),
        (GREY, {"transparency": int(GREY[0, 0])}, np.where(GREY[0, 0] == GREY, 255, GREY)[..., None]),
    ],
    ids=["grey", "black and white", "16 bits", "RGBA", "grey and alpha", "palette", "clear palette", "clear grey"],
)
def test_all_kinds_of_png_become_red_green_and_blue(tmp_path, image, options, expected):
    for part in ("train", "test"):
        for name in ("a", "b"):
            write(tmp_path / part / name / "1.png", image, **options)
    found = read_folder(tmp_path).train.inputs[0]
    assert found.dtype == np.uint8
    assert np.array_equal(found, np.broadcast_to(expected, PIXELS.shape))
