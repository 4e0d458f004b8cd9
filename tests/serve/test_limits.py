"""Goal: no client holds more of a server than its limits say, however slow or silent it is.
Method: a connection on a transport of the test, which is told the time; and sockets where the server counts."""

from __future__ import annotations

import asyncio
import struct

import pytest

from kstore.serve.calls import NoAnswerError
from kstore.serve.config import ConnectionLimits, SecurityConfig, ServerConfig
from kstore.serve.connection import Budget, Connection
from kstore.serve.security.door import Door
from kstore.serve.security.users import add_user
from kstore.serve.server import Server
from kstore.wire.messages import MetadataRequest
from tests.fakes.waiting import wait_until
from tests.making.serving import RawClient

LIMITS = ConnectionLimits(handshake_ms=100, frame_ms=200, unread_ms=300, idle_ms=1000)


class Socket:
    def setsockopt(self, *_):
        pass

    def fileno(self):
        return -1


class Transport:
    """A transport that says how much of what was written is not sent, and closes by itself when a write fails."""

    def __init__(self):
        self.unsent = 0
        self.is_aborted = self.is_closed = self.is_lost_by_a_write = False
        self.written = []

    def get_extra_info(self, name):
        return {"sockname": ("127.0.0.1", 9092), "peername": ("127.0.0.1", 5000), "socket": Socket()}.get(name)

    def set_write_buffer_limits(self, *, high):
        pass

    def writelines(self, parts):
        assert not self.is_closed
        self.written += map(len, parts)

    def write(self, part):
        assert not self.is_closed
        self.written.append(len(part))
        self.is_closed = self.is_lost_by_a_write

    def get_write_buffer_size(self):
        return self.unsent

    def is_closing(self):
        return self.is_closed

    def close(self):
        self.is_closed = True

    def abort(self):
        self.is_closed = self.is_aborted = True

    def resume_reading(self):
        pass

    pause_reading = resume_reading


class Client:
    """A connection with its transport."""

    def __init__(self, *, budget=None, security=None, respond=lambda *_: None, received_bytes=1000):
        self.transport = Transport()
        self.made = set()
        self.received = bytearray(received_bytes)
        self.connection = Connection(
            respond,
            door=Door(security or SecurityConfig(), LIMITS),
            limits=LIMITS,
            received=memoryview(self.received),
            budget=budget or Budget(1 << 20),
            most_request_bytes=1 << 20,
            connections=self.made,
        )
        assert not self.made, "one that is accepted may never be made, and would never be lost"
        self.connection.connection_made(self.transport)
        assert self.made == {self.connection}

    def send(self, data):
        self.received[: len(data)] = data
        self.connection.buffer_updated(len(data))

    def is_closed_at(self, now_ms):
        self.connection.check(now_ms)
        return self.transport.is_aborted


def test_a_silent_connection_is_closed_after_the_limit():
    client = Client()
    assert [client.is_closed_at(now_ms) for now_ms in (5000, 6000, 6001)] == [False, False, True]


def test_a_request_renews_the_time_of_a_connection():
    client = Client()
    assert not client.is_closed_at(5000)
    client.send(struct.pack(">i", 1) + b"x")
    assert [client.is_closed_at(now_ms) for now_ms in (5900, 6900, 6901)] == [False, False, True]


@pytest.mark.parametrize("data", [b"\0", b"\0\0\0\1", struct.pack(">i", 100) + b"x"], ids=["size", "no-byte", "part"])
def test_a_request_that_does_not_grow_ends_its_connection(data):
    client = Client()
    client.send(data)
    assert [client.is_closed_at(now_ms) for now_ms in (5000, 5200, 5201)] == [False, False, True]


def test_a_request_that_grows_may_take_its_time_while_there_is_memory():
    client = Client()
    client.send(struct.pack(">i", 100))
    for now_ms in range(5000, 9000, 200):
        client.send(b"x")
        assert not client.is_closed_at(now_ms)


def test_a_request_that_grows_slowly_ends_when_the_memory_is_spent():
    budget = Budget(50)
    client = Client(budget=budget)
    client.send(struct.pack(">i", 100))
    budget.take(50)
    closed = []
    for now_ms in (5000, 5200, 5201):
        client.send(b"x")
        closed.append(client.is_closed_at(now_ms))
    assert closed == [False, False, True]


def test_the_time_of_a_request_begins_with_it():
    budget = Budget(1)
    client = Client(budget=budget)
    client.send(struct.pack(">i", 1))
    budget.take(50)
    assert not client.is_closed_at(5000)
    client.send(b"x" + struct.pack(">i", 1))
    assert [client.is_closed_at(now_ms) for now_ms in (5150, 5300)] == [False, False]


