"""Where one loss turns into another."""

import math

import pytest
import torch

import labelhedge as lh
from tests.losses.cases import random_batch

F = lh.functional
LOGITS, TARGET = random_batch(32)


def close(a, b, tolerance):
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def test_gce_between_ce_and_mae():
    close(F.gce(LOGITS, TARGET, q=0.0), F.ce(LOGITS, TARGET), 1e-12)
    close(F.gce(LOGITS, TARGET, q=1e-9), F.ce(LOGITS, TARGET), 1e-7)
    close(F.gce(LOGITS.float(), TARGET, q=1e-30), F.ce(LOGITS.float(), TARGET), 1e-6)
    close(F.gce(LOGITS, TARGET, q=1.0), F.mae(LOGITS, TARGET) / 2, 1e-12)


def test_tgce_is_gce_without_truncation():
    close(F.tgce(LOGITS, TARGET, k=0.0), F.gce(LOGITS, TARGET), 1e-12)
    assert F.tgce(LOGITS, TARGET, k=1.0) == 0


def test_sce_between_ce_and_rce():
    close(F.sce(LOGITS, TARGET, alpha=1.0), F.ce(LOGITS, TARGET), 1e-12)
    close(F.sce(LOGITS, TARGET, alpha=0.0), F.rce(LOGITS, TARGET, A=-4.0), 1e-12)


def test_js_between_ce_and_mae():
    close(F.js(LOGITS, TARGET, pi1=1e-6), F.ce(LOGITS, TARGET), 1e-4)
    # towards π = 1 it converges like 1/log(1 - π)
    gaps = [abs(F.js(LOGITS, TARGET, pi1=1 - eps) - F.mae(LOGITS, TARGET) / 2) for eps in (1e-3, 1e-6, 1e-12)]
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[1] / gaps[2] == pytest.approx(2, rel=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_ldr_kl_between_crammer_singer_and_the_mean_gap(dtype):
    logits = LOGITS.to(dtype)

    def ldr_kl(lam):
        return F.ldr_kl(logits, TARGET, lam=lam, normalize=None, reduction="none")

    gaps = (logits - logits.gather(1, TARGET[:, None]) + 0.1).scatter(1, TARGET[:, None], 0.0)
    crammer_singer, mean = F.cs(logits, TARGET, margin=0.1, reduction="none"), gaps.mean(-1)
    assert torch.equal(ldr_kl(0.0), crammer_singer)
    close(ldr_kl(math.inf), mean, 1e-6)
    for lam in (1e-2, 1e-4, 1e-30, 1e-40):
        assert (ldr_kl(lam) - crammer_singer).abs().max() <= 1.01 * lam * math.log(6) + 1e-6
    for lam in (50.0, 70.0, 1e3, 1e5, 1e8, 1e30):  # λ log mean exp(q/λ) -> mean + var/2λ: no digit is lost on the way
        spread = gaps.var(-1, correction=0)
        close(ldr_kl(lam), mean + spread / (2 * lam), 3e-6 + 30 / lam**2)


def test_ldr_kl_is_ce_up_to_a_constant():
    close(F.ldr_kl(LOGITS, TARGET, margin=0.0, normalize=None), F.ce(LOGITS, TARGET) - math.log(6), 1e-12)


def test_lambda_zero_and_infinity_within_one_tensor():
    lam = torch.tensor([0.0, math.inf, 1.0, 1e-3] * 8, dtype=torch.float64)
    logits = LOGITS.clone().requires_grad_()
    losses = F.ldr_kl(logits, TARGET, lam=lam, reduction="none")
    for i in range(4):
        close(losses[i::4], F.ldr_kl(LOGITS[i::4], TARGET[i::4], lam=lam[i].item(), reduction="none"), 1e-12)
    losses.sum().backward()
    assert logits.grad.isfinite().all()


def test_aldr_kl_is_ldr_kl_for_a_large_alpha_and_for_infinite_lambda0():
    close(F.aldr_kl(LOGITS, TARGET, alpha=1e9), F.ldr_kl(LOGITS, TARGET), 1e-7)
    for alpha in (None, 3.0):
        close(F.aldr_kl(LOGITS, TARGET, lambda0=math.inf, alpha=alpha), F.ldr_kl(LOGITS, TARGET, lam=math.inf), 1e-12)
    close(F.aldr_kl(LOGITS, TARGET, lambda0=1e6), F.ldr_kl(LOGITS, TARGET, lam=1e6), 1e-5)


def test_mse_is_the_brier_score_and_mae_the_l1_distance():
    p, e = LOGITS.softmax(-1), torch.nn.functional.one_hot(TARGET, 6)
    close(F.mse(LOGITS, TARGET), (p - e).square().sum(-1).mean(), 1e-12)
    close(F.mae(LOGITS, TARGET), (p - e).abs().sum(-1).mean(), 1e-12)


def test_combinations_are_built_from_their_parts():
    for name, partner in (("nce_rce", "rce"), ("nce_agce", "agce"), ("nce_aul", "aul")):
        combined = getattr(F, name)(LOGITS, TARGET, alpha=0.1, beta=9.9)
        close(combined, 0.1 * F.nce(LOGITS, TARGET) + 9.9 * getattr(F, partner)(LOGITS, TARGET), 1e-12)
