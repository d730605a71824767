import dataclasses
import hashlib
import subprocess
import sys

import numpy as np
import pytest

import labelhedge as lh
from labelhedge.data import tabular
from labelhedge.data._prepare import scale_to_unit_interval, split_off_test
from labelhedge.data.formats.libsvm import read_libsvm
from tests.data.conftest import real_arrays
from tests.data.publishers import rows_like_aloi, write_libsvm


def aloi():
    """108,000 rows of 1,000 classes: the real ones, or some as sparse and as small."""
    if arrays := real_arrays("aloi.npz"):
        return np.concatenate([arrays["X_train"], arrays["X_test"]]), np.concatenate(
            [arrays["y_train"], arrays["y_test"]]
        )
    return rows_like_aloi()


@pytest.mark.parametrize("name", ["vowel", "letter", "digits"])
def test_shipped_data(name):
    data = lh.data.load(name)
    info = lh.data.info(name)
    assert (len(data.train), len(data.test)) == (info.num_train, info.num_test)
    assert data.train.inputs.dtype == np.float32
    assert data.train.inputs.min(0).tolist() == [-1 if column.any() else 0 for column in data.train.inputs.T]
    assert data.train.inputs.max() == 1
    assert set(data.train.labels) == set(range(data.num_classes))
    assert len(data.class_names) == data.num_classes


def test_shipped_data_is_the_published():
    for name, arrays in (("vowel", real_arrays("vowel.npz")), ("letter", real_arrays("letter.npz"))):
        if arrays is None:
            continue
        rows, labels = (arrays["X"], arrays["y"]) if name == "vowel" else (arrays["X_train"], arrays["y_train"])
        data = lh.data.load(name, seed=4)
        train, test = split_off_test(len(rows), 4)
        expected = scale_to_unit_interval(rows[train], rows[test])
        assert np.array_equal(data.train.inputs, expected[0])
        assert np.array_equal(data.test.inputs, expected[1])
        assert np.array_equal(data.test.labels, labels[test])


def test_the_split_is_a_partition_that_the_seed_decides():
    train, test = split_off_test(990, 0)
    assert len(test) == 99
    assert sorted([*train, *test]) == list(range(990))
    assert not np.array_equal(split_off_test(990, 1)[1], test)


def test_the_same_split_on_every_machine():
    digest = hashlib.sha256(split_off_test(15_000, 3)[1].astype("<i8").tobytes()).hexdigest()
    assert digest[:16] == "4d8679335a1ab264"


def test_scaling_is_fitted_on_training_rows_alone():
    train, test = scale_to_unit_interval(np.array([[0.0], [10.0]]), np.array([[20.0], [-10.0]]))
    assert train.ravel().tolist() == [-1, 1]
    assert test.ravel().tolist() == [3, -3]


def test_letter_in_libsvm_text_is_the_shipped_letter(tmp_path):
    arrays = real_arrays("letter.npz")
    rng = np.random.default_rng(0)
    rows = arrays["X_train"] if arrays else rng.integers(0, 16, (15_000, 16))
    labels = arrays["y_train"] if arrays else rng.integers(0, 26, 15_000)
    path = write_libsvm(tmp_path / "letter.scale", rows / 7.5 - 1, labels + 1)
    read, read_labels = read_libsvm(path, num_features=16, num_rows=15_000)
    np.testing.assert_allclose(read.toarray(), rows / 7.5 - 1, atol=1e-7)
    assert np.array_equal(tabular.count_from_zero(read_labels, 26, path), labels)


@pytest.mark.parametrize("suffix", ["", ".bz2"])
def test_aloi(tmp_path, published, suffix):
    published("aloi")
    rows, labels = aloi()
    write_libsvm(tmp_path / "aloi" / f"aloi{suffix}", rows, labels)
    data = lh.data.load("aloi", root=tmp_path, download=False, seed=2)
    train, test = split_off_test(len(rows), 2)
    expected = scale_to_unit_interval(rows[train], rows[test])
    assert np.array_equal(data.train.inputs, expected[0])
    assert np.array_equal(data.test.labels, labels[test])


def test_a_file_with_other_classes_is_named(tmp_path):
    with pytest.raises(lh.data.DataError, match="aloi does not have the 3 classes"):
        tabular.count_from_zero(np.array([0, 1, 1]), 3, tmp_path / "aloi")
    with pytest.raises(lh.data.DataError, match="does not have"):
        tabular.count_from_zero(np.array([2, 3, 4]), 3, tmp_path / "aloi")
    with pytest.raises(lh.data.DataError, match="does not have"):
        tabular.count_from_zero(np.array([], np.int64), 3, tmp_path / "aloi")


def test_an_unknown_name_is_answered_with_the_known_ones():
    with pytest.raises(ValueError, match="unknown data set 'mnist'; known data sets: vowel, letter, digits"):
        lh.data.load("mnist")


def test_a_record_whose_parts_do_not_fit_is_refused():
    letter = lh.data.load("letter")
    with pytest.raises(ValueError, match="inputs and labels must be of one length, got 13500 and 1500"):
        lh.data.Part(letter.train.inputs, letter.test.labels)
    with pytest.raises(ValueError, match="letter has 26 classes, got 1 names"):
        dataclasses.replace(letter, class_names=("A",))


def test_shipped_data_needs_torch_and_numpy_alone():
    code = (
        "import sys; sys.modules |= dict.fromkeys(['sklearn', 'scipy', 'PIL', 'filelock'])\n"
        "import labelhedge as lh\n"
        "print(lh.data.load('vowel'), lh.data.load('letter'))\n"
        "try: lh.data.load('digits')\n"
        "except ImportError as error: print(error)"
    )
    printed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert printed.splitlines() == [
        "Dataset('vowel', train=891, test=99) Dataset('letter', train=13500, test=1500)",
        "sklearn is not installed; get it with: pip install 'labelhedge[data]'",
    ]
