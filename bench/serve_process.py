"""A server that only reads a file and sends it, the bound of fetches: `python -m bench.serve_process FILE SIZE`.

Each request, whatever it says, is answered by a frame with SIZE bytes from the start of the file. It prints its port.
"""

from __future__ import annotations

import os
import socket
import struct
import sys

_SIZE = struct.Struct(">i")


def main() -> None:
    path, size = sys.argv[1], int(sys.argv[2])
    descriptor = os.open(path, os.O_RDONLY)
    answer = memoryview(bytearray(_SIZE.size + size))
    _SIZE.pack_into(answer, 0, size)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        print(listening.getsockname()[1], flush=True)
        connection, _ = listening.accept()
    with connection:
        while connection.recv(65_536):
            os.preadv(descriptor, [answer[_SIZE.size :]], 0)
            connection.sendall(answer)


if __name__ == "__main__":
    main()
