"""The sections of the page that are plain tables."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from html import escape

from labelhedge.report.content import Content
from labelhedge.report.hyperparameters import hyperparameters
from labelhedge.report.running_time import caption, running_time
from labelhedge.report.tables import Table

_TUNING = (
    "Validation top-1 in percent, on labels as noisy as those of training: mean, and in brackets the standard "
    "deviation, over folds and seeds. Each choice has the learning rate and weight decay with the highest mean. The "
    "best choice of each loss is bold."
)
_TEMPERATURE = " τ is the temperature of normalised logits."


def hyperparameters_section(content: Content) -> str:
    """What each choice of hyperparameters reaches, data sets to unfold; nothing where no loss had a choice."""
    parts: list[str] = []
    for dataset in content.datasets:
        lines = hyperparameters(content, dataset)
        if lines:
            start = "<details>" if parts else "<details open>"
            parts.append(f"{start}<summary>{escape(dataset)}</summary>{_titled(lines)}</details>")
    if not parts:
        return ""
    text = _TUNING + (_TEMPERATURE if content.tuning["params"].str.contains('"temperature"').any() else "")
    return f'<section id="hyperparameters">\n<h2>Hyperparameters</h2>\n<p>{text}</p>\n{"".join(parts)}\n</section>'


def running_time_section(content: Content) -> str:
    """Seconds per epoch of every loss on every data set, with the paper's beside."""
    ours, *paper = tables = running_time(content)
    text = escape(caption(tables))
    named = [replace(ours, group="here"), *(replace(table, group="paper") for table in paper)] if paper else [ours]
    return f'<section id="running-time">\n<h2>Running time</h2>\n<p>{text}</p>\n{html_table(*named)}\n</section>'


def html_table(*tables: Table) -> str:
    """Tables with the same rows side by side, in a box that scrolls."""
    grouped = any(table.group for table in tables)
    groups = "".join(
        f'<th scope="colgroup" colspan="{len(table.columns)}" class="first">{escape(table.group)}</th>'
        for table in tables
    )
    columns = "".join(_cells("th", map(escape, table.columns)) for table in tables)
    corner = f'<th rowspan="{1 + grouped}" class="corner">{tables[0].kind}</th>'
    head = f"{corner}{groups}</tr><tr>{columns}" if grouped else corner + columns
    rows = [
        f"<tr><td>{escape(name)}</td>{''.join(_cells('td', _entries(table, number)) for table in tables)}</tr>"
        for number, name in enumerate(tables[0].rows)
    ]
    label = escape(", ".join([tables[0].title, *(table.group for table in tables if table.group)]))
    box = f'<div class="scroll fit" tabindex="0" role="region" aria-label="{label}">'
    return f'{box}<table class="plain"><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'


def _cells(tag: str, texts: Iterable[str]) -> str:
    """The cells of one table in a row, the first of them with a line at its left."""
    return "".join(f"<{tag}{'' if number else ' class=first'}>{text}</{tag}>" for number, text in enumerate(texts))


def _entries(table: Table, number: int) -> Iterator[str]:
    for text, best in zip(table.entries[number], table.best[number], strict=True):
        mean, bracket, std = text.partition("(")
        yield (f"<b>{mean}</b>" if best and mean else mean) + (f" <small>({std}</small>" if bracket else "")


def _titled(lines: Sequence[tuple[Table, ...]]) -> str:
    """Tables one below the other, with a title where it is no longer that of the first."""
    parts, title = [], lines[0][0].title
    for line in lines:
        if line[0].title != title:
            title = line[0].title
            parts.append(f"<p>{escape(title)}</p>")
        parts.append(html_table(*line))
    return "".join(parts)
