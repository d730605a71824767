"""Presets on images, from the publishers' files to the rows, with small networks and few images."""

import dataclasses
import functools
import json
import shutil

import numpy as np
import pytest
import torch
from pandas.testing import assert_frame_equal

import labelhedge as lh
from labelhedge.bench.images import ImageSettings
from labelhedge.bench.jobs import Job, jobs
from labelhedge.bench.local import work_off
from labelhedge.bench.protocol import PRESETS, entry, setting
from labelhedge.bench.run import Machine, dataset, image_task
from labelhedge.data import cifar
from labelhedge.data._registry import REGISTRY
from labelhedge.models.resnet import Bottleneck
from labelhedge.results import ResultsStore, choose, load, load_traces
from labelhedge.results.schema import CELL, NETWORKS, TEST, TRACES
from labelhedge.train._network import Network
from labelhedge.train.augment import Augmentation
from tests.data import publishers

HUMAN = {"aggre_label": 0.1, "worse_label": 0.4} | {f"random_label{i}": 0.2 for i in (1, 2, 3)}
"""CIFAR-10N's sets of labels, and how many are wrong."""


def pictures(labels, size, channels=3):
    """Images whose colour tells the label; the same at every call."""
    rng = np.random.default_rng(0)
    shades = rng.integers(0, 196, (256, 1, 1, channels))
    noise = rng.integers(0, 60, (len(labels), size, size, channels))
    return (noise + shades[labels]).astype(np.uint8)


def jpegs(labels, size):
    return [(publishers.jpeg(image), int(label)) for image, label in zip(pictures(labels, size), labels, strict=True)]


def write_kuzushiji_49(root):
    labels, tested = np.repeat(range(49), 2), np.repeat(range(49), [9] * 3 + [1] * 46)
    images = [pictures(rows, 28, 1)[..., 0] for rows in (labels, tested)]
    publishers.write_kuzushiji_49(root, images[0], labels, images[1], tested)
    return {"num_train": 98, "num_test": 73}


