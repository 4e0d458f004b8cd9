"""Goal: the group coordinator answers, appends and waits as Kafka's does for the classic protocol.
Method: each rule by calls on a coordinator whose log is a dict and whose time the test lets pass."""

from __future__ import annotations

import pytest

from kstore import OffsetAndMetadata, TopicPartition, open_store, read_groups
from kstore.coordinator.group.classic import Client
from kstore.coordinator.group.membership import Call
from kstore.coordinator.group.records import GroupRecords
from kstore.record import AppendOrigin, MemoryRecordsBuilder
from kstore.record.schemas.topics import encode_group_record, encode_offset_commit
from kstore.wire.codes import ErrorCode
from kstore.wire.messages import HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest
from tests.making.group_calls import RANGE, REBALANCE_MS, SESSION_MS, STICKY, GroupServer


@pytest.fixture
def server():
    return GroupServer()


def joined(server, **options):
    """A dynamic member's two joins; returns its id and the token of the second."""
    member_id = server.answers[server.join(**options)].member_id
    return member_id, server.join(member_id, **options)


# Joining.


def test_client_without_id_gets_one_to_join_with(server):
    answer = server.answer(server.join())
    assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert answer.member_id == "client-1"
    assert server.state() == "Empty"
    answer = server.answer(server.join(answer.member_id))
    assert (answer.error_code, answer.generation_id, answer.leader) == (0, 1, "client-1")
    assert [(one.member_id, one.metadata) for one in answer.members] == [("client-1", b"topics")]
    assert (answer.protocol_type, answer.protocol_name) == ("consumer", "range")


def test_join_before_version_4_needs_no_id(server):
    answer = server.answer(server.join(version=3))
    assert (answer.error_code, answer.member_id, answer.generation_id) == (0, "client-1", 1)


def test_id_that_nobody_joined_with_expires(server):
    member_id = server.answers[server.join()].member_id
    server.pass_time(SESSION_MS)
    assert server.code(server.join(member_id)) == ErrorCode.UNKNOWN_MEMBER_ID
    assert not server.coordinator.groups, "a group of which nothing is left is dropped"


def test_unknown_member_id_is_refused_in_any_group(server):
    assert server.code(server.join("nobody")) == ErrorCode.UNKNOWN_MEMBER_ID
    server.stable(1)
    assert server.code(server.join("nobody")) == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("session_ms", "code"),
    [(5999, 26), (6000, 79), (1_800_000, 79), (1_800_001, 26)],
)
def test_session_timeout_has_bounds(server, session_ms, code):
    assert server.code(server.join(session_timeout_ms=session_ms)) == code


def test_group_without_a_name_is_refused(server):
    assert server.code(server.join(group="")) == ErrorCode.INVALID_GROUP_ID
    assert server.heartbeat("a", 1, group="") == ErrorCode.INVALID_GROUP_ID


def test_member_without_a_common_protocol_or_of_another_type_is_refused(server):
    assert server.code(server.join(protocols=())) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert server.code(server.join(protocol_type="")) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    server.stable(1)
    assert server.code(server.join(protocols=(STICKY,))) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert server.code(server.join(protocol_type="connect")) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_refused_join_before_version_7_names_a_protocol(server):
    assert server.answer(server.join("nobody", version=6)).protocol_name == ""
    assert server.answer(server.join("nobody", version=7)).protocol_name is None


def test_full_group_takes_no_more_members():
    server = GroupServer(max_size=2)
    ids = server.stable(2)
    assert server.code(server.join()) == ErrorCode.GROUP_MAX_SIZE_REACHED
    server.join(ids[0])
    newcomer = server.join(server.answers[server.join()].member_id)
    assert server.answer(newcomer) is None
    assert server.code(server.join(ids[1])) == ErrorCode.GROUP_MAX_SIZE_REACHED, "of the old ones, who comes last goes"
    assert server.answer(newcomer).generation_id == 3


