"""What the files of a partition say of the leaders and producers that wrote it. Only headers of batches are read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple
from uuid import UUID

from kstore._core import HeaderScan
from kstore.config import LogConfig
from kstore.coordinator.group.records import GroupRecords, decoded
from kstore.coordinator.producer_ids import LEAST_RANDOM_ID
from kstore.coordinator.transaction.log import states_in
from kstore.env import Env, join_path
from kstore.errors import CorruptCheckpointError, CorruptSnapshotError
from kstore.log.directory_source import DirectorySource
from kstore.log.files.checkpoints import read_leader_epoch_checkpoint
from kstore.log.files.names import (
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    PRODUCER_SNAPSHOT_SUFFIX,
    PartitionDirectory,
    parse_segment_name,
)
from kstore.log.files.records import scan_headers
from kstore.log.files.root_files import read_partition_metadata
from kstore.log.files.snapshots import read_snapshot
from kstore.log.log import Log
from kstore.record.schemas.topics import (
    NAMED_TYPES,
    OFFSET_COMMIT_TYPES,
    coordinator_partition,
    is_of_type,
    name_of_key,
)
from kstore.types import NO_PARTITION_LEADER_EPOCH, NO_PRODUCER_ID, TopicPartition


class PartitionFacts(NamedTuple):
    """What a partition's files say: the topic's id (None if it has none), the largest leader epoch and the largest
    producer id that a broker may have handed out (-1 if there is none), and where a log ends before its file does.
    """

    directory: PartitionDirectory
    topic_id: UUID | None
    max_leader_epoch: int = NO_PARTITION_LEADER_EPOCH
    max_producer_id: int = NO_PRODUCER_ID
    damage: tuple[str, ...] = ()


def read_partition(directory: PartitionDirectory) -> PartitionFacts:
    """Read the headers of a partition's batches and its small files.

    Raises: CorruptCheckpointError for a malformed partition.metadata; StorageError; LogReplacedError.
    Cost: O(batches); a broken leader-epoch-checkpoint or snapshot says nothing.
    """
    env, damage = directory.env, []
    epoch, producer_id = _epoch_of_checkpoint(directory), NO_PRODUCER_ID
    segments = []
    for name in env.listdir(directory.path):
        parsed = parse_segment_name(name)
        if parsed is not None and parsed.suffix == LOG_SUFFIX:
            segments.append((parsed.base_offset, name))
        elif parsed is not None and parsed.suffix == PRODUCER_SNAPSHOT_SUFFIX:
            producer_id = max(producer_id, _producer_id_of_snapshot(join_path(directory.path, name), env))
    for base_offset, name in sorted(segments):
        scan = _scanned(join_path(directory.path, name), base_offset, env)
        epoch = max(epoch, scan.max_leader_epoch)
        producer_id = max(producer_id, scan.max_producer_id)
        if scan.error is not None and scan.status != "zeros":
            damage.append(str(scan.error))
    topic_id = read_partition_metadata(directory.path, env)
    return PartitionFacts(directory, topic_id, epoch, producer_id, tuple(damage))


class CoordinatorFacts(NamedTuple):
    """What the partitions of an internal topic say: the numbers of those in which each group or transactional id has
    records; the largest leader epoch that groups committed with an offset of each partition; the largest producer id
    that a broker may have handed out.
    """

    homes: dict[str, set[int]]
    epochs: dict[TopicPartition, int]
    max_producer_id: int = NO_PRODUCER_ID

    def fits(self, count: int) -> bool:
        """Whether all names are where their hashes put them among `count` partitions."""
        return all(
            coordinator_partition(name, partition_count=count) in numbers for name, numbers in self.homes.items()
        )


def read_group_offsets(directories: Iterable[PartitionDirectory]) -> CoordinatorFacts:
    """Read the partitions of `__consumer_offsets`. A consumer that committed an epoch waits until the leader has it.

    Raises: CorruptRecordError and the other errors of a read.
    """
    facts = CoordinatorFacts({}, {})
    for directory in directories:
        records = GroupRecords(lambda key: is_of_type(key, NAMED_TYPES))
        with Log(DirectorySource(directory, config=LogConfig())) as log:
            records.update(log)
            kept = [*records.current(), *records.pending()]
            for name in filter(None, (name_of_key(record.key) for record in kept)):
                text = name.decode("utf-8", "surrogateescape")
                facts.homes.setdefault(text, set()).add(directory.topic_partition.partition)
            commits = (record for record in kept if is_of_type(record.key, OFFSET_COMMIT_TYPES))
            for record in decoded(commits, log):
                epoch = record.committed_offset.leader_epoch
                if epoch is not None:
                    of = record.topic_partition
                    facts.epochs[of] = max(epoch, facts.epochs.get(of, epoch))
    return facts


def read_transaction_states(directories: Iterable[PartitionDirectory]) -> CoordinatorFacts:
    """Read the partitions of `__transaction_state`.  Raises: as read_group_offsets."""
    homes: dict[str, set[int]] = {}
    found = NO_PRODUCER_ID
    for directory in directories:
        with Log(DirectorySource(directory, config=LogConfig())) as log:
            for name, state in states_in(log).items():
                homes.setdefault(name, set()).add(directory.topic_partition.partition)
                ids = (state.producer.producer_id, state.previous_producer_id, state.next_producer_id)
                found = max(found, *(one for one in ids if one < LEAST_RANDOM_ID), NO_PRODUCER_ID)
    return CoordinatorFacts(homes, {}, found)


def _epoch_of_checkpoint(directory: PartitionDirectory) -> int:
    try:
        entries = read_leader_epoch_checkpoint(join_path(directory.path, LEADER_EPOCH_CHECKPOINT), directory.env)
    except CorruptCheckpointError:
        return NO_PARTITION_LEADER_EPOCH
    return max((entry.epoch for entry in entries or ()), default=NO_PARTITION_LEADER_EPOCH)


def _producer_id_of_snapshot(path: str, env: Env) -> int:
    try:
        ids = [entry.producer_id for entry in read_snapshot(path, env)]
    except CorruptSnapshotError:
        return NO_PRODUCER_ID
    return max((one for one in ids if one < LEAST_RANDOM_ID), default=NO_PRODUCER_ID)


def _scanned(path: str, base_offset: int, env: Env) -> HeaderScan:
    with env.open_read(path) as file:
        end_position = file.size()
        scan = HeaderScan(
            position=0,
            end_position=end_position,
            base_offset=base_offset,
            path=path,
            producer_ids_below=LEAST_RANDOM_ID,
        )
        return scan_headers(file, scan, position=0, end_position=end_position)
