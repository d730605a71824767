"""Fetching files from a publisher who is not always there, and trusting those that lie on the disk."""

import contextlib
import errno
import hashlib
import http.client
import itertools
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path

import filelock
import pytest

from labelhedge.data import DataError, RemoteFile, Store, _download
from labelhedge.data._download import download, version_file
from labelhedge.data._progress import silent
from labelhedge.data._store import default_root
from tests.data.server import Cut, File, Stall, Status, publishing, random_bytes

BODY = random_bytes(3_000_000)
OTHER = random_bytes(2_500_000, seed=1)
URL = "/publisher/file.bin"
ENSURE = """
import os, sys
from pathlib import Path
from labelhedge.data import RemoteFile, Store

def report(task, *_):
    os.write(1, f"{task}\\n".encode())  # whole lines, as two processes may write to one pipe

url, root = sys.argv[1:]
report(Store(Path(root), progress=report).ensure(RemoteFile("set", "file.bin", url)))
"""


def sha256(body):
    return f"sha256:{hashlib.sha256(body).hexdigest()}"


CHECKSUM = sha256(BODY)


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    monkeypatch.setattr(_download, "WAIT", 0.001)
    monkeypatch.setenv("no_proxy", "*")
    for name in ("LABELHEDGE_DATA", "LABELHEDGE_MIRROR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def publisher():
    with publishing() as publisher:
        publisher.files[URL] = File(BODY)
        yield publisher


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "root")


@pytest.fixture
def part(tmp_path):
    return tmp_path / "file.bin.part"


def remote(publisher, checksum=CHECKSUM, size=None, **more):
    return RemoteFile("set", "file.bin", publisher.url + URL, checksum, size, **more)


def put(store, body, name="file.bin"):
    path = store.folder("set") / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(body)
    return path


def put_part(store, body, version='"1"'):
    path = put(store, body, "file.bin.part")
    version_file(path).write_text(version)
    return path


def visible(store):
    return sorted(path.name for path in store.folder("set").iterdir() if not path.name.startswith("."))


def start(publisher, store, stdout=subprocess.DEVNULL):
    return subprocess.Popen([sys.executable, "-c", ENSURE, publisher.url + URL, str(store.root)], stdout=stdout)


def wait_until(condition):
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def mounted(folder, *options):
    return subprocess.run(["mount", *options, str(folder)], capture_output=True).returncode == 0


# download


def test_a_file_arrives_whole(publisher, part):
    download(publisher.url + URL, part, silent)
    assert part.read_bytes() == BODY
    assert publisher.ranges == [None]


def test_an_empty_file_arrives(publisher, part):
    publisher.files[URL] = File(b"")
    download(publisher.url + URL, part, silent)
    assert part.read_bytes() == b""


def test_progress_rises_and_ends_complete(publisher, part):
    told = []
    download(publisher.url + URL, part, lambda *report: told.append(report))
    done = [report[1] for report in told]
    assert done == sorted(set(done))
    assert len(done) > 2
    assert told[0] == ("file.bin", 0, len(BODY), "bytes")
    assert told[-1] == ("file.bin", len(BODY), len(BODY), "bytes")


def test_progress_of_a_resumed_download_begins_where_it_stopped(publisher, part):
    part.write_bytes(BODY[:1000])
    version_file(part).write_text('"1"')
    told = []
    download(publisher.url + URL, part, lambda *report: told.append(report))
    assert told[0] == ("file.bin", 1000, len(BODY), "bytes")
    assert told[-1] == ("file.bin", len(BODY), len(BODY), "bytes")


@pytest.mark.parametrize("validator", [{}, {"etag": None, "modified": "Sat, 01 Jan 2022 00:00:00 GMT"}])
def test_only_the_missing_bytes_are_asked_for_after_an_interruption(publisher, part, validator):
    publisher.files[URL] = File(BODY, faults=[Cut(1_300_000), Cut(1_000_000)], **validator)
    download(publisher.url + URL, part, silent)
    assert part.read_bytes() == BODY
    assert publisher.ranges == [None, "bytes=1300000-", "bytes=2300000-"]
    assert publisher.statuses == [200, 206, 206]
    assert publisher.sent == len(BODY)