def test_protocol_with_most_votes_among_those_of_all_is_chosen(server):
    server = GroupServer(initial_rebalance_delay_ms=3000)
    of_member = [(STICKY, RANGE, ("cooperative", b"")), (RANGE, STICKY), (RANGE, STICKY)]
    tokens = [joined(server, protocols=protocols)[1] for protocols in of_member]
    server.pass_time(6000)
    assert [server.answer(token).protocol_name for token in tokens] == ["range"] * 3


def test_protocol_is_one_that_all_support():
    server = GroupServer(initial_rebalance_delay_ms=3000)
    tokens = [joined(server, protocols=protocols)[1] for protocols in ((STICKY, RANGE), (RANGE,))]
    server.pass_time(6000)
    assert [server.answer(token).protocol_name for token in tokens] == ["range"] * 2


# The first rebalance of an empty group.


def test_initial_delay_is_extended_while_members_come():
    server = GroupServer(initial_rebalance_delay_ms=3000)
    _, first = joined(server)
    server.pass_time(2000)
    _, second = joined(server)
    server.pass_time(1000)
    assert server.answer(first) is None, "a newcomer extends the delay"
    server.pass_time(2999)
    assert server.answer(first) is None
    server.pass_time(1)
    assert [server.answer(one).generation_id for one in (first, second)] == [1, 1]


def test_initial_delay_ends_with_the_rebalance_timeout():
    server = GroupServer(initial_rebalance_delay_ms=3000)
    tokens = []
    for _ in range(5):
        tokens.append(joined(server, rebalance_timeout_ms=7000)[1])
        server.pass_time(2000)
    assert server.answer(tokens[0]).generation_id == 1
    assert [server.answer(one) is not None for one in tokens] == [True, True, True, True, False]


def test_without_newcomers_the_delay_is_not_extended():
    server = GroupServer(initial_rebalance_delay_ms=3000)
    _, token = joined(server)
    server.pass_time(2999)
    assert server.answer(token) is None
    server.pass_time(1)
    assert server.answer(token).generation_id == 1


# Rebalances.


def test_members_get_the_leaders_assignments_of_their_generation(server):
    a, b = server.stable(2)
    assert server.stored()["generation"] == 2
    again = server.sync(b, 2)
    assert server.answer(again).assignment == b.encode(), "who lost the answer asks again"
    assert (server.answer(again).protocol_type, server.answer(again).protocol_name) == ("consumer", "range")
    assert server.heartbeat(a, 2) == server.heartbeat(b, 2) == 0


def test_followers_wait_for_the_leader_and_those_without_assignment_get_none(server):
    a, b = server.stable(2)
    leader, follower = server.join(a), server.join(b)
    assert [len(server.answer(one).members) for one in (leader, follower)] == [2, 0]
    waiting = server.sync(b, 3)
    assert server.answer(waiting) is None
    appends = server.appends
    server.sync(a, 3, {a: b"all"})
    assert server.answer(waiting).assignment == b""
    assert server.appends == appends + 1


def test_record_is_appended_before_syncs_are_answered(server):
    a, b = server.stable(2)
    server.join(a), server.join(b)
    follower = server.sync(b, 3)
    seen = []
    append = server.append
    server.append = lambda records: (seen.append(server.answer(follower)), append(records))
    server.sync(a, 3, {b: b"mine"})
    assert seen == [None]
    assert server.answer(follower).assignment == b"mine"
    stored = {one["memberId"]: one["assignment"] for one in server.stored()["members"]}
    assert stored == {a: b"", b: b"mine"}


def test_generation_whose_record_can_not_be_appended_is_joined_again(server):
    a, b = server.stable(2)
    server.join(a), server.join(b)
    follower = server.sync(b, 3)
    server.fails = True
    leader = server.sync(a, 3, {b: b"mine"})
    assert [server.code(one) for one in (leader, follower)] == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
    assert server.state() == "PreparingRebalance"
    assert server.stored()["generation"] == 2
    server.fails = False
    server.join(a), server.join(b)
    assert server.generation == 4


