"""Goal: a file that is read in order is announced to the system ahead of each read, once, and not far ahead.
Method: a ChunkReader of bytes in memory that notes what it announces; a local file whose hints are noted."""

from __future__ import annotations

import os
from itertools import pairwise

import pytest

import kstore
from kstore.config import MIB
from kstore.env import DEFAULT_ENV
from kstore.errors import LogClosedError
from kstore.log.files.records import ChunkReader

AHEAD = 8 * MIB


def test_each_byte_is_announced_once_before_it_is_read():
    size, announced, read_to = 40 * MIB, [], 0

    def read(wanted, *, position):
        nonlocal read_to
        # All but the first read was announced, and no more than AHEAD after it.
        assert position == 0 or announced[-1][1] >= min(position + wanted, size)
        read_to = position + wanted
        return bytes(wanted)

    def announce(*, position, end_position):
        announced.append((position, end_position))
        assert end_position <= read_to + MIB + AHEAD

    reader = ChunkReader(read, end_position=size, first_bytes=MIB, announce=announce)
    for position in range(0, size, MIB // 2):
        reader.find(position, size=100)
    assert announced[0][0] == MIB
    assert announced[-1][1] == size
    assert all(before[1] == after[0] for before, after in pairwise(announced))
    assert len(announced) <= 2 * size // AHEAD


def test_a_small_file_is_not_announced():
    def announce(**_):
        raise AssertionError("announced")

    def read(wanted, *, position):
        return bytes(wanted)[position:]

    ChunkReader(read, end_position=1000, first_bytes=MIB, announce=announce).find(0, size=61)


def hints_of(monkeypatch, missing):
    """Return the list of hints to come of files whose bytes at these positions are not in memory."""
    hints = []

    def preadv(_fd, _buffers, position, flags):
        assert flags == os.RWF_NOWAIT
        if position in missing:
            raise BlockingIOError
        return 1

    monkeypatch.setattr(os, "preadv", preadv)
    monkeypatch.setattr(os, "posix_fadvise", lambda _, *hint: hints.append(hint))
    return hints


@pytest.mark.parametrize(
    ("missing", "is_announced"), [((), False), ((MIB,), True), ((3 * MIB - 1,), True), ((3 * MIB,), False)]
)
def test_what_is_in_memory_is_not_announced(tmp_path, monkeypatch, missing, is_announced):
    hints = hints_of(monkeypatch, missing)
    path = tmp_path / "file"
    path.write_bytes(b"x")
    with DEFAULT_ENV.open_read(str(path)) as file:
        file.will_read(position=MIB, end_position=3 * MIB)
    assert hints == [(MIB, 2 * MIB, os.POSIX_FADV_WILLNEED)] * is_announced


@pytest.mark.parametrize(("size", "is_announced"), [(131_072, False), (131_073, True)])
def test_what_the_first_read_gets_is_not_announced(tmp_path, monkeypatch, size, is_announced):
    hints = hints_of(monkeypatch, {MIB})
    path = tmp_path / "file"
    path.write_bytes(b"x")
    with DEFAULT_ENV.open_read(str(path)) as file:
        file.will_read(position=MIB, end_position=MIB + size)
    assert hints == [(MIB, size, os.POSIX_FADV_WILLNEED)] * is_announced


def test_a_local_file_hints_at_most_16_mib(tmp_path, monkeypatch):
    hints = hints_of(monkeypatch, {3 * MIB, 5 * MIB})
    path = tmp_path / "file"
    path.write_bytes(b"x")
    with DEFAULT_ENV.open_read(str(path)) as file:
        file.will_read(position=3 * MIB, end_position=10 * MIB)
        file.will_read(position=5 * MIB, end_position=100 * MIB)
        file.will_read(position=10 * MIB, end_position=10 * MIB)
    assert hints == [(3 * MIB, 7 * MIB, os.POSIX_FADV_WILLNEED), (5 * MIB, 16 * MIB, os.POSIX_FADV_WILLNEED)]
    with pytest.raises(LogClosedError):
        file.will_read(position=0, end_position=MIB)


def test_a_hint_that_the_system_refuses_stops_nothing(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError("no")

    monkeypatch.setattr(os, "posix_fadvise", refuse)
    with kstore.open_log(tmp_path / "t-0", "a") as log:
        for _ in range(3):
            log.append([kstore.Record(value=bytes(200_000)) for _ in range(4)])
    assert not list(kstore.verify(tmp_path / "t-0").damage)
