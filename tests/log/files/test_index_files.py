"""Goal: a written index holds what was added whatever the disk does, in pages, trimmed, never sparse, views unharmed.
Method: real files; the bytes expected packed by struct; os calls made to fail once."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kstore.env import files as env_module
from kstore.errors import CorruptIndexError, StorageError
from kstore.log.files.indexes import ALLOCATION_BYTES, PAGE_BYTES, OffsetIndexFile, TimeIndexFile

BASE = 1000
MAX_BYTES = 10 * 1024 * 1024
ENTRIES_OF_A_PAGE = PAGE_BYTES // 8


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "00000000000000001000.index"


def open_offsets(path: Path, *, max_bytes: int = MAX_BYTES) -> OffsetIndexFile:
    return OffsetIndexFile.open(path, base_offset=BASE, max_bytes=max_bytes)


def open_times(path: Path, *, max_bytes: int = MAX_BYTES) -> TimeIndexFile:
    return TimeIndexFile.open(path, base_offset=BASE, max_bytes=max_bytes)


def add(index: OffsetIndexFile, first: int, last: int) -> None:
    """Add an entry for each offset from BASE + first to BASE + last, its position a hundred times the number."""
    for number in range(first, last + 1):
        index.append(offset=BASE + number, position=100 * number)


def packed(first: int, last: int) -> bytes:
    return b"".join(struct.pack(">ii", number, 100 * number) for number in range(first, last + 1))


def failing_once(call: Callable[..., Any], code: int) -> Callable[..., Any]:
    left = [True]

    def once(*args: Any) -> Any:
        if left and left.pop():
            raise OSError(code, os.strerror(code))
        return call(*args)

    return once


# Entries


def test_entries_are_added_read_and_written_on_close(path: Path) -> None:
    index = open_offsets(path)
    assert (index.entry_count, index.last_offset, index.is_full) == (0, BASE, False)
    add(index, 1, 3)
    assert (index.entry_count, index.last_offset, index.size_in_bytes) == (3, BASE + 3, 24)
    assert index.view().lookup(BASE + 2) == (BASE + 2, 200)
    index.close()
    index.close()
    assert path.read_bytes() == packed(1, 3)
    again = open_offsets(path)
    assert list(again.view().entries()) == [(BASE + n, 100 * n) for n in (1, 2, 3)]
    again.close()


REFUSED_OFFSETS = [
    pytest.param(BASE + 5, 0, "above 1005", id="offset-of-the-last-entry"),
    pytest.param(BASE + 4, 0, "above 1005", id="offset-below-the-last-entry"),
    pytest.param(BASE - 1, 0, "from 1000 to", id="offset-below-the-base"),
    pytest.param(BASE + 2**31, 0, "from 1000 to", id="offset-beyond-int32"),
    pytest.param(BASE + 6, -1, "position", id="negative-position"),
    pytest.param(BASE + 6, 2**31, "position", id="position-beyond-int32"),
]


@pytest.mark.parametrize(("offset", "position", "message"), REFUSED_OFFSETS)
def test_offset_entry_that_does_not_fit_is_refused(path: Path, offset: int, position: int, message: str) -> None:
    index = open_offsets(path)
    add(index, 5, 5)
    with pytest.raises(ValueError, match=message):
        index.append(offset=offset, position=position)
    index.append(offset=BASE + 2**31 - 1, position=2**31 - 1)
    assert index.entry_count == 2
    index.close()


def test_full_offset_index_takes_no_more(path: Path) -> None:
    index = open_offsets(path, max_bytes=8 * 3 + 7)
    add(index, 1, 3)
    assert (index.max_entries, index.is_full) == (3, True)
    with pytest.raises(ValueError, match="full: at most 3"):
        add(index, 4, 4)
    index.close()
    assert path.read_bytes() == packed(1, 3)


def test_time_index_keeps_a_slot_for_the_closing_entry(path: Path) -> None:
    index = open_times(path, max_bytes=12 * 3)
    assert index.last_entry == (-1, BASE)
    assert index.maybe_append(timestamp_ms=0, offset=BASE)
    assert index.maybe_append(timestamp_ms=7, offset=BASE + 1)
    assert (index.is_full, index.last_entry) == (True, (7, BASE + 1))
    with pytest.raises(ValueError, match="full: at most 3"):
        index.maybe_append(timestamp_ms=8, offset=BASE + 2)
    assert index.maybe_append(timestamp_ms=8, offset=BASE + 2, skip_full_check=True)
    with pytest.raises(ValueError, match="full: at most 3"):
        index.maybe_append(timestamp_ms=9, offset=BASE + 3, skip_full_check=True)
    index.close()
    assert path.read_bytes() == struct.pack(">qiqiqi", 0, 0, 7, 1, 8, 2)


def test_time_index_takes_no_timestamp_twice_and_none_that_goes_back(path: Path) -> None:
    index = open_times(path)
    index.maybe_append(timestamp_ms=50, offset=BASE + 5)
    assert not index.maybe_append(timestamp_ms=50, offset=BASE + 9)
    for timestamp_ms, offset in ((49, BASE + 6), (51, BASE + 4)):
        with pytest.raises(ValueError, match="at least"):
            index.maybe_append(timestamp_ms=timestamp_ms, offset=offset)
    assert list(index.view().entries()) == [(50, BASE + 5)]
    index.close()


def test_messages_without_timestamp_leave_the_time_index_empty(path: Path) -> None:
    index = open_times(path)
    assert not index.maybe_append(timestamp_ms=-1, offset=BASE)
    assert index.entry_count == 0
    index.close()


# The file


def test_pages_are_written_when_full_into_space_that_is_taken(path: Path) -> None:
    index = open_offsets(path)
    add(index, 1, ENTRIES_OF_A_PAGE)
    assert path.stat().st_size == 0
    add(index, ENTRIES_OF_A_PAGE + 1, ENTRIES_OF_A_PAGE + 1)
    assert path.stat().st_size == ALLOCATION_BYTES
    assert path.stat().st_blocks * 512 >= ALLOCATION_BYTES
    assert path.read_bytes() == packed(1, ENTRIES_OF_A_PAGE).ljust(ALLOCATION_BYTES, b"\0")
    index.close()
    assert path.read_bytes() == packed(1, ENTRIES_OF_A_PAGE + 1)


def test_file_is_never_allocated_beyond_its_limit(path: Path) -> None:
    index = open_offsets(path, max_bytes=ALLOCATION_BYTES + 80)
    add(index, 1, ALLOCATION_BYTES // 8 + 10)
    index.flush()
    assert path.stat().st_size == ALLOCATION_BYTES + 80
    index.close()


@pytest.mark.parametrize("count", [1, 511, 512, 513, 7000])
def test_flushed_entries_are_read_back_though_the_process_ends(path: Path, count: int) -> None:
    index = open_offsets(path)
    add(index, 1, count)
    index.flush()
    add(index, count + 1, count + 1)
    index.close_handlers()
    again = open_offsets(path)
    assert list(again.view().entries()) == [(BASE + n, 100 * n) for n in range(1, count + 1)]
    again.close()


def test_trimmed_index_goes_on_and_a_preallocated_one_too(path: Path) -> None:
    path.write_bytes(packed(1, 2) + bytes(4096))
    index = open_offsets(path)
    index.trim()
    assert path.read_bytes() == packed(1, 2)
    add(index, 3, 3)
    index.close()
    assert path.read_bytes() == packed(1, 3)


def test_created_index_drops_what_was_there(path: Path) -> None:
    path.write_bytes(b"no index at all")
    index = OffsetIndexFile.create(path, base_offset=BASE, max_bytes=MAX_BYTES)
    add(index, 4, 4)
    index.close()
    assert path.read_bytes() == packed(4, 4)
    times = TimeIndexFile.create(path, base_offset=BASE, max_bytes=MAX_BYTES)
    times.close()
    assert path.read_bytes() == b""


BAD_OFFSETS = [
    pytest.param(packed(1, 2) + b"\1", 16, "multiple of 8", id="part-of-an-entry"),
    pytest.param(packed(3, 3) + packed(3, 3), 8, "increasing entries", id="entry-twice"),
    pytest.param(packed(3, 4) + struct.pack(">ii", 5, 400), 16, "increasing entries", id="position-twice"),
    pytest.param(struct.pack(">ii", -1, 5), 0, "increasing entries", id="offset-below-base"),
    pytest.param(bytes(16) + packed(3, 4), 8, "increasing entries", id="page-that-was-lost"),
]


@pytest.mark.parametrize(("content", "position", "message"), BAD_OFFSETS)
def test_index_that_can_not_be_right_is_not_opened(path: Path, content: bytes, position: int, message: str) -> None:
    path.write_bytes(content)
    with pytest.raises(CorruptIndexError, match=message) as caught:
        open_offsets(path)
    assert (caught.value.position, caught.value.path) == (position, str(path))
    assert path.read_bytes() == content


def test_lone_time_entry_of_zeros_is_one(path: Path) -> None:
    path.write_bytes(bytes(12))
    index = open_times(path)
    assert index.last_entry == (0, BASE)
    index.close()
    assert path.read_bytes() == bytes(12)


# Removing entries


TRUNCATIONS = [(BASE, 0), (BASE + 2, 0), (BASE + 3, 1), (BASE + 4, 1), (BASE + 5, 2), (BASE + 8, 3)]


@pytest.mark.parametrize(("offset", "kept"), TRUNCATIONS)
def test_truncation_removes_the_entries_from_an_offset_on(path: Path, offset: int, kept: int) -> None:
    numbers = (2, 4, 7)
    index = open_offsets(path)
    for number in numbers:
        add(index, number, number)
    index.flush()
    index.truncate_to(offset)
    assert path.stat().st_size == 8 * kept
    assert [entry.offset for entry in index.view().entries()] == [BASE + number for number in numbers[:kept]]
    add(index, 8, 8)
    index.close()
    assert path.read_bytes() == b"".join(packed(n, n) for n in (*numbers[:kept], 8))


@pytest.mark.parametrize(("offset", "kept"), TRUNCATIONS)
def test_time_index_is_truncated_by_offset(path: Path, offset: int, kept: int) -> None:
    index = open_times(path)
    for number in (2, 4, 7):
        index.maybe_append(timestamp_ms=number, offset=BASE + number)
    index.truncate_to(offset)
    assert index.last_entry == ((-1, BASE), (2, BASE + 2), (4, BASE + 4), (7, BASE + 7))[kept]
    index.close()


def test_entries_behind_the_end_of_the_log_go_too(path: Path) -> None:
    index = open_offsets(path)
    add(index, 1, 4)
    index.truncate_to(BASE + 4, log_size_in_bytes=300)
    assert index.last_offset == BASE + 2
    index.truncate_to(BASE + 4, log_size_in_bytes=0)
    assert index.entry_count == 0
    index.close()


def test_view_stays_what_it_was(path: Path) -> None:
    index = open_offsets(path)
    add(index, 1, 600)
    view = index.view()
    before = list(view.entries())
    index.truncate_to(BASE + 10)
    add(index, 500, 2000)
    index.truncate_to(BASE)
    add(index, 7, 7)
    assert list(view.entries()) == before
    assert list(index.view().entries()) == [(BASE + 7, 700)]
    index.close()
    assert list(view.entries()) == before


# Faults


@pytest.mark.parametrize("call", ["pwrite", "posix_fallocate"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_full_disk_is_an_error_that_changes_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch, call: str, code: int
) -> None:
    index = open_offsets(path)
    add(index, 1, ENTRIES_OF_A_PAGE)
    with monkeypatch.context() as patch:
        patch.setattr(env_module.os, call, failing_once(getattr(os, call), code))
        with pytest.raises(StorageError) as caught:
            add(index, 513, 513)
        assert (caught.value.errno, caught.value.path) == (code, str(path))
        assert (index.entry_count, index.view().lookup(BASE + 512)) == (512, (BASE + 512, 51200))
    add(index, 513, 513)
    index.close()
    assert path.read_bytes() == packed(1, 513)


def test_what_a_failed_sync_lost_is_written_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = open_offsets(path)
    add(index, 1, 3)
    sync = os.fdatasync

    def losing_sync(fd: int) -> None:
        os.pwrite(fd, bytes(24), 0)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(env_module.os, "fdatasync", losing_sync)
    with pytest.raises(StorageError):
        index.flush()
    monkeypatch.setattr(env_module.os, "fdatasync", sync)
    index.flush()
    index.close_handlers()
    assert path.read_bytes()[:24] == packed(1, 3)


def test_flush_of_an_unchanged_index_does_not_sync(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = open_offsets(path)
    add(index, 1, 1)
    index.flush()
    monkeypatch.setattr(env_module.os, "fdatasync", failing_once(os.fdatasync, errno.EIO))
    index.flush()
    add(index, 2, 2)
    with pytest.raises(StorageError):
        index.flush()
    index.close()


def test_failed_close_closes_the_file_all_the_same(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = open_offsets(path)
    add(index, 1, 1)
    monkeypatch.setattr(env_module.os, "fdatasync", failing_once(os.fdatasync, errno.EIO))
    with pytest.raises(StorageError):
        index.close()
    index.close()
    with pytest.raises(StorageError, match="closed"):
        index.flush()
