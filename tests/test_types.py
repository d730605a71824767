"""What mypy and pyright make of a user's program: they accept what is right and refuse what is wrong."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROGRAM = """
import torch
from torch import Tensor

import labelhedge as lh
from labelhedge.functional import gce, linear_ce

logits, target, index = torch.zeros(4, 3), torch.zeros(4, dtype=torch.long), torch.arange(4)
weight = torch.ones(3)

criterion: lh.losses.Loss = lh.CELoss(weight)
for criterion in (lh.GCELoss(q=torch.tensor(0.5)), lh.ALDRKLLoss(weight, num_samples=4), lh.losses.create("mae")):
    criterion(logits, target, index).backward()
loss: Tensor = gce(logits, target, weight, q=0.5, reduction="sum") + linear_ce(logits, torch.ones(5, 3), target)
audit: lh.audit.Audit = lh.audit.find(logits.numpy(), target.numpy())
classifier: lh.LabelHedgeClassifier = lh.LabelHedgeClassifier(loss="ce")
verdict: lh.theory.Verdict = lh.theory.certify(lh.MAELoss(reduction="none"))["symmetric"]
suggestion: lh.audit.Suggestion = lh.suggest(logits.numpy(), target.numpy())
network: lh.models.ResNet = lh.models.resnet18(10)
trial: lh.train.stacked.Trial = lh.train.stacked.Trial(0.1, 0.0, {})
lh.integrations.lightning.PerSampleCallback(criterion)
lh.integrations.transformers.loss_function(criterion)

lh.GCELoss(qq=3)  # wrong
lh.GCELoss(q="much")  # wrong
lh.CELoss(weight, None)  # wrong
lh.CELoss("balanced")  # wrong
lh.CELoss(reduction="median")  # wrong
lh.MAELoss(num_samples=4)  # wrong
lh.ALDRKLLoss(num_samples=4.5)  # wrong
lh.GCELoss()(logits)  # wrong
lh.GCELoss()(logits, "cat")  # wrong
lh.GCELoss()(logits, target, index, index)  # wrong
gce(logits, target, qq=3)  # wrong
gce(logits)  # wrong
lh.FocalLoss()  # wrong
lh.LabelHedgeClassifier(los="ce")  # wrong
"""
WRONG = {number for number, line in enumerate(PROGRAM.splitlines(), 1) if line.endswith("# wrong")}


def mypy(program):
    line = [sys.executable, "-m", "mypy", "--strict", "--no-pretty", program]  # in ROOT, for its cache
    answer = subprocess.run(line, cwd=ROOT, env=os.environ | {"MYPYPATH": "src"}, capture_output=True, text=True)
    found = re.findall(r"^(.+):(\d+): error", answer.stdout, re.MULTILINE)
    assert {file for file, _ in found} == {str(program)}, answer.stdout + answer.stderr
    return {int(number) for _, number in found}


def pyright(program):
    settings = {"typeCheckingMode": "standard", "extraPaths": [str(ROOT / "src")]}
    program.with_name("pyrightconfig.json").write_text(json.dumps(settings))
    line = [sys.executable, "-m", "basedpyright", "-p", program.parent, "--pythonpath", sys.executable, "--outputjson"]
    found = json.loads(subprocess.run(line, capture_output=True, text=True).stdout)["generalDiagnostics"]
    return {each["range"]["start"]["line"] + 1 for each in found if each["severity"] == "error"}


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_a_type_checker_sees_what_is_wrong_and_nothing_else(checker, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    assert checker(program) == WRONG
