"""Out-of-sample predictions of small networks."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from labelhedge.train.crossfit import CrossFit, Data, Family, Setting, ranked, shortlist, stratified


@pytest.fixture(scope="module")
def digits():
    inputs, labels = load_digits(return_X_y=True)
    inputs = (inputs[:600] - 8) / 8
    return Data(inputs.astype(np.float32), labels[:600].astype(np.int64), 10)


def test_folds_have_their_share_of_every_class():
    labels = np.repeat([0, 1, 2], [2, 33, 50])
    fold = stratified(labels, 5, seed=3).fold
    sizes = np.bincount(fold)
    assert sizes.tolist() == [17] * 5
    for label, rows in ((0, 2), (1, 33), (2, 50)):
        counts = np.bincount(fold[labels == label], minlength=5)
        assert counts.max() - counts.min() <= 1, counts
        assert counts.sum() == rows
    assert (stratified(labels, 5, seed=3).fold == fold).all()
    assert (stratified(labels, 5, seed=4).fold != fold).any()


def test_every_row_is_left_out_once_and_predicted(digits):
    split = stratified(digits.labels, 4, seed=0)
    networks = CrossFit(digits, [split], Family("ce", (16,)), [0.1], epochs=15)
    assert networks.rows.shape == (4, 150)
    assert sorted(networks.rows.flatten().tolist()) == list(range(600))
    for fold in range(4):
        assert (split.fold[networks.rows[fold]] == fold).all()
    logits = torch.cat([networks.out_of_sample(block) for block in networks.blocks()], 2)
    assert logits.shape == (4, 1, 150, 10)
    right = logits[:, 0].argmax(-1) == torch.from_numpy(digits.labels)[networks.rows]
    assert networks.accuracy(digits.labels) == [pytest.approx(right.float().mean().item())]
    assert right.float().mean() > 0.85


def test_no_network_has_seen_the_label_of_a_row_it_is_asked_about(digits):
    """Labels that no feature tells are predicted no better than by chance."""
    random = np.random.default_rng(0).integers(0, 10, 600)
    memorized = Data(digits.inputs, random, 10)
    networks = CrossFit(memorized, [stratified(random, 5, seed=0)], Family("ce", (128,)), [0.1], epochs=40)
    assert networks.accuracy(random)[0] < 0.16


@pytest.mark.parametrize("hidden", [(), (16,)], ids=["linear", "hidden layer"])
def test_without_a_hidden_layer_the_logits_are_linear(digits, hidden):
    """The logits of the mean of two rows are the mean of their logits."""
    split = stratified(digits.labels, 2, seed=0)
    first, second, mean = np.flatnonzero(split.fold == 1)[:3]
    inputs = digits.inputs.copy()
    inputs[mean] = (inputs[first] + inputs[second]) / 2
    networks = CrossFit(Data(inputs, digits.labels, 10), [split], Family("ce", hidden), [0.1], epochs=5)
    logits = networks.out_of_sample(slice(0, 3))[1, 0]
    assert networks.rows[1, :3].tolist() == [first, second, mean]
    assert torch.allclose(logits[2], (logits[0] + logits[1]) / 2, atol=1e-4) == (not hidden)


def test_the_same_seed_gives_the_same_networks(digits):
    one, again, other = (
        CrossFit(digits, [stratified(digits.labels, 2, seed)], Family("ce"), [0.1], epochs=2).out_of_sample(slice(9))
        for seed in (0, 0, 1)
    )
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


def test_rows_that_count_more(digits):
    """A class of weight 0 is never predicted."""
    weight = np.where(digits.labels == 3, 0.0, 1.0).astype(np.float32)
    data = Data(digits.inputs, digits.labels, 10, weight)
    networks = CrossFit(data, [stratified(digits.labels, 3, seed=0)], Family("ce", (16,)), [0.1], epochs=15)
    predicted = networks.out_of_sample(slice(None)).argmax(-1)
    assert (predicted == 3).float().mean() < 0.02
    assert (predicted == 4).float().mean() > 0.05


def test_the_best_setting_comes_first(digits):
    seen = []
    families = [Family("ce", (16,)), Family("gce", (), {"q": 0.7})]
    settings = ranked(digits, families, (0.1, 1e-5), folds=3, epochs=6, seed=0, advance=seen.append)
    assert [setting.accuracy for setting in settings] == sorted((s.accuracy for s in settings), reverse=True)
    assert settings[0].lr == 0.1
    assert {setting.family.loss for setting in settings} == {"ce", "gce"}
    assert sum(seen) == 2 * 2 * 3 * 6


def test_the_shortlist_has_both_kinds():
    def setting(accuracy, hidden):
        return Setting(Family("ce", (8,) if hidden else ()), 0.1, accuracy)

    settings = [setting(accuracy, hidden=accuracy > 0.88) for accuracy in (0.9, 0.89, 0.885, 0.88, 0.8)]
    assert [s.accuracy for s in shortlist(settings, 2)] == [0.9, 0.88]
    assert [s.accuracy for s in shortlist(settings, 4)] == [0.9, 0.89, 0.885, 0.88]
    assert [s.accuracy for s in shortlist(settings, 4, within=0.001)] == [0.9]
    assert [s.accuracy for s in shortlist(settings[3:], 4, within=0.2)] == [0.88, 0.8]
