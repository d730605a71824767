"""Packages that only some features need."""

import importlib
from typing import Any


def optional(module: str, extra: str) -> Any:
    """Import a module of an optional dependency, or say which extra brings it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.split(".")[0]:
            raise
        raise ImportError(f"{error.name} is not installed; get it with: pip install 'labelhedge[{extra}]'") from error
