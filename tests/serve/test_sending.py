"""Goal: an answer reaches its client whole and in its order, whatever the socket takes of it at once, also with records
that are sent from their file.
Method: a connection on a pair of sockets, with a transport that keeps what it is given."""

from __future__ import annotations

import asyncio
import errno
import os
import select
import socket
import struct

import pytest

import kstore
from kstore.errors import LogClosedError
from kstore.record import with_records
from kstore.serve.config import ConnectionLimits, SecurityConfig
from kstore.serve.connection import Budget, Connection
from kstore.serve.security.door import Door
from kstore.serve.sending import send_unpaced

LIMITS = ConnectionLimits()
ANSWER = [b"head", memoryview(bytes(range(256)) * 40), b"tail"]
SENT = b"".join(ANSWER)


class KeepingTransport(asyncio.Transport):
    """Sends nothing itself. Attributes: unsent (how many bytes it says that it has); written; is_closed."""

    def __init__(self, own):
        super().__init__({"socket": own, "sockname": ("127.0.0.1", 9092), "peername": ("127.0.0.1", 5000)})
        self.unsent = 0
        self.written = b""
        self.is_closed = False

    def set_write_buffer_limits(self, high=None, low=None):
        pass

    def get_write_buffer_size(self):
        return self.unsent

    def is_closing(self):
        return self.is_closed

    def close(self):
        self.is_closed = True

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


@pytest.mark.parametrize("size", [0, -1, 1 << 30])
def test_nothing_is_answered_that_follows_a_size_that_no_request_has(size):
    asked = []
    with Answering(lambda: asked.append(1)) as answering:
        data = struct.pack(">i", size) + (struct.pack(">i", 1) + b"x") * 2
        answering.received[: len(data)] = data
        answering.connection.buffer_updated(len(data))
        assert asked == []


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


@pytest.fixture
def log(tmp_path):
    with kstore.open_log(tmp_path / "t-0", "a") as made:
        for number in range(30):
            made.append(with_records([kstore.Record(timestamp_ms=number, value=bytes([number]) * 10_000)]))
        yield made


def lent(log, offset, size=10**6):
    """A range of records, and the bytes that it stands for."""
    return log.fetch_range(offset, size), log.fetch(offset, size).records


def is_given_back(part):
    try:
        part.read()
    except LogClosedError:
        return True
    return False


def test_records_are_sent_from_their_file_between_the_other_parts(log):
    (first, records), (second, more) = lent(log, 0, 20_000), lent(log, 20, 20_000)
    with Answering([b"head", first, memoryview(b"between"), second, b"tail"]) as answering:
        answering.ask()
        assert answering.client_has() == b"head" + records + b"between" + more + b"tail"
        assert answering.transport.written == b""
    assert is_given_back(first)
    assert is_given_back(second)


@pytest.mark.parametrize("offset", [0, 17])
def test_what_the_socket_does_not_take_of_a_file_is_read_and_follows(log, offset):
    (part, records), (other, more) = lent(log, offset), lent(log, 5, 15_000)
    with Answering([b"head", part, other, b"tail"], most_sent=5_000) as answering:
        answering.ask()
        sent = answering.client_has()
        assert 4 < len(sent) < len(records) + 4
        assert sent + answering.transport.written == b"head" + records + more + b"tail"
    assert is_given_back(part)
    assert is_given_back(other)


def test_a_file_does_not_overtake_what_the_transport_has_not_sent(log):
    part, records = lent(log, 3)
    with Answering([b"head", part, b"tail"]) as answering:
        answering.transport.unsent = 1
        answering.ask()
        assert (answering.client_has(), answering.transport.written) == (b"", b"head" + records + b"tail")
    assert is_given_back(part)


def test_a_file_that_the_system_cannot_send_is_read(log, monkeypatch):
    def sendfile(*_):
        raise OSError(errno.EINVAL, "not this file")

    monkeypatch.setattr(os, "sendfile", sendfile)
    part, records = lent(log, 0, 20_000)
    with Answering([b"head", part, b"tail"]) as answering:
        answering.ask()
        assert (answering.client_has(), answering.transport.written) == (b"head", records + b"tail")


@pytest.mark.parametrize("left", [0, 10], ids=["wholly", "in part"])
def test_a_log_that_is_truncated_while_it_is_sent_ends_the_connection_within_the_answer(log, left, caplog):
    (part, records), (later, _) = lent(log, left, 40_000), lent(log, 0, 20_000)
    log.truncate_to(left + 2 if left else 0)
    with Answering([b"head", part, later, b"tail"]) as answering:
        answering.ask()
        assert answering.transport.is_closed
        assert answering.transport.written == b""
        assert answering.client_has() == b"head" + records[: log.size_in_bytes - part.position]
    assert "was truncated" in caplog.text
    assert is_given_back(part)
    assert is_given_back(later)


def test_a_range_that_is_waited_for_is_sent_in_the_same_way(log):
    part, records = lent(log, 0, 20_000)

    async def answer():
        await asyncio.sleep(0)
        return [b"head", part]

    async def asked():
        with Answering(answer) as answering:
            answering.ask()
            await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))
            return answering.client_has(), answering.transport.written

    assert asyncio.run(asked()) == (b"head" + records, b"")
    assert is_given_back(part)


@pytest.fixture
def connected():
    """Both ends of a connection: the client's, and that of the server."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        client = socket.create_connection(listening.getsockname())
        own, _ = listening.accept()
    with client, own:
        own.setblocking(False)
        yield client, own


@pytest.mark.skipif(not hasattr(socket, "MSG_MORE"), reason="Linux alone has it")
def test_a_header_waits_for_the_records_that_follow_it(log, monkeypatch, connected):
    client, own = connected
    part, records = lent(log, 0, 20_000)
    sendfile = os.sendfile
    early = []

    def noted(*arguments):
        early.append(select.select([client], [], [], 0.02)[0])
        return sendfile(*arguments)

    monkeypatch.setattr(os, "sendfile", noted)
    with Answering([b"head", part]) as answering:
        answering.transport._extra["socket"] = own
        answering.ask()
        assert early == [[]]
        size = 4 + len(records)
        assert client.recv(size, socket.MSG_WAITALL) == b"head" + records


def test_nothing_of_an_answer_waits_for_the_next_one(log, connected):
    client, own = connected
    part, records = lent(log, 0, 20_000)
    with Answering([b"head", part, b"tail"]) as answering:
        answering.transport._extra["socket"] = own
        answering.ask()
        assert client.recv(4 + len(records), socket.MSG_WAITALL) == b"head" + records
        # Linux keeps what is to wait for 200 ms.
        client.settimeout(0.1)
        assert client.recv(100) == b"tail"


@pytest.mark.skipif(not hasattr(socket, "TCP_CONGESTION"), reason="Linux alone has it")
@pytest.mark.parametrize(("host", "is_changed"), [("127.0.0.1", True), ("::1", True), ("192.0.2.1", False)])
def test_only_a_client_on_this_machine_is_sent_to_without_pauses(host, is_changed):
    with socket.socket() as own:
        before = own.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
        send_unpaced(own, host=host)
        after = own.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
        assert after.strip(b"\0") == (b"reno" if is_changed else before.strip(b"\0"))


def test_a_system_without_that_choice_sends_as_it_does():
    own, other = socket.socketpair()
    with own, other:
        send_unpaced(own, host="127.0.0.1")
