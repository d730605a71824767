"""The page in a real browser."""

import io
import re
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

import labelhedge as lh
from labelhedge.report.content import gather
from labelhedge.report.page import page as make_page
from tests.report.synthetic import results

PAPER = lh.noise.settings.PAPER
DESKTOP = {"viewport": {"width": 1200, "height": 900}}
PHONE = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}


def until(page, condition):
    """Wait for a condition; Playwright's own way evaluates text in the page, which the page forbids."""
    for _ in range(500):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(20)
    raise AssertionError(f"never came true: {condition}")


@contextmanager
def visiting(browser, path, **options):
    """Open a file, as a page and a list of what was asked of the network or complained about."""
    context = browser.new_context(**DESKTOP | options)
    page, problems, own = context.new_page(), [], path.as_uri()

    def only_itself(route):
        if route.request.url == own or route.request.url.startswith(("data:", "blob:")):
            route.continue_()
        else:
            problems.append(f"asked for {route.request.url}")
            route.abort()

    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.route("**/*", only_itself)
    page.goto(own)
    until(page, "document.querySelectorAll('#seconds .main-svg').length > 0")
    yield page, problems
    context.close()


@pytest.fixture
def visit(browser):
    """Open a file; when the test ends, there must have been no problem."""
    with ExitStack() as stack:
        visits = []

        def visit(path, **options):
            visits.append(stack.enter_context(visiting(browser, path, **options)))
            return visits[-1][0]

        yield visit
        assert [problems for _, problems in visits if problems] == []


@pytest.fixture(scope="module")
def visited(browser, report):
    with visiting(browser, report.files[0]) as visit:
        yield visit


@pytest.fixture
def page(visited):
    """The page of the whole report, opened once because that takes seconds; each test begins with the first choices."""
    page, problems = visited
    for select in page.locator("select").all():
        select.select_option(index=0)
    yield page
    assert problems == []


def column(page, table, number):
    return page.eval_on_selector_all(
        f"#{table} tbody tr", f"rows => rows.map(row => row.cells[{number}].textContent.split(' ')[0])"
    )


def sort_states(page, table):
    return page.eval_on_selector_all(f"#{table} th", "heads => heads.map(head => head.getAttribute('aria-sort'))")


def traces(page, plot):
    return page.evaluate(
        "id => document.getElementById(id).data.map(({name, meta, x, y, xaxis}) => ({name, loss: meta, x, y, xaxis}))",
        plot,
    )


def choose(page, name, value):
    page.locator(f"select[name={name}]").select_option(value)


def page_of(folder, **options):
    """The page of small results, without tables and figures beside it."""
    content = gather(results(folder, **options))
    path = folder / "index.html"
    path.write_text(make_page(content), encoding="utf-8")
    return path, content


def test_leaderboard_sorts_by_click(page, report):
    mean = report.content.ranking.mean
    head = page.locator("#ranks th button").nth(2)
    head.click()
    assert [float(text) for text in column(page, "ranks", 2)] == sorted(mean[2].round(2))
    assert sort_states(page, "ranks")[2] == "ascending"
    head.click()
    assert [float(text) for text in column(page, "ranks", 2)] == sorted(mean[2].round(2), reverse=True)
    assert sort_states(page, "ranks")[2] == "descending"
    assert sort_states(page, "ranks").count("none") == 12


def test_tables_sort_by_keyboard(page):
    page.locator("#accuracy th button").first.focus()
    page.keyboard.press("Enter")
    losses = column(page, "accuracy", 0)
    assert losses == sorted(losses)
    page.keyboard.press("Space")
    assert column(page, "accuracy", 0) == losses[::-1]


def test_the_best_is_bold(page):
    bold = page.eval_on_selector_all("#accuracy b", "all => all.map(b => b.closest('tr').cells[0].textContent)")
    assert len(bold) >= 5
    assert column(page, "accuracy", 0)[0] in bold


def shown_accuracy(report, dataset, noise, rate, k):
    rows = report.content.accuracies.query("dataset == @dataset and noise == @noise and rate == @rate and k == @k")
    return {row.loss: 100 * row.mean for row in rows[["loss", "mean"]].itertuples()}


