"""Goal: requests of administration do in the store what they do in a broker, and are refused with its codes.
Method: requests as objects, held against the store; the clients of other projects for the usual ones."""

from __future__ import annotations

import uuid

import pytest

import kstore
from kstore.serve.config import ServerConfig
from kstore.serve.server import Server
from kstore.types import TopicPartition
from kstore.wire.messages import (
    AlterConfigsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    DescribeConfigsRequest,
    DescribeTopicPartitionsRequest,
    IncrementalAlterConfigsRequest,
    ListConfigResourcesRequest,
    MetadataRequest,
)
from kstore.wire.protocol import ZERO_UUID
from tests.making.cluster import config as config_record
from tests.making.cluster import topic as topic_record
from tests.making.cluster import write_metadata
from tests.making.serving import RawClient

NODE = 1
TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


def new_topic(name="new", *, partitions=1, replicas=1, assignments=(), configs=()):
    return CreateTopicsRequest.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=[
            CreateTopicsRequest.CreatableReplicaAssignment(partition_index=number, broker_ids=nodes)
            for number, nodes in assignments
        ],
        configs=[CreateTopicsRequest.CreatableTopicConfig(name=key, value=value) for key, value in configs],
    )


def create(client, *topics, validate_only=False, version=7):
    request = CreateTopicsRequest(topics=list(topics), timeout_ms=1000, validate_only=validate_only)
    return client.ask(request, version=version).topics


def code_of_creation(client, **wanted):
    (made,) = create(client, new_topic(**wanted))
    return made.error_code


def test_a_topic_that_is_only_validated_is_not_made(client, served):
    (made,) = create(client, new_topic(configs=[("retention.ms", "7")]), validate_only=True)
    assert (made.error_code, made.num_partitions, made.replication_factor) == (0, 1, 1)
    assert {one.name: one.value for one in made.configs}["retention.ms"] == "7"
    assert create(client, new_topic("t"), validate_only=True)[0].error_code == 36
    assert served.topics == ("t",)


def test_the_settings_of_a_new_topic_are_answered_with_who_said_them(client):
    (made,) = create(client, new_topic(configs=[("cleanup.policy", "compact"), ("min.insync.replicas", "1")]))
    shown = {one.name: (one.value, one.config_source) for one in made.configs}
    assert shown["cleanup.policy"] == ("compact", 1)
    # A root of kstore keeps records, which is not Kafka's default.
    assert shown["retention.ms"] == ("-1", 4)
    assert shown["segment.bytes"] == (str(2**30), 5)
    assert [one.name for one in made.configs] == sorted(shown)
    assert len(shown) == 33


def test_a_topic_that_a_request_names_twice_is_refused_once(client, served):
    results = create(client, new_topic("a"), new_topic("b"), new_topic("a"))
    assert {one.name: one.error_code for one in results} == {"a": 42, "b": 0}
    assert len(results) == 2
    assert served.topics == ("b", "t")


@pytest.mark.parametrize(
    ("assignments", "wanted", "code"),
    [
        ([(1, [NODE]), (0, [NODE])], {}, 0),
        ([(0, [NODE])], {"replicas": 1}, 42),
        ([(0, [NODE])], {"partitions": 1}, 42),
        ([(0, [NODE]), (2, [NODE])], {}, 39),
        ([(0, [NODE]), (0, [NODE])], {}, 39),
        ([(0, [])], {}, 39),
        ([(0, [NODE + 1])], {}, 39),
        ([(0, [NODE, NODE])], {}, 39),
    ],
)
def test_partitions_can_be_assigned_to_the_one_node(client, served, assignments, wanted, code):
    asked = {"partitions": -1, "replicas": -1, "assignments": assignments, **wanted}
    assert code_of_creation(client, **asked) == code
    assert len([one for one in served.partitions if one.topic == "new"]) == (0 if code else 2)


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        ({"name": "t"}, 36),
        ({"name": "a b"}, 17),
        ({"name": "__cluster_metadata"}, 17),
        ({"partitions": 0}, 37),
        ({"partitions": -2}, 37),
        ({"partitions": 2**31 - 1}, 44),
        ({"replicas": 2}, 38),
        ({"replicas": 0}, 38),
        ({"configs": [("no.such.setting", "1")]}, 40),
        ({"configs": [("retention.ms", None)]}, 40),
        ({"configs": [("retention.ms", "soon")]}, 40),
        ({"configs": [("retention.ms", "-2")]}, 40),
        ({"configs": [("min.insync.replicas", "2")]}, 40),
        ({"partitions": -1, "replicas": -1}, 0),
    ],
)
def test_a_creation_is_refused_with_the_code_of_a_broker(client, wanted, code):
    assert code_of_creation(client, **wanted) == code


