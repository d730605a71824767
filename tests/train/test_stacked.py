"""A network in a stack ends as it would alone, and as PyTorch's own parts would train it."""

import dataclasses
import itertools
import re

import numpy as np
import pytest
import torch
from torch import nn

import labelhedge as lh
from labelhedge.losses import _spec
from labelhedge.train import _stack
from labelhedge.train._plan import _REVIEW, _STATE, bytes_of_stack
from labelhedge.train._stack import Stack
from labelhedge.train.stacked import Fold, Outcome, Recipe, Task, Trial, train
from tests import own_losses

FEATURES, CLASSES, ROWS = 6, 7, 150
RECIPE = Recipe(hidden=(5, 4), epochs=6, batch_size=32, decay_after=(3, 5), review_after=(3, 4, 5))
RESULTS = [field for field in dataclasses.fields(Outcome) if field.name != "seconds"]
LOSSES = [*lh.losses.PAPER, "ldr-k-kl", "topk-svm", *own_losses.IDS]


@pytest.fixture(scope="module")
def task():
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(CLASSES, FEATURES))
    labels = rng.integers(CLASSES, size=ROWS + 60)
    inputs = (centres[labels] + 0.7 * rng.normal(size=(ROWS + 60, FEATURES))).astype(np.float32)
    clean = labels[:ROWS]
    noisy = lh.noise.uniform(clean, 0.4, num_classes=CLASSES, seed=1).labels
    return Task(inputs[:ROWS], np.stack([clean, noisy]), clean, inputs[ROWS:], labels[ROWS:], CLASSES)


def folds(count=3):
    rows = np.arange(ROWS)
    return [Fold(np.delete(rows, slice(30 * f, 30 * f + 30)), rows[30 * f : 30 * f + 30], 7 + f) for f in range(count)]


def trials(loss):
    return [
        Trial(lr, decay, params, labels)
        for labels in (0, 1)
        for lr, decay in ((0.3, 1e-3), (0.02, 0.0))
        for params in lh.losses.get(loss).grid
    ]


def exact(task, folds, trials, loss, **options):
    return train(task, folds, trials, loss, RECIPE, dtype=torch.float64, **options)


def assert_same(some: Outcome, others: Outcome, pick=(slice(None), slice(None)), tolerance=1e-5):
    for field in RESULTS:
        np.testing.assert_allclose(
            getattr(some, field.name), getattr(others, field.name)[pick], rtol=0, atol=tolerance, err_msg=field.name
        )


@pytest.mark.parametrize("loss", LOSSES)
def test_a_network_in_a_stack_is_the_network_alone(task, loss):
    stack = exact(task, folds(), trials(loss), loss)
    for fold in (0, 2):
        for number in (0, len(trials(loss)) - 1):
            alone = exact(task, folds()[fold : fold + 1], trials(loss)[number : number + 1], loss)
            assert_same(alone, stack, (slice(fold, fold + 1), slice(number, number + 1)), tolerance=1e-6)


@pytest.mark.parametrize("loss", ["ce", "ww", "aldr-kl"])
def test_options_hold_for_the_whole_stack(task, loss):
    options = {"normalize": "l1"} if loss != "aldr-kl" else {"normalize": "softplus"}
    with_temperature = [
        dataclasses.replace(trial, params={**trial.params, "temperature": t})
        for trial in trials(loss)[:2]
        for t in (0.3, 1)
    ]
    stack = exact(task, folds(), with_temperature, loss, options=options)
    alone = exact(task, folds(), with_temperature[2:3], loss, options=options)
    assert_same(alone, stack, (slice(None), slice(2, 3)), tolerance=1e-6)
    plain = exact(task, folds(), with_temperature, loss)
    assert not np.allclose(plain.train_loss, stack.train_loss)


