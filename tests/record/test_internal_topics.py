"""Goal: records of internal topics are decoded by type and version; what is not known is kept and named.
Method: keys and values packed by hand, every version of the two that brokers write most, later and damaged ones."""

from __future__ import annotations

import struct
from uuid import UUID

import pytest

from kstore import InvalidRecordError
from kstore.record.schemas.topics import (
    UndecodedMessage,
    decode_group_record,
    decode_metadata_record,
    decode_share_state_record,
    decode_transaction_record,
    encode_transaction_record,
)
from kstore.wire.protocol import TaggedField

TOPIC_ID = UUID("02cb951e-c57c-4639-8587-98dfa6b2f7c0")
OFFSET_KEY = bytes.fromhex("0001 0001 67 0001 74 00000003")
GROUP_KEY = bytes.fromhex("0002 0001 67")
COMMITS = {
    0: ("0000000000000007 0001 6d 0000000000000009", {}),
    1: ("0000000000000007 0001 6d 0000000000000009 000000000000000a", {"expireTimestamp": 10}),
    2: ("0000000000000007 0001 6d 0000000000000009", {}),
    3: ("0000000000000007 00000005 0001 6d 0000000000000009", {"leaderEpoch": 5}),
    4: (
        f"0000000000000007 00000005 02 6d 0000000000000009 02 00 10 {TOPIC_ID.hex} 07 01 ff",
        {"leaderEpoch": 5, "topicId": TOPIC_ID, "taggedFields": [TaggedField(7, b"\xff")]},
    ),
}


def versioned(version, data):
    return struct.pack(">h", version) + bytes.fromhex(data)


@pytest.mark.parametrize("key_type", [0, 1])
@pytest.mark.parametrize("version", COMMITS)
def test_offset_commit_of_every_version_is_decoded(key_type, version):
    data, more = COMMITS[version]
    key, value = decode_group_record(struct.pack(">h", key_type) + OFFSET_KEY[2:], versioned(version, data))
    assert (key.name, key.type_id, key.version) == ("OffsetCommitKey", key_type, key_type)
    assert key.fields == {"group": "g", "topic": "t", "partition": 3}
    assert (value.name, value.version) == ("OffsetCommitValue", version)
    assert value.fields == {"offset": 7, "metadata": "m", "commitTimestamp": 9} | more


# member, instance, client, host, rebalance timeout, session timeout, subscription, assignment
MEMBERS = {
    0: ("0001 61 0001 63 0001 68 00000005", {}),
    1: ("0001 61 0001 63 0001 68 00000004 00000005", {"rebalanceTimeout": 4}),
    2: ("0001 61 0001 63 0001 68 00000004 00000005", {"rebalanceTimeout": 4}),
    3: ("0001 61 ffff 0001 63 0001 68 00000004 00000005", {"rebalanceTimeout": 4, "groupInstanceId": None}),
    4: ("02 61 02 69 02 63 02 68 00000004 00000005", {"rebalanceTimeout": 4, "groupInstanceId": "i"}),
}
SUBSCRIPTION = bytes.fromhex("0000 00000001 0001 74 ffffffff")
ASSIGNMENT = bytes.fromhex("0001 00000001 0001 74 00000001 00000002 00000001 ff")


def group_value(version, *, protocol_type="consumer", subscription=SUBSCRIPTION, assignment=ASSIGNMENT):
    is_flexible = version >= 4

    def sized(data, layout):
        return (bytes([len(data) + 1]) if is_flexible else struct.pack(layout, len(data))) + data

    out = struct.pack(">h", version) + sized(protocol_type.encode(), ">h") + struct.pack(">i", 1)
    out += sized(b"range", ">h") + (b"\0" if is_flexible else b"\xff\xff")
    out += struct.pack(">q", 6) if version >= 2 else b""
    out += b"\2" if is_flexible else struct.pack(">i", 1)
    out += bytes.fromhex(MEMBERS[version][0]) + sized(subscription, ">i") + sized(assignment, ">i")
    return out + (b"\0\0" if is_flexible else b"")


