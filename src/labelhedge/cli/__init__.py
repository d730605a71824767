"""The command ``labelhedge``."""

import io
import os
import sys
import traceback

from labelhedge._errors import BUG, EXIT_CODES, expected, sentence
from labelhedge._foreign import plain
from labelhedge._optional import optional


def main() -> None:
    """Run the command line; what went wrong is told on stderr, and in the exit code as docs/api/cli.md lists them."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # an encoding without λ is no reason to break off
            stream.reconfigure(errors="backslashreplace")
    try:
        for package in ("rich", "typer"):
            optional(package, "cli")
        from labelhedge.cli.app import app

        app(prog_name="labelhedge")
    except KeyboardInterrupt:  # while the commands are imported; later Typer answers it
        sys.exit(130)
    except Exception as error:
        sys.exit(_tell(error))


def _tell(error: Exception) -> int:
    """Say what went wrong; returns the exit code."""
    kind = expected(error)
    if kind is None or os.environ.get("LABELHEDGE_DEBUG") == "1":
        traceback.print_exception(error)
    said = plain(sentence(error)) if kind else "this is a bug in labelhedge; please report it with the traceback above"
    print(f"labelhedge: {said}", file=sys.stderr)
    return EXIT_CODES[kind] if kind else BUG
