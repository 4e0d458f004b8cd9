"""Goal: consumers of other projects share topics by groups of KIP-848, whoever joins, leaves, dies or restarts.
Method: librdkafka with group.protocol=consumer; requests as objects for what it does not send."""

from __future__ import annotations

import time

import pytest

import kstore
from kstore.coordinator.group.settings import ConsumerGroupSettings
from kstore.serve.config import ServerConfig
from kstore.serve.server import Server
from kstore.wire.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    ListGroupsRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
)
from tests.making.serving import RawClient

confluent_kafka = pytest.importorskip("confluent_kafka")

PARTITIONS, PER_PARTITION = 4, 50


@pytest.fixture
def filled(served):
    served.create_topic("shared", PARTITIONS)
    for number in range(PARTITIONS):
        append(served, "shared", number, PER_PARTITION)
    return served


def append(store, topic, number, count):
    store.log(topic, number).append([kstore.Record(value=b"%d" % n) for n in range(count)])


def config(port=0):
    """Members that say something often, so that rebalances take no time."""
    return ServerConfig(port=port, consumer_groups=ConsumerGroupSettings(heartbeat_interval_ms=100))


class Member:
    """A consumer of librdkafka in the group "g"; what it read, and which partitions it was given last."""

    def __init__(self, server, topics=("shared",), **settings):
        settings = {
            "bootstrap.servers": server.bootstrap_servers,
            "group.id": "g",
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "topic.metadata.refresh.interval.ms": 500,
        } | settings
        self.consumer = confluent_kafka.Consumer(settings)
        self.read = []
        self.consumer.subscribe(list(topics))

    def poll(self):
        for message in self.consumer.consume(100, 0.05):
            assert message.error() is None
            self.read.append((message.topic(), message.partition(), message.offset()))

    @property
    def places(self):
        return {(place.topic, place.partition) for place in self.consumer.assignment()}

    def is_at(self, offset):
        places = self.consumer.position(self.consumer.assignment())
        return bool(places) and all(place.offset == offset for place in places)


def poll_until(members, is_done):
    deadline = time.monotonic() + 60
    while not is_done():
        assert time.monotonic() < deadline
        for member in members:
            member.poll()


def shared_out(members, count=PARTITIONS):
    """Whether each partition has one member, and each member one at least."""
    parts = [member.places for member in members]
    return all(parts) and sum(map(len, parts)) == len(set().union(*parts)) == count


def close(*members):
    for member in members:
        member.consumer.close()


def test_three_members_share_a_topic_and_go_on_after_one_left_and_the_server_restarted(filled):
    with Server(filled, config=config()) as server:
        port = int(server.bootstrap_servers.rpartition(":")[2])
        members = []
        for _ in range(3):
            # One after the other: librdkafka asks again for the start of a partition that was taken from it while it
            # asked, and half a second later reads the partition anew if it has it back.
            members.append(Member(server))
            poll_until(members, lambda: shared_out(members) and all(one.is_at(PER_PARTITION) for one in members))
        for member in members:
            member.consumer.commit(asynchronous=False)
        close(members.pop())
        poll_until(members, lambda: shared_out(members))
        held = [member.places for member in members]
    with Server(filled, config=config(port)):
        for number in range(PARTITIONS):
            append(filled, "shared", number, 1)
        for member in members:
            member.read.clear()
        poll_until(members, lambda: sum(len(member.read) for member in members) >= PARTITIONS)
        assert [member.places for member in members] == held, "a restart moves nothing"
        assert sorted(one for member in members for one in member.read) == [
            ("shared", number, PER_PARTITION) for number in range(PARTITIONS)
        ]
        for member in members:
            member.consumer.commit(asynchronous=False)
        close(*members)
    (group,) = kstore.read_groups(filled)
    assert (group.group_id, group.type, group.state) == ("g", "Consumer", "Empty")
    assert {place.partition: one.committed.offset for place, one in group.offsets.items()} == dict.fromkeys(
        range(PARTITIONS), PER_PARTITION + 1
    )


def test_a_static_member_that_comes_back_has_what_it_had(filled):
    with Server(filled, config=config()) as server:
        first, second = Member(server), Member(server, **{"group.instance.id": "i"})
        poll_until([first, second], lambda: shared_out([first, second]))
        held, others = second.places, first.places
        close(second)
        back = Member(server, **{"group.instance.id": "i"})
        poll_until([first, back], lambda: back.places)
        assert (back.places, first.places) == (held, others)
        close(first, back)


def test_a_pattern_is_followed_to_topics_that_come_later(filled):
    with Server(filled, config=config()) as server:
        member = Member(server, ["^sha.*"])
        poll_until([member], lambda: shared_out([member]))
        filled.create_topic("shapes", 2)
        poll_until([member], lambda: shared_out([member], PARTITIONS + 2))
        filled.create_partitions("shapes", 3)
        poll_until([member], lambda: shared_out([member], PARTITIONS + 3))
        filled.delete_topic("shapes")
        poll_until([member], lambda: shared_out([member]))
        close(member)


def test_a_member_of_an_empty_classic_group_goes_on_where_that_stopped(filled):
    with Server(filled, config=config()) as server:
        old = Member(server, **{"group.protocol": "classic"})
        poll_until([old], lambda: old.is_at(PER_PARTITION))
        old.consumer.commit(asynchronous=False)
        close(old)
        for number in range(PARTITIONS):
            append(filled, "shared", number, 1)
        new = Member(server)
        poll_until([new], lambda: len(new.read) >= PARTITIONS)
        assert {offset for _, _, offset in new.read} == {PER_PARTITION}
        close(new)


