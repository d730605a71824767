import importlib.util
import math
import os
from pathlib import Path

import hypothesis
import numpy as np
import pytest
import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # the kernels then run on a CPU; read where Triton is imported

import labelhedge as lh

NEEDS = {
    "triton": ["src/labelhedge/kernels/*"],
    "transformers": ["src/labelhedge/integrations/transformers.py", "tests/integrations/*"],
    "lightning": ["src/labelhedge/integrations/lightning.py", "tests/integrations/*"],
    "ray": ["tests/bench/test_ray.py"],
}
"""Files that only those can import who have the package."""
collect_ignore_glob = [
    path for package, paths in NEEDS.items() if not importlib.util.find_spec(package) for path in paths
]

REAL_DATA = Path(__file__).parent.parent / "shared" / "data"
"""Real files, where somebody has put them beside the checkout; tests make do with small ones of the same format."""

_used: set[str] = set()

hypothesis.settings.register_profile("repeatable", derandomize=True, database=None)
if os.environ.get("LABELHEDGE_FAIL_ON_SKIP"):
    hypothesis.settings.load_profile("repeatable")  # by hand, each run of a property-based test looks elsewhere


def real_file(name):
    """A real file, or None if it is not there."""
    _used.add(name)
    path = REAL_DATA / name
    return path if path.exists() else None


@pytest.fixture(autouse=True)
def _names_for_doctests(doctest_namespace):
    doctest_namespace |= {"torch": torch, "math": math, "np": np, "lh": lh}


def pytest_collection_modifyitems(config, items):
    """Leave out what only real files can show where there are none."""
    if not REAL_DATA.is_dir():
        left_out = [item for item in items if item.get_closest_marker("real_data")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    """Hear which real files the tests of another process have read."""
    _used.update(getattr(node, "workeroutput", {}).get("used", []))


def pytest_sessionfinish(session):
    """Where everything must run, a skipped test counts as failed, and so does a real file that no test has read."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["used"] = sorted(_used)
        return
    if not os.environ.get("LABELHEDGE_FAIL_ON_SKIP"):
        return
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    unread = sorted({path.name for path in REAL_DATA.glob("*.*z")} - _used)
    if unread:
        reporter.write_line(f"real files that no test read: {', '.join(unread)}", red=True)
    if unread or reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
