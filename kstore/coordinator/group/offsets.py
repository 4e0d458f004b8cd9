"""Offsets that groups commit: read (CommittedOffsets), appended (GroupOffsets), and removed with a deleted topic."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from kstore.config import KIB, MAX_INT64, MIB, LogConfig
from kstore.coordinator.group.records import (
    DecodedRecord,
    GroupRecords,
    committed_offsets,
    decoded,
    is_offset_commit_of,
)
from kstore.coordinator.places import CoordinatorPlaces, CoordinatorTopic
from kstore.coordinator.producer_ids import NO_PRODUCER, ProducerIdAndEpoch
from kstore.coordinator.store import CoordinatorStore, ReadableLog, ReadableStore
from kstore.env.process import SYSTEM_CLOCK, Clock
from kstore.errors import CorruptionError, UnknownTopicOrPartitionError, UnsupportedError, checked_int
from kstore.record.batches import MemoryRecords
from kstore.record.builder import MemoryRecordsBuilder
from kstore.record.schemas.topics import (
    OFFSET_COMMIT_TYPES,
    DecodedMessage,
    decode_group_record,
    encode_offset_commit,
    has_name,
    is_of_type,
    name_of_key,
    sized_name,
)
from kstore.record.validation import AppendOrigin
from kstore.types import GROUP_OFFSETS_TOPIC, NO_SEQUENCE, Ack, OffsetAndMetadata, TopicPartition

# Kafka's defaults of offsets.topic.segment.bytes and offset.metadata.max.bytes.
GROUP_OFFSETS_CONFIG = LogConfig(cleanup_policy="compact", compression_type="producer", segment_bytes=100 * MIB)
MAX_METADATA_BYTES = 4096
_MOST_GROUP_BYTES = 2**15 - 1
# Of a batch, so that it stays below any max.message.bytes; thousands of offsets take several.
_MOST_BATCH_BYTES = 512 * KIB

_logger = logging.getLogger("kstore.log")


def checked_group(group: object) -> str:
    """Return the id of a group.

    Raises: TypeError unless it is a str; ValueError for an empty one, or one that a record can't hold.
    """
    if not isinstance(group, str):
        raise TypeError(f"group must be a str, got {group!r}")
    if not group:
        raise ValueError("group must not be empty")
    if len(group.encode("utf-8", "surrogateescape")) > _MOST_GROUP_BYTES:
        raise ValueError(f"group must have at most {_MOST_GROUP_BYTES} bytes, got {len(group)} characters")
    return group


def checked_offsets(
    offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return offsets as they can be committed, a plain int as one without metadata.

    Raises: TypeError, ValueError for anything else, a negative offset, or metadata above MAX_METADATA_BYTES.
    """
    checked = {}
    for given, offset in offsets.items():
        topic, partition = given
        committed = offset if isinstance(offset, OffsetAndMetadata) else OffsetAndMetadata(offset)
        checked_int(f"offset of {topic}-{partition}", committed.offset, least=0, greatest=MAX_INT64)
        if not isinstance(committed.metadata, str):
            raise TypeError(f"metadata of {topic}-{partition} must be a str, got {committed.metadata!r}")
        size = len(committed.metadata.encode())
        if size > MAX_METADATA_BYTES:
            raise ValueError(
                f"metadata of {topic}-{partition} must have at most {MAX_METADATA_BYTES} bytes, got {size}"
            )
        checked[TopicPartition(topic, partition)] = committed
    return checked


def check_place(store: ReadableStore, group: str) -> None:
    """Check that a store has the partition of `__consumer_offsets` in which a group's offsets belong, or none of it.

    Raises: UnknownTopicOrPartitionError.
    """
    places = CoordinatorPlaces(store, GROUP_OFFSETS_TOPIC)
    if places.numbers:
        places.place_of(group)


