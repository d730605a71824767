"""One file from a server to the disk: goes on where an interrupted download stopped, tries again after a failure."""

import errno
import http.client
import os
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from labelhedge._errors import DataError
from labelhedge.data._progress import Progress

ATTEMPTS = 4  # failures in a row that bring nothing
WAIT = 1.0  # seconds after the first of them; twice as many after each further one
TIMEOUT = 30.0  # seconds without a byte
CHUNK = 1 << 20
WORTH_ANOTHER_TRY = {408, 425, 429, 500, 502, 503, 504}


class _InterruptedError(Exception):
    """The server stopped before the file was complete."""


def download(url: str, part: Path, progress: Progress) -> None:
    """Bring ``part`` to the full length of what is at ``url``, beginning at the length it has.

    What is there already counts only if the server still offers the same version: its ETag or date, kept in a file
    beside the part, goes along in the request, and a server that has another sends the whole.
    """
    failures, most = 0, _length(part)
    while True:
        try:
            return _receive(url, part, progress)
        except urllib.error.HTTPError as error:
            error.close()
            if error.code not in WORTH_ANOTHER_TRY:
                raise DataError(f"the server answered {error.code} {error.reason}") from error
            reason = f"the server answered {error.code} {error.reason}"
        except (
            _InterruptedError,
            urllib.error.URLError,
            http.client.HTTPException,
            TimeoutError,
            ConnectionError,
        ) as error:
            reason = str(getattr(error, "reason", error)) or type(error).__name__
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise DataError(
                    f"no space left on the disk for {part}; make room and run it again, it goes on where it stopped"
                ) from error
            raise DataError(f"cannot write {part}: {error.strerror or error}") from error
        except ValueError as error:  # urllib's word for an address it cannot use
            raise DataError(str(error)) from error
        failures = 0 if _length(part) > most else failures + 1
        most = max(most, _length(part))
        if failures == ATTEMPTS:
            raise DataError(f"{reason}, {ATTEMPTS} times in a row")
        time.sleep(WAIT * 2 ** max(failures - 1, 0))


def version_file(part: Path) -> Path:
    """Where the server's name for the version that ``part`` belongs to is kept."""
    return part.with_name(part.name + ".version")


def _length(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


def _receive(url: str, part: Path, progress: Progress) -> None:
    version = version_file(part)
    have = _length(part) if version.exists() else 0
    headers = {"User-Agent": "labelhedge", "Accept-Encoding": "identity"}
    if have:
        headers |= {"Range": f"bytes={have}-", "If-Range": version.read_text()}
    try:
        response = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code != http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE or not have:
            raise
        error.close()
        if error.headers.get("Content-Range") == f"bytes */{have}":
            return  # it was complete already
        version.unlink()  # begin anew
        raise _InterruptedError("the file on the server is shorter than what was received of it") from error
    with response:
        resumed = response.status == http.HTTPStatus.PARTIAL_CONTENT
        if resumed and not response.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
            version.unlink()
            raise _InterruptedError("the server sent another part of the file than the one that was asked for")
        have = have if resumed else 0
        length = response.headers.get("Content-Length")
        total = have + int(length) if length else None
        with part.open("ab" if resumed else "wb") as file:
            if not resumed:
                _remember_version(version, response.headers)
            progress(part.stem, have, total, "bytes")
            for chunk in _chunks(response):
                file.write(chunk)
                have += len(chunk)
                if have != total:
                    progress(part.stem, have, total, "bytes")
            file.flush()
            os.fsync(file.fileno())
        if total is not None and have != total:
            raise _InterruptedError(f"the connection ended after {have:,} of {total:,} bytes")
        progress(part.stem, have, have, "bytes")


def _chunks(response: http.client.HTTPResponse) -> Iterator[bytes]:
    try:
        while chunk := response.read1(CHUNK):
            yield chunk
    except OSError as error:
        raise _InterruptedError(str(error)) from error


def _remember_version(version: Path, headers: http.client.HTTPMessage) -> None:
    etag = headers.get("ETag", "")
    name = headers.get("Last-Modified") if etag.startswith("W/") or not etag else etag
    if name:
        version.write_text(name)
    else:
        version.unlink(missing_ok=True)  # without one, nothing tells two versions apart: no resuming
