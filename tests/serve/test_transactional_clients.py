"""Goal: transactional producers of other projects commit, abort and fence each other, and readers see what counts.
Method: librdkafka and aiokafka against a server in this process."""

from __future__ import annotations

import asyncio

import pytest

import kstore
from kstore.serve.config import ServerConfig
from kstore.serve.server import Server
from kstore.types import TopicPartition

confluent_kafka = pytest.importorskip("confluent_kafka")
aiokafka = pytest.importorskip("aiokafka")

PLACES = [TopicPartition("t", 0), TopicPartition("t", 1)]
TIMEOUT_S = 20


def producer_of(server, *, of="x"):
    producer = confluent_kafka.Producer({"bootstrap.servers": server.bootstrap_servers, "transactional.id": of})
    producer.init_transactions(TIMEOUT_S)
    return producer


def write(producer, value, *, topic="t"):
    for _, number in PLACES:
        producer.produce(topic, value=value, partition=number)


def consumer_of(server, *, topic="t", group="g"):
    """A consumer of committed records, as librdkafka's are unless they are told otherwise."""
    settings = {"bootstrap.servers": server.bootstrap_servers, "group.id": group, "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer(settings | {"enable.auto.commit": False})
    consumer.subscribe([topic])
    return consumer


def consumed(consumer, count):
    messages = []
    while len(messages) < count:
        part = consumer.consume(count - len(messages), TIMEOUT_S)
        assert part, f"{len(messages)} of {count} messages"
        messages += part
    assert not [message.error() for message in messages if message.error()]
    return messages


def committed(store, topic="t"):
    """The values of both partitions, which are the same."""
    first, second = ([one.value for one in store.log(topic, n).read(isolation="read_committed")] for n in (0, 1))
    assert first == second
    return first


def test_librdkafka_commits_and_aborts_and_its_consumer_sees_what_was_committed(server, served):
    producer = producer_of(server)
    for number in range(6):
        producer.begin_transaction()
        write(producer, b"%d" % number)
        if number % 2:
            producer.flush(TIMEOUT_S)
            producer.abort_transaction(TIMEOUT_S)
        else:
            producer.commit_transaction(TIMEOUT_S)
    assert committed(served) == [b"0", b"2", b"4"]
    consumer = consumer_of(server)
    try:
        assert sorted(message.value() for message in consumed(consumer, 6)) == sorted([b"0", b"2", b"4"] * 2)
    finally:
        consumer.close()


def test_a_second_producer_of_librdkafka_fences_the_first(server, served):
    first = producer_of(server)
    first.begin_transaction()
    write(first, b"lost")
    first.flush(TIMEOUT_S)
    second = producer_of(server)
    with pytest.raises(confluent_kafka.KafkaException) as raised:
        first.commit_transaction(TIMEOUT_S)
    assert raised.value.args[0].fatal()
    second.begin_transaction()
    write(second, b"kept")
    second.commit_transaction(TIMEOUT_S)
    assert committed(served) == [b"kept"]


def test_librdkafka_reads_changes_and_writes_each_record_once_whatever_is_aborted(server, served):
    served.create_topic("out", 2)
    for topic, number in PLACES:
        served.log(topic, number).append([kstore.Record(value=b"%d" % one) for one in range(20)])
    consumer, producer = consumer_of(server), producer_of(server)
    try:
        done, is_aborted = 0, False
        while done < 40:
            messages = consumed(consumer, min(10, 40 - done))
            producer.begin_transaction()
            for message in messages:
                producer.produce("out", value=message.value(), partition=message.partition())
            producer.send_offsets_to_transaction(
                consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), TIMEOUT_S
            )
            if is_aborted or done != 10:
                producer.commit_transaction(TIMEOUT_S)
                done += len(messages)
                continue
            producer.abort_transaction(TIMEOUT_S)
            is_aborted = True
            for place in consumer.committed(consumer.assignment(), TIMEOUT_S):
                consumer.seek(place)
    finally:
        consumer.close()
    assert committed(served, "out") == [b"%d" % one for one in range(20)]
    (group,) = kstore.read_groups(served)
    assert {place.partition: one.committed.offset for place, one in group.offsets.items()} == {0: 20, 1: 20}


def test_a_transaction_of_librdkafka_outlives_a_restart_of_the_server(served):
    with Server(served, config=ServerConfig(port=0)) as server:
        producer = producer_of(server)
        producer.begin_transaction()
        write(producer, b"before")
        producer.flush(TIMEOUT_S)
        port = int(server.bootstrap_servers.rpartition(":")[2])
    with Server(served, config=ServerConfig(port=port)):
        write(producer, b"after")
        producer.commit_transaction(TIMEOUT_S)
        assert committed(served) == [b"before", b"after"]


def test_aiokafka_commits_aborts_and_sends_the_offsets_of_what_it_read(server, served):
    served.create_topic("out", 2)
    for topic, number in PLACES:
        served.log(topic, number).append([kstore.Record(value=b"%d" % one) for one in range(5)])

    async def main():
        to = {"bootstrap_servers": server.bootstrap_servers}
        producer = aiokafka.AIOKafkaProducer(transactional_id="aio", **to)
        consumer = aiokafka.AIOKafkaConsumer(
            "t", group_id="g", auto_offset_reset="earliest", enable_auto_commit=False, **to
        )
        reader = aiokafka.AIOKafkaConsumer(auto_offset_reset="earliest", isolation_level="read_committed", **to)
        async with producer, consumer, reader:
            async with producer.transaction():
                messages = [await asyncio.wait_for(consumer.getone(), TIMEOUT_S) for _ in range(10)]
                for message in messages:
                    await producer.send("out", message.value, partition=message.partition)
                offsets = {place: await consumer.position(place) for place in consumer.assignment()}
                await producer.send_offsets_to_transaction(offsets, "g")
            await producer.begin_transaction()
            await producer.send_and_wait("out", b"aborted", partition=0)
            await producer.abort_transaction()
            async with producer.transaction():
                for number in (0, 1):
                    await producer.send_and_wait("out", b"last", partition=number)
            reader.assign([aiokafka.TopicPartition("out", 0)])
            return [(await asyncio.wait_for(reader.getone(), TIMEOUT_S)).value for _ in range(6)]

    expected = [b"0", b"1", b"2", b"3", b"4", b"last"]
    assert asyncio.run(main()) == committed(served, "out") == expected
    (group,) = kstore.read_groups(served)
    assert {place.partition: one.committed.offset for place, one in group.offsets.items()} == {0: 5, 1: 5}


def test_a_second_producer_of_aiokafka_fences_the_first(server, served):
    async def main():
        to = {"bootstrap_servers": server.bootstrap_servers, "transactional_id": "aio"}
        first = aiokafka.AIOKafkaProducer(**to)
        await first.start()
        await first.begin_transaction()
        await first.send_and_wait("t", b"lost", partition=0)
        async with aiokafka.AIOKafkaProducer(**to) as second:
            with pytest.raises(aiokafka.errors.ProducerFenced):
                await first.commit_transaction()
            await first.stop()
            async with second.transaction():
                for number in (0, 1):
                    await second.send_and_wait("t", b"kept", partition=number)

    asyncio.run(main())
    assert committed(served) == [b"kept"]
