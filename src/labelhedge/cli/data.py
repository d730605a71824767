"""``labelhedge data``: list the data sets, tell about one, fetch them, check what is there."""

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import typer

from labelhedge import data
from labelhedge.cli.terminal import print_json, print_table, progress
from labelhedge.data._progress import amount
from labelhedge.data._store import address, check

app = typer.Typer(help="The data sets: list, fetch and check them.", no_args_is_help=True, rich_markup_mode=None)

Root = Annotated[
    Path | None,
    typer.Option(help="The folder that keeps data sets [default: $LABELHEDGE_DATA, or the platform's cache folder]"),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def _state(info: data.DatasetInfo, store: data.Store) -> str:
    if info.shipped:
        return "shipped"
    if store.has(info):
        return "here"
    if info.by_hand:
        return "by hand"
    known = sum(file.size or 0 for file in info.files if not store.path(file).exists())
    return "to get" + (f", {amount(known, 'bytes')}" if known else "")


@app.command("list")
def list_(root: Root = None, as_json: Json = False) -> None:
    """List all data sets and whether they are here.

    Example: labelhedge data list
    """
    store = data.open_store(root)
    infos = [data.info(name) for name in data.names()]
    if as_json:
        print_json([_as_dict(info, store) for info in infos])
        return
    columns = ("name", "classes", "train", "test", "inputs", "state")
    rows = [
        (i.name, f"{i.num_classes:,}", f"{i.num_train:,}", f"{i.num_test:,}", i.inputs, _state(i, store)) for i in infos
    ]
    print_table(columns, rows, numbers=("classes", "train", "test"))


@app.command()
def info(name: Annotated[str, typer.Argument(help="The data set.")], root: Root = None, as_json: Json = False) -> None:
    """Tell about one: source, licence, split, files.

    Example: labelhedge data info letter
    """
    store = data.open_store(root)
    known = data.info(name)
    if as_json:
        print_json(_as_dict(known, store))
        return
    lines = {
        "name": f"{known.title} ({known.name})",
        "inputs": known.inputs,
        "classes": f"{known.num_classes:,}",
        "rows": f"{known.num_train:,} for training, {known.num_test:,} for testing",
        "split": known.split,
        "preprocessing": known.preprocessing,
        "source": known.source,
        "licence": known.licence,
        "citation": known.citation,
        "state": _state(known, store),
        "by hand": f"into {store.folder(name)}: {known.by_hand}" if known.by_hand else "",
    }
    for field, text in lines.items():
        if text:
            typer.echo(f"{field + ':':<15}{text}")
    for file in known.files:
        size = f", {amount(file.size, 'bytes')}" if file.size else ""
        typer.echo(f"{'file:':<15}{store.path(file)}\n{'':<15}from {address(file)}{size}")


@app.command()
def get(
    names: Annotated[list[str], typer.Argument(metavar="NAME", help="The data sets.")],
    root: Root = None,
    as_json: Json = False,
) -> None:
    """Fetch the files of data sets.

    What is here already is not fetched again, and an interrupted download goes on where it stopped. Prints the path of
    each file when all are there and checked.

    Example: labelhedge data get cifar-10 cifar-10n
    """
    for name in names:
        data.info(name)  # a wrong name is said before anything is fetched
    with progress() as report:
        paths = [path for name in names for path in data.get(name, root=root, progress=report)]
    if as_json:
        print_json([str(path) for path in paths])
        return
    for path in paths:
        typer.echo(path)
    for name in names:
        if data.info(name).shipped:
            typer.echo(f"{name} is shipped: there is nothing to fetch", err=True)


@app.command()
def verify(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="The data sets; all if none.")] = None,
    root: Root = None,
    as_json: Json = False,
) -> None:
    """Check the files that are here.

    Computes their checksums and compares them with the publishers'. Where a publisher's is not known, the one of the
    first use counts. Exit code 1 if a file is damaged.

    Example: labelhedge data verify
    """
    store = data.open_store(root)
    files = {file for name in names or data.names() for file in data.info(name).files}
    results: list[dict[str, Any]] = []
    for file in sorted(files, key=lambda file: (file.folder, file.name)):
        path = store.folder(file.folder) / file.name
        if path.exists():
            try:
                results.append({"file": str(path), "ok": True, "checksum": check(path, file)})
            except data.DataError as error:
                results.append({"file": str(path), "ok": False, "problem": str(error)})
    if as_json:
        print_json(results)
    for result in [] if as_json else results:
        typer.echo(f"ok   {result['file']} {result['checksum']}" if result["ok"] else f"BAD  {result['problem']}")
    if not (results or as_json):
        typer.echo(f"no files to check in {store.root}", err=True)
    if not all(result["ok"] for result in results):
        raise typer.Exit(1)


def _as_dict(info: data.DatasetInfo, store: data.Store) -> dict[str, Any]:
    fields = {f.name: getattr(info, f.name) for f in dataclasses.fields(info) if f.name not in ("read", "files")}
    files = [{**dataclasses.asdict(file), "path": str(store.path(file))} for file in info.files]
    return {**fields, "state": _state(info, store), "files": files}
