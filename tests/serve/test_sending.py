"""Goal: an answer reaches its client whole and in its order, whatever the socket takes of it at once.
Method: a connection on a pair of sockets, with a transport that keeps what it is given."""

from __future__ import annotations

import asyncio
import socket
import struct

import pytest

from kstore.serve.config import ConnectionLimits, SecurityConfig
from kstore.serve.connection import Budget, Connection
from kstore.serve.security.door import Door

LIMITS = ConnectionLimits()
ANSWER = [b"head", memoryview(bytes(range(256)) * 40), b"tail"]
SENT = b"".join(ANSWER)


class KeepingTransport(asyncio.Transport):
    """Sends nothing itself. Attributes: unsent (how many bytes it says that it has); written."""

    def __init__(self, own):
        super().__init__({"socket": own, "sockname": ("127.0.0.1", 9092), "peername": ("127.0.0.1", 5000)})
        self.unsent = 0
        self.written = b""

    def set_write_buffer_limits(self, high=None, low=None):
        pass

    def get_write_buffer_size(self):
        return self.unsent

    def is_closing(self):
        return False

    def write(self, data):
        self.written += data

    def pause_reading(self):
        pass

    resume_reading = pause_reading


class Answering:
    """A connection whose answers are given, and its client's end. `with` closes both."""

    def __init__(self, answer, *, most_sent=None):
        self.client, self.own = socket.socketpair()
        if most_sent is not None:
            self.own.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, most_sent)
        self.own.setblocking(False)
        self.transport = KeepingTransport(self.own)
        self.received = bytearray(100)
        self.connection = Connection(
            lambda *_: answer() if callable(answer) else answer,
            door=Door(SecurityConfig(), LIMITS),
            limits=LIMITS,
            received=memoryview(self.received),
            budget=Budget(1 << 20),
            most_request_bytes=1 << 20,
            connections=set(),
        )
        self.connection.connection_made(self.transport)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.client.close()
        self.own.close()

    def ask(self, *, requests=1):
        data = (struct.pack(">i", 1) + b"x") * requests
        self.received[: len(data)] = data
        self.connection.buffer_updated(len(data))

    def client_has(self):
        self.client.setblocking(False)
        found = b""
        while True:
            try:
                found += self.client.recv(1 << 20)
            except BlockingIOError:
                return found


def test_the_socket_takes_an_answer_without_the_transport():
    with Answering(ANSWER) as answering:
        answering.ask(requests=3)
        assert (answering.client_has(), answering.transport.written) == (SENT * 3, b"")


def test_what_the_socket_does_not_take_follows_by_the_transport():
    answer = [b"head", bytes(range(256)) * 1000, b"tail"]
    with Answering(answer, most_sent=10_000) as answering:
        answering.ask()
        sent = answering.client_has()
        assert 0 < len(sent) < 250_000
        assert sent + answering.transport.written == b"".join(answer)


@pytest.mark.parametrize("size", [1 << 20, 3 << 20])
def test_what_is_left_of_a_large_answer_follows_too(size):
    answer = [b"head", b"x" * size, b"tail"]

    async def asked():
        with Answering(answer, most_sent=10_000) as answering:
            answering.ask()
            await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))
            return answering.client_has() + answering.transport.written

    assert asyncio.run(asked()) == b"".join(answer)


def test_nothing_overtakes_what_the_transport_has_not_sent():
    with Answering(ANSWER) as answering:
        answering.transport.unsent = 1
        answering.ask()
        assert (answering.client_has(), answering.transport.written) == (b"", SENT)


def test_a_socket_that_takes_nothing_leaves_the_answer_to_the_transport():
    with Answering(ANSWER) as answering:
        answering.own.close()
        answering.ask()
        assert answering.transport.written == SENT


def test_an_answer_of_more_parts_than_a_call_takes_is_sent_whole():
    parts = [b"%05d" % number for number in range(3000)]
    with Answering(parts) as answering:
        answering.ask()
        assert answering.client_has() + answering.transport.written == b"".join(parts)


def test_an_answer_that_is_waited_for_is_sent_in_the_same_way():
    async def answer():
        await asyncio.sleep(0)
        return ANSWER

    async def asked():
        with Answering(answer) as answering:
            answering.ask()
            await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))
            return answering.client_has(), answering.transport.written

    assert asyncio.run(asked()) == (SENT, b"")
