"""Goal: what the node, its partitions and its disk are is told as by a broker, also of logs that cannot be opened.
Method: requests as objects, held against the store."""

from __future__ import annotations

import os
import uuid

import pytest

import kstore
from kstore.serve.config import ServerConfig
from kstore.serve.server import Server
from kstore.wire.messages import (
    CreateAclsRequest,
    DeleteAclsRequest,
    DescribeAclsRequest,
    DescribeClusterRequest,
    DescribeGroupsRequest,
    DescribeLogDirsRequest,
    DescribeTopicPartitionsRequest,
    FetchRequest,
    MetadataRequest,
    OffsetForLeaderEpochRequest,
)
from tests.making.serving import RawClient

NODE = 1
# As a broker of Kafka 4.1 tells them where nobody is refused anything.
NOT_ASKED = -(2**31)
OF_TOPIC, OF_GROUP, OF_CLUSTER = 0b1101_1111_1000, 0b1101_0100_1000, 0b1_1111_1010_0000


def test_the_cluster_is_one_node(client, server, served):
    found = client.ask(DescribeClusterRequest(), version=2)
    (node,) = found.brokers
    assert (found.error_code, found.cluster_id, found.controller_id, found.endpoint_type) == (
        0,
        served.meta_properties.cluster_id,
        NODE,
        1,
    )
    assert (node.broker_id, f"{node.host}:{node.port}", node.is_fenced) == (NODE, server.bootstrap_servers, False)
    assert found.cluster_authorized_operations == NOT_ASKED
    codes = [client.ask(DescribeClusterRequest(endpoint_type=kind), version=1).error_code for kind in (2, 3)]
    assert codes == [114, 115]


def test_operations_are_told_of_what_a_client_asks_for(client):
    asked = [MetadataRequest.MetadataRequestTopic(name=name) for name in ("t", "a b")]
    for cluster, topic in ((False, False), (True, False), (False, True)):
        request = MetadataRequest(
            topics=asked, include_cluster_authorized_operations=cluster, include_topic_authorized_operations=topic
        )
        found = client.ask(request, version=10)
        assert found.cluster_authorized_operations == (OF_CLUSTER if cluster else NOT_ASKED)
        told = [one.topic_authorized_operations for one in found.topics]
        assert told == [OF_TOPIC if topic else NOT_ASKED, NOT_ASKED]
    described = client.ask(DescribeClusterRequest(include_cluster_authorized_operations=True), version=2)
    assert described.cluster_authorized_operations == OF_CLUSTER
    for is_asked in (True, False):
        request = DescribeGroupsRequest(groups=["g"], include_authorized_operations=is_asked)
        (group,) = client.ask(request, version=5).groups
        assert group.authorized_operations == (OF_GROUP if is_asked else NOT_ASKED)


def partitions_of(client, *topics, cursor=None, limit=2000):
    kinds = DescribeTopicPartitionsRequest
    request = kinds(
        topics=[kinds.TopicRequest(name=name) for name in topics],
        cursor=None if cursor is None else kinds.Cursor(topic_name=cursor[0], partition_index=cursor[1]),
        response_partition_limit=limit,
    )
    answer = client.ask(request, version=0)
    found = [(one.name, one.error_code, [part.partition_index for part in one.partitions]) for one in answer.topics]
    at = answer.next_cursor
    return found, None if at is None else (at.topic_name, at.partition_index)


def test_partitions_are_described_with_this_node_as_their_leader(client, served):
    served.log("t", 1).append(kstore.Record(value=b"v"), partition_leader_epoch=7)
    answer = client.ask(
        DescribeTopicPartitionsRequest(topics=[DescribeTopicPartitionsRequest.TopicRequest(name="t")]), version=0
    )
    (topic,) = answer.topics
    assert (topic.topic_id, topic.is_internal, topic.topic_authorized_operations) == (
        served.topic_id("t"),
        False,
        OF_TOPIC,
    )
    shown = [
        (one.leader_id, one.leader_epoch, one.replica_nodes, one.isr_nodes, one.offline_replicas)
        for one in topic.partitions
    ]
    assert shown == [(NODE, 0, [NODE], [NODE], []), (NODE, 7, [NODE], [NODE], [])]
    # Null would be an error of Java's clients.
    assert all((one.eligible_leader_replicas, one.last_known_elr) == ([], []) for one in topic.partitions)
    assert answer.next_cursor is None


