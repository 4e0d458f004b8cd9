"""Goal: the group coordinator answers, appends and waits as Kafka's does for groups of KIP-848.
Method: each rule by heartbeats to a coordinator whose log is a dict and whose time the test lets pass."""

from __future__ import annotations

import pytest

from kstore import OffsetAndMetadata, TopicPartition
from kstore.coordinator.group.settings import ConsumerGroupSettings
from kstore.record.schemas.topics import decode_group_record, encode_group_record
from kstore.types import GROUP_OFFSETS_TOPIC
from kstore.wire.codes import ErrorCode
from kstore.wire.messages import LeaveGroupRequest, OffsetCommitRequest, TxnOffsetCommitRequest
from tests.making.group_calls import REBALANCE_MS, GroupServer, partitions_of, topic_id

SESSION_MS, INTERVAL_MS = 45_000, 5000


@pytest.fixture
def server():
    return GroupServer(topics={"t": 3, "u": 2})


def group(server, name="g"):
    return server.coordinator.consumer_groups[name]


def parts(*numbers, topic="t"):
    return {(topic, number) for number in numbers}


def appended(server, call):
    """What a call appends: types of keys, a tombstone's negative, with the fields of values."""
    found = []
    append = server.append

    def spy(records):
        for key, value in records:
            decoded_key, decoded_value = decode_group_record(key, value)
            names = [name[:1] for name in decoded_key.fields.values() if name != "g"]
            found.append((decoded_key.type_id, *names, None if value is None else decoded_value.fields))
        append(records)

    server.append = spy
    call()
    server.append = append
    return found


def listed(*numbers, topic="t"):
    return [{"topicId": topic_id(topic), "partitions": list(numbers)}] if numbers else []


def shared(server, *names, **fields):
    """Let members join, one after the other, until each has its part; returns their parts."""
    owned = {}
    for name in names:
        owned[name] = partitions_of(server.enter(name, **fields)) or set()
    for _ in range(3):
        for name in names:
            member = group(server).facts.members[name]
            told = partitions_of(server.beat(name, member.epoch, owned[name]))
            owned[name] = owned[name] if told is None else told
    assert group(server).state == "Stable"
    return owned


# Joining and staying.


def test_first_member_gets_all_partitions_with_its_first_answer(server):
    answer = server.enter("a")
    assert (answer.error_code, answer.member_id, answer.member_epoch) == (0, "a", 1)
    assert answer.heartbeat_interval_ms == INTERVAL_MS
    assert partitions_of(answer) == parts(0, 1, 2)
    answer = server.beat("a", 1)
    assert (answer.error_code, answer.member_epoch, answer.assignment) == (0, 1, None)


def test_records_of_a_join_and_of_a_leave_are_those_of_a_broker(server):
    joined = appended(server, lambda: server.enter("a", ["u", "t"]))
    member = {"instanceId": None, "rackId": None, "clientId": "client", "clientHost": "/host"}
    member |= {"subscribedTopicNames": ["t", "u"], "subscribedTopicRegex": "", "rebalanceTimeoutMs": REBALANCE_MS}
    member |= {"serverAssignor": None, "classicMemberMetadata": None}
    everything = [*listed(0, 1, 2), *listed(0, 1, topic="u")]
    current = {"memberEpoch": 1, "previousMemberEpoch": 0, "state": 0, "assignedPartitions": everything}
    metadata_hash = server.image.hash_of(["t", "u"])
    assert joined == [
        (5, "a", member),
        (3, {"epoch": 1, "metadataHash": metadata_hash}),
        (7, "a", {"topicPartitions": everything}),
        (6, {"assignmentEpoch": 1}),
        (8, "a", current | {"partitionsPendingRevocation": []}),
    ]
    left = appended(server, lambda: server.beat("a", -1))
    assert left == [(8, "a", None), (7, "a", None), (5, "a", None), (3, {"epoch": 2})]
    assert group(server).state == "Empty"


def test_a_heartbeat_that_changes_nothing_appends_nothing(server):
    server.enter("a")
    assert appended(server, lambda: server.beat("a", 1, parts(0, 1, 2))) == []


