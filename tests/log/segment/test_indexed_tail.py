"""Goal: the end of a segment is found by its last index entry and one read, and is the one that walks find.
Method: a segment larger than a chunk of headers, whole and damaged in stated ways; reads counted; the walks alone."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from kstore.env import LocalFile
from kstore.errors import LogReplacedError
from kstore.log.files.records import BatchPlace
from kstore.log.segment.segment import LogSegment, SegmentTail
from kstore.store.opening import open_log
from tests.making.batches import Layout, batches, grow, record, set_bytes, shrink, write_partition
from tests.reference.codec import Header, write_batch

LAYOUT = Layout(index_interval_bytes=1500)
SEGMENT = batches(0, 200, records_per_batch=3, value_bytes=250)
POSITIONS = [sum(map(len, SEGMENT[:number])) for number in range(len(SEGMENT) + 1)]
LOG, INDEX = "00000000000000000000.log", "00000000000000000000.index"


def index_entries(directory: Path) -> list[tuple[int, int]]:
    return list(struct.iter_unpack(">ii", (directory / INDEX).read_bytes()))


def with_last_entry(directory: Path, offset: int, position: int) -> None:
    entries = [*index_entries(directory)[:-1], (offset, position)]
    (directory / INDEX).write_bytes(b"".join(struct.pack(">ii", *entry) for entry in entries))


def batch_of_last_entry(directory: Path) -> int:
    return POSITIONS.index(index_entries(directory)[-1][1])


def flip_entry_batch(directory: Path) -> None:
    set_bytes(directory / LOG, POSITIONS[batch_of_last_entry(directory)] + 100, b"\xff\xfe")


def offset_too_low(directory: Path) -> None:
    number = batch_of_last_entry(directory)
    with_last_entry(directory, Header.unpack(SEGMENT[number]).base_offset - 1, POSITIONS[number])


def inside_of_a_batch(directory: Path) -> None:
    number = batch_of_last_entry(directory)
    with_last_entry(directory, index_entries(directory)[-1][0], POSITIONS[number] + 1)


def after_the_end(directory: Path) -> None:
    with_last_entry(directory, index_entries(directory)[-1][0], POSITIONS[-1] + 5000)


def a_batch_in_a_value(directory: Path) -> None:
    last = Header.unpack(SEGMENT[-1]).last_offset
    stored = write_batch([record(last + 1, b"stored")])
    outer = write_batch([record(last + 1, stored)])
    grow(directory / LOG, outer)
    with_last_entry(directory, last + 1, POSITIONS[-1] + outer.index(stored))


def no_index(directory: Path) -> None:
    (directory / INDEX).unlink()


CHANGES: dict[str, Callable[[Path], object]] = {
    "whole": Path.exists,
    "entry-of-a-damaged-batch": flip_entry_batch,
    "offset-too-low": offset_too_low,
    "inside-of-a-batch": inside_of_a_batch,
    "after-the-end": after_the_end,
    "a-batch-in-a-value": a_batch_in_a_value,
    "no-index": no_index,
    "torn": lambda directory: shrink(directory / LOG, by_bytes=1),
    "zeros": lambda directory: grow(directory / LOG, bytes(17)),
    "preallocated": lambda directory: grow(directory / LOG, bytes(5000)),
    "garbage": lambda directory: grow(directory / LOG, b"\xaa" * 500),
    "offsets-go-back": lambda directory: grow(directory / LOG, SEGMENT[3]),
    "part-zeroed": lambda directory: set_bytes(directory / LOG, POSITIONS[-2] + 8, bytes(200)),
}


def end_of(directory: Path) -> tuple[bool, SegmentTail, BatchPlace | None]:
    with open_log(directory) as log:
        segment = log.segments[-1]
        is_known = segment.has_known_end()
        return is_known, segment.tail._replace(last_header=b"", error=None), segment.last_batch()


@pytest.mark.parametrize("change", CHANGES)
def test_end_by_the_index_is_that_of_the_walks(tmp_path: Path, change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = write_partition(tmp_path, [SEGMENT], layout=LAYOUT)
    CHANGES[change](directory)
    by_index = end_of(directory)
    monkeypatch.setattr(LogSegment, "_indexed_tail", lambda _: None)
    assert by_index == end_of(directory)


@pytest.mark.parametrize("segment", [SEGMENT, batches(0, 90, value_bytes=900)])
def test_end_and_last_batch_take_one_read_by_the_index(
    tmp_path: Path, segment: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    pread = LocalFile.pread

    def counted(file: LocalFile, size: int, *, position: int) -> bytes:
        sizes.append(size)
        return pread(file, size, position=position)

    directory = write_partition(tmp_path, [segment], layout=LAYOUT)
    monkeypatch.setattr(LocalFile, "pread", counted)
    with open_log(directory) as log:
        assert log.segments[-1].has_known_end()
        last = log.segments[-1].last_batch()
    size = sum(map(len, segment))
    assert sizes == [size - index_entries(directory)[-1][1]]
    assert last is not None
    assert (last.position, last.header) == (size - len(segment[-1]), segment[-1][:61])


def test_index_entry_far_before_the_end_is_no_reason_for_a_large_read(tmp_path: Path) -> None:
    directory = write_partition(tmp_path, [SEGMENT], layout=LAYOUT)
    (directory / INDEX).write_bytes((directory / INDEX).read_bytes()[:8])
    grow(directory / LOG, b"".join(batches(600, 400, records_per_batch=3, value_bytes=250)))
    with open_log(directory) as log:
        assert log.segments[-1]._indexed_tail() is None
        assert log.log_end_offset == 1800


def test_file_truncated_since_it_was_listed_has_no_end_by_the_index(tmp_path: Path) -> None:
    directory = write_partition(tmp_path, [SEGMENT], layout=LAYOUT)
    with open_log(directory) as log:
        shrink(directory / LOG, by_bytes=200)
        assert log.segments[-1]._indexed_tail() is None
        with pytest.raises(LogReplacedError, match="truncated since it was listed"):
            log.segments[-1].has_known_end()


@pytest.mark.parametrize("change", ["entry-of-a-damaged-batch", "offset-too-low", "a-batch-in-a-value", "no-index"])
def test_entry_that_its_batch_does_not_prove_shows_no_end(tmp_path: Path, change: str) -> None:
    directory = write_partition(tmp_path, [SEGMENT], layout=LAYOUT)
    with open_log(directory) as log:
        assert log.segments[-1]._indexed_tail() is not None
    CHANGES[change](directory)
    with open_log(directory) as log:
        assert log.segments[-1]._indexed_tail() is None
