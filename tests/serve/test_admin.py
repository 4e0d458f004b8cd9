"""Goal: requests of administration do in the store what they do in a broker, and are refused with its codes.
Method: requests as objects, held against the store; the clients of other projects for the usual ones."""

from __future__ import annotations

import uuid

import pytest

import kstore
from kstore.types import ZERO_UUID
from kstore.wire.messages import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
)

NODE = 1


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