def by_hand(task, fold, trial, loss):
    """The same with nn.Linear, torch.optim.SGD and the loss as a module; (losses, accuracies, test, traced state)."""
    start, order = np.random.SeedSequence(fold.seed).generate_state(2).tolist()
    generator = torch.Generator().manual_seed(start)
    sizes = (FEATURES, *RECIPE.hidden, CLASSES)
    layers = []
    for fan_in, fan_out in itertools.pairwise(sizes):
        linear = nn.Linear(fan_in, fan_out, dtype=torch.float64)
        nn.init.xavier_normal_(linear.weight, generator=generator)
        nn.init.zeros_(linear.bias)
        layers += [linear, nn.Tanh()]
    model = nn.Sequential(*layers[:-1])
    inputs, labels = torch.from_numpy(task.inputs).double(), torch.from_numpy(task.labels[trial.labels])
    counts = {"num_samples": ROWS, "num_classes": CLASSES}
    spec = lh.losses.get(loss)
    criterion = lh.losses.create(loss, **trial.params, **{name: counts[name] for name in spec.counts}).double()
    traced = next((state.name for state in spec.state if state.traced), None)
    optimizer = torch.optim.SGD(model.parameters(), trial.lr, RECIPE.momentum, weight_decay=trial.weight_decay)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, list(RECIPE.decay_after), RECIPE.decay)
    learning = torch.optim.SGD([*criterion.parameter_groups(), {"params": []}], lr=trial.lr)  # without the schedule
    shuffling = torch.Generator().manual_seed(order)
    rows = torch.from_numpy(fold.train)
    trace, accuracies, lam, best = [], [], [], None
    for epoch in range(1, RECIPE.epochs + 1):
        total = 0.0
        for batch in rows[torch.randperm(len(rows), generator=shuffling)].split(RECIPE.batch_size):
            optimizer.zero_grad()
            learning.zero_grad()
            value = criterion(model(inputs[batch]), labels[batch], batch)
            value.backward()
            optimizer.step()
            learning.step()
            total += value.item() * len(batch)
        schedule.step()
        with torch.no_grad():
            right = model(inputs[fold.validation]).argmax(1) == labels[fold.validation]
            accuracies.append(right.double().mean().item())
            if accuracies[-1] > max(accuracies[:-1], default=-1):
                scores = model(torch.from_numpy(task.test_inputs).double()).topk(5).indices
                hits = scores == torch.from_numpy(task.test_labels)[:, None]
                best = epoch, hits.cumsum(1).clamp(max=1).double().mean(0).tolist()
            if criterion.wants_predictions and epoch in RECIPE.review_after:
                criterion.refresh(model(inputs[rows]), labels[rows], rows)
        trace.append(total / len(rows))
        if traced is not None:
            wrong, kept = labels[rows] != torch.from_numpy(task.clean)[rows], getattr(criterion, traced)[rows]
            lam.append((kept[~wrong].mean().item(), kept[wrong].mean().item()))
    return trace, accuracies, best, np.array(lam)


@pytest.mark.parametrize("loss", ["ce", "sce", "ww", "tgce", "ldr-kl", "aldr-kl", *own_losses.IDS])
def test_a_stack_trains_as_pytorch_does(task, loss):
    outcome = exact(task, folds(2), trials(loss), loss)
    for fold, number in ((0, 0), (1, len(trials(loss)) - 1)):
        trace, accuracies, (epoch, tops), lam = by_hand(task, folds()[fold], trials(loss)[number], loss)
        at = fold, number
        np.testing.assert_allclose(outcome.train_loss[at], trace, rtol=1e-5)
        np.testing.assert_allclose(outcome.epoch_val_top1[at], accuracies, rtol=1e-6)
        assert outcome.best_epoch[at] == epoch
        assert outcome.val_top1[at] == pytest.approx(max(accuracies))
        np.testing.assert_allclose(outcome.test_top[at], tops)
        if len(lam):
            np.testing.assert_allclose(outcome.lam_clean[at], lam[:, 0], rtol=1e-5)
            np.testing.assert_allclose(outcome.lam_flipped[at], lam[:, 1], rtol=1e-5)
        else:
            assert np.isnan(outcome.lam_clean[at]).all()


def weighted_stack(task, loss, weight):
    rows = np.stack([fold.train for fold in folds(2)])
    data = (task.inputs, task.labels, CLASSES, rows, [7, 8])
    return Stack(*data, trials(loss)[:3], loss, RECIPE, {}, torch.device("cpu"), torch.float64, weight)


def test_what_samples_without_weight_would_learn_stays_as_it_is(task):
    weight = (np.arange(ROWS) % 3 > 0).astype(np.float32)
    stack = weighted_stack(task, "doubt", weight)
    for _ in stack.epochs():
        pass
    doubt = stack.state["doubt"][0, stack.train_rows[0]]
    learnt = torch.from_numpy(weight)[stack.train_rows[0]] > 0
    assert (doubt[~learnt] == 0.1).all()
    assert (doubt[learnt] != 0.1).all()


