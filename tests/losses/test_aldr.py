"""ALDR-KL: the exact λ, Algorithm 1, and the two ways of computing the loss."""

import gc
import math
import weakref

import pytest
import torch

import labelhedge as lh
from labelhedge.losses import _cpu as cpu
from labelhedge.losses._adaptive import fixed_point_step, global_maximum
from labelhedge.losses._few_rows import FewRows
from labelhedge.losses.ldr import log_mean_exp
from tests.losses.cases import random_batch
from tests.losses.oracles import aldr_lambda as oracle_lambda

F = lh.functional


def spiked(classes, heights):
    """Rows of zeros with one class that stands out."""
    logits = torch.zeros(len(heights), classes, dtype=torch.float64)
    logits[:, 1] = heights
    return logits


def clustered(classes, rows, seed=0):
    """A few classes above a few more above the rest: the shapes that give several local maxima."""
    generator = torch.Generator().manual_seed(seed)
    logits = 0.3 * torch.randn(rows, classes, generator=generator, dtype=torch.float64)
    for row in logits:
        share, lift, top = torch.rand(3, generator=generator).tolist()
        row[: max(1, int(0.3 * classes**share))] += 8 * lift
        row[0] += 8 * top
    return logits


def objective(q, lam, lambda0, alpha):
    return log_mean_exp(q, lam) - alpha / 2 * (lam - lambda0) ** 2


HARD = [
    pytest.param(spiked(200, torch.linspace(4.25, 4.45, 201)), 1.0, None, id="K=200"),
    pytest.param(spiked(1000, torch.linspace(5.1, 5.65, 276)), 1.0, None, id="K=1000"),
    pytest.param(spiked(1000, 10 * torch.linspace(5.1, 5.65, 56)), 10.0, None, id="K=1000, λ0=10"),
    pytest.param(clustered(1000, 100), 1.0, None, id="clusters"),
    pytest.param(clustered(1000, 60), 1.0, 1.02 * math.log(1000), id="clusters, λ down to 0.02 λ0"),
    pytest.param(clustered(1000, 60), 1.0, 0.6 * math.log(1000), id="clusters, λ down to 0"),
    pytest.param(clustered(3, 60), 10.0, 0.05, id="the paper's synthetic study"),
]


@pytest.mark.parametrize(("logits", "lambda0", "alpha"), HARD)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_exact_is_the_global_maximum(logits, lambda0, alpha, dtype):
    """No λ of a dense grid does better, where iterating from λ0 often ends below."""
    target = torch.zeros(len(logits), dtype=torch.long)
    options = {"lambda0": lambda0, "alpha": alpha, "margin": 0.1, "normalize": None}
    strength = 2 * math.log(logits.shape[1]) / lambda0 if alpha is None else alpha
    lam = F.aldr_lambda(logits.to(dtype), target, **options).double()
    q = (logits - logits[:, :1] + 0.1).index_fill(1, torch.tensor(0), 0.0)
    reached = objective(q, lam[:, None], lambda0, strength)
    best = torch.stack([objective(q, s, lambda0, strength) for s in torch.linspace(0, lambda0, 1001).tolist()]).amax(0)
    assert (best - reached).max() <= 1e-9 * lambda0
    if dtype == torch.float64:
        losses = F.aldr_kl(logits, target, **options, reduction="none")
        torch.testing.assert_close(losses, reached[:, 0], rtol=1e-10, atol=1e-10)
        step = F.aldr_lambda(logits, target, **options, start=lam)
        torch.testing.assert_close(step, lam, rtol=1e-9, atol=1e-9)


def test_iterating_from_lambda0_misses_the_maximum_where_the_notes_say():
    logits = spiked(1000, torch.linspace(5.22, 5.53, 32))
    target = torch.zeros(32, dtype=torch.long)
    options = {"margin": 0.0, "normalize": None}
    lam = torch.ones(32, dtype=torch.float64)
    for _ in range(2000):
        lam = F.aldr_lambda(logits, target, **options, start=lam)
    exact = F.aldr_kl(logits, target, **options, reduction="none")
    iterated = F.aldr_kl(logits, target, **options, lam=lam, reduction="none")
    assert (exact - iterated > 1e-6).sum() == 13