def test_a_partition_changes_hands_after_its_owner_gave_it_up(server):
    server.enter("a")
    joined = server.enter("b")
    assert (joined.member_epoch, partitions_of(joined)) == (2, set())
    assert group(server).state == "Reconciling"
    told = server.beat("a", 1, parts(0, 1, 2))
    kept = partitions_of(told)
    assert (told.member_epoch, len(kept)) == (1, 2)
    # Until it says so, it may still read them.
    assert server.beat("b", 2, ()).assignment is None
    silent = server.beat("a", 1)
    assert (silent.member_epoch, silent.assignment) == (1, None)
    answer = server.beat("a", 1, kept)
    assert (answer.member_epoch, answer.assignment) == (2, None)
    assert partitions_of(server.beat("b", 2, ())) == parts(0, 1, 2) - kept
    assert group(server).state == "Stable"


def test_a_full_request_is_answered_in_full(server):
    server.enter("a")
    full = {"rebalance_timeout_ms": REBALANCE_MS, "subscribed_topic_names": ["t"]}
    assert partitions_of(server.beat("a", 1, parts(0), **full)) == parts(0, 1, 2)
    assert server.beat("a", 1, None, **full).assignment is None


def test_subscriptions_and_their_topics_begin_another_epoch_and_other_changes_none(server):
    server.enter("a")
    assert server.beat("a", 1, rebalance_timeout_ms=1, rack_id="r", server_assignor="range").member_epoch == 1
    member = group(server).facts.members["a"]
    assert (member.rebalance_timeout_ms, member.rack_id, member.assignor) == (1, "r", "range")
    answer = server.beat("a", 1, parts(0, 1, 2), subscribed_topic_names=["u"])
    assert (answer.member_epoch, partitions_of(answer)) == (1, set())
    answer = server.beat("a", 1, ())
    assert (answer.member_epoch, partitions_of(answer)) == (2, parts(0, 1, topic="u"))
    server.set_topics({"t": 9, "u": 2})
    assert server.beat("a", 2).member_epoch == 2, "a topic that nobody wants has grown"
    server.set_topics({"t": 9, "u": 3})
    answer = server.beat("a", 2)
    assert (answer.member_epoch, partitions_of(answer)) == (3, parts(0, 1, 2, topic="u"))
    server.set_topics({})
    assert partitions_of(server.beat("a", 3, parts(0, 1, 2, topic="u"))) == set()


def test_the_assignor_is_that_of_most_members(server):
    server.enter("a", server_assignor="range")
    assert group(server).facts.assignor == "range"
    server.enter("b")
    assert group(server).facts.assignor == "range"
    server.enter("c", server_assignor="uniform")
    assert group(server).facts.assignor == "uniform"


def test_a_client_of_version_0_is_given_its_id(server):
    answer = server.enter("", version=0)
    assert (answer.error_code, answer.member_id) == (0, "1")


# Refusals.

FULL = {"rebalance_timeout_ms": 1, "subscribed_topic_names": ["t"]}


@pytest.mark.parametrize(
    ("epoch", "owned", "fields", "code"),
    [
        pytest.param(0, (), {"rebalance_timeout_ms": 1}, 42, id="no-subscription"),
        pytest.param(0, (), {"subscribed_topic_names": ["t"]}, 42, id="no-timeout"),
        pytest.param(0, None, FULL, 42, id="no-partitions"),
        pytest.param(0, parts(0), FULL, 42, id="partitions-of-a-new-member"),
        pytest.param(-3, None, {}, 42, id="epoch"),
        pytest.param(-2, None, {}, 42, id="static-leave-of-nobody"),
        pytest.param(1, None, {"rack_id": " "}, 42, id="rack"),
        pytest.param(1, None, {"instance_id": ""}, 42, id="instance"),
        pytest.param(0, (), FULL | {"group": ""}, 42, id="group"),
        pytest.param(0, (), FULL | {"server_assignor": "best"}, 112, id="assignor"),
        pytest.param(0, (), FULL | {"subscribed_topic_regex": "("}, 128, id="pattern"),
        pytest.param(1, None, {}, 69, id="no-such-group"),
        pytest.param(-1, None, {}, 69, id="leaves-no-group"),
    ],
)
def test_requests_that_no_group_takes_leave_no_group(server, epoch, owned, fields, code):
    answer = server.beat("a", epoch, owned, **fields)
    assert answer.error_code == code
    assert answer.error_message
    assert not server.coordinator.consumer_groups
    assert not server.log


def test_an_unknown_member_is_refused(server):
    server.enter("a")
    for epoch in (1, -1):
        assert server.beat("b", epoch).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert server.beat("", 0, (), **FULL).error_code == ErrorCode.INVALID_REQUEST


