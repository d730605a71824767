"""The module form of a loss function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from torch import Tensor, nn

from labelhedge.losses._apply import check_common
from labelhedge.losses._spec import LossSpec


class Loss(nn.Module):
    """Base of all losses: holds the options of its function and calls it.

    A subclass names its ``function``; its options and their defaults are those of that function. Tensors among
    them become buffers, so that ``.to`` moves them and ``state_dict`` holds them.
    """

    function: ClassVar[Callable[..., Tensor]]
    spec: ClassVar[LossSpec]

    def __init__(self, **options: Any) -> None:
        super().__init__()
        allowed = self.spec.options
        self.spec.refuse_unknown(options)
        self._options, self._hyperparameters = tuple(allowed), tuple(self.spec.defaults)
        for name, default in allowed.items():
            value = options.get(name, default)
            if name in self.spec.domains:
                self.spec.check(name, value)
            if name == "weight" or (isinstance(value, Tensor) and not isinstance(value, nn.Parameter)):
                self.register_buffer(name, value)
            else:
                setattr(self, name, value)
        check_common(self.options)  # type: ignore[arg-type]

    @property
    def options(self) -> dict[str, Any]:
        """The options as they are passed to the function."""
        return {name: getattr(self, name) for name in self._options}

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        return type(self).function(logits, target, **self.options)

    def extra_repr(self) -> str:
        default = self.spec.options
        changed = {n: v for n, v in self.options.items() if isinstance(v, Tensor) or v != default[n]}
        return ", ".join(
            f"{n}=tensor{tuple(v.shape)}" if isinstance(v, Tensor) else f"{n}={v!r}" for n, v in changed.items()
        )
