"""The kernels behind the functions and modules: shapes, autograd, state, refusals."""

import math
import weakref

import pytest
import torch

import labelhedge as lh
from tests.kernels.cases import FUSED_NAMES, assert_within_budget, batch, both, compiled, launch, value_and_gradient

pytestmark = pytest.mark.filterwarnings("ignore:.* encountered in:RuntimeWarning")  # of numpy, in the interpreter


def test_all_losses_of_the_paper_have_a_kernel():
    assert set(lh.losses.PAPER) <= set(FUSED_NAMES)


def test_the_logits_are_not_written_to(device):
    logits, target = batch(6, 11, torch.float32, device)
    before = logits.clone()
    value_and_gradient(lh.ALDRKLLoss(backend="triton"), logits, target)
    assert torch.equal(logits, before)


VIEWS = {
    "some classes": lambda logits: logits[:, :11],
    "from the middle": lambda logits: logits[:, 3:20],
    "every second row": lambda logits: logits[::2, 5:],
    "every third class": lambda logits: logits[:, ::3],
    "one row for all": lambda logits: logits[:1].expand(6, 30),
    "transposed": lambda logits: logits.T[:6, :6],
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
@pytest.mark.parametrize("name", ["aldr-kl", "rll"])
def test_logits_that_lie_apart(name, view, device):
    logits, target = batch(6, 30, torch.float32, device)
    results = []
    for loss in both(name, reduction="none"):
        leaf = logits.clone().requires_grad_()
        seen = view(leaf)
        value = loss(seen, target[: len(seen)] % seen.shape[1])
        value.sum().backward()
        results.append((value.detach(), leaf.grad))
    torch.testing.assert_close(*results)


@pytest.mark.parametrize("reduction", ["none", "mean"])
def test_classes_in_the_middle(reduction, device):
    logits, target = batch(24, 5, torch.float32, device)
    image, labels = logits.view(2, 3, 4, 5).movedim(-1, 1), target.view(2, 3, 4)
    upstream = torch.randn(2, 3, 4, device=device) if reduction == "none" else None
    assert_within_budget(*both("aldr-kl", reduction=reduction), image, labels, upstream)


def test_a_stack_of_networks_with_their_own_hyperparameters(device):
    """Per-network λ0, α, margin and temperature in one launch."""
    logits, target = batch(24, 7, torch.float32, device)
    logits, target = logits.view(3, 8, 7), target.view(3, 8)
    networks = {
        "lambda0": [0.1, 1.0, 10.0],
        "alpha": [3.0, 9.0, 0.7],
        "margin": [0.0, 0.1, 2.0],
        "temperature": [1.0, 0.3, 2.0],
    }
    options = {name: torch.tensor(values, device=device)[:, None] for name, values in networks.items()}
    assert_within_budget(*both("aldr-kl", class_dim=-1, reduction="sum", **options), logits, target)
    for i in range(3):
        own = {name: values[i] for name, values in networks.items()}
        value = lh.functional.aldr_kl(logits[i], target[i], backend="triton", reduction="none", **own)
        stacked = lh.functional.aldr_kl(logits, target, backend="triton", reduction="none", class_dim=-1, **options)
        torch.testing.assert_close(value, stacked[i])


def test_a_margin_for_every_class(device):
    logits, target = batch(6, 7, torch.float32, device)
    target[2] = -100
    assert_within_budget(*both("ldr-kl", margin=torch.linspace(0, 2, 7, device=device)), logits, target)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("reduction", ["none", "mean"])
def test_backward_twice_and_with_another_upstream(reduction, dtype, device):
    """The first backward gives its gradient away, the second makes a new one; float16 makes both when they are due."""
    logits, target = batch(6, 11, dtype, device)
    logits.requires_grad_()
    loss = lh.ALDRKLLoss(backend="triton", reduction=reduction)(logits, target)
    one = torch.ones_like(loss)
    (first,) = torch.autograd.grad(loss, logits, one, retain_graph=True)
    (second,) = torch.autograd.grad(loss, logits, one, retain_graph=True)
    (third,) = torch.autograd.grad(loss, logits, -2 * one, retain_graph=True)
    torch.testing.assert_close(second, first)
    torch.testing.assert_close(third, -2 * first)
    batched = torch.autograd.grad(loss, logits, torch.stack([one, 3 * one]), is_grads_batched=True)[0]
    torch.testing.assert_close(batched, torch.stack([first, 3 * first]))


def test_an_upstream_other_than_one_in_the_first_backward(device):
    logits, target = batch(6, 11, torch.float32, device)
    upstream = torch.tensor(-2.5, device=device)
    assert_within_budget(*both("aldr-kl"), logits, target, upstream)


def test_float16_gradients_survive_a_loss_scale(device):
    """A gradient below float16's smallest number is multiplied before it is rounded."""
    logits, target = batch(6, 11, torch.float16, device)
    weight = torch.full((11,), 1e-7, device=device)
    loss = lh.CELoss(weight=weight, reduction="sum", backend="triton")
    _, gradient = value_and_gradient(loss, logits, target, torch.tensor(1e7, device=device))
    _, expected = value_and_gradient(lh.CELoss(reduction="sum", backend="torch"), logits, target)
    torch.testing.assert_close(gradient, expected)


@pytest.mark.parametrize("name", ["aldr-kl", "ldr-kl", "ce", "tgce"])
def test_second_derivatives(name, device):
    logits, target = batch(4, 5, torch.float32, device)
    hessians = []
    for loss in both(name):
        leaf = logits.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(loss(leaf, target), leaf, create_graph=True)
        hessians.append(torch.autograd.grad(gradient[:, 1].sum(), leaf)[0])
    torch.testing.assert_close(*hessians, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", FUSED_NAMES)
def test_without_gradient(name, device):
    logits, target = batch(6, 11, torch.float32, device)
    fused, plain = both(name)
    torch.testing.assert_close(fused(logits, target), plain(logits, target))
    with torch.no_grad():
        value = fused(logits.clone().requires_grad_(), target)
    assert value.grad_fn is None


def test_a_forward_pass_alone_makes_no_gradient(device, monkeypatch):
    seen = []
    monkeypatch.setattr(launch.Prepared, "visit", lambda *args, gradient, **outputs: seen.append(gradient))
    logits, target = batch(6, 11, torch.float32, device)
    lh.functional.ce(logits, target, backend="triton")
    lh.functional.ce(logits.requires_grad_(), target, backend="triton")
    assert seen[0] is None
    assert seen[1].shape == logits.shape


@pytest.mark.parametrize("name", ["aldr-kl", "gce"])
def test_nothing_to_do(name, device):
    fused, plain = both(name)
    logits, target = torch.zeros(0, 5, device=device), torch.zeros(0, dtype=torch.long, device=device)
    value, gradient = value_and_gradient(fused, logits, target)
    assert value.isnan()
    assert gradient.shape == (0, 5)
    logits, target = batch(4, 5, torch.float32, device)
    target[:] = -100
    value, gradient = value_and_gradient(fused, logits, target)
    expected, expected_gradient = value_and_gradient(plain, logits, target)
    assert value.isnan()
    assert expected.isnan()
    assert torch.equal(gradient, torch.zeros_like(gradient))
    assert torch.equal(expected_gradient, gradient)
    assert lh.losses.create(name, backend="triton", reduction="sum")(logits, target) == 0


def test_a_label_that_does_not_exist_is_seen(device):
    logits, target = batch(4, 5, torch.float32, device)
    target[1], target[2] = 5, -1
    values = lh.functional.aldr_kl(logits, target, backend="triton", reduction="none")
    assert values.isnan().tolist() == [False, True, True, False]


def test_algorithm_1(device):
    logits, target = batch(8, 11, torch.float32, device)
    target[3] = -100
    index = torch.tensor([0, 1, 2, 3, 4, 4, 6, 9], device=device)
    fused, plain = (lh.ALDRKLLoss(num_samples=10, backend=backend).to(device) for backend in ("triton", "torch"))
    for _ in range(3):
        actual = value_and_gradient(lambda *args: fused(*args, index), logits, target)
        expected = value_and_gradient(lambda *args: plain(*args, index), logits, target)
        torch.testing.assert_close(actual, expected)
        torch.testing.assert_close(fused.lam, plain.lam)
    assert fused.lam[3] == 1


def test_truncated_with_its_mask(device):
    index = torch.arange(8, device=device)
    fused, plain = (lh.TGCELoss(num_samples=8, k=0.3, backend=backend).to(device) for backend in ("triton", "torch"))
    for seed in range(2):
        logits, target = batch(8, 5, torch.float32, device, seed=seed)
        for loss in (fused, plain):
            loss.refresh(logits, target, index)
        assert torch.equal(fused.keep, plain.keep)
        assert fused.keep.any()
        assert not fused.keep.all()
        actual = value_and_gradient(lambda *args: fused(*args, index), logits, target)
        torch.testing.assert_close(actual, value_and_gradient(lambda *args: plain(*args, index), logits, target))


def test_refusals(device, monkeypatch):
    logits, target = batch(4, 5, torch.float32, device)

    def refused(message, name="ce", logits=logits, target=target, **options):
        with pytest.raises(ValueError, match=f"backend='triton' cannot serve this call of {name}: .*{message}"):
            lh.losses.create(name, backend="triton", **options)(logits, target)

    refused("there is no kernel for it, since it declares no closed form", "topk-svm")
    refused("float64", logits=logits.double())
    refused("class probabilities", target=torch.full_like(logits, 0.2))
    refused("but not all else", target=target.to("meta"))
    refused("requires a gradient", temperature=torch.nn.Parameter(torch.tensor(1.0, device=device)))
    with pytest.raises(TypeError, match=r"lambda0 must be .* or a tensor, got \[1.0\]"):
        lh.functional.aldr_kl(logits, target, lambda0=[1.0], backend="triton")
    monkeypatch.setattr("labelhedge.losses._batch._REMEMBERED", {})
    with monkeypatch.context() as rocm:
        rocm.setattr(torch.version, "hip", "6.4")
        refused("for NVIDIA's devices")
    monkeypatch.setattr(launch, "INTERPRETED", False)
    refused("the logits are on cpu, and it needs a CUDA device", logits=logits.cpu(), target=target.cpu())
    with pytest.raises(ValueError, match="backend must be 'auto', 'torch' or 'triton', got 'cuda'"):
        lh.functional.ce(logits, target, backend="cuda")


@pytest.mark.parametrize("name", ["aldr-kl", "ce"])
def test_targets_and_hyperparameters_that_lie_apart(name, device):
    """Every second number of a tensor, and one number for all rows."""
    logits, _ = batch(6, 5, torch.float32, device)
    target = torch.tensor([0, 4, 1, 4, -100, 4, 2, 4, 3, 4, 0, 4], device=device)[::2]
    weight = torch.linspace(0.5, 2, 10, device=device)[::2]
    for temperature in (torch.linspace(0.5, 2, 12, device=device)[::2], torch.tensor(0.7, device=device)):
        options = {"weight": weight, "temperature": temperature}
        assert_within_budget(*both(name, **options), logits, target, tolerance=1e-5)
    if name == "aldr-kl":
        fused, plain = (lh.ALDRKLLoss(num_samples=12, backend=backend).to(device) for backend in ("triton", "torch"))
        index = torch.arange(12, device=device)[::2]
        for _ in range(2):
            torch.testing.assert_close(fused(logits, target, index), plain(logits, target, index))
            torch.testing.assert_close(fused.lam, plain.lam)


@pytest.mark.parametrize("rows", [4, 5])
@pytest.mark.parametrize("ignored", [[], [0, 3], [0, 1, 2, 3, 4]], ids=str)
def test_the_mean_of_few_rows_and_of_many(rows, ignored, device, monkeypatch):
    """The kernel itself counts the targets of few rows."""
    monkeypatch.setattr(launch, "FEW_ROWS", 4)
    monkeypatch.setattr("labelhedge.losses._batch._REMEMBERED", {})
    counted = []
    monkeypatch.setattr(launch, "count", lambda *args, count=launch.count: (counted.append(1), count(*args))[1])
    logits, target = batch(rows, 7, torch.float32, device)
    target[[row for row in ignored if row < rows]] = -100
    for _ in range(2):  # the second is not examined again
        torch.testing.assert_close(
            *(value_and_gradient(lh.GCELoss(backend=backend), logits, target) for backend in ("triton", "torch")),
            equal_nan=True,
        )
    assert counted == [1] * (2 * (rows > 4))


@pytest.mark.parametrize("name", ["aldr-kl", "ce"])
def test_a_second_call_is_not_examined_again(name, device, monkeypatch):
    examined = []
    init = launch.Prepared.__init__
    monkeypatch.setattr(launch.Prepared, "__init__", lambda *args, **how: (examined.append(1), init(*args, **how))[1])
    monkeypatch.setattr("labelhedge.losses._batch._REMEMBERED", {})
    fused, plain = both(name)
    for seed in range(3):
        logits, target = batch(6, 11, torch.float32, device, seed=seed)
        target[seed] = -100
        if seed == 2:  # not at a multiple of 16 bytes
            logits = torch.cat([logits.new_zeros(1), logits.flatten()])[1:].view(6, 11)
        assert_within_budget(fused, plain, logits, target, tolerance=1e-5)
    assert examined == [1]
    for options in ({"ignore_index": 3}, {"reduction": "sum"}, {"temperature": 0.5}):
        assert_within_budget(*both(name, **options), logits, target.clamp(min=0), tolerance=1e-5)
    assert_within_budget(fused, plain, logits[:4], target[:4], tolerance=1e-5)
    assert examined == [1] * 5


def test_what_is_remembered_is_not_the_logits(device):
    logits, target = batch(7, 13, torch.float32, device)
    seen = weakref.ref(logits)
    lh.functional.ce(logits, target, backend="triton")
    del logits
    assert seen() is None


def test_a_transform_takes_the_plain_formula(device):
    logits, target = batch(4, 5, torch.float32, device)
    expected = lh.functional.aldr_kl(logits, target, reduction="none", backend="torch")
    torch.testing.assert_close(torch.func.vmap(lh.ALDRKLLoss())(logits, target), expected)
    torch._dynamo.reset()
    traced = torch.compile(lambda *args: torch.func.vmap(lh.ALDRKLLoss())(*args), backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(traced(logits, target), expected)
    with pytest.raises(ValueError, match="a function transform is tracing"):
        torch.func.vmap(lh.ALDRKLLoss(backend="triton"))(logits, target)


@pytest.mark.parametrize("options", [{}, {"reduction": "none", "ignore_index": 2, "temperature": 0.5}], ids=str)
@pytest.mark.parametrize("name", ["aldr-kl", "ldr-kl", "ce", "sce", "mse", "tgce"])
def test_compile_takes_the_kernels(name, options, device, monkeypatch):
    torch._dynamo.reset()
    seen = []
    monkeypatch.setattr(
        compiled, "visit_logits", lambda *args, **outputs: (seen.append(1), launch.visit(*args, **outputs))
    )
    logits, target = batch(8, 5, torch.float32, device)
    weight = torch.linspace(1, 2, 5, device=device)
    fused, plain = both(name, weight=weight, **options)
    traced = torch.compile(fused, backend="aot_eager", fullgraph=True)
    upstream = torch.linspace(-1, 2, 8, device=device) if options else torch.tensor(2.0, device=device)
    actual = value_and_gradient(traced, logits, target, upstream)
    torch.testing.assert_close(actual, value_and_gradient(plain, logits, target, upstream))
    assert seen == [1, 1]  # once for the value, once for the gradient


def test_compile_algorithm_1(device):
    torch._dynamo.reset()
    logits, target = batch(8, 5, torch.float32, device)
    index = torch.arange(8, device=device)
    fused, plain = (lh.ALDRKLLoss(num_samples=8, backend=backend).to(device) for backend in ("triton", "torch"))
    traced = torch.compile(fused, backend="aot_eager", fullgraph=True)
    for _ in range(2):
        actual = value_and_gradient(lambda *args: traced(*args, index), logits, target)
        torch.testing.assert_close(actual, value_and_gradient(lambda *args: plain(*args, index), logits, target))
    torch.testing.assert_close(fused.lam, plain.lam)


@pytest.mark.gpu
def test_rows_beyond_the_reach_of_32_bits():
    logits = torch.zeros(2**31 // 32_768 + 2, 32_768, dtype=torch.bfloat16, device="cuda")
    logits[:, 7] = 3.0
    target = torch.full((len(logits),), 7, device="cuda")
    value, gradient = value_and_gradient(lh.CELoss(backend="triton", reduction="none"), logits, target)
    assert torch.equal(value, value[:1].expand_as(value))
    assert torch.equal(gradient[-1], gradient[0])
    assert gradient[0, 7] < 0


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["aldr-kl", "ce", "mse"])
def test_in_a_cuda_graph(name):
    loss = lh.losses.create(name, backend="triton")
    logits, target = batch(64, 100, torch.float32, "cuda")
    logits.requires_grad_()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        loss(logits, target).backward()
    torch.cuda.synchronize()
    logits.grad = None
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        value = loss(logits, target)
        value.backward()
    other, other_target = batch(64, 100, torch.float32, "cuda", seed=1)
    with torch.no_grad():
        logits.copy_(other)
        target.copy_(other_target)
    graph.replay()
    torch.testing.assert_close((value.detach(), logits.grad), value_and_gradient(loss, other, other_target))


@pytest.mark.gpu
def test_auto_takes_the_kernels_on_a_cuda_device(monkeypatch):
    seen = []
    visit = launch.Prepared.visit
    monkeypatch.setattr(launch.Prepared, "visit", lambda *args, **outputs: (seen.append(1), visit(*args, **outputs)))
    logits, target = batch(4, 5, torch.float32, "cuda")
    value = lh.functional.aldr_kl(logits, target)
    assert seen == [1]
    assert math.isclose(value.item(), lh.functional.aldr_kl(logits, target, backend="torch").item(), rel_tol=1e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("classes", [1000, 128_256])
def test_memory_is_that_of_the_gradient(classes):
    logits, target = batch(2048, classes, torch.bfloat16, "cuda")
    logits.requires_grad_()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    lh.functional.aldr_kl(logits, target).backward()
    assert torch.cuda.max_memory_allocated() - before <= 1.05 * logits.nbytes
