"""The command ``labelhedge audit`` as people and programs meet it."""

import csv
import fcntl
import json
import os
import pty
import re
import resource
import struct
import subprocess
import sys
import termios

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris

from labelhedge import cli
from labelhedge.cli import audit as command

EXCHANGED = {4: 2, 30: 1, 66: 0, 120: 0}
NAMES = np.array(["setosa", "versicolor", "virginica"])
MISSING = 17  # a row without a label, so that positions and row numbers differ


def iris():
    data = load_iris(as_frame=True)
    labels = data.target.to_numpy().copy()
    labels[list(EXCHANGED)] = list(EXCHANGED.values())
    frame = data.data.assign(id=np.arange(150), species=NAMES[labels])
    frame.loc[MISSING, "species"] = None
    return frame


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The same table in all forms."""
    folder, frame = tmp_path_factory.mktemp("iris"), iris()
    frame.to_csv(folder / "iris.csv", index=False)
    frame.to_csv(folder / "iris.tsv", index=False, sep="\t")
    frame.to_parquet(folder / "iris.parquet", index=False)
    np.save(folder / "x.npy", frame.iloc[:, :4].to_numpy())
    np.save(folder / "y.npy", frame["species"].fillna("").to_numpy("U"))
    return folder


@pytest.fixture
def run(monkeypatch, capsys):
    """Run a command in this process; importing torch again for each would take seconds."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["labelhedge", "audit", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            cli.main()
        return subprocess.CompletedProcess(arguments, end.value.code or 0, *capsys.readouterr())

    return run


@pytest.fixture(scope="module")
def in_a_pipe(folder):
    line = [sys.executable, "-m", "labelhedge", "audit", "iris.csv", "--label", "species", "--out", "a/b"]
    return subprocess.run(line, cwd=folder, capture_output=True, text=True, env=os.environ | {"TERM": "xterm-256color"})


