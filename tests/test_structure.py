"""The house rules that a machine can check."""

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import labelhedge as lh
from docs import generate, public_names
from tests.losses.cases import NAMES, function

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "labelhedge"
MAY_IMPORT = {
    "__init__": {
        "_interrupt",
        "_version",
        "audit",
        "data",
        "estimator",
        "functional",
        "integrations",
        "losses",
        "models",
        "noise",
        "results",
        "theory",
        "train",
    },
    "__main__": {"cli"},
    "_deprecation": set(),
    "_ensemble": set(),
    "_errors": set(),
    "_files": set(),
    "_foreign": set(),
    "_interrupt": set(),
    "_optional": {"_errors"},
    "_random": set(),
    "_svg": {"_optional"},
    "_version": set(),
    "audit": {"audit", "losses", "train", "_optional", "_errors"},
    "bench": {
        "bench",
        "data",
        "losses",
        "models",
        "noise",
        "results",
        "train",
        "_optional",
        "_random",
        "_errors",
        "_version",
    },
    "cli": {
        "audit",
        "bench",
        "cli",
        "data",
        "figures",
        "losses",
        "models",
        "noise",
        "report",
        "results",
        "theory",
        "train",
        "_errors",
        "_files",
        "_foreign",
        "_optional",
        "_version",
    },
    "data": {"data", "_optional", "_random", "_errors"},
    "estimator": {"audit", "functional", "losses", "train", "_ensemble", "_optional"},
    "figures": {"bench", "data", "figures", "losses", "noise", "train", "_optional", "_svg", "_errors", "_files"},
    "functional": {"losses"},
    "integrations": {"integrations", "losses", "_optional"},
    "kernels": {"kernels"},
    "losses": {"losses", "kernels", "_deprecation", "_errors"},
    "models": {"models", "_errors"},
    "noise": {"noise", "_random", "_errors"},
    "report": {"report", "results", "_optional", "_svg", "_errors", "_files", "_foreign"},
    "results": {"results", "_optional", "_errors", "_files"},
    "theory": {"losses", "theory", "_errors"},
    "train": {"losses", "models", "train", "_errors", "_files"},
}


def imported_rooms(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
            yield from ("".join(rest[:1]) or "__init__" for package, *rest in names if package == "labelhedge")
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "labelhedge":
            rest = node.module.split(".")[1:2]
            yield from rest or [alias.name for alias in node.names]


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_who_imports_whom(path):
    room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    assert set(imported_rooms(path)) <= MAY_IMPORT[room]


def printed(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_the_import_needs_torch_and_numpy_alone_and_the_rest_comes_when_it_is_used():
    loaded = "print(*{m.split('.')[0] for m in sys.modules})"
    first, used = printed(
        f"import sys, labelhedge as lh; {loaded}; print(*(f'{{name}}={{getattr(lh, name)}}' for name in dir(lh)))"
    ).splitlines()
    before = printed(f"import sys, torch, numpy; {loaded}").split()
    assert set(first.split()) - set(before) <= {"labelhedge", "importlib_metadata"}
    for name in ("audit", "integrations", "models", "theory", "train"):
        assert f" {name}=<module 'labelhedge.{name}'" in used
    assert " LabelHedgeClassifier=<class 'labelhedge.estimator.LabelHedgeClassifier'>" in used
    assert " suggest=<function suggest" in used


def test_there_is_nothing_else():
    with pytest.raises(AttributeError, match="module 'labelhedge' has no attribute 'FocalLoss'"):
        _ = lh.FocalLoss
    with pytest.raises(AttributeError, match=r"module 'labelhedge.integrations' has no attribute 'keras'"):
        _ = lh.integrations.keras


def test_the_registry():
    assert len(lh.losses.PAPER) == 15
    assert set(lh.losses.PAPER) <= set(NAMES)
    with pytest.raises(ValueError, match="unknown loss 'focal'; known losses: agce, aldr-kl"):
        lh.losses.create("focal")


ENGINES = [
    *(PACKAGE / "losses").glob("_[!_]*.py"),
    *(path for room in ("integrations", "kernels", "train") for path in (PACKAGE / room).glob("*.py")),
    *(PACKAGE / "bench" / f"{name}.py" for name in ("estimate", "jobs", "local", "one", "ray", "rows", "run")),
]


@pytest.mark.parametrize("path", ENGINES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_engines_know_no_loss_by_name(path):
    tree = ast.parse(path.read_text())
    words = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    words |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    words |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert not words & {*NAMES, *lh.losses.classes.__all__}


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
    kept = {state.name for state in spec.state}
    in_words = inspect.signature(function(name)).parameters
    assert [n for n in in_words if n not in kept] == ["logits", "target", "weight", *own_arguments(spec), "options"]
    for params in spec.grid:
        assert repr(lh.losses.create(name, **params)).startswith(spec.module.__name__)


def own_arguments(spec):
    return [*spec.own, "normalize"]


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
    assert list(said) == ["weight", *own_arguments(spec)[:-1], *spec.counts, "normalize", "**options"]
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


def test_what_is_generated_is_up_to_date():
    for path, text in generate.files().items():
        assert path.read_text() == text, "run python docs/generate.py"


def test_the_public_names_are_those_on_the_list():
    listed, found = public_names.FILE.read_text().splitlines(), public_names.listing().splitlines()
    assert found == listed, "if this is meant, see docs/stability.md, and run python docs/public_names.py"


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