@pytest.mark.parametrize("options", [{}, {"lambda0": 10.0}, {"alpha": 0.05, "lambda0": 10.0}, {"normalize": None}])
def test_lambda_against_brute_force(options):
    logits, target = random_batch(6, 8, scale=4.0)
    expected = [oracle_lambda(row.tolist(), int(y), **options) for row, y in zip(logits, target, strict=True)]
    expected = torch.tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(F.aldr_lambda(logits, target, **options), expected, rtol=1e-9, atol=1e-9)


def test_lambda_stays_in_the_papers_range_and_is_high_for_the_undecided():
    logits = torch.tensor([[0.0, 0.0, 0.0, 0.0], [50.0, 0.0, 0.0, 0.0]])
    lam = F.aldr_lambda(logits, torch.tensor([1, 0]), normalize=None)
    assert lam[0] > 0.99
    assert lam[1] == pytest.approx(0.5, abs=1e-3)


def test_one_step_of_algorithm_1():
    logits, target = random_batch()
    start = torch.linspace(0.5, 1, 8, dtype=torch.float64)
    q = (logits - logits.gather(1, target[:, None]) + 0.1).scatter(1, target[:, None], 0.0)
    p = (q / start[:, None]).softmax(-1)
    kl = (p * (6 * p).log()).sum(-1)
    expected = 1 - kl / (2 * math.log(6))
    torch.testing.assert_close(F.aldr_lambda(logits, target, start=start, normalize=None), expected)
    small_alpha = F.aldr_lambda(logits, target, start=start, normalize=None, alpha=0.1)
    torch.testing.assert_close(small_alpha, (1 - kl / 0.1).clamp(min=0))
    lam = torch.full((8,), 0.7)
    loss = F.aldr_kl(logits, target, lam=lam, normalize=None)
    torch.testing.assert_close(loss, F.ldr_kl(logits, target, lam=0.7, normalize=None) - math.log(6) * 0.3**2)


@pytest.mark.parametrize("kept", [torch.bfloat16, torch.float64], ids=str)
def test_the_type_of_what_is_kept_does_not_decide_that_of_the_loss(kept):
    logits, target = random_batch()
    logits = logits.float()
    index = torch.arange(len(logits))
    wanted = lh.ALDRKLLoss(num_samples=len(logits))
    criterion = lh.ALDRKLLoss(num_samples=len(logits)).to(kept)
    leaf = logits.clone().requires_grad_()
    loss = criterion(leaf, target, index)
    loss.backward()
    assert (loss.dtype, leaf.grad.dtype, criterion.lam.dtype) == (torch.float32, torch.float32, kept)
    torch.testing.assert_close(loss, wanted(logits, target, index), rtol=1e-6, atol=0.0)
    torch.testing.assert_close(criterion.lam, wanted.lam.to(kept), rtol=1e-6, atol=0.0)


def test_autocast_takes_no_digits_from_the_exact_lambda():
    logits, target = random_batch(rows=2000, classes=50, scale=5.0)
    logits = logits.float()
    wanted = F.aldr_lambda(logits, target)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(F.aldr_lambda(logits, target), wanted)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_steps_from_zero_and_from_infinity(dtype):
    logits, target = random_batch()
    logits = logits.to(dtype)
    step = F.aldr_lambda(logits, target, start=torch.tensor([0.0, math.inf] * 4))
    torch.testing.assert_close(step, torch.tensor([0.5, 1.0] * 4, dtype=dtype))
    assert F.aldr_lambda(logits, target, lambda0=math.inf).isinf().all()
    assert F.aldr_lambda(logits, target, lambda0=math.inf, start=torch.full((8,), math.inf)).isinf().all()


