"""What users see of the library: names, signatures, docstrings, and what was renamed."""

import inspect
import re

import pytest
import torch

import labelhedge as lh
from docs import public_names
from tests.losses.cases import NAMES, function


def test_the_registry():
    assert len(lh.losses.PAPER) == 15
    assert set(lh.losses.PAPER) <= set(NAMES)
    with pytest.raises(ValueError, match="unknown loss 'focal'; known losses: agce, aldr-kl"):
        lh.losses.create("focal")


def test_there_is_nothing_else():
    with pytest.raises(AttributeError, match="module 'labelhedge' has no attribute 'FocalLoss'"):
        _ = lh.FocalLoss
    with pytest.raises(AttributeError, match=r"module 'labelhedge.integrations' has no attribute 'keras'"):
        _ = lh.integrations.keras


@pytest.mark.parametrize("name", NAMES)
def test_class_function_and_spec_agree(name):
    spec = lh.losses.get(name)
    module = spec.module()
    assert getattr(lh, spec.module.__name__) is spec.module
    assert module.options == spec.options
    first, *others = inspect.signature(spec.module).parameters.values()
    assert (first.name, first.kind) == ("weight", first.POSITIONAL_OR_KEYWORD)
    assert {p.kind for p in others} == {first.KEYWORD_ONLY, first.VAR_KEYWORD}
    assert set(spec.defaults) == set(spec.domains)
    taken = [n for n in inspect.signature(function(name)).parameters if n not in {state.name for state in spec.state}]
    assert taken == ["logits", "target", "weight", *spec.own, "normalize", "options"]
    for params in spec.grid:
        assert repr(lh.losses.create(name, **params)).startswith(spec.module.__name__)


def arguments(docstring):
    """What a docstring says of each argument, on one line."""
    _, _, rest = docstring.partition("Args:\n")
    entries = re.findall(r"^    (\*{0,2}\w+): (.*(?:\n {8}.*)*)", rest.partition("\n\n")[0], re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in entries}


@pytest.mark.parametrize("name", NAMES)
def test_the_docstring_of_a_loss_stands_alone(name):
    spec = lh.losses.get(name)
    text = inspect.getdoc(spec.module)
    said = arguments(text)
    assert list(said) == ["weight", *spec.own, *spec.counts, "normalize", "**options"]
    for hyperparameter, domain in spec.domains.items():
        written = "[1, K]" if domain.integer else domain.text.replace("inf", "∞")
        assert written in said[hyperparameter], hyperparameter
        assert "tensor" in said[hyperparameter], hyperparameter
    for option, choices in spec.choices.items():
        assert all(f'"{choice}"' in said[option] for choice in choices), option
    assert all(f"``{option}``" in said["**options"] for option in lh.losses.Options.__annotations__)
    _, _, rest = text.partition("Shape:\n")
    assert "(N, K)" in rest
    assert ("class probabilities" in rest) == spec.soft_targets
    assert ">>>" in rest
    assert not re.search(r"[Aa]s (in|for) :|[Ss]ame as :|likewise", text)


def test_the_public_names_are_those_on_the_list():
    listed, found = public_names.FILE.read_text().splitlines(), public_names.listing().splitlines()
    assert found == listed, "if this is meant, see docs/stability.md, and run make generate"


@pytest.mark.parametrize("old", [{"class_weight": torch.tensor([2.0, 1.0])}, {"bias": torch.tensor([1.0, 0.0])}])
def test_old_names_work_and_warn(old):
    inputs = torch.ones(2, 2), torch.eye(2), torch.tensor([0, 1])
    new = {{"class_weight": "weight", "bias": "linear_bias"}[name]: value for name, value in old.items()}
    with pytest.warns(DeprecationWarning, match=r"is deprecated and will be removed in labelhedge 0\.3; use"):
        loss = lh.functional.linear_ce(*inputs, reduction="sum", **old)
    assert loss == lh.functional.linear_ce(*inputs, reduction="sum", **new)
    assert loss != lh.functional.linear_ce(*inputs, reduction="sum")


def test_old_names_of_classes_warn():
    with pytest.warns(DeprecationWarning, match=r"losses.PerSampleLoss .*; use losses.Loss"):
        assert lh.losses.PerSampleLoss is lh.losses.Loss


def test_every_public_function_is_documented():
    for name in lh.functional.__all__:
        text = getattr(lh.functional, name).__doc__
        assert "Example:" in text, name
        assert set(inspect.signature(getattr(lh.functional, name)).parameters) == {
            argument.strip("*") for argument in arguments(inspect.cleandoc(text))
        }, name
