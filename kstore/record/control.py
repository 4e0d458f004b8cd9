"""Control records: keys and values of the records in control batches. Format: docs/format.md#control-batches."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar
from uuid import UUID

from kstore._core import Record
from kstore.config import MAX_INT32
from kstore.errors import InvalidRecordError
from kstore.record.batches import RecordBatch
from kstore.types import ZERO_UUID
from kstore.wire.protocol import ProtocolReader, ProtocolWriter, TaggedField

_KEY = struct.Struct(">hh")
_VERSION = 0
_END_TRANSACTION_MARKER = struct.Struct(">hi")


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
class LeaderChangeVoter:
    """A voter of a LeaderChangeMessage; its directory is known from version 1 on."""

    voter_id: int
    voter_directory_id: UUID | None = None
    tagged_fields: tuple[TaggedField, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderChangeMessage:
    """The start of a KRaft leader's epoch (Kafka: LeaderChangeMessage), versions 0 and 1."""

    control_type: ClassVar[ControlRecordType] = ControlRecordType.LEADER_CHANGE
    last_version: ClassVar[int] = 1

    leader_id: int
    voters: tuple[LeaderChangeVoter, ...] = ()
    granting_voters: tuple[LeaderChangeVoter, ...] = ()
    version: int = _VERSION
    tagged_fields: tuple[TaggedField, ...] = ()

    def to_bytes(self) -> bytes:
        """Return the value of the control record.

        Raises: ValueError for a version above 1, a directory id in version 0, or a number out of range for its type.
        """
        out = _writer(self.version, last=self.last_version)
        out.int32("leader_id", self.leader_id)
        self._write_voters(out, self.voters)
        self._write_voters(out, self.granting_voters)
        out.tagged_fields(self.tagged_fields)
        return out.getvalue()

    def _write_voters(self, out: ProtocolWriter, voters: tuple[LeaderChangeVoter, ...]) -> None:
        out.array_length(len(voters))
        for voter in voters:
            out.int32("voter_id", voter.voter_id)
            if self.version:
                out.uuid(voter.voter_directory_id or ZERO_UUID)
            elif voter.voter_directory_id is not None:
                raise ValueError(f"version 0 holds no directory id, got that of voter {voter.voter_id}")
            out.tagged_fields(voter.tagged_fields)

    @classmethod
    def read(cls, data: ProtocolReader, version: int) -> LeaderChangeMessage:
        """Read the fields after the version."""

        def voters(field: str) -> tuple[LeaderChangeVoter, ...]:
            return tuple(
                LeaderChangeVoter(
                    voter_id=data.int32("voterId"),
                    voter_directory_id=data.uuid("voterDirectoryId") if version else None,
                    tagged_fields=data.tagged_fields(),
                )
                for _ in range(data.array_length(field))
            )

        return cls(
            version=version,
            leader_id=data.int32("leaderId"),
            voters=voters("voters"),
            granting_voters=voters("grantingVoters"),
            tagged_fields=data.tagged_fields(),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotHeaderRecord:
    """The start of a KRaft snapshot (Kafka: SnapshotHeaderRecord)."""

    control_type: ClassVar[ControlRecordType] = ControlRecordType.SNAPSHOT_HEADER
    last_version: ClassVar[int] = 0

    last_contained_log_timestamp_ms: int
    version: int = _VERSION
    tagged_fields: tuple[TaggedField, ...] = ()

    def to_bytes(self) -> bytes:
        """Return the value of the control record.

        Raises: ValueError for another version than 0 or a timestamp that is not an int64.
        """
        out = _writer(self.version, last=self.last_version)
        out.int64("last_contained_log_timestamp_ms", self.last_contained_log_timestamp_ms)
        out.tagged_fields(self.tagged_fields)
        return out.getvalue()

    @classmethod
    def read(cls, data: ProtocolReader, version: int) -> SnapshotHeaderRecord:
        """Read the fields after the version."""
        timestamp_ms = data.int64("lastContainedLogTimestamp")
        return cls(version=version, last_contained_log_timestamp_ms=timestamp_ms, tagged_fields=data.tagged_fields())


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotFooterRecord:
    """The end of a KRaft snapshot (Kafka: SnapshotFooterRecord)."""

    control_type: ClassVar[ControlRecordType] = ControlRecordType.SNAPSHOT_FOOTER
    last_version: ClassVar[int] = 0

    version: int = _VERSION
    tagged_fields: tuple[TaggedField, ...] = ()

    def to_bytes(self) -> bytes:
        """Return the value of the control record.

        Raises: ValueError for another version than 0.
        """
        out = _writer(self.version, last=self.last_version)
        out.tagged_fields(self.tagged_fields)
        return out.getvalue()

    @classmethod
    def read(cls, data: ProtocolReader, version: int) -> SnapshotFooterRecord:
        """Read the fields after the version."""
        return cls(version=version, tagged_fields=data.tagged_fields())


@dataclass(frozen=True, slots=True, kw_only=True)
class KRaftVersionRecord:
    """The version of the KRaft protocol that the log follows (Kafka: KRaftVersionRecord, KIP-853)."""

    control_type: ClassVar[ControlRecordType] = ControlRecordType.KRAFT_VERSION
    last_version: ClassVar[int] = 0

    kraft_version: int
    version: int = _VERSION
    tagged_fields: tuple[TaggedField, ...] = ()

    def to_bytes(self) -> bytes:
        """Return the value of the control record.

        Raises: ValueError for another version than 0 or a KRaft version that is not an int16.
        """
        out = _writer(self.version, last=self.last_version)
        out.int16("kraft_version", self.kraft_version)
        out.tagged_fields(self.tagged_fields)
        return out.getvalue()

    @classmethod
    def read(cls, data: ProtocolReader, version: int) -> KRaftVersionRecord:
        """Read the fields after the version."""
        kraft_version = data.int16("kRaftVersion")
        return cls(version=version, kraft_version=kraft_version, tagged_fields=data.tagged_fields())


@dataclass(frozen=True, slots=True, kw_only=True)
class VoterEndpoint:
    """The address of a voter's listener: name, host and port (uint16)."""

    name: str
    host: str
    port: int
    tagged_fields: tuple[TaggedField, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KRaftVersionFeature:
    """The range of KRaft versions that a voter supports."""

    min_supported_version: int
    max_supported_version: int
    tagged_fields: tuple[TaggedField, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Voter:
    """A voter of a VotersRecord."""

    voter_id: int
    voter_directory_id: UUID
    endpoints: tuple[VoterEndpoint, ...]
    kraft_version_feature: KRaftVersionFeature
    tagged_fields: tuple[TaggedField, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class VotersRecord:
    """The voters of a KRaft quorum (Kafka: VotersRecord, KIP-853)."""

    control_type: ClassVar[ControlRecordType] = ControlRecordType.KRAFT_VOTERS
    last_version: ClassVar[int] = 0

    voters: tuple[Voter, ...]
    version: int = _VERSION
    tagged_fields: tuple[TaggedField, ...] = ()

    def to_bytes(self) -> bytes:
        """Return the value of the control record.

        Raises: ValueError for another version than 0 or a number out of range for its type.
        """
        out = _writer(self.version, last=self.last_version)
        out.array_length(len(self.voters))
        for voter in self.voters:
            out.int32("voter_id", voter.voter_id)
            out.uuid(voter.voter_directory_id)
            out.array_length(len(voter.endpoints))
            for endpoint in voter.endpoints:
                out.string(endpoint.name)
                out.string(endpoint.host)
                out.uint16("port", endpoint.port)
                out.tagged_fields(endpoint.tagged_fields)
            out.int16("min_supported_version", voter.kraft_version_feature.min_supported_version)
            out.int16("max_supported_version", voter.kraft_version_feature.max_supported_version)
            out.tagged_fields(voter.kraft_version_feature.tagged_fields)
            out.tagged_fields(voter.tagged_fields)
        out.tagged_fields(self.tagged_fields)
        return out.getvalue()

    @classmethod
    def read(cls, data: ProtocolReader, version: int) -> VotersRecord:
        """Read the fields after the version."""
        voters = tuple(_read_voter(data) for _ in range(data.array_length("voters")))
        return cls(version=version, voters=voters, tagged_fields=data.tagged_fields())


def _read_voter(data: ProtocolReader) -> Voter:
    return Voter(
        voter_id=data.int32("voterId"),
        voter_directory_id=data.uuid("voterDirectoryId"),
        endpoints=tuple(
            VoterEndpoint(
                name=data.string("name"),
                host=data.string("host"),
                port=data.uint16("port"),
                tagged_fields=data.tagged_fields(),
            )
            for _ in range(data.array_length("endpoints"))
        ),
        kraft_version_feature=KRaftVersionFeature(
            min_supported_version=data.int16("minSupportedVersion"),
            max_supported_version=data.int16("maxSupportedVersion"),
            tagged_fields=data.tagged_fields(),
        ),
        tagged_fields=data.tagged_fields(),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownControlRecord:
    """A control record whose type, or version of its value, kstore does not know, with its raw value."""

    type_id: int
    data: bytes | None

    def to_bytes(self) -> bytes | None:
        """Return the value of the control record."""
        return self.data


ControlRecordValue = (
    EndTransactionMarker
    | LeaderChangeMessage
    | SnapshotHeaderRecord
    | SnapshotFooterRecord
    | KRaftVersionRecord
    | VotersRecord
    | UnknownControlRecord
)
_KRAFT_VALUES = {
    kind.control_type: kind
    for kind in (LeaderChangeMessage, SnapshotHeaderRecord, SnapshotFooterRecord, KRaftVersionRecord, VotersRecord)
}


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
    message = _KRAFT_VALUES[kind]
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


def _writer(version: int, *, last: int) -> ProtocolWriter:
    if not 0 <= version <= last:
        raise ValueError(f"version must be from 0 to {last}, got {version}")
    out = ProtocolWriter()
    out.int16("version", version)
    return out


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
