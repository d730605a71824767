"""Whole reports: what is written, what is said where something is missing, and the command."""

import dataclasses
import json
import re
import resource
import xml.etree.ElementTree as ET

import numpy as np
import pandas as pd
import pytest
import typer
from typer.testing import CliRunner

import labelhedge as lh
from labelhedge._errors import UserError
from labelhedge.cli.report import report as command
from labelhedge.report import write
from labelhedge.report.content import gather
from labelhedge.report.critical_difference import MARGIN, WIDTH, diagram
from labelhedge.report.figures import convergence
from labelhedge.report.names import highlighted, noise_id, noise_label, noise_order
from labelhedge.report.page import embedded_json, page
from labelhedge.report.text import duration, leaderboard_text, left_out, significance_text
from labelhedge.results import choose, load_traces
from labelhedge.results.aggregate import Significance
from tests.report.synthetic import PROTOCOL, results

PAPER = lh.noise.settings.PAPER
LOSSES = ("aldr-kl", "ldr-kl", "ce", "sce@l1")
SVG = "{http://www.w3.org/2000/svg}"


def run(*arguments):
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(command)
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def names(report, kind):
    return {path.name for path in report.files if path.parent.name == kind}


def test_all_files_are_written(report, folder):
    assert report.files[0] == folder / "report" / "index.html"
    assert all(path.stat().st_size for path in report.files)
    assert names(report, "figures") == {
        "critical_difference.svg",
        "accuracy_by_rate.svg",
        "convergence.svg",
        "training_loss.svg",
        "lambda.svg",
        "seconds_per_epoch.svg",
    }
    accuracy = {f"accuracy-{name}.{kind}" for name in ("letter", "news20", "vowel") for kind in ("md", "tex")}
    board = {f"leaderboard.{kind}" for kind in ("md", "tex", "csv")}
    tuning = {f"hyperparameters-{name}.{kind}" for name in ("letter", "news20", "vowel") for kind in ("md", "tex")}
    time = {f"running_time.{kind}" for kind in ("md", "tex", "csv")}
    assert names(report, "tables") == accuracy | board | tuning | time | {"accuracy.csv", "hyperparameters.csv"}
    for path in report.files:
        if path.suffix == ".svg":
            assert ET.parse(path).getroot().tag == f"{SVG}svg"


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    folder = results(tmp_path_factory.mktemp("small"), datasets=("vowel",), noises=PAPER[:3], losses=LOSSES)
    return write(folder)


def test_a_report_is_the_same_each_time(small, tmp_path):
    again = write(small.files[0].parent.parent, tmp_path)
    for old, new in zip(small.files, again.files, strict=True):
        assert old.read_bytes() == new.read_bytes(), old.name


def test_noise_has_the_names_of_the_settings():
    assert [noise_id(s.kind, s.rate) for s in PAPER] == [s.id for s in PAPER]
    assert noise_label("class_dependent", 0.1) == "class-dependent 0.1"
    assert noise_label("human", 0.4) == "human 0.4"
    noises = [("human", 0.4), ("class_dependent", 0.1), ("uniform", 0.9), ("uniform", 0.3), ("clean", 0.0)]
    assert sorted(noises, key=lambda noise: noise_order(*noise)) == [*noises[:2:-1], *noises[2::-1]]


def test_the_losses_that_stand_out():
    assert highlighted(["a", "ce", "b", "aldr-kl", "c", "d", "e"]) == ("aldr-kl", "ce", "a", "b", "c", "d")
    assert highlighted(["a"]) == ("a",)


def test_curves_are_means_over_folds_and_lambda_is_in_units_of_lambda0(report, folder):
    curves, spread = report.content.curves, report.content.spread
    cell = load_traces(folder).query("dataset == 'vowel' and noise == 'uniform' and rate == 0.6 and epoch == 7")
    key = ("vowel", "uniform", 0.6)
    ce = cell[cell["loss"] == "ce"]["train_loss"].to_numpy()
    assert len(ce) == 5
    assert curves.loc[(*key, "ce", 7), "train_loss"] == pytest.approx(ce.mean())
    assert spread.loc[(*key, "ce", 7), "train_loss"] == pytest.approx(ce.std())
    progress = 1 - np.exp(-4 * 7 / 20)  # as in the synthetic results
    lam = curves.xs(("aldr-kl", 7), level=("loss", "epoch"))
    assert len(lam) == 21
    assert lam["lam_clean"].to_numpy() == pytest.approx(1 - 0.35 * progress)
    assert lam["lam_flipped"].dropna().to_numpy() == pytest.approx(1 - 0.2 * progress)
    assert np.isnan(curves.loc[(*key, "ce", 7), "lam_clean"])


