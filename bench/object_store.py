"""An S3 store on the loopback, moto's server in a process of its own, for bench_export.

What it takes in a second is its own limit, not that of S3: it holds objects in memory and checks no signature.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyarrow import fs

BUCKET = "bench"
_SERVE = """
import logging, sys
from moto.server import ThreadedMotoServer
logging.getLogger("werkzeug").setLevel(logging.ERROR)
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print("{}:{}".format(*server.get_host_and_port()), flush=True)
sys.stdin.read()
server.stop()
"""


@contextmanager
def running_store() -> Iterator[fs.S3FileSystem]:
    """Context manager: a store with a bucket, which URLs of s3:// lead to until the end."""
    process = subprocess.Popen(
        (sys.executable, "-c", _SERVE), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdin is not None
    assert process.stdout is not None
    address = process.stdout.readline().decode().strip()
    settings = {
        "AWS_ENDPOINT_URL": f"http://{address}",
        "AWS_ACCESS_KEY_ID": "bench",
        "AWS_SECRET_ACCESS_KEY": "bench",
        "AWS_REGION": "us-east-1",
    }
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        store = fs.S3FileSystem(
            access_key="bench",
            secret_key="bench",
            scheme="http",
            endpoint_override=address,
            region="us-east-1",
            allow_bucket_creation=True,
        )
        store.create_dir(BUCKET)
        yield store
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        process.stdin.close()
        process.wait()
        process.stdout.close()


class FreshKeys:
    """Keys of which each is another one; what is below the one before is removed."""

    def __init__(self, store: fs.S3FileSystem, name: str) -> None:
        self._store, self._name, self._number = store, name, 0

    @property
    def current(self) -> str:
        return f"{self._name}-{self._number}"

    def following(self) -> str:
        """Return the next key."""
        if self._number > 0:
            self._store.delete_dir(f"{BUCKET}/{self.current}")
        self._number += 1
        return self.current


def put_files(store: fs.S3FileSystem, directory: Path, key: str) -> None:
    """Put the files of a directory below a key, with threads."""
    fs.copy_files(str(directory), f"{BUCKET}/{key}", fs.LocalFileSystem(), store, chunk_size=8 << 20, use_threads=True)


def parquet_below(store: fs.S3FileSystem, key: str) -> list[str]:
    """Return the paths of the Parquet files below a key."""
    found = store.get_file_info(fs.FileSelector(f"{BUCKET}/{key}", recursive=True))
    return [info.path for info in found if info.path.endswith(".parquet")]
