import hashlib

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, chisquare

import labelhedge as lh
from labelhedge import noise

CLEAN = np.repeat(np.arange(11), 2_000)
LABEL_MODELS = {
    "uniform": lambda labels, rate, seed: noise.uniform(labels, rate, num_classes=11, seed=seed),
    "class_dependent": lambda labels, rate, seed: noise.class_dependent(labels, rate, num_classes=11, seed=seed),
    "mapped": lambda labels, rate, seed: noise.class_dependent(labels, rate, {0: 3, 3: 0}, num_classes=11, seed=seed),
    "transition": lambda labels, rate, seed: noise.transition(
        labels, noise.uniform([0], rate, num_classes=11).transition[:, ::-1], seed=seed
    ),
    "instance_dependent": lambda labels, rate, seed: noise.instance_dependent(
        labels, rate, np.sin(np.arange(len(labels))[:, None] * [1.0, 2.0]) + labels[:, None], num_classes=11, seed=seed
    ),
}


def within_binomial_bounds(successes, trials, probability, level=1e-6):
    return binom.ppf(level, trials, probability) <= successes <= binom.ppf(1 - level, trials, probability)


@pytest.mark.parametrize("model", LABEL_MODELS.values(), ids=LABEL_MODELS.keys())
@pytest.mark.parametrize("rate", [0.0, 0.1, 0.3, 0.6, 0.9, 1.0])
def test_record(model, rate):
    clean = CLEAN.copy()
    noisy = model(clean, rate, 7)
    assert np.array_equal(clean, CLEAN)
    assert np.array_equal(noisy.flipped, noisy.labels != CLEAN)
    assert noisy.labels.dtype == np.int64
    assert noisy.labels.shape == CLEAN.shape
    assert noisy.labels.min() >= 0
    assert noisy.labels.max() < 11
    np.testing.assert_allclose(noisy.transition.sum(1), 1)
    assert not np.shares_memory(noisy.labels, clean)


@pytest.mark.parametrize("model", LABEL_MODELS.values(), ids=LABEL_MODELS.keys())
@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_realised_rows_of_the_transition_matrix(model, rate):
    noisy = model(CLEAN, rate, 3)
    for a in range(11):
        counts = np.bincount(noisy.labels[a == CLEAN], minlength=11)
        for b in range(11):
            assert within_binomial_bounds(counts[b], 2_000, noisy.transition[a, b]), (a, b)
    changed = 1 - noisy.transition.diagonal().mean()
    assert within_binomial_bounds(noisy.flipped.sum(), len(CLEAN), changed)


def test_uniform_noise_counts_what_really_changes():
    noisy = noise.uniform(CLEAN, 0.9, num_classes=11, seed=1)
    assert within_binomial_bounds(noisy.flipped.sum(), len(CLEAN), 0.9 * 10 / 11)
    assert not within_binomial_bounds(noisy.flipped.sum(), len(CLEAN), 0.9)
    assert abs(noisy.flipped.mean() - 0.818) < 0.01


def test_uniform_noise_chooses_all_classes_alike():
    noisy = noise.uniform(CLEAN, 1.0, num_classes=11, seed=5)
    assert chisquare(np.bincount(noisy.labels, minlength=11)).pvalue > 1e-4
    np.testing.assert_allclose(noisy.transition, np.full((11, 11), 1 / 11))


def test_a_higher_rate_changes_all_that_a_lower_one_changes():
    for model in (noise.uniform, noise.class_dependent):
        low, high = model(CLEAN, 0.3, seed=2), model(CLEAN, 0.6, seed=2)
        assert np.array_equal(high.labels[low.flipped], low.labels[low.flipped])


def test_more_rows_do_not_change_the_noise_of_the_first():
    assert np.array_equal(
        noise.uniform(CLEAN[:100], 0.5, num_classes=11).labels, noise.uniform(CLEAN, 0.5, num_classes=11).labels[:100]
    )


def test_transition_never_draws_what_has_no_probability():
    matrix = [[0.5, 0.5, 0.0], [0.0, 1.0, 0.0], [1 / 3, 2 / 3, 0.0]]
    noisy = noise.transition(np.repeat([0, 1, 2], 50_000), matrix, seed=1)
    assert set(noisy.labels) == {0, 1}
    assert not noisy.flipped[50_000:100_000].any()


def test_transition_at_the_ends_of_the_draw(monkeypatch):
    monkeypatch.setattr("labelhedge.noise.models.uniforms", lambda seed, count: np.array([0.0, 1 - 2.0**-53]))
    tenths = [0.0, *[0.1] * 10, 0.0]  # which sum to a little less than 1
    assert noise.transition([0, 0], [tenths] * 12).labels.tolist() == [1, 10]


@given(rows=st.lists(st.lists(st.floats(0, 1), min_size=4, max_size=4), min_size=4, max_size=4), seed=st.integers(0))
@settings(max_examples=50, deadline=None)
def test_transition_takes_any_stochastic_matrix(rows, seed):
    matrix = np.array(rows) + 1e-3
    matrix /= matrix.sum(1, keepdims=True)
    clean = np.repeat(np.arange(4), 500)
    noisy = noise.transition(clean, matrix, seed=seed)
    for a in range(4):
        counts = np.bincount(noisy.labels[clean == a], minlength=4)
        assert all(within_binomial_bounds(counts[b], 500, matrix[a, b], 1e-9) for b in range(4))


def test_given_labels():
    human = np.array([0, 1, 1, 2, 2, 2])
    noisy = noise.given([0, 0, 1, 2, 2, 0], human, num_classes=4)
    assert noisy.flipped.tolist() == [False, True, False, False, False, True]
    assert noisy.transition[0].tolist() == [1 / 3, 1 / 3, 1 / 3, 0]
    assert noisy.transition[3].tolist() == [0, 0, 0, 1]
    assert noise.given([0, 0], [0, 3]).transition.shape == (4, 4)


