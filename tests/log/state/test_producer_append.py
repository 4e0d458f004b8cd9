"""Goal: batches of a producer are taken, refused or answered as duplicates by Kafka's rules of epochs and sequences.
Method: tables of what the log knows, the batch and the verdict, per origin; marker batches as a builder writes them."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from kstore.config import LogConfig
from kstore.errors import (
    CorruptRecordError,
    InvalidProducerEpochError,
    InvalidRecordError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
    ProducerStateError,
    TransactionCoordinatorFencedError,
)
from kstore.log.state.producer_append import (
    BATCHES_KEPT,
    BatchMetadata,
    CompletedTransaction,
    ProducerAppendInfo,
    ProducerStateBatch,
    ProducerStateEntry,
    TransactionMarker,
    VerificationStateEntry,
    producer_batch,
    producer_batches_in,
    read_marker,
)
from kstore.record import (
    AppendOrigin,
    ControlRecordType,
    EndTransactionMarker,
    RecordBatch,
    with_end_transaction_marker,
)
from kstore.types import TopicPartition
from tests.making import batches as builders
from tests.reference.codec import write_batch

TOPIC_PARTITION = TopicPartition("t", 3)
PRODUCER = 900
MAX_SEQUENCE = 2**31 - 1
ABORT = TransactionMarker(is_abort=True, coordinator_epoch=5, timestamp_ms=77)
CLIENT, COORDINATOR, REPLICATION = AppendOrigin.CLIENT, AppendOrigin.COORDINATOR, AppendOrigin.REPLICATION


def data(sequence: int, count: int = 1, *, epoch: int = 2, offset: int = 50, **options: Any) -> ProducerStateBatch:
    return ProducerStateBatch(PRODUCER, epoch, sequence, offset, offset + count - 1, 1000 + offset, **options)


def marker(*, epoch: int = 2, offset: int = 60, content: TransactionMarker | None = ABORT) -> ProducerStateBatch:
    return ProducerStateBatch(PRODUCER, epoch, -1, offset, offset, 77, True, True, content)


def known(*batches: ProducerStateBatch, origin: AppendOrigin = CLIENT) -> ProducerStateEntry:
    info = ProducerAppendInfo(TOPIC_PARTITION, PRODUCER, current=None, origin=origin)
    for batch in batches:
        info.append(batch)
    return info.entry


def append_info(
    current: ProducerStateEntry | None, *, origin: AppendOrigin = CLIENT, **options: Any
) -> ProducerAppendInfo:
    return ProducerAppendInfo(TOPIC_PARTITION, PRODUCER, current=current, origin=origin, **options)


UP_TO_9 = known(data(0, 10, offset=0))
AT_THE_END = known(data(MAX_SEQUENCE, 1))
AFTER_MARKER = known(data(0, 10, offset=0, is_transactional=True), marker(epoch=3, offset=10))
EXPIRED_EPOCH = ProducerStateEntry(PRODUCER)

SEQUENCES: list[object] = [
    pytest.param(None, data(0), True, id="unknown-producer-starts-at-0"),
    pytest.param(None, data(17), True, id="unknown-producer-starts-anywhere"),
    pytest.param(EXPIRED_EPOCH, data(17), True, id="no-epoch-is-known"),
    pytest.param(UP_TO_9, data(10), True, id="next"),
    pytest.param(UP_TO_9, data(11), False, id="gap"),
    pytest.param(UP_TO_9, data(9), False, id="seen"),
    pytest.param(UP_TO_9, data(0), False, id="start-over-in-the-same-epoch"),
    pytest.param(UP_TO_9, data(0, epoch=3), True, id="new-epoch-starts-at-0"),
    pytest.param(UP_TO_9, data(0, epoch=9), True, id="much-newer-epoch-starts-at-0"),
    pytest.param(UP_TO_9, data(1, epoch=3), False, id="new-epoch-starts-at-1"),
    pytest.param(UP_TO_9, data(10, epoch=3), False, id="new-epoch-goes-on"),
    pytest.param(AT_THE_END, data(0), True, id="comes-round-to-0"),
    pytest.param(AT_THE_END, data(1), False, id="comes-round-with-a-gap"),
    pytest.param(AFTER_MARKER, data(0, epoch=3), True, id="marker-raised-the-epoch"),
    pytest.param(AFTER_MARKER, data(10, epoch=3), False, id="marker-raised-the-epoch-and-it-goes-on"),
]


@pytest.mark.parametrize(("current", "batch", "is_taken"), SEQUENCES)
def test_sequence_of_a_client_follows_its_last_one(
    current: ProducerStateEntry | None, batch: ProducerStateBatch, is_taken: bool
) -> None:
    info = append_info(current)
    if is_taken:
        info.append(batch)
        assert info.entry.last_sequence == batch.last_sequence
        return
    with pytest.raises(OutOfOrderSequenceError, match=f"found {batch.base_sequence}") as caught:
        info.append(batch)
    assert (caught.value.producer_id, caught.value.producer_epoch) == (PRODUCER, batch.producer_epoch)
    assert "t-3" in str(caught.value)


@pytest.mark.parametrize("origin", [COORDINATOR, REPLICATION])
def test_only_the_sequence_of_a_client_is_checked(origin: AppendOrigin) -> None:
    info = append_info(UP_TO_9, origin=origin)
    info.append(data(500))
    assert info.entry.last_sequence == 500


def test_batches_of_one_append_follow_each_other() -> None:
    info = append_info(UP_TO_9)
    info.append(data(10, 5, offset=50))
    info.append(data(15, 5, offset=55))
    with pytest.raises(OutOfOrderSequenceError, match="expected sequence 20"):
        info.append(data(15, 5, offset=60))


@pytest.mark.parametrize(("sequence", "is_taken"), [(4, True), (5, True), (6, False)])
def test_sequence_is_at_most_the_lowest_that_was_verified(sequence: int, is_taken: bool) -> None:
    info = append_info(None, verification=VerificationStateEntry(producer_epoch=0, lowest_sequence=5, started_ms=0))
    if is_taken:
        info.append(data(sequence))
    else:
        with pytest.raises(OutOfOrderSequenceError, match="the lowest that was verified"):
            info.append(data(sequence))


@pytest.mark.parametrize("batch", [data(10, epoch=1), marker(epoch=1)], ids=["data", "marker"])
def test_older_epoch_is_refused_unless_the_leader_took_it(
    batch: ProducerStateBatch, caplog: pytest.LogCaptureFixture
) -> None:
    for origin in (CLIENT, COORDINATOR):
        with pytest.raises(InvalidProducerEpochError, match="at least 2, found 1"):
            append_info(UP_TO_9, origin=origin).append(batch)
    info = append_info(UP_TO_9, origin=REPLICATION)
    with caplog.at_level(logging.WARNING, logger="kstore.log"):
        info.append(batch)
    assert info.entry.producer_epoch == 1
    assert "at least 2, found 1" in caplog.text


@pytest.mark.parametrize(("coordinator_epoch", "is_taken"), [(4, False), (5, True), (6, True)])
def test_marker_of_a_replaced_coordinator_is_fenced(coordinator_epoch: int, is_taken: bool) -> None:
    current = known(marker())
    late = marker(content=ABORT._replace(coordinator_epoch=coordinator_epoch))
    if not is_taken:
        with pytest.raises(TransactionCoordinatorFencedError, match="at least 5, found 4"):
            append_info(current, origin=COORDINATOR).append(late)
    info = append_info(current, origin=COORDINATOR if is_taken else REPLICATION)
    info.append(late)
    assert info.entry.coordinator_epoch == coordinator_epoch


@pytest.mark.parametrize("origin", AppendOrigin)
def test_other_data_inside_a_transaction_is_refused(origin: AppendOrigin) -> None:
    current = known(data(0, 10, offset=0, is_transactional=True))
    with pytest.raises(InvalidTxnStateError, match="open since offset 0"):
        append_info(current, origin=origin).append(data(10))
    assert current.last_sequence == 9


def test_replay_takes_what_an_append_would_refuse(caplog: pytest.LogCaptureFixture) -> None:
    current = known(data(0, 10, offset=0, is_transactional=True))
    info = append_info(current, origin=REPLICATION, refuses=False)
    with caplog.at_level(logging.WARNING, logger="kstore.log"):
        info.append(data(10))
    assert info.entry.last_sequence == 10
    assert info.entry.current_txn_first_offset == 0
    assert "because it is in the log already" in caplog.text


def test_transaction_runs_from_its_first_data_to_its_marker() -> None:
    info = append_info(None)
    assert info.append(data(0, 5, offset=10, is_transactional=True)) is None
    assert info.append(data(5, 5, offset=20, is_transactional=True)) is None
    assert info.started == (10,)
    assert info.append(marker(offset=30)) == CompletedTransaction(PRODUCER, 10, 30, is_aborted=True)
    assert not info.entry.has_open_transaction
    assert (info.entry.coordinator_epoch, info.entry.last_timestamp_ms) == (5, 77)
    assert info.entry.last_sequence == 9


@pytest.mark.parametrize("content", [None, ABORT], ids=["emptied-control-batch", "transaction-without-data"])
def test_marker_that_ends_nothing_completes_nothing(content: TransactionMarker | None) -> None:
    info = append_info(UP_TO_9)
    assert info.append(marker(content=content)) is None
    assert info.entry.coordinator_epoch == (-1 if content is None else 5)


def test_emptied_control_batch_leaves_a_transaction_open() -> None:
    info = append_info(known(data(0, 10, offset=0, is_transactional=True)))
    info.append(marker(epoch=9, content=None))
    assert (info.entry.producer_epoch, info.entry.current_txn_first_offset) == (2, 0)


def test_five_batches_are_kept_of_one_epoch() -> None:
    info = append_info(None)
    for number in range(BATCHES_KEPT + 2):
        info.append(data(number * 10, 10, offset=number * 10))
    kept = info.entry.batches
    assert [one.first_sequence for one in kept] == [20, 30, 40, 50, 60]
    assert kept[0] == BatchMetadata(29, 29, 9, 1020)
    info.append(data(0, 3, epoch=3, offset=100))
    assert info.entry.batches == (BatchMetadata(2, 102, 2, 1100),)


DUPLICATES: list[object] = [
    pytest.param(data(10, 10), 0, id="oldest-kept"),
    pytest.param(data(50, 10), 4, id="newest"),
    pytest.param(data(0, 10), None, id="forgotten"),
    pytest.param(data(10, 9), None, id="shorter"),
    pytest.param(data(10, 11), None, id="longer"),
    pytest.param(data(11, 9), None, id="same-end"),
    pytest.param(data(60, 10), None, id="next"),
    pytest.param(data(10, 10, epoch=3), None, id="other-epoch"),
    pytest.param(ProducerStateBatch(PRODUCER, 2, -1, 50, 59, 0), None, id="without-sequence"),
]


@pytest.mark.parametrize(("batch", "slot"), DUPLICATES)
def test_duplicate_has_the_same_first_and_last_sequence(batch: ProducerStateBatch, slot: int | None) -> None:
    current = known(*(data(number * 10, 10, offset=number * 10) for number in range(6)))
    found = current.find_duplicate(batch)
    assert found == (None if slot is None else current.batches[slot])


def test_duplicate_is_found_where_sequences_come_round() -> None:
    current = known(data(MAX_SEQUENCE - 1, 4, offset=7))
    assert current.last_sequence == 1
    found = current.find_duplicate(data(MAX_SEQUENCE - 1, 4))
    assert found is not None
    assert (found.first_offset, found.last_offset, found.first_sequence) == (7, 10, MAX_SEQUENCE - 1)


def test_snapshot_keeps_the_last_batch() -> None:
    current = known(data(0, 10, offset=0), data(10, 5, offset=10, is_transactional=True))
    entry = current.snapshot_entry()
    assert entry == (PRODUCER, 2, 14, 14, 4, 1010, -1, 10)
    loaded = ProducerStateEntry.of_snapshot(entry)
    assert loaded.batches == current.batches[-1:]
    assert loaded.snapshot_entry() == entry


def test_snapshot_of_a_producer_without_batches_has_none() -> None:
    entry = AFTER_MARKER.snapshot_entry()
    assert entry == (PRODUCER, 3, -1, -1, 0, 77, 5, -1)
    assert ProducerStateEntry.of_snapshot(entry).batches == ()


def test_errors_are_refusals_of_an_append() -> None:
    for kind in (InvalidProducerEpochError, OutOfOrderSequenceError, InvalidTxnStateError):
        assert issubclass(kind, ProducerStateError)


@pytest.mark.parametrize("control_type", [ControlRecordType.ABORT, ControlRecordType.COMMIT])
def test_marker_is_read_from_its_batch(control_type: ControlRecordType) -> None:
    records = with_end_transaction_marker(
        EndTransactionMarker(control_type=control_type, coordinator_epoch=12),
        producer_id=PRODUCER,
        producer_epoch=3,
        offset=70,
        timestamp_ms=88,
    )
    (batch,) = records.batches()
    is_abort = control_type is ControlRecordType.ABORT
    assert producer_batch(batch) == ProducerStateBatch(
        PRODUCER, 3, -1, 70, 70, 88, True, True, TransactionMarker(is_abort, 12, 88)
    )


def test_control_record_of_another_kind_is_no_marker() -> None:
    cut_off = write_batch([builders.record(3, b"\0\0\0", b"\0\0\0\1")], is_control=True, producer_id=PRODUCER)
    leader_change = write_batch(
        [builders.record(3, b"\0\0\0\0\0\1\1\1\0", b"\0\0\0\2")], is_control=True, producer_id=PRODUCER
    )
    unknown = write_batch([builders.record(3, b"x", b"\0\0\0\x63")], is_control=True, producer_id=PRODUCER)
    assert read_marker(RecordBatch(unknown)) is None
    assert read_marker(RecordBatch(leader_change)) is None
    with pytest.raises(InvalidRecordError):
        read_marker(RecordBatch(cut_off))


def test_batches_without_a_producer_are_left_out() -> None:
    plain, ours = builders.batch(0, 3), builders.batch(3, 2, producer_id=PRODUCER, producer_epoch=1, base_sequence=8)
    assert producer_batches_in(plain + ours, config=LogConfig()) == [
        ProducerStateBatch(PRODUCER, 1, 8, 3, 4, RecordBatch(ours).max_timestamp_ms)
    ]


def test_batches_in_memory_are_those_one_by_one() -> None:
    marker_batch = bytes(
        with_end_transaction_marker(
            EndTransactionMarker(control_type=ControlRecordType.ABORT, coordinator_epoch=12),
            producer_id=PRODUCER,
            producer_epoch=3,
            offset=8,
            timestamp_ms=88,
        )
    )
    one_by_one = [
        builders.batch(0, 3),
        builders.batch(3, 2, producer_id=PRODUCER, producer_epoch=3, base_sequence=8, is_transactional=True),
        builders.batch(5, 3),
        marker_batch,
    ]
    data_of_all = b"".join(one_by_one)
    expected = [producer_batch(one) for one in map(RecordBatch, one_by_one) if one.header.producer_id >= 0]
    assert len(expected) == 2
    assert expected[1].marker == TransactionMarker(is_abort=True, coordinator_epoch=12, timestamp_ms=88)
    for records in (data_of_all, memoryview(data_of_all)):
        assert producer_batches_in(records, config=LogConfig()) == expected
    with pytest.raises(CorruptRecordError):
        producer_batches_in(data_of_all + b"\0" * 61, config=LogConfig())
