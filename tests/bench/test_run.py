"""One job from the data to its rows, trained for a few epochs."""

import dataclasses
import json
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

import labelhedge as lh
from labelhedge.bench import run as bench_run
from labelhedge.bench.jobs import Job
from labelhedge.bench.protocol import PRESETS, entry, setting
from labelhedge.bench.rows import commit
from labelhedge.bench.run import Machine, dataset, run, task, trials
from labelhedge.results import ResultsStore, choose, load, load_traces
from labelhedge.results.schema import CELL, CONFIGURATION, NETWORKS, TEST, TRACES

EPOCHS, FOLDS = 4, 2
NOISES = ("clean", "u0.3", "cd0.1")
QUICK = dataclasses.replace(PRESETS["fair"].protocol, epochs=EPOCHS, folds=FOLDS)
LOSSES = ("ce", "aldr-kl", "gce@l1")


def job(loss, seed=0, dataset="vowel"):
    return Job(QUICK, dataset, loss, seed, tuple(map(setting, NOISES)))


def done(todo, root):
    """Networks and traces of a job that was done in the folder ``root``, and what it told as it went on."""
    told = []
    run(todo, ResultsStore(root), Machine(), told.append)
    return load(root), load_traces(root), told


@pytest.fixture(scope="module", params=LOSSES)
def results(request, tmp_path_factory):
    todo = job(request.param)
    return todo, *done(todo, tmp_path_factory.mktemp("results"))


def without_origin(table):
    return table.drop(columns=["seconds", "commit"])


def test_columns_and_types_are_those_of_the_schema(results):
    _, networks, traces, _ = results
    for table, columns in ((networks, NETWORKS), (traces, TRACES)):
        assert list(table) == list(columns)
        assert {name: str(dtype) for name, dtype in table.dtypes.items()} == {
            name: "str" if kind == "string" else kind for name, kind in columns.items()
        }


def test_there_is_one_row_for_each_noise_fold_and_everything_tuned(results):
    job, networks, _, _ = results
    expected = {
        (s.kind, s.rate, lr, decay, json.dumps(dict(params)), fold)
        for s in job.settings
        for lr, decay, params in QUICK.tuned(entry(job.loss))
        for fold in range(FOLDS)
    }
    rows = networks[["noise", "rate", *CONFIGURATION, "fold"]].itertuples(index=False, name=None)
    assert set(rows) == expected
    assert len(networks) == len(expected) == job.networks
    for column, value in {"protocol": QUICK.id, "dataset": "vowel", "loss": job.loss, "seed": 0, "epochs": 4}.items():
        assert (networks[column] == value).all()


def test_progress_adds_up_to_every_epoch_of_every_network(results):
    job, _, _, told = results
    assert sum(told) == job.networks * EPOCHS
    assert min(told) > 0


def test_accuracies_and_epochs_are_possible(results):
    _, networks, traces, _ = results
    assert networks["best_epoch"].between(1, EPOCHS).all()
    for column in ("val_top1", *TEST):
        assert networks[column].between(0, 1).all()
    assert (networks[list(TEST)].diff(axis="columns").iloc[:, 1:] >= 0).all(axis=None)
    assert (
        traces[["val_top1", "val_clean_top1"]].isin(np.arange(179, dtype=np.float32) / np.float32(178)).all(axis=None)
    )
    assert np.isfinite(traces["train_loss"]).all()


def test_networks_have_learned_something(results):
    _, networks, _, _ = results
    clean = choose(networks).query("noise == 'clean'")
    assert (clean["test_top5"] > 5 / 11).all()


def test_each_row_tells_its_origin(results):
    _, networks, _, _ = results
    assert (networks["seconds"] > 0).all()
    assert networks["versions"].str.contains(rf"^labelhedge {lh.__version__}, torch 2\..*, numpy .*, Python 3\.").all()
    assert networks["device"].str.match("CPU .+").all()
    assert set(networks["commit"]) == {commit()}


def test_the_commit_is_that_of_the_checkout():
    assert commit.__wrapped__().removesuffix("+") == head_of_checkout()[:12]  # now, not when it was first asked for


def head_of_checkout():
    """The commit of the tests' checkout where it is also that of the package, or nothing."""
    checkout = Path(__file__).parents[2]
    if not (checkout / ".git").exists() or not Path(lh.__file__).is_relative_to(checkout / "src"):
        return ""
    return subprocess.run(["git", "-C", checkout, "rev-parse", "HEAD"], capture_output=True, text=True).stdout


def test_traces_are_those_of_the_chosen_networks(results):
    _, networks, traces, _ = results
    chosen = choose(networks)
    assert len(chosen) == len(NOISES) * FOLDS
    assert len(traces) == len(chosen) * EPOCHS
    by_network = traces.groupby([*CELL, "fold"])
    for row in chosen.to_dict("records"):
        own = by_network.get_group(tuple(row[name] for name in (*CELL, "fold")))
        assert own["epoch"].tolist() == [1, 2, 3, 4]
        assert own["val_top1"].max() == np.float32(row["val_top1"])
        assert own["epoch"][own["val_top1"].idxmax()] == row["best_epoch"]  # the first of equal ones


def test_right_labels_are_what_clean_validation_is_on(results):
    _, _, traces, _ = results
    clean = traces["noise"] == "clean"
    assert (traces["val_top1"] == traces["val_clean_top1"])[clean].all()
    assert (traces["val_top1"] != traces["val_clean_top1"])[~clean].any()


def test_lambdas_are_traced_where_there_are_any(results):
    job, _, traces, _ = results
    clean = traces["noise"] == "clean"
    if job.loss != "aldr-kl":
        assert traces[["lam_clean", "lam_flipped"]].isna().all(axis=None)
        return
    assert traces["lam_clean"].between(0.05, 10).all()
    assert (traces["lam_flipped"].isna() == clean).all()
    assert (traces["lam_clean"] != traces["lam_flipped"]).all()