# Requests.


def beat(client, member_id="m", epoch=0, *, group="g", **fields):
    if not epoch:
        fields = {"rebalance_timeout_ms": 1000, "subscribed_topic_names": ["t"], "topic_partitions": []} | fields
    request = ConsumerGroupHeartbeatRequest(group_id=group, member_id=member_id, member_epoch=epoch, **fields)
    return client.ask(request, version=1)


def test_a_heartbeat_tells_the_partitions_by_the_id_of_their_topic(client, served):
    answer = beat(client)
    assert (answer.error_code, answer.member_epoch, answer.heartbeat_interval_ms) == (0, 1, 5000)
    (topic,) = answer.assignment.topic_partitions
    assert (topic.topic_id, topic.partitions) == (served.topic_id("t"), [0, 1])
    assert beat(client, epoch=1).assignment is None
    assert beat(client, "n", epoch=1).error_code == 25
    answer = beat(client, "n", subscribed_topic_regex="[")
    assert (answer.error_code, answer.error_message[:26]) == (128, "SubscribedTopicRegex `[` i")


def test_a_group_is_described_listed_and_deleted(client):
    beat(client)
    client.ask(
        JoinGroupRequest(
            group_id="old",
            session_timeout_ms=6000,
            rebalance_timeout_ms=1000,
            protocol_type="consumer",
            protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range")],
        ),
        version=3,
    )
    for version in (0, 1):
        request = ConsumerGroupDescribeRequest(group_ids=["g", "old", "none", ""])
        found, *others = client.ask(request, version=version).groups
        assert (found.error_code, found.group_state, found.group_epoch, found.assignor_name) == (
            0,
            "Stable",
            1,
            "uniform",
        )
        (member,) = found.members
        assert (member.member_id, member.assignment.topic_partitions[0].topic_name) == ("m", "t")
        assert [(one.error_code, one.error_message) for one in others] == [
            (69, "Group old is not a consumer group."),
            (69, "Group none not found."),
            (24, None),
        ]
    (described,) = client.ask(DescribeGroupsRequest(groups=["g"]), version=6).groups
    assert (described.error_code, described.error_message) == (69, "Group g is not a classic group.")
    (listed,) = client.ask(ListGroupsRequest(types_filter=["consumer"]), version=5).groups
    assert (listed.group_id, listed.group_state, listed.group_type) == ("g", "Stable", "consumer")
    deleted = client.ask(DeleteGroupsRequest(groups_names=["g"]), version=2).results[0].error_code
    beat(client, epoch=-1)
    assert (deleted, client.ask(DeleteGroupsRequest(groups_names=["g"]), version=2).results[0].error_code) == (68, 0)
    assert beat(client, epoch=1).error_code == 69


def test_a_group_that_was_deleted_is_not_there_after_a_restart(served):
    with Server(served, config=config()) as server, RawClient(server) as client:
        beat(client, subscribed_topic_names=[], subscribed_topic_regex="t")
        beat(client, epoch=-1)
        assert client.ask(DeleteGroupsRequest(groups_names=["g"]), version=2).results[0].error_code == 0
    assert not kstore.read_groups(served)
    with Server(served, config=config()) as server, RawClient(server) as client:
        assert beat(client, epoch=1).error_code == 69


def test_offsets_are_committed_and_read_in_the_epoch_of_the_member(client):
    beat(client)
    part = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=7)

    def committed(epoch, version=9):
        request = OffsetCommitRequest(
            group_id="g",
            member_id="m",
            generation_id_or_member_epoch=epoch,
            topics=[OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[part])],
        )
        return client.ask(request, version=version).topics[0].partitions[0].error_code

    def fetched(member_id, epoch):
        topics = [OffsetFetchRequest.OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
        kind = OffsetFetchRequest.OffsetFetchRequestGroup
        asked = kind(group_id="g", member_id=member_id, member_epoch=epoch, topics=topics)
        (found,) = client.ask(OffsetFetchRequest(groups=[asked]), version=9).groups
        return found.error_code, [one.committed_offset for topic in found.topics for one in topic.partitions]

    assert (committed(1), committed(0), committed(1, version=8)) == (0, 113, 35)
    assert fetched("m", 1) == fetched(None, -1) == (0, [7])
    assert fetched("m", 0) == (113, [])
    assert fetched("n", 1) == (25, [])


def test_a_server_whose_disk_takes_no_end_of_a_member_answers_and_ends(served, monkeypatch):
    with Server(served, config=config()) as server, RawClient(server) as client:
        member = beat(client).member_id
        monkeypatch.setattr(served.log("__consumer_offsets"), "append", refused)
        assert server.expire_sessions("g", member) == 1
        assert client.ask(ConsumerGroupDescribeRequest(group_ids=["g"]), version=1).groups[0].members


def refused(*_, **__):
    raise kstore.StorageError("no space")


def test_requests_of_the_classic_protocol_find_no_member(client):
    beat(client)
    assert client.ask(HeartbeatRequest(group_id="g", member_id="m", generation_id=1), version=4).error_code == 25


def test_a_server_that_only_reads_has_groups_that_end_with_it(filled, tmp_path):
    with Server(tmp_path / "root", read_only=True, config=config()) as server:
        member = Member(server)
        poll_until([member], lambda: member.is_at(PER_PARTITION))
        close(member)
    assert not kstore.read_groups(filled)