def test_choices_change_table_and_plots(page, report):
    def state():
        return {
            "accuracy": page.locator("#accuracy").inner_text(),
            **{plot: traces(page, plot) for plot in ("rates", "convergence", "seconds")},
            "lambda": page.locator("#lambda").inner_html(),
        }

    first = state()
    choose(page, "dataset", "vowel")
    second = state()
    assert [part for part in first if first[part] == second[part]] == ["lambda"]  # synthetic λ are the same in all
    choose(page, "noise", "u0.6")
    third = state()
    assert [part for part in first if second[part] == third[part]] == ["rates", "seconds"]
    choose(page, "k", "3")
    fourth = state()
    assert [part for part in first if third[part] == fourth[part]] == ["convergence", "seconds", "lambda"]

    expected = shown_accuracy(report, "vowel", "uniform", 0.6, 3)
    shown = dict(zip(column(page, "accuracy", 0), map(float, column(page, "accuracy", 3)), strict=True))
    assert shown == pytest.approx(expected, abs=0.0051)
    assert list(shown.values()) == sorted(shown.values(), reverse=True)
    assert sort_states(page, "accuracy")[3] == "descending"
    for trace in traces(page, "rates"):
        if trace["xaxis"] is None:
            assert trace["x"] == [0, 0.3, 0.6, 0.9]
            assert trace["y"][2] == pytest.approx(expected[trace["loss"]], abs=1e-3)
        else:
            assert trace["x"] == [0, 0.1, 0.3, 0.5]
    assert len(traces(page, "rates")) == 30
    ce = next(trace for trace in traces(page, "convergence") if trace["loss"] == "ce")
    curve = report.content.curves.loc[("vowel", "uniform", 0.6, "ce"), "val_clean_top1"]
    assert ce["y"] == pytest.approx(list(100 * curve), rel=1e-3)


def test_lambda_of_right_and_wrong_labels(page):
    assert [trace["name"] for trace in traces(page, "lambda")] == [
        "aldr-kl, right label"
    ]  # clean data have no wrong one
    choose(page, "noise", "cd0.3")
    assert [trace["name"] for trace in traces(page, "lambda")] == ["aldr-kl, right label", "aldr-kl, wrong label"]


def test_measures(page, report):
    choose(page, "measure", "train_loss")
    curve = report.content.curves.loc[("letter", "clean", 0.0, "gce"), "train_loss"]
    gce = next(trace for trace in traces(page, "convergence") if trace["loss"] == "gce")
    assert gce["y"] == pytest.approx(list(curve), rel=1e-3)


def test_few_lines_are_in_colour(page):
    names = [trace["name"] for trace in traces(page, "convergence")]
    assert names.count("the others") == 9
    assert {"aldr-kl", "ldr-kl", "ce"} <= set(names)
    assert names[:9] == ["the others"] * 9  # behind the others
    shown = page.evaluate("document.getElementById('convergence').data.filter(t => t.showlegend).length")
    assert shown == 7


def test_plots_zoom(page):
    plot = page.locator("#convergence .nsewdrag").first
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    ranges = "document.getElementById('convergence').layout.xaxis.range"
    before = page.evaluate(ranges)
    page.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 0.3 * box["height"])
    page.mouse.down()
    page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 0.7 * box["height"], steps=4)
    page.mouse.up()
    until(page, f"{ranges}[0] !== {before[0]}")
    low, high = page.evaluate(ranges)
    width = before[1] - before[0]
    assert low == pytest.approx(before[0] + 0.3 * width, abs=0.02 * width)
    assert high == pytest.approx(before[0] + 0.6 * width, abs=0.02 * width)


def test_a_phone_scrolls_down_only(visit, report):
    page = visit(report.files[0], **PHONE)
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    assert page.evaluate(
        "[...document.querySelectorAll('main *')].filter(e => e.getBoundingClientRect().right > 361)"
        ".every(e => e.closest('.scroll, .plot'))"
    )
    box = page.locator(".scroll").first
    assert box.evaluate("box => box.scrollWidth > box.clientWidth")
    assert page.evaluate("document.getElementById('rates').layout.dragmode") is False
    page.locator("#rates [data-attr=zoom][data-val=in]").click()
    until(page, "document.getElementById('rates').layout.xaxis.autorange !== true")


