import math
import os

import pytest
import torch

import labelhedge as lh


@pytest.fixture(autouse=True)
def _names_for_doctests(doctest_namespace):
    doctest_namespace |= {"torch": torch, "math": math, "lh": lh}


def pytest_sessionfinish(session):
    """Where everything must run, a test that was skipped counts as failed."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("LABELHEDGE_FAIL_ON_SKIP") and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