def test_seconds_per_epoch(report):
    networks = choose(report.content.networks).query("dataset == 'letter' and loss == 'gce'")
    assert len(networks) == 7 * 5
    assert report.content.seconds.loc["gce", "letter"] == pytest.approx((networks["seconds"] / 20).mean())


@pytest.mark.parametrize(("count", "last"), [(6, "tgce"), (7, "ww"), (8, "the others")])
def test_a_single_grey_line_has_its_name(tmp_path, count, last):
    content = gather(results(tmp_path, datasets=("letter",), noises=PAPER[:2], losses=lh.losses.PAPER[:count], folds=1))
    assert convergence(content).legends[0].get_texts()[-1].get_text() == last


def test_one_data_set_with_one_noise_and_no_lambda(tmp_path):
    made = write(results(tmp_path, datasets=("letter",), noises=PAPER[1:2], lam=False))
    assert made.content.significance is None
    assert "lambda.svg" not in names(made, "figures")
    assert "critical_difference.svg" not in names(made, "figures")
    assert "two settings" in significance_text(made.content)[0]


def test_a_single_loss(tmp_path):
    made = write(results(tmp_path, datasets=("vowel",), noises=PAPER[:1], losses=("my-loss",)))
    assert made.content.ranking is None
    assert leaderboard_text(made.content) == [
        "There is no leaderboard: my-loss is the only loss, and ranks compare losses."
    ]
    assert "accuracy-vowel.md" in names(made, "tables")
    assert not any("leaderboard" in name for name in names(made, "tables"))


def test_losses_without_a_common_setting(tmp_path):
    without = [("vowel", "clean", "ce"), ("letter", "clean", "mae")]
    folder = results(tmp_path, datasets=("letter", "vowel"), noises=PAPER[:1], losses=("ce", "mae"), without=without)
    content = gather(folder)
    assert content.ranking is None
    assert content.losses == ("ce", "mae")
    assert "no leaderboard yet" in leaderboard_text(content)[0]
    assert left_out(content) == ["letter, clean: no result of mae", "vowel, clean: no result of ce"]
    write(folder)


def test_settings_left_out_are_named(tmp_path):
    without = [("vowel", "u0.3", "ce"), ("vowel", "u0.3", "mae")]
    content = gather(results(tmp_path, datasets=("letter", "vowel"), losses=("ce", "gce", "mae"), without=without))
    assert content.ranking.settings == content.significance.settings == 13
    assert "1 setting without results of all losses did not count." in leaderboard_text(content)
    assert left_out(content) == ["vowel, uniform 0.3: no result of ce, mae"]
    assert "vowel, uniform 0.3: no result of ce, mae" in page(content)


def test_unequal_seeds_are_said(tmp_path):
    results(tmp_path, datasets=("vowel",), noises=PAPER[:2], losses=("ce", "gce"))
    assert not any("unequal" in text for text in leaderboard_text(gather(tmp_path)))
    results(tmp_path, datasets=("letter",), noises=PAPER[:2], losses=("ce", "gce"))
    more = results(tmp_path / "more", datasets=("letter",), noises=PAPER[:1], losses=("ce",), seeds=(1,))
    for kind in ("networks", "traces"):
        (tmp_path / kind / "more").mkdir()
        file = next((more / kind).rglob("*.parquet"))
        file.rename(tmp_path / kind / "more" / file.name)
    assert any("unequal" in text for text in leaderboard_text(gather(tmp_path)))


def test_few_classes_have_few_columns(tmp_path):
    made = write(results(tmp_path, datasets=("tiny",), noises=PAPER[:2], losses=("ce", "gce", "mae")))
    assert made.content.ranking.mean.columns.tolist() == [1, 2, 3, "overall"]


def test_embedded_json_cannot_end_its_script():
    value = {"</script><!--": ["<b>", "λ", 1.5, None]}
    text = embedded_json(value)
    assert "<" not in text
    assert json.loads(text) == value
    with pytest.raises(ValueError, match="not JSON compliant"):
        embedded_json(float("nan"))