def test_any_number_of_interruptions_is_survived_while_bytes_arrive(publisher, part):
    publisher.files[URL] = File(BODY, faults=itertools.repeat(Cut(400_000)))
    download(publisher.url + URL, part, silent)
    assert part.read_bytes() == BODY
    assert len(publisher.requests) == 8 > _download.ATTEMPTS


def test_a_stalled_connection_is_given_up_and_what_it_brought_is_kept(publisher, part, monkeypatch):
    monkeypatch.setattr(_download, "TIMEOUT", 0.3)
    publisher.files[URL] = File(BODY, faults=[Stall(500_000)])
    download(publisher.url + URL, part, silent)
    assert part.read_bytes() == BODY
    assert publisher.ranges == [None, "bytes=500000-"]


def test_a_network_that_fails_on_the_way_is_not_taken_for_the_disk(publisher, part, monkeypatch):
    def fail(*_):
        raise ssl.SSLError("bad record mac")

    for name in ("read", "read1"):
        monkeypatch.setattr(http.client.HTTPResponse, name, fail)
    with pytest.raises(DataError, match=f"bad record mac.*, {_download.ATTEMPTS} times in a row"):
        download(publisher.url + URL, part, silent)


def test_a_weak_etag_does_not_vouch_for_bytes(publisher, part):
    date = "Sat, 01 Jan 2022 00:00:00 GMT"
    publisher.files[URL] = File(BODY, etag='W/"1"', modified=date, faults=[Cut(1_300_000)])
    download(publisher.url + URL, part, silent)
    assert [request.headers["If-Range"] for request in publisher.requests] == [None, date]


def test_a_file_that_changed_meanwhile_is_fetched_anew(publisher, part):
    part.write_bytes(BODY[:1_300_000])
    version_file(part).write_text('"1"')
    publisher.files[URL] = File(OTHER, etag='"2"')
    download(publisher.url + URL, part, silent)
    assert part.read_bytes() == OTHER
    assert publisher.requests[0].headers["If-Range"] == '"1"'
    assert publisher.statuses == [200]
    assert version_file(part).read_text() == '"2"'


def test_a_server_without_ranges_sends_the_whole_again(publisher, part):
    publisher.files[URL] = File(BODY, ranges=False, faults=[Cut(1_300_000)])
    download(publisher.url + URL, part, silent)
    assert part.read_bytes() == BODY
    assert publisher.ranges == [None, "bytes=1300000-"]
    assert publisher.statuses == [200, 200]


def test_nothing_is_resumed_without_a_validator(publisher, part):
    publisher.files[URL] = File(BODY, etag=None, faults=[Cut(1_300_000)])
    download(publisher.url + URL, part, silent)
    assert part.read_bytes() == BODY
    assert publisher.ranges == [None, None]


@pytest.mark.parametrize("ranges", [True, False])
def test_a_connection_that_always_breaks_is_given_up(publisher, part, ranges):
    cuts = itertools.cycle([Cut(900_000), Cut(100_000)]) if not ranges else itertools.repeat(Cut(0))
    publisher.files[URL] = File(BODY, ranges=ranges, faults=itertools.islice(cuts, 50))
    with pytest.raises(DataError, match="the connection ended after"):
        download(publisher.url + URL, part, silent)


def test_a_complete_part_is_not_fetched_again(publisher, part):
    part.write_bytes(BODY)
    version_file(part).write_text('"1"')
    download(publisher.url + URL, part, silent)
    assert part.read_bytes() == BODY
    assert publisher.statuses == [416]
    assert publisher.sent == 0


def test_a_part_longer_than_the_file_is_fetched_anew(publisher, part):
    part.write_bytes(BODY + b"more")
    version_file(part).write_text('"1"')
    download(publisher.url + URL, part, silent)
    assert part.read_bytes() == BODY
    assert publisher.ranges == ["bytes=3000004-", None]
    assert publisher.statuses == [416, 200]


