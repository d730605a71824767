import math

import pytest
import torch

import labelhedge as lh
from labelhedge.theory.calibration import distributions, gaps, infima, preserves, violations
from labelhedge.theory.subject import examine


def subject(id, classes=4, **options):
    return examine(lh.losses.create(id, reduction="none", **options), classes)


def inside(cone, f):
    lead = f - f[cone.pivot]
    return all(lead[j] * sign >= 0 for j, sign in enumerate(cone.signs) if sign)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_the_cones_are_what_the_definition_forbids(k):
    generator = torch.Generator().manual_seed(k)
    q_rows = distributions(4)
    for q in q_rows:
        cones = violations(q, k)
        for _ in range(60):
            f = torch.randint(-2, 3, (4,), generator=generator).double()  # with many ties
            assert any(inside(cone, f) for cone in cones) == (not preserves(f, q, k)), (q, f)


def test_preserving_by_hand():
    q = torch.tensor([0.5, 0.3, 0.2])
    assert preserves(torch.tensor([3.0, 2.0, 1.0]), q, 1)
    assert preserves(torch.tensor([3.0, 1.0, 2.0]), q, 1)
    assert not preserves(torch.tensor([3.0, 1.0, 2.0]), q, 2)
    assert not preserves(torch.tensor([1.0, 1.0, 0.0]), q, 1)
    tied = torch.tensor([0.4, 0.4, 0.2])
    assert preserves(torch.tensor([1.0, 2.0, 0.0]), tied, 1)
    assert not preserves(torch.tensor([1.0, 0.0, 2.0]), tied, 1)


def test_cross_entropy_has_the_entropy_as_infimum():
    q = distributions(4)
    minimizers, values = infima(subject("ce"), q)
    entropy = -torch.where(q > 0, q * q.clamp(min=1e-300).log(), 0.0).sum(-1)
    torch.testing.assert_close(values, entropy, rtol=0, atol=1e-13)
    inside = (q > 0).all(-1)
    torch.testing.assert_close(minimizers[inside].softmax(-1), q[inside], rtol=0, atol=1e-6)


def test_the_gap_of_cross_entropy_is_a_divergence():
    """With f_a = f_b the best is the mean of q_a and q_b for both: the gap is KL(q, that)."""
    q = torch.tensor([[0.4, 0.3, 0.2, 0.1]], dtype=torch.float64)
    for gap in gaps(subject("ce"), q):
        a, b = q[0, gap.k - 1].item(), q[0, gap.k].item()
        middle = (a + b) / 2
        assert gap.size == pytest.approx(a * math.log(a / middle) + b * math.log(b / middle), rel=1e-8)
        assert not preserves(torch.tensor(gap.f, dtype=torch.float64), q[0], gap.k)


def test_an_infimum_that_is_not_attained():
    """MAE wants all of the probability on one class: 2(1 - max q), at infinity."""
    q = distributions(4)
    _, values = infima(subject("mae"), q)
    torch.testing.assert_close(values, 2 * (1 - q.amax(-1)), rtol=0, atol=1e-13)


def test_distributions_are_distributions():
    q = distributions(5, seed=3)
    torch.testing.assert_close(q.sum(-1), torch.ones(len(q), dtype=torch.float64))
    assert (q.diff(dim=-1) <= 0).all()
    assert (q == 1).any(), "one-hot"
    assert ((q[:, 0] > q[:, 1]) & (q[:, 1] == q[:, -1]) & (q[:, 1] > 0)).any(), "a uniform tail"
    assert torch.equal(q, distributions(5, seed=3))
