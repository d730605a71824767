"""Every loss on a CUDA device: the CPU's numbers, and no wait for the device in between."""

import pytest
import torch

import labelhedge as lh
from tests.losses.cases import CASES, IDS, NAMES, random_batch

pytestmark = pytest.mark.gpu


def value_and_gradient(loss, logits, target, *index):
    logits = logits.clone().requires_grad_()
    value = loss(logits, target, *index)
    value.sum().backward()
    return value.detach().cpu(), logits.grad.cpu()


@pytest.fixture
def waiting_is_an_error():
    torch.cuda.set_sync_debug_mode("error")
    yield
    torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize(("name", "params"), CASES, ids=IDS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_the_cpus_numbers(name, params, dtype):
    logits, target = random_batch(50, 11)
    logits = logits.to(dtype)
    loss = lh.losses.create(name, weight=torch.linspace(0.5, 2, 11), ignore_index=3, reduction="none", **params)
    expected = value_and_gradient(loss, logits, target)
    torch.testing.assert_close(value_and_gradient(loss.cuda(), logits.cuda(), target.cuda()), expected)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.usefixtures("waiting_is_an_error")
def test_no_wait_for_the_device(name):
    logits = torch.zeros(8, 6, device="cuda", requires_grad=True)
    target = torch.zeros(8, dtype=torch.long, device="cuda")
    loss = lh.losses.create(name)
    loss(logits, target).backward()


@pytest.mark.parametrize(("loss", "state"), [(lh.ALDRKLLoss, "lam"), (lh.TGCELoss, "keep")])
def test_state(loss, state):
    logits, target = random_batch()
    index = torch.tensor([0, 1, 2, 3, 3, 3, 6, 9])
    here, there = loss(num_samples=10).double(), loss(num_samples=10).double().cuda()
    for _ in range(2):
        expected = value_and_gradient(here, logits, target, index)
        actual = value_and_gradient(there, logits.cuda(), target.cuda(), index.cuda())
        torch.testing.assert_close(actual, expected)
    torch.testing.assert_close(getattr(there, state).cpu(), getattr(here, state))


@pytest.mark.parametrize("name", NAMES)
def test_autocast(name):
    logits, target = random_batch()
    with torch.autocast("cuda", torch.float16):
        value, _ = value_and_gradient(lh.losses.create(name), logits.cuda().half(), target.cuda())
    expected, _ = value_and_gradient(lh.losses.create(name), logits.half().float(), target)
    torch.testing.assert_close(value, expected)


@pytest.mark.parametrize("name", lh.losses.PAPER)
def test_compile(name):
    torch._dynamo.reset()
    logits, target = random_batch(64, 26)
    loss = lh.losses.create(name)
    compiled = torch.compile(loss, fullgraph=True)
    expected = value_and_gradient(loss, logits.float(), target)
    actual = value_and_gradient(compiled, logits.float().cuda(), target.cuda())
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)
