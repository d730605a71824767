import pytest

from labelhedge.losses import _spec
from tests.own_losses import OWN


@pytest.fixture(autouse=True)
def _own_losses():
    """The tests' own losses are in the registry."""
    with pytest.MonkeyPatch.context() as patch:
        for module in OWN:
            patch.setitem(_spec._REGISTRY, module.spec.id, module.spec)
        yield
