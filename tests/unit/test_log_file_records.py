"""Goal: a file of records gives back what was appended, whole or in slices, whatever is opened, cut, renamed.
Method: real files of V2 batches and V0, V1 messages, compared with slices of the bytes that were written."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kstore.config import LogConfig
from kstore.errors import (
    CorruptRecordError,
    LogClosedError,
    SegmentTooLargeError,
    StorageError,
    UnsupportedMagicError,
)
from kstore.log import env as env_module
from kstore.log.file_records import MAX_SEGMENT_BYTES, FileRecords, FileRecordsSlice
from kstore.record import MemoryRecords
from kstore.types import OffsetPosition
from tests.builders import batches
from tests.messages import packed_entry

BATCHES = batches(100, 6, records_per_batch=3, value_bytes=700)
POSITIONS = [sum(map(len, BATCHES[:number])) for number in range(len(BATCHES) + 1)]
SIZE = POSITIONS[-1]
DATA = b"".join(BATCHES)
SMALL_CHUNKS = LogConfig(read_chunk_bytes=4096)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "00000000000000000100.log"


@pytest.fixture
def written(path: Path) -> Path:
    path.write_bytes(DATA)
    return path


def memory(data: bytes) -> MemoryRecords:
    return MemoryRecords(data)


def content(records: FileRecordsSlice) -> bytes:
    return bytes(records.read())


def failing(code: int) -> Callable[..., Any]:
    def fail(*_: Any) -> Any:
        raise OSError(code, os.strerror(code))

    return fail


# Opening


def test_new_file_is_empty_and_takes_records(path: Path) -> None:
    with FileRecords.open(path) as records:
        assert (records.size_in_bytes, records.is_read_only, list(records)) == (0, False, [])
        assert records.append(memory(BATCHES[0])) == len(BATCHES[0])
        assert records.append(memory(b"".join(BATCHES[1:]))) == SIZE - len(BATCHES[0])
        assert (records.size_in_bytes, len(records)) == (SIZE, SIZE)
        assert content(records) == DATA
    assert path.read_bytes() == DATA


def test_existing_file_is_appended_to_behind_its_end(written: Path) -> None:
    with FileRecords.open(written) as records:
        assert records.size_in_bytes == SIZE
        records.append(memory(BATCHES[0]))
    assert written.read_bytes() == DATA + BATCHES[0]


def test_read_only_file_is_read_and_never_changed(written: Path) -> None:
    written.chmod(0o400)
    with FileRecords.open(written, is_read_only=True) as records:
        assert content(records) == DATA
        for change in (lambda: records.append(memory(DATA)), records.flush, records.trim):
            with pytest.raises(ValueError, match="read-only"):
                change()
    assert written.read_bytes() == DATA


def test_missing_file_is_not_made_by_opening_it_read_only(path: Path) -> None:
    with pytest.raises(StorageError) as caught:
        FileRecords.open(path, is_read_only=True)
    assert caught.value.errno == errno.ENOENT
    assert not path.exists()


def test_preallocated_file_takes_its_space_at_once_and_gives_back_the_rest(path: Path) -> None:
    records = FileRecords.open(path, preallocate_bytes=2 * SIZE)
    assert (path.stat().st_size, records.size_in_bytes) == (2 * SIZE, 0)
    assert path.stat().st_blocks * 512 >= 2 * SIZE
    records.append(memory(DATA))
    assert (path.stat().st_size, content(records)) == (2 * SIZE, DATA)
    assert [bytes(batch) for batch in records.batches()] == BATCHES
    records.close()
    assert path.read_bytes() == DATA


def test_preallocation_leaves_an_existing_file_alone(written: Path) -> None:
    with FileRecords.open(written, preallocate_bytes=2 * SIZE) as records:
        assert (records.size_in_bytes, written.stat().st_size) == (SIZE, SIZE)


def test_new_file_goes_again_if_its_space_cannot_be_had(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(env_module.os, "posix_fallocate", failing(errno.ENOSPC))
    with pytest.raises(StorageError) as caught:
        FileRecords.open(path, preallocate_bytes=4096)
    assert caught.value.errno == errno.ENOSPC
    assert not path.exists()


@pytest.mark.parametrize("size", [-1, MAX_SEGMENT_BYTES + 1])
def test_preallocation_beyond_a_segment_is_refused(path: Path, size: int) -> None:
    with pytest.raises(ValueError, match="preallocate_bytes must be from 0 to 2147483647"):
        FileRecords.open(path, preallocate_bytes=size)
    assert not path.exists()


@pytest.mark.parametrize(("size", "fits"), [(MAX_SEGMENT_BYTES, True), (MAX_SEGMENT_BYTES + 1, False)])
@pytest.mark.parametrize("is_read_only", [False, True])
def test_file_larger_than_a_segment_can_be_is_refused(path: Path, size: int, fits: bool, is_read_only: bool) -> None:
    path.touch()
    os.truncate(path, size)
    if fits:
        FileRecords.open(path, is_read_only=is_read_only).close_handlers()
        return
    with pytest.raises(SegmentTooLargeError, match=r"expected at most 2147483647 bytes, found 2147483648") as caught:
        FileRecords.open(path, is_read_only=is_read_only)
    assert (caught.value.path, path.stat().st_size) == (str(path), size)


@pytest.mark.parametrize(("room", "fits"), [(len(BATCHES[0]), True), (len(BATCHES[0]) - 1, False)])
def test_append_beyond_the_largest_segment_is_refused_before_a_byte_is_written(
    path: Path, room: int, fits: bool
) -> None:
    path.touch()
    os.truncate(path, MAX_SEGMENT_BYTES - room)
    records = FileRecords.open(path)
    if fits:
        records.append(memory(BATCHES[0]))
        assert records.size_in_bytes == MAX_SEGMENT_BYTES
        assert bytes(records.read(position=MAX_SEGMENT_BYTES - room)) == BATCHES[0]
    else:
        with pytest.raises(SegmentTooLargeError, match="found 2147483648"):
            records.append(memory(BATCHES[0]))
        assert path.stat().st_size == records.size_in_bytes == MAX_SEGMENT_BYTES - room
    records.close_handlers()


# Slices

SLICES = [
    pytest.param(0, 0, id="nothing"),
    pytest.param(0, SIZE, id="whole"),
    pytest.param(0, SIZE + 1, id="one-too-many"),
    pytest.param(POSITIONS[1], len(BATCHES[1]), id="one-batch"),
    pytest.param(POSITIONS[2] + 5, 100, id="inside-a-batch"),
    pytest.param(SIZE, 10, id="at-the-end"),
    pytest.param(SIZE - 1, 2**31 - 1, id="int32-sum-overflows"),
    pytest.param(POSITIONS[1], 2**63 - 1, id="int64-sum-overflows"),
]


@pytest.mark.parametrize(("position", "size"), SLICES)
def test_slice_holds_what_a_bytes_slice_holds(written: Path, position: int, size: int) -> None:
    with FileRecords.open(written) as records:
        part = records.slice(position=position, size=size)
        assert content(part) == DATA[position : position + size]
        assert part.size_in_bytes == len(DATA[position : position + size])
        assert bytes(records.read(position=position, size=size)) == content(part)


@pytest.mark.parametrize(("position", "size"), SLICES)
@pytest.mark.parametrize(("inner_position", "inner_size"), [(0, 50), (7, 2**31 - 1), (90, 40), (100, 2**63 - 1)])
def test_slice_of_a_slice_counts_from_the_slice_and_ends_with_it(
    written: Path, position: int, size: int, inner_position: int, inner_size: int
) -> None:
    expected = DATA[position : position + size]
    with FileRecords.open(written) as records:
        part = records.slice(position=position, size=size)
        if inner_position > part.size_in_bytes:
            with pytest.raises(ValueError, match=f"expected 0 to {part.size_in_bytes}, got {inner_position}"):
                part.slice(position=inner_position, size=inner_size)
            return
        inner = part.slice(position=inner_position, size=inner_size)
        assert inner.start == position + inner_position
        assert content(inner) == expected[inner_position : inner_position + inner_size]


@pytest.mark.parametrize(
    ("position", "size"), [(-1, 0), (0, -1), (SIZE + 1, 0), (2**31, 1), (2**63, 1)], ids=lambda value: str(value)
)
def test_part_outside_the_records_is_refused(written: Path, position: int, size: int) -> None:
    with FileRecords.open(written) as records:
        for call in (records.slice, records.read):
            with pytest.raises(ValueError, match="expected"):
                call(position=position, size=size)


def test_slice_keeps_its_end_while_the_file_grows(path: Path) -> None:
    with FileRecords.open(path) as records:
        records.append(memory(BATCHES[0]))
        part = records.slice(position=0, size=2**31 - 1)
        records.append(memory(BATCHES[1]))
        assert content(part) == BATCHES[0]
        assert content(records) == BATCHES[0] + BATCHES[1]


def test_slice_of_a_file_that_was_cut_says_where(written: Path) -> None:
    with FileRecords.open(written) as records:
        part = records.slice(position=POSITIONS[3], size=len(BATCHES[3]))
        records.truncate_to(POSITIONS[3] + 10)
        for read in (part.read, lambda: list(part.batches()), lambda: list(part.entries())):
            with pytest.raises(CorruptRecordError, match="a file that was cut since") as caught:
                read()
            assert (caught.value.path, caught.value.position) == (str(written), POSITIONS[3])


def test_batches_of_a_slice_say_where_they_lie_in_the_file(written: Path) -> None:
    with FileRecords.open(written) as records:
        part = records.slice(position=POSITIONS[1], size=POSITIONS[5] - POSITIONS[1])
        part = part.slice(position=len(BATCHES[1]), size=2**31)
        assert [batch.position for batch in part.batches()] == POSITIONS[2:5]
        assert [entry.position for entry in part.entries()] == [place - POSITIONS[2] for place in POSITIONS[2:5]]


# Iterating


@pytest.mark.parametrize("read_chunk_bytes", [4096, 5000, 1 << 20])
def test_batches_come_whole_whatever_the_chunk_size(written: Path, read_chunk_bytes: int) -> None:
    with FileRecords.open(written, config=LogConfig(read_chunk_bytes=read_chunk_bytes)) as records:
        assert [bytes(batch) for batch in records.batches()] == BATCHES
        assert [bytes(batch) for batch in records.batches(position=POSITIONS[4])] == BATCHES[4:]
        assert [record.offset for record in records] == list(range(100, 118))


def test_batch_larger_than_a_chunk_comes_whole(path: Path) -> None:
    large = [*batches(100, 2), *batches(102, 1, value_bytes=150_000), *batches(103, 2)]
    path.write_bytes(b"".join(large))
    with FileRecords.open(path, config=SMALL_CHUNKS) as records:
        assert [bytes(batch) for batch in records.batches()] == large
        assert [entry.last_offset for entry in records.entries()] == [100, 101, 102, 103, 104]


@pytest.mark.parametrize("kept", range(POSITIONS[1], POSITIONS[2], 97))
def test_incomplete_last_batch_ends_the_iteration(written: Path, kept: int) -> None:
    with FileRecords.open(written, config=SMALL_CHUNKS) as records:
        part = records.slice(position=0, size=kept)
        assert [bytes(batch) for batch in part.batches()] == BATCHES[:1]
        assert [entry.last_offset for entry in part.entries()] == [102]


@pytest.mark.parametrize(("limit", "fits"), [(len(BATCHES[0]), True), (len(BATCHES[0]) - 1, False)])
@pytest.mark.parametrize("config", [LogConfig(), SMALL_CHUNKS], ids=["one-chunk", "many-chunks"])
def test_batch_above_the_largest_message_size_is_refused(
    written: Path, limit: int, fits: bool, config: LogConfig
) -> None:
    assert {len(data) for data in BATCHES} == {len(BATCHES[0])}
    with FileRecords.open(written, config=config) as records:
        if fits:
            assert len(list(records.batches(max_message_size=limit))) == len(BATCHES)
            return
        with pytest.raises(CorruptRecordError, match=f"at most {limit}, found {len(BATCHES[0])}") as caught:
            list(records.batches(position=POSITIONS[2], max_message_size=limit))
        assert caught.value.position == POSITIONS[2]


def test_zeros_behind_the_records_are_no_batch(written: Path) -> None:
    with written.open("ab") as file:
        file.write(bytes(100))
    with FileRecords.open(written, config=SMALL_CHUNKS) as records:
        for iterate in (records.batches, records.entries):
            with pytest.raises(CorruptRecordError, match="found 0") as caught:
                list(iterate())
            assert caught.value.position == SIZE


def test_unknown_magic_is_refused_with_its_place(written: Path) -> None:
    with written.open("r+b") as file:
        file.seek(POSITIONS[2] + 16)
        file.write(b"\x03")
    with FileRecords.open(written, config=SMALL_CHUNKS) as records:
        for iterate in (records.batches, records.entries):
            with pytest.raises(UnsupportedMagicError) as caught:
                list(iterate())
            assert (caught.value.magic, caught.value.position) == (3, POSITIONS[2])


# Searching and magics

MIXED = [
    packed_entry(b"zero", b"k", offset=3, magic=0),
    packed_entry(b"wrapper", None, offset=7, magic=1, timestamp_ms=5, attributes=1),
    *batches(8, 2, records_per_batch=3),
]
MIXED_POSITIONS = [sum(map(len, MIXED[:number])) for number in range(len(MIXED))]


@pytest.mark.parametrize(
    ("target", "number"),
    [(-1, 0), (0, 0), (3, 0), (4, 1), (7, 1), (8, 2), (10, 2), (11, 3), (13, 3), (14, None), (2**63 - 1, None)],
)
def test_search_finds_the_first_entry_that_ends_at_or_behind_the_offset(
    path: Path, target: int, number: int | None
) -> None:
    path.write_bytes(b"before" + b"".join(MIXED))
    last_offsets = [3, 7, 10, 13]
    with FileRecords.open(path, is_read_only=True) as records:
        part = records.slice(position=6, size=2**31)
        expected = None if number is None else OffsetPosition(last_offsets[number], MIXED_POSITIONS[number])
        assert part.search_for(target) == expected
        for start in MIXED_POSITIONS[: (number or 0) + 1]:
            assert part.search_for(target, starting_position=start) == expected


@pytest.mark.parametrize(
    ("entries", "matching", "compatible"),
    [
        pytest.param([], {0, 1, 2}, {0, 1, 2}, id="empty"),
        pytest.param(MIXED[:1], {0}, {0, 1, 2}, id="V0"),
        pytest.param(MIXED[:2], set(), {1, 2}, id="V0-and-V1"),
        pytest.param(MIXED, set(), {2}, id="all"),
        pytest.param(MIXED[2:], {2}, {2}, id="V2"),
    ],
)
def test_magic_of_all_entries_is_told_by_their_headers(
    path: Path, entries: list[bytes], matching: set[int], compatible: set[int]
) -> None:
    path.write_bytes(b"".join(entries))
    with FileRecords.open(path, is_read_only=True) as records:
        assert {magic for magic in (0, 1, 2) if records.has_matching_magic(magic)} == matching
        assert {magic for magic in (0, 1, 2) if records.has_compatible_magic(magic)} == compatible


# Truncating, closing, renaming, deleting


@pytest.mark.parametrize("target", [0, 1, POSITIONS[3], SIZE - 1, SIZE])
def test_truncating_returns_what_went(written: Path, target: int) -> None:
    with FileRecords.open(written) as records:
        assert records.truncate_to(target) == SIZE - target
        assert (records.size_in_bytes, written.stat().st_size) == (target, target)
        records.append(memory(BATCHES[0]))
    assert written.read_bytes() == DATA[:target] + BATCHES[0]


@pytest.mark.parametrize("target", [-1, SIZE + 1, 2**31])
def test_truncating_never_lengthens(written: Path, target: int) -> None:
    with FileRecords.open(written) as records:
        with pytest.raises(ValueError, match=f"expected 0 to {SIZE}, got {target}"):
            records.truncate_to(target)
        assert content(records) == DATA


def test_truncating_to_the_size_leaves_the_file_untouched(written: Path) -> None:
    os.utime(written, ns=(1, 1))
    with FileRecords.open(written) as records:
        assert records.truncate_to(SIZE) == 0
    assert written.stat().st_mtime_ns == 1


def test_closed_file_says_so(written: Path) -> None:
    records = FileRecords.open(written)
    part = records.slice(position=0, size=10)
    records.close()
    records.close()
    for call in (records.read, part.read, records.flush, records.trim, lambda: records.append(memory(DATA))):
        with pytest.raises(LogClosedError, match=str(written)):
            call()


def test_closing_the_handlers_alone_neither_syncs_nor_trims(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(env_module.os, "fdatasync", failing(errno.EIO))
    records = FileRecords.open(path, preallocate_bytes=2 * SIZE)
    records.append(memory(DATA))
    records.close_handlers()
    assert path.read_bytes() == DATA + bytes(SIZE)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The calls that make files durable, in their order."""
    made: list[str] = []

    def record(name: str) -> None:
        call = getattr(os, name)

        def recorded(fd: int, *arguments: int) -> None:
            made.append(" ".join([name, *map(str, arguments)]))
            call(fd, *arguments)

        monkeypatch.setattr(env_module.os, name, recorded)

    for name in ("fdatasync", "fsync", "ftruncate"):
        record(name)
    return made


