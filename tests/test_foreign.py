"""Text of strangers does no harm where it goes."""

import pandas as pd
import pytest

from labelhedge._foreign import file_name, markdown_text, no_formula, no_formulas, plain

LABELS = {
    "=cmd()": "'=cmd()", "+a": "'+a", "-a": "'-a", "@SUM(1)": "'@SUM(1)", "\ta": "'\ta", "\ra": "'\ra",
    "-1": "-1", "+1.5": "+1.5", "-2e-05": "-2e-05", "-1+1": "'-1+1", "-1\n": "'-1\n", "-": "'-", "-inf": "'-inf",
    "a=b": "a=b", "": "", "'a": "'a", "1": "1", "-١": "'-١",
}  # fmt: skip


@pytest.mark.parametrize("label", LABELS)
def test_formulas_are_guarded_and_numbers_are_not(label):
    assert no_formula(label) == LABELS[label]


def test_only_the_texts_of_a_table_are_guarded():
    rows = pd.DataFrame({"loss": ["=1+1", "ce"], "k": [-1, "overall"], "mean": [-0.5, float("nan")]})
    assert no_formulas(rows).to_csv(index=False).split() == ["loss,k,mean", "'=1+1,-1,-0.5", "ce,overall,"]
    assert no_formulas(rows.head(0)).to_csv(index=False) == "loss,k,mean\n"


def test_a_terminal_obeys_nothing_of_a_text():
    assert plain("a\x1b]0;title\x07\n\tb\x9b31m\u202ec") == "a]0;title b31mc"


def test_markdown_has_no_html_no_links_and_no_cells_of_a_text():
    assert markdown_text("<b>|[x](javascript:y)`z`\n") == r"&lt;b&gt;\|\[x\](javascript:y)\`z\`"


def test_a_file_stays_in_its_folder():
    assert file_name("../a\\b: c\n") == ".._a_b_ c"
