"""``labelhedge train``: one network on images with wrong labels."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from labelhedge import losses
from labelhedge._errors import UserError
from labelhedge._foreign import plain
from labelhedge.bench.images import ImageSettings
from labelhedge.bench.jobs import Job
from labelhedge.bench.one import Extras, is_finished, train_one
from labelhedge.bench.protocol import Protocol, entry, setting
from labelhedge.bench.run import Machine, noisy_labels
from labelhedge.cli.data import Root
from labelhedge.cli.device import chosen_device
from labelhedge.cli.out import check_folder, out_option
from labelhedge.cli.terminal import print_json, print_table, progress, say
from labelhedge.data import Dataset, load, names
from labelhedge.data._progress import Progress
from labelhedge.models.resnet import MODELS
from labelhedge.results import ResultsStore
from labelhedge.results import load as load_results
from labelhedge.train._distributed import joined, place
from labelhedge.train.augment import Augmentation


def train(
    dataset: Annotated[str, typer.Option(help="A data set of images, or a folder with train/CLASS and test/CLASS.")],
    model: Annotated[str, typer.Option(help=f"{' or '.join(MODELS)}.")] = "resnet18",
    loss: Annotated[str, typer.Option(help="A loss; @softplus or @l1 behind it normalises the logits.")] = "aldr-kl",
    param: Annotated[list[str] | None, typer.Option(help="A hyperparameter of the loss, such as lambda0=0.1.")] = None,
    noise: Annotated[str, typer.Option(help="To add: u0.3, cd0.1 …; or a set of human labels: worse …")] = "clean",
    lr: Annotated[float, typer.Option(help="Learning rate.")] = 0.1,
    weight_decay: Annotated[float, typer.Option(help="Weight decay.")] = 5e-4,
    momentum: Annotated[float, typer.Option(min=0, help="Momentum.")] = 0.9,
    nesterov: Annotated[bool, typer.Option("--nesterov", help="Nesterov's momentum.")] = False,
    epochs: Annotated[int, typer.Option(min=1, help="Epochs.")] = 30,
    decay: Annotated[float, typer.Option(help="What the learning rate is multiplied by.")] = 0.1,
    decay_after: Annotated[
        str | None, typer.Option(help="After which epochs: 10,20 or every [default: a third and two thirds of them]")
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Of all processes together.")] = 64,
    augment: Annotated[
        str | None,
        typer.Option(help="crop=4,flip,shift=0.1,jitter=0.2, some of them, or none [default: crop and flip]"),
    ] = None,
    resize: Annotated[int | None, typer.Option(min=1, help="Shorter side of images of many sizes.")] = None,
    image_size: Annotated[int | None, typer.Option(min=1, help="What is cut out of them [default: all]")] = None,
    width: Annotated[int, typer.Option(min=1, help="Channels of the network's first stage.")] = 64,
    validation: Annotated[
        float, typer.Option(help="Share of the training images that choose the epoch; 0: none.")
    ] = 0.2,
    weights: Annotated[
        Path | None, typer.Option(help="A file of weights to start from, such as torchvision's.")
    ] = None,
    exact: Annotated[
        bool, typer.Option("--exact", help="Keep nothing of every image: ALDR-KL with the exact λ.")
    ] = False,
    seed: Annotated[
        int, typer.Option(min=0, max=2**63 - 1, help="Of noise, validation images, starting weights and order.")
    ] = 0,
    out: Annotated[Path, out_option(help="The folder for results, checkpoint and weights.")] = Path("trained"),
    device: Annotated[str | None, typer.Option(help="cpu or cuda [default: cuda where there is one]")] = None,
    checkpoint_every: Annotated[float, typer.Option(min=0, help="Seconds; written after an epoch.")] = 60.0,
    root: Root = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Train one network on images whose labels are partly wrong.

    Example: labelhedge train --dataset cifar-10n --noise worse --loss aldr-kl --out worse

    On several GPUs: torchrun --nproc-per-node 4 -m labelhedge train --dataset cifar-10n --noise worse --out worse

    The weights with the highest accuracy on validation images, whose labels may be wrong too, are tested and kept in
    weights.pt; results are those of `labelhedge bench`. Safe to interrupt: the same command goes on.
    """
    check_folder(out)
    _check_numbers({"--lr": lr, "--weight-decay": weight_decay, "--momentum": momentum, "--decay": decay})
    if nesterov and not momentum:
        raise UserError("--nesterov needs a --momentum above 0")
    extras = Extras(_params(loss, param or []), _exact(loss, exact), weights, checkpoint_every)
    images = ImageSettings(
        model=_known_model(model),
        width=width,
        epochs=epochs,
        decay_after=_decay_after(decay_after, epochs),
        decay=decay,
        nesterov=nesterov,
        image_size=image_size,
        resize=resize,
        augmentation=_augmentation(augment),
    )
    splits = _splits(validation)
    protocol = Protocol(
        "train",
        learning_rates=(lr,),
        weight_decays=(weight_decay,),
        batch_size=batch_size,
        momentum=momentum,
        splits=splits,
        folds=1,
        grids=False,
        images=images,
    )
    wanted = setting(noise)
    with joined(chosen_device(device)) as where:
        with _progress_of_first() as tell:
            loaded = _named(dataset, load(dataset, seed=seed, root=root, progress=tell))
        if not loaded.info.images:
            raise UserError(f"{dataset} is a table; labelhedge bench trains on those")
        job = Job(protocol, loaded.info.name, loss, seed, (wanted,))
        store = ResultsStore(out)
        if is_finished(job, loaded, extras, store):
            _say(f"{out} has this training already")
        else:
            _say(_plan(job, loaded))
            try:
                with _alone(store), _progress_of_first() as tell:
                    _train(job, loaded, extras, store, Machine(where), tell)
            except KeyboardInterrupt:
                kept = "the same command goes on from the checkpoint"
                if not (out / "checkpoint").exists():
                    kept = "there is no checkpoint yet, so the same command starts anew (--checkpoint-every)"
                _say(f"interrupted; {kept}")
                raise
        if place()[0] == 0:
            _tell_result(store, job, as_json)


