"""Goal: a segment answers by offset and by time as a scan from its start would, whatever its indexes say.
Method: built segments larger than one read chunk, every offset and timestamp asked, indexes damaged in stated ways."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from kstore.config import LogConfig
from kstore.errors import CorruptRecordError, UnsupportedMagicError
from kstore.log.log import Log
from kstore.log.segment.segment import LogSegment
from kstore.store.opening import open_log
from tests.making.batches import Layout, batch, grow, record, set_bytes, shrink, write_partition, zero
from tests.reference.codec import Header, Record, read_records, write_batch, write_empty_batch

SMALL_CHUNKS = LogConfig(read_chunk_bytes=4096, time_index_proof_bytes=4096)
LAYOUT = Layout(index_interval_bytes=1500)
FIRST_KEYS = Layout(index_interval_bytes=1500, first_offset_keys=True)
FIRST_MS = 1_600_000_000_000


def disordered(first_offset: int, batch_count: int) -> list[bytes]:
    """Batches of three records whose timestamps wander, offsets with gaps as compaction leaves them."""
    rng = random.Random(7)
    segment = []
    offset = first_offset
    for _ in range(batch_count):
        records = [
            record(offset + n, bytes(rng.randrange(250, 350)), timestamp_ms=FIRST_MS + rng.randrange(40) * 100 + offset)
            for n in range(3)
        ]
        segment.append(write_batch(records))
        offset += rng.choice([3, 3, 3, 5, 40])
    return segment


SEGMENT = disordered(0, 40)
HEADERS = [Header.unpack(data) for data in SEGMENT]
POSITIONS = [sum(map(len, SEGMENT[:number])) for number in range(len(SEGMENT) + 1)]
END_OFFSET = HEADERS[-1].last_offset + 1
Damage = Callable[[Path], None]


def entries(path: Path) -> tuple[str, list[tuple[int, int]]]:
    form = ">ii" if path.suffix == ".index" else ">qi"
    return form, list(struct.iter_unpack(form, path.read_bytes()))


def rewrite(directory: Path, change: Callable[[list[tuple[int, int]]], Sequence[tuple[int, int]]]) -> None:
    """Change the entries of every index file."""
    for path in (*directory.glob("*.index"), *directory.glob("*.timeindex")):
        form, old = entries(path)
        path.write_bytes(b"".join(struct.pack(form, *entry) for entry in change(old)))


def untouched(directory: Path) -> None:
    assert list(directory.glob("*.index"))


def deleted(directory: Path) -> None:
    for path in (*directory.glob("*.index"), *directory.glob("*.timeindex")):
        path.unlink()


def emptied(directory: Path) -> None:
    rewrite(directory, lambda _: [])


def padded(directory: Path) -> None:
    rewrite(directory, lambda old: [*old, *[(0, 0)] * 500])


def all_zero(directory: Path) -> None:
    rewrite(directory, lambda old: [(0, 0)] * len(old))


def half_zero(directory: Path) -> None:
    rewrite(directory, lambda old: [*[(0, 0)] * (len(old) // 2), *old[len(old) // 2 :]])


def reversed_order(directory: Path) -> None:
    rewrite(directory, lambda old: old[::-1])


def places_ahead(directory: Path) -> None:
    rewrite(directory, lambda old: [(a[0], b[1]) for a, b in zip(old, [*old[1:], old[-1]], strict=True)])


def places_behind(directory: Path) -> None:
    rewrite(directory, lambda old: [(a[0], b[1]) for a, b in zip(old, [old[0], *old[:-1]], strict=True)])


def places_off_by_one(directory: Path) -> None:
    rewrite(directory, lambda old: [(key, place + 1) for key, place in old])


def places_outside(directory: Path) -> None:
    rewrite(directory, lambda old: [(key, 2**31 - 1 - number) for number, (key, _) in enumerate(old)])


def places_negative(directory: Path) -> None:
    rewrite(directory, lambda old: [(key, -place) for key, place in old])


def keys_too_low(directory: Path) -> None:
    rewrite(directory, lambda old: [(key - 3, place) for key, place in old])


def keys_too_high(directory: Path) -> None:
    rewrite(directory, lambda old: [(key + 3, place) for key, place in old])


def keys_negative(directory: Path) -> None:
    rewrite(directory, lambda old: [(-key, place) for key, place in old])


def random_bytes(directory: Path) -> None:
    for path in (*directory.glob("*.index"), *directory.glob("*.timeindex")):
        path.write_bytes(random.Random(3).randbytes(245))


def every_other_entry(directory: Path) -> None:
    rewrite(directory, lambda old: old[::2])


DAMAGES = [
    untouched,
    deleted,
    emptied,
    padded,
    all_zero,
    half_zero,
    reversed_order,
    places_ahead,
    places_behind,
    places_off_by_one,
    places_outside,
    places_negative,
    keys_too_low,
    keys_too_high,
    keys_negative,
    random_bytes,
    every_other_entry,
]
DAMAGE_IDS = [damage.__name__ for damage in DAMAGES]


def only_segment(log: Log) -> LogSegment:
    assert len(log.segments) == 1
    return log.segments[0]


def expected_header(offset: int) -> tuple[int, int, int] | None:
    for position, header in zip(POSITIONS, HEADERS, strict=False):
        if header.last_offset >= offset:
            return position, header.base_offset, header.last_offset
    return None


@pytest.mark.parametrize("layout", [LAYOUT, FIRST_KEYS], ids=["last-offset-keys", "first-offset-keys"])
@pytest.mark.parametrize("damage", DAMAGES, ids=DAMAGE_IDS)
def test_every_offset_translates_to_its_batch(tmp_path: Path, damage: Damage, layout: Layout) -> None:
    directory = write_partition(tmp_path, [SEGMENT], layout=layout)
    damage(directory)
    with open_log(directory, config=SMALL_CHUNKS) as log:
        segment = only_segment(log)
        for offset in range(END_OFFSET + 2):
            header = segment.translate_offset(offset)
            found = None if header is None else (header.position, header.base_offset, header.last_offset)
            assert found == expected_header(offset), offset
        assert log.log_end_offset == END_OFFSET
        assert segment.valid_end_position == segment.scan_end_position == POSITIONS[-1]


RECORDS = read_records(b"".join(SEGMENT))
ASKED_TIMES = sorted({near for r in RECORDS for near in (r.timestamp_ms - 1, r.timestamp_ms, r.timestamp_ms + 1)})


def first_at_or_after(records: Sequence[Record], timestamp_ms: int, start_offset: int) -> tuple[int, int] | None:
    for r in records:
        if r.timestamp_ms >= timestamp_ms and r.offset >= start_offset:
            return r.offset, r.timestamp_ms
    return None


@pytest.mark.parametrize("start_offset", [0, 1, HEADERS[17].base_offset + 1, HEADERS[-1].last_offset])
@pytest.mark.parametrize("damage", DAMAGES, ids=DAMAGE_IDS)
def test_every_timestamp_finds_its_first_record(tmp_path: Path, damage: Damage, start_offset: int) -> None:
    directory = write_partition(tmp_path, [SEGMENT], layout=LAYOUT)
    damage(directory)
    with open_log(directory, config=SMALL_CHUNKS) as log:
        segment = only_segment(log)
        for timestamp_ms in [-(2**63), -1, 0, *ASKED_TIMES, 2**63 - 1]:
            expected = first_at_or_after(RECORDS, timestamp_ms, start_offset)
            found = segment.search_timestamp(timestamp_ms, start_offset=start_offset)
            assert found == expected, (timestamp_ms, start_offset)


def test_right_index_is_used_and_not_counted_as_wrong(tmp_path: Path) -> None:
    directory = write_partition(tmp_path, [SEGMENT], layout=LAYOUT)
    zero(directory / "00000000000000000000.log", 0, size=POSITIONS[3])
    with open_log(directory, config=SMALL_CHUNKS) as log:
        segment = only_segment(log)
        assert log.log_end_offset == END_OFFSET
        assert segment.translate_offset(HEADERS[30].last_offset).position == POSITIONS[30]
        assert segment.search_timestamp(2**62, start_offset=0) is None
        assert segment.index_fallbacks == 0


WRONG = [damage for damage in DAMAGES if damage.__name__ in ("places_ahead", "places_off_by_one", "random_bytes")]


@pytest.mark.parametrize("damage", WRONG, ids=[damage.__name__ for damage in WRONG])
def test_wrong_index_is_counted(tmp_path: Path, damage: Damage) -> None:
    directory = write_partition(tmp_path, [SEGMENT], layout=LAYOUT)
    damage(directory)
    with open_log(directory, config=SMALL_CHUNKS) as log:
        segment = only_segment(log)
        for offset in range(0, END_OFFSET, 7):
            segment.translate_offset(offset)
        assert segment.index_fallbacks > 0


def test_lying_time_index_over_a_short_prefix_is_found_out(tmp_path: Path) -> None:
    """The entry exists in the log and is in order, but an earlier batch has a larger timestamp."""
    times = [100, 900, 300, 400, 500, 600, 700, 800, 950, 960]
    segment = [write_batch([record(n, bytes(900), timestamp_ms=FIRST_MS + ms)]) for n, ms in enumerate(times)]
    directory = write_partition(tmp_path, [segment])
    (directory / "00000000000000000000.timeindex").write_bytes(struct.pack(">qi", FIRST_MS + 400, 3))
    with open_log(directory, config=SMALL_CHUNKS) as log:
        assert log.offset_for_timestamp(FIRST_MS + 401) == (1, FIRST_MS + 900)


@pytest.mark.parametrize(
    "value_end", [b"", b"more", bytes(40)], ids=["value-is-a-batch", "text-behind", "zeros-behind"]
)
def test_index_that_points_at_batches_inside_records_is_not_believed(tmp_path: Path, value_end: bytes) -> None:
    """Such a batch is whole and its CRC right; only the walk to its neighbours tells."""
    nested = batch(0, 1, value_bytes=100)
    segment = [write_batch([record(n, nested + value_end)]) for n in range(20)]
    directory = write_partition(tmp_path, [segment], layout=LAYOUT)
    data = b"".join(segment)
    places = [at for at in range(len(data)) if data.startswith(nested, at)]
    assert len(places) == 20
    lies = [struct.pack(">ii", number, place) for number, place in enumerate(places)]
    (directory / "00000000000000000000.index").write_bytes(b"".join(lies))
    with open_log(directory, config=SMALL_CHUNKS) as log:
        assert log.log_end_offset == 20
        for offset in range(20):
            assert log.segments[0].translate_offset(offset).base_offset == offset
        assert log.segments[0].index_fallbacks > 0


def test_emptied_batches_have_offsets_but_no_records(tmp_path: Path) -> None:
    segment = [
        write_empty_batch(0, last_offset=9, max_timestamp_ms=FIRST_MS + 500),
        write_batch([record(10, timestamp_ms=FIRST_MS + 100), record(11, timestamp_ms=FIRST_MS + 600)]),
    ]
    directory = write_partition(tmp_path, [segment])
    with open_log(directory) as log:
        assert log.segments[0].translate_offset(5).last_offset == 9
        assert log.offset_for_timestamp(FIRST_MS + 200) == (11, FIRST_MS + 600)
        assert log.offset_for_timestamp(FIRST_MS) == (10, FIRST_MS + 100)
        assert log.offset_for_timestamp(FIRST_MS + 601) is None


def test_damaged_batch_that_may_hold_the_answer_is_an_error(tmp_path: Path) -> None:
    directory = write_partition(tmp_path, [SEGMENT], layout=LAYOUT)
    set_bytes(directory / "00000000000000000000.log", POSITIONS[2] + 100, b"\xff\xfe")
    with open_log(directory) as log, pytest.raises(CorruptRecordError, match="CRC mismatch") as caught:
        log.segments[0].search_timestamp(HEADERS[2].max_timestamp_ms, start_offset=HEADERS[2].base_offset)
    assert caught.value.position == POSITIONS[2]


SIZE = POSITIONS[-1]
LAST = POSITIONS[-2]
TAILS = [
    pytest.param(Path.stat, "end", SIZE, END_OFFSET, id="whole"),
    pytest.param(
        lambda log: shrink(log, by_bytes=1), "torn", LAST, HEADERS[-2].last_offset + 1, id="last-byte-missing"
    ),
    pytest.param(
        lambda log: shrink(log, by_bytes=SIZE - LAST - 10),
        "torn",
        LAST,
        HEADERS[-2].last_offset + 1,
        id="10-bytes-left",
    ),
    pytest.param(lambda log: grow(log, SEGMENT[0][:11] + b"\x01"), "torn", SIZE, END_OFFSET, id="12-bytes-more"),
    pytest.param(lambda log: grow(log, bytes(5)), "zeros", SIZE, END_OFFSET, id="5-zeros"),
    pytest.param(lambda log: grow(log, bytes(17)), "zeros", SIZE, END_OFFSET, id="17-zeros"),
    pytest.param(lambda log: grow(log, bytes(100_000)), "zeros", SIZE, END_OFFSET, id="preallocated"),
    pytest.param(lambda log: grow(log, b"\xaa" * 500), "corrupt", SIZE, END_OFFSET, id="garbage"),
    pytest.param(lambda log: grow(log, SEGMENT[3]), "corrupt", SIZE, END_OFFSET, id="offsets-go-back"),
    pytest.param(
        lambda log: zero(log, LAST + 8, size=200), "corrupt", LAST, HEADERS[-2].last_offset + 1, id="part-zeroed"
    ),
    pytest.param(lambda log: log.write_bytes(b""), "end", 0, 0, id="emptied"),
    pytest.param(lambda log: log.write_bytes(bytes(4000)), "zeros", 0, 0, id="all-zero"),
    pytest.param(lambda log: log.write_bytes(SEGMENT[0][:40]), "torn", 0, 0, id="first-batch-torn"),
]


@pytest.mark.parametrize("damage", [untouched, deleted, random_bytes], ids=["index", "no-index", "lying-index"])
@pytest.mark.parametrize(("change", "status", "valid_end", "end_offset"), TAILS)
def test_tail_of_the_last_segment_is_told(
    tmp_path: Path, change: Damage, status: str, valid_end: int, end_offset: int, damage: Damage
) -> None:
    directory = write_partition(tmp_path, [SEGMENT], layout=LAYOUT)
    change(directory / "00000000000000000000.log")
    damage(directory)
    with open_log(directory, config=SMALL_CHUNKS) as log:
        segment = only_segment(log)
        assert (segment.tail.status, segment.valid_end_position) == (status, valid_end)
        assert log.log_end_offset == end_offset
        assert segment.scan_end_position == (segment.size_in_bytes if status == "corrupt" else valid_end)
        if status == "corrupt":
            with pytest.raises((CorruptRecordError, UnsupportedMagicError)) as caught:
                list(log.read())
            assert caught.value.position == valid_end
        else:
            assert [r.offset for r in log.read()] == [r.offset for r in RECORDS if r.offset < end_offset]


TORN_OLD = [
    pytest.param(lambda log: shrink(log, by_bytes=1), LAST, id="torn"),
    pytest.param(lambda log: grow(log, bytes(17)), SIZE, id="zeros"),
    pytest.param(lambda log: grow(log, b"\xaa" * 500), SIZE, id="garbage"),
]


@pytest.mark.parametrize(("change", "position"), TORN_OLD)
def test_bad_tail_of_a_segment_that_is_not_the_last_is_damage(tmp_path: Path, change: Damage, position: int) -> None:
    following = END_OFFSET + 3
    directory = write_partition(tmp_path, [SEGMENT, [batch(following, 2)]], layout=LAYOUT)
    change(directory / "00000000000000000000.log")
    with open_log(directory) as log:
        assert log.log_end_offset == following + 2
        assert not log.segments[0].is_last
        with pytest.raises((CorruptRecordError, UnsupportedMagicError)) as caught:
            list(log.read())
        assert caught.value.position == position
        assert [r.offset for r in log.read(following)] == [following, following + 1]
