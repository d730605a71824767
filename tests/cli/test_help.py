"""What ``--help`` shows can be typed."""

import re
import shlex
import sys

import pytest
import torch

import labelhedge as lh
from labelhedge._errors import UserError
from labelhedge.cli.certify import _loss
from labelhedge.losses import _spec
from tests.cli.test_exit_codes import FOUND

OWN = """
import labelhedge as lh
from labelhedge.losses import Interval, LossSpec, Loss, log_softmax, take

class Power(Loss):
    spec = LossSpec("power", "(-log p_y)^a", domains={"a": Interval("(0, inf)")})

    def __init__(self, weight=None, *, a=2.0, **options):
        super().__init__(weight, a=a, **options)

    @staticmethod
    def formula(logits, target, a):
        return (-take(log_softmax(logits), target)) ** a

def ce(logits, target):
    return lh.functional.mae(logits, target, reduction="none")
"""


@pytest.mark.parametrize("name", FOUND)
def test_examples(name):
    """Each stands in a paragraph of its own, and its options are those of the command."""
    paragraphs = FOUND[name].help.split("\n\n")
    examples = [found[1] for text in paragraphs if (found := re.fullmatch(rf"Example: labelhedge {name}(.*)", text))]
    assert examples
    for example in examples:
        assert FOUND[name].make_context(name, shlex.split(example))


def test_certify_takes_a_loss_of_ones_own_by_its_id_with_options_or_as_a_function(tmp_path, monkeypatch):
    monkeypatch.setattr(_spec, "_REGISTRY", _spec._REGISTRY.copy())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    (tmp_path / "losses_of_mine.py").write_text(OWN)
    logits, target = torch.randn(4, 3), torch.tensor([0, 1, 2, 0])
    by_id = _loss("losses_of_mine:power", {"a": 1.0})
    torch.testing.assert_close(by_id(logits, target), lh.functional.ce(logits, target, reduction="none"))
    function = _loss("losses_of_mine:ce", {})  # not the library's, which has the same name
    torch.testing.assert_close(function(logits, target), lh.functional.mae(logits, target, reduction="none"))
    with pytest.raises(UserError, match="--set is for losses with an id"):
        _loss("losses_of_mine:ce", {"a": 1.0})
    with pytest.raises(UserError, match="power has no option 'b'; it takes a, weight"):
        _loss("losses_of_mine:power", {"b": 1.0})
