"""Goal: a lookup reads little, and what it remembers of an index never makes an answer wrong.
Method: reads counted at the door to the system; batches whose intervals hold one or several; the oracle's answers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import kstore
from kstore import _core
from kstore._core import RECORD_BATCH_OVERHEAD
from kstore.config import LogConfig
from kstore.env import LocalFile
from kstore.errors import CorruptRecordError, InvalidRecordError, LogClosedError, LogReplacedError
from kstore.log.files.records import HEADER_CHUNK_BYTES
from kstore.log.log import Log
from kstore.log.segment.segment import LogSegment
from kstore.store.opening import open_log
from tests.making.batches import FIRST_TIMESTAMP_MS, Layout, batch, batches, patch_header, record, write_partition
from tests.reference.codec import Header, Record, read_records, write_batch

CONFIG = LogConfig(time_index_proof_bytes=4096)
# What a lookup of a record returns that cannot prove where it is.
UNPROVEN = kstore.Record(value=None)
LARGE = batches(0, 12, records_per_batch=5, value_bytes=400)
SMALL = batches(0, 60, records_per_batch=3, value_bytes=20)
SEGMENTS = [
    pytest.param(LARGE, Layout(index_interval_bytes=1000), id="one-batch-an-interval"),
    pytest.param(SMALL, Layout(index_interval_bytes=1000), id="several-batches-an-interval"),
    pytest.param(SMALL, Layout(index_interval_bytes=1000, first_offset_keys=True), id="first-offset-keys"),
    pytest.param(LARGE, Layout(index_interval_bytes=10**6), id="no-entry"),
]


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of all preads of .log files so far."""
    sizes: list[int] = []
    pread = LocalFile.pread

    def counted(file: LocalFile, size: int, *, position: int) -> bytes:
        if file.path.endswith(".log"):
            sizes.append(size)
        return pread(file, size, position=position)

    monkeypatch.setattr(LocalFile, "pread", counted)
    return sizes


def opened(tmp_path: Path, segment: list[bytes], layout: Layout) -> Log:
    """A log whose first segment is the one of interest, a second one behind it."""
    end = Header.unpack(segment[-1]).last_offset + 1
    return open_log(write_partition(tmp_path, [segment, [batch(end)]], layout=layout), config=CONFIG)


@pytest.mark.parametrize(("segment", "layout"), SEGMENTS)
def test_every_offset_is_found_before_and_after_the_proof(tmp_path: Path, segment: list[bytes], layout: Layout) -> None:
    headers = [Header.unpack(data) for data in segment]
    with opened(tmp_path, segment, layout) as log:
        for order in (1, -1, 1):
            for header in headers[::order]:
                for offset in range(header.base_offset, header.last_offset + 1):
                    found = log.segments[0].translate_offset(offset)
                    assert found is not None
                    assert (found.base_offset, found.crc) == (header.base_offset, header.crc)
        assert log.segments[0].translate_offset(headers[-1].last_offset + 1) is None


@pytest.mark.parametrize("per_entry", [1, 2, 3, 5])
def test_every_offset_is_found_before_and_after_the_index_grew(tmp_path: Path, per_entry: int) -> None:
    """The last entry of an index is that of one batch when it is proven, and of more when the index has grown."""
    size = len(write_batch([record(0, b"v" * 40, b"k00")]))
    config = LogConfig(index_interval_bytes=size * per_entry - 1, segment_bytes=1 << 20)
    path = tmp_path / "t-0"
    with open_log(path, "a", config=config) as writer, open_log(path, config=config) as reader:
        for end in range(1, 40):
            writer.append(kstore.Record(timestamp_ms=end, key=b"k%02d" % end, value=b"v" * 40))
            reader.refresh()
            for log in (reader, writer):
                found = [log.segments[0].translate_offset(offset) for offset in range(end)]
                assert [one and one.base_offset for one in found] == [*range(end)], (end, log)


def first_segment(log: Log, reads: list[int]) -> LogSegment:
    """The segment of interest; that it does not end in preallocated space costs one small read, once."""
    first = log.segments[0]
    assert first.scan_end_position == first.size_in_bytes
    assert reads == [17]
    reads.clear()
    return first


