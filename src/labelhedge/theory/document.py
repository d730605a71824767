"""The table of the paper with what is found, as Markdown and as a page."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from labelhedge.theory.certificate import Certificate
from labelhedge.theory.table import COLUMNS, Row, compare

_HEADER = ("loss", *(f"{column}, {who}" for column in COLUMNS for who in ("paper says", "found")), "remark")
_STYLE = (
    ":root{color-scheme:light dark}"
    "body{font:16px/1.5 system-ui,sans-serif;max-width:75rem;margin:2rem auto;padding:0 1rem}"
    "div{overflow-x:auto}table{border-collapse:collapse}"
    "th,td{padding:.3rem .7rem;text-align:left;vertical-align:top;border-bottom:1px solid #8884}"
    "td{white-space:nowrap}td:last-child{white-space:normal;min-width:16rem}th{max-width:11rem}"
    ".differs{font-weight:bold;color:#c2410c}@media(prefers-color-scheme:dark){.differs{color:#fb923c}}"
)


def _lines(certified: Sequence[tuple[Row, Certificate]]) -> list[list[str]]:
    """One line per loss, as in ``_HEADER``; what is found ends in ≠ where the paper says otherwise."""
    table = []
    for row, certificate in certified:
        cells: list[str] = []
        for says, found, differs in compare(row, certificate).values():
            cells += [says or "–", f"{found} ≠" if differs else found]
        table.append([row.name, *cells, row.remark])
    return table


def markdown(certified: Sequence[tuple[Row, Certificate]], classes: int) -> str:
    """The table as Markdown."""
    rows = [[*_HEADER], ["---"] * len(_HEADER)]
    for name, *cells, remark in _lines(certified):
        rows.append([f"`{name}`", *(f"**{cell}**" if cell.endswith("≠") else cell for cell in cells), remark])
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return f"{_intro(classes)}\n\n{table}\n"


def html(certified: Sequence[tuple[Row, Certificate]], classes: int) -> str:
    """The table as a page, with the evidence for every verdict below it."""
    head = "".join(f"<th>{escape(name)}</th>" for name in _HEADER)
    body = ""
    for number, (name, *cells) in enumerate(_lines(certified)):
        body += f'<tr><th><a href="#{number}">{escape(name)}</a></th>' + "".join(
            f'<td class="differs">{escape(cell)}</td>' if cell.endswith("≠") else f"<td>{escape(cell)}</td>"
            for cell in cells
        )
        body += "</tr>\n"
    evidence = "".join(
        f'<h2 id="{number}">{escape(row.name)}</h2>{_evidence(certificate)}\n'
        for number, (row, certificate) in enumerate(certified)
    )
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>What losses claim and what is found</title><style>{_STYLE}</style>"
        f"<h1>What losses claim and what is found</h1><p>{escape(_intro(classes))}</p>"
        f"<div><table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table></div>{evidence}</html>\n"
    )


def _intro(classes: int) -> str:
    return (
        f"The paper's table of losses beside what is found with {classes} classes; ≠ where they differ, – where the "
        "paper does not know. Found by minimising the expected loss over all predictions, and over those that are not "
        "top-k preserving, for many distributions of the labels. LDR-KL and ALDR-KL are on plain logits, as in the "
        "theorems."
    )


def _evidence(certificate: Certificate) -> str:
    rows = "".join(
        f"<tr><th>{escape(v.property)}</th><td>{v.outcome}</td><td>{escape(v.evidence)}</td></tr>"
        for v in certificate.verdicts
    )
    return f"<div><table><tbody>{rows}</tbody></table></div>"
