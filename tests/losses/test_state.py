"""Losses that keep a value per sample: what they write, when, and how it survives."""

import math
import os
import socket
import warnings

import pytest
import torch
import torch._dynamo  # before there is a process group: pytorch issue 190489
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

import labelhedge as lh
from labelhedge.losses import Loss, LossSpec, State, _spec
from labelhedge.losses import _state as state_of
from tests.losses.cases import random_batch
from tests.own_losses import OWN

LOGITS, TARGET = random_batch(4)
INDEX = torch.tensor([5, 0, 3, 9])


def visit(criterion, logits=LOGITS, target=TARGET, index=INDEX):
    logits = logits.clone().requires_grad_()
    loss = criterion(logits, target, index)
    loss.backward()
    return loss.detach()


def test_algorithm_1_keeps_lambda_per_sample():
    criterion = lh.ALDRKLLoss(num_samples=10).double()
    assert torch.equal(criterion.lam, torch.ones(10))
    start = torch.ones(4, dtype=torch.float64)
    for _ in range(3):
        expected = lh.functional.aldr_lambda(LOGITS, TARGET, start=start)
        loss = visit(criterion)
        torch.testing.assert_close(loss, lh.functional.aldr_kl(LOGITS, TARGET, lam=expected))
        torch.testing.assert_close(criterion.lam[INDEX], expected)
        start = expected
    untouched = torch.ones(10, dtype=torch.bool).index_fill(0, INDEX, False)
    assert torch.equal(criterion.lam[untouched], torch.ones(6))


def test_algorithm_1_converges_to_the_exact_loss():
    criterion = lh.ALDRKLLoss(num_samples=10).double()
    for _ in range(200):
        loss = visit(criterion)
    torch.testing.assert_close(loss, lh.ALDRKLLoss()(LOGITS, TARGET))


def test_infinite_lambda0():
    criterion = lh.ALDRKLLoss(num_samples=10, lambda0=math.inf)
    torch.testing.assert_close(visit(criterion), lh.functional.ldr_kl(LOGITS, TARGET, lam=math.inf))
    assert criterion.lam.isinf().all()


def test_eval_and_no_grad_leave_the_state_alone():
    criterion = lh.ALDRKLLoss(num_samples=10)
    with torch.no_grad():
        criterion(LOGITS, TARGET, INDEX)
    criterion.eval()
    visit(criterion)
    assert torch.equal(criterion.lam, torch.ones(10))
    torch.testing.assert_close(criterion(LOGITS, TARGET), lh.ALDRKLLoss()(LOGITS, TARGET))


def test_a_sample_that_occurs_twice_gets_the_mean():
    criterion = lh.ALDRKLLoss(num_samples=3).double()
    visit(criterion, index=torch.tensor([2, 0, 2, 2]))
    steps = lh.functional.aldr_lambda(LOGITS, TARGET, start=torch.ones(4))
    torch.testing.assert_close(criterion.lam, torch.stack([steps[1], torch.ones(()), steps[[0, 2, 3]].mean()]))


def test_ignored_samples_keep_their_lambda():
    criterion = lh.ALDRKLLoss(num_samples=10)
    target = TARGET.clone()
    target[1] = -100
    visit(criterion, target=target)
    assert criterion.lam[0] == 1
    assert criterion.lam[3] < 1


def test_state_dict_and_moves():
    criterion = lh.ALDRKLLoss(num_samples=10)
    visit(criterion)
    assert list(criterion.state_dict()) == ["lam"]
    assert repr(criterion) == "ALDRKLLoss(num_samples=10)"
    other = lh.ALDRKLLoss(num_samples=10)
    other.load_state_dict(criterion.state_dict())
    assert torch.equal(other.lam, criterion.lam)
    assert criterion.to(torch.float64).lam.dtype == torch.float64
    assert lh.ALDRKLLoss().state_dict() == {}


