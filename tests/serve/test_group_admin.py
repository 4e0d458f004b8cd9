"""Goal: groups are listed, described and deleted as with a broker, and offsets that nobody uses go.
Method: requests as objects; a clock that is set, and the records of `__consumer_offsets`."""

from __future__ import annotations

import asyncio

import pytest

import kstore
from kstore import OffsetAndMetadata, TopicPartition
from kstore.coordinator.group.offsets import GroupOffsets
from kstore.coordinator.group.settings import GroupSettings
from kstore.serve.config import ServerConfig
from kstore.serve.coordination.groups import Groups
from kstore.serve.server import Server
from kstore.wire.messages import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    OffsetDeleteRequest,
    SyncGroupRequest,
)
from tests.coordinator.group.test_retention import subscription
from tests.making.producing import SetClock
from tests.making.serving import RawClient

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
RETENTION_MS, INTERVAL_MS = 1_000_000, 10_000


@pytest.fixture
def offsets(served):
    """The groups "plain", which only commits, and "used", both with offsets in t and u."""
    served.create_topic("u", 2)
    for group in ("plain", "used"):
        GroupOffsets(served, clock=SetClock()).commit(group, dict.fromkeys((T0, T1, U0), OffsetAndMetadata(5)))
    return served


@pytest.fixture
def member(offsets, client):
    """The member of "used", subscribed to t."""
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=subscription("t"))
    join = JoinGroupRequest(
        group_id="used",
        session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[protocol],
    )
    joined = client.ask(join, version=3)
    sync = SyncGroupRequest(
        group_id="used",
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=[SyncGroupRequest.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"all")],
    )
    assert client.ask(sync, version=3).error_code == 0
    return joined.member_id


def leave(client, member):
    assert client.ask(LeaveGroupRequest(group_id="used", member_id=member), version=1).error_code == 0


def in_store(store):
    return {group.group_id: set(group.offsets) for group in kstore.read_groups(store)}


def delete_groups(client, *groups):
    answer = client.ask(DeleteGroupsRequest(groups_names=list(groups)), version=2)
    return [(one.group_id, one.error_code) for one in answer.results]


def delete_offsets(client, group, *places):
    kinds = OffsetDeleteRequest
    topics = [
        kinds.OffsetDeleteRequestTopic(
            name=topic,
            partitions=[
                kinds.OffsetDeleteRequestPartition(partition_index=place.partition)
                for place in places
                if place.topic == topic
            ],
        )
        for topic in sorted({place.topic for place in places})
    ]
    answer = client.ask(kinds(group_id=group, topics=topics), version=0)
    return answer.error_code, [one.error_code for topic in answer.topics for one in topic.partitions]


def test_groups_are_listed_with_their_states(client, member):
    def listed(*, version=5, **filters):
        answer = client.ask(ListGroupsRequest(**filters), version=version)
        assert answer.error_code == 0
        return {one.group_id: (one.protocol_type, one.group_state, one.group_type) for one in answer.groups}

    used, plain = ("consumer", "Stable", "classic"), ("", "Empty", "classic")
    assert listed() == {"used": used, "plain": plain}
    assert listed(states_filter=["stable"]) == {"used": used}
    assert listed(types_filter=["consumer"]) == {}
    assert listed(version=3) == {"used": ("consumer", "", ""), "plain": ("", "", "")}


def test_a_group_is_described_with_its_members(client, member):
    (found,) = client.ask(DescribeGroupsRequest(groups=["used"]), version=6).groups
    assert (found.error_code, found.group_state, found.protocol_type, found.protocol_data) == (
        0,
        "Stable",
        "consumer",
        "range",
    )
    (one,) = found.members
    assert (one.member_id, one.client_id, one.client_host) == (member, "raw", "/127.0.0.1")
    assert (bytes(one.member_metadata), bytes(one.member_assignment)) == (subscription("t"), b"all")
    assert found.authorized_operations == -(2**31)


def test_a_group_that_is_not_there_is_dead(client):
    found = client.ask(DescribeGroupsRequest(groups=["none", ""]), version=6).groups
    assert [(one.error_code, one.group_state) for one in found] == [(69, "Dead"), (24, "")]
    assert found[0].error_message
    found = client.ask(DescribeGroupsRequest(groups=["none"]), version=5).groups
    assert [(one.error_code, one.group_state) for one in found] == [(0, "Dead")]


def test_groups_without_members_are_deleted_with_their_offsets(client, offsets, member):
    asked = ("plain", "used", "none", "")
    assert delete_groups(client, *asked) == list(zip(asked, (0, 68, 69, 24), strict=True))
    assert in_store(offsets) == {"used": {T0, T1, U0}}
    leave(client, member)
    assert delete_groups(client, "used", "used") == [("used", 0), ("used", 69)]
    assert in_store(offsets) == {}


