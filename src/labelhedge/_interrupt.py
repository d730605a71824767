"""Ctrl-C while the command imports torch: exit code 130, and no traceback. Where this is a library, nothing changes."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def _end(*_: Any) -> None:
    os._exit(130)


def _is_command() -> bool:
    """Whether this process is ``labelhedge`` or ``python -m labelhedge``."""
    if sys.argv[:1] == ["-m"]:  # as Python has it while it imports the package of a module that it is to run
        return sys.orig_argv[sys.orig_argv.index("-m") + 1] == "labelhedge"
    return bool(sys.argv) and Path(sys.argv[0]).stem == "labelhedge"


def stop() -> None:
    """From now on Ctrl-C is a ``KeyboardInterrupt``."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def ignored() -> Iterator[None]:
    """Ctrl-C does nothing here, nor in processes that are started here."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


if _is_command() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, _end)
