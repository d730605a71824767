"""What two seeds have in common: nothing, so that two runs are two samples."""

import numpy as np
import pytest

import labelhedge as lh
from labelhedge import estimator
from labelhedge.audit import _suggest
from labelhedge.train import crossfit

RANDOM = np.random.default_rng(0)
FEATURES, LABELS = RANDOM.normal(size=(40, 3)), np.arange(40) % 2


def find(seed):
    lh.audit.find(FEATURES, LABELS, seed=seed)


def suggest(seed):
    lh.suggest(FEATURES, LABELS, seed=seed)


def classify(random_state):
    lh.LabelHedgeClassifier("ce", random_state=random_state).fit(FEATURES, LABELS)


@pytest.fixture
def drawn(monkeypatch):
    """The folds and the starting weights that a function draws."""
    made = []

    class Untrained(crossfit.CrossFit):
        def __init__(self, *args, **options):
            super().__init__(*args, **options | {"epochs": 0, "early_stopping": False})
            made.append(self)

    monkeypatch.setattr(crossfit, "CrossFit", Untrained)
    monkeypatch.setattr(estimator, "CrossFit", Untrained)
    monkeypatch.setattr(_suggest, "FINALISTS", 1)

    def drawn(examine, seed):
        made.clear()
        examine(seed)
        folds = {tuple(sorted(rows)) for networks in made for rows in networks.rows.tolist()}
        return folds, {fold.tobytes() for networks in made for layer in networks.layers(0) for fold in layer}

    return drawn


@pytest.mark.parametrize(("examine", "seeds"), [(find, (0, 1)), (suggest, (0, 1)), (classify, (680, 1819))])
def test_two_seeds_share_neither_folds_nor_starting_weights(drawn, examine, seeds):
    (folds, weights), (other_folds, other_weights) = (drawn(examine, seed) for seed in seeds)
    assert len(folds) >= 5
    assert len(weights) >= 5
    assert not folds & other_folds
    assert not weights & other_weights
