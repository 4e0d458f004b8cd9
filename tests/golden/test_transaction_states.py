"""Goal: what the coordinator makes of a state is, byte by byte, what a broker wrote next.
Method: each record of `__transaction_state` of a broker with transaction.version 2, made of the one before it."""

from __future__ import annotations

from dataclasses import replace

from kstore import Record, open_log
from kstore.coordinator.transaction.state import TransactionState, TransactionStatus, read_transaction_state
from kstore.record.schemas.topics import DecodedMessage, decode_transaction_record
from tests.golden.sets import GoldenPartition, golden_partitions
from tests.making.collecting import over

STATUS = TransactionStatus
PARTITIONS = [one for one in golden_partitions("main-4.4.0") if one.topic == "__transaction_state"]
VERSION = 2


def states(partition: GoldenPartition) -> list[tuple[Record, TransactionState]]:
    found = []
    for record in open_log(partition.directory).read():
        _, state = read_transaction_state(record.key, record.value)
        assert state is not None
        found.append((record, state))
    return found


def made_of(before: TransactionState | None, wanted: TransactionState) -> TransactionState:
    """What kstore makes of a state for the request that led to another one."""
    now_ms = wanted.last_update_ms
    if before is None:
        first = TransactionState.first(wanted.transactional_id, timeout_ms=wanted.timeout_ms, now_ms=now_ms)
        return replace(first, producer=wanted.producer, previous_producer_id=wanted.producer.producer_id)
    if wanted.status is STATUS.ONGOING:
        return before.with_partitions(wanted.partitions - before.partitions, now_ms, client_version=VERSION)
    if wanted.is_prepared:
        is_commit = wanted.status is STATUS.PREPARE_COMMIT
        return before.prepared(now_ms, is_commit=is_commit, client_version=VERSION)
    return before.completed(now_ms)


def sorted_value(record: tuple[bytes | None, bytes | None]) -> tuple[int, int, dict[str, object]]:
    """The fields of a record, with its partitions in order: a broker's is that of a hash table."""
    key, value = record
    decoded = decode_transaction_record(key, value).value
    assert isinstance(decoded, DecodedMessage)
    assert value is not None
    topics = decoded.fields["transactionPartitions"]
    if topics is not None:
        topics.sort(key=lambda topic: topic["topic"])
        for topic in topics:
            topic["partitionIds"].sort()
    return decoded.version, len(value), decoded.fields


@over("partition", PARTITIONS)
def test_each_state_of_a_broker_is_that_which_the_one_before_leads_to(partition: GoldenPartition) -> None:
    last: dict[str, TransactionState] = {}
    seen = set()
    for record, wanted in states(partition):
        made = made_of(last.get(wanted.transactional_id), wanted)
        written = made.to_record(version=1)
        assert made == replace(wanted, record_version=made.record_version), record.offset
        assert sorted_value(written) == sorted_value((record.key, record.value)), record.offset
        if len(wanted.partitions) <= 1:
            assert written == (record.key, record.value), record.offset
        seen.add(wanted.status)
        last[wanted.transactional_id] = wanted
    assert seen > {STATUS.EMPTY, STATUS.ONGOING, STATUS.PREPARE_COMMIT, STATUS.COMPLETE_COMMIT}
