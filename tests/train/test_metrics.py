import numpy as np
import pytest
import torch
from sklearn.metrics import balanced_accuracy_score, top_k_accuracy_score

from labelhedge.train.metrics import balanced_weight, rank_of_label, top_k


@pytest.fixture(scope="module")
def predictions():
    rng = np.random.default_rng(1)
    labels = rng.choice(6, size=300, p=[0.5, 0.3, 0.1, 0.05, 0.03, 0.02])
    return rng.normal(size=(300, 6)) + 1.5 * np.eye(6)[labels], labels


@pytest.mark.parametrize("k", range(1, 6))
def test_top_k_is_scikit_learns(predictions, k):
    logits, labels = predictions
    ranks = rank_of_label(torch.from_numpy(logits), torch.from_numpy(labels))
    assert top_k(ranks, k).item() == pytest.approx(top_k_accuracy_score(labels, logits, k=k), abs=1e-12)


def test_balanced_top_1_is_scikit_learns(predictions):
    logits, labels = predictions
    target = torch.from_numpy(labels)
    ranks = rank_of_label(torch.from_numpy(logits), target)
    expected = balanced_accuracy_score(labels, logits.argmax(1))
    assert top_k(ranks, 1, balanced_weight(target, 9)).item() == pytest.approx(expected, abs=1e-12)


def test_classes_in_the_middle():
    logits = torch.randn(3, 5, 8)
    target = torch.randint(5, (3, 8))
    assert torch.equal(rank_of_label(logits, target, class_dim=1), rank_of_label(logits.mT, target))


def test_equal_logits_are_not_right():
    ranks = rank_of_label(torch.zeros(2, 4), torch.tensor([0, 3]))
    assert ranks.tolist() == [4, 4]


def test_nan_is_never_right():
    nan = torch.full((2, 4), torch.nan)
    assert (rank_of_label(nan, torch.tensor([0, 3])) > 4).all()
    assert top_k(rank_of_label(nan, torch.tensor([0, 3])), 4).item() == 0