def write_cifar_100(root, classes=100):
    labels, tested = np.repeat(range(classes), 200 // classes), np.arange(60) % classes
    names = [f"thing {i}" for i in range(classes)]
    members = publishers.cifar_100_members(pictures(labels, 32), labels, pictures(tested, 32), tested, names)
    publishers.write_tar_gz(root / "cifar-100" / "cifar-100-python.tar.gz", members)
    return {"num_classes": classes, "num_train": 200, "num_test": 60}


def write_cifar_10n(root):
    labels, tested = np.arange(100) % 10, np.arange(20) % 10
    names = [f"thing {i}" for i in range(10)]
    members = publishers.cifar_10_members(pictures(labels, 32), labels, pictures(tested, 32), tested, names)
    publishers.write_tar_gz(root / "cifar-10" / "cifar-10-python.tar.gz", members)
    human = {name: (labels + (np.random.default_rng(0).random(100) < rate)) % 10 for name, rate in HUMAN.items()}
    publishers.write_human_labels(root / "cifar-10n" / "CIFAR-10_human.pt", {"clean_label": labels, **human})
    return {"num_train": 100, "num_test": 20}


def write_tiny_imagenet(root):
    wnids = [f"n{i * 7919:08}" for i in range(1, 201)]
    files = publishers.tiny_imagenet_files(wnids, jpegs(np.arange(200), 64), jpegs(np.arange(50), 64))
    publishers.write_zip(root / "tiny-imagenet" / "tiny-imagenet-200.zip", files, "tiny-imagenet-200")
    return {"num_train": 200, "num_test": 50}


def write_mini_webvision(root):
    wnids = [f"n{1440764 + 13 * i:08}" for i in range(1000)]
    labels = np.arange(28) % 7  # of which the first six are in the data set
    publishers.write_mini_webvision(root, wnids, jpegs(labels, 40), jpegs(np.arange(12) % 6, 50))
    return {"num_classes": 6, "num_train": 24, "num_test": 12}


WRITERS = {
    "kuzushiji-49": write_kuzushiji_49,
    "cifar-100": write_cifar_100,
    "cifar-10n": write_cifar_10n,
    "tiny-imagenet": write_tiny_imagenet,
    "mini-webvision": write_mini_webvision,
}


def publish(root, monkeypatch, name, *arguments):
    """Write the files of a data set, with few images, and make its entry fit them; the machine that has them."""
    counts = WRITERS[name](root, *arguments)
    files = tuple(dataclasses.replace(file, checksum=None, size=None) for file in REGISTRY[name].files)
    monkeypatch.setitem(REGISTRY, name, dataclasses.replace(REGISTRY[name], files=files, **counts))
    if name == "cifar-10n":  # whose batches have a fixed size
        read = cifar.read_cifar
        monkeypatch.setattr(cifar, "read_cifar", lambda path, parts, *rest: read(path, dict.fromkeys(parts, 20), *rest))
    return Machine(data=str(root))


@pytest.fixture
def published(tmp_path, monkeypatch):
    return functools.partial(publish, tmp_path / "data", monkeypatch)


def shortened(preset, epochs=2, folds=1, **images):
    """The protocol of a preset with a small network, trained for a short time."""
    protocol = PRESETS[preset].protocol
    changed = dataclasses.replace(protocol.images, epochs=epochs, **{"width": 2} | images)
    return dataclasses.replace(protocol, folds=folds, images=changed)


def work(store, machine, todo):
    """Do some jobs; how many network-epochs were told."""
    told = []
    work_off(todo, store, machine, workers=1, advance=told.append)
    return sum(told)


@pytest.fixture
def begun(monkeypatch):
    """Every epoch that a network begins: how it is trained then."""
    seen = []
    begin = Network.begin

    def noted(self, epoch):
        begin(self, epoch)
        group = self.optimizer.param_groups[0]
        seen.append((epoch, float(self.lr), group["momentum"], group["weight_decay"], group["nesterov"], self))

    monkeypatch.setattr(Network, "begin", noted)
    return seen


def check_rows(store, todo):
    """Whether there is a row for every network of the jobs and a trace for every chosen one."""
    networks, traces = load(store.root), load_traces(store.root)
    assert (list(networks), list(traces)) == (list(NETWORKS), list(TRACES))
    expected = {
        (job.protocol.id, job.dataset, s.kind, s.rate, job.loss, job.seed, fold, lr, decay, json.dumps(dict(params)))
        for job in todo
        for s in job.settings
        for lr, decay, params in job.protocol.tuned(entry(job.loss))
        for fold in range(job.protocol.folds)
    }
    rows = networks[[*CELL, "fold", "lr", "weight_decay", "params"]].itertuples(index=False, name=None)
    assert set(rows) == expected
    assert len(networks) == len(expected) == sum(job.networks for job in todo)
    assert (networks["epochs"] == todo[0].epochs).all()
    assert (networks["seconds"] > 0).all()
    chosen = choose(networks)
    assert len(traces) == len(chosen) * todo[0].epochs
    assert np.isfinite(traces["train_loss"]).all()
    assert traces.groupby([*CELL, "fold"])["epoch"].apply(list).tolist() == [[*range(1, todo[0].epochs + 1)]] * len(
        chosen
    )
    return networks, traces


def test_kuzushiji_49_counts_every_class_the_same(published, tmp_path, monkeypatch):
    machine, store = published("kuzushiji-49"), ResultsStore(tmp_path / "out")
    tested = []
    ranks = Network.ranks

    def noted(self, source, rows, *labels):
        found = ranks(self, source, rows, *labels)
        if len(labels) == 1:  # those of the test images
            tested.append(found[0].numpy())
        return found

    monkeypatch.setattr(Network, "ranks", noted)
    todo = jobs(shortened("kuzushiji-49"), ["kuzushiji-49"], ["ldr-kl"], [setting("clean")], [0])
    assert work(store, machine, todo) == 9 * 2
    networks, _ = check_rows(store, todo)
    labels = dataset(todo[0], machine).test.labels
    for found, told in zip(tested, networks[list(TEST)].to_numpy(), strict=True):
        by_class = [[np.mean(found[labels == label] <= k) for label in range(49)] for k in range(1, 6)]
        assert told == pytest.approx(np.mean(by_class, axis=1))
    plain = [np.mean(found <= 5) for found in tested]
    assert (networks["test_top5"] - plain).abs().max() > 0.01


def test_cifar_100_is_trained_as_its_recipe_says_and_lambda_is_traced(published, begun, tmp_path):
    machine, store = published("cifar-100"), ResultsStore(tmp_path / "out")
    todo = jobs(shortened("cifar-100"), ["cifar-100"], ["aldr-kl"], [setting("cd0.3")], [0])
    assert work(store, machine, todo) == 9 * 2
    _, traces = check_rows(store, todo)
    assert traces[["lam_clean", "lam_flipped"]].notna().all(axis=None)
    assert (traces["lam_clean"] != traces["lam_flipped"]).all()
    for epoch, lr, *rest in begun:
        assert min(abs(lr / (tried * 0.01**epoch) - 1) for tried in (0.1, 0.01, 0.001)) < 1e-6
        assert rest[:3] == [0.9, 5e-3, False]
    assert {seen[5].criterion.normalize for seen in begun} == {"l1"}
    assert {seen[5].recipe.augmentation for seen in begun} == {Augmentation(crop=4, flip=True)}


def test_tiny_imagenet(published, tmp_path):
    machine, store = published("tiny-imagenet"), ResultsStore(tmp_path / "out")
    todo = jobs(shortened("tiny-imagenet", epochs=1), ["tiny-imagenet"], ["ce"], [setting("u0.6")], [1])
    assert work(store, machine, todo) == 3
    networks, traces = check_rows(store, todo)
    assert networks[["val_top1", *TEST]].notna().all(axis=None)
    assert traces[["lam_clean", "lam_flipped"]].isna().all(axis=None)


def test_mini_webvision_tests_the_last_epoch(published, begun, tmp_path):
    machine, store = published("mini-webvision"), ResultsStore(tmp_path / "out")
    preset = PRESETS["mini-webvision"]
    protocol = shortened("mini-webvision", epochs=3, width=4)  # with 2, oneDNN crashes in torch 2.13
    todo = jobs(protocol, preset.datasets, preset.losses[-2:], preset.settings, [0])
    assert work(store, machine, todo) == 2 * 3
    networks, traces = check_rows(store, todo)
    assert networks["loss"].tolist() == ["aldr-kl@softplus", "ldr-kl@softplus"]
    assert networks["best_epoch"].tolist() == [3, 3]
    assert networks["val_top1"].isna().all()
    assert networks[list(TEST)].notna().all(axis=None)
    assert traces[["val_top1", "val_clean_top1"]].isna().all(axis=None)
    for epoch, lr, momentum, decay, nesterov, network in begun:
        assert lr == pytest.approx(0.4 * 0.97**epoch)
        assert (momentum, decay, nesterov) == (0.9, 3e-5, True)
        assert network.criterion.normalize == "softplus"
        assert isinstance(network.pipeline.model.layer1[0], Bottleneck)
        assert (network.pipeline.size, tuple(network.source.shape)) == (224, (256, 256, 3))
        assert len(network.train_rows) == 24


def test_cifar_10n_is_trained_on_the_labels_that_people_gave(published, tmp_path):
    machine, store = published("cifar-10n"), ResultsStore(tmp_path / "out")
    todo = jobs(shortened("cifar-100"), ["cifar-10n"], ["ce"], [setting("aggre"), setting("worse")], [0])
    assert work(store, machine, todo) == 6 * 2
    networks, _ = check_rows(store, todo)
    assert set(networks["noise"]) == {"aggre", "worse"}
    assert set(networks["rate"]) == {0}
    loaded = dataset(todo[0], machine)
    for job, name in zip(todo, ("aggre", "worse"), strict=True):
        task = image_task(loaded, job)
        assert np.array_equal(task.labels, loaded.human_labels[name][None])
        assert np.array_equal(task.clean, np.arange(100) % 10)


def test_human_labels_that_there_are_not_are_one_sentence(published, tmp_path):
    todo = jobs(shortened("cifar-100"), ["cifar-100"], ["ce"], [setting("random1")], [0])
    with pytest.raises(ValueError, match=r"^there are no human labels 'random1'; there are: none$"):
        work(ResultsStore(tmp_path / "out"), published("cifar-100"), todo)


@functools.cache
def tuning_jobs():
    """Learning rates are compared in one epoch; the data is easy, and prefers a large one."""
    protocol = shortened("cifar-100", epochs=2, folds=2, tuning_epochs=1)
    protocol = dataclasses.replace(protocol, learning_rates=(1e-5, 0.03, 1e-4), batch_size=16)
    return jobs(protocol, ["cifar-100"], ["ce"], [setting("clean"), setting("u0.3")], [0])


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """The results of these jobs, and how many network-epochs were told."""
    folder = tmp_path_factory.mktemp("tuned")
    store = ResultsStore(folder / "out")
    with pytest.MonkeyPatch.context() as monkeypatch:
        told = work(store, publish(folder / "data", monkeypatch, "cifar-100", 5), tuning_jobs())
    return store, told


def test_the_best_configuration_of_the_short_trainings_is_trained_to_the_end(tuned):
    store, told = tuned
    (job,) = tuning_jobs()
    assert (job.networks, job.network_epochs) == (2 * 3 + 2 * 2, 2 * 3 * 1 + 2 * 2 * 2)
    assert told == job.network_epochs
    tried, networks = load(store.root / "tuning"), load(store.root)
    assert len(tried) == 6
    assert (set(tried["epochs"]), set(tried["fold"]), set(tried["protocol"])) == ({1}, {0}, {job.tuning.protocol.id})
    assert len(networks) == 4
    assert (set(networks["epochs"]), set(networks["protocol"])) == ({2}, {job.protocol.id})
    best = tried.loc[tried.groupby("noise")["val_top1"].idxmax()].set_index("noise")["lr"]
    assert set(best) == {0.03}
    assert (networks["lr"] == networks["noise"].map(best)).all()
    traces = load_traces(store.root)
    assert len(traces) == 4 * 2
    assert set(traces["noise"][traces["val_top1"] != traces["val_clean_top1"]]) == {"uniform"}


def test_what_was_tuned_or_trained_is_not_tuned_or_trained_again(tuned, published, tmp_path):
    machine, store = published("cifar-100", 5), ResultsStore(shutil.copytree(tuned[0].root, tmp_path / "out"))
    assert work(store, machine, tuning_jobs()) == 0
    shutil.rmtree(store.root / "networks")
    assert work(store, machine, tuning_jobs()) == 2 * 2 * 2
    assert_same_rows(store, tuned[0])


@dataclasses.dataclass
class Killer:
    """Ends a training after so many network-epochs."""

    after: int
    told: int = 0

    def __call__(self, count):
        self.told += count
        if self.told >= self.after:
            raise InterruptedError


def test_a_killed_job_goes_on_after_the_networks_that_are_finished(tuned, published, tmp_path):
    machine, store = published("cifar-100", 5), ResultsStore(tmp_path / "out")
    with pytest.raises(InterruptedError):  # in the fifth short training
        work_off(tuning_jobs(), store, machine, workers=1, advance=Killer(5))
    assert len(list(tmp_path.glob("out/tuning/checkpoints/**/*.pt"))) == 4
    with pytest.raises(InterruptedError):  # in the second of the long ones
        work_off(tuning_jobs(), store, machine, workers=1, advance=Killer(6 - 4 + 2 + 1))
    assert [path.name for path in tmp_path.glob("out/**/*.pt")] == ["0000.pt"]
    assert work(store, machine, tuning_jobs()) == tuned[1] - 6 - 2
    assert_same_rows(store, tuned[0])
    assert not list(tmp_path.glob("out/**/*.pt"))
    assert not list(tmp_path.glob("out/**/checkpoints/**/clean*"))


def assert_same_rows(one, other):
    for table in (load, load_traces):
        for part in ("", "tuning"):
            rows, expected = (table(s.root / part).drop(columns="seconds", errors="ignore") for s in (one, other))
            assert_frame_equal(rows, expected, check_exact=True)


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


@pytest.fixture(autouse=True)
def _threads():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
