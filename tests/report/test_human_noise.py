"""Labels that people gave, CIFAR-10N's sets: noises with a name and without a rate."""

from types import SimpleNamespace

import pytest

import labelhedge as lh
from labelhedge.report import write
from labelhedge.report.content import gather
from labelhedge.report.figures import accuracy_by_rate
from labelhedge.report.names import has_rate, noise_id, noise_label, noise_order, noisy_labels
from labelhedge.report.page import page_data
from labelhedge.report.text import facts
from tests.report.synthetic import results

HUMAN = ("aggre", "random1", "random2", "random3", "worse")
PAPER = lh.noise.settings.PAPER
SETTINGS = [SimpleNamespace(kind=name, rate=0.0, id=name) for name in HUMAN]
LOSSES = ("aldr-kl", "ldr-kl", "ce")


@pytest.fixture(scope="module")
def human(tmp_path_factory):
    """Clean and human labels, nothing with a rate."""
    folder = tmp_path_factory.mktemp("human")
    return write(results(folder, datasets=("cifar-10",), noises=[*SETTINGS[::-1], PAPER[0]], losses=LOSSES))


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """Human labels on one data set, flipped ones on another."""
    folder = tmp_path_factory.mktemp("mixed")
    results(folder, datasets=("cifar-10",), noises=[PAPER[0], *SETTINGS], losses=LOSSES)
    return gather(results(folder, datasets=("cifar-100",), noises=PAPER, losses=LOSSES))


@pytest.mark.parametrize("name", HUMAN)
def test_names(name):
    assert noise_id(name, 0.0) == name
    assert noise_label(name, 0.0) == f"human, {name}"
    assert noisy_labels(name, 0.0) == f"human labels ({name})"
    assert not has_rate(name)


def test_names_of_others():
    assert [noisy_labels(s.kind, s.rate) for s in PAPER[:2]] == ["clean labels", "uniform 0.3 noise"]
    assert [has_rate(s.kind) for s in PAPER] == [False, *[True] * 6]


def test_human_labels_come_after_the_others(mixed):
    assert mixed.noises == [*((s.kind, s.rate) for s in PAPER), *((name, 0.0) for name in HUMAN)]
    assert noise_order("worse", 0.0) < noise_order("something else", 0.0)


def test_a_report_of_human_labels(human):
    tables = human.files[0].parent / "tables"
    headings = [line for line in (tables / "accuracy-cifar-10.md").read_text().splitlines() if line.startswith("#")]
    assert len(headings) == 6
    assert headings[5] == "### Test accuracy on cifar-10, human labels (worse), in percent (standard deviation)"
    tuned = (tables / "hyperparameters-cifar-10.md").read_text()
    assert [row.split("|")[1].strip() for row in tuned.splitlines()[4:10]] == [
        "clean", *(f"human, {name}" for name in HUMAN),
    ]  # fmt: skip
    assert human.content.ranking.settings == 6
    assert dict(facts(human.content))["Noise"].endswith("human, random3; human, worse")
    data = page_data(human.content)
    assert [noise["id"] for noise in data["noises"]] == ["clean", *HUMAN]
    assert set(data["accuracy"]["cifar-10"]) == {"clean", *HUMAN}


def test_human_labels_are_not_drawn_against_a_rate(human, mixed):
    assert accuracy_by_rate(human.content) is None
    assert not any(path.name == "accuracy_by_rate.svg" for path in human.files)
    panels = accuracy_by_rate(mixed).axes
    assert [panel.get_title() for panel in panels] == ["uniform", "class-dependent"]
    assert panels[0].get_ylabel().startswith("cifar-100")
    assert panels[0].lines[0].get_xdata().tolist() == [0, 0.3, 0.6, 0.9]
