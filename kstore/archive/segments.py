"""The side files of exported segments, which a commit writes as a broker does when it shuts down cleanly.

These are the leader epochs, the topic id, producer snapshots and transaction indexes of each partition, and the
checkpoints and the clean-shutdown marker of the root. They are copied from the source where they fit the exported
offsets, and otherwise rebuilt from the copied batches, as recovery does.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from kstore.archive.manifest import ExportedFile, ExportedPartition, Manifest
from kstore.archive.target import Commit, PartitionNotes
from kstore.config import LogConfig
from kstore.env import ENOENT, Env, join_path, split_path
from kstore.errors import CorruptionError, StorageError
from kstore.log.files.checkpoints import (
    EpochEntry,
    PartitionMarks,
    read_checkpoint,
    read_leader_epoch_checkpoint,
    replace_file,
    save_marks,
    save_offset,
    write_leader_epoch_checkpoint,
)
from kstore.log.files.indexes import MAX_INDEX_BYTES
from kstore.log.files.names import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    PRODUCER_SNAPSHOT_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    PartitionDirectory,
    base_offset_file_name,
    partitions_of_root,
    producer_snapshot_offsets,
    segment_path,
)
from kstore.log.files.root_files import (
    CleanShutdown,
    id_text,
    parse_id,
    read_partition_metadata,
    remove_clean_shutdown,
    write_clean_shutdown,
    write_partition_metadata,
)
from kstore.log.files.snapshots import MAX_SNAPSHOT_BYTES, decode_snapshot
from kstore.log.files.transaction_index import decode_aborted_txns, encode_aborted_txn
from kstore.log.recovery.context import RecoveryContext
from kstore.log.recovery.plan import OpenTransactions, forgets_aborted, plausible_aborted_txns
from kstore.log.state.leader_epochs import LeaderEpochCache
from kstore.log.state.producer_state import ProducerStateManager
from kstore.types import TopicPartition

# A time at which no producer has expired.
_NO_EXPIRY_MS = 0


def finish_segments(commit: Commit, root: str, *, config: LogConfig, source_env: Env, env: Env) -> None:
    """Write the side files of the partitions that a commit changed, and those of the root.

    Args: source_env: of the source; the directories of its partitions are in the notes of the commit.
    Raises: StorageError; CorruptionError for copied batches that changed.
    Cost: for partitions with transactions, reads the segments that are new; for those with producers, what is after the
        last snapshot of the source.
    """
    remove_clean_shutdown(root, env)
    marks: dict[TopicPartition, PartitionMarks] = {}
    files: dict[TopicPartition, list[ExportedFile]] = {}
    for file in commit.manifest.files:
        files.setdefault(file.topic_partition, []).append(file)
    for exported in commit.manifest.partitions:
        name = str(exported.topic_partition)
        if name not in commit.notes:
            continue
        directory = PartitionDirectory(exported.topic_partition, join_path(root, name), root)
        envs = {"source_env": source_env, "env": env}
        partition = _Partition(
            exported, files[exported.topic_partition], directory, commit.notes[name], config=config, **envs
        )
        partition.finish()
        marks[exported.topic_partition] = partition.marks()
    there = {directory.topic_partition for directory in partitions_of_root(root, env)}
    save_marks(root, lambda: marks, env, kept=there)
    write_clean_shutdown(root, CleanShutdown(), env)


def write_topic_ids(manifest: Manifest, root: str, topic_ids: Mapping[str, str], *, env: Env) -> None:
    """Write topic ids to all partitions of their topics in a target.  Raises: StorageError."""
    for partition in manifest.partitions:
        if partition.topic in topic_ids:
            write_partition_metadata(
                join_path(root, str(partition.topic_partition)), parse_id(topic_ids[partition.topic]), env
            )


class _SourceFiles:
    """The side files of a source partition; all are missing once its topic was deleted and re-created."""

    def __init__(self, directory: PartitionDirectory, *, topic_id: str | None, env: Env) -> None:
        self._directory = directory
        self._topic_id = topic_id
        self._env = env

    def read(self, name: str, *, max_bytes: int) -> bytes | None:
        """Return the content of a file, None if it is missing, too large or not a regular file."""
        try:
            content = self._env.read_file(join_path(self._directory.path, name), max_bytes=max_bytes)
        except StorageError as error:
            if error.errno not in (None, ENOENT):
                raise
            return None
        return content if self._is_same_topic() else None

    def names(self) -> list[str]:
        """Return the names in the directory."""
        try:
            names = self._env.listdir(self._directory.path)
        except StorageError as error:
            if error.errno != ENOENT:
                raise
            return []
        return names if self._is_same_topic() else []

    def checkpointed(self, name: str) -> int | None:
        """Return the partition's offset in a checkpoint of the root, None if it is not listed."""
        offset = read_checkpoint(self._directory.root, name, self._env).get(self._directory.topic_partition)
        return offset if self._is_same_topic() else None

    def epochs(self) -> list[EpochEntry] | None:
        """Return the leader epochs, None if there is no such file, or a damaged one."""
        try:
            epochs = read_leader_epoch_checkpoint(join_path(self._directory.path, LEADER_EPOCH_CHECKPOINT), self._env)
        except CorruptionError:
            return None
        return epochs if self._is_same_topic() else None

    def topic_id(self) -> uuid.UUID | None:
        """Return the topic's id, None if there is none, or a damaged one."""
        with suppress(CorruptionError):
            return read_partition_metadata(self._directory.path, self._env)
        return None

    def _is_same_topic(self) -> bool:
        """Whether the topic still has the id of the copied one; asked after each read."""
        if self._topic_id is None:
            return True
        topic_id = self.topic_id()
        return topic_id is None or id_text(topic_id) == self._topic_id


