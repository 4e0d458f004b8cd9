"""A client of a server that says what it is told, also what no client would say."""

from __future__ import annotations

import socket
import ssl
import struct
import time
from types import TracebackType
from typing import Any

from kstore.serve.server import Server
from kstore.wire.classes import Message
from kstore.wire.frames import decode_response, encode_request


class RawClient:
    """One connection; a context manager."""

    def __init__(self, server: Server, tls: ssl.SSLContext | None = None) -> None:
        host, _, port = server.bootstrap_servers.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=20)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname=host)
        self._sent = 0

    def send(self, body: Message, *, version: int) -> None:
        self._sent += 1
        self.socket.sendall(frame_of(body, version=version, correlation_id=self._sent))

    def receive(self, api_key: int, *, version: int) -> tuple[int, Any]:
        """Return the correlation id and the body of the next answer."""
        return decode_response(self.received_frame(), api_key=api_key, version=version)

    def received_frame(self) -> bytearray:
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def _exactly(self, size: int) -> bytearray:
        data = bytearray()
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            if not part:
                raise ConnectionError("closed by the server")
            data += part
        return data

    def ask(self, body: Message, *, version: int) -> Any:
        """Send a request; return the body of its answer."""
        self.send(body, version=version)
        correlation_id, answer = self.receive(type(body).schema.api_keys[0], version=version)
        assert correlation_id == self._sent
        return answer

    def is_closed(self) -> bool:
        """Whether the server closes the connection, without another word."""
        return self.socket.recv(1) == b""

    def __enter__(self) -> RawClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.socket.close()


def once_it_waits(server: Server) -> None:
    """Return as soon as a fetch waits."""
    while not server._now()._server._news._waiting:
        time.sleep(0.001)


def frame_of(body: Message, *, version: int, correlation_id: int) -> bytes:
    parts = encode_request(body, version=version, correlation_id=correlation_id, client_id="raw")
    return b"".join(bytes(part) for part in parts)
