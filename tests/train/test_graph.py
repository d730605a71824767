"""The compiler: what it makes of a training, and what of the user's it has made before."""

from functools import partial

import numpy as np
import torch
from torch import nn

import labelhedge as lh
from labelhedge.train import _sgd, _stack
from labelhedge.train.stacked import Fold, Recipe, Task, Trial, train
from tests import own_losses


def test_training_with_many_losses_leaves_alone_what_the_user_has_compiled(monkeypatch):
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    model, rows = torch.compile(nn.Linear(3, 2), backend=backend), torch.ones(4, 3)
    model(rows)

    rng = np.random.default_rng(0)
    inputs, labels = rng.normal(size=(20, 3)).astype(np.float32), rng.integers(4, size=20)
    task = Task(inputs, labels[None], labels, inputs, labels, 4)
    recipe = Recipe(hidden=(3,), epochs=1, batch_size=12)

    def trained(loss):
        trials = [Trial(0.1, 1e-3, params) for params in lh.losses.get(loss).grid[:2]]
        return train(task, [Fold(np.arange(12), np.arange(12, 20), 0)], trials, loss, recipe).train_loss.squeeze()

    losses = ["gce", "ww", *own_losses.IDS]
    expected = [trained(loss) for loss in losses]
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))  # all but writing code
    for module in (_stack, _sgd):
        monkeypatch.setattr(module, "compiles", lambda device: True)
    with torch._dynamo.config.patch(recompile_limit=2):  # how often it compiles one function
        np.testing.assert_allclose([trained(loss) for loss in losses], expected, rtol=1e-5)
    model(rows)
    assert len(graphs) == 1
