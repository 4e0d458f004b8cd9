"""Goal: a reader that goes on after damage gives the records of undamaged batches, and tells exactly what is missing.

Method: Hypothesis flips bits of random logs, and the logs of the salvage properties, whose values hold batches, are
damaged as there. Log.read, Arrow (in any number of threads, tables and ranges) and `kstore cat` have to agree; what
they give and what they report is compared with the log as it was; no file may change.
"""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from kstore import SkippedRange
from kstore.arrow import record_batches
from kstore.cli.printing import cat
from kstore.log.log import Log
from kstore.store.opening import open_log
from tests.making.batches import Layout, batches, write_partition
from tests.making.cat_groups import groups
from tests.property.test_salvage_properties import CONFIG, KINDS, Content, Maker, write_indexed
from tests.reference import codec as reference

RECORDS_PER_BATCH = 3
BATCHES_PER_SEGMENT = 6
SEGMENTS = 3
TOTAL = RECORDS_PER_BATCH * BATCHES_PER_SEGMENT * SEGMENTS
# Above the offsets of all logs here, if they are not damaged.
MOST_OFFSET = 1000
# Bytes of a batch header that no CRC covers and whose values are not checked: the leader epoch.
EPOCH_BYTES = range(12, 16)
OFFSET_BYTES = 8

Rows = list[tuple[int, Content]]
Outcome = tuple[Rows, list[SkippedRange]]


def by_read(log: Log, **bounds: Any) -> Outcome:
    skipped: list[SkippedRange] = []
    found = log.read(on_error="skip", on_skip=skipped.append, **bounds)
    return [(one.offset, (one.timestamp_ms, one.key, one.value)) for one in found], skipped


def rows_of(tables: Iterable[Any]) -> Iterator[tuple[int, Content]]:
    for table in tables:
        columns = [table[name].to_pylist() for name in ("offset", "key", "value")]
        stamps = table["timestamp"].cast("int64").to_pylist()
        for stamp, offset, key, value in zip(stamps, *columns, strict=True):
            yield offset, (-1 if stamp is None else stamp // 1000, key, value)


def by_arrow(log: Log, rng: random.Random, **bounds: Any) -> Outcome:
    skipped: list[SkippedRange] = []
    options = {"threads": rng.choice((1, 2)), "batch_bytes": rng.choice((1, 200, 1 << 20))}
    names = ["offset", "timestamp", "key", "value"]
    tables = log.to_arrow_batches(columns=names, on_error="skip", on_skip=skipped.append, **options, **bounds)
    return list(rows_of(tables)), skipped


def by_workers(log: Log, max_bytes: int) -> Outcome:
    """The ranges of a plan, as other processes read them."""
    rows: Rows = []
    skipped: list[SkippedRange] = []
    for one in pickle.loads(pickle.dumps(log.plan(max_bytes=max_bytes, on_error="skip"))):
        rows += rows_of(record_batches([one], config=log.config, on_error="skip", on_skip=skipped.append))
    return rows, skipped


def by_cat(log: Log) -> Outcome:
    skipped: list[SkippedRange] = []
    wanted = cat.CatOptions(start_offset=0, end_offset=2**63 - 1)
    selected = groups(log, wanted, on_skip=skipped.append)
    return [(r.offset, (r.timestamp_ms, r.key, r.value)) for group in selected for r in group.records], skipped


def outcome(path: Path, rng: random.Random) -> tuple[Outcome, Rows]:
    """What all readers of the whole log give alike, and report alike, and all rows of others; nothing is written."""
    before = {name: (name.read_bytes(), name.stat().st_mtime_ns) for name in path.iterdir()}
    with open_log(path, config=CONFIG) as log:
        found = by_read(log)
        assert by_arrow(log, rng) == found
        assert by_cat(log) == found
        others: Rows = []
        for max_bytes in (1, 700, rng.randint(1, 10_000)):
            parts = by_workers(log, max_bytes)
            check_same_log(parts, found, range(MOST_OFFSET))
            others += parts[0]
        end = rng.randint(0, min(log.log_end_offset, MOST_OFFSET))
        start = rng.randint(log.log_start_offset, max(end, log.log_start_offset))
        bounds = {"start_offset": start, "end_offset": max(end, start)}
        part = by_read(log, **bounds)
        check_same_log(part, found, range(start, end))
        assert by_arrow(log, rng, **bounds) == part
    assert {name: (name.read_bytes(), name.stat().st_mtime_ns) for name in path.iterdir()} == before
    return found, others + part[0]


def check_same_log(part: Outcome, whole: Outcome, offsets: range) -> None:
    """Check what a read of a part of a log, or in parts, gives against a read of all of it.

    Where a part begins and ends more is known than elsewhere, so that it may hold proof of a batch that a read of the
    whole log does not find, and the other way round.
    """
    missing, missing_of_whole = (told(skipped) & set(offsets) for _, skipped in (part, whole))
    rows, rows_of_whole = ({row[0]: row for row in rows if row[0] in offsets} for rows, _ in (part, whole))
    assert [row[0] for row in part[0] if row[0] in offsets] == sorted(rows)
    assert not missing & rows.keys()
    assert missing | rows.keys() == missing_of_whole | rows_of_whole.keys()
    assert all(rows_of_whole.get(offset, row) == row for offset, row in rows.items())
    assert rows.keys() - rows_of_whole.keys() <= missing_of_whole


def told(skipped: Iterable[SkippedRange]) -> set[int]:
    """The offsets that are reported missing, of those that a log may have had."""
    offsets: list[int] = []
    for one in skipped:
        last = MOST_OFFSET if one.last_missing_offset is None else min(one.last_missing_offset, MOST_OFFSET)
        offsets += range(one.first_missing_offset, last + 1)
    assert len(offsets) == len(set(offsets)), skipped
    return set(offsets)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[bytes], list[list[bytes]]]:
    data = batches(0, BATCHES_PER_SEGMENT * SEGMENTS, records_per_batch=RECORDS_PER_BATCH, value_bytes=30)
    segments = [data[at : at + BATCHES_PER_SEGMENT] for at in range(0, len(data), BATCHES_PER_SEGMENT)]
    path = write_partition(tmp_path_factory.mktemp("skip"), segments, layout=Layout(index_interval_bytes=400))
    return path, [name.read_bytes() for name in sorted(path.glob("*.log"))], segments


