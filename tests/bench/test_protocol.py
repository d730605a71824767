"""The paper's settings and the fair ones, against the numbers that the paper prints."""

import dataclasses

import numpy as np
import pytest

import labelhedge as lh
from labelhedge.bench.images import ImageSettings
from labelhedge.bench.jobs import jobs
from labelhedge.bench.protocol import PRESETS, Entry, Protocol, entry, setting
from labelhedge.noise.settings import PAPER, Setting
from labelhedge.train.augment import Augmentation

PROTOCOL = PRESETS["demo"].protocol
SUMS = [{"alpha": 0.1, "beta": 9.9}, {"alpha": 5, "beta": 5}, {"alpha": 9.9, "beta": 0.1}]
GRIDS = {
    "ce": [{}],
    "mae": [{}],
    "mse": [{}],
    "cs": [{"margin": 0.1}, {"margin": 1}, {"margin": 10}],
    "ww": [{"margin": 0.1}, {"margin": 1}, {"margin": 10}],
    "gce": [{"q": 0.05}, {"q": 0.7}, {"q": 0.95}],
    "tgce": [{"q": 0.05}, {"q": 0.7}, {"q": 0.95}],
    "sce": [{"alpha": 0.05}, {"alpha": 0.5}, {"alpha": 0.95}],
    "js": [{"pi1": 0.1}, {"pi1": 0.5}, {"pi1": 0.9}],
    "rll": [{"alpha": 0.1}, {"alpha": 1}, {"alpha": 10}],
    "nce+rce": SUMS,
    "nce+agce": SUMS,
    "nce+aul": SUMS,
    "ldr-kl": [{"lam": 0.1}, {"lam": 1}, {"lam": 10}],
    "aldr-kl": [{"lambda0": 0.1}, {"lambda0": 1}, {"lambda0": 10}],
}


@pytest.mark.parametrize(("dataset", "width"), [("vowel", 10), ("letter", 16)])
def test_networks_are_built_and_trained_as_in_the_paper(dataset, width):
    recipe = PROTOCOL.recipe(lh.data.load(dataset))
    assert recipe.hidden == (width, width)
    assert (recipe.epochs, recipe.decay_after, recipe.decay) == (100, (50, 75), 0.1)
    assert recipe.review_after == (50, 60, 70, 80, 90)
    assert (recipe.batch_size, recipe.momentum) == (64, 0.9)


def test_layers_are_no_wider_than_there_are_classes():
    letter = lh.data.load("letter")
    few = dataclasses.replace(letter, info=dataclasses.replace(letter.info, num_classes=7), class_names=("a",) * 7)
    assert PROTOCOL.recipe(few).hidden == (7, 7)


def test_fewer_epochs_keep_the_shares_of_the_schedule():
    recipe = Protocol("quick", epochs=20).recipe(lh.data.load("vowel"))
    assert (recipe.epochs, recipe.decay_after, recipe.review_after) == (20, (10, 15), (10, 12, 14, 16, 18))


def test_the_grids_are_those_of_all_losses():
    assert set(GRIDS) == set(lh.losses.PAPER)


@pytest.mark.parametrize("loss", lh.losses.PAPER)
def test_learning_rate_and_the_loss_parameters_are_tuned(loss):
    tuned = [(lr, decay, dict(params)) for lr, decay, params in PROTOCOL.tuned(entry(loss))]
    assert tuned == [(lr, 5e-3, params) for lr in (0.1, 0.01, 0.001) for params in GRIDS[loss]]


@pytest.mark.parametrize(
    ("preset", "datasets"),
    [
        ("demo", ("vowel",)),
        ("paper-tabular", ("vowel", "letter", "news20", "aloi")),
        ("paper", ("vowel", "letter", "news20", "aloi", "kuzushiji-49", "cifar-100", "tiny-imagenet")),
    ],
)
def test_the_presets_of_the_paper(preset, datasets):
    chosen = PRESETS[preset]
    assert chosen.datasets == datasets
    assert chosen.protocol == Protocol("paper")
    assert chosen.losses == lh.losses.PAPER
    assert [s.id for s in chosen.settings] == ["clean", "u0.3", "u0.6", "u0.9", "cd0.1", "cd0.3", "cd0.5"]
    assert (chosen.seeds, chosen.protocol.folds, chosen.protocol.splits) == (1, 5, 5)


