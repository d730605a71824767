"""A training on disk: written whole or not at all, and never taken for another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from labelhedge._errors import UserError
from labelhedge._files import whole

_FORMAT = 1
CONTENT = "digest of all images"
"""The part of a configuration that checkpoints may lack: older ones, and those of images that nobody has read yet."""


def save(path: Path, configuration: dict[str, Any], state: dict[str, Any]) -> None:
    """Keep the state of a training.

    Args:
        path: The file; it is replaced at once, so that a process killed in between leaves the one before.
        configuration: What the training's result depends on.
        state: Tensors, numbers, strings, and lists and dictionaries of them.
    """
    with whole(path) as file:
        try:
            torch.save({"labelhedge": _FORMAT, "configuration": configuration, "state": state}, file)
        except RuntimeError as error:  # torch's own, of a disk that is full
            raise OSError(f"cannot write {path}: {str(error).splitlines()[0]}") from None


def load(path: Path, configuration: dict[str, Any]) -> dict[str, Any] | None:
    """The state that was kept; None where there is none.

    Raises:
        UserError: The file is not a checkpoint, or one of another training; the message says where they differ.
    """
    if not path.exists():
        return None
    found = read(path)
    for name, value in configuration.items():
        before = found["configuration"].get(name)
        if before != value and not (name == CONTENT and before is None):
            raise UserError(
                f"{path} is the checkpoint of another training: {name} was {before}, and is {value} now; train "
                "elsewhere, or remove it"
            )
    return found["state"]  # type: ignore[no-any-return]


def read(path: Path) -> dict[str, Any]:
    """Configuration and state of whatever training the checkpoint is of."""
    with path.open("rb") as file:
        try:
            found = torch.load(file, map_location="cpu", weights_only=True)
        except Exception as error:  # of whatever kind, depending on what the file is
            reason = type(error).__name__
            raise UserError(f"{path} is not a checkpoint, or a damaged one ({reason}); remove it") from error
    if (
        not isinstance(found, dict)
        or not {"configuration", "state"} <= found.keys()
        or found.get("labelhedge") != _FORMAT
    ):
        raise UserError(f"{path} is not a checkpoint of labelhedge's; remove it")
    return found