@pytest.mark.parametrize(("segment", "layout"), SEGMENTS[:3])
def test_offset_costs_one_read(tmp_path: Path, reads: list[int], segment: list[bytes], layout: Layout) -> None:
    with opened(tmp_path, segment, layout) as log:
        first = first_segment(log, reads)
        for offset in (20, 21, 22, 40):
            first.translate_offset(offset)
            assert (len(reads), reads.pop() <= 2 * 1000 + len(segment[0]) + 61 * 2) == (1, True), offset


def test_proven_entry_costs_the_read_of_one_header(tmp_path: Path, reads: list[int]) -> None:
    with opened(tmp_path, LARGE, Layout(index_interval_bytes=1000)) as log:
        first = first_segment(log, reads)
        first.translate_offset(23)
        first.translate_offset(22)
        assert reads == [len(LARGE[3]) + 61, 61]


HUGE = batches(0, 8, records_per_batch=2, value_bytes=150_000)


def test_a_reader_of_large_batches_goes_on_without_the_proof_of_an_entry(tmp_path: Path, reads: list[int]) -> None:
    headers = [Header.unpack(data) for data in HUGE]
    with opened(tmp_path, HUGE, Layout(index_interval_bytes=1000)) as log:
        first = first_segment(log, reads)
        first.translate_offset(headers[1].base_offset)
        reads.clear()
        for header in headers[1:]:
            found = first.translate_offset(header.base_offset)
            assert found is not None
            assert (found.base_offset, found.crc) == (header.base_offset, header.crc)
        # The header of the batch that it has, and that of the next one.
        assert reads == [RECORD_BATCH_OVERHEAD] * (1 + 2 * (len(headers) - 2))


def first_of(data: bytes) -> tuple[_core.BatchHeader, Callable[[bytes], _core.SegmentLookup]]:
    """The header of the first batch of `data`, and what looks into a segment of other bytes without an index."""

    def lookup_of(content: bytes) -> _core.SegmentLookup:
        def pread(size: int, *, position: int) -> bytes:
            return content[position : position + size]

        return _core.SegmentLookup(lambda: None, lambda: None, lambda: pread, end_position=len(data))

    return _core.read_header(data[:RECORD_BATCH_OVERHEAD], position=0), lookup_of


def test_batch_after_one_that_was_found_is_that_one_or_the_next() -> None:
    start, lookup_of = first_of(b"".join(LARGE[:3]))
    lookup = lookup_of(b"".join(LARGE[:3]))
    found = [lookup.batch_after(start, offset) for offset in range(15)]
    assert [one and (one.base_offset, one.position) for one in found] == [
        *[(0, 0)] * 5,
        *[(5, len(LARGE[0]))] * 5,
        *[None] * 5,
    ]


@pytest.mark.parametrize(
    ("there", "offset"),
    [
        pytest.param(b"", 0, id="nothing"),
        pytest.param(bytes(500), 0, id="zeros"),
        pytest.param(LARGE[0][:60], 0, id="not a whole header"),
        pytest.param(LARGE[0][:16] + b"\x09" + LARGE[0][17:], 0, id="unknown magic"),
        pytest.param(LARGE[0] + patch_header(LARGE[1], base_offset=3), 7, id="offsets that fall"),
        pytest.param(LARGE[0] + LARGE[1][:60], 7, id="a next one that is not whole"),
    ],
)
def test_batch_after_one_that_is_gone_is_not_believed(there: bytes, offset: int) -> None:
    start, lookup_of = first_of(b"".join(LARGE[:2]))
    assert lookup_of(b"".join(LARGE[:2])).batch_after(start, offset) is not None
    assert lookup_of(there).batch_after(start, offset) is None


def test_batch_with_lower_offsets_in_the_place_of_the_one_that_was_found_is_not_believed() -> None:
    data = b"".join(LARGE[1:3])
    start, lookup_of = first_of(data)
    there = patch_header(LARGE[1], base_offset=4) + LARGE[2]
    assert lookup_of(data).batch_after(start, 9) is not None
    assert lookup_of(there).batch_after(start, 9) is None


def test_batch_after_the_end_of_the_segment_is_none() -> None:
    data = b"".join(LARGE[:2])
    _, lookup_of = first_of(data)
    for position in (len(data), len(data) + 1):
        start = _core.read_header(LARGE[0][:RECORD_BATCH_OVERHEAD], position=position)
        assert lookup_of(data * 2).batch_after(start, 0) is None


