"""The kernels against float64: no further from it than the plain formula."""

import pytest
import torch

import labelhedge as lh
from tests.kernels.cases import FUSED_CASES, FUSED_IDS, FUSED_NAMES, assert_within_budget, batch, both

pytestmark = pytest.mark.filterwarnings("ignore:.* encountered in:RuntimeWarning")  # of numpy, in the interpreter
DTYPES = [torch.float32, torch.bfloat16, torch.float16]


@pytest.mark.parametrize(("name", "params"), FUSED_CASES, ids=FUSED_IDS)
def test_every_setting(name, params, device):
    assert_within_budget(*both(name, reduction="sum", **params), *batch(6, 11, torch.float32, device))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("classes", [2, 3, 35])
@pytest.mark.parametrize("name", FUSED_NAMES)
@pytest.mark.usefixtures("short_blocks")
def test_every_size_and_precision(name, classes, dtype, device):
    """35 classes are three blocks, the last of them short."""
    assert_within_budget(*both(name), *batch(5, classes, dtype, device))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("classes", [2, 3, 11, 507, 1000, 50_257, 128_256])
@pytest.mark.parametrize("name", FUSED_NAMES)
def test_large_sizes(name, classes, dtype):
    assert_within_budget(*both(name), *batch(67, classes, dtype, "cuda"), tolerance=1e-5)


@pytest.mark.parametrize("name", FUSED_NAMES)
@pytest.mark.parametrize("normalize", [None, "l1", "softplus"])
@pytest.mark.usefixtures("several_blocks")
def test_every_normalizer_in_several_blocks(name, normalize, device):
    options = {"normalize": normalize, "temperature": 0.3, "reduction": "sum"}
    assert_within_budget(*both(name, **options), *batch(4, 35, torch.float32, device))


@pytest.mark.parametrize("name", ["ldr-kl", "aldr-kl", "ce"])
@pytest.mark.usefixtures("several_blocks")
def test_rows_whose_first_classes_tell_the_norm(name, device):
    """Of a long row, the first pass guesses the norm from its first classes, here 32. It is right to 1 % here."""
    logits, target = batch(6, 48, torch.float32, device)
    logits = logits.sign() * torch.where(torch.arange(48, device=device) < 32, 1.0, 1.03)
    assert_within_budget(*both(name, normalize="l1", reduction="sum"), logits, target)
    if name == "aldr-kl":
        fused, plain = (loss.to(device) for loss in both(name, num_samples=6, reduction="sum"))
        index = torch.arange(6, device=device)
        losses = (lambda *args: fused(*args, index), lambda *args: plain(*args, index))
        assert_within_budget(*losses, logits, target)


@pytest.mark.parametrize("normalize", [None, "l1"])
@pytest.mark.usefixtures("several_blocks")
def test_algorithm_1_where_lambda_has_settled(normalize, device):
    """Then the sums at the next λ of a long row come from those at the last."""
    logits, target = batch(6, 48, torch.float32, device)
    index = torch.arange(6, device=device)
    losses = []
    for loss in both("aldr-kl", num_samples=6, normalize=normalize, margin=0.1, reduction="sum"):
        loss.to(device)
        settled = lh.functional.aldr_lambda(logits, target, normalize=normalize)
        for _ in range(20):
            settled = lh.functional.aldr_lambda(logits, target, normalize=normalize, start=settled)
        loss.lam.copy_(1.004 * settled)
        losses.append(lambda *args, loss=loss: loss(*args, index))
    assert_within_budget(*losses, logits, target)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ["aldr-kl", "ce", "mse"])
def test_weights_ignored_labels_and_upstream(name, dtype, reduction, device):
    weight = torch.linspace(0.5, 2, 11, device=device)
    logits, target = batch(6, 11, dtype, device)
    target[1] = target[2] = -100
    upstream = torch.linspace(-3, 3, 6, device=device) if reduction == "none" else torch.tensor(-7.5, device=device)
    losses = both(name, weight=weight, reduction=reduction)
    assert_within_budget(*losses, logits, target, upstream)
    losses = both(name, weight=weight, reduction=reduction, ignore_index=int(target[0]))
    target[1] = target[2] = 3
    assert_within_budget(*losses, logits, target, upstream)


