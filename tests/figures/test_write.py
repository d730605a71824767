"""The files, the page and the command."""

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from io import StringIO

import pandas as pd
import pytest

from labelhedge.figures import STUDIES, write


def run(*arguments, cwd):
    command = [sys.executable, "-m", "labelhedge", "figures", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd)


class Links(HTMLParser):
    def __init__(self):
        super().__init__()
        self.found, self.images = [], 0

    def handle_starttag(self, tag, attrs):
        named = dict(attrs)
        self.found += [named[name] for name in ("href", "src") if name in named]
        self.images += tag == "img" and bool(named["alt"])


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_is_three_files(made, name):
    image, drawing, table = made.files[name]
    assert [path.name for path in made.files[name]] == [f"{name}.{kind}" for kind in ("png", "svg", "csv")]
    assert image.read_bytes().startswith(b"\x89PNG")
    assert drawing.read_text(encoding="utf-8").rstrip().endswith("</svg>")
    read = pd.read_csv(StringIO(table.read_text(encoding="utf-8")))
    assert list(read.columns) == list(made.studies[name].data.columns)
    assert len(read) == len(made.studies[name].data)


@pytest.mark.parametrize("name", STUDIES)
def test_the_same_seed_gives_the_same_files(made, made_again, name):
    for first, second in zip(made.files[name], made_again.files[name], strict=True):
        assert first.read_bytes() == second.read_bytes(), first.name


def test_another_seed_gives_other_data(made, tmp_path):
    other = write(["from-scratch"], tmp_path, seed=1, effort=0.05)
    assert other.files["from-scratch"][2].read_bytes() != made.files["from-scratch"][2].read_bytes()
    assert list(other.files) == ["from-scratch"]


def test_the_page_needs_no_network(made):
    text = made.page.read_text(encoding="utf-8")
    assert not re.findall(r"https?:", text)
    links = Links()
    links.feed(text)
    assert links.images == len(STUDIES)
    for link in links.found:
        assert link.startswith(("#", "data:image/png;base64,")) or (made.page.parent / link).is_file(), link
    for name, study in made.studies.items():
        assert f'id="{name}"' in text
        assert study.title in text
    assert "{{" not in text


@pytest.mark.parametrize("width", [390, 1200])
def test_the_page_in_a_browser(browser, made, width):
    with browser.new_page(viewport={"width": width, "height": 800}, color_scheme="dark") as tab:
        complaints = []
        tab.on("console", lambda message: complaints.append(message.text))
        tab.goto(made.page.as_uri())
        assert tab.evaluate("[...document.images].every(image => image.complete && image.naturalWidth > 500)")
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        tab.get_by_role("link", name=made.studies["two-maxima"].title).click()
        assert tab.locator("#two-maxima").bounding_box()["y"] < 800
        assert not complaints


def test_an_unknown_study_is_one_sentence(tmp_path):
    done = run("bondaries", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.splitlines() == [f"labelhedge: unknown study 'bondaries'; known studies: {', '.join(STUDIES)}"]
    assert not list(tmp_path.iterdir())


def test_the_command_for_programs(tmp_path):
    done = run("landscapes", "--out", "here", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    (study,) = told["studies"]
    assert study["name"] == "landscapes"
    assert all((tmp_path / path).is_file() for path in (told["page"], *study["files"]))
    assert done.stderr.splitlines()[0] == "landscapes"


def test_help_has_an_example(tmp_path):
    done = run("--help", cwd=tmp_path)
    assert done.returncode == 0
    assert "Example: labelhedge figures" in done.stdout
    for name in STUDIES:
        assert name in re.sub(r"\s+", " ", done.stdout).replace("- ", "-")
