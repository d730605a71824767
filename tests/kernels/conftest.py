import os

import pytest
import torch


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request):
    """Where the kernels run: in Triton's interpreter, or on a CUDA device."""
    if request.param == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("Triton's interpreter is off (it is on where there is no CUDA device)")
    return torch.device(request.param)


@pytest.fixture
def use_layout(monkeypatch):
    """Lay rows of more than ``above`` classes out as ``use_layout(block, pieces, rows, warps, registers)`` says."""
    from labelhedge.kernels import launch

    def use(*layout, above=0):
        usual, chosen = launch.layout, launch.Layout(*layout)
        monkeypatch.setattr(
            launch, "layout", lambda classes, *rest: chosen if classes > above else usual(classes, *rest)
        )
        monkeypatch.setattr("labelhedge.losses._batch._REMEMBERED", {})  # calls are remembered with their layout

    return use


@pytest.fixture(params=[0, 3], ids=["long rows", "three pieces"])
def several_blocks(request, use_layout):
    """Rows of 33 to 48 classes are read again and again, or held in three pieces."""
    use_layout(16, request.param, 1, 1, None)


@pytest.fixture
def short_blocks(use_layout):
    """Rows of more than 16 classes are long ones."""
    use_layout(16, 0, 1, 1, None, above=16)
