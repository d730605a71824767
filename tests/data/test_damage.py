"""Every reader, given files that are cut off or have bits flipped, gives a clear error or the right data."""

import bz2
import gzip
import io
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from labelhedge.data import DataError
from labelhedge.data.formats.cifar import read_cifar
from labelhedge.data.formats.human_labels import read_human_labels
from labelhedge.data.formats.jpeg import decode_image
from labelhedge.data.formats.libsvm import read_libsvm
from labelhedge.data.formats.npz import read_npz
from tests.data.publishers import cifar_batch, jpeg, python_2_pickle, write_human_labels, write_libsvm, write_tar_gz

RNG = np.random.default_rng(0)
ROWS = np.round(RNG.normal(size=(12, 5)) * (RNG.random((12, 5)) < 0.7), 3)
LABELS = RNG.integers(1, 4, 12)
IMAGES = RNG.integers(0, 256, (3, 32, 32, 3), dtype=np.uint8)
PICTURE = jpeg(RNG.integers(0, 256, (64, 64, 3), dtype=np.uint8))
VECTOR = RNG.integers(0, 10, 20)


def libsvm(path):
    rows, labels = read_libsvm(path, num_features=5, num_rows=12)
    return rows.toarray().tolist(), labels.tolist()


def npz(path):
    return read_npz(path, "arr_0", shape=(12, 5), dtype="float64").tolist()


def cifar(path):
    parts, names = read_cifar(path, {"c/train": 3}, b"labels", "c/meta", b"label_names", 2)
    return [array.tolist() for array in parts["c/train"]], names


def human_labels(path):
    return {name: labels.tolist() for name, labels in read_human_labels(path, count=20, num_classes=10).items()}


def write_cifar(path, labels=(0, 1, 1)):
    meta = python_2_pickle({b"label_names": [b"cat", b"dog"]})
    return write_tar_gz(path, {"c/train": cifar_batch(IMAGES, labels, b"labels", {}), "c/meta": meta})


FORMATS = {
    "rows.bz2": (lambda path: write_libsvm(path, ROWS, LABELS), libsvm),
    "rows.npz": (lambda path: np.savez_compressed(path, ROWS), npz),
    "c.tar.gz": (write_cifar, cifar),
    "human.pt": (lambda path: write_human_labels(path, {"worse_label": VECTOR}), human_labels),
}


@pytest.fixture(scope="module", params=FORMATS)
def case(request, tmp_path_factory):
    """A path to write a damaged file to, the bytes of the whole one, its reader and what that reads from it."""
    write, read = FORMATS[request.param]
    path = tmp_path_factory.mktemp("damage") / request.param
    write(path)
    return path, path.read_bytes(), read, read(path)


def assert_clear_error_or_right_data(path, content, read, expected):
    path.write_bytes(content)
    try:
        found = read(path)
    except DataError as error:
        found, message = None, str(error)
    if found is None:
        assert str(path) in message
    else:
        assert found == expected