def test_names_are_escaped(tmp_path):
    content = gather(results(tmp_path, datasets=("vowel",), noises=PAPER[:3], losses=("</script><i>", "ce", "{{css}}")))
    text = page(content)
    assert "</script><i>" not in text
    assert text.count("{{css}}") >= 2  # in the data and in the facts, not replaced by the style sheet
    assert text.count("<style>") == 1
    assert "<i>" not in diagram(content.significance)


@pytest.mark.parametrize(("p", "words"), [(0.2, "does not reject"), (0.01, "Not all losses are equally good")])
def test_significance_in_words(small, p, words):
    content = dataclasses.replace(small.content, significance=dataclasses.replace(small.content.significance, p=p))
    assert words in " ".join(significance_text(content))
    assert "not independent" in " ".join(significance_text(content))


def test_durations():
    assert [duration(s) for s in (5, 600, 7200, 360000)] == ["5.0 seconds", "10.0 minutes", "2.0 hours", "100.0 hours"]


def positions(svg):
    """The names of a diagram with where their stems meet the axis, and its bars."""
    root = ET.fromstring(svg)
    labels = [text.text.strip() for text in root.iter(f"{SVG}text") if text.find(f"{SVG}tspan") is not None]
    paths = [path.attrib for path in root.iter(f"{SVG}path")]
    stems = [float(path["d"][1:].split()[0]) for path in paths if "V" in path["d"]]
    bars = [path["d"][1:].replace("L", " ").split() for path in paths if path.get("stroke-width") == "4"]
    return dict(zip(labels, stems, strict=True)), [tuple(map(float, bar)) for bar in bars]


def test_the_diagram_is_to_scale():
    ranks = {"a": 1.0, "b": 1.5, "c": 3.0, "d": 4.0}
    svg = diagram(Significance(ranks, 9, 1.0, 0.01, 0.05, 1.25, (("a", "b"), ("c", "d"))))
    stems, bars = positions(svg)
    assert list(stems) == list("abcd")
    scale = (stems["d"] - stems["a"]) / 3
    assert (stems["a"], stems["d"]) == (MARGIN, WIDTH - MARGIN)
    for loss, rank in ranks.items():
        assert stems[loss] == pytest.approx(stems["a"] + scale * (rank - 1), abs=0.1)
    assert [(bar[0] + 4, bar[2] - 4) for bar in bars] == [(stems["a"], stems["b"]), (stems["c"], stems["d"])]
    assert bars[0][1] == bars[1][1], "bars that do not overlap share a level"
    assert "currentColor" in svg
    assert "CD = 1.25" in svg


def test_bars_that_overlap_are_on_different_levels():
    ranks = {"a": 1.0, "b": 2.0, "c": 3.0}
    _, bars = positions(diagram(Significance(ranks, 9, 1.0, 0.01, 0.05, 1.5, (("a", "b"), ("b", "c")))))
    assert bars[0][1] != bars[1][1]


def test_the_command_prints_the_leaderboard(small, tmp_path):
    answer = run(small.files[0].parent.parent, "--out", tmp_path / "out")
    assert answer.exit_code == 0
    header, *lines = answer.stdout.splitlines()
    assert header.split("\t") == ["loss", "top-1", "top-2", "top-3", "top-4", "top-5", "overall", "paper"]
    mean = small.content.ranking.mean
    papers = {"aldr-kl": "2.33", "ldr-kl": "2.74", "ce": "4.47", "sce@l1": ""}
    assert lines == ["\t".join([loss, *(f"{r:.2f}" for r in mean.loc[loss]), papers[loss]]) for loss in mean.index]
    paths = answer.stderr.splitlines()
    assert paths[0] == str(tmp_path / "out" / "index.html")
    assert len(paths) == len(small.files)
    assert all((tmp_path / path).exists() for path in paths)


def test_the_command_as_json(small, tmp_path):
    answer = json.loads(run(small.files[0].parent.parent, "--out", tmp_path, "--json").stdout)
    assert answer["protocol"] == PROTOCOL
    assert answer["settings"] == 3
    assert answer["left_out"] == []
    assert len(answer["leaderboard"]) == 4 * 6
    assert answer["leaderboard"][5]["k"] == "overall"
    assert answer["leaderboard"][5]["mean"] == small.content.ranking.mean["overall"].iloc[0]
    assert answer["critical_difference"] == small.content.significance.critical_difference
    assert answer["friedman"]["p"] == small.content.significance.p
    assert all((tmp_path / path).exists() for path in answer["files"])


