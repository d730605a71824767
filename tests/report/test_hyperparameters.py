"""The tables of what each choice of hyperparameters reaches in validation."""

import dataclasses
import io
import json
import re

import pandas as pd
import pytest

import labelhedge as lh
from labelhedge.report import write
from labelhedge.report.content import gather
from labelhedge.report.hyperparameters import hyperparameters, write_hyperparameters
from labelhedge.report.names import choice
from labelhedge.report.paper import HYPERPARAMETERS
from labelhedge.report.sections import hyperparameters_section
from labelhedge.report.tables import latex, markdown
from labelhedge.results.aggregate import tuning
from tests.report.synthetic import results

PAPER = lh.noise.settings.PAPER
VALUES = (0.1, 1.0, 10.0)


@pytest.fixture(scope="module")
def cifar(tmp_path_factory):
    """The two losses of the paper's study on its data set."""
    return write(results(tmp_path_factory.mktemp("cifar"), datasets=("cifar-100",), losses=("ldr-kl", "aldr-kl")))


def text(report, name):
    return (report.files[0].parent / "tables" / name).read_text()


def with_grids(content, **grids):
    """The content with these choices tried on vowel without noise; the first of each loss is the best."""
    rows = [
        ("vowel", "clean", 0.0, loss, json.dumps(params), 0.5 - number / 10, 0.01, 5)
        for loss, grid in grids.items()
        for number, params in enumerate(grid)
    ]
    return dataclasses.replace(content, tuning=pd.DataFrame(rows, columns=content.tuning.columns))


def test_each_entry_is_the_mean_over_the_folds(report):
    networks = report.content.networks.query("dataset == 'letter' and noise == 'uniform' and rate == 0.6")
    tables = {table.group: table for line in hyperparameters(report.content, "letter") for table in line}
    assert tuple(tables) == report.content.losses
    for loss, name in (("aldr-kl", "lambda0"), ("ldr-kl", "lam"), ("gce", "q")):
        table = tables[loss]
        row = table.rows.index("uniform 0.6")
        means = []
        for value, printed in zip(VALUES, table.entries[row], strict=True):
            choice = networks[(networks["loss"] == loss) & (networks["params"] == json.dumps({name: value}))]
            top1 = 100 * choice["val_top1"].to_numpy()
            assert len(top1) == 5
            assert printed == f"{top1.mean():.2f}({top1.std():.2f})"
            means.append(top1.mean())
        assert table.best[row] == tuple(mean == max(means) for mean in means)


def test_the_table_looks_like_the_papers(cifar):
    ours, papers = hyperparameters(cifar.content, "cifar-100")
    for line in (ours, papers):
        assert {table.group: table.columns for table in line} == {
            "ldr-kl": ("λ=0.1", "λ=1", "λ=10"),
            "aldr-kl": ("λ0=0.1", "λ0=1", "λ0=10"),
        }
        assert line[0].rows[:2] == ("clean", "uniform 0.3")
        assert line[0].rows[-1] == "class-dependent 0.5"
        assert len(line[0].rows) == 7
    first, second = (table.group for table in ours)
    lines = latex(*ours).splitlines()
    assert lines[0] == r"\begin{tabular}{l|rrr|rrr}"
    assert lines[2] == rf"& \multicolumn{{3}}{{c}}{{{first}}} & \multicolumn{{3}}{{c}}{{{second}}} \\"
    assert r"$\lambda_0$=0.1 & $\lambda_0$=1" in lines[3]
    assert r"$\lambda$=10" in lines[3]
    assert all(line.count("&") == 6 for line in lines[3:-2] if line != r"\hline")
    header, _, *rows = markdown(*ours).splitlines()
    names = [cell.strip() for cell in header.strip("|").split("|")]
    assert names == ["noise", *(f"{table.group} {column}" for table in ours for column in table.columns)]
    assert all(row.count("**") == 4 for row in rows)  # the best of each loss


def test_the_papers_own_numbers(cifar):
    tables = {table.group: table for table in hyperparameters(cifar.content, "cifar-100")[1]}
    assert tables["ldr-kl"].entries[0] == ("68.95(0.21)", "66.85(0.47)", "61.53(0.67)")
    assert tables["aldr-kl"].entries[6][1] == "32.38(0.33)"
    noises = [(setting.kind, setting.rate) for setting in PAPER]
    for loss, table in tables.items():
        assert list(HYPERPARAMETERS[loss]) == noises
        # "when noisy level is higher, [they] prefer larger λ or λ0 (1 over 0.1)": what the paper prints in bold
        assert [row.index(True) for row in table.best] == [0, 0, 1, 1, 0, 0, 1]


def test_the_papers_numbers_are_of_cifar_100_alone(report):
    assert not any("paper" in line[0].title for line in hyperparameters(report.content, "letter"))


