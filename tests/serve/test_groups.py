"""Goal: consumers of other projects share a topic by a group, and go on where it stopped, whoever dies or restarts.
Method: librdkafka and aiokafka; requests as objects for what these do not send."""

from __future__ import annotations

import asyncio
import time

import pytest

import kstore
from kstore.serve.config import ServerConfig
from kstore.serve.server import Server
from kstore.wire.messages import (
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
)
from tests.making.serving import RawClient

confluent_kafka = pytest.importorskip("confluent_kafka")
aiokafka = pytest.importorskip("aiokafka")

PARTITIONS, PER_PARTITION = 4, 50


@pytest.fixture
def filled(served):
    served.create_topic("shared", PARTITIONS)
    for number in range(PARTITIONS):
        served.log("shared", number).append([kstore.Record(value=b"%d" % n) for n in range(PER_PARTITION)])
    return served


class Member:
    """A consumer of librdkafka in the group "g"; what it read, and which partitions it was given last."""

    def __init__(self, server):
        settings = {"bootstrap.servers": server.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
        self.consumer = confluent_kafka.Consumer(settings | {"session.timeout.ms": 6000, "enable.auto.commit": False})
        self.read = set()
        self.consumer.subscribe(["shared"])

    def poll(self):
        for message in self.consumer.consume(100, 0.05):
            assert message.error() is None
            self.read.add((message.partition(), message.offset()))

    @property
    def partitions(self):
        return {place.partition for place in self.consumer.assignment()}

    def is_at(self, offset):
        """Whether it has read each of its partitions to an offset since it was given them: what it can commit."""
        places = self.consumer.position(self.consumer.assignment())
        return bool(places) and all(place.offset == offset for place in places)


def poll_until(members, is_done):
    deadline = time.monotonic() + 60
    while not is_done():
        assert time.monotonic() < deadline
        for member in members:
            member.poll()


def shared_out(members):
    """Whether each partition has one member, and each member one at least."""
    parts = [member.partitions for member in members]
    return all(parts) and sum(map(len, parts)) == len(set().union(*parts)) == PARTITIONS


def test_three_members_share_the_partitions_and_go_on_after_one_left_and_the_server_restarted(filled):
    everything = {(number, offset) for number in range(PARTITIONS) for offset in range(PER_PARTITION)}
    with Server(filled, config=ServerConfig(port=0)) as server:
        port = int(server.bootstrap_servers.rpartition(":")[2])
        members = []
        for _ in range(3):
            # One after the other, as in test_consumer_groups.py.
            members.append(Member(server))
            poll_until(members, lambda: shared_out(members) and all(one.is_at(PER_PARTITION) for one in members))
        assert set().union(*(member.read for member in members)) == everything
        for member in members:
            member.consumer.commit(asynchronous=False)
        members.pop().consumer.close()
        poll_until(members, lambda: shared_out(members))
    with Server(filled, config=ServerConfig(port=port)) as server:
        for number in range(PARTITIONS):
            filled.log("shared", number).append(kstore.Record(value=b"more"))
        more = {(number, PER_PARTITION) for number in range(PARTITIONS)}
        for member in members:
            member.read.clear()
        poll_until(members, lambda: shared_out(members) and all(member.is_at(PER_PARTITION + 1) for member in members))
        assert set().union(*(member.read for member in members)) == more
        for member in members:
            member.consumer.commit(asynchronous=False)
            member.consumer.close()
    (group,) = kstore.read_groups(filled)
    assert (group.group_id, group.state) == ("g", "Empty")
    assert {place.partition: one.committed.offset for place, one in group.offsets.items()} == dict.fromkeys(
        range(PARTITIONS), PER_PARTITION + 1
    )


def test_aiokafka_reads_as_a_member_and_goes_on_from_what_it_committed(server, filled):
    async def read(count):
        consumer = aiokafka.AIOKafkaConsumer(
            "shared",
            bootstrap_servers=server.bootstrap_servers,
            group_id="aio",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        async with consumer:
            messages = [await asyncio.wait_for(consumer.getone(), 20) for _ in range(count)]
            await consumer.commit()
        return [(message.partition, message.offset) for message in messages]

    first, second = asyncio.run(read(60)), asyncio.run(read(140))
    assert len(set(first) | set(second)) == PARTITIONS * PER_PARTITION


def committed(
    client, offset, *, group="plain", topic="t", partition=0, generation=-1, member="", metadata=None, version=8
):
    part = OffsetCommitRequest.OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_metadata=metadata
    )
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member,
        topics=[OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=[part])],
    )
    return client.ask(request, version=version).topics[0].partitions[0].error_code


