"""NaN logits and masked classes in the kernels, in every layout of rows."""

import math

import pytest
import torch

import labelhedge as lh
from tests.losses.cases import CASES, random_batch

FUSED = [name for name in lh.losses.names() if lh.losses.get(name).closed_form is not None]
WAYS = [(name, {}, "one piece") for name in FUSED]
WAYS += [(name, {"normalize": "l1"}, "long") for name in FUSED]
WAYS += [
    (name, params, layout)
    for name, params in CASES
    if name in ("ldr-kl", "aldr-kl", "nce", "ww") and params
    for layout in ("three pieces", "long")
]


@pytest.fixture
def layout(request, use_layout):
    """Rows held in one piece or three, or read again for every sum."""
    if request.param != "one piece":
        use_layout(16, {"long": 0, "three pieces": 3}[request.param], 1, 1, None)


def values_and_gradients(loss, logits, target):
    logits = logits.clone().requires_grad_()
    values = loss(logits, target)
    values.sum().backward()
    return values.detach().cpu(), logits.grad.cpu()


@pytest.mark.parametrize(("name", "params", "layout"), WAYS, indirect=["layout"])
@pytest.mark.usefixtures("layout")
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of NumPy, in Triton's interpreter
def test_masked_classes_and_a_nan_logit(name, params, device):
    classes = 40
    logits, target = random_batch(5, classes)
    generator = torch.Generator().manual_seed(0)
    absent = torch.rand(5, classes, generator=generator) < 0.4
    absent[:3] = False
    absent.scatter_(1, target[:, None], False)
    logits = logits.masked_fill(absent, -torch.inf)
    logits[1, 3] = math.nan
    fused = lh.losses.create(name, reduction="none", backend="triton", **params)
    plain = lh.losses.create(name, reduction="none", backend="torch", **params)
    values, gradients = values_and_gradients(fused, logits.float().to(device), target.to(device))
    expected, expected_gradients = values_and_gradients(plain, logits, target)
    rest = torch.arange(5) != 1
    assert values[1].isnan()
    torch.testing.assert_close(values[rest].double(), expected[rest], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(gradients[rest].double(), expected_gradients[rest], rtol=1e-4, atol=1e-4)
    assert (gradients[rest][absent[rest]] == 0).all()


@pytest.mark.parametrize(("name", "params", "layout"), WAYS, indirect=["layout"])
@pytest.mark.usefixtures("layout")
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of NumPy, in Triton's interpreter
def test_what_is_ignored_may_be_masked(name, params, device):
    logits, target = random_batch(4, 40)
    target[1] = -100
    fused = lh.losses.create(name, backend="triton", **params)
    plain = lh.losses.create(name, backend="torch", **params)
    expected = values_and_gradients(plain, logits, target)
    for masked in (slice(0, 1), slice(1, 30), slice(0, 40)):
        damaged = logits.clone()
        damaged[1, masked] = -torch.inf
        found = values_and_gradients(fused, damaged.float().to(device), target.to(device))
        torch.testing.assert_close([each.double() for each in found], list(expected), rtol=1e-4, atol=1e-4)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_lambda_outlives_a_row_with_a_nan(device):
    logits, target = random_batch(4, 40)
    loss = lh.ALDRKLLoss(num_samples=4, backend="triton").to(device)
    loss.lam.fill_(0.9)
    logits[2, 5] = math.nan
    loss(logits.float().to(device).requires_grad_(), target.to(device), torch.arange(4, device=device))
    assert loss.lam[2] == 0.9
    assert (loss.lam[[0, 1, 3]] != 0.9).all()
