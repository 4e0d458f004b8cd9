"""Goal: a committed fetch lists the aborted transactions that a walk over all headers finds, without that walk.
Method: random histories of transactions, rolls, truncations and openings; indexes that are lost or damaged; the header
walk of Log.transactions as the oracle, by Kafka's rule for the list and by what a consumer then delivers."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore import LogConfig, MemoryRecords, Record, WritableLog
from kstore.log.state import aborted as aborted_module
from kstore.log.state.transactions import AbortedTransaction
from kstore.log.write import live_source
from kstore.record import AppendOrigin, ControlRecordType, EndTransactionMarker
from kstore.record.builder import with_end_transaction_marker, with_records, with_transactional_records
from tests.interop.histories.answers import delivered

CONFIG = LogConfig(
    segment_bytes=3000,
    index_interval_bytes=200,
    segment_index_bytes=4096,
    producer_id_expiration_ms=2**63 - 1,
    cleanup_policy="compact,delete",
    min_cleanable_dirty_ratio=0.0,
    file_delete_delay_ms=0,
)


def opened(directory: Path) -> WritableLog:
    return kstore.open_log(directory, "a", config=CONFIG)


def records(count: int = 1) -> list[Record]:
    return [Record(timestamp_ms=1, key=b"k%d" % number, value=b"v" * 40) for number in range(count)]


class Producers:
    """Producers of transactions in one log."""

    def __init__(self, log: WritableLog) -> None:
        self.log = log
        self.sequences: dict[int, int] = {}

    def write(self, producer_id: int, *, count: int = 1) -> None:
        sequence = self.sequences.get(producer_id, 0)
        self.sequences[producer_id] = sequence + count
        self.log.append(
            with_transactional_records(
                records(count), producer_id=producer_id, producer_epoch=0, base_sequence=sequence
            )
        )

    def end(self, producer_id: int, *, aborts: bool) -> None:
        kind = ControlRecordType.ABORT if aborts else ControlRecordType.COMMIT
        marker = EndTransactionMarker(control_type=kind, coordinator_epoch=0)
        self.log.append(
            with_end_transaction_marker(marker, timestamp_ms=1, producer_id=producer_id, producer_epoch=0),
            origin=AppendOrigin.COORDINATOR,
        )


def overlapping(log: WritableLog, start_offset: int, end_offset: int) -> tuple[AbortedTransaction, ...]:
    """Kafka's rule, of the transactions that a walk finds."""
    return tuple(
        one for one in log.transactions().aborted if one.last_offset >= start_offset and one.first_offset < end_offset
    )


def pairs(aborted: Sequence[AbortedTransaction]) -> list[tuple[int, int]]:
    return [(one.producer_id, one.first_offset) for one in aborted]


def check(log: WritableLog, offset: int, max_bytes: int, *, is_whole: bool) -> None:
    answer = log.fetch(offset, max_bytes, isolation="read_committed")
    with log.fetch_range(offset, max_bytes, isolation="read_committed") as part:
        assert (part.read(), part.aborted) == (answer.records, answer.aborted)
    ends = [batch.last_offset + 1 for batch in MemoryRecords(answer.records).batches()]
    expected = overlapping(log, offset, max([offset, *ends])) if answer.records else ()
    assert delivered(answer.records, pairs(answer.aborted)) == delivered(answer.records, pairs(expected))
    if is_whole:
        # The walk does not see data below the first segment, with which a transaction may begin.
        least = log.segments[0].base_offset
        for one, other in zip(answer.aborted, expected, strict=True):
            assert (one.producer_id, one.last_offset) == (other.producer_id, other.last_offset)
            assert one.first_offset == other.first_offset or one.first_offset < least


def check_everywhere(log: WritableLog, dice: random.Random, *, is_whole: bool) -> None:
    for _ in range(12):
        offset = dice.randint(log.log_start_offset, log.log_end_offset)
        check(log, offset, dice.choice([1, 300, 900, 5000]), is_whole=is_whole)