def test_another_epoch_is_fenced_unless_the_answer_with_the_new_one_was_lost(server):
    server.enter("a")
    server.beat("a", 1, parts(0, 1, 2), subscribed_topic_names=["t", "u"])
    assert group(server).facts.members["a"].epoch == 2
    assert server.beat("a", 3).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert server.beat("a", 1).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert server.beat("a", 1, parts(7)).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert server.beat("a", 1, parts(0, 1, 2)).member_epoch == 2
    # It begins again with 0.
    answer = server.enter("a", ["t", "u"])
    assert (answer.error_code, answer.member_epoch, len(partitions_of(answer))) == (0, 2, 5)


def test_a_group_takes_no_more_members_than_it_may_have(server):
    server.consumer_settings = ConsumerGroupSettings(max_size=1)
    server.start()
    server.enter("a")
    assert server.enter("b").error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert server.beat("a", 1).error_code == 0


def test_a_failed_append_changes_nothing(server):
    server.enter("a")
    server.fails = True
    assert server.enter("b").error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert server.enter("c", group="h").error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    server.fails = False
    assert server.coordinator.consumer_groups.keys() == {"g"}
    assert server.beat("a", 1).member_epoch == 1
    assert server.enter("b").member_epoch == 2


# Time.


def test_a_member_that_says_nothing_is_out_at_the_end_of_its_session(server):
    shared(server, "a", "b")
    server.pass_time(SESSION_MS - 1)
    assert server.beat("a", 2).error_code == 0
    server.pass_time(1)
    assert group(server).facts.members.keys() == {"a"}
    assert (group(server).facts.epoch, group(server).state) == (3, "Assigning")
    assert len(partitions_of(server.beat("a", 2))) == 3
    server.pass_time(SESSION_MS)
    assert group(server).state == "Empty"


def test_a_member_that_does_not_give_up_partitions_is_out_at_its_rebalance_timeout(server):
    server.enter("a", rebalance_timeout_ms=10_000)
    server.enter("b")
    server.beat("a", 1, parts(0, 1, 2))
    server.pass_time(9999)
    server.beat("a", 1, parts(0, 1, 2))
    assert group(server).facts.members.keys() == {"a", "b"}
    server.pass_time(1)
    assert group(server).facts.members.keys() == {"b"}
    assert partitions_of(server.beat("b", 2, ())) == parts(0, 1, 2)
    assert server.beat("a", 1).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_gave_up_its_partitions_in_time_stays(server):
    server.enter("a", rebalance_timeout_ms=10_000)
    server.enter("b")
    kept = partitions_of(server.beat("a", 1, parts(0, 1, 2)))
    server.beat("a", 1, kept)
    server.pass_time(20_000)
    assert group(server).facts.members.keys() == {"a", "b"}


# Static members.


def test_a_static_member_that_comes_back_has_what_it_had_under_another_id(server):
    shared(server, "a")
    assert server.enter("b", instance_id="i").error_code == 0
    kept = partitions_of(server.beat("a", 1, parts(0, 1, 2)))
    server.beat("a", 1, kept)
    had = partitions_of(server.beat("b", 2, ()))
    answer = server.beat("b", -2, instance_id="i")
    assert (answer.error_code, answer.member_epoch) == (0, -2)
    assert server.beat("a", 2).assignment is None
    back = appended(server, lambda: server.enter("c", instance_id="i"))
    assert [(type_id, name, fields is None) for type_id, name, fields in back] == [
        *((8, "b", True), (7, "b", True), (5, "b", True)),
        *((5, "c", False), (7, "c", False), (8, "c", False), (8, "c", False)),
    ]
    answer = server.enter("c", instance_id="i")
    assert (answer.error_code, answer.member_epoch, partitions_of(answer)) == (0, 2, had)
    assert group(server).facts.epoch == 2
    assert server.beat("b", 2, instance_id="i").error_code == ErrorCode.FENCED_INSTANCE_ID


