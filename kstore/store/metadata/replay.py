"""read_metadata: what `__cluster_metadata` adds up to, by its latest snapshot and the log after it, as brokers load it.

What a metadata transaction (KIP-868) changes counts once it has ended.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import NamedTuple

from kstore.config import LogConfig
from kstore.env import Env, join_path, split_path
from kstore.errors import CorruptCheckpointError, CorruptionError, OffsetError, UnsupportedError
from kstore.log.directory_source import DirectorySource
from kstore.log.files.checkpoints import malformed, read_text
from kstore.log.files.names import (
    QUORUM_STATE,
    PartitionDirectory,
    metadata_snapshot_epoch,
    metadata_snapshot_offset,
)
from kstore.log.log import Log
from kstore.log.segment.file_records import FileRecords
from kstore.record.batches import RecordBatch
from kstore.record.control import control_record_type, control_record_value
from kstore.record.kraft import SnapshotHeaderRecord
from kstore.record.schemas.topics import DecodedMessage, decode_metadata_record
from kstore.store.metadata.image import MetadataImage
from kstore.types import ControlRecordType

_MAX_QUORUM_STATE_BYTES = 1024 * 1024
_ENDS = ("END_TRANSACTION_RECORD", "ABORT_TRANSACTION_RECORD")


class QuorumState(NamedTuple):
    """The file quorum-state: who leads the quorum in which epoch, and its voters (None where the file has none)."""

    leader_id: int
    leader_epoch: int
    voters: tuple[int, ...] | None


@dataclass(kw_only=True)
class ClusterMetadata:
    """The state of a cluster, and which part of its metadata it is made of.

    snapshot_offset: the snapshot has the records below it; None without one. end_offset: the state is that of the
    records below it (0 for a snapshot whose name does not say it). log_start_offset, log_end_offset: of the log; None
    for a snapshot alone. epoch and timestamp_ms: of the last batch; -1 if there is none. open_transaction: the name of
    a metadata transaction that has not ended ("" if it has none), whose records do not count; None without one. quorum:
    None if there is no quorum-state.
    """

    path: str
    image: MetadataImage = field(default_factory=MetadataImage)
    snapshot_offset: int | None = None
    end_offset: int = 0
    log_start_offset: int | None = None
    log_end_offset: int | None = None
    epoch: int = -1
    timestamp_ms: int = -1
    open_transaction: str | None = None
    quorum: QuorumState | None = None

    @property
    def committed_offset(self) -> int:
        """The offset below which records are known to be committed: of one voter, all; else those of the snapshot.

        The high watermark of a quorum is in no file.
        """
        if self.log_end_offset is None:
            return self.end_offset
        voters = self.voter_ids
        if voters is not None and len(voters) == 1:
            return self.log_end_offset
        return self.snapshot_offset or 0

    @property
    def voter_ids(self) -> tuple[int, ...] | None:
        """The ids of the voters by the records, else by quorum-state; None if neither names them."""
        if self.image.voters is not None:
            return tuple(voter.voter_id for voter in self.image.voters.voters)
        return None if self.quorum is None else self.quorum.voters


def read_metadata(directory: PartitionDirectory, *, at: int | None = None) -> ClusterMetadata:
    """Read the directory of `__cluster_metadata-0`: the latest snapshot, and the log from there on.

    Args: at: only records below this offset; the snapshot is the latest that does not go beyond it. None for all.
    Raises: OffsetError for an `at` above the log end, or below the first state that is there; CorruptCheckpointError if
        a record is damaged, or not all of the records are there; StorageError.
    Cost: reads the snapshot and the log from there on; memory of the state.
    """
    try:
        return _read(directory, at)
    except CorruptCheckpointError:
        raise
    except (CorruptionError, UnsupportedError) as error:
        raise malformed(error.path or directory.path, f"the cluster's metadata cannot be read: {error}") from error


def read_snapshot(path: str, env: Env) -> ClusterMetadata:
    """Read one snapshot of the metadata alone.  Raises: as read_metadata."""
    metadata = ClusterMetadata(path=path)
    replay = _Replay(metadata)
    try:
        _read_snapshot(path, replay, env)
    except CorruptCheckpointError:
        raise
    except (CorruptionError, UnsupportedError) as error:
        raise malformed(error.path or path, f"the snapshot cannot be read: {error}") from error
    return metadata


def _read(directory: PartitionDirectory, at: int | None) -> ClusterMetadata:
    env, path = directory.env, directory.path
    metadata = ClusterMetadata(path=path)
    try:
        metadata.quorum = read_quorum_state(path, env)
    except CorruptCheckpointError as error:
        metadata.image.note(str(error))
    replay = _Replay(metadata)
    with Log(DirectorySource(directory, config=LogConfig())) as log:
        metadata.log_start_offset, metadata.log_end_offset = log.log_start_offset, log.log_end_offset
        snapshots = sorted(
            (offset, name)
            for name in env.listdir(path)
            if (offset := metadata_snapshot_offset(name)) is not None and (at is None or offset <= at)
        )
        last = max([log.log_end_offset, *(offset for offset, _ in snapshots)])
        if at is not None and at > last:
            raise OffsetError(f"the metadata in {path} ends at offset {last}, got {at}", path=path)
        if snapshots:
            _read_snapshot(join_path(path, snapshots[-1][1]), replay, env)
        start = metadata.snapshot_offset or 0
        if log.log_start_offset > start:
            if at is not None:
                reason = f"no snapshot in {path} reaches offset {at}, and the log starts at {log.log_start_offset}"
                raise OffsetError(reason, path=path)
            raise malformed(
                path,
                f"the log starts at offset {log.log_start_offset}, and no snapshot reaches it: the last one ends at "
                f"{start}",
            )
        end = log.log_end_offset if at is None else at
        if start < min(end, log.log_end_offset):
            for batch in log.batches(start):
                if batch.base_offset >= end:
                    break
                replay.take(batch, start, end)
        metadata.end_offset = max(start, end)
    return metadata


def _read_snapshot(path: str, replay: _Replay, env: Env) -> None:
    """Replay a snapshot, whose offsets begin at 0: they are not those of the log."""
    metadata, is_whole = replay.metadata, False
    with FileRecords.open(path, is_read_only=True, env=env) as file:
        for batch in file.batches():
            replay.take(batch)
            is_whole = is_whole or (batch.header.is_control and _has_footer(batch))
    if not is_whole:
        raise malformed(path, "expected a snapshot with a footer, found none")
    name = split_path(path)[1]
    offset, epoch = metadata_snapshot_offset(name), metadata_snapshot_epoch(name)
    if offset is not None and epoch is not None:
        metadata.snapshot_offset = metadata.end_offset = offset
        metadata.epoch = epoch


def _has_footer(batch: RecordBatch) -> bool:
    return any(control_record_type(record, batch) is ControlRecordType.SNAPSHOT_FOOTER for record in batch)


class _Replay:
    """Applies batches to the image of a ClusterMetadata; the records of a transaction when it ends."""

    def __init__(self, metadata: ClusterMetadata) -> None:
        self.metadata = metadata
        self._held: list[tuple[int, DecodedMessage]] | None = None

    def take(self, batch: RecordBatch, start: int = 0, end: int | None = None) -> None:
        """Apply the records of a batch from offset `start` on, below `end`."""
        metadata, is_control = self.metadata, batch.header.is_control
        metadata.epoch = batch.header.partition_leader_epoch
        metadata.timestamp_ms = batch.header.max_timestamp_ms
        for record in batch:
            if record.offset < start or (end is not None and record.offset >= end):
                continue
            if is_control:
                value = control_record_value(record, batch)
                metadata.image.take_control(value)
                if isinstance(value, SnapshotHeaderRecord):
                    metadata.timestamp_ms = value.last_contained_log_timestamp_ms
                continue
            message = decode_metadata_record(record.value)
            if isinstance(message, DecodedMessage):
                self._take(record.offset, message)
            else:
                metadata.image.take_unknown(record.offset, message)

    def _take(self, offset: int, message: DecodedMessage) -> None:
        metadata = self.metadata
        if message.name == "BEGIN_TRANSACTION_RECORD":
            self._held, metadata.open_transaction = [], message.fields.get("name") or ""
        elif message.name in _ENDS:
            held = self._held or [] if message.name == _ENDS[0] else []
            self._held = metadata.open_transaction = None
            for held_offset, held_message in held:
                metadata.image.take(held_offset, held_message)
        elif self._held is not None:
            self._held.append((offset, message))
        else:
            metadata.image.take(offset, message)


def read_quorum_state(path: str, env: Env) -> QuorumState | None:
    """Read quorum-state of the directory of `__cluster_metadata-0`; None if there is none.

    Raises: CorruptCheckpointError, StorageError.  Source: Kafka FileQuorumStateStore.
    """
    file = join_path(path, QUORUM_STATE)
    text = read_text(file, env, max_bytes=_MAX_QUORUM_STATE_BYTES)
    if text is None:
        return None
    try:
        content = json.loads(text)
        voters = content.get("currentVoters")
        ids = None if voters is None else tuple(int(voter["voterId"]) for voter in voters)
        return QuorumState(int(content["leaderId"]), int(content["leaderEpoch"]), ids)
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise malformed(file, f"expected JSON with the leader and voters of a quorum, found {text[:60]!r}") from error
