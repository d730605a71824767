"""What fails in a worker is told by its parent."""

import pytest

from labelhedge._errors import UserError
from labelhedge.bench.jobs import jobs
from labelhedge.bench.local import work_off
from labelhedge.bench.protocol import PRESETS, setting
from labelhedge.results import ResultsStore


class UnpicklableError(Exception):
    def __reduce__(self):
        raise TypeError("cannot pickle")


FAILURES = {
    "user": UserError("no such thing"),
    "disk": OSError(28, "No space left on device", "a/b"),
    "bug": UnpicklableError("what happened"),
}


class Failing:
    """A machine that fails where a worker asks it for its data."""

    def __init__(self, kind):
        self.kind = kind

    @property
    def data(self):
        raise FAILURES[self.kind]


@pytest.mark.parametrize(
    ("kind", "error", "text"),
    [
        ("user", UserError, "no such thing"),
        ("disk", OSError, "a/b: No space left on device"),
        ("bug", RuntimeError, "UnpicklableError: what happened"),
    ],
)
def test_an_error_of_a_worker_keeps_its_text_and_its_traceback(tmp_path, kind, error, text):
    todo = jobs(PRESETS["demo"].protocol, ["vowel"], ["ce", "mae"], [setting("clean")], [0])
    with pytest.raises(error) as caught:
        work_off(todo, ResultsStore(tmp_path), Failing(kind), 2, lambda count: None)
    assert str(caught.value) == text
    [note] = caught.value.__notes__
    assert "in data\n    raise FAILURES[self.kind]" in note
