"""Control records: keys and values of the records in control batches. Format: docs/format.md#control-batches."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from kstore._core import Record
from kstore.config import MAX_INT32
from kstore.errors import InvalidRecordError
from kstore.record.batches import RecordBatch
from kstore.types import ControlRecordType
from kstore.wire.protocol import ProtocolReader

if TYPE_CHECKING:
    from kstore.record.kraft import KRaftControlRecord

_KEY = struct.Struct(">hh")
_VERSION = 0
_END_TRANSACTION_MARKER = struct.Struct(">hi")


_TYPE_IDS = frozenset(ControlRecordType)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransactionMarker:
    """The end of a transaction, ABORT or COMMIT (Kafka: EndTransactionMarker).

    Args: rest: the bytes after the epoch in versions above 0.
    Raises: ValueError for another type, an epoch that is not an int32 of at least -1, or a rest in version 0.
    """

    control_type: ControlRecordType
    coordinator_epoch: int
    version: int = _VERSION
    rest: bytes = b""

    def __post_init__(self) -> None:
        if self.control_type not in (ControlRecordType.ABORT, ControlRecordType.COMMIT):
            raise ValueError(f"a transaction ends with ABORT or COMMIT, got {self.control_type.name}")
        if not -1 <= self.coordinator_epoch <= MAX_INT32:
            raise ValueError(f"coordinator_epoch must be from -1 to {MAX_INT32}, got {self.coordinator_epoch}")
        if not (self.version > _VERSION or (self.version == _VERSION and not self.rest)):
            raise ValueError(
                f"version {self.version} of an end transaction marker must have an empty rest, got {self.rest!r}"
            )

    def to_bytes(self) -> bytes:
        """Return the value of the control record."""
        try:
            return _END_TRANSACTION_MARKER.pack(self.version, self.coordinator_epoch) + self.rest
        except struct.error:
            raise ValueError(f"version must be an int16, got {self.version}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownControlRecord:
    """A control record whose type, or version of its value, kstore does not know, with its raw value."""

    type_id: int
    data: bytes | None

    def to_bytes(self) -> bytes | None:
        """Return the value of the control record."""
        return self.data


ControlRecordValue: TypeAlias = "EndTransactionMarker | KRaftControlRecord | UnknownControlRecord"


def control_record_type(record: Record, batch: RecordBatch) -> ControlRecordType:
    """Return the type of a control record in a batch; UNKNOWN for one that Kafka does not define.

    Raises: InvalidRecordError if the key is too short for version and type, or its version is negative.
    """
    try:
        type_id = _type_id(record.key)
    except InvalidRecordError as error:
        raise _placed(error, "key", record, batch) from None
    return ControlRecordType(type_id) if type_id in _TYPE_IDS else ControlRecordType.UNKNOWN


def control_record_value(record: Record, batch: RecordBatch) -> ControlRecordValue:
    """Return the decoded value of a control record in a batch; UnknownControlRecord for an unknown type or version.

    Raises: InvalidRecordError as control_record_type, or if the value does not match its version.
    """
    try:
        return decode_control_record(record.key, record.value)
    except InvalidRecordError as error:
        raise _placed(error, "value", record, batch) from None


def decode_control_record(key: bytes | None, value: bytes | None) -> ControlRecordValue:
    """Return the decoded value of a control record from its key and value; see control_record_value."""
    type_id = _type_id(key)
    kind = ControlRecordType(type_id) if type_id in _TYPE_IDS else ControlRecordType.UNKNOWN
    if kind == ControlRecordType.UNKNOWN:
        return UnknownControlRecord(type_id=type_id, data=value)
    data = ProtocolReader(value or b"", what=f"{kind.name} control record", is_flexible=True)
    if value is None:
        raise data.error("value", expected="bytes", found=None)
    version = data.int16("version")
    if version < 0:
        raise data.error("version", expected="at least 0", found=version)
    if kind in (ControlRecordType.ABORT, ControlRecordType.COMMIT):
        return _read_end_transaction_marker(data, kind, version=version)
    # Logs of topics hold none of these.
    from kstore.record.kraft import KRAFT_CONTROL_RECORDS

    message = KRAFT_CONTROL_RECORDS[kind]
    if version > message.last_version:
        return UnknownControlRecord(type_id=type_id, data=value)
    decoded: ControlRecordValue = message.read(data, version)
    data.end()
    return decoded


def _read_end_transaction_marker(
    data: ProtocolReader, kind: ControlRecordType, *, version: int
) -> EndTransactionMarker:
    """Read the fields after the version. Later versions are assumed to start as version 0, as in Kafka."""
    epoch = data.int32("coordinatorEpoch")
    if epoch < -1:
        raise data.error("coordinatorEpoch", expected="at least -1", found=epoch)
    if version == _VERSION:
        data.end()
    rest = data.take("rest", size=data.remaining)
    return EndTransactionMarker(control_type=kind, coordinator_epoch=epoch, version=version, rest=rest)


def control_record_key(control_type: ControlRecordType) -> bytes:
    """Return the key of a control record.

    Raises: ValueError for UNKNOWN.
    """
    if control_type == ControlRecordType.UNKNOWN:
        raise ValueError("a control record of type UNKNOWN can't be written")
    return _KEY.pack(_VERSION, control_type)


def end_transaction_marker_value(control_type: ControlRecordType, *, coordinator_epoch: int) -> bytes:
    """Return the value of the control record that ends a transaction.

    Raises: ValueError as EndTransactionMarker.
    """
    return EndTransactionMarker(control_type=control_type, coordinator_epoch=coordinator_epoch).to_bytes()


def _type_id(key: bytes | None) -> int:
    version, type_id = _KEY.unpack_from(key) if key is not None and len(key) >= _KEY.size else (-1, -1)
    if version < 0:
        expected = f"at least {_KEY.size} bytes with a version >= 0"
        found = None if key is None else key[: _KEY.size]
        raise InvalidRecordError(f"expected {expected}, found {found!r}", expected=expected, found=found)
    number: int = type_id
    return number


def _placed(error: InvalidRecordError, part: str, record: Record, batch: RecordBatch) -> InvalidRecordError:
    """Return the error with the position of its batch."""
    what = f"bad control record {part} at offset {record.offset}"
    where = "memory" if batch.path is None else batch.path
    return InvalidRecordError(
        f"{what} in batch at position {batch.position} of {where} (base offset {batch.base_offset}): {error.reason}",
        path=batch.path,
        position=batch.position,
        base_offset=batch.base_offset,
        reason=f"{what}: {error.reason}",
        expected=error.expected,
        found=error.found,
    )
