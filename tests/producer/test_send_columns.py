"""Goal: send_columns() brings all rows into the store, or says which it could not bring, inside of a transaction too.
Method: columns of Python values into real stores in a temporary folder; what was written is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

import numpy as np
import pytest

from kstore.errors import (
    BufferExhaustedError,
    KStoreError,
    ProducerClosedError,
    RecordTooLargeError,
    TransactionStateError,
    UnknownTopicOrPartitionError,
)
from kstore.producer import Producer, partition_for_key
from kstore.record.packing import BinaryColumn, RecordColumns
from kstore.store.store import WritableStore

TOPIC = "topic"
WAIT_S = 60
VALUES = [b"%05d" % number + bytes(95) for number in range(1000)]
BATCH_BYTES = 1024
MEMORY = 8 * BATCH_BYTES


def column(values: Sequence[bytes]) -> BinaryColumn:
    return BinaryColumn(np.array([0, *accumulate(map(len, values))], dtype=np.int32), b"".join(values))


def rows(values: Sequence[bytes], keys: Sequence[bytes] | None = None) -> RecordColumns:
    return RecordColumns(len(values), 5, key=None if keys is None else column(keys), value=column(values))


def values_of(store: WritableStore, partition: int, **how: Any) -> list[bytes | None]:
    return [record.value for record in store.log(TOPIC, partition).read(**how)]


def begun(store: WritableStore, **settings: Any) -> Producer:
    producer = Producer(store, transactional_id="id", batch_size=BATCH_BYTES, buffer_memory=MEMORY, **settings)
    producer.init_transactions()
    producer.begin_transaction()
    return producer


def test_rows_are_where_the_future_says_and_their_keys_ask(store: WritableStore) -> None:
    keys = [b"%d" % (number % 10) for number in range(len(VALUES))]
    with Producer(store, batch_size=BATCH_BYTES) as producer:
        future = producer.send_columns(TOPIC, rows(VALUES, keys))
        batches = future.result(WAIT_S)
    for partition in range(3):
        expected = [value for key, value in zip(keys, VALUES, strict=True) if partition_for_key(key, 3) == partition]
        assert values_of(store, partition) == expected
        counts = [batch.record_count for batch in batches if batch.partition == partition]
        offsets = [batch.base_offset for batch in batches if batch.partition == partition]
        assert offsets == [0, *accumulate(counts)][:-1]
        assert sum(counts) == len(expected)


@pytest.mark.parametrize(
    ("topic", "partition", "values", "error"),
    [
        ("other", None, VALUES, UnknownTopicOrPartitionError),
        (TOPIC, 3, VALUES, UnknownTopicOrPartitionError),
        (TOPIC, -1, VALUES, ValueError),
        (TOPIC, 0, [bytes(2 * MEMORY)], RecordTooLargeError),
    ],
    ids=["topic", "partition", "negative", "too large"],
)
def test_what_can_not_be_sent_at_all_is_raised(
    store: WritableStore, topic: str, partition: int | None, values: list[bytes], error: type[Exception]
) -> None:
    with Producer(store, buffer_memory=MEMORY, batch_size=BATCH_BYTES) as producer:
        with pytest.raises(error):
            producer.send_columns(topic, rows(values), partition=partition)
        assert producer.metrics()["buffer-available-bytes"] == MEMORY
    with pytest.raises(ProducerClosedError):
        producer.send_columns(TOPIC, rows(VALUES))


def test_rows_outside_of_a_transaction_are_refused(store: WritableStore) -> None:
    with Producer(store, transactional_id="id") as producer:
        producer.init_transactions()
        with pytest.raises(TransactionStateError):
            producer.send_columns(TOPIC, rows(VALUES))


@pytest.mark.parametrize("partition", [0, None], ids=["given", "chosen"])
def test_transaction_takes_more_rows_than_there_is_memory(store: WritableStore, partition: int | None) -> None:
    with begun(store) as producer:
        future = producer.send_columns(TOPIC, rows(VALUES), partition=partition)
        producer.commit_transaction()
        assert sum(batch.record_count for batch in future.result(0)) == len(VALUES)
    found = [value for number in range(3) for value in values_of(store, number, isolation="read_committed")]
    assert sorted(map(str, found)) == sorted(map(str, VALUES))


class Reader:
    """Arrow data in several parts, in place of a RecordBatchReader."""

    def __init__(self, *parts: RecordColumns) -> None:
        self.parts = parts

    def __call__(self, *_: object, **__: object) -> Iterator[RecordColumns]:
        return iter(self.parts)


@pytest.fixture
def two_parts(monkeypatch: pytest.MonkeyPatch) -> Reader:
    reader = Reader(rows(VALUES), rows([b"behind"]))
    monkeypatch.setattr("kstore.producer.producer.record_columns_of", reader)
    return reader


def fill_up(producer: Producer, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Send parts of which only the first batches find memory, since the sender stands still and nobody waits for it."""
    with monkeypatch.context() as patch:
        patch.setattr(producer, "config", replace(producer.config, max_block_ms=0))
        patch.setattr(type(producer._sender), "run_once", lambda _: 1)
        return producer.send_columns(TOPIC, None, partition=0)


