"""Connection: the frames of one client, which are read, answered in their order, and the answers written in pieces."""

from __future__ import annotations

import asyncio
import logging
import struct
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TypeAlias, cast

from kstore.config import MIB
from kstore.errors import InvalidRequestError, UnsupportedVersionError
from kstore.serve.calls import Peer

if TYPE_CHECKING:
    from kstore.wire.compiler import Part

    Answer: TypeAlias = list[Part] | None
    Respond: TypeAlias = "Callable[[bytearray, Connection], Answer | Awaitable[Answer]]"

# What one write hands to the transport: before Python 3.12 it copies what it can't send at once.
_MOST_WRITE_BYTES = MIB
_SIZE = struct.Struct(">i")
_logger = logging.getLogger("kstore.serve")


class Budget:
    """The bytes of requests that the connections of a server may hold, those of frames that are not whole included.

    When they are spent, one connection at a time goes on until its request is answered, so that there is an end to it:
    the server holds the size of one request more.
    """

    def __init__(self, most_bytes: int) -> None:
        self._left = most_bytes
        self._preferred: Connection | None = None
        self._waiting: dict[Connection, None] = {}

    def take(self, size: int) -> None:
        self._left -= size

    def give_back(self, size: int) -> None:
        self._left += size
        self._wake()

    def lets_read(self, connection: Connection) -> bool:
        """Whether a connection may read more; if not, it is called when it may."""
        if self._left > 0 or self._preferred in (None, connection):
            if self._left <= 0:
                self._preferred = connection
            return True
        self._waiting[connection] = None
        return False

    def leave(self, connection: Connection) -> None:
        """Say that a connection holds no request any more."""
        self._waiting.pop(connection, None)
        if self._preferred is connection:
            self._preferred = None
            self._wake()

    def _wake(self) -> None:
        while self._waiting and (self._left > 0 or self._preferred is None):
            connection = next(iter(self._waiting))
            del self._waiting[connection]
            connection.read_or_wait()


