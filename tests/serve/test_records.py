"""Goal: produce, fetch and offsets answer as a broker does, code by code.
Method: requests as objects; what a broker answers is from Kafka 4.1."""

from __future__ import annotations

import os
import threading
import uuid

import pytest

import kstore
from kstore.env.files import LocalFile
from kstore.log.write.writable_log import WritableLog
from kstore.record import with_records
from kstore.serve.config import ServerConfig
from kstore.serve.server import Server
from kstore.wire.messages import (
    CreateTopicsRequest,
    FetchRequest,
    InitProducerIdRequest,
    ListOffsetsRequest,
    MetadataRequest,
    ProduceRequest,
)
from kstore.wire.protocol import ZERO_UUID
from tests.making.cluster import topic as topic_record
from tests.making.cluster import write_metadata
from tests.making.serving import RawClient, once_it_waits

NO_OFFSET = -1


def batch(*values):
    return bytes(with_records([kstore.Record(value=value) for value in values]).buffer)


def produce(client, records, *, topic="t", partition=0, acks=1, version=9, topic_id=None):
    part = ProduceRequest.PartitionProduceData(index=partition, records=records)
    named = {"name": topic} if topic_id is None else {"topic_id": topic_id}
    data = ProduceRequest.TopicProduceData(**named, partition_data=[part])
    request = ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[data])
    if acks == 0:
        client.send(request, version=version)
        return None
    return client.ask(request, version=version).responses[0].partition_responses[0]


def fetch_request(offset, *, partition=0, wait_ms=0, most_bytes=1 << 20, topic_id=None, level=0, **more):
    part = FetchRequest.FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=most_bytes, **more)
    named = {"topic": "t"} if topic_id is None else {"topic_id": topic_id}
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=wait_ms,
        min_bytes=1,
        isolation_level=level,
        topics=[FetchRequest.FetchTopic(**named, partitions=[part])],
    )


def fetch(client, offset, *, version=12, **more):
    return client.ask(fetch_request(offset, **more), version=version).responses[0].partitions[0]


def test_records_are_produced_and_fetched_by_name_and_by_id(client, served):
    done = produce(client, batch(b"a", b"b"))
    assert (done.error_code, done.base_offset, done.log_append_time_ms, done.log_start_offset) == (0, 0, -1, 0)
    topic_id = served.topic_id("t")
    assert produce(client, batch(b"c"), version=13, topic_id=topic_id).base_offset == 2
    for found in (fetch(client, 0), fetch(client, 0, version=17, topic_id=topic_id)):
        bounds = (found.log_start_offset, found.last_stable_offset, found.high_watermark)
        assert (found.error_code, *bounds) == (0, 0, 3, 3)
        assert [record.value for record in kstore.MemoryRecords(bytes(found.records))] == [b"a", b"b", b"c"]


def test_records_without_acks_that_are_refused_end_the_connection(client, served):
    produce(client, batch(b"a"), acks=0, topic="none")
    assert client.is_closed()


def test_a_produce_without_acks_has_no_answer_and_is_written(client, served):
    assert produce(client, batch(b"a"), acks=0) is None
    assert produce(client, batch(b"b")).base_offset == 1
    assert [record.value for record in served.log("t", 0).read()] == [b"a", b"b"]


def test_acks_of_all_wait_for_the_disk_where_the_server_says_so(served):
    log = served.log("t", 0)
    with Server(served, config=ServerConfig(port=0, ack_of_all="flushed")) as server, RawClient(server) as client:
        assert produce(client, batch(b"a"), acks=1).error_code == 0
        assert (log.log_end_offset, log.flushed_offset) == (1, 0)
        assert produce(client, batch(b"b"), acks=-1).error_code == 0
        assert log.flushed_offset == 2
    with Server(served, config=ServerConfig(port=0)) as server, RawClient(server) as client:
        assert produce(client, batch(b"c"), acks=-1).error_code == 0
        assert (log.log_end_offset, log.flushed_offset) == (3, 2)
    with pytest.raises(ValueError, match="ack_of_all must be written or flushed, got 'replicated'"):
        ServerConfig(ack_of_all="replicated")


def spoiled(records):
    return records[:-1] + bytes([records[-1] ^ 1])


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        pytest.param({"records": batch(b"v"), "topic": "none"}, 3, id="unknown-topic"),
        pytest.param({"records": batch(b"v"), "partition": 2}, 3, id="unknown-partition"),
        pytest.param({"records": batch(b"v"), "version": 13, "topic_id": uuid.UUID(int=5)}, 100, id="unknown-id"),
        pytest.param({"records": batch(b"v"), "acks": 2}, 21, id="acks"),
        pytest.param({"records": spoiled(batch(b"v"))}, 2, id="wrong-crc"),
        pytest.param({"records": None}, 87, id="null"),
        pytest.param({"records": batch(b"v") + batch(b"w")}, 87, id="two-batches"),
    ],
)
def test_records_that_a_broker_refuses_are_refused_with_its_code(client, served, arguments, code):
    refused = produce(client, **arguments)
    assert (refused.error_code, refused.base_offset) == (code, NO_OFFSET)
    assert served.log("t", 0).log_end_offset == 0


