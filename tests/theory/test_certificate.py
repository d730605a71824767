import itertools

import pytest
import torch

import labelhedge as lh
from labelhedge.theory import UnsoundLossError, certify
from labelhedge.theory.calibration import preserves
from labelhedge.theory.subject import Subject

PLAIN = {"normalize": None}
LITERATURE = [
    # loss, options, top-1, top-2, top-3, symmetric
    ("ce", {}, "holds", "holds", "holds", "fails"),
    ("cs", {}, "fails", "fails", "fails", "fails"),
    ("ww", {}, "fails", "fails", "fails", "fails"),
    ("mae", {}, "holds", "fails", "fails", "holds"),
    ("rll", {}, "holds", "fails", "fails", "holds"),
    ("gce", {"q": 0.7}, "holds", "holds", "holds", "fails"),
    ("gce", {"q": 0.95}, "holds", "holds", "holds", "fails"),
    ("sce", {"alpha": 0.05}, "holds", "holds", "holds", "fails"),
    ("mse", {}, "holds", "holds", "holds", "fails"),
    ("agce", {}, "holds", "fails", "fails", "fails"),
    ("ldr-kl", {"lam": 0.1, **PLAIN}, "holds", "holds", "holds", "fails"),
    ("ldr-kl", {"lam": 10.0, **PLAIN}, "holds", "holds", "holds", "fails"),
    ("ldr-k-kl", {}, "holds", "holds", "holds", "fails"),
    ("ldr-quadratic", {}, "holds", "holds", "holds", "fails"),
]


def found(id, classes=4, ball=None, **options):
    return certify(lh.losses.create(id, reduction="none", **options), classes=classes, ball=ball)


@pytest.mark.parametrize(("id", "options", "top1", "top2", "top3", "symmetric"), LITERATURE)
def test_verdicts_agree_with_the_literature(id, options, top1, top2, top3, symmetric):
    certificate = found(id, **options)
    names = ("top-1 calibrated", "top-2 calibrated", "top-3 calibrated", "symmetric")
    assert [certificate[name].outcome for name in names] == [top1, top2, top3, symmetric]
    holds_everywhere = {top1, top2, top3} == {"holds"}
    assert certificate["rank preserving"].outcome == ("holds" if holds_everywhere else "fails")
    for k in (1, 2, 3):
        verdict = certificate[f"top-{k} calibrated"]
        if verdict.outcome == "fails":
            assert_counterexample(id, options, k, verdict.case)


def assert_counterexample(id, options, k, case):
    """It is not top-k preserving, and no prediction of a fine grid has a smaller expected loss."""
    q, f = (torch.tensor(case[name], dtype=torch.float64) for name in ("q", "f"))
    assert not preserves(f, q, k)
    subject = Subject(lh.losses.create(id, reduction="none", **options), 4)
    own = subject.expected(f.unsqueeze(0), q)
    grid = torch.tensor(list(itertools.product((-60, -2, -1, -0.5, 0, 0.5, 1, 2, 60), repeat=4)), dtype=torch.float64)
    assert own <= subject.expected(grid, q).min() + 1e-12


def test_nce_is_not_top_1_calibrated():
    """The values add up to 1, so the infimum is the smallest q; a wrong class may come first on the way there."""
    verdict = found("nce")["top-1 calibrated"]
    assert verdict.outcome == "fails"
    q = torch.tensor([0.4, 0.3, 0.2, 0.1], dtype=torch.float64)
    t = 1e9
    f = torch.tensor([[t, t + 1, t, 0.0]], dtype=torch.float64)
    expected = Subject(lh.losses.create("nce", reduction="none"), 4).expected(f, q)
    assert 0 <= expected.item() - 0.1 < 1e-8
    assert not preserves(f[0], q, 1)


def test_the_same_seed_gives_the_same_certificate():
    assert found("sce") == found("sce")


@pytest.mark.parametrize(
    ("id", "outcomes"),
    [
        ("ce", {"non-negative": "holds", "bounded": "fails", "convex": "holds", "smooth": "holds"}),
        ("ww", {"non-negative": "holds", "bounded": "fails", "convex": "holds", "smooth": "fails"}),
        ("mae", {"non-negative": "holds", "bounded": "holds", "convex": "fails", "noise-tolerant": "holds"}),
        ("rll", {"non-negative": "fails", "bounded": "holds", "convex": "fails", "noise-tolerant": "holds"}),
        ("mse", {"bounded": "holds", "shift-invariant": "holds", "noise-tolerant": "fails"}),
        ("aldr-kl", {"non-negative": "fails", "shift-invariant": "fails", "class-symmetric": "holds"}),
    ],
)
def test_other_properties(id, outcomes):
    certificate = found(id)
    assert {name: certificate[name].outcome for name in outcomes} == outcomes


@pytest.mark.parametrize(("id", "options", "constant"), [("ce", {}, 0.5), ("ldr-kl", {"lam": 0.25, **PLAIN}, 2.0)])
def test_the_smoothness_constant(id, options, constant):
    """The Hessian of cross entropy has a norm of 1/2 where two classes share all; temperature λ divides it by λ."""
    assert 0.999 * constant < found(id, **options)["smooth"].case["constant"] <= constant * (1 + 1e-6)


# what is not a loss
def ce(logits, target):
    return -logits.log_softmax(-1).gather(-1, target.unsqueeze(-1)).squeeze(-1)


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (lambda f, y: ce(f, y).mean(), r"one value per sample, \(16,\) for 16 samples, got \(\)"),
        (lambda f, y: ce(f, y).unsqueeze(1), r"got \(16, 1\)"),
        (lambda f, y: 3.0, "got float"),
        (lambda f, y: ce(f, y).detach(), "no gradient: it is detached"),
        (lambda f, y: ce(f, y).detach() + 0 * f.sum(-1), "the gradient is not that of the value"),
        (lambda f, y: ce(f, y) + torch.rand(1, dtype=f.dtype), "not deterministic"),
        (lambda f, y: ce(f, y) * torch.nan, "the loss is nan for logits"),
        (lambda f, y: ce(f, y) - ce(f, y).mean(), "depends on the other samples"),
        (lambda f, y: ce(f.float(), y), "must keep float64"),
        (lambda f, y: f[:, 99], "the loss raises IndexError"),
    ],
)
def test_what_is_not_a_loss_is_refused(loss, message):
    with pytest.raises(UnsoundLossError, match=message):
        certify(loss)


def test_a_sign_error_is_found():
    certificate = certify(lambda f, y: -ce(f, y))
    assert certificate["top-1 calibrated"].outcome == "fails"
    assert "no lower bound" in certificate["top-1 calibrated"].evidence
    assert certificate["non-negative"].outcome == "fails"


def test_a_class_left_out_of_the_sum_is_found():
    def without_the_last(f, y):
        return f[:, :-1].logsumexp(-1) - f.gather(-1, y.unsqueeze(-1)).squeeze(-1)

    certificate = certify(without_the_last)
    assert certificate["class-symmetric"].outcome == "fails"
    assert certificate["top-1 calibrated"].outcome == "fails"


def test_a_class_that_counts_more_is_found():
    """The first class is also the likeliest in the distributions as they come: others must lead, too."""
    weight = torch.tensor([3.0, 1.0, 1.0], dtype=torch.float64)
    certificate = certify(lambda f, y: weight[y] * ce(f, y), classes=3)
    assert certificate["class-symmetric"].outcome == "fails"
    assert certificate["top-1 calibrated"].outcome == "fails"
