"""``labelhedge report``: results as tables, figures and a page."""

from pathlib import Path
from typing import Annotated, Any

import typer

from labelhedge._errors import UserError
from labelhedge.cli.out import check_folder, out_option
from labelhedge.cli.terminal import print_json, print_table
from labelhedge.report import Report, write
from labelhedge.report.names import column
from labelhedge.report.paper import LEADERBOARD
from labelhedge.report.tables import leaderboard_csv
from labelhedge.report.text import leaderboard_text
from labelhedge.results.aggregate import Ranking


def report(
    root: Annotated[
        str, typer.Argument(metavar="DIR", help="The folder, or its URL, that `labelhedge bench --out` has filled.")
    ],
    out: Annotated[Path | None, out_option(help="Where to write [default: DIR/report; needed with a URL]")] = None,
    protocol: Annotated[
        str | None, typer.Option(metavar="ID", help="The protocol to report on, where there are several.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Make tables, figures and a page from results.

    Writes index.html, tables (Markdown, LaTeX, CSV) and figures (SVG), and prints the leaderboard: average ranks, 1 is
    best, with the paper's overall rank beside. The names of the files go to stderr.

    Example: labelhedge report results --out report
    """
    if out is None and "://" in root:
        raise UserError(f"--out is needed, since a report is not written to {root}")
    if out is not None:
        check_folder(out, ("index.html",))
    made = write(root, out, protocol=protocol)
    if as_json:
        print_json(_as_dict(made))
        return
    ranking = made.content.ranking
    if ranking is None:
        typer.echo(leaderboard_text(made.content)[0])
    else:
        mean = ranking.mean
        columns = [column(k) for k in mean.columns]
        rows = [[str(loss), *(f"{rank:.2f}" for rank in mean.loc[loss]), _paper(str(loss))] for loss in mean.index]
        print_table(["loss", *columns, "paper"], rows, numbers=[*columns, "paper"])
    for path in made.files:
        typer.echo(path, err=True)


def _paper(loss: str) -> str:
    return f"{LEADERBOARD[loss][-1][0]:.2f}" if loss in LEADERBOARD else ""


def _leaderboard(ranking: Ranking) -> list[dict[str, Any]]:
    rows = leaderboard_csv(ranking).astype(object)
    return [
        {str(name): value for name, value in row.items()} for row in rows.where(rows.notna(), None).to_dict("records")
    ]


def _as_dict(made: Report) -> dict[str, Any]:
    content = made.content
    significance = content.significance
    return {
        "protocol": content.protocol,
        "leaderboard": [] if content.ranking is None else _leaderboard(content.ranking),
        "settings": 0 if content.ranking is None else content.ranking.settings,
        "left_out": [
            {"dataset": dataset, "noise": noise, "rate": rate, "without": losses}
            for (dataset, noise, rate), losses in content.left_out.items()
        ],
        "friedman": significance and {"statistic": significance.statistic, "p": significance.p},
        "critical_difference": significance and significance.critical_difference,
        "files": [str(path) for path in made.files],
    }