def test_calls_are_kept_back_while_a_record_waits(server):
    a, b = server.stable(2)
    server.join(a)
    server.join(b)
    coordinator, call = server.coordinator, Call("t", 4)
    outcome = coordinator.sync(call, SyncGroupRequest(group_id="g", member_id=a, generation_id=3), server.now_ms)
    assert outcome.records
    assert not outcome.answers
    assert server.group().next_ms is None
    with pytest.raises(RuntimeError, match="waits for written"):
        coordinator.heartbeat(call, HeartbeatRequest(group_id="g", member_id=a), server.now_ms)
    assert coordinator.expire(server.now_ms + SESSION_MS) == []
    [answer] = coordinator.written("g", server.now_ms).answers
    assert answer.token == "t"
    with pytest.raises(RuntimeError, match="no record waits"):
        coordinator.written("g", server.now_ms)
    server.pass_time(SESSION_MS)
    assert server.state() == "Empty"


def test_newcomer_makes_the_others_join_again(server):
    a, b = server.stable(2)
    c, waiting = joined(server)
    assert server.heartbeat(a, 2) == server.heartbeat(b, 2) == ErrorCode.REBALANCE_IN_PROGRESS
    assert server.code(server.sync(a, 2)) == ErrorCode.REBALANCE_IN_PROGRESS
    server.join(a)
    assert server.answer(waiting) is None
    server.join(b)
    assert server.answer(waiting).generation_id == 3
    assert server.answer(waiting).leader == a
    assert {one.member_id for one in server.group().described().members} == {a, b, c}


def test_rebalance_ends_syncs_that_wait(server):
    a, b = server.stable(2)
    server.join(a), server.join(b)
    follower = server.sync(b, 3)
    joined(server)
    assert server.code(follower) == ErrorCode.REBALANCE_IN_PROGRESS
    assert server.code(server.sync(a, 3, {a: b"late"})) == ErrorCode.REBALANCE_IN_PROGRESS
    assert server.stored()["generation"] == 2


def test_ids_that_were_given_are_waited_for(server):
    a, b = server.stable(2)
    server.join()
    first = server.join(a)
    second = server.join(b)
    assert server.answer(first) is None
    assert server.answer(second) is None
    server.pass_time(SESSION_MS)
    assert server.answer(first).generation_id == server.answer(second).generation_id == 3


def test_follower_that_joins_again_as_it_was_does_not_rebalance(server):
    _, b = server.stable(2)
    answer = server.answer(server.join(b))
    assert (answer.error_code, answer.generation_id, answer.members) == (0, 2, [])
    assert server.state() == "Stable"


def test_leader_that_joins_again_or_changed_metadata_rebalances(server):
    a, b = server.stable(2)
    assert server.answer(server.join(b, protocols=(("range", b"others"),))) is None
    server.join(a)
    server.sync(a, 3), server.sync(b, 3)
    assert server.answer(server.join(a)) is None
    assert server.state() == "PreparingRebalance"


def test_member_that_lost_the_answer_to_its_join_gets_it_again(server):
    a, b = server.stable(2)
    server.join(a), server.join(b)
    again = server.answer(server.join(a))
    assert again.generation_id == 3
    assert len(again.members) == 2
    assert server.state() == "CompletingRebalance"


def test_call_that_is_repeated_while_it_waits_answers_the_older(server):
    a, b = server.stable(2)
    older = server.join(a)
    newer = server.join(a)
    assert server.code(older) == ErrorCode.REBALANCE_IN_PROGRESS
    assert server.answer(newer) is None
    server.join(b)
    older, newer = server.sync(b, 3), server.sync(b, 3)
    assert server.code(older) == ErrorCode.REBALANCE_IN_PROGRESS
    assert server.answer(newer) is None


