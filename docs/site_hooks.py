"""For the site: parts of pages that are made from the code."""

import typer.cli
from generate import losses
from typer.main import get_command

from labelhedge.cli.app import app


def commands() -> str:
    """All commands with their arguments and options."""
    command = get_command(app)
    context = typer.Context(command, info_name="labelhedge")
    _, _, commands = typer.cli.get_docs_for_click(obj=command, ctx=context, name="labelhedge").partition("\n## ")
    return f"## {commands}"


PARTS = {"<!-- losses -->": losses, "<!-- commands -->": commands}


def on_page_markdown(markdown: str, **_: object) -> str:
    for mark, render in PARTS.items():
        if mark in markdown:
            markdown = markdown.replace(mark, render())
    return markdown
