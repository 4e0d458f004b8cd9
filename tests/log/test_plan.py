"""Goal: the ranges of a plan hold every record once, begin and end at batches, and are about as large as asked.
Method: built logs, planned at many sizes and offsets, each range read by its files alone; indexes and logs damaged."""

from __future__ import annotations

import pickle
import random
import struct
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

import kstore
from kstore.config import MIB, LogConfig
from kstore.env import DEFAULT_ENV, LocalEnv, OpenFiles
from kstore.errors import CorruptRecordError, UnsupportedMagicError
from kstore.log.files.records import SegmentRecords
from kstore.log.plan import THREAD_RANGE_BYTES, RangeSizes, ScanRange, thread_range_sizes
from kstore.record import RecordBatch
from kstore.store.opening import open_log
from kstore.types import TopicPartition
from tests.fakes.counting import CountingEnv
from tests.making.batches import Layout, batch, grow, record, set_bytes, write_partition
from tests.reference.codec import Header, write_batch

RNG = random.Random(11)


def segment_of(first_offset: int, batch_count: int) -> list[bytes]:
    """Batches of one to four records of wandering size, offsets with gaps."""
    data = []
    offset = first_offset
    for _ in range(batch_count):
        count = RNG.randrange(1, 5)
        data.append(write_batch([record(offset + n, bytes(RNG.randrange(10, 200))) for n in range(count)]))
        offset += count + RNG.choice([0, 0, 0, 7])
    return data


SEGMENTS = [segment_of(0, 60), segment_of(600, 3), segment_of(700, 1), segment_of(800, 50)]
HEADERS = [[Header.unpack(data) for data in segment] for segment in SEGMENTS]
SIZES = [sum(map(len, segment)) for segment in SEGMENTS]
LARGEST_BATCH = max(len(data) for segment in SEGMENTS for data in segment)
OFFSETS = [header.base_offset + n for headers in HEADERS for header in headers for n in range(header.record_count)]
END = OFFSETS[-1] + 1
LAYOUT = Layout(index_interval_bytes=400)
MAX_BYTES = [1, 150, 700, 2000, 7000, sum(SIZES) - 1, sum(SIZES), 2**40]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return write_partition(tmp_path, SEGMENTS, layout=LAYOUT)


def read_range(scan_range: ScanRange) -> list[int]:
    """Read what another process would read: the files it names, nothing else."""
    files = OpenFiles(DEFAULT_ENV)
    offsets = []
    for path, base_offset, start_position, end_position, *_ in scan_range.files:
        records = SegmentRecords(
            files,
            path=path,
            base_offset=base_offset,
            next_base_offset=None,
            size_in_bytes=end_position,
            config=LogConfig(),
        )
        for header, data in records.read_batches(position=start_position, end_position=end_position):
            for found in RecordBatch(data, position=header.position, path=path):
                if scan_range.start_offset <= found.offset < scan_range.end_offset:
                    offsets.append(found.offset)
    files.close()
    return offsets


def read_ranges(ranges: list[ScanRange]) -> list[int]:
    return [offset for scan_range in ranges for offset in read_range(scan_range)]


@pytest.mark.parametrize("max_bytes", MAX_BYTES)
def test_ranges_hold_every_record_once_in_order(directory: Path, max_bytes: int) -> None:
    with open_log(directory) as log:
        ranges = log.plan(max_bytes=max_bytes)
        assert sum(segment.index_fallbacks for segment in log.segments) == 0
    assert read_ranges(ranges) == OFFSETS
    assert sum(scan_range.size_in_bytes for scan_range in ranges) == sum(SIZES)
    assert (ranges[0].start_offset, ranges[-1].end_offset) == (0, END)
    assert all(left.end_offset == right.start_offset for left, right in pairwise(ranges))


