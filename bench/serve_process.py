"""A server that only sends a file, the bound of fetches: `python -m bench.serve_process read|sendfile FILE SIZE`.

Each request, whatever it says, is answered by a frame with SIZE bytes from the start of the file, which it reads and
sends, or has the system send. Its connection has the options of one of `kstore serve`. It prints its port.
"""

from __future__ import annotations

import os
import socket
import struct
import sys

from kstore.serve.sending import send_unpaced

_SIZE = struct.Struct(">i")
_CORK: int | None = getattr(socket, "TCP_CORK", None)


def main() -> None:
    how, path, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
    descriptor = os.open(path, os.O_RDONLY)
    answer = memoryview(bytearray(_SIZE.size + size))
    _SIZE.pack_into(answer, 0, size)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        print(listening.getsockname()[1], flush=True)
        connection, (host, _) = listening.accept()
    with connection:
        send_unpaced(connection, host=host)
        while connection.recv(65_536):
            if how == "read":
                os.preadv(descriptor, [answer[_SIZE.size :]], 0)
                connection.sendall(answer)
            else:
                send_file(connection, descriptor, answer)


def send_file(connection: socket.socket, descriptor: int, answer: memoryview) -> None:
    """Send a frame with the first bytes of a file without reading it; what a short file lacks is of `answer`."""
    if _CORK is not None:
        connection.setsockopt(socket.IPPROTO_TCP, _CORK, 1)
    connection.sendall(answer[: _SIZE.size])
    size, sent = len(answer) - _SIZE.size, 0
    while sent < size and (count := os.sendfile(connection.fileno(), descriptor, sent, size - sent)):
        sent += count
    if sent < size:
        connection.sendall(answer[_SIZE.size + sent :])
    if _CORK is not None:
        connection.setsockopt(socket.IPPROTO_TCP, _CORK, 0)


if __name__ == "__main__":
    main()
