"""Packages that only some features need."""

import importlib
from typing import Any

from labelhedge._errors import MissingPackageError


def optional(module: str, extra: str) -> Any:
    """Import a module of an optional dependency, or say which extra brings it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        if (error.name or "").partition(".")[0] != package:
            raise
        raise MissingPackageError(
            f"{package} is not installed; get it with: pip install 'labelhedge[{extra}]'"
        ) from error
