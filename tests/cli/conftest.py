import pytest

from tests.cli.commands import QUICK, Forker


@pytest.fixture(scope="session")
def forker(tmp_path_factory):
    with Forker(tmp_path_factory.mktemp("commands")) as forker:
        yield forker


@pytest.fixture(scope="session")
def whole(forker, tmp_path_factory):
    """A folder that one process filled without interruption, and what it said."""
    out = tmp_path_factory.mktemp("whole") / "results"
    answer = forker.start(*QUICK, "--workers", "1", "--out", out).finish()
    assert answer.returncode == 0, answer.stderr
    return out, answer