@pytest.mark.parametrize(
    ("make", "digest"),
    [
        (lambda: noise.uniform(CLEAN, 0.6, num_classes=11, seed=42), "1daa387342057e6c"),
        (lambda: noise.class_dependent(CLEAN, 0.3, num_classes=11, seed=42), "3648fc6d2e014535"),
        (lambda: noise.transition(CLEAN, np.eye(11) * 0.4 + 0.6 / 11, seed=42), "6304043d6a463624"),
        (lambda: LABEL_MODELS["instance_dependent"](CLEAN, 0.3, 42), "d4cd2414cfc7e5bc"),
    ],
    ids=["uniform", "class_dependent", "transition", "instance_dependent"],
)
def test_the_same_flips_on_every_machine(make, digest):
    assert hashlib.sha256(make().labels.astype("<i8").tobytes()).hexdigest()[:16] == digest


def test_another_seed_gives_other_flips():
    for model in LABEL_MODELS.values():
        assert (model(CLEAN, 0.5, 0).labels != model(CLEAN, 0.5, 1).labels).any()


def test_labels_may_be_lists_tensors_and_narrow_integers():
    expected = noise.uniform(CLEAN, 0.4, seed=3).labels
    for labels in (CLEAN.tolist(), torch.from_numpy(CLEAN), CLEAN.astype(np.uint8)):
        assert np.array_equal(noise.uniform(labels, 0.4, seed=3).labels, expected)


def test_no_labels_at_all():
    assert noise.uniform(np.empty(0, int), 0.5, num_classes=3).labels.shape == (0,)
    with pytest.raises(ValueError, match="num_classes must be given"):
        noise.uniform([], 0.5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: noise.uniform([0, 1], 1.5), "rate must be between 0 and 1, got 1.5"),
        (lambda: noise.uniform([0, 1], float("nan")), "rate must be between 0 and 1, got nan"),
        (lambda: noise.uniform([0, 5], 0.5, num_classes=3), r"labels must lie in 0 … 2, got 0 … 5"),
        (lambda: noise.uniform([-1, 1], 0.5), "labels must lie in 0 … 1, got -1 … 1"),
        (lambda: noise.uniform([0.0, 1.0], 0.5), "labels must be a list of whole numbers"),
        (lambda: noise.uniform([[0, 1]], 0.5), "labels must be a list of whole numbers"),
        (lambda: noise.uniform([0, 0], 0.5), "num_classes must be at least 2, got 1"),
        (lambda: noise.uniform([0, 1], 0.5, seed=-1), "seed must be a whole number of at least 0, got -1"),
        (lambda: noise.uniform([0, 1], 0.5, seed=0.5), "seed must be a whole number of at least 0, got 0.5"),
        (lambda: noise.class_dependent([0, 1], 0.5, {0: 2}), "mapping must name classes in 0 … 1, got 0: 2"),
        (lambda: noise.transition([0, 1], [[1, 0]]), "matrix must be square"),
        (lambda: noise.transition([0, 1], [[1, 0], [1, 1]]), "rows that sum to 1"),
        (lambda: noise.transition([0, 1], [[2, -1], [0, 1]]), "matrix must be non-negative"),
        (lambda: noise.transition([0, 1], [[np.nan, 1], [0, 1]]), "matrix must be non-negative"),
        (lambda: noise.given([0, 1], [0]), "observed must have one label for each of the 2 labels, got 1"),
        (lambda: noise.instance_dependent([0, 1], 0.5, [1.0, 2.0]), r"features must be \(2, ...\)"),
        (lambda: noise.instance_dependent([0, 1], 0.5, [[1.0], [np.nan]]), "features must be finite"),
    ],
)
def test_errors_name_the_argument_and_the_value(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_paper_settings():
    assert [setting.id for setting in noise.settings.PAPER] == [
        "clean",
        "u0.3",
        "u0.6",
        "u0.9",
        "cd0.1",
        "cd0.3",
        "cd0.5",
    ]
    letter = lh.data.load("letter").train.labels
    for setting in noise.settings.PAPER:
        noisy = setting.apply(letter, num_classes=26, mapping=noise.settings.MAPPINGS["letter"], seed=1)
        changed = {"clean": 0, "uniform": setting.rate * 25 / 26, "class_dependent": setting.rate * 20 / 26}[
            setting.kind
        ]
        assert abs(noisy.flipped.mean() - changed) < 0.02


@pytest.mark.parametrize(
    ("name", "pairs"),
    [
        ("letter", "B/D C/G E/F H/N I/L K/X M/W O/Q P/R U/V"),
        ("vowel", "hid/hId hEd/hAd had/hYd hod/hOd hud/hUd"),
        (
            "news20",
            "comp.os.ms-windows.misc/comp.windows.x comp.sys.ibm.pc.hardware/comp.sys.mac.hardware "
            "rec.autos/rec.motorcycles rec.sport.baseball/rec.sport.hockey sci.crypt/sci.electronics "
            "soc.religion.christian/talk.politics.misc",
        ),
    ],
)
def test_paper_mappings_by_the_names_of_the_classes(name, pairs):
    from labelhedge.data.news20 import GROUPS

    names = GROUPS if name == "news20" else lh.data.load(name).class_names
    expected = {}
    for pair in pairs.split():
        a, b = pair.split("/")
        expected |= {names.index(a): names.index(b), names.index(b): names.index(a)}
    assert noise.settings.MAPPINGS[name] == expected
