"""The command ``labelhedge bench`` as people and programs meet it, and as power cuts and Ctrl-C meet it."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from pandas.testing import assert_frame_equal

import labelhedge as lh
from labelhedge.bench.protocol import PRESETS
from labelhedge.results import load, load_traces

COMMAND = ("-m", "labelhedge", "bench")
LONG = ("--dataset", "vowel", "--loss", "ce,mae,mse", "--noise", "clean", "--epochs", "1000000", "--workers", "2")
QUICK = ("--dataset", "vowel", "--loss", "ce,ww,aldr-kl", "--noise", "clean,u0.3", "--seeds", "2")
QUICK += ("--epochs", "10", "--folds", "2")
JOBS = 6
PEAK = """
import re
from pathlib import Path
from labelhedge.cli import main

try:
    main()
finally:
    print(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
"""
FORKER = """
import atexit, filelock, gc, json, os, pandas, pyarrow.parquet, signal, sys
from labelhedge import cli
from labelhedge.bench import local

run = local.run
trained = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)

def logged(job, store, *rest):
    os.write(trained, f"{store.root} {job.place}\\n".encode())
    run(job, store, *rest)

def main(*arguments):
    sys.argv = ["labelhedge", "bench", *arguments]
    try:
        cli.main()
    except SystemExit as end:
        return end.code

def redirect(stream, path, flags):
    os.dup2(os.open(path, flags), stream)

answers, local.run = os.dup(1), logged
redirect(1, os.devnull, os.O_WRONLY)
main("--help")  # imports all there is to import
os.dup2(answers, 1)
gc.freeze()
for line in sys.stdin:
    told = json.loads(line)
    if isinstance(told, int):
        print(os.waitstatus_to_exitcode(os.waitpid(told, 0)[1]), flush=True)
    elif not os.fork():
        os.setsid()
        print(os.getpid(), flush=True)
        redirect(0, os.devnull, os.O_RDONLY)
        redirect(1, told.pop(0), os.O_WRONLY)
        redirect(2, told.pop(0), os.O_WRONLY)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        code = main(*told)
        atexit._run_exitfuncs()
        sys.stdout.flush()
        os._exit(code or 0)
