"""What is said to somebody who declares a loss and makes a mistake, or calls one with the wrong kind of thing."""

import dataclasses

import numpy as np
import pytest
import torch

import labelhedge as lh
from labelhedge.losses import Interval, Loss, LossSpec, State, _spec

LOGITS, TARGET = torch.eye(3), torch.tensor([0, 1, 2])


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch):
    monkeypatch.setattr(_spec, "_REGISTRY", dict(_spec._REGISTRY))


def declared(**settings):
    class OwnLoss(Loss):
        spec = LossSpec("own", "f", **settings)

        def __init__(self, weight=None, *, gamma=2.0, **options):
            super().__init__(weight, gamma=gamma, **options)

        @staticmethod
        def formula(logits, target, gamma):
            return gamma * logits.gather(-1, target)

    return OwnLoss


@pytest.mark.parametrize("part", ["domains", "choices", "optional"])
def test_a_declaration_of_something_that_is_no_hyperparameter(part):
    wrong = {"domains": {"gama": Interval("[0, 1]")}, "choices": {"gama": ("a",)}, "optional": frozenset({"gama"})}
    with pytest.raises(ValueError, match="the spec of 'own' speaks of 'gama', but OwnLoss takes gamma"):
        declared(**{part: wrong[part]})
    assert declared()().gamma == 2.0


def test_a_hyperparameter_that_is_not_passed_on():
    class ForgetfulLoss(declared()):
        spec = LossSpec("forgetful", "f")

        def __init__(self, weight=None, *, gamma=2.0, **options):
            Loss.__init__(self, weight, **options)

    with pytest.raises(TypeError, match=r"ForgetfulLoss.__init__ must pass on gamma to super\(\).__init__"):
        ForgetfulLoss(gamma=7.0)


def test_a_formula_needs_a_spec_of_its_own():
    def formula(logits, target, q):
        return 100 * lh.GCELoss.formula(logits, target, q)

    with pytest.raises(TypeError, match="TwiceLoss has a formula of its own, so it must declare a spec of its own"):
        type("TwiceLoss", (lh.GCELoss,), {"formula": staticmethod(formula)})
    spec = dataclasses.replace(lh.GCELoss.spec, id="twice", closed_form=None)
    twice = type("TwiceLoss", (lh.GCELoss,), {"formula": staticmethod(formula), "spec": spec})
    torch.testing.assert_close(twice()(LOGITS, TARGET), 100 * lh.GCELoss()(LOGITS, TARGET))


def test_a_subclass_may_have_other_defaults():
    class MildLoss(lh.GCELoss):
        def __init__(self):
            super().__init__(q=0.9)

    assert MildLoss()(LOGITS, TARGET) == lh.GCELoss(q=0.9)(LOGITS, TARGET)


def test_state_and_intervals():
    with pytest.raises(ValueError, match="merge of state 't' must be 'mean' or 'max', got 'sum'"):
        State("t", merge="sum")
    with pytest.raises(ValueError, match=r"\[1, 0\] holds no number"):
        Interval("[1, 0]")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: lh.GCELoss(num_samples=3), "gce takes no num_samples: it keeps nothing that depends on it"),
        (lambda: lh.ALDRKLLoss(num_samples=3, num_classes=3), "aldr-kl takes no num_classes"),
        (lambda: lh.functional.gce(LOGITS, TARGET, 0.5), "weight must be a tensor of one number per class or None"),
        (lambda: lh.CELoss(ignore_index=None), "ignore_index must be an integer, got None"),
        (lambda: lh.CELoss(ignore_index=1.5), "ignore_index must be an integer, got 1.5"),
        (lambda: lh.CELoss(class_dim="a"), "class_dim must be an integer, got 'a'"),
        (lambda: lh.CELoss()(LOGITS, [0, 1, 2]), "target must be a tensor, got list"),
        (lambda: lh.CELoss()(LOGITS.numpy(), TARGET), "logits must be a tensor, got ndarray"),
        (lambda: lh.ALDRKLLoss(num_samples=3)(LOGITS, TARGET, [0, 1, 2]), "index must be a tensor, got list"),
        (lambda: lh.functional.tgce(LOGITS, TARGET, keep=True), "keep must be a tensor of booleans, got True"),
        (
            lambda: lh.functional.linear_ce(LOGITS, LOGITS, TARGET, class_dim=0),
            "ce has no option 'class_dim'; it takes weight, ignore_index, reduction, normalize, temperature",
        ),
        (lambda: lh.functional.ldr_weights(LOGITS, TARGET, reduction="sum"), "ldr has no option 'reduction'"),
        (lambda: lh.functional.aldr_lambda(LOGITS, TARGET, weight=LOGITS[0]), "aldr-kl has no option 'weight'"),
    ],
)
def test_the_wrong_kind_of_argument(call, message):
    with pytest.raises(TypeError) as error:
        call()
    assert message in str(error.value)


def test_other_wrong_arguments():
    with pytest.raises(ValueError, match=r"num_samples must be given for refresh: TGCELoss\(num_samples=N\)"):
        lh.TGCELoss().refresh(LOGITS, TARGET, TARGET)
    with pytest.raises(ValueError, match=r"lam must be a number in \[0, inf\], got -1.0"):
        lh.functional.linear_aldr_kl(LOGITS, LOGITS, TARGET, lam=-torch.ones(3))
    with pytest.raises(ValueError, match=r"^index must be in \[0, 4\), got 9$"):
        lh.ALDRKLLoss(num_samples=4)(LOGITS, TARGET, torch.tensor([0, 9, 1]))
    assert lh.CELoss(ignore_index=np.int64(2))(LOGITS, TARGET) == lh.CELoss(ignore_index=2)(LOGITS, TARGET)
