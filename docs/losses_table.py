"""Render the table of losses from the registry; run it to bring README.md up to date."""

import math
from pathlib import Path

import labelhedge as lh

README = Path(__file__).parent.parent / "README.md"
START, END = "<!-- losses: made by docs/losses_table.py -->\n", "<!-- end of losses -->\n"


def number(value: object) -> str:
    if value is None:
        return "None"
    if value == math.log(1e-4):
        return "log 1e-4"
    return f"{value:g}"


def symmetric(where: object) -> str:
    if where is None:
        return ""
    return ", ".join(f"{name} = {number(value).replace('inf', '∞')}" for name, value in where.items()) or "yes"


def row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def render() -> str:
    columns = ["id", "class", "value for one sample", "parameters (default)", "≥ 0", "bounded", "symmetric"]
    columns += ["top-k consistent", "from"]
    lines = [row(*columns), row(*["---"] * len(columns))]
    others = [name for name in lh.losses.names() if name not in lh.losses.PAPER]
    for name in (*lh.losses.PAPER, *others):
        spec = lh.losses.get(name)
        params = ", ".join(f"`{key}` ({number(value)})" for key, value in spec.defaults.items())
        sign, bound = ("yes" if claim else "" for claim in (spec.nonnegative, spec.bounded))
        claims = (sign, bound, symmetric(spec.symmetric_at), spec.consistency, spec.reference)
        lines.append(row(f"`{name}`", f"`{spec.module.__name__}`", spec.math, params, *claims))
    return "\n".join(lines) + "\n"


def updated(text: str) -> str:
    before, rest = text.split(START)
    _, after = rest.split(END)
    return before + START + render() + END + after


if __name__ == "__main__":
    README.write_text(updated(README.read_text()))
