"""The page: one HTML file with its data, style and scripts inside, which asks no network for anything."""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Iterable
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from labelhedge._optional import optional
from labelhedge.report.content import KS, MEASURES, Content
from labelhedge.report.critical_difference import diagram
from labelhedge.report.names import KINDS, LINES, column, has_rate, noise_id, noise_label
from labelhedge.report.paper import LEADERBOARD
from labelhedge.report.sections import hyperparameters_section, running_time_section
from labelhedge.report.text import facts, leaderboard_text, left_out, significance_text, summary

if TYPE_CHECKING:
    import pandas as pd


def page(content: Content) -> str:
    """The page as text."""
    package = files("labelhedge.report")
    parts = {
        "protocol": escape(content.protocol),
        "summary": escape(summary(content)),
        "leaderboard_text": _paragraphs(leaderboard_text(content)),
        "significance_text": _paragraphs(significance_text(content)) + _diagram(content),
        "running_time": running_time_section(content),
        "hyperparameters": hyperparameters_section(content),
        "facts": "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts(content)),
        "left_out": _left_out(content),
        "css": package.joinpath("page.css").read_text(encoding="utf-8"),
        "js": package.joinpath("page.js").read_text(encoding="utf-8"),
        "plotly": optional("plotly.offline", "report").get_plotlyjs(),
        "data": embedded_json(page_data(content)),
    }
    template = package.joinpath("page.html").read_text(encoding="utf-8")
    return re.sub(r"{{(\w+)}}", lambda match: parts[match[1]], template)  # one pass: what is put in is not searched


def embedded_json(value: Any) -> str:
    """Compact JSON that cannot end the script element around it: no ``<`` is left in it."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def page_data(content: Content) -> dict[str, Any]:
    """What the scripts of the page show; accuracies of the test are in percent."""
    epochs = content.curves.index.get_level_values("epoch")
    return {
        "losses": content.losses,
        "highlighted": content.highlighted,
        "lines": LINES,
        "datasets": content.datasets,
        "noises": [
            {
                "id": noise_id(noise, rate),
                "label": noise_label(noise, rate),
                "kind": noise,
                "kind_label": KINDS.get(noise, noise),
                "has_rate": has_rate(noise),
                "rate": rate,
            }
            for noise, rate in content.noises
        ],
        "ks": sorted(content.accuracies["k"].unique().tolist()),
        "paper_columns": [column(k) for k in (*KS, "overall")],
        "leaderboard": _leaderboard(content),
        "accuracy": _accuracy(content.accuracies),
        "first_epoch": int(epochs.min()) if len(epochs) else 1,
        "curves": _curves(content.curves),
        "seconds": {
            name: {loss: _number(s, 6) for loss, s in times.dropna().items()} for name, times in content.seconds.items()
        },
    }


def _paragraphs(texts: Iterable[str]) -> str:
    return "".join(f"<p>{escape(text)}</p>" for text in texts)


def _diagram(content: Content) -> str:
    if content.significance is None:
        return ""
    box = '<div class="scroll" tabindex="0" role="region" aria-label="Critical difference diagram">'
    return f"{box}{diagram(content.significance)}</div>"


def _left_out(content: Content) -> str:
    lines = left_out(content)
    if not lines:
        return ""
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f"<details><summary>{len(lines)} settings left out of the ranks</summary><ul>{items}</ul></details>"


def _number(value: float, digits: int = 5) -> float | None:
    """A number short enough to embed; JSON has no NaN and no infinity."""
    return float(f"{value:.{digits}g}") if math.isfinite(value) else None


def _leaderboard(content: Content) -> dict[str, Any] | None:
    if content.ranking is None:
        return None
    mean, std = content.ranking.mean, content.ranking.std
    rows = [
        {
            "loss": loss,
            "ours": list(zip(mean.loc[loss], std.loc[loss], strict=True)),
            "paper": LEADERBOARD.get(str(loss)),
        }
        for loss in mean.index
    ]
    return {"columns": [column(k) for k in mean.columns], "rows": rows}


def _accuracy(accuracies: pd.DataFrame) -> dict[str, Any]:
    ks = sorted(accuracies["k"].unique())
    nested: dict[str, dict[str, dict[str, Any]]] = defaultdict(lambda: defaultdict(dict))
    tables = [
        accuracies.pivot(index=["dataset", "noise", "rate", "loss"], columns="k", values=v) for v in ("mean", "std")
    ]
    for key, *rows in zip(tables[0].index, *(table[ks].to_numpy() for table in tables), strict=True):
        dataset, noise, rate, loss = key
        nested[dataset][noise_id(noise, rate)][loss] = [[_number(100 * value, 6) for value in row] for row in rows]
    return nested


def _curves(curves: pd.DataFrame) -> dict[str, Any]:
    nested: dict[str, dict[str, dict[str, Any]]] = defaultdict(lambda: defaultdict(dict))
    if curves.empty:
        return nested
    table = curves.unstack("epoch")  # every curve at the same epochs, empty where it has none
    for measure in MEASURES:
        rows = table[measure].dropna(how="all")
        for (dataset, noise, rate, loss), row in zip(rows.index, rows.to_numpy(), strict=True):
            nested[dataset][noise_id(noise, rate)].setdefault(loss, {})[measure] = [_number(v, 4) for v in row]
    return nested
