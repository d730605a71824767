"""Train the same network on Letter with 40 % random labels, once with cross entropy and once with ALDR-KL.

    python examples/noisy_labels.py [--noise 0.4] [--epochs 40] [--seed 0]

Letter (UCI, CC BY 4.0, P. Frey and D. Slate): 16 features of printed capital letters, 26 classes, 13,500 rows for
training and 1,500 for testing. A label is replaced by a random one with the given probability. Each loss has its
learning rate chosen on held-out rows whose labels are as noisy as the others; the test labels are clean and used once.
"""

import argparse
import time

import torch
from torch import Tensor, nn

import labelhedge as lh

LEARNING_RATES = (0.1, 0.3)
LOSSES = {"cross entropy": nn.CrossEntropyLoss, "ALDR-KL": lh.ALDRKLLoss}  # the one-line change


def train(criterion: nn.Module, rows: Tensor, labels: Tensor, rate: float, epochs: int, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Linear(16, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 26))
    optimizer = torch.optim.SGD(network.parameters(), lr=rate, momentum=0.9)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [epochs // 2, epochs * 3 // 4])
    for _ in range(epochs):
        for batch in torch.randperm(len(rows)).split(128):
            optimizer.zero_grad()
            criterion(network(rows[batch]), labels[batch]).backward()
            optimizer.step()
        schedule.step()
    return network


@torch.no_grad()
def accuracy(network: nn.Module, rows: Tensor, labels: Tensor) -> float:
    return (network(rows).argmax(-1) == labels).double().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--noise", type=float, default=0.4, help="share of labels drawn at random, 0 to 1 (0.4)")
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if not 0 <= args.noise <= 1:
        parser.error(f"--noise must be between 0 and 1, got {args.noise}")
    if args.epochs < 1:
        parser.error(f"--epochs must be at least 1, got {args.epochs}")

    letter = lh.data.load("letter", seed=args.seed)
    noise = lh.noise.uniform(letter.train.labels, args.noise, num_classes=26, seed=args.seed)
    rows, noisy = torch.from_numpy(letter.train.inputs), torch.from_numpy(noise.labels)
    test_rows, test_labels = torch.from_numpy(letter.test.inputs), torch.from_numpy(letter.test.labels)
    wrong = noise.flipped.mean()
    print(f"Letter, {len(rows):,} rows, {wrong:.1%} of the labels wrong, {args.epochs} epochs, seed {args.seed}\n")
    held_out, kept = torch.arange(len(rows)).split([2700, len(rows) - 2700])  # the rows are in random order
    print(f"{'loss':<15}{'learning rate':>14}{'noisy held-out':>16}{'clean test':>12}{'seconds':>9}")
    for name, loss in LOSSES.items():
        start = time.perf_counter()
        runs = []
        for rate in LEARNING_RATES:
            network = train(loss(), rows[kept], noisy[kept], rate, args.epochs, args.seed)
            runs.append((accuracy(network, rows[held_out], noisy[held_out]), rate, network))
        validation, rate, network = max(runs, key=lambda run: run[0])
        test = accuracy(network, test_rows, test_labels)
        seconds = time.perf_counter() - start
        print(f"{name:<15}{rate:>14}{validation:>16.1%}{test:>12.1%}{seconds:>9.0f}", flush=True)


if __name__ == "__main__":
    main()
