"""Connection: the frames of one client, which are read, answered in their order, and the answers written in pieces."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias, cast

from kstore.config import KIB, MIB
from kstore.errors import AuthenticationError, InvalidRequestError, LogReplacedError, UnsupportedVersionError
from kstore.serve.calls import NoAnswerError, Peer
from kstore.serve.config import ConnectionLimits
from kstore.serve.security.sasl import MOST_UNAUTHENTICATED_BYTES
from kstore.serve.sending import not_taken, send_unpaced

if TYPE_CHECKING:
    from kstore.serve.security.door import Door
    from kstore.serve.security.sasl import Session
    from kstore.wire.compiler import Part

    Answer: TypeAlias = list[Part] | None
    Respond: TypeAlias = "Callable[[bytearray, Connection, Session], Answer | Awaitable[Answer]]"

# What one write hands to the transport: before Python 3.12 it copies what it can't send at once.
_MOST_WRITE_BYTES = MIB
# What is received of a connection at a time, unless it sends a large request.
_FEW_BYTES = 64 * KIB
_SIZE = struct.Struct(">i")
# What ends a connection without a fault of the server: also a log that was truncated while records of it were sent.
_CLOSING = (InvalidRequestError, UnsupportedVersionError, AuthenticationError, NoAnswerError, LogReplacedError)
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
        if self._waiting:
            self._wake()

    @property
    def is_spent(self) -> bool:
        return self._left <= 0

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
        UnsupportedVersionError, InvalidRequestError and NoAnswerError for what a broker does not answer: the
        connection is closed.
        received: into which all connections of a loop receive, as each takes what it got before another is called.
        most_request_bytes: of a frame (Kafka: socket.request.max.bytes), less before the client said who it is.
        connections: of which this is one while it is open.
    Attributes: session: who the client is, None until TLS has begun.
    A frame takes no more memory than was received of it. While a request is answered, one more is read: so the end of a
    client is noticed that waits for an answer.
    Threads: the loop's.
    """

    own_address: Peer
    client_host: str
    session: Session | None = None

    def __init__(
        self,
        respond: Respond,
        *,
        door: Door,
        limits: ConnectionLimits,
        received: memoryview,
        budget: Budget,
        most_request_bytes: int,
        connections: set[Connection],
    ) -> None:
        self._respond = respond
        self._connections = connections
        self._received = received
        self._budget = budget
        self._most_request_bytes = most_request_bytes
        self._door = door
        self._limits = limits
        self._transport: asyncio.Transport | None = None
        # The transport below that of TLS.
        self._socket: asyncio.Transport | None = None
        self._securing: asyncio.Task[None] | None = None
        # The frame that is received, its size, which is -1 as long as it is not known, and what is known of the size.
        self._frame, self._size, self._head = bytearray(), -1, bytearray()
        self._frames: deque[bytearray] = deque()
        self._early = bytearray()
        self._answering: asyncio.Task[None] | None = None
        self._can_write = asyncio.Event()
        self._can_write.set()
        self._is_reading = True
        self._is_ending = False
        self._lost = asyncio.Event()
        # As check() saw it last: what was not sent, and since when the connection, its silence and its frame last.
        self._has_moved, self._unsent = True, 0
        self._made_ms: int | None = None
        self._silent_ms = 0
        self._frame_ms: int | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = self._socket = own = cast("asyncio.Transport", transport)
        self._connections.add(self)
        host, port, *_ = own.get_extra_info("sockname")
        self.own_address = Peer(host, port)
        self.client_host = str(own.get_extra_info("peername")[0])
        own.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        send_unpaced(own.get_extra_info("socket"), host=self.client_host)
        refused = self._door.enter(self.client_host)
        if refused is not None:
            self._close(refused)
        elif self._door.is_encrypted:
            # Not paused before: Python 3.10 then loses what comes until start_tls() pauses it itself.
            self._securing = asyncio.ensure_future(self._secure(own))
        else:
            self._begin(own)

    async def _secure(self, own: asyncio.Transport) -> None:
        try:
            secured = await self._door.secured(own, self)
        except OSError as error:
            self._close(f"no TLS: {error!r}")
            self.connection_lost(None)
            return
        self._begin(secured)
        early, self._early = self._early, bytearray()
        self._take_all(memoryview(early))

    def _begin(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        transport.set_write_buffer_limits(high=_MOST_WRITE_BYTES)
        self.session = self._door.session(transport)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        if self._lost.is_set():
            return
        # First: close() waits for it, whatever goes wrong below.
        self._lost.set()
        self._transport = None
        self._door.leave(self.client_host)
        self._connections.discard(self)
        self._can_write.set()
        if self._answering is not None:
            # Not at once: a task that has not begun would never begin, and not give back what it holds.
            asyncio.get_running_loop().call_soon(self._answering.cancel)
        self._drop_frames()
        self._budget.give_back(len(self._frame))
        self._frame = bytearray()
        self._budget.leave(self)

    def pause_writing(self) -> None:
        self._can_write.clear()

    def resume_writing(self) -> None:
        self._can_write.set()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        # More at a time of a large request, as long as there is memory for it.
        is_large = self._size > _FEW_BYTES and not self._budget.is_spent
        return self._received if is_large else self._received[:_FEW_BYTES]

    def buffer_updated(self, nbytes: int) -> None:
        self._has_moved = True
        if self._is_ending:
            return
        if self.session is None:
            # What comes with the end of a TLS handshake is here before its session, which says how much it may be.
            self._early += self._received[:nbytes]
        else:
            self._take_all(self._received[:nbytes])

    def _take_all(self, data: memoryview) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        while data:
            data = self._take_size(data) if self._size < 0 else self._take(data)
        self._answer_frames()

    def _take_size(self, data: memoryview) -> memoryview:
        """Take the size of a frame, or a part of it; return what follows it, nothing if it closes the connection."""
        needed = _SIZE.size - len(self._head)
        self._head += data[:needed]
        if len(self._head) < _SIZE.size:
            return data[:0]
        (self._size,) = _SIZE.unpack(self._head)
        self._head.clear()
        most = self._most_request_bytes
        if self._size > MOST_UNAUTHENTICATED_BYTES and not (self.session is not None and self.session.is_authenticated):
            most = min(most, MOST_UNAUTHENTICATED_BYTES)
        if not 0 < self._size <= most:
            self._close(f"a request of {self._size} bytes; expected 1 to {most}")
            return data[:0]
        return data[needed:]

    def _take(self, data: memoryview) -> memoryview:
        """Take what belongs to the frame that is received; return what follows it."""
        needed = self._size - len(self._frame)
        taken = data[:needed]
        self._frame += taken
        self._budget.take(len(taken))
        if len(taken) < needed:
            return data[:0]
        self._frames.append(self._frame)
        self._frame, self._size = bytearray(), -1
        self._frame_ms = None
        return data[needed:]

    def _answer_frames(self) -> None:
        """Answer the frames that were received, until something has to be waited for; then read on."""
        while self._frames and self._answering is None and self._transport is not None and self.session is not None:
            frame = self._frames.popleft()
            answer = None
            try:
                found = self._respond(frame, self, self.session)
                answer = self._not_taken(found) if isinstance(found, list) else found
            except Exception as error:  # noqa: BLE001 - it is logged
                self._close_after(error)
            if not answer or self._is_sent_at_once(answer):
                self._budget.give_back(len(frame))
            else:
                self._answering = asyncio.ensure_future(self._answer_later(answer, len(frame)))
        if self._answering is None and not self._frame:
            self._budget.leave(self)
        self.read_or_wait()

    def _is_sent_at_once(self, answer: list[Part] | Awaitable[Answer]) -> bool:
        """Send an answer that is known, small and may be written; return False for others."""
        if not isinstance(answer, list) or not self._can_write.is_set() or sum(map(len, answer)) > _MOST_WRITE_BYTES:
            return False
        if self._transport is not None and not self._transport.is_closing():
            self._transport.writelines(cast("list[bytes]", answer))
        return True

    def _not_taken(self, answer: list[Part]) -> list[Part]:
        """Hand the socket an answer, and return the parts that it does not take at once.  Raises: as not_taken."""
        transport, own = self._transport, None
        if transport is not None and transport is self._socket and not transport.is_closing():
            own = None if transport.get_write_buffer_size() else transport.get_extra_info("socket")
        return not_taken(own, answer)

    async def _answer_later(self, answer: Answer | Awaitable[Answer], request_bytes: int) -> None:
        try:
            parts = answer if answer is None or isinstance(answer, list) else self._not_taken(await answer or [])
            for part in parts or ():
                await self._write(memoryview(cast("bytes", part)))
            if self.session is not None and self.session.is_over:
                self._close("its authentication failed")
        except Exception as error:  # noqa: BLE001 - it is logged
            self._close_after(error)
        finally:
            self._budget.give_back(request_bytes)
            self._answering = None
        self._answer_frames()

    def _close_after(self, error: Exception) -> None:
        """Close the connection as a request cannot be answered, as a broker does."""
        if isinstance(error, _CLOSING):
            self._close(str(error))
            return
        _logger.error("a request cannot be answered", exc_info=error)
        self._close("a request cannot be answered")

    async def _write(self, part: memoryview) -> None:
        for start in range(0, len(part), _MOST_WRITE_BYTES):
            await self._can_write.wait()
            # asyncio complains of writes to a connection that is lost, until it says that it is.
            if self._transport is None or self._transport.is_closing():
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

    def check(self, now_ms: int) -> None:
        """Close the connection if it lasts too long as it is; called again and again (Kafka: IdleExpiryManager).

        Args: now_ms: of a clock that never goes back.
        """
        if self._transport is None or self._socket is None:
            return
        unsent = self._socket.get_write_buffer_size()
        if self._transport is not self._socket:
            unsent += self._transport.get_write_buffer_size()
        if self._has_moved or unsent != self._unsent:
            self._has_moved, self._unsent, self._silent_ms = False, unsent, now_ms
        self._made_ms = now_ms if self._made_ms is None else self._made_ms
        is_amid_frame = self._size >= 0 or bool(self._head)
        if is_amid_frame and self._frame_ms is None:
            self._frame_ms = now_ms
        reason = self._overdue(now_ms, is_amid_frame=is_amid_frame)
        if reason is not None:
            self._close(reason)
            # To close it politely would wait for the client.
            self._socket.abort()

    def _overdue(self, now_ms: int, *, is_amid_frame: bool) -> str | None:
        """Return why the connection lasts too long, None if it does not."""
        limits, silent_ms = self._limits, now_ms - self._silent_ms
        is_known = self.session is not None and self.session.is_authenticated
        if not is_known and now_ms - (self._made_ms or 0) > limits.handshake_ms:
            return f"the client did not say who it is in {limits.handshake_ms} ms"
        if (self._unsent or (self._transport is not None and self._transport.is_closing())) and (
            silent_ms > limits.unread_ms
        ):
            return f"the client read nothing for {limits.unread_ms} ms"
        if is_amid_frame and self._is_reading and silent_ms > limits.frame_ms:
            return f"a request did not grow for {limits.frame_ms} ms"
        if is_amid_frame and self._budget.is_spent and now_ms - (self._frame_ms or 0) > limits.frame_ms:
            return f"a request did not end in {limits.frame_ms} ms, and the memory for requests is spent"
        if silent_ms > limits.idle_ms:
            return f"it was silent for {limits.idle_ms} ms"
        return None

    async def close(self, *, grace_s: float) -> None:
        """Close the connection, once the request that is worked on is answered and the answer sent, or after a time.

        Returns when nothing of it is left. Other requests are dropped, also those that come meanwhile.
        """
        self._is_ending = True
        self._drop_frames()
        if self._answering is not None:
            await asyncio.wait((self._answering,), timeout=grace_s)
        if self._transport is not None:
            self._transport.close()
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._lost.wait(), grace_s)
        if self._transport is not None:
            self._transport.abort()
        await self._lost.wait()
        if self._answering is not None:
            await asyncio.wait((self._answering,))
        if self._securing is not None:
            await asyncio.wait((self._securing,))

    def _close(self, reason: str) -> None:
        if self._transport is not None:
            _logger.warning("connection of %s is closed: %s", self._transport.get_extra_info("peername"), reason)
            self._transport.close()
        self._drop_frames()

    def _drop_frames(self) -> None:
        """Forget the requests that are not answered any more."""
        dropped = sum(map(len, self._frames))
        self._frames.clear()
        self._budget.give_back(dropped)
