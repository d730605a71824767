"""The command ``labelhedge train`` as people, power cuts and Ctrl-C meet it."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from pyarrow import parquet

from labelhedge.data import read_folder
from labelhedge.models import resnet
from labelhedge.results import load, load_traces
from labelhedge.train import _checkpoint
from labelhedge.train._pixels import fitted
from labelhedge.train.single import load_network
from tests.cli.commands import assert_same_bits, last_line, result_files, wait_until
from tests.cli.pets import EPOCHS, LINE, ONE_THREAD, contents, write_pets

TWO = (*LINE, "--epochs", "10", "--batch-size", "48")


@pytest.fixture(scope="module")
def whole(trainer, pets, tmp_path_factory):
    """A folder with a training that nothing interrupted, and what it said."""
    out = tmp_path_factory.mktemp("whole") / "out"
    answer = trainer.run("--dataset", pets, *LINE, "--out", out)
    assert answer.returncode == 0, answer.stderr
    return out, answer


@pytest.fixture(scope="module")
def killed(trainer, pets, tmp_path_factory):
    """The folder of the same training, killed when it had a checkpoint."""
    out = tmp_path_factory.mktemp("killed") / "out"
    command = trainer.start("--dataset", pets, *LINE, "--out", out)
    wait_until(lambda: epochs_done(out) >= 8)
    command.send(signal.SIGKILL)
    assert names(out) == {"checkpoint"}
    return out


def checkpoint(out):
    return out / "checkpoint" / "0000-1.pt"


def epochs_done(out):
    return _checkpoint.read(checkpoint(out))["state"]["epoch"] if checkpoint(out).exists() else 0


def names(out):
    return {path.name for path in out.iterdir()}


def weights(out):
    return _checkpoint.read(out / "weights.pt")["state"]["weights"]


def assert_same_training(one, other):
    assert names(one) == names(other) == {"networks", "traces", "weights.pt"}
    assert_same_bits(one, other)
    expected = weights(other)
    assert weights(one).keys() == expected.keys()
    for name, tensor in weights(one).items():
        assert torch.equal(tensor, expected[name]), name


def test_a_table_of_accuracies_is_printed_and_results_and_weights_are_kept(whole, pets):
    out, answer = whole
    assert names(out) == {"networks", "traces", "weights.pt"}
    plan, *_, end, where = answer.stderr.splitlines()
    assert (
        plan == "resnet18 on pets: 48 images to train, 12 to validate, 3 classes, 16.7% of the labels changed, aldr-kl"
    )
    assert end.startswith("training: done in ")
    assert sum(line.startswith("epoch ") for line in answer.stderr.splitlines()) == EPOCHS
    assert where == f"weights are in {out}/weights.pt"
    row = load(out).iloc[0].to_dict()
    head, cells = (line.split("\t") for line in answer.stdout.splitlines())
    assert head == ["best_epoch", "val_top1", *(f"test_top{k}" for k in range(1, 6))]
    assert cells == [str(row["best_epoch"]), *(f"{row[name]:.4f}" for name in head[1:4]), "", "", ""]
    expected = {"dataset": "pets", "noise": "uniform", "rate": 0.3, "loss": "aldr-kl", "seed": 0, "fold": 0}
    expected |= {"lr": 0.1, "weight_decay": 5e-4, "params": "{}", "epochs": EPOCHS}
    assert {name: row[name] for name in expected} == expected
    traces = load_traces(out)
    assert traces["epoch"].tolist() == list(range(1, EPOCHS + 1))
    assert np.float32(row["val_top1"]) == traces["val_top1"].max()
    assert traces[["train_loss", "lam_clean", "lam_flipped"]].notna().all(axis=None)


def test_what_is_finished_is_not_trained_again_and_said_again(trainer, whole, pets):
    out, answer = whole
    before = result_files(out), (out / "weights.pt").stat().st_mtime_ns
    again = trainer.run("--dataset", pets, *LINE, "--out", out)
    assert (again.returncode, again.stdout) == (0, answer.stdout)
    assert again.stderr == f"{out} has this training already\nweights are in {out}/weights.pt\n"
    as_json = trainer.run("--dataset", pets, *LINE, "--out", out, "--json")
    assert (as_json.returncode, as_json.stderr) == (0, f"{out} has this training already\n")
    row = load(out).iloc[0]
    assert json.loads(as_json.stdout) == row.astype(object).where(row.notna(), None).to_dict()
    assert (result_files(out), (out / "weights.pt").stat().st_mtime_ns) == before


def test_the_weights_give_the_accuracy_that_was_told(whole, pets):
    out, _ = whole
    network, classes = load_network(out / "weights.pt")
    test = read_folder(pets).test
    logits = network(torch.from_numpy(np.stack(list(test.inputs))))
    assert classes == ["cat", "dog", "owl"]
    assert (logits.argmax(1).numpy() == test.labels).mean() == load(out)["test_top1"][0]
    for wrong in (torch.rand(2, 8, 8, 3), torch.zeros(8, 8, 3, dtype=torch.uint8), torch.zeros(2, 3, 8, 8).byte()):
        with pytest.raises(ValueError, match=r"images must be uint8 \(B, height, width, 3\), got torch\."):
            network(wrong)


def test_a_checkpoint_is_no_network(trainer, killed, pets, tmp_path):
    with pytest.raises(ValueError, match=r"0000-1\.pt is a checkpoint; weights\.pt is the file with the network"):
        load_network(checkpoint(killed))
    answer = trainer.run("--dataset", pets, *LINE, "--weights", checkpoint(killed), "--out", tmp_path / "out")
    assert (answer.returncode, answer.stdout) == (2, "")
    assert "has no weights: it must hold tensors by their name" in last_line(answer.stderr)


def test_killed_twice_the_same_command_goes_on_to_the_same_bits(trainer, whole, killed, pets, tmp_path):
    out = shutil.copytree(killed, tmp_path / "out")
    line = ("--dataset", pets, *LINE, "--out", out)
    before, done = checkpoint(out).stat().st_mtime_ns, epochs_done(out)
    command = trainer.start(*line)
    wait_until(lambda: checkpoint(out).stat().st_mtime_ns > before)
    assert done < epochs_done(out)  # it went on, and did not begin anew
    best = load(whole[0])["best_epoch"][0]
    wait_until(lambda: epochs_done(out) > best)  # the best weights are now in the checkpoint alone
    command.send(signal.SIGKILL)
    assert names(out) == {"checkpoint"}
    answer = trainer.run(*line)
    assert (answer.returncode, answer.stdout) == (0, whole[1].stdout), answer.stderr
    assert_same_training(out, whole[0])


def test_an_interrupt_is_one_line_and_the_same_command_goes_on(trainer, whole, pets, tmp_path):
    line = ("--dataset", pets, *LINE, "--out", tmp_path / "out")
    command = trainer.start(*line)
    wait_until(lambda: epochs_done(tmp_path / "out") >= 3)
    answer = command.send(signal.SIGINT)
    assert (answer.returncode, answer.stdout) == (130, "")
    assert last_line(answer.stderr) == "interrupted; the same command goes on from the checkpoint"
    assert names(tmp_path / "out") == {"checkpoint"}
    assert trainer.run(*line).returncode == 0
    assert_same_training(tmp_path / "out", whole[0])


def free_port():
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return free.getsockname()[1]


def process_of_rank(torchrun, rank):
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == torchrun and f"RANK={rank}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                return int(folder.name)
        except OSError:  # just gone
            continue
    raise AssertionError(f"there is no rank {rank}")


def test_a_rank_killed_under_torchrun_is_restarted_and_goes_on_to_the_same_bits(trainer, pets, tmp_path):
    out, port = tmp_path / "killed", free_port()
    run = ("torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", "1", "--master-port", str(port))
    line = [sys.executable, "-m", *run, "-m", "labelhedge", "train", "--dataset", str(pets), *TWO, "--out", str(out)]
    with (tmp_path / "said").open("w") as said:
        torchrun = subprocess.Popen(
            line, stdout=subprocess.PIPE, stderr=said, text=True, start_new_session=True, env=ONE_THREAD
        )
    try:
        wait_until(lambda: epochs_done(out) >= 2 or torchrun.poll() is not None)
        os.kill(process_of_rank(torchrun.pid, 1), signal.SIGKILL)
        told, _ = torchrun.communicate(timeout=90)
    finally:
        torchrun.terminate()  # which ends the ranks, too
        torchrun.communicate()
    assert torchrun.returncode == 0, (tmp_path / "said").read_text()
    assert (tmp_path / "said").read_text().count(", 2 processes\n") == 2  # the plan is told at each start

    ranks = [
        trainer.start(
            *("--dataset", pets, *TWO, "--out", tmp_path / "whole"),
            variables=(
                *(f"{name}={value}" for name, value in {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2}.items()),
                *("TORCHELASTIC_RUN_ID=none", "MASTER_ADDR=localhost", f"MASTER_PORT={port}"),
            ),
        )
        for rank in range(2)
    ]
    answers = [rank.finish() for rank in ranks]
    assert [answer.returncode for answer in answers] == [0, 0], answers
    assert [answer.stdout for answer in answers] == [told, ""]
    assert answers[1].stderr == ""
    assert_same_training(out, tmp_path / "whole")


def test_training_starts_from_given_weights_but_for_a_last_layer_of_other_classes(trainer, pets, tmp_path):
    given = resnet.create("resnet18", 5, channels=3, width=2, image_size=8).state_dict()
    torch.save(given, tmp_path / "given.pt")
    line = ("--dataset", pets, *LINE, "--weights", tmp_path / "given.pt", "--epochs", "1", "--lr", "0")
    answer = trainer.run(*line, "--out", tmp_path / "out")
    assert answer.returncode == 0, answer.stderr
    found = weights(tmp_path / "out")
    kept = [name for name in given if "running" not in name and "num_batches" not in name and "fc" not in name]
    assert all(torch.equal(found[f"model.{name}"], given[name]) for name in kept)
    assert found["model.fc.weight"].shape == (3, 16)


def test_training_starts_from_the_weights_of_another(trainer, whole, pets, tmp_path):
    given = whole[0] / "weights.pt"
    line = ("--dataset", pets, *LINE, "--weights", given, "--epochs", "1", "--lr", "0")
    answer = trainer.run(*line, "--out", tmp_path / "out")
    assert answer.returncode == 0, answer.stderr
    found, expected = weights(tmp_path / "out"), weights(whole[0])
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items() if "conv" in name or "fc" in name)


def test_the_weights_of_another_training_are_not_replaced(trainer, whole, pets):
    before = contents(whole[0])
    answer = trainer.run("--dataset", pets, *LINE, "--lr", "0.5", "--out", whole[0])
    assert answer.returncode == 2
    assert last_line(answer.stderr).endswith(
        "weights.pt has the weights of another training, with other options, images or labels; choose another --out"
    )
    assert contents(whole[0]) == before


@pytest.mark.parametrize("part", ["train", "test"])
def test_an_image_that_is_replaced_under_its_name_makes_it_another_training(trainer, whole, killed, pets, part):
    image, other = pets / part / "dog" / "02.png", pets / part / "dog" / "03.png"
    kept = image.read_bytes()
    try:
        image.write_bytes(other.read_bytes())
        answers = [trainer.run("--dataset", pets, *LINE, "--out", out) for out in (whole[0], killed)]
    finally:
        image.write_bytes(kept)
    assert [answer.returncode for answer in answers] == [2, 2]
    assert last_line(answers[0].stderr).endswith("other hyperparameters or data; choose another --out")
    assert "checkpoint of another training: digest of all images was" in last_line(answers[1].stderr)


def test_results_from_before_contents_were_looked_at_are_still_known(trainer, whole, pets, tmp_path):
    out = shutil.copytree(whole[0], tmp_path / "out")
    (path,) = (out / "networks").rglob("*.parquet")
    table = parquet.read_table(path)
    now = table.schema.metadata[b"configuration"].decode()
    before = json.dumps(json.loads(now)[:-2], sort_keys=True)
    parquet.write_table(table.replace_schema_metadata({"configuration": before}), path)
    found = _checkpoint.read(out / "weights.pt")
    name = found["configuration"]["name"].replace(now, before)
    _checkpoint.save(out / "weights.pt", found["configuration"] | {"name": name}, found["state"])
    answer = trainer.run("--dataset", pets, *LINE, "--out", out)
    assert (answer.returncode, answer.stdout) == (0, whole[1].stdout)
    assert "has this training already" in answer.stderr


def test_a_checkpoint_that_a_kill_left_beside_the_results_is_removed(trainer, whole, killed, pets, tmp_path):
    out = shutil.copytree(whole[0], tmp_path / "out")
    shutil.copytree(killed / "checkpoint", out / "checkpoint")
    answer = trainer.run("--dataset", pets, *LINE, "--out", out)
    assert answer.returncode == 0
    assert names(out) == {"networks", "traces", "weights.pt"}


def test_options_reach_the_training(trainer, pets, tmp_path):
    options = ("--loss", "topk-svm@softplus", "--param", "k=2", "--param", "margin=0.5", "--validation", "0")
    options += ("--nesterov", "--momentum", "0.8", "--lr", "0.3", "--weight-decay", "0.01", "--decay", "0.9")
    options += ("--decay-after", "every", "--augment", "crop=1,flip,shift=0.2,jitter=0.3", "--seed", "3")
    options += ("--resize", "12", "--image-size", "10", "--epochs", "2", "--json")
    digits = shutil.copytree(pets, tmp_path / "digits")  # not the data set of that name
    answer = trainer.run("--dataset", digits, *LINE, *options, "--out", tmp_path / "out")
    assert answer.returncode == 0, answer.stderr
    expected = {"dataset": "digits-folder", "loss": "topk-svm@softplus", "params": '{"k": 2, "margin": 0.5}', "seed": 3}
    expected |= {"lr": 0.3, "weight_decay": 0.01, "epochs": 2, "best_epoch": 2, "val_top1": None}
    told = json.loads(answer.stdout)
    assert {name: told[name] for name in expected} == expected
    network, _ = load_network(tmp_path / "out" / "weights.pt")
    assert (network.resize, network.size) == (12, 10)
    photos = torch.randint(256, (2, 30, 20, 3), dtype=torch.uint8)
    small = torch.stack([fitted(photo, torch.Size((12, 12, 3))) for photo in photos])
    torch.testing.assert_close(network(photos), network(small))


@pytest.mark.parametrize(
    ("change", "differs"),
    [
        (("--lr", "0.2"), "learning rate was 0.1, and is 0.2 now"),
        (("--epochs", "41"), "epochs was 40, and is 41 now"),
        (("--seed", "1"), "seed was "),
        ("pets", "digest of images and labels was "),
        ("weights", "digest of the weights to start from was random, and is "),
    ],
)
def test_a_checkpoint_of_another_training_is_left_alone(trainer, killed, pets, tmp_path, change, differs):
    out = shutil.copytree(killed, tmp_path / "out")
    before = contents(out)
    if change == "pets":
        change = ("--dataset", write_pets(tmp_path / "pets", seed=1))  # as many images, of the same names
    if change == "weights":
        torch.save(resnet.create("resnet18", 3, channels=3, width=2, image_size=8).state_dict(), tmp_path / "given.pt")
        change = ("--weights", tmp_path / "given.pt")
    answer = trainer.run("--dataset", pets, *LINE, *change, "--out", out)
    assert (answer.returncode, answer.stdout) == (2, "")
    told = last_line(answer.stderr)
    assert told.startswith(f"labelhedge: {checkpoint(out)} is the checkpoint of another training: {differs}")
    assert told.endswith("; train elsewhere, or remove it")
    assert contents(out) == before


@pytest.mark.parametrize("damage", ["cut off", "overwritten", "empty"])
def test_a_damaged_checkpoint_is_refused(trainer, killed, pets, tmp_path, damage):
    out = shutil.copytree(killed, tmp_path / "out")
    content = checkpoint(out).read_bytes()
    written = {"cut off": content[: len(content) // 2], "overwritten": content[:80] + b"\xff" * 400 + content[480:]}
    checkpoint(out).write_bytes(written.get(damage, b""))
    before = contents(out)
    answer = trainer.run("--dataset", pets, *LINE, "--out", out)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert f"{checkpoint(out)} is not a checkpoint, or a damaged one (" in last_line(answer.stderr)
    assert contents(out) == before


def test_results_of_other_hyperparameters_are_left_alone(trainer, whole, pets):
    before = contents(whole[0])
    answer = trainer.run("--dataset", pets, *LINE, "--param", "lambda0=0.5", "--out", whole[0])
    assert (answer.returncode, answer.stdout) == (2, "")
    assert last_line(answer.stderr).endswith("was computed with other hyperparameters or data; choose another --out")
    assert contents(whole[0]) == before


@pytest.mark.parametrize("kept", [0, 100, 0.5, -10])
def test_damaged_weights_are_named(trainer, whole, pets, tmp_path, kept):
    out = shutil.copytree(whole[0], tmp_path / "out")
    path = out / "weights.pt"
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content)) if kept == 0.5 else kept])
    before = contents(out)
    answer = trainer.run("--dataset", pets, *LINE, "--out", out)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert last_line(answer.stderr).startswith(f"labelhedge: {path} is damaged, and its training is finished")
    assert contents(out) == before
