"""Goal: a Producer brings records from many threads into a store as Kafka's would, and says what it could not bring.
Method: real stores in a temporary folder; sinks that wait, fail or note what they get; what was written is read."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import os
import threading
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kstore
from kstore.errors import (
    BufferExhaustedError,
    KStoreError,
    ProducerClosedError,
    ProducerFencedError,
    ProducerTimeoutError,
    RecordTooLargeError,
    SerializationError,
    StorageError,
    TransactionStateError,
    UnknownTopicOrPartitionError,
)
from kstore.producer import (
    Cluster,
    Node,
    PartitionInfo,
    Producer,
    ProduceResponse,
    ProducerInterceptor,
    ProducerRecord,
    RecordMetadata,
    RoundRobinPartitioner,
    partition_for_key,
)
from kstore.producer.batches.batch import ProducerBatch
from kstore.store.store import WritableStore, open_store
from tests.fakes.faults import Fault, FaultyEnv
from tests.reference.verdicts import as_reference

TOPIC = "topic"
WAIT_S = 60
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[WritableStore]:
    with open_store(tmp_path / "root", "a") as opened:
        opened.create_topic(TOPIC, partitions=3)
        yield opened


class GatedSink:
    """One node and three partitions; notes what it gets, and takes nothing while it is shut."""

    def __init__(self, *, is_open: bool = True) -> None:
        self.gate = threading.Event()
        self.arrived = threading.Event()
        self.sent: list[tuple[str, int, bytes]] = []
        if is_open:
            self.gate.set()

    def cluster(self) -> Cluster:
        return Cluster(PartitionInfo(TOPIC, number, Node(0)) for number in range(3))

    def send(self, node: Node, batches: Sequence[ProducerBatch], *, ack: str) -> Sequence[ProduceResponse]:
        assert node == Node(0)
        assert ack in {"buffered", "written", "flushed"}
        self.arrived.set()
        assert self.gate.wait(WAIT_S)
        self.sent += [(*batch.topic_partition, bytes(batch.records())) for batch in batches]
        return [ProduceResponse(100 * (number + 1)) for number in range(len(batches))]


class FailingSink(GatedSink):
    """Answers each batch with an error."""

    def __init__(self, error: KStoreError) -> None:
        super().__init__()
        self.error = error

    def send(self, node: Node, batches: Sequence[ProducerBatch], *, ack: str) -> Sequence[ProduceResponse]:
        super().send(node, batches, ack=ack)
        return [ProduceResponse(-1, error=self.error)] * len(batches)


class Heard:
    """A callback that keeps what it is told."""

    def __init__(self) -> None:
        self.calls: list[tuple[RecordMetadata, KStoreError | None]] = []

    def __call__(self, metadata: RecordMetadata, error: KStoreError | None) -> None:
        self.calls.append((metadata, error))


def values_of(store: WritableStore, partition: int, **options: Any) -> list[bytes | None]:
    return [record.value for record in store.log(TOPIC, partition).read(**options)]


@pytest.mark.parametrize("codec", CODECS)
def test_record_is_in_the_log_where_its_future_says(store: WritableStore, codec: str) -> None:
    with Producer(store, compression_type=codec) as producer:
        futures = [
            producer.send(TOPIC, b"value-%d" % n, key=b"key", headers=[("h", b"1")], partition=1, timestamp_ms=n)
            for n in range(500)
        ]
        metadata = [future.result(WAIT_S) for future in futures]
    records = [as_reference(record) for record in store.log(TOPIC, 1).read()]
    assert [(one.topic, one.partition, one.offset, one.timestamp_ms) for one in metadata] == [
        (TOPIC, 1, record.offset, record.timestamp_ms) for record in records
    ]
    assert [(record.key, record.value, record.headers) for record in records] == [
        (b"key", b"value-%d" % n, ((b"h", b"1"),)) for n in range(500)
    ]
    assert (metadata[0].serialized_key_size, metadata[0].serialized_value_size) == (3, 7)


@pytest.mark.parametrize("ack", ["buffered", "written", "flushed"])
def test_every_ack_leaves_the_records_in_the_log(store: WritableStore, ack: str) -> None:
    with Producer(store, acks=ack) as producer:
        future = producer.send(TOPIC, b"value", partition=0)
        metadata = future.result(WAIT_S)
    assert values_of(store, 0) == [b"value"]
    assert metadata.offset == (-1 if ack == "buffered" else 0)
    assert store.log(TOPIC, 0).flushed_offset >= (1 if ack == "flushed" else 0)


def test_keys_decide_the_partition_and_records_without_one_fill_batches(store: WritableStore) -> None:
    keys = [b"key-%d" % n for n in range(50)]
    with Producer(store) as producer:
        by_key = [producer.send(TOPIC, b"", key=key).result(WAIT_S).partition for key in keys]
        sticky = [producer.send(TOPIC, b"") for _ in range(20)]
    assert by_key == [partition_for_key(key, 3) for key in keys]
    assert len({future.result(WAIT_S).partition for future in sticky}) == 1


def test_ignored_keys_fill_batches_too(store: WritableStore) -> None:
    with Producer(store, partitioner_ignore_keys=True) as producer:
        futures = [producer.send(TOPIC, b"", key=b"key-%d" % n) for n in range(20)]
        producer.flush()
    assert len({future.result(WAIT_S).partition for future in futures}) == 1


def test_partitioner_of_the_caller_decides(store: WritableStore) -> None:
    with Producer(store, partitioner_class=RoundRobinPartitioner) as producer:
        futures = [producer.send(TOPIC, b"", key=b"same") for _ in range(6)]
        producer.flush()
    assert [future.result(WAIT_S).partition for future in futures] == [0, 1, 2, 0, 1, 2]


class Shifting:
    """Stays in a partition until a batch begins, as Kafka's sticky partitioner of KIP-480 did."""

    def __init__(self) -> None:
        self.current = 0
        self.told: list[int] = []

    def partition(self, *_: object) -> int:
        return self.current

    def on_new_batch(self, topic: str, cluster: Cluster, previous_partition: int) -> None:
        self.told.append(previous_partition)
        self.current = (previous_partition + 1) % cluster.partition_count(topic)


