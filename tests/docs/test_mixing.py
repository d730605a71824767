"""The recipe for mixup and cutmix, as the tutorial has it, with every loss."""

import pytest
import torch

import labelhedge as lh
from tests.docs.test_tutorials import TUTORIALS, blocks

SHARE = 0.3


@pytest.fixture(scope="module")
def recipe():
    names = {}
    for _, code, shown in blocks((TUTORIALS / "mixing.md").read_text()):
        if not shown:  # all but the training
            exec(code, names)
    return names


def batch():
    random = torch.Generator().manual_seed(0)
    logits = torch.randn(8, 5, generator=random, dtype=torch.float64, requires_grad=True)
    return logits, *torch.randint(0, 5, (2, 8), generator=random)


@pytest.mark.parametrize("name", lh.losses.names())
def test_the_loss_is_the_expectation_over_both_labels(name, recipe):
    criterion = lh.losses.create(name)
    logits, first, second = batch()
    loss = recipe["mixed_loss"](criterion, logits, first, second, SHARE)
    each = lh.losses.create(name, reduction="none")
    expected = (SHARE * each(logits, first) + (1 - SHARE) * each(logits, second)).mean()
    torch.testing.assert_close(loss, expected)
    gradients = (torch.autograd.grad(value, logits)[0] for value in (loss, expected))
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("name", [name for name in lh.losses.names() if lh.losses.get(name).state])
def test_state_is_of_the_sample_that_a_label_is_from(name, recipe):
    criterion, known = (lh.losses.create(name, num_samples=20) for _ in range(2))
    logits, first, second = batch()
    numbers = torch.randperm(20)
    indices = numbers[:8], numbers[8:16]
    loss = recipe["mixed_loss_with_state"](criterion, logits, first, second, SHARE, *indices)
    loss.backward()
    expected = SHARE * known(logits, first, indices[0]) + (1 - SHARE) * known(logits, second, indices[1])
    torch.testing.assert_close(loss, expected)
    assert criterion.state_dict().keys() == known.state_dict().keys()
    for state, value in criterion.state_dict().items():
        torch.testing.assert_close(value, known.state_dict()[state])


@pytest.mark.parametrize("name", ["mixup", "cutmix"])
def test_the_share_is_that_of_the_first_image(name, recipe):
    labels = torch.arange(16)
    images = labels.double().view(-1, 1, 1, 1).expand(-1, 1, 6, 8)
    for seed in range(10):
        torch.manual_seed(seed)
        mixed, first, second, share = recipe[name](images, labels)
        assert 0 <= share <= 1
        assert torch.equal(first, labels)
        torch.testing.assert_close(mixed.mean((1, 2, 3)), share * first + (1 - share) * second.double())