def write_at_random(log: WritableLog, dice: random.Random) -> None:
    """Append 40 times, by producers that are new to the log."""
    producers, first = Producers(log), dice.randrange(10**6) * 10
    for _ in range(40):
        producer_id = first + dice.randrange(4)
        step = dice.choice(["write", "write", "write", "end", "end", "plain", "roll"])
        if step == "write":
            producers.write(producer_id, count=dice.randint(1, 4))
        elif step == "end":
            producers.end(producer_id, aborts=dice.random() < 0.6)
        elif step == "plain":
            log.append(with_records(records(dice.randint(1, 5))))
        else:
            log.roll()


def index_files(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.txnindex"))


@pytest.mark.parametrize("seed", range(30))
def test_list_is_that_of_a_walk_after_any_history(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    directory = tmp_path / "t-0"
    log = opened(directory)
    for _ in range(4):
        write_at_random(log, dice)
        check_everywhere(log, dice, is_whole=True)
        step = dice.choice(["truncate", "reopen", "reopen", "trim"])
        if step == "truncate":
            log.truncate_to(dice.randint(log.log_start_offset, log.log_end_offset))
        elif step == "reopen":
            log.close()
            log = opened(directory)
        else:
            log.delete_records(dice.randint(log.log_start_offset, log.last_stable_offset))
            log.delete_old_segments()
        check_everywhere(log, dice, is_whole=False)
    log.close()


@pytest.mark.parametrize("harm", ["lose", "lose all", "empty", "cut", "version", "order", "beyond"])
@pytest.mark.parametrize("seed", range(4))
def test_aborted_records_stay_hidden_where_an_index_is_lost_or_damaged(tmp_path: Path, seed: int, harm: str) -> None:
    dice = random.Random(f"{seed} {harm}")
    directory = tmp_path / "t-0"
    with opened(directory) as log:
        write_at_random(log, dice)
        write_at_random(log, dice)
    files = index_files(directory)
    for path in files if harm == "lose all" else dice.sample(files, max(1, len(files) // 2)):
        content = bytearray(path.read_bytes())
        if harm.startswith("lose"):
            path.unlink()
            continue
        if harm == "empty":
            content = bytearray()
        elif harm == "cut":
            del content[-3:]
        elif harm == "version":
            content[1] ^= 1
        elif harm == "order":
            content += content[:34]
        else:
            content[18:26] = (2**40).to_bytes(8, "big")
        path.write_bytes(content)
    with opened(directory) as log:
        check_everywhere(log, dice, is_whole=False)
        check_everywhere(log, dice, is_whole=False)
        write_at_random(log, dice)
        check_everywhere(log, dice, is_whole=False)


def test_list_has_the_entries_of_kafkas_rule_at_both_ends(tmp_path: Path) -> None:
    with opened(tmp_path / "t-0") as log:
        producers = Producers(log)
        producers.write(1)  # 0, aborted at 3
        producers.write(2)  # 1, aborted at 4
        log.append(with_records(records()))  # 2
        producers.end(1, aborts=True)
        producers.end(2, aborts=True)
        producers.write(0)  # 5, aborted at 7
        log.roll()
        log.append(with_records(records()))  # 6
        producers.end(0, aborts=True)

        def listed(offset: int, max_bytes: int = 1) -> list[tuple[int, ...]]:
            return [tuple(one) for one in log.fetch(offset, max_bytes, isolation="read_committed").aborted]

        first, second, third = (1, 0, 3), (2, 1, 4), (0, 5, 7)
        assert [listed(offset) for offset in range(9)] == [
            [first],
            [first, second],
            [first, second],
            [first, second],
            [second],
            [third],
            [third],
            [third],
            [],
        ]
        assert listed(0, 10**6) == [first, second, third]


def forbid(*_: Any, **__: Any) -> Any:
    raise AssertionError("headers were walked")


def test_log_that_this_process_wrote_is_not_walked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path / "t-0") as log:
        write_at_random(log, random.Random(1))
        for one in log.open_transactions():
            Producers(log).end(one.producer_id, aborts=True)
        monkeypatch.setattr(live_source, "settle_transactions", forbid)
        monkeypatch.setattr(aborted_module, "find_aborted", forbid)
        found = [log.fetch(offset, 500, isolation="read_committed").aborted for offset in range(log.log_end_offset)]
    assert any(found)


def test_range_without_aborted_transactions_is_walked_once_where_no_index_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path / "t-0") as log:
        for _ in range(30):
            log.append(with_records(records(3)))
    walked: list[int] = []
    find = aborted_module.find_aborted

    def counted(segments: Any, start_offset: int, **options: Any) -> Any:
        walked.append(start_offset)
        return find(segments, start_offset, **options)

    monkeypatch.setattr(live_source, "settle_transactions", forbid)
    monkeypatch.setattr(aborted_module, "find_aborted", counted)
    with opened(tmp_path / "t-0") as log:
        for _ in range(3):
            offset = 0
            while offset < log.log_end_offset:
                records_ = log.fetch(offset, 700, isolation="read_committed").records
                *_, last = MemoryRecords(records_).batches()
                offset = last.last_offset + 1
        assert walked == sorted(set(walked))
        count = len(walked)
        # A transaction of this process has its entry, and the range before it is not walked for it.
        producers = Producers(log)
        producers.write(1)
        producers.end(1, aborts=True)
        assert len(log.fetch(90, 700, isolation="read_committed").aborted) == 1
        assert len(walked) == count


def test_what_is_appended_where_ranges_were_walked_has_its_entries(tmp_path: Path) -> None:
    with opened(tmp_path / "t-0") as log:
        for _ in range(30):
            log.append(with_records(records(3)))
    with opened(tmp_path / "t-0") as log:
        for offset in range(0, 90, 3):
            assert log.fetch(offset, 300, isolation="read_committed").aborted == ()
        log.truncate_to(6)
        producers = Producers(log)
        producers.write(1, count=3)
        producers.end(1, aborts=True)
        log.append(with_records(records(3)))
        assert pairs(log.fetch(6, 300, isolation="read_committed").aborted) == [(1, 6)]
        assert pairs(log.fetch(3, 900, isolation="read_committed").aborted) == [(1, 6)]


def test_index_with_a_marker_beyond_its_segment_hides_no_later_records(tmp_path: Path) -> None:
    with opened(tmp_path / "t-0") as log:
        producers = Producers(log)
        producers.write(1)
        producers.end(1, aborts=True)
        producers.write(1)
        producers.end(1, aborts=False)
        log.roll()
    (path,) = index_files(tmp_path / "t-0")
    content = bytearray(path.read_bytes())
    content[18:26] = (2**40).to_bytes(8, "big")
    path.write_bytes(content)
    with opened(tmp_path / "t-0") as log:
        assert log.fetch(2, 10**6, isolation="read_committed").aborted == ()
        assert pairs(log.fetch(0, 1, isolation="read_committed").aborted) == [(1, 0)]


def test_range_of_committed_transactions_is_walked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path / "t-0") as log:
        producers = Producers(log)
        for _ in range(5):
            producers.write(1)
            producers.end(1, aborts=False)
    with opened(tmp_path / "t-0") as log:
        answer = log.fetch(0, 10**6, isolation="read_committed")
        monkeypatch.setattr(aborted_module, "find_aborted", forbid)
        assert log.fetch(0, 10**6, isolation="read_committed") == answer
        assert log.fetch(4, 1, isolation="read_committed").aborted == ()


def test_list_is_right_after_a_compaction(tmp_path: Path) -> None:
    dice = random.Random(7)
    with opened(tmp_path / "t-0") as log:
        write_at_random(log, dice)
        check_everywhere(log, dice, is_whole=True)
        for producer_id in [one.producer_id for one in log.open_transactions()]:
            Producers(log).end(producer_id, aborts=True)
        log.roll()
        assert log.compact() is not None
        check_everywhere(log, dice, is_whole=False)
        write_at_random(log, dice)
        check_everywhere(log, dice, is_whole=False)