def test_files(cifar):
    headings = re.findall("^### (.*)$", text(cifar, "hyperparameters-cifar-100.md"), re.MULTILINE)
    losses = ", ".join(cifar.content.losses)
    assert headings == [
        f"Validation top-1 on cifar-100, in percent (standard deviation): {losses}",
        f"The paper's validation top-1 on cifar-100: {losses}",
    ]
    for line in hyperparameters(cifar.content, "cifar-100"):
        assert markdown(*line) in text(cifar, "hyperparameters-cifar-100.md")
        assert latex(*line) in text(cifar, "hyperparameters-cifar-100.tex")
    assert text(cifar, "hyperparameters-cifar-100.tex").isascii()
    read = pd.read_csv(io.StringIO(text(cifar, "hyperparameters.csv")))
    pd.testing.assert_frame_equal(read, tuning(cifar.content.networks), check_dtype=False, check_exact=True)
    assert len(read) == 7 * 2 * 3


def test_choices_are_in_the_order_of_their_values_and_fill_six_columns(report):
    content = with_grids(
        report.content,
        **{
            "aldr-kl": [{"lambda0": 10.0}, {"lambda0": 2.0}],
            "ldr-kl": [{"lam": 1.0}, {"lam": 0.1}, {"lam": 10.0}],
            "sce": [{"alpha": a, "temperature": t} for a in (0.1, 0.9) for t in (1.0, 0.3, 0.1, 3.0)],
            "ce": [{"q": 0.05}, {"q": 0.95}],
            "rll": [{"alpha": 9.9, "beta": 0.1}, {"alpha": 0.1, "beta": 9.9}],
            "mae": [{"q": 1.0}, {"q": 2.0}, {"q": 3.0}],
        },
    )
    content = dataclasses.replace(content, losses=("aldr-kl", "ldr-kl", "sce", "ce", "rll", "mae", "mse"))
    lines = hyperparameters(content, "vowel")
    groups = [[table.group for table in line] for line in lines]
    assert groups == [["aldr-kl", "ldr-kl"], ["sce"], ["ce", "rll"], ["mae"]]
    assert lines[0][0].columns == ("λ0=2", "λ0=10")
    assert lines[0][0].best == ((False, True),)
    assert lines[0][1].columns == ("λ=0.1", "λ=1", "λ=10")
    assert lines[1][0].columns[:3] == ("α=0.1, τ=0.1", "α=0.1, τ=0.3", "α=0.1, τ=1")
    assert lines[2][1].columns == ("α=0.1, β=9.9", "α=9.9, β=0.1")
    assert "τ is the temperature" in hyperparameters_section(content)
    assert "τ" not in hyperparameters_section(report.content)
    assert hyperparameters(content, "letter") == []


def test_choices_that_one_noise_lacks_are_empty(report):
    content = with_grids(report.content, ce=[{"q": 1.0}, {"q": 2.0}])
    more = content.tuning.iloc[:1].assign(noise="uniform", rate=0.3)
    content = dataclasses.replace(content, tuning=pd.concat([content.tuning, more]))
    table = hyperparameters(content, "vowel")[0][0]
    assert table.rows == ("clean", "uniform 0.3")
    assert table.entries[1] == ("50.00(1.00)", "")
    assert table.best[1] == (True, False)


def test_nothing_to_choose(tmp_path):
    content = gather(results(tmp_path, datasets=("vowel",), noises=PAPER[:2], losses=("ce", "mae")))
    alone = dataclasses.replace(content, tuning=content.tuning.iloc[:0])
    assert hyperparameters(alone, "vowel") == []
    assert hyperparameters_section(alone) == ""
    assert list(write_hyperparameters(alone, tmp_path)) == []


def test_names_of_choices():
    assert choice('{"pi1": 0.5}') == "π1=0.5"
    assert choice('{"margin": 10.0, "my_parameter": 0.001}') == "margin=10, my_parameter=0.001"


def test_the_section_has_the_same_numbers_and_is_escaped(report):
    section = hyperparameters_section(report.content)
    assert section.count("<details") == 3
    assert section.count("<details open>") == 1
    for dataset in report.content.datasets:
        for line in hyperparameters(report.content, dataset):
            for table in line:
                for entries, best in zip(table.entries, table.best, strict=True):
                    for entry, bold in zip(entries, best, strict=True):
                        mean, std = entry.rstrip(")").split("(")
                        assert f">{f'<b>{mean}</b>' if bold else mean} <small>({std})</small></td>" in section
    bad = with_grids(report.content, **{"<i>": [{"<q>": 1.0}, {"<q>": 2.0}]})
    section = hyperparameters_section(dataclasses.replace(bad, losses=("<i>",)))
    assert "&lt;i&gt;" in section
    assert "<i>" not in section
    assert "<q>" not in section