def test_an_instance_id_that_is_in_use_is_not_given_away(server):
    server.enter("a", instance_id="i")
    assert server.enter("b", instance_id="i").error_code == ErrorCode.UNRELEASED_INSTANCE_ID
    assert server.enter("a", instance_id="i").error_code == 0
    assert server.beat("b", -2, instance_id="i").error_code == ErrorCode.FENCED_INSTANCE_ID
    assert server.beat("a", 1, instance_id="j").error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_that_does_not_come_back_is_out_at_the_end_of_its_session(server):
    shared(server, "a", "b")
    server.enter("c", instance_id="i")
    server.beat("c", -2, instance_id="i")
    server.pass_time(SESSION_MS - 1)
    server.beat("a", group(server).facts.members["a"].epoch)
    server.beat("b", group(server).facts.members["b"].epoch)
    server.pass_time(1)
    assert group(server).facts.members.keys() == {"a", "b"}


def test_a_static_member_that_leaves_for_good_is_out(server):
    server.enter("a", instance_id="i")
    assert server.beat("a", -1, instance_id="i").error_code == 0
    assert group(server).state == "Empty"


def test_an_operator_removes_members_by_their_instances_or_ids(server):
    shared(server, "a", "b")
    server.enter("c", instance_id="i")
    left = appended(server, lambda: server.leave(("", "i"), "b"))
    assert [(type_id, name) for type_id, name, fields in left[:-1] if fields is None] == [
        *((8, "c"), (7, "c"), (5, "c")),
        *((8, "b"), (7, "b"), (5, "b")),
    ]
    assert left[-1] == (3, {"epoch": 4, "metadataHash": server.image.hash_of(["t"])})
    assert group(server).facts.members.keys() == {"a"}
    assert partitions_of(server.beat("a", group(server).facts.members["a"].epoch, ())) == parts(0, 1, 2)
    assert server.beat("b", 2).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_removal_of_members_that_are_not_there_has_the_code_of_each(server):
    server.enter("a", instance_id="i")
    wrong = [("a", "j"), ("b", None), ("b", "i"), ("", "j")]
    codes = []
    assert appended(server, lambda: codes.extend(server.leave(*wrong))) == []
    assert codes == [25, 25, 82, 25]
    assert server.leave("a", group="none") == [ErrorCode.UNKNOWN_MEMBER_ID]
    token = server.call(server.coordinator.leave, LeaveGroupRequest(group_id="g", member_id="a"), version=2)
    assert (server.code(token), group(server).state) == (0, "Empty")


def test_members_whose_removal_can_not_be_appended_stay(server):
    server.enter("a")
    server.fails = True
    assert server.leave("a") == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    server.fails = False
    assert server.beat("a", 1).error_code == 0


def test_a_member_whose_end_can_not_be_appended_is_removed_later(server):
    shared(server, "a", "b")
    server.pass_time(SESSION_MS - 1)
    server.fails = True
    server.pass_time(1)
    assert group(server).facts.members.keys() == {"a", "b"}
    # Not at once, or the caller that waits for next_ms would do nothing else.
    assert server.coordinator.next_ms == server.now_ms + 500
    assert server.coordinator.expire(server.now_ms + 499) == []
    server.pass_time(499)
    server.fails = False
    assert group(server).facts.members.keys() == {"a", "b"}
    server.pass_time(1)
    assert group(server).state == "Empty"


# Patterns.


def test_a_pattern_is_followed_as_topics_come_and_go(server):
    server.set_topics({"rex-a": 1, "t": 1})
    answer = server.enter("a", [], subscribed_topic_regex="^re.*")
    assert partitions_of(answer) == parts(0, topic="rex-a")
    server.set_topics({"rex-a": 1, "rex-b": 2, "t": 1})
    answer = server.beat("a", 1)
    assert (answer.member_epoch, len(partitions_of(answer))) == (2, 3)
    records = [decode_group_record(key, value) for key, value in server.log.items()]
    (resolved,) = [value.fields for key, value in records if key.type_id == 16]
    assert resolved == {"topics": ["rex-a", "rex-b"], "version": 0, "timestamp": server.now_ms}
    server.set_topics({"t": 1})
    assert partitions_of(server.beat("a", 2, parts(0, topic="rex-a"))) == set()
    left = appended(server, lambda: server.beat("a", -1))
    assert [fields for type_id, _, fields in left[:-1] if type_id == 16] == [None]


def test_a_pattern_matches_internal_topics_too(server):
    server.set_topics({"t": 1, GROUP_OFFSETS_TOPIC: 2})
    server.enter("a", [], subscribed_topic_regex="__.*")
    assert group(server).facts.subscribed() == {GROUP_OFFSETS_TOPIC}


