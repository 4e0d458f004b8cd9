"""Goal: the topic of transactional ids says of each id what was appended last.
Method: roots with a `__transaction_state` of two partitions, which are also opened for reading only."""

from __future__ import annotations

from pathlib import Path

import pytest

from kstore import open_store
from kstore.coordinator.producer_ids import ProducerIdAndEpoch
from kstore.coordinator.store import ClusterFacts
from kstore.coordinator.transaction.log import TransactionLog, states_in
from kstore.coordinator.transaction.state import TransactionState
from kstore.errors import InvalidRecordError
from kstore.record import MemoryRecordsBuilder
from kstore.record.schemas.topics import coordinator_partition
from kstore.record.validation import AppendOrigin
from kstore.store.store import WritableStore
from kstore.types import TRANSACTION_STATE_TOPIC, TopicPartition

T0 = TopicPartition("t", 0)


def state_of(name: str) -> TransactionState:
    return TransactionState(transactional_id=name, producer=ProducerIdAndEpoch(0, 0), timeout_ms=1000, last_update_ms=1)


def append(store: WritableStore, number: int, key: bytes, value: bytes | None) -> None:
    builder = MemoryRecordsBuilder()
    builder.append(timestamp_ms=1, key=key, value=value)
    store.log(TRANSACTION_STATE_TOPIC, number).append(builder.build(), origin=AppendOrigin.COORDINATOR)


def test_last_state_of_each_id_is_read_from_a_root_that_is_only_read(tmp_path: Path) -> None:
    names = ["a", "b", "c", "d"]
    with open_store(tmp_path / "root", "a") as store:
        log = TransactionLog(store, partition_count=2)
        for name in names:
            log.append(state_of(name), ack="written")
        last = state_of("a").with_partitions([T0], 2)
        log.append(last, ack="written")
    with open_store(tmp_path / "root") as reader:
        by_number = {number: states_in(reader.log(TRANSACTION_STATE_TOPIC, number)) for number in (0, 1)}
    for name in names:
        expected = last if name == "a" else state_of(name)
        assert by_number[coordinator_partition(name, partition_count=2)].pop(name) == expected
    assert by_number == {0: {}, 1: {}}


def test_id_that_a_tombstone_deleted_has_no_state(tmp_path: Path) -> None:
    with open_store(tmp_path / "root", "a") as store:
        log = TransactionLog(store, partition_count=1)
        for name in ("gone", "kept"):
            log.append(state_of(name), ack="written")
        key, _ = state_of("gone").to_record()
        append(store, 0, key, None)
        assert states_in(store.log(TRANSACTION_STATE_TOPIC)) == {"kept": state_of("kept")}


def test_malformed_state_is_refused_and_a_record_of_another_kind_is_passed_over(tmp_path: Path) -> None:
    with open_store(tmp_path / "root", "a") as store:
        TransactionLog(store, partition_count=1).append(state_of("a"), ack="written")
        append(store, 0, b"\0\x63", b"of a later Kafka")
        assert states_in(store.log(TRANSACTION_STATE_TOPIC)) == {"a": state_of("a")}
        key, _ = state_of("b").to_record()
        append(store, 0, key, b"\0\0\1")
        with pytest.raises(InvalidRecordError):
            states_in(store.log(TRANSACTION_STATE_TOPIC))


@pytest.mark.parametrize(("level", "version"), [(None, 0), (0, 0), (1, 1), (2, 1)])
def test_states_have_the_version_that_the_transaction_version_of_the_cluster_asks_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: int | None, version: int
) -> None:
    features = {} if level is None else {"transaction.version": level}
    monkeypatch.setattr(WritableStore, "cluster_facts", lambda _: ClusterFacts(features=features))
    with open_store(tmp_path / "root", "a") as store:
        TransactionLog(store, partition_count=1).append(state_of("a"), ack="written")
        (record,) = store.log(TRANSACTION_STATE_TOPIC).read()
    assert record.value is not None
    assert int.from_bytes(record.value[:2], "big") == version
