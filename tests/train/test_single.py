"""Training of large networks: against a plain loop, and whatever interrupts it."""

import dataclasses
import itertools
import os
import pickle
import resource
import signal
from pathlib import Path

import numpy as np
import pytest
import torch

import labelhedge as lh
from labelhedge.data import DataError
from labelhedge.models.resnet import resnet18
from labelhedge.train import _checkpoint, _network, _pixels, _training
from labelhedge.train._network import Network
from labelhedge.train._training import Data, Training
from labelhedge.train.augment import Augmentation
from labelhedge.train.metrics import balanced_weight, rank_of_label, top_k
from labelhedge.train.single import Checkpoints, train
from labelhedge.train.stacked import Fold, Trial
from tests import own_losses
from tests.train.images import CLASSES, RECIPE, TRIAL, OneByOne, make_folds, make_task, same

PLAIN = dataclasses.replace(RECIPE, augmentation=Augmentation(), nesterov=True, decay=0.3, review_after=(1, 2))
TASK = make_task()
FOLDS = make_folds(TASK)


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def plain_loop(task, fold, trial, recipe, loss):
    """The same training with torch's own parts; the losses of the epochs and the test accuracy."""
    start, order = np.random.SeedSequence(fold.seed).generate_state(2).tolist()
    torch.manual_seed(start)
    network = resnet18(task.num_classes, width=recipe.width, image_size=8).double()
    optimizer = torch.optim.SGD(
        network.parameters(), trial.lr, recipe.momentum, weight_decay=trial.weight_decay, nesterov=recipe.nesterov
    )
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, recipe.decay_after, recipe.decay)
    images = torch.from_numpy(task.images).permute(0, 3, 1, 2) / 255
    seen = images[fold.train].double()
    mean, std = seen.mean((0, 2, 3), keepdim=True), seen.std((0, 2, 3), correction=0, keepdim=True)
    labels = torch.from_numpy(task.labels[trial.labels])
    counts = {"num_samples": len(labels), "num_classes": task.num_classes}
    criterion = lh.losses.create(loss, **{name: counts[name] for name in lh.losses.get(loss).counts}).double()
    learning = torch.optim.SGD([*criterion.parameter_groups(), {"params": []}], lr=trial.lr)
    losses = []
    for epoch in range(recipe.epochs):
        seed = int(np.random.SeedSequence([order, epoch]).generate_state(2)[0])
        shuffled = torch.randperm(len(fold.train), generator=torch.Generator().manual_seed(seed))
        rows = torch.from_numpy(fold.train)[shuffled]
        values = []
        network.train()
        for batch in rows[: len(rows) // recipe.batch_size * recipe.batch_size].split(recipe.batch_size):
            value = criterion(network((images[batch] - mean) / std), labels[batch], batch)
            optimizer.zero_grad()
            learning.zero_grad()
            value.backward()
            optimizer.step()
            learning.step()
            values.append(value.item())
        losses.append(np.mean(values))
        scheduler.step()
        network.eval()
        if criterion.wants_predictions and epoch + 1 in recipe.review_after:
            criterion.refresh(network((seen - mean) / std), labels[fold.train], torch.from_numpy(fold.train))
    logits = network((images[: len(task.test_labels)] - mean) / std)
    return losses, top_k(rank_of_label(logits, torch.from_numpy(task.test_labels)), 1).item()


@pytest.mark.parametrize("loss", ["ce", *own_losses.IDS])
def test_a_plain_loop_gives_the_same(loss):
    no_validation = Fold(FOLDS[0].train, FOLDS[0].train[:0], 7)
    losses, accuracy = plain_loop(TASK, no_validation, TRIAL, PLAIN, loss)
    outcome = train(TASK, [no_validation], [TRIAL], loss, PLAIN, dtype=torch.float64)
    np.testing.assert_allclose(outcome.train_loss[0, 0], losses, rtol=1e-6)
    assert outcome.test_top[0, 0, 0] == pytest.approx(accuracy)
    assert outcome.best_epoch[0, 0] == RECIPE.epochs  # without validation the last one
    assert np.isnan(outcome.val_top1[0, 0])


def test_a_loss_sees_the_predictions_for_all_samples_at_once(monkeypatch):
    recipe = dataclasses.replace(RECIPE, review_after=(1, 2))
    whole = train(TASK, FOLDS, [TRIAL], "running-mean", recipe, dtype=torch.float64)
    monkeypatch.setattr(_network, "_EVALUATED", 7)
    parts = train(TASK, FOLDS, [TRIAL], "running-mean", recipe, dtype=torch.float64)
    np.testing.assert_allclose(parts.train_loss, whole.train_loss, rtol=1e-9)


def test_a_hyperparameter_that_is_learnt_is_learnt_by_each_network_and_goes_on_after_a_kill(tmp_path):
    def options():
        return {"temperature": torch.nn.Parameter(torch.tensor(2.0))}

    folds = make_folds(TASK, 2)
    together, shared = options(), options()
    outcome = train(TASK, folds, [TRIAL], "ce", RECIPE, options=together)
    assert together["temperature"] == 2.0
    assert not same(train(TASK, folds, [TRIAL], "ce", RECIPE, options={"temperature": 2.0}), outcome)
    for number, fold in enumerate(folds):
        alone = train(TASK, [fold], [TRIAL], "ce", RECIPE, options=shared)
        assert np.array_equal(alone.train_loss[0], outcome.train_loss[number])

    def die(epoch, losses, accuracies):
        if epoch == 2:
            raise KilledError

    kept = Checkpoints(tmp_path / "kept", every=0)
    with pytest.raises(KilledError):
        train(TASK, folds[:1], [TRIAL], "ce", RECIPE, options=options(), checkpoints=kept, epoch_ended=die)
    resumed = train(TASK, folds[:1], [TRIAL], "ce", RECIPE, options=options(), checkpoints=kept)
    assert np.array_equal(resumed.train_loss[0], outcome.train_loss[0])


def test_it_learns_in_spite_of_the_noise():
    recipe = dataclasses.replace(RECIPE, epochs=12, decay_after=(8,), width=8)
    outcome = train(make_task(240), make_folds(make_task(240)), [Trial(0.05, 5e-4, {})], "aldr-kl", recipe)
    assert outcome.test_top[0, 0, 0] > 0.8
    for lam in (outcome.lam_clean[0, 0], outcome.lam_flipped[0, 0]):
        assert 0.5 <= lam[-1] < lam[0] <= 1
    assert outcome.train_loss[0, 0, -1] < outcome.train_loss[0, 0, 0]


def test_every_network_is_trained_as_if_it_were_alone():
    task = make_task(sets=2)
    folds = make_folds(task, 2)
    trials = [Trial(0.02, 5e-4, {"lambda0": 1.0}, 0), Trial(0.05, 0.0, {"lambda0": 0.1}, 1)]
    together = train(task, folds, trials, "aldr-kl", RECIPE)
    assert together.test_top.shape == (2, 2, 5)
    for f, fold in enumerate(folds):
        for t, trial in enumerate(trials):
            alone = train(task, [fold], [trial], "aldr-kl", RECIPE)
            assert np.array_equal(alone.train_loss[0, 0], together.train_loss[f, t])
            assert np.array_equal(alone.test_top[0, 0], together.test_top[f, t], equal_nan=True)
    assert len(np.unique(together.train_loss[..., -1])) == 4


def test_the_best_epoch_on_noisy_labels_is_tested(monkeypatch):
    accuracies = iter([0.5, 0.4, 0.7, 0.6, 0.7, 0.9])  # noisy and clean labels of three epochs
    monkeypatch.setattr(Data, "accuracy", lambda self, ranks, labels, k: next(accuracies, 0.25))
    kept = []
    monkeypatch.setattr(Network, "keep", lambda self: kept.append(float(self.lr)))
    outcome = train(TASK, FOLDS, [TRIAL], "ce", RECIPE)
    assert outcome.best_epoch[0, 0] == 2
    assert outcome.val_top1[0, 0] == 0.7
    assert np.allclose(outcome.epoch_val_clean_top1[0, 0], [0.4, 0.6, 0.9])
    assert kept == pytest.approx([0.02, 0.002])
    assert outcome.test_top[0, 0].tolist() == [0.25] * 5


def test_the_best_weights_are_tested_and_not_the_last():
    diverging = dataclasses.replace(RECIPE, decay_after=(2,), decay=1e9)
    outcome = train(TASK, FOLDS, [TRIAL], "ce", diverging)
    assert not np.isfinite(outcome.train_loss[0, 0, 2])
    stopped = train(TASK, FOLDS, [TRIAL], "ce", dataclasses.replace(diverging, epochs=2))
    assert np.array_equal(outcome.test_top, stopped.test_top, equal_nan=True)
    assert stopped.test_top[0, 0, 0] > 0


def test_balanced_accuracy_and_few_classes():
    task = make_task(
        labels=make_task().labels % 3, clean=TASK.clean % 3, test_labels=TASK.test_labels % 3, num_classes=3
    )
    outcome = train(dataclasses.replace(task, balanced=True), FOLDS, [TRIAL], "ce", RECIPE)
    assert np.isnan(outcome.test_top[0, 0, 2:]).all()
    data = Data(dataclasses.replace(task, balanced=True), RECIPE, torch.device("cpu"))
    ranks, labels = torch.tensor([1, 1, 2]), torch.tensor([0, 0, 1])
    assert data.accuracy(ranks, labels, 1) == 0.5
    assert float(top_k(ranks, 1, balanced_weight(labels, 3))) == 0.5


def test_tgce_decides_anew_which_samples_to_keep():
    recipe = dataclasses.replace(RECIPE, review_after=(1,))
    data = Data(TASK, recipe, torch.device("cpu"))
    training = Training(data, [(FOLDS[0], TRIAL)], "tgce", recipe, {}, None, None, torch.float32)
    training.run(lambda count: None, lambda *told: None)
    keep = training.networks[0].criterion.keep
    assert not keep[FOLDS[0].train].all()
    assert keep[FOLDS[0].validation].all()


def test_the_exact_temperature_needs_no_state():
    outcome = train(TASK, FOLDS, [TRIAL], "aldr-kl", RECIPE, options={"num_samples": None})
    assert np.isnan(outcome.lam_clean).all()
    assert not same(outcome, train(TASK, FOLDS, [TRIAL], "aldr-kl", RECIPE))


def test_progress_counts_images():
    told = []
    train(TASK, FOLDS, [TRIAL, TRIAL], "ce", RECIPE, advance=told.append)
    assert sum(told) == 2 * RECIPE.epochs * (60 // 16 * 16)


def test_fewer_samples_than_a_batch():
    fold = Fold(np.arange(10), np.arange(10, 20), 0)
    assert np.isfinite(train(TASK, [fold], [TRIAL], "ce", RECIPE).train_loss).all()


class KilledError(Exception):
    """In place of a signal."""


@pytest.mark.parametrize(
    ("loss", "after"), [*itertools.product(["aldr-kl", "tgce"], [1, 2, 3]), *((loss, 2) for loss in own_losses.IDS)]
)
def test_a_killed_training_goes_on_to_the_same_result(loss, after, tmp_path, monkeypatch):
    recipe = dataclasses.replace(RECIPE, review_after=(1, 2))
    folds = make_folds(TASK, 2)
    expected = train(TASK, folds, [TRIAL], loss, recipe)
    checkpoints = Checkpoints(tmp_path / "kept", every=0)
    save, saved = _checkpoint.save, []

    def save_and_die(*arguments):
        save(*arguments)
        saved.append(arguments)
        if len(saved) == after:
            raise KilledError

    monkeypatch.setattr(_checkpoint, "save", save_and_die)
    with pytest.raises(KilledError):
        train(TASK, folds, [TRIAL], loss, recipe, checkpoints=checkpoints)
    monkeypatch.undo()
    torch.set_num_threads(1)
    epochs = []
    monkeypatch.setattr(Network, "begin", _counting(Network.begin, epochs))
    assert same(train(TASK, folds, [TRIAL], loss, recipe, checkpoints=checkpoints), expected)
    assert len(epochs) == 2 * recipe.epochs - min(after, recipe.epochs)
    assert same(train(TASK, folds, [TRIAL], loss, recipe, checkpoints=checkpoints), expected)  # all from the files
    assert len(epochs) == 2 * recipe.epochs - min(after, recipe.epochs)


def _counting(method, calls):
    def counted(self, epoch):
        calls.append(epoch)
        return method(self, epoch)

    return counted


def test_a_process_killed_while_it_writes_leaves_the_checkpoint_before(tmp_path, monkeypatch):
    path = tmp_path / "a.pt"
    _checkpoint.save(path, {"loss": "ce"}, {"epoch": 1})

    def killed(*arguments):
        raise KilledError

    monkeypatch.setattr(os, "fsync", killed)
    with pytest.raises(KilledError):
        _checkpoint.save(path, {"loss": "ce"}, {"epoch": 2})
    assert _checkpoint.load(path, {"loss": "ce"}) == {"epoch": 1}
    assert [file.name for file in tmp_path.iterdir()] == ["a.pt"]


def test_a_full_disk_is_an_error_of_the_system_and_leaves_the_checkpoint_before(tmp_path):
    path = tmp_path / "a.pt"
    _checkpoint.save(path, {}, {"epoch": 1})
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))
    try:
        with pytest.raises(OSError, match=r"a\.pt|File too large"):
            _checkpoint.save(path, {}, {"weights": torch.zeros(1_000_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert _checkpoint.load(path, {}) == {"epoch": 1}
    assert [file.name for file in tmp_path.iterdir()] == ["a.pt"]


def test_after_every_epoch_it_is_told_how_it_went():
    told = []
    outcome = train(TASK, FOLDS, [TRIAL], "ce", RECIPE, epoch_ended=lambda *values: told.append(values))
    losses, accuracies = outcome.train_loss[0, 0], outcome.epoch_val_top1[0, 0]
    assert [epoch for epoch, _, _ in told] == [1, 2, 3]
    np.testing.assert_allclose([loss for _, [loss], _ in told], losses, rtol=1e-6)
    np.testing.assert_allclose([accuracy for _, _, [accuracy] in told], accuracies)


def test_large_images_are_evaluated_fewer_at_a_time():
    sizes = [_network._at_a_time(_pixels.Resident(torch.zeros(1, side, side, 3))) for side in (8, 64, 128, 5000)]
    assert sizes == [1024, 1024, 256, 1]


def test_a_checkpoint_of_another_training_is_refused(tmp_path):
    checkpoints = Checkpoints(tmp_path, every=0)
    train(TASK, FOLDS, [TRIAL], "ce", RECIPE, checkpoints=checkpoints)
    with pytest.raises(
        ValueError, match=r"0000-1\.pt is the checkpoint of another training: loss was ce, and is mae now; .*"
    ):
        train(TASK, FOLDS, [TRIAL], "mae", RECIPE, checkpoints=checkpoints)
    for change, name in (
        ({"task": make_task(labels=TASK.labels[:, ::-1].copy())}, "digest of images and labels"),
        ({"trials": [Trial(0.5, 5e-4, {})]}, "learning rate"),
        ({"recipe": dataclasses.replace(RECIPE, epochs=4)}, "epochs"),
    ):
        arguments = {"task": TASK, "folds": FOLDS, "trials": [TRIAL], "loss": "ce", "recipe": RECIPE} | change
        with pytest.raises(ValueError, match=f"another training: {name} was"):
            train(**arguments, checkpoints=checkpoints)


@pytest.mark.parametrize("part", ["images", "test_images"])
def test_a_checkpoint_tells_every_image(part, tmp_path):
    checkpoints = Checkpoints(tmp_path, every=0)
    expected = train(TASK, FOLDS, [TRIAL], "ce", RECIPE, checkpoints=checkpoints)
    images = getattr(TASK, part).copy()
    images[3, 0, 0, 0] ^= 1
    other = make_task(**{part: images})
    with pytest.raises(ValueError, match="another training: digest of all images was"):
        train(other, FOLDS, [TRIAL], "ce", RECIPE, checkpoints=checkpoints)
    (path,) = tmp_path.iterdir()
    older = _checkpoint.read(path)
    del older["configuration"][_checkpoint.CONTENT]
    _checkpoint.save(path, older["configuration"], older["state"])
    assert same(train(other, FOLDS, [TRIAL], "ce", RECIPE, checkpoints=checkpoints), expected)


class Executed:
    def __reduce__(self):
        return (print, ("executed",))


@pytest.mark.parametrize("content", [b"", b"PK\3\4 not a zip", "pickle", "code"])
def test_a_damaged_checkpoint_is_refused(content, tmp_path, capsys):
    path = tmp_path / "0000-1.pt"
    if content == "code":
        torch.save(Executed(), path)
    else:
        path.write_bytes(pickle.dumps([1], protocol=2) if content == "pickle" else content)
    with pytest.raises(ValueError, match=r"0000-1\.pt is not a checkpoint"):
        train(TASK, FOLDS, [TRIAL], "ce", RECIPE, checkpoints=Checkpoints(tmp_path))
    assert "executed" not in capsys.readouterr().out


def test_images_from_a_disk_give_the_same(monkeypatch):
    expected = train(TASK, FOLDS, [TRIAL], "aldr-kl", RECIPE)
    one_by_one = make_task(images=OneByOne(TASK.images), test_images=OneByOne(TASK.test_images))
    assert same(train(one_by_one, FOLDS, [TRIAL], "aldr-kl", RECIPE), expected)
    monkeypatch.setattr(_pixels, "_SHARE", 0)
    assert same(train(one_by_one, FOLDS, [TRIAL], "aldr-kl", RECIPE), expected)


class Signed(OneByOne):
    """Each image is signed by the process that reads it."""

    def __init__(self, images, signatures):
        super().__init__(images)
        self.signatures = signatures

    def __getitem__(self, index):
        (self.signatures / str(os.getpid())).touch()
        return super().__getitem__(index)


def test_the_processes_that_read_images_are_kept(monkeypatch, tmp_path):
    monkeypatch.setattr(_pixels, "_SHARE", 0)
    monkeypatch.setattr(_training, "cores", lambda: 2)
    train(make_task(images=Signed(TASK.images, tmp_path)), FOLDS, [TRIAL], "ce", RECIPE)
    others = [int(path.name) for path in tmp_path.iterdir() if int(path.name) != os.getpid()]
    assert len(others) == 2
    assert not any(Path(f"/proc/{process}").exists() for process in others)  # they end with the training


def test_images_can_be_read_for_two_at_once():
    source = _pixels.Streamed(OneByOne(TASK.images), None, torch.device("cpu"), workers=1)
    for _ in range(2):
        both = zip(source.blocks(torch.arange(10), 4), source.blocks(torch.arange(10, 20), 4), strict=True)
        found = [torch.cat(parts).numpy() for parts in zip(*both, strict=True)]
        assert np.array_equal(np.concatenate(found), TASK.images[:20])
    source.close()


class Deadly(OneByOne):
    def __getitem__(self, index):
        if index == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


def test_a_reader_that_is_killed_is_one_sentence():
    source = _pixels.Streamed(Deadly(TASK.images), None, torch.device("cpu"), workers=1)
    with pytest.raises(ChildProcessError, match="a process that reads images was ended; the same command goes on"):
        list(source.blocks(torch.arange(10), 4))


def test_images_of_many_sizes_are_brought_to_one():
    sizes = [(8 + i % 5, 9 + i % 3) for i in range(len(TASK.clean))]
    images = [np.full((*size, 3), i, np.uint8) for i, size in enumerate(sizes)]
    told = []
    source = _pixels.pixels(OneByOne(images), 10, torch.device("cpu"), 0, lambda *counts: told.append(counts))
    assert told == [(len(images), len(images))]
    assert isinstance(source, _pixels.Resident)
    found = torch.cat(list(source.blocks(torch.arange(len(images)), 7)))
    assert found.shape == (len(images), 10, 10, 3)
    assert torch.equal(found.float().mean((1, 2, 3)), torch.arange(len(images)).float())
    recipe = dataclasses.replace(RECIPE, resize=10, image_size=8)
    task = make_task(images=OneByOne(images), test_images=OneByOne(images[:30]))
    assert np.isfinite(train(task, FOLDS, [TRIAL], "ce", recipe).train_loss).all()


def test_resizing_keeps_the_middle():
    image = torch.zeros(8, 24, 3, dtype=torch.uint8)
    image[:, 8:16] = 200
    assert (_pixels.fitted(image, torch.Size((8, 8, 3))) == 200).all()
    half = _pixels.fitted(image, torch.Size((4, 4, 3)))
    assert half.shape == (4, 4, 3)
    assert half[:, 1:3].float().mean() > 190


class Broken(OneByOne):
    def __getitem__(self, index):
        if index == 70:
            raise DataError("photo.jpg is not a whole JPEG image")
        return super().__getitem__(index)


@pytest.mark.parametrize("share", [0.5, 0])
def test_an_unreadable_image_is_one_sentence(share, monkeypatch, tmp_path):
    monkeypatch.setattr(_pixels, "_SHARE", share)
    task = make_task(images=Broken(TASK.images))
    with pytest.raises(DataError) as caught:
        train(task, FOLDS, [TRIAL], "ce", RECIPE, checkpoints=Checkpoints(tmp_path / "kept"))
    assert str(caught.value) == "photo.jpg is not a whole JPEG image"
    assert not (tmp_path / "kept").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"labels": TASK.labels + 1},
            rf"labels must lie in 0 … {CLASSES - 1} for {CLASSES} classes, got 1 … {CLASSES}",
        ),
        ({"test_labels": TASK.test_labels - 1}, "test labels must lie in 0 … 5 for 6 classes, got -1 … 4"),
        ({"images": TASK.images.astype(np.float32)}, "images must be uint8 .*, got float32"),
        ({"images": TASK.images[..., 0]}, r"images must be uint8 .*, got uint8 \(80, 8, 8\)"),
        ({"test_images": TASK.images[:0]}, "there are no images"),
        (
            {"images": OneByOne([*TASK.images[:-1], TASK.images[0, ..., :1]])},
            r"images must be \(height, width, 3\), got",
        ),
    ],
)
def test_wrong_data_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        train(make_task(**changes), FOLDS, [TRIAL], "ce", RECIPE)


@pytest.mark.parametrize("name", ["epochs", "batch_size", "width"])
def test_wrong_recipes_are_refused(name):
    with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
        dataclasses.replace(RECIPE, **{name: 0})


def test_a_gpu_without_memory_says_what_to_lower(monkeypatch):
    def step(self, at):
        raise torch.OutOfMemoryError

    monkeypatch.setattr(Network, "step", step)
    with pytest.raises(MemoryError, match=r"too little memory for .* batches of 16 images; lower --batch-size"):
        train(TASK, FOLDS, [TRIAL], "ce", RECIPE)
