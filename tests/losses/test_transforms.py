"""torch.compile, torch.func, autocast, pickle and deepcopy, for every loss."""

import copy
import io
import pickle
import shutil
import subprocess
import sys

import pytest
import torch

import labelhedge as lh
from tests.losses.cases import NAMES, function, random_batch

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler (g++)")


def value_and_gradient(loss, logits, target, *index):
    logits = logits.clone().requires_grad_()
    value = loss(logits, target, *index)
    value.sum().backward()
    return value.detach(), logits.grad


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "options", [{}, {"weight": torch.arange(1.0, 7.0), "ignore_index": 2}], ids=["plain", "weighted"]
)
def test_compile_without_graph_breaks(name, options):
    torch._dynamo.reset()
    loss = lh.losses.create(name, **options)
    batch = random_batch()
    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(value_and_gradient(compiled, *batch), value_and_gradient(loss, *batch))


@pytest.mark.parametrize("name", [n for n in NAMES if len(lh.losses.get(n).grid) > 1])
def test_compile_again_with_other_hyperparameters(name):
    """The compiler then takes numbers as symbols, on which functions of ``math`` break the graph."""
    torch._dynamo.reset()
    spec = lh.losses.get(name)
    batch = random_batch()
    compiled = torch.compile(function(name), backend="aot_eager", fullgraph=True)
    for params in spec.grid:
        torch.testing.assert_close(compiled(*batch, **params), function(name)(*batch, **params))


COMPILE_ALL_FUNCTIONS = """
import torch, labelhedge as lh
logits, target = torch.randn(8, 6), torch.randint(6, (8,))
for name in lh.functional.__all__:
    function = getattr(lh.functional, name)
    compiled = torch.compile(function, backend="aot_eager", fullgraph=True)
    inputs = (logits, torch.randn(5, 6), target % 5) if name.startswith("linear") else (logits, target)
    torch.testing.assert_close(compiled(*inputs), function(*inputs))
"""


def test_compile_functions_in_a_fresh_process():
    """Nothing has been called before that could have filled a cache."""
    run = subprocess.run([sys.executable, "-c", COMPILE_ALL_FUNCTIONS], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


@needs_compiler
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.parametrize("name", ["aldr-kl", "ldr-k-kl", "nce+agce"])
def test_compile_to_machine_code(name):
    torch._dynamo.reset()
    loss = lh.losses.create(name)
    logits, target = random_batch(64, 26)
    compiled = torch.compile(loss, fullgraph=True)
    torch.testing.assert_close(
        value_and_gradient(compiled, logits.float(), target), value_and_gradient(loss, logits.float(), target)
    )


@pytest.mark.parametrize(("loss", "state"), [(lh.ALDRKLLoss, "lam"), (lh.TGCELoss, "keep")])
def test_compile_with_state(loss, state):
    torch._dynamo.reset()
    logits, target = random_batch()
    index = torch.arange(8)
    plain, traced = loss(num_samples=8), loss(num_samples=8)
    compiled = torch.compile(traced, backend="aot_eager", fullgraph=True)
    for _ in range(2):
        expected = value_and_gradient(plain, logits, target, index)
        torch.testing.assert_close(value_and_gradient(compiled, logits, target, index), expected)
    torch.testing.assert_close(getattr(traced, state), getattr(plain, state))


@pytest.mark.parametrize("name", NAMES)
def test_vmap_and_grad(name):
    logits, target = random_batch()
    loss = lh.losses.create(name)
    losses = lh.losses.create(name, reduction="none")(logits, target)
    torch.testing.assert_close(torch.func.vmap(loss)(logits, target), losses)
    per_sample_gradients = torch.func.vmap(torch.func.grad(loss))(logits, target)
    _, gradient = value_and_gradient(lh.losses.create(name, reduction="sum"), logits, target)
    torch.testing.assert_close(per_sample_gradients, gradient)


@pytest.mark.parametrize("name", NAMES)
def test_vmap_over_labels_and_batches(name):
    logits, _ = random_batch()
    loss = lh.losses.create(name)
    labels = torch.arange(6)[:, None].expand(6, 8)
    stacked = torch.func.vmap(loss, in_dims=(None, 0))(logits, labels)
    torch.testing.assert_close(stacked, torch.stack([loss(logits, y) for y in labels]))


def test_vmap_over_a_hyperparameter():
    logits, target = random_batch()
    lambdas = torch.tensor([0.1, 1.0, 10.0], dtype=torch.float64)
    losses = torch.func.vmap(lambda lam: lh.functional.aldr_kl(logits, target, lambda0=lam))(lambdas)
    expected = [lh.functional.aldr_kl(logits, target, lambda0=float(lam)) for lam in lambdas]
    torch.testing.assert_close(losses, torch.stack(expected))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_autocast_computes_in_float32(name, dtype):
    logits, target = random_batch()
    half = logits.to(dtype)
    loss = lh.losses.create(name)
    with torch.autocast("cpu", dtype):
        value, gradient = value_and_gradient(loss, half, target)
    expected, expected_gradient = value_and_gradient(loss, half.float(), target)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(gradient, expected_gradient.to(dtype))


@pytest.mark.parametrize("name", NAMES)
def test_pickle_deepcopy_and_state_dict(name):
    options = {"weight": torch.arange(1.0, 7.0), "temperature": 0.5}
    state = {"num_samples": 8} if lh.losses.get(name).state else {}
    loss = lh.losses.create(name, **options, **state)
    batch = random_batch()
    index = (torch.arange(8),) if state else ()
    value_and_gradient(loss, *batch, *index)
    saved = io.BytesIO()
    torch.save(loss.state_dict(), saved)
    saved.seek(0)
    restored = lh.losses.create(name, **options, **state)
    restored.load_state_dict(torch.load(saved, weights_only=True))
    expected = value_and_gradient(copy.deepcopy(loss), *batch, *index)
    for other in (pickle.loads(pickle.dumps(loss)), restored):
        assert repr(other) == repr(loss)
        torch.testing.assert_close(value_and_gradient(other, *batch, *index), expected)


@pytest.mark.parametrize("name", NAMES)
def test_learnable_temperature(name):
    logits, target = random_batch()
    loss = lh.losses.create(name, temperature=torch.nn.Parameter(torch.tensor(0.7, dtype=torch.float64)))
    assert [n for n, _ in loss.named_parameters()] == ["temperature"]
    loss(logits, target).backward()
    step = 1e-6
    up, down = (lh.losses.create(name, temperature=0.7 + sign * step)(logits, target) for sign in (1, -1))
    torch.testing.assert_close(loss.temperature.grad, (up - down) / (2 * step), rtol=1e-6, atol=1e-6)
