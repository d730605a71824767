"""Where the pixels of a batch come from: the memory of the device, or a disk that worker processes read."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from labelhedge._errors import UserError, portable

Image = NDArray[np.uint8]
Images = Image | Sequence[Image]
"""``(N, height, width, channels)``, or a sequence that gives images ``(height, width, channels)`` one by one."""
Reading = Callable[[int, int], None]
"""Told how many images have been read into memory, and how many there are."""

_SHARE = 0.5
"""Of the free memory of the device, what images may take that stay there."""
_READ = 256
"""Images that are read at a time to be kept."""
_ENDED = "a process that reads images was ended; the same command goes on"


class Resident:
    """Images that lie in the memory of the device."""

    def __init__(self, images: Tensor) -> None:
        self.images = images
        self.shape = images.shape[1:]

    def blocks(self, rows: Tensor, size: int) -> Iterator[Tensor]:
        """The images of some rows in parts of ``size``, uint8 on the device."""
        for part in torch.split(rows.to(self.images.device), size):
            yield self.images[part]

    def close(self) -> None:
        """There is nothing to end."""


class Streamed:
    """Images that are read when their batch is due, by processes that run ahead.

    Args:
        images: An array too large for the device, or a sequence that reads and decodes.
        resize: The length to bring the shorter side to; the middle of the longer one is cut out. None for images that
            are all of one size.
        device: Where the batches go.
        workers: Processes; 0 reads in this one.
    """

    def __init__(self, images: Images, resize: int | None, device: torch.device, workers: int) -> None:
        self.images = images
        height, width, channels = images[0].shape
        self.shape = torch.Size((resize or height, resize or width, channels))
        self.resized = resize is not None
        self.device, self.workers = device, workers
        self._idle: list[DataLoader[Any]] = []
        """Their processes wait for the next rows, until :meth:`close`."""

    def blocks(self, rows: Tensor, size: int) -> Iterator[Tensor]:
        """The images of some rows in parts of ``size``, uint8 on the device."""
        loader = self._idle.pop() if self._idle else self._loader()
        loader.batch_sampler[:] = torch.split(rows.cpu(), size)  # type: ignore[index]
        finished = False
        try:
            for part in loader:
                if isinstance(part, Exception):  # of a worker
                    raise part
                yield part.to(self.device, non_blocking=True)
            finished = True
        except (EOFError, ConnectionError):  # before torch has heard of it, which then raises wherever this process is
            with suppress(RuntimeError):
                time.sleep(1)
            raise ChildProcessError(_ENDED) from None
        except RuntimeError as error:
            if "DataLoader worker" not in str(error):
                raise
            raise ChildProcessError(_ENDED) from None
        finally:
            self._idle.append(loader)
            if not finished:
                self.close()

    def close(self) -> None:
        """End the processes now: where Python does it some day, it may wait for each of them."""
        for loader in self._idle:
            if loader._iterator is not None:
                loader._iterator._shutdown_workers()  # type: ignore[attr-defined]
        self._idle.clear()

    def _loader(self) -> DataLoader[Any]:
        return DataLoader(
            _Fitted(self.images, self.shape, self.resized),
            batch_sampler=[],
            num_workers=self.workers,
            collate_fn=_stack,
            pin_memory=self.device.type == "cuda",
            persistent_workers=self.workers > 0,
        )


class _Fitted(Dataset[Any]):
    """Images of one size."""

    def __init__(self, images: Images, shape: torch.Size, resized: bool) -> None:
        self.images, self.shape, self.resized = images, shape, resized

    def __getitem__(self, row: Tensor) -> Tensor | Exception:
        try:
            image = torch.from_numpy(np.ascontiguousarray(self.images[int(row)]))
            if image.shape == self.shape:
                return image
            if not self.resized and image.shape[2:] == self.shape[2:]:
                sizes = [" × ".join(map(str, shape[:2])) for shape in (self.shape, image.shape)]
                raise UserError(f"images have different sizes, such as {sizes[0]} and {sizes[1]}; use --resize")
            return fitted(image, self.shape)
        except Exception as error:
            return portable(error)


def fitted(image: Tensor, shape: torch.Size) -> Tensor:
    """The middle of an image or of several of one size, brought to the height and width of ``shape``.

    Example:
        >>> fitted(torch.zeros(10, 30, 3, dtype=torch.uint8), torch.Size((20, 20, 3))).shape
        torch.Size([20, 20, 3])
    """
    if image.dim() not in (3, 4) or image.shape[-1] != shape[2]:
        raise UserError(f"images must be (height, width, {shape[2]}), got {tuple(image.shape)}")
    height, width, _ = shape
    images = (image if image.dim() == 4 else image[None]).permute(0, 3, 1, 2)
    scale = max(height / images.shape[2], width / images.shape[3])
    size = max(height, round(images.shape[2] * scale)), max(width, round(images.shape[3] * scale))
    larger = F.interpolate(images, size=size, mode="bilinear", antialias=True)
    top, left = (size[0] - height) // 2, (size[1] - width) // 2
    cut = larger[:, :, top : top + height, left : left + width].permute(0, 2, 3, 1).contiguous()
    return cut if image.dim() == 4 else cut[0]


def _stack(images: list[Tensor | Exception]) -> Tensor | Exception:
    for image in images:
        if isinstance(image, Exception):
            return image
    return torch.stack([image for image in images if isinstance(image, Tensor)])


def pixels(
    images: Images, resize: int | None, device: torch.device, workers: int, reading: Reading
) -> Resident | Streamed:
    """Images in the memory of the device if they fit there, and otherwise from where they are."""
    if len(images) == 0:
        raise ValueError("there are no images")
    if isinstance(images, np.ndarray):
        if images.dtype != np.uint8 or images.ndim != 4:
            raise ValueError(f"images must be uint8 (N, height, width, channels), got {images.dtype} {images.shape}")
        if device.type == "cpu" and not resize:
            return Resident(torch.from_numpy(images))  # which takes no memory, even if it is a file on the disk
    streamed = Streamed(images, resize, device, workers)
    if len(images) * streamed.shape.numel() > _SHARE * _free_memory(device):
        return streamed
    if isinstance(images, np.ndarray) and not resize:
        return Resident(torch.from_numpy(images).to(device))
    kept = torch.empty(len(images), *streamed.shape, dtype=torch.uint8, device=device)
    done = 0
    for part in streamed.blocks(torch.arange(len(images)), _READ):
        kept[done : done + len(part)] = part
        done += len(part)
        reading(done, len(images))
    streamed.close()
    return Resident(kept)


def _free_memory(device: torch.device) -> int:
    """In bytes."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):  # not Linux
        return 0
