"""One array out of an npz file, with the shape and type that are expected of it."""

import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from labelhedge.data.formats._damage import expecting

CHUNK = 1 << 20


def read_npz(path: Path, name: str, *, shape: tuple[int, ...], dtype: str = "uint8") -> NDArray[Any]:
    """Read an array whose header is checked before anything is allocated, and whose bytes by the archive's CRC.

    Raises:
        DataError: the file is damaged, cut off, or holds something else.
    """
    with (
        expecting("the npz file it should be", path),
        zipfile.ZipFile(path) as archive,
        archive.open(f"{name}.npy") as member,
    ):
        _check_header(member, shape, dtype)
        array = np.empty(shape, dtype)
        rest = array.reshape(-1).view(np.uint8)
        while len(rest):
            chunk = member.read(min(len(rest), CHUNK))
            if not chunk:
                raise ValueError(f"{len(rest):,} bytes are missing")
            rest[: len(chunk)] = np.frombuffer(chunk, np.uint8)
            rest = rest[len(chunk) :]
        if member.read(1):  # reading on to the end is also what makes zipfile compare the CRC
            raise ValueError("it goes on after the last element")
    return array


def _check_header(member: IO[bytes], shape: tuple[int, ...], dtype: str) -> None:
    version = npy.read_magic(member)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"npy version {version} is not known")
    read_header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    found_shape, fortran_order, found_dtype = read_header(member)
    if (found_shape, found_dtype) != (shape, np.dtype(dtype)):
        raise ValueError(f"{member.name} holds {found_dtype} of {found_shape}, expected {dtype} of {shape}")
    if fortran_order:
        raise ValueError(f"{member.name} is in Fortran's order")