"""  # each command in a process and session of its own, which need not import torch again


class Forker:
    """Starts the command, again and again."""

    def __init__(self, folder):
        self.folder, self.started = folder, 0
        self.log = folder / "trained"
        line = [sys.executable, "-c", FORKER, str(self.log)]
        self.process = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, question):
        print(json.dumps(question), file=self.process.stdin, flush=True)
        return int(self.process.stdout.readline())

    def start(self, *arguments):
        self.started += 1
        files = [self.folder / f"{self.started}.{name}" for name in ("out", "err")]
        for file in files:
            file.touch()
        return Command(self, self.ask([*map(str, files), *map(str, arguments)]), *files)

    def trained(self, out):
        """The places of the jobs that were begun in a folder, in that order."""
        lines = [line.split() for line in self.log.read_text().splitlines()]
        return [place for root, place in lines if root == str(out)]


class Command:
    """A running ``labelhedge bench``."""

    def __init__(self, forker, pid, out, err):
        self.forker, self.pid, self.out, self.err = forker, pid, out, err

    def finish(self):
        wait_until(lambda: self.pid not in self.processes())
        code = self.forker.ask(self.pid)
        return subprocess.CompletedProcess(self.pid, code, self.out.read_text(), self.err.read_text())

    def kill_all(self):
        os.killpg(self.pid, signal.SIGKILL)
        return self.finish()

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


@pytest.fixture(scope="module")
def forker(tmp_path_factory):
    forker = Forker(tmp_path_factory.mktemp("commands"))
    with forker.process:
        yield forker
        forker.process.stdin.close()


@pytest.fixture(scope="module")
def whole(forker, tmp_path_factory):
    """A folder that one process filled without interruption, and what it said."""
    out = tmp_path_factory.mktemp("whole") / "results"
    answer = forker.start(*QUICK, "--workers", "1", "--out", out).finish()
    assert answer.returncode == 0, answer.stderr
    return out, answer


def wait_until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def result_files(out):
    return {path: path.stat().st_mtime_ns for path in out.rglob("*.parquet")}


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


def test_a_plan_with_an_estimate_comes_first_and_then_where_the_results_are(whole):
    out, answer = whole
    assert answer.stdout == ""
    plan, machine, *training, end = answer.stderr.splitlines()
    assert re.fullmatch(rf"protocol paper-[0-9a-f]{{8}}: 6 jobs, 168 networks × 10 epochs, into {out}", plan)
    assert re.fullmatch(r"CPU .+, 1 worker, up to 36 networks at once; about \d+ s", machine)
    assert training[0] == "training: 1,680 network-epochs"
    assert training[-1].startswith("training: done in ")
    assert end == f"results are in {out}; now: labelhedge report {out}"
    assert len(load(out)) == 168


def test_a_plan_as_json_trains_nothing_and_tells_what_is_finished(forker, whole, tmp_path):
    out, _ = whole
    before = result_files(out)
    answer = forker.start("--json", *QUICK, "--seeds", "3", "--out", out).finish()
    assert (answer.returncode, answer.stderr) == (0, "")
    told = json.loads(answer.stdout)
    assert [(job["seed"], job["loss"]) for job in told] == [
        (s, loss) for s in range(3) for loss in ("ce", "ww", "aldr-kl")
    ]
    assert [job["finished"] for job in told] == [True] * JOBS + [False] * 3
    assert [job["networks"] for job in told] == [12, 36, 36] * 3
    assert told[0] == {
        "protocol": load(out)["protocol"][0],
        "dataset": "vowel",
        "loss": "ce",
        "seed": 0,
        "noise": ["clean", "u0.3"],
        "networks": 12,
        "epochs": 10,
        "finished": True,
    }
    assert result_files(out) == before


@pytest.mark.parametrize(
    ("arguments", "jobs", "networks"),
    [
        ([], 15, 4095),
        (["--preset", "paper-tabular"], 4 * 15, 4 * 4095),
        (["--preset", "fair"], 3 * 3 * 28, 3 * 3 * 5 * 7 * 9 * (39 + 3 * 33)),
        (["--preset", "fair", "--loss", "paper", "--noise", "paper", "--seeds", "1"], 3 * 15, 3 * 3 * 4095),
        (["--preset", "fair", "--dataset", "letter", "--loss", "ce, sce@l1,ce"], 3 * 2, 3 * 5 * 7 * (9 + 81)),
    ],
)
def test_presets_say_what_to_compare_and_options_change_it(forker, tmp_path, arguments, jobs, networks):
    out = tmp_path / "results"
    told = json.loads(forker.start("--json", *arguments, "--out", out).finish().stdout)
    assert (len(told), sum(job["networks"] for job in told)) == (jobs, networks)
    preset = PRESETS["fair" if "fair" in arguments else "demo"]
    assert {job["protocol"] for job in told} == {preset.protocol.id}
    assert not out.exists()


def test_the_paper_stands_for_its_losses_and_noises(forker):
    told = json.loads(forker.start("--json", "--loss", "paper", "--noise", "paper").finish().stdout)
    assert [job["loss"] for job in told] == list(lh.losses.PAPER)
    assert told[0]["noise"] == ["clean", "u0.3", "u0.6", "u0.9", "cd0.1", "cd0.3", "cd0.5"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--preset", "papre"], "unknown preset 'papre'; known presets: demo, paper-tabular, paper, fair"),
        (["--loss", "ce,cee"], "unknown loss 'cee'; known losses: agce, "),
        (["--loss", "aldr-kl@l1"], "aldr-kl is on L1-normalised logits by itself; there is no aldr-kl@l1"),
        (["--noise", "clean,x0.3"], "unknown noise 'x0.3'; it is clean, uR or cdR with a rate R such as u0.3"),
        (["--noise", "u1.5"], "the rate of noise 'u1.5' must be in [0, 1]"),
        (["--dataset", "vowle"], "unknown data set 'vowle'; known data sets: vowel, letter"),
        (["--dataset", "vowel,cifar-10"], "the benchmark trains perceptrons on tables, and these are images: cifar-10"),
        (["--device", "tpu"], "device must be cpu or cuda, got 'tpu'"),
        (["--device", "meta"], "device must be cpu or cuda, got 'meta'"),
        (["--memory", "lots"], "an amount of memory is a number with kB, MB, GB or TB behind it, got 'lots'"),
        (["--memory", "-1GB"], "an amount of memory is a number with kB, MB, GB or TB behind it, got '-1GB'"),
        (["--loss", "ce,,mae"], "empty name in the list 'ce,,mae'"),
        (["--noise", "clean,"], "empty name in the list 'clean,'"),
        (["--dataset", ""], "empty name in the list ''"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(forker, tmp_path, arguments, message):
    answer = forker.start(*arguments, "--out", tmp_path / "results").finish()
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr.count("\n") == 1
    assert last_line(answer.stderr).startswith(f"labelhedge: {message}")
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("option", "value"), [("--folds", "6"), ("--epochs", "0"), ("--seeds", "0"), ("--workers", "many")]
)
def test_a_wrong_number_is_exit_code_2(forker, option, value):
    answer = forker.start(option, value).finish()
    assert (answer.returncode, answer.stdout) == (2, "")
    assert option in last_line(answer.stderr)


def test_too_little_memory_is_one_sentence_and_exit_code_2(forker, tmp_path):
    answer = forker.start(*QUICK, "--workers", "1", "--memory", "10MB", "--out", tmp_path).finish()
    assert (answer.returncode, answer.stdout) == (2, "")
    sentence = last_line(answer.stderr)
    assert re.match("labelhedge: .*memory.* at least ", sentence)
    assert not re.search(r"-\d", sentence)  # nobody has asked for less than nothing
    assert not result_files(tmp_path)


def test_results_of_another_grid_are_refused(forker, whole, tmp_path):
    out, _ = whole
    source = next((out / "networks").rglob("ce/seed0/*.parquet"))
    target = tmp_path / source.relative_to(out).parent.parent.parent / "aldr-kl" / "seed0" / source.name
    target.parent.mkdir(parents=True)
    target.write_bytes(source.read_bytes())
    answer = forker.start(*QUICK, "--out", tmp_path).finish()
    assert (answer.returncode, answer.stdout) == (2, "")
    expected = f"labelhedge: {target} was computed with other hyperparameters; choose another --out"
    assert answer.stderr == f"{expected}\n"
    assert list(result_files(tmp_path)) == [target]


def test_a_noise_under_two_names_is_trained_once(forker, tmp_path):
    told = json.loads(forker.start("--json", "--loss", "ce", "--noise", "u0.3,u0.30,u.3").finish().stdout)
    assert [job["noise"] for job in told] == [["u0.3"]]


def test_help_shows_an_example(forker):
    answer = forker.start("--help").finish()
    assert (answer.returncode, answer.stderr) == (0, "")
    words = " ".join(answer.stdout.split())
    assert "Example: labelhedge bench --dataset vowel --loss aldr-kl,ce --noise clean,u0.3 --out results" in words
    for option in ("--preset", "--seeds", "--epochs", "--folds", "--device", "--workers", "--memory", "--json"):
        assert option in words


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
        before, begun = result_files(out), forker.trained(out)
        done = places(out)
        command = forker.start(*line)
        if kill % 2:  # once it trains; otherwise wherever it is
            wait_until(lambda: len(forker.trained(out)) > len(begun) or not command.processes())  # noqa: B023
        time.sleep(moments.uniform(0, 0.4))
        command.kill_all()
        assert before.items() <= result_files(out).items()
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


@pytest.fixture(scope="module")
def limited(forker, tmp_path_factory):
    """A folder filled within little memory, how many bytes, what was said, and a folder filled without a limit."""
    one, other = (tmp_path_factory.mktemp(name) for name in ("limited", "unlimited"))
    noises = ",".join(f"u{rate / 100:g}" for rate in range(1, 41))
    line = ["--preset", "fair", "--dataset", "vowel", "--loss", "aldr-kl", "--noise", noises, "--seeds", "1"]
    line += ["--epochs", "1", "--workers", "1", "--out"]
    unlimited = forker.start(*line, other)

    def within(memory):
        # a shell in between, since what a program has at most had in memory counts that of the program which started it
        start = ["sh", "-c", '"$@"; exit', "sh", sys.executable, "-c", PEAK, "bench", *line, one, "--memory", memory]
        return subprocess.run(start, stdin=subprocess.DEVNULL, capture_output=True, text=True)

    least = int(re.search(r"at least (\d+) MB with 1 worker, got 1 MB", within("1MB").stderr)[1])
    answer = within(f"{least + 10}MB")
    assert unlimited.finish().returncode == answer.returncode == 0, answer.stderr
    return one, least + 10, answer, other


def test_a_stack_too_big_for_the_memory_is_split_and_ends_with_the_same_accuracies(limited):
    one, megabytes, answer, other = limited
    told = re.search(rf"up to ([\d,]+) networks at once within {megabytes} MB;", answer.stderr)
    assert 1 < int(told[1].replace(",", "")) < 5400
    origin = ["seconds", "commit"]
    assert_frame_equal(load(one).drop(columns=origin), load(other).drop(columns=origin), rtol=0, atol=0.02)
    assert_frame_equal(load_traces(one), load_traces(other), rtol=0, atol=0.02)


def test_a_run_stays_within_the_memory(limited):
    _, megabytes, answer, _ = limited
    assert int(answer.stdout) * 1024 <= megabytes * 10**6
