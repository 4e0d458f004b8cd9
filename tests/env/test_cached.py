"""Goal: it is told of a part of a file whether reading it would wait for the disk, and no wait is needed to read one
that is in memory.
Method: preadv as a file system answers it whose cache has some pages; a file whose pages are dropped from the cache."""

from __future__ import annotations

import errno
import os

import pytest

from kstore._core import PositionedFile, are_cached
from kstore.env import DEFAULT_ENV
from kstore.errors import LogClosedError

PAGE, SIZE = 4096, 1 << 20

pytestmark = pytest.mark.skipif(not hasattr(os, "RWF_NOWAIT"), reason="the system cannot say it")


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(bytes(SIZE))
    with DEFAULT_ENV.open_read(str(path)) as opened:
        yield opened


@pytest.mark.parametrize("missing", [0, SIZE // 2, SIZE - 1])
def test_a_part_with_a_page_that_is_not_in_memory_is_not_cached(file, monkeypatch, missing):
    def preadv(fd, buffers, position, flags=0):
        assert flags == os.RWF_NOWAIT
        if position // PAGE == missing // PAGE:
            raise BlockingIOError
        return 1

    monkeypatch.setattr(os, "preadv", preadv)
    monkeypatch.setattr("kstore.env.files.are_cached", lambda *_, **__: None)
    assert not file.is_cached(position=0, size=SIZE)
    assert file.is_cached(position=0, size=0)
    assert file.is_cached(position=PAGE, size=PAGE)


def test_a_file_system_that_cannot_say_it_is_not_asked_again(file, monkeypatch):
    def preadv(*_):
        raise OSError(errno.EOPNOTSUPP, "not supported")

    monkeypatch.setattr(os, "preadv", preadv)
    monkeypatch.setattr("kstore.env.files.are_cached", lambda *_, **__: None)
    assert file.is_cached(position=0, size=SIZE)


CONTENT = bytes(range(256)) * (SIZE // 256)


@pytest.fixture
def filled(tmp_path):
    path = tmp_path / "filled"
    path.write_bytes(CONTENT)
    with DEFAULT_ENV.open_read(str(path)) as opened:
        yield opened


def test_a_single_page_that_is_not_in_memory_is_noticed(tmp_path):
    # Between the pages that a look at a few of them asks for.
    gone = 37 * PAGE
    path = tmp_path / "with a hole"
    with path.open("wb") as made:
        made.write(CONTENT[:gone])
        made.seek(gone + PAGE)
        made.write(CONTENT[gone + PAGE :])
    with DEFAULT_ENV.open_read(str(path)) as opened:
        if are_cached(opened.fileno(), position=0, size=1) is None:
            pytest.skip("Linux says it from 6.5 on")
        assert not opened.is_cached(position=0, size=SIZE)
        assert not opened.is_cached(position=gone - 1, size=2)
        assert not opened.is_cached(position=gone + PAGE - 1, size=2)
        assert opened.is_cached(position=0, size=gone)
        assert opened.is_cached(position=gone + PAGE, size=SIZE - gone - PAGE)


def test_what_the_system_does_not_say_is_not_known():
    assert are_cached(-1, position=0, size=1) is None


@pytest.mark.parametrize(("size", "position"), [(SIZE, 0), (1, SIZE - 1), (PAGE, 100), (0, 5)])
def test_what_is_in_memory_is_read_at_once(filled, size, position):
    assert filled.pread_cached(size, position=position) == CONTENT[position : position + size]


@pytest.mark.parametrize("kept", [0, SIZE // 2])
def test_what_is_not_in_memory_is_not_waited_for(filled, kept):
    os.fsync(filled.fileno())
    os.posix_fadvise(filled.fileno(), kept, 0, os.POSIX_FADV_DONTNEED)
    # A file system without a disk keeps it.
    is_cached = filled.is_cached(position=SIZE - 1, size=1)
    assert filled.pread_cached(1, position=SIZE - 1) == (CONTENT[-1:] if is_cached else None)
    assert filled.pread_cached(SIZE, position=0) == (CONTENT if is_cached else None)


def test_a_part_that_ends_after_the_file_is_not_read(filled):
    assert filled.pread_cached(2, position=SIZE - 1) is None
    assert filled.pread_cached(1, position=SIZE) is None


def test_nothing_is_read_of_a_closed_file(filled):
    filled.close()
    with pytest.raises(LogClosedError):
        filled.pread_cached(1, position=0)


def test_a_file_that_reads_otherwise_is_read_as_it_does(filled):
    class Otherwise(PositionedFile):
        def pread(self, size, *, position):
            return b"other"[position : position + size]

    other = Otherwise(filled.fileno(), path="other", system=os, to_error=lambda *_: OSError())
    assert other.pread_cached(4, position=1) == b"ther"
    assert other.pread_cached(5, position=1) is None
