"""ResNet18 on 32×32 images, end to end: ALDR-KL against cross entropy, one network and several, and plain PyTorch.

    python benchmarks/images.py                      # an H200, about five minutes
    python benchmarks/images.py --device cpu --images 256 --width 8 --batch 32 --epochs 1 --repeat 1

50,000 random images with ten classes lie on the GPU as uint8; a batch is cut at random out of a border of 4 pixels and
mirrored at random. Images per second of whole epochs: shuffling, drawing, augmentation, network, loss, optimiser. Plain
PyTorch is the same network in bfloat16 with channels last, torch.compile's CUDA graphs, fused SGD, and no augmentation.
Medians of --repeat runs that take turns, and of the ratios to cross entropy's run of the same turn.
"""

import argparse
import multiprocessing
import platform
import statistics
import time
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F

import labelhedge as lh
from labelhedge.bench.rows import device_name
from labelhedge.models.resnet import resnet18
from labelhedge.train._network import Network
from labelhedge.train._training import Data, Training
from labelhedge.train.augment import Augmentation
from labelhedge.train.single import ImageRecipe, ImageTask
from labelhedge.train.stacked import Fold, Trial


def random_task(count: int) -> ImageTask:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)
    labels = rng.integers(0, 10, count)
    return ImageTask(images, labels[None], labels, images[:16], labels[:16], 10)


class SpreadNetwork(Network):
    """One whose samples are spread over an index of so many."""

    def __init__(self, samples: int, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.criterion = lh.ALDRKLLoss(num_samples=samples).to(self.device)
        self.apart = samples // len(self.labels)

    def _loss(self, logits, rows):
        return self.criterion(logits, self.labels[rows], rows * self.apart)


class Runner:
    """A training whose epochs can be timed one by one."""

    def __init__(self, data, recipe, loss: str, networks: int, kind=Network, **options):
        rows = np.arange(len(data.clean))
        setups = [(Fold(rows, rows[:0], seed), Trial(0.01, 5e-3, {})) for seed in range(networks)]
        self.training = Training(data, setups, loss, recipe, options, None, None, torch.float32, kind)
        self.step = self.training._recorded()
        self.epoch = 0

    def seconds(self) -> float:
        start = self.training._now()
        self.training._train_epoch(self.epoch, self.step, lambda count: None)
        for network in self.training.networks:
            network.end(self.epoch)
        self.epoch += 1
        return self.training._now() - start

    @property
    def state(self) -> int:
        """Bytes of λ of one network."""
        return sum(buffer.nbytes for buffer in self.training.networks[0].criterion.buffers())


class Plain:
    """The same network as people train it: torch.compile with CUDA graphs, bfloat16, channels last."""

    state = 0

    def __init__(self, task: ImageTask, recipe: ImageRecipe, device: str):
        self.images = torch.from_numpy(task.images).to(device).permute(0, 3, 1, 2)
        self.labels = torch.from_numpy(task.clean).to(device)
        self.model = resnet18(task.num_classes, width=recipe.width).to(device, memory_format=torch.channels_last)
        self.forward = torch.compile(self.model, mode="reduce-overhead") if device == "cuda" else self.model
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-3, fused=True)
        self.batch_size, self.device = recipe.batch_size, device

    def seconds(self) -> float:
        if self.device == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        order = torch.randperm(len(self.labels), device=self.device)
        for rows in order[: len(order) // self.batch_size * self.batch_size].split(self.batch_size):
            with torch.autocast(self.device, torch.bfloat16, enabled=self.device == "cuda"):
                loss = F.cross_entropy(self.forward(self.images[rows] / 255), self.labels[rows])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        if self.device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - start


def print_rates(runners: dict, batch: int, networks: int, images: int, args: argparse.Namespace) -> None:
    """Time an epoch of each in turn; the first turn warms up."""
    seconds = {name: [] for name in runners}
    for turn in range(args.repeat + 1):
        for name, runner in runners.items():
            taken = sum(runner.seconds() for _ in range(args.epochs))
            if turn:
                seconds[name].append(taken)
    for name, times in seconds.items():
        rate = images * args.epochs / statistics.median(times)
        ratio = statistics.median(own / ce for own, ce in zip(times, seconds["ce"], strict=True))
        print(f"| {batch} | {networks} | {name} | {rate:,.0f} | {ratio:.3f} | {runners[name].state:,} |", flush=True)


def measure(batch: int, args: argparse.Namespace) -> None:
    """Print a line for each setting with this batch size."""
    task = random_task(args.images)
    recipe = ImageRecipe(width=args.width, batch_size=batch, augmentation=Augmentation(crop=4, flip=True))
    data = Data(task, recipe, torch.device(args.device))
    seen = args.images // batch * batch
    runners = {
        "ce": Runner(data, recipe, "ce", 1),
        "aldr-kl": Runner(data, recipe, "aldr-kl", 1),
        "aldr-kl, exact λ": Runner(data, recipe, "aldr-kl", 1, num_samples=None),
        **{
            f"aldr-kl, index of {samples:,}": Runner(data, recipe, "aldr-kl", 1, partial(SpreadNetwork, samples))
            for samples in (args.images, 100_000_000)
        },
        "ce, plain PyTorch without augmentation": Plain(task, recipe, args.device),
    }
    print_rates(runners, batch, 1, seen, args)
    del runners
    for networks in args.networks if args.device == "cuda" and batch == args.batch[0] else ():
        several = {loss: Runner(data, recipe, loss, networks) for loss in ("ce", "aldr-kl")}
        print_rates(several, batch, networks, networks * seen, args)
        del several


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--images", type=int, default=50_000)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--batch", type=int, nargs="+", default=[64, 512])
    parser.add_argument("--networks", type=int, nargs="*", default=[2, 3, 5], help="at once, at the first batch size")
    parser.add_argument("--epochs", type=int, default=2, help="of one timed run")
    parser.add_argument("--repeat", type=int, default=5)
    args = parser.parse_args()
    print(f"{device_name(args.device)}, torch {torch.__version__}, Python {platform.python_version()}\n")
    print(
        "| batch | networks at once | loss | images/s | epoch / CE's | bytes of λ |\n|---|---|---|---|---|---|",
        flush=True,
    )
    for batch in args.batch:  # in a process of its own: CUDA graphs of torch.compile and ours do not outlive each other
        process = multiprocessing.get_context("spawn").Process(target=measure, args=(batch, args))
        process.start()
        process.join()
        if process.exitcode:
            raise SystemExit(f"batch {batch} ended with exit code {process.exitcode}")


if __name__ == "__main__":
    main()