def test_records_without_a_key_are_named_where_a_compacted_topic_refuses_a_batch(client, served):
    served.create_topic("compacted", config=kstore.LogConfig(cleanup_policy="compact"))
    records = [kstore.Record(key=key, value=b"v") for key in (b"a", None, b"b", None)]
    refused = produce(client, bytes(with_records(records).buffer), topic="compacted")
    assert (refused.error_code, [one.batch_index for one in refused.record_errors]) == (87, [1, 3])
    assert "expected a key" in refused.record_errors[0].batch_index_error_message


def test_records_that_are_too_far_ahead_are_named(client, served):
    served.create_topic("punctual", config=kstore.LogConfig(message_timestamp_after_max_ms=1000))
    records = [kstore.Record(value=b"v", timestamp_ms=timestamp) for timestamp in (1, 1 << 60)]
    refused = produce(client, bytes(with_records(records).buffer), topic="punctual")
    assert (refused.error_code, [one.batch_index for one in refused.record_errors]) == (32, [1])


def test_a_fetch_waits_for_records_and_ends_with_them(server, client, served):
    with RawClient(server) as other:
        found = []
        waiting = threading.Thread(target=lambda: found.append(fetch(client, 0, wait_ms=20_000)))
        waiting.start()
        once_it_waits(server)
        produce(other, batch(b"x"), partition=1)
        produce(other, batch(b"v"))
        waiting.join(20)
    assert [record.value for record in kstore.MemoryRecords(bytes(found[0].records))] == [b"v"]


def test_a_fetch_that_nothing_comes_for_ends_empty_after_its_time(client):
    found = fetch(client, 0, wait_ms=50)
    assert (found.error_code, len(found.records), found.high_watermark) == (0, 0, 0)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        pytest.param({"offset": 2}, 1, id="above-the-end"),
        pytest.param({"offset": 0, "partition": 2}, 3, id="unknown-partition"),
        pytest.param({"offset": 0, "version": 17, "topic_id": uuid.UUID(int=5)}, 100, id="unknown-id"),
        pytest.param({"offset": 0, "current_leader_epoch": 1}, 75, id="epoch-of-a-later-leader"),
        pytest.param({"offset": 0, "wait_ms": 20_000, "partition": 7}, 3, id="an-error-does-not-wait"),
    ],
)
def test_a_fetch_that_a_broker_refuses_has_its_code(client, served, arguments, code):
    served.log("t", 0).append(kstore.Record(value=b"v"))
    found = fetch(client, **arguments)
    assert (found.error_code, found.high_watermark, len(found.records)) == (code, -1, 0)


def test_an_epoch_of_an_earlier_leader_is_fenced_and_a_divergence_is_said(client, served):
    log = served.log("t", 0)
    log.append(kstore.Record(value=b"v"), partition_leader_epoch=2)
    log.append(kstore.Record(value=b"w"), partition_leader_epoch=5)
    assert fetch(client, 0, current_leader_epoch=4).error_code == 74
    assert fetch(client, 2, current_leader_epoch=5, last_fetched_epoch=5).diverging_epoch is None
    diverging = fetch(client, 2, current_leader_epoch=5, last_fetched_epoch=3).diverging_epoch
    assert (diverging.epoch, diverging.end_offset) == (2, 1)
    assert fetch(client, 1, current_leader_epoch=5, last_fetched_epoch=3).diverging_epoch == diverging
    assert fetch(client, 2, current_leader_epoch=5, last_fetched_epoch=6).error_code == 1


def test_the_first_batch_of_an_answer_is_whole_and_the_others_end_at_its_bytes(client):
    first, second = batch(b"a" * 1000), batch(b"b" * 1000)
    for records in (first, second):
        produce(client, records)
        produce(client, records, partition=1)
    parts = [FetchRequest.FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=10) for number in (0, 1)]
    topic = FetchRequest.FetchTopic(topic="t", partitions=parts)
    request = FetchRequest(replica_id=-1, max_wait_ms=0, min_bytes=1, max_bytes=20, topics=[topic])
    found = client.ask(request, version=12).responses[0].partitions
    assert [len(one.records) for one in found] == [len(first), 0]