def test_an_entry_on_l1_is_trained_on_normalised_logits(tmp_path):
    (plain, _, _), (normalised, _, _) = (done(job(loss), tmp_path / loss) for loss in ("ce", "ce@l1"))
    at_temperature_1 = normalised[normalised["params"] == '{"temperature": 1.0}'].reset_index(drop=True)
    assert len(at_temperature_1) == len(plain)
    assert (at_temperature_1["val_top1"] != plain["val_top1"]).any()


def test_the_same_job_gives_the_same_bits(results, tmp_path):
    todo, networks, traces, _ = results
    again, traces_again, _ = done(todo, tmp_path)
    assert_frame_equal(without_origin(again), without_origin(networks), check_exact=True)
    assert_frame_equal(traces_again, traces, check_exact=True)


def test_another_seed_has_another_split_other_noise_and_another_start(tmp_path):
    loaded = [lh.data.load("vowel", seed=seed) for seed in (0, 1)]
    tasks = [task(data, job("ce", seed)) for seed, data in enumerate(loaded)]
    assert not np.array_equal(tasks[0].inputs, tasks[1].inputs)
    assert np.array_equal(dataset(job("ce", 1), Machine()).train.inputs, tasks[1].inputs)
    same_data = task(loaded[0], job("ce", 1))
    assert not np.array_equal(same_data.labels[1], tasks[0].labels[1])
    networks, _, _ = done(job("ce", 1), tmp_path)
    assert set(networks["seed"]) == {1}


def test_labels_to_train_with_have_the_noise_of_their_setting():
    vowel = lh.data.load("vowel")
    made = task(vowel, job("ce"))
    flipped = (made.labels != vowel.train.labels).mean(1)
    assert flipped == pytest.approx([0, 0.3, 0.1], abs=0.05)
    assert np.array_equal(made.clean, vowel.train.labels)
    assert np.array_equal(made.test_labels, vowel.test.labels)
    neighbours = {0: 1, 1: 0, 2: 3, 3: 2, 4: 5, 5: 4, 6: 7, 7: 6, 8: 9, 9: 8, 10: 10}
    wrong = made.labels[2] != vowel.train.labels
    assert [neighbours[label] for label in vowel.train.labels[wrong].tolist()] == made.labels[2][wrong].tolist()


@pytest.mark.parametrize(("name", "balanced"), [("vowel", False), ("kuzushiji-49", True)])
def test_accuracies_are_class_balanced_where_the_paper_balances_them(name, balanced):
    vowel = lh.data.load("vowel")
    renamed = dataclasses.replace(vowel, info=dataclasses.replace(vowel.info, name=name))
    assert task(renamed, job("ce")).balanced is balanced


def test_trials_stand_noise_after_noise_with_everything_tuned():
    made = trials(job("gce@l1"))
    assert [(t.labels, t.lr, t.weight_decay, t.params) for t in made] == [
        (labels, *tuned) for labels in range(3) for tuned in QUICK.tuned(entry("gce@l1"))
    ]


def test_test_labels_decide_nothing_but_test_accuracies(results, tmp_path, monkeypatch):
    todo, networks, traces, _ = results
    vowel = lh.data.load("vowel")
    permuted = lh.data.Part(vowel.test.inputs, np.roll(vowel.test.labels, 1))
    monkeypatch.setattr(bench_run, "_load", lambda *_: dataclasses.replace(vowel, test=permuted))
    other, other_traces, _ = done(todo, tmp_path)
    assert (other[list(TEST)] != networks[list(TEST)]).any(axis=None)
    rest = [column for column in without_origin(networks) if column not in TEST]
    assert_frame_equal(other[rest], networks[rest], check_exact=True)
    assert_frame_equal(other_traces, traces, check_exact=True)


def test_test_accuracies_are_those_of_the_best_epoch(tmp_path):
    """Training that stops at the best epoch of a network ends with its test accuracies."""
    todo = dataclasses.replace(job("ce"), settings=(setting("u0.3"),))
    flat = dataclasses.replace(todo, protocol=dataclasses.replace(QUICK, decay_after=()))
    networks, _, _ = done(flat, tmp_path / "long")
    keys = [*CONFIGURATION, "fold"]
    for epochs in range(1, EPOCHS + 1):
        shorter = dataclasses.replace(flat, protocol=dataclasses.replace(flat.protocol, epochs=epochs))
        short, _, _ = done(shorter, tmp_path / str(epochs))
        both = networks[networks["best_epoch"] == epochs].merge(short, on=keys, suffixes=("", "_then"))
        assert (both["best_epoch_then"] == epochs).all()
        for column in ("val_top1", *TEST):
            assert (both[column] == both[f"{column}_then"]).all()


def test_few_classes_leave_the_top_k_without_meaning_empty(tmp_path, monkeypatch):
    vowel = lh.data.load("vowel")

    def first_classes(part):
        return lh.data.Part(part.inputs[part.labels < 4], part.labels[part.labels < 4])

    few = dataclasses.replace(
        vowel,
        info=dataclasses.replace(vowel.info, name="four", num_classes=4),
        train=first_classes(vowel.train),
        test=first_classes(vowel.test),
        class_names=vowel.class_names[:4],
    )
    monkeypatch.setattr(bench_run, "_load", lambda *_: few)
    networks, _, _ = done(dataclasses.replace(job("ce"), settings=(setting("clean"),)), tmp_path)
    assert pd.notna(networks[["test_top1", "test_top2", "test_top3"]]).all(axis=None)
    assert networks[["test_top4", "test_top5"]].isna().all(axis=None)
