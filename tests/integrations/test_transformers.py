"""Hugging Face's Trainer with a tiny BERT: gradients, state of any kind, checkpoints; and with a tiny GPT."""

import gc
import os
import socket
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.utils.data import IterableDataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainingArguments,
    default_data_collator,
)
from transformers.trainer_utils import HPSearchBackend

import labelhedge as lh
from labelhedge.integrations import transformers as integration
from labelhedge.integrations.transformers import Indexed, PerSampleTrainer, loss_function
from tests.own_losses import DoubtLoss, RunningMeanLoss

SAMPLES, CLASSES = 8, 5
STATEFUL = {
    "λ": lambda: lh.ALDRKLLoss(num_samples=SAMPLES),
    "mask": lambda: lh.TGCELoss(k=0.2, num_samples=SAMPLES),
    "running mean": lambda: RunningMeanLoss(num_samples=SAMPLES, num_classes=CLASSES),
    "learnt": lambda: DoubtLoss(num_samples=SAMPLES, num_classes=CLASSES),
}
"""Losses that keep a number, a truth value and K numbers per sample, and that learn."""


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


def tokens_and_labels(data):
    return torch.stack([sample["input_ids"] for sample in data]), torch.tensor([sample["labels"] for sample in data])


def assert_same_state(criterion, expected, **tolerance):
    assert criterion.state_dict().keys() == expected.keys()
    for name, value in criterion.state_dict().items():
        torch.testing.assert_close(value, expected[name], msg=name, **tolerance)


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
    for number in (4, 0, torch.tensor(0)):
        loss = loss_function(lh.ALDRKLLoss())({"logits": logits}, torch.tensor([-100, -100]), num_items_in_batch=number)
        loss.backward()
        assert loss == 0
        assert torch.equal(logits.grad, torch.zeros(2, CLASSES))


@pytest.mark.parametrize(
    ("output", "refused"),
    [
        ("CausalLMOutputWithPast", True),
        ("ReformerModelWithLMHeadOutput", True),
        ("Blip2ForConditionalGenerationModelOutput", True),
        ("MaskedLMOutput", False),
        ("Seq2SeqLMOutput", False),
        ("TokenClassifierOutput", False),
    ],
)
def test_models_whose_labels_may_have_to_be_shifted(output, refused):
    outputs = type(output, (dict,), {})(logits=torch.randn(2, 3, CLASSES))
    labels = torch.zeros(2, 3, dtype=torch.long)
    if refused:
        with pytest.raises(ValueError, match="shift_labels must be given"):
            loss_function(lh.CELoss())(outputs, labels)
    else:
        assert loss_function(lh.CELoss())(outputs, labels) > 0
    assert loss_function(lh.CELoss(), shift_labels=True)(outputs, labels) > 0


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


@pytest.mark.parametrize(
    ("kind", "step"), [("λ", 3), ("λ", 4), ("mask", 4), ("running mean", 3), ("learnt", 3)]
)  # of 4 in each of 3 epochs
def test_resumed_training_is_uninterrupted_training(kind, step, tmp_path):
    def trainer(folder):
        args = arguments(
            tmp_path / folder, num_train_epochs=3, per_device_train_batch_size=2, save_strategy="steps", save_steps=1
        )
        return PerSampleTrainer(
            model(dropout=0.1), args, train_dataset=samples(), criterion=STATEFUL[kind](), review_after=[1]
        )

    whole = trainer("whole")
    whole.train()
    checkpoint = tmp_path / "whole" / f"checkpoint-{step}"
    saved = torch.load(checkpoint / "criterion.pt", weights_only=True)
    assert kind == "mask" or any(not torch.equal(saved[name], v) for name, v in whole.criterion.state_dict().items())
    assert "criterion" not in (checkpoint / "model.safetensors").read_bytes().decode("latin-1")

    resumed = trainer("resumed")
    resumed.train(resume_from_checkpoint=str(checkpoint))
    assert_same_state(resumed.criterion, whole.criterion.state_dict(), rtol=0, atol=0)
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
    size = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2, "num_train_epochs": 2}
    args = arguments(f"{folder}/checkpoints", **size, ddp_backend="gloo", save_strategy="epoch")
    for kind, loss in STATEFUL.items():
        trainer = PerSampleTrainer(model(), args, train_dataset=samples(), criterion=loss(), review_after=[1])
        assert trainer.train().global_step == 2
        torch.save((weights(trainer), trainer.criterion.state_dict()), f"{folder}/{kind}{rank}.pt")


