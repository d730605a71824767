"""The command ``labelhedge bench`` as power cuts, Ctrl-C and a second process meet it."""

import os
import random
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress

import pytest

from tests.cli.commands import (
    COMMAND,
    JOBS,
    LONG,
    QUICK,
    assert_same_bits,
    finished_files,
    last_line,
    places,
    result_files,
    wait_until,
)


def test_what_is_finished_is_not_trained_again(forker, whole):
    out, _ = whole
    before, begun = result_files(out), forker.trained(out)
    answer = forker.start(*QUICK, "--out", out).finish()
    assert (answer.returncode, answer.stdout) == (0, "")
    assert answer.stderr.splitlines()[1:] == [
        "6 of them are there already",
        f"results are in {out}; now: labelhedge report {out}",
    ]
    assert result_files(out) == before
    assert forker.trained(out) == begun


def test_killed_at_any_moment_the_same_command_goes_on_to_the_same_bits(forker, whole, tmp_path):
    out = tmp_path / "results"
    line = (*QUICK, "--workers", "1", "--out", out)
    moments = random.Random(0)
    for kill in range(6):
        before, begun = finished_files(out), forker.trained(out)
        done = places(out)
        command = forker.start(*line)
        if kill % 2:  # once it trains; otherwise wherever it is
            wait_until(lambda: len(forker.trained(out)) > len(begun) or not command.processes())  # noqa: B023 (called at once)
        time.sleep(moments.uniform(0, 0.4))
        command.kill_all()
        assert before.items() <= finished_files(out).items()
        assert done.isdisjoint(forker.trained(out)[len(begun) :])
    last = forker.start(*line).finish()
    assert last.returncode == 0, last.stderr
    assert_same_bits(out, whole[0])
    assert places(out) == set(forker.trained(out))


def test_two_processes_share_a_folder_and_train_every_job_once(forker, whole, tmp_path):
    out = tmp_path / "results"
    commands = [forker.start(*QUICK, "--workers", "1", "--out", out) for _ in range(2)]
    for command in commands:
        answer = command.finish()
        assert answer.returncode == 0, answer.stderr
    assert len(forker.trained(out)) == JOBS
    assert set(forker.trained(out)) == places(out)
    assert_same_bits(out, whole[0])


def test_two_workers_give_the_same_bits_as_one(whole, tmp_path):
    line = [sys.executable, *COMMAND, *QUICK, "--workers", "2", "--out", str(tmp_path)]
    answer = subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert (answer.returncode, answer.stdout) == (0, ""), answer.stderr
    assert ", 2 workers, " in answer.stderr
    assert "training: done in " in answer.stderr
    assert_same_bits(tmp_path, whole[0])


@contextmanager
def long_run(forker, out):
    """A command that will not end by itself."""
    command = forker.start(*LONG, "--out", out)
    try:
        yield command
    finally:
        for pid in command.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def training(forker, tmp_path):
    """Such a command, and both of its workers are training."""
    with long_run(forker, tmp_path) as command:
        wait_until(lambda: len(list(tmp_path.rglob("*.lock"))) == 2 or not command.processes())
        assert len(command.workers()) == 2, command.err.read_text()
        yield command


def test_an_interrupt_says_how_to_go_on_and_ends_the_workers(training):
    os.killpg(training.pid, signal.SIGINT)  # as a terminal does
    answer = training.finish()
    assert (answer.returncode, answer.stdout) == (130, "")
    assert last_line(answer.stderr) == "interrupted: 0 of 3 jobs are finished; the same command goes on"
    wait_until(lambda: not training.processes())


def test_workers_go_away_when_their_parent_was_killed(training):
    os.kill(training.pid, signal.SIGKILL)
    assert training.finish().returncode == -signal.SIGKILL
    wait_until(lambda: not training.processes())


def test_a_killed_worker_ends_the_command_with_a_sentence(training):
    os.kill(training.workers()[0], signal.SIGKILL)
    answer = training.finish()
    assert (answer.returncode, answer.stdout) == (1, "")
    assert last_line(answer.stderr) == "labelhedge: a worker ended with exit code -9; the same command goes on"
    wait_until(lambda: not training.processes())


def test_what_fails_in_a_worker_is_one_sentence(forker, tmp_path):
    (tmp_path / "traces").write_text("not a folder")
    command = forker.start(*QUICK, "--seeds", "1", "--workers", "2", "--out", tmp_path)
    answer = command.finish()
    assert (answer.returncode, answer.stdout) == (1, "")
    assert re.match(rf"labelhedge: .*{tmp_path / 'traces'}", last_line(answer.stderr))
    wait_until(lambda: not command.processes())


def test_workers_that_have_hardly_begun_go_away_when_their_parent_was_killed(forker, tmp_path):
    with long_run(forker, tmp_path) as command:
        wait_until(lambda: len(command.workers()) == 2)
        os.kill(command.pid, signal.SIGKILL)
        command.finish()
        wait_until(lambda: not command.processes())


def test_workers_leave_an_interrupt_to_their_parent_from_their_first_moment(forker, tmp_path):
    command = forker.start(*QUICK, "--seeds", "1", "--workers", "2", "--out", tmp_path)
    wait_until(lambda: len(command.workers()) == 2)
    for pid in command.workers():
        os.kill(pid, signal.SIGINT)
    answer = command.finish()
    assert (answer.returncode, answer.stdout) == (0, ""), answer.stderr
    assert len(places(tmp_path)) == 3