def test_partitioner_is_asked_again_before_a_new_batch(store: WritableStore) -> None:
    shifting = Shifting()
    with Producer(store, partitioner_class=shifting, linger_ms=10_000, request_timeout_ms=1) as producer:
        futures = [producer.send(TOPIC, b"") for _ in range(3)]
        producer.flush()
        later = producer.send(TOPIC, b"")
    assert [future.result(WAIT_S).partition for future in (*futures, later)] == [1, 1, 1, 2]
    assert shifting.told == [0, 1]


def test_serializers_make_the_bytes(store: WritableStore) -> None:
    serializers = {"key_serializer": kstore.serializers.StringSerializer(), "value_serializer": lambda n: b"%d" % n}
    with Producer(store, **serializers) as producer:
        producer.send(TOPIC, 12, key="schlüssel", partition=0)
        with pytest.raises(SerializationError, match="key of a record for 'topic'"):
            producer.send(TOPIC, 12, key="\ud800", partition=0)
        with pytest.raises(SerializationError, match="value of a record for 'topic'"):
            producer.send(TOPIC, "no number", key="k", partition=0)
    (record,) = store.log(TOPIC, 0).read()
    assert (record.key, record.value) == ("schlüssel".encode(), b"12")


@pytest.mark.parametrize(
    ("key", "value"),
    [("string", "list<long>"), ("org.apache.kafka.common.serialization.StringSerializer", "list<LongSerializer>")],
    ids=["names", "classes"],
)
def test_serializers_go_by_their_names_as_decoders_do(store: WritableStore, key: str, value: str) -> None:
    with Producer(store, key_serializer=key, value_serializer=value) as producer:
        producer.send(TOPIC, [1, 2], key="schlüssel", partition=0)
    (record,) = store.log(TOPIC, 0).read(key_deserializer="string", value_deserializer="list<long>")
    assert (record.key, record.value) == ("schlüssel", [1, 2])


@pytest.mark.parametrize("name", ["key", "value"])
def test_what_is_no_bytes_needs_a_serializer(store: WritableStore, name: str) -> None:
    with Producer(store) as producer, pytest.raises(SerializationError, match=f"{name} of .* found str without"):
        producer.send(TOPIC, **{"value": b"", name: "text"})


