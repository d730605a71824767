"""Commands of ``labelhedge`` started as people start them, often and quickly, and what they leave behind."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from pandas.testing import assert_frame_equal

from labelhedge.results import load, load_traces

COMMAND = ("-m", "labelhedge", "bench")
LONG = ("--dataset", "vowel", "--loss", "ce,mae,mse", "--noise", "clean", "--epochs", "1000000", "--workers", "2")
QUICK = ("--dataset", "vowel", "--loss", "ce,ww,aldr-kl", "--noise", "clean,u0.3", "--seeds", "2")
QUICK += ("--epochs", "10", "--folds", "2")
JOBS = 6
FORKER = """
import atexit, filelock, gc, json, os, pandas, PIL.Image, pyarrow.parquet, signal, sys, torch._dynamo
from labelhedge import cli
from labelhedge.bench import local

run = local.run
trained = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)

def logged(job, store, *rest):
    os.write(trained, f"{store.root} {job.place}\\n".encode())
    run(job, store, *rest)

def main(*arguments):
    sys.argv = ["labelhedge", *arguments]
    try:
        cli.main()
    except SystemExit as end:
        return end.code

def redirect(stream, path, flags):
    os.dup2(os.open(path, flags), stream)

answers, local.run = os.dup(1), logged
redirect(1, os.devnull, os.O_WRONLY)
main("bench", "--help")  # imports all there is to import
os.dup2(answers, 1)
gc.freeze()
for line in sys.stdin:
    told = json.loads(line)
    if isinstance(told, int):
        print(os.waitstatus_to_exitcode(os.waitpid(told, 0)[1]), flush=True)
    elif not os.fork():
        os.setsid()
        signal.alarm(240)
        print(os.getpid(), flush=True)
        redirect(0, os.devnull, os.O_RDONLY)
        redirect(1, told.pop(0), os.O_WRONLY)
        redirect(2, told.pop(0), os.O_WRONLY)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        while "=" in told[0]:  # variables before the command, as in a shell
            os.environ.update([told.pop(0).split("=", 1)])
        code = main(*told)
        atexit._run_exitfuncs()
        sys.stdout.flush()
        os._exit(code or 0)
"""  # each command in a process and session of its own, which need not import torch again


class Forker:
    """Starts one of the commands, again and again."""

    def __init__(self, folder, command="bench", environment=None):
        self.folder, self.command, self.started = folder, command, 0
        self.log = folder / "trained"
        line, pipe = [sys.executable, "-c", FORKER, str(self.log)], subprocess.PIPE
        self.process = subprocess.Popen(line, stdin=pipe, stdout=pipe, text=True, env=environment)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.process.stdin.close()
        self.process.__exit__(*error)

    def ask(self, question):
        print(json.dumps(question), file=self.process.stdin, flush=True)
        return int(self.process.stdout.readline())

    def start(self, *arguments, variables=()):
        self.started += 1
        files = [self.folder / f"{self.started}.{name}" for name in ("out", "err")]
        for file in files:
            file.touch()
        return Command(self, self.ask([*map(str, (*files, *variables, self.command, *arguments))]), *files)

    def run(self, *arguments):
        return self.start(*arguments).finish()

    def trained(self, out):
        """The places of the jobs that were begun in a folder, in that order."""
        lines = [line.split() for line in self.log.read_text().splitlines()]
        return [place for root, place in lines if root == str(out)]


class Command:
    """A running command."""

    def __init__(self, forker, pid, out, err):
        self.forker, self.pid, self.out, self.err = forker, pid, out, err

    def finish(self):
        wait_until(lambda: self.pid not in self.processes())
        code = self.forker.ask(self.pid)
        return subprocess.CompletedProcess(self.pid, code, self.out.read_text(), self.err.read_text())

    def send(self, number):
        os.killpg(self.pid, number)  # as a terminal does
        return self.finish()

    def kill_all(self):
        return self.send(signal.SIGKILL)

    def processes(self):
        """Those of its session that live: itself, its workers and Python's helper for them."""
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                state, _, _, session = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
                line = (folder / "cmdline").read_text()
            except OSError:  # just gone
                continue
            if int(session) == self.pid and state != "Z":
                found[int(folder.name)] = line
        return found

    def workers(self):
        return [pid for pid, line in self.processes().items() if "spawn_main" in line]


def wait_until(condition):
    deadline = time.monotonic() + 240
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def result_files(out):
    return {path: path.stat().st_mtime_ns for path in out.rglob("*.parquet")}


def finished_files(out):
    """Those of finished jobs: a trace without its table is of a job that was killed between the two."""
    tables = list((out / "networks").rglob("*.parquet"))
    traces = [out / "traces" / table.relative_to(out / "networks") for table in tables]
    return {path: path.stat().st_mtime_ns for path in (*tables, *traces)}


def places(out):
    return {str(path.parent.relative_to(out / "networks")) for path in (out / "networks").rglob("*.parquet")}


def assert_same_bits(one, other):
    origin = ["seconds", "commit"]
    assert_frame_equal(load(one).drop(columns=origin), load(other).drop(columns=origin), check_exact=True)
    assert_frame_equal(load_traces(one), load_traces(other), check_exact=True)


def last_line(text):
    assert "Traceback" not in text
    assert text.endswith("\n")
    return text.splitlines()[-1]
