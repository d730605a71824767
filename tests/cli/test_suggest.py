"""The command ``labelhedge suggest`` as people and programs meet it."""

import json
import subprocess
import sys

import numpy as np
import pytest
from sklearn.datasets import load_iris

import labelhedge as lh
from labelhedge import cli
from labelhedge.cli import suggest as command


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Iris with a third of its labels drawn at random."""
    data = load_iris(as_frame=True)
    labels = lh.noise.uniform(data.target.to_numpy(), 0.3, seed=0).labels
    path = tmp_path_factory.mktemp("suggest") / "iris.csv"
    names = np.array(["setosa", "versicolor", "virginica"])
    data.data.assign(id=np.arange(150), species=names[labels]).to_csv(path, index=False)
    return path


@pytest.fixture
def run(monkeypatch, capsys):
    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["labelhedge", "suggest", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            cli.main()
        return subprocess.CompletedProcess(arguments, end.value.code or 0, *capsys.readouterr())

    return run


def test_in_a_pipe(table, run):
    done = run(table, "--label", "species")
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    notes, comparison, code = done.stdout.split("\n\n")
    assert notes.startswith("column 'id' left out: it counts the rows like an id")
    assert "of the labels seem wrong, by 150 rows" in notes
    rows = [line.split("\t") for line in comparison.splitlines()]
    assert rows[0] == ["loss", "parameters", "lr", "chosen by", "confirmed"]
    assert sorted(row[0] for row in rows[1:]) == sorted(lh.losses.PAPER)
    assert code.startswith("criterion = lh.")


@pytest.mark.parametrize("loss", lh.losses.PAPER)
def test_the_code_that_it_prints_runs(loss):
    spec, names = lh.losses.get(loss), {"lh": lh}
    exec(command._code(loss, {**spec.defaults, **spec.grid[-1]}), names)
    assert isinstance(names["criterion"], spec.module)
    features, labels = load_iris(return_X_y=True)
    names["classifier"].set_params(lr=0.1, max_epochs=1).fit(features, labels)


def test_as_json(table, run):
    done = run(table, "--label", "species", "--json")
    found = json.loads(done.stdout)
    assert found["rows"] == 150
    assert found["comparison"][0]["loss"] == found["loss"]
    assert lh.losses.create(found["loss"], **found["params"])
    assert 0.05 < found["share_wrong"] < 0.4


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "give a table with --label, or --features with --labels"),
        (["iris.csv"], "--label must name the column of iris.csv that has the labels"),
        (["--features", "x.npy"], "--features and --labels go together, and one of them is missing"),
        (["nowhere.csv", "--label", "species"], "nowhere.csv"),
    ],
)
def test_bad_arguments(run, arguments, sentence):
    done = run(*arguments)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert done.stdout == ""