def grow(client, *topics, validate_only=False):
    asked = [
        CreatePartitionsRequest.CreatePartitionsTopic(
            name=name,
            count=count,
            assignments=None
            if nodes is None
            else [CreatePartitionsRequest.CreatePartitionsAssignment(broker_ids=each) for each in nodes],
        )
        for name, count, nodes in topics
    ]
    request = CreatePartitionsRequest(topics=asked, timeout_ms=1000, validate_only=validate_only)
    return {one.name: one.error_code for one in client.ask(request, version=3).results}


def test_partitions_are_added_to_each_topic_that_can_have_them(client, served):
    served.create_topic("u")
    assert grow(client, ("t", 3, None), validate_only=True) == {"t": 0}
    assert len(served.partitions) == 3
    asked = [("t", 4, None), ("u", 1, None), ("none", 2, None)]
    assert grow(client, *asked) == {"t": 0, "u": 37, "none": 3}
    assert [number for topic, number in served.partitions if topic == "t"] == [0, 1, 2, 3]
    assert grow(client, ("u", 2, None), ("u", 3, None)) == {"u": 42}
    assert grow(client, ("u", 0, None)) == {"u": 37}
    assert grow(client, ("u", 3, [[NODE]])) == {"u": 39}
    assert grow(client, ("u", 2, [[NODE + 1]])) == {"u": 39}
    assert grow(client, ("u", 3, [[NODE], [NODE]])) == {"u": 0}


def delete(client, *topics, version=6):
    if version < 6:
        request = DeleteTopicsRequest(topic_names=list(topics), timeout_ms=1000)
    else:
        asked = [DeleteTopicsRequest.DeleteTopicState(name=name, topic_id=topic_id) for name, topic_id in topics]
        request = DeleteTopicsRequest(topics=asked, timeout_ms=1000)
    return [(one.name, one.topic_id, one.error_code) for one in client.ask(request, version=version).responses]


def test_topics_are_deleted_by_name_and_by_id(client, served):
    ids = {name: served.create_topic(name) for name in ("a", "b", "c")}
    assert [(name, code) for name, _, code in delete(client, "a", "none", version=1)] == [("a", 0), ("none", 3)]
    unknown = uuid.UUID(int=7)
    found = delete(client, ("b", ZERO_UUID), (None, ids["c"]), (None, unknown), ("none", ZERO_UUID))
    assert found == [
        ("b", ids["b"], 0),
        ("c", ids["c"], 0),
        (None, unknown, 100),
        ("none", ZERO_UUID, 3),
    ]
    assert served.topics == ("t",)


def test_an_id_counts_and_not_the_empty_name_that_java_has_beside_it(client, served):
    topic_id = served.topic_id("t")
    asked = [MetadataRequest.MetadataRequestTopic(name=name, topic_id=topic_id) for name in ("", "other", None)]
    topics = client.ask(MetadataRequest(topics=asked, allow_auto_topic_creation=True), version=13).topics
    assert [(one.name, one.topic_id, one.error_code) for one in topics] == [("t", topic_id, 0)] * 3
    assert served.topics == ("t",)


