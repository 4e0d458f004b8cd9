"""Goal: the batches of one file are read one after the other, and any that cannot follow is refused with its place.
Method: small files of built batches, changed in one place, read with chunks smaller and larger than a batch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kstore.config import LogConfig
from kstore.errors import CorruptRecordError, UnsupportedMagicError
from kstore.log.env import DEFAULT_ENV, OpenFiles
from kstore.log.segment_records import SegmentRecords
from tests.builders import batch, batches, grow, patch_header, set_byte, set_bytes, shrink
from tests.messages import packed_entry

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
    pytest.param(bytes(61), CorruptRecordError, "found zero bytes", id="zero-header"),
    pytest.param(b"\x00" * 16 + b"\x05", UnsupportedMagicError, "found 5", id="magic-5"),
    pytest.param(packed_entry(b"v", b"k", offset=7, magic=0), CorruptRecordError, "offsets go back", id="magic-0"),
    pytest.param(put(2, batch_length=48)[:61], CorruptRecordError, "smaller than its header", id="small"),
    pytest.param(put(2, batch_length=-1)[:61], CorruptRecordError, "smaller than its header", id="negative"),
    pytest.param(put(2, batch_length=2**31 - 1)[:61], CorruptRecordError, "larger than the limit", id="huge"),
    pytest.param(put(2, batch_length=90_000)[:61], CorruptRecordError, "runs past the end", id="past-the-end"),
    pytest.param(put(2, base_offset=105)[:61], CorruptRecordError, "offsets go back", id="repeats-an-offset"),
    pytest.param(put(2, base_offset=0)[:61], CorruptRecordError, "offsets go back", id="below-the-segment"),
    pytest.param(put(2, base_offset=-1)[:61], CorruptRecordError, "offsets go back", id="negative-offset"),
    pytest.param(put(2, base_offset=2**63 - 2)[:61], CorruptRecordError, "offsets go back", id="overflow"),
    pytest.param(put(2, base_offset=199)[:61], CorruptRecordError, "into the next segment", id="next-segment"),
]


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
def test_file_cut_after_opening_is_damage_that_says_so(files: OpenFiles, path: Path, left: int) -> None:
    records = open_records(files, path)
    shrink(path, by_bytes=SIZE - left)
    with pytest.raises(CorruptRecordError, match="cut since the log was opened"):
        read_all(records)
    with pytest.raises(CorruptRecordError, match="cut since the log was opened"):
        records.walk(position=0, end_position=SIZE)
    with pytest.raises(CorruptRecordError, match="cut since the log was opened"):
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
    with pytest.raises(CorruptRecordError, match="found an incomplete batch") as caught:
        records.stopped_at(part)
    assert caught.value.position == POSITIONS[3]


def test_walk_hops_over_large_bodies(files: OpenFiles, tmp_path: Path) -> None:
    path = tmp_path / "large"
    segment = [batch(100 + number, 1, value_bytes=70_000) for number in range(4)]
    path.write_bytes(b"".join(segment))
    walk = open_records(files, path).walk(position=0, end_position=path.stat().st_size)
    assert (walk.status, walk.batch_count, walk.last_offset) == ("end", 4, 103)


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
