"""Goal: clients of other projects, unchanged, write and read a store.
Method: librdkafka and aiokafka against a server in this process, held against what the log has."""

from __future__ import annotations

import asyncio

import pytest

import kstore

confluent_kafka = pytest.importorskip("confluent_kafka")
aiokafka = pytest.importorskip("aiokafka")


def consumed(server, count, *, offset=0):
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": server.bootstrap_servers, "group.id": "g", "enable.auto.commit": False}
    )
    consumer.assign([confluent_kafka.TopicPartition("t", 0, offset)])
    messages = []
    try:
        while len(messages) < count:
            part = consumer.consume(count, 20)
            assert part, f"{len(messages)} of {count} messages"
            messages += part
    finally:
        consumer.close()
    assert not [message.error() for message in messages if message.error()]
    return messages


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_librdkafka_writes_and_reads_records_of_each_codec(server, served, codec):
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": server.bootstrap_servers, "enable.idempotence": True, "compression.type": codec}
    )
    errors = []
    for number in range(500):
        producer.produce(
            "t",
            key=b"k%d" % number,
            value=b"value of %d " % number * 9,
            headers={"h": b"%d" % number},
            partition=0,
            on_delivery=lambda error, _: errors.append(error),
        )
    assert producer.flush(20) == 0
    assert errors == [None] * 500
    records = list(served.log("t", 0).read())
    assert [(record.key, record.headers) for record in records] == [
        (b"k%d" % number, (("h", b"%d" % number),)) for number in range(500)
    ]
    # A batch that would not become smaller is sent as it is.
    assert {batch.compression.name.lower() for batch in served.log("t", 0).batches()} - {"none"} <= {codec}
    messages = consumed(server, 500)
    assert [(message.offset(), message.key(), message.value()) for message in messages] == [
        (record.offset, record.key, record.value) for record in records
    ]
    assert messages[7].headers() == [("h", b"7")]


def test_librdkafka_finds_offsets_by_time_and_the_ends(server, served):
    for number in range(10):
        served.log("t", 0).append(kstore.Record(value=b"v", timestamp_ms=1_700_000_000_000 + number))
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": server.bootstrap_servers, "group.id": "g", "enable.auto.commit": False}
    )
    try:
        asked = confluent_kafka.TopicPartition("t", 0, 1_700_000_000_004)
        assert [found.offset for found in consumer.offsets_for_times([asked], timeout=20)] == [4]
        assert consumer.get_watermark_offsets(confluent_kafka.TopicPartition("t", 0), timeout=20) == (0, 10)
    finally:
        consumer.close()


def test_aiokafka_writes_a_topic_that_it_asks_for_and_waits_for_records(server, served):
    async def main():
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=server.bootstrap_servers, enable_idempotence=True)
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=server.bootstrap_servers, auto_offset_reset="earliest")
        async with producer, consumer:
            await producer.send_and_wait("new", b"first")
            consumer.assign([aiokafka.TopicPartition("new", 0)])
            first = await asyncio.wait_for(consumer.getone(), 20)
            waiting = asyncio.ensure_future(consumer.getone())
            await asyncio.sleep(0)
            await producer.send_and_wait("new", b"second")
            second = await asyncio.wait_for(waiting, 20)
        return [(message.offset, message.value) for message in (first, second)]

    assert asyncio.run(main()) == [(0, b"first"), (1, b"second")]
    assert [record.value for record in served.log("new").read()] == [b"first", b"second"]