@pytest.mark.parametrize("loss", OWN)
def test_state_of_any_shape_is_kept_and_restored(loss):
    criterion, other = (loss(num_samples=10, num_classes=6).double() for _ in range(2))
    optimizer = torch.optim.SGD([*criterion.parameter_groups(), {"params": torch.zeros(1)}], lr=0.1)
    visit(criterion)
    optimizer.step()
    criterion.refresh(LOGITS, TARGET, INDEX)
    assert list(criterion.state_dict()) == [state.name for state in loss.spec.state]
    other.load_state_dict(criterion.state_dict())
    torch.testing.assert_close(other(LOGITS, TARGET, INDEX), criterion(LOGITS, TARGET, INDEX), rtol=0, atol=0)
    new = loss(num_samples=10, num_classes=6).double()
    assert not torch.equal(other(LOGITS, TARGET, INDEX), new(LOGITS, TARGET, INDEX))
    with pytest.raises(ValueError, match="num_classes must be given"):
        loss(num_samples=10)


class TransitionLoss(Loss):
    """Cross entropy behind a matrix that all samples share, from classes to the labels that they are given."""

    spec = LossSpec("transition", "-log (T p)_y", state=(State("T", ("K", "K"), lr=0.1, per_sample=False),))

    def __init__(self, weight=None, *, num_classes=None, **options):
        super().__init__(weight, num_classes=num_classes, **options)

    @staticmethod
    def formula(logits, target, T=None):
        p = logits.softmax(-1)
        if T is not None:
            p = torch.einsum("...k,...kj->...j", p, (T + 5 * torch.eye(T.shape[-1])).softmax(-1))
        return -p.log().gather(-1, target)


del _spec._REGISTRY["transition"]  # since tests of all losses are about those of the package


def test_numbers_that_all_samples_share_need_no_index():
    criterion = TransitionLoss(num_classes=6).double()
    (group,) = criterion.parameter_groups()
    assert group["lr"] == 0.1
    before = visit(criterion, index=None)
    torch.optim.SGD([group]).step()
    assert visit(criterion, index=None) < before
    assert criterion.eval()(LOGITS, TARGET) != TransitionLoss()(LOGITS, TARGET)  # in evaluation they are there, too
    assert criterion.state_dict()["T"].shape == (6, 6)
    assert TransitionLoss(num_classes=6, class_dim=-1).double()(LOGITS.expand(2, 4, 6), TARGET.expand(2, 4)).dim() == 0
    with pytest.raises(ValueError, match="logits must have num_classes=6 classes, got 4"):
        criterion(LOGITS[:, :4], TARGET.clamp(max=3))


def test_state_that_makes_no_sense():
    with pytest.raises(ValueError, match="state 't' must be per sample to be traced"):
        State("t", lr=0.1, per_sample=False, traced=True)


@pytest.mark.parametrize("loss", [lh.ALDRKLLoss, lh.TGCELoss])
def test_errors_about_the_index(loss):
    criterion = loss(num_samples=10)
    with pytest.raises(ValueError, match=r"index is missing: .*num_samples=10.* criterion\(logits, target, index\)"):
        criterion(LOGITS, TARGET)
    for bad, message in (([0, 1, 2, 10], "10"), ([0, -1, 2, 3], "-1")):
        with pytest.raises(ValueError, match=rf"index must be in \[0, 10\).*{message}"):
            criterion(LOGITS, TARGET, torch.tensor(bad))
    with pytest.raises(ValueError, match=r"index must hold integers of shape \(4,\), one per target, got .*\(3,\)"):
        criterion(LOGITS, TARGET, torch.arange(3))
    with pytest.raises(ValueError, match="index must hold integers"):
        criterion(LOGITS, TARGET, torch.rand(4))
    torch.testing.assert_close(loss()(LOGITS, TARGET, INDEX), loss()(LOGITS, TARGET))  # without state it does nothing
    for number in (0, -3, 2.5):
        with pytest.raises(ValueError, match="num_samples must be an integer of at least 1 or None"):
            loss(num_samples=number)
    with pytest.raises(TypeError, match="has no option"):
        loss(**{criterion.spec.state[0].name: None})


def test_tgce_mask():
    criterion = lh.TGCELoss(num_samples=10)
    torch.testing.assert_close(visit(criterion), lh.functional.gce(LOGITS, TARGET))
    criterion.refresh(LOGITS, TARGET, INDEX)
    p_y = LOGITS.softmax(-1).gather(1, TARGET[:, None])[:, 0]
    kept = p_y > 0.5
    assert kept.any()
    assert not kept.all()
    assert torch.equal(criterion.keep[INDEX], kept)
    torch.testing.assert_close(visit(criterion), lh.functional.tgce(LOGITS, TARGET))  # equal where mask and p_y agree
    swapped = visit(criterion, logits=LOGITS[:, torch.arange(5, -1, -1)])
    gce = lh.functional.gce(LOGITS[:, torch.arange(5, -1, -1)], TARGET, reduction="none")
    torch.testing.assert_close(swapped, torch.where(kept, gce, (1 - 0.5**0.7) / 0.7).mean())
    criterion.refresh(10 * torch.nn.functional.one_hot(TARGET, 6).double(), TARGET, INDEX)
    assert criterion.keep.all()  # pruned samples may come back


