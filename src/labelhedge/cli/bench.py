"""``labelhedge bench`` and ``labelhedge demo``: train and tune losses on data with wrong labels."""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from labelhedge import losses
from labelhedge._errors import UserError
from labelhedge.bench import ray
from labelhedge.bench.jobs import Job, jobs, missing
from labelhedge.bench.protocol import PRESETS, Protocol, entry, setting
from labelhedge.bench.run import Machine
from labelhedge.cli.data import Root
from labelhedge.cli.device import chosen_device
from labelhedge.cli.out import check_folder, named, out_option
from labelhedge.cli.report import report
from labelhedge.cli.sweep import run_here, run_on_ray
from labelhedge.cli.terminal import parse_bytes, print_json, say
from labelhedge.data import info
from labelhedge.noise import settings
from labelhedge.results import ResultsStore
from labelhedge.train._threads import cores

_RETRIES = 3
_OUT = "for the results; what is there already is not trained again."


def bench(
    preset: Annotated[str, typer.Option(help=f"What to compare, and how: {', '.join(PRESETS)}.")] = "demo",
    dataset: Annotated[str | None, typer.Option(help="Data sets, with commas between.")] = None,
    loss: Annotated[str | None, typer.Option(help="Losses, with commas between; 'paper' stands for its 15.")] = None,
    noise: Annotated[str | None, typer.Option(help="clean, u0.3, cd0.1 or any such; 'paper' stands for its 7.")] = None,
    lr: Annotated[str | None, typer.Option(help="Learning rates to choose from, with commas between.")] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="How many.")] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Fewer for a quick look.")] = None,
    folds: Annotated[int | None, typer.Option(min=1, max=5, help="Fewer for a quick look.")] = None,
    tuning_epochs: Annotated[
        int | None, typer.Option(min=1, help="On images: compare configurations by this many epochs of the first fold.")
    ] = None,
    networks_at_once: Annotated[int, typer.Option(min=1, help="On images: how many a GPU trains side by side.")] = 5,
    out: Annotated[
        str, typer.Option(parser=named, metavar="<str>", help=f"The folder, or its URL, {_OUT}")
    ] = "results",
    device: Annotated[
        str | None, typer.Option(help="cpu or cuda [default: cuda where there is one; on Ray where a job has GPUs]")
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes [default: one per core, 1 on a GPU]")] = None,
    memory: Annotated[str | None, typer.Option(help="On tables: what the whole run may take, such as 4GB.")] = None,
    root: Root = None,
    engine: Annotated[str, typer.Option(help="local, or ray for a cluster.")] = "local",
    address: Annotated[str | None, typer.Option(help="Of the Ray cluster [default: $RAY_ADDRESS, or one here]")] = None,
    cpus_per_job: Annotated[int | None, typer.Option(min=1, help="On Ray [default: 1]")] = None,
    gpus_per_job: Annotated[float | None, typer.Option(min=0, help="On Ray [default: 1 on cuda, 0 on cpu]")] = None,
    retries: Annotated[
        int | None, typer.Option(min=0, help=f"Of a job whose worker or node Ray lost [default: {_RETRIES}]")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON and stop.")] = False,
) -> None:
    """Train and tune losses on data with wrong labels, thousands of networks at a time.

    Example: labelhedge bench --dataset vowel --loss aldr-kl,ce --noise clean,u0.3 --out results

    Then: labelhedge report results

    Safe to interrupt: what is finished is in --out, and the same command goes on. Several processes may share an --out.

    On a Ray cluster: labelhedge bench --engine ray --address 10.0.0.1:6379 --out s3://bucket/results
    """
    per_job = {"--cpus-per-job": cpus_per_job, "--gpus-per-job": gpus_per_job}
    _refuse_options_of_others(
        engine,
        {
            "local": {"--workers": workers, "--memory": memory},
            "ray": {"--address": address, "--retries": retries, **per_job},
        },
    )
    store = ResultsStore(out)
    if isinstance(store.root, Path):
        check_folder(store.root)
    if preset not in PRESETS:
        raise UserError(f"unknown preset {preset!r}; known presets: {', '.join(PRESETS)}")
    chosen = PRESETS[preset]
    datasets = _names(dataset) or chosen.datasets
    protocol = _changed(chosen.protocol, datasets, lr, epochs, folds, tuning_epochs)
    entries = _names(loss, losses.PAPER) or chosen.losses
    for name in entries:
        entry(name)  # refuses what it does not know
    noises = dict.fromkeys(setting(name) for name in _names(noise, [s.id for s in settings.PAPER])) or chosen.settings
    wanted = jobs(protocol, datasets, entries, noises, range(seeds or chosen.seeds))

    if as_json:
        print_json([_as_dict(job, missing(job, store) is None) for job in wanted])
        return
    data = None if root is None else str(root)
    if engine == "ray":
        place, share = _share_of_node(device, cpus_per_job or 1, gpus_per_job)
        machine = Machine(place, at_once=networks_at_once, data=data)
        run_on_ray(wanted, store, machine, share, address, _RETRIES if retries is None else retries)
    else:
        place = chosen_device(device)
        machine = Machine(place, at_once=networks_at_once, data=data)
        limit = None if memory is None else parse_bytes(memory)
        run_here(wanted, store, machine, workers or (cores() if place == "cpu" else 1), limit)
    where = "" if isinstance(store.root, Path) else " --out report"
    say(f"results are in {store.root}; now: labelhedge report {store.root}{where}")


def demo(
    out: Annotated[Path, out_option(help=f"The folder {_OUT}")] = Path("labelhedge-demo"),
) -> None:
    """Rebuild the paper's leaderboard on Vowel: 15 losses, 7 kinds of noise, 5 folds, all tuned; a minute or two.

    Example: labelhedge demo
    """
    check_folder(out)
    check_folder(out / "report", ("index.html",))
    preset = PRESETS["demo"]
    wanted = jobs(preset.protocol, preset.datasets, preset.losses, preset.settings, range(preset.seeds))
    run_here(wanted, ResultsStore(out), Machine(), cores(), None)
    report(str(out))
    say(f"open {out / 'report' / 'index.html'} in a browser")


def _changed(
    protocol: Protocol,
    datasets: Sequence[str],
    lr: str | None,
    epochs: int | None,
    folds: int | None,
    tuning_epochs: int | None,
) -> Protocol:
    """The protocol with what the user wants otherwise."""
    images = protocol.images
    if any(info(name).images for name in datasets):
        images = replace(images, epochs=epochs or images.epochs, tuning_epochs=tuning_epochs)
    elif tuning_epochs is not None:
        raise UserError(f"--tuning-epochs is for images, and these are tables: {', '.join(datasets)}")
    return replace(
        protocol,
        learning_rates=_rates(lr) or protocol.learning_rates,
        epochs=epochs or protocol.epochs,
        folds=folds or protocol.folds,
        images=images,
    )


def _rates(text: str | None) -> tuple[float, ...]:
    with suppress(ValueError):
        rates = tuple(float(name) for name in _names(text))
        if all(0 < rate < math.inf for rate in rates):
            return rates
    raise UserError(f"--lr must be positive numbers with commas between, got {text!r}")


def _refuse_options_of_others(engine: str, options: Mapping[str, Mapping[str, object]]) -> None:
    if engine not in options:
        raise UserError(f"unknown engine {engine!r}; known engines: {', '.join(options)}")
    for other, own in options.items():
        for name, value in own.items():
            if other != engine and value is not None:
                raise UserError(f"{name} is for --engine {other}, and the engine is {engine}")


def _share_of_node(device: str | None, cpus: int, gpus: float | None) -> tuple[str, ray.Share]:
    """Where jobs train on the nodes of a cluster, which may have GPUs where this machine has none."""
    if device is None:
        device = "cuda" if gpus else "cpu"
    if device not in ("cpu", "cuda"):
        raise UserError(f"device must be cpu or cuda on Ray, got {device!r}")
    if gpus is None:
        gpus = float(device == "cuda")
    if (device == "cuda") != (gpus > 0):
        raise UserError(f"--device {device} and --gpus-per-job {gpus:g} do not go together")
    return device, ray.Share(cpus, gpus)


def _names(text: str | None, paper: Sequence[str] = ()) -> tuple[str, ...]:
    """The names in a list with commas, each once; the word 'paper' stands for several."""
    names = () if text is None else tuple(name.strip() for name in text.split(","))
    if "" in names:
        raise UserError(f"empty name in the list {text!r}")
    return tuple(dict.fromkeys(n for name in names for n in (paper if paper and name == "paper" else (name,))))


def _as_dict(job: Job, finished: bool) -> dict[str, object]:
    return {
        "protocol": job.protocol.id,
        "dataset": job.dataset,
        "loss": job.loss,
        "seed": job.seed,
        "noise": [setting.id for setting in job.settings],
        "networks": job.networks,
        "epochs": job.epochs,
        "finished": finished,
    }