OPTIONS = [
    {},
    {"normalize": None},
    {"normalize": "softplus"},
    {"temperature": 0.3},
    {"margin": torch.linspace(0, 1, 6)},
    {"weight": torch.linspace(0, 2, 6)},
    {"ignore_index": 1},
    {"reduction": "sum"},
    {"reduction": "none"},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("rows", [7, 300])
def test_all_at_once_is_the_plain_formula(options, dtype, rows, monkeypatch):
    """Value and gradient, also when the rows are split into blocks."""
    monkeypatch.setattr(cpu, "BLOCK", 600)
    monkeypatch.setattr(FewRows, "loss", lambda *arguments: None)  # which has tests of its own
    logits, target = random_batch(rows)
    lam = torch.linspace(0.6, 1.0, rows)

    def both(function, **arguments):
        copy = logits.to(dtype).requires_grad_()
        loss = function(copy, target, **arguments, **options)
        return loss.detach(), torch.autograd.grad(loss.sum(), copy)[0]

    for function, arguments in ((F.ldr_kl, {"lam": lam}), (F.aldr_kl, {}), (F.aldr_kl, {"lam": lam})):
        with monkeypatch.context() as patch:
            fast = both(function, **arguments)
            patch.setattr(cpu, "_is_ordinary", lambda batch: False)
            plain = both(function, **arguments)
        torch.testing.assert_close(fast, plain)
    assert cpu.serves_lambda(lh.LDRKLLoss()._prepared(logits, target), 1.0, 1.0)


def test_memory_is_freed_with_the_graph():
    """No reference cycles, and the logits go when backward is done even if the loss stays."""
    leaf, target = random_batch()
    logits = leaf.requires_grad_() * 1
    while gc.collect():  # what other tests left behind, some of which frees more
        pass
    gc.disable()
    try:
        alive = weakref.ref(logits)
        loss = lh.ALDRKLLoss()(logits, target)
        loss.backward()
        del logits
        assert alive() is None
        del loss
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_the_gradient_that_is_handed_out_is_not_shared():
    logits, target = random_batch()
    logits.requires_grad_()
    loss = lh.ALDRKLLoss()(logits, target)
    first = torch.autograd.grad(loss, logits, torch.tensor(2.0).double(), retain_graph=True)[0]
    kept = first.clone()
    second = torch.autograd.grad(loss, logits, retain_graph=True)[0]
    second += 1
    assert torch.equal(first, kept)
    torch.testing.assert_close(torch.autograd.grad(loss, logits)[0], kept / 2)
    jacobian = torch.autograd.functional.jacobian(lambda f: lh.functional.aldr_kl(f, target), logits, vectorize=True)
    torch.testing.assert_close(jacobian, kept / 2)


def test_stacked_networks_with_their_own_lambda0_and_alpha():
    logits, target = random_batch(6)
    lambda0, alpha = torch.tensor([[0.1], [1.0], [10.0]]), torch.tensor([[40.0], [0.5], [0.2]])
    stack = F.aldr_kl(
        logits.expand(3, 6, 6), target.expand(3, 6), lambda0=lambda0, alpha=alpha, class_dim=-1, reduction="none"
    )
    for row, one, other in zip(stack, lambda0, alpha, strict=True):
        alone = F.aldr_kl(logits, target, lambda0=one.item(), alpha=other.item(), reduction="none")
        torch.testing.assert_close(row, alone, rtol=1e-6, atol=1e-6)


def test_gradient_of_the_hyperparameters():
    """By the envelope theorem: ∂/∂λ0 = α(λ - λ0), ∂/∂α = -(λ - λ0)²/2; for LDR-KL ∂/∂λ = -KL."""
    logits, target = random_batch()
    lambda0, alpha = (torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (1.0, 4.0))
    F.aldr_kl(logits, target, lambda0=lambda0, alpha=alpha, reduction="sum").backward()
    excess = F.aldr_lambda(logits, target, lambda0=1.0, alpha=4.0) - 1
    torch.testing.assert_close(lambda0.grad, (4 * excess).sum())
    torch.testing.assert_close(alpha.grad, -(excess**2 / 2).sum())
    lam = torch.full((8,), 0.7, dtype=torch.float64, requires_grad=True)
    F.ldr_kl(logits, target, lam=lam, reduction="sum").backward()
    kl = 1 - F.aldr_lambda(logits, target, start=lam.detach(), alpha=1.0, lambda0=1.0)
    inside = kl < 1  # where the step was not cut at 0
    torch.testing.assert_close(-lam.grad[inside], kl[inside])
    assert inside.any()


def test_functions_of_the_inner_problem_agree():
    q, _ = random_batch(5, 9)
    x = q - q.amax(-1, keepdim=True)
    lam = global_maximum(x, 1.0, None, x.shape[-1])
    torch.testing.assert_close(fixed_point_step(x, lam, 1.0, None, x.shape[-1]), lam)
    assert [state.name for state in lh.ALDRKLLoss.spec.state] == ["lam"]