def test_a_pattern_matches_no_topic_that_its_client_may_not_see(server):
    server.set_topics({"rex-a": 1, "rex-b": 1, "t": 1})
    answer = server.enter("a", [], subscribed_topic_regex="rex.*", may_see=lambda topic: topic != "rex-b")
    assert partitions_of(answer) == parts(0, topic="rex-a")


def test_a_pattern_is_resolved_again_when_rights_have_changed(server):
    server.set_topics({"rex-a": 1, "rex-b": 1})
    answer = server.enter("a", [], subscribed_topic_regex="rex.*", may_see=lambda topic: topic == "rex-a")
    epoch = answer.member_epoch
    owned = parts(0, topic="rex-a")
    assert server.beat("a", epoch, owned).member_epoch == epoch, "other rights are of no account before they are told"
    answer = server.beat("a", epoch, owned, rights=1)
    assert answer.member_epoch == epoch + 1
    assert partitions_of(answer) == owned | parts(0, topic="rex-b")
    appends = server.appends
    server.beat("a", epoch + 1, owned | parts(0, topic="rex-b"), rights=1)
    server.beat("a", epoch + 1, owned | parts(0, topic="rex-b"), rights=2)
    assert server.appends == appends, "nothing is written where the same topics may be seen"


def test_members_with_one_pattern_share_its_topics_and_names_add_to_it(server):
    server.enter("a", [], subscribed_topic_regex="t")
    server.enter("b", ["u"], subscribed_topic_regex="t")
    facts = group(server).facts
    assert facts.topics_of(facts.members["b"]) == {"t", "u"}
    assert facts.targets["b"] >= {(topic_id("u"), 0), (topic_id("u"), 1)}
    server.beat("b", facts.members["b"].epoch, subscribed_topic_regex="")
    facts = group(server).facts
    assert facts.topics_of(facts.members["b"]) == {"u"}
    assert facts.patterns.keys() == {"t"}


# Restarts.


def test_a_coordinator_that_starts_again_knows_what_its_records_say(server):
    shared(server, "a", "b")
    server.enter("c", [], instance_id="i", subscribed_topic_regex="u")
    server.beat("a", group(server).facts.members["a"].epoch, parts(0, 1, 2))
    before = group(server).facts
    server.start()
    assert group(server).facts == before
    assert server.beat("c", before.members["c"].epoch, parts(0, 1, topic="u")).error_code == 0
    server.pass_time(SESSION_MS - 1)
    assert len(group(server).facts.members) == 3, "members have new sessions"
    server.pass_time(1)
    assert group(server).state == "Empty"


def test_a_member_that_has_to_give_up_partitions_has_its_rebalance_timeout_again_after_a_restart(server):
    server.enter("a", rebalance_timeout_ms=10_000)
    server.enter("b")
    server.beat("a", 1, parts(0, 1, 2))
    server.start()
    server.pass_time(10_000)
    assert group(server).facts.members.keys() == {"b"}


def test_a_record_of_kafka_4_0_about_topics_is_removed_with_the_next_epoch(server):
    server.enter("a")
    key, value = encode_group_record({"groupId": "g"}, {"topics": []}, type_id=4, version=0)
    server.log[key] = value
    server.start()
    changed = appended(server, lambda: server.beat("a", 1, parts(0, 1, 2), subscribed_topic_names=["t", "u"]))
    assert [record[0] for record in changed] == [5, 4, 3, 7, 6, 8]
    assert server.log[key] is None


# Offsets, and groups of the other type.


def commit(server, member_id, epoch, *, version=9, group="g"):
    part = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[part])
    request = OffsetCommitRequest(
        group_id=group, member_id=member_id, generation_id_or_member_epoch=epoch, topics=[topic]
    )
    done = server.coordinator.commit(request, version=version, now_ms=server.now_ms)
    server.append(done.records)
    return done.response.topics[0].partitions[0].error_code