@pytest.mark.parametrize("kind", [bytearray, memoryview])
def test_any_buffer_is_bytes(store: WritableStore, kind: Any) -> None:
    with Producer(store) as producer:
        producer.send(TOPIC, kind(b"value"), key=kind(b"key"), partition=0)
    (record,) = store.log(TOPIC, 0).read()
    assert (record.key, record.value) == (b"key", b"value")


INT64, INT32 = "must be from 0 to 9223372036854775807, got", "must be from 0 to 2147483647, got"
BAD_ARGUMENTS: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "timestamp -1": ({"timestamp_ms": -1}, ValueError, f"timestamp_ms {INT64} -1"),
    "timestamp 2^63": ({"timestamp_ms": 2**63}, ValueError, f"timestamp_ms {INT64} {2**63}"),
    "timestamp 2^70": ({"timestamp_ms": 2**70}, ValueError, f"timestamp_ms {INT64} {2**70}"),
    "timestamp -2^70": ({"timestamp_ms": -(2**70)}, ValueError, f"timestamp_ms {INT64} -{2**70}"),
    "timestamp 1.5": ({"timestamp_ms": 1.5}, TypeError, r"timestamp_ms must be an int, got 1.5 \(float\)"),
    "timestamp True": ({"timestamp_ms": True}, TypeError, r"timestamp_ms must be an int, got True \(bool\)"),
    "partition -1": ({"partition": -1}, ValueError, f"partition {INT32} -1"),
    "partition 2^31": ({"partition": 2**31}, ValueError, f"partition {INT32} {2**31}"),
    "partition 2^70": ({"partition": 2**70}, ValueError, f"partition {INT32} {2**70}"),
    "partition 0.0": ({"partition": 0.0}, TypeError, r"partition must be an int, got 0.0 \(float\)"),
    "partition True": ({"partition": True}, TypeError, r"partition must be an int, got True \(bool\)"),
    "naive time": ({"timestamp_ms": datetime(2024, 5, 1)}, ValueError, "timestamp_ms must have a time zone"),
    "time before 1970": (
        {"timestamp_ms": datetime(1969, 12, 31, 23, tzinfo=timezone.utc)},
        ValueError,
        "timestamp_ms must be from 0 to 9223372036854775807, got -3600000",
    ),
    "callback": ({"on_delivery": 5}, TypeError, r"on_delivery must be callable or None, got 5 \(int\)"),
    "falsy callback": ({"on_delivery": ()}, TypeError, r"on_delivery must be callable or None, got \(\) \(tuple\)"),
    "headers 5": ({"headers": 5}, TypeError, r"headers must be pairs of str and bytes or None, got 5 \(int\)"),
    "no pair": ({"headers": [5]}, TypeError, "a header must be a pair of str and bytes or None, got 5"),
    "short pair": ({"headers": [("k",)]}, ValueError, "a header must be a pair of str and bytes or None, got "),
    "header key": ({"headers": [(b"k", b"")]}, TypeError, "a header key must be str, got bytes"),
    "header value": ({"headers": [("k", "v")]}, TypeError, "a header value must be bytes or None, got str"),
    "topic": ({"topic": 5}, TypeError, r"topic must be a str, got 5 \(int\)"),
}
WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "transactional": {"transactional_id": "id"},
    "intercepted": {"interceptor_classes": [ProducerInterceptor]},
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize(("arguments", "error", "text"), BAD_ARGUMENTS.values(), ids=BAD_ARGUMENTS)
def test_argument_that_no_record_can_have_is_refused_at_once(
    store: WritableStore, way: dict[str, Any], arguments: dict[str, Any], error: type[Exception], text: str
) -> None:
    with Producer(store, **way) as producer:
        if producer.transactional_id:
            producer.init_transactions()
            producer.begin_transaction()
        futures = []
        # The second time there is a batch with room.
        for partition in (0, None):
            for _ in range(2):
                with pytest.raises(error, match=text):
                    producer.send(**{"topic": TOPIC, "value": b"", "partition": partition, **arguments})
                futures.append(producer.send(TOPIC, b"", partition=partition))
        if producer.transactional_id:
            producer.commit_transaction()
        producer.flush(WAIT_S)
    assert sorted(future.result(0).offset for future in futures[:2]) == [0, 1]
    assert all(future.exception(0) is None for future in futures)


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_time_of_a_record_may_be_a_datetime_with_a_zone(store: WritableStore, way: dict[str, Any]) -> None:
    east = timezone(timedelta(hours=2))
    with Producer(store, **way) as producer:
        if producer.transactional_id:
            producer.init_transactions()
            producer.begin_transaction()
        time = datetime(1970, 1, 1, 2, 0, 0, 7_999, tzinfo=east)
        futures = [producer.send(TOPIC, b"", partition=0, timestamp_ms=time) for _ in range(2)]
        if producer.transactional_id:
            producer.commit_transaction()
    assert [future.result(0).timestamp_ms for future in futures] == [7, 7]


