"""Goal: records go from a file to sockets and file objects whole, by sendfile where it goes.
Method: socket pairs with small buffers, a socket with its own sendfile, os.sendfile replaced or absent."""

from __future__ import annotations

import errno
import io
import os
import signal
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kstore.env import files as env_module
from kstore.errors import (
    CorruptRecordError,
)
from kstore.log.segment.file_records import FileRecords
from tests.making.record_files import BATCHES, DATA, POSITIONS, SIZE, SLICES, SMALL_CHUNKS, failing


@pytest.mark.parametrize(("position", "size"), SLICES)
def test_records_are_written_to_a_file_object(written_log: Path, tmp_path: Path, position: int, size: int) -> None:
    with FileRecords.open(written_log, config=SMALL_CHUNKS) as records, (tmp_path / "copy").open("wb") as copy:
        copy.write(b"<")
        assert records.write_to(copy, position=position, size=size) == len(DATA[position : position + size])
        copy.write(b">")
    assert (tmp_path / "copy").read_bytes() == b"<" + DATA[position : position + size] + b">"


def test_file_object_that_takes_little_gets_all(written_log: Path) -> None:
    class Little(io.RawIOBase):
        taken = b""

        def write(self, data: Any) -> int:
            self.taken += bytes(data[:7])
            return len(data[:7])

    with FileRecords.open(written_log, config=SMALL_CHUNKS) as records:
        assert records.write_to(little := Little()) == SIZE
    assert little.taken == DATA


class EncryptedSocket(socket.socket):
    """Has its own way of sending files, as TLS sockets have."""

    def sendfile(self, file: Any, offset: int = 0, count: int | None = None) -> int:
        raise AssertionError(f"not asked for: {file} {offset} {count}")

    def send(self, data: Any, flags: int = 0) -> int:
        return super().send(bytes(byte ^ 0xFF for byte in bytes(data)), flags)


def received_from(send: Callable[[socket.socket], Any], *, kind: type[socket.socket] = socket.socket) -> bytes:
    """What the other end of a connection gets, its socket's buffers as small as they go."""
    received: list[bytes] = []
    plain, other = socket.socketpair()
    sender = kind(fileno=plain.detach())
    for end in (sender, other):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)

    def receive() -> None:
        while data := other.recv(1500):
            received.append(data)

    thread = threading.Thread(target=receive)
    thread.start()
    try:
        send(sender)
    finally:
        sender.close()
        thread.join()
        other.close()
    return b"".join(received)


@pytest.mark.parametrize("timeout", [None, 20.0])
def test_socket_gets_the_records_by_sendfile(
    written_log: Path, monkeypatch: pytest.MonkeyPatch, timeout: float | None
) -> None:
    calls: list[int] = []
    sendfile = os.sendfile

    def counted(target: int, fd: int, position: int, size: int) -> int:
        calls.append(size)
        return sendfile(target, fd, position, min(size, 5000))

    monkeypatch.setattr(env_module.os, "sendfile", counted)
    with FileRecords.open(written_log) as records:

        def send(target: socket.socket) -> None:
            target.settimeout(timeout)
            assert records.write_to(target, position=10, size=2**31) == SIZE - 10

        assert received_from(send) == DATA[10:]
    assert len(calls) > 1


def test_socket_with_its_own_sendfile_gets_what_its_send_makes_of_it(written_log: Path) -> None:
    with FileRecords.open(written_log) as records:
        data = received_from(records.write_to, kind=EncryptedSocket)
    assert bytes(byte ^ 0xFF for byte in data) == DATA


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSOCK])
def test_socket_is_sent_to_where_sendfile_does_not_go(
    written_log: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    monkeypatch.setattr(env_module.os, "sendfile", failing(code))
    with FileRecords.open(written_log) as records:
        assert received_from(records.write_to) == DATA


def test_system_without_sendfile_sends_all_the_same(written_log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(env_module.os, "sendfile")
    with FileRecords.open(written_log) as records:
        assert received_from(records.write_to) == DATA


def test_full_socket_that_does_not_block_ends_the_writing_and_can_be_gone_on_with(written_log: Path) -> None:
    written_log.write_bytes(100 * DATA)
    with FileRecords.open(written_log) as records:
        sender, receiver = socket.socketpair()
        with sender, receiver:
            sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
            sender.setblocking(False)
            data, sent, rounds = b"", 0, 0
            while sent < records.size_in_bytes:
                sent += (count := records.write_to(sender, position=sent))
                rounds += 1
                while len(data) < sent:
                    data += receiver.recv(sent - len(data))
                assert count > 0
    assert (data, rounds > 1) == (100 * DATA, True)


def test_full_socket_with_a_timeout_times_out(written_log: Path) -> None:
    written_log.write_bytes(100 * DATA)
    with FileRecords.open(written_log) as records:
        sender, receiver = socket.socketpair()
        with sender, receiver:
            sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
            sender.setblocking(False)
            while records.write_to(sender):
                pass
            sender.settimeout(0.01)
            with pytest.raises(TimeoutError, match="accepted no byte"):
                records.write_to(sender)


def test_closed_connection_is_the_sockets_error(written_log: Path) -> None:
    with FileRecords.open(written_log) as records:
        sender, receiver = socket.socketpair()
        receiver.close()
        with sender, pytest.raises(BrokenPipeError):
            records.write_to(sender)


def test_writing_a_slice_of_a_file_that_was_cut_is_an_error(written_log: Path) -> None:
    with FileRecords.open(written_log) as records:
        part = records.slice(position=POSITIONS[3], size=len(BATCHES[3]))
        records.truncate_to(POSITIONS[3] + 10)
        sender, receiver = socket.socketpair()
        with sender, receiver, pytest.raises(CorruptRecordError, match="truncated since") as caught:
            part.write_to(sender)
        assert caught.value.found == 10
        with pytest.raises(CorruptRecordError, match="truncated since"):
            part.write_to(io.BytesIO())


def test_signals_do_not_cut_the_writing_short(written_log: Path) -> None:
    """EINTR: signals come all the while, also when sendfile blocks on a full socket."""
    written_log.write_bytes(100 * DATA)
    handled = threading.Event()
    before = signal.signal(signal.SIGUSR1, lambda *_: handled.set())
    sender, receiver = socket.socketpair()
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    main = threading.get_ident()
    received = bytearray()

    def interrupt_and_receive() -> None:
        while data := receiver.recv(len(DATA)):
            received.extend(data)
            signal.pthread_kill(main, signal.SIGUSR1)

    thread = threading.Thread(target=interrupt_and_receive)
    thread.start()
    try:
        with FileRecords.open(written_log) as records:
            assert records.write_to(sender) == 100 * SIZE
    finally:
        sender.close()
        thread.join()
        receiver.close()
        signal.signal(signal.SIGUSR1, before)
    assert received == 100 * DATA
    assert handled.is_set()
