import numpy as np
import pytest

import labelhedge as lh
from labelhedge.data import DataError
from tests.data import publishers
from tests.data.conftest import real_arrays

RNG = np.random.default_rng(0)
CIFAR_NAMES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


def many_images(count, *shape):
    """Images that compress well and differ from each other."""
    images = np.zeros((count, *shape), np.uint8)
    images.reshape(count, -1)[:, 3:7] = np.arange(count, dtype="<u4").view(np.uint8).reshape(count, 4)
    return images


def test_kuzushiji_49(tmp_path, published):
    published("kuzushiji-49")
    folder = tmp_path / "kuzushiji-49"
    parts = {"train": (232_365, 28, 28), "test": (38_547, 28, 28)}
    labels = {part: RNG.integers(0, 49, shape[0]).astype(np.uint8) for part, shape in parts.items()}
    for part, shape in parts.items():
        publishers.write_npz(folder / f"k49-{part}-imgs.npz", many_images(*shape))
        publishers.write_npz(folder / f"k49-{part}-labels.npz", labels[part])
    data = lh.data.load("kuzushiji-49", root=tmp_path, download=False)
    assert data.train.inputs.shape == (232_365, 28, 28, 1)
    assert np.array_equal(data.test.inputs[..., 0], many_images(*parts["test"]))
    assert np.array_equal(data.train.labels, labels["train"])
    assert data.class_names[0] == "あ"
    assert data.class_names[48] == "ゝ"

    publishers.write_npz(folder / "k49-test-labels.npz", labels["test"] + np.uint8(30))
    (folder / ".k49-test-labels.npz.verified").unlink()
    with pytest.raises(DataError, match=r"k49-test-labels\.npz has the label 78, expected 0 … 48"):
        lh.data.load("kuzushiji-49", root=tmp_path, download=False)


@pytest.fixture(scope="module")
def cifar_folder(tmp_path_factory):
    """CIFAR-10 in its publisher's archive with its real labels where they are known, and the human labels."""
    root = tmp_path_factory.mktemp("cifar")
    real = real_arrays("cifarn_labels.npz") or {}
    clean = real.get("cifar10_clean_label", RNG.integers(0, 10, 50_000))
    images = many_images(50_000, 32, 32, 3), many_images(10_000, 32, 32, 3)
    members = publishers.cifar_10_members(images[0], clean, images[1], np.arange(10_000) % 10, CIFAR_NAMES)
    publishers.write_tar_gz(root / "cifar-10" / "cifar-10-python.tar.gz", members)
    names = ("aggre_label", "worse_label", "random_label1", "random_label2", "random_label3")
    human = {name: real.get(f"cifar10_{name}", (clean + (np.arange(50_000) % 5 == 0)) % 10) for name in names}
    publishers.write_human_labels(root / "cifar-10n" / "CIFAR-10_human.pt", {"clean_label": clean, **human})
    return root, clean, human


def test_cifar_10(cifar_folder, published):
    published("cifar-10")
    root, clean, _ = cifar_folder
    data = lh.data.load("cifar-10", root=root, download=False)
    assert np.array_equal(data.train.inputs, many_images(50_000, 32, 32, 3))
    assert np.array_equal(data.test.inputs, many_images(10_000, 32, 32, 3))
    assert np.array_equal(data.train.labels, clean)
    assert np.array_equal(data.test.labels, np.arange(10_000) % 10)
    assert data.class_names == tuple(CIFAR_NAMES)


def test_cifar_10n(cifar_folder, published):
    published("cifar-10n")
    root, clean, human = cifar_folder
    data = lh.data.load("cifar-10n", root=root, download=False)
    assert list(data.human_labels) == ["aggre", "worse", "random1", "random2", "random3"]
    for ours, theirs in (("worse", "worse_label"), ("random3", "random_label3")):
        noisy = lh.noise.given(data.train.labels, data.human_labels[ours], num_classes=10)
        assert np.array_equal(noisy.labels, human[theirs])
        assert noisy.flipped.mean() == (human[theirs] != clean).mean()


@pytest.mark.real_data
def test_cifar_10n_has_the_published_noise_rates(cifar_folder, published):
    published("cifar-10n")
    data = lh.data.load("cifar-10n", root=cifar_folder[0], download=False)
    published_rates = {"aggre": 0.0903, "random1": 0.1723, "random2": 0.1812, "random3": 0.1764, "worse": 0.4021}
    for name, rate in published_rates.items():  # Wei et al. 2022, table 1
        noisy = lh.noise.given(data.train.labels, data.human_labels[name])
        assert abs(noisy.flipped.mean() - rate) < 3e-4


def test_cifar_10n_in_another_order_is_refused(cifar_folder, published, tmp_path):
    published("cifar-10n")
    root, clean, human = cifar_folder
    (tmp_path / "cifar-10").symlink_to(root / "cifar-10")
    path = tmp_path / "cifar-10n" / "CIFAR-10_human.pt"
    publishers.write_human_labels(path, {"clean_label": clean[::-1], **human})
    with pytest.raises(DataError, match="not in the order of CIFAR-10"):
        lh.data.load("cifar-10n", root=tmp_path, download=False)
    publishers.write_human_labels(path, {"clean_label": clean})
    (path.parent / f".{path.name}.verified").unlink()
    with pytest.raises(DataError, match="has no aggre_label"):
        lh.data.load("cifar-10n", root=tmp_path, download=False)


def test_cifar_100(tmp_path, published):
    published("cifar-100")
    labels, test_labels = np.arange(50_000) % 100, np.arange(10_000) % 100
    names = [f"thing {i}" for i in range(100)]
    images = many_images(50_000, 32, 32, 3), many_images(10_000, 32, 32, 3)
    members = publishers.cifar_100_members(images[0], labels, images[1], test_labels, names)
    publishers.write_tar_gz(tmp_path / "cifar-100" / "cifar-100-python.tar.gz", members)
    data = lh.data.load("cifar-100", root=tmp_path, download=False)
    assert np.array_equal(data.train.inputs, images[0])
    assert np.array_equal(data.test.labels, test_labels)
    assert data.class_names[99] == "thing 99"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cifar-10-batches-py/test_batch": None}, "it has no cifar-10-batches-py/test_batch"),
        ({"cifar-10-batches-py/test_batch": b"junk"}, "is not the CIFAR archive it should be"),
        ({}, "does not hold 10,000 images"),
        (
            {"cifar-10-batches-py/batches.meta": publishers.python_2_pickle({b"label_names": [b"cat"] * 12})},
            "cifar-10-batches-py/batches.meta names 12 classes, expected 10",
        ),
    ],
)
def test_cifar_archive_with_something_else(tmp_path, published, change, message):
    published("cifar-10")
    images, labels = many_images(5, 32, 32, 3), [0] * 5
    members = publishers.cifar_10_members(images, labels, images, labels, CIFAR_NAMES)
    members = {name: content for name, content in (members | change).items() if content is not None}
    publishers.write_tar_gz(tmp_path / "cifar-10" / "cifar-10-python.tar.gz", members)
    with pytest.raises(DataError, match=message):
        lh.data.load("cifar-10", root=tmp_path, download=False)
