"""A stack of networks against a plain PyTorch loop over one network, and ALDR-KL against cross entropy.

    python benchmarks/stacked.py                                      # Vowel on one core
    python benchmarks/stacked.py --dataset letter --device cuda
    python benchmarks/stacked.py --dataset aloi --device cuda --no-loop

Both train the paper's protocol with validation after every epoch. The loop has its data in memory and no loader, so
that it is as fast as such a loop gets. Network-epochs per second, medians of --repeat runs that take turns.
"""

import argparse
import dataclasses
import platform
import statistics
import time

import torch
from torch import nn

import labelhedge as lh
from labelhedge.bench.jobs import Job
from labelhedge.bench.protocol import PRESETS, entry
from labelhedge.bench.rows import device_name
from labelhedge.bench.run import task, trials
from labelhedge.noise.settings import PAPER
from labelhedge.train.stacked import train


def plain_loop(data, folds, recipe, id: str, device: str, epochs: int) -> float:
    """Seconds per epoch of one network, the usual way."""
    features, classes = data.train.inputs.shape[1], data.num_classes
    layers, width = [], features
    for units in recipe.hidden:
        layers += [nn.Linear(width, units), nn.Tanh()]
        width = units
    model = nn.Sequential(*layers, nn.Linear(width, classes)).to(device)
    inputs, labels = (torch.tensor(part, device=device) for part in (data.train.inputs, data.train.labels))
    rows, held_out = (torch.tensor(part, device=device) for part in (folds[0].train, folds[0].validation))
    state = {"num_samples": len(labels)} if id == "aldr-kl" else {}
    criterion = nn.CrossEntropyLoss() if id == "ce" else lh.losses.create(id, **state).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=recipe.momentum, weight_decay=5e-3)
    best = -1.0
    for epoch in range(epochs + 1):
        if epoch == 1:  # the first epoch warms up
            synchronize(device)
            start = time.perf_counter()
        model.train()
        for batch in rows[torch.randperm(len(rows), device=device)].split(recipe.batch_size):
            index = (batch,) if state else ()
            optimizer.zero_grad()
            loss = criterion(model(inputs[batch]), labels[batch], *index)
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            accuracy = (model(inputs[held_out]).argmax(1) == labels[held_out]).double().mean().item()
        if accuracy > best:
            best, _kept = accuracy, [parameter.detach().clone() for parameter in model.parameters()]
    synchronize(device)
    return (time.perf_counter() - start) / epochs


def stack(data, folds, recipe, job: Job, device: str) -> tuple[float, float]:
    """Seconds of a whole stack, and of its epochs alone."""
    start = time.perf_counter()
    outcome = train(task(data, job), folds, trials(job), entry(job.loss).loss, recipe, device=device)
    return time.perf_counter() - start, float(outcome.seconds.sum())


def synchronize(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="vowel")
    parser.add_argument("--data", help="folder of the data sets")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--networks", type=int, default=315, help="of each loss, at most, in steps of 5 folds")
    parser.add_argument("--no-loop", dest="loop", action="store_false")
    args = parser.parse_args()
    torch.set_num_threads(1)
    data = lh.data.load(args.dataset, root=args.data)
    protocol = PRESETS["paper"].protocol
    folds = protocol.cross_validation(data, 0)
    recipe = dataclasses.replace(protocol.recipe(data), epochs=args.epochs)
    print(f"{args.dataset}, {args.epochs} epochs, {device_name(args.device)}, torch {torch.__version__}, ", end="")
    print(f"Python {platform.python_version()}, one thread, median of {args.repeat}\n")
    print("| loss | networks | all, s | epochs, s | µs per network and step | network-epochs/s | plain loop | ratio |")
    print("|---|---|---|---|---|---|---|---|")
    runs = {}
    for loss in ("ce", "aldr-kl"):
        # cross entropy has nothing to tune: as many networks, with the same labels several times
        settings = PAPER * (3 if loss == "ce" else 1)
        per_setting = len(protocol.tuned(entry(loss))) * len(folds)
        runs[loss] = Job(protocol, args.dataset, loss, 0, settings[: args.networks // per_setting]), [], []
        if args.device != "cpu":
            stack(data, folds, dataclasses.replace(recipe, epochs=1), runs[loss][0], args.device)  # compiles
    for _ in range(args.repeat):
        for loss, (job, stacked, looped) in runs.items():
            stacked.append(stack(data, folds, recipe, job, args.device))
            if args.loop:
                looped.append(plain_loop(data, folds, recipe, loss, args.device, max(3, min(20, args.epochs // 5))))
    steps = -(-len(folds[0].train) // recipe.batch_size) * args.epochs
    per_network = {}
    for loss, (job, stacked, looped) in runs.items():
        whole, epochs = (statistics.median(column) for column in zip(*stacked, strict=True))
        per_network[loss] = epochs / job.networks
        rate = job.networks * args.epochs / whole
        plain = 1 / statistics.median(looped) if looped else float("nan")
        print(
            f"| {loss} | {job.networks} | {whole:.2f} | {epochs:.2f} | {epochs / job.networks / steps * 1e6:.2f} "
            f"| {rate:,.0f} | {plain:,.1f} | {rate / plain:.1f} |",
            flush=True,
        )
    print(f"\nALDR-KL / CE per network and epoch: {per_network['aldr-kl'] / per_network['ce']:.2f}")
    if args.device != "cpu":
        print(f"peak GPU memory {torch.cuda.max_memory_allocated() / 2**30:.2f} GiB")


if __name__ == "__main__":
    main()
