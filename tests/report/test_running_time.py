"""The table of seconds per epoch."""

import dataclasses
import io

import numpy as np
import pandas as pd
import pytest

import labelhedge as lh
from labelhedge.report.content import gather
from labelhedge.report.paper import LEADERBOARD, RUNNING_TIME
from labelhedge.report.running_time import caption, running_time
from labelhedge.report.sections import running_time_section
from labelhedge.results import choose
from tests.report.synthetic import results

PAPER = lh.noise.settings.PAPER


def text(report, name):
    return (report.files[0].parent / "tables" / name).read_text()


def with_times(content, means, std=0.0):
    """The content with these means, by data set and loss."""
    rows = [(*key, mean, std, 5) for key, mean in means.items()]
    frame = pd.DataFrame(rows, columns=content.running_time.columns)
    return dataclasses.replace(content, running_time=frame, losses=tuple(dict.fromkeys(loss for _, loss in means)))


def test_the_papers_table_is_complete():
    assert tuple(RUNNING_TIME) == ("vowel", "letter", "news20", "aloi", "kuzushiji-49", "cifar-100", "tiny-imagenet")
    for means, stds in RUNNING_TIME.values():
        assert len(means) == len(stds) == len(LEADERBOARD)
        assert max(means) < 1.5 * min(means)
        assert max(np.divide(stds, means)) < 0.15


def test_ours_and_the_papers(report):
    ours, paper = running_time(report.content)
    assert ours.rows == paper.rows == report.content.losses
    assert ours.columns == paper.columns == ("letter", "news20", "vowel")
    networks = choose(report.content.networks).query("dataset == 'news20' and loss == 'gce'")
    seconds = (networks["seconds"] / 20).to_numpy()
    assert len(seconds) == 7 * 5
    assert ours.entries[ours.rows.index("gce")][1] == f"{seconds.mean():.3f}({seconds.std():.3f})"
    assert paper.entries[paper.rows.index("aldr-kl")] == ("0.933(0.033)", "2.00(0.07)", "0.176(0.009)")
    assert paper.entries[paper.rows.index("mae")] == ("0.687(0.031)", "1.88(0.26)", "0.163(0.011)")
    assert not any(map(any, ours.best))


def test_only_the_chosen_networks_count(report):
    networks = report.content.networks
    chosen = networks.index.isin(choose(networks).index)
    slow = networks.assign(seconds=networks["seconds"].where(chosen, 1e6))
    assert len(slow) > chosen.sum()
    pd.testing.assert_frame_equal(lh.results.aggregate.running_time(choose(slow)), report.content.running_time)


def test_three_digits_of_the_least_time_of_a_column(report):
    times = {("a", "ce"): 0.000123456, ("a", "gce"): 0.00345678, ("b", "ce"): 1234.5, ("b", "gce"): 99.99}
    table, *_ = running_time(with_times(report.content, times, std=0.0000051))
    assert table.entries == (("0.000123(0.000005)", "1234.5(0.0)"), ("0.003457(0.000005)", "100.0(0.0)"))
    table, *_ = running_time(with_times(report.content, {("a", "ce"): 0.0, ("b", "gce"): 1234.5}))
    assert table.entries == (("0.00(0.00)", ""), ("", "1234(0)"))


def test_files(report):
    title, _, header, _, *rows = text(report, "running_time.md").splitlines()
    assert title == caption(running_time(report.content))
    assert "share of theirs" in title
    assert "GTX 1080 Ti" in title
    assert [cell.strip() for cell in header.strip("|").split("|")] == [
        "loss", "letter", "news20", "vowel", "paper letter", "paper news20", "paper vowel",
    ]  # fmt: skip
    assert rows[0].startswith(f"| `{report.content.losses[0]}`")
    assert len(rows) == 15
    tex = text(report, "running_time.tex")
    assert tex.count(r"\begin{tabular}{lrrr}") == tex.count(r"\caption") == 2
    assert "share of theirs" in tex
    read = pd.read_csv(io.StringIO(text(report, "running_time.csv"))).set_index(["dataset", "loss"])
    assert len(read) == 3 * 15
    assert read.loc[("vowel", "ww"), "mean"] == report.content.seconds.loc["ww", "vowel"]
    assert tuple(read.loc[("vowel", "ww"), ["paper_mean", "paper_std"]]) == (0.155, 0.009)


@pytest.mark.parametrize(("dataset", "losses"), [("tiny", ("ce", "mae")), ("vowel", ("ce@l1", "mine"))])
def test_without_the_papers(tmp_path, dataset, losses):
    content = gather(results(tmp_path, datasets=(dataset,), noises=PAPER[:1], losses=losses))
    tables = running_time(content)
    assert len(tables) == 1
    assert "paper" not in caption(tables)
    assert "paper" not in running_time_section(content)


def test_the_section(report):
    section = running_time_section(report.content)
    ours, paper = running_time(report.content)
    for entries in (*ours.entries, *paper.entries):
        for entry in entries:
            mean, std = entry.rstrip(")").split("(")
            assert f">{mean} <small>({std})</small></td>" in section
    assert "<b>" not in section
    assert 'colspan="3" class="first">paper</th>' in section
