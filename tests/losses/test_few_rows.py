"""Small batches on a CPU take a way of their own; it gives what the ordinary one does."""

import gc
import math
import weakref

import pytest
import torch

import labelhedge as lh
from tests.losses.cases import CASES, NAMES, random_batch

SERVED = [
    (name, params)
    for name, params in CASES
    if lh.losses.create(name, **params)._prepared(torch.ones(2, 3), torch.tensor([0, 1])).few is not None
]
SERVED_IDS = [f"{name}-{params}" for name, params in SERVED]
SHAPES = [(1, 2), (40, 7), (40, 150), (40, 1000)]


def batch(rows, classes, ignored=0):
    logits, target = random_batch(rows, classes)
    target[:ignored] = -100
    return logits.float(), target


def value_and_gradient(loss, logits, target, upstream=1.0):
    leaf = logits.clone().requires_grad_()
    value = loss(leaf, target)
    (value * upstream).backward()
    return value.detach(), leaf.grad


def by_the_ordinary_way(name, logits, target, upstream=1.0, **options):
    """A batch of more than two dimensions is none of few rows."""
    loss = lh.losses.create(name, class_dim=-1, **options)
    assert loss._prepared(logits[None], target[None]).few is None
    return value_and_gradient(lambda f, y: loss(f[None], y[None]), logits, target, upstream)


def test_most_losses_are_served():
    assert {name for name, _ in SERVED} >= {"gce", "nce", "mse", "ldr-kl", "aldr-kl"}
    assert "ce" not in dict(SERVED)


@pytest.mark.parametrize(("name", "params"), SERVED, ids=SERVED_IDS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_value_and_gradient(name, params, shape):
    logits, target = batch(*shape)
    loss = lh.losses.create(name, **params)
    expected = by_the_ordinary_way(name, logits, target, **params)
    for _ in range(2):  # the first batch of a kind is examined, the second is known
        torch.testing.assert_close(value_and_gradient(loss, logits, target), expected, rtol=2e-6, atol=2e-6)
    assert loss(logits, target) == value_and_gradient(loss, logits, target)[0]


@pytest.mark.parametrize(("name", "params"), SERVED, ids=SERVED_IDS)
@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("ignored", [0, 3, 40])
def test_reduction_ignored_labels_and_upstream(name, params, reduction, ignored):
    logits, target = batch(40, 7, ignored)
    loss = lh.losses.create(name, reduction=reduction, **params)
    expected = by_the_ordinary_way(name, logits, target, -0.3, reduction=reduction, **params)
    for _ in range(2):
        found = value_and_gradient(loss, logits, target, -0.3)
        torch.testing.assert_close(found, expected, rtol=2e-6, atol=2e-6, equal_nan=True)


@pytest.mark.parametrize(("name", "params"), SERVED, ids=SERVED_IDS)
@pytest.mark.parametrize("ignored", [0, 3])
def test_more_than_one_derivative(name, params, ignored):
    logits, target = batch(40, 7, ignored)
    loss = lh.losses.create(name, **params)
    direction = random_batch(40, 7, seed=1)[0].float()
    found = []
    for call in (loss, lambda f, y: lh.losses.create(name, class_dim=-1, **params)(f[None], y[None])):
        leaf = logits.clone().requires_grad_()
        value = call(leaf, target)
        (first,) = torch.autograd.grad(value, leaf, create_graph=True)
        (second,) = torch.autograd.grad((first * direction).sum(), leaf, retain_graph=True)
        again = [torch.autograd.grad(value, leaf, retain_graph=True)[0] for _ in range(2)]
        many = torch.autograd.grad(value, leaf, torch.tensor([1.0, -2.0]), is_grads_batched=True, retain_graph=True)[0]
        found.append((first.detach(), second, *again, many))
    torch.testing.assert_close(*found, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_other_types_of_logits_as_often_as_they_come(name, dtype):
    logits, target = random_batch(40, 7)
    loss = lh.losses.create(name)
    first, second, expected = (
        value_and_gradient(call, logits.to(dtype), target)
        for call in (loss, loss, lambda f, y: lh.losses.create(name, class_dim=-1)(f[None], y[None]))
    )
    assert first[0].dtype == second[0].dtype == expected[0].dtype
    torch.testing.assert_close(first, second)
    torch.testing.assert_close(second, expected)


@pytest.mark.parametrize(("name", "params"), SERVED, ids=SERVED_IDS)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf], ids=str)
def test_numbers_that_are_not_finite_take_the_ordinary_way(name, params, bad):
    logits, target = batch(40, 7)
    loss = lh.losses.create(name, **params)
    loss(logits, target)
    target[3] = 0
    logits[3, 2] = bad
    expected = by_the_ordinary_way(name, logits, target, **params)
    found = value_and_gradient(loss, logits, target)
    torch.testing.assert_close(found, expected, rtol=2e-6, atol=2e-6, equal_nan=True)


@pytest.mark.parametrize("classes", [10, 100, 101])
@pytest.mark.parametrize("ahead", [0, 20])
def test_the_exact_lambda(classes, ahead):
    """Also of rows in which one class is so far ahead that the objective bends sharply."""
    logits, target = random_batch(4000, classes, scale=1.0)
    logits[:, 0] += ahead * torch.rand(4000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    logits = logits.float()
    found = lh.functional.aldr_lambda(logits, target, normalize=None, margin=0.0)
    expected = lh.functional.aldr_lambda(logits.double(), target, normalize=None, margin=0.0)
    assert (found - expected).abs().max() < 2e-6


@pytest.mark.parametrize("name", ["gce", "aldr-kl"])
def test_a_wrong_label_is_named_also_in_a_batch_of_a_known_kind(name):
    logits, target = batch(40, 7)
    loss = lh.losses.create(name)
    loss(logits, target)
    for label in (7, -1):
        target[5] = label
        with pytest.raises(ValueError, match=rf"target must be in \[0, 7\) or ignore_index=-100, got {label}"):
            loss(logits, target)


def test_a_graph_that_is_dropped_takes_nothing_along():
    """Neither the loss nor its gradient are held by anything that only the collector of cycles would find."""
    logits, target = batch(40, 7)
    loss = lh.losses.create("ldr-kl")
    loss(logits, target)
    gc.disable()
    try:
        value = loss(logits.requires_grad_(), target)
        node = weakref.ref(value.grad_fn)
        del value
        assert node() is None
    finally:
        gc.enable()
