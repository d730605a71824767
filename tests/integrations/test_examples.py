"""The examples that need an extra or two processes run, and show what they are there to show."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


@pytest.mark.parametrize(
    ("name", "losses"),
    [
        ("huggingface_trainer", ["cross entropy", "ALDR-KL", "ALDR-KL, Algorithm 1"]),
        ("lightning_module", ["cross entropy", "ALDR-KL"]),
        ("ddp", ["cross entropy", "ALDR-KL"]),
    ],
)
def test_example(name, losses, tmp_path):
    command = [sys.executable, EXAMPLES / f"{name}.py", "--epochs", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    accuracies = re.findall(r"^(.+?) +test accuracy ([\d.]+)%", done.stdout, re.MULTILINE)
    assert [loss for loss, _ in accuracies] == losses
    assert all(5 < float(accuracy) <= 100 for _, accuracy in accuracies)
    assert re.search(r"mean λ of right labels 0\.\d+, of wrong ones 0\.\d+", done.stdout)
    assert "different" not in done.stdout
    if name == "ddp":
        assert "2 processes, the same λ for all 1,617 samples" in done.stdout
    assert list(tmp_path.iterdir()) == []  # nothing is left behind
