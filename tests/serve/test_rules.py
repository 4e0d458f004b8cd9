"""Goal: a client does and sees what its rules allow, and gets a broker's codes for the rest.
Method: every guard on made-up requests; requests of users with few rights by a socket; librdkafka as one of them."""

from __future__ import annotations

import random
from uuid import UUID

import pytest

import kstore
from kstore.errors import AuthenticationError
from kstore.serve.apis import HANDLERS
from kstore.serve.config import SecurityConfig, ServerConfig
from kstore.serve.security.guards import GUARDS, Asked, guarded
from kstore.serve.security.operations import operations
from kstore.serve.security.rules import EVERYTHING, NOTHING, Access, Operation, Resource, Rule
from kstore.serve.security.users import add_user, allow, disallow
from kstore.serve.server import Server
from kstore.wire.compiler import codec
from kstore.wire.frames import apis
from kstore.wire.messages import (
    AddPartitionsToTxnRequest,
    ConsumerGroupHeartbeatRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeConfigsRequest,
    FetchRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    JoinGroupRequest,
    ListOffsetsRequest,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    ProduceRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
    message_named,
)
from tests.making.collecting import over
from tests.making.serving import RawClient
from tests.reference.wire import Maker

READS = Rule(Resource.TOPIC, "t", frozenset({Operation.READ}))
RIGHTS = {
    "reader": [(Resource.TOPIC, "t", Operation.READ), (Resource.GROUP, "g", Operation.READ)],
    "writer": [(Resource.TOPIC, "t", Operation.WRITE), (Resource.TRANSACTIONAL_ID, "x", Operation.WRITE)],
    "admin": [(Resource.TOPIC, "t", Operation.ADMIN)],
    "nobody": [],
}


def test_every_api_that_is_served_has_a_guard():
    assert HANDLERS.keys() <= GUARDS.keys()


CASES = [(key, version) for key in GUARDS if key in apis() for version in apis()[key].versions]


@over("key, version", CASES, by=lambda case: str(case[0]), label=str)
def test_what_is_refused_can_be_answered_in_each_version(key, version):
    api = apis()[key]
    cls = message_named(f"{api.name}Request")
    for seed in range(20):
        maker = Maker(random.Random(seed), version=version, is_flexible=version in api.flexible, most=3)
        data = b"".join(map(bytes, codec(cls, version=version).encode(maker.message(cls))))
        for access in (NOTHING, EVERYTHING):
            body, _ = codec(cls, version=version).decode(data)
            try:
                verdict = guarded(Asked(key, version, body, access, lambda _: "a topic"))
            except AuthenticationError:
                assert (key, body.acks, access) == (0, 0, NOTHING)
                continue
            answer = verdict.answer
            if answer is None:
                answer = message_named(f"{api.name}Response")()
                verdict.complete(answer)
            assert codec(type(answer), version=version).encode(answer)
            if access is EVERYTHING:
                assert verdict.answer is None
                if key != 3:
                    assert b"".join(map(bytes, codec(cls, version=version).encode(body))) == data


def test_an_api_without_a_guard_is_refused():
    with pytest.raises(AuthenticationError):
        guarded(Asked(4711, 0, None, NOTHING, lambda _: None))


def test_operations_are_those_that_rules_allow():
    reader = Access([READS, Rule(Resource.GROUP, "g", frozenset({Operation.READ}))])
    assert operations(reader, Resource.TOPIC, "t") == 1 << 3 | 1 << 8
    assert operations(reader, Resource.TOPIC, "hidden") == 0
    assert operations(reader, Resource.GROUP, "g") == 1 << 3 | 1 << 8
    assert operations(reader, Resource.CLUSTER, "") == 0
    admin = Access([Rule(Resource.TOPIC, "t", frozenset({Operation.ADMIN}))])
    assert operations(admin, Resource.TOPIC, "t") == sum(1 << code for code in (5, 6, 7, 8, 10, 11))


@pytest.fixture(scope="module")
def users(tmp_path_factory):
    path = tmp_path_factory.mktemp("users") / "users.json"
    add_user(path, "super", "p", is_superuser=True, iterations=4096)
    for name, rights in RIGHTS.items():
        add_user(path, name, "p", iterations=4096)
        for resource, prefix, operation in rights:
            allow(path, name, Rule(resource, prefix, frozenset({operation})))
    return path


