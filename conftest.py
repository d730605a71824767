import math
import os
from pathlib import Path

import pytest
import torch

import labelhedge as lh

REAL_DATA = Path(__file__).parent.parent / "shared" / "data"


@pytest.fixture(autouse=True)
def _names_for_doctests(doctest_namespace):
    doctest_namespace |= {"torch": torch, "math": math, "lh": lh}


def pytest_collection_modifyitems(config, items):
    """Leave out what needs real files where there are none; all other tests write small files of the same format."""
    if not REAL_DATA.is_dir():
        left_out = [item for item in items if item.get_closest_marker("real_data")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def pytest_sessionfinish(session):
    """Where everything must run, a test that was skipped counts as failed."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("LABELHEDGE_FAIL_ON_SKIP") and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
