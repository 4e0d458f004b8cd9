"""Goal: the admin clients of other projects, unchanged, manage the topics, settings, records and groups of a store.
Method: librdkafka, aiokafka and kafka-python against a server in this process, held against the store."""

from __future__ import annotations

import asyncio

import pytest

import kstore
from kstore.coordinator.group.offsets import GroupOffsets

confluent_admin = pytest.importorskip("confluent_kafka.admin")
confluent_kafka = pytest.importorskip("confluent_kafka")
aiokafka_admin = pytest.importorskip("aiokafka.admin")
python_admin = pytest.importorskip("kafka.admin")

WAIT_S = 20


@pytest.fixture
def admin(server):
    return confluent_admin.AdminClient({"bootstrap.servers": server.bootstrap_servers})


@pytest.fixture
def committed(served):
    """The group "g", which committed offset 1 in t-0."""
    GroupOffsets(served).commit("g", {kstore.TopicPartition("t", 0): kstore.OffsetAndMetadata(1)})
    return served


def done(futures):
    """Return the results of calls by name, an error as its code."""
    results = {}
    for name, future in futures.items():
        try:
            results[name] = future.result(WAIT_S)
        except confluent_kafka.KafkaException as error:
            results[name] = error.args[0].code()
    return results


def test_librdkafka_creates_grows_and_deletes_topics(admin, served):
    new = confluent_admin.NewTopic("new", num_partitions=2, replication_factor=1, config={"cleanup.policy": "compact"})
    again = confluent_admin.NewTopic("t", num_partitions=1)
    assert done(admin.create_topics([new, again])) == {"new": None, "t": 36}
    assert served.topic_config("new").cleanup_policy == "compact"
    assert done(admin.create_partitions([confluent_admin.NewPartitions("new", 4)])) == {"new": None}
    assert len(admin.list_topics("new", timeout=WAIT_S).topics["new"].partitions) == 4
    assert done(admin.delete_topics(["new", "none"])) == {"new": None, "none": 3}
    assert served.topics == ("t",)


def test_librdkafka_changes_settings_of_a_topic(admin, served):
    resource = confluent_admin.ConfigResource(
        confluent_admin.ConfigResource.Type.TOPIC,
        "t",
        incremental_configs=[
            confluent_admin.ConfigEntry(
                "retention.ms", "3600000", incremental_operation=confluent_admin.AlterConfigOpType.SET
            ),
            confluent_admin.ConfigEntry(
                "cleanup.policy", "compact", incremental_operation=confluent_admin.AlterConfigOpType.APPEND
            ),
        ],
    )
    assert set(done(admin.incremental_alter_configs([resource])).values()) == {None}
    assert (served.topic_config("t").retention_ms, served.topic_config("t").is_compacted) == (3_600_000, True)
    (found,) = done(admin.describe_configs([resource])).values()
    assert (found["retention.ms"].value, found["retention.ms"].source) == (
        "3600000",
        confluent_admin.ConfigSource.DYNAMIC_TOPIC_CONFIG.value,
    )
    assert found["min.insync.replicas"].is_default


def test_librdkafka_describes_the_cluster_and_its_topics(admin, served):
    cluster = admin.describe_cluster().result(WAIT_S)
    assert (cluster.cluster_id, [node.id for node in cluster.nodes]) == (served.meta_properties.cluster_id, [1])
    (found,) = done(admin.describe_topics(confluent_kafka.TopicCollection(["t"]))).values()
    assert [(one.id, one.leader.id, [node.id for node in one.isr]) for one in found.partitions] == [
        (0, 1, [1]),
        (1, 1, [1]),
    ]


def test_librdkafka_deletes_records(admin, served):
    served.log("t", 0).append([kstore.Record(value=b"v")] * 5)
    part = confluent_kafka.TopicPartition("t", 0, 3)
    (found,) = done(admin.delete_records([part])).values()
    assert found.low_watermark == served.log("t", 0).log_start_offset == 3
    assert done(admin.delete_records([confluent_kafka.TopicPartition("t", 0, 6)])) == {part: 1}


def test_librdkafka_lists_and_deletes_groups(admin, committed):
    listed = admin.list_consumer_groups().result(WAIT_S)
    assert [(one.group_id, one.state.name) for one in listed.valid] == [("g", "EMPTY")]
    (found,) = done(admin.describe_consumer_groups(["g"])).values()
    assert (found.group_id, found.members) == ("g", [])
    asked = confluent_kafka.ConsumerGroupTopicPartitions("g")
    (offsets,) = done(admin.list_consumer_group_offsets([asked])).values()
    assert [(one.topic, one.partition, one.offset) for one in offsets.topic_partitions] == [("t", 0, 1)]
    moved = confluent_kafka.ConsumerGroupTopicPartitions("g", [confluent_kafka.TopicPartition("t", 0, 2)])
    assert len(done(admin.alter_consumer_group_offsets([moved]))) == 1
    (group,) = kstore.read_groups(committed)
    assert [one.committed.offset for one in group.offsets.values()] == [2]
    assert done(admin.delete_consumer_groups(["g", "none"])) == {"g": None, "none": 69}
    assert not kstore.read_groups(committed)


def test_aiokafka_manages_topics_and_groups(server, committed):
    async def main():
        admin = aiokafka_admin.AIOKafkaAdminClient(bootstrap_servers=server.bootstrap_servers)
        await admin.start()
        try:
            new = aiokafka_admin.NewTopic("new", num_partitions=1, replication_factor=1)
            await admin.create_topics([new])
            await admin.create_partitions({"new": aiokafka_admin.NewPartitions(2)})
            assert len([one for one in committed.partitions if one.topic == "new"]) == 2
            resource = aiokafka_admin.config_resource.ConfigResource(
                aiokafka_admin.config_resource.ConfigResourceType.TOPIC, "new"
            )
            (described,) = await admin.describe_configs([resource])
            assert len(described.resources[0][4]) == 33
            await admin.delete_topics(["new"])
            return await admin.list_consumer_groups()
        finally:
            await admin.close()

    assert asyncio.run(main()) == [("g", "")]
    assert "new" not in committed.topics


def test_kafka_python_manages_topics_and_groups(server, committed):
    admin = python_admin.KafkaAdminClient(bootstrap_servers=server.bootstrap_servers)
    try:
        admin.create_topics([python_admin.NewTopic("new", num_partitions=2, replication_factor=1)])
        assert set(admin.list_topics()) >= {"new", "t"}
        admin.delete_topics(["new"])
        assert admin.list_groups()
        admin.delete_groups(["g"])
    finally:
        admin.close()
    assert "new" not in committed.topics
    assert not kstore.read_groups(committed)
