"""Fetching a file from a publisher who is not always there."""

import http.client
import itertools
import ssl
import time

import pytest

from labelhedge.data import DataError, _download
from labelhedge.data._download import download, version_file
from labelhedge.data._progress import silent
from tests.data.fetching import BODY, OTHER, URL
from tests.data.server import Cut, File, Stall, Status


@pytest.fixture
def part(tmp_path):
    return tmp_path / "file.bin.part"


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