def test_offsets_are_deleted_where_no_member_is_subscribed(client, offsets, member):
    unknown = TopicPartition("none", 0)
    assert delete_offsets(client, "used", T0, U0, unknown) == (0, [3, 86, 0])
    assert delete_offsets(client, "plain", T0) == (0, [0])
    # What is not there is no error.
    assert delete_offsets(client, "plain", T0) == (0, [0])
    assert in_store(offsets) == {"used": {T0, T1}, "plain": {T1, U0}}
    assert delete_offsets(client, "none", T0) == (69, [])
    assert delete_offsets(client, "", T0) == (24, [])
    leave(client, member)
    assert delete_offsets(client, "used", T0, T1) == (0, [0, 0])


def test_a_server_that_only_reads_deletes_no_groups(client, offsets, tmp_path):
    with Server(tmp_path / "root", read_only=True, config=ServerConfig(port=0)) as server, RawClient(server) as client:
        assert delete_groups(client, "plain") == [("plain", 44)]
        assert delete_offsets(client, "plain", T0) == (44, [])
        answer = client.ask(ListGroupsRequest(), version=5)
        assert {(one.group_id, one.group_state) for one in answer.groups} == {("plain", "Empty"), ("used", "Empty")}
    assert set(in_store(offsets)) == {"plain", "used"}


class Expiring:
    """The groups of a store, in a loop, by a clock that is set."""

    def __init__(self, store):
        self.clock = SetClock()
        settings = GroupSettings(offsets_retention_ms=RETENTION_MS, offsets_retention_check_interval_ms=INTERVAL_MS)
        self.groups = Groups(store, settings, topic_id=store.topic_id, clock=self.clock)

    async def at(self, now_ms):
        """Do what is due at a time, and wait for it."""
        await self.groups.ready()
        self.clock.now_ms = now_ms
        self.groups._look_after()
        if self.groups._expiring is not None:
            await self.groups._expiring


def test_offsets_expire_when_it_is_looked_for_them(offsets):
    async def main():
        expiring = Expiring(offsets)
        await expiring.at(INTERVAL_MS - 1)
        assert expiring.groups._expiring is None
        await expiring.at(RETENTION_MS - 1)
        assert expiring.groups._expiring is not None
        assert in_store(offsets) == {"plain": {T0, T1, U0}, "used": {T0, T1, U0}}
        clock = SetClock()
        clock.now_ms = 5
        GroupOffsets(offsets, clock=clock).commit("plain", {U0: OffsetAndMetadata(6)})
        await expiring.at(RETENTION_MS)
        assert in_store(offsets) == {"plain": {T0, T1, U0}, "used": {T0, T1, U0}}
        await expiring.at(RETENTION_MS - 1 + INTERVAL_MS)
        assert in_store(offsets) == {}
        assert expiring.groups.coordinator.groups == {}
        expiring.groups.close()

    asyncio.run(main())


def test_a_group_with_an_offset_that_did_not_expire_stays(offsets):
    async def main():
        expiring = Expiring(offsets)
        await expiring.groups.ready()
        clock = SetClock()
        clock.now_ms = RETENTION_MS
        GroupOffsets(offsets, clock=clock).commit("plain", {U0: OffsetAndMetadata(6)})
        await expiring.at(RETENTION_MS)
        assert in_store(offsets) == {"plain": {U0}}
        assert set(expiring.groups.coordinator.groups) == {"plain"}
        expiring.groups.close()

    asyncio.run(main())


@pytest.mark.parametrize("place", [U0, TopicPartition("u", 1)], ids=["again", "first"])
def test_a_commit_while_offsets_are_read_keeps_its_offset(offsets, monkeypatch, place):
    clock = SetClock()
    clock.now_ms = RETENTION_MS

    async def main():
        expiring = Expiring(offsets)
        await expiring.groups.ready()
        read = asyncio.to_thread

        async def read_and_commit(work):
            found = await read(work)
            GroupOffsets(offsets, clock=clock).commit("plain", {place: OffsetAndMetadata(6)})
            return found

        monkeypatch.setattr(asyncio, "to_thread", read_and_commit)
        await expiring.at(RETENTION_MS)
        assert in_store(offsets) == {"plain": {place}}
        expiring.groups.close()

    asyncio.run(main())


def test_a_group_whose_transaction_is_not_decided_keeps_its_offsets(offsets):
    with kstore.Producer(offsets, transactional_id="x") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send_offsets_to_transaction({T0: 7}, "plain")

        async def main():
            expiring = Expiring(offsets)
            await expiring.at(RETENTION_MS)
            assert in_store(offsets) == {"plain": {T0, T1, U0}}
            expiring.groups.close()

        asyncio.run(main())
        producer.abort_transaction()
