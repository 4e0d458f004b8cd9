"""Goal: records of a transaction go the same way by one compiled call as by the general path, and mostly by that call.
Method: two producers get equal histories, one of them kept to the general path by an interceptor that does nothing."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore.errors import KStoreError, TransactionAbortedError, TransactionStateError
from kstore.producer import FutureRecordMetadata, Producer
from kstore.producer.interceptors import ProducerInterceptor
from kstore.store.store import open_store
from tests.making.strategies import examples

TOPIC, PARTITIONS = "t", 3
MOST_BYTES = 2000

sends = st.fixed_dictionaries(
    {"value": st.one_of(st.binary(max_size=40), st.just(b"v" * (MOST_BYTES + 1)))},
    optional={
        "key": st.binary(max_size=3),
        "partition": st.sampled_from([*range(PARTITIONS), PARTITIONS, -1]),
        "headers": st.just([("name", b"header")]),
        "timestamp_ms": st.sampled_from([7, -2]),
    },
)
calls = st.sampled_from(["begin", "commit", "abort", "flush"])
likely = st.one_of(sends, sends, calls)
histories = st.lists(likely, max_size=40).map(lambda steps: ["begin", *steps, "abort", "begin", "commit"])


def told(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except (KStoreError, ValueError) as error:
        return type(error)


def call_of(producer: Producer, step: str | dict[str, Any]) -> Callable[[], Any]:
    if isinstance(step, dict):
        return lambda: producer.send(TOPIC, **({"partition": 0} if "key" not in step else {}) | step)
    by_name = {
        "begin": lambda: producer.begin_transaction() and None,
        "commit": producer.commit_transaction,
        "abort": producer.abort_transaction,
        "flush": producer.flush,
    }
    return by_name[step]


def outcome_of(future: FutureRecordMetadata) -> Any:
    """Return an error's type; what an abort drops may have been sent before or not."""
    error = future.exception(timeout=0)
    return None if isinstance(error, TransactionAbortedError) else type(error) if error else None


def outcomes(steps: list[str | dict[str, Any]], **settings: Any) -> tuple[list[Any], list[Any]]:
    """Return what the calls gave or raised, and the committed records of each partition."""
    with tempfile.TemporaryDirectory() as root, open_store(Path(root) / "root", "a") as store:
        store.create_topic(TOPIC, PARTITIONS)
        store.create_topic("__transaction_state", 1)
        with Producer(
            store, transactional_id="id", max_request_size=MOST_BYTES, batch_size=200, linger_ms=0, **settings
        ) as producer:
            producer.init_transactions()
            found = [told(call_of(producer, step)) for step in steps]
        kinds = [outcome_of(one) if isinstance(one, FutureRecordMetadata) else one for one in found]
        committed = [
            [
                (record.key, record.value, record.headers, record.timestamp_ms == 7)
                for record in store.log(TOPIC, partition).read(isolation="read_committed")
            ]
            for partition in range(PARTITIONS)
        ]
    return kinds, committed


@given(histories)
@examples(30)
def test_both_paths_give_the_same_errors_and_commit_the_same_records(steps):
    assert outcomes(steps) == outcomes(steps, interceptor_classes=[ProducerInterceptor])


@pytest.fixture
def store(tmp_path):
    with open_store(tmp_path / "root", "a") as opened:
        opened.create_topic(TOPIC, PARTITIONS)
        opened.create_topic("__transaction_state", 1)
        yield opened


@pytest.fixture
def producer(store):
    with Producer(store, transactional_id="id") as opened:
        opened.init_transactions()
        yield opened


@pytest.fixture
def by_general_path(producer, monkeypatch):
    """The records that took the general path."""
    taken = []
    append = producer._append

    def counting(record, *arguments):
        taken.append(record)
        return append(record, *arguments)

    monkeypatch.setattr(producer, "_append", counting)
    return taken


@pytest.mark.parametrize("where", [{"partition": 0}, {"key": b"key"}, {}], ids=["partition", "key", "any"])
def test_most_records_take_one_compiled_call_in_each_transaction(producer, by_general_path, where):
    for _ in range(3):
        by_general_path.clear()
        producer.begin_transaction()
        for _ in range(2000):
            producer.send(TOPIC, b"v" * 100, **where)
        producer.commit_transaction()
        assert 1 <= len(by_general_path) < 200


def test_record_outside_of_a_transaction_is_refused_before_its_batch_is_looked_at(producer, by_general_path):
    producer.begin_transaction()
    producer.send(TOPIC, b"v", partition=0)
    producer.commit_transaction()
    with pytest.raises(TransactionStateError, match="expected state IN_TRANSACTION, found READY"):
        producer.send(TOPIC, b"v", partition=0)
    assert len(by_general_path) == 1


def test_partition_of_an_earlier_transaction_is_told_to_the_coordinator_again(producer, store):
    for partition in (0, 1):
        producer.begin_transaction()
        for one in range(partition, 2):
            producer.send(TOPIC, b"v", partition=one)
        producer.commit_transaction()
    # each partition's records, each followed by a marker of its own
    assert [store.log(TOPIC, partition).log_end_offset for partition in range(PARTITIONS)] == [2, 4, 0]


@pytest.mark.parametrize("end", ["commit_transaction", "abort_transaction"])
def test_serializer_that_ends_the_transaction_keeps_its_record_from_being_sent_in_silence(store, end):
    producer: Producer

    def ending(value: bytes) -> bytes:
        if value == b"last":
            getattr(producer, end)()
        return value

    with Producer(store, transactional_id="id", value_serializer=ending) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(TOPIC, b"first", partition=0)
        with pytest.raises(TransactionStateError, match="found READY"):
            producer.send(TOPIC, b"last", partition=0)
