"""Audits of real rows with labels that were made wrong."""

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits
from sklearn.metrics import average_precision_score

import labelhedge as lh


@pytest.fixture(scope="module")
def digits():
    features, labels = load_digits(return_X_y=True)
    noisy = lh.noise.uniform(labels[:500], 0.15, seed=0)
    return features[:500], noisy


@pytest.fixture(scope="module")
def audit(digits):
    features, noisy = digits
    told = []
    found = lh.audit.find(features, [f"digit {label}" for label in noisy.labels], progress=lambda *p: told.append(p))
    assert told[-1][0] == told[-1][1] > 0
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    return found


def test_wrong_labels_come_first(digits, audit):
    _, noisy = digits
    assert average_precision_score(noisy.flipped, audit.p_wrong) > 0.95
    table = audit.suspects(all=True)
    assert list(table.columns) == ["row", "given", "suggested", "p_wrong", "rank"]
    assert sorted(table["row"]) == list(range(500))
    assert table["p_wrong"].is_monotonic_decreasing
    assert table["rank"].tolist() == list(range(1, 501))
    assert (table["given"] != table["suggested"]).all()
    assert table["given"].iloc[0] == f"digit {noisy.labels[table['row'].iloc[0]]}"


def test_suspects_are_mostly_wrong_and_the_suggested_label_mostly_right(digits, audit):
    _, noisy = digits
    suspects = audit.suspects()
    clean = load_digits(return_X_y=True)[1]
    assert (suspects["p_wrong"] > 0.5).all()
    assert noisy.flipped[suspects["row"]].mean() > 0.85
    right = suspects["suggested"] == [f"digit {clean[row]}" for row in suspects["row"]]
    assert right[noisy.flipped[suspects["row"]]].mean() > 0.9


def test_how_many_are_wrong(digits, audit):
    _, noisy = digits
    assert audit.wrong == pytest.approx(noisy.flipped.sum(), rel=0.25)
    by_class = audit.by_class()
    assert by_class["rows"].sum() == 500
    assert by_class["wrong"].sum() == pytest.approx(audit.wrong, rel=1e-4)
    assert by_class["label"].tolist() == [f"digit {label}" for label in range(10)]
    pairs = audit.pairs(5)
    assert len(pairs) == 5
    assert (pairs["true"] != pairs["given"]).all()
    assert pairs["rows"].is_monotonic_decreasing


def test_the_same_seed_gives_the_same_suspects():
    features, labels = load_digits(return_X_y=True, as_frame=True)
    features, labels = features[:120], labels[:120]
    one, again, other = (lh.audit.find(features, labels, seed=seed) for seed in (0, 0, 1))
    pd.testing.assert_frame_equal(one.suspects(all=True), again.suspects(all=True))
    assert not np.array_equal(one.p_wrong, other.p_wrong)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 1, 0], "labels must be one for each of the 4 rows of features, got 3"),
        ([0, 1, 0, None], "labels must not be missing, got 1 that are"),
        ([1, 1, 1, 1], "two classes or more with two rows or more each, got 1 alone"),
        (["a", "a", "a", "b"], "two classes or more with two rows or more each, got 'b' with one row"),
    ],
)
def test_labels_that_cannot_be_audited(labels, message):
    with pytest.raises(ValueError, match=message):
        lh.audit.find([[0.1], [1.0], [0.7], [2.0]], labels)


@pytest.mark.parametrize("examine", [lh.audit.find, lh.suggest])
def test_a_million_classes_are_refused_before_anything_is_trained(examine):
    labels = np.repeat(np.arange(10**6), 5)
    with pytest.raises(ValueError, match=r"of 1,000,000 classes take [\d,]+ GB, more than this machine has"):
        examine(np.sin(labels[:, None]), labels)