@pytest.mark.parametrize("max_bytes", MAX_BYTES)
def test_ranges_are_about_as_large_as_asked(directory: Path, max_bytes: int) -> None:
    with open_log(directory) as log:
        ranges = log.plan(max_bytes=max_bytes)
    assert all(scan_range.size_in_bytes <= max(max_bytes, LARGEST_BATCH) for scan_range in ranges)
    assert all(left.size_in_bytes + right.size_in_bytes > max_bytes for left, right in pairwise(ranges))


def test_one_byte_makes_a_range_of_each_batch(directory: Path) -> None:
    with open_log(directory) as log:
        assert len(log.plan(max_bytes=1)) == sum(map(len, SEGMENTS))


def test_small_segments_share_a_range(directory: Path) -> None:
    with open_log(directory) as log:
        (whole,) = log.plan()
    assert [Path(file.path).name[:20] for file in whole.files] == [f"{base:020d}" for base in (0, 600, 700, 800)]
    assert [file.base_offset for file in whole.files] == [0, 600, 700, 800]
    assert (whole.topic_partition, whole.path) == (TopicPartition("t", 0), str(directory))


def test_ranges_survive_pickling(directory: Path) -> None:
    with open_log(directory) as log:
        ranges = log.plan(max_bytes=2000)
    copies = pickle.loads(pickle.dumps(ranges))
    assert copies == ranges
    assert read_ranges(copies) == OFFSETS


@pytest.mark.parametrize("max_bytes", [1, 700, 2**40])
def test_every_pair_of_offsets_is_covered_exactly(directory: Path, max_bytes: int) -> None:
    with open_log(directory) as log:
        for start in range(0, END + 1, 23):
            for end in (start, start + 1, start + 40, END - 1, END, END + 5):
                if start <= end:
                    ranges = log.plan(start_offset=start, end_offset=end, max_bytes=max_bytes)
                    assert read_ranges(ranges) == [offset for offset in OFFSETS if start <= offset < end], (start, end)
                    assert all(scan_range.files for scan_range in ranges)


def test_first_range_starts_at_the_batch_that_holds_the_offset(directory: Path) -> None:
    with open_log(directory) as log:
        for start in OFFSETS[::7]:
            first = log.plan(start_offset=start, max_bytes=700)[0]
            holding = next(b for b in log.batches() if b.last_offset >= start)
            assert (first.files[0].start_position, first.start_offset) == (holding.position, start)


def test_splitting_by_offsets_is_planning_each_part(directory: Path) -> None:
    bounds = [0, *sorted(RNG.sample(range(1, END), 9)), END]
    with open_log(directory) as log:
        parts = [log.plan(start_offset=start, end_offset=end, max_bytes=2**40) for start, end in pairwise(bounds)]
    assert all(len(part) <= 1 for part in parts)
    assert [offset for part in parts for offset in read_ranges(part)] == OFFSETS


def delete_indexes(directory: Path) -> None:
    for path in directory.glob("*.index"):
        path.unlink()


def change_entries(change: Callable[[list[tuple[int, int]]], list[tuple[int, int]]]) -> Callable[[Path], None]:
    def damage(directory: Path) -> None:
        for path in directory.glob("*.index"):
            entries = list(struct.iter_unpack(">ii", path.read_bytes()))
            path.write_bytes(b"".join(struct.pack(">ii", *entry) for entry in change(entries)))

    return damage


def inside_batches(entries: list[tuple[int, int]]) -> list[tuple[int, int]]:
    return [(offset, position + 3) for offset, position in entries]


def shuffled(entries: list[tuple[int, int]]) -> list[tuple[int, int]]:
    return random.Random(5).sample(entries, len(entries))


