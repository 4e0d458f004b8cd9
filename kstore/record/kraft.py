"""The control records of a KRaft log and its snapshots: their values. Format: docs/format.md#control-batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeAlias
from uuid import UUID

from kstore.types import ControlRecordType
from kstore.wire.protocol import ZERO_UUID, ProtocolReader, ProtocolWriter, TaggedField

_VERSION = 0


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


KRaftControlRecord: TypeAlias = (
    LeaderChangeMessage | SnapshotHeaderRecord | SnapshotFooterRecord | KRaftVersionRecord | VotersRecord
)
KRAFT_CONTROL_RECORDS: dict[ControlRecordType, type[KRaftControlRecord]] = {
    kind.control_type: kind
    for kind in (LeaderChangeMessage, SnapshotHeaderRecord, SnapshotFooterRecord, KRaftVersionRecord, VotersRecord)
}


def _writer(version: int, *, last: int) -> ProtocolWriter:
    if not 0 <= version <= last:
        raise ValueError(f"version must be from 0 to {last}, got {version}")
    out = ProtocolWriter()
    out.int16("version", version)
    return out
