"""``labelhedge certify``: what a loss is good for, with evidence."""

import importlib
import multiprocessing
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from labelhedge import losses
from labelhedge._errors import UserError
from labelhedge._files import write_whole
from labelhedge._interrupt import ignored
from labelhedge.cli.out import check_folder, out_option
from labelhedge.cli.terminal import print_json, print_table, progress
from labelhedge.theory import Certificate, certify, document
from labelhedge.theory.subject import Loss
from labelhedge.theory.table import COLUMNS, ROWS, Row, certify_row, compare
from labelhedge.train._threads import cores


def command(
    loss: Annotated[
        str | None, typer.Argument(help="The id of a loss, or module:id or module:function for one of your own.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="The paper's table: what it says beside what is found.")] = False,
    classes: Annotated[int, typer.Option(min=3, max=6, help="K.")] = 4,
    option: Annotated[
        list[str] | None, typer.Option("--set", help="A hyperparameter or option of the loss, such as q=0.95.")
    ] = None,
    ball: Annotated[float | None, typer.Option(min=0.1, help="Confine logits to this radius.")] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Of the points that are tried.")] = 0,
    out: Annotated[Path | None, out_option(help="With --all: also write the table, as .md or .html.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Find out whether a loss is top-k calibrated, symmetric, tolerant of noise, bounded, convex and so on.

    Each verdict comes with its worst case; a property that fails, with a counterexample to check by hand.

    Example: labelhedge certify gce --set q=0.95

    Example: labelhedge certify my_losses:focal --classes 5

    Example: labelhedge certify --all
    """
    if every == (loss is not None):
        raise UserError("give a loss, or --all for the paper's table")
    if every:
        if option or ball is not None:
            raise UserError("--set and --ball are for one loss; the table has its own")
        _table(classes, seed, out, as_json)
        return
    assert loss is not None
    if out is not None:
        raise UserError("--out is for the table of --all")
    certificate = certify(_loss(loss, _options(option or [])), classes=classes, ball=ball, seed=seed)
    if as_json:
        print_json([asdict(verdict) for verdict in certificate.verdicts])
        return
    rows = [(verdict.property, verdict.outcome, verdict.evidence) for verdict in certificate.verdicts]
    print_table(("property", "found", "evidence"), rows)


def _loss(name: str, options: dict[str, Any]) -> Loss:
    if ":" not in name:
        return _registered(name, options)
    module, _, attribute = name.partition(":")
    sys.path.insert(0, "")  # as python -m does
    try:
        imported = importlib.import_module(module)
        if attribute in losses.names() and losses.get(attribute).module.__module__ == module:
            return _registered(attribute, options)
        found = getattr(imported, attribute)
    except UserError:
        raise
    except Exception as error:  # of whatever kind: the module is the user's
        raise UserError(f"cannot find {name}: {error or type(error).__name__}") from error
    if options:
        raise UserError("--set is for losses with an id; give a function with its options in place")
    return found  # type: ignore[no-any-return]


def _registered(id: str, options: dict[str, Any]) -> Loss:
    try:
        return losses.create(id, reduction="none", **options)
    except TypeError as error:  # an option that the loss does not have, or a word for a number
        raise UserError(str(error)) from error


def _options(settings: Sequence[str]) -> dict[str, Any]:
    """The options in ``name=value`` pairs; the values are numbers, none, inf or words."""
    options: dict[str, Any] = {}
    for setting in settings:
        name, separator, value = setting.partition("=")
        if not separator:
            raise UserError(f"--set takes name=value, got {setting!r}")
        options[name] = _value(value)
    return options


def _value(text: str) -> int | float | str | None:
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return None if text.lower() == "none" else text


def _table(classes: int, seed: int, out: Path | None, as_json: bool) -> None:
    if out is not None:
        if out.suffix not in (".md", ".html"):
            raise UserError(f"--out must end in .md or .html, got {out.name!r}")
        check_folder(out.parent, (out.name,))
    certified = list(zip(ROWS, _certificates(classes, seed), strict=True))
    if out is not None:
        text = document.html if out.suffix == ".html" else document.markdown
        write_whole(out, text(certified, classes))
    if as_json:
        print_json([_as_dict(row, certificate) for row, certificate in certified])
    else:
        _print(certified)


def _print(certified: Sequence[tuple[Row, Certificate]]) -> None:
    """Cells with both answers, and the remarks below: narrow enough for a terminal."""
    rows = []
    for row, certificate in certified:
        cells = compare(row, certificate).values()
        rows.append(
            [row.name, *(f"{says or '–'} / {found}{' ≠' if differs else ''}" for says, found, differs in cells)]
        )
    print_table(("loss", *COLUMNS), rows)
    typer.echo("\neach cell: what the paper says / what is found; ≠ where they differ", err=True)
    for row, _ in certified:
        if row.remark:
            typer.echo(f"\n{row.name}: {row.remark}", err=True)


def _certificates(classes: int, seed: int) -> list[Certificate]:
    """Of every row, in several processes."""
    tasks = [(row, classes, seed) for row in ROWS]
    found = []
    context = multiprocessing.get_context("spawn")
    with ignored():  # workers inherit it: Ctrl-C reaches this process, and it ends them
        workers = context.Pool(min(cores(), len(tasks)), torch.set_num_threads, (1,))
    with progress() as tell, workers as pool:
        for certificate in pool.imap(_certificate, tasks):
            found.append(certificate)
            tell("certifying", len(found), len(tasks), "losses")
    return found


def _certificate(task: tuple[Row, int, int]) -> Certificate:
    return certify_row(*task)


def _as_dict(row: Row, certificate: Certificate) -> dict[str, Any]:
    return {
        "loss": row.name,
        "remark": row.remark,
        "columns": {
            column: {"paper": says, "found": found, "differs": differs}
            for column, (says, found, differs) in compare(row, certificate).items()
        },
        "verdicts": [asdict(verdict) for verdict in certificate.verdicts],
    }