WRONG_INDEXES = [
    pytest.param(delete_indexes, id="deleted"),
    pytest.param(change_entries(lambda entries: entries[:0]), id="emptied"),
    pytest.param(change_entries(lambda entries: [(0, 0)] * len(entries)), id="zeros"),
    pytest.param(change_entries(inside_batches), id="inside-batches"),
    pytest.param(change_entries(shuffled), id="shuffled"),
    pytest.param(change_entries(lambda entries: entries[::-1]), id="reversed"),
    pytest.param(change_entries(lambda entries: entries[:1]), id="first-entry-only"),
    pytest.param(change_entries(lambda entries: entries[-1:]), id="last-entry-only"),
    pytest.param(change_entries(lambda entries: [(key - 5, place) for key, place in entries]), id="keys-low"),
    pytest.param(change_entries(lambda entries: [(key + 500, place) for key, place in entries]), id="keys-high"),
]


@pytest.mark.parametrize("damage", WRONG_INDEXES)
def test_wrong_indexes_change_no_range(directory: Path, damage: Callable[[Path], None]) -> None:
    with open_log(directory) as log:
        expected = [log.plan(max_bytes=max_bytes) for max_bytes in MAX_BYTES]
    damage(directory)
    with open_log(directory) as log:
        assert [log.plan(max_bytes=max_bytes) for max_bytes in MAX_BYTES] == expected


def test_position_inside_a_record_that_holds_a_batch_is_no_cut(tmp_path: Path) -> None:
    """The index points at a whole batch with a right CRC, which is the value of a record."""
    nested = batch(2, 1, value_bytes=100)
    segment = [write_batch([record(n, nested)]) for n in range(20)]
    directory = write_partition(tmp_path, [segment], layout=LAYOUT)
    data = b"".join(segment)
    lies = []
    at = data.find(nested)
    while at >= 0:
        lies.append((2 + len(lies), at))
        at = data.find(nested, at + 1)
    (directory / "00000000000000000000.index").write_bytes(b"".join(struct.pack(">ii", *lie) for lie in lies))
    with open_log(directory) as log:
        for max_bytes in (1, 300, 1000):
            assert read_ranges(log.plan(max_bytes=max_bytes)) == [*range(20)]


def test_good_index_spares_reading_what_is_not_cut(tmp_path: Path) -> None:
    """A plan of few ranges looks at a few places, not at every header."""
    segment = [write_batch([record(n, bytes(40_000))]) for n in range(100)]
    directory = write_partition(tmp_path, [segment])
    env = CountingEnv()
    with open_log(directory, env=env) as log:
        assert len(log.plan(max_bytes=2_000_000)) == 3
    assert 0 < env.log_bytes < 1_000_000


def test_a_split_at_an_index_entry_reads_one_interval(tmp_path: Path) -> None:
    segment = [write_batch([record(n, bytes(40_000))]) for n in range(100)]
    env = CountingEnv()
    with open_log(write_partition(tmp_path, [segment]), env=env) as log:
        (_whole,) = log.plan()
        before = env.log_bytes
        assert len(log.plan(max_bytes=400_000)) == 12
    assert env.log_bytes - before < 12 * 45_000


@pytest.mark.parametrize("threads", [1, 2])
def test_the_first_arrow_batch_of_a_long_log_waits_for_few_cuts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    """What a plan reads is counted; what is decoded is read by files of another env."""
    monkeypatch.setattr("kstore.log.reads.DEFAULT_PLAN_BYTES", 100_000)
    monkeypatch.setattr("kstore.log.plan.THREAD_RANGE_BYTES", 100_000)
    segment = [write_batch([record(n, bytes(40_000))]) for n in range(100)]
    directory = write_partition(tmp_path, [segment])
    env = CountingEnv()
    with open_log(directory, env=env) as log:
        found = log.to_arrow_batches(columns=["offset"], batch_bytes=1, threads=threads)
        assert next(found)["offset"].to_pylist() == [0]
        at_first = env.log_bytes
        offsets = [0, *(offset for batch in found for offset in batch["offset"].to_pylist())]
    assert offsets == [*range(100)]
    assert at_first < env.log_bytes / 4