def test_sync_of_another_protocol_or_generation_is_refused(server):
    a, _ = server.stable(2)
    assert server.code(server.sync(a, 2, protocol_type="connect")) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert server.code(server.sync(a, 2, protocol_name="sticky")) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert server.code(server.sync(a, 2, protocol_type="consumer", protocol_name="range")) == 0
    assert server.code(server.sync(a, 1, protocol_name="sticky")) == ErrorCode.ILLEGAL_GENERATION
    assert server.code(server.sync("nobody", 2)) == ErrorCode.UNKNOWN_MEMBER_ID
    assert server.code(server.sync(a, 2, group="none")) == ErrorCode.UNKNOWN_MEMBER_ID


def test_sync_of_version_5_has_to_name_type_and_protocol(server):
    a, _ = server.stable(2)
    fits = {"protocol_type": "consumer", "protocol_name": "range"}
    for missing in fits:
        for member, generation, group in ((a, 2, "g"), (a, 1, "g"), ("nobody", 2, "g"), (a, 2, "none"), (a, 2, "")):
            fields = {**fits, missing: None, "group": group}
            code = server.code(server.sync(member, generation, version=5, **fields))
            assert code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        other = {**fits, missing: "other"}
        assert server.code(server.sync(a, 2, version=5, **other)) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert server.code(server.sync(a, 2, version=4, **{**fits, missing: None})) == 0
    assert server.answer(server.sync(a, 2, version=5, **fits)).assignment == a.encode()


