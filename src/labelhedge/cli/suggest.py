"""``labelhedge suggest``: a loss for the labels of a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import typer

from labelhedge import losses
from labelhedge._foreign import plain
from labelhedge.audit import Suggestion, encode
from labelhedge.audit._suggest import suggest_encoded
from labelhedge.audit.page import left_out
from labelhedge.cli.device import chosen_device
from labelhedge.cli.table import (
    DataArgument,
    DeviceOption,
    FeaturesOption,
    JsonOption,
    LabelOption,
    LabelsOption,
    SeedOption,
    read,
)
from labelhedge.cli.terminal import print_json, print_table, progress


def suggest(
    data: DataArgument = None,
    label: LabelOption = None,
    features: FeaturesOption = None,
    labels: LabelsOption = None,
    seed: SeedOption = 0,
    device: DeviceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Suggest a loss for the labels of a table, with its parameters and the evidence.

    Small networks are trained with every loss of the paper on up to 1,000 rows, and the best of them on up to 2,000.
    They are compared by how many labels they predict of rows that they have not seen. Takes about a minute.

    Example: labelhedge suggest iris.csv --label species
    """
    place = chosen_device(device)
    table = read(data, label, features, labels)
    encoded = encode(table.features)
    with progress() as tell:
        found = suggest_encoded(
            encoded.matrix,
            table.labels,
            seed=seed,
            device=place,
            progress=lambda done, total: tell("comparing", done, total, "network-epochs"),
        )
    if as_json:
        print_json(_as_dict(found))
        return
    for sentence in (*left_out(table, encoded), *_sentences(found)):
        typer.echo(plain(sentence))
    typer.echo()
    rows = [
        [row["loss"], _assigned(row["params"]), f"{row['lr']:g}", _percent(row["first"]), _percent(row["accuracy"])]
        for row in found.comparison.to_dict("records")
    ]
    columns = ["loss", "parameters", "lr", "chosen by", "confirmed"]
    print_table(columns, rows, numbers=columns[2:])
    typer.echo()
    typer.echo(_code(found.loss, found.params))


def _code(loss: str, params: Mapping[str, float]) -> str:
    name = losses.get(loss).module.__name__
    return (
        f"criterion = lh.{name}({_assigned(params)})\n"
        f"classifier = lh.LabelHedgeClassifier({loss!r}, params={dict(params)})"
    )


def _sentences(found: Suggestion) -> list[str]:
    audit = found.audit
    share = audit.wrong / len(audit.given)
    first = f"About {100 * share:.0f} % of the labels seem wrong, by {len(audit.given):,} rows."
    gain = f"{100 * found.gain:.1f} points (standard error {100 * found.error:.1f})"
    if found.loss == "ce":
        return [first, f"No loss predicts more labels than cross entropy, {_percent(found.accuracy)}."]
    best = f"{found.loss} predicts {_percent(found.accuracy)} of labels it has not seen, {gain} more than cross entropy"
    return [first, f"{best}." if found.clear else f"{best}: too little to tell them apart, so that either will do."]


def _assigned(params: Any) -> str:
    return ", ".join(f"{name}={value if value is None else format(value, 'g')}" for name, value in params.items())


def _percent(share: float) -> str:
    return "" if share != share else f"{100 * share:.1f} %"


def _as_dict(found: Suggestion) -> dict[str, Any]:
    comparison = found.comparison.astype(object).where(found.comparison.notna(), None)
    return {
        "loss": found.loss,
        "params": dict(found.params),
        "lr": found.lr,
        "accuracy": found.accuracy,
        "gain": found.gain,
        "error": found.error,
        "rows": len(found.audit.given),
        "share_wrong": found.audit.wrong / len(found.audit.given),
        "comparison": comparison.to_dict("records"),
    }
