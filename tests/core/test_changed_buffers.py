"""Goal: a caller's buffer that changes while it is read, or a wrong argument, never leads outside of it.

Method: bytearrays changed between two steps of an iterator, and from inside the functions that the core calls; the
sizes in them are made to reach beyond their end.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from kstore import _core
from kstore.compression import decompress
from kstore.errors import CorruptRecordError, InvalidRecordError
from kstore.log.write.rules import LogAppendInfo
from kstore.record import MemoryRecords, MemoryRecordsBuilder, pack_columns
from kstore.record.packing import BinaryColumn, HeadersColumn, RecordColumns
from tests.making import batches as builders
from tests.making.messages import packed_entry, write_wrapper

LIMIT = 1 << 20
SIZE_AT, MAGIC_AT = 8, 16
MAX_INT32 = 2**31 - 1
SMALL, MAGIC = "inner message smaller than its header: expected at least 34 bytes", "inner message with a wrong magic"
# Bytes written over those at a position of a plain V1 message of 40 bytes, and the reason by which it is then refused.
CHANGES: dict[str, tuple[int, bytes, str]] = {
    "size past the end": (
        SIZE_AT,
        struct.pack(">i", 100_000),
        "batch runs past the end: expected 100012 bytes, found 40",
    ),
    "largest size": (
        SIZE_AT,
        struct.pack(">i", MAX_INT32),
        f"batch runs past the end: expected {MAX_INT32 + 12} bytes, found 40",
    ),
    "size below a message": (SIZE_AT, struct.pack(">i", 13), f"{SMALL}, found 25"),
    "size below a message of V1": (SIZE_AT, struct.pack(">i", 14), f"{SMALL}, found 26"),
    "negative size": (SIZE_AT, struct.pack(">i", -1), f"{SMALL}, found 11"),
    "magic 2": (MAGIC_AT, b"\x02", f"{MAGIC}: expected 0 or 1, found 2"),
    "magic -1": (MAGIC_AT, b"\xff", f"{MAGIC}: expected 0 or 1, found 255"),
}


def expect_refusal(read: Callable[[], object], reason: str) -> None:
    with pytest.raises(InvalidRecordError if reason.startswith(MAGIC) else CorruptRecordError) as caught:
        read()
    assert (caught.value.reason, caught.value.position) == (reason, 0)


def changed_after(step: Callable[[bytearray], Any], at: int, found: bytes) -> Any:
    """What step gives for a plain message, in whose bytes something is changed afterwards."""
    data = bytearray(packed_entry(b"value", b"k", offset=0, magic=1))
    done = step(data)
    data[at : at + len(found)] = found
    return done


@pytest.mark.parametrize(("at", "found", "reason"), CHANGES.values(), ids=CHANGES)
def test_message_that_changes_between_opening_and_reading_is_refused(at: int, found: bytes, reason: str) -> None:
    records = changed_after(lambda data: iter(next(MemoryRecords(data).batches())), at, found)
    expect_refusal(lambda: next(records), reason)


def opened(data: bytearray) -> _core.RecordIterator:
    return _core.iterate_records(data, position=0, decompress=decompress, max_decompressed_bytes=LIMIT)


@pytest.mark.parametrize("survey", [_core.survey_records, _core.magics_of_records])
@pytest.mark.parametrize(("at", "found", "reason"), CHANGES.values(), ids=CHANGES)
def test_message_that_changes_before_it_is_surveyed_is_refused(
    at: int, found: bytes, reason: str, survey: Callable[[_core.RecordIterator], object]
) -> None:
    records = changed_after(opened, at, found)
    expect_refusal(lambda: survey(records), reason)


READS: dict[str, Callable[[_core.RecordIterator], object]] = {
    "records": list,
    "survey": _core.survey_records,
    "magics": _core.magics_of_records,
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
@pytest.mark.parametrize("left", [1, 5, 25])
def test_end_of_a_wrapper_that_gets_too_short_for_a_message_is_refused(
    left: int, read: Callable[[_core.RecordIterator], object]
) -> None:
    """Two messages become one that leaves fewer bytes than the least message has."""
    pair = bytearray(b"".join(packed_entry(b"v" * 30, b"k", offset=n, magic=1) for n in range(2)))
    wrapper = write_wrapper([bytes(pair)], magic=1, codec=1, offset=1)
    records = _core.iterate_records(
        wrapper, position=77, decompress=lambda *_, **__: pair, max_decompressed_bytes=LIMIT
    )
    one = packed_entry(b"v" * (len(pair) - left - 35), b"k", offset=0, magic=1)
    pair[: len(one)] = one
    with pytest.raises(CorruptRecordError) as caught:
        read(records)
    error = caught.value
    assert (error.reason, error.position) == (f"batch runs past the end: expected 26 bytes, found {left}", 77)


@pytest.mark.parametrize("function", [_core.survey_records, _core.magics_of_records])
def test_none_is_no_iterator(function: Callable[[Any], object]) -> None:
    with pytest.raises(TypeError):
        function(None)


@pytest.mark.parametrize("limit", [MAX_INT32 - 64, MAX_INT32 - 63, MAX_INT32 - 1, MAX_INT32])
def test_any_write_limit_of_int32_is_taken(limit: int) -> None:
    builder = MemoryRecordsBuilder(write_limit_bytes=limit)
    builder.append(timestamp_ms=0, value=b"value")
    assert not builder.is_full


def test_columns_that_another_thread_changes_make_batches_that_can_be_read_or_an_error() -> None:
    """The thread moves the ends of keys, values and header lists to and fro, and some of them backwards."""
    rows, changes = 3000, 0
    index = np.arange(rows + 1, dtype=np.int32)
    bits = np.full(rows // 8 + 1, 255, np.uint8)
    column = BinaryColumn(index, b"k" * (rows + 8), bits)
    columns = RecordColumns(rows, 1, column, column, HeadersColumn(index, column, column))
    is_done = threading.Event()

    def change() -> None:
        nonlocal changes
        while not is_done.is_set():
            index[5::7] += 3
            bits[:] ^= 85
            index[5::7] -= 3
            bits[:] ^= 85
            changes += 1

    thread = threading.Thread(target=change)
    thread.start()
    try:
        outcomes = {packed_or_refused(columns) for _ in range(300)}
    finally:
        is_done.set()
        thread.join()
    assert changes > 0
    assert outcomes <= {"packed", "refused"}


def test_header_key_that_becomes_null_while_its_record_is_packed_is_refused() -> None:
    """The thread changes the first of many headers, which are measured, all of them, before one is written."""
    count = 300_000
    bits = np.full(count // 8 + 1, 255, np.uint8)
    column = BinaryColumn(np.zeros(count + 1, np.int32), b"", bits)
    columns = RecordColumns(1, 1, headers=HeadersColumn(np.array([0, count], np.int32), column, column))
    is_packing = threading.Event()

    def change() -> None:
        is_packing.wait()
        bits[0] = 0

    outcomes = set()
    for _ in range(10):
        bits[0] = 255
        is_packing.clear()
        thread = threading.Thread(target=change)
        thread.start()
        is_packing.set()
        outcomes.add(packed_or_refused(columns))
        thread.join()
    assert outcomes <= {"packed", "refused"}


def packed_or_refused(columns: RecordColumns) -> str:
    try:
        runs = list(pack_columns(columns, batch_bytes=1 << 20))
    except ValueError:
        return "refused"
    for run in runs:
        run.verify()
        assert len(list(run)) == columns.row_count
    return "packed"


class OtherInfo(NamedTuple):
    """A tuple with too few fields."""

    base_offset: int


@pytest.mark.parametrize("info_type", [tuple, OtherInfo, list, object()])
def test_type_without_the_fields_of_an_append_is_refused_as_its_result(info_type: Any) -> None:
    with pytest.raises(TypeError, match="info_type must be a NamedTuple with the fields of LogAppendInfo"):
        _core.LogAppender(info_type, assigner=None, max_batch_bytes=MAX_INT32, log_start_offset=0, leader_epoch=-1)


def test_log_without_a_segment_takes_no_append() -> None:
    log = _core.LogAppender(
        LogAppendInfo, assigner=None, max_batch_bytes=MAX_INT32, log_start_offset=0, leader_epoch=-1
    )
    with pytest.raises(ValueError, match="no segment"):
        log.append(_core.survey_replicated(builders.batch(0)), log_append_time_ms=-1)
    with pytest.raises(ValueError, match="no segment"):
        log.append_as_follower(builders.batch(0))


def test_none_is_no_append() -> None:
    entries = {"base_offset": 0, "max_bytes": 1200}
    segment = _core.SegmentAppender(
        _core.OffsetIndexEntries(b"", **entries),
        _core.TimeIndexEntries(b"", **entries),
        write=print,
        write_parts=print,
        write_index_pages=print,
        index_interval_bytes=4096,
        segment_bytes=MAX_INT32,
        max_age_ms=MAX_INT32,
        created_ms=0,
    )
    with pytest.raises(TypeError):
        segment.append(None)
