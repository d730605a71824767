"""Every loss against an independent evaluation of its printed formula at 60 digits."""

import math

import pytest
import torch

import labelhedge as lh
from tests.losses.cases import CASES, IDS, NAMES, random_batch, values
from tests.losses.oracles import ORACLES


def test_every_loss_has_an_oracle():
    assert sorted(ORACLES) == NAMES


@pytest.mark.parametrize(("name", "params"), CASES, ids=IDS)
@pytest.mark.parametrize(("classes", "scale"), [(2, 1.0), (6, 3.0), (11, 0.3)])
def test_value(name, params, classes, scale):
    if params.get("k", 1) > classes:
        params = params | {"k": classes}
    logits, target = random_batch(4, classes, scale)
    expected = [ORACLES[name](row.tolist(), int(y), **params) for row, y in zip(logits, target, strict=True)]
    torch.testing.assert_close(
        values(name, logits, target, **params), torch.tensor(expected, dtype=torch.float64), rtol=1e-11, atol=1e-12
    )


@pytest.mark.parametrize("name", [n for n in NAMES if "margin" in lh.losses.get(n).domains])
def test_a_margin_per_class(name):
    logits, target = random_batch()
    margin = torch.linspace(0, 2, logits.shape[1], dtype=torch.float64)
    expected = [
        ORACLES[name](row.tolist(), int(y), margin=margin.tolist()) for row, y in zip(logits, target, strict=True)
    ]
    actual = values(name, logits, target, margin=margin)
    torch.testing.assert_close(actual, torch.tensor(expected, dtype=torch.float64), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize(("name", "params"), CASES, ids=IDS)
@pytest.mark.parametrize("gap", [1e-4, 30.0, 200.0])
def test_float32_keeps_the_digits_of_confident_and_of_flat_logits(name, params, gap):
    """Relative to the size of the loss's terms, float32 is as good as float64 rounded."""
    logits = torch.tensor([[gap, 0.0, -gap, 0.5 * gap]], dtype=torch.float64)
    for y in range(4):
        target = torch.tensor([y])
        exact, single = values(name, logits, target, **params), values(name, logits.float(), target, **params)
        size = max(1.0, abs(exact.item()), params.get("margin", 0.0), gap if name in ("cs", "ww") else 0.0)
        assert math.isclose(exact.item(), single.item(), rel_tol=5e-6, abs_tol=5e-6 * size)
