"""What the tests of downloads and of the store share."""

import hashlib
import subprocess
import sys
import time

from labelhedge.data import RemoteFile
from labelhedge.data._download import version_file
from tests.data.server import random_bytes

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