def test_header_that_cannot_be_had_is_left_to_the_walk() -> None:
    def lost(size: int, *, position: int) -> bytes:
        raise CorruptRecordError("the store lost it", path="", position=position)

    start, _ = first_of(LARGE[0])
    lookup = _core.SegmentLookup(lambda: None, lambda: None, lambda: lost, end_position=len(LARGE[0]))
    assert lookup.batch_after(start, 0) is None


@pytest.mark.parametrize("layout", [Layout(index_interval_bytes=1000), Layout(index_interval_bytes=10**9)])
def test_large_batches_are_found_in_any_order(tmp_path: Path, layout: Layout) -> None:
    headers = [Header.unpack(data) for data in HUGE]
    with opened(tmp_path, HUGE, layout) as log:
        for step in (1, 3, 5, 7):
            for number in range(2 * len(headers)):
                header = headers[number * step % len(headers)]
                for offset in (header.last_offset, header.base_offset):
                    found = log.segments[0].translate_offset(offset)
                    assert found is not None
                    assert (found.base_offset, found.crc) == (header.base_offset, header.crc)
        assert log.segments[0].translate_offset(headers[-1].last_offset + 1) is None


def test_a_jump_over_large_batches_starts_at_an_index_entry(tmp_path: Path, reads: list[int]) -> None:
    with opened(tmp_path, HUGE, Layout(index_interval_bytes=1000)) as log:
        first = first_segment(log, reads)
        first.translate_offset(Header.unpack(HUGE[0]).base_offset)
        reads.clear()
        first.translate_offset(Header.unpack(HUGE[6]).base_offset)
        # The batch of the entry, and no walk over those before it.
        assert max(reads) > HEADER_CHUNK_BYTES
        assert len(reads) <= 6


def lookup_in(content: bytes, *, pread: Callable[..., bytes], end_position: int = 1000) -> _core.SegmentLookup:
    """The lookup of a segment that has these entries and no time index."""
    search = _core.OffsetIndexSearch(content, base_offset=0)
    return _core.SegmentLookup(lambda: search, lambda: None, lambda: pread, end_position=end_position)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(bytes(161), id="zeros"),
        pytest.param(b"", id="nothing"),
        pytest.param(LARGE[0][:161], id="batch-cut-off"),
    ],
)
def test_batch_that_no_longer_fits_its_place_is_not_believed(data: bytes) -> None:
    entries = b"".join(n.to_bytes(4, "big") + (100 * n).to_bytes(4, "big") for n in (1, 2, 3))
    asked = []

    def pread(size: int, *, position: int) -> bytes:
        asked.append((size, position))
        return data

    assert lookup_in(entries, pread=pread).batch_of_offset(2) is None
    assert asked == [(161, 200)]


def test_batch_that_takes_two_reads_is_the_same_in_both() -> None:
    data, other = b"".join(LARGE[:2]), LARGE[0] + patch_header(LARGE[1], partition_leader_epoch=7)
    content = (4).to_bytes(4, "big") + bytes(4) + (9).to_bytes(4, "big") + len(LARGE[0]).to_bytes(4, "big")
    for later, is_same in ((data, True), (other, False), (data[:-1], False)):
        files = [data, later]

        def pread(size: int, *, position: int, files: list[bytes] = files) -> bytes:
            return files.pop(0)[position : position + size]

        found = lookup_in(content, pread=pread, end_position=len(data)).record_of_offset(7, UNPROVEN)
        assert (found is not UNPROVEN, found.offset) == ((True, 7) if is_same else (False, UNPROVEN.offset))
        assert not files


POSITIONS = [
    pytest.param([(1, 100), (2, 100)], id="same-position"),
    pytest.param([(1, 100), (2, 50)], id="going-back"),
    pytest.param([(1, -100)], id="negative"),
    pytest.param([(1, 1000)], id="at-the-end"),
    pytest.param([(1, 5000)], id="behind-the-end"),
    pytest.param([(1, 100), (2, 100 + 256 * 1024)], id="far-apart"),
]


