"""The option --device."""

import torch

from labelhedge._errors import UserError


def chosen_device(name: str | None) -> str:
    """A device that is there; by default a GPU if there is one."""
    if name is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        kind = torch.device(name).type
    except RuntimeError:
        kind = ""
    if kind not in ("cpu", "cuda"):
        raise UserError(f"device must be cpu or cuda, got {name!r}")
    if kind == "cuda" and not torch.cuda.is_available():
        raise UserError("device is cuda, but torch finds no GPU")
    return name
