import pytest

from tests.cli.commands import QUICK, Forker
from tests.cli.pets import ONE_THREAD, write_pets


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


@pytest.fixture(scope="session")
def trainer(tmp_path_factory):
    """Starts ``labelhedge train``, again and again."""
    with Forker(tmp_path_factory.mktemp("commands"), "train", ONE_THREAD) as trainer:
        yield trainer


@pytest.fixture(scope="session")
def pets(tmp_path_factory):
    """A folder of images; copy it before changing it."""
    return write_pets(tmp_path_factory.mktemp("images") / "pets")
