"""What people read while they wait."""

import time

import pytest

from labelhedge.data._progress import Lines, amount


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


@pytest.mark.parametrize(
    ("number", "unit", "text"),
    [
        (0, "bytes", "0 bytes"),
        (999, "bytes", "999 bytes"),
        (1_000, "bytes", "1 kB"),
        (164_485, "bytes", "164 kB"),
        (170_498_071, "bytes", "170 MB"),
        (999_999, "bytes", "1 MB"),
        (999_999_999, "bytes", "1 GB"),
        (1_234_000_000, "bytes", "1.23 GB"),
        (65_944, "images", "65,944 images"),
    ],
)
def test_amounts_are_for_people(number, unit, text):
    assert amount(number, unit) == text


def test_lines_tell_the_beginning_the_way_and_the_end(clock, capsys):
    report = Lines(every=5)
    for seconds, done in [(0, 0), (1, 10), (5, 500), (6, 600), (11, 900), (12, 1000)]:
        clock[0] = 100.0 + seconds
        report("file", done, 1000, "images")
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.splitlines() == [
        "file: 1,000 images",
        "file: 500 images (50%)",
        "file: 900 images (90%)",
        "file: done in 12 s",
    ]


def test_lines_do_without_a_total(clock, capsys):
    report = Lines(every=5)
    for seconds, done, total in [(0, 0, None), (6, 2_000_000, None), (7, 3_000_000, 3_000_000)]:
        clock[0] = 100.0 + seconds
        report("file", done, total, "bytes")
    assert capsys.readouterr().err.splitlines() == ["file", "file: 2 MB", "file: done in 7 s"]


def test_lines_keep_tasks_apart(clock, capsys):
    report = Lines()
    for task in ("one", "two"):
        report(task, 0, 1000, "bytes")
    for task in ("two", "one"):
        report(task, 1000, 1000, "bytes")
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["one: 1 kB", "two: 1 kB", "two: done in 0 s", "one: done in 0 s"]


def test_a_task_may_come_again(clock, capsys):
    report = Lines()
    for _ in range(2):
        report("file", 0, 1000, "bytes")
        report("file", 1000, 1000, "bytes")
    assert capsys.readouterr().err.splitlines() == ["file: 1 kB", "file: done in 0 s"] * 2
