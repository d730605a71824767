"""What follows from the classes of the losses: the list of them, and each of them as a function.

    python docs/loss_exports.py

The files of the losses are read, not imported: a list that names what is gone can be written anew.
"""

import ast
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

LOSSES = Path(__file__).parent.parent / "src" / "labelhedge" / "losses"
CLASSES, FUNCTIONS = LOSSES / "classes.py", LOSSES.parent / "functional.py"
OF_STATE = ("num_samples", "num_classes")
"""Arguments of a class that a function does not have, since it keeps nothing."""
SECTIONS = re.compile(
    r"(?P<said>.*?)Args:\n(?P<arguments>.*?)\n\nShape:\n(?P<shape>.*?)\n\nExample:\n(?P<example>.*)", re.DOTALL
)
SHAPES = re.compile(r"Logits (.*)\. The target holds (.*)\. The loss is (.*)")


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(LOSSES.glob("[!_]*.py")):
        if path != CLASSES:
            yield f"labelhedge.losses.{path.stem}", ast.parse(path.read_text())


def public(module: ast.Module, kind: type[ast.ClassDef] | type[ast.FunctionDef]) -> list:
    """The classes or functions that a module lists in ``__all__``."""
    (listed,) = [n.value for n in module.body if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "__all__"]
    return [n for n in module.body if isinstance(n, kind) and n.name in ast.literal_eval(listed)]


def classes() -> str:
    """The module that has all classes."""
    found = {name: [node.name for node in public(module, ast.ClassDef)] for name, module in modules()}
    return written(
        CLASSES, "Every loss as a class.", imports(found), [], [n for names in found.values() for n in names]
    )


def functions() -> str:
    """The module that has all functions: those that are written by hand, and of each other class its own."""
    found = {"typing": ["Unpack"], "torch": ["Tensor"], "labelhedge.losses._loss": ["value_of"]}
    found["labelhedge.losses._options"] = ["Options"]
    code, listed = [], []
    for name, module in modules():
        by_hand = [node.name for node in public(module, ast.FunctionDef)]
        names = found[name] = list(by_hand)
        for kind in public(module, ast.ClassDef):
            if function_name(kind) not in by_hand:
                text, used = function(kind)
                code.append(text)
                listed.append(function_name(kind))
                names.append(kind.name)
                for there, what in homes(name, module, used).items():
                    found.setdefault(there, []).extend(what)
        listed += by_hand
    title = "Every loss as a function, as ``torch.nn.functional`` is to ``torch.nn``."
    return written(FUNCTIONS, title, imports(found), code, listed)


def function_name(kind: ast.ClassDef) -> str:
    (spec,) = [n.value for n in kind.body if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "spec"]
    assert isinstance(spec, ast.Call)
    return re.sub(r"\W", "_", ast.literal_eval(spec.args[0]))


def function(kind: ast.ClassDef) -> tuple[str, set[str]]:
    """The function of a class, and the names that its signature uses."""
    (init,) = [n for n in kind.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"]
    keywords = zip(init.args.kwonlyargs, init.args.kw_defaults, strict=True)
    kept = [(argument, default) for argument, default in keywords if argument.arg not in OF_STATE]
    name = function_name(kind)
    signature = "".join(f"    {ast.unparse(argument)} = {ast.unparse(default)},\n" for argument, default in kept)
    passed = ", ".join(f"{argument.arg}={argument.arg}" for argument, _ in kept)
    text = (
        f"def {name}(\n    logits: Tensor,\n    target: Tensor,\n    weight: Tensor | None = None,\n    *,\n{signature}"
        f'    **options: Unpack[Options],\n) -> Tensor:\n    """{documentation(kind, name)}"""\n'
        f"    return value_of({kind.name}, logits, target, weight=weight, {passed}, **options)\n"
    )
    parts = [part for argument, default in kept for part in (argument.annotation, default)]
    return text, {n.id for part in parts for n in ast.walk(part) if isinstance(n, ast.Name)}


def homes(name: str, module: ast.Module, used: set[str]) -> dict[str, list[str]]:
    """Where the names come from that a module uses."""
    found: dict[str, list[str]] = {}
    for node in module.body:
        if isinstance(node, ast.ImportFrom):
            found[str(node.module)] = [alias.name for alias in node.names if alias.name in used]
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found.setdefault(name, []).extend(ast.unparse(t) for t in targets if ast.unparse(t) in used)
    return found


def documentation(kind: ast.ClassDef, name: str) -> str:
    """The text of the class for the function: shapes are those of arguments, and the example calls it."""
    text = ast.get_docstring(kind) or ""
    found = SECTIONS.fullmatch(text)
    shapes = found and SHAPES.fullmatch(" ".join(found["shape"].split()))
    if not (found and shapes):
        raise SystemExit(f"{kind.name}: its docstring must have the sections of CELoss, and shapes in the same words")
    said, arguments, example = found["said"], found["arguments"], found["example"]
    arguments = re.sub(rf"^    ({'|'.join(OF_STATE)}): .*\n(        .*\n)*", "", arguments, flags=re.MULTILINE)
    logits, target, loss = shapes.groups()
    target = target[0].upper() + target[1:]
    call = re.compile(rf"{kind.name}\((.*?)\)\((.*)\)$", re.MULTILINE)
    example = call.sub(lambda found: f"{name}({', '.join(filter(None, (found[2], found[1])))})", example)
    entries = entry(f"logits: {logits}.") + entry(f"target: {target}.") + arguments.rstrip()
    returns = entry(f"{loss[0].upper()}{loss[1:]}", hanging="").rstrip()
    whole = f"{said}Args:\n{entries}\n\nReturns:\n{returns}\n\nExample:\n{example.rstrip()}\n"
    return textwrap.indent(whole, "    ").lstrip() + "    "


def entry(text: str, hanging: str = "    ") -> str:
    return textwrap.fill(text, 116, initial_indent="    ", subsequent_indent="    " + hanging) + "\n"


def imports(found: dict[str, list[str]]) -> str:
    return "".join(f"from {name} import {', '.join(names)}\n" for name, names in found.items() if names)


def written(path: Path, title: str, imported: str, code: list[str], listed: list[str]) -> str:
    """A module, in the order and the form that ruff gives it."""
    names = sorted(listed, key=str.lower)
    start = f'"""{title}"""\n\n# written by docs/loss_exports.py\nfrom __future__ import annotations\n{imported}\n'
    text = f"{start}__all__ = {names!r}\n\n" + "\n\n".join(code)
    for command in (["check", "--select=I,RUF022", "--fix", "--quiet"], ["format"]):
        text = subprocess.run(
            [sys.executable, "-m", "ruff", *command, f"--stdin-filename={path}", "-"],
            input=text,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    return text


def files() -> dict[Path, str]:
    """What each file has to be."""
    return {CLASSES: classes(), FUNCTIONS: functions()}


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text)
