"""Goal: a log that is written knows its producers: duplicates, sequences, transactions, also after it was opened again.
Method: batches of idempotent and transactional producers appended; readers asked in the middle of an append."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from kstore.config import LogConfig
from kstore.env import LocalEnv, LocalFile
from kstore.errors import InvalidTxnStateError, OutOfOrderSequenceError
from kstore.log.damage import Damage
from kstore.log.segment.segment import LogSegment
from kstore.log.verify import verify
from kstore.log.write.live_source import LiveSource
from kstore.log.write.writable_log import WritableLog
from kstore.record import (
    AppendOrigin,
    ControlRecordType,
    EndTransactionMarker,
    MemoryRecords,
    with_end_transaction_marker,
)
from kstore.store.opening import open_log
from tests.making.batches import FIRST_TIMESTAMP_MS, batch, record
from tests.reference.codec import write_batch

PRODUCER, OTHER = 7, 8


class EarlyEnv(LocalEnv):
    """An Env whose clock stands at the time of the records, so that no producer expires."""

    def wall_clock_ms(self) -> int:
        return FIRST_TIMESTAMP_MS


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "t-0"


def opened(directory: Path, **options: Any) -> WritableLog:
    return open_log(directory, "a", LogConfig(**options), env=EarlyEnv())


def sent(sequence: int, count: int = 2, *, producer_id: int = PRODUCER, transactional: bool = False) -> MemoryRecords:
    data = write_batch(
        [record(offset, b"v%d" % offset) for offset in range(count)],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
        is_transactional=transactional,
    )
    return MemoryRecords(data)


def end(log: WritableLog, *, producer_id: int = PRODUCER, commit: bool) -> None:
    control_type = ControlRecordType.COMMIT if commit else ControlRecordType.ABORT
    marker = EndTransactionMarker(control_type=control_type, coordinator_epoch=0)
    records = with_end_transaction_marker(
        marker, timestamp_ms=FIRST_TIMESTAMP_MS, producer_id=producer_id, producer_epoch=0
    )
    log.append(records, origin=AppendOrigin.COORDINATOR)


def committed(log: WritableLog) -> list[int]:
    return [one.offset for one in log.read(isolation="read_committed")]


def test_batch_sent_again_has_its_first_offsets_and_is_not_written(directory: Path) -> None:
    with opened(directory) as log:
        for number in range(3):
            log.append(sent(2 * number))
        size = log.size_in_bytes
        info = log.append(sent(2))
        assert (info.is_duplicate, info.base_offset, info.last_offset) == (True, 2, 3)
        assert (log.size_in_bytes, log.log_end_offset) == (size, 6)


def test_sequence_out_of_order_is_refused_and_leaves_nothing(directory: Path) -> None:
    with opened(directory) as log:
        log.append(sent(0))
        with pytest.raises(OutOfOrderSequenceError, match="expected sequence 2, found 4"):
            log.append(sent(4))
        log.append(sent(2))
        assert log.log_end_offset == 4


def test_sequences_go_on_after_the_log_was_opened_again(directory: Path) -> None:
    with opened(directory) as log:
        log.append(sent(0))
    with opened(directory) as log:
        assert log.append(sent(0)).is_duplicate
        with pytest.raises(OutOfOrderSequenceError):
            log.append(sent(6))
        assert log.append(sent(2)).base_offset == 2


@pytest.mark.parametrize("is_reader", [False, True], ids=["writer", "reader"])
def test_records_below_the_start_of_the_log_hold_up_no_stable_offset(directory: Path, is_reader: bool) -> None:
    with opened(directory) as log:
        log.append(sent(0, transactional=True))
        log.append(sent(2, transactional=True))
        assert log.transactions().last_stable_offset == 0
        log.delete_records(3)
        assert log.last_stable_offset == 3
        reader = open_log(directory) if is_reader else log
        assert reader.transactions().last_stable_offset == 3
        assert reader.fetch(3, 1000, isolation="read_committed").last_stable_offset == 3
        assert list(reader.read(isolation="read_committed")) == []


def test_transaction_is_decided_by_its_marker(directory: Path) -> None:
    with opened(directory) as log:
        log.append(sent(0, transactional=True))
        log.append(sent(0, producer_id=OTHER, transactional=True))
        assert (log.last_stable_offset, committed(log)) == (0, [])
        with pytest.raises(InvalidTxnStateError):
            log.append(sent(2))
        end(log, commit=True)
        assert (log.last_stable_offset, committed(log)) == (2, [0, 1])
        end(log, producer_id=OTHER, commit=False)
        assert (log.last_stable_offset, committed(log)) == (6, [0, 1])
        assert [one.first_offset for one in log.transactions().aborted] == [2]


def test_open_transaction_stays_open_and_aborted_ones_aborted(directory: Path) -> None:
    with opened(directory) as log:
        log.append(sent(0, transactional=True))
        end(log, commit=False)
        log.roll()
        log.append(sent(0, producer_id=OTHER, transactional=True))
    assert (directory / "00000000000000000000.txnindex").stat().st_size == 34
    with opened(directory) as log:
        assert log.last_stable_offset == 3
        assert committed(log) == []
        end(log, producer_id=OTHER, commit=True)
        assert committed(log) == [3, 4]


def test_truncation_takes_a_transaction_back(directory: Path) -> None:
    with opened(directory) as log:
        log.append(sent(0, transactional=True))
        end(log, commit=False)
        log.append(sent(2, transactional=True))
        log.truncate_to(2)
        assert (log.last_stable_offset, committed(log)) == (0, [])
        end(log, commit=True)
        assert committed(log) == [0, 1]


def test_transaction_that_begins_is_never_below_the_last_stable_offset(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(directory) as log:
        log.append(sent(0, producer_id=OTHER))
        seen = []
        publish = log._local.publish

        def published(log_end_offset: int) -> None:
            publish(log_end_offset)
            seen.append((log.log_end_offset, log.last_stable_offset))

        monkeypatch.setattr(log._local, "publish", published)
        log.append(sent(0, transactional=True))
        assert seen == [(4, 2)]


def test_transaction_that_begins_during_the_walk_is_not_taken_for_decided(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(directory) as log:
        log.append(sent(0, producer_id=OTHER))
        left = [sent(0, transactional=True)]
        segments = LiveSource.segments

        def then_append(self: LiveSource) -> tuple[LogSegment, ...]:
            found: tuple[LogSegment, ...] = segments.__get__(self)
            while left:
                log.append(left.pop())
            return found

        monkeypatch.setattr(LiveSource, "segments", property(then_append))
        assert log.transactions().last_stable_offset <= 2
        assert not left


def test_transactions_are_looked_for_only_in_what_was_appended_since(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    pread = LocalFile.pread

    def counted(file: LocalFile, size: int, *, position: int) -> bytes:
        data = pread(file, size, position=position)
        if file.path.endswith(".log"):
            sizes.append(len(data))
        return data

    monkeypatch.setattr(LocalFile, "pread", counted)
    with opened(directory) as log:
        for number in range(50):
            log.append(sent(2 * number, transactional=True))
            end(log, commit=number % 2 == 0)
            assert len(log.transactions().aborted) == (number + 1) // 2
            added = log.size_in_bytes
            if number == 25:
                log.roll()
        assert sum(sizes) < 3 * added


@pytest.mark.parametrize("seed", range(6))
def test_transactions_are_at_any_time_those_of_a_walk_over_all(directory: Path, seed: int) -> None:
    rng = random.Random(seed)
    sequences = {PRODUCER: 0, OTHER: 0}
    with opened(directory) as log:
        for _ in range(60):
            producer_id = rng.choice((PRODUCER, OTHER))
            action = rng.choice(["append", "append", "append", "end", "end", "roll", "cut", "delete"])
            if action == "append":
                log.append(sent(sequences[producer_id], producer_id=producer_id, transactional=True))
                sequences[producer_id] += 2
            elif action == "end":
                end(log, producer_id=producer_id, commit=rng.random() < 0.5)
            elif action == "roll":
                log.roll()
            elif rng.random() < 0.7:
                continue
            elif action == "delete":
                log.delete_records(rng.randint(log.log_start_offset, log.high_watermark))
            else:
                log.truncate_fully_and_start_at(rng.randint(0, 100))
                sequences = {PRODUCER: 0, OTHER: 0}
            found = log.transactions()
            with open_log(directory) as reader:
                assert found.aborted == reader.transactions().aborted
                assert found.last_stable_offset == reader.transactions().last_stable_offset


def test_transactions_of_a_log_that_was_cut_are_looked_for_anew(directory: Path) -> None:
    with opened(directory) as log:
        log.append(sent(0, transactional=True))
        end(log, commit=False)
        assert len(log.transactions().aborted) == 1
        log.truncate_to(0)
        log.append(sent(0, transactional=True))
        end(log, commit=True)
        assert log.transactions() == ((), 3)


def test_batches_without_a_producer_leave_no_trace(directory: Path) -> None:
    with opened(directory) as log:
        log.append(MemoryRecords(batch(0, 3)))
        assert len(log.producer_state) == 0
    assert (directory / "00000000000000000003.snapshot").stat().st_size == 10


def test_decided_transactions_are_decided_after_a_truncation_and_after_recovery(directory: Path) -> None:
    log = opened(directory)
    log.append(sent(0, transactional=True))
    end(log, commit=False)
    log.append(sent(0, 6, producer_id=OTHER))
    log.truncate_to(7)
    assert (log.log_end_offset, log.last_stable_offset) == (7, 7)
    log.append(sent(0, producer_id=OTHER))
    assert log.last_stable_offset == 9
    log.close()
    (directory.parent / ".kafka_cleanshutdown").unlink(missing_ok=True)
    for path in directory.glob("*.snapshot"):
        path.unlink()
    with opened(directory) as log:
        assert (log.log_end_offset, log.last_stable_offset) == (9, 9)


def test_producer_that_was_silent_too_long_is_forgotten_and_may_begin_anew(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(directory, producer_id_expiration_ms=1000) as log:
        log.append(sent(0, 2, producer_id=PRODUCER))
        assert log.remove_expired_producers() == 0
        with pytest.raises(OutOfOrderSequenceError):
            log.append(sent(5, 2, producer_id=PRODUCER))
        monkeypatch.setattr(EarlyEnv, "wall_clock_ms", lambda _: FIRST_TIMESTAMP_MS + 5000)
        assert log.remove_expired_producers() == 1
        log.append(sent(5, 2, producer_id=PRODUCER))
        assert log.log_end_offset == 4


def test_marker_at_the_high_watermark_decides_nothing(directory: Path) -> None:
    with opened(directory) as log:
        log.update_high_watermark(0)
        log.append(sent(0, transactional=True))
        log.append(sent(0, producer_id=OTHER))
        end(log, commit=True)
        log.update_high_watermark(4)
        assert log.last_stable_offset == log.transactions().last_stable_offset == 0
        assert committed(log) == []
        log.update_high_watermark(5)
        assert log.last_stable_offset == log.transactions().last_stable_offset == 5
        assert committed(log) == [0, 1, 2, 3]


def test_transaction_that_a_truncation_forgot_hides_nothing(directory: Path) -> None:
    with opened(directory) as log:
        log.append(sent(0, transactional=True))
        for sequence in (0, 2):
            log.append(sent(sequence, producer_id=OTHER))
        log.delete_records(2)
        assert (log.last_stable_offset, committed(log)) == (2, [])
        log.truncate_to(4)
        assert log.last_stable_offset == log.fetch(2, 1000, isolation="read_committed").last_stable_offset == 4
        assert committed(log) == [2, 3]


def test_truncation_forgets_only_the_producers_whose_records_were_all_deleted(directory: Path) -> None:
    with opened(directory) as log:
        log.append(sent(0))
        for sequence in (0, 2, 4):
            log.append(sent(sequence, producer_id=OTHER))
        log.delete_records(4)
        assert set(log.producer_state.active_producers) == {PRODUCER, OTHER}
        log.truncate_to(6)
        (left,) = log.producer_state.active_producers.values()
        assert (left.producer_id, left.last_sequence) == (OTHER, 3)


def test_empty_fetch_lists_no_aborted_transactions(directory: Path) -> None:
    with opened(directory) as log:
        log.append(sent(0, transactional=True))
        log.append(sent(0, producer_id=OTHER))
        log.update_high_watermark(4)
        end(log, commit=False)
        answer = log.fetch(4, 1000, isolation="read_committed")
        assert (answer.records, answer.aborted) == (b"", ())


def snapshots(directory: Path) -> list[int]:
    return sorted(int(path.stem) for path in directory.glob("*.snapshot"))


def test_truncation_takes_snapshots_as_a_broker_does(directory: Path) -> None:
    with opened(directory) as log:
        for number in range(4):
            log.append(sent(2 * number))
            if number < 3:
                log.roll()
        assert snapshots(directory) == [2, 4, 6]
        log.truncate_to(5)
        assert snapshots(directory) == [2, 4, 5]
        assert log.append(sent(4)).base_offset == 5
    assert snapshots(directory) == [2, 4, 5, 7]


def test_log_closed_after_a_truncation_inside_a_batch_leaves_no_snapshot_after_the_last_batch(directory: Path) -> None:
    def found() -> tuple[int, list[int], list[Damage]]:
        with open_log(directory) as log:
            return log.log_end_offset, snapshots(directory), list(verify(log))

    with opened(directory) as log:
        for number in range(3):
            log.append(sent(2 * number))
        log.truncate_to(5)
        assert log.log_end_offset == 5
    assert found() == (4, [4], [])
    with opened(directory) as log:
        assert log.append(sent(4)).base_offset == 4
        log.truncate_to(5)
        assert log.append(sent(4)).base_offset == 5
    assert found() == (7, [4, 5, 7], [])


def test_log_that_was_begun_again_leaves_no_empty_snapshot(directory: Path) -> None:
    with opened(directory) as log:
        log.append(sent(0))
        log.truncate_fully_and_start_at(9)
    assert snapshots(directory) == []


def test_deletion_removes_the_snapshots_at_the_segments_that_go(directory: Path) -> None:
    with opened(directory) as log:
        for number in range(3):
            log.append(sent(2 * number))
            log.roll()
        log.truncate_to(5)
        log.append(sent(4))
        log.roll()
        assert snapshots(directory) == [2, 4, 5, 7]
        log.delete_records(7)
        assert [segment.base_offset for segment in log.segments] == [7]
        assert snapshots(directory) == [5, 7]
