"""The scikit-learn classifier: its contract, and what it is for."""

import pickle
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_digits, load_iris
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.parallel import delayed

import labelhedge as lh
from labelhedge import _ensemble, estimator
from labelhedge.estimator import LabelHedgeClassifier

QUICK = {"loss": "gce", "params": {"q": 0.7}, "lr": 0.3, "max_epochs": 30, "hidden": (16,), "random_state": 0}


def quick(**options):
    return LabelHedgeClassifier(**QUICK | options)


@pytest.fixture(scope="module")
def iris():
    return load_iris(return_X_y=True)


@pytest.fixture(scope="module")
def digits():
    """700 training rows with 30 % noise, the classifier, and the other rows with such noise."""
    inputs, labels = load_digits(return_X_y=True)
    noisy = lh.noise.uniform(labels, 0.3, seed=1)
    train, test = np.arange(700), np.arange(700, len(labels))
    classifier = LabelHedgeClassifier(random_state=0).fit(inputs[train], noisy.labels[train])
    return classifier, noisy.flipped[train], inputs[test], labels[test], noisy.labels[test]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks([LabelHedgeClassifier()])
def test_scikit_learn_contract(estimator, check):
    if check.func.__name__ == "check_array_api_input":
        return  # no array API is promised
    check(estimator)


def test_it_works_in_scikit_learns_tools(iris):
    scores = cross_val_score(make_pipeline(StandardScaler(), quick()), *iris, cv=3)
    assert scores.mean() > 0.9
    search = GridSearchCV(quick(), {"loss": ["ce", "gce"], "params": [None], "hidden": [(), (16,)]}, cv=2).fit(*iris)
    assert search.best_score_ > 0.9
    calibrated = CalibratedClassifierCV(quick(), cv=2).fit(*iris)
    assert calibrated.score(*iris) > 0.9
    assert clone(quick(lr=0.2)).get_params() == QUICK | {"lr": 0.2} | {
        "early_stopping": True, "class_weight": None, "n_jobs": None, "device": "cpu"
    }  # fmt: skip


def test_a_pickle_has_arrays_alone_and_predicts_the_same(iris):
    classifier = quick().fit(*iris)
    stored = pickle.dumps(classifier)
    assert b"torch" not in stored
    assert len(stored) < 60_000
    assert (pickle.loads(stored).predict_proba(iris[0]) == classifier.predict_proba(iris[0])).all()


def test_the_same_random_state_gives_the_same_classifier(iris):
    one, same, other = (
        LabelHedgeClassifier("aldr-kl", max_epochs=5, random_state=seed, n_jobs=jobs).fit(*iris)
        for seed, jobs in ((3, None), (3, 2), (4, None))
    )
    assert (one.predict_proba(iris[0]) == same.predict_proba(iris[0])).all()
    assert (one.label_quality_ == same.label_quality_).all()
    assert (one.predict_proba(iris[0]) != other.predict_proba(iris[0])).any()


def test_frames_and_strings(iris):
    frame = pd.DataFrame(iris[0], columns=["a", "b", "c", "d"])
    names = np.array(["setosa", "versicolor", "virginica"])[iris[1]]
    classifier = quick().fit(frame, pd.Series(names))
    assert classifier.classes_.tolist() == ["setosa", "versicolor", "virginica"]
    assert classifier.feature_names_in_.tolist() == ["a", "b", "c", "d"]
    assert (classifier.predict(frame) == names).mean() > 0.9
    assert (classifier.predict_proba(frame) == quick().fit(*iris).predict_proba(frame.to_numpy())).all()
    with pytest.raises(ValueError, match="feature names"):
        classifier.predict(frame[["b", "a", "c", "d"]])


def overlapping(rows=(180, 20)):
    """Two classes that cannot be told apart well, one of them rare."""
    random = np.random.default_rng(0)
    labels = np.repeat([0, 1], rows)
    return random.normal(size=(sum(rows), 2)) + labels[:, None], labels


