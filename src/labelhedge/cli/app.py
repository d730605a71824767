"""The commands."""

import typer

from labelhedge._version import __version__
from labelhedge.cli import audit, bench, certify, data, figures, report, suggest, train

app = typer.Typer(
    help="Train classifiers on labels that are partly wrong.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command()(bench.demo)
app.command()(bench.bench)
app.command()(report.report)
app.command()(train.train)
app.command()(audit.audit)
app.command()(suggest.suggest)
app.command("certify")(certify.command)
app.command()(figures.figures)
app.add_typer(data.app, name="data")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"labelhedge {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Show the version."),
) -> None:
    """Take the options that stand before a command."""