@pytest.mark.parametrize("entries", POSITIONS)
def test_positions_that_can_not_be_lead_to_no_read(entries: list[tuple[int, int]]) -> None:
    content = b"".join(key.to_bytes(4, "big") + place.to_bytes(4, "big", signed=True) for key, place in entries)
    end_position = 1000 if entries[-1][1] < 10000 else 10**6
    assert lookup_in(content, pread=no_read, end_position=end_position).batch_of_offset(1) is None


def no_read(size: int, *, position: int) -> bytes:
    raise AssertionError(f"read of {size} bytes at {position}")


def test_file_that_the_cache_closed_is_opened_anew() -> None:
    content = (4).to_bytes(4, "big") + bytes(4)
    opened: list[int] = []

    def fetch_pread() -> Callable[..., bytes]:
        opened.append(1)
        return closed if len(opened) == 1 else lambda size, *, position: LARGE[0][position : position + size]

    def closed(size: int, *, position: int) -> bytes:
        raise LogClosedError("closed", path="")

    search = _core.OffsetIndexSearch(content, base_offset=0)
    lookup = _core.SegmentLookup(lambda: search, lambda: None, fetch_pread, end_position=len(LARGE[0]))
    found = lookup.batch_of_offset(4)
    assert (found is not None, len(opened)) == (True, 2)
    opened.clear()
    lookup = _core.SegmentLookup(lambda: search, lambda: None, fetch_pread, end_position=len(LARGE[0]))
    assert (lookup.record_of_offset(4, UNPROVEN).offset, len(opened)) == (4, 2)
    opened.clear()
    lookup = _core.SegmentLookup(lambda: search, lambda: None, fetch_pread, end_position=len(LARGE[0]))
    assert found is not None
    again = lookup.batch_after(found, 4)
    assert (again is not None and again.base_offset, len(opened)) == (found.base_offset, 2)


def test_log_closed_meanwhile_is_said(tmp_path: Path) -> None:
    with opened(tmp_path, LARGE, Layout(index_interval_bytes=1000)) as log:
        segment = log.segments[0]
        segment.translate_offset(23)
        segment.search_timestamp(FIRST_TIMESTAMP_MS + 43, start_offset=0)
    for call in (
        lambda: segment.translate_offset(23),
        lambda: segment.record_of_offset(23, UNPROVEN),
        lambda: segment.search_timestamp(FIRST_TIMESTAMP_MS + 43, start_offset=0),
    ):
        with pytest.raises(LogClosedError):
            call()


# By time


def test_timestamp_costs_one_read_once_its_entry_is_confirmed(tmp_path: Path, reads: list[int]) -> None:
    with opened(tmp_path, LARGE, Layout(index_interval_bytes=1000)) as log:
        segment = log.segments[0]
        for _ in range(2):
            reads.clear()
            assert segment.search_timestamp(FIRST_TIMESTAMP_MS + 43, start_offset=0) == (43, FIRST_TIMESTAMP_MS + 43)
        assert reads == [len(LARGE[8])]


def test_first_part_of_a_segment_is_proven_once(tmp_path: Path, reads: list[int]) -> None:
    with opened(tmp_path, LARGE, Layout(index_interval_bytes=1000)) as log:
        for _ in range(2):
            log.segments[0].search_timestamp(FIRST_TIMESTAMP_MS + 13, start_offset=0)
        reads.clear()
        for offset in (13, 11, 14):
            found = log.segments[0].search_timestamp(FIRST_TIMESTAMP_MS + offset, start_offset=0)
            assert found == (offset, FIRST_TIMESTAMP_MS + offset)
        assert (len(reads), max(reads)) == (3, len(LARGE[2]))


def test_record_of_a_batch_checked_before_costs_the_read_of_its_part(tmp_path: Path, reads: list[int]) -> None:
    with opened(tmp_path, LARGE, Layout(index_interval_bytes=1000)) as log:
        for _ in range(4):
            reads.clear()
            found = log.segments[0].search_timestamp(FIRST_TIMESTAMP_MS + 41, start_offset=0)
            assert found == (41, FIRST_TIMESTAMP_MS + 41)
        assert len(reads) == 1
        assert reads[0] < len(LARGE[8]) * 2 // 3