def test_more_is_received_at_a_time_of_a_large_request_while_there_is_memory():
    budget = Budget(100)
    client = Client(budget=budget, received_bytes=256 << 10)
    sizes = [len(client.connection.get_buffer(-1))]
    client.send(struct.pack(">i", 1 << 20))
    sizes.append(len(client.connection.get_buffer(-1)))
    budget.take(100)
    sizes.append(len(client.connection.get_buffer(-1)))
    assert sizes == [64 << 10, 256 << 10, 64 << 10]


def test_nothing_is_written_to_a_connection_that_is_lost():
    async def lost():
        client = Client(respond=lambda frame, *_: [b"x" * (1 << 20)] * 8 if frame == b"b" else [b"small"])
        client.transport.is_lost_by_a_write = True
        client.send(struct.pack(">i", 1) + b"b" + struct.pack(">i", 1) + b"s")
        await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))
        return client.transport.written

    assert asyncio.run(lost()) == [1 << 20]


def test_a_client_that_does_not_read_its_answers_is_closed():
    client = Client()
    client.transport.unsent = 900
    assert [client.is_closed_at(now_ms) for now_ms in (5000, 5300)] == [False, False]
    client.transport.unsent = 800
    assert [client.is_closed_at(now_ms) for now_ms in (5301, 5601, 5602)] == [False, False, True]


def test_a_closed_connection_does_not_wait_for_a_client_that_reads_nothing():
    client = Client()
    client.send(struct.pack(">i", -1))
    assert (client.transport.is_closed, client.transport.is_aborted) == (True, False)
    assert [client.is_closed_at(now_ms) for now_ms in (5000, 5300, 5301)] == [False, False, True]


def test_a_client_says_who_it_is_in_time_or_is_closed(tmp_path):
    add_user(tmp_path / "users.json", "alice", "a", iterations=4096)
    client = Client(security=SecurityConfig(users=tmp_path / "users.json"))
    closed = []
    for now_ms in (5000, 5100, 5101):
        client.send(struct.pack(">i", 1) + b"x")
        closed.append(client.is_closed_at(now_ms))
    assert closed == [False, False, True]


@pytest.mark.parametrize("limits", [{"most_connections": 2}, {"most_per_address": 2}], ids=str)
def test_a_connection_too_many_is_closed_until_another_one_goes(served, limits):
    with Server(served, config=ServerConfig(port=0, limits=ConnectionLimits(**limits))) as server:
        first, second = RawClient(server), RawClient(server)
        assert first.ask(MetadataRequest(topics=[]), version=12).error_code == 0
        assert second.ask(MetadataRequest(topics=[]), version=12).error_code == 0
        with RawClient(server) as third:
            assert third.is_closed()
        first.socket.close()

        def is_let_in():
            with RawClient(server) as fourth:
                fourth.send(MetadataRequest(topics=[]), version=12)
                try:
                    return fourth.receive(3, version=12)
                except ConnectionError:
                    return None

        wait_until(is_let_in)
        second.socket.close()


def test_a_server_looks_after_its_connections(served, monkeypatch):
    monkeypatch.setattr("kstore.serve.server._CHECK_S", 0.01)
    config = ServerConfig(port=0, limits=ConnectionLimits(idle_ms=20))
    with Server(served, config=config) as server, RawClient(server) as client:
        assert client.is_closed()


def test_a_client_that_leaves_before_its_request_is_begun_leaves_nothing_behind():
    async def leave_at_once():
        done = []

        async def work():
            done.append("what can be done at once")
            await asyncio.Event().wait()

        budget = Budget(100)
        client = Client(budget=budget, respond=lambda *_: work())
        client.send(struct.pack(">i", 1) + b"x")
        client.connection.connection_lost(None)
        await client.connection.close(grace_s=0)
        return done, budget._left

    assert asyncio.run(leave_at_once()) == (["what can be done at once"], 100)


@pytest.mark.parametrize("is_first", [True, False])
def test_requests_after_one_that_ends_the_connection_give_back_what_they_hold(is_first):
    def respond(frame, *_):
        if frame == b"end":
            raise NoAnswerError("the end")

    budget = Budget(1000)
    client = Client(budget=budget, respond=respond)
    frames = [b"end", b"x" * 100, b"y" * 100] if is_first else [b"x" * 100, b"end", b"y" * 100]
    client.send(b"".join(struct.pack(">i", len(frame)) + frame for frame in frames) + struct.pack(">i", 50) + b"z")
    client.connection.connection_lost(None)
    assert budget._left == 1000