def test_rows_behind_those_that_found_no_memory_are_not_sent(
    store: WritableStore, two_parts: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Producer(store, batch_size=BATCH_BYTES, buffer_memory=MEMORY) as producer:
        future = fill_up(producer, monkeypatch)
        producer.flush(WAIT_S)
        assert isinstance(future.exception(WAIT_S), BufferExhaustedError)
        sent = sum(batch.record_count for batch, error in future.outcomes() if error is None)
    assert 0 < sent < len(VALUES)
    assert values_of(store, 0) == VALUES[:sent]


def test_transaction_of_whose_rows_only_some_were_sent_is_not_committed(
    store: WritableStore, two_parts: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = begun(store)
    future = fill_up(producer, monkeypatch)
    with pytest.raises(KStoreError, match="no memory"):
        producer.commit_transaction()
    producer.abort_transaction()
    assert isinstance(future.exception(WAIT_S), KStoreError)
    producer.begin_transaction()
    producer.send(TOPIC, b"later", partition=0)
    producer.commit_transaction()
    producer.close()
    assert values_of(store, 0, isolation="read_committed") == [b"later"]


def test_transaction_whose_source_of_rows_failed_is_not_committed(
    store: WritableStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    cause = OSError("connection reset")

    def parts() -> Iterator[RecordColumns]:
        yield rows([b"first"])
        raise cause

    monkeypatch.setattr("kstore.producer.producer.record_columns_of", lambda *_, **__: parts())
    with begun(store) as producer:
        future = producer.send_columns(TOPIC, None, partition=0)
        error = future.exception(WAIT_S)
        assert type(error) is KStoreError
        assert error.__cause__ is cause
        assert str(error) == "not all rows were sent: OSError: connection reset"
        with pytest.raises(KStoreError, match="connection reset"):
            producer.commit_transaction()
        producer.abort_transaction()
    assert values_of(store, 0, isolation="read_committed") == []


def test_what_the_source_raises_before_the_first_row_is_raised(
    store: WritableStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def parts() -> Iterator[RecordColumns]:
        raise OSError("connection reset")
        yield

    monkeypatch.setattr("kstore.producer.producer.record_columns_of", lambda *_, **__: parts())
    with begun(store) as producer:
        with pytest.raises(OSError, match="connection reset"):
            producer.send_columns(TOPIC, None, partition=0)
        producer.send(TOPIC, b"other", partition=0)
        producer.commit_transaction()
    assert values_of(store, 0, isolation="read_committed") == [b"other"]


def test_append_that_fails_after_its_first_batch_in_any_way_fails_the_future(
    store: WritableStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Producer(store, batch_size=BATCH_BYTES) as producer:
        with monkeypatch.context() as patch:
            wake = producer._follow_append

            def fail(partition: Any) -> None:
                wake(partition)
                raise RuntimeError("cannot start a thread")

            patch.setattr(producer, "_follow_append", fail)
            future = producer.send_columns(TOPIC, rows(VALUES), partition=0)
        with pytest.raises(KStoreError, match="not all rows were sent: RuntimeError: cannot start a thread"):
            future.result(WAIT_S)
        sent = sum(batch.record_count for batch, _ in future.outcomes())
        producer.flush(WAIT_S)
    assert 0 < sent < len(VALUES)
    assert values_of(store, 0) == VALUES[:sent]


def test_rows_that_meet_the_end_of_their_transaction_are_refused_and_those_before_are_part_of_it(
    store: WritableStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with begun(store) as producer:
        manager = producer._transactions
        assert manager is not None

        def parts() -> Iterator[RecordColumns]:
            yield rows([b"before"])
            manager.begin_commit()
            yield rows([b"behind"])

        monkeypatch.setattr("kstore.producer.producer.record_columns_of", lambda *_, **__: parts())
        future = fill_up(producer, monkeypatch)
        producer.commit_transaction()
        assert isinstance(future.exception(WAIT_S), TransactionStateError)
        assert [error for _, error in future.outcomes()] == [None]
    assert values_of(store, 0, isolation="read_committed") == [b"before"]


@pytest.mark.parametrize("partition", [-1, 2**31, 2**70, True, 0.0])
def test_columns_for_no_partition_are_refused_at_once(store: WritableStore, partition: Any) -> None:
    with Producer(store) as producer, pytest.raises((ValueError, TypeError), match="partition must be "):
        producer.send_columns(TOPIC, rows([b"v"]), partition=partition)


@pytest.mark.parametrize("timestamp", [2**63, 2**70, -(2**70)])
def test_timestamp_of_all_rows_beyond_64_bits_is_refused(store: WritableStore, timestamp: int) -> None:
    with Producer(store) as producer, pytest.raises(ValueError, match=f"timestamp must be from .*, got {timestamp}"):
        producer.send_columns(TOPIC, RecordColumns(1, timestamp), partition=0)


def test_keys_that_are_to_be_ignored_do_not_place_rows(store: WritableStore) -> None:
    keys = [b"%d" % (number % 10) for number in range(len(VALUES))]
    with Producer(store, partitioner_ignore_keys=True) as producer:
        few = rows([b"a" * 10, b"b" * 10, b"c" * 10] * 3, keys[:9])
        places = {batch.partition for batch in producer.send_columns(TOPIC, few).result(WAIT_S)}
        assert len(places) == 1
        producer.send_columns(TOPIC, rows(VALUES, keys)).result(WAIT_S)
        producer.send_columns(TOPIC, rows(VALUES, keys), partition=2).result(WAIT_S)
    assert values_of(store, 2)[-len(VALUES) :] == VALUES
    assert sum(len(values_of(store, partition)) for partition in range(3)) == 9 + 2 * len(VALUES)
