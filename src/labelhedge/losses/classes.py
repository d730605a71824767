"""Every loss as a class."""

# written by docs/loss_exports.py
from __future__ import annotations

from labelhedge.losses.aldr import ALDRKLLoss
from labelhedge.losses.bounded import AGCELoss, AULLoss, JSLoss, RLLLoss
from labelhedge.losses.ldr import LDRKLLoss
from labelhedge.losses.ldr_family import LDRkKLLoss, LDRLoss, LDRQuadraticLoss, TopKSVMLoss
from labelhedge.losses.margin import CSLoss, WWLoss
from labelhedge.losses.normalized import NCEAGCELoss, NCEAULLoss, NCELoss, NCERCELoss
from labelhedge.losses.probability import CELoss, GCELoss, MAELoss, MSELoss, RCELoss, SCELoss
from labelhedge.losses.truncated import TGCELoss

__all__ = [
    "AGCELoss",
    "ALDRKLLoss",
    "AULLoss",
    "CELoss",
    "CSLoss",
    "GCELoss",
    "JSLoss",
    "LDRKLLoss",
    "LDRLoss",
    "LDRQuadraticLoss",
    "LDRkKLLoss",
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
]
