"""The paper's theorems on LDR losses, in its order: where they hold, and what happens outside their conditions."""

import math

import numpy as np
import pytest
import torch

import labelhedge as lh
from examples import symmetric_and_calibrated
from labelhedge.theory import certify
from labelhedge.theory.calibration import distributions, gaps
from labelhedge.theory.subject import examine
from tests.losses.oracles import convex_solver_ldr

PLAIN = {"normalize": None}


def subject(id, classes, ball=None, **options):
    return examine(lh.losses.create(id, reduction="none", **options), classes, ball=ball)


def smallest_gap(id, classes, q_rows=None, **options):
    """The distribution and k where a prediction that is not top-k preserving comes closest to the minimum."""
    found = gaps(subject(id, classes, **options), distributions(classes) if q_rows is None else q_rows)
    return min(found, key=lambda gap: gap.size)


@pytest.mark.parametrize("lam", [0.05, 0.5, 1.0, 10.0, 100.0])
@pytest.mark.parametrize("margin", [0.0, 0.1, 3.0])
def test_theorem_1_equal_margins(lam, margin):
    assert smallest_gap("ldr-kl", 3, lam=lam, margin=margin, **PLAIN).size > 1e-9


def test_theorem_1_needs_equal_margins():
    unequal = torch.tensor([0.0, 1.0, 2.0], dtype=torch.float64)
    q = torch.tensor([[0.34, 0.335, 0.325]], dtype=torch.float64)
    minimizer = smallest_gap("ldr-kl", 3, q, lam=1.0, margin=unequal, **PLAIN).minimizer
    assert minimizer[2] > minimizer[0], "the class with the widest margin comes first though it is the least likely"
    certificate = certify(lh.losses.create("ldr-kl", reduction="none", margin=unequal, **PLAIN), classes=3)
    assert certificate["class-symmetric"].outcome == "fails"
    assert certificate["top-1 calibrated"].outcome == "fails"


@pytest.mark.parametrize("lam", [0.1, 1.0, 10.0])
@pytest.mark.parametrize(
    ("id", "options"),
    [
        ("ldr-kl", PLAIN),
        ("ldr-k-kl", {"k": 1}),
        ("ldr-k-kl", {"k": 2}),
        ("ldr-quadratic", {}),
        ("ldr-quadratic", {"k": 1}),
        ("ldr-quadratic", {"k": 2}),
    ],
)
def test_theorem_2_kl_and_quadratic_on_the_simplex_and_capped(id, options, lam):
    assert smallest_gap(id, 3, lam=lam, **options).size > 1e-9


def test_theorem_2_needs_a_regularizer():
    """λ = 0 is the top-k SVM, which is not calibrated."""
    assert smallest_gap("topk-svm", 3, k=2).size < 1e-13


def test_theorem_3_needs_a_ball():
    free, confined = (
        certify(lh.losses.create("ldr-kl", reduction="none", lam=math.inf, **PLAIN), ball=ball) for ball in (None, 5.0)
    )
    assert free["symmetric"].outcome == confined["symmetric"].outcome == "holds"
    for k in (1, 2, 3):
        assert free[f"top-{k} calibrated"].outcome == "fails"
        assert "no lower bound" in free[f"top-{k} calibrated"].evidence
        assert confined[f"top-{k} calibrated"].outcome == "holds"


def test_theorem_4_is_false_as_stated():
    certificate = certify(symmetric_and_calibrated.loss)
    names = ("symmetric", "non-negative", "top-1 calibrated", "top-2 calibrated", "top-3 calibrated", "rank preserving")
    assert {certificate[name].outcome for name in names} == {"holds"}


def test_theorem_5_above_its_bound():
    """log K/λ0 < α, and c = 0."""
    for lambda0 in (1.0, 10.0):
        alpha = 1.05 * math.log(3) / lambda0
        assert smallest_gap("aldr-kl", 3, lambda0=lambda0, alpha=alpha, margin=0.0, **PLAIN).size > 1e-9


@pytest.mark.parametrize("classes", [3, 4, 5])
@pytest.mark.parametrize("lambda0", [1.0, 10.0])
def test_theorem_5_far_below_its_bound(classes, lambda0):
    """Two classes that lead together drive λ to 0 if α ≤ log(K/2)/λ0: then a tie is as good as the certain class."""
    certain = torch.eye(classes, dtype=torch.float64)[:1]
    bound = math.log(classes / 2) / lambda0
    below, above = (
        smallest_gap("aldr-kl", classes, certain, lambda0=lambda0, alpha=factor * bound, margin=0.0, **PLAIN)
        for factor in (0.95, 1.2)
    )
    assert below.size < 1e-13 * lambda0
    assert below.smallest == pytest.approx(-0.95 * bound / 2 * lambda0**2)
    assert above.size > 1e-6


def test_theorem_5_with_an_infinite_temperature():
    options = {"lambda0": math.inf, "margin": 0.0, **PLAIN}
    assert smallest_gap("aldr-kl", 3, ball=5.0, **options).size > 1e-9
    logits = torch.randn(50, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    sums = subject("aldr-kl", 3, **options).values(logits).sum(-1)
    torch.testing.assert_close(sums, torch.zeros(50, dtype=torch.float64), rtol=0, atol=1e-12)


@pytest.mark.parametrize("seed", range(40))
def test_theorem_6_against_a_convex_solver(seed):
    random = np.random.default_rng(seed)
    classes = int(random.integers(3, 9))
    k = int(random.integers(1, classes + 1))
    lam = float(random.choice([0.1, 1.0, 10.0]))
    q = random.normal(size=classes) * random.choice([0.3, 3.0])
    value, maximizer = convex_solver_ldr(q, "kl", k, lam)
    printed = weights_as_printed(q, k, lam)
    np.testing.assert_allclose(printed, maximizer, atol=2e-5)
    own = float(printed @ q - lam * (printed * np.log(classes * printed)).sum())
    assert own == pytest.approx(value, abs=1e-8)
    logits = torch.tensor(q - q[0]).unsqueeze(0)  # with label 0 and no margin these are the q of the loss
    shifted, _ = convex_solver_ldr(q - q[0], "kl", k, lam)
    loss = lh.functional.ldr_k_kl(logits, torch.tensor([0]), lam=lam, k=k, margin=0.0)
    assert loss.item() == pytest.approx(shifted, abs=1e-8)


def weights_as_printed(q, k, lam):
    """p(a) of the theorem, for the smallest a that it allows."""
    classes, order = len(q), np.argsort(-q)
    e = np.exp(q[order] / lam - 1)
    for a in range(1, classes + 1):
        p = np.full(classes, 1 / k)
        p[a - 1 :] = e[a - 1 :] * min(1 / classes, (1 - (a - 1) / k) / e[a - 1 :].sum())
        if p[a - 1] <= 1 / k:
            break
    weights = np.empty(classes)
    weights[order] = p
    return weights
