"""Write the public names of the stable rooms, with their signatures, to tests/public_names.txt.

python docs/public_names.py
"""

import importlib
import inspect
from pathlib import Path
from typing import is_typeddict

import labelhedge as lh

FILE = Path(__file__).parents[1] / "tests" / "public_names.txt"
ROOMS = ("losses", "functional", "noise", "noise.settings", "audit", "estimator")
ROOMS += ("integrations.lightning", "integrations.transformers")


class Verbatim:
    """What stands in a signature as it is written here."""

    def __init__(self, text):
        self.text = text

    def __repr__(self):
        return self.text


def signature(what):
    if is_typeddict(what):
        return f"({', '.join(f'{name}: {plain_text(kind)}' for name, kind in what.__annotations__.items())})"
    if inspect.isclass(what) and issubclass(what, Exception):
        return ""
    found = inspect.signature(what)
    parameters = [
        p.replace(annotation=plain(p.annotation), default=Verbatim(p.default.__name__))
        if inspect.isroutine(p.default)
        else p.replace(annotation=plain(p.annotation))
        for p in found.parameters.values()
    ]
    return str(found.replace(parameters=parameters, return_annotation=plain(found.return_annotation)))


def plain(annotation):
    return Verbatim(annotation) if isinstance(annotation, str) else annotation


def plain_text(annotation):
    """An annotation as it is written, also where Python has wrapped it."""
    return getattr(annotation, "__forward_arg__", annotation)


def names(module):
    """What a module says is public, or else what it defines."""
    if hasattr(module, "__all__"):
        return module.__all__
    return [name for name, what in vars(module).items() if getattr(what, "__module__", None) == module.__name__]


def members(kind):
    """The methods and properties of a class that no base has, and its call."""
    bases = kind.__mro__[1:]
    if "forward" in vars(kind):
        yield "forward" + signature(kind.forward)
    for name, what in sorted(vars(kind).items()):
        if name.startswith("_") or any(name in (*vars(base), *vars(base).get("__annotations__", ())) for base in bases):
            continue
        if isinstance(what, property):
            yield name
        elif inspect.isroutine(what) and getattr(what, "__module__", "").startswith("labelhedge"):
            yield name + signature(getattr(kind, name))


def lines(room):
    module = importlib.import_module(f"labelhedge.{room}")
    for name in sorted(names(module)):
        what, path = getattr(module, name), f"{room}.{name}"
        if name.startswith("_") or inspect.ismodule(what):
            continue
        ours = callable(what) and getattr(what, "__module__", "").startswith("labelhedge")
        yield path + signature(what) if ours else path
        if inspect.isclass(what):
            yield from (f"{path}.{member}" for member in members(what))


def listing():
    root = [name for name in dir(lh) if not name.startswith("_")]
    return "".join(f"{line}\n" for line in (*root, *(line for room in ROOMS for line in lines(room))))


if __name__ == "__main__":
    FILE.write_text(listing())
