import dataclasses

import numpy as np
import pytest

from conftest import real_file
from labelhedge.data import Store, _download
from labelhedge.data._registry import REGISTRY
from tests.data.fetching import BODY, URL
from tests.data.server import File, publishing


def real_arrays(name):
    """The arrays of a real data set, or None if it is not there."""
    path = real_file(name)
    if path is None:
        return None
    with np.load(path, allow_pickle=False) as arrays:
        return {key: arrays[key] for key in arrays.files}


@pytest.fixture
def published(monkeypatch):
    """Make a data set's entry fit files written by a test: no checksum is known, the rows may be fewer."""

    def adapt(name, **changes):
        files = tuple(dataclasses.replace(file, checksum=None, size=None) for file in REGISTRY[name].files)
        monkeypatch.setitem(REGISTRY, name, dataclasses.replace(REGISTRY[name], files=files, **changes))

    return adapt


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    monkeypatch.setattr(_download, "WAIT", 0.001)
    monkeypatch.setenv("no_proxy", "*")
    for name in ("LABELHEDGE_DATA", "LABELHEDGE_MIRROR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def publisher():
    with publishing() as publisher:
        publisher.files[URL] = File(BODY)
        yield publisher


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "root")