@pytest.mark.parametrize("version", [10, 11])
def test_a_topic_is_not_asked_for_by_its_id_in_a_version_without_that(client, served, version):
    topic_id, kind = served.topic_id("t"), MetadataRequest.MetadataRequestTopic
    for name, asked_id in ((None, topic_id), ("t", topic_id), ("t", uuid.uuid4())):
        wrong = kind(name=name, topic_id=asked_id)
        answer = client.ask(MetadataRequest(topics=[wrong, kind(name="t")]), version=version)
        refused = [(name or "", asked_id, 42), ("t", ZERO_UUID, 42)]
        assert [(one.name, one.topic_id, one.error_code) for one in answer.topics] == refused
        assert (answer.brokers, answer.cluster_id, answer.controller_id) == ([], None, -1)
    (told,) = client.ask(MetadataRequest(topics=[kind(name="t")]), version=version).topics
    assert (told.topic_id, told.error_code) == (topic_id, 0)


def test_a_topic_that_is_deleted_while_a_client_asks_is_not_there(client, served, monkeypatch):
    topic_id = served.topic_id("t")
    # What a request sees while a thread deletes "gone".
    monkeypatch.setattr(type(served), "topics", ("gone", "t"))
    monkeypatch.setattr(type(served), "partitions", (TopicPartition("gone", 0), TopicPartition("t", 0)))
    for asked in (None, [MetadataRequest.MetadataRequestTopic(name=None, topic_id=topic_id)]):
        topics = client.ask(MetadataRequest(topics=asked), version=12).topics
        assert {one.name: one.error_code for one in topics}["t"] == 0
    assert [one.error_code for one in client.ask(MetadataRequest(topics=None), version=12).topics] == [3, 0]
    described = client.ask(DescribeTopicPartitionsRequest(response_partition_limit=9), version=0).topics
    assert [(one.name, one.error_code) for one in described] == [("gone", 3), ("t", 0)]


def test_a_deletion_that_is_not_clear_deletes_nothing(client, served):
    topic_id = served.topic_id("t")
    served.create_topic("__consumer_offsets")
    for asked, codes in [
        ([("t", ZERO_UUID), ("t", ZERO_UUID)], [42]),
        ([("t", topic_id)], [42]),
        ([(None, ZERO_UUID)], [42]),
        ([("t", ZERO_UUID), (None, topic_id)], [42, 42]),
        ([("__consumer_offsets", ZERO_UUID)], [17]),
    ]:
        assert [code for _, _, code in delete(client, *asked)] == codes
    assert served.topics == ("__consumer_offsets", "t")


def delete_records(client, *places):
    asked = [
        DeleteRecordsRequest.DeleteRecordsTopic(
            name=topic,
            partitions=[DeleteRecordsRequest.DeleteRecordsPartition(partition_index=number, offset=offset)],
        )
        for topic, number, offset in places
    ]
    answer = client.ask(DeleteRecordsRequest(topics=asked, timeout_ms=1000), version=2)
    return [(one.low_watermark, one.error_code) for topic in answer.topics for one in topic.partitions]


def test_records_are_deleted_up_to_an_offset_or_all(client, served):
    for number in range(2):
        served.log("t", number).append([kstore.Record(value=b"v")] * 5)
    served.create_topic("compacted", config={"cleanup_policy": "compact"})
    served.create_topic("__consumer_offsets")
    assert delete_records(client, ("t", 0, 3), ("t", 1, -1)) == [(3, 0), (5, 0)]
    assert [served.log("t", number).log_start_offset for number in range(2)] == [3, 5]
    # What is gone already is no error.
    assert delete_records(client, ("t", 0, 1)) == [(3, 0)]
    refused = [
        ("t", 0, 6),
        ("t", 0, -2),
        ("t", 2, 0),
        ("none", 0, 0),
        ("compacted", 0, 0),
        ("__consumer_offsets", 0, 0),
    ]
    assert delete_records(client, *refused) == [(-1, 1), (-1, 1), (-1, 3), (-1, 3), (-1, 44), (-1, 17)]


