"""Answers handed to a socket without the transport: bytes, and parts of files that the system sends itself."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import TYPE_CHECKING

from kstore._core import send_part
from kstore.env import send_file, send_parts
from kstore.serve.security.door import is_loopback

if TYPE_CHECKING:
    from asyncio.trsock import TransportSocket

    from kstore.wire.compiler import Part

_BYTES = frozenset({bytes, bytearray, memoryview})
_CONGESTION: int | None = getattr(socket, "TCP_CONGESTION", None)


def not_taken(own: TransportSocket | None, answer: list[Part]) -> list[Part]:
    """Hand a socket an answer as it is, and return the parts that it does not take at once, all of them bytes.

    Before Python 3.12 a transport joins parts, which copies them. In a call for each, the first wakes the client, which
    reads while the server writes: that takes longer than both in turn.
    Args: own: None to hand nothing over; answer: bytes, and each FetchRange in place of its bytes, which is closed.
    Raises: LogReplacedError if the file of a range has become shorter: what was handed over is no whole answer.
    """
    for part in answer:
        if type(part) not in _BYTES:
            return _not_taken_of_files(own, answer)
    try:
        return answer if own is None else _after(answer, send_parts(own.fileno(), answer))
    except OSError:
        # It takes nothing now; or the transport meets the same error, and ends the connection.
        return answer


def _not_taken_of_files(own: TransportSocket | None, answer: list[Part]) -> list[Part]:
    try:
        count, size = (0, 0) if own is None else _handed_over(own, answer)
        return [_rest(part, 0 if number else size) for number, part in enumerate(answer[count:])]
    finally:
        for part in answer:
            if type(part) not in _BYTES:
                part.close()


def _handed_over(own: TransportSocket, answer: list[Part]) -> tuple[int, int]:
    """Hand a socket parts one by one; return how many it takes whole, and how many bytes of the next one."""
    fd, last = own.fileno(), len(answer) - 1
    for count, part in enumerate(answer):
        wanted = len(part)
        try:
            if type(part) in _BYTES:
                # What the socket keeps of a part goes with the next one, or with what the transport sends in its place.
                size = send_part(fd, part, is_last=count == last)
            else:
                size = send_file(fd, part.file, position=part.position, size=wanted)
        except OSError:
            size = 0
        if size < wanted:
            return count, size
    return len(answer), 0


def _rest(part: Part, start: int) -> Part:
    if type(part) not in _BYTES:
        return part.read(start=start)
    return memoryview(part)[start:] if start else part


def _after(parts: list[Part], size: int) -> list[Part]:
    """Return what follows the first bytes of parts."""
    found: list[Part] = []
    for part in parts:
        if len(part) > size:
            found.append(memoryview(part)[size:] if size else part)
        size = max(size - len(part), 0)
    return found


def send_unpaced(own: TransportSocket, *, host: str) -> None:
    """Have a connection to a client on this machine send as fast as the client reads.

    BBR, the default of some systems, measures how fast the path is and waits between segments: on the loopback, where
    only the processor is slow, fetches took twice as long. Reno does not wait, and is there on every Linux.
    """
    if _CONGESTION is not None and is_loopback(host):
        with suppress(OSError):
            own.setsockopt(socket.IPPROTO_TCP, _CONGESTION, b"reno")