@pytest.mark.parametrize("version", MEMBERS)
def test_group_metadata_of_every_version_is_decoded_with_what_its_members_said(version):
    _, value = decode_group_record(GROUP_KEY, group_value(version))
    member = {
        "memberId": "a",
        "clientId": "c",
        "clientHost": "h",
        "sessionTimeout": 5,
        "subscription": {"topics": ["t"], "userData": None},
        "assignment": {"assignedPartitions": [{"topic": "t", "partitions": [2]}], "userData": b"\xff"},
    }
    expected = {
        "protocolType": "consumer",
        "generation": 1,
        "protocol": "range",
        "leader": None,
        "members": [member | MEMBERS[version][1]],
    }
    assert value.fields == expected | ({"currentStateTimestamp": 6} if version >= 2 else {})


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"protocol_type": "connect"}, id="another-protocol"),
        pytest.param({"subscription": b""}, id="empty"),
        pytest.param({"subscription": SUBSCRIPTION[:-1]}, id="cut-off"),
        pytest.param({"subscription": b"\0\x09" + SUBSCRIPTION[2:]}, id="later-version"),
        pytest.param({"subscription": SUBSCRIPTION + b"\0"}, id="byte-behind"),
    ],
)
def test_what_members_say_in_another_way_stays_bytes(options):
    _, value = decode_group_record(GROUP_KEY, group_value(3, **options))
    assert value.fields["members"][0]["subscription"] == options.get("subscription", SUBSCRIPTION)


def test_value_that_is_null_deletes_its_key():
    assert decode_group_record(GROUP_KEY, None).value is None
    assert decode_transaction_record(bytes.fromhex("0000 0001 61"), None).value is None


def test_metadata_record_is_named_as_kafka_names_it():
    message = decode_metadata_record(bytes.fromhex("01 02 00 02 74") + TOPIC_ID.bytes + b"\0")
    assert (message.name, message.type_id, message.version) == ("TOPIC_RECORD", 2, 0)
    assert message.fields == {"name": "t", "topicId": TOPIC_ID}


MEMBER_KEY = bytes.fromhex("0005 0001 67 0001 6d")
MEMBER = "0000 00 00 02 63 02 68 02 02 74 00 0000000a 00"
CLASSIC = {
    "null": ("01 00 01 00", {"classicMemberMetadata": None}),
    "present": (
        "01 00 0c 01 00000007 02 02 72 02 ff 00 00",
        {
            "classicMemberMetadata": {
                "sessionTimeoutMs": 7,
                "supportedProtocols": [{"name": "r", "metadata": b"\xff"}],
            }
        },
    ),
    "not-written": ("00", {}),
}


@pytest.mark.parametrize(("tagged", "expected"), CLASSIC.values(), ids=CLASSIC)
def test_struct_in_a_tagged_field_may_be_null(tagged, expected):
    _, value = decode_group_record(MEMBER_KEY, bytes.fromhex(MEMBER + tagged))
    assert value.fields["rebalanceTimeoutMs"] == 10
    assert {name: field for name, field in value.fields.items() if name == "classicMemberMetadata"} == expected


def test_share_state_is_decoded():
    key = bytes.fromhex("0001 0001 67") + TOPIC_ID.bytes + bytes.fromhex("00000003")
    data = "00000001 00000002 0000000000000005 02 0000000000000005 0000000000000006 01 0002 00 01 00 04 00000009"
    record = decode_share_state_record(key, versioned(0, data))
    assert (record.key.name, record.key.fields) == (
        "ShareUpdateKey",
        {"groupId": "g", "topicId": TOPIC_ID, "partition": 3},
    )
    assert record.value.name == "ShareUpdateValue"
    batch = {"firstOffset": 5, "lastOffset": 6, "deliveryState": 1, "deliveryCount": 2}
    assert record.value.fields == {
        "snapshotEpoch": 1,
        "leaderEpoch": 2,
        "startOffset": 5,
        "deliveryCompleteCount": 9,
        "stateBatches": [batch],
    }


UNKNOWN_GROUP = {
    "no key": (None, b"x", None, "a coordinator's record has a key"),
    "type": (b"\0\x63rest", b"x", "unknown type 99", "unknown type 99"),
    "negative type": (b"\xff\xff", b"x", "unknown type -1", "unknown type -1"),
    "version of an offset": (OFFSET_KEY, b"\0\5x", "unknown version 5 of OffsetCommitValue", None),
    "negative version": (GROUP_KEY, b"\xff\xff", "unknown version -1 of GroupMetadataValue", None),
}


@pytest.mark.parametrize(("key", "value", "value_reason", "key_reason"), UNKNOWN_GROUP.values(), ids=UNKNOWN_GROUP)
def test_unknown_coordinator_message_keeps_its_bytes_and_says_why(key, value, value_reason, key_reason):
    record = decode_group_record(key, value)
    if key_reason is not None:
        assert isinstance(record.key, UndecodedMessage)
        assert (record.key.data, record.key.reason) == (key, key_reason)
    if value_reason is not None:
        assert isinstance(record.value, UndecodedMessage)
        assert (record.value.data, record.value.reason) == (value, value_reason)


