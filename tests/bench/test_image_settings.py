"""The presets on images as numbers: recipes, jobs and folds, nothing trained."""

import dataclasses

import numpy as np
import pytest

import labelhedge as lh
from labelhedge.bench.images import ImageSettings
from labelhedge.bench.jobs import Job, jobs
from labelhedge.bench.protocol import PRESETS, entry, setting
from labelhedge.train.augment import Augmentation


def stand_in(name, size, channels=3, count=10):
    """A data set of black images, that has the name and the entry of a real one."""
    info = lh.data.info(name)
    part = lh.data.Part(np.zeros((count, *size, channels), np.uint8), np.arange(count) * info.num_classes // count)
    return lh.data.Dataset(info, part, part, ("",) * info.num_classes)


@pytest.mark.parametrize(
    ("name", "size", "channels", "augmentation"),
    [
        ("kuzushiji-49", 28, 1, Augmentation(crop=3)),
        ("cifar-100", 32, 3, Augmentation(crop=4, flip=True)),
        ("tiny-imagenet", 64, 3, Augmentation(crop=8, flip=True)),
    ],
)
def test_resnet18_is_trained_as_in_the_paper(name, size, channels, augmentation):
    preset = PRESETS[name]
    assert preset.datasets == (name,)
    assert (preset.losses, preset.settings, preset.seeds) == (lh.losses.PAPER, PRESETS["paper"].settings, 1)
    protocol = preset.protocol
    assert protocol == PRESETS["paper"].protocol
    assert (protocol.learning_rates, protocol.weight_decays, protocol.folds) == ((0.1, 0.01, 0.001), (5e-3,), 5)
    recipe = protocol.image_recipe(stand_in(name, (size, size), channels))
    assert (recipe.model, recipe.width, recipe.image_size, recipe.resize) == ("resnet18", 64, None, None)
    assert (recipe.epochs, recipe.decay_after, recipe.decay) == (30, (10, 20), 0.1)
    assert (recipe.batch_size, recipe.momentum, recipe.nesterov) == (64, 0.9, False)
    assert recipe.review_after == (15, 18, 21, 24, 27)
    assert recipe.augmentation == augmentation


def test_resnet50_is_trained_on_webvision_as_in_the_paper():
    preset = PRESETS["mini-webvision"]
    assert preset.datasets == ("mini-webvision",)
    assert preset.losses == ("nce+rce", "sce", "gce", "js", "ce", "agce", "ldr-kl@softplus", "aldr-kl@softplus")
    assert [s.id for s in preset.settings] == ["clean"]
    protocol = preset.protocol
    assert protocol.tuned(entry("aldr-kl@softplus")) == [(0.4, 3e-5, {})]
    (fold,) = protocol.cross_validation(stand_in("mini-webvision", (9, 9), count=50), 0)
    assert (sorted(fold.train), len(fold.validation)) == (list(range(50)), 0)
    recipe = protocol.image_recipe(stand_in("mini-webvision", (256, 300)))
    assert (recipe.model, recipe.width, recipe.image_size, recipe.resize) == ("resnet50", 64, 224, 256)
    assert (recipe.epochs, recipe.decay_after, recipe.decay) == (250, tuple(range(1, 250)), 0.97)
    assert (recipe.momentum, recipe.nesterov) == (0.9, True)
    assert recipe.augmentation == Augmentation(flip=True, shift=0.1, jitter=0.2)


def test_presets_of_the_ablation_and_of_the_running_time():
    ablation, running = PRESETS["lambda-ablation"], PRESETS["running-time"]
    assert (ablation.protocol, ablation.datasets) == (PRESETS["paper"].protocol, ("cifar-100",))
    assert ablation.losses == ("ldr-kl", "aldr-kl")
    assert (running.datasets, running.losses) == (PRESETS["paper"].datasets, lh.losses.PAPER)
    assert [s.id for s in running.settings] == ["clean"]
    for loss in running.losses:
        assert len(running.protocol.tuned(entry(loss))) == running.protocol.folds == 1


def test_the_border_is_that_of_the_images_as_they_are_trained_on():
    photos = stand_in("mini-webvision", (300, 400))
    assert ImageSettings().recipe(photos, 64, 0.9, ()).augmentation.crop == 37
    assert ImageSettings(resize=32).recipe(photos, 64, 0.9, ()).augmentation.crop == 4
    assert ImageSettings(resize=256, image_size=224).recipe(photos, 64, 0.9, ()).augmentation.crop == 28


@pytest.mark.parametrize(("epochs", "decay_after"), [(1, (1,)), (2, (1, 1)), (3, (1, 2)), (10, (3, 7))])
def test_fewer_epochs_keep_the_shares_of_the_schedule_and_begin_with_the_whole_learning_rate(epochs, decay_after):
    recipe = ImageSettings(epochs=epochs).recipe(stand_in("cifar-100", (32, 32)), 64, 0.9, ())
    assert recipe.decay_after == decay_after


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"tuning_epochs": 0}, r"tuning_epochs must be in \[1, 29\], got 0"),
        ({"tuning_epochs": 30}, r"tuning_epochs must be in \[1, 29\], got 30"),
    ],
)
def test_impossible_settings_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        ImageSettings(**wrong)


