"""The command ``labelhedge certify``, through the real program."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from labelhedge.theory import certify, document
from labelhedge.theory.table import ROWS, compare
from tests.theory.test_certificate import ce

ROOT = Path(__file__).parent.parent.parent


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "labelhedge", "certify", *arguments], capture_output=True, text=True, cwd=ROOT
    )


def test_a_loss_by_name_with_a_hyperparameter():
    answer = run("mae", "--classes", "3", "--json")
    assert answer.returncode == 0, answer.stderr
    verdicts = {verdict["property"]: verdict for verdict in json.loads(answer.stdout)}
    assert verdicts["top-1 calibrated"]["outcome"] == "holds"
    assert verdicts["top-2 calibrated"]["outcome"] == "fails"
    assert len(verdicts["top-2 calibrated"]["case"]["f"]) == 3


def test_a_whole_number_stays_one():
    answer = run("topk-svm", "--set", "k=2", "--classes", "3")
    assert answer.returncode == 0, answer.stderr


def test_a_loss_of_ones_own():
    answer = run("examples.symmetric_and_calibrated:loss", "--classes", "3")
    assert answer.returncode == 0, answer.stderr
    lines = [line.split("\t") for line in answer.stdout.splitlines()]
    assert lines[0] == ["property", "found", "evidence"]
    assert {line[0]: line[1] for line in lines}["symmetric"] == "holds"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "give a loss, or --all for the paper's table"),
        (("ce", "--all"), "give a loss, or --all for the paper's table"),
        (("focal",), "unknown loss 'focal'; known losses: agce"),
        (("nowhere:loss",), "cannot find nowhere:loss: No module named 'nowhere'"),
        (("gce", "--set", "q"), "--set takes name=value, got 'q'"),
        (("gce", "--set", "q=2"), "q must be a number in [0, 1], got 2"),
        (("examples.symmetric_and_calibrated:B",), "the loss raises TypeError"),
        (("--all", "--set", "q=0.5"), "--set and --ball are for one loss; the table has its own"),
        (("--all", "--ball", "5"), "--set and --ball are for one loss; the table has its own"),
        (("ce", "--out", "ce.md"), "--out is for the table of --all"),
        (("--all", "--out", "table.pdf"), "--out must end in .md or .html, got 'table.pdf'"),
    ],
)
def test_bad_input_is_one_sentence(arguments, sentence):
    answer = run(*arguments)
    assert answer.returncode == 2
    assert answer.stderr.startswith(f"labelhedge: {sentence}")
    assert len(answer.stderr.splitlines()) == 1


def test_the_papers_table_is_the_same_every_time_and_a_page(browser, tmp_path):
    page = tmp_path / "table.html"
    first, second = run("--all", "--classes", "3", "--json"), run("--all", "--classes", "3", "--json", "--out", page)
    assert first.returncode == second.returncode == 0, first.stderr + second.stderr
    assert first.stdout == second.stdout
    table = json.loads(first.stdout)
    assert [row["loss"] for row in table] == [row.name for row in ROWS]
    differs = {(row["loss"], name) for row in table for name, cell in row["columns"].items() if cell["differs"]}
    assert differs == {("nce", "top-1"), ("rll", "top-1"), ("sce (alpha=0)", "all k"), ("js (pi1=0.99)", "symmetric")}
    assert all(row["remark"] for row in table if any(cell["differs"] for cell in row["columns"].values()))

    with browser.new_page(viewport={"width": 390, "height": 800}) as tab:
        tab.goto(page.as_uri())
        assert tab.locator(".differs").count() == len(differs)
        assert tab.evaluate("document.documentElement.scrollWidth") <= 390, "the page itself does not scroll sideways"
        tab.get_by_role("link", name="nce", exact=True).click()
        assert tab.locator("h2", has_text="nce").bounding_box()["y"] < 800
        assert "is not top-1 preserving" in tab.locator("h2:has-text('nce') + div").inner_text()


def test_the_tables_mark_what_differs():
    """With a certificate of cross entropy for MAE's row, two cells must differ."""
    row = next(row for row in ROWS if row.loss == "mae")
    certificate = certify(ce, classes=3)
    assert [differs for *_, differs in compare(row, certificate).values()] == [False, True, True]
    text = document.markdown([(row, certificate)], 3)
    assert "| `mae` | yes | yes | no | **yes ≠** | yes | **no ≠** |  |" in text
    page = document.html([(row, certificate)], 3)
    assert page.count('class="differs"') == 2
    assert "http" not in page