def test_unknown_type_without_a_value_has_none():
    assert decode_transaction_record(b"\0\1", None).value is None


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        pytest.param(None, "a metadata record has a value", id="null"),
        pytest.param(b"\2\0\0", "unknown frame version 2", id="frame"),
        pytest.param(b"\1\x63\0rest", "unknown type 99", id="type"),
        pytest.param(b"\1\2\1rest", "unknown version 1 of TopicRecord", id="version"),
    ],
)
def test_unknown_metadata_record_keeps_its_bytes_and_says_why(value, reason):
    message = decode_metadata_record(value)
    assert isinstance(message, UndecodedMessage)
    assert (message.data, message.reason) == (value, reason)


REFUSED = {
    "key without a type": (b"\0", b"", "type at byte 0 of 1: expected 2 bytes, found 1"),
    "byte behind the key": (GROUP_KEY + b"\0", None, "end at byte 3 of 4: expected no more bytes, found 1"),
    "value without a version": (GROUP_KEY, b"\0", "GroupMetadataValue: version at byte 0 of 1"),
    "null where the schema has none": (
        OFFSET_KEY,
        versioned(0, "0000000000000007 ffff 0000000000000009"),
        "OffsetCommitValue v0: metadata at byte 10 of 18: expected string, found None",
    ),
    "array without room": (
        GROUP_KEY,
        versioned(0, "0000 00000001 ffff ffff 7fffffff"),
        "members at byte 14 of 14: expected a length from 0 to 0, -1 for null, found 2147483647",
    ),
    "array that is null": (
        GROUP_KEY,
        versioned(0, "0000 00000001 ffff ffff ffffffff"),
        "members at byte 14 of 14: expected an array, found None",
    ),
    "tagged field with a byte too many": (
        OFFSET_KEY,
        versioned(4, f"0000000000000007 00000005 02 6d 0000000000000009 01 00 11 {TOPIC_ID.hex} 00"),
        "OffsetCommitValue v4: tag 0: end at byte 16 of 17",
    ),
}


@pytest.mark.parametrize(("key", "value", "message"), REFUSED.values(), ids=REFUSED)
def test_damaged_coordinator_message_is_refused_with_field_and_place(key, value, message):
    with pytest.raises(InvalidRecordError) as caught:
        decode_group_record(key, value)
    assert message in str(caught.value)


def test_array_as_long_as_the_bytes_behind_it_needs_no_more_memory_than_they_do():
    count = 1 << 16
    value = versioned(0, "0000 00000001 ffff ffff") + struct.pack(">i", count) + b"\0" * count
    with pytest.raises(InvalidRecordError):
        decode_group_record(GROUP_KEY, value)


TRANSACTION = {
    "producerId": 7,
    "producerEpoch": 3,
    "transactionTimeoutMs": 60000,
    "transactionStatus": 1,
    "transactionPartitions": [{"topic": "t", "partitionIds": [0, 2]}],
    "transactionLastUpdateTimestampMs": 12,
    "transactionStartTimestampMs": 11,
}


@pytest.mark.parametrize("partitions", [None, [], TRANSACTION["transactionPartitions"]], ids=["null", "none", "two"])
def test_transaction_record_is_written_as_it_is_read(partitions):
    fields = TRANSACTION | {"transactionPartitions": partitions}
    key, value = decode_transaction_record(*encode_transaction_record("id", fields))
    assert (key.fields, value.fields) == ({"transactionalId": "id"}, fields)
    assert (key.version, value.version) == (0, 0)


def test_transaction_record_without_fields_deletes_the_id():
    key, value = encode_transaction_record("id", None)
    assert (key, value) == (bytes.fromhex("0000 0002 6964"), None)


REFUSED_FIELDS = {
    "missing": ({name: value for name, value in TRANSACTION.items() if name != "producerId"}, "producerId is missing"),
    "beyond its type": (TRANSACTION | {"producerEpoch": 2**15}, "producerEpoch"),
    "null": (TRANSACTION | {"transactionPartitions": [{"topic": None, "partitionIds": []}]}, "topic must not be null"),
}


@pytest.mark.parametrize(("fields", "reason"), REFUSED_FIELDS.values(), ids=REFUSED_FIELDS)
def test_transaction_that_its_record_cannot_hold_is_refused(fields, reason):
    with pytest.raises(ValueError, match=reason):
        encode_transaction_record("id", fields)