def test_cut_off_anywhere(case):
    path, content, read, expected = case
    step = max(1, len(content) // 400)
    for length in [*range(0, len(content), step), *range(len(content) - 64, len(content))]:
        assert_clear_error_or_right_data(path, content[: max(length, 0)], read, expected)


def test_any_bit_flipped(case):
    path, content, read, expected = case
    everywhere = range(len(content) * 8)
    bits = everywhere if len(everywhere) < 10_000 else RNG.choice(everywhere, 2_000, replace=False)
    for bit in bits:
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << (bit % 8)
        assert_clear_error_or_right_data(path, bytes(damaged), read, expected)


@given(data=st.data())
@settings(max_examples=300, deadline=None)
def test_any_other_damage(case, data):
    path, content, read, expected = case
    start = data.draw(st.integers(0, len(content)))
    end = data.draw(st.integers(start, len(content)))
    damaged = content[:start] + data.draw(st.binary(max_size=40)) + content[end:]
    assert_clear_error_or_right_data(path, damaged, read, expected)


@given(data=st.data())
@settings(max_examples=500, deadline=None)
def test_libsvm_text_without_a_checksum_keeps_its_shape(tmp_path_factory, data):
    text = write_libsvm(tmp_path_factory.getbasetemp() / "rows", ROWS, LABELS).read_bytes()
    path = tmp_path_factory.getbasetemp() / "damaged"
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    path.write_bytes(text[:start] + data.draw(st.binary(max_size=8)) + text[end:])
    try:
        rows, labels = read_libsvm(path, num_features=5, num_rows=12)
    except DataError:
        return
    assert rows.shape == (12, 5)
    assert np.isfinite(rows.toarray()).all()
    assert len(labels) == 12


def test_libsvm_text_cut_off_anywhere(tmp_path):
    text = write_libsvm(tmp_path / "rows", ROWS, LABELS).read_bytes()
    expected = libsvm(tmp_path / "rows")
    for length in range(len(text)):
        (tmp_path / "rows").write_bytes(text[:length])
        with pytest.raises(DataError, match="is not a complete LIBSVM file"):
            libsvm(tmp_path / "rows")
    (tmp_path / "rows").write_bytes(text)
    assert libsvm(tmp_path / "rows") == expected


@pytest.mark.parametrize("format", ["JPEG", "PNG"])
def test_an_image_cut_off_anywhere(format):
    out = io.BytesIO()
    Image.fromarray(IMAGES[0]).save(out, format)
    whole = decode_image(out.getvalue(), "a")
    content = out.getvalue()[: -4 if format == "PNG" else None]  # without the checksum of nothing at a PNG file's end
    for length in range(0, len(content), 7):
        with pytest.raises(DataError, match=r"a is not a whole JPEG or PNG image \(replace it or leave it out\): \w"):
            decode_image(content[:length], "a")
    with pytest.raises(DataError, match="is not a whole JPEG or PNG image"):
        decode_image(content[:-1], "a")
    assert np.array_equal(decode_image(content, "a"), whole)


def test_a_png_with_any_bit_flipped_is_an_error_or_the_same():
    out = io.BytesIO()
    Image.fromarray(IMAGES[0, :8, :8]).save(out, "PNG")
    content, accepted = out.getvalue(), 0
    for bit in range(len(content) * 8):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << (bit % 8)
        try:
            found = decode_image(bytes(damaged), "a.png")
        except DataError:
            continue
        assert np.array_equal(found, IMAGES[0, :8, :8])
        accepted += 1
    assert accepted <= 64  # the length and the checksum of the last chunk, which is empty


@given(data=st.data())
@settings(max_examples=300, deadline=None)
def test_a_damaged_jpeg_is_an_image_or_an_error(data):
    content = bytearray(PICTURE)
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        image = decode_image(bytes(content), "a.jpg")
    except DataError as error:
        image, message = None, str(error)
    assert "a.jpg" in message if image is None else image.ndim == 3


@pytest.mark.parametrize(
    "text",
    [
        b"1 1:2 #:1\n",
        b"1 1:1_0\n",
        b"1 qid:1 1:1\n",
        b"1 1:2\x00 2:3\n",
        b"1 0:2\n",
        b"1 6:2\n",
        b"1 2:1 2:2\n",
        b"1 2:1 1:2\n",
        b"1 1:nan\n",
        b"1 1:1e999\n",
        b"1.5 1:1\n",
        b"1e30 1:1\n",
        b"1 1\n",
        b"1 1:1",
        b"1,2 1:1\n",
        b"1 1:1\n1 1:1\n",
        b"",
        b"\x1f\x8b",
        "1 1:٣\n".encode(),
    ],
)
def test_libsvm_text_that_is_not(tmp_path, text):
    (tmp_path / "rows").write_bytes(text)
    with pytest.raises(DataError, match="rows is not a complete LIBSVM file: "):
        read_libsvm(tmp_path / "rows", num_features=5, num_rows=1)


def test_npz_is_refused_before_anything_is_allocated(tmp_path):
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "|u1", "fortran_order": False, "shape": (10**15,)})
    with zipfile.ZipFile(tmp_path / "huge.npz", "w") as archive:
        archive.writestr("arr_0.npy", header.getvalue())
    with pytest.raises(DataError, match=r"arr_0.npy holds uint8 of \(1000000000000000,\), expected uint8 of \(3,\)"):
        read_npz(tmp_path / "huge.npz", "arr_0", shape=(3,))


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros(4, np.uint8), r"holds uint8 of \(4,\), expected uint8 of \(3,\)"),
        (np.zeros(3, np.int8), r"holds int8 of \(3,\)"),
        (np.array([1, "a", None], object), "holds object"),
        (np.zeros((3,), ">u2"), "holds >u2"),
    ],
)
def test_npz_with_something_else(tmp_path, array, message):
    np.savez(tmp_path / "a.npz", array)
    with pytest.raises(DataError, match=message):
        read_npz(tmp_path / "a.npz", "arr_0", shape=(3,))


