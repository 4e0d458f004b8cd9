"""Decoders of `kstore dump` for the records of internal topics; JSON as Kafka's DumpLogSegments prints it."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from kstore.cli.render import JSON_TEXT, plain_value
from kstore.errors import InvalidRecordError, MemoryLimitError
from kstore.record.schemas.topics import (
    DecodedMessage,
    decode_group_record,
    decode_metadata_record,
    decode_remote_log_record,
    decode_share_state_record,
    decode_transaction_record,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kstore._core import Record
    from kstore.record.schemas.topics import InternalMessage

DELETED = "<DELETE>"


class Decoder(Enum):
    """The internal topic whose records are decoded."""

    OFFSETS = "offsets"
    TRANSACTION_LOG = "transaction-log"
    SHARE_GROUP_STATE = "share-group-state"
    CLUSTER_METADATA = "cluster-metadata"
    REMOTE_LOG_METADATA = "remote-log-metadata"


_COORDINATORS = {
    Decoder.OFFSETS: decode_group_record,
    Decoder.TRANSACTION_LOG: decode_transaction_record,
    Decoder.SHARE_GROUP_STATE: decode_share_state_record,
}
_OF_VALUES = {
    Decoder.CLUSTER_METADATA: decode_metadata_record,
    Decoder.REMOTE_LOG_METADATA: decode_remote_log_record,
}


class Decoded(NamedTuple):
    """JSON of the decoded key and value, None for one that is missing. error: why decoding failed (both are None)."""

    key: str | None
    value: str | None
    error: str | None = None


def decode(decoder: Decoder, record: Record) -> Decoded:
    """Decode a record of an internal topic. A record that can't be decoded returns an error and raises nothing."""
    try:
        if decoder in _OF_VALUES:
            return Decoded(None, metadata_json(_OF_VALUES[decoder](record.value)))
        key, value = _COORDINATORS[decoder](record.key, record.value)
    except (InvalidRecordError, MemoryLimitError) as error:
        return Decoded(None, None, str(error))
    key_json = message_json(key, "type", None if key.type_id is None else str(key.type_id))
    if value is None:
        return Decoded(key_json, None)
    return Decoded(key_json, message_json(value, "version", None if value.version is None else str(value.version)))


def json_fields(decoder: Decoder, records: Sequence[Record], row: int) -> str:
    """Return the JSON fields that a decoder adds to the object of a record, each after a comma."""
    decoded = decode(decoder, records[row])
    key = "" if decoder in _OF_VALUES else f'"decodedKey":{decoded.key or "null"},'
    error = "" if decoded.error is None else f',"decodeError":{JSON_TEXT(decoded.error)}'
    return f',{key}"decodedValue":{decoded.value or "null"}{error}'


def texts(decoder: Decoder, record: Record) -> tuple[str | None, str | None]:
    """Return the text shown for key and value, None where the bytes are to be shown instead."""
    decoded = decode(decoder, record)
    if decoded.error is not None or decoder in _OF_VALUES:
        return None, decoded.value
    return decoded.key, decoded.value or DELETED


def message_json(message: InternalMessage, name: str, number: str | None) -> str:
    """Return the JSON of a key with its type, or of a value with its version, in Kafka's layout."""
    return JSON_TEXT({name: number} | _content(message))


def metadata_json(message: InternalMessage) -> str:
    """Return the JSON of a value with its type and version, in Kafka's layout."""
    kind = message.name if isinstance(message, DecodedMessage) else message.type_id
    return JSON_TEXT({"type": kind, "version": message.version} | _content(message))


def _content(message: InternalMessage) -> dict[str, object]:
    if isinstance(message, DecodedMessage):
        return {"data": plain_value(message.fields)}
    return {"data": None, "undecoded": message.reason}
