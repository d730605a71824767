"""Some members of a tar file that is compressed by gzip, read in place: nothing is extracted to the disk."""

import gzip
import tarfile
from collections.abc import Mapping
from pathlib import Path


def read_members(path: Path, limits: Mapping[str, int]) -> dict[str, bytes]:
    """The bytes of the members that ``limits`` names, none larger than its limit in bytes.

    Raises:
        ValueError: one is missing or too large; a damaged archive raises other errors too.
    """
    found = {}
    with gzip.open(path) as stream:
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            for member in archive:
                if member.name in limits and member.isfile():
                    if member.size > limits[member.name]:
                        raise ValueError(f"{member.name} has {member.size:,} bytes, too many")
                    content = archive.extractfile(member)
                    assert content is not None  # it is a file
                    found[member.name] = content.read()
        _drain(stream)
    for name in limits:
        if name not in found:
            raise ValueError(f"it has no {name}")
    return found


def _drain(stream: gzip.GzipFile) -> None:
    """Read to the end, where gzip has its checksum."""
    while stream.read(1 << 20):
        pass
