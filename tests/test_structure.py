"""The house rules that a machine can check."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import labelhedge as lh
from docs import generate, loss_exports
from tests.losses.cases import NAMES

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
    "audit": {"audit", "losses", "train", "_optional", "_random", "_errors"},
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
        "_interrupt",
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
        "_interrupt",
        "_optional",
        "_version",
    },
    "data": {"data", "_optional", "_random", "_errors"},
    "estimator": {"audit", "functional", "losses", "train", "_ensemble", "_optional", "_random"},
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
    "train": {"losses", "models", "train", "_errors", "_files", "_random"},
}


def imported_rooms(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
            yield from (rest[0] if rest else "__init__" for package, *rest in names if package == "labelhedge")
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


def test_import_with_a_release_candidate_of_triton(tmp_path):
    (tmp_path / "triton-3.5rc1.dist-info").mkdir()
    (tmp_path / "triton-3.5rc1.dist-info" / "METADATA").write_text("Name: triton\nVersion: 3.5rc1\n")
    code = "import importlib.metadata, labelhedge; print(importlib.metadata.version('triton'))"
    paths = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | {"PYTHONPATH": paths}
    )
    assert (ran.stdout, ran.stderr) == ("3.5rc1\n", "")


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


def test_what_is_generated_is_up_to_date():
    for path, text in (loss_exports.files() | generate.files()).items():
        assert path.read_text() == text, "run make generate"