TAILS = [
    pytest.param(b"\xaa" * 300, UnsupportedMagicError, id="garbage"),
    pytest.param(SEGMENTS[-1][0], CorruptRecordError, id="offsets-go-back"),
]


@pytest.mark.parametrize("max_bytes", [1, 2000, 2**40])
@pytest.mark.parametrize(("tail", "error"), TAILS)
def test_damage_at_the_end_is_inside_the_last_range(
    directory: Path, tail: bytes, error: type[Exception], max_bytes: int
) -> None:
    grow(directory / "00000000000000000800.log", tail)
    with open_log(directory) as log:
        assert log.log_end_offset == END
        *good, bad = log.plan(max_bytes=max_bytes)
        assert read_ranges(good) == [offset for offset in OFFSETS if offset < bad.start_offset]
        with pytest.raises(error) as caught:
            read_range(bad)
        assert caught.value.position == SIZES[-1]
        short = log.plan(max_bytes=max_bytes, end_offset=END - 1)
    assert read_ranges(short) == [offset for offset in OFFSETS if offset < END - 1]


def test_damage_in_the_middle_spoils_one_range(directory: Path) -> None:
    position = sum(map(len, SEGMENTS[3][:25]))
    set_bytes(directory / "00000000000000000800.log", position + 8, b"\x7f\xff\xff\xff")
    with open_log(directory) as log:
        ranges = log.plan(max_bytes=700)
    spoiled = []
    for number, scan_range in enumerate(ranges):
        try:
            read_range(scan_range)
        except CorruptRecordError as error:
            spoiled.append((number, error.position))
    assert [at for _, at in spoiled] == [position]


@pytest.mark.parametrize("tail", [bytes(10_000), SEGMENTS[-1][0][:50]], ids=["zeros", "torn"])
def test_what_a_crash_leaves_at_the_end_is_not_planned(directory: Path, tail: bytes) -> None:
    with open_log(directory) as log:
        expected = [log.plan(max_bytes=max_bytes) for max_bytes in MAX_BYTES]
    if tail[:10] != bytes(10):
        tail = END.to_bytes(8, "big") + tail[8:]
    grow(directory / "00000000000000000800.log", tail)
    with open_log(directory) as log:
        assert [log.plan(max_bytes=max_bytes) for max_bytes in MAX_BYTES] == expected