def test_a_refused_range_that_nobody_asked_for_is_the_servers_fault(publisher, part):
    publisher.files[URL].faults = itertools.repeat(Status(416))
    with pytest.raises(DataError, match="416"):
        download(publisher.url + URL, part, silent)


def test_a_refusal_leaves_no_connection_open(publisher, part):
    with pytest.raises(DataError) as error:
        download(publisher.url + "/nothing", part, silent)
    assert error.value.__cause__.closed


def test_a_busy_server_is_asked_again(publisher, part):
    publisher.files[URL].faults = iter([Status(503), Status(503)])
    download(publisher.url + URL, part, silent)
    assert part.read_bytes() == BODY
    assert publisher.statuses == [503, 503, 200]


def test_a_server_that_stays_busy_is_given_up(publisher, part):
    publisher.files[URL].faults = itertools.repeat(Status(503))
    with pytest.raises(DataError, match=f"503 .*, {_download.ATTEMPTS} times in a row"):
        download(publisher.url + URL, part, silent)
    assert len(publisher.requests) == _download.ATTEMPTS


def test_the_waits_between_attempts_double(publisher, part, monkeypatch):
    waits = []
    monkeypatch.setattr(time, "sleep", waits.append)
    publisher.files[URL].faults = itertools.repeat(Status(503))
    with pytest.raises(DataError, match="503"):
        download(publisher.url + URL, part, silent)
    assert waits == pytest.approx([_download.WAIT * factor for factor in (1, 2, 4)])


@pytest.mark.parametrize("url", ["nowhere", "gopher://127.0.0.1/file"])
def test_an_address_of_no_use_is_an_error(url, part):
    with pytest.raises(DataError, match="unknown url type"):
        download(url, part, silent)


# Store.ensure: from the server


def test_ensure_fetches_checks_and_leaves_one_file(publisher, store):
    path = store.ensure(remote(publisher, size=len(BODY)))
    assert path == store.root / "set" / "file.bin"
    assert path.read_bytes() == BODY
    assert visible(store) == ["file.bin"]


def test_ensure_takes_other_checksums(publisher, store):
    path = store.ensure(remote(publisher, f"md5:{hashlib.md5(BODY).hexdigest()}"))
    assert path.read_bytes() == BODY


def test_a_killed_process_leaves_what_the_next_one_resumes(publisher, store):
    publisher.files[URL].faults = iter([Stall(2_500_000)])
    part = store.folder("set") / "file.bin.part"
    process = start(publisher, store)
    try:
        wait_until(lambda: part.exists() and part.stat().st_size >= 1_000_000)
    finally:
        process.kill()
        process.wait()
    received = part.stat().st_size
    assert visible(store) == ["file.bin.part", "file.bin.part.version"]
    assert store.ensure(remote(publisher)).read_bytes() == BODY
    assert publisher.ranges == [None, f"bytes={received}-"]
    assert publisher.requests[1].sent == len(BODY) - received
    assert visible(store) == ["file.bin"]


def test_two_processes_fetch_a_file_once(publisher, store):
    publisher.files[URL].faults = iter([Stall(1_000_000)])
    reader, writer = os.pipe()
    processes = [start(publisher, store, stdout=writer) for _ in range(2)]
    os.close(writer)
    told = []
    with open(reader) as lines:
        for line in lines:
            told.append(line)
            if line.startswith("waiting"):
                publisher.go.set()
    assert [process.wait() for process in processes] == [0, 0]
    assert len(publisher.requests) == 1
    path = store.folder("set") / "file.bin"
    assert path.read_bytes() == BODY
    assert told.count("waiting for another process that is at work on file.bin\n") == 1
    assert told.count(f"{path}\n") == 2


@pytest.mark.parametrize(
    ("checksum", "size"),
    [(CHECKSUM, None), (CHECKSUM, len(BODY)), (None, len(BODY))],
    ids=["checksum", "checksum and size", "size"],
)
def test_a_wrong_file_does_not_stay(publisher, store, checksum, size):
    publisher.files[URL] = File(OTHER)
    file = remote(publisher, checksum, size)
    with pytest.raises(DataError) as error:
        store.ensure(file)
    assert visible(store) == []
    message = str(error.value)
    assert file.url in message
    assert str(store.path(file)) in message
    assert ("2,500,000 bytes" if size else sha256(OTHER)) in message
    assert (f"{size:,}" if size else checksum) in message
    assert len(publisher.requests) == 1

    publisher.files[URL] = File(BODY)
    assert store.ensure(file).read_bytes() == BODY


