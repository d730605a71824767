"""Carry out studies, and write their figures, data and page."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from labelhedge._errors import UserError
from labelhedge._files import write_whole
from labelhedge._svg import svg
from labelhedge.data._progress import Progress, silent
from labelhedge.figures._study import Study
from labelhedge.figures._style import png
from labelhedge.figures.boundaries import boundaries, from_scratch
from labelhedge.figures.lambda_vs_kl import lambda_vs_kl
from labelhedge.figures.landscapes import landscapes
from labelhedge.figures.page import page
from labelhedge.figures.two_maxima import two_maxima
from labelhedge.figures.vowel import convergence, lambda_vowel
from labelhedge.train._threads import one_thread

STUDIES: Mapping[str, Callable[..., Study]] = {
    "boundaries": boundaries,
    "from-scratch": from_scratch,
    "lambda-vs-kl": lambda_vs_kl,
    "lambda-vowel": lambda_vowel,
    "convergence": convergence,
    "landscapes": landscapes,
    "two-maxima": two_maxima,
}
"""Every study by name: ``study(seed, effort=1.0)``, where effort is the share of the epochs and of the resolution."""


@dataclass(frozen=True)
class Written:
    """What was written.

    Attributes:
        page: The page with all figures.
        studies: The studies by name.
        files: The files of each study by name: PNG, SVG, CSV.
    """

    page: Path
    studies: Mapping[str, Study]
    files: Mapping[str, tuple[Path, ...]]


def write(
    names: Sequence[str] = (),
    out: str | os.PathLike[str] = "figures",
    *,
    seed: int = 0,
    effort: float = 1.0,
    progress: Progress = silent,
) -> Written:
    """Write ``NAME.png``, ``NAME.svg`` and ``NAME.csv`` of each study, and the page ``index.html``.

    Args:
        names: Which studies; all of them if there is none.
        out: The folder.
        seed: Decides everything random; the same seed gives the same files.
        effort: Share of the epochs and of the resolution to spend, in (0, 1]: less for a quick look.
        progress: Is told which study is being carried out.
    """
    for name in names:
        if name not in STUDIES:
            raise UserError(f"unknown study {name!r}; known studies: {', '.join(STUDIES)}")
    folder = Path(out)
    studies, files = {}, {}
    with one_thread():
        for name in dict.fromkeys(names or STUDIES):
            progress(name, 0, None, "")
            studies[name] = STUDIES[name](seed, effort=effort)
            files[name] = _write(name, studies[name], folder)
            progress(name, 1, 1, "")
    images = {name: paths[0].read_bytes() for name, paths in files.items()}
    index = write_whole(folder / "index.html", page(studies, images, seed))
    return Written(index, studies, files)


def _write(name: str, study: Study, folder: Path) -> tuple[Path, ...]:
    csv = study.data.to_csv(index=False, float_format="%.6g", lineterminator="\n")
    contents: dict[str, str | bytes] = {"png": png(study.figure), "svg": svg(study.figure), "csv": csv}
    return tuple(write_whole(folder / f"{name}.{kind}", content) for kind, content in contents.items())
