"""JPEG files as arrays."""

import io
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import overload

import numpy as np
from numpy.typing import NDArray

from labelhedge._optional import optional
from labelhedge.data._progress import Progress
from labelhedge.data.formats._damage import expecting

Image = NDArray[np.uint8]
BLOCK = 500  # images that a thread decodes at a time


def decode_jpeg(data: bytes, name: str, *, size: tuple[int, int] | None = None) -> Image:
    """A colour image, ``(height, width, 3)``; grey ones get three equal channels.

    Args:
        data: the JPEG file.
        name: what to call it in an error.
        size: width and height that it must have, if they are known; compared before anything is decoded.

    Raises:
        DataError: it is not a whole JPEG file, or of another size.
    """
    pillow = optional("PIL.Image", "data")
    with expecting("a whole JPEG image", name), pillow.open(io.BytesIO(data), formats=("JPEG",)) as image:
        if size is not None and image.size != size:
            raise ValueError(f"it has {image.size[0]} × {image.size[1]} pixels, expected {size[0]} × {size[1]}")
        return np.asarray(image if image.mode == "RGB" else image.convert("RGB"))


def decode_all(
    read: Callable[[str], bytes], names: Sequence[str], size: tuple[int, int], progress: Progress, task: str
) -> Iterator[Image]:
    """Decode every named image on all cores; blocks ``(n, height, width, 3)``, in the order of the names."""

    def decode(start: int) -> Image:
        return np.stack([decode_jpeg(read(name), name, size=size) for name in names[start : start + BLOCK]])

    done = 0
    progress(task, done, len(names), "images")
    with ThreadPoolExecutor() as threads:
        try:
            for block in threads.map(decode, range(0, len(names), BLOCK)):
                done += len(block)
                progress(task, done, len(names), "images")
                yield block
        finally:
            threads.shutdown(cancel_futures=True)


@dataclass(frozen=True)
class ImageFiles(Sequence[Image]):
    """Images on the disk, each decoded when it is asked for."""

    paths: tuple[Path, ...]

    def __len__(self) -> int:
        return len(self.paths)

    @overload
    def __getitem__(self, index: int) -> Image: ...
    @overload
    def __getitem__(self, index: slice) -> "ImageFiles": ...
    def __getitem__(self, index: int | slice) -> "Image | ImageFiles":
        if isinstance(index, slice):
            return ImageFiles(self.paths[index])
        path = self.paths[index]
        with expecting("a whole JPEG image", path):
            return decode_jpeg(path.read_bytes(), str(path))