class Connection(asyncio.BufferedProtocol):
    """Reads the frames of a client, has each answered, and writes the answers.

    Args: respond: returns the answer to a frame, or an awaitable of it; None for a request that has none. It raises
        UnsupportedVersionError and InvalidRequestError for what a broker does not answer: the connection is closed.
        received: into which all connections of a loop receive, as each takes what it got before another is called.
        most_request_bytes: of a frame (Kafka: socket.request.max.bytes).
    A frame takes no more memory than was received of it. While a request is answered, one more is read: so the end of a
    client is noticed that waits for an answer.
    Threads: the loop's.
    """

    def __init__(
        self,
        respond: Respond,
        *,
        received: memoryview,
        budget: Budget,
        most_request_bytes: int,
        when_lost: Callable[[Connection], None],
    ) -> None:
        self._respond = respond
        self._when_lost = when_lost
        self._received = received
        self._budget = budget
        self._most_request_bytes = most_request_bytes
        self._transport: asyncio.Transport | None = None
        # The frame that is received, without its size, which is -1 as long as it is not known.
        self._frame, self._size = bytearray(), -1
        self._frames: deque[bytearray] = deque()
        self._answering: asyncio.Task[None] | None = None
        self._can_write = asyncio.Event()
        self._can_write.set()
        self._is_reading = True
        self._lost = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=_MOST_WRITE_BYTES)
        host, port, *_ = self._transport.get_extra_info("sockname")
        self.own_address = Peer(host, port)
        self.client_host = str(self._transport.get_extra_info("peername")[0])

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._transport = None
        self._when_lost(self)
        self._can_write.set()
        if self._answering is not None:
            self._answering.cancel()
        self._budget.give_back(len(self._frame) + sum(map(len, self._frames)))
        self._frames.clear()
        self._frame = bytearray()
        self._budget.leave(self)
        self._lost.set()

    def pause_writing(self) -> None:
        self._can_write.clear()

    def resume_writing(self) -> None:
        self._can_write.set()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        return self._received

    def buffer_updated(self, nbytes: int) -> None:
        data = self._received[:nbytes]
        while data and self._transport is not None:
            data = self._take(data)
        self._answer_frames()

    def _take(self, data: memoryview) -> memoryview:
        """Take what belongs to the frame that is received; return what follows it."""
        needed = (_SIZE.size if self._size < 0 else self._size) - len(self._frame)
        taken = data[:needed]
        self._frame += taken
        self._budget.take(len(taken))
        if len(taken) < needed:
            return data[:0]
        if self._size < 0:
            (self._size,) = _SIZE.unpack(self._frame)
            self._frame.clear()
            self._budget.give_back(_SIZE.size)
            if not 0 < self._size <= self._most_request_bytes:
                self._close(f"a request of {self._size} bytes; expected 1 to {self._most_request_bytes}")
        else:
            self._frames.append(self._frame)
            self._frame, self._size = bytearray(), -1
        return data[needed:]

    def _answer_frames(self) -> None:
        """Answer the frames that were received, until something has to be waited for; then read on."""
        while self._frames and self._answering is None and self._transport is not None:
            frame = self._frames.popleft()
            answer = None
            with self._closing_on_errors():
                answer = self._respond(frame, self)
            if self._is_sent_at_once(answer):
                self._budget.give_back(len(frame))
            else:
                self._answering = asyncio.ensure_future(self._answer_later(answer, len(frame)))
        if self._answering is None and not self._frame:
            self._budget.leave(self)
        self.read_or_wait()

    def _is_sent_at_once(self, answer: Answer | Awaitable[Answer]) -> bool:
        """Send an answer that is known, small and may be written; return False for others."""
        if answer is None:
            return True
        if not isinstance(answer, list) or not self._can_write.is_set() or sum(map(len, answer)) > _MOST_WRITE_BYTES:
            return False
        if self._transport is not None:
            self._transport.writelines(cast("list[bytes]", answer))
        return True

    async def _answer_later(self, answer: Answer | Awaitable[Answer], request_bytes: int) -> None:
        try:
            with self._closing_on_errors():
                parts = answer if answer is None or isinstance(answer, list) else await answer
                for part in parts or ():
                    await self._write(memoryview(cast("bytes", part)))
        finally:
            self._budget.give_back(request_bytes)
            self._answering = None
        self._answer_frames()

    @contextmanager
    def _closing_on_errors(self) -> Iterator[None]:
        """Close the connection where a request cannot be answered, as a broker does."""
        try:
            yield
        except (InvalidRequestError, UnsupportedVersionError) as error:
            self._close(str(error))
        except Exception:
            _logger.exception("a request cannot be answered")
            self._close("a request cannot be answered")

    async def _write(self, part: memoryview) -> None:
        for start in range(0, len(part), _MOST_WRITE_BYTES):
            await self._can_write.wait()
            if self._transport is None:
                return
            self._transport.write(part[start : start + _MOST_WRITE_BYTES])

    def read_or_wait(self) -> None:
        """Read on, unless a request waits for its turn or the server holds too much."""
        if self._transport is None or self._transport.is_closing():
            return
        is_reading = not self._frames and self._budget.lets_read(self)
        if is_reading != self._is_reading:
            self._is_reading = is_reading
            (self._transport.resume_reading if is_reading else self._transport.pause_reading)()

    async def close(self, *, grace_s: float) -> None:
        """Close the connection, once what was answered is sent or after a time; return when nothing of it is left."""
        if self._transport is not None:
            self._transport.close()
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._lost.wait(), grace_s)
        if self._transport is not None:
            self._transport.abort()
        await self._lost.wait()
        if self._answering is not None:
            await asyncio.wait((self._answering,))

    def _close(self, reason: str) -> None:
        if self._transport is not None:
            _logger.warning("connection of %s is closed: %s", self._transport.get_extra_info("peername"), reason)
            self._transport.close()
        self._frames.clear()
