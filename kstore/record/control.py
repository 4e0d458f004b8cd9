"""Control records: what the key of a record in a control batch says. Format: docs/format.md#control-batches."""

from __future__ import annotations

import struct
from enum import IntEnum

from kstore._core import Record
from kstore.config import MAX_INT32
from kstore.errors import InvalidRecordError
from kstore.record.batch import RecordBatch

_KEY = struct.Struct(">hh")
_END_TRANSACTION_MARKER = struct.Struct(">hi")
_VERSION = 0


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


def control_record_type(record: Record, batch: RecordBatch) -> ControlRecordType:
    """Return the type of a control record of a batch; UNKNOWN for one that this version of Kafka does not define.

    Raises: InvalidRecordError if the key is shorter than version and type, or its version is negative.
    """
    key: bytes | None = record.key
    version, type_id = _KEY.unpack_from(key) if key is not None and len(key) >= _KEY.size else (-1, -1)
    if version < 0:
        what = f"bad control record key at offset {record.offset}"
        expected = f"at least {_KEY.size} bytes with a version >= 0"
        found = None if key is None else key[: _KEY.size]
        where = "memory" if batch.path is None else batch.path
        raise InvalidRecordError(
            f"{what} in batch at position {batch.position} of {where} (base offset {batch.base_offset}): "
            f"expected {expected}, found {found!r}",
            path=batch.path,
            position=batch.position,
            base_offset=batch.base_offset,
            reason=f"{what}: expected {expected}, found {found!r}",
            expected=expected,
            found=found,
        )
    return ControlRecordType(type_id) if type_id in _TYPE_IDS else ControlRecordType.UNKNOWN


_TYPE_IDS = frozenset(ControlRecordType)


def control_record_key(control_type: ControlRecordType) -> bytes:
    """Return the key of a control record.

    Raises: ValueError for UNKNOWN.
    """
    if control_type == ControlRecordType.UNKNOWN:
        raise ValueError("a control record of type UNKNOWN can't be written")
    return _KEY.pack(_VERSION, control_type)


def end_transaction_marker_value(control_type: ControlRecordType, *, coordinator_epoch: int) -> bytes:
    """Return the value of the control record that ends a transaction.

    Raises: ValueError for a type other than ABORT and COMMIT, or an epoch that is no int32 from -1.
    """
    if control_type not in (ControlRecordType.ABORT, ControlRecordType.COMMIT):
        raise ValueError(f"a transaction ends by ABORT or COMMIT, got {control_type.name}")
    if not -1 <= coordinator_epoch <= MAX_INT32:
        raise ValueError(f"coordinator_epoch must be from -1 to {MAX_INT32}, got {coordinator_epoch}")
    return _END_TRANSACTION_MARKER.pack(_VERSION, coordinator_epoch)
