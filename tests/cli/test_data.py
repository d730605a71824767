"""The command ``labelhedge data`` as people and programs meet it."""

import fcntl
import json
import os
import pty
import re
import signal
import socket
import struct
import subprocess
import sys
import termios
import time

import pytest

from labelhedge import data
from tests.data.server import File, Stall, publishing, random_bytes

BODY = random_bytes(3_000_000)
COMMAND = ("-m", "labelhedge")
QUICK = (
    "-c",
    "import signal, labelhedge.data._download as download; from labelhedge.cli import main; "
    "signal.signal(signal.SIGINT, signal.default_int_handler); download.WAIT = 0; main()",
)
WITHOUT_TYPER = ("-c", "import sys; sys.modules['typer'] = None; from labelhedge.cli import main; main()")
RUNNER = """
import gc, json, os, sys, tempfile
import labelhedge.cli.app, labelhedge.data._download as download
from labelhedge.cli import main

download.WAIT = 0
gc.freeze()
answers = {}
for name, arguments in json.loads(sys.argv[1]).items():
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        if not (child := os.fork()):
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            sys.argv[1:] = ["data", *arguments]
            main()
            sys.exit()
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        out.seek(0), err.seek(0)
        answers[name] = code, out.read(), err.read()
print(json.dumps(answers))
"""  # each command in a process of its own, which need not import torch again
TERMINAL_SETTINGS = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE")


def environment(root, mirror):
    kept = {name: value for name, value in os.environ.items() if name not in TERMINAL_SETTINGS}
    own = {"LABELHEDGE_DATA": str(root), "LABELHEDGE_MIRROR": mirror, "no_proxy": "*", "TERM": "xterm-256color"}
    return kept | own


def start(*arguments, env, command=COMMAND, stdout=subprocess.PIPE):
    line = [sys.executable, *command, *arguments]
    return subprocess.Popen(line, env=env, stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.PIPE, text=True)


def finish(process):
    out, err = process.communicate(timeout=60)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