def test_each_noise_is_a_job_of_its_own_unless_the_job_tunes_in_short_trainings():
    noises = tuple(map(setting, ("clean", "u0.3", "worse")))
    protocol = PRESETS["cifar-100"].protocol
    apart = jobs(protocol, ["vowel", "cifar-10n"], ["ce", "mae"], noises, range(2))
    assert [(job.dataset, job.seed, job.settings, job.loss) for job in apart] == [
        *(("vowel", seed, noises, loss) for seed in (0, 1) for loss in ("ce", "mae")),
        *(("cifar-10n", s, (noise,), loss) for s in (0, 1) for noise in noises for loss in ("ce", "mae")),
    ]
    tunes = dataclasses.replace(protocol, images=ImageSettings(tuning_epochs=5))
    assert [job.settings for job in jobs(tunes, ["cifar-10n"], ["ce"], noises, [0])] == [noises]


@pytest.mark.parametrize(
    ("loss", "tuning_epochs", "networks", "network_epochs"),
    [
        ("ce", None, 5 * 2 * 3, 5 * 2 * 3 * 30),
        ("aldr-kl", None, 5 * 2 * 9, 5 * 2 * 9 * 30),
        ("aldr-kl", 4, 2 * 9 + 5 * 2, 2 * 9 * 4 + 5 * 2 * 30),
        ("sce@l1", 4, 2 * 27 + 5 * 2, 2 * 27 * 4 + 5 * 2 * 30),
    ],
)
def test_what_there_is_to_train_is_counted(loss, tuning_epochs, networks, network_epochs):
    protocol = dataclasses.replace(PRESETS["paper"].protocol, images=ImageSettings(tuning_epochs=tuning_epochs))
    job = Job(protocol, "cifar-100", loss, 0, (setting("clean"), setting("u0.3")))
    assert (job.epochs, job.networks, job.network_epochs) == (30, networks, network_epochs)
    table = dataclasses.replace(job, dataset="vowel")
    every = 2 * 5 * len(protocol.tuned(entry(loss)))
    assert (table.tuning, table.epochs, table.networks, table.network_epochs) == (None, 100, every, every * 100)


def test_images_are_shuffled_before_they_are_cut_into_folds():
    data = stand_in("cifar-100", (1, 1), count=1000)  # sorted by class, as Tiny-ImageNet is
    protocol = PRESETS["paper"].protocol
    folds = protocol.cross_validation(data, 0)
    assert sorted(np.concatenate([fold.validation for fold in folds])) == list(range(1000))
    for fold in folds:
        assert sorted(np.concatenate([fold.train, fold.validation])) == list(range(1000))
        assert len(np.unique(data.train.labels[fold.validation])) > 70
    again, other = (protocol.cross_validation(data, seed)[0] for seed in (0, 1))
    assert np.array_equal(again.validation, folds[0].validation)
    assert not np.array_equal(other.validation, folds[0].validation)
