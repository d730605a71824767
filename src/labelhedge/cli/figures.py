"""``labelhedge figures``: the paper's studies as figures, data and a page."""

from pathlib import Path
from typing import Annotated

import typer

from labelhedge.cli.out import check_folder, out_option
from labelhedge.cli.terminal import print_json, print_table, progress
from labelhedge.figures import STUDIES, write


def figures(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME", help=f"Studies [default: all]: {', '.join(STUDIES)}", show_default=False),
    ] = None,
    out: Annotated[Path, out_option(help="The folder to write to.")] = Path("figures"),
    seed: Annotated[int, typer.Option(min=0, help="Decides everything random.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Carry out the paper's studies and draw them; all of them take half a minute.

    Writes NAME.png, NAME.svg and NAME.csv (the data behind the figure) for each study, and index.html with all of them
    and a paragraph of what each shows.

    Example: labelhedge figures boundaries two-maxima --out figures
    """
    check_folder(out, ("index.html", *(f"{name}.svg" for name in names or STUDIES)))
    with progress() as tell:
        made = write(names or (), out, seed=seed, progress=tell)
    if as_json:
        print_json(
            {
                "page": str(made.page),
                "studies": [
                    {
                        "name": name,
                        "title": study.title,
                        "paragraph": study.paragraph,
                        "files": [str(path) for path in made.files[name]],
                    }
                    for name, study in made.studies.items()
                ],
            }
        )
        return
    rows = [[name, study.title, str(made.files[name][0])] for name, study in made.studies.items()]
    print_table(["study", "title", "figure"], rows)
    typer.echo(f"open {made.page} in a browser", err=True)
