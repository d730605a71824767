import pytest

from labelhedge.figures import synthetic, write

EFFORT = 0.05


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """All studies with a twentieth of the epochs."""
    return write(out=tmp_path_factory.mktemp("figures"), effort=EFFORT)


@pytest.fixture(scope="session")
def made_again(made, tmp_path_factory):
    for experiment in (synthetic.fine_tuned, synthetic.from_scratch):
        experiment.cache_clear()
    return write(out=tmp_path_factory.mktemp("again"), effort=EFFORT)
