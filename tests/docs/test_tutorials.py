"""The tutorials do what they say: each block of code is run, and what it prints is compared with what is shown."""

import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from labelhedge.losses import _spec

TUTORIALS = Path(__file__).parents[2] / "docs" / "tutorials"
EXECUTED = ["noisy_table", "wrong_labels", "images", "mixing", "own_loss"]
BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```\n(?:\n?```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"-?\d+(?:,\d{3})*(?:\.\d+)?(?:e-?\d+)?")


def blocks(markdown):
    """Language, code and the output that is shown below it, for every block that can be run."""
    return [(found[1], found[2], found[3] or "") for found in BLOCK.finditer(markdown)]


def printed(language, code, names):
    if language == "sh":
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        return subprocess.run(
            code, shell=True, check=True, stdout=subprocess.PIPE, text=True, env=os.environ | {"PATH": path}
        ).stdout
    with contextlib.redirect_stdout(io.StringIO()) as output:
        exec(compile(code, "<tutorial>", "exec"), names)
    return output.getvalue()


def numbers(text):
    return [float(number.replace(",", "")) for number in NUMBER.findall(text)]


@pytest.mark.parametrize("name", EXECUTED)
def test_a_tutorial_prints_what_it_shows(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(_spec, "_REGISTRY", _spec._REGISTRY.copy())  # losses that it defines are gone afterwards
    names = {"__name__": "tutorial"}
    for language, code, shown in blocks((TUTORIALS / f"{name}.md").read_text()):
        output = printed(language, code, names)
        assert NUMBER.sub("#", output) == NUMBER.sub("#", shown), code
        assert numbers(output) == pytest.approx(numbers(shown), rel=0.1, abs=0.02), code


def test_each_tutorial_is_run_or_has_its_programs_in_examples():
    pages = {path.stem for path in TUTORIALS.glob("*.md")}
    assert pages == {*EXECUTED, "index", "trainers"}
