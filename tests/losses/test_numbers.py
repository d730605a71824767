"""Numbers that are not ordinary: NaN, masked classes, tangents, and hyperparameters of other kinds of number."""

import math

import numpy as np
import pytest
import torch
from torch.autograd import forward_ad

import labelhedge as lh
from labelhedge.train.metrics import rank_of_label
from tests.losses.cases import CASES, IDS, NAMES, function, random_batch

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def values_and_gradients(loss, logits, target):
    """One value per sample, and the gradient of their sum."""
    logits = logits.clone().requires_grad_()
    values = loss(logits, target)
    values.sum().backward()
    return values.detach(), logits.grad


def without_reduction(name, params):
    return lh.losses.create(name, reduction="none", **params)


@pytest.mark.parametrize(("name", "params"), CASES, ids=IDS)
@pytest.mark.parametrize("bad", [math.nan, math.inf], ids=str)
def test_a_nan_logit_stays_in_its_row(name, params, bad):
    logits, target = random_batch()
    loss = without_reduction(name, params)
    values, gradients = values_and_gradients(loss, logits, target)
    for column in (0, int(target[2])):
        damaged = logits.clone()
        damaged[2, column] = bad
        found, slopes = values_and_gradients(loss, damaged, target)
        if math.isnan(bad):
            assert found[2].isnan()
        others = torch.arange(8) != 2
        torch.testing.assert_close(found[others], values[others], rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(slopes[others], gradients[others], rtol=1e-12, atol=1e-12)
        mean = lh.losses.create(name, **params)
        _, slopes = values_and_gradients(mean, damaged, target)
        torch.testing.assert_close(slopes[others], gradients[others] / 8, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("name", "params"), CASES, ids=IDS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_masked_class_counts_as_absent(name, params, dtype):
    """As in ``F.cross_entropy``: a logit of -∞ is a class that is not there."""
    logits, target = random_batch(classes=6)
    logits, target = logits.to(dtype), target % 4
    masked = torch.cat([logits[:, :4], torch.full((8, 2), -torch.inf, dtype=dtype)], 1)[:, [4, 0, 1, 2, 3, 5]]
    loss = without_reduction(name, params)
    found, slopes = values_and_gradients(loss, masked, target + 1)
    values, gradients = values_and_gradients(loss, logits[:, :4], target)
    torch.testing.assert_close(found, values)
    torch.testing.assert_close(slopes[:, 1:5], gradients)
    assert (slopes[:, [0, 5]] == 0).all()


@pytest.mark.parametrize(("name", "params"), CASES, ids=IDS)
def test_rows_may_differ_in_what_they_mask(name, params):
    logits, target = random_batch()
    loss = without_reduction(name, params)
    values, gradients = values_and_gradients(loss, logits, target)
    one_left_out = logits.clone()
    column = int(target[3] != 5) * 5
    one_left_out[3, column] = -torch.inf
    found, slopes = values_and_gradients(loss, one_left_out, target)
    others = torch.arange(8) != 3
    torch.testing.assert_close(found[others], values[others])
    torch.testing.assert_close(slopes[others], gradients[others])
    assert found[3].isfinite()
    assert slopes[3].isfinite().all()
    assert slopes[3, column] == 0


@pytest.mark.parametrize(("name", "params"), CASES, ids=IDS)
def test_networks_of_a_stack_do_not_disturb_each_other(name, params):
    """The second network has a NaN, the third a masked class; the classes are in dimension 1, as in a stack."""
    logits, target = random_batch()
    loss = lh.losses.create(name, reduction="none", class_dim=1, **params)
    stack = logits.T.repeat(3, 1, 1)
    stack[1, 0, 2] = math.nan
    stack[2, 0] = -torch.inf
    target[target == 0] = 1
    found, slopes = values_and_gradients(loss, stack, target.repeat(3, 1))
    values, gradients = values_and_gradients(without_reduction(name, params), logits, target)
    torch.testing.assert_close(found[0], values)
    torch.testing.assert_close(slopes[0], gradients.T)
    assert found[1].isnan().tolist() == [row == 2 for row in range(8)]
    values, gradients = values_and_gradients(without_reduction(name, params), logits[:, 1:], target - 1)
    torch.testing.assert_close(found[2], values)
    torch.testing.assert_close(slopes[2, 1:], gradients.T)


@pytest.mark.parametrize(("name", "params"), CASES, ids=IDS)
@pytest.mark.parametrize("masked", [slice(0, 1), slice(1, 3), slice(0, 6)], ids=str)
def test_what_is_ignored_may_be_masked(name, params, masked):
    """Padding: its label is ignored, and in its row any class may be masked, the first one among them."""
    logits, target = random_batch()
    loss = lh.losses.create(name, **params)
    target[2] = -100
    expected = values_and_gradients(loss, logits, target)
    logits[2, masked] = -torch.inf
    torch.testing.assert_close(values_and_gradients(loss, logits, target), expected)
    gradient = torch.func.grad(lambda f: loss(f, target))(logits)
    torch.testing.assert_close(gradient, expected[1])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("normalize", [None, "l1", "softplus"])
def test_a_masked_class_has_no_part_in_what_is_learnt(name, normalize):
    logits, target = random_batch()
    learnt = {"temperature": torch.nn.Parameter(torch.tensor(0.7, dtype=torch.float64))}
    if "lam" in lh.losses.get(name).domains and "k" not in lh.losses.get(name).domains:
        learnt["lam"] = torch.nn.Parameter(torch.tensor(0.8, dtype=torch.float64))
    loss = lh.losses.create(name, normalize=normalize, **learnt)
    loss(logits[:, :4], target % 4).backward()
    expected = [number.grad.clone() for number in learnt.values()]
    for number in learnt.values():
        number.grad = None
    logits[:, 4:] = -torch.inf
    loss(logits, target % 4).backward()
    torch.testing.assert_close([number.grad for number in learnt.values()], expected)


@pytest.mark.parametrize("name", [name for name in NAMES if lh.losses.get(name).state])
@pytest.mark.parametrize("column", [None, 1])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_state_outlives_a_batch_that_overflows(name, column, bad):
    logits, target = random_batch()
    counts = {"num_samples": 8, "num_classes": 6}
    loss = lh.losses.create(name, **{count: counts[count] for count in lh.losses.get(name).counts})
    index = torch.arange(8)
    damaged = logits.clone()
    damaged[2, target[2] if column is None else column] = bad
    loss(damaged.requires_grad_(), target, index)
    values, gradient = values_and_gradients(lambda f, y: loss(f, y, index), logits, target)
    assert values.isfinite()
    assert gradient.isfinite().all()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore:.torch.jit.trace:DeprecationWarning")
def test_a_trace_is_of_the_loss_and_not_of_its_value(name):
    (logits, target), (others, labels) = random_batch(), random_batch(seed=1)
    loss = lh.losses.create(name)
    traced = torch.jit.trace(loss, (logits, target))
    torch.testing.assert_close(values_and_gradients(traced, others, labels), values_and_gradients(loss, others, labels))


@pytest.mark.parametrize("name", ["aldr-kl", "ldr-kl"])
@pytest.mark.parametrize("options", [{}, {"temperature": 0.5}], ids=str)
def test_logits_far_from_0_lose_no_margin(name, options):
    logits, target = random_batch(64, 20)
    logits = (logits.float() + 1e4).double()
    loss = lh.losses.create(name, normalize=None, **options)
    exact = loss(logits, target)
    found = values_and_gradients(loss, logits.float(), target)[0]
    assert abs(found - exact) < 3e-6


@pytest.mark.parametrize("name", NAMES)
def test_a_masked_class_on_the_way_to_a_second_derivative_and_a_compiler(name):
    logits, target = random_batch()
    target = target % 5
    logits[:, 5] = -torch.inf
    loss = lh.losses.create(name)
    expected = values_and_gradients(loss, logits, target)
    torch._dynamo.reset()
    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(values_and_gradients(compiled, logits, target), expected)
    gradient = torch.func.grad(lambda f: loss(f, target))(logits)
    torch.testing.assert_close(gradient, expected[1])


@pytest.mark.parametrize("name", [name for name in NAMES if lh.losses.get(name).soft_targets])
def test_a_masked_class_with_class_probabilities(name):
    logits, target = random_batch()
    logits[:, 5] = -torch.inf
    shares = torch.nn.functional.one_hot(target % 5, 6).double() * 0.7
    shares[:, :5] += 0.3 / 5
    loss = without_reduction(name, {})
    found, slopes = values_and_gradients(loss, logits, shares)
    values, gradients = values_and_gradients(loss, logits[:, :5], shares[:, :5])
    torch.testing.assert_close(found, values)
    torch.testing.assert_close(slopes[:, :5], gradients)
    shares[0, 5], shares[0, 0] = shares[0, 0], 0.0
    assert loss(logits, shares).isinf().tolist() == [True] + 7 * [False]


@pytest.mark.parametrize("name", NAMES)
def test_a_masked_label_is_no_small_loss(name):
    """Where the label itself is masked there is nothing to learn: no gradient that is finite leads anywhere wrong."""
    logits, target = random_batch()
    logits[2, target[2]] = -torch.inf
    loss = without_reduction(name, {})
    values, _ = values_and_gradients(loss, logits, target)
    expected = torch.nn.functional.cross_entropy(logits, target, reduction="none")
    assert expected[2] == torch.inf
    others = torch.arange(8) != 2
    assert values[others].isfinite().all()
    assert values[2] >= values_and_gradients(loss, logits.clamp(min=-30), target)[0][2] - 1e-6 or values[2].isnan()


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("backend", ["auto", "torch"])
def test_forward_mode_derivatives(name, backend):
    logits, target = random_batch()
    tangent = random_batch(seed=1)[0]
    loss = lh.losses.create(name, backend=backend)
    leaf = logits.clone().requires_grad_()
    loss(leaf, target).backward()
    expected = (leaf.grad * tangent).sum()
    with forward_ad.dual_level():
        dual = forward_ad.unpack_dual(loss(forward_ad.make_dual(logits, tangent), target)).tangent
        with_gradient = forward_ad.make_dual(logits.clone().requires_grad_(), tangent)
        also = forward_ad.unpack_dual(loss(with_gradient, target)).tangent
    assert dual is not None
    torch.testing.assert_close(dual, expected)
    torch.testing.assert_close(also.detach(), expected)
    _, derivative = torch.func.jvp(lambda f: loss(f, target), (logits,), (tangent,))
    torch.testing.assert_close(derivative, expected)
    torch.testing.assert_close(torch.func.jacfwd(lambda f: loss(f, target))(logits), leaf.grad)


def test_nan_logits_never_count_as_right():
    nan = math.nan
    logits = torch.tensor([[0.1, nan, nan], [nan, 0.1, 0.0], [0.3, 0.2, 0.1]])
    assert rank_of_label(logits, torch.tensor([0, 0, 0])).tolist() == [4, 4, 1]
    assert rank_of_label(logits, torch.tensor([1, 1, 1])).tolist() == [4, 4, 2]
    assert rank_of_label(logits.T[None], torch.tensor([[0, 1, 0]]), class_dim=1).tolist() == [[4, 4, 1]]


@pytest.mark.parametrize(
    "k", [2.5, math.nan, 0, 7, torch.tensor(7), torch.tensor([1, 2, 7, 1, 1, 1, 1, 1]), torch.tensor(2.5)], ids=str
)
@pytest.mark.parametrize("name", ["topk-svm", "ldr-k-kl", "ldr-quadratic"])
def test_a_count_of_classes_is_one(name, k):
    logits, target = random_batch()
    with pytest.raises(ValueError, match="k must be"):
        function(name)(logits, target, k=k)


@pytest.mark.parametrize("name", ["topk-svm", "ldr-k-kl", "ldr-quadratic"])
@pytest.mark.parametrize("k", [2.0, np.int64(2), np.float32(2), torch.tensor(2), torch.tensor(2.0)], ids=repr)
def test_a_whole_number_of_any_kind_is_a_count(name, k):
    logits, target = random_batch()
    torch.testing.assert_close(function(name)(logits, target, k=k), function(name)(logits, target, k=2))


@pytest.mark.parametrize("name", NAMES)
def test_numpy_scalars_are_numbers(name):
    logits, target = random_batch()
    spec = lh.losses.get(name)
    for kind in (np.float32, np.float64):
        given = {n: kind(v) for n, v in spec.defaults.items() if isinstance(v, float)}
        plain = {n: float(v) for n, v in given.items()}
        found = lh.losses.create(name, temperature=kind(0.5), **given)
        expected = lh.losses.create(name, temperature=0.5, **plain)
        assert torch.equal(found(logits, target), expected(logits, target))
        assert repr(found) == repr(expected)
    if spec.state:
        assert lh.losses.create(name, num_samples=np.int64(10)).num_samples == 10
        with pytest.raises(ValueError, match="num_samples must be an integer"):
            lh.losses.create(name, num_samples=True)
