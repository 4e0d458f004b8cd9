"""Goal: the header-only walk finds the end of a log, an offset and a time, and names what stopped it.

Method: small logs with one property each, walked in whole and in the smallest chunks; the expected stop is
written out, and tests/property compares arbitrary logs with the reference walk.
"""

from __future__ import annotations

from typing import Any

import pytest

from kstore import _core
from kstore.errors import CorruptionError, CorruptRecordError, InvalidRecordError, UnsupportedMagicError
from tests.making import batches as builders
from tests.making.batches import FIRST_TIMESTAMP_MS
from tests.making.messages import packed_entry

LOG = builders.batches(0, 4, records_per_batch=5)
DATA = b"".join(LOG)
STARTS = [sum(map(len, LOG[:n])) for n in range(len(LOG) + 1)]


def scan(
    data: bytes,
    *,
    chunk_bytes: int = 1 << 20,
    position: int = 0,
    base_offset: int = 0,
    previous_last_offset: int = -1,
    max_batch_bytes: int = 1 << 20,
    stop_offset: int | None = None,
    stop_timestamp_ms: int | None = None,
) -> _core.HeaderScan:
    """Feed data as a file, in chunks that start where the scan asks for one."""
    walk = _core.HeaderScan(
        position=position,
        end_position=len(data),
        base_offset=base_offset,
        previous_last_offset=previous_last_offset,
        max_batch_bytes=max_batch_bytes,
        path="x.log",
        stop_offset=stop_offset,
        stop_timestamp_ms=stop_timestamp_ms,
    )
    wanted = position
    while walk.status == "more":
        before = wanted
        wanted = walk.feed(data[wanted : wanted + chunk_bytes], wanted)
        assert wanted > before or walk.status != "more", "no progress"
    return walk


@pytest.mark.parametrize("chunk_bytes", [61, 62, 100, 1 << 20])
def test_whole_log_is_walked_to_its_end(chunk_bytes: int) -> None:
    walk = scan(DATA, chunk_bytes=chunk_bytes)
    assert (walk.status, walk.position) == ("end", len(DATA))
    assert (walk.batch_count, walk.record_count, walk.last_offset) == (4, 20, 19)
    assert (walk.max_timestamp_ms, walk.offset_of_max_timestamp) == (FIRST_TIMESTAMP_MS + 19, 19)
    assert walk.found is None
    assert walk.error is None


def test_walk_tells_where_its_last_batch_starts_and_each_magic_and_codec() -> None:
    parts = [builders.batch(0, codec=1), builders.batch(1), builders.batch(2, codec=4), builders.batch(3)]
    data = b"".join(parts)
    walk = scan(data, chunk_bytes=200)
    assert (walk.last_position, walk.last_offset) == (len(data) - len(parts[3]), 3)
    assert (walk.magics, walk.codec_ids) == ({2}, {0, 1, 4})
    found = scan(data, stop_offset=1)
    assert (found.last_position, found.last_offset, found.codec_ids) == (0, 0, {1})
    old = scan(packed_entry(b"old", None, offset=0, magic=0) + packed_entry(b"new", None, offset=1, magic=1))
    assert (old.magics, old.codec_ids) == ({0, 1}, {0})
    none = scan(b"")
    assert (none.last_position, none.magics, none.codec_ids) == (-1, frozenset(), frozenset())


def test_walk_tells_the_highest_leader_epoch_and_producer_id_below_a_bound() -> None:
    producers = [(9, 4), (3, 70), (-1, 5), (2, 100), (2, 101)]
    parts = [
        builders.batch(at, partition_leader_epoch=epoch, producer_id=producer, producer_epoch=0, base_sequence=0)
        for at, (epoch, producer) in enumerate(producers)
    ]
    walk = scan(b"".join(parts))
    assert (walk.max_leader_epoch, walk.max_producer_id) == (9, 101)
    old = scan(packed_entry(b"old", None, offset=0, magic=0))
    assert (old.max_leader_epoch, old.max_producer_id) == (-1, -1)
    for bound, most in ((101, 100), (100, 70), (5, 4), (4, -1)):
        bounded = _core.HeaderScan(position=0, end_position=len(b"".join(parts)), producer_ids_below=bound)
        bounded.feed(b"".join(parts), 0)
        assert (bounded.max_producer_id, bounded.max_leader_epoch) == (most, 9)


def test_empty_range_is_at_its_end_at_once() -> None:
    walk = _core.HeaderScan(position=7, end_position=7)
    assert (walk.status, walk.position, walk.last_offset, walk.max_timestamp_ms) == ("end", 7, -1, -1)


