"""What only a GPU shows: recorded steps, several networks at once, the memory."""

import dataclasses

import numpy as np
import pytest
import torch
import torch.distributed as dist

import labelhedge as lh
from labelhedge.train import _checkpoint, _pixels
from labelhedge.train.single import Checkpoints, train
from tests.train.images import RECIPE, TRIAL, OneByOne, make_folds, make_task, same

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning"),  # by torch itself
]
TASK = make_task(400)
WIDE = dataclasses.replace(RECIPE, width=16)


def trained(folds=1, **options):
    loss = options.pop("loss", "aldr-kl")
    return train(TASK, make_folds(TASK, folds), [TRIAL], loss, options.pop("recipe", WIDE), device="cuda", **options)


def test_the_same_training_gives_the_same_bits():
    assert same(trained(), trained())


def test_a_process_that_is_alone_under_torchrun_trains_as_without():
    expected = trained()
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    try:
        assert same(trained(), expected)
    finally:
        dist.destroy_process_group()


def test_several_networks_at_once_are_what_each_is_alone():
    assert same(trained(folds=3, at_once=3), trained(folds=3, at_once=1))


@pytest.mark.parametrize(
    ("loss", "options"),
    [("aldr-kl", {}), ("aldr-kl", {"num_samples": None}), ("ce", {}), ("tgce", {"k": 0.2})],
    ids=str,
)
def test_in_full_precision_it_is_the_cpu_s(loss, options):
    recipe = dataclasses.replace(WIDE, review_after=(1,))
    cpu, gpu = (
        train(TASK, make_folds(TASK), [TRIAL], loss, recipe, options=options, dtype=torch.float64, device=device)
        for device in ("cpu", "cuda")
    )
    np.testing.assert_allclose(gpu.train_loss, cpu.train_loss, rtol=1e-5)
    np.testing.assert_allclose(gpu.test_top, cpu.test_top)


def test_a_killed_training_goes_on_to_the_same_bits(tmp_path, monkeypatch):
    expected = trained(folds=2, at_once=2)
    save = _checkpoint.save

    def save_and_die(*arguments):
        save(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(_checkpoint, "save", save_and_die)
    checkpoints = Checkpoints(tmp_path, every=0)
    with pytest.raises(KeyboardInterrupt):
        trained(folds=2, at_once=2, checkpoints=checkpoints)
    monkeypatch.undo()
    assert same(trained(folds=2, at_once=2, checkpoints=checkpoints), expected)


def test_images_from_a_disk_give_the_same(monkeypatch):
    expected = trained()
    monkeypatch.setattr(_pixels, "_SHARE", 0)
    one_by_one = make_task(400, images=OneByOne(TASK.images), test_images=OneByOne(TASK.test_images))
    assert same(train(one_by_one, make_folds(TASK), [TRIAL], "aldr-kl", WIDE, device="cuda"), expected)


def test_too_little_memory_says_what_to_lower():
    held = torch.empty(torch.cuda.mem_get_info()[0] - 2**30, dtype=torch.uint8, device="cuda")
    with pytest.raises(MemoryError, match=r"too little memory .* lower --batch-size or --image-size"):
        trained(recipe=dataclasses.replace(WIDE, width=512, batch_size=256))
    del held
    torch.cuda.empty_cache()  # for other processes


def test_a_step_takes_no_longer_with_many_samples():
    criterion = lh.ALDRKLLoss(num_samples=50_000_000).cuda()
    logits, target = torch.randn(64, 10, device="cuda"), torch.randint(10, (64,), device="cuda")
    index = torch.randint(50_000_000, (64,), device="cuda")
    criterion(logits.requires_grad_(), target, index)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    criterion(logits, target, index)
    assert torch.cuda.max_memory_allocated() - before < 2**20  # nothing of the size of λ
