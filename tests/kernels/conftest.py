import os

import pytest
import torch

triton = pytest.importorskip("triton", reason="Triton is not installed")


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request):
    """Where the kernels run: in Triton's interpreter, or on a CUDA device."""
    if request.param == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("Triton's interpreter is off (it is on where there is no CUDA device)")
    return torch.device(request.param)


@pytest.fixture
def short_blocks(monkeypatch):
    """Rows of more than 16 classes are long ones."""
    from labelhedge.kernels import launch

    monkeypatch.setattr(launch, "LONGEST_BLOCK", 16)
    monkeypatch.setattr(launch, "LONG_ROW_BLOCK", 16)
