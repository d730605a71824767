"""Lightning with a small network: λ, what is logged, checkpoints, two processes."""

import os
import subprocess
import sys

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.strategies import DDPStrategy
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import labelhedge as lh
from labelhedge.integrations import lightning as integration
from labelhedge.integrations.lightning import PerSampleCallback

SAMPLES, CLASSES = 12, 4
ROWS = torch.randn(SAMPLES, 3, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(SAMPLES) % CLASSES

pytestmark = [
    # hints for larger trainings, such as more workers
    pytest.mark.filterwarnings("ignore::lightning.fabric.utilities.warnings.PossibleUserWarning"),
    # Lightning 2.6 with torch 2.13
    pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec.. is deprecated:FutureWarning"),
]


class Classifier(pl.LightningModule):
    """Validates with the loss too, without an index, as the validation samples have none."""

    def __init__(self, criterion, rate=0.5, inside=False):
        super().__init__()
        torch.manual_seed(1)
        self.network, self.rate = nn.Linear(3, CLASSES), rate
        if inside:
            self.criterion = criterion
        self.loss = [criterion]  # in a list it is not a submodule
        self.inside, self.shares = inside, []

    def training_step(self, batch, _):
        rows, labels, index = batch
        return self.loss[0](self.network(rows), labels, index)

    def validation_step(self, batch, _):
        rows, labels, _ = batch
        self.shares.append((self.loss[0](self.network(rows), labels), self.network(rows), labels))

    def configure_optimizers(self):
        return torch.optim.SGD(self.network.parameters(), lr=self.rate, momentum=0.9)


def batches(shuffle=False):
    return DataLoader(TensorDataset(ROWS, LABELS, torch.arange(SAMPLES)), batch_size=5, shuffle=shuffle)


def trainer(folder, criterion, epochs=2, **options):
    defaults = {"enable_checkpointing": False, "devices": 1, "logger": False}
    callbacks = [*options.pop("callbacks", ()), PerSampleCallback(criterion)]
    return pl.Trainer(
        accelerator="cpu",
        max_epochs=epochs,
        callbacks=callbacks,
        default_root_dir=folder,
        enable_progress_bar=False,
        enable_model_summary=False,
        **defaults | options,
    )


def losses(**options):
    return lh.ALDRKLLoss(num_samples=SAMPLES, **options)


def test_lambda_is_written_for_the_right_samples_and_logged(tmp_path):
    criterion = losses()
    module, run = Classifier(criterion, rate=0.0), trainer(tmp_path, criterion, epochs=1)
    run.fit(module, batches(shuffle=True), batches())
    expected = lh.functional.aldr_lambda(module.network(ROWS), LABELS, start=torch.ones(SAMPLES))
    assert expected.unique().numel() == SAMPLES
    torch.testing.assert_close(criterion.lam, expected)
    logged = run.logged_metrics
    torch.testing.assert_close(logged["lam_mean"], expected.mean())
    ordered = expected.sort().values
    torch.testing.assert_close(torch.stack([logged["lam_p10"], logged["lam_p90"]]), ordered[[1, 9]])


def test_validation_takes_the_exact_lambda(tmp_path):
    criterion = losses()
    module = Classifier(criterion)
    trainer(tmp_path, criterion).fit(module, batches(), batches())
    assert len(module.shares) >= 6
    for loss, logits, labels in module.shares:
        torch.testing.assert_close(loss, lh.functional.aldr_kl(logits, labels))
    assert criterion.training


def test_tgce_logs_the_share_it_keeps(tmp_path):
    criterion = lh.TGCELoss(num_samples=SAMPLES)
    criterion.keep[:3] = False
    run = trainer(tmp_path, criterion)
    run.fit(Classifier(criterion), batches())
    assert run.logged_metrics == {"keep_mean": 0.75}


@pytest.mark.parametrize("inside", [False, True], ids=["outside the module", "in the module"])
@pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty:UserWarning")
def test_resumed_training_is_uninterrupted_training(inside, tmp_path):
    def fit(criterion, checkpoint=None):
        module = Classifier(criterion, inside=inside)
        saver = ModelCheckpoint(tmp_path, "{step}", save_top_k=-1)
        run = trainer(tmp_path, criterion, epochs=3, callbacks=[saver], enable_checkpointing=True)
        run.fit(module, batches(), ckpt_path=checkpoint)
        return module.network.weight

    whole, resumed = losses(), losses()
    weight = fit(whole)
    path = tmp_path / "step=3.ckpt"  # of 9
    saved = torch.load(path, weights_only=True)
    assert ("criterion.lam" in saved["state_dict"]) == inside
    assert ("PerSampleCallback" in saved["callbacks"]) != inside
    assert torch.equal(fit(resumed, path), weight)
    assert torch.equal(resumed.lam, whole.lam)


class WriteLambda(pl.Callback):
    def on_train_end(self, trainer, pl_module):
        torch.save(pl_module.loss[0].lam, f"{trainer.default_root_dir}/{pl_module.inside}{trainer.global_rank}.pt")


def fit_on_two_processes(folder):
    for inside in (False, True):
        criterion = losses()
        strategy = DDPStrategy(start_method="fork", process_group_backend="gloo")
        run = trainer(folder, criterion, epochs=1, strategy=strategy, devices=2, callbacks=[WriteLambda()])
        run.fit(Classifier(criterion, rate=0.0, inside=inside), batches(shuffle=True))


def test_two_processes_agree(tmp_path):
    code = f"from {__name__} import *; fit_on_two_processes({str(tmp_path)!r})"  # forks, so from a new process
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300, capture_output=True, env=environment)
    expected = lh.functional.aldr_lambda(Classifier(None).network(ROWS), LABELS, start=torch.ones(SAMPLES))
    for name in ("False0", "False1", "True0", "True1"):  # each has seen half of the samples
        torch.testing.assert_close(torch.load(tmp_path / f"{name}.pt"), expected, msg=name)


def test_a_loss_without_values_is_refused():
    with pytest.raises(ValueError, match=r"criterion keeps nothing: create it with ALDRKLLoss\(num_samples=N\)"):
        PerSampleCallback(lh.ALDRKLLoss())


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "lightning", None)
    monkeypatch.delitem(sys.modules, "lightning.pytorch")
    monkeypatch.delitem(sys.modules, integration.__name__)
    with pytest.raises(ImportError, match=r"lightning is not installed; get it with: pip install 'labelhedge\[lightni"):
        __import__(integration.__name__)
