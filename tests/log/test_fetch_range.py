"""Goal: fetch_range lends what fetch reads, whatever happens to the segment's file until it is given back.
Method: logs that are written and read, ranges held over compaction, retention and close, bytes compared with fetch."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import kstore
from kstore import LogConfig, Record, WritableLog
from kstore.errors import LogClosedError, LogReplacedError, OffsetOutOfRangeError
from kstore.log.reads import Reads
from kstore.log.source import FetchRange
from kstore.record import MemoryRecords
from kstore.record.builder import with_records, with_transactional_records
from tests.fakes.counting import CountingEnv

CONFIG = LogConfig(
    segment_bytes=4000,
    index_interval_bytes=300,
    segment_index_bytes=4096,
    cleanup_policy="compact,delete",
    min_cleanable_dirty_ratio=0.0,
    file_delete_delay_ms=0,
)
ISOLATIONS = ("read_uncommitted", "high_watermark", "read_committed")


def test_a_fetch_at_the_end_of_a_log_that_is_written_reads_no_file(tmp_path: Path) -> None:
    env = CountingEnv()
    with kstore.open_log(tmp_path / "t-0", "a", config=CONFIG, env=env) as log:
        for end in range(100):
            before = env.log_bytes
            for isolation in ISOLATIONS:
                found = log.fetch(end, 10**6, isolation=isolation)
                assert found == (b"", end, 0, end, None, end, ())
            assert env.log_bytes == before
            log.append(Record(timestamp_ms=1, key=b"k", value=b"v" * 90))
            assert len(log.fetch(end, 10**6).records) > 90
        log.truncate_to(40)
        assert log.fetch(40, 10**6).records == b""
        with pytest.raises(OffsetOutOfRangeError):
            log.fetch(41, 10**6)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[WritableLog]:
    with kstore.open_log(tmp_path / "t-0", "a", config=CONFIG) as log:
        for number in range(60):
            log.append([Record(timestamp_ms=number, key=b"k%d" % (number % 3), value=b"v" * 90) for _ in range(2)])
        yield log


def is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def received(part: FetchRange, **options: int) -> bytes:
    """What send_to sends over a socket that blocks."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        content = bytearray()

        def receive() -> None:
            while data := theirs.recv(65536):
                content.extend(data)

        reader = threading.Thread(target=receive)
        reader.start()
        sent = part.send_to(ours, **options)
        ours.shutdown(socket.SHUT_WR)
        reader.join()
    assert sent == len(content)
    return bytes(content)


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_range_has_the_bytes_and_bounds_of_a_fetch(log: WritableLog, isolation: str) -> None:
    undecided = [Record(timestamp_ms=1, key=b"k", value=b"t")]
    log.append(with_transactional_records(undecided, producer_id=1, producer_epoch=0, base_sequence=0))
    with kstore.open_log(log.path) as reader:
        for each in (log, reader):
            for offset in (0, 1, 37, 100, 119, 120, 121):
                for max_bytes, min_one in ((0, True), (0, False), (1, True), (700, False), (10**6, True)):
                    fetched = each.fetch(offset, max_bytes, min_one_batch=min_one, isolation=isolation)
                    with each.fetch_range(offset, max_bytes, min_one_batch=min_one, isolation=isolation) as part:
                        assert part.size_in_bytes == len(fetched.records)
                        assert part.read() == fetched.records == received(part)
                        assert part.bounds() == fetched._replace(records=b"")
                        assert part.log_start_offset == 0
                        assert part.base_offset == fetched.base_offset
                        assert part.log_end_offset == fetched.log_end_offset == 121
                        assert part.high_watermark == fetched.high_watermark
                        assert part.last_stable_offset == fetched.last_stable_offset
                        assert part.aborted == ()
                        assert (part.file is None) == (not fetched.records)


def test_range_is_read_and_sent_in_pieces(log: WritableLog) -> None:
    whole = log.fetch(3, 3000).records
    with log.fetch_range(3, 3000) as part:
        assert [part.read(start=at, size=100) for at in range(0, 3000, 100)] == [
            whole[at : at + 100] for at in range(0, 3000, 100)
        ]
        assert received(part, start=2950, size=500) == whole[2950:]
        assert part.read(start=3000) == received(part, start=3000) == b""
        for start, size in ((-1, 1), (3001, 1), (0, -1)):
            with pytest.raises(ValueError, match="must be from 0"):
                part.read(start=start, size=size)


def test_descriptor_serves_sendfile_of_an_event_loop(log: WritableLog) -> None:
    async def sent(part: FetchRange) -> bytes:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.setblocking(False)
            loop = asyncio.get_running_loop()
            count = await loop.sock_sendfile(ours, part.file, part.position, part.size_in_bytes, fallback=False)
            assert count == part.size_in_bytes
            return theirs.recv(65536)

    with log.fetch_range(50, 2000) as part:
        assert asyncio.run(sent(part)) == log.fetch(50, 2000).records


