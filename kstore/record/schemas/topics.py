"""Decoding of the records in internal topics of brokers and controllers, as in Kafka's DumpLogSegments.

`__consumer_offsets`: decode_group_record, encode_group_record, encode_offset_commit;
`__transaction_state`: decode_transaction_record, encode_transaction_record;
`__share_group_state`: decode_share_state_record; `__cluster_metadata`: decode_metadata_record, encode_metadata_record;
`__remote_log_metadata`: decode_remote_log_record, decode_remote_log_object;
coordinator_partition: where a group or transactional id is stored.
Names are Kafka's, so that users find them by search.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from kstore.errors import InvalidRecordError, InvalidRequestError
from kstore.record.schemas.coordinator import (
    CONSUMER_PROTOCOL,
    GROUP_KEYS,
    GROUP_VALUES,
    SHARE_STATE_KEYS,
    SHARE_STATE_VALUES,
    TRANSACTION_KEYS,
    TRANSACTION_VALUES,
)
from kstore.record.schemas.metadata import METADATA_RECORDS, REMOTE_LOG_METADATA_RECORDS
from kstore.types import NO_PARTITION_LEADER_EPOCH, NO_TIMESTAMP, OffsetAndMetadata, TopicPartition
from kstore.wire.classes import message_class
from kstore.wire.compiler import Codec, codec
from kstore.wire.protocol import INT16, ProtocolReader, unsigned_varint
from kstore.wire.schema import Schema, decode_message, encode_message, parse_schemas

_FRAME_VERSION = 1
_FRAME_START = bytes([_FRAME_VERSION])
# The least first byte of a varint that has more than one.
_LONG_VARINT = b"\x80"
_OFFSET_COMMIT = 1
_GROUP_METADATA = 2
CONSUMER_PROTOCOL_TYPE = "consumer"
_MEMBER_FIELDS = {"subscription": 0, "assignment": 1}
_WORD = re.compile(r"[A-Z][a-z]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedMessage:
    """A decoded key, value or metadata record: its name in Kafka, type, version and fields.

    The fields are in the form that kstore.wire.schema.decode_message returns.
    """

    name: str
    type_id: int
    version: int
    fields: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class UndecodedMessage:
    """A message of a type or version that kstore does not know: its raw bytes, and the reason."""

    type_id: int | None
    version: int | None
    data: bytes | None
    reason: str


InternalMessage = DecodedMessage | UndecodedMessage


class RemoteLogObject(NamedTuple):
    """A record of `__remote_log_metadata`: its type, and its fields as attributes in snake_case."""

    type_id: int
    message: Any


class CoordinatorRecord(NamedTuple):
    """Key and value of a coordinator's record. The value is None if the record deletes the key's state."""

    key: InternalMessage
    value: InternalMessage | None


# What keys begin with: the type, and, of the types that name a group or transactional id, that name with its size.
_INT16_BYTES = 2
# The types of OffsetCommitKey: of Kafka 0.8.2, and of all brokers since.
OFFSET_COMMIT_TYPES = (b"\0\0", b"\0\1")
# Those, and that of the key of a classic group; 0 is also the type of the key of a transactional id.
NAMED_TYPES = (*OFFSET_COMMIT_TYPES, b"\0\2")


def is_of_type(key: bytes, types: Collection[bytes]) -> bool:
    """Whether a key has one of these types."""
    return key[:_INT16_BYTES] in types


def sized_name(name: bytes) -> bytes:
    """Return a name as it is in a key, with its size."""
    return len(name).to_bytes(_INT16_BYTES, "big") + name


def name_of_key(key: bytes) -> bytes | None:
    """Return the name that follows the type of a key, None if the key is too short for it."""
    start = 2 * _INT16_BYTES
    size = int.from_bytes(key[_INT16_BYTES:start], "big")
    name = key[start : start + size]
    return name if len(name) == size else None


def has_name(key: bytes, sized: bytes, *, after: bytes | None = None) -> bool:
    """Whether a sized name follows the type of a key, or the name `after` that follows it."""
    return key.startswith(sized, _INT16_BYTES if after is None else 2 * _INT16_BYTES + len(after))


def coordinator_partition(name: str, *, partition_count: int) -> int:
    """Return the partition of an internal topic for a group or a transactional id: its Java hash code modulo
    partition_count.

    Source: Kafka GroupMetadataManager.partitionFor, TransactionStateManager.partitionFor.
    """
    return abs(_java_hash(name)) % 2**31 % partition_count


def _java_hash(text: str) -> int:
    """Return Java String.hashCode: over UTF-16 code units, as a signed 32-bit number."""
    data = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for at in range(0, len(data), 2):
        value = (value * 31 + (data[at] << 8 | data[at + 1])) & 0xFFFFFFFF
    return value - 2**32 if value >= 2**31 else value


@cache
def _schemas(table: str) -> dict[int, Schema]:
    return parse_schemas(table)


@cache
def _schemas_by_name(table: str) -> dict[str, Schema]:
    return {schema.name: schema for schema in _schemas(table).values()}


def decode_group_record(key: bytes | None, value: bytes | None, *, decode_members: bool = True) -> CoordinatorRecord:
    """Decode a record of `__consumer_offsets`: a committed offset, a group, a member.

    Args: decode_members: also decode subscription and assignment of the members of a group of protocol type "consumer";
        else they stay the bytes that the clients sent.
    Raises: InvalidRecordError if the bytes do not match their type and version.
    """
    record = _coordinator_record(key, value, GROUP_KEYS, GROUP_VALUES)
    group = record.value
    if decode_members and isinstance(group, DecodedMessage) and group.type_id == _GROUP_METADATA:
        _decode_members(group.fields)
    return record


def subscribed_topics(metadata: bytes) -> frozenset[str]:
    """Return the topics in what a member of a classic group says of itself, of any version of the consumer protocol.

    Raises: InvalidRecordError for bytes that are not of this protocol.
    Source: Kafka ClassicGroup.computeSubscribedTopics.
    """
    reader = ProtocolReader(metadata, what="subscription of a member", is_flexible=False)
    reader.int16("version")
    return frozenset(reader.string("topic") for _ in range(reader.array_length("topics")))


def encode_group_record(
    key: Mapping[str, Any], value: Mapping[str, Any] | None, *, type_id: int, version: int
) -> tuple[bytes, bytes | None]:
    """Return key and value of a record of `__consumer_offsets`; the value is None if `value` is.

    Args: key, value: in the form that decode_group_record returns, with the members' subscriptions and assignments as
        bytes; type_id: of the key; version: of the value.
    Raises: ValueError for an unknown type or version, and for a field that is missing or out of range for its type.
    """
    schema = _schemas(GROUP_KEYS).get(type_id)
    if schema is None:
        raise ValueError(f"type_id: expected one of {sorted(_schemas(GROUP_KEYS))}, got {type_id}")
    key_bytes = INT16.pack(type_id) + encode_message(schema, key, version=type_id)
    if value is None:
        return key_bytes, None
    return key_bytes, INT16.pack(version) + encode_message(_schemas(GROUP_VALUES)[type_id], value, version=version)


def encode_offset_commit(
    group: str, topic_partition: TopicPartition, offset: OffsetAndMetadata | None, *, version: int = 3
) -> tuple[bytes, bytes | None]:
    """Return key and value of the record by which a group commits an offset; the value is None if `offset` is.

    Args: version: of the value: 1 has expire_timestamp_ms; 3, which brokers of Kafka 2.1 and newer read, the leader
        epoch; 4, which those of Kafka 4.4 write, the leader epoch and the topic id.
    Raises: ValueError as encode_group_record.
    """
    key = {"group": group, "topic": topic_partition.topic, "partition": topic_partition.partition}
    if offset is None:
        return encode_group_record(key, None, type_id=_OFFSET_COMMIT, version=version)
    value: dict[str, Any] = {
        "offset": offset.offset,
        "leaderEpoch": NO_PARTITION_LEADER_EPOCH if offset.leader_epoch is None else offset.leader_epoch,
        "metadata": offset.metadata,
        "commitTimestamp": NO_TIMESTAMP if offset.commit_timestamp_ms is None else offset.commit_timestamp_ms,
        "expireTimestamp": NO_TIMESTAMP if offset.expire_timestamp_ms is None else offset.expire_timestamp_ms,
    }
    if offset.topic_id is not None:
        value["topicId"] = offset.topic_id
    return encode_group_record(key, value, type_id=_OFFSET_COMMIT, version=version)


def decode_transaction_record(key: bytes | None, value: bytes | None) -> CoordinatorRecord:
    """Decode a record of `__transaction_state`: the state of a transactional id.

    Raises: InvalidRecordError as decode_group_record.
    """
    return _coordinator_record(key, value, TRANSACTION_KEYS, TRANSACTION_VALUES)


def decode_share_state_record(key: bytes | None, value: bytes | None) -> CoordinatorRecord:
    """Decode a record of `__share_group_state`: the progress of a share group in a partition.

    Raises: InvalidRecordError as decode_group_record.
    """
    return _coordinator_record(key, value, SHARE_STATE_KEYS, SHARE_STATE_VALUES)


def encode_transaction_record(
    transactional_id: str, fields: Mapping[str, Any] | None, *, version: int = 0
) -> tuple[bytes, bytes | None]:
    """Return key and value of a record of `__transaction_state`; the value is None if `fields` is.

    Args: fields: in the form that decode_transaction_record returns; version: of the value: 0, which brokers of all
        versions can read, or 1, which has tagged fields and which brokers from 3.5 on can read.
    Raises: ValueError for a field that is missing or out of range for its type.
    """
    type_id = 0
    key_fields = {"transactionalId": transactional_id}
    key = INT16.pack(type_id) + encode_message(_schemas(TRANSACTION_KEYS)[type_id], key_fields, version=type_id)
    if fields is None:
        return key, None
    value = encode_message(_schemas(TRANSACTION_VALUES)[type_id], fields, version=version)
    return key, INT16.pack(version) + value


def decode_metadata_record(value: bytes | None) -> InternalMessage:
    """Decode a record of `__cluster_metadata`; its name is Kafka's, such as TOPIC_RECORD.

    Raises: InvalidRecordError as decode_group_record.
    """
    return _metadata_record(value, METADATA_RECORDS)


def encode_metadata_record(name: str, fields: Mapping[str, Any], *, version: int) -> bytes:
    """Return the value of a record of `__cluster_metadata`.

    Args: name: of its schema, such as TopicRecord; fields: in the form that decode_metadata_record returns.
    Raises: ValueError for an unknown name or version, and for a field that is missing or out of range for its type.
    Source: Kafka AbstractApiMessageSerde.
    """
    schema = _schemas_by_name(METADATA_RECORDS).get(name)
    if schema is None:
        raise ValueError(f"name: expected that of a metadata record, such as TopicRecord, got {name!r}")
    frame = (_FRAME_VERSION, *schema.api_keys, version)
    return b"".join(map(unsigned_varint, frame)) + encode_message(schema, fields, version=version)


def decode_remote_log_record(value: bytes | None) -> InternalMessage:
    """Decode a record of `__remote_log_metadata`: the segments in tiered storage, and their states.

    Its name is Kafka's, such as REMOTE_LOG_SEGMENT_METADATA_RECORD.
    Raises: InvalidRecordError as decode_group_record.
    """
    return _metadata_record(value, REMOTE_LOG_METADATA_RECORDS)


def decode_remote_log_object(value: bytes | None) -> RemoteLogObject | UndecodedMessage:
    """Decode a record of `__remote_log_metadata` by a compiled function, as an object: for a replay of many.

    Raises: InvalidRecordError as decode_remote_log_record, and for a name of a topic that is not UTF-8.
    Cost: about a tenth of decode_remote_log_record.
    """
    framed = _framed(value, REMOTE_LOG_METADATA_RECORDS)
    if isinstance(framed, UndecodedMessage):
        return framed
    decode = _remote_log_codec(framed.type_id, version=framed.version).decode
    try:
        message, end = decode(framed.value, framed.position)
    except InvalidRequestError as error:
        raise _malformed(framed, str(error)) from error
    if end != len(framed.value):
        raise _malformed(framed, f"expected {end} bytes, found {len(framed.value)}")
    return RemoteLogObject(framed.type_id, message)


def _malformed(framed: _Framed, reason: str) -> InvalidRecordError:
    return InvalidRecordError(f"malformed {framed.schema.name} v{framed.version}: {reason}", reason=reason)


@cache
def _remote_log_codec(type_id: int, *, version: int) -> Codec[Any]:
    return codec(message_class(_schemas(REMOTE_LOG_METADATA_RECORDS)[type_id], module=__name__), version=version)


class _Framed(NamedTuple):
    """The frame of a metadata record: its schema and version, and where its fields are."""

    value: bytes
    position: int
    type_id: int
    version: int
    schema: Schema


def _framed(value: bytes | None, table: str) -> _Framed | UndecodedMessage:
    if value is None:
        return UndecodedMessage(type_id=None, version=None, data=None, reason="a metadata record has a value")
    if value[0:1] == _FRAME_START and value[1:2] < _LONG_VARINT and b"" < value[2:3] < _LONG_VARINT:
        type_id, version, position = value[1], value[2], 3
    else:
        reader = ProtocolReader(value, what="metadata record", is_flexible=True)
        frame_version = reader.unsigned_varint("frame version")
        if frame_version != _FRAME_VERSION:
            reason = f"unknown frame version {frame_version}"
            return UndecodedMessage(type_id=None, version=None, data=value, reason=reason)
        type_id = reader.unsigned_varint("type")
        version = reader.unsigned_varint("version")
        position = len(value) - reader.remaining
    schema = _schemas(table).get(type_id)
    if schema is None or version not in schema.versions:
        reason = f"unknown type {type_id}" if schema is None else f"unknown version {version} of {schema.name}"
        return UndecodedMessage(type_id=type_id, version=version, data=value, reason=reason)
    return _Framed(value, position, type_id, version, schema)


def _metadata_record(value: bytes | None, table: str) -> InternalMessage:
    framed = _framed(value, table)
    if isinstance(framed, UndecodedMessage):
        return framed
    schema, version = framed.schema, framed.version
    name = "_".join(word.upper() for word in _WORD.findall(schema.name))
    fields = decode_message(schema, framed.value[framed.position :], version=version)
    return DecodedMessage(name=name, type_id=framed.type_id, version=version, fields=fields)


def _coordinator_record(key: bytes | None, value: bytes | None, keys: str, values: str) -> CoordinatorRecord:
    if key is None:
        undecoded = UndecodedMessage(type_id=None, version=None, data=None, reason="a coordinator's record has a key")
        return CoordinatorRecord(undecoded, None)
    reader = ProtocolReader(key, what="key of a coordinator's record", is_flexible=False)
    type_id = reader.int16("type")
    rest = reader.take("key", size=reader.remaining)
    schema = _schemas(keys).get(type_id)
    if schema is None:
        reason = f"unknown type {type_id}"
        unknown = UndecodedMessage(type_id=type_id, version=None, data=key, reason=reason)
        if value is None:
            return CoordinatorRecord(unknown, None)
        return CoordinatorRecord(unknown, UndecodedMessage(type_id=type_id, version=None, data=value, reason=reason))
    decoded = DecodedMessage(
        name=schema.name, type_id=type_id, version=type_id, fields=decode_message(schema, rest, version=type_id)
    )
    return CoordinatorRecord(decoded, None if value is None else _value(_schemas(values)[type_id], value, type_id))


def _value(schema: Schema, value: bytes, type_id: int) -> InternalMessage:
    reader = ProtocolReader(value, what=schema.name, is_flexible=False)
    version = reader.int16("version")
    rest = reader.take("value", size=reader.remaining)
    if version not in schema.versions:
        reason = f"unknown version {version} of {schema.name}"
        return UndecodedMessage(type_id=type_id, version=version, data=value, reason=reason)
    fields = decode_message(schema, rest, version=version)
    return DecodedMessage(name=schema.name, type_id=type_id, version=version, fields=fields)


def _decode_members(group: dict[str, Any]) -> None:
    """Replace the bytes that the members of a consumer group sent by decoded fields.

    Bytes that do not follow the consumer protocol stay: they belong to the clients, and brokers do not read them.
    """
    if group["protocolType"] != CONSUMER_PROTOCOL_TYPE:
        return
    for member in group["members"]:
        for name, api_key in _MEMBER_FIELDS.items():
            schema = _schemas(CONSUMER_PROTOCOL)[api_key]
            try:
                decoded = _value(schema, member[name], api_key)
            except InvalidRecordError:
                continue
            if isinstance(decoded, DecodedMessage):
                member[name] = decoded.fields