def test_walk_may_start_at_any_batch() -> None:
    walk = scan(DATA, position=STARTS[2], base_offset=10)
    assert (walk.status, walk.batch_count, walk.last_offset) == ("end", 2, 19)


@pytest.mark.parametrize("chunk_bytes", [61, 1 << 20])
@pytest.mark.parametrize("target", [0, 4, 5, 9, 12, 19])
def test_offset_is_found_in_the_batch_that_holds_it(target: int, chunk_bytes: int) -> None:
    walk = scan(DATA, stop_offset=target, chunk_bytes=chunk_bytes)
    assert walk.status == "found"
    assert walk.found is not None
    assert walk.position == walk.found.position == STARTS[target // 5]
    assert walk.found.base_offset == target // 5 * 5
    assert walk.batch_count == target // 5


def test_offset_in_a_gap_is_found_in_the_next_batch() -> None:
    walk = scan(builders.batch(0, 2) + builders.batch(10, 2), stop_offset=5)
    assert walk.found is not None
    assert walk.found.base_offset == 10


def test_offset_behind_the_last_batch_is_not_found() -> None:
    assert scan(DATA, stop_offset=20).status == "end"


@pytest.mark.parametrize(
    ("timestamp_ms", "found"),
    [(0, 0), (FIRST_TIMESTAMP_MS + 4, 0), (FIRST_TIMESTAMP_MS + 5, 1), (FIRST_TIMESTAMP_MS + 19, 3)],
)
def test_first_batch_with_a_timestamp_as_late_is_found(timestamp_ms: int, found: int) -> None:
    assert scan(DATA, stop_timestamp_ms=timestamp_ms).position == STARTS[found]


def test_timestamp_after_every_record_is_not_found() -> None:
    assert scan(DATA, stop_timestamp_ms=FIRST_TIMESTAMP_MS + 20).status == "end"


def test_negative_timestamps_can_be_searched_too() -> None:
    log = [builders.patch_header(builders.batch(n), max_timestamp_ms=stamp) for n, stamp in enumerate((-50, -7, -1))]
    assert scan(b"".join(log), stop_timestamp_ms=-7).position == len(log[0])


def test_largest_timestamp_is_noted_at_its_first_batch() -> None:
    log = [builders.patch_header(builders.batch(n), max_timestamp_ms=stamp) for n, stamp in enumerate((5, 9, 9, 2))]
    walk = scan(b"".join(log))
    assert (walk.max_timestamp_ms, walk.offset_of_max_timestamp) == (9, 1)


@pytest.mark.parametrize("cut", [1, 5, len(LOG[3]) - 61, len(LOG[3]) - 60, len(LOG[3]) - 8])
def test_truncated_last_batch_is_end_of_log(cut: int) -> None:
    walk = scan(DATA[:-cut])
    assert (walk.status, walk.position, walk.last_offset) == ("torn", STARTS[3], 14)
    assert walk.error is not None
    assert walk.error.reason.startswith("batch runs past the end: expected ")
    assert walk.error.position == STARTS[3]


@pytest.mark.parametrize("zeros", [1, 16, 17, 60, 61, 5000])
def test_zeros_behind_the_last_batch_are_preallocated_space(zeros: int) -> None:
    walk = scan(DATA + bytes(zeros))
    assert (walk.status, walk.position, walk.last_offset) == ("zeros", len(DATA), 19)
    assert walk.error is not None
    assert walk.error.reason.startswith("zero bytes in place of a batch")


def test_offset_is_not_searched_in_a_torn_batch() -> None:
    assert scan(DATA[:-1], stop_offset=17).status == "torn"


def patched(**fields: Any) -> bytes:
    return DATA[: STARTS[1]] + builders.patch_header(LOG[1], **fields) + DATA[STARTS[2] :]


CORRUPT: dict[str, tuple[bytes, type[Exception]]] = {
    "size -1": (patched(batch_length=-1, repair_crc=False), CorruptRecordError),
    "size 0 in front of more": (patched(batch_length=0, repair_crc=False), CorruptRecordError),
    "size 48": (patched(batch_length=48, repair_crc=False), CorruptRecordError),
    "size above the limit": (patched(batch_length=1 << 20, repair_crc=False), CorruptRecordError),
    "magic 3": (patched(magic=3), UnsupportedMagicError),
    "magic -1": (patched(magic=-1), UnsupportedMagicError),
    "negative base offset": (patched(base_offset=-1), CorruptRecordError),
    "base offset repeated": (patched(base_offset=4), CorruptRecordError),
    "base offset going back": (patched(base_offset=0), CorruptRecordError),
    "negative last offset delta": (patched(last_offset_delta=-1), InvalidRecordError),
    "last offset overflows": (patched(base_offset=2**63 - 4), CorruptRecordError),
    "no offset left behind the batch": (patched(base_offset=2**63 - 5), CorruptRecordError),
}


@pytest.mark.parametrize("chunk_bytes", [61, 1 << 20])
@pytest.mark.parametrize(("data", "error"), CORRUPT.values(), ids=CORRUPT)
def test_header_that_cannot_be_right_stops_the_walk_with_its_place(
    data: bytes, error: type[Exception], chunk_bytes: int
) -> None:
    walk = scan(data, chunk_bytes=chunk_bytes)
    assert (walk.status, walk.position, walk.last_offset) == ("corrupt", STARTS[1], 4)
    assert isinstance(walk.error, CorruptionError | UnsupportedMagicError)
    assert type(walk.error) is error
    assert (walk.error.position, walk.error.path) == (STARTS[1], "x.log")


def test_largest_offset_that_leaves_one_behind_is_fine() -> None:
    assert scan(patched(base_offset=2**63 - 6)[: STARTS[2]]).last_offset == 2**63 - 2


def test_batch_below_the_segment_base_is_corrupt() -> None:
    walk = scan(DATA, base_offset=1)
    assert (walk.status, walk.position) == ("corrupt", 0)
    assert scan(DATA, base_offset=0).status == "end"


def test_batch_at_or_below_the_previous_last_offset_is_corrupt() -> None:
    assert scan(DATA, position=STARTS[2], previous_last_offset=10).status == "corrupt"
    assert scan(DATA, position=STARTS[2], previous_last_offset=9).status == "end"


def test_gap_between_batches_is_fine() -> None:
    assert scan(builders.batch(0) + builders.batch(1_000_000)).last_offset == 1_000_000


@pytest.mark.parametrize("count", [-1, 2**31 - 1])
def test_lying_record_count_neither_stops_the_walk_nor_lowers_the_sum(count: int) -> None:
    walk = scan(patched(record_count=count))
    assert (walk.status, walk.record_count) == ("end", 15 + max(count, 0))


def test_chunk_without_a_whole_header_changes_nothing() -> None:
    walk = _core.HeaderScan(position=0, end_position=len(DATA))
    assert walk.feed(DATA[:60], 0) == 0
    assert walk.feed(DATA, 1) == 0
    assert walk.feed(b"", 0) == 0
    assert walk.status == "more"


def test_found_batch_stays_after_the_chunk_is_gone() -> None:
    chunk = bytearray(DATA)
    walk = _core.HeaderScan(position=0, end_position=len(DATA), stop_offset=7)
    walk.feed(chunk, 0)
    chunk.clear()
    assert walk.found is not None
    assert walk.found.base_offset == 5
    assert walk.feed(DATA, 0) == STARTS[1]


@pytest.mark.parametrize(("position", "end_position"), [(-1, 5), (6, 5)])
def test_range_that_is_none_is_misuse(position: int, end_position: int) -> None:
    with pytest.raises(ValueError, match="position"):
        _core.HeaderScan(position=position, end_position=end_position)


LIMITS = {"least_offset": 100, "most_offset": 200, "max_batch_bytes": 1 << 20}


def test_next_header_is_found_behind_bytes_that_only_look_like_one() -> None:
    batch = builders.batch(150, 2)
    outside = builders.batch(300, 2)
    assert _core.find_batch_header(b"\x02" * 100 + outside + batch, **LIMITS) == 100 + len(outside)
    assert _core.find_batch_header(batch, 1, **LIMITS) == -1
    assert _core.find_batch_header(batch[:60], **LIMITS) == -1
    assert _core.find_batch_header(b"", **LIMITS) == -1


@pytest.mark.parametrize(
    "fields",
    [{"batch_length": 48}, {"batch_length": 1 << 20}, {"last_offset_delta": -1}, {"record_count": -1}, {"magic": 1}],
    ids=["short", "long", "last offset delta", "record count", "magic"],
)
def test_header_that_contradicts_itself_is_no_start(fields: dict[str, int]) -> None:
    batch = builders.patch_header(builders.batch(150, 2), repair_crc=False, **fields)
    assert _core.find_batch_header(batch, **LIMITS) == -1
