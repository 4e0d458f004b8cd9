"""Goal: whatever lies on a disk is served as it is to any client, up to damage, and nothing is written.
Method: roots that brokers of all formats wrote, sound and damaged, held against the strict reader; an object store."""

from __future__ import annotations

import pytest

import kstore
from kstore.serve import Server, ServerConfig
from kstore.wire.codes import ErrorCode
from kstore.wire.messages import FetchRequest, ListOffsetsRequest, MetadataRequest, ProduceRequest
from tests.golden.conftest import directory_state
from tests.golden.recovery_cases import NEW_SETS, OLD_SETS
from tests.golden.sets import MAIN_SETS, MIXED_SET, OLD_FORMAT_SETS, unpack
from tests.making.serving import RawClient

confluent_kafka = pytest.importorskip("confluent_kafka")


def fetched(client, topic, partition, offset):
    """Return the next batches of a partition, and the code of the answer."""
    part = FetchRequest.FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=3000)
    topics = [FetchRequest.FetchTopic(topic=topic, partitions=[part])]
    answer = client.ask(FetchRequest(max_bytes=1 << 20, topics=topics), version=11).responses[0].partitions[0]
    return list(kstore.MemoryRecords(bytes(answer.records or b"")).batches()), answer.error_code


def read_by_fetches(client, topic, partition, offset):
    """Return what a client reads of a partition, as (offset, key, value), and the code that ends it, 0 at the end."""
    found = []
    while True:
        batches, code = fetched(client, topic, partition, offset)
        if not batches:
            return found, code
        records = [record for batch in batches for record in batch if record.offset >= offset]
        found += [(record.offset, record.key, record.value) for record in records]
        # A batch of which compaction left nothing has offsets too.
        offset = batches[-1].last_offset + 1


def read_strictly(log):
    """Return what the strict reader gives, as (offset, key, value), and the error that ends it, None at the end."""
    found = []
    try:
        for record in log.read():
            found.append((record.offset, record.key, record.value))
    except kstore.KStoreError as error:
        return found, error
    return found, None


def data_of(found, log):
    """Leave out what a client leaves out: control records."""
    offsets = {offset for offset, _, _ in read_strictly(log)[0]}
    return [one for one in found if one[0] in offsets]


def trees_of(set_name):
    """Return the roots of a set."""
    return sorted(unpack(set_name, "trees").iterdir())


@pytest.mark.parametrize("set_name", [*MAIN_SETS, *OLD_FORMAT_SETS, MIXED_SET])
def test_a_root_of_each_format_is_served_as_it_is_and_not_written_to(set_name):
    for root in trees_of(set_name):
        before = directory_state(root)
        store = kstore.open_store(root)
        with Server(root, read_only=True, config=ServerConfig(port=0)) as server, RawClient(server) as client:
            for topic, partition in store.partitions:
                log = store.log(topic, partition)
                found, code = read_by_fetches(client, topic, partition, log.log_start_offset)
                assert code == 0, (topic, partition)
                assert data_of(found, log) == read_strictly(log)[0], (topic, partition)
        assert directory_state(root) == before


@pytest.mark.parametrize("set_name", [*OLD_SETS, *NEW_SETS])
def test_damage_ends_the_fetches_of_its_partition_and_the_log_says_where(set_name, caplog):
    count = 0
    for root in trees_of(set_name):
        store = kstore.open_store(root)
        with Server(root, read_only=True, config=ServerConfig(port=0)) as server, RawClient(server) as client:
            for topic, partition in store.partitions:
                log = store.log(topic, partition)
                expected, error = read_strictly(log)
                # A fetch may begin after a batch whose offsets a client has read already.
                if not isinstance(error, kstore.CorruptionError) or topic == "rec-offset-back":
                    continue
                count += 1
                caplog.clear()
                for _ in range(2):
                    found, code = read_by_fetches(client, topic, partition, log.log_start_offset)
                    assert code == ErrorCode.CORRUPT_MESSAGE, (topic, partition)
                    assert data_of(found, log) == expected, (topic, partition)
                [told] = caplog.records
                assert told.getMessage() == f"{topic}-{partition} cannot be fetched on: {error}"
    assert count >= 5


@pytest.mark.parametrize("set_name", ["main-4.4.0", *OLD_FORMAT_SETS])
def test_librdkafka_reads_messages_of_each_format(set_name):
    root = trees_of(set_name)[0]
    store = kstore.open_store(root)
    with Server(root, read_only=True, config=ServerConfig(port=0)) as server:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": server.bootstrap_servers,
                "group.id": "g",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "check.crcs": True,
            }
        )
        try:
            for topic, partition in store.partitions[:4]:
                log = store.log(topic, partition)
                expected = [(one.offset, one.key, one.value) for one in log.read(isolation="read_committed")]
                consumer.assign([confluent_kafka.TopicPartition(topic, partition, log.log_start_offset)])
                found = []
                while (message := consumer.poll(20)) is not None and message.error() is None:
                    found.append((message.offset(), message.key(), message.value()))
                assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF
                assert found == expected, (topic, partition)
        finally:
            consumer.close()


def test_a_root_that_is_written_meanwhile_is_followed(served):
    with Server(served.root, read_only=True, config=ServerConfig(port=0)) as server, RawClient(server) as client:
        for number in range(3):
            served.log("t", 0).append(kstore.Record(value=b"%d" % number))
            part = FetchRequest.FetchPartition(partition=0, fetch_offset=number, partition_max_bytes=1000)
            request = FetchRequest(
                max_wait_ms=20_000,
                min_bytes=1,
                max_bytes=1000,
                topics=[FetchRequest.FetchTopic(topic="t", partitions=[part])],
            )
            answer = client.ask(request, version=11).responses[0].partitions[0]
            assert [record.value for record in kstore.MemoryRecords(bytes(answer.records))] == [b"%d" % number]
        refused = client.ask(
            ProduceRequest(
                acks=1,
                topic_data=[
                    ProduceRequest.TopicProduceData(
                        name="t", partition_data=[ProduceRequest.PartitionProduceData(index=0, records=b"x")]
                    )
                ],
            ),
            version=9,
        )
        assert refused.responses[0].partition_responses[0].error_code == ErrorCode.POLICY_VIOLATION


def test_a_root_in_an_object_store_is_served(monkeypatch):
    from tests.fakes.s3 import S3Server
    from tests.urls.conftest import FLIGHTS

    s3 = S3Server()
    try:
        s3.upload(FLIGHTS, "flights")
        log = kstore.open_log(FLIGHTS / "flights-lz4-0")
        with (
            Server(s3.url("flights"), read_only=True, config=ServerConfig(port=0)) as server,
            RawClient(server) as client,
        ):
            answer = client.ask(MetadataRequest(topics=None), version=9)
            assert [(topic.name, len(topic.partitions)) for topic in answer.topics] == [("flights-lz4", 3)]
            asked = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)
            ends = client.ask(
                ListOffsetsRequest(
                    topics=[ListOffsetsRequest.ListOffsetsTopic(name="flights-lz4", partitions=[asked])]
                ),
                version=7,
            )
            assert ends.topics[0].partitions[0].offset == log.log_end_offset
            batches, code = fetched(client, "flights-lz4", 0, 20_000)
            assert code == 0
            values = {record.offset: record.value for record in batches[0]}
            assert values[20_000] == next(log.read(start_offset=20_000)).value
    finally:
        s3.stop()
