"""The store and the disk: full, read-only, or with files on it already."""

import contextlib
import errno
import hashlib
import os
import subprocess
import sys
import threading
from pathlib import Path

import filelock
import pytest

from labelhedge.data import DataError, Store
from labelhedge.data._store import default_root
from tests.data.fetching import BODY, CHECKSUM, OTHER, URL, put, remote, sha256, visible
from tests.data.server import File


def mounted(folder, *options):
    return subprocess.run(["mount", *options, str(folder)], capture_output=True).returncode == 0


class FullFile:
    """A file on a disk with little room, for where no small disk can be mounted."""

    def __init__(self, file, room):
        self.file, self.room = file, room

    def __getattr__(self, name):
        return getattr(self.file, name)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.file.close()

    def write(self, data):
        self.room -= self.file.write(data[: self.room])
        if not self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return len(data)


@pytest.fixture
def small_disk(tmp_path):
    """A folder on a disk of 128 kB, and a function that makes the disk large."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if mounted(folder, "-t", "tmpfs", "-o", "size=128k", "tmpfs"):
        yield folder, lambda: mounted(folder, "-o", "remount,size=16m")
        subprocess.run(["umount", str(folder)], check=True)
        return
    with pytest.MonkeyPatch.context() as patch:
        real = Path.open
        patch.setattr(
            Path,
            "open",
            lambda path, mode="r", *rest, **more: (
                FullFile(real(path, mode, *rest, **more), 100_000)
                if path.suffix == ".part" and mode != "rb"
                else real(path, mode, *rest, **more)
            ),
        )
        yield folder, patch.undo


def test_a_full_disk_is_named_and_the_download_goes_on_when_there_is_room(publisher, small_disk):
    folder, make_room = small_disk
    store = Store(folder)
    with pytest.raises(DataError, match=r"no space left on the disk for .*file\.bin\.part; make room"):
        store.ensure(remote(publisher))
    assert len(publisher.requests) == 1
    received = (folder / "set" / "file.bin.part").stat().st_size
    assert 0 < received < 131072
    make_room()
    assert store.ensure(remote(publisher)).read_bytes() == BODY
    assert publisher.ranges == [None, f"bytes={received}-"]


@contextlib.contextmanager
def read_only(folder):
    """Forbid to write in a folder, to root too."""
    folder.chmod(0o555)
    bound = os.access(folder, os.W_OK) and mounted(folder, "--bind", str(folder))
    with pytest.MonkeyPatch.context() as patch:
        if bound:
            assert mounted(folder, "-o", "remount,bind,ro")
        elif os.access(folder, os.W_OK):

            def refuse(*_, **__):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

            patch.setattr(filelock.FileLock, "acquire", refuse)
        try:
            yield
        finally:
            if bound:
                subprocess.run(["umount", str(folder)], check=True)
            folder.chmod(0o755)


def test_a_file_in_a_folder_that_cannot_be_written_is_used(publisher, store):
    path = put(store, BODY)
    with read_only(path.parent):
        assert store.ensure(remote(publisher)) == path
    assert publisher.requests == []


def test_a_damaged_file_in_a_folder_that_cannot_be_written_is_found(publisher, store):
    path = put(store, OTHER)
    with read_only(path.parent), pytest.raises(DataError, match="checksum"):
        store.ensure(remote(publisher))


def test_a_folder_that_cannot_be_written_cannot_be_fetched_to(publisher, store):
    folder = store.folder("set")
    folder.mkdir(parents=True)
    with read_only(folder), pytest.raises(DataError, match=f"cannot write in {folder}: "):
        store.ensure(remote(publisher))
    assert publisher.requests == []


def test_a_root_that_is_a_file_is_an_error(publisher, store):
    store.root.write_text("")
    with pytest.raises(DataError, match=f"cannot write in {store.folder('set')}: "):
        store.ensure(remote(publisher))


def test_a_folder_in_the_place_of_a_file_is_an_error(publisher, store):
    (store.folder("set") / "file.bin").mkdir(parents=True)
    with pytest.raises(DataError, match=r"file\.bin"):
        store.ensure(remote(publisher))


@pytest.fixture
def readings(monkeypatch):
    """The files whose checksums were computed."""
    found = []
    real = hashlib.file_digest
    monkeypatch.setattr(
        hashlib, "file_digest", lambda stream, algorithm: found.append(stream.name) or real(stream, algorithm)
    )
    return found


def test_a_file_put_there_by_hand_is_used(publisher, store):
    path = put(store, BODY)
    assert store.ensure(remote(publisher, size=len(BODY))) == path
    assert publisher.requests == []
    assert visible(store) == ["file.bin"]


@pytest.mark.parametrize("size", [None, len(BODY)])
def test_a_damaged_file_is_named_and_stays(publisher, store, size):
    path = put(store, OTHER)
    for _ in range(2):
        with pytest.raises(DataError) as error:
            store.ensure(remote(publisher, size=size))
        assert str(path) in str(error.value)
        assert ("2,500,000 bytes" if size else sha256(OTHER)) in str(error.value)
        assert (f"{size:,}" if size else CHECKSUM) in str(error.value)
        assert "delete it" in str(error.value)
    assert path.read_bytes() == OTHER
    assert publisher.requests == []


def test_a_checked_file_is_not_read_again(publisher, store, readings):
    path = put(store, BODY)
    for _ in range(3):
        store.ensure(remote(publisher))
    assert readings == [str(path)]


def test_a_checked_file_needs_no_lock(publisher, store, monkeypatch):
    put(store, BODY)
    store.ensure(remote(publisher))
    monkeypatch.setattr(filelock.FileLock, "acquire", lambda *_, **__: pytest.fail("locked"))
    store.ensure(remote(publisher))


def test_who_waits_for_a_check_does_not_repeat_it(publisher, store, readings, monkeypatch):
    path = put(store, BODY)
    begun, waiting = threading.Event(), threading.Event()
    check = hashlib.file_digest

    def slow(*arguments):
        begun.set()
        waiting.wait(10)
        return check(*arguments)

    monkeypatch.setattr(hashlib, "file_digest", slow)
    first = threading.Thread(target=store.ensure, args=(remote(publisher),))
    first.start()
    assert begun.wait(10)
    Store(store.root, progress=lambda *_: waiting.set()).ensure(remote(publisher))
    first.join()
    assert waiting.is_set()
    assert readings == [str(path)]


def test_a_fetched_file_is_read_once(publisher, store, readings):
    for _ in range(3):
        store.ensure(remote(publisher))
    assert len(readings) == 1


def test_a_file_that_changed_after_it_was_checked_is_checked_again(publisher, store, readings):
    path = put(store, BODY)
    store.ensure(remote(publisher))
    os.utime(path, ns=(0, 0))
    assert store.ensure(remote(publisher)) == path
    assert len(readings) == 2
    put(store, OTHER)
    with pytest.raises(DataError, match=sha256(OTHER)):
        store.ensure(remote(publisher))


def test_a_check_against_another_checksum_does_not_count(publisher, store):
    put(store, OTHER)
    store.ensure(remote(publisher, sha256(OTHER)))
    with pytest.raises(DataError, match="checksum"):
        store.ensure(remote(publisher))


@pytest.mark.parametrize("by_hand", [True, False])
def test_where_no_checksum_is_known_the_first_is_remembered(publisher, store, by_hand):
    if by_hand:
        put(store, BODY)
    path = store.ensure(remote(publisher, None))
    os.utime(path, ns=(0, 0))
    assert store.ensure(remote(publisher, None)) == path
    put(store, OTHER)
    with pytest.raises(DataError, match=f"{sha256(OTHER)}, expected {CHECKSUM}"):
        store.ensure(remote(publisher, None))


def test_a_deleted_file_without_known_checksum_may_come_back_changed(publisher, store):
    store.ensure(remote(publisher, None)).unlink()
    publisher.files[URL] = File(OTHER)
    for _ in range(2):
        assert store.ensure(remote(publisher, None)).read_bytes() == OTHER


def test_what_a_file_unpacks_to_may_lie_in_its_place(publisher, store):
    path = put(store, b"anything", name="file")
    file = remote(publisher, unpacked="file")
    assert store.ensure(file) == store.path(file) == path
    assert publisher.requests == []


def test_nothing_is_fetched_where_that_is_forbidden(publisher, store):
    forbidding = Store(store.root, download=False)
    path = store.root / "set" / "file.bin"
    with pytest.raises(DataError) as error:
        forbidding.ensure(remote(publisher))
    assert str(error.value) == f"{path} is not there; get it with: labelhedge data get set"
    assert publisher.requests == []
    put(store, BODY)
    assert forbidding.ensure(remote(publisher)) == path


def test_the_root_is_what_the_variable_says(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("LABELHEDGE_DATA", "~/sets")
    assert default_root() == tmp_path / "sets"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LABELHEDGE_DATA", "here")
    assert default_root() == tmp_path / "here"


@pytest.mark.parametrize(
    ("platform", "variable", "folder"),
    [
        ("linux", "XDG_CACHE_HOME", "labelhedge"),
        ("linux", "HOME", ".cache/labelhedge"),
        ("darwin", "HOME", "Library/Caches/labelhedge"),
        ("win32", "LOCALAPPDATA", "labelhedge"),
    ],
)
def test_the_root_is_otherwise_the_folder_for_caches(monkeypatch, tmp_path, platform, variable, folder):
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv(variable, str(tmp_path))
    assert default_root() == tmp_path / folder
    monkeypatch.setenv("LABELHEDGE_DATA", "")
    assert default_root() == tmp_path / folder


@pytest.fixture
def source(store):
    return put(store, BODY)


def test_derived_is_made_once(store, source):
    made = []

    def make(folder):
        made.append(folder)
        (folder / "file").write_text("whole")

    for _ in range(2):
        folder = store.derived("set", "pca", source, make)
        assert (folder / "file").read_text() == "whole"
    assert folder.parent == store.folder("set")
    assert len(made) == 1
    assert store.derived("set", "other", source, make) != folder


def test_derived_is_made_anew_for_another_file(store, source):
    def make(folder):
        (folder / "size").write_text(str(source.stat().st_size))

    store.derived("set", "pca", source, make)
    put(store, OTHER)
    assert (store.derived("set", "pca", source, make) / "size").read_text() == str(len(OTHER))


def test_derived_is_made_once_by_those_who_come_together(store, source):
    made = []
    begun, waiting = threading.Event(), threading.Event()

    def make(folder):
        made.append(folder)
        begun.set()
        waiting.wait(10)
        (folder / "file").write_text("whole")

    second = Store(store.root, progress=lambda task, *_: waiting.set() if task.startswith("waiting") else None)
    first = threading.Thread(target=store.derived, args=("set", "pca", source, make))
    first.start()
    assert begun.wait(10)
    folder = second.derived("set", "pca", source, make)
    first.join()
    assert waiting.is_set()
    assert (folder / "file").read_text() == "whole"
    assert len(made) == 1


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (ValueError("wrong"), ValueError),
        (KeyboardInterrupt(), KeyboardInterrupt),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), DataError),
    ],
)
def test_derived_leaves_nothing_behind_when_it_fails(store, source, raised, expected):
    def make(folder):
        (folder / "file").write_text("half")
        raise raised

    with pytest.raises(expected) as error:
        store.derived("set", "pca", source, make)
    left = [path.name for path in store.folder("set").iterdir() if path != source]
    assert all(name.endswith(".lock") for name in left)
    if expected is DataError:
        assert str(error.value) == f"cannot write in {store.folder('set')}: No space left on device"
    assert list(store.derived("set", "pca", source, lambda folder: None).iterdir()) == []
