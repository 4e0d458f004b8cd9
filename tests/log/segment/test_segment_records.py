"""Goal: the batches of one file are read one after the other, and any that cannot follow is refused with its place.
Method: small files of built batches, changed in one place, read with chunks smaller and larger than a batch."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from kstore._core import HeaderScan
from kstore.config import LogConfig
from kstore.env import DEFAULT_ENV, OpenFiles
from kstore.errors import CorruptRecordError, InvalidRecordError, LogReplacedError, UnsupportedMagicError
from kstore.log.files.records import HEADER_CHUNK_BYTES, SegmentRecords
from tests.fakes.process_reads import can_read_cached, counted_reads
from tests.making.batches import batch, batches, grow, patch_header, set_byte, set_bytes, shrink
from tests.making.messages import packed_entry

# magic 0 and 1, key "k", value "v".
SMALL_CHUNKS = LogConfig(read_chunk_bytes=4096)
SEGMENT = batches(100, 6, records_per_batch=3, value_bytes=700)
POSITIONS = [sum(map(len, SEGMENT[:number])) for number in range(len(SEGMENT) + 1)]
SIZE = POSITIONS[-1]


@pytest.fixture
def files() -> Iterator[OpenFiles]:
    files = OpenFiles(DEFAULT_ENV)
    yield files
    files.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "00000000000000000100.log"
    path.write_bytes(b"".join(SEGMENT))
    return path


def open_records(
    files: OpenFiles,
    path: Path,
    *,
    next_base_offset: int | None = None,
    size: int | None = None,
    config: LogConfig = SMALL_CHUNKS,
) -> SegmentRecords:
    return SegmentRecords(
        files,
        path=str(path),
        base_offset=100,
        next_base_offset=next_base_offset,
        size_in_bytes=path.stat().st_size if size is None else size,
        config=config,
    )


def read_all(records: SegmentRecords, *, position: int = 0, end_position: int | None = None) -> list[bytes]:
    end = records.size_in_bytes if end_position is None else end_position
    return [data for _, data in records.read_batches(position=position, end_position=end)]


@pytest.mark.parametrize("read_chunk_bytes", [4096, 5000, 1 << 20])
def test_batches_come_whole_whatever_the_chunk_size(files: OpenFiles, path: Path, read_chunk_bytes: int) -> None:
    records = open_records(files, path, config=LogConfig(read_chunk_bytes=read_chunk_bytes))
    assert read_all(records) == SEGMENT
    assert read_all(records, position=POSITIONS[2], end_position=POSITIONS[4]) == SEGMENT[2:4]
    assert read_all(records, position=POSITIONS[3], end_position=POSITIONS[3]) == []


def test_batch_larger_than_a_chunk_comes_whole(files: OpenFiles, tmp_path: Path) -> None:
    path = tmp_path / "large"
    large = [batch(100, 2), batch(102, 1, value_bytes=150_000), batch(103, 2)]
    path.write_bytes(b"".join(large))
    assert read_all(open_records(files, path)) == large


def test_headers_carry_place_and_offsets(files: OpenFiles, path: Path) -> None:
    headers = [header for header, _ in open_records(files, path).read_batches(position=0, end_position=SIZE)]
    assert [header.position for header in headers] == POSITIONS[:-1]
    assert [(header.base_offset, header.last_offset) for header in headers] == [
        (first, first + 2) for first in range(100, 118, 3)
    ]


def put(number: int, **fields: int) -> bytes:
    return patch_header(SEGMENT[number], **fields)


DAMAGES = [
    pytest.param(bytes(61), CorruptRecordError, "zero bytes in place of a batch", id="zero-header"),
    pytest.param(b"\x00" * 16 + b"\x05", UnsupportedMagicError, "found 5", id="magic-5"),
    pytest.param(
        packed_entry(b"v", b"k", offset=7, magic=0),
        CorruptRecordError,
        "not above the last offset",
        id="magic-0",
    ),
    pytest.param(put(2, batch_length=48)[:61], CorruptRecordError, "smaller than its header", id="small"),
    pytest.param(put(2, batch_length=-1)[:61], CorruptRecordError, "smaller than its header", id="negative"),
    pytest.param(put(2, batch_length=2**31 - 1)[:61], CorruptRecordError, "larger than the limit", id="huge"),
    pytest.param(put(2, batch_length=90_000)[:61], CorruptRecordError, "runs past the end", id="past-the-end"),
    pytest.param(
        put(2, base_offset=105)[:61],
        CorruptRecordError,
        "not above the last offset",
        id="repeats-an-offset",
    ),
    pytest.param(
        put(2, base_offset=0)[:61],
        CorruptRecordError,
        "not above the last offset",
        id="below-the-segment",
    ),
    pytest.param(put(2, base_offset=-1)[:61], CorruptRecordError, "base offset out of range", id="negative-offset"),
    pytest.param(put(2, base_offset=2**63 - 2)[:61], CorruptRecordError, "base offset out of range", id="overflow"),
    pytest.param(put(2, last_offset_delta=-1), InvalidRecordError, "last offset delta", id="negative-delta"),
    pytest.param(
        put(2, last_offset_delta=-1, repair_crc=False), CorruptRecordError, "CRC mismatch", id="negative-delta-and-crc"
    ),
    pytest.param(put(2, base_offset=199)[:61], CorruptRecordError, "into the next segment", id="next-segment"),
]


def test_last_offset_behind_which_there_is_none_is_refused(files: OpenFiles, path: Path) -> None:
    set_bytes(path, POSITIONS[5], put(5, base_offset=2**63 - 3))
    with pytest.raises(CorruptRecordError, match="base offset out of range"):
        read_all(open_records(files, path))
    set_bytes(path, POSITIONS[5], put(5, base_offset=2**63 - 4))
    assert len(read_all(open_records(files, path))) == 6


@pytest.mark.parametrize(("new", "error", "message"), DAMAGES)
def test_batch_that_cannot_follow_is_refused_with_its_place(
    files: OpenFiles, path: Path, new: bytes, error: type[Exception], message: str
) -> None:
    set_bytes(path, POSITIONS[2], new)
    iterator = open_records(files, path, next_base_offset=200).read_batches(position=0, end_position=SIZE)
    assert [next(iterator)[0].base_offset, next(iterator)[0].base_offset] == [100, 103]
    with pytest.raises(error, match=message) as caught:
        next(iterator)
    assert (caught.value.position, caught.value.path) == (POSITIONS[2], str(path))


def test_limit_of_batch_size_is_kept(files: OpenFiles, path: Path) -> None:
    size = len(SEGMENT[0])
    assert read_all(open_records(files, path, config=LogConfig(max_batch_bytes=size))) == SEGMENT
    with pytest.raises(CorruptRecordError, match="larger than the limit"):
        read_all(open_records(files, path, config=LogConfig(max_batch_bytes=size - 1)))


@pytest.mark.parametrize("by_bytes", [1, 100, len(SEGMENT[5]) - 61, len(SEGMENT[5]) - 17, len(SEGMENT[5]) - 1])
def test_incomplete_batch_before_the_given_end_is_damage(files: OpenFiles, path: Path, by_bytes: int) -> None:
    with pytest.raises(CorruptRecordError) as caught:
        read_all(open_records(files, path), end_position=SIZE - by_bytes)
    assert caught.value.position == POSITIONS[5]


@pytest.mark.parametrize("left", [0, 10, POSITIONS[3], POSITIONS[3] + 30, SIZE - 1])
def test_file_truncated_after_the_listing_is_no_damage_and_says_so(files: OpenFiles, path: Path, left: int) -> None:
    records = open_records(files, path)
    shrink(path, by_bytes=SIZE - left)
    with pytest.raises(LogReplacedError, match="truncated since it was listed"):
        read_all(records)
    with pytest.raises(LogReplacedError, match="truncated since it was listed"):
        records.walk(position=0, end_position=SIZE)
    with pytest.raises(LogReplacedError, match="truncated since it was listed"):
        records.read_bytes(10, position=SIZE - 10)


def test_bytes_appended_after_opening_are_not_seen(files: OpenFiles, path: Path) -> None:
    records = open_records(files, path)
    grow(path, batch(118))
    assert read_all(records) == SEGMENT


def test_walk_tells_how_far_it_came(files: OpenFiles, path: Path) -> None:
    records = open_records(files, path)
    whole = records.walk(position=0, end_position=SIZE)
    assert (whole.status, whole.position, whole.batch_count, whole.last_offset) == ("end", SIZE, 6, 117)
    part = records.walk(position=POSITIONS[1], end_position=POSITIONS[3] + 70)
    assert (part.status, part.position, part.last_offset) == ("torn", POSITIONS[3], 108)
    found = records.stopped_at(records.walk(position=0, end_position=SIZE, stop_offset=104))
    assert found is not None
    assert (found.position, found.base_offset) == (POSITIONS[1], 103)
    assert records.stopped_at(whole) is None
    with pytest.raises(CorruptRecordError, match="runs past the end") as caught:
        records.stopped_at(part)
    assert caught.value.position == POSITIONS[3]


LARGE = [batch(100 + number, 1, value_bytes=20_000) for number in range(100)]
LARGE_SIZE = sum(map(len, LARGE))


@pytest.fixture
def large() -> Iterator[Path]:
    """A file on a disk: a file system in memory has no reads that do not wait."""
    with TemporaryDirectory(dir="/var/tmp") as directory:
        path = Path(directory) / "large"
        path.write_bytes(b"".join(LARGE))
        if not can_read_cached(path):
            pytest.skip("the system has no reads that do not wait")
        yield path


def test_walk_over_large_batches_reads_little_more_than_their_headers(files: OpenFiles, large: Path) -> None:
    records = open_records(files, large)
    with counted_reads() as reads:
        walk = records.walk(position=0, end_position=LARGE_SIZE)
    assert (walk.status, walk.batch_count, walk.last_offset) == ("end", 100, 199)
    assert reads.size_in_bytes < LARGE_SIZE / 20
    assert reads.calls <= len(LARGE) + 5


def test_walk_over_small_batches_reads_them_in_few_chunks(files: OpenFiles, tmp_path: Path) -> None:
    path = tmp_path / "small"
    path.write_bytes(b"".join(batches(100, 1000, value_bytes=400)))
    size = path.stat().st_size
    records = open_records(files, path)
    with counted_reads() as reads:
        assert records.walk(position=0, end_position=size).status == "end"
    assert reads.calls <= size / HEADER_CHUNK_BYTES + 5


def test_walk_by_single_headers_stops_where_one_by_chunks_does(files: OpenFiles, large: Path) -> None:
    """Method: each byte of one header takes some other values, so that every status and error comes up."""
    at, end = sum(map(len, LARGE[:7])), sum(map(len, LARGE[:15])) - 5
    content = bytearray(b"".join(LARGE[:15])[:end])
    options = {"base_offset": 100, "max_batch_bytes": SMALL_CHUNKS.max_batch_bytes, "path": str(large)}
    seen = set()
    for byte in range(61):
        right = content[at + byte]
        for value in (0, 1, 0x7F, 0xFF):
            content[at + byte] = value
            set_byte(large, at + byte, value=value)
            by_file = open_records(files, large).walk(position=0, end_position=end, stop_offset=110)
            by_chunk = HeaderScan(position=0, end_position=end, stop_offset=110, **options)
            by_chunk.feed(content, 0)
            assert stop_of(by_file) == stop_of(by_chunk), (byte, value)
            seen.add(by_file.status)
        content[at + byte] = right
        set_byte(large, at + byte, value=right)
    assert seen == {"found", "corrupt", "torn"}


def stop_of(walk: HeaderScan) -> tuple[object, ...]:
    found = None if walk.found is None else (walk.found.position, walk.found.base_offset, walk.found.last_offset)
    of_batches = walk.batch_count, walk.record_count, walk.last_offset, walk.max_timestamp_ms
    return walk.status, walk.position, found, str(walk.error), *of_batches, walk.offset_of_max_timestamp


@pytest.mark.parametrize("tail", [bytes(10_000), LARGE[0][:40], bytes(3)], ids=["zeros", "part-of-a-header", "3-zeros"])
def test_walk_by_single_headers_finds_what_a_crash_left(files: OpenFiles, large: Path, tail: bytes) -> None:
    grow(large, tail)
    walk = open_records(files, large).walk(position=0, end_position=LARGE_SIZE + len(tail))
    assert (walk.status, walk.position) == ("zeros" if not any(tail) else "torn", LARGE_SIZE)


def test_file_truncated_under_a_walk_by_single_headers_is_no_damage_and_says_so(files: OpenFiles, large: Path) -> None:
    records = open_records(files, large)
    shrink(large, by_bytes=LARGE_SIZE // 2)
    with pytest.raises(LogReplacedError, match="truncated since it was listed"):
        records.walk(position=0, end_position=LARGE_SIZE)


def test_walk_of_a_file_that_is_not_cached_ends_alike(files: OpenFiles, large: Path) -> None:
    with large.open("r+b") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    walk = open_records(files, large).walk(position=0, end_position=LARGE_SIZE)
    assert (walk.status, walk.batch_count, walk.last_offset) == ("end", 100, 199)


def test_closed_file_is_walked_by_nobody(large: Path) -> None:
    file = DEFAULT_ENV.open_read(str(large))
    walk = HeaderScan(position=0, end_position=LARGE_SIZE, path=str(large))
    walk.feed(LARGE[0] + LARGE[1], 0)
    file.close()
    file.walk_cached(walk)
    assert (walk.status, walk.batch_count) == ("more", 2)


def test_batch_is_found_only_where_one_starts(files: OpenFiles, path: Path) -> None:
    records = open_records(files, path)
    found = {at for at in range(SIZE) if records.find_batch_at(at, end_position=SIZE) is not None}
    assert found == set(POSITIONS[:-1])
    header, data = records.find_batch_at(POSITIONS[4], end_position=SIZE)
    assert (header.base_offset, data) == (112, SEGMENT[4])
    assert records.find_batch_at(POSITIONS[4], end_position=POSITIONS[5] - 1) is None


@pytest.mark.parametrize("at", [17, 20, 21, 61, 200])
def test_batch_with_a_wrong_crc_is_not_found(files: OpenFiles, path: Path, at: int) -> None:
    set_byte(path, POSITIONS[4] + at, value=0xEE)
    assert open_records(files, path).find_batch_at(POSITIONS[4], end_position=SIZE) is None


def test_batch_outside_its_segment_is_not_found(files: OpenFiles, path: Path) -> None:
    set_bytes(path, POSITIONS[4], put(4, base_offset=99)[:8])
    assert open_records(files, path).find_batch_at(POSITIONS[4], end_position=SIZE) is None
    assert open_records(files, path, next_base_offset=117).find_batch_at(POSITIONS[5], end_position=SIZE) is None