def _train(job: Job, loaded: Dataset, extras: Extras, store: ResultsStore, machine: Machine, tell: Progress) -> None:
    """Train, and show how far it is."""
    epochs = job.protocol.images.epochs
    total, done = epochs * _images_per_epoch(job, loaded), 0

    def advance(newly: int) -> None:
        nonlocal done
        done += newly
        tell("training", min(done, total - 1), total, "images")

    def reading(done: int, total: int) -> None:
        tell("reading images", done, total, "images")

    def epoch_ended(epoch: int, losses: Sequence[float], accuracies: Sequence[float]) -> None:
        nonlocal done
        done = epoch * total // epochs  # a training that goes on has some epochs behind it
        [loss], [accuracy] = losses, accuracies
        _say(f"epoch {epoch} of {epochs}: loss {loss:.4f}" + f", validation top-1 {accuracy:.4f}" * (accuracy >= 0))
        if not math.isfinite(loss):
            raise UserError(f"the loss is {loss} after epoch {epoch}; lower --lr")

    train_one(job, loaded, extras, store, machine, advance, reading, epoch_ended)
    tell("training", total, total, "images")


@contextmanager
def _alone(store: ResultsStore) -> Iterator[None]:
    """Keep other trainings out of the folder; the first of several processes does it for all."""
    if place()[0] > 0:
        yield
        return
    with store.claim_all() as ours:
        if not ours:
            raise UserError(f"another labelhedge train writes into {store.root}; wait for it, or choose another --out")
        yield


@contextmanager
def _progress_of_first() -> Iterator[Progress]:
    """Progress of the first process; the others say nothing."""
    if place()[0] > 0:
        yield lambda task, done, total, unit: None
        return
    with progress() as tell:
        yield tell


def _known_model(name: str) -> str:
    if name not in MODELS:
        raise UserError(f"unknown model {name!r}; known models: {', '.join(MODELS)}")
    return name


def _params(loss: str, given: list[str]) -> dict[str, float]:
    spec = losses.get(entry(loss).loss)
    params = {}
    for text in given:
        name, _, value = text.partition("=")
        if name not in spec.defaults:
            raise UserError(f"{loss} has no hyperparameter {name!r}; it has: {', '.join(spec.defaults) or 'none'}")
        try:
            number = float(value)
        except ValueError:
            raise UserError(f"a hyperparameter is given as NAME=NUMBER, got {text!r}") from None
        spec.check(name, number)
        params[name] = int(number) if spec.domains[name].integer else number
    return params