def test_two_processes_do_what_one_does(tmp_path):
    code = (  # forks, so from a new process
        f"import torch; from {__name__} import fit_on_one_of_two as fit\n"
        f"torch.multiprocessing.start_processes(fit, ({str(tmp_path)!r},), 2, start_method='fork')"
    )
    with socket.create_server(("localhost", 0)) as server:
        port = str(server.getsockname()[1])
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MASTER_PORT": port}
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300, capture_output=True, env=environment)
    for kind, loss in STATEFUL.items():
        args = arguments(tmp_path / "alone", num_train_epochs=2)
        alone = PerSampleTrainer(model(), args, train_dataset=samples(), criterion=loss(), review_after=[1])
        alone.train()
        for rank in range(2):
            parameters, state = torch.load(tmp_path / f"{kind}{rank}.pt")
            torch.testing.assert_close(parameters, weights(alone), msg=kind)
            assert_same_state(alone.criterion, state)
    saved = torch.load(tmp_path / "checkpoints" / "checkpoint-2" / "criterion.pt", weights_only=True)
    assert_same_state(alone.criterion, saved)


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


@pytest.mark.parametrize(
    ("optim", "scaler"), [("adamw_torch", None), ("sgd", torch.amp.GradScaler("cpu", init_scale=64.0))]
)
def test_what_a_loss_learns_descends_as_it_declares(optim, scaler, tmp_path):
    def loss():
        return DoubtLoss(num_samples=SAMPLES, num_classes=CLASSES, temperature=nn.Parameter(torch.ones(())))

    tokens, labels = tokens_and_labels(samples())
    network, criterion = model(), loss()
    *own, learnt = criterion.parameter_groups()[::-1]
    assert "lr" not in learnt
    kind, rate = {"adamw_torch": (torch.optim.AdamW, 0.02), "sgd": (torch.optim.SGD, 0.5)}[optim]
    optimizer = kind([{"params": network.parameters()}, learnt], lr=rate, weight_decay=0.0)
    steps = torch.optim.SGD(own)
    for _ in range(3):
        criterion(network(tokens).logits, labels, torch.arange(SAMPLES)).backward()
        for descent in (optimizer, steps):
            descent.step()
            descent.zero_grad()
    start = loss().state_dict()
    assert all(not torch.equal(value, start[name]) for name, value in criterion.state_dict().items())

    options = {"optim": optim, "learning_rate": rate, "lr_scheduler_type": "constant", "num_train_epochs": 3}
    args = arguments(tmp_path, **options, per_device_train_batch_size=4, gradient_accumulation_steps=2)
    trainer = PerSampleTrainer(model(), args, train_dataset=samples(), criterion=loss())
    trainer.accelerator.scaler = scaler  # as fp16 has one on a GPU
    trainer.train()
    assert_same_state(trainer.criterion, criterion.state_dict(), rtol=1e-5, atol=1e-5)
    expected = torch.cat([p.detach().flatten() for p in network.parameters()])
    torch.testing.assert_close(weights(trainer), expected, rtol=1e-3, atol=1e-4)


def test_what_an_optimizer_holds_is_left_to_it(tmp_path):
    network, criterion = model(), STATEFUL["learnt"]()
    optimizer = torch.optim.SGD([*network.parameters(), *criterion.parameters()], lr=0.0)
    options = {"train_dataset": samples(), "criterion": criterion, "optimizers": (optimizer, None)}
    trainer = PerSampleTrainer(network, arguments(tmp_path), **options)
    trainer.train()
    assert_same_state(criterion, STATEFUL["learnt"]().state_dict())


def test_review_after_an_epoch(tmp_path):
    criterion = STATEFUL["mask"]()
    args = arguments(tmp_path, per_device_eval_batch_size=3, save_strategy="steps", save_steps=1)
    trainer = PerSampleTrainer(model(0.1), args, train_dataset=samples(), criterion=criterion, review_after=[1])
    trainer.train()
    tokens, labels = tokens_and_labels(samples())
    expected = trainer.model.eval()(tokens).logits.softmax(-1)[torch.arange(SAMPLES), labels] > 0.2
    assert 0 < expected.sum() < SAMPLES
    assert torch.equal(criterion.keep, expected)
    assert torch.equal(torch.load(tmp_path / "checkpoint-1" / "criterion.pt")["keep"], expected)


