"""Hugging Face's Trainer with a tiny BERT: gradients, which λ is written, checkpoints."""

import gc
import os
import socket
import subprocess
import sys

import pytest
import torch
from torch import nn
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

import labelhedge as lh
from labelhedge.integrations import transformers as integration
from labelhedge.integrations.transformers import Indexed, PerSampleTrainer, loss_function

SAMPLES, CLASSES = 8, 5


@pytest.fixture(scope="module", autouse=True)
def _quick():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the model is too small for more
    gc.freeze()  # the Trainer collects garbage at each start, and need not look through all that was imported
    yield
    gc.unfreeze()
    torch.set_num_threads(threads)


def samples(count=SAMPLES, seed=0):
    random = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, 20, (count, 6), generator=random)
    labels = torch.randint(0, CLASSES, (count,), generator=random)
    return [
        {"input_ids": t, "labels": int(y), "text": "dropped by the Trainer"}
        for t, y in zip(tokens, labels, strict=True)
    ]


def model(dropout=0.0):
    torch.manual_seed(1)
    return BertForSequenceClassification(
        BertConfig(
            vocab_size=20,
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=16,
            hidden_dropout_prob=dropout,
            attention_probs_dropout_prob=dropout,
            num_labels=CLASSES,
        )
    )


def arguments(folder, **options):
    defaults = {
        "num_train_epochs": 1,
        "save_strategy": "no",
        "optim": "sgd",
        "learning_rate": 0.5,
        "max_grad_norm": 0.0,
    }
    return TrainingArguments(
        str(folder),
        use_cpu=True,
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=False,
        **defaults | options,
    )


def weights(trainer):
    return torch.cat([p.detach().flatten() for p in trainer.model.parameters()])


@pytest.mark.parametrize(
    ("criterion", "ignored"),
    [(lh.ALDRKLLoss(), ()), (lh.GCELoss(), (2,)), (lh.ALDRKLLoss(), (0, 1, 2)), (nn.CrossEntropyLoss(), (0, 1, 2))],
    ids=["ALDR-KL", "GCE, one label ignored", "ALDR-KL, a part ignored", "torch's, a part ignored"],
)
def test_accumulated_gradients_are_those_of_one_batch(criterion, ignored, tmp_path, monkeypatch):
    # in the order of the data set, so that the first of three batches can be the one that is ignored
    monkeypatch.setattr(Trainer, "_get_train_sampler", lambda self, data=None: torch.utils.data.SequentialSampler(data))
    data = [sample | {"labels": -100} if i in ignored else sample for i, sample in enumerate(samples())]
    runs = []
    for size, steps in ((8, 1), (3, 3)):  # 3 + 3 + 2: parts of different sizes
        args = arguments(tmp_path, per_device_train_batch_size=size, gradient_accumulation_steps=steps)
        trainer = Trainer(model(), args, train_dataset=data, compute_loss_func=loss_function(criterion))
        before = weights(trainer)
        assert trainer.train().global_step == 1
        runs.append(weights(trainer) - before)
    assert runs[0].abs().max() > 0.01
    torch.testing.assert_close(runs[1], runs[0], rtol=1e-4, atol=1e-6)


def test_token_level_outputs():
    logits, labels = torch.randn(2, 3, CLASSES), torch.tensor([[0, -100, 3], [1, 1, -100]])
    expected = lh.functional.aldr_kl(logits.flatten(0, 1), labels.flatten())
    compute_loss = loss_function(lh.ALDRKLLoss())
    torch.testing.assert_close(compute_loss({"logits": logits}, labels), expected)
    torch.testing.assert_close(compute_loss((logits,), labels, num_items_in_batch=torch.tensor(8)), expected / 2)


def test_a_part_without_labels_adds_nothing():
    logits = torch.randn(2, CLASSES, requires_grad=True)
    loss = loss_function(lh.ALDRKLLoss())({"logits": logits}, torch.tensor([-100, -100]), num_items_in_batch=4)
    loss.backward()
    assert loss == 0
    assert torch.equal(logits.grad, torch.zeros(2, CLASSES))


def test_evaluation_gives_the_mean_loss(tmp_path):
    criterion = lh.ALDRKLLoss()
    args = arguments(tmp_path, per_device_eval_batch_size=4)
    trainer = Trainer(model(), args, eval_dataset=samples(), compute_loss_func=loss_function(criterion))
    data = samples()
    logits = trainer.model(torch.stack([s["input_ids"] for s in data])).logits
    expected = criterion(logits, torch.tensor([s["labels"] for s in data]))
    assert trainer.evaluate()["eval_loss"] == pytest.approx(expected.item(), rel=1e-4)


@pytest.mark.parametrize("option", [{"reduction": "sum"}, {"ignore_index": 0}], ids=str)
def test_what_the_trainer_could_not_count_is_refused(option):
    (name,) = option
    with pytest.raises(ValueError, match=f"{name} must be"):
        loss_function(lh.ALDRKLLoss(**option))


