"""What the studies find."""

import math

import numpy as np
import pytest
import torch

import labelhedge as lh
from labelhedge.figures import STUDIES, synthetic
from labelhedge.figures.lambda_vs_kl import lambda_vs_kl
from labelhedge.figures.synthetic import ALPHA, HARD, LAMBDA0, MISLABELLED
from labelhedge.figures.two_maxima import local_maxima, two_maxima


@pytest.fixture(scope="module")
def maxima():
    return two_maxima().data


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_says_what_it_shows(made, name):
    study = made.studies[name]
    assert study.title
    assert len(study.data) > 20
    assert 200 < len(study.paragraph) < 2000
    assert "nan" not in study.paragraph.replace("dominant", "")
    assert study.paragraph.endswith(".")


@pytest.mark.parametrize("name", STUDIES)
def test_letters_are_legible_in_print(made, name):
    figure = made.studies[name].figure
    assert figure.get_figwidth() <= 7.1
    for panel in figure.axes:
        texts = [panel.title, panel.xaxis.label, panel.yaxis.label, *panel.get_xticklabels(), *panel.get_yticklabels()]
        assert min(text.get_fontsize() for text in texts) >= 7


@pytest.mark.parametrize(("name", "reference"), [("boundaries", "before"), ("from-scratch", "without_the_two")])
def test_the_plane_the_samples_and_their_lambda(made, name, reference):
    data = made.studies[name].data
    kinds = data["what"].value_counts()
    assert kinds["sample"] == len(synthetic.MEANS) * synthetic.SAMPLES_PER_MEAN
    assert kinds["plane"] == 77**2
    assert {f"lambda of {added}" for added in synthetic.ADDED} < set(kinds.index)
    for network in (reference, "ce", "ldr-kl", "aldr-kl"):
        logits = data.loc[data["what"] == "plane", [f"{network}_logit_{k}" for k in range(3)]].to_numpy()
        assert np.isfinite(logits).all()
    lam = data["lam"].dropna()
    assert lam.between(0, LAMBDA0).all()
    for added, place, given in (("hard clean", HARD, 0), ("mislabelled", MISLABELLED, 2)):
        (row,) = data[data["what"] == added].to_dict("records")
        assert (row["x"], row["y"]) == pytest.approx(place)
        assert (row["true_label"], row["given_label"]) == (0, given)


def test_lambda_is_what_algorithm_1_makes_of_kl():
    experiment = synthetic.fine_tuned(3, 20, 10)
    torch.testing.assert_close(experiment.lam, (LAMBDA0 - experiment.kl / ALPHA).clamp(min=0), atol=1e-4, rtol=1e-4)


def test_the_networks_of_the_experiment():
    """The first has not seen the two added samples; each loss goes on from it; the control has right labels."""
    experiment = synthetic.fine_tuned(3, 20, 10)
    unseen = synthetic._network(3)
    points, labels = experiment.samples.points[:-2], experiment.samples.given[:-2]
    synthetic._train(unseen, points, labels, "ce", 20)
    before = experiment.networks["before"]
    torch.testing.assert_close(before(points), unseen(points))
    synthetic._train(unseen, experiment.samples.points, experiment.samples.given, "ce", 10)
    torch.testing.assert_close(experiment.networks["ce"](points), unseen(points))
    assert len({network(points).sum().item() for network in experiment.networks.values()}) == 4
    assert not torch.equal(experiment.lam_right_label[-1], experiment.lam[-1])


def test_lambda_against_kl_by_hand(made):
    study = made.studies["lambda-vs-kl"]
    kl, lam = study.figure.axes[0].lines[0].get_data()
    np.testing.assert_allclose(lam, LAMBDA0 - kl / ALPHA)
    highest = study.data.nlargest(5, "mean_lam")
    right = (highest["true_label"] == highest["given_label"]).sum()
    assert f"highest average λ, {right} have the right label" in study.paragraph


