"""Goal: a rule for a difference on purpose covers that difference and no other one.

Method: logs of kstore with a file, an answer or a producer as Kafka has it, and with another one; no Java is run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kstore.config import LogConfig
from kstore.env import DEFAULT_ENV
from kstore.log.files.transaction_index import AbortedTxn, encode_aborted_txn
from kstore.log.write.writable_log import WritableLog
from kstore.record import MemoryRecords
from kstore.store.opening import open_log
from tests.golden.cleaning_cases import HORIZON_BIT
from tests.interop.histories.answers import state_of
from tests.interop.histories.known import (
    EMPTY_SNAPSHOT,
    Parted,
    end_of_lookup,
    end_of_producers,
    first_record_from,
    forgets_at_magic_0_or_1,
    gaps_before_segments,
    is_known_file,
    is_known_transaction_index,
    part_after_a_cleaning,
    part_after_a_gap,
    part_at_invisible_batches,
    part_at_open_transaction,
    part_below_segments,
    producers_from_log_start,
    snapshots_of_an_opening,
)
from tests.making.batches import batch, patch_header, record
from tests.making.messages import packed_entry
from tests.reference.codec import Header, write_batch, write_empty_batch, write_end_transaction_marker

PARTITION = "t-0"
OF_A_PRODUCER = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0}


def message(offset: int, magic: int = 0) -> bytes:
    return packed_entry(b"v", b"k", offset=offset, magic=magic, timestamp_ms=offset)


@contextmanager
def log_of(root: Path, *segments: bytes) -> Iterator[WritableLog]:
    with open_log(root / PARTITION, "a", LogConfig()) as log:
        for at, data in enumerate(segments):
            if at:
                log.roll()
            log.append_as_follower(MemoryRecords(data))
        yield log


def test_end_of_producers_is_the_end_of_the_last_batch_of_magic_2(tmp_path: Path) -> None:
    with log_of(tmp_path, batch(0, 3) + message(3), message(4, 1), batch(5) + message(6) + batch(7, 2)) as log:
        assert [end_of_producers(one) for one in log.segments] == [3, 4, 9]


def test_snapshot_before_messages_at_the_end_is_known_after_a_recovery_only(tmp_path: Path) -> None:
    with log_of(tmp_path, batch(0, 3, **OF_A_PRODUCER) + message(3)) as log:
        ours, theirs = {4: b"state"}, {3: b"state", 4: b"state"}
        assert snapshots_of_an_opening(log, ours, theirs, is_clean=False, had_none=False) == {3: b"state"}
        assert snapshots_of_an_opening(log, ours, theirs, is_clean=True, had_none=False) == {}


@pytest.mark.parametrize("theirs", [{3: b"other", 4: b"state"}, {2: b"state", 4: b"state"}, {4: b"state"}])
def test_other_snapshot_before_messages_at_the_end_is_not_known(tmp_path: Path, theirs: dict[int, bytes]) -> None:
    with log_of(tmp_path, batch(0, 3, **OF_A_PRODUCER) + message(3)) as log:
        assert snapshots_of_an_opening(log, {4: b"state"}, theirs, is_clean=False, had_none=False) == {}
        assert snapshots_of_an_opening(log, {3: b"state"}, {}, is_clean=False, had_none=False) == {}


def test_snapshot_at_the_log_start_is_known_to_be_removed_and_no_other_one(tmp_path: Path) -> None:
    with log_of(tmp_path, batch(0), batch(1), batch(2)) as log:
        ours = {1: b"", 2: b"", 3: b""}
        assert snapshots_of_an_opening(log, ours, {3: b""}, is_clean=True, had_none=False) == {}
        log.update_high_watermark(3)
        log.delete_records(1)
        assert snapshots_of_an_opening(log, ours, {3: b""}, is_clean=True, had_none=False) == {1: None}
        assert snapshots_of_an_opening(log, ours, {1: b"", 3: b""}, is_clean=True, had_none=False) == {}


def test_empty_snapshots_are_known_of_a_clean_opening_without_any(tmp_path: Path) -> None:
    with log_of(tmp_path, batch(0), batch(1), batch(2)) as log:
        theirs = dict.fromkeys((1, 2, 3), EMPTY_SNAPSHOT)
        assert snapshots_of_an_opening(log, {}, theirs, is_clean=True, had_none=True) == theirs
        assert snapshots_of_an_opening(log, {}, theirs, is_clean=True, had_none=False) == {}
        others = {0: EMPTY_SNAPSHOT, 1: b"state"}
        assert snapshots_of_an_opening(log, {}, others, is_clean=True, had_none=True) == {}


@pytest.mark.parametrize(("start", "expected"), [(2, False), (3, True), (5, True), (6, False)])
def test_producers_are_known_to_be_forgotten_where_the_log_starts_among_messages(
    tmp_path: Path, start: int, expected: bool
) -> None:
    data = batch(0, 3, **OF_A_PRODUCER) + b"".join(map(message, range(3, 6)))
    with log_of(tmp_path, data) as log:
        log.update_high_watermark(6)
        log.delete_records(start)
        assert forgets_at_magic_0_or_1(log, recovery_point=0) is expected
        assert not forgets_at_magic_0_or_1(log, recovery_point=6)


def test_producers_from_the_log_start_are_those_of_records_there(tmp_path: Path) -> None:
    with log_of(
        tmp_path, batch(0, 3, **OF_A_PRODUCER) + message(3), batch(4, 1, producer_id=2, base_sequence=0)
    ) as log:
        log.update_high_watermark(5)
        log.delete_records(3)
        assert sorted(state_of(log)["producers"]) == ["1", "2"]
    assert sorted(producers_from_log_start(tmp_path, PARTITION, config=LogConfig(), env=DEFAULT_ENV)) == ["2"]


def test_lookup_by_time_ends_with_the_first_segment_that_may_have_the_time(tmp_path: Path) -> None:
    segments = [write_batch([record(at, timestamp_ms=at)]) for at in range(3)]
    with log_of(tmp_path, *segments) as log:
        assert [end_of_lookup(log, timestamp_ms) for timestamp_ms in range(4)] == [1, 2, 3, 3]


def test_lookup_by_time_ends_with_the_time_of_records_that_a_cleaner_removed(tmp_path: Path) -> None:
    emptied = write_empty_batch(0, last_offset=0, max_timestamp_ms=9)
    later = write_batch([record(1, timestamp_ms=9)])
    with log_of(tmp_path, emptied, later, write_batch([record(2, timestamp_ms=1)])) as log:
        assert [end_of_lookup(log, timestamp_ms) for timestamp_ms in (1, 9, 10)] == [1, 1, 3]


def test_lookup_by_time_ends_with_a_segment_without_times(tmp_path: Path) -> None:
    with log_of(tmp_path, message(0), write_batch([record(1, timestamp_ms=1)])) as log:
        assert end_of_lookup(log, 1) == 1
        assert first_record_from(log, 1) == {"offset": 1, "timestamp_ms": 1}
        assert first_record_from(log, 2) == {"offset": -1, "timestamp_ms": -1}


def test_only_a_gap_before_a_segment_may_have_a_snapshot_of_kafka_alone(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=2 * len(batch(0)))
    with open_log(tmp_path / PARTITION, "a", config) as log:
        for data in (batch(0) + batch(5), batch(9) + batch(10), batch(11)):
            log.append_as_follower(MemoryRecords(data))
        gaps = gaps_before_segments(log)
    assert gaps == {6, 7, 8}
    for offset, is_known in ((6, True), (8, True), (1, False), (9, False), (12, False)):
        name = f"{offset:020d}.snapshot"
        found = is_known_file(name, None, EMPTY_SNAPSHOT, log_start_offset=0, rebuilt=set(), gaps=gaps)
        assert found is is_known, name
        assert not is_known_file(name, EMPTY_SNAPSHOT, None, log_start_offset=0, rebuilt=set(), gaps=gaps)


EMPTIED = write_empty_batch(4, last_offset=4, max_timestamp_ms=4)


def parts(rule: Callable[[], None]) -> bool:
    """Whether a rule ends the history."""
    try:
        rule()
    except Parted:
        return True
    return False


@pytest.mark.parametrize(
    ("theirs", "end_offset", "is_known"),
    [
        (batch(2) + batch(3), 4, False),
        (batch(0) + batch(2) + batch(3), 4, True),
        (batch(2) + batch(3) + EMPTIED, 5, True),
        (batch(2) + batch(3) + EMPTIED, 6, False),
        (batch(2) + batch(3) + batch(4), 5, False),
        (batch(3), 4, False),
    ],
    ids=["equal", "below the start", "empty at the end", "empty elsewhere", "more", "less"],
)
def test_only_what_no_consumer_sees_may_differ_after_a_cleaning(theirs: bytes, end_offset: int, is_known: bool) -> None:
    ours = batch(1) + batch(2) + batch(3) if theirs.startswith(batch(0)) else batch(2) + batch(3)
    found = parts(
        lambda: part_at_invisible_batches(ours, theirs, base_offset=0, log_start_offset=2, end_offset=end_offset)
    )
    assert found is is_known


@pytest.mark.parametrize(("base_offset", "is_known"), [(0, True), (2, False)])
def test_markers_may_differ_in_their_horizon_only_above_hidden_data(base_offset: int, is_known: bool) -> None:
    marker = write_end_transaction_marker(2, timestamp_ms=1, producer_id=1, producer_epoch=0, commit=True)
    other = patch_header(marker, attributes=Header.unpack(marker).attributes | HORIZON_BIT)
    bounds = {"base_offset": base_offset, "log_start_offset": 2, "end_offset": 4}
    assert parts(lambda: part_at_invisible_batches(marker + batch(3), other + batch(3), **bounds)) is is_known
    moved = write_end_transaction_marker(2, timestamp_ms=1, producer_id=2, producer_epoch=0, commit=True)
    assert not parts(lambda: part_at_invisible_batches(marker + batch(3), moved + batch(3), **bounds))


def test_a_log_that_starts_below_its_segments_is_not_cleaned_beside_kafka(tmp_path: Path) -> None:
    with log_of(tmp_path, batch(0)) as log:
        assert not parts(lambda: part_below_segments(log))
        log.truncate_fully_and_start_at(9, log_start_offset=4)
        assert parts(lambda: part_below_segments(log))


def test_retention_may_differ_only_by_what_an_open_transaction_reaches(tmp_path: Path) -> None:
    with log_of(tmp_path, batch(0, 2), batch(2, 2, is_transactional=True, **OF_A_PRODUCER), batch(4)) as log:
        assert log.last_stable_offset == 2
        assert not parts(lambda: part_at_open_transaction(log, {"log_start_offset": 2}))
        assert parts(lambda: part_at_open_transaction(log, {"log_start_offset": 4}))


@pytest.mark.parametrize(
    ("theirs", "is_known"),
    [
        ([0, -1, 9, -1, [[1, 7, 1, 9]]], False),
        ([0, -1, 8, -1, [[0, 5, 0, 3], [1, 7, 1, 8]]], True),
        ([0, -1, 9, -1, [[1, 6, 1, 9]]], False),
        ([1, -1, 9, -1, [[1, 7, 1, 9]]], False),
        ([0, -1, 9, 7, [[1, 7, 1, 9]]], False),
    ],
    ids=["equal", "more batches", "other batch", "other epoch", "open transaction"],
)
def test_producers_after_a_gap_may_differ_in_older_batches_and_times(theirs: list[Any], is_known: bool) -> None:
    ours = {"1": [0, -1, 9, -1, [[1, 7, 1, 9]]]}
    assert parts(lambda: part_after_a_gap(ours, {"1": theirs})) is is_known


@pytest.mark.parametrize(
    ("theirs", "is_known"),
    [
        ([0, -1, 9, -1, [[1, 7, 1, 9]]], False),
        ([0, -1, 8, -1, []], True),
        ([0, -1, 9, -1, [[0, 6, 0, 8], [1, 7, 1, 9]]], False),
        ([1, -1, 9, -1, []], False),
        ([0, -1, 9, 7, []], False),
    ],
    ids=["equal", "less", "more", "other epoch", "open transaction"],
)
def test_after_a_cleaning_kafka_may_know_less_of_producers_and_not_more(theirs: list[Any], is_known: bool) -> None:
    ours = {"1": [0, -1, 9, -1, [[1, 7, 1, 9]]]}
    assert parts(lambda: part_after_a_cleaning(ours, {"1": theirs})) is is_known


def test_a_snapshot_that_only_kafka_has_is_known_below_what_was_cleaned() -> None:
    for offset, is_known in ((4, True), (5, False)):
        name = f"{offset:020d}.snapshot"
        found = is_known_file(
            name, None, EMPTY_SNAPSHOT, log_start_offset=0, rebuilt=set(), gaps=set(), cleaned_offset=5
        )
        assert found is is_known


ABORTED = [AbortedTxn(1, 8, 20, 18), AbortedTxn(2, 16, 22, 23)]


@pytest.mark.parametrize(
    ("theirs", "in_transactions", "is_known"),
    [
        (ABORTED, [], True),
        (ABORTED[1:], [(2, 16)], True),
        (ABORTED[1:], [(1, 15), (2, 16)], False),
        (ABORTED[:1], [(2, 16)], False),
        ([ABORTED[0]._replace(first_offset=15), ABORTED[1]], [(1, 15), (2, 16)], True),
        ([ABORTED[0], ABORTED[1]._replace(first_offset=17)], [(2, 16)], False),
        ([*ABORTED, AbortedTxn(3, 24, 25, 26)], [], False),
    ],
    ids=["equal", "no data left", "data left", "above the log start", "began below", "began above", "missing"],
)
def test_rebuilt_transaction_index_may_differ_in_transactions_that_began_below_the_log_start_only(
    theirs: list[AbortedTxn], in_transactions: list[tuple[int, int]], is_known: bool
) -> None:
    ours, others = (b"".join(map(encode_aborted_txn, one)) for one in (ABORTED, theirs))
    found = is_known_transaction_index(ours, others, log_start_offset=15, in_transactions=in_transactions)
    assert found is is_known