def test_dark_mode(visit, report):
    page = visit(report.files[0], color_scheme="dark")

    def colours():
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        plot = page.evaluate(
            "(p => [p.layout.font.color, p.layout.xaxis.gridcolor, p.data.at(-1).line.color])"
            "(document.getElementById('convergence'))"
        )
        return background, plot, page.evaluate("getComputedStyle(document.querySelector('#significance svg')).color")

    dark = colours()
    page.emulate_media(color_scheme="light")
    until(page, f"document.getElementById('convergence').layout.font.color !== '{dark[1][0]}'")
    light = colours()
    assert light[0] == "rgb(255, 255, 255)"
    assert dark[0] == "rgb(20, 23, 27)"
    assert all(a != b for a, b in zip(dark[1], light[1], strict=True))
    assert dark[2] != light[2]


@pytest.mark.parametrize(("scheme", "brightness"), [("light", (200, 256)), ("dark", (10, 70))])
def test_what_the_eye_sees(visit, report, scheme, brightness):
    """A picture of the whole page: mostly background, and coloured lines in the plots."""
    picture = visit(report.files[0], color_scheme=scheme).screenshot(full_page=True)
    pixels = np.asarray(Image.open(io.BytesIO(picture)).convert("RGB")).astype(int)
    assert brightness[0] < np.median(pixels) < brightness[1]
    colourful = np.ptp(pixels, axis=2) > 80
    assert 0.0005 < colourful.mean() < 0.2


def test_the_page_tells_where_its_numbers_come_from(page):
    text = page.locator("#about").inner_text()
    for fact in ("paper-0f3a9c", "4,725", "NVIDIA H200", "torch 2.13.0", "0fbd313", "letter, news20, vowel"):
        assert fact in text
    assert page.locator("#significance svg title").count() == 1


@pytest.mark.parametrize("options", [
    {"losses": ("my-loss",), "datasets": ("vowel",)},
    {"datasets": ("tiny",), "losses": ("a", "b", "</script>"), "lam": False},
])  # fmt: skip
def test_small_results(visit, tmp_path, options):
    page = visit(page_of(tmp_path, **options)[0])
    assert sorted(column(page, "accuracy", 0)) == sorted(options["losses"])
    assert page.locator("#lambda").inner_text() == "No loss in this setting has a λ per sample."
    assert page.locator("#ranks").count() == (len(options["losses"]) > 1)
    assert page.locator("select[name=k] option").count() == (3 if options["datasets"] == ("tiny",) else 5)


def test_a_single_network_has_no_standard_deviation(visit, tmp_path):
    page = visit(page_of(tmp_path, datasets=("vowel",), noises=PAPER[1:2], losses=("ce",), folds=1)[0])
    cells = page.locator("#accuracy td, #hyperparameters td").all_inner_texts()
    assert len(cells) == 6 + 4
    assert sum(bool(re.fullmatch(r"\d+\.\d\d", cell)) for cell in cells) == 5 + 3


def test_a_single_grey_line_has_its_name(visit, tmp_path):
    losses = lh.losses.PAPER[:7]
    page = visit(page_of(tmp_path, datasets=("vowel",), noises=PAPER[:2], losses=losses, folds=1)[0])
    assert {trace["name"] for trace in traces(page, "convergence")} == set(losses)


def test_labels_without_a_rate_are_not_drawn_against_it(visit, tmp_path):
    human = SimpleNamespace(kind="worse", rate=0.0, id="worse")
    results(tmp_path, datasets=("cifar-10",), noises=(PAPER[0], human), losses=("ce", "gce"))
    page = visit(page_of(tmp_path, datasets=("cifar-100",), noises=PAPER[:2], losses=("ce", "gce"))[0])
    assert page.locator("#rates").inner_text() == "There are no results with a noise rate."
    choose(page, "noise", "worse")
    assert page.locator("#accuracy-title").inner_text() == "Test accuracy: cifar-10, human, worse"
    choose(page, "dataset", "cifar-100")
    assert [trace["x"] for trace in traces(page, "rates")] == [[0, 0.3]] * 2


def test_empty_entries_stay_last(visit, tmp_path):
    losses = ("ce", "a@l1", "gce", "b@l1")
    path, content = page_of(tmp_path, datasets=("vowel",), losses=losses)
    page = visit(path)
    assert column(page, "ranks", 0) == list(content.losses)
    assert column(page, "ranks", 6) == [f"{rank:.2f}" for rank in content.ranking.mean["overall"]]
    assert sort_states(page, "ranks")[6] == "ascending"
    head = page.locator("#ranks th button").nth(12)
    for expected in (["ce", "gce"], ["gce", "ce"]):
        head.click()
        assert column(page, "ranks", 0)[:2] == expected
        assert column(page, "ranks", 12)[2:] == ["", ""]
