"""Goal: a log answers idempotent producers and transactions as a broker does, also after it was cut or opened anew.
Method: batches of the reference codec with producer state, end markers, and what readers of both isolations get."""

from __future__ import annotations

from pathlib import Path

import pytest

from kstore.config import LogConfig
from kstore.errors import InvalidProducerEpochError, InvalidTxnStateError, OutOfOrderSequenceError
from kstore.log.files.names import CLEAN_SHUTDOWN_FILE
from kstore.log.write.writable_log import WritableLog
from kstore.record import AppendOrigin, ControlRecordType, EndTransactionMarker, MemoryRecords
from kstore.record.builder import with_end_transaction_marker
from kstore.store.opening import open_log
from tests.making.batches import batch
from tests.making.messages import packed_entry

# Producers expire by the timestamps of their records, and those of the reference are years old.
REMEMBERS = LogConfig(producer_id_expiration_ms=2**63 - 1)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "t-0"


def sent(count: int, sequence: int, *, producer_id: int = 7, epoch: int = 0, in_txn: bool = False) -> MemoryRecords:
    data = batch(
        0, count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, is_transactional=in_txn
    )
    return MemoryRecords(data)


def message(offset: int) -> bytes:
    return packed_entry(b"v", b"k", offset=offset, magic=0)


def end_transaction(log: WritableLog, *, producer_id: int = 7, aborts: bool) -> int:
    kind = ControlRecordType.ABORT if aborts else ControlRecordType.COMMIT
    marker = with_end_transaction_marker(
        EndTransactionMarker(control_type=kind, coordinator_epoch=0),
        timestamp_ms=1,
        producer_id=producer_id,
        producer_epoch=0,
    )
    return log.append(marker, origin=AppendOrigin.COORDINATOR).last_offset


def committed(log: WritableLog) -> list[int]:
    return [record.offset for record in log.read(isolation="read_committed")]


@pytest.mark.parametrize("is_reopened", [False, True], ids=["same log", "opened anew"])
def test_batch_that_was_sent_before_gets_its_old_offsets(directory: Path, is_reopened: bool) -> None:
    log = open_log(directory, "a", REMEMBERS)
    log.append(sent(3, 0))
    first = log.append(sent(2, 3))
    if is_reopened:
        log.close()
        log = open_log(directory, "a", REMEMBERS)
    again = log.append(sent(2, 3))
    assert again.is_duplicate
    assert (again.base_offset, again.last_offset) == (first.base_offset, first.last_offset) == (3, 4)
    assert log.log_end_offset == 5
    assert log.append(sent(1, 5)).base_offset == 5
    log.close()


@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
def test_batch_that_was_sent_before_gets_its_old_times(directory: Path, kind: str) -> None:
    config = LogConfig(producer_id_expiration_ms=2**63 - 1, message_timestamp_type=kind)
    with open_log(directory, "a", config) as log:
        first, again = log.append(sent(3, 0)), log.append(sent(3, 0))
        assert again.is_duplicate
        assert (again.max_timestamp_ms, again.log_append_time_ms) == (first.max_timestamp_ms, first.log_append_time_ms)
        assert (first.log_append_time_ms == -1) == (kind == "CreateTime")


@pytest.mark.parametrize(
    ("records", "kind"),
    [
        pytest.param(sent(1, 9, epoch=2), OutOfOrderSequenceError, id="sequence with a gap"),
        pytest.param(sent(1, 1, epoch=4), OutOfOrderSequenceError, id="new epoch not from 0"),
        pytest.param(sent(1, 3, epoch=1), InvalidProducerEpochError, id="older epoch"),
    ],
)
def test_batch_that_does_not_follow_is_refused(directory: Path, records: MemoryRecords, kind: type[Exception]) -> None:
    with open_log(directory, "a") as log:
        log.append(sent(3, 0, epoch=2))
        with pytest.raises(kind):
            log.append(records)
        assert log.log_end_offset == 3
        assert log.append(sent(1, 3, epoch=2)).base_offset == 3


