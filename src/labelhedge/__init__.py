"""Train classifiers on labels that are partly wrong."""

from importlib.metadata import PackageNotFoundError, version

from labelhedge import data, functional, losses, noise, results
from labelhedge.losses import (
    AGCELoss,
    ALDRKLLoss,
    AULLoss,
    CELoss,
    CSLoss,
    GCELoss,
    JSLoss,
    LDRkKLLoss,
    LDRKLLoss,
    LDRLoss,
    LDRQuadraticLoss,
    MAELoss,
    MSELoss,
    NCEAGCELoss,
    NCEAULLoss,
    NCELoss,
    NCERCELoss,
    RCELoss,
    RLLLoss,
    SCELoss,
    TGCELoss,
    TopKSVMLoss,
    WWLoss,
)

try:
    __version__ = version("labelhedge")
except PackageNotFoundError:  # run from a source tree that is not installed
    __version__ = "unknown"

__all__ = [
    "AGCELoss",
    "ALDRKLLoss",
    "AULLoss",
    "CELoss",
    "CSLoss",
    "GCELoss",
    "JSLoss",
    "LDRkKLLoss",
    "LDRKLLoss",
    "LDRLoss",
    "LDRQuadraticLoss",
    "MAELoss",
    "MSELoss",
    "NCEAGCELoss",
    "NCEAULLoss",
    "NCELoss",
    "NCERCELoss",
    "RCELoss",
    "RLLLoss",
    "SCELoss",
    "TGCELoss",
    "TopKSVMLoss",
    "WWLoss",
    "data",
    "functional",
    "losses",
    "noise",
    "results",
]
