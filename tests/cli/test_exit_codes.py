"""What every command answers to mistakes, to bugs and to Ctrl-C; a new command fails here until it is added."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import typer.main

from labelhedge import cli
from labelhedge.cli import audit, certify, data, figures, report, suggest, train
from labelhedge.cli import bench as bench_command
from labelhedge.cli.app import app
from labelhedge.data import DataError
from tests.cli.commands import last_line

TABLE = ("pets.csv", "--label", "kind")
COMMANDS = {  # a line that works, and a function deep inside that it calls
    "demo": ((), (bench_command, "jobs")),
    "bench": (("--json",), (bench_command, "jobs")),
    "report": (("results",), (report, "write")),
    "train": (("--dataset", "pets"), (train, "load")),
    "audit": (TABLE, (audit, "find_encoded")),
    "suggest": (TABLE, (suggest, "suggest_encoded")),
    "certify": (("--all",), (certify, "_certificates")),
    "figures": ((), (figures, "write")),
    "data list": ((), (data, "_state")),
    "data info": (("vowel",), (data, "_state")),
    "data get": (("vowel",), (data.data, "get")),
    "data verify": ((), (data.data, "open_store")),
}
BUG = "labelhedge: this is a bug in labelhedge; please report it with the traceback above"


def all_commands(command, *names):
    if not hasattr(command, "commands"):
        yield " ".join(names), command
        return
    for name, own in command.commands.items():
        yield from all_commands(own, *names, name)


FOUND = dict(all_commands(typer.main.get_command(app)))
WITH_OUT = [name for name, command in FOUND.items() if any("--out" in option.opts for option in command.params)]


def test_all_commands_are_here():
    assert list(COMMANDS) == list(FOUND)
    assert WITH_OUT == ["demo", "bench", "report", "train", "audit", "certify", "figures"]


@pytest.fixture
def run(monkeypatch, capfd, tmp_path):
    """Run a command in this process, in a folder with a table."""
    monkeypatch.chdir(tmp_path)
    Path("pets.csv").write_text("kind,x,y\n" + "cat,1,2\ndog,2,1\n" * 5)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["labelhedge", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            cli.main()
        return subprocess.CompletedProcess(arguments, end.value.code or 0, *capfd.readouterr())

    return run


def break_down(monkeypatch, name, error):
    def fails(*_, **__):
        raise error

    module, function = COMMANDS[name][1]
    monkeypatch.setattr(module, function, fails)


@pytest.mark.parametrize("name", FOUND)
def test_an_unknown_option_is_exit_code_2(run, name):
    answer = run(*name.split(), *COMMANDS[name][0], "--frobnicate")
    assert (answer.returncode, answer.stdout) == (2, "")
    assert "--frobnicate" in last_line(answer.stderr)


BAD_OUT = {
    "pets.csv": "--out cannot be pets.csv: {here}/pets.csv is not a folder",
    "pets.csv/a/b": "--out cannot be pets.csv/a/b: {here}/pets.csv is not a folder",
    "dangling/a": "--out cannot be dangling/a: {here}/dangling is not a folder",
    "a" * 300: "--out cannot be aaaa",
}


@pytest.mark.parametrize("name", WITH_OUT)
@pytest.mark.parametrize("out", BAD_OUT, ids=["file", "below a file", "dangling link", "too long"])
def test_a_bad_out_is_one_sentence_before_any_work(run, monkeypatch, tmp_path, name, out):
    break_down(monkeypatch, name, AssertionError("work began"))
    (tmp_path / "dangling").symlink_to("nowhere")
    before = sorted(tmp_path.rglob("*"))
    sentence = BAD_OUT[out].format(here=tmp_path)
    answer = run(*name.split(), *COMMANDS[name][0], "--out", out + "/table.md" * (name == "certify"))
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr.startswith(f"labelhedge: {sentence}"), answer.stderr
    assert answer.stderr.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("name", WITH_OUT)
@pytest.mark.parametrize("out", ["", "  "])
def test_an_empty_out_is_not_the_current_folder(run, monkeypatch, name, out):
    break_down(monkeypatch, name, AssertionError("work began"))
    answer = run(*name.split(), *COMMANDS[name][0], "--out", out)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert last_line(answer.stderr) == "Error: Invalid value for '--out': it must not be empty"


@pytest.mark.parametrize("name", WITH_OUT)
def test_a_read_only_out(run, monkeypatch, tmp_path, name):
    break_down(monkeypatch, name, AssertionError("work began"))
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path)  # root may write everywhere
    answer = run(*name.split(), *COMMANDS[name][0], "--out", "there" + "/a.md" * (name == "certify"))
    assert answer.returncode == 2
    assert answer.stderr == f"labelhedge: --out cannot be there: {tmp_path} is read-only\n"


@pytest.mark.parametrize(
    ("line", "folder"),
    [
        ("figures two-maxima", "a/two-maxima.svg"),
        ("figures", "a/index.html"),
        ("demo", "a/report/index.html"),
    ],
)
def test_a_folder_where_a_file_is_to_be(run, monkeypatch, line, folder):
    break_down(monkeypatch, line.split()[0], AssertionError("work began"))
    Path(folder).mkdir(parents=True)
    answer = run(*line.split(), "--out", "a")
    assert answer.returncode == 2
    assert answer.stderr.endswith(f"{folder} is a folder, and not a file\n")


@pytest.mark.parametrize("name", WITH_OUT)
def test_a_url_is_for_bench_alone(run, monkeypatch, name):
    break_down(monkeypatch, name, DataError("work began"))
    answer = run(*name.split(), *COMMANDS[name][0], "--out", "memory://bucket" + "/a.md" * (name == "certify"))
    if name == "bench":
        assert answer.stderr == "labelhedge: work began\n"
    else:
        assert answer.returncode == 2
        assert answer.stderr.startswith("labelhedge: --out must be a folder of this machine, got memory:/bucket")


@pytest.mark.parametrize("name", FOUND)
@pytest.mark.parametrize("debug", ["", "1"])
def test_a_bug_is_a_traceback_and_exit_code_70(run, monkeypatch, name, debug):
    monkeypatch.setenv("LABELHEDGE_DEBUG", debug)
    break_down(monkeypatch, name, ValueError("operands could not be broadcast together"))
    answer = run(*name.split(), *COMMANDS[name][0])
    lines = answer.stderr.splitlines()
    assert answer.returncode == 70
    assert "Traceback (most recent call last):" in lines
    assert lines[-2:] == ["ValueError: operands could not be broadcast together", BUG]


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (DataError("it is\nnot\x1b[31m here"), 1, "it is not[31m here"),
        (OSError(28, "No space left on device", "a/b"), 1, "a/b: No space left on device"),
        (OSError(28, "No space left on device"), 1, "No space left on device"),
        (MemoryError(), 1, "out of memory"),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"), 1, "out of memory"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate"), 1, "out of memory"),
        (ImportError("cannot import name"), 70, None),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_exit_codes(run, monkeypatch, error, code, told):
    break_down(monkeypatch, "data info", error)
    answer = run("data", "info", "vowel")
    assert (answer.returncode, answer.stdout) == (code, "")
    if told is not None:
        assert answer.stderr == f"labelhedge: {told}\n" * bool(told)


def test_a_debugger_sees_the_traceback_of_mistakes_too(run, monkeypatch):
    monkeypatch.setenv("LABELHEDGE_DEBUG", "1")
    answer = run("data", "info", "vowle")
    assert answer.returncode == 2
    assert answer.stderr.startswith("Traceback (most recent call last):")
    assert answer.stderr.splitlines()[-1].startswith("labelhedge: unknown data set 'vowle'; known data sets: vowel")


def test_a_wrong_option_of_a_loss_is_a_mistake_of_the_user(run):
    for option in ("r=1", "q=much"):
        answer = run("certify", "gce", "--set", option)
        assert (answer.returncode, answer.stderr.count("\n")) == (2, 1), answer.stderr


def test_a_module_of_the_user_that_fails_is_no_bug_of_ours(run, tmp_path):
    (tmp_path / "broken.py").write_text("1 / 0")
    answer = run("certify", "broken:loss")
    assert (answer.returncode, answer.stderr) == (2, "labelhedge: cannot find broken:loss: division by zero\n")


HEEDING_CTRL_C = "import os, signal, sys; signal.signal(2, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"
"""Runs a command as a terminal does, even if the tests were started in the background, where Ctrl-C is ignored."""


@pytest.mark.parametrize("line", [("-m", "labelhedge"), ("labelhedge",), ("other",)])
def test_an_interrupt_while_torch_is_imported(tmp_path, line):
    """A torch that takes a minute to import stands in for the real one."""
    (tmp_path / "torch.py").write_text("import time\nprint(flush=True)\ntime.sleep(60)")
    for name in ("labelhedge", "other"):
        (tmp_path / name).write_text("import labelhedge")
    source = Path(cli.__file__).parents[2]
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{source}"}
    pipe = subprocess.PIPE
    line = [sys.executable, "-c", HEEDING_CTRL_C, sys.executable, *line]
    with subprocess.Popen(line, cwd=tmp_path, env=environment, stdout=pipe, stderr=pipe, text=True) as process:
        process.stdout.readline()
        process.send_signal(2)
        _, told = process.communicate()
    if "other" in line:  # where labelhedge is a library, Python does what it does
        assert "KeyboardInterrupt" in told
    else:
        assert (process.returncode, told) == (130, "")


def test_an_output_that_cannot_hold_every_letter():
    line = [sys.executable, "-m", "labelhedge", "train", "--help"]
    environment = os.environ | {"PYTHONIOENCODING": "cp1252"}
    answer = subprocess.run(line, capture_output=True, env=environment)
    assert (answer.returncode, answer.stderr) == (0, b"")
    assert b"\\u03bb" in answer.stdout


def test_a_seed_that_is_too_large(run):
    answer = run("certify", "ce", "--seed", 10**20)
    assert answer.returncode == 2
    assert "--seed" in last_line(answer.stderr)
