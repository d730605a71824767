"""Train classifiers on labels that are partly wrong."""

import importlib
from typing import TYPE_CHECKING

from labelhedge import _interrupt, data, functional, losses, noise, results
from labelhedge._version import __version__ as __version__
from labelhedge.losses import classes as _classes
from labelhedge.losses.classes import *  # noqa: F403  (written from the declarations)

_interrupt.stop()  # what it has begun, imported before all that needs torch

if TYPE_CHECKING:
    from labelhedge import audit as audit
    from labelhedge import integrations as integrations
    from labelhedge import models as models
    from labelhedge import theory as theory
    from labelhedge import train as train
    from labelhedge.audit import suggest as suggest
    from labelhedge.estimator import LabelHedgeClassifier as LabelHedgeClassifier
else:  # imported when it is first used: some of it needs more than torch and numpy
    _LAZY_MODULES = ("audit", "integrations", "models", "theory", "train")
    _LAZY = {"LabelHedgeClassifier": "estimator", "suggest": "audit"}

    def __getattr__(name):
        if name in _LAZY_MODULES:
            return importlib.import_module(f"labelhedge.{name}")
        if name in _LAZY:
            return getattr(importlib.import_module(f"labelhedge.{_LAZY[name]}"), name)
        raise AttributeError(f"module 'labelhedge' has no attribute {name!r}")

    def __dir__():
        return sorted(["__version__", *__all__, *_LAZY_MODULES, *_LAZY])


__all__ = ["data", "functional", "losses", "noise", "results"]
__all__ += _classes.__all__