def test_open_transaction_holds_back_committed_readers(directory: Path) -> None:
    with open_log(directory, "a") as log:
        log.append(sent(2, 0, producer_id=1))
        log.append(sent(2, 0, in_txn=True))
        log.append(sent(2, 2, producer_id=1))
        assert (log.last_stable_offset, log.log_end_offset) == (2, 6)
        assert committed(log) == [0, 1]
        end_transaction(log, aborts=False)
        assert log.last_stable_offset == log.log_end_offset == 7
        assert committed(log) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("is_reopened", [False, True], ids=["same log", "opened anew"])
def test_aborted_records_are_left_out_and_listed(directory: Path, is_reopened: bool) -> None:
    config = LogConfig(segment_bytes=400)
    log = open_log(directory, "a", config)
    log.append(sent(2, 0, in_txn=True))
    log.append(sent(2, 0, producer_id=1))
    marker = end_transaction(log, aborts=True)
    log.append(sent(2, 2, in_txn=True))
    end_transaction(log, aborts=False)
    if is_reopened:
        log.close()
        log = open_log(directory, "a", config)
    assert committed(log) == [2, 3, 5, 6]
    found = log.fetch(0, 10_000, isolation="read_committed")
    assert [tuple(one) for one in found.aborted] == [(7, 0, marker)]
    assert found.last_stable_offset == log.log_end_offset
    log.close()
    assert [path.stat().st_size for path in directory.glob("*.txnindex")] == [34]


def test_other_data_in_a_transaction_is_refused(directory: Path) -> None:
    with open_log(directory, "a") as log:
        log.append(sent(1, 0, in_txn=True))
        with pytest.raises(InvalidTxnStateError):
            log.append(sent(1, 1))
        assert log.log_end_offset == 1


def test_cut_takes_back_an_abort(directory: Path) -> None:
    with open_log(directory, "a") as log:
        log.append(sent(2, 0, in_txn=True))
        marker = end_transaction(log, aborts=True)
        log.truncate_to(marker)
        assert (log.last_stable_offset, committed(log)) == (0, [])
        end_transaction(log, aborts=False)
        assert committed(log) == [0, 1]
        assert log.fetch(0, 10_000, isolation="read_committed").aborted == ()


def test_cut_forgets_producers_whose_records_are_deleted_as_brokers_do_and_loading_does_not(directory: Path) -> None:
    with open_log(directory, "a", REMEMBERS) as log:
        log.append(sent(3, 0))
        log.roll()
        log.append(sent(2, 0, producer_id=8))
        log.append(sent(2, 2, producer_id=8))
        log.delete_records(3)
    with open_log(directory, "a", REMEMBERS) as log:
        assert (log.log_start_offset, set(log.producer_state.active_producers)) == (3, {7, 8})
        log.truncate_to(5)
        assert set(log.producer_state.active_producers) == {8}
    with open_log(directory, "a", REMEMBERS) as log:
        assert set(log.producer_state.active_producers) == {8}


@pytest.mark.parametrize("end", [batch(3, 2), message(3) + message(4)], ids=["magic 2", "magic 0"])
def test_recovery_keeps_the_producers_of_a_segment_that_ends_below_and_above_the_log_start(
    directory: Path, end: bytes
) -> None:
    """A broker forgets them if the log start is among messages of magic 0 or 1 (docs/durability.md)."""
    with open_log(directory, "a", REMEMBERS) as log:
        log.append(sent(3, 0))
        log.append_as_follower(MemoryRecords(end))
        log.delete_records(4)
    (directory.parent / CLEAN_SHUTDOWN_FILE).unlink()
    with open_log(directory, "a", REMEMBERS) as log:
        assert (log.log_start_offset, log.log_end_offset) == (4, 5)
        assert set(log.producer_state.active_producers) == {7}
        assert log.append(sent(3, 0)).is_duplicate