def test_pieces_that_do_not_fit_together_are_fetched_in_one(publisher, store):
    put_part(store, OTHER[:1_000_000])
    assert store.ensure(remote(publisher)).read_bytes() == BODY
    assert publisher.ranges == ["bytes=1000000-", None]
    assert visible(store) == ["file.bin"]


def test_a_wrong_file_does_not_stay_after_a_resumed_download_either(publisher, store):
    put_part(store, OTHER[:1_000_000])
    with pytest.raises(DataError, match="checksum"):
        store.ensure(remote(publisher, sha256(b"something else")))
    assert len(publisher.requests) == 2
    assert visible(store) == []


def test_an_old_part_whose_file_has_changed_is_replaced(publisher, store):
    put_part(store, BODY[:1_000_000])
    publisher.files[URL] = File(OTHER, etag='"2"')
    assert store.ensure(remote(publisher, sha256(OTHER))).read_bytes() == OTHER
    assert len(publisher.requests) == 1


def test_a_file_that_is_not_there_is_asked_for_once(publisher, store):
    del publisher.files[URL]
    file = remote(publisher)
    with pytest.raises(DataError) as error:
        store.ensure(file)
    assert len(publisher.requests) == 1
    assert str(error.value) == (
        f"cannot get {file.url} (the server answered 404 Not Found); "
        f"fetch it elsewhere and put it at {store.path(file)}"
    )


def test_a_server_that_is_down_is_an_error_that_names_it(store):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/file.bin"
        with pytest.raises(DataError) as error:
            store.ensure(RemoteFile("set", "file.bin", url))
    assert url in str(error.value)
    assert f"refused, {_download.ATTEMPTS} times in a row" in str(error.value)
    assert "\n" not in str(error.value)


def test_the_mirror_takes_the_publishers_place(publisher, store, monkeypatch):
    publisher.files["/mirror/set/file.bin"] = File(BODY)
    monkeypatch.setenv("LABELHEDGE_MIRROR", f"{publisher.url}/mirror/")
    store.ensure(remote(publisher))
    assert [request.path for request in publisher.requests] == ["/mirror/set/file.bin"]


# Store.ensure: the disk


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


# Store.ensure: what lies there already


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


# where data sets lie


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


# Store.derived


def test_derived_is_made_once(store):
    made = []

    def make(folder):
        made.append(folder)
        (folder / "file").write_text("whole")

    for _ in range(2):
        folder = store.derived("set", "pca", make)
        assert (folder / "file").read_text() == "whole"
    assert folder == store.root / "set" / "derived-pca"
    assert len(made) == 1
    assert store.derived("set", "other", make) != folder


def test_derived_is_made_once_by_those_who_come_together(store):
    made = []
    begun, waiting = threading.Event(), threading.Event()

    def make(folder):
        made.append(folder)
        begun.set()
        waiting.wait(10)
        (folder / "file").write_text("whole")

    second = Store(store.root, progress=lambda task, *_: waiting.set() if task.startswith("waiting") else None)
    first = threading.Thread(target=store.derived, args=("set", "pca", make))
    first.start()
    assert begun.wait(10)
    folder = second.derived("set", "pca", make)
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
def test_derived_leaves_nothing_behind_when_it_fails(store, raised, expected):
    def make(folder):
        (folder / "file").write_text("half")
        raise raised

    with pytest.raises(expected) as error:
        store.derived("set", "pca", make)
    assert [path.name for path in store.folder("set").iterdir()] in ([], [".derived-pca.lock"])
    if expected is DataError:
        assert str(error.value) == f"cannot write in {store.folder('set')}: No space left on device"
    assert list(store.derived("set", "pca", lambda folder: None).iterdir()) == []