def test_the_study_tells_of_the_other_places_that_were_tried(made):
    for name in ("boundaries", "from-scratch"):
        for hard, mislabelled in synthetic.ELSEWHERE:
            assert f"at {mislabelled} and {hard}" in made.studies[name].paragraph


def test_experiments_leave_the_global_generator_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    synthetic.from_scratch(9, 2)
    assert torch.equal(torch.rand(3), expected)


def test_kl_is_within_its_bounds_and_lambda_falls_with_it():
    data = lambda_vs_kl(effort=0.1).data
    assert data["mean_kl"].between(0, math.log(3) + 1e-5).all()
    assert (data["mean_lam"] >= LAMBDA0 - data["mean_kl"] / ALPHA - 1e-3).all()
    assert np.corrcoef(data["mean_kl"], data["mean_lam"])[0, 1] < -0.9


def test_lambda_on_vowel_hardly_depends_on_the_label(made):
    data = made.studies["lambda-vowel"].data
    assert set(zip(data["noise"], data["lambda0"], strict=True)) == {(n, v) for n in ("cd0.1", "u0.3") for v in (1, 10)}
    assert data.groupby(["noise", "lambda0", "labels"]).size().tolist() == [5] * 8
    assert (data["mean"].between(data["lambda0"] / 2, data["lambda0"])).all()
    wide = data.pivot(index=["noise", "lambda0", "epoch"], columns="labels", values="mean").reset_index()
    assert ((wide["flipped"] - wide["clean"]).abs() < 0.02 * wide["lambda0"]).all()


def test_the_training_loss_falls(made):
    data = made.studies["convergence"].data
    noises = [setting.id for setting in lh.noise.settings.PAPER]
    curves = data.pivot(index="epoch", columns=["margin", "noise"], values="mean")
    assert list(curves.columns) == [(margin, noise) for margin in (0.1, 1, 10) for noise in noises]
    assert (curves.iloc[-1] < curves.iloc[0]).all()
    assert set(data["learning_rate"]) <= {0.1, 0.01, 0.001}
    assert (data["std"] > 0).all()


def test_landscapes_are_the_losses(made):
    data = made.studies["landscapes"].data
    assert tuple(data.columns) == ("f0", "f1", *lh.losses.PAPER)
    row = data.iloc[1]
    logits = torch.tensor([[row["f0"], row["f1"], 0.0]], dtype=torch.float64)
    for name in lh.losses.PAPER:
        assert lh.losses.create(name)(logits, torch.tensor([0])).item() == pytest.approx(row[name])


def test_there_are_two_maxima_and_the_exact_lambda_is_the_better(maxima):
    curves = maxima[maxima["what"] == "objective"].groupby("spike")["value"]
    counts = curves.agg(lambda values: local_maxima(values.to_numpy()))
    assert counts[counts == 2].index.tolist() == pytest.approx(np.arange(5.22, 5.535, 0.01))
    assert set(counts) == {1, 2}
    ends = maxima[maxima["what"] != "objective"].pivot(index="spike", columns="what")
    lower = ends["value"]["exact"] - ends["value"]["algorithm 1"]
    assert (ends["value"]["exact"] >= curves.max() - 1e-9).all()
    assert (lower > -1e-9).all()
    assert (lower > 1e-3).sum() == 13
    assert (ends["lam"]["algorithm 1"] >= ends["lam"]["exact"] - 1e-6).all()


def test_the_objective_is_its_formula(maxima):
    row = maxima.iloc[100]
    q = np.array([row["spike"] + 0.1, 0.0, *[0.1] * 998])
    lam, alpha = row["lam"], 2 * math.log(1000)
    expected = lam * np.log(np.mean(np.exp(q / lam))) - alpha / 2 * (lam - 1) ** 2
    assert row["value"] == pytest.approx(expected)


def test_effort_is_a_share():
    with pytest.raises(ValueError, match=r"effort must be in \(0, 1\], got 2"):
        STUDIES["boundaries"](effort=2)
