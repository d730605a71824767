"""Every loss as a module, the registry, and what a loss of one's own is made of."""

from typing import TYPE_CHECKING

from labelhedge._deprecation import warn_renamed
from labelhedge.losses._closed_form import ClosedForm
from labelhedge.losses._formulas import count_of, gaps, log_softmax, masked_classes, take
from labelhedge.losses._loss import Loss
from labelhedge.losses._options import Interval, Normalize, Number, Options, RowOptions
from labelhedge.losses._spec import LossSpec, State, create, get, names, one_by_one

# isort: split
# what a loss is made of comes first, since the files of the losses may import it from here
from labelhedge.losses import classes
from labelhedge.losses.classes import *  # noqa: F403  (written from the declarations)

__all__ = [
    "ClosedForm",
    "count_of",
    "create",
    "gaps",
    "get",
    "Interval",
    "log_softmax",
    "Loss",
    "LossSpec",
    "masked_classes",
    "names",
    "Normalize",
    "Number",
    "one_by_one",
    "Options",
    "PAPER",
    "RowOptions",
    "State",
    "take",
]
__all__ += classes.__all__

PAPER = (
    "aldr-kl",
    "ldr-kl",
    "ce",
    "sce",
    "gce",
    "tgce",
    "ww",
    "js",
    "cs",
    "rll",
    "nce+rce",
    "nce+aul",
    "nce+agce",
    "mse",
    "mae",
)
"""The 15 losses of the paper's leaderboard, best first."""

if not TYPE_CHECKING:
    _RENAMED = {"Common": "Options", "PerSampleLoss": "Loss"}

    def __getattr__(name):
        if name not in _RENAMED:
            raise AttributeError(f"module 'labelhedge.losses' has no attribute {name!r}")
        warn_renamed(f"losses.{name}", f"losses.{_RENAMED[name]}", removed_in="0.3", stacklevel=2)
        return globals()[_RENAMED[name]]