class _Partition:
    """The side files of one partition of a target."""

    def __init__(
        self,
        exported: ExportedPartition,
        files: Sequence[ExportedFile],
        directory: PartitionDirectory,
        notes: PartitionNotes,
        *,
        config: LogConfig,
        source_env: Env,
        env: Env,
    ) -> None:
        self._directory = directory
        self._notes = notes
        source = PartitionDirectory(exported.topic_partition, notes.directory, split_path(notes.directory)[0])
        self._source = _SourceFiles(source, topic_id=exported.topic_id, env=source_env)
        self._env = env
        self._config = config
        self._files = sorted(files, key=lambda file: file.first_offset)
        self._start, self._end = exported.start_offset, exported.end_offset
        self._exported_id = exported.topic_id
        self._context = RecoveryContext(directory, config, env, self._start)

    def finish(self) -> None:
        """Write all side files of the partition, and its entries in the checkpoints of the root."""
        self._write_topic_id()
        self._write_epochs()
        self._copy_snapshots()
        if self._notes.has_transactions:
            self._write_transactions()
        self._write_last_snapshot()
        place, root = self._directory.topic_partition, self._directory.root
        # An earlier run with --from above the log end left an empty log, which starts at that offset only now.
        if read_checkpoint(root, LOG_START_OFFSET_CHECKPOINT, self._env).get(place, self._start) < self._start:
            save_offset(root, LOG_START_OFFSET_CHECKPOINT, place, self._start, self._env)
        cleaned = self._source.checkpointed(CLEANER_CHECKPOINT)
        if cleaned is not None:
            save_offset(root, CLEANER_CHECKPOINT, place, min(cleaned, self._end), self._env)

    def marks(self) -> PartitionMarks:
        """Return the partition's offsets for the checkpoints of the root."""
        high_watermark = self._source.checkpointed(HIGH_WATERMARK_CHECKPOINT)
        bounded = self._end if high_watermark is None else max(min(high_watermark, self._end), self._start)
        return PartitionMarks(self._end, self._start, bounded, self._end)

    def _write_topic_id(self) -> None:
        given = self._notes.topic_id
        topic_id = parse_id(given) if given else None
        # An earlier run may have written another id than the source's.
        if topic_id is None:
            with suppress(CorruptionError):
                topic_id = read_partition_metadata(self._directory.path, self._env)
        if topic_id is None:
            topic_id = parse_id(self._exported_id) if self._exported_id else self._source.topic_id()
        if topic_id is not None:
            write_partition_metadata(self._directory.path, topic_id, self._env)

    def _write_epochs(self) -> None:
        path = join_path(self._directory.path, LEADER_EPOCH_CHECKPOINT)
        cache = LeaderEpochCache(None, self._env)
        for epoch, start_offset in self._known_epochs(path):
            if epoch > cache.latest_epoch:
                cache.assign(epoch, start_offset=start_offset)
        cache.truncate_from_start(self._start)
        # An epoch that starts at the log end has no records yet.
        cache.truncate_from_end(self._end + 1)
        if cache.entries or LEADER_EPOCH_CHECKPOINT in self._source.names():
            write_leader_epoch_checkpoint(path, cache.entries, self._env)

    def _known_epochs(self, path: str) -> list[EpochEntry]:
        """Return the epochs of earlier runs, then the source's: of its checkpoint, or else of the copied batches."""
        earlier = read_leader_epoch_checkpoint(path, self._env) or []
        source = self._source.epochs()
        if source is None:
            source = [EpochEntry(epoch, offset) for epoch, offset in self._notes.epochs if epoch >= 0]
        return [*earlier, *source]

    def _copy_snapshots(self) -> None:
        """Copy the snapshots of the source that are at the start of a segment, or at the end."""
        wanted = {file.first_offset for file in self._files if file.first_offset >= self._start} | {self._end}
        for offset in producer_snapshot_offsets(self._source.names()):
            target = segment_path(self._directory.path, offset, suffix=PRODUCER_SNAPSHOT_SUFFIX)
            if offset not in wanted or self._env.stat(target) is not None:
                continue
            name = base_offset_file_name(offset, suffix=PRODUCER_SNAPSHOT_SUFFIX)
            content = self._source.read(name, max_bytes=MAX_SNAPSHOT_BYTES)
            if content is None:
                continue
            with suppress(CorruptionError):
                decode_snapshot(content)
                replace_file(target, content, self._env)

    def _write_transactions(self) -> None:
        """Write the transaction indexes: the source's entries if they include all that the batches show."""
        names = self._env.listdir(self._directory.path)
        new = {file.first_offset for file in self._files if file.path in set(self._notes.new)}
        files = [file for file in self._files if file.first_offset >= min(new, default=0)]
        if not files:
            return
        transactions = OpenTransactions.of_snapshots(
            self._context, producer_snapshot_offsets(names), base_offset=files[0].first_offset
        )
        for earlier in self._files:
            if transactions.map_end_offset <= earlier.last_offset < files[0].first_offset:
                transactions.aborted_of(self._walked(earlier))
        for file in files:
            aborted = self._aborted_of_source(file, transactions.aborted_of(self._walked(file)))
            path = segment_path(self._directory.path, file.first_offset, suffix=TRANSACTION_INDEX_SUFFIX)
            if aborted:
                replace_file(path, aborted, self._env)
            else:
                self._env.unlink(path)

    def _walked(self, file: ExportedFile) -> Sequence[Any]:
        name = split_path(file.path)[1]
        walk = self._context.walk(name, base_offset=file.first_offset, next_base_offset=None)
        return walk.producers

    def _aborted_of_source(self, file: ExportedFile, aborted: bytes) -> bytes:
        """Return the source's index entries for a segment, or `aborted` if they lack one of those. The source has more:
        a cleaner removes the records of aborted transactions and leaves their entries.
        """
        if file.source_base_offset is None:
            return aborted
        name = base_offset_file_name(file.source_base_offset, suffix=TRANSACTION_INDEX_SUFFIX)
        content = self._source.read(name, max_bytes=MAX_INDEX_BYTES)
        known = None if content is None else plausible_aborted_txns(content, base_offset=file.source_base_offset)
        kept = b"".join(
            encode_aborted_txn(aborted_txn)
            for aborted_txn in known or ()
            if file.first_offset <= aborted_txn.last_offset <= file.last_offset
            and aborted_txn.last_stable_offset <= self._end
        )
        if not kept or forgets_aborted(kept, aborted, base_offset=file.first_offset):
            return aborted
        decode_aborted_txns(kept, base_offset=file.first_offset, path=name)
        return kept

    def _write_last_snapshot(self) -> None:
        """Write a producer snapshot at the log end, from the last snapshot before it and the batches after that."""
        manager = ProducerStateManager(
            self._directory.topic_partition, self._directory.path, config=self._config, env=self._env
        )
        manager.truncate_and_reload(
            log_start_offset=self._start, log_end_offset=self._end, now_ms=_NO_EXPIRY_MS, keeps_first=True
        )
        if self._notes.has_producers:
            for file in self._files:
                if file.last_offset < manager.map_end_offset:
                    continue
                after = manager.map_end_offset
                manager.replay_together(batch for batch in self._walked(file) if batch.last_offset >= after)
                manager.update_map_end_offset(file.last_offset + 1)
        manager.update_map_end_offset(self._end)
        manager.take_snapshot()
        manager.remove_stray_snapshots(file.first_offset for file in self._files)