def test_class_weights():
    inputs, labels = overlapping()
    share = {
        str(weight): quick(loss="ce", params={}, class_weight=weight).fit(inputs, labels).predict(inputs).mean()
        for weight in (None, "balanced", {0: 1, 1: 9}, {1: 1000})
    }
    assert share["None"] < 0.15
    assert 0.2 < share["balanced"] < 0.5
    assert share["{0: 1, 1: 9}"] == share["balanced"]
    assert share["{1: 1000}"] > 0.9


def test_sample_weights():
    inputs, labels = overlapping()
    weight = np.where(labels, 9, 1)
    weighted = quick(loss="ce", params={}).fit(inputs, labels, weight)
    balanced = quick(loss="ce", params={}, class_weight="balanced").fit(inputs, labels)
    assert np.allclose(weighted.predict_proba(inputs), balanced.predict_proba(inputs), atol=1e-3)
    both = quick(class_weight="balanced").fit(inputs, labels, np.where(labels, 3, 2))
    repeated = np.repeat(np.arange(200), np.where(labels, 3, 2))
    repeats = quick(class_weight="balanced").fit(inputs[repeated], labels[repeated])
    assert np.allclose(both.predict_proba(inputs), repeats.predict_proba(inputs))
    assert np.allclose(both.label_quality_[repeated], repeats.label_quality_, atol=0.2)


def test_rows_without_weight_are_judged_but_not_learned_from(iris):
    inputs, labels = iris[0], iris[1].copy()
    labels[:5] = 2
    weight = np.ones(150)
    weight[:10] = 0
    classifier = quick().fit(inputs, labels, weight)
    without = quick().fit(inputs[10:], labels[10:])
    assert (classifier.predict_proba(inputs) == without.predict_proba(inputs)).all()
    assert classifier.label_quality_.shape == classifier.lam_.shape == (150,)
    assert classifier.label_quality_[:5].max() < 0.1 < 0.9 < classifier.label_quality_[5:10].min()
    only_there = quick().fit(inputs, np.where(weight == 0, 7, labels), weight)
    assert only_there.classes_.tolist() == [0, 1, 2, 7]
    assert only_there.predict_proba(inputs).shape == (150, 4)


def test_equal_rows_are_in_the_same_fold():
    """Else a network would be asked about rows that it knows, and wrong labels would look right."""
    random = np.random.default_rng(0)
    labels = random.integers(3, size=60)
    inputs = random.normal(size=(60, 20))
    repeated = LabelHedgeClassifier(random_state=0).fit(np.tile(inputs, (4, 1)), np.tile(labels, 4))
    assert repeated.settings_[0].accuracy < 0.7


@pytest.mark.parametrize("loss", lh.losses.names())
def test_every_loss(iris, loss):
    classifier = LabelHedgeClassifier(loss, max_epochs=20, random_state=0).fit(*iris)
    assert classifier.loss_ == loss
    assert np.isfinite(classifier.predict_proba(iris[0])).all()
    assert classifier.score(*iris) > (0.6 if loss in ("mae", "rce", "nce", "nce+agce", "agce", "aul") else 0.8), loss
    grid = lh.losses.get(loss).grid
    assert len(classifier.settings_) == len(grid) * len(estimator.LRS)
    given = LabelHedgeClassifier(loss, params=lh.losses.get(loss).defaults, lr=0.1, max_epochs=1)
    assert len(given.fit(*iris).settings_) == 1


def test_many_rows_are_compared_in_part(monkeypatch):
    monkeypatch.setattr(estimator, "SAMPLE", 100)
    monkeypatch.setattr(estimator, "SETTINGS", 2)
    inputs, labels = load_iris(return_X_y=True)
    rows = []
    ranked = estimator.ranked
    monkeypatch.setattr(
        estimator, "ranked", lambda data, *rest, **how: rows.append(len(data.labels)) or ranked(data, *rest, **how)
    )
    classifier = LabelHedgeClassifier(random_state=0, max_epochs=30).fit(inputs, labels)
    assert set(rows) <= set(range(70, 80))
    assert len(rows) == 3
    assert len(classifier.settings_) <= 2
    assert classifier.score(inputs, labels) > 0.9


