"""The last layer and its loss in one."""

import pytest
import torch
import torch.nn.functional as F

import labelhedge as lh
from tests.kernels.cases import error, head, launch

pytestmark = pytest.mark.filterwarnings("ignore:.* encountered in:RuntimeWarning")  # of numpy, in the interpreter
LOSSES = ["ce", "ldr_kl", "aldr_kl"]


def layer(device, dtype=torch.float32, rows=70, width=8, classes=67, bias=True):
    generator = torch.Generator().manual_seed(0)
    hidden, weight, bias_ = (
        torch.randn(*shape, generator=generator) for shape in ((rows, width), (classes, width), (classes,))
    )
    target = torch.randint(classes, (rows,), generator=generator)
    target[3] = -100
    inputs = [x.to(device, dtype) for x in ((hidden, weight, bias_) if bias else (hidden, weight))]
    return inputs, target.to(device)


def gradients(function, inputs, target, upstream=1.0, **options):
    """The loss, and the gradients of the inputs."""
    hidden, weight, *bias = (x.detach().clone().requires_grad_() for x in inputs)
    loss = function(hidden, weight, target, *bias, **options)
    loss.backward(upstream * torch.linspace(1, 2, loss.numel()).to(loss).view(loss.shape))
    return loss.detach(), *(x.grad for x in (hidden, weight, *bias))


def unfused(name):
    """A matrix product, then the loss."""

    def function(hidden, weight, target, bias=None, weight_of_classes=None, **options):
        logits = F.linear(hidden, weight, bias)
        return getattr(lh.functional, name)(logits, target, weight=weight_of_classes, backend="torch", **options)

    return function


@pytest.fixture
def in_parts(monkeypatch):
    """Two parts of rows and of classes, though there are few."""
    monkeypatch.setattr(head, "SMALL", 0)


@pytest.mark.usefixtures("in_parts")
@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("normalize", [None, "l1", "softplus"])
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
def test_against_a_matrix_product_and_the_loss(name, normalize, bias, device):
    inputs, target = layer(device, bias=bias)
    function = getattr(lh.functional, f"linear_{name}")
    exact = gradients(unfused(name), [x.double() for x in inputs], target, upstream=-3.0, normalize=normalize)
    by_formula = gradients(unfused(name), inputs, target, upstream=-3.0, normalize=normalize)
    by_kernel = gradients(function, inputs, target, upstream=-3.0, normalize=normalize, backend="triton")
    for actual, plain, reference in zip(by_kernel, by_formula, exact, strict=True):
        assert error(actual, reference) <= error(plain, reference) + 3e-6


@pytest.mark.usefixtures("in_parts")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", LOSSES)
def test_half_precision(name, dtype, device):
    inputs, target = layer(device, dtype)
    function = getattr(lh.functional, f"linear_{name}")
    exact = gradients(unfused(name), [x.double() for x in inputs], target)
    by_formula = gradients(unfused(name), inputs, target)
    by_kernel = gradients(function, inputs, target, backend="triton")
    assert by_kernel[0].dtype == torch.float32
    for actual, plain, reference in zip(by_kernel[1:], by_formula[1:], exact[1:], strict=True):
        assert actual.dtype == dtype
        assert error(actual, reference) <= error(plain, reference) + torch.finfo(dtype).eps


@pytest.mark.gpu
@pytest.mark.usefixtures("in_parts")
@pytest.mark.parametrize("classes", [50_257, 100_003, 128_256])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", LOSSES)
def test_many_classes(name, dtype, classes):
    """Rows so long that visits without gradient have a layout of their own."""
    inputs, target = layer("cuda", dtype, width=16, classes=classes)
    function = getattr(lh.functional, f"linear_{name}")
    exact = gradients(unfused(name), [x.double() for x in inputs], target)
    by_formula = gradients(unfused(name), inputs, target)
    by_kernel = gradients(function, inputs, target, backend="triton")
    for actual, plain, reference in zip(by_kernel, by_formula, exact, strict=True):
        assert error(actual, reference) <= error(plain, reference) + max(3e-6, torch.finfo(actual.dtype).eps)


