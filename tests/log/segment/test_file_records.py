"""Goal: a file of records gives back what was appended, whole or in slices, whatever is opened, cut, renamed.
Method: real files of V2 batches and V0, V1 messages, compared with slices of the bytes that were written."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path

import pytest

from kstore.config import LogConfig
from kstore.env import files as env_module
from kstore.errors import (
    CorruptionError,
    CorruptRecordError,
    LogClosedError,
    SegmentTooLargeError,
    StorageError,
    UnsupportedMagicError,
)
from kstore.log.segment.file_records import FileRecords
from kstore.record import MemoryRecords
from kstore.types import OffsetPosition
from tests.making.batches import batches
from tests.making.messages import packed_entry
from tests.making.record_files import BATCHES, DATA, POSITIONS, SIZE, SLICES, SMALL_CHUNKS, content, failing

MAX_SEGMENT_BYTES = 2**31 - 1

# Opening


def test_new_file_is_empty_and_takes_records(log_path: Path) -> None:
    with FileRecords.open(log_path) as records:
        assert (records.size_in_bytes, records.is_read_only, list(records)) == (0, False, [])
        assert records.append(MemoryRecords(BATCHES[0])) == len(BATCHES[0])
        assert records.append(MemoryRecords(b"".join(BATCHES[1:]))) == SIZE - len(BATCHES[0])
        assert (records.size_in_bytes, len(records)) == (SIZE, SIZE)
        assert content(records) == DATA
    assert log_path.read_bytes() == DATA


def test_existing_file_is_appended_to_behind_its_end(written_log: Path) -> None:
    with FileRecords.open(written_log) as records:
        assert records.size_in_bytes == SIZE
        records.append(MemoryRecords(BATCHES[0]))
    assert written_log.read_bytes() == DATA + BATCHES[0]


def test_read_only_file_is_read_and_never_changed(written_log: Path) -> None:
    written_log.chmod(0o400)
    with FileRecords.open(written_log, is_read_only=True) as records:
        assert content(records) == DATA
        for change in (lambda: records.append(MemoryRecords(DATA)), records.flush, records.trim):
            with pytest.raises(ValueError, match="read-only"):
                change()
    assert written_log.read_bytes() == DATA


def test_missing_file_is_not_made_by_opening_it_read_only(log_path: Path) -> None:
    with pytest.raises(StorageError) as caught:
        FileRecords.open(log_path, is_read_only=True)
    assert caught.value.errno == errno.ENOENT
    assert not log_path.exists()


def test_preallocated_file_takes_its_space_at_once_and_gives_back_the_rest(log_path: Path) -> None:
    records = FileRecords.open(log_path, preallocate_bytes=2 * SIZE)
    assert (log_path.stat().st_size, records.size_in_bytes) == (2 * SIZE, 0)
    assert log_path.stat().st_blocks * 512 >= 2 * SIZE
    records.append(MemoryRecords(DATA))
    assert (log_path.stat().st_size, content(records)) == (2 * SIZE, DATA)
    assert [bytes(batch) for batch in records.batches()] == BATCHES
    records.close()
    assert log_path.read_bytes() == DATA


def test_preallocation_leaves_an_existing_file_alone(written_log: Path) -> None:
    with FileRecords.open(written_log, preallocate_bytes=2 * SIZE) as records:
        assert (records.size_in_bytes, written_log.stat().st_size) == (SIZE, SIZE)


def test_new_file_goes_again_if_its_space_cannot_be_had(log_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(env_module.os, "posix_fallocate", failing(errno.ENOSPC))
    with pytest.raises(StorageError) as caught:
        FileRecords.open(log_path, preallocate_bytes=4096)
    assert caught.value.errno == errno.ENOSPC
    assert not log_path.exists()


@pytest.mark.parametrize("size", [-1, MAX_SEGMENT_BYTES + 1])
def test_preallocation_beyond_a_segment_is_refused(log_path: Path, size: int) -> None:
    with pytest.raises(ValueError, match="preallocate_bytes must be from 0 to 2147483647"):
        FileRecords.open(log_path, preallocate_bytes=size)
    assert not log_path.exists()


@pytest.mark.parametrize(("size", "fits"), [(MAX_SEGMENT_BYTES, True), (MAX_SEGMENT_BYTES + 1, False)])
@pytest.mark.parametrize("is_read_only", [False, True])
def test_file_larger_than_a_segment_can_be_is_refused(
    log_path: Path, size: int, fits: bool, is_read_only: bool
) -> None:
    log_path.touch()
    os.truncate(log_path, size)
    if fits:
        FileRecords.open(log_path, is_read_only=is_read_only).close_handlers()
        return
    with pytest.raises(SegmentTooLargeError, match=r"expected at most 2147483647 bytes, found 2147483648") as caught:
        FileRecords.open(log_path, is_read_only=is_read_only)
    assert (caught.value.path, log_path.stat().st_size) == (str(log_path), size)


@pytest.mark.parametrize(("room", "fits"), [(len(BATCHES[0]), True), (len(BATCHES[0]) - 1, False)])
def test_append_beyond_the_largest_segment_is_refused_before_a_byte_is_written(
    log_path: Path, room: int, fits: bool
) -> None:
    log_path.touch()
    os.truncate(log_path, MAX_SEGMENT_BYTES - room)
    records = FileRecords.open(log_path)
    if fits:
        records.append(MemoryRecords(BATCHES[0]))
        assert records.size_in_bytes == MAX_SEGMENT_BYTES
        assert bytes(records.read(position=MAX_SEGMENT_BYTES - room)) == BATCHES[0]
    else:
        with pytest.raises(SegmentTooLargeError, match="found 2147483648"):
            records.append(MemoryRecords(BATCHES[0]))
        assert log_path.stat().st_size == records.size_in_bytes == MAX_SEGMENT_BYTES - room
    records.close_handlers()


# Slices


@pytest.mark.parametrize(("position", "size"), SLICES)
def test_slice_holds_what_a_bytes_slice_holds(written_log: Path, position: int, size: int) -> None:
    with FileRecords.open(written_log) as records:
        part = records.slice(position=position, size=size)
        assert content(part) == DATA[position : position + size]
        assert part.size_in_bytes == len(DATA[position : position + size])
        assert bytes(records.read(position=position, size=size)) == content(part)


@pytest.mark.parametrize(("position", "size"), SLICES)
@pytest.mark.parametrize(("inner_position", "inner_size"), [(0, 50), (7, 2**31 - 1), (90, 40), (100, 2**63 - 1)])
def test_slice_of_a_slice_counts_from_the_slice_and_ends_with_it(
    written_log: Path, position: int, size: int, inner_position: int, inner_size: int
) -> None:
    expected = DATA[position : position + size]
    with FileRecords.open(written_log) as records:
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
def test_part_outside_the_records_is_refused(written_log: Path, position: int, size: int) -> None:
    with FileRecords.open(written_log) as records:
        for call in (records.slice, records.read):
            with pytest.raises(ValueError, match="expected"):
                call(position=position, size=size)


def test_slice_keeps_its_end_while_the_file_grows(log_path: Path) -> None:
    with FileRecords.open(log_path) as records:
        records.append(MemoryRecords(BATCHES[0]))
        part = records.slice(position=0, size=2**31 - 1)
        records.append(MemoryRecords(BATCHES[1]))
        assert content(part) == BATCHES[0]
        assert content(records) == BATCHES[0] + BATCHES[1]


def test_slice_of_a_file_that_was_cut_says_where(written_log: Path) -> None:
    with FileRecords.open(written_log) as records:
        part = records.slice(position=POSITIONS[3], size=len(BATCHES[3]))
        records.truncate_to(POSITIONS[3] + 10)
        for read in (part.read, lambda: list(part.batches()), lambda: list(part.entries())):
            with pytest.raises(CorruptRecordError, match="a file that was truncated since") as caught:
                read()
            assert (caught.value.path, caught.value.position) == (str(written_log), POSITIONS[3])


def test_batches_of_a_slice_say_where_they_lie_in_the_file(written_log: Path) -> None:
    with FileRecords.open(written_log) as records:
        part = records.slice(position=POSITIONS[1], size=POSITIONS[5] - POSITIONS[1])
        part = part.slice(position=len(BATCHES[1]), size=2**31)
        assert [batch.position for batch in part.batches()] == POSITIONS[2:5]
        assert [entry.position for entry in part.entries()] == [place - POSITIONS[2] for place in POSITIONS[2:5]]


# Iterating


@pytest.mark.parametrize("read_chunk_bytes", [4096, 5000, 1 << 20])
def test_batches_come_whole_whatever_the_chunk_size(written_log: Path, read_chunk_bytes: int) -> None:
    with FileRecords.open(written_log, config=LogConfig(read_chunk_bytes=read_chunk_bytes)) as records:
        assert [bytes(batch) for batch in records.batches()] == BATCHES
        assert [bytes(batch) for batch in records.batches(position=POSITIONS[4])] == BATCHES[4:]
        assert [record.offset for record in records] == list(range(100, 118))


def test_batch_larger_than_a_chunk_comes_whole(log_path: Path) -> None:
    large = [*batches(100, 2), *batches(102, 1, value_bytes=150_000), *batches(103, 2)]
    log_path.write_bytes(b"".join(large))
    with FileRecords.open(log_path, config=SMALL_CHUNKS) as records:
        assert [bytes(batch) for batch in records.batches()] == large
        assert [entry.last_offset for entry in records.entries()] == [100, 101, 102, 103, 104]


@pytest.mark.parametrize("kept", range(POSITIONS[1], POSITIONS[2], 97))
def test_incomplete_last_batch_ends_the_iteration(written_log: Path, kept: int) -> None:
    with FileRecords.open(written_log, config=SMALL_CHUNKS) as records:
        part = records.slice(position=0, size=kept)
        assert [bytes(batch) for batch in part.batches()] == BATCHES[:1]
        assert [entry.last_offset for entry in part.entries()] == [102]


@pytest.mark.parametrize(("limit", "fits"), [(len(BATCHES[0]), True), (len(BATCHES[0]) - 1, False)])
@pytest.mark.parametrize("config", [LogConfig(), SMALL_CHUNKS], ids=["one-chunk", "many-chunks"])
def test_batch_above_the_largest_message_size_is_refused(
    written_log: Path, limit: int, fits: bool, config: LogConfig
) -> None:
    assert {len(data) for data in BATCHES} == {len(BATCHES[0])}
    with FileRecords.open(written_log, config=config) as records:
        if fits:
            assert len(list(records.batches(max_message_size=limit))) == len(BATCHES)
            return
        with pytest.raises(CorruptRecordError, match=f"at most {limit} bytes, found {len(BATCHES[0])}") as caught:
            list(records.batches(position=POSITIONS[2], max_message_size=limit))
        assert caught.value.position == POSITIONS[2]


def test_zeros_behind_the_records_are_no_batch(written_log: Path) -> None:
    with written_log.open("ab") as file:
        file.write(bytes(100))
    with FileRecords.open(written_log, config=SMALL_CHUNKS) as records:
        for iterate in (records.batches, records.entries):
            with pytest.raises(CorruptRecordError, match="zero bytes in place of a batch") as caught:
                list(iterate())
            assert caught.value.position == SIZE


def test_unknown_magic_is_refused_with_its_place(written_log: Path) -> None:
    with written_log.open("r+b") as file:
        file.seek(POSITIONS[2] + 16)
        file.write(b"\x03")
    with FileRecords.open(written_log, config=SMALL_CHUNKS) as records:
        for iterate in (records.batches, records.entries):
            with pytest.raises(UnsupportedMagicError) as caught:
                list(iterate())
            assert (caught.value.magic, caught.value.position) == (3, POSITIONS[2])
            # Kafka's CorruptRecordException.
            assert isinstance(caught.value, CorruptionError)
            assert (caught.value.expected, caught.value.found) == ("0 to 2", 3)


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
    log_path: Path, target: int, number: int | None
) -> None:
    log_path.write_bytes(b"before" + b"".join(MIXED))
    last_offsets = [3, 7, 10, 13]
    with FileRecords.open(log_path, is_read_only=True) as records:
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
    log_path: Path, entries: list[bytes], matching: set[int], compatible: set[int]
) -> None:
    log_path.write_bytes(b"".join(entries))
    with FileRecords.open(log_path, is_read_only=True) as records:
        assert {magic for magic in (0, 1, 2) if records.has_matching_magic(magic)} == matching
        assert {magic for magic in (0, 1, 2) if records.has_compatible_magic(magic)} == compatible


# Truncating, closing, renaming, deleting


@pytest.mark.parametrize("target", [0, 1, POSITIONS[3], SIZE - 1, SIZE])
def test_truncating_returns_what_went(written_log: Path, target: int) -> None:
    with FileRecords.open(written_log) as records:
        assert records.truncate_to(target) == SIZE - target
        assert (records.size_in_bytes, written_log.stat().st_size) == (target, target)
        records.append(MemoryRecords(BATCHES[0]))
    assert written_log.read_bytes() == DATA[:target] + BATCHES[0]


@pytest.mark.parametrize("target", [-1, SIZE + 1, 2**31])
def test_truncating_never_lengthens(written_log: Path, target: int) -> None:
    with FileRecords.open(written_log) as records:
        with pytest.raises(ValueError, match=f"expected 0 to {SIZE}, got {target}"):
            records.truncate_to(target)
        assert content(records) == DATA


def test_truncating_to_the_size_leaves_the_file_untouched(written_log: Path) -> None:
    os.utime(written_log, ns=(1, 1))
    with FileRecords.open(written_log) as records:
        assert records.truncate_to(SIZE) == 0
    assert written_log.stat().st_mtime_ns == 1


def test_closed_file_says_so(written_log: Path) -> None:
    records = FileRecords.open(written_log)
    part = records.slice(position=0, size=10)
    records.close()
    records.close()
    for call in (records.read, part.read, records.flush, records.trim, lambda: records.append(MemoryRecords(DATA))):
        with pytest.raises(LogClosedError, match=str(written_log)):
            call()


def test_closing_the_handlers_alone_neither_syncs_nor_trims(log_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(env_module.os, "fdatasync", failing(errno.EIO))
    records = FileRecords.open(log_path, preallocate_bytes=2 * SIZE)
    records.append(MemoryRecords(DATA))
    records.close_handlers()
    assert log_path.read_bytes() == DATA + bytes(SIZE)


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
        records.append(MemoryRecords(DATA))
        records.flush()
    assert calls == ["fdatasync", "fsync", "fdatasync"]
    records.rename_to(tmp_path / "b.log")
    records.flush()
    assert calls[3:] == ["fdatasync", "fsync"]
    records.close()


def test_close_syncs_before_it_trims(log_path: Path, calls: list[str]) -> None:
    records = FileRecords.open(log_path, preallocate_bytes=2 * SIZE)
    records.append(MemoryRecords(DATA))
    records.close()
    assert calls == ["fdatasync", "fsync", f"ftruncate {SIZE}"]


def test_renamed_file_goes_on_under_its_new_name(written_log: Path) -> None:
    target = written_log.with_suffix(".swap")
    target.write_bytes(b"another")
    with FileRecords.open(written_log) as records:
        records.rename_to(target)
        assert records.path == str(target)
        records.append(MemoryRecords(BATCHES[0]))
    assert target.read_bytes() == DATA + BATCHES[0]
    assert not written_log.exists()


def test_failed_rename_keeps_the_name(written_log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(env_module.os, "replace", failing(errno.EACCES))
    with FileRecords.open(written_log) as records:
        with pytest.raises(StorageError) as caught:
            records.rename_to(written_log.with_suffix(".swap"))
        assert (caught.value.errno, records.path) == (errno.EACCES, str(written_log))
        with pytest.raises(ValueError, match="same directory"):
            records.rename_to(written_log.parent.parent / "x.log")
    assert written_log.read_bytes() == DATA


def test_deleting_tells_whether_the_file_was_there(written_log: Path) -> None:
    records, again = FileRecords.open(written_log), FileRecords.open(written_log)
    assert records.delete() is True
    assert again.delete() is False
    assert not written_log.exists()
    with pytest.raises(LogClosedError):
        records.read()


def test_error_of_closing_is_logged_and_the_file_deleted_all_the_same(
    written_log: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    close = os.close

    def close_and_fail(fd: int) -> None:
        close(fd)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    records = FileRecords.open(written_log)
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, "kstore.log"):
        patch.setattr(env_module.os, "close", close_and_fail)
        assert records.delete() is True
    assert not written_log.exists()
    assert "closing" in caplog.text
    assert str(written_log) in caplog.text


def test_error_of_deleting_is_raised(written_log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(env_module.os, "unlink", failing(errno.EACCES))
    with pytest.raises(StorageError) as caught:
        FileRecords.open(written_log).delete()
    assert caught.value.errno == errno.EACCES


def test_only_memory_records_are_appended(log_path: Path) -> None:
    with FileRecords.open(log_path) as file:
        with pytest.raises(TypeError, match="expected MemoryRecords, got bytes"):
            file.append(DATA)
        assert file.size_in_bytes == 0
