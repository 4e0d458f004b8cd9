"""Goal: thousands of clients that announce much and send little, or nothing, cost a server what they sent.
Method: a server in a process of its own, whose memory is read; as many sockets here."""

from __future__ import annotations

import contextlib
import resource
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from kstore.wire.frames import decode_response
from kstore.wire.messages import MetadataRequest
from tests.fakes.waiting import wait_until
from tests.making.serving import frame_of

pytestmark = pytest.mark.long

PAGE = resource.getpagesize()
MIB = 1 << 20
SPARE_FILES = 500
PROGRAM = """
import resource, sys
from kstore.serve import Server, ServerConfig
from kstore.serve.config import ConnectionLimits

files = int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
with Server(sys.argv[1], config=ServerConfig(port=0, limits=ConnectionLimits(most_connections=files))) as server:
    print(server.bootstrap_servers, flush=True)
    sys.stdin.read()
"""


class Process:
    """A server in a process of its own; a context manager."""

    def __init__(self, root: Path, *, clients: int) -> None:
        files = clients + SPARE_FILES
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        if most != resource.RLIM_INFINITY and most < files:
            pytest.skip(f"needs {files} open files a process; this one may have {most}")
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(files, resource.getrlimit(resource.RLIMIT_NOFILE)[0]), most))
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(root), str(files)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        host, _, port = self._process.stdout.readline().strip().rpartition(":")
        self._address = host, int(port)
        self._clients = contextlib.ExitStack()

    def resident_bytes(self) -> int:
        return int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1]) * PAGE

    def connections(self) -> int:
        """Return how many sockets the server has, its own included."""
        names = Path(f"/proc/{self._process.pid}/fd").iterdir()
        return sum(str(name.readlink()).startswith("socket:") for name in names)

    def connect(self, count: int, data: bytes) -> None:
        for _ in range(count):
            client = self._clients.enter_context(socket.create_connection(self._address, timeout=60))
            client.sendall(data)
        wait_until(lambda: self.connections() >= count)

    def answers(self) -> bool:
        with socket.create_connection(self._address, timeout=60) as client, client.makefile("rb") as answers:
            client.sendall(frame_of(MetadataRequest(topics=[]), version=12, correlation_id=5))
            (size,) = struct.unpack(">i", answers.read(4))
            return decode_response(answers.read(size), api_key=3, version=12)[0] == 5

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self._clients.close()
        self._process.communicate()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_2000_clients_that_announce_100_mib_cost_what_they_sent(tmp_path):
    with Process(tmp_path / "root", clients=2000) as server:
        assert server.answers()
        before = server.resident_bytes()
        server.connect(2000, struct.pack(">i", 100 * MIB) + b"x" * 100)
        assert server.answers()
        assert server.resident_bytes() - before < 32 * MIB


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_10000_idle_clients_fit_in_200_mib(tmp_path):
    with Process(tmp_path / "root", clients=10_000) as server:
        server.connect(10_000, b"")
        assert server.answers()
        assert server.resident_bytes() < 200 * MIB