def ends(client, timestamp, *, version=7, level=0):
    part = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    topic = ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[part])
    request = ListOffsetsRequest(replica_id=-1, isolation_level=level, topics=[topic])
    found = client.ask(request, version=version).topics[0].partitions[0]
    return found.error_code, found.timestamp, found.offset


def test_offsets_are_found_for_times_and_for_each_special_timestamp(client, served):
    log = served.log("t", 0)
    for number in (5, 9, 7):
        log.append(kstore.Record(value=b"v", timestamp_ms=number))
    log.delete_records(1)
    assert ends(client, -2) == (0, -1, 1)
    assert ends(client, -1) == (0, -1, 3)
    assert ends(client, -3) == (0, 9, 1)
    assert ends(client, -4, version=8) == (0, -1, 1)
    assert ends(client, 7) == (0, 9, 1)
    assert ends(client, 10) == (0, -1, -1)
    assert ends(client, -1, version=1) == (0, -1, 3)


def test_records_that_are_not_in_memory_are_read_in_a_thread(client, served, monkeypatch):
    served.log("t", 0).append(kstore.Record(value=b"v"))
    read_in = []
    read = WritableLog.fetch

    def noted(*arguments, **options):
        read_in.append(threading.current_thread().name)
        return read(*arguments, **options)

    monkeypatch.setattr(WritableLog, "fetch", noted)
    assert [record.value for record in kstore.MemoryRecords(bytes(fetch(client, 0).records))] == [b"v"]
    assert read_in == []
    monkeypatch.setattr(LocalFile, "pread_cached", lambda *_, **__: None)
    for wait_ms in (0, 500):
        assert [record.value for record in kstore.MemoryRecords(bytes(fetch(client, 0, wait_ms=wait_ms).records))] == [
            b"v"
        ]
    assert len(read_in) == 2
    assert "kstore-serve" not in read_in


@pytest.fixture
def sent_files(monkeypatch):
    """The sizes of what is sent by sendfile."""
    sizes = []
    sendfile = os.sendfile

    def noted(out, own, position, size):
        sizes.append(size)
        return sendfile(out, own, position, size)

    monkeypatch.setattr(os, "sendfile", noted)
    return sizes


def many(served, *, size=100_000):
    log = served.log("t", 0)
    for number in range(3):
        log.append(kstore.Record(value=bytes([number]) * size))
    return log.fetch(0, 1 << 20).records


def test_many_records_are_sent_from_their_file_and_few_are_not(client, served, sent_files):
    records = many(served)
    assert fetch(client, 0).records == records
    assert sent_files == [len(records)]
    one = len(records) // 3
    assert fetch(client, 0, most_bytes=65_536).records == records[:one]
    assert fetch(client, 2, most_bytes=1).records == records[-one:]
    assert sent_files == [len(records), one, one]
    served.log("t", 1).append(kstore.Record(value=b"v" * 60_000))
    assert len(fetch(client, 0, partition=1).records) > 60_000
    assert len(sent_files) == 3


def test_records_that_are_not_all_in_memory_are_not_sent_from_their_file(client, served, sent_files, monkeypatch):
    records = many(served)
    monkeypatch.setattr("kstore.env.files.are_cached", lambda *_, **__: False)
    assert fetch(client, 0).records == records
    assert sent_files == []


def test_records_of_a_store_that_is_only_read_are_checked_and_so_read(served, sent_files):
    records = many(served)
    with kstore.open_store(served.root) as store, Server(store) as server, RawClient(server) as reader:
        assert fetch(reader, 0).records == records
    assert sent_files == []


def test_topics_are_created_once_and_wrong_ones_refused(client, served):
    def created(name, *, partitions=3, replicas=1, configs=()):
        topic = CreateTopicsRequest.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replicas,
            configs=[CreateTopicsRequest.CreatableTopicConfig(name=key, value=value) for key, value in configs],
        )
        return client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=1000), version=7).topics[0]

    made = created("new", configs=[("cleanup.policy", "compact")])
    assert (made.error_code, made.topic_id, made.num_partitions) == (0, served.topic_id("new"), 3)
    assert served.topic_config("new").cleanup_policy == "compact"
    assert created("new").error_code == 36
    assert created("a/b").error_code == 17
    assert created("x", partitions=0).error_code == 37
    assert created("x", replicas=2).error_code == 38
    assert created("x", configs=[("no.such.setting", "1")]).error_code == 40
    assert set(served.topics) == {"new", "t"}


