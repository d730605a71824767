"""The table of the paper with what is found, as Markdown and as a page."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from labelhedge.theory.certificate import Certificate
from labelhedge.theory.table import COLUMNS, Row, compare

_STYLE = (
    ":root{color-scheme:light dark}"
    "body{font:16px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem}"
    "div{overflow-x:auto}table{border-collapse:collapse}"
    "th,td{padding:.3rem .7rem;text-align:left;vertical-align:top;border-bottom:1px solid #8884}"
    ".differs{font-weight:bold;color:#c2410c}@media(prefers-color-scheme:dark){.differs{color:#fb923c}}"
)


def lines(certified: Sequence[tuple[Row, Certificate]]) -> list[list[str]]:
    """One line per loss: its name, what the paper says and what is found in each column, and a remark."""
    table = []
    for row, certificate in certified:
        cells = []
        for says, found, differs in compare(row, certificate).values():
            cells.append(f"{says or '–'} / {found}{' ≠' if differs else ''}")
        table.append([row.name, *cells, row.remark])
    return table


def markdown(certified: Sequence[tuple[Row, Certificate]], classes: int) -> str:
    """The table as Markdown."""
    rows = [["loss", *COLUMNS, "remark"], ["---"] * (len(COLUMNS) + 2)]
    for line in lines(certified):
        rows.append([f"`{line[0]}`", *(f"**{cell}**" if cell.endswith("≠") else cell for cell in line[1:-1]), line[-1]])
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return f"{_intro(classes)}\n\n{table}\n"


def html(certified: Sequence[tuple[Row, Certificate]], classes: int) -> str:
    """The table as a page, with the evidence for every verdict below it."""
    head = "".join(f"<th>{escape(name)}</th>" for name in ("loss", *COLUMNS, "remark"))
    body = ""
    for line in lines(certified):
        cells = "".join(
            f'<td class="differs">{escape(cell)}</td>' if cell.endswith("≠") else f"<td>{escape(cell)}</td>"
            for cell in line[1:]
        )
        body += f"<tr><th>{escape(line[0])}</th>{cells}</tr>\n"
    evidence = "".join(f"<h2>{escape(row.name)}</h2>{_evidence(certificate)}" for row, certificate in certified)
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>What losses claim and what is found</title><style>{_STYLE}</style>"
        f"<h1>What losses claim and what is found</h1><p>{escape(_intro(classes))}</p>"
        f"<div><table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table></div>{evidence}</html>\n"
    )


def _intro(classes: int) -> str:
    return (
        f"Each cell: what the paper says / what is found with {classes} classes; ≠ where they differ. Found by "
        "minimising the expected loss over all predictions, and over those that are not top-k preserving, for many "
        "distributions of the labels."
    )


def _evidence(certificate: Certificate) -> str:
    rows = "".join(
        f"<tr><th>{escape(v.property)}</th><td>{v.outcome}</td><td>{escape(v.evidence)}</td></tr>"
        for v in certificate.verdicts
    )
    return f"<div><table><tbody>{rows}</tbody></table></div>"
