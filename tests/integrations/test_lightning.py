"""Lightning with a small network: state of any kind, what is logged, checkpoints, two processes."""

import os
import subprocess
import sys

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.plugins import MixedPrecision
from lightning.pytorch.strategies import DDPStrategy
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import labelhedge as lh
from labelhedge.integrations import lightning as integration
from labelhedge.integrations._own_steps import OwnSteps
from labelhedge.integrations.lightning import PerSampleCallback
from tests.own_losses import DoubtLoss, RunningMeanLoss

SAMPLES, CLASSES = 12, 4
ROWS = torch.randn(SAMPLES, 3, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(SAMPLES) % CLASSES
STATEFUL = {
    "λ": lambda: lh.ALDRKLLoss(num_samples=SAMPLES),
    "mask": lambda: lh.TGCELoss(k=0.2, num_samples=SAMPLES),
    "running mean": lambda: RunningMeanLoss(num_samples=SAMPLES, num_classes=CLASSES),
    "learnt": lambda: DoubtLoss(num_samples=SAMPLES, num_classes=CLASSES),
}
"""Losses that keep a number, a truth value and K numbers per sample, and that learn."""

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


def batches(shuffle=False, size=5):
    return DataLoader(TensorDataset(ROWS, LABELS, torch.arange(SAMPLES)), batch_size=size, shuffle=shuffle)


def looks_after(criterion, **options):
    return PerSampleCallback(
        criterion, review_after=[1], predict=lambda module, batch: (module.network(batch[0]), *batch[1:]), **options
    )


def trainer(folder, *criteria, epochs=2, **options):
    defaults = {"enable_checkpointing": False, "devices": 1, "logger": False}
    callbacks = [*options.pop("callbacks", ()), *map(looks_after, criteria)]
    return pl.Trainer(
        accelerator="cpu",
        max_epochs=epochs,
        callbacks=callbacks,
        default_root_dir=folder,
        enable_progress_bar=False,
        enable_model_summary=False,
        **defaults | options,
    )


def assert_same_state(criterion, expected, **tolerance):
    assert criterion.state_dict().keys() == expected.keys()
    for name, value in criterion.state_dict().items():
        torch.testing.assert_close(value, expected[name], msg=name, **tolerance)


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
    run = trainer(tmp_path, callbacks=[PerSampleCallback(criterion)])
    run.fit(Classifier(criterion), batches())
    assert run.logged_metrics == {"keep_mean": 0.75}


def test_review_after_an_epoch(tmp_path):
    criterion = STATEFUL["mask"]()
    module = Classifier(criterion)
    module.network = nn.Sequential(module.network, nn.Dropout(0.5).eval(), nn.Dropout(0.5))
    trainer(tmp_path, criterion, epochs=1).fit(module, batches(shuffle=True))
    assert [layer.training for layer in module.network] == [True, False, True]
    expected = module.network.eval()(ROWS).softmax(-1)[torch.arange(SAMPLES), LABELS] > 0.2
    assert 0 < expected.sum() < SAMPLES
    assert torch.equal(criterion.keep, expected)


@pytest.mark.parametrize("scaled", [False, True])
def test_what_a_loss_learns_descends_as_it_declares(scaled, tmp_path):
    criterion = STATEFUL["learnt"]()
    module = Classifier(criterion)
    optimizer = torch.optim.SGD(module.network.parameters(), lr=0.5, momentum=0.9)
    own = torch.optim.SGD(criterion.parameter_groups())
    for _ in range(3):
        criterion(module.network(ROWS), LABELS, torch.arange(SAMPLES)).backward()
        for descent in (optimizer, own):
            descent.step()
            descent.zero_grad()
    start = STATEFUL["learnt"]().state_dict()
    assert all((value - start[name]).abs().max() > 1e-3 for name, value in criterion.state_dict().items())

    plugins = [MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu", init_scale=64.0))] if scaled else []
    found = STATEFUL["learnt"]()
    run = trainer(tmp_path, found, epochs=3, plugins=plugins, accumulate_grad_batches=2)
    run.fit(Classifier(found), batches(size=6))
    for name, value in criterion.state_dict().items():
        torch.testing.assert_close(found.state_dict()[name], value, rtol=0, atol=3e-4 if scaled else 1e-6, msg=name)


def test_without_gradients_nothing_is_learnt():
    criterion = STATEFUL["learnt"]()
    OwnSteps(criterion).step(torch.amp.GradScaler("cpu"))  # as before the step of another optimizer of the module
    assert_same_state(criterion, STATEFUL["learnt"]().state_dict())


def test_what_an_optimizer_holds_is_left_to_it(tmp_path):
    criterion = STATEFUL["learnt"]()
    module = Classifier(criterion, inside=True)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.0)
    module.configure_optimizers = lambda: optimizer
    start = {name: value.clone() for name, value in criterion.state_dict().items()}
    trainer(tmp_path, criterion).fit(module, batches())
    assert_same_state(criterion, start)


def test_an_optimizer_that_would_not_take_plain_steps_is_warned_of():
    criterion = STATEFUL["learnt"]()
    for optimizer in (torch.optim.AdamW(criterion.parameters()), torch.optim.SGD(criterion.parameters(), momentum=0.9)):
        with pytest.warns(UserWarning, match=f"{type(optimizer).__name__} holds numbers that DoubtLoss"):
            OwnSteps(criterion, [optimizer])


@pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty:UserWarning")
def test_two_losses_at_once(tmp_path):
    class TwoLosses(Classifier):
        def training_step(self, batch, _):
            rows, labels, index = batch
            return sum(loss(self.network(rows), labels, index) for loss in self.loss)

    def fit(checkpoint=None, names=("first", "second")):
        first, second = losses(), losses(lambda0=2.0)
        module = TwoLosses(first)
        module.loss.append(second)
        callbacks = [PerSampleCallback(loss, name=name) for loss, name in zip(module.loss, names, strict=True)]
        saver = ModelCheckpoint(tmp_path, "{step}", save_top_k=-1)
        run = trainer(tmp_path, callbacks=[*callbacks, saver], enable_checkpointing=True)
        run.fit(module, batches(), ckpt_path=checkpoint)
        assert run.logged_metrics.keys() == {
            f"{name}_lam_{what}" for name in ("first", "second") for what in ("mean", "p10", "p90")
        }
        return first.lam, second.lam

    whole = fit()
    assert (whole[1] > 1).all()
    resumed = fit(tmp_path / "step=3.ckpt")
    assert torch.equal(resumed[0], whole[0])
    assert torch.equal(resumed[1], whole[1])
    with pytest.raises(RuntimeError, match="more than one stateful callback of type `PerSampleCallback`"):
        fit(names=("", ""))


@pytest.mark.parametrize("inside", [False, True], ids=["outside the module", "in the module"])
@pytest.mark.parametrize("kind", STATEFUL)
@pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty:UserWarning")
def test_resumed_training_is_uninterrupted_training(kind, inside, tmp_path):
    def fit(criterion, checkpoint=None):
        module = Classifier(criterion, inside=inside)
        saver = ModelCheckpoint(tmp_path, "{step}", save_top_k=-1)
        run = trainer(tmp_path, criterion, epochs=3, callbacks=[saver], enable_checkpointing=True)
        run.fit(module, batches(), ckpt_path=checkpoint)
        return module.network.weight

    whole, resumed = STATEFUL[kind](), STATEFUL[kind]()
    weight = fit(whole)
    path = tmp_path / "step=3.ckpt"  # of 9
    saved = torch.load(path, weights_only=True)
    assert (f"criterion.{whole.spec.state[0].name}" in saved["state_dict"]) == inside
    assert ("PerSampleCallback" in saved["callbacks"]) != inside
    assert torch.equal(fit(resumed, path), weight)
    assert_same_state(resumed, whole.state_dict(), rtol=0, atol=0)


class WriteState(pl.Callback):
    def __init__(self, kind):
        self.kind = kind

    def on_train_end(self, trainer, pl_module):
        name = f"{self.kind} {pl_module.inside} {trainer.global_rank}.pt"
        torch.save(pl_module.loss[0].state_dict(), f"{trainer.default_root_dir}/{name}")


PLACES = [(kind, inside) for kind in STATEFUL for inside in (False, True)]


def fit_on_two_processes(folder):
    for kind, inside in PLACES:
        criterion = STATEFUL[kind]()
        strategy = DDPStrategy(start_method="fork", process_group_backend="gloo")
        run = trainer(folder, criterion, strategy=strategy, devices=2, callbacks=[WriteState(kind)])
        run.fit(Classifier(criterion, inside=inside), batches(shuffle=True, size=SAMPLES // 2))


def test_two_processes_do_what_one_does(tmp_path):
    code = f"from {__name__} import *; fit_on_two_processes({str(tmp_path)!r})"  # forks, so from a new process
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300, capture_output=True, env=environment)
    for kind, inside in PLACES:
        criterion = STATEFUL[kind]()
        trainer(tmp_path, criterion).fit(Classifier(criterion), batches(size=SAMPLES))
        for rank in range(2):  # each has seen half of the samples
            assert_same_state(criterion, torch.load(tmp_path / f"{kind} {inside} {rank}.pt"))


def test_a_loss_without_values_is_refused():
    with pytest.raises(ValueError, match=r"criterion keeps nothing: create it with ALDRKLLoss\(num_samples=N\)"):
        PerSampleCallback(lh.ALDRKLLoss())
    with pytest.raises(ValueError, match="predict must be given with review_after"):
        PerSampleCallback(losses(), review_after=[1])


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "lightning", None)
    monkeypatch.delitem(sys.modules, "lightning.pytorch")
    monkeypatch.delitem(sys.modules, integration.__name__)
    with pytest.raises(ImportError, match=r"lightning is not installed; get it with: pip install 'labelhedge\[lightni"):
        __import__(integration.__name__)