def test_flipped_labels_are_found(digits):
    classifier, flipped, *_ = digits
    assert roc_auc_score(flipped, 1 - classifier.label_quality_) > 0.97
    assert abs((1 - classifier.label_quality_).mean() - flipped.mean()) < 0.05
    assert classifier.lam_.min() >= 0.5 - 1e-6
    assert classifier.lam_.max() <= 1 + 1e-6
    assert classifier.lam_.std() > 0.01


def test_most_clean_labels_are_predicted(digits):
    classifier, _, inputs, clean, _ = digits
    assert classifier.score(inputs, clean) > 0.88
    assert classifier.loss_ in {loss for loss, _ in estimator.AUTO}
    assert 1 <= classifier.n_iter_ <= 60


def test_calibration_lowers_the_log_loss(digits):
    classifier, _, inputs, _, noisy = digits
    standardised = classifier._standardised(inputs)
    calibrated = log_loss(noisy, classifier.predict_proba(inputs))
    plain = [_ensemble.Member(member.layers, member.epochs) for member in classifier._ensemble.members]
    before = log_loss(noisy, _ensemble.Ensemble(tuple(plain)).probabilities(standardised))
    assert calibrated < before - 0.02
    assert calibrated < log_loss(noisy, _ensemble.softmax(classifier._ensemble.log_mean(standardised))) + 0.02


def test_early_stopping(digits):
    inputs, noisy = digits[2][:400], digits[4][:400]
    how = {"hidden": (128,), "loss": "ce", "params": {}, "max_epochs": 60, "random_state": 1}
    early, late = (quick(**how, early_stopping=stop).fit(inputs, noisy) for stop in (True, False))
    assert early.n_iter_ < late.n_iter_ == 60
    assert early.settings_[0].accuracy > late.settings_[0].accuracy


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": "focal"}, "unknown loss 'focal'"),
        ({"params": {"q": 0.5}}, "params must be None with loss='auto'"),
        ({"loss": "gce", "params": {"k": 1}}, r"params must be hyperparameters of gce \(q\), got 'k'"),
        ({"loss": "gce", "params": {"q": 2.0}}, r"q must be a number in \[0, 1\], got 2.0"),
        ({"max_epochs": 0}, "max_epochs must be 'auto' or a whole number from 1, got 0"),
        ({"lr": -1.0}, "lr must be 'auto' or a positive number, got -1.0"),
    ],
)
def test_bad_options(iris, options, message):
    with pytest.raises(ValueError, match=message):
        LabelHedgeClassifier(**options).fit(*iris)


def test_one_class_is_too_few(iris):
    with pytest.raises(ValueError, match="two classes or more"):
        quick().fit(iris[0], np.zeros(150))


def test_missing_scikit_learn_is_named(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "sklearn"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "sklearn", None)
    monkeypatch.delitem(sys.modules, estimator.__name__)
    with pytest.raises(
        ImportError, match=r"sklearn is not installed; get it with: pip install 'labelhedge\[estimator\]'"
    ):
        lh.LabelHedgeClassifier  # noqa: B018


def test_a_gpu_trains_one_setting_at_a_time():
    """Steps are recorded there, which two threads cannot do at once."""
    jobs = [delayed(threading.get_ident)() for _ in range(3)]
    assert set(quick(n_jobs=2, device="cuda")._parallel(jobs)) == {threading.get_ident()}
    assert threading.get_ident() not in quick(n_jobs=2)._parallel(jobs)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore")  # torch's compiler warns of what it decides by itself
def test_a_gpu_trains_what_threads_of_the_user_ask_for(iris):
    expected = quick(device="cuda").fit(*iris).predict_proba(iris[0])
    with ThreadPoolExecutor(2) as pool:
        for found in pool.map(lambda _: quick(device="cuda").fit(*iris).predict_proba(iris[0]), range(4)):
            np.testing.assert_allclose(found, expected, atol=1e-3)