def describe(client, name, *, kind=TOPIC, keys=None, synonyms=True, documentation=True, version=4):
    asked = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=keys
    )
    request = DescribeConfigsRequest(resources=[asked], include_synonyms=synonyms, include_documentation=documentation)
    (result,) = client.ask(request, version=version).results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result.error_code, {one.name: one for one in result.configs}


def test_each_setting_of_a_topic_is_described_with_those_who_say_it(client, served):
    served.change_topic_config("t", {"cleanup_policy": "compact", "segment_bytes": 5_000_000})
    code, shown = describe(client, "t")
    assert (code, len(shown)) == (0, 33)

    def said(name):
        one = shown[name]
        return one.value, one.config_source, [(by.name, by.value, by.source) for by in one.synonyms]

    assert said("cleanup.policy") == (
        "compact",
        1,
        [("cleanup.policy", "compact", 1), ("log.cleanup.policy", "delete", 5)],
    )
    assert said("retention.ms") == ("-1", 4, [("log.retention.ms", "-1", 4)])
    assert said("segment.ms") == ("604800000", 5, [])
    assert said("min.insync.replicas") == ("1", 5, [("min.insync.replicas", "1", 5)])
    assert said("remote.storage.enable") == ("false", 5, [])
    assert [shown[name].config_type for name in ("preallocate", "segment.bytes", "flush.ms", "cleanup.policy")] == [
        1,
        3,
        5,
        7,
    ]
    assert all(one.documentation and not one.read_only and not one.is_sensitive for one in shown.values())


def test_what_is_not_asked_of_settings_is_not_described(client):
    code, shown = describe(client, "t", keys=["retention.ms", "none"], synonyms=False, documentation=False)
    assert (code, list(shown)) == (0, ["retention.ms"])
    assert (shown["retention.ms"].synonyms, shown["retention.ms"].documentation) == ([], None)
    assert len(describe(client, "t", keys=[])[1]) == 33
    assert [describe(client, name)[0] for name in ("none", "", "a b")] == [3, 42, 17]


def test_the_settings_of_the_node_are_described(client, served):
    code, shown = describe(client, str(NODE), kind=BROKER)
    assert code == 0
    values = {name: (one.value, one.config_source, one.read_only) for name, one in shown.items()}
    assert values["node.id"] == (str(NODE), 4, True)
    assert values["log.dirs"] == (served.root, 4, True)
    assert values["socket.request.max.bytes"] == (str(1 << 20), 4, True)
    assert values["log.segment.bytes"] == (str(2**30), 5, True)
    assert describe(client, "", kind=BROKER) == (0, {})
    assert describe(client, str(NODE), kind=BROKER_LOGGER) == (0, {})
    assert describe(client, "g", kind=GROUP)[0] == 0
    for kind, name in [(BROKER, "7"), (BROKER, "x"), (BROKER_LOGGER, ""), (GROUP, ""), (77, "x")]:
        assert describe(client, name, kind=kind)[0] == 42


def test_a_topic_that_is_only_read_has_the_settings_that_its_root_says(served, tmp_path):
    served.change_topic_config("t", {"segment_bytes": 5_000_000})
    with Server(tmp_path / "root", read_only=True, config=ServerConfig(port=0)) as server, RawClient(server) as client:
        code, shown = describe(client, "t")
        assert code == 0
        assert [(shown[name].value, shown[name].config_source) for name in ("segment.bytes", "retention.ms")] == [
            ("5000000", 1),
            ("-1", 4),
        ]
        assert change(client, "t", ("segment.bytes", SET, "6000000")) == 44
    assert served.topic_config("t").segment_bytes == 5_000_000