@pytest.mark.parametrize("timestamp_ms", [2**63 - 1, np.int64(7)], ids=["2^63 - 1", "numpy"])
def test_any_whole_number_of_64_bits_is_a_timestamp(store: WritableStore, timestamp_ms: Any) -> None:
    with Producer(store) as producer:
        futures = [producer.send(TOPIC, b"", partition=0, timestamp_ms=timestamp_ms) for _ in range(2)]
    assert [future.result(0).timestamp_ms for future in futures] == [int(timestamp_ms)] * 2


@pytest.mark.parametrize(
    ("topic", "partition"), [pytest.param("other", None, id="topic"), pytest.param(TOPIC, 3, id="partition")]
)
def test_unknown_place_is_told_by_future_and_callback(store: WritableStore, topic: str, partition: int | None) -> None:
    heard = Heard()
    with Producer(store) as producer:
        future = producer.send(topic, b"", partition=partition, on_delivery=heard)
        error = future.exception(WAIT_S)
    assert isinstance(error, UnknownTopicOrPartitionError)
    assert heard.calls == [(RecordMetadata(topic, -1 if partition is None else partition, -1, -1, -1, -1), error)]


def test_topic_that_was_made_meanwhile_is_found(store: WritableStore) -> None:
    with Producer(store) as producer:
        assert producer.send("later", b"").exception(WAIT_S) is not None
        store.create_topic("later")
        assert producer.send("later", b"").result(WAIT_S).offset == 0
        assert [info.partition for info in producer.partitions_for("later")] == [0]
        with pytest.raises(UnknownTopicOrPartitionError, match="'nowhere'"):
            producer.partitions_for("nowhere")


@pytest.mark.parametrize("name", ["max_request_size", "buffer_memory"])
def test_record_too_large_is_told_by_its_future_before_memory_is_taken(store: WritableStore, name: str) -> None:
    heard = Heard()
    with Producer(store, **{"batch_size": 100, name: 1000}) as producer:
        before = producer.metrics()["buffer-available-bytes"]
        future = producer.send(TOPIC, bytes(1000), partition=1, on_delivery=heard)
        with pytest.raises(RecordTooLargeError, match=f"{name} = 1000 bytes"):
            future.result(WAIT_S)
        assert producer.metrics()["buffer-available-bytes"] == before
        assert producer.send(TOPIC, bytes(800), partition=1).result(WAIT_S).offset == 0
    assert [call[0] for call in heard.calls] == [RecordMetadata(TOPIC, 1, -1, -1, -1, -1)]


def test_callbacks_come_in_order_before_their_futures_are_done(store: WritableStore) -> None:
    order: list[tuple[int, bool]] = []
    futures: list[Any] = []

    def callback_of(number: int) -> Any:
        return lambda *_: order.append((number, futures[number].done() if len(futures) > number else False))

    with Producer(store, linger_ms=20) as producer:
        futures += [producer.send(TOPIC, b"", partition=0, on_delivery=callback_of(n)) for n in range(100)]
        assert [future.result(WAIT_S).offset for future in futures] == list(range(100))
    assert order == [(number, False) for number in range(100)]


