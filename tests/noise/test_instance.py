import numpy as np
import pytest
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

import labelhedge as lh
from labelhedge.noise.instance import _discriminant_analysis


@pytest.fixture(scope="module")
def letter():
    train = lh.data.load("letter").train
    return train.inputs, train.labels


def test_flips_are_likelier_where_the_features_are_ambiguous(letter):
    features, labels = letter
    noisy = lh.noise.instance_dependent(labels, 0.3, features, seed=1)
    probability = LinearDiscriminantAnalysis().fit(features.astype(float), labels).predict_proba(features.astype(float))
    own = np.take_along_axis(probability, labels[:, None], 1)[:, 0]
    assert abs(noisy.flipped.mean() - 0.3) < 0.02
    assert noisy.flipped[own < 0.5].mean() > 3 * noisy.flipped[own > 0.9].mean()


def test_a_flipped_label_is_the_strongest_rival(letter):
    features, labels = letter
    noisy = lh.noise.instance_dependent(labels, 0.3, features, seed=1)
    probability = LinearDiscriminantAnalysis().fit(features.astype(float), labels).predict_proba(features.astype(float))
    np.put_along_axis(probability, labels[:, None], -1, 1)
    assert (noisy.labels == probability.argmax(1))[noisy.flipped].mean() > 0.98


def test_the_probabilities_are_those_of_scikit_learn(letter):
    features, labels = letter
    expected = (
        LinearDiscriminantAnalysis(solver="lsqr", shrinkage=1e-3)
        .fit(features.astype(float), labels)
        .predict_proba(features.astype(float))
    )
    for block, log_eta in _discriminant_analysis(features, labels, 26):
        np.testing.assert_allclose(np.exp(log_eta), expected[block], atol=1e-6)


@pytest.mark.parametrize("rate", [0.0, 0.01, 0.5, 0.9, 1.0])
def test_the_rate_is_what_is_asked_for(letter, rate):
    noisy = lh.noise.instance_dependent(letter[1], rate, letter[0], seed=2)
    assert abs(noisy.flipped.mean() - rate) < 0.015


def test_images_and_classes_that_never_occur():
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 2], 100)
    images = (rng.integers(0, 100, (200, 4, 4, 3)) + 50 * labels[:, None, None, None]).astype(np.uint8)
    noisy = lh.noise.instance_dependent(labels, 0.2, images, num_classes=4, seed=1)
    assert set(noisy.labels) <= {0, 2}
    assert noisy.transition[1].tolist() == [0, 1, 0, 0]


def test_features_that_tell_nothing_and_features_that_tell_all():
    labels = np.repeat([0, 1], 500)
    for features in (np.zeros((1000, 3)), labels[:, None] * 1e6):
        noisy = lh.noise.instance_dependent(labels, 0.3, features, seed=1)
        assert 0.2 < noisy.flipped.mean() < 0.4