class Trial(dict):
    """As optuna has it."""

    def __init__(self, number):
        self.number, self.params = number, {}


def test_each_trial_of_a_search_has_its_folder_and_starts_anew(tmp_path):
    args = arguments(tmp_path, save_strategy="epoch")
    criterion = lh.ALDRKLLoss(num_samples=SAMPLES)
    trainer = PerSampleTrainer(
        model_init=lambda trial: model(), args=args, train_dataset=samples(), criterion=criterion
    )
    trainer.hp_search_backend, trainer.hp_space, trainer.hp_name = HPSearchBackend.OPTUNA, lambda trial: {}, None
    found = []
    for number in range(2):  # as hyperparameter_search does
        trainer.train(trial=Trial(number))
        found.append(torch.load(tmp_path / f"run-{number}" / "checkpoint-1" / "criterion.pt")["lam"])
    assert torch.equal(*found)
    assert (found[0] < 1).all()


def causal_samples():
    random = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, 20, (6, 7), generator=random)
    ignored = torch.rand(6, 7, generator=random) < 0.3
    ignored[0] = True
    return [{"input_ids": t, "labels": t.masked_fill(i, -100)} for t, i in zip(tokens, ignored, strict=True)]


def test_a_causal_language_model_has_the_loss_of_hugging_face(tmp_path):
    """Shifted labels, ignored ones, parts of different sizes and one without labels."""
    sizes = {"vocab_size": 20, "n_positions": 8, "n_embd": 8, "n_layer": 1, "n_head": 1}
    dropout = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "bos_token_id": 0, "eos_token_id": 0}

    def run(compute_loss):
        torch.manual_seed(1)
        args = arguments(tmp_path, per_device_train_batch_size=1, gradient_accumulation_steps=4)
        data, network = causal_samples(), GPT2LMHeadModel(GPT2Config(**sizes, **dropout))
        trainer = Trainer(network, args, train_dataset=data, eval_dataset=data, compute_loss_func=compute_loss)
        loss = trainer.train().training_loss
        return weights(trainer), loss, trainer.evaluate()["eval_loss"]

    parameters, *values = run(None)
    for criterion in (lh.CELoss(), nn.CrossEntropyLoss()):
        found, *others = run(loss_function(criterion, shift_labels=True))
        torch.testing.assert_close(found, parameters)
        assert others == pytest.approx(values, rel=1e-5)
    with pytest.raises(ValueError, match=r"shift_labels must be given for a causal language model: loss_function\("):
        run(loss_function(lh.CELoss()))


def test_no_value_is_read_from_a_device():
    logits, labels = torch.empty(2, 3, CLASSES, device="meta"), torch.empty(2, 3, dtype=torch.long, device="meta")
    with pytest.raises(RuntimeError, match="meta"):
        labels.sum().item()
    count = torch.empty((), device="meta")
    for criterion in (lh.CELoss(), nn.CrossEntropyLoss()):
        assert loss_function(criterion)((logits,), labels, num_items_in_batch=count).shape == ()


class Stream(IterableDataset):
    def __iter__(self):
        return iter(samples())


def test_errors_about_the_training_set(tmp_path):
    criterion = STATEFUL["λ"]()
    with pytest.raises(TypeError, match=r"data set must have a length and be read by position, .*; got Stream"):
        PerSampleTrainer(model(), arguments(tmp_path), train_dataset=Stream(), criterion=criterion)
    trainer = PerSampleTrainer(
        model(),
        arguments(tmp_path),
        train_dataset=samples(),
        criterion=criterion,
        data_collator=lambda batch: {k: v for k, v in default_data_collator(batch).items() if k != "index"},
    )
    with pytest.raises(ValueError, match="index is missing in a batch of the training set: data_collator must keep"):
        trainer.train()


@pytest.mark.parametrize("package", ["transformers", "accelerate"])
def test_a_missing_extra_is_named(package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, integration.__name__)
    with pytest.raises(ImportError, match=rf"{package} is not installed; get it with: pip install 'labelhedge\[transf"):
        __import__(integration.__name__)