def test_the_demo_trains_4095_networks():
    demo = PRESETS["demo"]
    todo = jobs(demo.protocol, demo.datasets, demo.losses, demo.settings, range(demo.seeds))
    assert len(todo) == 15
    assert sum(job.networks for job in todo) == 4095


def test_the_fair_preset_differs_in_what_is_tuned_and_in_its_entries():
    fair = PRESETS["fair"]
    rivals = [loss for loss in lh.losses.PAPER if loss not in ("ldr-kl", "aldr-kl")]
    assert fair.datasets == ("vowel", "letter", "news20")
    assert fair.losses == (*lh.losses.PAPER, *(f"{loss}@l1" for loss in rivals))
    assert len(fair.losses) == 15 + 13
    assert (fair.seeds, fair.settings) == (3, PAPER)
    assert dataclasses.replace(fair.protocol, name="paper", weight_decays=(5e-3,)) == PROTOCOL


@pytest.mark.parametrize(("loss", "count"), [("ce", 9), ("aldr-kl", 27), ("ce@l1", 27), ("sce@l1", 81)])
def test_the_fair_protocol_tunes_weight_decay_and_the_temperature_of_normalised_logits(loss, count):
    tuned = PRESETS["fair"].protocol.tuned(entry(loss))
    assert len(tuned) == len({(lr, decay, tuple(params.items())) for lr, decay, params in tuned}) == count
    assert {decay for _, decay, _ in tuned} == {5e-3, 5e-4, 0}
    temperatures = {params.get("temperature") for _, _, params in tuned}
    assert temperatures == ({0.1, 0.3, 1} if loss.endswith("@l1") else {None})


def test_every_entry_of_the_fair_protocol_can_be_built():
    fair = PRESETS["fair"]
    for line in map(entry, fair.losses):
        for _, _, params in fair.protocol.tuned(line):
            assert lh.losses.create(line.loss, **params, **line.options).normalize in ("l1", None)


def test_an_entry_on_l1_is_the_loss_with_that_option():
    assert entry("nce+rce") == Entry("nce+rce", "nce+rce", {})
    assert entry("nce+rce@l1") == Entry("nce+rce@l1", "nce+rce", {"normalize": "l1"})


@pytest.mark.parametrize("loss", ["aldr-kl", "ldr-kl"])
def test_there_is_no_l1_entry_of_a_loss_that_is_on_l1_by_itself(loss):
    with pytest.raises(ValueError, match=rf"{loss} is on L1-normalised logits by itself; there is no {loss}@l1"):
        entry(f"{loss}@l1")


@pytest.mark.parametrize("loss", ["ce", "ldr-kl", "aldr-kl"])
def test_an_entry_on_softplus_is_the_loss_with_that_option_and_nothing_more_to_tune(loss):
    assert entry(f"{loss}@softplus") == Entry(f"{loss}@softplus", loss, {"normalize": "softplus"})
    assert PROTOCOL.tuned(entry(f"{loss}@softplus")) == PROTOCOL.tuned(entry(loss))


@pytest.mark.parametrize("id", ["", "CE", "@l1", "cee@l1", "cee@l2"])
def test_an_unknown_entry_is_refused(id):
    with pytest.raises(ValueError, match=r"unknown loss '.*'; known losses: .*aldr-kl"):
        entry(id)


@pytest.mark.parametrize(("id", "normalizer"), [("ce@l2", "l2"), ("ce@l1@l1", "l1@l1"), ("ce@", "")])
def test_an_unknown_normaliser_is_refused(id, normalizer):
    with pytest.raises(ValueError, match=f"unknown normaliser '{normalizer}' in '{id}'; known .*: l1, softplus"):
        entry(id)


@pytest.mark.parametrize(
    ("id", "expected"),
    [
        ("clean", Setting("clean")),
        ("u0.3", Setting("uniform", 0.3)),
        ("cd0.15", Setting("class_dependent", 0.15)),
        ("u0", Setting("uniform", 0.0)),
        ("cd1", Setting("class_dependent", 1.0)),
        ("aggre", Setting("aggre")),
        ("random3", Setting("random3")),
        *((s.id, s) for s in PAPER),
    ],
)
def test_a_noise_is_named_by_kind_and_rate(id, expected):
    assert setting(id) == expected
    assert expected.id == id