def test_lambda_is_written_for_the_right_samples(tmp_path):
    data, criterion = samples(), lh.ALDRKLLoss(num_samples=SAMPLES)
    args = arguments(tmp_path, learning_rate=0.0, per_device_train_batch_size=3)
    trainer = PerSampleTrainer(model(), args, train_dataset=data, eval_dataset=samples(4, seed=1), criterion=criterion)
    trainer.train()
    logits = trainer.model.eval()(torch.stack([s["input_ids"] for s in data])).logits
    labels = torch.tensor([s["labels"] for s in data])
    expected = lh.functional.aldr_lambda(logits, labels, start=torch.ones(SAMPLES))
    assert expected.unique().numel() == SAMPLES
    torch.testing.assert_close(criterion.lam, expected)

    before = criterion.lam.clone()
    other = samples(4, seed=1)
    logits = trainer.model(torch.stack([s["input_ids"] for s in other])).logits
    exact = lh.functional.aldr_kl(logits, torch.tensor([s["labels"] for s in other]))
    assert trainer.evaluate()["eval_loss"] == pytest.approx(exact.item(), rel=1e-4)
    assert trainer.evaluate(Indexed(other))["eval_loss"] == pytest.approx(exact.item(), rel=1e-4)
    assert torch.equal(criterion.lam, before)


@pytest.mark.parametrize("step", [3, 4], ids=["within an epoch", "between epochs"])
def test_resumed_training_is_uninterrupted_training(step, tmp_path):
    def trainer(folder):
        args = arguments(
            tmp_path / folder, num_train_epochs=3, per_device_train_batch_size=2, save_strategy="steps", save_steps=1
        )
        return PerSampleTrainer(
            model(dropout=0.1), args, train_dataset=samples(), criterion=lh.ALDRKLLoss(num_samples=SAMPLES)
        )

    whole = trainer("whole")
    whole.train()
    checkpoint = tmp_path / "whole" / f"checkpoint-{step}"
    saved = torch.load(checkpoint / "criterion.pt", weights_only=True)["lam"]
    assert not torch.equal(saved, whole.criterion.lam)
    assert "criterion" not in (checkpoint / "model.safetensors").read_bytes().decode("latin-1")

    resumed = trainer("resumed")
    resumed.train(resume_from_checkpoint=str(checkpoint))
    assert torch.equal(resumed.criterion.lam, whole.criterion.lam)
    assert torch.equal(weights(resumed), weights(whole))


def test_resuming_from_the_last_checkpoint(tmp_path):
    def trainer():
        return PerSampleTrainer(
            model(),
            arguments(tmp_path, save_strategy="epoch"),
            train_dataset=samples(),
            criterion=lh.ALDRKLLoss(num_samples=SAMPLES),
        )

    with pytest.raises(ValueError, match="No valid checkpoint"):
        trainer().train(resume_from_checkpoint=True)
    first = trainer()
    first.train()
    again = trainer()
    again.train(resume_from_checkpoint=True)  # nothing is left to do
    assert torch.equal(again.criterion.lam, first.criterion.lam)
    (tmp_path / "checkpoint-1" / "criterion.pt").unlink()
    with pytest.raises(FileNotFoundError, match=r"criterion.pt is missing: the checkpoint was not written by"):
        trainer().train(resume_from_checkpoint=True)


def fit_on_one_of_two(rank, folder):
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "localhost"}
    size = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2}
    args = arguments(f"{folder}/checkpoints", **size, ddp_backend="gloo", save_strategy="epoch")
    trainer = PerSampleTrainer(model(), args, train_dataset=samples(), criterion=lh.ALDRKLLoss(num_samples=SAMPLES))
    assert trainer.train().global_step == 1
    torch.save((weights(trainer), trainer.criterion.lam), f"{folder}/rank{rank}.pt")


def test_two_processes_do_what_one_does(tmp_path):
    alone = PerSampleTrainer(
        model(), arguments(tmp_path / "alone"), train_dataset=samples(), criterion=lh.ALDRKLLoss(num_samples=SAMPLES)
    )
    alone.train()
    code = (  # forks, so from a new process
        f"import torch; from {__name__} import fit_on_one_of_two as fit\n"
        f"torch.multiprocessing.start_processes(fit, ({str(tmp_path)!r},), 2, start_method='fork')"
    )
    with socket.create_server(("localhost", 0)) as server:
        port = str(server.getsockname()[1])
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MASTER_PORT": port}
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300, capture_output=True, env=environment)
    for rank in range(2):
        parameters, lam = torch.load(tmp_path / f"rank{rank}.pt")
        torch.testing.assert_close(parameters, weights(alone))
        torch.testing.assert_close(lam, alone.criterion.lam)
    saved = torch.load(tmp_path / "checkpoints" / "checkpoint-1" / "criterion.pt", weights_only=True)
    torch.testing.assert_close(saved["lam"], alone.criterion.lam)


@pytest.mark.parametrize("num_samples", [SAMPLES + 1, None])
def test_a_wrong_number_of_samples_is_refused(num_samples, tmp_path):
    with pytest.raises(ValueError, match=rf"num_samples must be len\(train_dataset\), 8, got {num_samples}"):
        PerSampleTrainer(
            model(), arguments(tmp_path), train_dataset=samples(), criterion=lh.ALDRKLLoss(num_samples=num_samples)
        )


def test_tgce_takes_part(tmp_path):
    criterion = lh.TGCELoss(num_samples=SAMPLES)
    trainer = PerSampleTrainer(model(), arguments(tmp_path), train_dataset=samples(), criterion=criterion)
    before = weights(trainer)
    criterion.keep.zero_()
    trainer.train()
    assert torch.equal(weights(trainer), before)  # what it does not keep has no gradient
    criterion.keep[2] = True
    trainer.train()
    assert not torch.equal(weights(trainer), before)


@pytest.mark.parametrize("package", ["transformers", "accelerate"])
def test_a_missing_extra_is_named(package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, integration.__name__)
    with pytest.raises(ImportError, match=rf"{package} is not installed; get it with: pip install 'labelhedge\[transf"):
        __import__(integration.__name__)