@pytest.mark.usefixtures("in_parts")
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_weights_reductions_and_hyperparameters_of_rows(reduction, device):
    inputs, target = layer(device)
    options = {
        "reduction": reduction,
        "lambda0": torch.linspace(0.3, 3, 70, device=device),
        "margin": torch.linspace(0, 1, 67, device=device),
        "temperature": torch.linspace(0.5, 2, 70, device=device),
    }
    weight = torch.linspace(0.5, 2, 67, device=device)
    expected = gradients(unfused("aldr_kl"), inputs, target, weight_of_classes=weight, **options)
    actual = gradients(lh.functional.linear_aldr_kl, inputs, target, weight=weight, backend="triton", **options)
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


def test_gradients_for_those_that_want_them(device):
    (hidden, weight, bias), target = layer(device)
    for wanted in ((True, False, False), (False, True, False), (False, False, True)):
        inputs = [
            x.detach().clone().requires_grad_(want) for x, want in zip((hidden, weight, bias), wanted, strict=True)
        ]
        losses = [
            function(inputs[0], inputs[1], target, inputs[2], **options)
            for function, options in ((lh.functional.linear_ce, {"backend": "triton"}), (unfused("ce"), {}))
        ]
        leaf = inputs[wanted.index(True)]
        actual, expected = (torch.autograd.grad(loss, leaf)[0] for loss in losses)
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-6)


def test_backward_twice_second_derivatives_and_no_gradient(device):
    (hidden, weight, bias), target = layer(device)
    leaf = hidden.clone().requires_grad_()
    loss = lh.functional.linear_aldr_kl(leaf, weight, target, bias, backend="triton")
    first, second = (torch.autograd.grad(loss, leaf, retain_graph=True)[0] for _ in range(2))
    torch.testing.assert_close(second, first)
    hessians = []
    for value in (loss, unfused("aldr_kl")(leaf, weight, target, bias)):
        (gradient,) = torch.autograd.grad(value, leaf, create_graph=True)
        hessians.append(torch.autograd.grad(gradient[:, 0].sum(), leaf)[0])
    torch.testing.assert_close(*hessians, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(
        lh.functional.linear_aldr_kl(hidden, weight, target, bias, backend="triton"), loss.detach()
    )


def test_more_dimensions(device):
    (hidden, weight, bias), target = layer(device)
    value = lh.functional.linear_ce(hidden.view(2, 35, 8), weight, target.view(2, 35), bias, backend="triton")
    torch.testing.assert_close(value, lh.functional.linear_ce(hidden, weight, target, bias, backend="torch"))


def test_autocast(device):
    (hidden, weight, bias), target = layer(device)
    with torch.autocast(device.type, torch.bfloat16):
        value = lh.functional.linear_ce(hidden, weight, target, bias, backend="triton")
        expected = F.cross_entropy(F.linear(hidden, weight, bias).float(), target)
    torch.testing.assert_close(value, expected)


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
def test_inside_a_compiled_program(bias, device):
    torch._dynamo.reset()
    launch.FORMULAS.clear()  # as in a program that begins with it
    inputs, target = layer(device, bias=bias)

    def function(hidden, weight, target, bias=None):
        return 2 * lh.functional.linear_aldr_kl(hidden.tanh(), weight, target, bias, backend="triton")

    compiled = torch.compile(function, backend="aot_eager", fullgraph=True)
    actual = gradients(compiled, inputs, target)
    torch.testing.assert_close(actual, gradients(function, inputs, target))


def test_bad_shapes():
    hidden, weight, target = torch.zeros(4, 3), torch.zeros(5, 3), torch.zeros(4, dtype=torch.long)
    with pytest.raises(
        ValueError, match=r"hidden must have shape \(..., H\) and linear_weight \(K, H\), got \(4, 3\) and \(3, 5\)"
    ):
        lh.functional.linear_ce(hidden, weight.T, target)
    with pytest.raises(ValueError, match=r"bias must have shape \(5,\), one per class, got \(4,\)"):
        lh.functional.linear_ce(hidden, weight, target, torch.zeros(4))
    with pytest.raises(ValueError, match=r"target must have shape \(4,\)"):
        lh.functional.linear_ce(hidden, weight, target[:3])


@pytest.mark.gpu
def test_the_logits_are_never_there_as_a_whole():
    inputs, target = layer("cuda", torch.bfloat16, rows=8192, width=256, classes=32_000, bias=False)
    leaves = [x.requires_grad_() for x in inputs]
    logits_size = 8192 * 32_000 * 2
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    lh.functional.linear_aldr_kl(*leaves, target).backward()
    outputs = sum(x.nbytes for x in leaves)
    assert torch.cuda.max_memory_allocated() - before - outputs < 0.1 * logits_size