def rows_of(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def sections(text):
    return [[line.split("\t") for line in part.splitlines()] for part in text.split("\n\n")]


def test_in_a_pipe(in_a_pipe):
    assert in_a_pipe.returncode == 0, in_a_pipe.stderr
    assert "\x1b" not in in_a_pipe.stdout + in_a_pipe.stderr
    (notes, classes, pairs, suspects) = sections(in_a_pipe.stdout)
    assert notes[0] == ["1 row without a label left out"]
    assert notes[1] == ["column 'id' left out: it counts the rows like an id"]
    assert re.fullmatch(r"About \d of 149 labels \(\d\.\d %\) are wrong", notes[2][0])
    assert classes[0] == ["label", "rows", "wrong", "share"]
    assert {row[0] for row in classes[1:]} == set(NAMES)
    assert sum(int(row[1]) for row in classes[1:]) == 149
    assert pairs[0] == ["given", "instead of", "rows"]
    assert {("virginica", "setosa"), ("setosa", "virginica")} <= {(row[0], row[1]) for row in pairs[1:]}
    assert suspects[0] == ["row", "given", "suggested", "p_wrong"]
    assert set(EXCHANGED) <= {int(row[0]) for row in suspects[1:]}
    begun, *_, done, table, page = in_a_pipe.stderr.splitlines()
    assert re.fullmatch(r"auditing: [\d,]+ network-epochs", begun)
    assert re.fullmatch(r"auditing: done in \d+ s", done)
    assert (table, page) == ("a/b/suspects.csv", "a/b/index.html")


def test_files(in_a_pipe, folder):
    assert sorted(os.listdir(folder / "a" / "b")) == ["index.html", "suspects.csv"]
    rows, labels = rows_of(folder / "a" / "b" / "suspects.csv"), iris()["species"]
    assert list(rows[0]) == ["row", "given", "suggested", "p_wrong", "rank"]
    assert {int(row["row"]) for row in rows[:4]} == set(EXCHANGED)
    assert all(row["given"] == labels[int(row["row"])] for row in rows)
    assert [int(row["rank"]) for row in rows] == list(range(1, len(rows) + 1))
    assert all(0.5 <= float(row["p_wrong"]) <= 1 for row in rows)
    page = (folder / "a" / "b" / "index.html").read_text(encoding="utf-8")
    assert f"row {rows[0]['row']}" in page
    assert page.count('<details class="suspect"') == len(rows)


@pytest.mark.parametrize("name", ["iris.tsv", "iris.parquet"])
def test_other_forms_of_the_same_table(in_a_pipe, folder, run, name, tmp_path):
    """The same output, which also says that the same seed gives the same."""
    answer = run(folder / name, "--label", "species", "--out", tmp_path)
    assert (answer.returncode, answer.stdout) == (0, in_a_pipe.stdout)
    assert (tmp_path / "suspects.csv").read_bytes() == (folder / "a" / "b" / "suspects.csv").read_bytes()
    pages = [(place / "index.html").read_text().partition("</header>") for place in (tmp_path, folder / "a" / "b")]
    assert f" in <bdi>{name}</bdi>" in pages[0][0]
    assert pages[0][2] == pages[1][2]


def test_arrays_as_json(folder, run, tmp_path):
    arrays = ("--features", folder / "x.npy", "--labels", folder / "y.npy")
    answer = run(*arrays, "--json", "--all", "--seed", 1, "--out", tmp_path)
    assert answer.returncode == 0, answer.stderr
    told = json.loads(answer.stdout)
    assert told["rows"] == 149
    assert told["share"] == pytest.approx(told["wrong"] / 149)
    assert told["notes"] == ["1 row without a label left out"]
    assert told["left_out"] == []
    assert [entry["label"] for entry in told["by_class"]] == list(NAMES)
    assert {"true", "given", "rows"} == set(told["confusions"][0])
    assert sorted(suspect["row"] for suspect in told["suspects"]) == [i for i in range(150) if i != MISSING]
    assert {suspect["row"] for suspect in told["suspects"][:4]} == set(EXCHANGED)
    assert told["files"] == [str(tmp_path / "suspects.csv"), str(tmp_path / "index.html")]
    rows = rows_of(tmp_path / "suspects.csv")
    assert [int(row["row"]) for row in rows] == [suspect["row"] for suspect in told["suspects"]]
    page = (tmp_path / "index.html").read_text()
    assert re.search(r"of <bdi>y</bdi> in <bdi>x.npy and y.npy</bdi>, \d{4}-\d\d-\d\d, seed 1</p>", page)


def test_on_a_terminal(tmp_path):
    """A bar, tables as wide as the terminal, and labels that are neither markup nor orders to the terminal."""
    frame = iris().iloc[:100]
    frame["species"] = frame["species"].replace({"setosa": "[/red]", "versicolor": "\x1b[31m\x07[b]"})
    frame.to_csv(tmp_path / "iris.csv", index=False)
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 8, 60, 0, 0))
    line = [sys.executable, "-m", "labelhedge", "audit", "iris.csv", "--label", "species"]
    settings = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE")
    env = {name: value for name, value in os.environ.items() if name not in settings} | {"TERM": "xterm-256color"}
    process = subprocess.Popen(line, cwd=tmp_path, stdin=theirs, stdout=theirs, stderr=theirs, env=env)
    os.close(theirs)
    screen = b""
    while True:
        try:
            screen += os.read(ours, 4096)
        except OSError:  # the other end is closed
            break
    os.close(ours)
    assert process.wait(60) == 0
    text = screen.decode()
    assert "━" in text
    assert "network-epochs" in text
    assert "\x07" not in text
    seen = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", text)
    assert re.search(r"\n\[31m\[b\] +\d+ +\d\.\d +\d+\.\d %", seen)
    assert re.search(r"\n\[/red\] +\d+", seen)
    assert "About" in seen


@pytest.fixture
def no_training(monkeypatch):
    """Bad input must be told before the work begins."""
    monkeypatch.setattr(command, "find_encoded", lambda *_, **__: pytest.fail("training began"))


