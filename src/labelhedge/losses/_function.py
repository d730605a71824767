"""The function form of a loss, made from its class."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any, ParamSpec, Protocol, cast

from torch import Tensor

from labelhedge.losses._batch import Settings, prepare
from labelhedge.losses._loss import Loss
from labelhedge.losses._spec import OF_STATE

P = ParamSpec("P")


class LossFunction(Protocol[P]):
    """``function(logits, target, weight=None, *, ...)``: a loss with the options of its class."""

    def __call__(self, logits: Tensor, target: Tensor, /, *args: P.args, **kwargs: P.kwargs) -> Tensor:
        """The reduced loss."""
        ...


def function_of(module: Callable[P, Loss]) -> LossFunction[P]:
    """A loss class as a function: ``function(logits, target, **options)`` is ``module(**options)(logits, target)``."""
    kind = cast(type[Loss], module)
    spec = kind.spec

    def function(logits: Tensor, target: Tensor, weight: Tensor | None = None, **options: Any) -> Tensor:
        spec.refuse_unknown(options)
        batch = prepare(spec, logits, target, Settings.of({**spec.options, **options, "weight": weight}))
        return kind.of_batch(batch, {})[0]

    name = re.sub(r"\W", "_", spec.id)
    function.__code__ = function.__code__.replace(
        co_name=name
    )  # one of its own: compilers count what they compile of each
    function.__name__ = function.__qualname__ = name
    function.__module__ = kind.__module__
    function.__doc__ = _documentation(kind, name)
    function.__signature__ = _signature(kind)  # type: ignore[attr-defined]
    return cast("LossFunction[P]", function)


def _signature(kind: type[Loss]) -> inspect.Signature:
    """That of the class, less what says how much state to keep: a function keeps none."""
    either = inspect.Parameter.POSITIONAL_OR_KEYWORD
    first = [inspect.Parameter(name, either, annotation="Tensor") for name in ("logits", "target")]
    options = [p for p in inspect.signature(kind).parameters.values() if p.name not in OF_STATE]
    return inspect.Signature([*first, *options], return_annotation="Tensor")


def _documentation(kind: type[Loss], name: str) -> str:
    """The text of the class for the function: its example calls it, and nothing is said of how much state to keep."""
    text = inspect.getdoc(kind) or ""
    text = re.sub(rf"^    ({'|'.join(OF_STATE)}): .*\n(        .*\n)*", "", text, flags=re.MULTILINE)
    call = re.compile(rf"{kind.__name__}\((.*?)\)\((.*)\)$", re.MULTILINE)
    text = call.sub(lambda found: f"{name}({', '.join(filter(None, (found[2], found[1])))})", text)
    return text.replace("Args:\n", "Args:\n    logits: See Shape.\n    target: See Shape.\n", 1)
