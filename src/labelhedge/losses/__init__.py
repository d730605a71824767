"""Every loss as a module, and the registry. The functions are in :mod:`labelhedge.functional`."""

from labelhedge.losses._apply import Common
from labelhedge.losses._module import Loss
from labelhedge.losses._per_sample import PerSampleLoss
from labelhedge.losses._spec import Interval, LossSpec, create, get, names
from labelhedge.losses.aldr import ALDRKLLoss
from labelhedge.losses.bounded import AGCELoss, AULLoss, JSLoss, RLLLoss
from labelhedge.losses.ldr import LDRKLLoss
from labelhedge.losses.ldr_family import LDRkKLLoss, LDRLoss, LDRQuadraticLoss, TopKSVMLoss
from labelhedge.losses.margin import CSLoss, WWLoss
from labelhedge.losses.normalized import NCEAGCELoss, NCEAULLoss, NCELoss, NCERCELoss
from labelhedge.losses.probability import (
    CELoss,
    GCELoss,
    MAELoss,
    MSELoss,
    RCELoss,
    SCELoss,
)
from labelhedge.losses.truncated import TGCELoss

__all__ = [
    "AGCELoss",
    "ALDRKLLoss",
    "AULLoss",
    "CELoss",
    "Common",
    "create",
    "CSLoss",
    "GCELoss",
    "get",
    "Interval",
    "JSLoss",
    "LDRkKLLoss",
    "LDRKLLoss",
    "LDRLoss",
    "LDRQuadraticLoss",
    "Loss",
    "LossSpec",
    "MAELoss",
    "MSELoss",
    "names",
    "NCEAGCELoss",
    "NCEAULLoss",
    "NCELoss",
    "NCERCELoss",
    "PAPER",
    "PerSampleLoss",
    "RCELoss",
    "RLLLoss",
    "SCELoss",
    "TGCELoss",
    "TopKSVMLoss",
    "WWLoss",
]

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