def test_callback_that_fails_is_logged_and_keeps_nobody_from_hearing(
    store: WritableStore, caplog: pytest.LogCaptureFixture
) -> None:
    heard = Heard()

    def failing(*_: object) -> None:
        raise LookupError("of the callback")

    with caplog.at_level(logging.ERROR, "kstore.producer"), Producer(store, linger_ms=20) as producer:
        futures = [producer.send(TOPIC, b"", partition=0, on_delivery=one) for one in (failing, heard)]
        assert [future.result(WAIT_S).offset for future in futures] == [0, 1]
    assert len(heard.calls) == 1
    assert any("of the callback" in str(record.exc_info) for record in caplog.records)


def test_futures_are_awaited_and_made_standard_ones(store: WritableStore) -> None:
    async def awaited(future: Any) -> RecordMetadata:
        return await future

    async def gathered(futures: list[Any]) -> list[RecordMetadata]:
        return await asyncio.gather(*map(awaited, futures))

    with Producer(store) as producer:
        futures = [producer.send(TOPIC, b"", partition=0) for _ in range(10)]
        assert [one.offset for one in asyncio.run(gathered(futures))] == list(range(10))
        more = [producer.send(TOPIC, b"", partition=0).as_concurrent() for _ in range(10)]
        done, pending = concurrent.futures.wait(more, WAIT_S)
        assert (done, pending) == (set(more), set())
        assert sorted(one.result().offset for one in more) == list(range(10, 20))


def test_errors_of_the_sink_reach_future_and_callback() -> None:
    error = KStoreError("of the sink")
    heard = Heard()
    with Producer(FailingSink(error)) as producer:
        future = producer.send(TOPIC, b"", partition=2, on_delivery=heard)
        assert future.exception(WAIT_S) is error
        assert producer.metrics()["record-error-total"] == 1
    assert heard.calls == [(RecordMetadata(TOPIC, 2, -1, -1, -1, -1), error)]


def test_store_whose_log_failed_fails_futures_gives_memory_back_and_closes(tmp_path: Path) -> None:
    env = FaultyEnv()
    with open_store(tmp_path, "a", env=env) as store, Producer(store) as producer:
        store.create_topic(TOPIC)
        producer.send(TOPIC, b"", partition=0).result(WAIT_S)
        env.arm(Fault(1, "EIO", is_for_good=False))
        futures = [producer.send(TOPIC, bytes(5000), partition=0) for _ in range(20)]
        errors = [future.exception(WAIT_S) for future in futures]
        found = producer.metrics()
    assert all(isinstance(error, StorageError) for error in errors)
    assert found["buffer-available-bytes"] == found["buffer-total-bytes"]


def test_send_waits_for_memory_and_then_gives_up() -> None:
    sink = GatedSink(is_open=False)
    with Producer(sink, buffer_memory=32_768, batch_size=16_384, max_block_ms=50) as producer:
        kept = [producer.send(TOPIC, bytes(10_000), partition=number) for number in range(2)]
        refused = producer.send(TOPIC, bytes(10_000), partition=2)
        with pytest.raises(BufferExhaustedError, match="no memory came free"):
            refused.result(0)
        assert producer.metrics()["buffer-exhausted-total"] == 1
        sink.gate.set()
        assert all(future.result(WAIT_S) for future in kept)
        assert producer.send(TOPIC, bytes(10_000), partition=2).result(WAIT_S)


def test_flush_waits_and_gives_up_in_time() -> None:
    sink = GatedSink(is_open=False)
    with Producer(sink, linger_ms=10_000, request_timeout_ms=1) as producer:
        future = producer.send(TOPIC, b"")
        with pytest.raises(ProducerTimeoutError):
            producer.flush(0.05)
        assert not future.done()
        sink.gate.set()
        producer.flush(WAIT_S)
        assert future.done()


def test_flush_in_a_callback_is_refused_in_place_of_a_deadlock(store: WritableStore) -> None:
    caught: list[BaseException] = []

    def flushing(*_: object) -> None:
        try:
            producer.flush()
        except RuntimeError as error:
            caught.append(error)

    with Producer(store) as producer:
        producer.send(TOPIC, b"", on_delivery=flushing).result(WAIT_S)
    assert "callback" in str(caught[0])


