"""Control records: what the key of a record in a control batch says. Format: docs/format.md#control-records."""

from __future__ import annotations

import struct
from enum import IntEnum

from kstore._core import Record
from kstore.errors import InvalidRecordError

_KEY = struct.Struct(">hh")


class ControlRecordType(IntEnum):
    """Types of control records (Kafka: ControlRecordType)."""

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


def control_record_type(record: Record) -> ControlRecordType:
    """Return the type of a control record; UNKNOWN for one that this version of Kafka does not define.

    Raises: InvalidRecordError if the key is shorter than version and type, or its version is negative.
    """
    key: bytes | None = record.key
    version, type_id = _KEY.unpack_from(key) if key is not None and len(key) >= _KEY.size else (-1, -1)
    if version < 0:
        reason = f"control record key: expected at least {_KEY.size} bytes with a version >= 0, found {key!r}"
        raise InvalidRecordError(f"{reason} at offset {record.offset} of {record.topic_partition}", reason=reason)
    return ControlRecordType(type_id) if type_id in _TYPE_IDS else ControlRecordType.UNKNOWN


_TYPE_IDS = frozenset(ControlRecordType)
