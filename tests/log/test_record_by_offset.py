"""Goal: Log.get finds at each offset the record that a read finds there, by a read of one batch, whatever the log is.
Method: logs of all shapes, read twice so that index entries are proven; damage, growth and files that are rewritten."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kstore import LogConfig, Record
from kstore._core import iterate_records
from kstore.compression import decompress
from kstore.errors import (
    CorruptRecordError,
    InvalidRecordError,
    LogClosedError,
    LogReplacedError,
    OffsetOutOfRangeError,
)
from kstore.log.log import Log
from kstore.record import MemoryRecordsBuilder
from kstore.store.opening import open_log
from tests.fakes.changing_files import ChangingEnv, history, log_file
from tests.fakes.counting import CountingEnv
from tests.log.test_rewritten_files import LARGE, append_the_same_sizes, append_to_every_segment
from tests.making.batches import Layout, batch, batches, fix_crc, flip_bit, patch_header, record, write_partition
from tests.reference.codec import write_batch

# Batches per index entry: one, several (so that a batch begins where an entry's interval ends), and no entry at all.
SHAPES = [
    pytest.param(LogConfig(index_interval_bytes=interval, segment_bytes=40_000), size, id=f"{interval}-{size}")
    for interval in (0, 4096, 10**6)
    for size in (1, 7, 60)
]


def filled(path: Path, config: LogConfig, batch_size: int, *, count: int = 600) -> None:
    with open_log(path, "a", config=config) as log:
        for first in range(0, count, batch_size):
            log.append(
                [Record(key=b"%d" % number, value=b"%05d" % number * 20) for number in range(first, first + batch_size)]
            )


def check_each_offset(log: Log) -> None:
    expected = {record.offset: record for record in log.read()}
    assert expected
    for order in (1, -1, 1):
        for offset in range(log.log_start_offset, log.log_end_offset + 2)[::order]:
            assert log.get(offset) == expected.get(offset), offset


@pytest.mark.parametrize(("config", "batch_size"), SHAPES)
def test_each_offset_has_the_record_that_a_read_finds(tmp_path: Path, config: LogConfig, batch_size: int) -> None:
    path = tmp_path / "t-0"
    filled(path, config, batch_size)
    for mode in ("r", "a"):
        with open_log(path, mode, config=config) as log:
            assert len(log.segments) > 1
            check_each_offset(log)


@pytest.mark.parametrize("compression", ["gzip", "lz4", "zstd"])
def test_a_record_of_a_compressed_batch_is_found(tmp_path: Path, compression: str) -> None:
    path = tmp_path / "t-0"
    filled(path, LogConfig(compression_type=compression, index_interval_bytes=0), 30, count=90)
    with open_log(path) as log:
        check_each_offset(log)


def test_offsets_between_records_and_segments_have_none(tmp_path: Path) -> None:
    segments = [batches(0, 3, records_per_batch=2), batches(40, 3, records_per_batch=2)]
    with open_log(write_partition(tmp_path, segments, layout=Layout(index_interval_bytes=1))) as log:
        check_each_offset(log)
        assert log.get(20) is None
        assert log.get(40) is not None


def test_the_end_of_a_log_that_grows_is_found_at_once(tmp_path: Path) -> None:
    config = LogConfig(index_interval_bytes=300, segment_bytes=3000)
    path = tmp_path / "t-0"
    with open_log(path, "a", config=config) as writer, open_log(path, config=config) as reader:
        for end in range(60):
            assert writer.get(end) is None
            writer.append(Record(value=b"%d" % end))
            assert reader.get(end) is None
            reader.refresh()
            for log in (writer, reader):
                for offset in range(end + 1):
                    assert log[offset].value == b"%d" % offset
        writer.truncate_to(20)
        assert writer.get(20) is None
        writer.append(Record(value=b"other"))
        assert [at and at.value for at in map(writer.get, (19, 20, 21))] == [b"19", b"other", None]


def test_a_record_whose_entry_is_proven_costs_the_bytes_of_its_batch(tmp_path: Path) -> None:
    env = CountingEnv()
    with open_log(tmp_path / "t-0", "a", config=LogConfig(index_interval_bytes=0), env=env) as log:
        for _ in range(20):
            log.append([Record(value=bytes(100)) for _ in range(50)])
        size = log.segments[0].size_in_bytes // 20
        for offset in range(0, 1000, 10):
            log.get(offset)
        before = env.log_bytes
        for offset in range(100, 900, 10):
            assert log.get(offset) is not None
        assert env.log_bytes - before == 80 * size


def test_damage_is_an_error_at_its_own_offsets_alone(tmp_path: Path) -> None:
    config = LogConfig(index_interval_bytes=0)
    path = tmp_path / "t-0"
    filled(path, config, 10, count=100)
    with open_log(path, config=config) as log:
        check_each_offset(log)
        flip_bit(path / f"{0:020d}.log", log.segments[0].size_in_bytes // 10 * 3 + 100, bit=1)
        for offset in range(100):
            if 30 <= offset < 40:
                with pytest.raises(CorruptRecordError, match="CRC"):
                    log.get(offset)
            else:
                assert log.get(offset) is not None


def test_a_record_before_the_wanted_one_that_is_no_record_is_an_error(tmp_path: Path) -> None:
    data = bytearray(batch(0, 3, value_bytes=20))
    data[61] += 2
    fix_crc(data)
    directory = write_partition(tmp_path, [[bytes(data), batch(3)]], layout=Layout(index_interval_bytes=1))
    with open_log(directory) as log:
        with pytest.raises(InvalidRecordError):
            log.get(2)
        assert log.get(3) is not None


def test_what_follows_the_last_record_of_a_batch_is_an_error_of_the_offsets_from_that_record_on(tmp_path: Path) -> None:
    """The batch ends with offsets whose records compaction has removed."""
    data = bytearray(patch_header(batch(0, 3, value_bytes=20), last_offset_delta=5) + b"\0")
    data[8:12] = (len(data) - 12).to_bytes(4, "big")
    fix_crc(data)
    directory = write_partition(tmp_path, [[bytes(data), batch(6)]], layout=Layout(index_interval_bytes=1))
    with open_log(directory) as log:
        assert [log[offset].offset for offset in (0, 1, 6)] == [0, 1, 6]
        for offset in (2, 3, 5):
            with pytest.raises(InvalidRecordError, match="bytes left after the last record"):
                log.get(offset)
            with pytest.raises(InvalidRecordError, match="bytes left after the last record"):
                next(log.read(offset))


@pytest.mark.parametrize("options", [{}, {"headers": [(b"h", b"1")]}, {"timestamp_ms": 1 << 40}, {"key": None}])
def test_a_record_is_found_after_records_of_each_shape(tmp_path: Path, options: dict[str, Any]) -> None:
    fields = {"timestamp_ms": 5, "key": b"k"} | options
    written = [
        write_batch([record(offset, b"v" * offset, **fields) for offset in range(30)]),
        write_batch([record(offset, b"%d" % offset) for offset in (30, 33, 39)]),
    ]
    with open_log(write_partition(tmp_path, [written], layout=Layout(index_interval_bytes=1))) as log:
        check_each_offset(log)


@pytest.mark.parametrize("mode", ["r", "a"])
def test_a_closed_log_has_no_records(tmp_path: Path, mode: str) -> None:
    filled(tmp_path / "t-0", LogConfig(), 10, count=20)
    log = open_log(tmp_path / "t-0", mode)
    assert log.get(3) is not None
    log.close()
    for offset in (3, 30):
        with pytest.raises(LogClosedError):
            log.get(offset)


def record_of(directory: Path, offset: int) -> bytes:
    with open_log(directory) as log:
        return log[offset].value


@pytest.mark.parametrize("change", [append_the_same_sizes, append_to_every_segment])
def test_a_file_that_is_rewritten_gives_no_record_of_neither_history(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    before, after = history(tmp_path / "before", value_bytes=LARGE), history(tmp_path / "after", value_bytes=LARGE)
    change(after)
    offsets = (5, 22, 25, 28)
    values = {offset: (record_of(before, offset), record_of(after, offset)) for offset in offsets}
    counting = ChangingEnv()
    with open_log(before, env=counting) as log:
        assert [log[offset].value for offset in offsets] == [value for value, _ in values.values()]
    changed = 0
    for at in range(counting.calls):
        directory = history(tmp_path / f"at-{at}", value_bytes=LARGE)
        env = ChangingEnv(lambda directory=directory: change(directory), at=at)
        has_changed = False
        try:
            with open_log(directory, env=env) as log:
                for offset in offsets:
                    value = log[offset].value
                    assert value in values[offset], (at, offset)
                    # Once a record of the later history was returned, none of the one before is.
                    has_changed = has_changed or value != values[offset][0]
                    assert not has_changed or value == values[offset][1], (at, offset)
        except LogReplacedError:
            has_changed = True
        changed += has_changed
    assert changed


def test_a_batch_in_a_value_is_not_taken_for_the_one_that_was_there_before(tmp_path: Path) -> None:
    """The file is written again: where an entry was proven, there is a value that holds a batch by now."""
    segment = batches(0, 10, value_bytes=300)
    directory = write_partition(tmp_path, [segment], layout=Layout(index_interval_bytes=0))
    with open_log(directory) as log:
        check_each_offset(log)
        position, value = sum(map(len, segment[:5])), bytearray(len(segment[0]) * 10)
        start = write_batch([record(0, bytes(value))]).index(bytes(value))
        stored = batch(5, value_bytes=200)
        value[position - start : position - start + len(stored)] = stored
        written = write_batch([record(0, bytes(value)), *(record(offset, b"true") for offset in range(1, 10))])
        assert written[position : position + len(stored)] == stored
        log_file(directory, 0).write_bytes(written)
        assert log[5].value == b"true"


def test_a_record_is_found_among_those_of_a_batch() -> None:
    data = write_batch([record(offset, b"%d" % offset, None) for offset in (3, 5, 9)])

    def records() -> object:
        return iterate_records(data, position=0, decompress=decompress, max_decompressed_bytes=10**6)

    found = {offset: records().find(offset) for offset in range(2, 12)}
    assert {offset: at.value for offset, at in found.items() if at} == {3: b"3", 5: b"5", 9: b"9"}
    iterator = records()
    assert iterator.find(5).offset == 5
    assert iterator.find(3) is None
    old = MemoryRecordsBuilder(magic=1)
    old.append(timestamp_ms=0, value=b"v")
    message = bytes(old.build().buffer)
    with pytest.raises(ValueError, match="magic must be 2, got 1"):
        iterate_records(message, position=0, decompress=decompress, max_decompressed_bytes=10**6).find(0)


def test_a_record_that_is_not_whole_is_after_the_end(tmp_path: Path) -> None:
    directory = write_partition(tmp_path, [batches(0, 4, value_bytes=50)], layout=Layout(index_interval_bytes=1))
    path = log_file(directory, 0)
    os.truncate(path, path.stat().st_size - 10)
    with open_log(directory) as log:
        assert log.get(3) is None
        assert log.get(2) is not None
    with open_log(directory) as log, pytest.raises(OffsetOutOfRangeError):
        log[3]
