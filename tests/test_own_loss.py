"""A contributor adds two losses, as CONTRIBUTING.md says: a file each, an oracle, and one command."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PLAIN = '''
"""The focal loss."""

from __future__ import annotations

from typing import Unpack

import torch
from torch import Tensor

from labelhedge.losses._formulas import log_softmax, take
from labelhedge.losses._loss import Loss
from labelhedge.losses._options import Interval, Normalize, Number, Options
from labelhedge.losses._spec import LossSpec, one_by_one

__all__ = ["FocalLoss"]


class FocalLoss(Loss):
    """Focal loss, ``-(1 - p_y)^γ log p_y`` (Lin et al., 2017).

    Args:
        weight: ``(K,)``, how much each class counts; None: all the same.
        gamma: γ in [0, ∞), a number or a tensor that broadcasts against the target.
        normalize: What is done to the logits f first. None: nothing; ``"l1"``: divided by ``‖f‖₁/K``; ``"softplus"``:
            the same after a softplus.
        **options: ``ignore_index``, ``reduction``, ``temperature``, ``class_dim`` and ``backend``.

    Shape:
        Logits ``(N, K)``. The target holds class indices or class probabilities. The loss is a number.

    Example:
        >>> FocalLoss(gamma=0.0)(torch.zeros(1, 4), torch.tensor([0]))
        tensor(1.3863)
    """

    spec = LossSpec(
        "focal",
        "-(1 - p_y)^γ log p_y",
        domains={"gamma": Interval("[0, inf)")},
        grid=one_by_one(gamma=(0.0, 2.0)),
        soft_targets=True,
        reference="Lin et al. 2017",
    )

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        gamma: Number = 2.0,
        normalize: Normalize = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(weight, gamma=gamma, normalize=normalize, **options)

    @staticmethod
    def formula(logits: Tensor, target: Tensor | None, gamma: Number) -> Tensor:
        """``1 - p_y`` as ``-expm1(log p_y)``, which is exact where ``p_y`` is nearly 0 or 1."""
        log_p_y = take(log_softmax(logits), target)
        return -((-torch.expm1(log_p_y)) ** gamma) * log_p_y

'''
WITH_STATE = '''
"""Cross entropy that trusts a label the more, the longer its sample has been predicted so."""

from __future__ import annotations

from typing import Unpack

from torch import Tensor

from labelhedge.losses._formulas import log_softmax, take
from labelhedge.losses._loss import Loss
from labelhedge.losses._options import Interval, Normalize, Number, Options
from labelhedge.losses._spec import LossSpec, State

__all__ = ["TrustLoss"]


class TrustLoss(Loss):
    """Cross entropy times the running mean of ``p_y``, ``-t log p_y`` with ``t ← m t + (1 - m) p_y``.

    Args:
        weight: ``(K,)``, how much each class counts; None: all the same.
        momentum: m in [0, 1], a number or a tensor that broadcasts against the target.
        num_samples: How many training samples to keep t of; None: none, and t is 1.
        normalize: What is done to the logits f first. None: nothing; ``"l1"``: divided by ``‖f‖₁/K``; ``"softplus"``:
            the same after a softplus.
        **options: ``ignore_index``, ``reduction``, ``temperature``, ``class_dim`` and ``backend``.

    Shape:
        Logits ``(N, K)``. The target holds class indices. The loss is a number.

    Example:
        >>> import torch
        >>> criterion = TrustLoss(momentum=0.5, num_samples=2)
        >>> logits = torch.zeros(1, 2, requires_grad=True)
        >>> loss = criterion(logits, torch.tensor([0]), torch.tensor([1]))
        >>> criterion.t
        tensor([1.0000, 0.7500])
    """

    spec = LossSpec(
        "trust",
        "-t log p_y",
        domains={"momentum": Interval("[0, 1]")},
        state=(State("t", start=1.0),),
    )
    t: Tensor | None

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        momentum: Number = 0.9,
        num_samples: int | None = None,
        normalize: Normalize = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(weight, momentum=momentum, num_samples=num_samples, normalize=normalize, **options)

    @staticmethod
    def update(logits: Tensor, target: Tensor, momentum: Number, t: Tensor) -> dict[str, Tensor]:
        """A step of the running mean."""
        return {"t": momentum * t + (1 - momentum) * take(log_softmax(logits), target).exp()}

    @staticmethod
    def formula(logits: Tensor, target: Tensor | None, momentum: Number, t: Tensor | None = None) -> Tensor:
        """``-t log p_y``."""
        log_p_y = take(log_softmax(logits), target)
        return -log_p_y if t is None else -t * log_p_y

'''
ORACLES = """
    "focal": lambda p, y, gamma=2.0: -((1 - p[y]) ** gamma) * mp.log(p[y]),
    "trust": lambda p, y, momentum=0.9: -mp.log(p[y]),
"""
CONTRACT = [
    f"tests/losses/test_{name}.py" for name in ("properties", "numbers", "semantics", "values", "state_contract")
]
COMMANDS = """
from labelhedge.cli.app import app

for line in (
    "bench --dataset vowel --loss ce,focal,trust --noise u0.3 --epochs 4 --folds 1 --workers 1 --out results",
    "report results --out report",
    "certify focal --classes 3",
    "certify trust --classes 3",
):
    app(line.split(), standalone_mode=False)
"""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A copy of this one, with the two losses."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in ("src", "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("*.pyc.*"))  # but files being written
    (folder / "docs").mkdir()
    for name in (
        "README.md",
        "conftest.py",
        "docs/generate.py",
        "docs/loss_exports.py",
        "docs/public_names.py",
        "docs/architecture.md",
        "pyproject.toml",
    ):
        shutil.copy2(ROOT / name, folder / name)
    losses, oracles = folder / "src" / "labelhedge" / "losses", folder / "tests" / "losses" / "oracles.py"
    (losses / "focal.py").write_text(PLAIN.lstrip())
    (losses / "trust.py").write_text(WITH_STATE.lstrip())
    before, start, after = oracles.read_text().partition("_LOSSES: dict[str, Callable[..., mpf]] = {")
    oracles.write_text(before + start + ORACLES + after)
    for script in ("loss_exports", "generate", "public_names"):  # make generate
        run(folder, f"docs/{script}.py")
    return folder


def run(folder, *arguments):
    environment = os.environ | {"PYTHONPATH": f"{folder / 'src'}{os.pathsep}{folder}"}
    done = subprocess.run([sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_they_keep_the_contract_of_all_losses(checkout):
    options = ["-q", "--numprocesses=0", "-p", "no:cacheprovider", "-k", "focal or trust or generated or oracle"]
    written = [f"src/labelhedge/losses/{name}.py" for name in ("focal", "trust")]
    told = run(
        checkout, "-m", "pytest", *options, *CONTRACT, "tests/test_structure.py", "tests/test_public.py", *written
    )
    assert int(told.split(" passed")[0].split()[-1]) > 100
    assert " failed" not in told


def test_they_are_certified_and_on_the_leaderboard(checkout):
    told = run(checkout, "-c", COMMANDS)
    verdicts = dict(line.split("\t")[:2] for line in told.splitlines() if "\t" in line)
    assert verdicts["top-1 calibrated"] == "holds"
    assert verdicts["symmetric"] == "fails"
    table = (checkout / "report" / "tables" / "leaderboard.md").read_text()
    assert "focal" in table
    assert "trust" in table