def test_close_in_a_callback_does_not_wait_for_itself() -> None:
    sink = GatedSink()
    producer = Producer(sink)
    future = producer.send(TOPIC, b"", on_delivery=lambda *_: producer.close())
    assert future.result(WAIT_S).offset == 100
    with pytest.raises(ProducerClosedError):
        producer.send(TOPIC, b"")


def test_close_sends_what_is_there_and_then_everything_is_refused(store: WritableStore) -> None:
    producer = Producer(store, linger_ms=10_000, request_timeout_ms=1)
    futures = [producer.send(TOPIC, b"", partition=0) for _ in range(10)]
    producer.close()
    producer.close()
    assert [future.result(0).offset for future in futures] == list(range(10))
    for call in (
        lambda: producer.send(TOPIC, b"", partition=0),
        producer.flush,
        lambda: producer.partitions_for(TOPIC),
        producer.init_transactions,
    ):
        with pytest.raises(ProducerClosedError, match="closed"):
            call()


def test_close_that_takes_too_long_fails_what_was_not_sent() -> None:
    sink = GatedSink(is_open=False)
    producer = Producer(sink, linger_ms=0)
    first = producer.send(TOPIC, b"", partition=0)
    assert sink.arrived.wait(WAIT_S)
    second = producer.send(TOPIC, b"", partition=0)
    threading.Timer(0.2, sink.gate.set).start()
    producer.close(0.01)
    assert isinstance(second.exception(WAIT_S), ProducerClosedError)
    assert first.done()


def test_close_refuses_a_negative_timeout(store: WritableStore) -> None:
    with Producer(store) as producer, pytest.raises(ValueError, match="timeout must not be negative, got -1"):
        producer.close(-1)


class Noting(ProducerInterceptor):
    """Marks each record and keeps what it hears."""

    def __init__(self) -> None:
        self.heard: list[tuple[RecordMetadata | None, KStoreError | None]] = []
        self.is_closed = False

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return record._replace(value=record.value + b"!")

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: KStoreError | None) -> None:
        self.heard.append((metadata, error))

    def close(self) -> None:
        self.is_closed = True


class Broken(ProducerInterceptor):
    def on_send(self, *_: object) -> ProducerRecord:
        raise LookupError("on_send")

    def on_acknowledgement(self, *_: object) -> None:
        raise LookupError("on_acknowledgement")

    def close(self) -> None:
        raise LookupError("close")


def test_interceptors_change_records_and_hear_of_them_before_the_callback(store: WritableStore) -> None:
    noting, heard = Noting(), Heard()
    with Producer(store, interceptor_classes=[Broken, noting, Broken()]) as producer:
        first = producer.send(TOPIC, b"a", partition=0, on_delivery=heard).result(WAIT_S)
        failed = producer.send("nowhere", b"b", on_delivery=heard).exception(WAIT_S)
        with pytest.raises(SerializationError):
            producer.send(TOPIC, b"c", key="text")
    assert values_of(store, 0) == [b"a!"]
    assert [metadata for metadata, _ in noting.heard][:1] == [first]
    assert [error for _, error in noting.heard][:2] == [None, failed]
    assert isinstance(noting.heard[2][1], SerializationError)
    assert len(heard.calls) == 2
    assert noting.is_closed


def test_idempotence_writes_producer_and_sequences_unless_turned_off(store: WritableStore) -> None:
    with Producer(store) as producer:
        producer.send(TOPIC, b"", partition=0)
        producer.send(TOPIC, b"", partition=0)
    with Producer(store, enable_idempotence=False) as producer:
        producer.send(TOPIC, b"", partition=1)
    (batch,) = store.log(TOPIC, 0).batches()
    (plain,) = store.log(TOPIC, 1).batches()
    assert batch.producer_id >= 0
    assert (batch.producer_epoch, batch.base_sequence, batch.record_count) == (0, 0, 2)
    assert (plain.producer_id, plain.base_sequence) == (-1, -1)


