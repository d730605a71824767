"""Augmentation of a batch against what it does to one image at a time."""

import numpy as np
import pytest
import torch

from labelhedge.train.augment import Augmentation, random_numbers

IMAGES = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (80, 8, 8, 3), dtype=np.uint8))


def augmented(augmentation, images=IMAGES, size=8, seed=0):
    return augmentation.apply(images, random_numbers(seed, torch.arange(len(images))), size)


def as_numbers(images):
    return images.permute(0, 3, 1, 2) / 255


def test_nothing_to_do():
    assert torch.equal(augmented(Augmentation()), as_numbers(IMAGES))


def test_without_draws_the_middle_is_cut_out():
    cut = Augmentation(crop=2, flip=True, shift=0.5, jitter=0.5).apply(IMAGES, None, 4)
    assert torch.equal(cut, as_numbers(IMAGES)[:, :, 2:6, 2:6])


def test_flip_mirrors_some_images_left_to_right():
    found = augmented(Augmentation(flip=True))
    plain = as_numbers(IMAGES)
    mirrored = [bool(torch.equal(a, b.flip(-1))) for a, b in zip(found, plain, strict=True)]
    same = [bool(torch.equal(a, b)) for a, b in zip(found, plain, strict=True)]
    assert all(a != b for a, b in zip(mirrored, same, strict=True))
    assert 25 < sum(mirrored) < 55


@pytest.mark.parametrize("size", [8, 6])
def test_crop_cuts_out_of_a_black_border(size):
    found = augmented(Augmentation(crop=2), size=size)
    bordered = torch.nn.functional.pad(as_numbers(IMAGES), (2, 2, 2, 2))
    places = range(12 - size + 1)
    at = [
        [(i, j) for i in places for j in places if torch.equal(image, whole[:, i : i + size, j : j + size])]
        for image, whole in zip(found, bordered, strict=True)
    ]
    assert all(len(where) == 1 for where in at)
    for axis in (0, 1):
        assert {where[0][axis] for where in at} == set(places)


def test_shift_repeats_the_edge():
    found = augmented(Augmentation(shift=0.25))
    widened = torch.nn.functional.pad(as_numbers(IMAGES), (2, 2, 2, 2), mode="replicate")
    shifts = set()
    for image, whole in zip(found, widened, strict=True):
        at = [(i, j) for i in range(5) for j in range(5) if torch.equal(image, whole[:, i : i + 8, j : j + 8])]
        assert at
        shifts.update(at)
    assert {i for i, _ in shifts} == {j for _, j in shifts} == {0, 1, 2, 3, 4}


def test_jitter_changes_brightness_contrast_and_saturation():
    augmentation = Augmentation(jitter=0.5)
    images = IMAGES[:1]

    def with_draws(brightness, contrast, saturation):
        draws = torch.full((1, 8), 0.5)
        draws[0, 5:] = torch.tensor([brightness, contrast, saturation])
        return augmentation.apply(images, draws, 8)

    plain = as_numbers(images)
    torch.testing.assert_close(with_draws(0.5, 0.5, 0.5), plain)
    torch.testing.assert_close(with_draws(0.0, 0.5, 0.5), plain * 0.5)
    grey = (plain * torch.tensor([0.299, 0.587, 0.114]).view(3, 1, 1)).sum(1, keepdim=True)
    mean = grey.mean((2, 3), keepdim=True)
    torch.testing.assert_close(with_draws(0.5, 0.0, 0.5), mean + 0.5 * (plain - mean))
    torch.testing.assert_close(with_draws(0.5, 0.5, 0.0), grey + 0.5 * (plain - grey))
    brighter = with_draws(0.999, 0.999, 0.999)
    assert brighter.max() <= 1
    assert brighter.min() >= 0


def test_random_numbers_are_uniform_and_independent():
    numbers = random_numbers(7, torch.arange(100_000)).double()
    assert 0 <= numbers.min() < 1e-4
    assert 1 - 1e-4 < numbers.max() < 1
    torch.testing.assert_close(numbers.mean(0), torch.full((8,), 0.5, dtype=torch.float64), rtol=0, atol=0.005)
    counts = torch.stack([torch.histc(column, 64, 0, 1) for column in numbers.T])
    assert ((counts - 100_000 / 64).square() / (100_000 / 64)).sum(1).max() < 120  # chi-square with 63 degrees
    shifted = torch.cat([numbers[1:, :1], random_numbers(8, torch.arange(1, 100_000))[:, :1].double()], 1)
    together = torch.corrcoef(torch.cat([numbers[:-1], shifted], 1).T) - torch.eye(10)
    assert together.abs().max() < 0.02


def test_random_numbers_depend_on_seed_and_place_alone():
    places = torch.tensor([5, 0, 123_456_789])
    numbers = random_numbers(3, places)
    assert torch.equal(random_numbers(torch.tensor(3), places.flip(0)), numbers.flip(0))
    assert not (random_numbers(4, places) == numbers).any()


def test_grey_images():
    found = augmented(Augmentation(crop=1, flip=True, shift=0.1, jitter=0.3), IMAGES[..., :1])
    assert found.shape == (80, 1, 8, 8)


def test_the_same_seed_does_the_same():
    augmentation = Augmentation(crop=2, flip=True, shift=0.2, jitter=0.2)
    assert torch.equal(augmented(augmentation), augmented(augmentation))
    assert not torch.equal(augmented(augmentation), augmented(augmentation, seed=1))


def test_the_largest_draw_stays_inside():
    draws = torch.full((1, 8), 1 - 2**-24)
    images = torch.full((1, 300, 300, 1), 255, dtype=torch.uint8)
    assert (Augmentation().apply(images, draws, 44) == 1).all()


@pytest.mark.parametrize(("option", "value"), [("crop", -1), ("shift", 1.0), ("shift", -0.1), ("jitter", 2)])
def test_wrong_values_are_refused(option, value):
    with pytest.raises(ValueError, match=f"{option} must be .*, got {value}"):
        Augmentation(**{option: value})