def test_printed_tgce_has_no_gradient_below_k_but_the_mask_has():
    logits = torch.zeros(4, 6, requires_grad=True)
    lh.TGCELoss()(logits, TARGET).backward()
    assert (logits.grad == 0).all()
    logits.grad = None
    lh.TGCELoss(num_samples=10)(logits, TARGET, INDEX).backward()
    assert (logits.grad != 0).any()


def test_sync_without_processes_does_nothing():
    criterion = lh.ALDRKLLoss(num_samples=10)
    visit(criterion)
    before = criterion.lam.clone()
    criterion.sync()
    lh.ALDRKLLoss().sync()
    assert torch.equal(criterion.lam, before)


class _WithLoss(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.criterion = torch.nn.Linear(6, 6), lh.ALDRKLLoss(num_samples=10)

    def forward(self, inputs):
        return self.criterion(self.linear(inputs), TARGET, INDEX)


def _check_the_warning():
    inputs = torch.ones(4, 6)
    with pytest.warns(UserWarning, match="DistributedDataParallel overwrites .* call ALDRKLLoss outside of the module"):
        DistributedDataParallel(_WithLoss())(inputs)
    with warnings.catch_warnings(action="error"):
        ignored = _WithLoss()
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(ignored, ["criterion.lam"])
        DistributedDataParallel(ignored)(inputs)


def _check_the_largest(rank):
    large = 2**53 - 1  # more than float32 can tell from its neighbours
    values = torch.tensor([large, large - rank, rank, 7])
    state_of.merge(values, torch.tensor([False, True, rank == 0, True]), "max", None)
    assert values.tolist() == [large, large, 0, 7]


def _rank(rank, port, folder):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=2)
    torch.set_num_threads(1)
    _check_the_warning()
    _check_the_largest(rank)
    criterion, mask = lh.ALDRKLLoss(num_samples=10).double(), lh.TGCELoss(num_samples=10)
    half = slice(2 * rank, 2 * rank + 2)
    visit(criterion, LOGITS[half], TARGET[half], INDEX[half])
    visit(criterion, LOGITS[rank : rank + 1], TARGET[rank : rank + 1], torch.tensor([7]))
    mask.refresh(LOGITS[half], TARGET[half], INDEX[half])
    shared = TransitionLoss(num_classes=6).double()
    visit(shared, index=INDEX)  # nothing of it is written
    shared.sync_gradients()
    shared.sync()
    criterion.sync()
    mask.sync()
    merged = criterion.lam.clone()
    criterion.sync()  # nothing new: nothing changes
    assert torch.equal(criterion.lam, merged)
    if rank == 0:  # alone now with a sample that both have seen before
        visit(criterion, LOGITS[:1], TARGET[:1], torch.tensor([7]))
    dist.broadcast(expected := criterion.lam.clone(), src=0)
    criterion.sync()
    assert torch.equal(criterion.lam, expected)
    assert not torch.equal(criterion.lam, merged)
    torch.save((merged, mask.keep), f"{folder}/{rank}.pt")
    dist.destroy_process_group()


def test_sync_merges_two_processes(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(_rank, (port, str(tmp_path)), nprocs=2)
    alone, mask = lh.ALDRKLLoss(num_samples=10).double(), lh.TGCELoss(num_samples=10)
    visit(alone)
    mask.refresh(LOGITS, TARGET, INDEX)
    steps = lh.functional.aldr_lambda(LOGITS[:2], TARGET[:2], start=torch.ones(2))
    alone.lam[7] = steps.mean()  # both ranks saw sample 7, with different logits
    for rank in range(2):
        lam, keep = torch.load(tmp_path / f"{rank}.pt", weights_only=True)
        torch.testing.assert_close(lam, alone.lam, rtol=1e-14, atol=1e-14)
        assert torch.equal(keep, mask.keep)