@pytest.mark.parametrize("loss", ["aldr-kl", *own_losses.IDS])
def test_a_compiler_is_given_the_same_step(task, loss):
    weight = np.linspace(0, 2, ROWS, dtype=np.float32)
    stack = weighted_stack(task, loss, weight)
    index = stack._per_network(stack.train_rows[:, :9])
    state = [stack._state_at(kind, index) for kind in stack.states]
    logits = torch.randn(stack.networks, CLASSES, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    given = (stack._target(index), stack.weight[index], *state)
    expected = stack._differentiate(logits.clone(), *given)
    torch.testing.assert_close(stack._differentiate_in_one_graph(logits, *given), expected)


def test_test_accuracies_are_those_of_the_best_epoch(task):
    """Training that ends there has the same weights then, and tests the same."""
    outcome = exact(task, folds(1), trials("sce"), "sce")
    early = [number for number in range(12) if outcome.best_epoch[0, number] < RECIPE.epochs]
    assert early
    for number in early[:3]:
        epochs = int(outcome.best_epoch[0, number])
        shorter = dataclasses.replace(RECIPE, epochs=epochs)
        again = train(task, folds(1), trials("sce")[number : number + 1], "sce", shorter, dtype=torch.float64)
        assert again.best_epoch[0, 0] == epochs
        np.testing.assert_array_equal(again.test_top[0, 0], outcome.test_top[0, number])


def test_test_labels_play_no_part_in_training(task):
    other = dataclasses.replace(task, test_labels=task.test_labels[::-1].copy())
    some, others = (exact(t, folds(2), trials("gce"), "gce") for t in (task, other))
    for field in RESULTS:
        same = np.array_equal(getattr(some, field.name), getattr(others, field.name), equal_nan=True)
        assert same == (field.name != "test_top"), field.name


def test_right_labels_play_no_part_but_in_the_traces(task):
    other = dataclasses.replace(task, clean=(task.clean + 1) % CLASSES)
    some, others = (exact(t, folds(2), trials("aldr-kl"), "aldr-kl") for t in (task, other))
    for field in RESULTS:
        same = np.array_equal(getattr(some, field.name), getattr(others, field.name), equal_nan=True)
        assert same == (field.name not in ("epoch_val_clean_top1", "lam_clean", "lam_flipped")), field.name


@pytest.mark.parametrize("loss", ["ce", "aldr-kl", "tgce"])
def test_a_network_that_diverges_harms_no_other(task, loss):
    mad = dataclasses.replace(trials(loss)[0], lr=1e30, weight_decay=1e30)
    together = train(task, folds(), [mad, *trials(loss)], loss, RECIPE)
    without = train(task, folds(), trials(loss), loss, RECIPE)
    assert_same(without, together, (slice(None), slice(1, None)), tolerance=1e-4)
    if loss != "tgce":  # which ends with no sample that it believes, and a constant for each
        assert not np.isfinite(together.train_loss[:, 0, -1]).any()
    assert (together.test_top[:, 0, 0] < 0.5).all()


@pytest.mark.parametrize("loss", ["ce", "aldr-kl", "tgce", *own_losses.IDS])
def test_a_stack_too_big_for_memory_is_trained_in_parts(task, loss):
    whole = exact(task, folds(), trials(loss), loss)
    with pytest.raises(ValueError, match=r"memory must be at least [\d,]+ bytes") as refusal:
        exact(task, folds(), trials(loss), loss, memory=100_000)
    least = int(re.search(r"at least ([\d,]+)", str(refusal.value))[1].replace(",", ""))
    counts = []
    parts = exact(task, folds(), trials(loss), loss, memory=least, advance=counts.append)
    assert len(counts) == len(trials(loss)) * RECIPE.epochs  # one trial at a time
    assert_same(parts, whole, tolerance=1e-6)


def test_memory_for_state_is_planned_with_its_shape_and_type(task):
    one, ce = (
        bytes_of_stack(task, 2, 1, loss, RECIPE, torch.device("cpu"), torch.float64) for loss in ("running-mean", "ce")
    )
    stack = weighted_stack(task, "running-mean", None)
    assert stack.state["mean"].nbytes == stack.networks * ROWS * CLASSES * 8
    assert one - ce == 2 * (_STATE + _REVIEW) * ROWS * CLASSES * 8


def test_a_loss_sees_the_predictions_for_all_samples_at_once(task, monkeypatch):
    whole = exact(task, folds(2), trials("running-mean"), "running-mean")
    monkeypatch.setattr(_stack, "rows_at_once", lambda *given: 16)
    assert_same(exact(task, folds(2), trials("running-mean"), "running-mean"), whole, tolerance=1e-9)


def test_what_a_stack_cannot_learn_is_refused(task):
    temperature = torch.nn.Parameter(torch.tensor(2.0))
    with pytest.raises(ValueError, match="temperature cannot be learnt in a stack of networks"):
        train(task, folds(1), trials("ce"), "ce", RECIPE, options={"temperature": temperature})


def test_new_state_is_brought_to_its_type(task):
    class CountingLoss(lh.losses.Loss):
        spec = lh.losses.LossSpec("counting", "-log p_y", state=(lh.losses.State("seen", dtype=torch.int32),))

        def __init__(self, weight=None, *, num_samples=None, **options):
            super().__init__(weight, num_samples=num_samples, **options)

        @staticmethod
        def update(logits, target, seen):
            return {"seen": seen + 1.0}

        @staticmethod
        def formula(logits, target, seen=None):
            return -logits.log_softmax(-1).gather(-1, target)

    try:
        stack = weighted_stack(task, "counting", None)
        for _ in stack.epochs():
            pass
    finally:
        del _spec._REGISTRY["counting"]
    seen = stack.state["seen"][0]
    assert (seen[stack.train_rows[0]] == RECIPE.epochs).all()
    assert seen.sum() == RECIPE.epochs * stack.train_rows.shape[1]


def test_balanced_accuracies_are_means_over_classes(task):
    from sklearn.metrics import balanced_accuracy_score

    few = np.where(task.test_labels < 2)[0][:3]
    uneven = np.concatenate([few, np.where(task.test_labels >= 2)[0]])
    task = dataclasses.replace(task, test_inputs=task.test_inputs[uneven], test_labels=task.test_labels[uneven])
    plain, balanced = (
        exact(dataclasses.replace(task, balanced=b), folds(1), trials("ce")[:1], "ce") for b in (False, True)
    )
    assert plain.test_top[0, 0, 0] != balanced.test_top[0, 0, 0]
    assert balanced.test_top[0, 0, 4] <= 1 + 1e-12
    assert balanced_accuracy_score([0, 0, 1], [0, 1, 1]) == 0.75  # the definition that test_metrics holds ours against


def test_progress_counts_every_epoch_of_every_network(task):
    counts = []
    train(task, folds(2), trials("ce"), "ce", RECIPE, advance=counts.append)
    assert sum(counts) == 2 * len(trials("ce")) * RECIPE.epochs
    assert len(counts) == RECIPE.epochs


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"folds": []}, "needs a fold and a trial"),
        ({"trials": []}, "needs a fold and a trial"),
        ({"folds": [Fold(np.arange(9), np.arange(9), 0), Fold(np.arange(8), np.arange(9), 0)]}, "same numbers of rows"),
        ({"trials": [Trial(0.1, 0, {"q": 0.5}), Trial(0.1, 0, {})]}, "same hyperparameters"),
        ({"recipe": Recipe(hidden=())}, "one layer at least"),
        ({"loss": "focal"}, "unknown loss 'focal'"),
    ],
)
def test_what_cannot_be_a_stack(task, change, message):
    arguments = {"folds": folds(), "trials": trials("gce"), "loss": "gce", "recipe": RECIPE} | change
    with pytest.raises(ValueError, match=message):
        train(task, **arguments)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore")  # torch's compiler warns of what it decides by itself
@pytest.mark.parametrize("loss", ["ce", "ww", "tgce", "aldr-kl"])
def test_a_gpu_trains_the_same_networks(task, loss):
    on_cpu, on_gpu = (exact(task, folds(), trials(loss), loss, device=device) for device in ("cpu", "cuda"))
    assert_same(on_gpu, on_cpu, tolerance=1e-5)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore")
def test_a_gpu_keeps_within_memory(task):
    torch.cuda.reset_peak_memory_stats()
    many = trials("aldr-kl") * 40
    memory = 2_000_000_000
    train(task, folds(), many, "aldr-kl", RECIPE, device="cuda", memory=memory)
    assert torch.cuda.max_memory_allocated() < memory
