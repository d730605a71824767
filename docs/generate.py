"""Write what follows from the code: the tables of README.md, and the list of files in architecture.md.

python docs/generate.py
"""

import ast
import math
from collections.abc import Callable
from pathlib import Path

import labelhedge as lh

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
ARCHITECTURE = ROOT / "docs" / "architecture.md"
PACKAGE = ROOT / "src" / "labelhedge"


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


def table(columns: list[str], rows: list[str]) -> str:
    return "\n".join([row(*columns), row(*["---"] * len(columns)), *rows]) + "\n"


def losses() -> str:
    columns = ["id", "class", "value for one sample", "parameters (default)", "≥ 0", "bounded", "symmetric"]
    columns += ["top-k consistent", "from"]
    lines = []
    others = [name for name in lh.losses.names() if name not in lh.losses.PAPER]
    for name in (*lh.losses.PAPER, *others):
        spec = lh.losses.get(name)
        params = ", ".join(f"`{key}` ({number(value)})" for key, value in spec.defaults.items())
        sign, bound = ("yes" if claim else "" for claim in (spec.nonnegative, spec.bounded))
        claims = (sign, bound, symmetric(spec.symmetric_at), spec.consistency, spec.reference)
        lines.append(row(f"`{name}`", f"`{spec.module.__name__}`", spec.math, params, *claims))
    return table(columns, lines)


def data_sets() -> str:
    rows = []
    for name in lh.data.names():
        info = lh.data.info(name)
        how = "shipped" if info.shipped else "by hand" if info.by_hand else "fetched"
        counts = (f"{info.num_classes:,}", f"{info.num_train:,}", f"{info.num_test:,}")
        rows.append(row(f"[`{name}`]({info.source})", *counts, info.inputs, how, info.licence.partition(";")[0]))
    return table(["name", "classes", "train", "test", "inputs", "files", "licence"], rows)


def modules() -> str:
    """Every file of the package with the first line of its docstring."""
    lines = []
    for path in sorted(
        PACKAGE.rglob("*.py"), key=lambda path: (path.parent.parts, path.name != "__init__.py", path.name)
    ):
        first = (ast.get_docstring(ast.parse(path.read_text())) or "").partition("\n")[0]
        *rooms, name = path.relative_to(PACKAGE).parts
        if rooms and name == "__init__.py":
            rooms, name = rooms[:-1], f"{rooms[-1]}/"
        lines.append(f"{'  ' * len(rooms) + name:<24} {first}\n")
    return f"```\n{''.join(lines)}```\n"


def updated(text: str, **parts: Callable[[], str]) -> str:
    for name, render in parts.items():
        start, end = f"<!-- {name}: made by docs/generate.py -->\n", f"<!-- end of {name} -->\n"
        before, rest = text.split(start)
        _, after = rest.split(end)
        text = before + start + render() + end + after
    return text


def files() -> dict[Path, str]:
    """What each file has to be."""
    return {
        README: updated(README.read_text(), losses=losses, data_sets=data_sets),
        ARCHITECTURE: updated(ARCHITECTURE.read_text(), modules=modules),
    }


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text)
