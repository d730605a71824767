"""A publisher of files on this machine, which misbehaves as it is told."""

import contextlib
import random
import re
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PATIENCE = 20.0  # seconds until a stalled answer goes on by itself, so that no broken client hangs the tests


@dataclass(frozen=True)
class Status:
    """Answer with a status and no file."""

    code: int


@dataclass(frozen=True)
class Cut:
    """Close the connection after some bytes of the body."""

    after: int


@dataclass(frozen=True)
class Stall:
    """Send nothing more after some bytes of the body until ``Publisher.go`` is set."""

    after: int


@dataclass
class File:
    """What is at one path; ``faults`` has one for each request, and after the last all goes well."""

    body: bytes
    etag: str | None = '"1"'
    modified: str | None = None
    ranges: bool = True
    faults: Iterable[Status | Cut | Stall] = ()

    def __post_init__(self) -> None:
        self.faults = iter(self.faults)


@dataclass
class Request:
    path: str
    headers: Message
    status: int = 0
    sent: int = 0


@dataclass
class Publisher:
    url: str
    files: dict[str, File] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    go: threading.Event = field(default_factory=threading.Event)

    @property
    def ranges(self) -> list[str | None]:
        return [request.headers["Range"] for request in self.requests]

    @property
    def statuses(self) -> list[int]:
        return [request.status for request in self.requests]

    @property
    def sent(self) -> int:
        return sum(request.sent for request in self.requests)


class Server(ThreadingHTTPServer):
    publisher: Publisher

    def handle_error(self, *_: object) -> None:
        """A client may go away."""


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        request = Request(self.path, self.headers)
        self.server.publisher.requests.append(request)
        file = self.server.publisher.files.get(self.path)
        fault = next(file.faults, None) if file else Status(404)
        if isinstance(fault, Status):
            self.answer(request, fault.code, {"Content-Length": "0"})
            return
        start, size = self.start(file), len(file.body)
        if start and start >= size:
            self.answer(request, 416, {"Content-Range": f"bytes */{size}", "Content-Length": "0"})
            return
        body = file.body[start or 0 :]
        headers = {"Content-Length": str(len(body)), "ETag": file.etag, "Last-Modified": file.modified}
        if start is not None:
            headers["Content-Range"] = f"bytes {start}-{size - 1}/{size}"
        self.answer(request, 200 if start is None else 206, headers)
        self.send(request, body[: fault.after] if fault else body)
        if isinstance(fault, Stall):
            self.server.publisher.go.wait(PATIENCE)
            self.send(request, body[fault.after :])

    def start(self, file: File) -> int | None:
        """Where the wanted part begins; None for the whole file."""
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers["Range"] or "")
        condition = self.headers["If-Range"]
        if not (asked and file.ranges) or (condition is not None and condition not in (file.etag, file.modified)):
            return None
        return int(asked[1])

    def answer(self, request: Request, status: int, headers: dict[str, str | None]) -> None:
        request.status = status
        self.send_response(status)
        for name, value in headers.items():
            if value is not None:
                self.send_header(name, value)
        self.end_headers()

    def send(self, request: Request, body: bytes) -> None:
        request.sent += len(body)  # first, or a client that has it all may look before it is counted
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Keep quiet."""


@contextlib.contextmanager
def publishing() -> Iterator[Publisher]:
    server = Server(("127.0.0.1", 0), Handler)
    server.publisher = Publisher(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.publisher
    finally:
        server.publisher.go.set()
        server.shutdown()
        thread.join()
        server.server_close()


def random_bytes(size: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(size)