@pytest.fixture
def server(served, users):
    served.create_topic("hidden", 1)
    served.log("t", 0).append(kstore.Record(value=b"v"))
    config = ServerConfig(port=0, security=SecurityConfig(users=users, sasl_mechanisms=("PLAIN", "SCRAM-SHA-256")))
    with Server(served, config=config) as running:
        yield running


@pytest.fixture
def as_user(server):
    """Return a function that returns a client who is authenticated as a user."""
    clients = []

    def connect(user):
        client = RawClient(server)
        clients.append(client)
        assert client.ask(SaslHandshakeRequest(mechanism="PLAIN"), version=1).error_code == 0
        token = f"\0{user}\0p".encode()
        assert client.ask(SaslAuthenticateRequest(auth_bytes=token), version=2).error_code == 0
        return client

    yield connect
    for client in clients:
        client.socket.close()


def codes(topics, parts="partitions", name="name"):
    return {getattr(topic, name): [part.error_code for part in getattr(topic, parts)] for topic in topics}


def test_topics_are_seen_by_those_who_may_do_something_with_them(as_user):
    everything = MetadataRequest(topics=None)
    seen = {
        user: sorted(topic.name for topic in as_user(user).ask(everything, version=12).topics)
        for user in ("super", "reader", "writer", "admin", "nobody")
    }
    assert seen == {"super": ["hidden", "t"], "reader": ["t"], "writer": ["t"], "admin": ["t"], "nobody": []}


@pytest.mark.parametrize("version", [0, 5, 12])
def test_a_topic_that_is_named_and_may_not_be_seen_is_refused_whether_it_is_there_or_not(as_user, version):
    kind = MetadataRequest.MetadataRequestTopic
    asked = MetadataRequest(topics=[kind(name=name) for name in ("t", "hidden", "missing")])
    found = as_user("reader").ask(asked, version=version)
    assert {topic.name: topic.error_code for topic in found.topics} == {"t": 0, "hidden": 29, "missing": 29}
    assert len(found.brokers) == 1


def test_a_topic_that_is_named_by_its_id_and_may_not_be_seen_has_no_name(served, as_user):
    kind = MetadataRequest.MetadataRequestTopic
    topic_id, unknown = served.topic_id("hidden"), UUID(int=7)
    asked = MetadataRequest(topics=[kind(name=None, topic_id=one) for one in (topic_id, unknown)])
    found = as_user("reader").ask(asked, version=12)
    assert {topic.topic_id: (topic.name, topic.error_code) for topic in found.topics} == {
        topic_id: (None, 29),
        unknown: (None, 100),
    }


@pytest.mark.parametrize(("user", "is_made"), [("admin", True), ("writer", False), ("super", True)])
def test_a_topic_that_is_asked_for_is_made_by_an_administrator_only(served, as_user, user, is_made):
    asked = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="t-new")])
    as_user(user).ask(asked, version=12)
    assert ("t-new" in served.topics) is is_made


def test_records_are_read_of_topics_that_may_be_read(served, as_user):
    part = FetchRequest.FetchPartition(partition=0, partition_max_bytes=1000)
    topics = [FetchRequest.FetchTopic(topic=name, partitions=[part]) for name in ("t", "hidden")]
    asked = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=10**6, topics=topics)
    answered = {user: as_user(user).ask(asked, version=12).responses for user in ("reader", "writer")}
    found = {user: codes(topics, name="topic") for user, topics in answered.items()}
    assert found == {"reader": {"t": [0], "hidden": [29]}, "writer": {"t": [29], "hidden": [29]}}
    records = {topic.topic: len(topic.partitions[0].records) for topic in answered["reader"]}
    assert records["t"] > 0 == records["hidden"]
    by_id = [FetchRequest.FetchTopic(topic_id=served.topic_id(name), partitions=[part]) for name in ("t", "hidden")]
    asked = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=10**6, topics=by_id)
    found = as_user("reader").ask(asked, version=16).responses
    assert codes(found, name="topic_id") == {served.topic_id("t"): [0], served.topic_id("hidden"): [29]}


