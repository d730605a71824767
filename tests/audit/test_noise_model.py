"""From probabilities and given labels to the probability that a label is wrong."""

import numpy as np
import pytest

import labelhedge as lh
from labelhedge.audit._noise_model import Likely, _Pairs, likeliest, posterior


def perfect(clean, classes, confidence=0.9):
    probability = np.full((len(clean), classes), (1 - confidence) / (classes - 1), np.float32)
    probability[np.arange(len(clean)), clean] = confidence
    return probability


@pytest.fixture
def clean():
    return np.random.default_rng(0).integers(0, 5, 3000)


def test_the_given_label_comes_first_and_the_likeliest_others_follow():
    probability = np.array([[0.5, 0.2, 0.3, 0.0], [0.1, 0.2, 0.3, 0.4]], np.float32)
    likely = likeliest(probability, np.array([1, 3]), most=3)
    assert likely.classes[:, 0].tolist() == [1, 3]
    assert [set(row) for row in likely.classes[:, 1:].tolist()] == [{0, 2}, {1, 2}]
    np.testing.assert_allclose(likely.probability[:, 0], [0.2, 0.4])


def test_wrong_labels_are_found_and_counted(clean):
    given = lh.noise.uniform(clean, 0.3, seed=1).labels
    q, confusion = posterior(likeliest(perfect(clean, 5), given), 5)
    np.testing.assert_array_equal(q[:, 0] < 0.5, given != clean)
    np.testing.assert_allclose(q.sum(1), 1, rtol=1e-5)
    assert confusion.rows.sum() == pytest.approx(len(clean), rel=1e-4)
    wrong = confusion.rows[confusion.true != confusion.given].sum()
    assert wrong == pytest.approx((given != clean).sum(), rel=0.05)


def test_a_confusion_that_is_common_makes_a_label_suspect(clean):
    """Two rows that the networks find just as doubtful: the one whose doubt is a common error is likelier wrong."""
    given = lh.noise.class_dependent(clean, 0.3, {0: 1}, num_classes=5, seed=0).labels
    probability = perfect(clean, 5)
    doubtful = np.array([[0.45, 0.45, 0.04, 0.03, 0.03], [0.03, 0.45, 0.45, 0.04, 0.03]], np.float32)
    q, _ = posterior(likeliest(np.concatenate([probability, doubtful]), np.concatenate([given, [1, 1]])), 5)
    common, rare = q[-2, 0], q[-1, 0]
    assert common < rare - 0.1


def test_the_confusion_is_believed_only_where_it_predicts_other_labels(clean):
    def trust(given):
        likely = likeliest(perfect(clean, 5), given)
        return _Pairs(likely, 5).trust(likely.probability.astype(np.float64), np.arange(400))

    assert trust(lh.noise.uniform(clean, 0.3, seed=0).labels) <= 0.25
    assert trust(lh.noise.class_dependent(clean, 0.3, {0: 1, 2: 3}, num_classes=5, seed=0).labels) >= 0.75


def test_any_number_of_classes_takes_little_memory():
    classes = 20_000
    given = np.arange(classes).repeat(3)
    others = np.stack([(given + 1) % classes, (given + 2) % classes], 1)
    likely = Likely(
        np.concatenate([given[:, None], others], 1),
        np.tile(np.array([0.8, 0.1, 0.05], np.float32), (len(given), 1)),
    )
    q, confusion = posterior(likely, classes)
    assert len(confusion.rows) == 3 * classes
    assert (q[:, 0] > 0.9).all()
