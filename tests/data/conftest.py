import dataclasses

import numpy as np
import pytest

from conftest import real_file
from labelhedge.data._registry import REGISTRY


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
