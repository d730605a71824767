"""Train classifiers on labels that are partly wrong."""

import importlib
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from labelhedge import _interrupt, data, functional, losses, noise, results
from labelhedge.losses import classes as _classes
from labelhedge.losses.classes import *  # noqa: F403  (written from the declarations)

try:
    __version__ = version("labelhedge")
except PackageNotFoundError:  # run from a source tree that is not installed
    __version__ = "unknown"

_interrupt.stop()  # what it has begun, imported before all that needs torch

_LAZY = {"LabelHedgeClassifier": "estimator", "suggest": "audit"}
"""What needs more than torch and numpy, and the room it is in, which is imported when it is first used."""


def __getattr__(name: str) -> Any:
    if name == "audit":
        return importlib.import_module("labelhedge.audit")
    if name in _LAZY:
        return getattr(importlib.import_module(f"labelhedge.{_LAZY[name]}"), name)
    raise AttributeError(f"module 'labelhedge' has no attribute {name!r}")


__all__ = ["data", "functional", "losses", "noise", "results"]
__all__ += _classes.__all__
