"""GroupOffsets: appends the offsets that groups commit to a store's `__consumer_offsets`, as a group coordinator does.

A module of its own, because consumers commit through it too, without a transaction.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping

from kstore.config import KIB, MAX_INT64, MIB, LogConfig
from kstore.coordinator.places import CoordinatorPlaces
from kstore.coordinator.producer_ids import NO_PRODUCER, ProducerIdAndEpoch
from kstore.coordinator.store import CoordinatorStore
from kstore.env.process import SYSTEM_CLOCK, Clock
from kstore.errors import UnknownTopicOrPartitionError, checked_int
from kstore.record import MemoryRecords, MemoryRecordsBuilder
from kstore.record.schemas.topics import encode_offset_commit
from kstore.record.validation import AppendOrigin
from kstore.types import GROUP_OFFSETS_TOPIC, NO_SEQUENCE, Ack, OffsetAndMetadata, TopicPartition

# Kafka's defaults of offsets.topic.num.partitions, offsets.topic.segment.bytes and offset.metadata.max.bytes.
PARTITION_COUNT = 50
GROUP_OFFSETS_CONFIG = LogConfig(cleanup_policy="compact", compression_type="producer", segment_bytes=100 * MIB)
MAX_METADATA_BYTES = 4096
_MOST_GROUP_BYTES = 2**15 - 1
# Of a batch, so that it stays below any max.message.bytes; a commit of thousands of partitions takes several.
_MOST_BATCH_BYTES = 512 * KIB

# Of all objects, of which a store may have several.
_creating = threading.Lock()


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
        made = offset if isinstance(offset, OffsetAndMetadata) else OffsetAndMetadata(offset)
        checked_int(f"offset of {topic}-{partition}", made.offset, least=0, greatest=MAX_INT64)
        if not isinstance(made.metadata, str):
            raise TypeError(f"metadata of {topic}-{partition} must be a str, got {made.metadata!r}")
        size = len(made.metadata.encode())
        if size > MAX_METADATA_BYTES:
            raise ValueError(
                f"metadata of {topic}-{partition} must have at most {MAX_METADATA_BYTES} bytes, got {size}"
            )
        checked[TopicPartition(topic, partition)] = made
    return checked


class GroupOffsets:
    """The topic `__consumer_offsets` of a store, for commits.

    It is created with Kafka's defaults by the first commit, unless the store has it. If the store is to return to a
    Kafka cluster, it must already exist with the cluster's topic id.
    Args: partition_count: of the topic, if it has to be created, or the store has only some of its partitions.
    Threads: safe.
    Source: Kafka GroupCoordinatorService, OffsetMetadataManager.
    """

    def __init__(
        self, store: CoordinatorStore, *, partition_count: int = PARTITION_COUNT, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._store = store
        self._clock = clock
        self._new_partition_count = partition_count
        self._places = CoordinatorPlaces(store, GROUP_OFFSETS_TOPIC, default_count=partition_count)

    def partition_of(self, group: str) -> TopicPartition:
        """Return the partition for a group's offsets; the topic is created if it does not exist.

        Raises: StorageError; UnknownTopicOrPartitionError if the store has only some of its partitions, and not that.
        """
        with _creating:
            if not self._places.numbers:
                count = self._new_partition_count
                self._store.create_topic(GROUP_OFFSETS_TOPIC, count, config=GROUP_OFFSETS_CONFIG)
        return self._places.place_of(group)

    def check_known(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Raise UnknownTopicOrPartitionError for a partition that the store does not have, as a broker does."""
        unknown = offsets.keys() - set(self._store.partitions)
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
        for batch in self._batches(group, offsets, producer):
            log.append(batch, ack=ack, origin=AppendOrigin.COORDINATOR)

    def _batches(
        self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], producer: ProducerIdAndEpoch
    ) -> Iterator[MemoryRecords]:
        now_ms = self._clock.wall_clock_ms()
        builder = None
        for topic_partition, offset in offsets.items():
            committed = offset._replace(commit_timestamp_ms=now_ms, expire_timestamp_ms=None)
            key, value = encode_offset_commit(group, topic_partition, committed)
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