def test_socket_that_takes_no_more_is_told_how_far_it_came(log: WritableLog) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, log.fetch_range(0, 4000) as part:
        ours.setblocking(False)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4608)
        filled = 0
        while filled < 10**6 and (count := part.send_to(ours)) == part.size_in_bytes:
            filled += count
        assert 0 <= count < part.size_in_bytes


@pytest.mark.parametrize("change", ["compaction", "retention", "close"])
def test_range_stays_while_its_segment_goes(log: WritableLog, change: str) -> None:
    expected = log.fetch(0, 3000).records
    part = log.fetch_range(0, 3000)
    if change == "compaction":
        log.compact()
        assert log.fetch(0, 3000).records != expected
    elif change == "retention":
        log.delete_records(100)
        log.delete_old_segments()
        with pytest.raises(OffsetOutOfRangeError):
            log.fetch(0, 3000)
    else:
        log.close()
    assert part.read() == expected == received(part)
    fd = part.file.fileno() if part.file is not None else -1
    log.close()
    assert is_open(fd)
    part.close()
    assert not is_open(fd)


def test_range_that_was_closed_gives_nothing_and_closes_once(log: WritableLog) -> None:
    part, other = log.fetch_range(0, 3000), log.fetch_range(0, 3000)
    part.close()
    part.close()
    with socket.socket() as target:
        for call in (part.read, lambda: part.send_to(target)):
            with pytest.raises(LogClosedError):
                call()
    # A loan that were given back twice would close the file under the other one.
    fd = other.file.fileno() if other.file is not None else -1
    log.close()
    assert is_open(fd)
    assert len(other.read()) == 3000
    other.close()
    assert not is_open(fd)


def test_range_that_nobody_closed_is_given_back_with_it(log: WritableLog) -> None:
    part = log.fetch_range(0, 3000)
    fd = part.file.fileno() if part.file is not None else -1
    log.close()
    assert is_open(fd)
    del part
    gc.collect()
    assert not is_open(fd)


def test_range_that_was_found_during_a_change_is_given_back_and_found_again(
    log: WritableLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[FetchRange] = []
    source, made = log._source, FetchRange.__init__

    def changed_under(self: FetchRange, *args: object, **options: object) -> None:
        made(self, *args, **options)  # type: ignore[arg-type]
        found.append(self)
        if len(found) < 3:
            source.replaced_count += 1  # type: ignore[attr-defined]

    monkeypatch.setattr(FetchRange, "__init__", changed_under)
    part = log.fetch_range(0, 3000)
    assert found[2] is part
    fd = part.file.fileno() if part.file is not None else -1
    log.close()
    for earlier in found[:2]:
        with pytest.raises(LogClosedError):
            earlier.read()
    part.close()
    assert not is_open(fd)


def test_append_between_the_reads_of_the_bounds_and_the_segments_is_not_above_the_high_watermark(
    log: WritableLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked = Reads.check_in_range

    def appended_after(self: Reads, offset: int) -> tuple[int, int]:
        bounds = checked(self, offset)
        log.append([Record(timestamp_ms=1, key=b"k", value=b"new")])
        return bounds

    log.append([Record(timestamp_ms=1, key=b"k", value=b"in the segment of the next one")])
    mark = log.update_high_watermark(log.log_end_offset)
    monkeypatch.setattr(Reads, "check_in_range", appended_after)
    found = log.fetch(mark - 1, 10**6, isolation="high_watermark")
    assert (found.high_watermark, found.log_end_offset, log.log_end_offset) == (mark, mark, mark + 1)
    assert [batch.header.last_offset for batch in MemoryRecords(found.records).batches()] == [mark - 1]


def test_range_of_a_log_that_was_truncated_says_so(log: WritableLog) -> None:
    with log.fetch_range(118, 3000) as part:
        log.truncate_to(118)
        with pytest.raises(LogReplacedError):
            part.read()
        ours, theirs = socket.socketpair()
        with ours, theirs, pytest.raises(LogReplacedError):
            part.send_to(ours)


def test_log_that_is_closed_lends_nothing(log: WritableLog) -> None:
    log.close()
    with pytest.raises(LogClosedError):
        log.fetch_range(0, 100)


def test_arguments_are_those_of_fetch(log: WritableLog) -> None:
    with pytest.raises(ValueError, match="isolation must be one of"):
        log.fetch_range(0, 1, isolation="serializable")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="max_bytes must be from 0"):
        log.fetch_range(0, -1)
    with pytest.raises(TypeError, match="offset must be an int"):
        log.fetch_range("0", 1)  # type: ignore[arg-type]
    with pytest.raises(OffsetOutOfRangeError):
        log.fetch_range(500, 1)


def test_range_in_a_wrapper_begins_with_its_first_offset(tmp_path: Path) -> None:
    records = [Record(timestamp_ms=1, value=b"v") for _ in range(5)]
    with kstore.open_log(tmp_path / "w-0", "a", config=LogConfig(message_format_magic=1)) as log:
        log.append(with_records(records, magic=1, compression="gzip"))
        with log.fetch_range(3, 10) as part:
            assert part.base_offset == 0
            assert part.read() == log.fetch(3, 10).records
