"""The site builds without a warning, and asks no other host for anything."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    line = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder]
    built = subprocess.run(line, cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return folder


def test_every_loss_and_command_is_in_the_reference(site):
    import labelhedge as lh
    from labelhedge.cli.app import app

    losses, functions = ((site / "api" / f"{page}.html").read_text() for page in ("losses", "functional"))
    for name in lh.losses.names():
        assert f'id="labelhedge.losses.{lh.losses.get(name).module.__name__}"' in losses
    for name in lh.functional.__all__:
        assert f'id="labelhedge.functional.{name}"' in functions
    commands = (site / "api" / "cli.html").read_text()
    for command in app.registered_commands:
        assert f"labelhedge {command.name or command.callback.__name__}" in commands
    assert "<!-- " + "losses -->" not in (site / "choosing.html").read_text()


def test_no_page_asks_another_host(site):
    asked = re.compile(r"<(?:script|img|iframe|link)\b[^>]*(?:src|href)=[\"']?(?:https?:)?//[^>]*>")
    for page in site.rglob("*.html"):
        assert not [tag for tag in asked.findall(page.read_text()) if "canonical" not in tag], page


def test_references_in_docstrings_are_links_and_not_roles(site):
    for page in (site / "api").rglob("*.html"):
        text = page.read_text()
        assert not re.search(r":(func|class|mod|attr):", text), page
        assert "<autoref" not in text, page