@pytest.mark.parametrize("threads", [2, 3, 8])
@pytest.mark.parametrize("size_in_bytes", [0, 1, 5_000_000, 46_452_547, 268_441_128, 10**12])
def test_threads_get_as_many_ranges_each_of_no_more_than_a_few_mib(size_in_bytes: int, threads: int) -> None:
    sizes = thread_range_sizes(size_in_bytes, threads=threads, env=DEFAULT_ENV)
    assert sizes is not None
    size = sizes.max_bytes
    assert 1 <= size <= THREAD_RANGE_BYTES
    assert sizes.divides_last == (size_in_bytes >= 4 * threads * MIB)
    if 4 * threads * MIB < size_in_bytes < 6 * threads * THREAD_RANGE_BYTES:
        # Each range ends at a batch before its size, and so much that the last one has room for what they leave.
        count = -(-size_in_bytes // size)
        assert count % threads == 0
        assert count >= min(6 * threads, size_in_bytes // (2 * MIB))
        assert count * size >= size_in_bytes + count * 15_000


class SlowEnv(LocalEnv):
    is_high_latency = True


class ShowingEnv(SlowEnv):
    has_views = True


def test_one_thread_reads_ranges_as_large_as_may_be_and_threads_few_ones_where_each_costs_requests() -> None:
    assert thread_range_sizes(10**9, threads=1, env=DEFAULT_ENV) is None
    for size_in_bytes in (20_000_000, 10**9):
        assert thread_range_sizes(size_in_bytes, threads=2, env=SlowEnv()) == RangeSizes(THREAD_RANGE_BYTES)


def test_threads_read_a_tier_in_large_ranges_of_which_the_last_one_is_divided() -> None:
    even, divided = RangeSizes(8 * MIB), RangeSizes(8 * MIB, divides_last=True)
    for size_in_bytes, sizes in ((0, even), (24 * MIB - 1, even), (24 * MIB, divided), (10**9, divided)):
        assert thread_range_sizes(size_in_bytes, threads=2, env=ShowingEnv()) == sizes
    assert thread_range_sizes(10**9, threads=1, env=ShowingEnv()) is None


@pytest.mark.parametrize(
    ("size_in_bytes", "threads"), [(0, 2), (1, 2), (100_000, 8), (4 * MIB - 1, 2), (8 * MIB - 1, 8)]
)
def test_a_small_log_is_one_range_for_any_number_of_threads(size_in_bytes: int, threads: int) -> None:
    assert thread_range_sizes(size_in_bytes, threads=threads, env=DEFAULT_ENV) == RangeSizes(THREAD_RANGE_BYTES)


def test_the_last_range_and_less_than_a_quarter_after_it_are_divided_into_a_half_and_quarters() -> None:
    sizes = RangeSizes(8 * MIB, divides_last=True)
    assert [sizes.at(left) for left in (2**60, 10 * MIB + 1)] == [8 * MIB] * 2
    assert [sizes.at(left) for left in (10 * MIB, 8 * MIB, 6 * MIB + 1)] == [4 * MIB] * 3
    assert [sizes.at(left) for left in (6 * MIB, 1, 0)] == [2 * MIB] * 3
    assert [RangeSizes(3 * MIB, divides_last=True).at(left) for left in (3 * MIB, 1)] == [3 * MIB // 2, MIB]
    assert [RangeSizes(1000, divides_last=True).at(left) for left in (2000, 1000, 1)] == [1000] * 3
    assert [RangeSizes(1000).at(left) for left in (2**60, 1)] == [1000] * 2


@pytest.fixture
def small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kstore.log.plan.THREAD_RANGE_BYTES", 100_000)
    monkeypatch.setattr("kstore.log.plan._LEAST_LAST_RANGE_BYTES", 1)


def sizes_of(ranges: Iterable[ScanRange]) -> list[int]:
    return [scan_range.size_in_bytes for scan_range in ranges]


@pytest.mark.usefixtures("small_ranges")
@pytest.mark.parametrize("batches_of_segment", [10_000, 1_700, 300])
def test_the_ranges_of_a_scan_by_threads_are_of_one_size_but_the_last_ones(
    tmp_path: Path, batches_of_segment: int
) -> None:
    batches = [write_batch([record(n, bytes(30))]) for n in range(10_000)]
    starts = range(0, len(batches), batches_of_segment)
    segments = [batches[at : at + batches_of_segment] for at in starts]
    directories = [write_partition(tmp_path, segments, partition=number) for number in range(2)]
    even = [98_686] * 9
    last = [49_294, 24_598, 17_934]
    assert sizes_of(kstore.scan(directories[0], threads=2).ranges) == even + last
    assert sizes_of(kstore.scan(directories, threads=2).ranges) == [*even, 91_826, *even, *last]
    given: list[ScanRange] = []

    def noted(ranges: Iterator[ScanRange]) -> Iterator[None]:
        given.extend(ranges)
        yield from ()

    with open_log(directories[0]) as log:
        for on_error in ("raise", "skip"):
            given.clear()
            reads = log._reads(on_error)
            list(reads.scanned(5_000, None, noted, isolation="read_uncommitted", sizes=log._range_sizes(2)))
            if on_error == "raise":
                assert sizes_of(given) == [98_686] * 4 + [49_294, 24_598, 21_364]
            # Ranges around damage end where an index has an entry.
            assert min(sizes_of(given)[:3]) > 90_000
            assert max(sizes_of(given)[-2:]) <= 98_765 // 4