@pytest.mark.parametrize("id", ["", "u", "cd", "0.3", "x0.3", "u-0.3", "unan", "uinf", "u0.3.1", "clean0.1", "U0.3"])
def test_an_unknown_noise_is_refused(id):
    with pytest.raises(ValueError, match=f"unknown noise '{id}'; it is clean, uR or cdR with a rate R such as u0.3"):
        setting(id)


@pytest.mark.parametrize("id", ["u1.01", "cd30"])
def test_a_rate_is_at_most_one(id):
    with pytest.raises(ValueError, match=rf"the rate of noise '{id}' must be in \[0, 1\]"):
        setting(id)


@pytest.mark.parametrize("dataset", ["vowel", "letter"])
def test_validation_parts_are_disjoint_and_equal_and_the_few_rows_left_over_always_train(dataset):
    data = lh.data.load(dataset)
    rows = np.arange(len(data.train))
    folds = PROTOCOL.cross_validation(data, seed=0)
    size = len(rows) // 5
    assert [len(fold.validation) for fold in folds] == [size] * 5
    held_out = np.concatenate([fold.validation for fold in folds])
    assert len(np.unique(held_out)) == 5 * size
    left_over = np.setdiff1d(rows, held_out)
    assert len(left_over) < 5
    for fold in folds:
        assert np.array_equal(np.sort(np.concatenate([fold.train, fold.validation])), rows)
        assert np.isin(left_over, fold.train).all()


def test_fewer_folds_are_the_first_of_all():
    vowel = lh.data.load("vowel")
    every, some = PROTOCOL.cross_validation(vowel, 0), Protocol("quick", folds=2).cross_validation(vowel, 0)
    assert len(some) == 2
    for one, other in zip(some, every[:2], strict=True):
        assert np.array_equal(one.validation, other.validation)
        assert np.array_equal(one.train, other.train)
        assert one.seed == other.seed


def test_each_fold_of_each_seed_starts_elsewhere():
    vowel = lh.data.load("vowel")
    starts = {fold.seed for seed in range(4) for fold in PROTOCOL.cross_validation(vowel, seed)}
    assert len(starts) == 20


def test_too_few_rows_for_the_folds_are_refused():
    vowel = lh.data.load("vowel")
    few = dataclasses.replace(vowel, train=lh.data.Part(vowel.train.inputs[:4], vowel.train.labels[:4]))
    with pytest.raises(ValueError, match="vowel has too few rows for 5 folds: 4"):
        PROTOCOL.cross_validation(few, 0)


def test_the_id_begins_with_the_name_and_is_the_same_every_time():
    assert PROTOCOL.id == Protocol("paper").id
    assert PROTOCOL.id.startswith("paper-")


def test_ids_of_protocols_on_tables_are_those_of_the_first_results():
    assert Protocol("paper").id == "paper-bac86c4e"
    assert PRESETS["fair"].protocol.id == "fair-e4dbc8cf"


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(Protocol)])
def test_the_id_changes_with_every_setting(field):
    value = getattr(PROTOCOL, field)
    others = {str: "other", bool: False, int: 4 if field == "folds" else 6, float: 0.5, tuple: (0.25,)}
    other = (others | {ImageSettings: ImageSettings(width=32)})[type(value)]
    assert dataclasses.replace(PROTOCOL, **{field: other}).id != PROTOCOL.id


def test_the_id_changes_with_every_setting_of_images():
    others = {
        "model": "resnet50",
        "width": 32,
        "epochs": 29,
        "decay_after": None,
        "decay": 0.2,
        "nesterov": True,
        "image_size": 24,
        "resize": 40,
        "augmentation": Augmentation(crop=4),
        "tuning_epochs": 3,
    }
    assert set(others) == {field.name for field in dataclasses.fields(ImageSettings)}
    changed = [dataclasses.replace(PROTOCOL, images=ImageSettings(**{name: other})) for name, other in others.items()]
    changed += [Protocol("paper", images=ImageSettings(augmentation=Augmentation(crop=3)))]
    assert len({PROTOCOL.id, *(protocol.id for protocol in changed)}) == len(others) + 2


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"folds": 0}, r"folds must be in \[1, 5\], got 0"),
        ({"folds": 6}, r"folds must be in \[1, 5\], got 6"),
    ],
)
def test_impossible_settings_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        Protocol("wrong", **wrong)