def test_metadata_names_the_node_and_makes_no_topic_that_is_not_to_be_made(client, served):
    asked = [MetadataRequest.MetadataRequestTopic(name=name) for name in ("t", "none")]
    found = client.ask(MetadataRequest(topics=asked, allow_auto_topic_creation=False), version=12)
    (node,) = found.brokers
    assert node.node_id == found.controller_id == served.meta_properties.node_id
    assert found.cluster_id == served.meta_properties.cluster_id
    assert [(one.name, one.error_code, one.topic_id) for one in found.topics] == [
        ("t", 0, served.topic_id("t")),
        ("none", 3, ZERO_UUID),
    ]
    assert [(one.partition_index, one.leader_id, one.isr_nodes) for one in found.topics[0].partitions] == [
        (0, node.node_id, [node.node_id]),
        (1, node.node_id, [node.node_id]),
    ]
    assert client.ask(MetadataRequest(topics=None), version=12).topics[0].name == "t"


@pytest.mark.parametrize("makes", [True, False])
def test_metadata_tells_a_name_that_no_topic_can_have(client, served, makes):
    names = ("a b", "in.use", "in_use", "..")
    served.create_topic("in.use")
    asked = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
    found = client.ask(MetadataRequest(topics=asked, allow_auto_topic_creation=makes), version=12)
    assert [(one.name, one.error_code) for one in found.topics] == list(zip(names, (17, 0, 3, 17), strict=True))


def test_each_idempotent_producer_gets_an_id_of_its_own(client):
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
    first, second = (client.ask(request, version=4) for _ in range(2))
    assert (first.error_code, first.producer_epoch) == (0, 0)
    assert 0 <= first.producer_id != second.producer_id


def test_a_server_that_only_reads_takes_no_lock_writes_nothing_and_sees_what_another_process_appends(served, tmp_path):
    served.log("t", 0).append(kstore.Record(value=b"v"))
    with Server(tmp_path / "root", read_only=True, config=ServerConfig(port=0)) as server, RawClient(server) as client:
        assert [record.value for record in kstore.MemoryRecords(bytes(fetch(client, 0).records))] == [b"v"]
        assert produce(client, batch(b"w")).error_code == 44
        found = []
        waiting = threading.Thread(target=lambda: found.append(fetch(client, 1, wait_ms=20_000)))
        waiting.start()
        once_it_waits(server)
        served.log("t", 0).append(kstore.Record(value=b"x"))
        waiting.join(20)
    assert [record.value for record in kstore.MemoryRecords(bytes(found[0].records))] == [b"x"]


def test_a_topic_that_was_created_again_is_not_found_by_its_old_id(client, served):
    old = served.topic_id("t")
    assert produce(client, batch(b"v"), version=13, topic_id=old).error_code == 0
    served.delete_topic("t")
    assert fetch(client, 0, version=17, topic_id=old).error_code == 100
    new = served.create_topic("t")
    assert fetch(client, 0, version=17, topic_id=old).error_code == 100
    found = fetch(client, 0, version=17, topic_id=new)
    assert (found.error_code, found.high_watermark) == (0, 0)


def test_topics_of_a_root_of_a_cluster_are_not_changed(tmp_path):
    root = tmp_path / "root"
    with kstore.open_store(root, "a") as store:
        store.create_topic("t")
    write_metadata(root, [topic_record("t", uuid.UUID(int=1))])
    with kstore.open_store(root, "a") as store:
        topics = store.topics
        with Server(store, config=ServerConfig(port=0)) as server, RawClient(server) as client:
            topic = CreateTopicsRequest.CreatableTopic(name="new", num_partitions=1, replication_factor=1)
            (made,) = client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=1000), version=7).topics
            assert made.error_code == 44
            asked = [MetadataRequest.MetadataRequestTopic(name="new")]
            (found,) = client.ask(MetadataRequest(topics=asked, allow_auto_topic_creation=True), version=12).topics
            assert found.error_code == 3
        assert store.topics == topics


def test_a_client_is_not_told_the_directories_of_the_machine(client, served, monkeypatch):
    def failing(*_):
        raise kstore.StorageError(f"cannot write {served.root}/t-0/00.log: no space left")

    monkeypatch.setattr(served, "log", failing)
    refused = produce(client, batch(b"v"))
    assert (refused.error_code, refused.error_message) == (56, "cannot write t-0/00.log: no space left")


def test_fetches_that_wait_one_after_the_other_make_no_append_slower(server, client, served):
    woken = []
    news = server._now()._server._news
    wake = news._wake
    news._wake = lambda: (woken.append("woken"), wake())
    for number in range(5):
        request = fetch_request(number, wait_ms=20_000)
        client.send(request, version=12)
        once_it_waits(server)
        woken.clear()
        served.log("t", 0).append(kstore.Record(value=b"v"))
        assert client.receive(1, version=12)[1].responses[0].partitions[0].records
        assert len(woken) == 1
