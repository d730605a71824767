"""Losses suggested for real rows with labels that were made wrong."""

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits

import labelhedge as lh
from labelhedge import losses
from labelhedge.audit import _suggest


@pytest.fixture(scope="module")
def digits():
    features, labels = load_digits(return_X_y=True)
    return features[:400], labels[:400]


@pytest.fixture(scope="module")
def noisy(digits):
    return lh.noise.uniform(digits[1], 0.4, seed=0)


@pytest.fixture(scope="module")
def suggestion(digits, noisy):
    told = []
    found = lh.suggest(digits[0], noisy.labels, progress=lambda *now: told.append(now))
    assert told[-1][0] == told[-1][1] > 0
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    return found


def test_noisy_labels_want_a_robust_loss(suggestion, noisy):
    assert suggestion.loss != "ce"
    assert suggestion.clear
    assert suggestion.gain > 0.05
    assert suggestion.audit.wrong / 400 == pytest.approx(noisy.flipped.mean(), abs=0.08)


def test_the_suggested_loss_can_be_made_and_trained(suggestion, digits, noisy):
    spec = losses.get(suggestion.loss)
    assert spec.module(**suggestion.params)
    classifier = lh.LabelHedgeClassifier(suggestion.loss, params=suggestion.params, random_state=0)
    classifier.fit(digits[0], noisy.labels)
    assert classifier.score(*digits) > 0.8


def test_the_comparison_has_every_loss_of_the_paper_once_the_best_first(suggestion):
    table = suggestion.comparison
    assert sorted(table["loss"]) == sorted(losses.PAPER)
    assert table["loss"].iloc[0] == suggestion.loss
    confirmed = table["accuracy"].dropna()
    assert confirmed.is_monotonic_decreasing
    assert len(confirmed) == _suggest.FINALISTS + 1
    assert table["accuracy"].iloc[0] == suggestion.accuracy
    rivals = table[table["loss"] != "ce"]
    finalist = rivals["accuracy"].notna()
    assert rivals["first"][finalist].min() >= rivals["first"][~finalist].max()
    ce = table.set_index("loss").loc["ce"]
    assert suggestion.accuracy - ce["accuracy"] == pytest.approx(suggestion.gain, abs=1e-6)


def test_the_same_seed_gives_the_same_suggestion(digits):
    features, labels = digits[0][:60], digits[1][:60] % 3
    one, again = (lh.suggest(features, labels, seed=5) for _ in range(2))
    pd.testing.assert_frame_equal(one.comparison, again.comparison)
    assert np.array_equal(one.audit.p_wrong, again.audit.p_wrong)


def test_many_features_become_few_that_keep_the_distances(digits):
    mixed = digits[0] @ np.random.default_rng(0).normal(size=(64, 300))
    data = _suggest._narrow(_suggest.Data(mixed.astype(np.float32), digits[1], 10))
    assert data.inputs.shape == (400, _suggest.WIDTH)
    assert data.inputs.dtype == np.float32
    assert np.square(data.inputs).mean() == pytest.approx(1, rel=1e-3)
    ratio = np.linalg.norm(mixed[1:] - mixed[0], axis=1) / np.linalg.norm(data.inputs[1:] - data.inputs[0], axis=1)
    assert ratio.std() / ratio.mean() < 0.01


def test_labels_that_cannot_be_used():
    with pytest.raises(ValueError, match="labels must be one for each of the 4 rows of features, got 3"):
        lh.suggest(np.eye(4), [0, 1, 0])