def test_the_command_without_ranks(tmp_path):
    results(tmp_path, datasets=("vowel",), noises=PAPER[:1], losses=("a@l1",))
    assert run(tmp_path).stdout == "There is no leaderboard: a@l1 is the only loss, and ranks compare losses.\n"
    answer = json.loads(run(tmp_path, "--json").stdout)
    assert (answer["leaderboard"], answer["friedman"], answer["settings"]) == ([], None, 0)


def test_losses_that_are_not_in_the_paper_are_null_in_json(tmp_path):
    results(tmp_path, datasets=("vowel",), noises=PAPER[:1], losses=("a@l1", "ce"))
    first = json.loads(run(tmp_path, "--json").stdout)["leaderboard"][0]
    assert (first["loss"], first["paper_mean"], first["paper_std"]) == ("a@l1", None, None)


def test_bad_input(tmp_path):
    def problem(*arguments):
        answer = run(*arguments)
        assert isinstance(answer.exception, ValueError), answer.output
        return str(answer.exception)

    assert problem(tmp_path / "nowhere") == f"the folder {tmp_path / 'nowhere'} does not exist"
    assert problem(tmp_path).startswith(f"no results in {tmp_path}")
    small = {"datasets": ("vowel",), "noises": PAPER[:1], "losses": ("ce", "gce")}
    results(tmp_path, **small)
    results(tmp_path, protocol="fair-77", **small)
    protocols = f"fair-77 (vowel), {PROTOCOL} (vowel)"
    assert problem(tmp_path) == f"there are results of 2 protocols, choose one with --protocol: {protocols}"
    assert "no results of protocol 'x'" in problem(tmp_path, "--protocol", "x")
    assert not (tmp_path / "report").exists()
    made = json.loads(run(tmp_path, "--protocol", "fair-77", "--json").stdout)
    assert made["protocol"] == "fair-77"
    assert pd.read_csv(tmp_path / "report" / "tables" / "accuracy.csv")["networks"].unique().tolist() == [5]
    alone = gather(results(tmp_path / "alone", protocol="fair-77", **small))
    pd.testing.assert_frame_equal(gather(tmp_path, "fair-77").curves, alone.curves)


def test_names_of_strangers_do_no_harm(tmp_path):
    """A terminal obeys none, a spreadsheet computes none, a Markdown page has none as HTML, and none is a folder."""
    loss, dataset = "=1+1\x1b[31m<img src=x>|`", "../../vowel<b>"
    results(tmp_path, ("vowel",), PAPER[:2], (loss, "ce", "mae"), folds=2, epochs=4)
    for path in tmp_path.rglob("*.parquet"):
        pd.read_parquet(path).assign(dataset=dataset).to_parquet(path)
    answer = run(tmp_path, "--out", tmp_path / "a" / "b" / "report")
    assert answer.exit_code == 0, answer.output
    assert "\x1b" not in answer.output
    tables = tmp_path / "a" / "b" / "report" / "tables"
    assert (tables / "accuracy-.._.._vowel<b>.md").is_file()
    for path in tables.glob("*.csv"):
        assert not any(line.startswith("=") or ",=" in line for line in path.read_text().splitlines()), path
    assert "'=1+1" in (tables / "accuracy.csv").read_text()
    for path in tables.glob("*.md"):
        assert not re.search("<img|<b>|\x1b", path.read_text()), path


def test_a_full_disk_is_named_and_leaves_no_empty_page(folder, tmp_path):
    page = tmp_path / "index.html"
    page.write_text("old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, limits[1]))  # less than the page takes
    try:
        with pytest.raises(OSError, match="File too large") as caught:
            write(folder, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.filename == str(page)
    assert page.read_text() == "old"
    assert not [path for path in tmp_path.rglob("*") if path.suffix == ".part"]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"params": "[1]"}, r"params are not numbers in JSON: \[1\]"),
        ({"params": "{"}, "not numbers in JSON: {"),
        ({}, "a result twice"),
    ],
)
def test_results_that_make_no_sense_are_one_sentence(tmp_path, change, sentence):
    folder = results(tmp_path, ("vowel",), PAPER[:2], LOSSES, folds=2, epochs=4)
    [path] = (folder / "networks").rglob("*.parquet")
    pd.read_parquet(path).assign(**change).to_parquet(path.with_name("copy.parquet"))
    with pytest.raises(UserError, match=sentence):
        gather(folder)