def own(client, name="t"):
    return {key: one.value for key, one in describe(client, name)[1].items() if one.config_source == 1}


GIVEN = {
    "cleanup.policy": "delete",
    "message.timestamp.type": "CreateTime",
    "retention.ms": "-1",
    "segment.bytes": "52428800",
}


def test_settings_that_a_client_gave_are_the_topics_own_where_they_are_the_default(client, served, tmp_path):
    (made,) = create(client, new_topic(configs=GIVEN.items()))
    assert {one.name: one.value for one in made.configs if one.config_source == 1} == GIVEN
    assert own(client, "new") == GIVEN
    with Server(tmp_path / "root", read_only=True, config=ServerConfig(port=0)) as server, RawClient(server) as reader:
        assert own(reader, "new") == GIVEN


def test_a_policy_that_a_client_did_not_give_is_not_the_topics_own(client, served, tmp_path):
    create(client, new_topic(configs=[("retention.ms", "7200000")]))
    assert own(client, "new") == {"retention.ms": "7200000"}
    with Server(tmp_path / "root", read_only=True, config=ServerConfig(port=0)) as server, RawClient(server) as reader:
        assert own(reader, "new") == {"retention.ms": "7200000"}


def test_a_setting_that_is_set_to_the_default_is_the_topics_own_until_it_is_deleted(client):
    assert change(client, "t", ("retention.ms", SET, "-1"), ("cleanup.policy", APPEND, "delete")) == 0
    assert own(client) == {"retention.ms": "-1", "cleanup.policy": "delete"}
    assert change(client, "t", ("cleanup.policy", SET, "delete,compact")) == 0
    assert own(client)["cleanup.policy"] == "delete,compact"
    assert change(client, "t", ("retention.ms", DELETE, None)) == 0
    assert own(client) == {"cleanup.policy": "delete,compact"}
    configs = [AlterConfigsRequest.AlterableConfig(name="segment.ms", value="604800000")]
    asked = AlterConfigsRequest.AlterConfigsResource(resource_type=TOPIC, resource_name="t", configs=configs)
    client.ask(AlterConfigsRequest(resources=[asked]), version=2)
    assert own(client) == {"segment.ms": "604800000"}


def test_a_topic_of_a_cluster_has_the_settings_that_the_cluster_gave_it(tmp_path):
    root, topic_id = tmp_path / "root", uuid.UUID(int=1)
    with kstore.open_store(root, "a") as store:
        store.create_topic("t", topic_id=topic_id)
    given = {"min.insync.replicas": "2", "segment.bytes": "6000000"}
    write_metadata(root, [topic_record("t", topic_id), *(config_record("t", *one) for one in given.items())])
    with kstore.open_store(root, "a") as store:
        store.change_topic_config("t", {"segment_bytes": 7_000_000})
        with Server(store, config=ServerConfig(port=0)) as server, RawClient(server) as client:
            _, shown = describe(client, "t", keys=[*given])
            assert {name: (one.value, one.config_source) for name, one in shown.items()} == {
                "min.insync.replicas": ("2", 1),
                "segment.bytes": ("7000000", 1),
            }
            assert change(client, "t", ("segment.bytes", SET, "8000000")) == 44


def change(client, topic, *changes, kind=TOPIC, validate_only=False, times=1):
    kinds = IncrementalAlterConfigsRequest
    configs = [
        kinds.AlterableConfig(name=name, config_operation=operation, value=value) for name, operation, value in changes
    ]
    asked = [kinds.AlterConfigsResource(resource_type=kind, resource_name=topic, configs=configs)] * times
    answer = client.ask(kinds(resources=asked, validate_only=validate_only), version=1)
    (code,) = {one.error_code for one in answer.responses}
    return code