@pytest.mark.parametrize("lam", [0.0, 1e-3, 7.0, 9.0, 1e3, float("inf")])
@pytest.mark.usefixtures("short_blocks")
def test_lambda_from_zero_to_infinity(lam, device):
    for classes in (7, 35):
        logits, target = batch(5, classes, torch.float32, device)
        assert_within_budget(*both("ldr-kl", lam=lam, reduction="sum"), logits, target)
        lam_of_rows = torch.full((5,), lam, device=device)
        assert_within_budget(*both("ldr-kl", lam=lam_of_rows, reduction="sum"), logits, target)


@pytest.mark.parametrize(
    ("lambda0", "alpha"), [(0.1, None), (1.0, None), (10.0, None), (1.0, 0.01), (1.0, 5.0), (0.1, 0.3), (10.0, 0.3)]
)
@pytest.mark.parametrize("classes", [3, 35])
@pytest.mark.usefixtures("short_blocks")
def test_the_lambda_of_aldr(classes, lambda0, alpha, device):
    logits, target = batch(4, classes, torch.float32, device, scale=1.0)
    options = {"lambda0": lambda0, "alpha": alpha}
    expected = lh.functional.aldr_lambda(logits.double(), target, **options)
    actual = lh.functional.aldr_lambda(logits, target, backend="triton", **options)
    torch.testing.assert_close(actual.double(), expected, rtol=2e-5, atol=1e-6)
    expected = lh.functional.aldr_lambda(logits.double(), target, start=0.7 * expected, **options)
    start = (0.7 * lh.functional.aldr_lambda(logits.double(), target, **options)).float()
    actual = lh.functional.aldr_lambda(logits, target, start=start, backend="triton", **options)
    torch.testing.assert_close(actual.double(), expected, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("pieces", [2, 0], ids=["two pieces", "long rows"])
@pytest.mark.parametrize("leaders", [1, 2, 3])
def test_of_two_peaks_the_higher(leaders, pieces, device, use_layout):
    """Rows with some classes ahead have two peaks over λ; before the jump the one, after it the other is higher.

    With two or three leaders samples at the ends would mistake the peak, by 0.006.
    """
    use_layout(2048, pieces, 1, 4, None)
    options = {"normalize": None, "margin": 0.0}

    def rows(ahead):
        logits = torch.zeros(len(ahead), 3000)
        logits[:, -leaders:] = ahead[:, None]  # at the end, where the first pass over a long row expects nothing
        return logits, torch.zeros(len(ahead), dtype=torch.long)

    ahead = torch.linspace(5.0, 7.0, 500)
    logits, target = rows(ahead)
    change, at = lh.functional.aldr_lambda(logits.double(), target, **options).diff().min(0)
    assert change < -0.05
    logits, target = rows(ahead[at] + torch.linspace(-0.05, 0.05, 20))
    options["reduction"] = "none"
    expected = lh.functional.aldr_kl(logits.double(), target, **options)
    actual = lh.functional.aldr_kl(logits.to(device), target.to(device), backend="triton", **options)
    torch.testing.assert_close(actual.double().cpu(), expected, rtol=0, atol=3e-6)


@pytest.mark.parametrize("name", FUSED_NAMES)
@pytest.mark.parametrize("normalize", [None, "l1", "softplus"])
def test_extreme_logits(name, normalize, device):
    rows = [[1e4, -1e4, 0.0], [1e4, 1e4, 1e4], [0.0, 0.0, 0.0], [-1e4, -1e4, 1e4], [1e-15, 0.0, -1e-15]]
    logits, target = torch.tensor(rows, device=device), torch.zeros(5, dtype=torch.long, device=device)
    losses = both(name, normalize=normalize, reduction="none")
    assert_within_budget(*losses, logits, target, tolerance=1e-5)