BAD = {
    "nothing": ((), "give a table with --label, or --features with --labels\n"),
    "label alone": (("--label", "species"), "give a table with --label, or --features with --labels\n"),
    "no label": (("iris.csv",), "--label must name the column of iris.csv that has the labels"),
    "features alone": (("--features", "x.npy"), "--features and --labels go together, and one of them is missing"),
    "labels alone": (("--labels", "y.npy"), "--features and --labels go together, and one of them is missing"),
    "both": (("iris.csv", "--label", "species", "--features", "x.npy"), "give a table with --label, or --features"),
    "label for arrays": (("--features", "x.npy", "--labels", "y.npy", "--label", "a"), "give a table with --label, or"),
    "no such file": (("iri.csv", "--label", "species"), "iri.csv does not exist"),
    "a folder": ((".", "--label", "species"), ". is not a file"),
    "no such column": (("iris.csv", "--label", "Species"), "iris.csv has no column 'Species'; did you mean 'species'?"),
    "numbers": (("iris.csv", "--label", "id"), "the label column 'id' of iris.csv has 150 different values"),
    "format": (("x.npy", "--label", "species"), "x.npy is in a format that is not known"),
    "no features": (("bare.csv", "--label", "species"), "no column can be used as a feature"),
    "not an array": (("--features", "iris.csv", "--labels", "y.npy"), "iris.csv cannot be read"),
    "device": (("iris.csv", "--label", "species", "--device", "abacus"), "device must be cpu or cuda, got 'abacus'"),
    "taken": (("iris.csv", "--label", "species", "--out", "taken"), "--out cannot be taken: taken/index.html is a"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_sentence_and_leaves_nothing(folder, run, monkeypatch, no_training, case):
    arguments, sentence = BAD[case]
    monkeypatch.chdir(folder)
    pd.DataFrame({"species": ["a", "b"] * 5}).to_csv("bare.csv", index=False)
    (folder / "taken" / "index.html").mkdir(parents=True, exist_ok=True)
    before = sorted(folder.rglob("*"))
    answer = run(*arguments, *(() if "--out" in arguments else ("--out", "new")))
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr.startswith(f"labelhedge: {sentence}")
    assert answer.stderr.count("\n") == 1
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize("option", [("--seed", "-1"), ("--seed", "x"), ("--frobnicate",)])
def test_wrong_options(folder, run, no_training, option):
    answer = run(folder / "iris.csv", "--label", "species", *option)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert option[0] in answer.stderr


def test_help_has_an_example(run):
    answer = run("--help")
    assert answer.returncode == 0
    assert "Example: labelhedge audit iris.csv --label species --out audit" in answer.stdout


def test_hostile_labels_in_the_files(run, tmp_path):
    """Formulas, quotes and line breaks; -1 stays -1."""
    names = {"setosa": "-1", "versicolor": '=HYPERLINK("x")', "virginica": '@a,"b"\n<script>alert(1)</script>'}
    frame = iris().drop(index=MISSING)
    frame["species"] = frame["species"].map(names)
    frame["note"] = [f"{i}<script>alert(2)</script>" + 100_000 * "x" for i in range(len(frame))]
    frame.to_csv(tmp_path / "iris.csv", index=False)
    answer = run(tmp_path / "iris.csv", "--label", "species", "--out", tmp_path / "out")
    assert answer.returncode == 0, answer.stderr
    rows = rows_of(tmp_path / "out" / "suspects.csv")
    written = {"-1", "'" + names["versicolor"], "'" + names["virginica"]}
    assert {row["given"] for row in rows} | {row["suggested"] for row in rows} == written
    for part in sections(answer.stdout)[1:]:
        assert {len(line) for line in part} == {len(part[0])}  # no line is broken by a label
    page = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert len(page) < 300_000


def test_nothing_is_written_half(folder, run, monkeypatch, tmp_path):
    """What was there stays when the page does not fit on the disk."""
    (tmp_path / "suspects.csv").write_text("old")
    monkeypatch.setattr(command, "page", lambda *_, **__: "x" * 1_000_000)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, limits[1]))
    try:
        answer = run(folder / "iris.csv", "--label", "species", "--out", tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (answer.returncode, answer.stdout) == (1, "")
    assert answer.stderr.endswith(f"labelhedge: {tmp_path / 'index.html'}: File too large\n")
    assert os.listdir(tmp_path) == ["suspects.csv"]
    assert (tmp_path / "suspects.csv").read_text() == "old"
