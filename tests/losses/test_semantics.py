"""The semantics of F.cross_entropy: shapes, targets, weights, ignored labels, reductions, and clear errors."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F

import labelhedge as lh
from tests.losses.cases import CASES, IDS, NAMES, function, random_batch

SHAPES = [(7, 5), (5,), (3, 5, 4), (2, 5, 3, 4), (0, 5), (0, 5, 2), (4, 1)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize(("weighted", "ignored", "soft"), list(itertools.product([False, True], repeat=3)))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_ce_is_torchs(shape, reduction, weighted, ignored, soft, dtype):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(shape, generator=generator, dtype=dtype)
    classes = shape[min(1, len(shape) - 1)]
    target = torch.randint(classes, shape[:1] * (len(shape) > 1) + shape[2:], generator=generator)
    options = {"reduction": reduction}
    if weighted:
        options["weight"] = torch.rand(classes, generator=generator, dtype=dtype)
    if soft:
        target = torch.rand(shape, generator=generator, dtype=dtype)
    elif ignored:
        target.flatten()[::3] = -7
        options["ignore_index"] = -7
    ours, theirs = (logits.clone().requires_grad_() for _ in range(2))
    actual, expected = lh.functional.ce(ours, target, **options), F.cross_entropy(theirs, target, **options)
    torch.testing.assert_close(actual, expected, equal_nan=True)
    for loss in (actual, expected):
        loss.sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad, equal_nan=True)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_all_targets_ignored(reduction):
    logits, target = torch.randn(3, 4), torch.full((3,), -100)
    expected = F.cross_entropy(logits, target, reduction=reduction)
    for name in NAMES:
        actual = lh.losses.create(name, reduction=reduction)(logits, target)
        torch.testing.assert_close(actual, expected, equal_nan=True)


@pytest.mark.parametrize("name", NAMES)
def test_layouts_agree(name):
    logits, target = random_batch(24, 5)
    loss = lh.losses.create(name, reduction="none")
    flat = loss(logits, target)
    torch.testing.assert_close(loss(logits[3], target[3]), flat[3])
    image = logits.view(2, 3, 4, 5).permute(0, 3, 1, 2)
    torch.testing.assert_close(loss(image, target.view(2, 3, 4)), flat.view(2, 3, 4))
    stacked = lh.losses.create(name, reduction="none", class_dim=-1)
    torch.testing.assert_close(stacked(logits.view(4, 6, 5), target.view(4, 6)), flat.view(4, 6))
    torch.testing.assert_close(loss(logits.t().contiguous().t(), target), flat)
    torch.testing.assert_close(loss(logits, target.to(torch.int16)), flat)


@pytest.mark.parametrize(("name", "params"), CASES, ids=IDS)
def test_the_meta_device(name, params):
    """Shapes and types without numbers, as those who plan the memory of a training ask for."""
    logits = torch.empty(8, 6, device="meta", requires_grad=True)
    loss = lh.losses.create(name, **params)(logits, torch.empty(8, dtype=torch.long, device="meta"))
    assert (loss.device.type, loss.shape, loss.dtype) == ("meta", (), torch.float32)
    loss.backward()
    assert logits.grad.shape == logits.shape


@pytest.mark.parametrize("name", NAMES)
def test_the_callers_tensors_are_left_alone(name):
    logits, target = random_batch()
    before = logits.clone(), target.clone()
    logits.requires_grad_()
    lh.losses.create(name)(logits, target).backward()
    assert torch.equal(logits, before[0])
    assert torch.equal(target, before[1])


@pytest.mark.parametrize("name", NAMES)
def test_backward_twice_and_upstream_gradients(name):
    logits, target = random_batch()
    logits.requires_grad_()
    losses = lh.losses.create(name, reduction="none")(logits, target)
    upstream = torch.linspace(-1, 2, len(logits), dtype=torch.float64)
    first, second = (torch.autograd.grad(losses, logits, upstream, retain_graph=True)[0] for _ in range(2))
    torch.testing.assert_close(first, second)
    unit = torch.autograd.grad(losses.sum(), logits)[0]
    torch.testing.assert_close(first, unit * upstream[:, None])


@pytest.mark.parametrize("name", NAMES)
def test_empty_batch(name):
    logits = torch.empty(0, 4, requires_grad=True)
    target = torch.empty(0, dtype=torch.long)
    assert lh.losses.create(name, reduction="none")(logits, target).shape == (0,)
    loss = lh.losses.create(name, reduction="sum")(logits, target)
    assert loss == 0
    loss.backward()
    assert lh.losses.create(name)(logits, target).isnan()


LOGITS, TARGET = torch.randn(3, 4), torch.tensor([0, 1, 2])
WRONG_CALLS = [
    (LOGITS.long(), TARGET, {}, TypeError, r"logits must be floating point, got dtype torch\.int64"),
    (torch.tensor(1.0), torch.tensor(0), {}, ValueError, "logits must have a class dimension"),
    (LOGITS, TARGET[:2], {}, ValueError, r"target must have shape \(3,\) .* for logits of shape \(3, 4\), got \(2,\)"),
    (torch.randn(2, 3, 4), torch.zeros(2, 3).long(), {}, ValueError, r"stacked logits .* class_dim=-1"),
    (LOGITS, torch.rand(4, 3), {}, ValueError, r"target must have shape .*\(3, 4\) \(class probabilities\)"),
    (LOGITS, TARGET + 2, {}, ValueError, r"target must be in \[0, 4\) or ignore_index=-100, got 4"),
    (LOGITS, TARGET - 1, {}, ValueError, r"target must be in \[0, 4\) or ignore_index=-100, got -1"),
    (LOGITS, TARGET > 0, {}, TypeError, r"target must be class indices .* got dtype torch\.bool"),
    (LOGITS, LOGITS.softmax(-1), {"ignore_index": 1}, ValueError, "ignore_index must be negative .* got 1"),
    (LOGITS, TARGET, {"weight": torch.ones(3)}, ValueError, r"weight must have shape \(4,\).* got \(3,\)"),
    (LOGITS, TARGET, {"reduction": "avg"}, ValueError, "reduction must be 'none', 'mean' or 'sum', got 'avg'"),
    (LOGITS, TARGET, {"normalize": "l2"}, ValueError, "normalize must be None, 'l1' or 'softplus', got 'l2'"),
    (LOGITS, TARGET, {"temperature": 0.0}, ValueError, r"temperature must be a number in \(0, inf\), got 0.0"),
    (LOGITS, TARGET, {"class_dim": 2}, ValueError, r"class_dim must be in \[-2, 1\], got 2"),
    (LOGITS, TARGET, {"q": math.nan}, ValueError, r"q must be a number in \[0, 1\], got nan"),
    (LOGITS, TARGET, {"q": torch.tensor([0.1, math.nan, 0.5])}, ValueError, r"q must be a number in \[0, 1\], got nan"),
    (LOGITS, TARGET, {"q": 1.5}, ValueError, r"q must be a number in \[0, 1\], got 1.5"),
    (LOGITS, TARGET, {"q": torch.tensor(-0.1)}, ValueError, r"q must be a number in \[0, 1\], got -0.1"),
    (LOGITS, TARGET, {"q": "big"}, TypeError, r"q must be a number in \[0, 1\] or a tensor, got 'big'"),
    (LOGITS, TARGET, {"q": torch.full((2,), 0.5)}, ValueError, r"q must broadcast against target .*\(3,\), got \(2,\)"),
    (LOGITS, TARGET, {"p": 0.5}, TypeError, "gce has no option 'p'; it takes q, weight"),
    (LOGITS[:, :1], TARGET * 0, {}, ValueError, "logits must have at least 2 classes for gce, got 1"),
]


@pytest.mark.parametrize(("logits", "target", "options", "error", "message"), WRONG_CALLS)
def test_wrong_calls_say_what_is_wrong(logits, target, options, error, message):
    with pytest.raises(error, match=message):
        lh.functional.gce(logits, target, **options)
    with pytest.raises(error, match=message):
        lh.GCELoss(**options)(logits, target)


@pytest.mark.parametrize("name", NAMES)
def test_every_hyperparameter_has_a_domain_that_is_enforced(name):
    spec = lh.losses.get(name)
    for hyperparameter, domain in spec.domains.items():
        low, high = domain.bounds
        outside = [math.nan, low - 1, *([low] if domain.text[0] == "(" else [])]
        outside += [high + 1] if math.isfinite(high) else [math.inf] if domain.text[-1] == ")" else []
        for value in outside:
            with pytest.raises((ValueError, TypeError), match=rf"^({hyperparameter} must be |{name} has no option)"):
                lh.losses.create(name, **{hyperparameter: value})
            with pytest.raises((ValueError, TypeError), match=f"^{hyperparameter} must be "):
                function(name)(LOGITS, TARGET, **{hyperparameter: value})


def test_a_margin_of_the_wrong_length():
    with pytest.raises(ValueError, match="margin must have 4 values, one per class, got 3"):
        lh.functional.cs(LOGITS, TARGET, margin=torch.ones(3))


def test_a_margin_per_network():
    logits, target = random_batch(6)
    stack = lh.functional.cs(
        logits.expand(2, 6, 6),
        target.expand(2, 6),
        margin=torch.tensor([[0.1], [10.0]]),
        class_dim=-1,
        reduction="none",
    )
    torch.testing.assert_close(stack[1], lh.functional.cs(logits, target, margin=10.0, reduction="none"))