def test_partitions_are_described_piece_by_piece(client, served):
    served.create_topic("a", 3)
    assert partitions_of(client) == ([("a", 0, [0, 1, 2]), ("t", 0, [0, 1])], None)
    assert partitions_of(client, limit=2) == ([("a", 0, [0, 1])], ("a", 2))
    assert partitions_of(client, limit=2, cursor=("a", 2)) == ([("a", 0, [2]), ("t", 0, [0])], ("t", 1))
    assert partitions_of(client, limit=3) == ([("a", 0, [0, 1, 2])], ("t", 0))
    assert partitions_of(client, limit=0) == ([("a", 0, [0])], ("a", 1))
    # A topic that was deleted meanwhile.
    assert partitions_of(client, cursor=("b", 4)) == ([("t", 0, [0, 1])], None)
    assert partitions_of(client, "none", "a b", "t") == ([("a b", 17, []), ("none", 3, []), ("t", 0, [0, 1])], None)


@pytest.mark.parametrize("cursor", [("t", 0), ("a", -1)])
def test_a_cursor_that_is_not_of_the_request_is_refused(client, cursor):
    assert partitions_of(client, "a", cursor=cursor) == ([("a", 42, [])], None)


def log_dirs(client, topics=None):
    wanted = topics and [
        DescribeLogDirsRequest.DescribableLogDirTopic(topic=topic, partitions=numbers) for topic, numbers in topics
    ]
    (result,) = client.ask(DescribeLogDirsRequest(topics=wanted), version=4).results
    sizes = {
        (topic.name, one.partition_index): one.partition_size for topic in result.topics for one in topic.partitions
    }
    assert all((one.offset_lag, one.is_future_key) == (0, False) for topic in result.topics for one in topic.partitions)
    return result, sizes


def test_the_directory_is_described_with_the_sizes_of_its_logs_and_of_the_disk(client, served):
    served.log("t", 1).append(kstore.Record(value=b"v" * 1000))
    result, sizes = log_dirs(client)
    assert (result.error_code, result.log_dir) == (0, served.root)
    assert sizes == {("t", 0): 0, ("t", 1): served.log("t", 1).size_in_bytes}
    assert result.total_bytes == os.statvfs(served.root).f_blocks * os.statvfs(served.root).f_frsize
    assert 0 < result.usable_bytes <= result.total_bytes
    assert log_dirs(client, [("t", [0, 5]), ("none", [0])])[1] == {("t", 0): 0}


def epoch_end(client, number, epoch, *, current=-1, topic="t"):
    kinds = OffsetForLeaderEpochRequest
    asked = kinds.OffsetForLeaderPartition(partition=number, current_leader_epoch=current, leader_epoch=epoch)
    request = kinds(replica_id=-1, topics=[kinds.OffsetForLeaderTopic(topic=topic, partitions=[asked])])
    (found,) = client.ask(request, version=4).topics[0].partitions
    return found.error_code, found.leader_epoch, found.end_offset


@pytest.fixture(params=[False, True], ids=["written", "read"])
def of_epochs(request, served, tmp_path):
    """A client of a server whose partition 0 has records of the epochs 3 and 7, and 1 none."""
    for epoch in (3, 3, 7):
        served.log("t", 0).append(kstore.Record(value=b"v"), partition_leader_epoch=epoch)
    root = tmp_path / "root" if request.param else served
    with Server(root, read_only=request.param, config=ServerConfig(port=0)) as server, RawClient(server) as client:
        yield client


