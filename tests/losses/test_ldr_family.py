"""The general LDR family against a convex solver, and its members against each other."""

import itertools
import math

import numpy as np
import pytest
import torch

import labelhedge as lh
from tests.losses.cases import random_batch
from tests.losses.oracles import convex_solver_ldr

PROBLEMS = list(itertools.product(["kl", "quadratic"], [None, 1, 2, "half", "all"], [0.05, 0.3, 1.0, 5.0, 0.0]))


@pytest.mark.parametrize(("regularizer", "k", "lam"), PROBLEMS)
def test_value_and_weights_against_a_convex_solver(regularizer, k, lam):
    for seed, classes in enumerate((2, 5, 30)):
        logits, target = random_batch(1, classes, seed=seed)
        size = {"half": (classes + 1) // 2, "all": classes}.get(k, k)
        options = {"regularizer": regularizer, "constraint": "simplex" if k is None else "capped", "lam": lam}
        options |= {"k": size or 1, "margin": 0.3}
        q = (logits - logits[0, target] + 0.3).numpy()[0]
        q[target] = 0
        expected, p = convex_solver_ldr(q, regularizer, size, lam)
        value = lh.functional.ldr(logits, target, **options)
        weights = lh.functional.ldr_weights(logits, target, **options)[0].numpy()
        assert abs(value.item() - expected) < 1e-8
        assert weights.min() >= 0
        assert weights.sum() <= 1 + 1e-12
        if lam > 0:
            np.testing.assert_allclose(weights, p, atol=2e-6)


@pytest.mark.parametrize("regularizer", ["kl", "quadratic"])
@pytest.mark.parametrize("constraint", ["simplex", "capped"])
def test_the_gradient_is_the_weights(regularizer, constraint):
    logits, target = random_batch()
    logits.requires_grad_()
    options = {"regularizer": regularizer, "constraint": constraint, "k": 2, "lam": 0.7, "margin": 0.2}
    lh.functional.ldr(logits, target, **options, reduction="sum").backward()
    weights = lh.functional.ldr_weights(logits.detach(), target, **options)
    label = torch.nn.functional.one_hot(target, logits.shape[1])
    torch.testing.assert_close(logits.grad, weights - label * weights.sum(-1, keepdim=True))


def test_members_of_the_family():
    logits, target = random_batch()
    f = lh.functional
    same = torch.testing.assert_close
    ldr_kl = f.ldr_kl(logits, target, normalize=None, reduction="none")
    same(f.ldr(logits, target, margin=0.1, reduction="none"), ldr_kl)
    same(f.ldr(logits, target, lam=0.0, margin=1.0), f.cs(logits, target))
    same(f.ldr(logits, target, lam=0.0, constraint="capped", k=2, margin=1.0), f.topk_svm(logits, target))
    same(f.ldr(logits, target, constraint="capped", k=2, margin=0.1), f.ldr_k_kl(logits, target))
    same(f.ldr(logits, target, regularizer="quadratic", margin=0.1), f.ldr_quadratic(logits, target))
    same(f.topk_svm(logits, target, k=1), f.cs(logits, target))
    assert not torch.allclose(f.ldr_k_kl(logits, target, k=1), ldr_kl.mean())
    same(f.ldr_weights(logits, target, lam=math.inf), torch.full_like(logits, 1 / 6))


def test_hyperparameters_per_sample_are_samples_with_their_own_hyperparameter():
    logits, target = random_batch(6)
    lam, k = torch.tensor([0.0, 0.1, 1.0, 3.0, math.inf, 1.0]), torch.tensor([1, 2, 3, 4, 5, 6])
    both = lh.functional.ldr_quadratic(logits, target, lam=lam, k=k, reduction="none")
    for i in range(6):
        alone = lh.functional.ldr_quadratic(logits[i], target[i], lam=lam[i].item(), k=k[i].item())
        torch.testing.assert_close(both[i], alone)


def test_many_classes_stay_on_the_constraint():
    logits = 50 * torch.randn(3, 20_000, generator=torch.Generator().manual_seed(0))
    for regularizer in ("kl", "quadratic"):
        p = lh.functional.ldr_weights(
            logits, torch.tensor([0, 1, 2]), regularizer=regularizer, constraint="capped", k=100
        )
        torch.testing.assert_close(p.sum(-1), torch.ones(3))
        assert p.max() <= 0.01 + 1e-8


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"regularizer": "l2"}, "regularizer must be 'kl' or 'quadratic', got 'l2'"),
        ({"constraint": "ball"}, "constraint must be 'simplex' or 'capped', got 'ball'"),
        ({"constraint": "capped", "lam": math.inf}, r"lam must be finite"),
        ({"constraint": "capped", "k": 7}, r"k must be an integer in \[1, 6\]"),
        ({"constraint": "capped", "k": 1.5}, r"k must be an integer in \[1, inf\), got 1.5"),
    ],
)
def test_errors(options, message):
    with pytest.raises(ValueError, match=message):
        lh.functional.ldr(*random_batch(), **options)
    if "k must" not in message or "inf" in message:
        with pytest.raises(ValueError, match=message):
            lh.LDRLoss(**options)(*random_batch())
