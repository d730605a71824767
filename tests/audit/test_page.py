"""The page of an audit, as text and in a real browser."""

from datetime import date
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_wine

from labelhedge.audit import Audit, encode, read_table
from labelhedge.audit._find import find_encoded
from labelhedge.audit._noise_model import Confusion
from labelhedge.audit.page import page as text_of

SCRIPT = "<script>alert(1)</script>"
NAMES = np.array(["barolo", f'"{SCRIPT}', "=cmd()"])
DAY = date(2026, 3, 1)
EXCHANGED = {3: 1, 20: 1, 70: 2, 150: 0}


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """Wine in a table with an id, missing values, and cells and labels of somebody who means harm; and its page."""
    folder = tmp_path_factory.mktemp("page")
    data = load_wine(as_frame=True)
    frame, labels = data.data.copy(), data.target.to_numpy().copy()
    labels[list(EXCHANGED)] = list(EXCHANGED.values())
    frame[f"note {SCRIPT}"] = [f"<img src=x onerror=alert(2)> \"'\n&lt; {i}" for i in range(len(frame))]
    frame["long"] = [f"{i}{SCRIPT}" + 4000 * "&<x>\"'line\n of text " for i in range(len(frame))]
    frame["id"] = np.arange(len(frame))
    frame.loc[5::7, "ash"] = np.nan
    frame["cult<i>var"] = NAMES[labels]
    frame.to_csv(folder / "wine<i>.csv", index=False)
    table = read_table(folder / "wine<i>.csv", "cult<i>var")
    encoded = encode(table.features)
    audit = find_encoded(encoded.matrix, table.labels)
    (folder / "index.html").write_text(text_of(table, audit, encoded, seed=0, day=DAY), encoding="utf-8")
    return folder / "index.html", table, audit, encoded


