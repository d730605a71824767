import shutil

import pytest

from labelhedge.report import write
from tests.report.synthetic import results


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """Results of three data sets, the paper's seven noises and fifteen losses."""
    return results(tmp_path_factory.mktemp("results"))


@pytest.fixture(scope="session")
def report(folder):
    return write(folder)


@pytest.fixture(scope="session")
def browser():
    """A real Chromium, started once."""
    sync_api = pytest.importorskip("playwright.sync_api")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("there is no Chromium")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()
