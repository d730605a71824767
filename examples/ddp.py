"""ALDR-KL with λ of every sample on two processes: DistributedDataParallel, DistributedSampler and criterion.sync().

    pip install 'labelhedge[data]'
    python examples/ddp.py [--noise 0.4] [--epochs 20] [--seed 0]     # starts its two processes itself
    torchrun --nproc-per-node 2 examples/ddp.py                       # the same, as on a cluster

Digits (UCI, CC BY 4.0, E. Alpaydin and C. Kaynak): 8 × 8 images, 1,617 for training and 180 for testing, 40 % random
labels. The criterion stays outside DistributedDataParallel, which would overwrite its λ by those of the first process.
Each process writes λ of the samples it has seen; sync() merges them after each epoch, as the next one deals the samples
out anew.
"""

import argparse
import os

import torch
import torch._dynamo  # before there is a process group: pytorch issue 190489
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import labelhedge as lh


def train(criterion: lh.losses.Loss, data: TensorDataset, epochs: int, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    network = DistributedDataParallel(nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10)))
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
    sampler = DistributedSampler(data, seed=seed)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for rows, labels, index in DataLoader(data, batch_size=32, sampler=sampler):
            optimizer.zero_grad()
            logits = network(rows)
            loss = criterion(logits, labels, index)
            loss.backward()
            optimizer.step()
        criterion.sync()
    return network.module


def work(rank: int, args: argparse.Namespace) -> None:
    """What each process does."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=int(os.environ["WORLD_SIZE"]))
    digits = lh.data.load("digits", seed=args.seed)
    noise = lh.noise.uniform(digits.train.labels, args.noise, num_classes=10, seed=args.seed)
    rows, labels = torch.from_numpy(digits.train.inputs), torch.from_numpy(noise.labels)
    test_rows, test_labels = torch.from_numpy(digits.test.inputs), torch.from_numpy(digits.test.labels)
    adaptive = lh.ALDRKLLoss(num_samples=len(rows))
    for name, criterion in {"cross entropy": lh.CELoss(), "ALDR-KL": adaptive}.items():
        network = train(criterion, TensorDataset(rows, labels, torch.arange(len(rows))), args.epochs, args.seed)
        accuracy = (network(test_rows).argmax(-1) == test_labels).double().mean()
        if rank == 0:
            print(f"{name:<15} test accuracy {accuracy:.1%}", flush=True)

    everyone = [torch.empty_like(adaptive.lam) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, adaptive.lam)
    if rank == 0:
        agree = all(torch.equal(lam, adaptive.lam) for lam in everyone)
        wrong = torch.from_numpy(noise.flipped)
        print(f"\n{len(everyone)} processes, {'the same' if agree else 'different'} λ for all {len(rows):,} samples")
        print(
            f"mean λ of right labels {adaptive.lam[~wrong].mean():.3f}, of wrong ones {adaptive.lam[wrong].mean():.3f}"
        )
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--noise", type=float, default=0.4, help="share of labels drawn at random, 0 to 1 (0.4)")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if "RANK" in os.environ:  # set by torchrun
        work(int(os.environ["RANK"]), args)
    else:
        port = str(dist.TCPStore("localhost", 0, is_master=True).port)  # one that is free
        os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": port, "WORLD_SIZE": "2"}
        mp.spawn(work, (args,), nprocs=2)


if __name__ == "__main__":
    main()
