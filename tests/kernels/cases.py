"""Every loss that has a kernel, and its error against float64."""

import pytest
import torch

import labelhedge as lh
from tests.losses.cases import CASES

pytest.importorskip("triton", reason="Triton is not installed")
compiled, head, launch = (
    pytest.importorskip(f"labelhedge.kernels.{name}") for name in ("compiled", "head", "launch")
)  # from here, so that a module of tests that needs them is skipped and not broken
FUSED_NAMES = [name for name in lh.losses.names() if lh.losses.get(name).closed_form is not None]
FUSED_CASES = [(name, params) for name, params in CASES if name in FUSED_NAMES]
FUSED_IDS = [f"{name}-{params}" for name, params in FUSED_CASES]


def batch(rows, classes, dtype, device, scale=2.0, seed=0):
    """Logits and labels; the label is the largest logit in every second row."""
    generator = torch.Generator().manual_seed(seed)
    logits = (scale * torch.randn(rows, classes, generator=generator)).to(dtype)
    target = torch.randint(classes, (rows,), generator=generator)
    target[::2] = logits[::2].argmax(-1)
    return logits.to(device), target.to(device)


def both(name, **options):
    """The loss by the kernel and by the plain formula."""
    return (lh.losses.create(name, backend=backend, **options) for backend in ("triton", "torch"))


def value_and_gradient(loss, logits, target, upstream=None):
    logits = logits.detach().clone().requires_grad_()
    value = loss(logits, target)
    value.backward(torch.ones_like(value) if upstream is None else upstream.to(value))
    return value.detach(), logits.grad


def error(actual, exact):
    """‖actual - exact‖ / ‖exact‖."""
    assert actual.isfinite().all(), actual
    return ((actual.double() - exact).norm() / exact.norm().clamp(min=1e-30)).item()


def assert_within_budget(loss, plain, logits, target, upstream=None, tolerance=2e-6):
    """The kernel is no further from float64 than the plain formula, but for ``tolerance``.

    A gradient of half precision is rounded once, or twice where the upstream comes later and is not 1; and the
    interpreter cuts bfloat16 off instead of rounding it.
    """
    exact = value_and_gradient(plain, logits.double(), target, upstream)
    by_formula = value_and_gradient(plain, logits, target, upstream)
    by_kernel = value_and_gradient(loss, logits, target, upstream)
    assert by_kernel[0].dtype == torch.float32
    assert by_kernel[1].dtype == logits.dtype
    rounding = torch.finfo(logits.dtype).eps * (1.0 if not logits.is_cuda else 0.1 if upstream is None else 0.2)
    for what, k, f, e, extra in zip(
        ("value", "gradient"), by_kernel, by_formula, exact, (tolerance, max(tolerance, rounding)), strict=True
    ):
        of_kernel, of_formula = error(k, e), error(f, e)
        assert of_kernel <= of_formula + extra, f"{what}: error {of_kernel:.2e}, of the plain formula {of_formula:.2e}"