def timed(times: list[int]) -> list[bytes]:
    """LARGE with other timestamps, those of record n at times[n % 5] of its batch's fifty milliseconds."""
    return [
        write_batch(
            [
                record(offset, b"." * 400, timestamp_ms=FIRST_TIMESTAMP_MS + 10 * first + times[offset - first])
                for offset in range(first, first + 5)
            ]
        )
        for first in range(0, 60, 5)
    ]


SPREADS = [
    pytest.param([1, 11, 21, 31, 41], id="even"),
    pytest.param([46, 47, 48, 49, 50], id="late"),
    pytest.param([1, 2, 3, 4, 50], id="early"),
    pytest.param([50, 1, 20, 3, 7], id="not-rising"),
    pytest.param([50, 50, 50, 50, 50], id="same"),
]


def first_at(records: Iterable[Record], timestamp_ms: int, start_offset: int) -> tuple[int, int] | None:
    """Offset and timestamp of the first record of a time or later, from an offset on."""
    found = (one for one in records if one.timestamp_ms >= timestamp_ms and one.offset >= start_offset)
    return next(((one.offset, one.timestamp_ms) for one in found), None)


@pytest.mark.parametrize("times", SPREADS)
def test_every_timestamp_is_found_before_and_after_the_proof(tmp_path: Path, times: list[int]) -> None:
    segment = timed(times)
    records = [one for data in segment for one in read_records(data)]
    with opened(tmp_path, segment, Layout(index_interval_bytes=1000)) as log:
        for start_offset in (0, 0, 0, 0, 33):
            for timestamp_ms in range(FIRST_TIMESTAMP_MS - 1, FIRST_TIMESTAMP_MS + 602):
                expected = first_at(records, timestamp_ms, start_offset)
                assert log.segments[0].search_timestamp(timestamp_ms, start_offset=start_offset) == expected


SHAPES = [
    pytest.param([0, 1, 2, 3, 4], [1, 9000, 1, 9000, 1], [1, 2, 3, 4, 5], id="long-sizes"),
    pytest.param([0, 1, 2, 3, 4], [300, 300, 300, 300, 300], [0, 9000, 18000, 27000, 36000], id="long-times"),
    pytest.param([0, 9, 9000, 9001, 9002], [300, 300, 300, 300, 300], [1, 2, 3, 4, 5], id="gaps-and-long-offsets"),
]


@pytest.mark.parametrize(("offsets", "sizes", "times"), SHAPES)
def test_records_of_any_shape_are_found_by_time(
    tmp_path: Path, offsets: list[int], sizes: list[int], times: list[int]
) -> None:
    records = [
        record(10_000 * number + offset, b"." * size, timestamp_ms=FIRST_TIMESTAMP_MS + 40_000 * number + time_ms)
        for number in range(6)
        for offset, size, time_ms in zip(offsets, sizes, times, strict=True)
    ]
    segment = [write_batch(records[first : first + 5]) for first in range(0, 30, 5)]
    with opened(tmp_path, segment, Layout(index_interval_bytes=1000)) as log:
        for start_offset in (0, 0, 0, 0, 20_005):
            for last_ms in [one.timestamp_ms for one in records]:
                for timestamp_ms in (last_ms, last_ms + 1):
                    expected = first_at(records, timestamp_ms, start_offset)
                    assert log.segments[0].search_timestamp(timestamp_ms, start_offset=start_offset) == expected


def test_batch_replaced_under_a_checked_entry_is_found_out(tmp_path: Path) -> None:
    with opened(tmp_path, LARGE, Layout(index_interval_bytes=1000)) as log:
        segment = log.segments[0]
        for _ in range(4):
            segment.search_timestamp(FIRST_TIMESTAMP_MS + 43, start_offset=0)
        path = Path(segment.path)
        content = bytearray(path.read_bytes())
        at = sum(map(len, LARGE[:8]))
        content[at : at + 61] = patch_header(LARGE[8], repair_crc=False, last_offset_delta=5)[:61]
        path.write_bytes(content)
        with pytest.raises(CorruptRecordError):
            segment.search_timestamp(FIRST_TIMESTAMP_MS + 43, start_offset=0)


# By time, far into a batch

PER_BATCH = 48


