"""Tables on a terminal."""

import io
import re
import sys

from labelhedge.cli.terminal import print_table


class Terminal(io.StringIO):
    def isatty(self):
        return True


def printed(monkeypatch, columns, rows, numbers, width):
    screen = Terminal()
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stdout", screen)
    print_table(columns, rows, numbers=numbers)
    return re.sub(r"\x1b\[[\d;]*m", "", screen.getvalue()).splitlines()


def test_words_are_folded_and_numbers_never_cut(monkeypatch):
    columns, row = ["loss", "top-1", "says"], ["aldr-kl", "12.345678", "what it takes to say it"]
    wide, narrow, narrower = (printed(monkeypatch, columns, [row], ["top-1"], width) for width in (60, 26, 20))
    assert wide[1].split("  ") == row
    for lines in (narrow, narrower):
        assert lines[1].split("  ")[:2] == row[:2]
        assert " ".join(line[len("aldr-kl  12.345678  ") :].strip() for line in lines[1:]) == row[2]
