"""JPEG and PNG files as arrays: one, or a data set full of them."""

import contextlib
import errno
import functools
import hashlib
import os
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import overload

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from labelhedge._errors import DataError
from labelhedge._optional import optional
from labelhedge.data._progress import Progress
from labelhedge.data.formats import _decoder
from labelhedge.data.formats._damage import expecting

Image = NDArray[np.uint8]
MAX_PROCESSES = 16
_DIGESTS = 256
"""Groups of files that threads take the digest of."""


def decode_image(data: bytes, name: str) -> Image:
    """A colour image, ``(height, width, 3)``; grey ones get three equal channels.

    Args:
        data: the JPEG or PNG file; what it is named does not matter.
        name: what to call it in an error.

    Raises:
        DataError: it is not a whole JPEG or PNG file.
    """
    with expecting("a whole JPEG or PNG image (replace it or leave it out)", name):
        pillow = optional("PIL.Image", "data")
        try:
            pixels, (width, height) = _decoder.decode(pillow, data, None)
        except (SyntaxError, TypeError, AttributeError, struct.error, pillow.DecompressionBombError) as error:
            raise ValueError(str(error) or type(error).__name__) from error
        return np.frombuffer(bytearray(pixels), np.uint8).reshape(height, width, 3)


def decode_all(
    source: Path, names: Sequence[str], size: tuple[int, int], out: Path, progress: Progress, task: str
) -> None:
    """Decode many images of one size into an npy file, uint8 ``(N, height, width, 3)``, on all cores.

    Plain writes, so that a full disk is an error; with a memory-mapped file it would end the process.

    Args:
        source: the zip file or folder that has them.
        names: their paths within.
        size: width and height of each.
        out: the file to write.
        progress: is told how many are done.
        task: what to call it there.

    Raises:
        DataError: an image is missing, damaged or of another size.
        OSError: the file cannot be written.
    """
    optional("PIL.Image", "data")
    width, height = size
    with out.open("wb") as file:
        header = {"descr": "|u1", "fortran_order": False, "shape": (len(names), height, width, 3)}
        npy.write_array_header_1_0(file, header)
        offset = file.tell()
        file.truncate(offset + len(names) * width * height * 3)
    lock, done = threading.Lock(), 0

    def advance(count: int) -> None:
        nonlocal done
        with lock:
            done += count
            if done < len(names):
                progress(task, done, len(names), "images")

    count = min(os.cpu_count() or 1, MAX_PROCESSES)
    cuts = [len(names) * i // count for i in range(count + 1)]
    processes: list[subprocess.Popen[str]] = []

    def decode(first: int, last: int) -> None:
        start = offset + first * width * height * 3
        _run_decoder(source, names[first:last], size, out, start, processes, advance)

    progress(task, 0, len(names), "images")
    with ThreadPoolExecutor(count) as threads:
        try:
            list(threads.map(decode, cuts[:-1], cuts[1:]))
        except BaseException:
            for process in processes:
                process.kill()
            raise
    progress(task, len(names), len(names), "images")


def _run_decoder(
    source: Path,
    names: Sequence[str],
    size: tuple[int, int],
    out: Path,
    start: int,
    processes: list[subprocess.Popen[str]],
    advance: Callable[[int], None],
) -> None:
    """Decode images in a process, which is added to ``processes``, and write them from byte ``start`` on."""
    command = [sys.executable, _decoder.__file__, *map(str, (source, *size, out, start))]
    pipe = subprocess.PIPE
    # A session of its own: Ctrl-C comes to this process alone, which then ends the others.
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, encoding="utf-8", start_new_session=True) as process:
        processes.append(process)
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # it ended before it had read them; its exit code tells
            process.stdin.write("".join(f"{name}\n" for name in names))
            process.stdin.close()
        line = ""
        for line in process.stdout:
            if line.strip().isdecimal():
                advance(int(line))
    if process.returncode:
        number, _, message = line.strip().partition(" ")
        if number in (str(errno.ENOSPC), str(errno.EDQUOT)):
            raise OSError(int(number), os.strerror(int(number)))
        message = message or f"the decoder ended with exit code {process.returncode}"
        raise DataError(f"{source} has an image that cannot be used: {message}; get or unpack it anew")


@dataclass(frozen=True)
class ImageFiles(Sequence[Image]):
    """Images on the disk, each decoded when it is asked for."""

    paths: tuple[str, ...]

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
        return decode_image(_content(path), path)

    @functools.cached_property
    def digest(self) -> str:
        """Of the content of all files."""
        with ThreadPoolExecutor() as threads:
            digests = threads.map(_digest, [self.paths[start::_DIGESTS] for start in range(_DIGESTS)])
            return hashlib.sha256(b"".join(digests)).hexdigest()[:16]


def _digest(paths: Iterable[str]) -> bytes:
    digest = hashlib.sha256()
    for path in paths:
        digest.update(hashlib.sha256(_content(path)).digest())
    return digest.digest()


def _content(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
