"""Telling how far a long task has come."""

import sys
import time
from collections.abc import Callable

Progress = Callable[[str, int, int | None, str], None]
"""Called with the task, how much is done, how much there is (None: unknown) and the unit, ``"bytes"`` or another."""


def silent(task: str, done: int, total: int | None, unit: str) -> None:
    """Say nothing."""


class Lines:
    """Plain lines on stderr: when a task begins, every few seconds, and when it ends."""

    def __init__(self, every: float = 5.0) -> None:
        self.every = every
        self.started: dict[str, float] = {}
        self.last: dict[str, float] = {}

    def __call__(self, task: str, done: int, total: int | None, unit: str) -> None:
        now = time.monotonic()
        if task not in self.started:
            self.started[task] = self.last[task] = now
            self._print(f"{task}: {amount(total, unit)}" if total else task)
        elif done == total:
            self._print(f"{task}: done in {now - self.started.pop(task):.0f} s")
        elif now - self.last[task] >= self.every:
            self.last[task] = now
            share = f" ({100 * done // total}%)" if total else ""
            self._print(f"{task}: {amount(done, unit)}{share}")

    @staticmethod
    def _print(line: str) -> None:
        print(line, file=sys.stderr, flush=True)


def amount(number: int, unit: str) -> str:
    """A number with its unit, for people.

    Example:
        >>> amount(170_498_071, "bytes"), amount(5, "images")
        ('170 MB', '5 images')
    """
    if unit != "bytes":
        return f"{number:,} {unit}"
    for name, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if number >= 0.9995 * size:  # what rounds to it
            return f"{number / size:.3g} {name}"
    return f"{number} bytes"