def test_members_commit_and_read_offsets_in_their_epoch(server):
    server.enter("a")
    assert commit(server, "a", 1) == 0
    assert commit(server, "a", 0) == ErrorCode.STALE_MEMBER_EPOCH
    assert commit(server, "a", 1, version=8) == ErrorCode.UNSUPPORTED_VERSION
    assert commit(server, "b", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(server, "", -1) == ErrorCode.UNKNOWN_MEMBER_ID
    code = server.coordinator.fetch_code
    assert code("g", "a", epoch=1) == code("g", None, epoch=-1) == code("none", "a", epoch=1) == 0
    assert code("g", "a", epoch=2) == ErrorCode.STALE_MEMBER_EPOCH
    assert code("g", "b", epoch=1) == ErrorCode.UNKNOWN_MEMBER_ID
    in_transaction = TxnOffsetCommitRequest(group_id="g", member_id="a", generation_id=0)
    assert server.coordinator.transactional_commit_code(in_transaction, 0) == ErrorCode.ILLEGAL_GENERATION
    server.beat("a", -1)
    assert commit(server, "", -1) == 0
    assert server.coordinator.groups == {}


def test_a_classic_client_does_not_join_a_group_with_members_and_the_other_way(server):
    server.enter("a")
    assert server.code(server.join(version=3)) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert server.heartbeat("a", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    server.join(version=3, group="old")
    answer = server.enter("b", group="old")
    assert (answer.error_code, answer.error_message) == (69, "Group old is not a consumer group.")


def test_an_empty_classic_group_becomes_one_of_kip_848_and_keeps_its_offsets(server):
    [member_id] = server.stable(1)
    server.leave(member_id)
    commit(server, "", -1, version=8)
    records = appended(server, lambda: server.enter("a"))
    assert [record[0] for record in records] == [2, 5, 3, 7, 6, 8]
    assert records[0][-1] is None
    assert "g" not in server.coordinator.groups
    server.start()
    assert (group(server).state, server.coordinator.groups) == ("Stable", {})


def test_a_classic_group_stays_if_the_record_of_its_end_fails(server):
    [member_id] = server.stable(1)
    server.leave(member_id)
    server.fails = True
    server.enter("a")
    assert (server.state(), server.coordinator.consumer_groups) == ("Empty", {})


def test_an_empty_group_of_kip_848_becomes_a_classic_one(server):
    server.enter("a", [], subscribed_topic_regex="t")
    server.beat("a", -1)
    server.fails = True
    assert server.code(server.join()) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    server.fails = False
    assert server.answer(server.join(version=3)).error_code == 0
    assert not server.coordinator.consumer_groups
    server.sync("client-1", 1)
    server.start()
    assert server.coordinator.consumer_groups == {}
    assert server.state() == "Stable"


def test_an_empty_group_is_deleted_and_another_one_not(server):
    server.enter("a")
    assert server.coordinator.delete_code("g") == ErrorCode.NON_EMPTY_GROUP
    server.beat("a", -1)
    assert server.coordinator.delete_code("g") == 0
    server.coordinator.forget("g", server.now_ms)
    assert server.coordinator.delete_code("g") == ErrorCode.GROUP_ID_NOT_FOUND


def test_offsets_expire_by_their_own_time_unless_a_member_subscribes_to_their_topic(server):
    server.enter("a", [], subscribed_topic_regex="t")
    old = OffsetAndMetadata(1, commit_timestamp_ms=0)
    after_ms = server.settings.offsets_retention_ms
    is_expired = server.coordinator.is_expired
    assert not is_expired("g", TopicPartition("t", 0), old, after_ms)
    assert not is_expired("g", TopicPartition("u", 0), old, after_ms - 1)
    assert is_expired("g", TopicPartition("u", 0), old, after_ms)
    assert server.coordinator.offset_delete_code("g") == 0


def test_the_description_has_what_members_have_and_are_to_have(server):
    server.enter("a", instance_id="i")
    server.enter("b", [], subscribed_topic_regex="t")
    described = group(server).described()
    assert (described.group_id, described.group_state, described.assignor_name) == ("g", "Reconciling", "uniform")
    assert (described.group_epoch, described.assignment_epoch) == (2, 2)
    a, b = described.members
    assert (a.member_id, a.instance_id, a.member_epoch, a.client_host, a.member_type) == ("a", "i", 1, "/host", 1)
    assert (a.subscribed_topic_names, a.subscribed_topic_regex, b.subscribed_topic_regex) == (["t"], None, "t")
    (listed,) = server.coordinator.listed(states=["reconciling"], types=["consumer"])
    assert (listed.group_id, listed.protocol_type, listed.group_type) == ("g", "consumer", "consumer")
    assert server.coordinator.described("g") is None
    (has,), (is_to_have,) = a.assignment.topic_partitions, a.target_assignment.topic_partitions
    assert (has.topic_name, has.partitions, len(is_to_have.partitions)) == ("t", [0, 1, 2], 2)
    assert b.assignment.topic_partitions == []