def test_npz_with_too_much(tmp_path):
    np.savez(tmp_path / "a.npz", np.zeros(3, np.uint8))
    with zipfile.ZipFile(tmp_path / "a.npz") as archive:
        content = archive.read("arr_0.npy")
    for data, message in ((content + b"x", "it goes on after"), (content[:-1], "1 bytes are missing")):
        with zipfile.ZipFile(tmp_path / "b.npz", "w") as archive:
            archive.writestr("arr_0.npy", data)
        with pytest.raises(DataError, match=message):
            read_npz(tmp_path / "b.npz", "arr_0", shape=(3,))


def test_cifar_archive_whose_checksum_comes_after_the_last_member(tmp_path):
    content = bytearray(write_cifar(tmp_path / "c.tar.gz").read_bytes())
    content[-8] ^= 1  # gzip's CRC
    (tmp_path / "c.tar.gz").write_bytes(content)
    with pytest.raises(DataError, match="CRC check failed"):
        cifar(tmp_path / "c.tar.gz")


def test_cifar_with_more_labels_than_classes(tmp_path):
    path = write_cifar(tmp_path / "c.tar.gz", [0, 1, 2])
    with pytest.raises(
        DataError, match="is not the CIFAR archive it should be: a batch does not hold 3 labels from 0 to 1"
    ):
        cifar(path)


def test_bombs_are_refused_by_their_size(tmp_path):
    with gzip.open(tmp_path / "c.tar.gz", "wb") as stream:
        stream.write(b"")
    write_tar_gz(tmp_path / "c.tar.gz", {"c/train": bytes(50_000_000), "c/meta": b""})
    with pytest.raises(DataError, match="c/train has 50,000,000 bytes, too many"):
        cifar(tmp_path / "c.tar.gz")
    with zipfile.ZipFile(tmp_path / "h.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("h/data.pkl", bytes(100_000_000))
    with pytest.raises(DataError, match="it is too large"):
        human_labels(tmp_path / "h.pt")


def test_bz2_of_several_streams(tmp_path):
    text = write_libsvm(tmp_path / "rows", ROWS, LABELS).read_bytes()
    (tmp_path / "rows.bz2").write_bytes(bz2.compress(text[:50]) + bz2.compress(text[50:]))
    assert libsvm(tmp_path / "rows.bz2") == libsvm(tmp_path / "rows")


def test_an_image_of_too_many_pixels_is_refused(monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 64 * 64 // 3)  # Pillow refuses twice as many
    with pytest.raises(DataError, match="decompression bomb"):
        decode_image(PICTURE, "bomb.jpg")


def test_a_bug_is_no_damage(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("labelhedge.data.formats.npz._check_header", lambda: None)
    with zipfile.ZipFile("bug.npz", "w") as archive:
        archive.writestr("a.npy", "")
    with pytest.raises(TypeError, match="takes 0 positional arguments"):
        read_npz("bug.npz", "a", shape=(1,))
