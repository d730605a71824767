"""What the user has told torch about other computations changes nothing in a training."""

from contextlib import contextmanager

import numpy as np
import pytest
import torch

from labelhedge.audit._find import mean_probability
from labelhedge.train import single, stacked
from labelhedge.train.crossfit import CrossFit, Data, Family, stratified
from labelhedge.train.stacked import Fold, Recipe, Task, Trial
from tests.train.images import RECIPE, TRIAL, make_folds, make_task, same


@contextmanager
def float64():
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


rng = np.random.default_rng(0)
INPUTS, LABELS = rng.normal(size=(60, 5)).astype(np.float32), rng.integers(4, size=60)


def tables():
    task = Task(INPUTS, LABELS[None], LABELS, INPUTS, LABELS, 4)
    recipe = Recipe(hidden=(4,), epochs=2)
    return stacked.train(task, [Fold(np.arange(40), np.arange(40, 60), 0)], [Trial(0.1, 0, {})], "ce", recipe)


def out_of_sample():
    data = Data(INPUTS, LABELS, 4)
    networks = CrossFit(data, [stratified(LABELS, 3, seed=0)], Family("ce"), [0.1], epochs=2)
    return networks.accuracy(LABELS), mean_probability([networks], data)


def images():
    return single.train(make_task(), make_folds(make_task()), [TRIAL], "aldr-kl", RECIPE)


@pytest.mark.parametrize("mode", [float64, torch.inference_mode, torch.no_grad])
def test_nothing_changes(mode):
    expected = tables(), *out_of_sample(), images()
    with mode():
        found = tables(), *out_of_sample(), images()
    assert same(found[0], expected[0])
    assert found[1] == expected[1]
    assert torch.equal(found[2], expected[2])
    if mode is float64:  # which the starting weights are drawn in
        assert {name: array.dtype for name, array in vars(found[3]).items()} == {
            name: array.dtype for name, array in vars(expected[3]).items()
        }
    else:
        assert same(found[3], expected[3])
