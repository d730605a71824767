"""Two processes against one: the same batches, the same network, the same λ."""

import dataclasses
import os
import socket
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.multiprocessing as mp

import labelhedge as lh
from labelhedge.losses._spec import register
from labelhedge.train._distributed import joined
from labelhedge.train._training import Data, Training
from labelhedge.train.single import Checkpoints, train
from labelhedge.train.stacked import Fold
from tests import own_losses
from tests.train.images import RECIPE, TRIAL, make_folds, make_task

LOSSES = ("aldr-kl", "tgce", *own_losses.IDS)


def trained(loss, device):
    task = make_task()
    recipe = dataclasses.replace(RECIPE, review_after=(1, 2))
    data = Data(task, recipe, torch.device(device))
    training = Training(data, [(make_folds(task)[0], TRIAL)], loss, recipe, {}, None, None, torch.float64)
    arrays = training.run(lambda count: None, lambda *told: None)
    network = training.networks[0]
    tensors = {**network.tensors(), **{f"best.{name}": tensor for name, tensor in network.best.items()}}
    tensors |= {name: torch.from_numpy(array) for name, array in arrays.items() if name != "seconds"}
    return {name: tensor.cpu() for name, tensor in tensors.items() if name != "loss_sum"}


def work(rank, port, folder, device):
    torch.set_num_threads(1)
    for module in own_losses.OWN:
        register(module.spec)
    os.environ |= {"TORCHELASTIC_RUN_ID": "test", "MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2"}
    with joined("cpu"):
        check(rank, folder, device)
    threads = [path.read_text() for path in Path("/proc/self/task").glob("*/comm")]
    assert not any("gloo" in name for name in threads)  # they might abort the process


def check(rank, folder, device):
    torch.save({loss: trained(loss, device) for loss in LOSSES}, f"{folder}/{rank}.pt")
    own = Checkpoints(Path(folder) / f"seen by {rank}")
    arguments = (make_task(), make_folds(make_task()), [TRIAL], "ce", RECIPE)
    train(*arguments, checkpoints=own)
    with pytest.raises(ValueError, match="the processes find different checkpoints; --out must be a folder that all"):
        train(*arguments, checkpoints=own)
    recipe = dataclasses.replace(RECIPE, batch_size=7)
    with pytest.raises(ValueError, match="batch_size must be a multiple of the 2 processes, got 7"):
        train(make_task(), make_folds(make_task()), [TRIAL], "ce", recipe)
    few = [Fold(np.arange(7), np.arange(7, 9), seed=0)]
    with pytest.raises(ValueError, match="the 7 samples to train on fill no batch and cannot be shared by 2 processes"):
        train(make_task(), few, [TRIAL], "ce", RECIPE)


@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")  # by torch itself
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_two_processes_give_the_result_of_one(tmp_path, device):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    mp.spawn(work, (port, str(tmp_path), device), nprocs=2)
    ranks = [torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in (0, 1)]
    for loss in LOSSES:
        expected = trained(loss, device)
        assert all(f"loss.{state.name}" in expected for state in lh.losses.get(loss).state)
        for name, tensor in expected.items():
            for found in ranks:
                torch.testing.assert_close(
                    found[loss][name], tensor, rtol=0, atol=1e-6, equal_nan=True, msg=f"{loss} {name}"
                )
