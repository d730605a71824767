"""What holds for every loss of the registry that keeps state of the training samples."""

import pytest
import torch

import labelhedge as lh
from tests.losses.cases import NAMES, random_batch

LOGITS, TARGET = random_batch(4)
INDEX = torch.tensor([5, 0, 3, 9])
every_loss_with_state = pytest.mark.parametrize("name", [name for name in NAMES if lh.losses.get(name).state])


def created(name, **options):
    classes = {"num_classes": LOGITS.shape[1]} if "num_classes" in lh.losses.get(name).counts else {}
    return lh.losses.create(name, num_samples=10, **classes, **options).double()


def kept(criterion):
    return {name: value.clone() for name, value in criterion.state_dict().items()}


def learn(criterion, target=TARGET):
    """One call in training, and what a training does after an epoch."""
    logits = LOGITS.clone().requires_grad_()
    criterion(logits, target, INDEX).sum().backward()
    criterion.refresh(LOGITS, target, INDEX)
    return logits.grad


@every_loss_with_state
def test_state_changes_for_the_samples_at_index_and_survives(name):
    criterion = created(name)
    before = kept(criterion)
    learn(criterion)
    after = kept(criterion)
    assert list(after) == [state.name for state in criterion.spec.state]
    learnt = [parameter.grad.any() for parameter in criterion.parameters()]
    assert any(learnt) or any(not torch.equal(before[key], after[key]) for key in after)
    others = torch.ones(10, dtype=torch.bool).index_fill(0, INDEX, False)
    for state in criterion.spec.state:
        if state.per_sample:
            assert torch.equal(before[state.name][others], after[state.name][others])
    other = created(name)
    other.load_state_dict(after)
    assert torch.equal(learn(other), learn(criterion))


@every_loss_with_state
def test_state_is_left_alone_without_gradients_in_eval_mode_and_where_the_target_is_ignored(name):
    criterion = created(name)
    learn(criterion)
    before = kept(criterion)
    with torch.no_grad():
        criterion(LOGITS, TARGET, INDEX)
    criterion.eval()
    criterion(LOGITS.clone().requires_grad_(), TARGET, INDEX)
    without_index = criterion(LOGITS, TARGET)
    torch.testing.assert_close(without_index, lh.losses.create(name)(LOGITS, TARGET))
    criterion.train()
    learn(criterion, torch.full_like(TARGET, -100))
    for key, value in kept(criterion).items():
        assert torch.equal(value, before[key]), key


@every_loss_with_state
def test_a_step_is_a_call_for_a_caller_who_keeps_the_state(name):
    criterion = created(name, reduction="none")
    logits = LOGITS.clone().requires_grad_()
    values = dict(criterion.named_buffers()) | dict(criterion.named_parameters())
    rows = {s.name: values[s.name][INDEX] if s.per_sample else values[s.name] for s in criterion.spec.state}
    loss, new = criterion.step(logits, TARGET, rows)
    torch.testing.assert_close(criterion(logits, TARGET, INDEX), loss)
    for key, value in new.items():
        torch.testing.assert_close(kept(criterion)[key][INDEX], value)


@every_loss_with_state
def test_a_single_sample(name):
    criterion, other = created(name), created(name)
    logits, target, index = LOGITS[1], TARGET[1], INDEX[1]
    torch.testing.assert_close(criterion(logits, target, index), other(logits[None], target[None], index[None]))
    criterion.refresh(logits, target, index)
    other.refresh(logits[None], target[None], index[None])
    assert kept(criterion).keys() == kept(other).keys()
    for state, value in kept(criterion).items():
        torch.testing.assert_close(value, kept(other)[state])
