import pytest

from labelhedge.report import write
from tests.report.synthetic import results


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """Results of three data sets, the paper's seven noises and fifteen losses."""
    return results(tmp_path_factory.mktemp("results"))


@pytest.fixture(scope="session")
def report(folder):
    return write(folder)