def test_many_threads_lose_and_double_nothing_and_keep_each_ones_order(store: WritableStore) -> None:
    count, threads = 2000, 4

    def work(name: int) -> None:
        for number in range(count):
            producer.send(TOPIC, b"%d:%d" % (name, number), key=b"%d" % name)

    with Producer(store, batch_size=2000, buffer_memory=50_000, compression_type="lz4") as producer:
        workers = [threading.Thread(target=work, args=(name,)) for name in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    found: dict[int, list[int]] = {name: [] for name in range(threads)}
    for partition in range(3):
        for value in values_of(store, partition):
            name, _, number = (value or b"").partition(b":")
            found[int(name)].append(int(number))
    assert found == {name: list(range(count)) for name in range(threads)}


def test_metrics_have_kafkas_names_and_count(store: WritableStore) -> None:
    with Producer(store, client_id="me") as producer:
        for _ in range(10):
            producer.send(TOPIC, bytes(100), partition=0)
        producer.flush()
        found = producer.metrics()
    assert found["record-send-total"] == 10
    assert found["batch-size-max"] > 1000
    assert found["record-size-max"] > 100
    assert found["request-latency-max"] >= 0
    assert found["buffer-total-bytes"] == found["buffer-available-bytes"] == 32 * 1024 * 1024
    assert found["waiting-threads"] == 0


def test_transaction_is_seen_as_a_whole_when_it_is_committed(store: WritableStore) -> None:
    with Producer(store, transactional_id="id") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        for partition in range(3):
            producer.send(TOPIC, b"a", partition=partition)
        producer.flush()
        early = [values_of(store, partition, isolation="read_committed") for partition in range(3)]
        producer.commit_transaction()
        late = [values_of(store, partition, isolation="read_committed") for partition in range(3)]
        producer.begin_transaction()
        producer.send(TOPIC, b"b", partition=0)
        producer.flush()
        producer.abort_transaction()
    assert early == [[], [], []]
    assert late == [[b"a"], [b"a"], [b"a"]]
    assert values_of(store, 0, isolation="read_committed") == [b"a"]
    assert values_of(store, 0) == [b"a", b"b"]


def test_transaction_that_was_open_at_close_is_aborted(store: WritableStore) -> None:
    with Producer(store, transactional_id="id") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(TOPIC, b"a", partition=0).result(WAIT_S)
    log = store.log(TOPIC, 0)
    assert log.last_stable_offset == log.log_end_offset == 2
    assert values_of(store, 0, isolation="read_committed") == []


def test_second_producer_of_a_transactional_id_fences_the_first(store: WritableStore) -> None:
    with Producer(store, transactional_id="id") as old, Producer(store, transactional_id="id") as new:
        old.init_transactions()
        old.begin_transaction()
        old.send(TOPIC, b"old", partition=0)
        old.flush()
        new.init_transactions()
        new.begin_transaction()
        new.send(TOPIC, b"new", partition=0)
        new.commit_transaction()
        with pytest.raises(ProducerFencedError):
            old.commit_transaction()
    assert values_of(store, 0, isolation="read_committed") == [b"new"]


def test_calls_that_do_not_fit_the_transaction_are_refused(store: WritableStore) -> None:
    with Producer(store) as plain, pytest.raises(TransactionStateError, match="transactional_id"):
        plain.begin_transaction()
    with Producer(store, transactional_id="id") as producer:
        with pytest.raises(TransactionStateError):
            producer.begin_transaction()
        producer.init_transactions()
        with pytest.raises(TransactionStateError):
            producer.send(TOPIC, b"")
        producer.begin_transaction()
        with pytest.raises(TransactionStateError):
            producer.begin_transaction()


def test_transactions_need_a_sink_with_a_coordinator() -> None:
    with pytest.raises(ValueError, match="coordinator"):
        Producer(GatedSink(), transactional_id="id")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_child_of_a_fork_is_refused_and_the_parent_goes_on(store: WritableStore) -> None:
    with Producer(store) as producer:
        producer.send(TOPIC, b"before", partition=0).result(WAIT_S)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                producer.send(TOPIC, b"child", partition=0)
            except ProducerClosedError as error:
                code = 0 if "fork" in str(error) else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        producer.send(TOPIC, b"after", partition=0).result(WAIT_S)
    assert values_of(store, 0) == [b"before", b"after"]


def test_setting_that_does_not_exist_is_refused(store: WritableStore) -> None:
    with pytest.raises(TypeError, match="bootstrap_servers"):
        Producer(store, bootstrap_servers="localhost")