def test_offsets_are_told_of_topics_that_may_be_seen(as_user):
    cls = ListOffsetsRequest
    part = cls.ListOffsetsPartition(partition_index=0, timestamp=-1)
    topics = [cls.ListOffsetsTopic(name=name, partitions=[part]) for name in ("t", "hidden")]
    found = as_user("writer").ask(cls(replica_id=-1, topics=topics), version=7)
    assert codes(found.topics) == {"t": [0], "hidden": [29]}


def test_offsets_are_committed_by_groups_that_may_be_read_of_topics_that_may_be_read(as_user):
    cls = OffsetCommitRequest
    part = cls.OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    topics = [cls.OffsetCommitRequestTopic(name=name, partitions=[part]) for name in ("t", "hidden")]
    answers = [
        codes(as_user(user).ask(cls(group_id=group, topics=topics), version=8).topics)
        for user, group in (("reader", "g"), ("reader", "other"), ("writer", "g"))
    ]
    assert answers == [{"t": [0], "hidden": [29]}, {"t": [30], "hidden": [30]}, {"t": [30], "hidden": [30]}]
    as_user("super").ask(cls(group_id="g", topics=topics), version=8)
    fetched = as_user("reader").ask(OffsetFetchRequest(group_id="g", topics=None), version=7)
    assert (fetched.error_code, codes(fetched.topics)) == (0, {"t": [0]})
    kind = OffsetFetchRequest.OffsetFetchRequestTopic
    asked = OffsetFetchRequest(
        group_id="g", topics=[kind(name=name, partition_indexes=[0]) for name in ("t", "hidden")]
    )
    fetched = as_user("reader").ask(asked, version=7)
    assert codes(fetched.topics) == {"t": [0], "hidden": [29]}
    assert as_user("writer").ask(asked, version=7).error_code == 30
    groups = [OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=None) for group in ("g", "other")]
    fetched = as_user("reader").ask(OffsetFetchRequest(groups=groups), version=8)
    assert [(one.group_id, one.error_code, codes(one.topics)) for one in fetched.groups] == [
        ("g", 0, {"t": [0]}),
        ("other", 30, {}),
    ]


def test_a_group_that_may_not_be_read_cannot_be_joined_nor_found(as_user):
    join = JoinGroupRequest(
        group_id="other",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    reader = as_user("reader")
    assert reader.ask(join, version=5).error_code == 30
    found = reader.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g", "other"]), version=4).coordinators
    assert {one.key: one.error_code for one in found} == {"g": 0, "other": 30}
    assert reader.ask(FindCoordinatorRequest(key_type=0, key="other"), version=2).error_code == 30
    assert reader.ask(FindCoordinatorRequest(key_type=1, key="x"), version=2).error_code == 53


def test_a_pattern_of_a_group_matches_topics_that_may_be_seen(served, as_user):
    fields = {"rebalance_timeout_ms": 1000, "topic_partitions": [], "subscribed_topic_regex": "t|hidden|__.*"}
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=0, **fields)
    answer = as_user("reader").ask(request, version=1)
    assert [topic.topic_id for topic in answer.assignment.topic_partitions] == [served.topic_id("t")]


def test_a_pattern_is_resolved_again_once_rules_have_changed(served, as_user, server, users):
    fields = {"rebalance_timeout_ms": 1000, "topic_partitions": [], "subscribed_topic_regex": "t|hidden"}
    client = as_user("reader")

    def beat(epoch, **more):
        request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=epoch, **more)
        return client.ask(request, version=1)

    epoch = beat(0, **fields).member_epoch
    rule = Rule(Resource.TOPIC, "hidden", frozenset({Operation.READ}))
    allow(users, "reader", rule)
    try:
        server._now()._server._door.refresh()
        answer = beat(epoch)
    finally:
        disallow(users, "reader", rule)
    found = {topic.topic_id for topic in answer.assignment.topic_partitions}
    assert (answer.member_epoch, found) == (epoch + 1, {served.topic_id("t"), served.topic_id("hidden")})


