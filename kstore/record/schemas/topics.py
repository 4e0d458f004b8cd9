"""Records of the topics that brokers and controllers keep for themselves, decoded as Kafka's DumpLogSegments does.

`__consumer_offsets`: decode_group_record; `__transaction_state`: decode_transaction_record, encode_transaction_record;
`__share_group_state`: decode_share_state_record; `__cluster_metadata`: decode_metadata_record; `__remote_log_metadata`:
decode_remote_log_record. Kafka's names are used throughout, since that is what people search for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from kstore.errors import InvalidRecordError
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
from kstore.record.schemas.protocol import INT16, ProtocolReader
from kstore.record.schemas.schema import Schema, decode_message, encode_message, parse_schemas

_FRAME_VERSION = 1
_GROUP_METADATA = 2
_CONSUMER_PROTOCOL_TYPE = "consumer"
_MEMBER_FIELDS = {"subscription": 0, "assignment": 1}
_WORD = re.compile(r"[A-Z][a-z]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedMessage:
    """A key, a value or a metadata record: Kafka's name of it, its type, its version and its fields.

    Fields are as kstore.record.schemas.schema.decode_message gives them.
    """

    name: str
    type_id: int
    version: int
    fields: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class UndecodedMessage:
    """A message of a type or version that kstore does not know: its bytes as they came, and why."""

    type_id: int | None
    version: int | None
    data: bytes | None
    reason: str


InternalMessage = DecodedMessage | UndecodedMessage


class CoordinatorRecord(NamedTuple):
    """Key and value of a coordinator's record; the value is None where it deletes what was kept under the key."""

    key: InternalMessage
    value: InternalMessage | None


@cache
def _schemas(table: str) -> dict[int, Schema]:
    return parse_schemas(table)


def decode_group_record(key: bytes | None, value: bytes | None) -> CoordinatorRecord:
    """Return what a record of `__consumer_offsets` says: a committed offset, a group, a member.

    Subscription and assignment of the members of a group of type "consumer" are decoded as well.
    Raises: InvalidRecordError if the bytes do not hold what their type and version promise.
    """
    record = _coordinator_record(key, value, GROUP_KEYS, GROUP_VALUES)
    group = record.value
    if isinstance(group, DecodedMessage) and group.type_id == _GROUP_METADATA:
        _decode_members(group.fields)
    return record


def decode_transaction_record(key: bytes | None, value: bytes | None) -> CoordinatorRecord:
    """Return what a record of `__transaction_state` says: the state of a transactional id.

    Raises: InvalidRecordError as decode_group_record.
    """
    return _coordinator_record(key, value, TRANSACTION_KEYS, TRANSACTION_VALUES)


def decode_share_state_record(key: bytes | None, value: bytes | None) -> CoordinatorRecord:
    """Return what a record of `__share_group_state` says: how far a share group is with a partition.

    Raises: InvalidRecordError as decode_group_record.
    """
    return _coordinator_record(key, value, SHARE_STATE_KEYS, SHARE_STATE_VALUES)


def encode_transaction_record(transactional_id: str, fields: Mapping[str, Any] | None) -> tuple[bytes, bytes | None]:
    """Return key and value of a record of `__transaction_state`, the value None where `fields` is.

    Both are of version 0, which brokers of all versions read.
    Args: fields: as decode_transaction_record gives them.
    Raises: ValueError for a field that is missing or beyond its type.
    """
    type_id = 0
    key_fields = {"transactionalId": transactional_id}
    key = INT16.pack(type_id) + encode_message(_schemas(TRANSACTION_KEYS)[type_id], key_fields, version=type_id)
    if fields is None:
        return key, None
    version = 0
    value = encode_message(_schemas(TRANSACTION_VALUES)[type_id], fields, version=version)
    return key, INT16.pack(version) + value


def decode_metadata_record(value: bytes | None) -> InternalMessage:
    """Return what a record of `__cluster_metadata` says; its name is Kafka's, such as TOPIC_RECORD.

    Raises: InvalidRecordError as decode_group_record.
    """
    return _metadata_record(value, METADATA_RECORDS)


def decode_remote_log_record(value: bytes | None) -> InternalMessage:
    """Return what a record of `__remote_log_metadata` says: which segments tiered storage has, and their states.

    Its name is Kafka's, such as REMOTE_LOG_SEGMENT_METADATA_RECORD.
    Raises: InvalidRecordError as decode_group_record.
    """
    return _metadata_record(value, REMOTE_LOG_METADATA_RECORDS)


def _metadata_record(value: bytes | None, table: str) -> InternalMessage:
    if value is None:
        return UndecodedMessage(type_id=None, version=None, data=None, reason="a metadata record has a value")
    reader = ProtocolReader(value, what="metadata record", is_flexible=True)
    frame_version = reader.unsigned_varint("frame version")
    if frame_version != _FRAME_VERSION:
        reason = f"unknown frame version {frame_version}"
        return UndecodedMessage(type_id=None, version=None, data=value, reason=reason)
    type_id = reader.unsigned_varint("type")
    version = reader.unsigned_varint("version")
    schema = _schemas(table).get(type_id)
    rest = reader.take("record", size=reader.remaining)
    if schema is None or version not in schema.versions:
        reason = f"unknown type {type_id}" if schema is None else f"unknown version {version} of {schema.name}"
        return UndecodedMessage(type_id=type_id, version=version, data=value, reason=reason)
    name = "_".join(word.upper() for word in _WORD.findall(schema.name))
    fields = decode_message(schema, rest, version=version)
    return DecodedMessage(name=name, type_id=type_id, version=version, fields=fields)


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
    """Put fields in place of what the members of a group said, as bytes, in the protocol of consumers.

    Bytes that do not follow it stay: they are the clients' own, and no broker looks into them.
    """
    if group["protocolType"] != _CONSUMER_PROTOCOL_TYPE:
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
