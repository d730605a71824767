"""The page: one HTML file with the figures inside, which asks no network for anything."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from html import escape
from importlib.resources import files

from labelhedge.figures._study import Study


def page(studies: Mapping[str, Study], images: Mapping[str, bytes], seed: int) -> str:
    """The page as text, with the images (PNG) in it; the links to PNG, SVG and CSV are to files beside it."""
    parts = {
        "contents": "".join(f'<li><a href="#{name}">{escape(study.title)}</a></li>' for name, study in studies.items()),
        "seed": str(seed),
        "command": escape(f"labelhedge figures {' '.join(studies)} --seed {seed}"),
        "sections": "\n".join(_section(name, study, images[name]) for name, study in studies.items()),
    }
    template = files("labelhedge.figures").joinpath("page.html").read_text(encoding="utf-8")
    return re.sub(r"{{(\w+)}}", lambda match: parts[match[1]], template)  # one pass: what is put in is not searched


def _section(name: str, study: Study, image: bytes) -> str:
    encoded = base64.b64encode(image).decode()
    title = escape(study.title)
    links = " · ".join(f'<a href="{name}.{kind}">{kind.upper()}</a>' for kind in ("png", "svg", "csv"))
    return (
        f'<section id="{name}">\n<h2>{title}</h2>\n'
        f'<div class="scroll" tabindex="0" role="region" aria-label="{title}">'
        f'<img src="data:image/png;base64,{encoded}" alt="{title}: what it shows is told below"></div>\n'
        f'<p>{escape(study.paragraph)}</p>\n<p class="links">{links}</p>\n</section>'
    )
