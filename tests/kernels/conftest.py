import os

import pytest
import torch


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request):
    """Where the kernels run: in Triton's interpreter, or on a CUDA device."""
    if request.param == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("Triton's interpreter is off (it is on where there is no CUDA device)")
    return torch.device(request.param)


@pytest.fixture(params=[0, 3], ids=["long rows", "three pieces"])
def several_blocks(request, monkeypatch):
    """Rows of 33 to 48 classes are read again and again, or held in three pieces."""
    from labelhedge.kernels import launch

    monkeypatch.setattr(launch, "layout", lambda *_args: launch.Layout(16, request.param, 1, 1, None))
    _forget(monkeypatch)


@pytest.fixture
def short_blocks(monkeypatch):
    """Rows of more than 16 classes are long ones."""
    from labelhedge.kernels import launch

    monkeypatch.setattr(launch, "LONGEST_ROW", 16)
    monkeypatch.setattr(launch, "LONG_ROW_BLOCK", 16)
    _forget(monkeypatch)


def _forget(monkeypatch):
    """Calls are remembered with their layout."""
    monkeypatch.setattr("labelhedge.losses._fused._PREPARED", {})