def test_topics_are_created_and_deleted_by_administrators(served, as_user):
    kind = CreateTopicsRequest.CreatableTopic
    asked = CreateTopicsRequest(
        topics=[kind(name=name, num_partitions=1, replication_factor=1) for name in ("t-a", "other")], timeout_ms=1000
    )
    found = as_user("admin").ask(asked, version=7).topics
    assert {one.name: one.error_code for one in found} == {"t-a": 0, "other": 29}
    assert {one.error_code for one in as_user("writer").ask(asked, version=7).topics} == {29}
    assert "other" not in served.topics
    for version in (5, 6):
        named = (
            {"topic_names": ["hidden"]}
            if version == 5
            else {"topics": [DeleteTopicsRequest.DeleteTopicState(name="hidden")]}
        )
        [found] = as_user("admin").ask(DeleteTopicsRequest(timeout_ms=1000, **named), version=version).responses
        assert (found.name, found.error_code) == ("hidden", 29)
    assert "hidden" in served.topics


def test_settings_are_shown_to_administrators_and_those_of_the_server_to_superusers(as_user):
    kind = DescribeConfigsRequest.DescribeConfigsResource
    resources = [kind(resource_type=2, resource_name="t"), kind(resource_type=4, resource_name="1")]
    answers = {
        user: [
            one.error_code for one in as_user(user).ask(DescribeConfigsRequest(resources=resources), version=4).results
        ]
        for user in ("super", "admin", "reader")
    }
    assert answers == {"super": [0, 0], "admin": [0, 31], "reader": [29, 31]}


def test_a_producer_id_is_for_those_who_write_somewhere(as_user):
    asked = InitProducerIdRequest(transactional_id=None)
    answers = [as_user(user).ask(asked, version=4).error_code for user in ("writer", "reader")]
    assert answers == [0, 31]
    other = InitProducerIdRequest(transactional_id="other", transaction_timeout_ms=1000)
    assert as_user("writer").ask(other, version=4).error_code == 53


def test_partitions_are_added_to_a_transaction_all_or_none():
    kind = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
    topics = [kind(name=name, partitions=[0]) for name in ("t", "hidden")]
    body = AddPartitionsToTxnRequest(v3_and_below_transactional_id="x", v3_and_below_topics=topics)
    writes = frozenset({Operation.WRITE})
    access = Access([Rule(Resource.TOPIC, "t", writes), Rule(Resource.TRANSACTIONAL_ID, "x", writes)])
    verdict = guarded(Asked(24, 3, body, access, lambda _: None))
    found = verdict.answer.results_by_topic_v3_and_below
    assert {one.name: one.results_by_partition[0].partition_error_code for one in found} == {"t": 55, "hidden": 29}


def test_records_that_may_not_be_written_and_have_no_answer_close_the_connection(as_user):
    topic = ProduceRequest.TopicProduceData(
        name="hidden", partition_data=[ProduceRequest.PartitionProduceData(index=0, records=b"")]
    )
    client = as_user("writer")
    refused = client.ask(ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic]), version=9)
    assert codes(refused.responses, "partition_responses") == {"hidden": [29]}
    client.send(ProduceRequest(acks=0, timeout_ms=1000, topic_data=[topic]), version=9)
    assert client.is_closed()


def test_a_rule_that_is_gone_counts_no_more_for_who_is_connected(server, users, as_user):
    client = as_user("reader")
    disallow(users, "reader", READS)
    try:
        server._now()._server._door.refresh()
        assert client.ask(MetadataRequest(topics=None), version=12).topics == []
    finally:
        allow(users, "reader", READS)


def test_librdkafka_is_told_what_it_may_not(server):
    confluent_kafka = pytest.importorskip("confluent_kafka")
    settings = {
        "bootstrap.servers": server.bootstrap_servers,
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "writer",
        "sasl.password": "p",
    }
    producer = confluent_kafka.Producer(settings)
    errors = {}
    for topic in ("t", "hidden"):
        producer.produce(topic, b"v", on_delivery=lambda error, message: errors.update({message.topic(): error}))
    assert producer.flush(20) == 0
    assert errors["t"] is None
    assert errors["hidden"].code() == confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED
    consumer = confluent_kafka.Consumer(settings | {"group.id": "g"})
    consumer.subscribe(["t"])
    try:
        assert consumer.consume(1, 20)[0].error().code() == confluent_kafka.KafkaError.GROUP_AUTHORIZATION_FAILED
    finally:
        consumer.close()