def test_members_that_do_not_join_again_in_time_are_out(server):
    a, b = server.stable(2)
    waiting = server.join(a)
    for _ in range(REBALANCE_MS // 5000 - 1):
        server.pass_time(5000)
        assert server.heartbeat(b, 2) == ErrorCode.REBALANCE_IN_PROGRESS
    assert server.answer(waiting) is None
    server.pass_time(5000)
    assert [one.member_id for one in server.answer(waiting).members] == [a]
    assert server.heartbeat(b, 2) == ErrorCode.UNKNOWN_MEMBER_ID


def test_leader_that_does_not_join_in_time_is_replaced(server):
    a, b = server.stable(2)
    waiting = server.join(b, protocols=(("range", b"others"),))
    for _ in range(REBALANCE_MS // 5000):
        server.heartbeat(a, 2)
        server.pass_time(5000)
    assert server.answer(waiting).leader == b
    assert server.generation == 3


def test_members_that_do_not_sync_in_time_are_out(server):
    a, b = server.stable(2)
    server.join(a), server.join(b)
    waiting = server.sync(b, 3)
    for _ in range(REBALANCE_MS // 5000):
        assert server.heartbeat(a, 3) == 0
        server.pass_time(5000)
    assert server.code(waiting) == ErrorCode.REBALANCE_IN_PROGRESS
    assert server.heartbeat(a, 3) == ErrorCode.UNKNOWN_MEMBER_ID
    assert server.answer(server.join(b)).leader == b


def test_follower_that_does_not_sync_in_time_is_out_of_a_stable_group(server):
    a, b = server.stable(2)
    server.join(a), server.join(b)
    server.sync(a, 3)
    assert server.state() == "Stable"
    for _ in range(REBALANCE_MS // 5000):
        assert server.heartbeat(a, 3) == server.heartbeat(b, 3) == 0
        server.pass_time(5000)
    assert server.heartbeat(b, 3) == ErrorCode.UNKNOWN_MEMBER_ID
    assert server.heartbeat(a, 3) == ErrorCode.REBALANCE_IN_PROGRESS


# Sessions and leaving.


def test_heartbeat_keeps_a_member_and_silence_removes_it(server):
    a, b = server.stable(2)
    server.pass_time(SESSION_MS - 1)
    assert server.heartbeat(a, 2) == 0
    server.pass_time(1)
    assert server.heartbeat(b, 2) == ErrorCode.UNKNOWN_MEMBER_ID
    assert server.heartbeat(a, 2) == ErrorCode.REBALANCE_IN_PROGRESS
    assert server.heartbeat(a, 1) == ErrorCode.ILLEGAL_GENERATION


def test_waiting_join_and_sync_keep_a_member(server):
    a, b = server.stable(2)
    waiting = server.join(a)
    server.pass_time(SESSION_MS - 1)
    server.heartbeat(b, 2)
    server.pass_time(SESSION_MS - 1)
    server.join(b)
    assert server.answer(waiting).generation_id == 3
    waiting = server.sync(b, 3)
    server.pass_time(SESSION_MS - 1)
    server.heartbeat(a, 3)
    server.pass_time(SESSION_MS - 1)
    server.sync(a, 3, {b: b"x"})
    assert server.answer(waiting).assignment == b"x"
    server.pass_time(SESSION_MS - 1)
    assert server.heartbeat(b, 3) == 0, "its session begins anew with the answer"


def test_first_join_that_waits_too_long_is_given_up(server):
    server.stable(1, rebalance_timeout_ms=600_000)
    _, waiting = joined(server, rebalance_timeout_ms=600_000)
    for _ in range(300_000 // 5000):
        assert server.answer(waiting) is None
        server.heartbeat("client-1", 1)
        server.pass_time(5000)
    assert server.code(waiting) == ErrorCode.UNKNOWN_MEMBER_ID


def test_last_member_that_goes_leaves_an_empty_group_in_the_log(server):
    [a] = server.stable(1)
    server.pass_time(SESSION_MS)
    assert server.state() == "Empty"
    stored = server.stored()
    assert (stored["generation"], stored["protocol"], stored["leader"], stored["members"]) == (2, None, None, [])
    assert stored["protocolType"] == "consumer"
    assert server.heartbeat(a, 2) == ErrorCode.UNKNOWN_MEMBER_ID
    _, token = joined(server)
    assert server.answer(token).generation_id == 3


def test_leaving_rebalances_and_the_oldest_leads(server):
    a, b, c = server.stable(3)
    assert server.leave(a) == [0]
    assert server.heartbeat(b, 2) == ErrorCode.REBALANCE_IN_PROGRESS
    server.join(c)
    assert server.answer(server.join(b)).leader == b


def test_several_leave_at_once_each_with_its_code(server):
    a, b = server.stable(2)
    pending = server.answers[server.join()].member_id
    assert server.leave(b, "nobody", pending, ("", "no-instance")) == [0, 25, 0, 25]
    assert server.answer(server.join(a)).generation_id == 3
    assert server.leave("x", group="none") == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_leaving_member_whose_join_or_sync_waits_is_answered(server):
    a, b = server.stable(2)
    waiting = server.join(a)
    server.leave(a)
    assert server.code(waiting) == ErrorCode.UNKNOWN_MEMBER_ID
    server.join(b)
    c, _ = joined(server)
    server.join(b)
    waiting = server.sync(c, server.generation)
    server.leave(c)
    assert server.code(waiting) == ErrorCode.UNKNOWN_MEMBER_ID


def test_leave_before_version_3_has_one_member(server):
    [a] = server.stable(1)
    token = server.call(server.coordinator.leave, LeaveGroupRequest(group_id="g", member_id=a), version=2)
    assert server.code(token) == 0
    assert server.state() == "Empty"
    token = server.call(server.coordinator.leave, LeaveGroupRequest(group_id="g", member_id=a), version=2)
    assert server.code(token) == ErrorCode.UNKNOWN_MEMBER_ID


def test_leave_during_the_initial_delay_waits_for_its_end():
    server = GroupServer(initial_rebalance_delay_ms=3000)
    a, _ = joined(server)
    server.leave(a)
    assert server.state() == "PreparingRebalance"
    server.pass_time(3000)
    assert server.state() == "Empty"


# Static members (KIP-345).


def static_pair(server, **options):
    """A stable group of two static members, x and y; x leads."""
    server.join(instance="x", **options)
    server.join(instance="y", **options)
    ids = server.group().membership
    x, y = ids.member_of("x"), ids.member_of("y")
    server.join(x, instance="x", **options)
    server.sync(y, 2, group_instance_id="y")
    server.sync(x, 2, {x: b"of x", y: b"of y"}, group_instance_id="x")
    assert server.state() == "Stable"
    return x, y


def test_static_member_needs_no_second_join(server):
    answer = server.answer(server.join(instance="x"))
    assert (answer.error_code, answer.member_id, answer.members[0].group_instance_id) == (0, "x-1", "x")


def test_static_member_that_comes_back_keeps_its_assignment_without_a_rebalance(server):
    _, y = static_pair(server)
    answer = server.answer(server.join(instance="y"))
    assert (answer.error_code, answer.generation_id, answer.skip_assignment) == (0, 2, False)
    assert answer.member_id != y
    assert server.state() == "Stable"
    assert server.answer(server.sync(answer.member_id, 2)).assignment == b"of y"
    assert server.heartbeat(y, 2, instance="y") == ErrorCode.FENCED_INSTANCE_ID
    assert server.heartbeat(y, 2) == ErrorCode.UNKNOWN_MEMBER_ID
    assert server.heartbeat(answer.member_id, 2, instance="y") == 0
    assert server.heartbeat(answer.member_id, 2, instance="z") == ErrorCode.UNKNOWN_MEMBER_ID


def test_new_id_of_a_static_member_is_in_the_log_before_it_is_told(server):
    static_pair(server)
    new_id = server.answer(server.join(instance="y")).member_id
    stored = {one["groupInstanceId"]: one["memberId"] for one in server.stored()["members"]}
    assert stored["y"] == new_id
    assignments = {one["groupInstanceId"]: one["assignment"] for one in server.stored()["members"]}
    assert assignments == {"x": b"of x", "y": b"of y"}


def test_static_leader_that_comes_back_skips_the_assignment(server):
    x, y = static_pair(server)
    answer = server.answer(server.join(instance="x"))
    assert answer.skip_assignment
    assert answer.leader == answer.member_id
    assert {one.member_id for one in answer.members} == {answer.member_id, y}
    older = server.answer(server.join(instance="x", version=8))
    assert not older.skip_assignment
    assert older.leader == answer.member_id != older.member_id
    assert not older.members
    assert server.group().membership.leader == older.member_id
    assert server.heartbeat(x, 2, instance="x") == ErrorCode.FENCED_INSTANCE_ID


def test_static_member_whose_new_id_can_not_be_appended_keeps_the_old(server):
    _, y = static_pair(server)
    server.fails = True
    assert server.code(server.join(instance="y", session_timeout_ms=20_000)) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    server.fails = False
    assert server.heartbeat(y, 2, instance="y") == 0
    assert server.group().membership.members[y].session_timeout_ms == SESSION_MS


def test_static_member_that_changes_the_protocol_rebalances(server):
    server.join(instance="x", protocols=(RANGE, STICKY))
    x = server.group().membership.member_of("x")
    server.sync(x, 1, {x: b"of x"})
    answer = server.answer(server.join(instance="x", protocols=(STICKY, RANGE)))
    assert (answer.generation_id, answer.protocol_name) == (2, "sticky")
    assert server.state() == "CompletingRebalance"


def test_static_member_that_comes_back_while_the_leader_assigns_rebalances(server):
    x, y = static_pair(server)
    server.join(x, instance="x"), server.join(y, instance="y")
    waiting = server.sync(y, 3, group_instance_id="y")
    assert server.answer(server.join(instance="y")) is None
    assert server.code(waiting) == ErrorCode.FENCED_INSTANCE_ID
    assert server.state() == "PreparingRebalance"


def test_static_member_that_comes_back_while_members_join_fences_the_join_that_waits(server):
    _, y = static_pair(server)
    waiting = server.join(y, instance="y", protocols=(("range", b"others"),))
    newer = server.join(instance="y")
    assert server.code(waiting) == ErrorCode.FENCED_INSTANCE_ID
    assert server.answer(newer) is None
    assert server.code(server.join(y, instance="y")) == ErrorCode.FENCED_INSTANCE_ID


def test_static_member_keeps_its_place_in_a_rebalance_that_it_does_not_join(server):
    x, y = static_pair(server, rebalance_timeout_ms=8000)
    waiting = server.join(x, instance="x", rebalance_timeout_ms=8000)
    server.pass_time(6000)
    assert server.heartbeat(y, 2, instance="y") == ErrorCode.REBALANCE_IN_PROGRESS
    server.pass_time(2000)
    assert [one.group_instance_id for one in server.answer(waiting).members] == ["x", "y"]
    assert server.answer(waiting).generation_id == 3


def test_static_leader_that_does_not_join_in_time_is_replaced(server):
    x, y = static_pair(server, rebalance_timeout_ms=8000)
    waiting = server.join(y, instance="y", protocols=(("range", b"others"),), rebalance_timeout_ms=8000)
    server.pass_time(8000)
    assert server.answer(waiting).leader == y
    assert [one.member_id for one in server.answer(waiting).members] == [x, y]


def test_rebalance_that_only_silent_static_members_are_left_of_ends_with_their_sessions(server):
    x, y = static_pair(server, rebalance_timeout_ms=8000)
    server.join(x, instance="x", rebalance_timeout_ms=8000)
    server.leave(("", "x"))
    server.pass_time(8000)
    assert server.state() == "PreparingRebalance"
    assert server.heartbeat(y, 2, instance="y") == ErrorCode.REBALANCE_IN_PROGRESS
    server.pass_time(SESSION_MS)
    assert server.state() == "Empty"


def test_static_member_leaves_by_its_instance_id(server):
    x, y = static_pair(server)
    assert server.leave((y, "x")) == [ErrorCode.FENCED_INSTANCE_ID]
    assert server.leave(("", "y"), ("", "y")) == [0, 25]
    assert server.answer(server.join(x, instance="x")).generation_id == 3


# Restarts.


def test_restarted_coordinator_goes_on_with_the_generation(server):
    a, b = server.stable(2)
    server.start()
    assert server.state() == "Stable"
    assert server.answer(server.sync(b, 2)).assignment == b.encode()
    server.pass_time(SESSION_MS - 1)
    assert server.heartbeat(a, 2) == 0, "sessions begin anew"
    server.pass_time(1)
    assert server.heartbeat(b, 2) == ErrorCode.UNKNOWN_MEMBER_ID
    assert server.answer(server.join(a)).generation_id == 3


def test_bytes_that_follow_the_consumer_protocol_are_restored_as_they_were(server):
    subscription = bytes.fromhex("0000 00000001 0001 74 ffffffff")
    assignment = bytes.fromhex("0000 00000001 0001 74 00000001 00000000 ffffffff")
    member_id, _ = joined(server, protocols=(("range", subscription),))
    server.sync(member_id, 1, {member_id: assignment})
    server.start()
    [member] = server.group().described().members
    assert (member.member_metadata, member.member_assignment) == (subscription, assignment)


def test_restarted_coordinator_knows_static_members_and_empty_groups(server):
    x, _ = static_pair(server)
    server.start()
    assert server.answer(server.join(instance="x")).skip_assignment
    assert server.heartbeat(x, 2, instance="x") == ErrorCode.FENCED_INSTANCE_ID
    server.pass_time(SESSION_MS)
    server.start()
    assert server.state() == "Empty"
    assert server.generation == 3


def test_groups_are_restored_from_a_log(tmp_path, server):
    a, b = server.stable(2)
    with open_store(tmp_path / "root", "a") as store:
        store.create_topic("__consumer_offsets", 1)
        log = store.log("__consumer_offsets", 0)
        builder = MemoryRecordsBuilder()
        for key, value in server.log.items():
            builder.append(timestamp_ms=0, key=key, value=value)
        committed = encode_offset_commit("simple", TopicPartition("t", 0), OffsetAndMetadata(3))
        builder.append(timestamp_ms=0, key=committed[0], value=committed[1])
        log.append(builder.build(), origin=AppendOrigin.COORDINATOR)
        records = GroupRecords()
        records.update(log)
    server.log.clear()
    server.start()
    server.coordinator.load(records.current(), server.now_ms)
    assert {name: group.state.value for name, group in server.coordinator.groups.items()} == {
        "g": "Stable",
        "simple": "Empty",
    }
    assert server.heartbeat(a, 2) == server.heartbeat(b, 2) == 0
    [group, _] = read_groups(tmp_path / "root")
    assert (group.state, group.leader, group.protocol, group.epoch) == ("Stable", a, "range", 2)
    assert [one.member_id for one in group.members] == [a, b]


def test_rebalance_that_was_going_on_is_joined_again_after_a_restart(server):
    a, b = server.stable(2)
    server.join(a), server.join(b)
    server.sync(b, 3)
    server.start()
    assert server.heartbeat(b, 3) == ErrorCode.ILLEGAL_GENERATION
    assert server.heartbeat(b, 2) == 0
    server.join(a)
    assert server.answer(server.join(b)).generation_id == 3


def test_group_above_its_size_is_rebalanced_when_it_is_loaded(server):
    server.stable(3)
    server.settings = GroupServer(max_size=2).settings
    server.start()
    assert server.state() == "PreparingRebalance"


def test_groups_of_other_types_are_not_joined(server):
    key, value = encode_group_record({"groupId": "new"}, {"epoch": 1, "metadataHash": 0}, type_id=11, version=0)
    server.log[key] = value
    server.start()
    assert server.code(server.join(group="new")) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert server.coordinator.delete_code("new") == ErrorCode.NON_EMPTY_GROUP


# Others.


def test_description_has_assignments_of_a_stable_group_alone(server):
    a, b = server.stable(2)
    described = server.group().described()
    assert (described.group_state, described.protocol_type, described.protocol_data) == ("Stable", "consumer", "range")
    assert [(one.member_id, one.member_assignment) for one in described.members] == [(a, a.encode()), (b, b.encode())]
    assert {(one.client_id, one.client_host, one.member_metadata) for one in described.members} == {
        ("client", "/host", b"topics")
    }
    server.join(a)
    described = server.group().described()
    assert (described.group_state, described.protocol_data) == ("PreparingRebalance", "")
    assert {one.member_assignment for one in described.members} == {b""}


def test_only_an_empty_group_is_deleted(server):
    [a] = server.stable(1)
    assert server.coordinator.delete_code("g") == ErrorCode.NON_EMPTY_GROUP
    assert server.coordinator.delete_code("none") == ErrorCode.GROUP_ID_NOT_FOUND
    server.leave(a)
    assert server.coordinator.delete_code("g") == 0
    group = server.group()
    server.coordinator.forget("g", server.now_ms)
    assert group.state.value == "Dead"
    assert not server.coordinator.groups
    request = JoinGroupRequest(group_id="g", session_timeout_ms=SESSION_MS)
    [answer] = group.join(Call("t", 9), request, Client("c", "/h"), server.now_ms).answers
    assert answer.response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_each_group_is_looked_at_when_it_is_due(server):
    for number, name in enumerate(("late", "early")):
        member_id = server.answers[server.join(group=name)].member_id
        server.join(member_id, group=name)
        server.sync(member_id, 1, group=name)
        server.pass_time(1000 * (1 - number))
    server.heartbeat("client-1", 1, group="late")
    assert server.coordinator.next_ms <= server.now_ms + SESSION_MS
    server.pass_time(SESSION_MS)
    assert [server.state(name) for name in ("late", "early")] == ["Empty", "Empty"]


def test_times_of_zero_are_times():
    server = GroupServer()
    server.now_ms = 0
    server.stable(2)
    server.pass_time(SESSION_MS)
    assert server.state() == "Empty"
