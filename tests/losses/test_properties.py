"""What holds for every loss of the registry, and what each claims of itself."""

import math

import pytest
import torch

import labelhedge as lh
from tests.losses.cases import CASES, IDS, NAMES, random_batch, values

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
every_case = pytest.mark.parametrize(("name", "params"), CASES, ids=IDS)


@every_case
def test_gradient(name, params):
    logits, target = random_batch(5)
    logits.requires_grad_()
    assert torch.autograd.gradcheck(lambda f: values(name, f, target, **params), logits)


@every_case
def test_second_derivative(name, params):
    if name == "aldr-kl" and not math.isinf(params.get("lambda0", 1.0)):
        return  # λ is held constant: see its docstring
    logits, target = random_batch(3, 4)
    logits.requires_grad_()
    assert torch.autograd.gradgradcheck(lambda f: values(name, f, target, **params), logits)


@every_case
def test_shift_invariance_without_a_normaliser(name, params):
    logits, target = random_batch()
    params = params | {"normalize": None}
    shifted = logits + torch.randn(len(logits), 1, dtype=torch.float64)
    torch.testing.assert_close(values(name, shifted, target, **params), values(name, logits, target, **params))


@every_case
def test_the_order_of_the_classes_is_immaterial(name, params):
    logits, target = random_batch()
    logits.requires_grad_()
    order = torch.randperm(logits.shape[1], generator=torch.Generator().manual_seed(1))
    permuted = values(name, logits[:, order], order.argsort()[target], **params)
    plain = values(name, logits, target, **params)
    torch.testing.assert_close(permuted, plain)
    gradients = [torch.autograd.grad(loss.sum(), logits)[0] for loss in (permuted, plain)]
    torch.testing.assert_close(*gradients)


@every_case
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_finite_at_extreme_and_at_zero_logits(name, params, dtype):
    rows = [
        [1e4, -1e4, 0, 3],
        [-1e4, -1e4, -1e4, -1e4],
        [1e4, 1e4, 1e4, 1e4],
        [0, 0, 0, 0],
        [1e4, 0, 0, 0],
        [0, 0, 0, -1e4],
    ]
    logits = torch.tensor(rows, dtype=dtype).repeat_interleave(4, 0).requires_grad_()
    target = torch.arange(4).repeat(len(rows))
    losses = values(name, logits, target, **params)
    assert losses.isfinite().all()
    assert losses.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    (gradient,) = torch.autograd.grad(losses.mean(), logits)
    assert gradient.isfinite().all()
    assert gradient.dtype == dtype


@pytest.mark.parametrize("name", NAMES)
def test_finite_with_very_many_classes(name):
    logits = torch.randn(2, 100_000, generator=torch.Generator().manual_seed(0), requires_grad=True)
    loss = lh.losses.create(name)(logits, torch.tensor([3, 99_999]))
    loss.backward()
    assert loss.isfinite()
    assert logits.grad.isfinite().all()


@pytest.mark.parametrize("name", [n for n in NAMES if lh.losses.get(n).symmetric_at is not None])
def test_claimed_symmetry(name):
    """The sum over labels does not depend on the logits."""
    totals = []
    for seed in range(6):
        logits, _ = random_batch(1, 5, scale=seed + 0.5, seed=seed)
        losses = values(name, logits.expand(5, 5), torch.arange(5), **lh.losses.get(name).symmetric_at)
        totals.append(losses.sum())
    torch.testing.assert_close(torch.stack(totals), totals[0].expand(6))


@pytest.mark.parametrize("name", [n for n in NAMES if lh.losses.get(n).symmetric_at is None])
def test_no_symmetry_where_none_is_claimed(name):
    totals = []
    for scale in (0.5, 3.0):
        logits, _ = random_batch(1, 5, scale=scale)
        totals.append(values(name, logits.expand(5, 5), torch.arange(5), normalize=None).sum())
    assert abs(totals[0] - totals[1]) > 1e-3


@every_case
def test_claimed_sign_and_bound(name, params):
    spec = lh.losses.get(name)
    logits, target = random_batch(400, 4, scale=30.0)
    losses = values(name, logits, target, **params)
    if spec.nonnegative:
        assert losses.min() >= -1e-12
    if spec.bounded and params.get("q") != 0:
        zero = values(name, torch.zeros(1, 4, dtype=torch.float64), torch.tensor([0]), **params)
        assert losses.abs().max() <= 50 * zero.abs() + 50