def test_settings_are_set_deleted_and_appended_to_and_open_logs_follow(client, served):
    log = served.log("t", 0)
    assert change(client, "t", ("segment.bytes", SET, "5000000"), ("cleanup.policy", APPEND, "compact")) == 0
    assert (log.config.segment_bytes, log.config.cleanup_policy) == (5_000_000, "delete,compact")
    assert change(client, "t", ("cleanup.policy", SUBTRACT, "delete"), ("segment.ms", SET, "77")) == 0
    assert (log.config.cleanup_policy, log.config.segment_ms) == ("compact", 77)
    assert change(client, "t", ("segment.bytes", DELETE, None), ("no.such.setting", DELETE, None)) == 0
    assert (log.config.segment_bytes, log.config.segment_ms) == (2**30, 77)


def test_a_change_that_is_only_validated_changes_nothing(client, served):
    assert change(client, "t", ("segment.bytes", SET, "5000000"), validate_only=True) == 0
    assert change(client, "t", ("segment.bytes", SET, "1"), validate_only=True) == 40
    assert served.log("t", 0).config == served.config


@pytest.mark.parametrize(
    ("topic", "changes", "code"),
    [
        ("t", [("no.such.setting", SET, "1")], 40),
        ("t", [("segment.bytes", SET, "much")], 40),
        ("t", [("segment.bytes", SET, "1")], 40),
        ("t", [("segment.bytes", APPEND, "1")], 40),
        ("t", [("compression.type", APPEND, "producer")], 40),
        ("t", [("cleanup.policy", SUBTRACT, "delete")], 40),
        ("t", [("min.insync.replicas", SET, "2")], 40),
        ("t", [("min.insync.replicas", SET, "1")], 0),
        ("t", [("segment.bytes", SET, None)], 42),
        ("t", [("segment.bytes", 9, "1")], 42),
        ("t", [("segment.bytes", SET, "5000000"), ("segment.bytes", DELETE, None)], 42),
        ("none", [("segment.bytes", SET, "5000000")], 3),
        ("", [("segment.bytes", SET, "5000000")], 42),
    ],
)
def test_a_change_is_refused_with_the_code_of_a_broker(client, served, topic, changes, code):
    assert change(client, topic, *changes) == code
    assert served.topic_config("t") == served.config


def test_what_is_no_topic_or_named_twice_is_not_changed(client):
    one = ("segment.bytes", SET, "5000000")
    assert [change(client, str(NODE), one, kind=kind) for kind in (BROKER, BROKER_LOGGER, GROUP, 77)] == [42] * 4
    assert change(client, "t", one, times=2) == 42


def test_settings_that_are_replaced_are_those_of_the_request_alone(client, served):
    served.change_topic_config("t", {"segment_bytes": 5_000_000, "segment_ms": 7, "read_chunk_bytes": 8192})
    for value, code in ((None, 42), ("x", 40), ("6000000", 0)):
        configs = [AlterConfigsRequest.AlterableConfig(name="segment.bytes", value=value)]
        asked = AlterConfigsRequest.AlterConfigsResource(resource_type=TOPIC, resource_name="t", configs=configs)
        (found,) = client.ask(AlterConfigsRequest(resources=[asked]), version=2).responses
        assert found.error_code == code
    config = served.topic_config("t")
    # A setting that Kafka does not know is not Kafka's to take away.
    assert (config.segment_bytes, config.segment_ms, config.read_chunk_bytes) == (6_000_000, 604_800_000, 8192)


def test_what_has_settings_is_listed(client):
    def listed(*kinds, version=1):
        answer = client.ask(ListConfigResourcesRequest(resource_types=list(kinds)), version=version)
        return answer.error_code, [(one.resource_type, one.resource_name) for one in answer.config_resources]

    assert listed() == (0, [(TOPIC, "t"), (BROKER, str(NODE)), (BROKER_LOGGER, str(NODE))])
    assert listed(TOPIC, CLIENT_METRICS) == (0, [(TOPIC, "t")])
    assert listed(3) == (35, [])
    assert listed(version=0) == (0, [])
