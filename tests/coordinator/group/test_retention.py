"""Goal: offsets that nobody uses expire as in Kafka (KIP-211), and are deleted where no member is subscribed.
Method: calls on a coordinator whose log is a dict, before and after a restart; time as a number."""

from __future__ import annotations

import struct

import pytest

from kstore import OffsetAndMetadata, TopicPartition
from kstore.wire.codes import ErrorCode
from tests.coordinator.group.test_commits import commit
from tests.making.group_calls import GroupServer

RETENTION_MS = 100_000
USED, UNUSED = TopicPartition("t", 0), TopicPartition("u", 0)


def subscription(*topics, version=0):
    names = b"".join(struct.pack(">h", len(name)) + name.encode() for name in topics)
    return struct.pack(">hi", version, len(topics)) + names + struct.pack(">i", -1)


@pytest.fixture
def server():
    return GroupServer(offsets_retention_ms=RETENTION_MS)


def is_expired(server, partition=UNUSED, *, committed_ms=0, expire_ms=None, now_ms=None):
    committed = OffsetAndMetadata(7, commit_timestamp_ms=committed_ms, expire_timestamp_ms=expire_ms)
    return server.coordinator.is_expired("g", partition, committed, server.now_ms if now_ms is None else now_ms)


def stable(server, *topics, version=0, **options):
    return server.stable(count=1, protocols=(("range", subscription(*topics, version=version)),), **options)


def test_offsets_of_clients_without_a_group_expire_by_the_time_of_each_commit(server):
    commit(server)
    assert not is_expired(server, committed_ms=50, now_ms=RETENTION_MS + 49)
    assert is_expired(server, committed_ms=50, now_ms=RETENTION_MS + 50)
    # Old clients say it themselves.
    assert is_expired(server, committed_ms=50, expire_ms=60, now_ms=60)
    assert not is_expired(server, committed_ms=0, expire_ms=2 * RETENTION_MS, now_ms=RETENTION_MS)


def test_all_offsets_of_a_group_expire_together_after_its_last_member_left(server):
    (member,) = stable(server, "t")
    server.now_ms = 5_000
    server.leave(member)
    for restarts in (False, True):
        if restarts:
            server.now_ms = 50_000
            server.start()
        assert not is_expired(server, USED, now_ms=RETENTION_MS + 4_999)
        assert is_expired(server, USED, now_ms=RETENTION_MS + 5_000)


def test_offsets_of_a_stable_group_expire_where_no_member_is_subscribed(server):
    stable(server, "t", version=3)
    late_ms = 2 * RETENTION_MS
    assert not is_expired(server, USED, now_ms=late_ms)
    assert is_expired(server, UNUSED, now_ms=late_ms)
    assert not is_expired(server, UNUSED, committed_ms=late_ms - 1, now_ms=late_ms)
    server.join(version=3)
    assert server.state() == "PreparingRebalance"
    assert not is_expired(server, UNUSED, now_ms=late_ms)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"protocols": (("range", b"\0"),)}, id="a-subscription-of-another-form"),
        pytest.param({"protocol_type": "connect"}, id="another-protocol"),
    ],
)
def test_offsets_of_a_group_whose_topics_are_not_known_do_not_expire(server, options):
    server.stable(count=1, **options)
    assert not is_expired(server, now_ms=2 * RETENTION_MS)


def test_offsets_are_deleted_where_no_consumer_uses_them(server):
    coordinator = server.coordinator
    assert coordinator.offset_delete_code("g") is ErrorCode.GROUP_ID_NOT_FOUND
    (member,) = stable(server, "t")
    assert coordinator.offset_delete_code("g") is ErrorCode.NONE
    assert [coordinator.subscribes_to("g", topic) for topic in ("t", "u")] == [True, False]
    server.leave(member)
    assert not coordinator.subscribes_to("g", "t")
    assert coordinator.offset_delete_code("g") is ErrorCode.NONE


def test_offsets_of_a_group_that_is_not_of_consumers_are_deleted_when_it_is_empty(server):
    (member,) = server.stable(count=1, protocol_type="connect")
    assert server.coordinator.offset_delete_code("g") is ErrorCode.NON_EMPTY_GROUP
    server.leave(member)
    assert server.coordinator.offset_delete_code("g") is ErrorCode.NONE


def test_a_group_may_use_any_topic_if_its_members_do_not_say_which(server):
    server.stable(count=1, protocols=(("range", b"\0"),))
    assert server.coordinator.subscribes_to("g", "u")


def test_groups_are_listed_by_their_states_and_types(server):
    stable(server, "t")
    commit(server, group="simple")

    def listed(*, states=(), types=()):
        found = server.coordinator.listed(states=states, types=types)
        return [(one.group_id, one.protocol_type, one.group_state, one.group_type) for one in found]

    of_g, simple = ("g", "consumer", "Stable", "classic"), ("simple", "", "Empty", "classic")
    assert listed() == [of_g, simple]
    assert listed(states=["STABLE", "Dead"]) == [of_g]
    assert listed(types=["Classic"], states=["empty"]) == [simple]
    assert listed(types=["consumer"]) == []
