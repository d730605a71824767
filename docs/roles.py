"""For the site: references such as :func:`name` in docstrings become links where the page has what they name."""

import re

import griffe

ROLE = re.compile(r":(?:func|class|mod|attr|meth|data|exc):`~?([^`]+)`")


class Roles(griffe.Extension):
    """Run by mkdocstrings for every object it has read."""

    def on_object(self, *, obj: griffe.Object, **_: object) -> None:
        if obj.docstring is not None:
            obj.docstring.value = ROLE.sub(lambda found: link(obj, found[1]), obj.docstring.value)


def link(obj: griffe.Object, name: str) -> str:
    try:
        target = obj.resolve(name)
    except griffe.NameResolutionError:
        target = name
    return f'<autoref optional identifier="{target}">`{name}`</autoref>'
