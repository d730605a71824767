"""Augmentation in tensors: a batch of images is cut, mirrored, shifted and coloured at once, where it lies.

What happens to an image follows from a seed and its place in the epoch alone. So an epoch can be repeated to the bit,
processes that share a batch do to its images what one process would have done, and nothing is stored.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from labelhedge._errors import UserError

_BITS = 2**32 - 1
_GREY = (0.299, 0.587, 0.114)
"""What red, green and blue add to the brightness (ITU-R BT.601)."""


@dataclass(frozen=True)
class Augmentation:
    """What may be done to an image while it trains.

    Example:
        >>> images = torch.zeros(100, 32, 32, 3, dtype=torch.uint8)
        >>> Augmentation(crop=4, flip=True).apply(images, random_numbers(0, torch.arange(100)), 32).shape
        torch.Size([100, 3, 32, 32])
    """

    crop: int = 0
    """Pixels of a black border around the image, of which a part of the size to train on is cut at random."""
    flip: bool = False
    """Whether to mirror every other image, left to right."""
    shift: float = 0.0
    """The largest shift, as a share of height and width; the edge is repeated."""
    jitter: float = 0.0
    """Brightness, contrast and saturation are each multiplied by a number in [1 - jitter, 1 + jitter]."""

    def __post_init__(self) -> None:
        if self.crop < 0:
            raise UserError(f"crop must be at least 0 pixels, got {self.crop}")
        for name in ("shift", "jitter"):
            if not 0 <= getattr(self, name) < 1:
                raise UserError(f"{name} must be in [0, 1), got {getattr(self, name)}")

    def apply(self, images: Tensor, draws: Tensor | None, size: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """Images to train on.

        Args:
            images: uint8, ``(B, height, width, channels)``.
            draws: :func:`random_numbers`, or None to cut out the middle and change nothing else.
            size: Height and width of the result.
            dtype: Type of the result.

        Returns:
            Numbers in [0, 1], ``(B, channels, size, size)`` with the channels last in memory.
        """
        count, height, width, channels = images.shape
        side = torch.arange(size, device=images.device)
        if draws is None:
            top, left = (height - size) // 2, (width - size) // 2
            return (images[:, top : top + size, left : left + size].to(dtype) / 255).permute(0, 3, 1, 2)
        rows, columns = side.expand(count, -1), side.expand(count, -1)
        if self.flip:
            columns = torch.where(draws[:, 2:3] < 0.5, columns, size - 1 - columns)
        if self.shift:
            most = round(self.shift * size)
            rows = (rows + _whole(draws[:, 3:4], -most, most)).clamp(0, size - 1)
            columns = (columns + _whole(draws[:, 4:5], -most, most)).clamp(0, size - 1)
        rows = rows + _whole(draws[:, 0:1], -self.crop, height - size + self.crop)
        columns = columns + _whole(draws[:, 1:2], -self.crop, width - size + self.crop)
        inside = ((rows >= 0) & (rows < height))[:, :, None] & ((columns >= 0) & (columns < width))[:, None, :]
        at = rows.clamp(0, height - 1)[:, :, None] * width + columns.clamp(0, width - 1)[:, None, :]
        which = torch.arange(count, device=images.device)[:, None, None]
        pixels = images.view(count, height * width, channels)[which, at].to(dtype) / 255
        pixels = torch.where(inside[..., None], pixels, 0.0)
        if self.jitter:
            pixels = self._coloured(pixels, draws[:, 5:].to(dtype).view(count, 1, 1, 3))
        return pixels.permute(0, 3, 1, 2)

    def _coloured(self, pixels: Tensor, draws: Tensor) -> Tensor:
        """Pixels ``(B, height, width, channels)`` with other brightness, contrast and saturation."""
        brightness, contrast, saturation = torch.split(1 + self.jitter * (2 * draws - 1), 1, -1)
        pixels = (pixels * brightness).clamp(0, 1)
        mean = _grey(pixels).mean((1, 2), keepdim=True)
        pixels = (mean + (pixels - mean) * contrast).clamp(0, 1)
        if pixels.shape[-1] == 3:
            grey = _grey(pixels)
            pixels = (grey + (pixels - grey) * saturation).clamp(0, 1)
        return pixels


def random_numbers(seed: int | Tensor, places: Tensor) -> Tensor:
    """Eight numbers in [0, 1) for each place: two rounds of a hash, on whatever device the places are.

    Args:
        seed: In [0, 2^32).
        places: Whole numbers of at least 0, ``(B,)``.

    Returns:
        ``(B, 8)``, float32.

    Example:
        >>> random_numbers(0, torch.tensor([5]))[0, :3]
        tensor([0.4637, 0.3233, 0.3754])
    """
    numbers = places[:, None] * 8 + torch.arange(8, device=places.device)
    return (_mixed(_mixed(numbers & _BITS) ^ seed) >> 8) * 2.0**-24


def _mixed(x: Tensor) -> Tensor:
    """Another number of 32 bits for each, by a hash that changes every bit half the time (C. Wellons, lowbias32)."""
    for factor, shift in ((0x7FEB352D, 16), (0x846CA68B, 15)):
        x = ((x ^ (x >> shift)) * factor) & _BITS
    return x ^ (x >> 16)


def _whole(draws: Tensor, low: int, high: int) -> Tensor:
    """From numbers in [0, 1) whole ones in [low, high], each as likely."""
    count = high - low + 1
    return low + (draws * count).long().clamp(max=count - 1)  # rounding may give `count` itself


def _grey(pixels: Tensor) -> Tensor:
    if pixels.shape[-1] != 3:
        return pixels
    red, green, blue = torch.split(pixels, 1, -1)
    return _GREY[0] * red + _GREY[1] * green + _GREY[2] * blue