def _exact(loss: str, wanted: bool) -> bool:
    if wanted and not losses.get(entry(loss).loss).state:
        raise UserError(f"--exact is for a loss that keeps something of every image, and {loss} keeps nothing")
    return wanted


def _check_numbers(given: dict[str, float]) -> None:
    for name, value in given.items():
        if not 0 <= value < math.inf:
            raise UserError(f"{name} must be a number of at least 0, got {value}")


def _named(dataset: str, loaded: Dataset) -> Dataset:
    """A folder that is called like a known data set gets another name: it is not that data set."""
    if dataset in names() or loaded.info.name not in names():
        return loaded
    return replace(loaded, info=replace(loaded.info, name=f"{loaded.info.name}-folder"))


def _decay_after(text: str | None, epochs: int) -> tuple[float, ...] | None:
    """As shares of the epochs; None: after every epoch."""
    if text is None:
        return 1 / 3, 2 / 3
    if text == "every":
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and 1 <= int(part) <= epochs for part in parts):
        raise UserError(f"--decay-after must be epochs in 1 … {epochs} with commas between, or every, got {text!r}")
    return tuple(int(part) / epochs for part in parts)


def _augmentation(text: str | None) -> Augmentation | None:
    if text is None:
        return None
    chosen: dict[str, Any] = {}
    kinds = {"crop": int, "flip": bool, "shift": float, "jitter": float}
    for part in [] if text == "none" else text.split(","):
        name, _, value = part.strip().partition("=")
        if name not in kinds or (name == "flip") == bool(value):
            raise UserError(f"--augment takes crop=4, flip, shift=0.1 and jitter=0.2, or none, got {part!r}")
        try:
            chosen[name] = kinds[name](value or True)
        except ValueError:
            raise UserError(f"--augment {name} must be a number, got {value!r}") from None
    return Augmentation(**chosen)


def _splits(validation: float) -> int:
    if validation == 0:
        return 1
    parts = round(1 / validation) if 0 < validation <= 0.5 else 0
    if not abs(validation * parts - 1) <= 0.02:  # 0.33 is a third; a number that is none has no parts
        raise UserError(f"--validation must be 0, 1/2, 1/3, 1/4 and so on, as a number such as 0.25, got {validation}")
    return parts


def _images_per_epoch(job: Job, loaded: Dataset) -> int:
    count = len(job.protocol.cross_validation(loaded, job.seed)[0].train)
    return max(count // job.protocol.batch_size, 1) * min(job.protocol.batch_size, count)


def _say(line: str) -> None:
    """A line for people, of the first process."""
    if place()[0] == 0:
        say(line)


def _plan(job: Job, loaded: Dataset) -> str:
    fold = job.protocol.cross_validation(loaded, job.seed)[0]
    wrong = float(noisy_labels(loaded, job.settings[0], job.seed).flipped.mean())
    processes = place()[1]
    return (
        f"{job.protocol.images.model} on {plain(loaded.info.name)}: {len(fold.train):,} images to train, "
        f"{len(fold.validation):,} to validate, {loaded.num_classes} classes, "
        + f"{wrong:.1%} of the labels changed, " * (wrong > 0)
        + job.loss
        + f", {processes} processes" * (processes > 1)
    )


def _tell_result(store: ResultsStore, job: Job, as_json: bool) -> None:
    networks = load_results(store.root)
    row = networks[(networks["protocol"] == job.protocol.id) & (networks["loss"] == job.loss)]
    row = row[(row["noise"] == job.settings[0].kind) & (row["rate"] == job.settings[0].rate)]
    found = row[(row["seed"] == job.seed) & (row["dataset"] == job.dataset)].iloc[0].to_dict()
    if as_json:
        print_json({name: None if value != value else value for name, value in found.items()})
        return
    columns = ["best_epoch", "val_top1", *(f"test_top{k}" for k in range(1, 6))]
    cells = ["" if found[name] != found[name] else f"{found[name]:.4f}" for name in columns[1:]]
    print_table(columns, [[str(found["best_epoch"]), *cells]], numbers=columns)
    say(f"weights are in {Path(store.root) / 'weights.pt'}")