def long_batches(time_of: Callable[[int], int]) -> list[bytes]:
    """Batches with a hundred milliseconds each, in which time_of tells the time of each record by its place."""
    return [
        write_batch(
            [
                record(
                    PER_BATCH * number + place,
                    b"." * (380 + 7 * (place % 5)),
                    timestamp_ms=FIRST_TIMESTAMP_MS + 100 * number + time_of(place),
                )
                for place in range(PER_BATCH)
            ]
        )
        for number in range(8)
    ]


TIMES = [
    pytest.param(lambda place: 1 + 2 * place, id="even"),
    pytest.param(lambda place: 90 + place // 10, id="late"),
    pytest.param(lambda place: 1 if place < PER_BATCH - 1 else 99, id="early"),
    pytest.param(lambda place: 1 + 2 * place if place != 30 else 1, id="one-falls-back"),
    pytest.param(lambda place: 1 + 2 * place if place != 12 else 99, id="one-is-ahead"),
    pytest.param(lambda place: 95 - 2 * place, id="falling"),
    pytest.param(lambda place: 50 + 0 * place, id="same"),
]


@pytest.mark.parametrize("time_of", TIMES)
def test_every_timestamp_in_a_long_batch_is_found(tmp_path: Path, time_of: Callable[[int], int]) -> None:
    segment = long_batches(time_of)
    records = [one for data in segment for one in read_records(data)]
    with opened(tmp_path, segment, Layout(index_interval_bytes=1000)) as log:
        for start_offset in (0, 0, 0, 0, PER_BATCH * 4 + 40):
            for timestamp_ms in range(FIRST_TIMESTAMP_MS - 1, FIRST_TIMESTAMP_MS + 802, 3):
                expected = first_at(records, timestamp_ms, start_offset)
                assert log.segments[0].search_timestamp(timestamp_ms, start_offset=start_offset) == expected


FAR_MS = FIRST_TIMESTAMP_MS + 400 + 81
FAR_ANSWER = (PER_BATCH * 4 + 40, FAR_MS)


@contextmanager
def searched(tmp_path: Path, segment: list[bytes]) -> Iterator[tuple[LogSegment, Callable[[int, bytes], None]]]:
    """A segment in which FAR_MS was searched until that takes least; what writes into its file, at a place in the batch
    that has the answer."""
    with opened(tmp_path, segment, Layout(index_interval_bytes=1000)) as log:
        found = log.segments[0]
        for _ in range(4):
            assert found.search_timestamp(FAR_MS, start_offset=0) == FAR_ANSWER
        start = sum(map(len, segment[:4]))

        def write(place: int, data: bytes) -> None:
            with Path(found.path).open("r+b") as file:
                file.seek(start + place)
                file.write(data)

        yield found, write


def test_records_long_before_the_answer_are_not_read_again(tmp_path: Path) -> None:
    with searched(tmp_path, long_batches(lambda place: 1 + 2 * place)) as (segment, write):
        write(RECORD_BATCH_OVERHEAD, b"\xff" * 2000)
        assert segment.search_timestamp(FAR_MS, start_offset=0) == FAR_ANSWER
        with pytest.raises(CorruptRecordError):
            segment.search_timestamp(FAR_MS - 70, start_offset=0)


def test_header_damaged_long_before_the_answer_is_found_out(tmp_path: Path) -> None:
    segment_bytes = long_batches(lambda place: 1 + 2 * place)
    with searched(tmp_path, segment_bytes) as (segment, write):
        write(0, patch_header(segment_bytes[4], repair_crc=False, last_offset_delta=5)[:RECORD_BATCH_OVERHEAD])
        with pytest.raises(CorruptRecordError):
            segment.search_timestamp(FAR_MS, start_offset=0)


def showing_old_records(data: bytes) -> bytes:
    """A batch as large as `data`, of two records; the value of the second one has the last bytes of `data`, where they
    were."""
    old, (first, *_) = Header.unpack(data), read_records(data)

    def made(value: bytes) -> bytes:
        second = record(first.offset + 1, value, timestamp_ms=old.max_timestamp_ms)
        return write_batch([first, second], last_offset=old.last_offset)

    size = next(size for size in range(len(data)) if len(made(b"." * size)) == len(data))
    kept = size - 200
    return made(b"." * 200 + data[-kept - 1 : -1])


def test_records_of_a_batch_that_took_the_place_of_another_are_its_own(tmp_path: Path) -> None:
    old = long_batches(lambda place: 1 + 2 * place)
    new = showing_old_records(old[4])
    assert new[-8000:] == old[4][-8000:]
    with searched(tmp_path, old) as (segment, write):
        write(0, new)
        expected = first_at(read_records(new), FAR_MS, 0)
        assert expected is not None
        assert expected[0] == PER_BATCH * 4 + 1
        assert segment.search_timestamp(FAR_MS, start_offset=0) == expected


@pytest.mark.parametrize("place", [30, 100, 15_000], ids=lambda place: f"{place} bytes")
def test_file_cut_in_a_batch_that_was_checked_is_said(tmp_path: Path, place: int) -> None:
    segment_bytes = long_batches(lambda place: 1 + 2 * place)
    with searched(tmp_path, segment_bytes) as (segment, _):
        os.truncate(segment.path, sum(map(len, segment_bytes[:4])) + place)
        with pytest.raises(LogReplacedError):
            segment.search_timestamp(FAR_MS, start_offset=0)


def test_file_closed_before_a_search_far_into_a_batch_is_said(tmp_path: Path) -> None:
    with searched(tmp_path, long_batches(lambda place: 1 + 2 * place)) as (segment, _):
        pass
    with pytest.raises(LogClosedError):
        segment.search_timestamp(FAR_MS, start_offset=0)


def test_batches_with_append_time_are_found_by_it(tmp_path: Path) -> None:
    segment = [
        write_batch(
            [record(offset, b"." * 400) for offset in range(PER_BATCH * number, PER_BATCH * (number + 1))],
            log_append_time_ms=FIRST_TIMESTAMP_MS + 100 * number,
        )
        for number in range(8)
    ]
    records = [one for data in segment for one in read_records(data)]
    with opened(tmp_path, segment, Layout(index_interval_bytes=1000)) as log:
        for start_offset in (0, 0, 0, PER_BATCH * 4 + 40):
            for timestamp_ms in range(FIRST_TIMESTAMP_MS - 1, FIRST_TIMESTAMP_MS + 702, 7):
                expected = first_at(records, timestamp_ms, start_offset)
                assert log.segments[0].search_timestamp(timestamp_ms, start_offset=start_offset) == expected


PLAIN = batch(7, 5)
PLAIN_RECORDS = read_records(PLAIN)


@pytest.mark.parametrize("start_offset", [0, 7, 9, 11, 12])
def test_record_of_a_batch_is_found_by_time(start_offset: int) -> None:
    for timestamp_ms in range(FIRST_TIMESTAMP_MS + 5, FIRST_TIMESTAMP_MS + 14):
        expected = next(
            (
                (r.offset, r.timestamp_ms)
                for r in PLAIN_RECORDS
                if r.timestamp_ms >= timestamp_ms and r.offset >= start_offset
            ),
            None,
        )
        found = _core.search_timestamp_in_batch(PLAIN, position=0, timestamp_ms=timestamp_ms, start_offset=start_offset)
        assert found == expected


DAMAGED = [
    pytest.param(PLAIN[:-1], CorruptRecordError, id="cut"),
    pytest.param(PLAIN[:60], CorruptRecordError, id="cut-in-the-header"),
    pytest.param(PLAIN[:-1] + bytes([PLAIN[-1] ^ 1]), CorruptRecordError, id="flipped-bit"),
    pytest.param(patch_header(PLAIN, last_offset_delta=-1), InvalidRecordError, id="last-offset-delta"),
    pytest.param(patch_header(PLAIN, record_count=6), InvalidRecordError, id="record-count"),
]


@pytest.mark.parametrize(("data", "error"), DAMAGED)
def test_damaged_batch_is_not_searched(data: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        _core.search_timestamp_in_batch(data, position=0, timestamp_ms=2**62, start_offset=0)


def test_batch_with_codec_is_left_to_the_records() -> None:
    data = patch_header(PLAIN, attributes=1)
    with pytest.raises(ValueError, match="codec"):
        _core.search_timestamp_in_batch(data, position=0, timestamp_ms=0, start_offset=0)
