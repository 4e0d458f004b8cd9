"""Goal: a broker inside a test does what its clients ask, and wrong what the test asks.
Method: KafkaServer with requests of our own, librdkafka and aiokafka."""

from __future__ import annotations

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import kstore
from kstore.testing import KafkaServer
from kstore.waiting import Latch
from kstore.wire.classes import Message, attribute
from kstore.wire.codes import ErrorCode
from kstore.wire.frames import apis
from kstore.wire.messages import (
    CreateTopicsRequest,
    FetchRequest,
    HeartbeatRequest,
    ListOffsetsRequest,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    ProduceRequest,
)
from tests.making.serving import RawClient

confluent_kafka = pytest.importorskip("confluent_kafka")
aiokafka = pytest.importorskip("aiokafka")


@pytest.fixture
def kafka():
    with KafkaServer(topics={"t": 2}) as server:
        yield server


def produced(kafka, value, **settings):
    """Send one record by librdkafka; return the error of its delivery."""
    producer = confluent_kafka.Producer({"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 0} | settings)
    errors = []
    producer.produce("t", value, partition=0, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(30) == 0
    (error,) = errors
    return error


def test_records_are_there_without_a_client(kafka):
    assert produced(kafka, b"v") is None
    kafka.store.log("t", 1).append(kstore.Record(value=b"w"))
    assert [record.value for record in kafka.records("t")] == [b"v", b"w"]
    assert [record.value for record in kafka.records("t", 1)] == [b"w"]
    with pytest.raises(kstore.UnknownTopicOrPartitionError, match="no topic other"):
        kafka.records("other")


def test_records_of_aborted_transactions_are_left_out_if_asked(kafka):
    producer = confluent_kafka.Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": "x"})
    producer.init_transactions()
    for value, end in ((b"aborted", producer.abort_transaction), (b"committed", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce("t", value, partition=0)
        producer.flush()
        end()
    assert [record.value for record in kafka.records("t")] == [b"aborted", b"committed"]
    assert [record.value for record in kafka.records("t", isolation="read_committed")] == [b"committed"]
    assert len(kafka.wait_for_records("t", 2)) == 2
    with pytest.raises(TimeoutError, match=r"topic t has 1 of 2 records, and got no other in 0.01 s"):
        kafka.wait_for_records("t", 2, timeout=0.01, isolation="read_committed")


def test_records_that_come_later_are_waited_for(kafka):
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(kafka.wait_for_records, "later", 3, timeout=30)
        kafka.create_topic("later", 2)
        for number in range(3):
            kafka.store.log("later", number % 2).append(kstore.Record(value=b"%d" % number))
        assert [record.value for record in waiting.result()] == [b"0", b"2", b"1"]
    kafka.store.log("later", 0).delete_records(1)
    assert [record.value for record in kafka.wait_for_records("later", 2)] == [b"2", b"1"]


def test_a_directory_of_its_own_is_removed_and_a_given_one_stays(tmp_path):
    with KafkaServer(topics={"t": 1}) as server:
        root = Path(server.root)
        assert (root / "t-0").is_dir()
    assert not root.parent.exists()
    with KafkaServer(tmp_path / "root", topics={"t": 1}):
        pass
    assert (tmp_path / "root" / "t-0").is_dir()


def test_a_wait_for_records_ends_when_the_server_stops(kafka):
    follow, following = kafka.store.follow, Latch()

    def followed(*arguments, **options):
        following.open()
        return follow(*arguments, **options)

    with ThreadPoolExecutor() as threads, pytest.MonkeyPatch.context() as patch:
        patch.setattr(kafka.store, "follow", followed)
        waiting = threads.submit(kafka.wait_for_records, "t", 1, timeout=None)
        following.wait()
        kafka.stop()
        with pytest.raises(kstore.LogClosedError):
            waiting.result()


def test_the_topics_of_a_directory_that_was_kept_stay_as_they_are(tmp_path):
    with KafkaServer(tmp_path, topics={"t": 2}) as server:
        server.store.log("t", 1).append(kstore.Record(value=b"v"))
    with KafkaServer(tmp_path, topics={"t": 1, "u": 1}) as server:
        assert [record.value for record in server.records("t", 1)] == [b"v"]
        assert server.store.topics == ("t", "u")


def test_a_topic_that_cannot_be_created_leaves_no_server(tmp_path):
    with pytest.raises(kstore.InvalidTopicError):
        KafkaServer(tmp_path / "root", topics={"no/name": 1})
    kstore.open_store(tmp_path / "root", "a").close()


def test_a_client_tries_again_after_an_error_that_it_may_try_again_after(kafka):
    kafka.fail_next("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)
    assert produced(kafka, b"v", **{"retry.backoff.ms": 1}) is None
    assert [record.value for record in kafka.records("t")] == [b"v"]


def test_a_client_is_told_an_error_that_is_final(kafka):
    kafka.fail_next("Produce", kstore.RecordTooLargeError)
    assert produced(kafka, b"v").code() == confluent_kafka.KafkaError.MSG_SIZE_TOO_LARGE
    assert kafka.records("t") == []
    assert produced(kafka, b"v") is None


@pytest.mark.parametrize("is_idempotent", [False, True])
def test_a_record_whose_answer_is_lost_is_doubled_unless_its_producer_is_idempotent(kafka, is_idempotent):
    kafka.disconnect_next("Produce", is_done=True)
    assert produced(kafka, b"v", **{"enable.idempotence": is_idempotent, "retry.backoff.ms": 1}) is None
    assert [record.value for record in kafka.records("t")] == [b"v"] * (1 if is_idempotent else 2)


def test_a_request_that_is_disconnected_is_not_done_unless_it_is_said(kafka):
    kafka.disconnect_next("CreateTopics")
    request = CreateTopicsRequest(topics=[CreateTopicsRequest.CreatableTopic(name="new", num_partitions=1)])
    with RawClient(kafka) as client:
        client.send(request, version=5)
        assert client.is_closed()
    assert "new" not in kafka.store.topics


def test_a_delayed_request_holds_up_nobody_else(kafka):
    kafka.delay_next("Heartbeat", 0.2)
    with RawClient(kafka) as slow, RawClient(kafka) as quick:
        slow.send(HeartbeatRequest(group_id="g"), version=4)
        assert quick.ask(HeartbeatRequest(group_id="g"), version=4).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert slow.receive(12, version=4)[1].error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_fault_happens_as_often_as_it_was_planned(kafka):
    kafka.fail_next("Heartbeat", "COORDINATOR_NOT_AVAILABLE", times=3)
    with RawClient(kafka) as client:
        codes = [client.ask(HeartbeatRequest(group_id="g"), version=4).error_code for _ in range(4)]
    assert codes == [*[ErrorCode.COORDINATOR_NOT_AVAILABLE] * 3, ErrorCode.UNKNOWN_MEMBER_ID]


def test_faults_that_are_cleared_do_not_happen(kafka):
    kafka.fail_next("Produce", 3, times=100)
    kafka.disconnect_next("Fetch")
    assert kafka.clear_faults() == 101
    assert kafka.clear_faults() == 0
    assert produced(kafka, b"v") is None


def test_a_broker_that_restarts_has_the_same_records_and_port(kafka):
    async def run():
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers, retry_backoff_ms=10)
        async with producer:
            await producer.send_and_wait("t", b"1", partition=0)
            await asyncio.to_thread(kafka.restart)
            await producer.send_and_wait("t", b"2", partition=0)

    asyncio.run(run())
    assert [record.value for record in kafka.records("t")] == [b"1", b"2"]


def test_a_client_goes_on_after_a_broker_that_was_away(kafka):
    kafka.stop()
    kafka.stop()
    host, port = kafka.bootstrap_servers.split(":")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)))
    with pytest.raises(ValueError, match="the server is not started"):
        kafka.records("t")
    assert kafka.start() is kafka
    assert produced(kafka, b"v") is None
    with pytest.raises(ValueError, match="the server runs already"):
        kafka.start()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_whose_session_ends_joins_again_and_reads_on(kafka, protocol):
    settings = (
        {"group.protocol": "consumer"}
        if protocol == "consumer"
        else {"session.timeout.ms": 6000, "heartbeat.interval.ms": 200}
    )
    lost = []
    consumer = confluent_kafka.Consumer(
        settings | {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    try:
        consumer.subscribe(["t"], on_lost=lambda *_: lost.append(True), on_revoke=lambda *_: lost.append(True))
        produced(kafka, b"1")
        assert next(message for message in iter(lambda: consumer.poll(1), 0) if message).value() == b"1"
        with pytest.raises(ValueError, match="group g has no member nobody"):
            kafka.expire_session("g", "nobody")
        kafka.expire_session("g")
        with pytest.raises(ValueError, match="group g has no members"):
            kafka.expire_session("g")
        while not lost:
            consumer.poll(0.1)
        produced(kafka, b"2")
        values = {b"1"}
        while b"2" not in values:
            message = consumer.poll(1)
            values |= {message.value()} if message is not None and message.error() is None else set()
    finally:
        consumer.close()


@pytest.mark.parametrize(
    "error", ["NOT_A_LEADER", "NONE", 0, 7777, -2, kstore.KStoreError, ValueError, None, "REQUEST_TIMEOUT"]
)
def test_an_unknown_error_is_refused(kafka, error):
    similar = r"got 'REQUEST_TIMEOUT'; did you mean .*REQUEST_TIMED_OUT" if error == "REQUEST_TIMEOUT" else "got "
    with pytest.raises(ValueError, match=f"expected the name of an error in Kafka.*{similar}"):
        kafka.fail_next("Produce", error)
    assert kafka.clear_faults() == 0


def test_an_unknown_api_and_a_fault_that_could_not_happen_are_refused(kafka):
    with pytest.raises(ValueError, match=r"expected one of .*Produce.*, got 'Product'"):
        kafka.fail_next("Product", 1)
    for times in (0, -1, 1_000_001):
        with pytest.raises(ValueError, match=f"times must be from 1 to 1000000, got {times}"):
            kafka.disconnect_next("Produce", times=times)
    for seconds in (-1, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="seconds must be 0 or more"):
            kafka.delay_next("Fetch", seconds)
    assert kafka.clear_faults() == 0


P, F, L, C, O = ProduceRequest, FetchRequest, ListOffsetsRequest, OffsetCommitRequest, OffsetFetchRequest  # noqa: E741


def codes_of(answer, *place):
    """Return where an answer has which codes: a place is what names the structs on the way to it."""
    names = [
        getattr(answer, name)
        for name in ("name", "group_id", "topic", "partition_index", "index")
        if name in answer.__slots__
    ]
    place = (*place, *names)
    found = {}
    for name in answer.__slots__:
        value = getattr(answer, name)
        if name == "error_code" and value:
            found[place] = value
        elif isinstance(value, list):
            for one in value:
                found |= codes_of(one, *place) if isinstance(one, Message) else {}
    return found


def partition_of(request, topics, topic, partition, **values):
    """Return a request of a partition of the topic t."""
    names = {"name", "topic"} & {attribute(field.name) for field in getattr(request, topic).fields}
    inner = next(field for field in getattr(request, topic).fields if field.is_array)
    one = getattr(request, topic)(**dict.fromkeys(names, "t"), **{attribute(inner.name): [partition]})
    return request(**{topics: [one]}, **values)


@pytest.mark.parametrize(
    ("request_", "version", "places"),
    [
        pytest.param(
            partition_of(P, "topic_data", "TopicProduceData", P.PartitionProduceData(index=1), acks=1),
            9,
            {("t", 1)},
            id="Produce",
        ),
        pytest.param(
            partition_of(F, "topics", "FetchTopic", F.FetchPartition(partition=7)), 12, {("t", 7)}, id="Fetch"
        ),
        pytest.param(
            partition_of(L, "topics", "ListOffsetsTopic", L.ListOffsetsPartition(partition_index=3)),
            7,
            {("t", 3)},
            id="ListOffsets",
        ),
        pytest.param(
            partition_of(C, "topics", "OffsetCommitRequestTopic", C.OffsetCommitRequestPartition(partition_index=2)),
            8,
            {("t", 2)},
            id="OffsetCommit",
        ),
        pytest.param(
            O(groups=[O.OffsetFetchRequestGroup(group_id="g", topics=None)]), 8, {("g",)}, id="OffsetFetch of groups"
        ),
        pytest.param(partition_of(O, "topics", "OffsetFetchRequestTopic", 4), 1, {("t", 4)}, id="OffsetFetch of one"),
        pytest.param(HeartbeatRequest(group_id="g"), 4, {()}, id="Heartbeat"),
        pytest.param(
            MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="t")]), 9, {("t",)}, id="Metadata"
        ),
    ],
)
def test_an_error_is_said_of_all_that_a_request_asks_for(kafka, request_, version, places):
    kafka.fail_next(apis()[type(request_).schema.api_keys[0]].name, "KAFKA_STORAGE_ERROR")
    with RawClient(kafka) as client:
        answer = client.ask(request_, version=version)
    assert codes_of(answer) == dict.fromkeys(places, ErrorCode.KAFKA_STORAGE_ERROR)


def test_every_api_can_be_failed(kafka):
    """The answer to a request without contents is made, and is one that its encoder takes."""
    from kstore.serve.apis import HANDLERS
    from kstore.serve.faults import failed_answer
    from kstore.wire.frames import encode_response
    from kstore.wire.messages import message_named

    for key in HANDLERS:
        api = apis()[key]
        for version in api.versions:
            answer = failed_answer(message_named(f"{api.name}Request")(), api_key=key, version=version, code=42)
            assert encode_response(answer, version=version, correlation_id=1)