class CommittedOffsets:
    """The committed offsets of one group, read from a store.

    Threads: not safe.
    Cost: each call reads what was appended to the group's partition of `__consumer_offsets` since the last one.
    Source: Kafka's request OffsetFetch.
    """

    def __init__(self, store: ReadableStore, group: str) -> None:
        self._store = store
        self._group = group
        self._places = CoordinatorPlaces(store, GROUP_OFFSETS_TOPIC)
        self._incarnation: object = None
        self._records = GroupRecords(is_offset_commit_of(group))

    @property
    def partition(self) -> TopicPartition | None:
        """The partition of `__consumer_offsets` for the group, None before the first commit to a store.

        Raises: UnknownTopicOrPartitionError if the store has only some of the topic's partitions, and not that.
        """
        return self._places.place_of(self._group) if self._places.numbers else None

    def current(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the committed offsets, without those of transactions that are not decided.

        Raises: CorruptRecordError and the other errors of a read; UnknownTopicOrPartitionError as `partition`.
        """
        log = self._updated_log()
        return {} if log is None else committed_offsets(decoded(self._records.current(), log))

    def pending(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets that undecided transactions hold, the last one of a partition.  Raises: as current()."""
        log = self._updated_log()
        return {} if log is None else committed_offsets(decoded(self._records.pending(), log))

    def _updated_log(self) -> ReadableLog | None:
        """Read the group's partition to its end, and return its log; None before the first commit to a store."""
        partition = self.partition
        if partition is None:
            return None
        incarnation = self._store.incarnation(*partition)
        if self._incarnation is not incarnation:
            self._incarnation, self._records = incarnation, GroupRecords(is_offset_commit_of(self._group))
        log = self._store.log(*partition)
        log.refresh()
        self._records.update(log)
        return log


class GroupOffsets(CoordinatorTopic):
    """The topic `__consumer_offsets` of a store, for commits.

    It is created with Kafka's settings by the first commit, unless the store has it. If the store is to return to a
    Kafka cluster, it must already exist with the cluster's topic id.
    Args: partition_count: as for a CoordinatorTopic;
        committed: the store whose offsets are committed, None for the same one.
    Threads: safe.
    Source: Kafka GroupCoordinatorService, OffsetMetadataManager.
    """

    def __init__(
        self,
        store: CoordinatorStore,
        *,
        partition_count: int | None = None,
        committed: ReadableStore | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        super().__init__(store, GROUP_OFFSETS_TOPIC, config=GROUP_OFFSETS_CONFIG, partition_count=partition_count)
        self._committed: ReadableStore = store if committed is None else committed
        self._clock = clock

    def check_known(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Raise UnknownTopicOrPartitionError for a partition that the store does not have, as a broker does."""
        unknown = offsets.keys() - set(self._committed.partitions)
        if unknown:
            raise UnknownTopicOrPartitionError(f"the store has no partition {min(unknown)}")

    def commit(
        self,
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        *,
        producer: ProducerIdAndEpoch = NO_PRODUCER,
        ack: Ack = "written",
    ) -> None:
        """Append the records of a commit.

        Args: producer: that of a transaction which has the group's partition, whose marker decides about the offsets.
        Raises: UnknownTopicOrPartitionError, as a broker does; StorageError and the other errors of an append.
        """
        self.check_known(offsets)
        log = self._store.log(*self.partition_of(group))
        now_ms = self._clock.wall_clock_ms()
        for batch in _batches(_commit_records(group, offsets, now_ms), now_ms, producer):
            log.append(batch, ack=ack, origin=AppendOrigin.COORDINATOR)

    def append(self, group: str, records: Iterable[tuple[bytes, bytes | None]], *, ack: Ack = "written") -> None:
        """Append records of a group, keys and values, in one batch if they fit.

        Raises: as commit, but for unknown partitions.
        """
        log = self._store.log(*self.partition_of(group))
        for batch in _batches(records, self._clock.wall_clock_ms()):
            log.append(batch, ack=ack, origin=AppendOrigin.COORDINATOR)

    def remove(self, group: str, partitions: Collection[TopicPartition] | None = None) -> int:
        """Durably append a tombstone for each record of a group, or for its offsets in partitions; return their number.

        Offsets of undecided transactions get one too. The records of a group's members come before that of the group,
        as brokers need it that load them.
        Raises: CorruptRecordError and the other errors of a read; UnsupportedError for a record of an unknown version;
            StorageError, with some tombstones possibly written.
        Source: Kafka GroupCoordinatorService.deleteGroups, deleteOffsets; createGroupTombstoneRecords of each type.
        """
        log = self._store.log(*self.partition_of(group))
        records = GroupRecords(is_of_group(group))
        records.update(log)
        keys = keys_of_group(group, records, log, partitions)
        for batch in _batches(((key, None) for key in keys), self._clock.wall_clock_ms()):
            log.append(batch, origin=AppendOrigin.COORDINATOR)
        log.flush()
        return len(keys)


def is_of_group(group: str) -> Callable[[bytes], bool]:
    """Return a function that tells whether a key is one of the group's records, without decoding it."""
    name = group.encode("utf-8", "surrogateescape")
    return lambda key: name_of_key(key) == name


def keys_of_group(
    group: str, records: GroupRecords, log: ReadableLog, partitions: Collection[TopicPartition] | None = None
) -> list[bytes]:
    """Return the keys of a group's records, in the order in which they are removed: its offsets first, and then from
    the records of members down to that of the group, which have falling types in Kafka.

    Args: records: with those of the group's; partitions: return the keys of the offsets of these alone.
    """
    found: dict[bytes, int] = {}
    is_own = is_of_group(group)
    for record in (*records.current(), *records.pending()):
        for one in decoded((record,), log) if is_own(record.key) else ():
            if partitions is None or (one.is_offset_commit and one.topic_partition in partitions):
                found[record.key] = MAX_INT64 if one.is_offset_commit else one.type_id
    return sorted(found, key=lambda key: -found[key])


class MemoryOffsets:
    """What groups commit to a server that only reads: kept as long as it runs, and in no file.

    Threads: not safe.
    """

    def __init__(self) -> None:
        self._committed: dict[str, dict[TopicPartition, OffsetAndMetadata]] = {}

    def append(self, group: str, records: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Keep the offsets among the records of a group."""
        kept = self._committed.setdefault(group, {})
        for key, value in records:
            decoded_key, decoded_value = decode_group_record(key, value, decode_members=False)
            if isinstance(decoded_key, DecodedMessage) and isinstance(decoded_value, DecodedMessage):
                one = DecodedRecord(decoded_key.type_id, decoded_key.fields, decoded_value.fields)
                if one.is_offset_commit:
                    kept[one.topic_partition] = one.committed_offset

    def of(self, group: str) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Return what a group committed."""
        return self._committed.get(group, {})


def forget_offsets(store: CoordinatorStore, topic: str, *, clock: Clock = SYSTEM_CLOCK) -> None:
    """Durably append a tombstone to `__consumer_offsets` for each committed offset of a topic that is deleted.

    Offsets of undecided transactions get one too: a topic of the same name that is created later has no offsets. A
    second call does nothing. A damaged partition is skipped with a warning, since its groups can't read their offsets
    either.
    Raises: StorageError, with some tombstones possibly written.
    Cost: reads all of `__consumer_offsets`.
    Source: Kafka GroupCoordinatorService.onPartitionsDeleted, OffsetMetadataManager.onPartitionsDeleted.
    """
    for partition in store.partitions:
        if partition.topic != GROUP_OFFSETS_TOPIC:
            continue
        try:
            log = store.log(*partition)
            keys = _offset_keys_of(topic, log)
        except (CorruptionError, UnsupportedError) as error:
            _logger.warning("offsets of the deleted topic %s may be left in %s: %s", topic, partition, error)
            continue
        if keys:
            for batch in _batches(((key, None) for key in keys), clock.wall_clock_ms()):
                log.append(batch, origin=AppendOrigin.COORDINATOR)
            log.flush()
            _logger.info("removed %d committed offsets of the deleted topic %s from %s", len(keys), topic, partition)


def _offset_keys_of(topic: str, log: ReadableLog) -> list[bytes]:
    """Return the keys of the topic's offsets whose newest record has a value."""
    name = sized_name(topic.encode("utf-8", "surrogateescape"))
    has_value: dict[bytes, bool] = {}
    for batch in log.batches():
        if batch.is_control:
            continue
        for record in batch.records(headers=False):
            key = record.key
            if key is None or not is_of_type(key, OFFSET_COMMIT_TYPES):
                continue
            group = name_of_key(key)
            if group is not None and has_name(key, name, after=group):
                has_value[key] = record.value is not None
    return [key for key, is_set in has_value.items() if is_set]


def _commit_records(
    group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], now_ms: int
) -> Iterator[tuple[bytes, bytes | None]]:
    for topic_partition, offset in offsets.items():
        committed = offset._replace(commit_timestamp_ms=now_ms, expire_timestamp_ms=None)
        yield encode_offset_commit(group, topic_partition, committed)


def _batches(
    records: Iterable[tuple[bytes, bytes | None]], now_ms: int, producer: ProducerIdAndEpoch = NO_PRODUCER
) -> Iterator[MemoryRecords]:
    """Yield batches with keys and values, each below the largest batch that a log accepts."""
    builder = None
    for key, value in records:
        if builder is None:
            builder = _new_batch(producer)
        builder.append(timestamp_ms=now_ms, key=key, value=value)
        if builder.estimated_size_in_bytes >= _MOST_BATCH_BYTES:
            yield builder.build()
            builder = None
    if builder is not None:
        yield builder.build()


def _new_batch(producer: ProducerIdAndEpoch) -> MemoryRecordsBuilder:
    # A coordinator's batches have the sequence 0, which logs do not check.
    return MemoryRecordsBuilder(
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=0 if producer.is_valid else NO_SEQUENCE,
        is_transactional=producer.is_valid,
    )
