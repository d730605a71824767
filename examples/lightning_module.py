"""A small network in Lightning on digits with 40 % random labels, with cross entropy and with ALDR-KL.

    pip install 'labelhedge[data,lightning]'
    python examples/lightning_module.py [--noise 0.4] [--epochs 20] [--seed 0]

Digits (UCI, CC BY 4.0, E. Alpaydin and C. Kaynak): 8 × 8 images, 1,617 for training and 180 for testing. ALDR-KL runs
as Algorithm 1, with λ of every training sample; the callback logs it and puts it into checkpoints. Nothing is
downloaded; the test labels are clean. One small data set and no tuning: it shows how to call the loss, not which is
best.
"""

import argparse
import logging
import warnings

import lightning.pytorch as pl
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import labelhedge as lh
from labelhedge.integrations.lightning import PerSampleCallback

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore", module="lightning")
warnings.filterwarnings("ignore", message=".*LeafSpec")  # Lightning 2.6 with torch 2.13


class Classifier(pl.LightningModule):
    def __init__(self, criterion: lh.losses.Loss) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
        self.criterion = criterion

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        rows, labels, index = batch  # the index for a loss that keeps state of every sample; others take no notice
        return self.criterion(self.network(rows), labels, index)

    def test_step(self, batch: list[Tensor], batch_idx: int) -> None:
        rows, labels = batch
        self.log("accuracy", (self.network(rows).argmax(-1) == labels).float().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.network.parameters(), lr=1e-2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--noise", type=float, default=0.4, help="share of labels drawn at random, 0 to 1 (0.4)")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    torch.set_num_threads(1)  # the network is too small for more
    digits = lh.data.load("digits", seed=args.seed)
    noise = lh.noise.uniform(digits.train.labels, args.noise, num_classes=10, seed=args.seed)
    rows, labels = torch.from_numpy(digits.train.inputs), torch.from_numpy(noise.labels)
    test = TensorDataset(torch.from_numpy(digits.test.inputs), torch.from_numpy(digits.test.labels))
    print(f"{len(rows):,} images, {noise.flipped.mean():.1%} of the labels wrong, {args.epochs} epochs\n")

    train = TensorDataset(rows, labels, torch.arange(len(rows)))
    adaptive = lh.ALDRKLLoss(num_samples=len(rows))
    runs = {"cross entropy": (lh.CELoss(), []), "ALDR-KL": (adaptive, [PerSampleCallback(adaptive)])}
    for name, (criterion, callbacks) in runs.items():
        torch.manual_seed(args.seed)
        quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False}
        trainer = pl.Trainer(
            accelerator="cpu", max_epochs=args.epochs, callbacks=callbacks, enable_checkpointing=False, **quiet
        )
        module = Classifier(criterion)
        trainer.fit(module, DataLoader(train, batch_size=64, shuffle=True))
        logged = "".join(f", {key} {value:.3f}" for key, value in trainer.logged_metrics.items())
        accuracy = trainer.test(module, DataLoader(test, batch_size=len(test)), verbose=False)[0]["accuracy"]
        print(f"{name:<15} test accuracy {accuracy:.1%}{logged}", flush=True)

    wrong = torch.from_numpy(noise.flipped)
    print(f"\nmean λ of right labels {adaptive.lam[~wrong].mean():.3f}, of wrong ones {adaptive.lam[wrong].mean():.3f}")


if __name__ == "__main__":
    main()
