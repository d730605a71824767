"""The house rules that a machine can check."""

import ast
import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import labelhedge as lh
from docs import generate
from tests.losses.cases import NAMES

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "labelhedge"
MAY_IMPORT = {
    "__init__": {"_interrupt", "data", "functional", "losses", "noise", "results"},
    "__main__": {"cli"},
    "_ensemble": set(),
    "_errors": set(),
    "_files": set(),
    "_foreign": set(),
    "_interrupt": set(),
    "_optional": {"_errors"},
    "_random": set(),
    "_svg": {"_optional"},
    "audit": {"audit", "losses", "train", "_optional", "_errors"},
    "bench": {"bench", "data", "losses", "models", "noise", "results", "train", "_optional", "_random", "_errors"},
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
    },
    "data": {"data", "_optional", "_random", "_errors"},
    "estimator": {"audit", "functional", "losses", "train", "_ensemble", "_optional"},
    "figures": {"bench", "data", "figures", "losses", "noise", "train", "_optional", "_svg", "_errors", "_files"},
    "functional": {"losses"},
    "integrations": {"losses", "_optional"},
    "kernels": {"kernels"},
    "losses": {"losses", "kernels", "_errors"},
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
            yield from (alias.name.split(".")[1] for alias in node.names if alias.name.startswith("labelhedge."))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "labelhedge":
            rest = node.module.split(".")[1:2]
            yield from rest or [alias.name for alias in node.names]


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_who_imports_whom(path):
    room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    assert set(imported_rooms(path)) <= MAY_IMPORT[room]


def test_import_needs_torch_and_numpy_alone():
    code = "import sys, labelhedge; print(*{m.split('.')[0] for m in sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    allowed = "import sys, torch, numpy; print(*{m.split('.')[0] for m in sys.modules})"
    before = subprocess.run([sys.executable, "-c", allowed], capture_output=True, text=True, check=True).stdout.split()
    assert set(loaded) - set(before) <= {"labelhedge", "importlib_metadata"}


def test_import_with_a_release_candidate_of_triton(tmp_path):
    (tmp_path / "triton-3.5rc1.dist-info").mkdir()
    (tmp_path / "triton-3.5rc1.dist-info" / "METADATA").write_text("Name: triton\nVersion: 3.5rc1\n")
    code = "import importlib.metadata, labelhedge; print(importlib.metadata.version('triton'))"
    paths = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | {"PYTHONPATH": paths}
    )
    assert (ran.stdout, ran.stderr) == ("3.5rc1\n", "")


def test_the_registry_is_complete():
    assert len(NAMES) == 22
    assert len(lh.losses.PAPER) == 15
    assert set(lh.losses.PAPER) <= set(NAMES)
    assert lh.losses.PAPER[:3] == ("aldr-kl", "ldr-kl", "ce")
    with pytest.raises(ValueError, match="unknown loss 'focal'; known losses: agce, aldr-kl"):
        lh.losses.create("focal")


@pytest.mark.parametrize("name", NAMES)
def test_function_class_and_spec_agree(name):
    spec = lh.losses.get(name)
    function_name = name.replace("-", "_").replace("+", "_")
    assert getattr(lh.functional, function_name) is spec.function
    assert getattr(lh, spec.module.__name__) is spec.module
    module = spec.module()
    assert module.options == spec.options
    signature = inspect.signature(spec.module)
    assert {p.name: p.default for p in signature.parameters.values() if p.name != "num_samples"} == spec.options
    assert set(spec.defaults) == set(spec.domains) - {spec.state}
    for params in spec.grid:
        assert repr(lh.losses.create(name, **params)).startswith(spec.module.__name__)
    assert ">>>" in (spec.function.__doc__ or "")
    assert isinstance(module, torch.nn.Module)


def test_the_readme_has_the_tables_of_the_registries():
    text = generate.README.read_text()
    assert generate.updated(text) == text, "run python docs/generate.py"


def test_every_public_function_is_documented():
    for name in lh.functional.__all__:
        text = getattr(lh.functional, name).__doc__
        assert "Example:" in text, name
        assert "Args" in text, name
