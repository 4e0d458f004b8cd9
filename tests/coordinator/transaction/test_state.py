"""Goal: each request makes of the state of a transactional id what Kafka's coordinator makes of it.
Method: states in memory; no store, no clock."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kstore.coordinator.producer_ids import MAX_PRODUCER_EPOCH, ProducerIdAndEpoch
from kstore.coordinator.transaction.state import TransactionState, TransactionStatus, read_transaction_state
from kstore.errors import (
    InvalidPidMappingError,
    InvalidProducerEpochError,
    InvalidRecordError,
    InvalidTxnStateError,
    ProducerFencedError,
    TransactionStateError,
)
from kstore.record import ControlRecordType, control_record_type
from kstore.record.schemas.topics import DecodedMessage, decode_transaction_record, encode_transaction_record
from kstore.types import TopicPartition
from kstore.wire.protocol import TaggedField
from kstore.wire.schema import TAGGED_FIELDS

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
# Producer id 0 is one like any other.
PRODUCER = ProducerIdAndEpoch(0, 3)
EMPTY = TransactionState(transactional_id="id", producer=PRODUCER, timeout_ms=1000, last_update_ms=5)
ONGOING = EMPTY.with_partitions([T0], 100)


def test_first_partitions_begin_a_transaction_and_later_ones_keep_its_start() -> None:
    assert (ONGOING.status, ONGOING.partitions, ONGOING.start_ms) == (TransactionStatus.ONGOING, {T0}, 100)
    later = ONGOING.with_partitions([T1], 200)
    assert (later.partitions, later.start_ms, later.last_update_ms) == ({T0, T1}, 100, 200)
    assert later.with_partitions([T0], 300) is later


def test_next_transaction_begins_without_the_partitions_of_the_last_one() -> None:
    done = ONGOING.prepared(200, is_commit=True).completed(201)
    following = done.with_partitions([T1], 300)
    assert (following.partitions, following.start_ms) == ({T1}, 300)


@pytest.mark.parametrize("is_commit", [True, False])
def test_decision_keeps_the_partitions_until_their_markers_are_written(is_commit: bool) -> None:
    prepared = ONGOING.prepared(200, is_commit=is_commit)
    assert prepared.is_prepared
    assert prepared.partitions == {T0}
    (batch,) = prepared.marker(201, coordinator_epoch=7).batches()
    (record,) = batch.records()
    expected = ControlRecordType.COMMIT if is_commit else ControlRecordType.ABORT
    assert control_record_type(record, batch) is expected
    assert (batch.header.producer_id, batch.header.producer_epoch) == PRODUCER
    completed = prepared.completed(202)
    assert completed.status.name == ("COMPLETE_COMMIT" if is_commit else "COMPLETE_ABORT")
    assert not completed.is_prepared
    assert completed.partitions == frozenset()


@pytest.mark.parametrize(
    "state", [EMPTY, ONGOING.prepared(1, is_commit=True), ONGOING.prepared(1, is_commit=False).completed(2)]
)
def test_only_an_open_transaction_is_decided(state: TransactionState) -> None:
    with pytest.raises(TransactionStateError, match=f"found {state.status.name}"):
        state.prepared(3, is_commit=True)


def test_transaction_expires_after_its_timeout_and_not_at_it() -> None:
    assert not ONGOING.is_expired(1100)
    assert ONGOING.is_expired(1101)
    assert not EMPTY.is_expired(10**9)
    assert not ONGOING.prepared(200, is_commit=True).is_expired(10**9)


def test_append_is_for_the_current_producer_of_an_open_transaction_with_the_partition() -> None:
    ONGOING.check_append(PRODUCER, [T0])
    with pytest.raises(InvalidProducerEpochError, match="epoch 2 is no longer current"):
        ONGOING.check_append(PRODUCER._replace(epoch=2), [T0])
    with pytest.raises(InvalidTxnStateError, match="without t-1"):
        ONGOING.check_append(PRODUCER, [T0, T1])
    with pytest.raises(InvalidTxnStateError, match="found PREPARE_ABORT"):
        ONGOING.prepared(200, is_commit=False).check_append(PRODUCER, [T0])


def test_fenced_state_refuses_its_producer() -> None:
    fenced = ONGOING.fenced()
    assert fenced.producer == ProducerIdAndEpoch(0, 4)
    with pytest.raises(ProducerFencedError, match="producer 0 with epoch 3"):
        fenced.check_producer(PRODUCER)


def test_state_with_the_last_epoch_can_still_be_fenced_in_a_record() -> None:
    last = EMPTY.with_partitions([T0], 1)
    last = TransactionState(
        transactional_id="id",
        producer=ProducerIdAndEpoch(9, MAX_PRODUCER_EPOCH - 1),
        timeout_ms=1000,
        status=last.status,
        partitions=last.partitions,
        start_ms=1,
    )
    fenced = last.fenced()
    assert read_transaction_state(*fenced.to_record()) == ("id", fenced)
    following = fenced.prepared(2, is_commit=False).completed(3).initialized(4, timeout_ms=7)
    assert following.producer.epoch == 0
    assert following.producer.producer_id != 9


@pytest.mark.parametrize("status", list(TransactionStatus), ids=lambda status: status.name)
def test_state_is_read_back_from_its_record(status: TransactionStatus) -> None:
    partitions = frozenset() if status is TransactionStatus.EMPTY else frozenset({T0, T1, TopicPartition("a", 9)})
    state = TransactionState(
        transactional_id="id", producer=PRODUCER, timeout_ms=7, status=status, partitions=partitions, start_ms=3
    )
    assert read_transaction_state(*state.to_record()) == ("id", state)


def test_tombstone_deletes_an_id() -> None:
    key, _ = EMPTY.to_record()
    assert read_transaction_state(key, None) == ("id", None)


def test_record_with_an_unknown_status_is_refused() -> None:
    key, value = EMPTY.to_record()
    assert value is not None
    # Version, producer id, epoch and timeout come before the status.
    at = 2 + 8 + 2 + 4
    assert value[at] == TransactionStatus.EMPTY
    with pytest.raises(InvalidRecordError, match="expected 0 to 7, found 8") as raised:
        read_transaction_state(key, value[:at] + b"\x08" + value[at + 1 :])
    assert raised.value.found == 8


def record_of_a_broker(**tagged: Any) -> TransactionState:
    """A state as a broker with transaction.version 2 writes it."""
    fields = {
        "producerId": 9,
        "producerEpoch": 3,
        "transactionTimeoutMs": 7,
        "transactionStatus": int(TransactionStatus.ONGOING),
        "transactionPartitions": [{"topic": "t", "partitionIds": [0]}],
        "transactionLastUpdateTimestampMs": 1,
        "transactionStartTimestampMs": 1,
        "clientTransactionVersion": 2,
        **tagged,
    }
    state = read_transaction_state(*encode_transaction_record("id", fields, version=1))[1]
    assert state is not None
    return state


def written_fields(state: TransactionState) -> tuple[int, dict[str, object]]:
    value = decode_transaction_record(*state.to_record()).value
    assert isinstance(value, DecodedMessage)
    return value.version, dict(value.fields)


def test_a_state_that_is_ended_keeps_the_version_of_its_record_and_says_who_ended_it() -> None:
    state = record_of_a_broker(previousProducerId=4)
    for one in (state.fenced().prepared(5, is_commit=False), state.prepared(5, is_commit=True).completed(6)):
        version, fields = written_fields(one)
        assert (version, fields["previousProducerId"], fields.get("clientTransactionVersion", 0)) == (1, 9, 0)


def test_tagged_fields_of_a_later_kafka_are_kept() -> None:
    later = {TAGGED_FIELDS: [TaggedField(9, b"later")]}
    assert (
        written_fields(record_of_a_broker(**later).prepared(5, is_commit=False))[1][TAGGED_FIELDS]
        == later[TAGGED_FIELDS]
    )


def test_a_transaction_of_a_producer_of_kstore_does_not_raise_its_epoch_as_version_2_does() -> None:
    version, fields = written_fields(record_of_a_broker().with_partitions([T1], 4))
    assert (version, fields.get("clientTransactionVersion", 0)) == (1, 0)


def test_a_producer_with_its_last_epoch_goes_on_with_the_id_it_was_promised() -> None:
    done = record_of_a_broker(nextProducerId=77).prepared(5, is_commit=True).completed(6)
    assert done.producer == ProducerIdAndEpoch(77, 0)
    fields = written_fields(done)[1]
    assert (fields["previousProducerId"], fields.get("nextProducerId", -1)) == (9, -1)


def test_a_record_has_the_version_that_its_cluster_wants() -> None:
    assert EMPTY.record_version == 0
    value = decode_transaction_record(*EMPTY.to_record(version=1)).value
    assert isinstance(value, DecodedMessage)
    assert value.version == 1


BUMPED = ONGOING.prepared(200, is_commit=True, client_version=2)


def test_a_transaction_of_version_2_is_decided_with_the_next_epoch_and_its_markers_have_it() -> None:
    assert (BUMPED.producer, BUMPED.partitions, BUMPED.start_ms) == (ProducerIdAndEpoch(0, 4), {T0}, 100)
    (batch,) = BUMPED.marker(201, coordinator_epoch=7).batches()
    assert (batch.header.producer_id, batch.header.producer_epoch) == (0, 4)
    done = BUMPED.completed(202)
    assert (done.producer, done.status) == (ProducerIdAndEpoch(0, 4), TransactionStatus.COMPLETE_COMMIT)


def test_a_state_of_version_2_says_so_in_a_record_of_version_1() -> None:
    for one in (EMPTY.with_partitions([T0], 1, client_version=2), BUMPED, BUMPED.completed(202)):
        version, fields = written_fields(one)
        assert (version, fields["clientTransactionVersion"], fields["previousProducerId"]) == (1, 2, 0)
        assert read_transaction_state(*one.to_record()) == ("id", replace(one, record_version=1))
    version, fields = written_fields(BUMPED.completed(202).initialized(300, timeout_ms=9))
    assert (version, fields["producerEpoch"], fields["transactionStatus"]) == (1, 5, TransactionStatus.EMPTY)


@pytest.mark.parametrize("state", [EMPTY, BUMPED.completed(202)])
def test_version_2_aborts_without_a_transaction_and_raises_the_epoch(state: TransactionState) -> None:
    prepared = state.prepared(300, is_commit=False, client_version=2)
    assert prepared.producer == state.producer._replace(epoch=state.producer.epoch + 1)
    assert (prepared.partitions, prepared.start_ms) == (frozenset(), 300)
    assert written_fields(prepared)[1]["transactionPartitions"] == []
    with pytest.raises(TransactionStateError):
        state.prepared(300, is_commit=True, client_version=2)


@pytest.mark.parametrize("epoch", [MAX_PRODUCER_EPOCH - 2, MAX_PRODUCER_EPOCH - 1], ids=str)
def test_the_last_epoch_of_version_2_leads_to_another_producer_id(epoch: int) -> None:
    open_one = replace(ONGOING, producer=ProducerIdAndEpoch(9, epoch))
    prepared = open_one.prepared(200, is_commit=True, client_version=2)
    assert prepared.producer == ProducerIdAndEpoch(9, epoch + 1)
    assert prepared.was_ended_by(open_one.producer)
    done = prepared.completed(201)
    assert done.was_ended_by(open_one.producer)
    if epoch == MAX_PRODUCER_EPOCH - 2:
        assert done.producer == prepared.producer
        return
    next_id = prepared.next_producer_id
    assert written_fields(prepared)[1]["nextProducerId"] == next_id
    assert done.producer == ProducerIdAndEpoch(next_id, 0)
    fields = written_fields(done)[1]
    assert (fields["previousProducerId"], fields.get("nextProducerId", -1)) == (9, -1)


def test_only_a_request_that_ended_the_transaction_is_a_repeated_one() -> None:
    for one in (BUMPED, BUMPED.completed(202)):
        assert one.was_ended_by(PRODUCER)
        assert not one.was_ended_by(one.producer)
        assert not one.was_ended_by(PRODUCER._replace(epoch=2))
        assert not one.was_ended_by(PRODUCER._replace(producer_id=5))
    of_version_1 = ONGOING.prepared(200, is_commit=True).completed(201)
    fenced = record_of_a_broker().fenced().prepared(200, is_commit=False).completed(201)
    assert not of_version_1.was_ended_by(of_version_1.producer._replace(epoch=2))
    assert not fenced.was_ended_by(fenced.producer._replace(epoch=fenced.producer.epoch - 1))
    assert not BUMPED.completed(202).with_partitions([T0], 300, client_version=2).was_ended_by(PRODUCER)
    assert not BUMPED.completed(202).initialized(300, timeout_ms=9).was_ended_by(PRODUCER)


def test_a_producer_that_asks_for_its_next_epoch_again_is_told_the_same() -> None:
    following = EMPTY.initialized(6, timeout_ms=9, current=PRODUCER)
    assert following.is_next_of(PRODUCER)
    assert not following.is_next_of(following.producer)
    assert not following.with_partitions([T0], 7).is_next_of(PRODUCER)
    assert not EMPTY.initialized(6, timeout_ms=9).is_next_of(PRODUCER)
    used_up = replace(EMPTY, producer=ProducerIdAndEpoch(9, MAX_PRODUCER_EPOCH - 1))
    assert used_up.initialized(6, timeout_ms=9, current=used_up.producer).is_next_of(used_up.producer)


def test_another_producer_id_is_not_the_epoch_of_an_old_producer() -> None:
    with pytest.raises(InvalidPidMappingError, match="producer 5 is not its producer"):
        ONGOING.check_producer(ProducerIdAndEpoch(5, 3))
    with pytest.raises(InvalidPidMappingError):
        ONGOING.check_append(ProducerIdAndEpoch(5, 3), [T0])


def test_an_id_is_unused_when_nothing_was_heard_of_it_and_no_transaction_is_open() -> None:
    assert EMPTY.is_unused(15, for_ms=10)
    assert not EMPTY.is_unused(14, for_ms=10)
    assert BUMPED.completed(202).is_unused(300, for_ms=10)
    for one in (ONGOING, BUMPED):
        assert not one.is_unused(10**9, for_ms=10)
