"""What was renamed works under its old name for two minor versions, and says so."""

from __future__ import annotations

import warnings


def warn_renamed(old: str, new: str, *, removed_in: str, stacklevel: int) -> None:
    """Tell the caller of a public function, ``stacklevel`` frames above, to use another name."""
    text = f"{old} is deprecated and will be removed in labelhedge {removed_in}; use {new}"
    warnings.warn(text, DeprecationWarning, stacklevel=stacklevel + 1)
