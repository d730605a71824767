"""Presets on images, from the publishers' files to the rows, with small networks and few images."""

import dataclasses
import functools
import json
import shutil

import numpy as np
import pytest
import torch
from pandas.testing import assert_frame_equal

from labelhedge.bench.jobs import jobs
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


def test_workers_read_images_from_a_disk(tmp_path):
    wnids = [f"n{1440764 + 13 * i:08}" for i in range(1000)]
    publishers.write_mini_webvision(tmp_path / "data", wnids, jpegs(np.arange(50), 12), jpegs(np.arange(50), 12))
    protocol = shortened("mini-webvision", epochs=1, model="resnet18", resize=12, image_size=8)
    todo = jobs(protocol, ["mini-webvision"], ["ce", "mse"], [setting("clean")], [0])
    store = ResultsStore(tmp_path / "out")
    work_off(todo, store, Machine(data=str(tmp_path / "data")), workers=2, advance=lambda count: None)
    assert sorted(load(store.root)["loss"]) == ["ce", "mse"]


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
    assert [path.name for path in tmp_path.glob("out/**/*.pt")] == ["0000-1.pt"]
    assert work(store, machine, tuning_jobs()) == tuned[1] - 6 - 2
    assert_same_rows(store, tuned[0])
    assert not list(tmp_path.glob("out/**/*.pt"))
    assert not list(tmp_path.glob("out/**/checkpoints/**/clean*"))


def assert_same_rows(one, other):
    for table in (load, load_traces):
        for part in ("", "tuning"):
            rows, expected = (table(s.root / part).drop(columns="seconds", errors="ignore") for s in (one, other))
            assert_frame_equal(rows, expected, check_exact=True)


@pytest.fixture(autouse=True)
def _threads():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