def fetched(client, *, version=8, partitions=(0, 1), group="plain"):
    if version < 8:
        topics = [OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=list(partitions))]
        answer = client.ask(OffsetFetchRequest(group_id=group, topics=topics), version=version)
        assert answer.error_code == 0
        return [(one.committed_offset, one.metadata) for one in answer.topics[0].partitions]
    topics = [OffsetFetchRequest.OffsetFetchRequestTopics(name="t", partition_indexes=list(partitions))]
    asked = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=topics)
    (found,) = client.ask(OffsetFetchRequest(groups=[asked]), version=version).groups
    assert (found.group_id, found.error_code) == (group, 0)
    return [(one.committed_offset, one.metadata) for one in found.topics[0].partitions]


def test_offsets_are_committed_without_members_and_found_again(client, served):
    assert committed(client, 5, metadata="here") == 0
    for version in (1, 5, 8, 9):
        assert fetched(client, version=version) == [(5, "here"), (-1, "")]
    assert committed(client, 7) == 0
    assert fetched(client, partitions=[0]) == [(7, "")]
    assert fetched(client, group="other") == [(-1, ""), (-1, "")]
    everything = OffsetFetchRequest.OffsetFetchRequestGroup(group_id="plain", topics=None)
    (found,) = client.ask(OffsetFetchRequest(groups=[everything]), version=8).groups
    assert [(topic.name, [one.committed_offset for one in topic.partitions]) for topic in found.topics] == [("t", [7])]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        pytest.param({"topic": "none"}, 3, id="unknown-topic"),
        pytest.param({"partition": 2}, 3, id="unknown-partition"),
        pytest.param({"metadata": "x" * 4097}, 12, id="metadata"),
        pytest.param({"generation": 1, "member": "nobody"}, 22, id="no-such-group"),
    ],
)
def test_commits_that_a_broker_refuses_are_refused_with_its_code(client, served, arguments, code):
    assert committed(client, 5, **arguments) == code
    assert fetched(client, partitions=[0]) == [(-1, "")]


def test_a_client_joins_with_the_id_that_it_is_given_first(client):
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
    join = JoinGroupRequest(
        group_id="g", session_timeout_ms=6000, rebalance_timeout_ms=6000, protocol_type="consumer", protocols=[protocol]
    )
    asked = client.ask(join, version=5)
    assert asked.error_code == 79
    join.member_id = asked.member_id
    joined = client.ask(join, version=5)
    assert (joined.error_code, joined.leader, joined.generation_id) == (0, asked.member_id, 1)
    beat = HeartbeatRequest(group_id="g", generation_id=1, member_id=asked.member_id)
    # The leader has not said yet who gets what.
    assert client.ask(beat, version=3).error_code == 0


def test_a_group_reads_a_backup_from_where_it_stopped_and_writes_nothing(filled, tmp_path):
    root = tmp_path / "root"
    for number in range(2):
        filled.log("t", number).append([kstore.Record(value=b"%d" % n) for n in range(5)])
    with Server(filled, config=ServerConfig(port=0)) as server, RawClient(server) as client:
        assert committed(client, 3, group="g") == 0
        assert committed(client, 4, group="other") == 0
    filled.close()
    files = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    with Server(root, read_only=True, config=ServerConfig(port=0)) as server, RawClient(server) as client:
        assert client.ask(FindCoordinatorRequest(key="g", key_type=0), version=3).error_code == 0
        assert fetched(client, partitions=[0], group="g") == [(3, "")]
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": server.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe(["t"])
        read = set()
        while len(read) < 7:
            read |= {(message.partition(), message.offset()) for message in consumer.consume(10, 1)}
        consumer.commit(asynchronous=False)
        consumer.close()
        assert read == {(0, 3), (0, 4), *((1, offset) for offset in range(5))}
        assert fetched(client, group="g") == [(5, ""), (5, "")]
        assert fetched(client, partitions=[0], group="other") == [(4, "")]
    with Server(root, read_only=True, config=ServerConfig(port=0)) as server, RawClient(server) as client:
        assert fetched(client, group="g") == [(3, ""), (-1, "")]
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == files


def test_members_that_a_backup_has_do_not_keep_others_waiting(filled, tmp_path):
    with Server(filled, config=ServerConfig(port=0)) as server:
        member = Member(server)
        poll_until([member], lambda: member.is_at(PER_PARTITION))
        member.consumer.commit(asynchronous=False)
        filled.checkpoint()
        with Server(tmp_path / "root", read_only=True, config=ServerConfig(port=0)) as backup:
            with RawClient(backup) as client:
                assert described(client, "g") == ("Empty", [])
            late = Member(backup)
            poll_until([late], lambda: late.partitions == set(range(PARTITIONS)))
            late.consumer.close()
        member.consumer.close()


def described(client, group):
    (found,) = client.ask(DescribeGroupsRequest(groups=[group]), version=5).groups
    return found.group_state, [one.member_id for one in found.members]


def test_this_node_coordinates_groups(client, served):
    (found,) = client.ask(FindCoordinatorRequest(coordinator_keys=["g"], key_type=0), version=4).coordinators
    assert (found.node_id, found.error_code) == (served.meta_properties.node_id, 0)