flips = st.tuples(
    st.integers(0, SEGMENTS - 1),
    st.integers(0, BATCHES_PER_SEGMENT - 1),
    st.one_of(st.integers(0, reference.HEADER_BYTES - 1), st.integers(0, 10_000)),
    st.integers(0, 7),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(places=st.lists(flips, min_size=1, max_size=4, unique_by=lambda one: one[:2]), seed=st.integers(0, 1000))
def test_flipped_bits_cost_their_batches_and_nothing_else(
    whole: tuple[Path, list[bytes], list[list[bytes]]], places: list[tuple[int, int, int, int]], seed: int
) -> None:
    path, contents, segments = whole
    # Nothing contradicts two batches of a segment whose base offsets are wrong in the same way: no CRC covers them.
    moved = [segment for segment, slot, at, _ in places if at % len(segments[segment][slot]) < OFFSET_BYTES]
    assume(len(moved) == len(set(moved)))
    damaged = [bytearray(content) for content in contents]
    lost: set[int] = set()
    for segment, slot, at, bit in places:
        at %= len(segments[segment][slot])
        damaged[segment][sum(map(len, segments[segment][:slot])) + at] ^= 1 << bit
        first = RECORDS_PER_BATCH * (segment * BATCHES_PER_SEGMENT + slot)
        if at not in EPOCH_BYTES:
            lost |= set(range(first, first + RECORDS_PER_BATCH))
    for name, content in zip(sorted(path.glob("*.log")), damaged, strict=True):
        name.write_bytes(content)
    (rows, skipped), _ = outcome(path, random.Random(seed))
    found = [offset for offset, _ in rows]
    assert found == sorted(set(found))
    missing = set(range(TOTAL)) - set(found)
    unproven = told(skipped) - lost
    # Between damage in two places whole batches may be unproven, up to the next index entry.
    assert missing - lost == unproven & set(range(TOTAL))
    if len(places) == 1:
        assert not unproven & set(range(TOTAL))
        moved_last = (
            places[0][:2] == (SEGMENTS - 1, BATCHES_PER_SEGMENT - 1) and places[0][2] % len(segments[-1][-1]) < 8
        )
        assert moved_last or missing == lost


def run(root: Path, seed: int, *, is_hostile: bool, has_indexes: bool, magic: int) -> None:
    maker = Maker(seed, is_hostile=is_hostile, magic=magic)
    made = maker.log()
    path = write_indexed(root / str(seed), made)
    names = sorted(path.glob("*.log"))
    for name, content in zip(names, maker.damage(made), strict=True):
        name.write_bytes(content)
        if not has_indexes:
            name.with_suffix(".index").unlink()
            name.with_suffix(".timeindex").unlink()
    expected = made.records
    (rows, skipped), others = outcome(path, maker.rng)
    invented = [row for row in rows + others if expected.get(row[0]) != row[1] and row[1] not in made.moved]
    assert invented == [], seed
    missing = expected.keys() - {offset for offset, _ in rows}
    silent = missing - told(skipped)
    # What is torn off the end of a log is no damage, and neither is an offset that contradicts none around it.
    ends = {offset for offset in silent if offset > max((row[0] for row in rows), default=-1)}
    assert silent - ends <= {offset for offset in expected if expected[offset] in made.moved}, seed


@pytest.mark.parametrize("kind", KINDS)
def test_readers_give_and_report_alike_whatever_is_damaged(kind: str, tmp_path: Path) -> None:
    is_hostile, has_indexes, magic = KINDS[kind]
    for seed in range(40):
        run(tmp_path, seed, is_hostile=is_hostile, has_indexes=has_indexes, magic=magic)


@pytest.mark.parametrize(("kind", "seed"), [("hostile-v1", 662), ("hostile-v0", 1259)])
def test_where_a_range_is_split_hides_no_record_and_invents_none(kind: str, seed: int, tmp_path: Path) -> None:
    """A log that is cut off in the batch after an index entry; a batch before one with a much higher offset."""
    is_hostile, has_indexes, magic = KINDS[kind]
    run(tmp_path, seed, is_hostile=is_hostile, has_indexes=has_indexes, magic=magic)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_readers_give_and_report_alike_whatever_is_damaged_at_length(kind: str, tmp_path: Path) -> None:
    is_hostile, has_indexes, magic = KINDS[kind]
    for seed in range(2000):
        run(tmp_path, seed, is_hostile=is_hostile, has_indexes=has_indexes, magic=magic)
