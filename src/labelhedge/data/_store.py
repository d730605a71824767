"""The folder that keeps data sets: where files lie, how they get there, and whether they are what they should be."""

import contextlib
import hashlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from labelhedge._errors import DataError
from labelhedge._optional import optional
from labelhedge.data._download import download, version_file
from labelhedge.data._progress import Progress, silent
from labelhedge.data._record import DatasetInfo, RemoteFile


def default_root() -> Path:
    """``LABELHEDGE_DATA`` if it is set, else the platform's folder for caches."""
    if chosen := os.environ.get("LABELHEDGE_DATA"):
        return Path(chosen).expanduser().absolute()
    home = Path.home()
    if sys.platform == "win32":
        cache = Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    elif sys.platform == "darwin":
        cache = home / "Library" / "Caches"
    else:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")
    return cache / "labelhedge"


@dataclass(frozen=True)
class Store:
    """A folder with one folder for each data set.

    Attributes:
        root: the folder.
        download: whether files that are not there may be fetched.
        progress: is told how far long tasks have come.
    """

    root: Path
    download: bool = True
    progress: Progress = silent

    def folder(self, name: str) -> Path:
        """The folder of a data set."""
        return self.root / name

    def path(self, file: RemoteFile) -> Path:
        """Where a file belongs, or where what it unpacks to lies in its place."""
        folder = self.folder(file.folder)
        if file.unpacked and (folder / file.unpacked).exists():
            return folder / file.unpacked
        return folder / file.name

    def has(self, info: DatasetInfo) -> bool:
        """Whether everything that a data set is read from is there."""
        files = (self.path(file) for file in info.files)
        return all(path.exists() for path in (*files, *(self.folder(info.name) / name for name in info.folders)))

    def ensure(self, file: RemoteFile) -> Path:
        """The path of a file that is there and whose checksum has been seen to be right.

        What somebody has unpacked in its place has no checksum, and is left to its reader.
        """
        path = self.path(file)
        if path.name == file.unpacked:
            return path
        if path.exists() and _stamped(path, file):
            return path
        if not (path.exists() or self.download):
            raise DataError(f"{path} is not there; get it with: labelhedge data get {file.folder}")
        with self.locked(path):
            if not path.exists():
                self._fetch(file, path)
            elif not _stamped(path, file):
                try:
                    _stamp(path, check(path, file))
                except DataError as error:
                    raise DataError(f"{error}; delete it, and get it anew") from error
        return path

    @contextlib.contextmanager
    def locked(self, path: Path) -> Iterator[None]:
        """Hold what is being made at ``path`` against other processes; wait for one that is making it now."""
        filelock = optional("filelock", "data")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = filelock.FileLock(path.with_name(f".{path.name}.lock"))
            try:
                lock.acquire(timeout=0)
            except filelock.Timeout:
                self.progress(f"waiting for another process that is at work on {path.name}", 0, None, "")
                lock.acquire()
        except OSError as error:
            if path.exists():  # a folder that is not ours to write, with the file in it
                yield
                return
            raise DataError(f"cannot write in {path.parent}: {error.strerror or error}") from error
        try:
            yield
        finally:
            lock.release()

    def derived(self, name: str, what: str, source: Path, make: Callable[[Path], None]) -> Path:
        """A folder of what ``make`` computed for a data set: made once, and there whole or not at all.

        Args:
            name: the data set.
            what: a name for what is made.
            source: the file it is made from; one of another size or date gets a folder of its own.
            make: fills the folder that it is given.
        """
        try:
            stat = source.stat()
        except OSError as error:
            raise DataError(f"cannot read {source}: {error.strerror or error}; get or unpack it anew") from error
        target = self.folder(name) / f"derived-{what}-{stat.st_size}-{stat.st_mtime_ns}"
        if target.is_dir():
            return target
        with self.locked(target):
            if not target.is_dir():
                try:
                    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as scratch:
                        made = Path(scratch) / target.name
                        made.mkdir()
                        make(made)
                        made.rename(target)
                except OSError as error:
                    raise DataError(f"cannot write in {target.parent}: {error.strerror or error}") from error
        return target

    def _fetch(self, file: RemoteFile, path: Path) -> None:
        url = address(file)
        part = path.with_name(path.name + ".part")
        attempts = 2 if version_file(part).exists() else 1  # pieces that do not fit together are fetched again, in one
        try:
            while True:
                download(url, part, self.progress)
                try:
                    digest = check(part, file)
                    break
                except DataError:
                    for piece in (part, version_file(part)):
                        piece.unlink(missing_ok=True)
                    attempts -= 1
                    if not attempts:
                        raise
        except DataError as error:
            raise DataError(f"cannot get {url} ({error}); fetch it elsewhere and put it at {path}") from error
        part.replace(path)
        version_file(part).unlink(missing_ok=True)
        _stamp(path, digest)


def address(file: RemoteFile) -> str:
    """Where to fetch a file: its publisher, or the folder of its data set under ``LABELHEDGE_MIRROR``."""
    mirror = os.environ.get("LABELHEDGE_MIRROR")
    return f"{mirror.rstrip('/')}/{file.folder}/{file.name}" if mirror else file.url


def check(path: Path, file: RemoteFile) -> str:
    """The checksum of a file, or an error if it is not its publisher's."""
    size = path.stat().st_size
    if file.size is not None and size != file.size:
        raise DataError(f"{path} has {size:,} bytes, its publisher's {file.size:,}")
    algorithm = (file.checksum or "sha256:").partition(":")[0]
    try:
        with path.open("rb") as stream:
            found = f"{algorithm}:{hashlib.file_digest(stream, algorithm).hexdigest()}"
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    expected = file.checksum or _stamp_of(path)[0]
    if expected and found != expected:
        raise DataError(f"{path} has the checksum {found}, expected {expected}")
    return found


def _stamp_path(path: Path) -> Path:
    return path.with_name(f".{path.name}.verified")


def _stamp(path: Path, digest: str) -> None:
    """Note beside a file that it was checked as it is now, so that it need not be read again to be trusted."""
    stat = path.stat()
    with contextlib.suppress(OSError):  # a folder that is not ours to write is checked each time
        _stamp_path(path).write_text(f"{digest} {stat.st_size} {stat.st_mtime_ns}\n")


def _stamp_of(path: Path) -> tuple[str, str]:
    """The checksum that was noted, and the size and date of the file it was noted for."""
    try:
        digest, _, state = _stamp_path(path).read_text().strip().partition(" ")
    except OSError:
        return "", ""
    return digest, state


def _stamped(path: Path, file: RemoteFile) -> bool:
    digest, state = _stamp_of(path)
    stat = path.stat()
    return bool(digest) and state == f"{stat.st_size} {stat.st_mtime_ns}" and digest == (file.checksum or digest)