def test_flush_makes_a_new_name_durable_once_and_a_changed_one_again(tmp_path: Path, calls: list[str]) -> None:
    records = FileRecords.open(tmp_path / "a.log")
    for _ in range(2):
        records.append(memory(DATA))
        records.flush()
    assert calls == ["fdatasync", "fsync", "fdatasync"]
    records.rename_to(tmp_path / "b.log")
    records.flush()
    assert calls[3:] == ["fdatasync", "fsync"]
    records.close()


def test_close_syncs_before_it_trims(path: Path, calls: list[str]) -> None:
    records = FileRecords.open(path, preallocate_bytes=2 * SIZE)
    records.append(memory(DATA))
    records.close()
    assert calls == ["fdatasync", "fsync", f"ftruncate {SIZE}"]


def test_renamed_file_goes_on_under_its_new_name(written: Path) -> None:
    target = written.with_suffix(".swap")
    target.write_bytes(b"another")
    with FileRecords.open(written) as records:
        records.rename_to(target)
        assert records.path == str(target)
        records.append(memory(BATCHES[0]))
    assert target.read_bytes() == DATA + BATCHES[0]
    assert not written.exists()


def test_failed_rename_keeps_the_name(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(env_module.os, "replace", failing(errno.EACCES))
    with FileRecords.open(written) as records:
        with pytest.raises(StorageError) as caught:
            records.rename_to(written.with_suffix(".swap"))
        assert (caught.value.errno, records.path) == (errno.EACCES, str(written))
        with pytest.raises(ValueError, match="same directory"):
            records.rename_to(written.parent.parent / "x.log")
    assert written.read_bytes() == DATA


def test_deleting_tells_whether_the_file_was_there(written: Path) -> None:
    records, again = FileRecords.open(written), FileRecords.open(written)
    assert records.delete() is True
    assert again.delete() is False
    assert not written.exists()
    with pytest.raises(LogClosedError):
        records.read()


def test_error_of_closing_is_logged_and_the_file_deleted_all_the_same(
    written: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    close = os.close

    def close_and_fail(fd: int) -> None:
        close(fd)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    records = FileRecords.open(written)
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, "kstore.log"):
        patch.setattr(env_module.os, "close", close_and_fail)
        assert records.delete() is True
    assert not written.exists()
    assert "closing" in caplog.text
    assert str(written) in caplog.text


def test_error_of_deleting_is_raised(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(env_module.os, "unlink", failing(errno.EACCES))
    with pytest.raises(StorageError) as caught:
        FileRecords.open(written).delete()
    assert caught.value.errno == errno.EACCES
