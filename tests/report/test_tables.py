"""The tables as files."""

import io
import math
import re

import pandas as pd
import pytest

import labelhedge as lh
from labelhedge.report import write
from labelhedge.report.content import gather
from labelhedge.report.hyperparameters import hyperparameters
from labelhedge.report.paper import LEADERBOARD
from labelhedge.report.tables import accuracy, entry, latex, latex_text, markdown
from labelhedge.results import load
from labelhedge.results.aggregate import accuracies, choose
from tests.report.synthetic import results


def table(report, name):
    return (report.files[0].parent / "tables" / name).read_text()


def cells(line):
    return [cell.strip() for cell in line.strip("|\n").split("|")]


def test_the_papers_leaderboard_is_complete_and_in_its_order():
    assert tuple(LEADERBOARD) == lh.losses.PAPER
    for ranks in LEADERBOARD.values():
        assert len(ranks) == 6
        assert sum(mean for mean, _ in ranks[:5]) / 5 == pytest.approx(ranks[5][0], abs=2e-3)
    for column in range(6):  # the ranks of 15 losses add up to 120; ties that the paper ranks first lower the sum
        assert sum(ranks[column][0] for ranks in LEADERBOARD.values()) == pytest.approx(120, abs=1)


def test_accuracy_csv_has_every_number_unrounded(report, folder):
    read = pd.read_csv(io.StringIO(table(report, "accuracy.csv")))
    expected = accuracies(choose(load(folder)))
    pd.testing.assert_frame_equal(read, expected, check_dtype=False, check_exact=True)
    assert len(read) == 3 * 7 * 15 * 5


def test_leaderboard_csv_has_ours_and_the_papers(report):
    read = pd.read_csv(io.StringIO(table(report, "leaderboard.csv"))).set_index(["loss", "k"])
    assert len(read) == 15 * 6
    mean, std = report.content.ranking.mean, report.content.ranking.std
    assert read.loc[("gce", "3"), "mean"] == mean.loc["gce", 3]
    assert read.loc[("gce", "overall"), "std"] == std.loc["gce", "overall"]
    assert tuple(read.loc[("mae", "2"), ["paper_mean", "paper_std"]]) == (14.449, 1.666)
    assert read.loc[("aldr-kl", "overall"), "paper_mean"] == 2.331


def test_markdown_leaderboard(report):
    title, _, *lines = table(report, "leaderboard.md").splitlines()
    assert title == "Average rank in 21 settings (standard deviation)"
    assert len({len(line) for line in lines}) == 1  # aligned
    assert cells(lines[0])[:2] == ["loss", "top-1"]
    assert cells(lines[0])[-1] == "paper overall"
    assert set(lines[1]) == set("|-: ")
    assert [cells(line)[0] for line in lines[2:]] == [f"`{loss}`" for loss in report.content.losses]
    ranking = report.content.ranking
    first = cells(lines[2])
    assert first[1] == f"**{ranking.mean.iloc[0, 0]:.2f}({ranking.std.iloc[0, 0]:.2f})**"
    papers_best = next(cells(line) for line in lines if "`aldr-kl`" in line)
    assert papers_best[7:] == [f"**{mean:.2f}({std:.2f})**" for mean, std in LEADERBOARD["aldr-kl"]]


def test_accuracy_tables_have_one_section_per_noise(report):
    text = table(report, "accuracy-vowel.md")
    headings = re.findall("^### (.*)$", text, re.MULTILINE)
    assert len(headings) == 7
    assert headings[0] == "Test accuracy on vowel, clean labels, in percent (standard deviation)"
    assert headings[4] == "Test accuracy on vowel, class-dependent 0.1 noise, in percent (standard deviation)"
    made = accuracy(report.content, "vowel", "class_dependent", 0.1)
    assert markdown(made) in text
    rows = report.content.accuracies.query(
        "dataset == 'vowel' and noise == 'class_dependent' and rate == 0.1 and k == 2"
    )
    for loss, printed, best in zip(made.rows, made.entries, made.best, strict=True):
        row = rows[rows["loss"] == loss].iloc[0]
        assert printed[1] == f"{100 * row['mean']:.2f}({100 * row['std']:.2f})"
        assert best[1] == (round(100 * row["mean"], 2) == round(100 * rows["mean"].max(), 2))


def test_single_networks_have_no_standard_deviation(tmp_path):
    results(tmp_path, datasets=("vowel",), losses=("ce",), folds=1)
    content = gather(tmp_path)
    assert accuracy(content, "vowel", "clean", 0.0).title == "Test accuracy on vowel, clean labels, in percent"
    assert hyperparameters(content, "vowel")[0][0].title == "Validation top-1 on vowel, in percent"


def test_empty_entries():
    assert entry(math.nan, math.nan) == ""
    assert entry(2.345678, math.nan) == "2.35"
    assert entry(2.345678, 0.5) == "2.35(0.50)"


def test_latex_escapes():
    assert latex_text(r"a_b & 5% #1 {x} ~^\ $") == (
        r"a\_b \& 5\% \#1 \{x\} \textasciitilde{}\textasciicircum{}\textbackslash{} \$"
    )
    assert latex_text("λ0=0.1, λ=10, π1=1") == r"$\lambda_0$=0.1, $\lambda$=10, $\pi_1$=1"


def without_escapes(text):
    return re.sub(r"\\[&%$#_{}\\]", "", text)


@pytest.mark.parametrize("name", ["leaderboard.tex", "accuracy-letter.tex"])
def test_latex_is_well_formed(report, name):
    text = table(report, name)
    plain = without_escapes(text)
    assert plain.count("{") == plain.count("}")
    assert not set(plain) & set("%$#_^~"), "special characters are escaped"
    assert text.isascii()
    open_environments = []
    for kind, environment in re.findall(r"\\(begin|end)\{(\w+)\}", text):
        if kind == "begin":
            open_environments.append(environment)
        else:
            assert open_environments.pop() == environment
    assert not open_environments
    for columns, body in re.findall(r"\\begin\{tabular\}\{(l r*|lr+)\}(.*?)\\end\{tabular\}", text, re.DOTALL):
        rows = [line for line in body.splitlines() if line.endswith(r"\\")]
        assert len(rows) == 16
        assert {line.replace(r"\&", "").count("&") + 1 for line in rows} == {len(columns)}
    known = {"begin", "end", "centering", "small", "caption", "smallskip", "medskip", "par", "hline", "textbf"}
    assert set(re.findall(r"\\([a-z]+)", text)) <= known, "needs no package"


def test_losses_the_paper_does_not_have(tmp_path):
    content = write(results(tmp_path, datasets=("vowel",), losses=("ce", "sce@l1", "my_loss")))
    line = next(line for line in table(content, "leaderboard.md").splitlines() if "`sce@l1`" in line)
    assert cells(line)[7:] == [""] * 6
    assert r"my\_loss" in table(content, "leaderboard.tex")
    read = pd.read_csv(io.StringIO(table(content, "leaderboard.csv"))).set_index(["loss", "k"])
    assert math.isnan(read.loc[("my_loss", "1"), "paper_mean"])
    assert latex(accuracy(content.content, "vowel", "clean", 0.0)).count(r"\\") == 4