def test_the_end_of_an_epoch_is_told(of_epochs):
    assert epoch_end(of_epochs, 0, 3) == (0, 3, 2)
    assert epoch_end(of_epochs, 0, 5) == (0, 3, 2)
    assert epoch_end(of_epochs, 0, 7, current=7) == (0, 7, 3)
    assert epoch_end(of_epochs, 0, 8) == (0, -1, -1)
    assert epoch_end(of_epochs, 1, 0, current=0) == (0, 0, 0)
    assert epoch_end(of_epochs, 1, 1) == (0, -1, -1)
    assert epoch_end(of_epochs, 0, 7, current=6) == (74, -1, -1)
    assert epoch_end(of_epochs, 0, 7, current=8) == (75, -1, -1)
    assert epoch_end(of_epochs, 2, 0) == (3, -1, -1)


def test_the_epoch_of_the_leader_ends_at_the_log_end_where_no_record_has_it(client, served):
    # Else a consumer that is there would be told that its offset is of no epoch, and look for another one.
    served.log("t", 0).append([kstore.Record(value=b"v")] * 3)
    served.log("t", 0).delete_records(3)
    assert epoch_end(client, 0, 0) == (0, 0, 3)


def test_the_leader_has_the_epoch_of_the_newest_record(of_epochs):
    (topic,) = of_epochs.ask(MetadataRequest(topics=None), version=12).topics
    assert [one.leader_epoch for one in topic.partitions] == [7, 0]
    asked = FetchRequest.FetchPartition(partition=0, current_leader_epoch=7, partition_max_bytes=100)
    request = FetchRequest(topics=[FetchRequest.FetchTopic(topic="t", partitions=[asked])])
    (found,) = of_epochs.ask(request, version=12).responses[0].partitions
    assert (found.error_code, found.high_watermark) == (0, 3)


def test_a_partition_whose_log_cannot_be_opened_has_no_leader(tmp_path):
    root = tmp_path / "root"
    with kstore.open_store(root, "a") as store:
        store.create_topic("t", 2)
        store.log("t", 0).append([kstore.Record(value=b"v")] * 3, ack="flushed")
    (root / ".kafka_cleanshutdown").unlink()
    (log,) = (root / "t-0").glob("*.log")
    log.write_bytes(log.read_bytes()[:-1] + b"x")
    with Server(root, config=ServerConfig(port=0)) as server, RawClient(server) as client:
        (topic,) = client.ask(MetadataRequest(topics=None), version=12).topics
        shown = [(one.error_code, one.leader_id, one.isr_nodes, one.offline_replicas) for one in topic.partitions]
        assert shown == [(5, -1, [], [NODE]), (0, NODE, [NODE], [])]
        assert set(log_dirs(client)[1]) == {("t", 1)}


def test_a_topic_whose_id_cannot_be_read_has_none(tmp_path):
    root = tmp_path / "root"
    with kstore.open_store(root, "a") as store:
        store.create_topic("t")
    (root / "t-0" / "partition.metadata").write_text("none")
    with Server(root, read_only=True, config=ServerConfig(port=0)) as server, RawClient(server) as client:
        (topic,) = client.ask(MetadataRequest(topics=None), version=12).topics
        assert (topic.topic_id, topic.partitions[0].leader_id) == (uuid.UUID(int=0), NODE)


def test_there_are_no_acls(client):
    anything = DescribeAclsRequest(resource_type_filter=1, operation=1, permission_type=1)
    assert client.ask(anything, version=3).error_code == 54
    creation = CreateAclsRequest.AclCreation(
        resource_type=2, resource_name="t", principal="User:x", host="*", operation=3, permission_type=3
    )
    made = client.ask(CreateAclsRequest(creations=[creation] * 2), version=3)
    assert [one.error_code for one in made.results] == [54, 54]
    one = DeleteAclsRequest.DeleteAclsFilter(resource_type_filter=1, operation=1, permission_type=1)
    assert [found.error_code for found in client.ask(DeleteAclsRequest(filters=[one]), version=3).filter_results] == [
        54
    ]