@pytest.mark.parametrize("name", [n for n in NAMES if not lh.losses.get(n).nonnegative])
def test_losses_that_may_be_negative_are(name):
    logits = torch.tensor([[9.0, 0.0, -9.0]], dtype=torch.float64)
    assert values(name, logits, torch.tensor([0])) < 0


@every_case
def test_class_weights_multiply(name, params):
    logits, target = random_batch()
    weight = torch.tensor([0.0, 0.5, 1.0, 2.0, 3.0, 0.25], dtype=torch.float64)
    plain = values(name, logits, target, **params)
    torch.testing.assert_close(values(name, logits, target, weight=weight, **params), plain * weight[target])
    mean = lh.losses.create(name, weight=weight, **params)(logits, target)
    torch.testing.assert_close(mean, (plain * weight[target]).sum() / weight[target].sum())


@every_case
@pytest.mark.parametrize("ignore_index", [-100, 2])
def test_ignored_targets_are_as_if_absent(name, params, ignore_index):
    logits, target = random_batch(12)
    target[[1, 4, 5]] = ignore_index
    kept = target != ignore_index
    logits.requires_grad_()
    options = params | {"ignore_index": ignore_index}
    losses = values(name, logits, target, **options)
    assert (losses[~kept] == 0).all()
    torch.testing.assert_close(losses[kept], values(name, logits[kept], target[kept], **params))
    mean = lh.losses.create(name, **options)(logits, target)
    torch.testing.assert_close(mean, lh.losses.create(name, **params)(logits[kept], target[kept]))
    (gradient,) = torch.autograd.grad(mean, logits)
    assert (gradient[~kept] == 0).all()


@pytest.mark.parametrize("name", [n for n in NAMES if lh.losses.get(n).soft_targets])
def test_class_probabilities_give_the_expected_loss(name):
    logits, _ = random_batch(5, 4)
    t = torch.rand(5, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64).softmax(-1)
    per_label = torch.stack([values(name, logits, torch.full((5,), y)) for y in range(4)], -1)
    torch.testing.assert_close(values(name, logits, t), (t * per_label).sum(-1))


@pytest.mark.parametrize("name", [n for n in NAMES if not lh.losses.get(n).soft_targets])
def test_class_probabilities_without_a_reading_are_refused(name):
    logits, _ = random_batch()
    with pytest.raises(ValueError, match=f"target must be class indices for {name}"):
        lh.losses.create(name)(logits, logits.softmax(-1))


@every_case
def test_normaliser_and_temperature_are_the_same_for_all(name, params):
    logits, target = random_batch()
    plain = {k: v for k, v in params.items() if k not in ("normalize", "temperature")} | {"normalize": None}
    l1 = logits / logits.abs().mean(-1, keepdim=True)
    softplus = torch.nn.functional.softplus(logits)
    softplus = softplus / softplus.mean(-1, keepdim=True)
    for normalize, scaled in ((None, logits), ("l1", l1), ("softplus", softplus)):
        actual = values(name, logits, target, **plain | {"normalize": normalize, "temperature": 0.4})
        torch.testing.assert_close(actual, values(name, scaled / 0.4, target, **plain))


@every_case
def test_hyperparameters_as_tensors(name, params):
    """A tensor per sample gives each sample its own; a stack of networks takes one per network."""
    spec = lh.losses.get(name)
    logits, target = random_batch(6)
    tuned = {k: v for k, v in params.items() if k in spec.domains and k != "k"}
    for hyperparameter, other in tuned.items():
        first = spec.defaults[hyperparameter]
        if first is None:
            continue
        each = torch.tensor([[first], [other]], dtype=torch.float64)
        stack = values(
            name,
            logits.expand(2, 6, 6),
            target.expand(2, 6),
            class_dim=-1,
            **params | {hyperparameter: each},
        )
        for row, value in zip(stack, (first, other), strict=True):
            torch.testing.assert_close(row, values(name, logits, target, **params | {hyperparameter: float(value)}))
