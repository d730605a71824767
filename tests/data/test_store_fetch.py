"""The store and the server: what is fetched, checked and kept."""

import hashlib
import os
import socket

import pytest

from labelhedge.data import DataError, RemoteFile, _download
from tests.data.fetching import BODY, CHECKSUM, OTHER, URL, put_part, remote, sha256, start, visible, wait_until
from tests.data.server import File, Stall


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