@pytest.fixture
def publisher():
    with publishing() as publisher:
        publisher.files["/aloi/aloi.bz2"] = File(BODY)
        yield publisher


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A folder with a file whose checksum nobody knows and one with a wrong checksum."""
    root = tmp_path_factory.mktemp("root")
    for name in ("aloi", "news20"):
        (root / name).mkdir()
        (root / name / f"{name}.bz2").write_bytes(b"anything")
    return root


@pytest.fixture(scope="module")
def answers(root):
    """What commands say that change nothing, by a name for each."""
    empty = str(root / "empty")
    commands = {
        "list json": ["list", "--json"],
        "info": ["info", "aloi"],
        "info json": ["info", "cifar-10", "--json", "--root", empty],
        "wrong name": ["info", "alio"],
        "wrong name among others": ["get", "kuzushiji-49", "alio"],
        "wrong option": ["list", "--frobnicate"],
        "get json": ["get", "aloi", "letter", "--json"],
        "get damaged": ["get", "news20"],
        "get shipped": ["get", "letter"],
        "get by hand": ["get", "mini-webvision"],
        "get from nowhere": ["get", "kuzushiji-49"],
        "verify": ["verify"],
        "verify json": ["verify", "--json"],
        "verify one": ["verify", "aloi"],
        "verify nothing": ["verify", "--root", empty],
    }
    reader, writer = os.pipe()
    os.close(reader)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        env = environment(root, f"http://127.0.0.1:{closed.getsockname()[1]}")
        runner = start(json.dumps(commands), env=env, command=("-c", RUNNER))
        processes = {
            "list": start("data", "list", env=env),
            "list to nobody": start("data", "list", env=env, stdout=writer),
            "without typer": start("data", "list", env=env, command=WITHOUT_TYPER),
        }
        os.close(writer)
        run = finish(runner)
        assert run.returncode == 0, run.stderr
        forked = {name: subprocess.CompletedProcess(name, *told) for name, told in json.loads(run.stdout).items()}
        return forked | {name: finish(process) for name, process in processes.items()}


def one_line(text):
    assert text.count("\n") == 1, text
    assert "Traceback" not in text
    return text.removesuffix("\n")


def test_list_in_a_pipe_is_for_programs(answers):
    answer = answers["list"]
    assert (answer.returncode, answer.stderr) == (0, "")
    assert "\x1b" not in answer.stdout
    head, *rows = [line.split("\t") for line in answer.stdout.splitlines()]
    assert head == ["name", "classes", "train", "test", "inputs", "state"]
    assert {len(row) for row in rows} == {len(head)}
    assert [row[0] for row in rows] == list(data.names())
    states = {row[0]: row[-1] for row in rows}
    assert states["letter"] == "shipped"
    assert states["aloi"] == "here"
    assert states["cifar-100"] == "to get, 169 MB"
    assert states["mini-webvision"] == "by hand"


def test_list_json(answers):
    listed = json.loads(answers["list json"].stdout)
    assert [entry["name"] for entry in listed] == list(data.names())
    assert listed[1]["num_classes"] == 26
    assert listed[4]["state"] == "here"


def test_a_reader_who_leaves_early_makes_no_noise(answers):
    answer = answers["list to nobody"]
    assert answer.stderr == ""
    assert answer.returncode >= 0


def test_info_tells_where_a_file_lies_and_where_it_comes_from(answers, root):
    answer = answers["info"]
    assert (answer.returncode, answer.stderr) == (0, "")
    lines = [re.split(r":? {2,}", line, maxsplit=1) for line in answer.stdout.splitlines()]
    assert ["name", "ALOI (aloi)"] in lines
    assert ["rows", "97,200 for training, 10,800 for testing"] in lines
    assert ["file", str(root / "aloi" / "aloi.bz2")] in lines
    assert re.search(r"from http://127.0.0.1:\d+/aloi/aloi.bz2\n", answer.stdout)
    assert "\x1b" not in answer.stdout


def test_info_json(answers, root):
    told = json.loads(answers["info json"].stdout)
    assert told["title"] == "CIFAR-10"
    assert told["state"] == "to get, 170 MB"
    assert told["files"][0]["path"] == str(root / "empty" / "cifar-10" / "cifar-10-python.tar.gz")
    assert told["files"][0]["checksum"].startswith("sha256:")


@pytest.mark.parametrize("command", ["wrong name", "wrong name among others"])
def test_a_wrong_name_is_one_line_and_exit_code_2(answers, command):
    answer = answers[command]
    assert (answer.returncode, answer.stdout) == (2, "")
    assert one_line(answer.stderr).startswith("labelhedge: unknown data set 'alio'; known data sets: vowel, letter")


def test_a_wrong_option_is_exit_code_2(answers):
    answer = answers["wrong option"]
    assert (answer.returncode, answer.stdout) == (2, "")
    assert "--frobnicate" in answer.stderr
    assert "Traceback" not in answer.stderr


def test_get_json_of_what_is_here_needs_no_server(answers, root):
    answer = answers["get json"]
    assert answer.returncode == 0
    assert json.loads(answer.stdout) == [str(root / "aloi" / "aloi.bz2")]


def test_get_finds_a_damaged_file(answers, root):
    answer = answers["get damaged"]
    assert (answer.returncode, answer.stdout) == (1, "")
    assert one_line(answer.stderr).startswith(f"labelhedge: {root / 'news20' / 'news20.bz2'} has the checksum sha256:")


def test_get_of_shipped_data_has_nothing_to_do(answers):
    answer = answers["get shipped"]
    assert (answer.returncode, answer.stdout) == (0, "")
    assert one_line(answer.stderr) == "letter is shipped: there is nothing to fetch"


def test_get_of_data_that_cannot_be_fetched_tells_what_to_do(answers, root):
    answer = answers["get by hand"]
    assert (answer.returncode, answer.stdout) == (1, "")
    assert one_line(answer.stderr).startswith(
        f"labelhedge: mini-webvision cannot be fetched; put into {root / 'mini-webvision'} "
    )


def test_get_from_a_server_that_is_down_is_one_line_and_exit_code_1(answers, root):
    answer = answers["get from nowhere"]
    assert (answer.returncode, answer.stdout) == (1, "")
    line = one_line(answer.stderr)
    assert re.match(r"labelhedge: cannot get http://127.0.0.1:\d+/kuzushiji-49/k49-train-imgs.npz .*refused", line)
    assert line.endswith(f"put it at {root / 'kuzushiji-49' / 'k49-train-imgs.npz'}")


def test_verify_names_the_damaged_file(answers, root):
    answer = answers["verify"]
    assert (answer.returncode, answer.stderr) == (1, "")
    good, bad = answer.stdout.splitlines()
    assert good.startswith(f"ok   {root / 'aloi' / 'aloi.bz2'} sha256:")
    assert bad.startswith(f"BAD  {root / 'news20' / 'news20.bz2'} has the checksum sha256:")


def test_verify_json(answers, root):
    answer = answers["verify json"]
    assert answer.returncode == 1
    good, bad = json.loads(answer.stdout)
    assert (good["file"], good["ok"]) == (str(root / "aloi" / "aloi.bz2"), True)
    assert (bad["file"], bad["ok"]) == (str(root / "news20" / "news20.bz2"), False)
    assert "checksum" in bad["problem"]


def test_verify_looks_at_what_it_is_asked_for(answers):
    answer = answers["verify one"]
    assert (answer.returncode, answer.stderr) == (0, "")
    assert one_line(answer.stdout).startswith("ok   ")


def test_verify_of_nothing_says_so(answers, root):
    answer = answers["verify nothing"]
    assert (answer.returncode, answer.stdout) == (0, "")
    assert one_line(answer.stderr) == f"no files to check in {root / 'empty'}"


def test_a_missing_extra_is_named(answers):
    answer = answers["without typer"]
    assert (answer.returncode, answer.stdout) == (2, "")
    assert one_line(answer.stderr) == "labelhedge: typer is not installed; get it with: pip install 'labelhedge[cli]'"


def test_get_interrupted_by_hand_goes_on_the_next_time(publisher, tmp_path):
    publisher.files["/aloi/aloi.bz2"].faults = iter([Stall(2_500_000)])
    env = environment(tmp_path, publisher.url)
    path = tmp_path / "aloi" / "aloi.bz2"
    part = path.with_name("aloi.bz2.part")
    process = start("data", "get", "aloi", env=env, command=QUICK)
    deadline = time.monotonic() + 30
    while not (part.exists() and part.stat().st_size >= 1_000_000):
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    interrupted = finish(process)
    assert (interrupted.returncode, interrupted.stdout) == (130, "")
    assert "Traceback" not in interrupted.stderr
    received = part.stat().st_size

    answer = finish(start("data", "get", "aloi", env=env))
    assert (answer.returncode, answer.stdout) == (0, f"{path}\n")
    assert answer.stderr.splitlines() == ["aloi.bz2: 3 MB", "aloi.bz2: done in 0 s"]
    assert publisher.ranges == [None, f"bytes={received}-"]
    assert path.read_bytes() == BODY


def start_on_terminal(*arguments, env, columns):
    terminal, end = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    line = [sys.executable, *COMMAND, *arguments]
    process = subprocess.Popen(line, env=env, stdin=end, stdout=end, stderr=end)
    os.close(end)
    return process, terminal


def finish_on_terminal(process, terminal):
    output = b""
    try:
        while received := os.read(terminal, 65536):
            output += received
    except OSError:  # Linux's word for the end
        pass
    os.close(terminal)
    assert process.wait() == 0
    return output.decode()


def test_a_terminal_gets_a_table_and_a_bar(publisher, tmp_path):
    env = environment(tmp_path, publisher.url)
    listing = start_on_terminal("data", "list", env=env, columns=60)
    getting = start_on_terminal("data", "get", "aloi", env=env, columns=60)
    table, bar = finish_on_terminal(*listing), finish_on_terminal(*getting)

    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", table).splitlines()
    assert max(map(len, lines)) <= 60
    words = {line.split()[0] for line in lines if line and not line.startswith(" ")}
    assert words == {"name", *data.names()}

    assert "━━━━━" in bar
    assert "3 MB of 3 MB" in bar
    assert bar.endswith(f"{tmp_path / 'aloi' / 'aloi.bz2'}\r\n")