class Elements(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.texts, self.stack = [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += [(name, value) for name, value in attributes]
        if tag not in ("meta", "rect", "line", "img", "br"):
            self.stack.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag

    def handle_data(self, text):
        self.texts.append(text)


@pytest.fixture(scope="module")
def elements(hostile):
    return Elements(hostile[0].read_text(encoding="utf-8"))


def test_nothing_of_the_table_becomes_an_element(elements):
    assert elements.stack == []
    assert set(elements.tags).isdisjoint({"script", "img", "x", "link", "iframe"})
    assert elements.tags.count("i") == 3  # the bars of the three classes
    assert not [name for name, _ in elements.attributes if name.startswith("on") or name in ("src", "href")]
    assert f'"{SCRIPT}' in elements.texts
    assert "cult<i>var" in elements.texts
    assert any("<img src=x onerror=alert(2)>" in text for text in elements.texts)


def test_it_says_of_what_it_is(elements):
    assert "labelhedge audit of cult<i>var in wine<i>.csv" in elements.texts  # the title
    assert "labelhedge audit of cult<i>var in wine<i>.csv, 2026-03-01, seed 0" in "".join(elements.texts)


def test_long_cells_are_cut(hostile, elements):
    assert hostile[0].stat().st_size < 300_000
    cut = [text for text in elements.texts if text.endswith("…")]
    assert cut
    assert max(map(len, cut)) <= 60
    titles = [value for name, value in elements.attributes if name == "title"]
    assert 400 < max(map(len, titles)) <= 500


@pytest.fixture
def visit(browser, hostile):
    """Open the page; when the test ends, there must have been no dialog, no complaint and no request."""
    problems, contexts = [], []

    def visit(width):
        contexts.append(browser.new_context(viewport={"width": width, "height": 800}))
        page = contexts[-1].new_page()
        page.on("dialog", lambda dialog: (problems.append(dialog.message), dialog.dismiss()))
        page.on("console", lambda message: problems.append(message.text))
        page.on("request", lambda request: problems.append(request.url))
        page.goto(hostile[0].as_uri())
        problems.remove(hostile[0].as_uri())
        return page

    yield visit
    for context in contexts:
        context.close()
    assert problems == []


def test_in_a_browser(visit, hostile):
    audit = hostile[2]
    page = visit(1280)
    assert page.locator("script, img").count() == 0
    assert page.locator("h1").inner_text().replace("\xa0", " ") == (
        f"About {audit.wrong:.0f} of 178 labels ({100 * audit.wrong / 178:.1f} %) are wrong"
    )
    assert page.locator("details.suspect").count() == len(audit.suspects())
    assert page.locator("details.suspect[open]").count() == min(5, len(audit.suspects()))
    counts = [int(text) for text in page.locator("svg text").all_text_contents()[:10]]
    assert sum(counts) == 178
    assert page.locator("#confusion tbody tr").count() == 3
    assert "column 'id' left out: it counts the rows like an id" in page.locator("header").inner_text()


@pytest.mark.parametrize("width", [1280, 800, 390])
def test_tables_scroll_inside_their_boxes(visit, width):
    page = visit(width)
    page.evaluate("document.querySelectorAll('details').forEach(box => box.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.evaluate(
        f"[...document.querySelectorAll('main *')].filter(e => e.getBoundingClientRect().right > {width} + 1)"
        ".every(e => e.closest('.scroll'))"
    )
    boxes = page.evaluate("[...document.querySelectorAll('.scroll')].map(e => e.getBoundingClientRect().right)")
    assert max(boxes) <= page.evaluate("document.querySelector('h1').getBoundingClientRect().right") + 0.5


def test_a_suspect_stands_beside_rows_of_both_labels(visit, hostile):
    _, table, audit, encoded = hostile
    page = visit(1280)
    suspect = int(audit.suspects()["row"][0])
    assert suspect in EXCHANGED
    box = page.locator("details.suspect").first
    numbers = [
        int(text.removeprefix("row ")) for text in box.locator("thead tr").nth(1).locator("th").all_inner_texts()
    ]
    assert [table.labels[row] for row in numbers] == (
        3 * [audit.classes[audit.given[suspect]]] + 3 * [audit.classes[audit.suggested[suspect]]]
    )
    assert suspect not in numbers
    assert (audit.p_wrong[numbers] < 0.1).all()
    shown = box.locator("tbody tr")
    assert shown.count() == 12
    differs = shown.evaluate_all("rows => rows.map(row => row.cells[1].classList.contains('differs'))")
    assert differs == sorted(differs, reverse=True)
    assert differs[0]
    name, *cells = shown.first.evaluate("row => [...row.cells].map(cell => cell.textContent)")
    assert [float(cell) for cell in cells] == pytest.approx(
        table.features[name][[suspect, *numbers]].tolist(), rel=1e-4
    )
    column = [used for used, _ in encoded.used].index(name)
    own = encoded.matrix[np.setdiff1d(np.flatnonzero(audit.given == audit.given[suspect]), list(EXCHANGED)), column]
    assert not np.quantile(own, 0.1) < encoded.matrix[suspect, column] < np.quantile(own, 0.9)


def made_up(tmp_path, rows, classes, wrong):
    """A page of an audit that needs no training."""
    rng = np.random.default_rng(0)
    labels = np.arange(rows) % classes
    frame = pd.DataFrame({"a": rng.normal(size=rows), "b": rng.choice(["x", "y", "z"], rows), "label": labels})
    frame.to_csv(tmp_path / "made_up.csv", index=False)
    table = read_table(tmp_path / "made_up.csv", "label")
    names, given = np.unique(table.labels, return_inverse=True)
    p_wrong = np.where(np.arange(rows) < wrong, 0.9, 0.1).astype(np.float32)
    everything = np.indices((classes, classes)).reshape(2, -1)
    confusion = Confusion(*everything, np.ones(classes**2))
    audit = Audit(tuple(names), given, (given + 1) % classes, p_wrong, confusion, ())
    (tmp_path / "index.html").write_text(
        text_of(table, audit, encode(table.features), seed=0, day=DAY), encoding="utf-8"
    )
    return (tmp_path / "index.html").read_text(encoding="utf-8")


def test_many_classes_and_many_suspects(tmp_path):
    text = made_up(tmp_path, rows=300, classes=30, wrong=150)
    assert text.count('<details class="suspect"') == 100
    assert "The first 100 of 150 labels" in text
    assert "10 classes with fewer wrong labels are not shown." in text
    assert "The 20 commonest of 30 labels." in text
    assert text.count('class="right"') == 20


@pytest.mark.parametrize(("rows", "wrong"), [(4, 4), (6, 1)])
def test_small_tables(tmp_path, rows, wrong):
    text = made_up(tmp_path, rows, classes=2, wrong=wrong)
    boxes = text.split('<details class="suspect"')[1:]
    assert len(boxes) == wrong
    for row, box in enumerate(boxes):
        assert box.count("<td") > 2 * 2
        assert box.count(f">row {row}</th>") == 1  # not beside itself


def test_no_suspects(tmp_path):
    text = made_up(tmp_path, rows=40, classes=2, wrong=0)
    assert "No label is likelier wrong than right." in text
    assert "<details" not in text
