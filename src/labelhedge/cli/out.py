"""The option --out."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from labelhedge._errors import UserError


def named(text: str) -> str:
    """What was given as --out: not an empty variable of a shell, which would be the current folder."""
    if not text.strip():
        raise typer.BadParameter("it must not be empty")
    return text


def out_option(help: str) -> Any:
    """The option of a folder or a file, for ``Annotated[Path, ...]``."""
    return typer.Option(parser=lambda text: Path(named(str(text))), metavar="<path>", help=help)


def check_folder(out: Path, files: Sequence[str] = ()) -> None:
    """Refuse, before any work, a folder that cannot be written to; nothing is made yet, for the work may fail.

    Args:
        out: What was given as --out, a path.
        files: The names of files that will be written there.
    """
    if ":/" in str(out):  # all that a path keeps of ://
        raise UserError(f"--out must be a folder of this machine, got {out}")
    try:
        there = next(path for path in (out.absolute(), *out.absolute().parents) if _is_there(path))
        if not there.is_dir():
            raise UserError(f"--out cannot be {out}: {there} is not a folder")
        if not os.access(there, os.W_OK | os.X_OK):
            raise UserError(f"--out cannot be {out}: {there} is read-only")
        for name in files:
            if (out / name).is_dir():
                raise UserError(f"--out cannot be {out}: {out / name} is a folder, and not a file")
    except OSError as error:  # of a name that is too long, of a folder that may not be looked into
        raise UserError(f"--out cannot be {out}: {error.strerror or error}") from error


def _is_there(path: Path) -> bool:
    """Also a link that leads nowhere, where nothing can be made."""
    return path.is_symlink() or path.exists()
