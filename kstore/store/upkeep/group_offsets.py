"""forget_offsets: what a broker does with the offsets that groups committed for partitions that are deleted."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator

from kstore.config import KIB
from kstore.env import Env
from kstore.errors import CorruptionError, UnsupportedError
from kstore.log.write.writable_log import WritableLog
from kstore.record import MemoryRecords, MemoryRecordsBuilder
from kstore.record.schemas.topics import OFFSET_COMMIT_TYPES, has_name, is_of_type, name_of_key, sized_name
from kstore.record.validation import AppendOrigin
from kstore.types import GROUP_OFFSETS_TOPIC, TopicPartition

# Of a batch, so that it stays below any max.message.bytes.
_MOST_TOMBSTONES_BYTES = 512 * KIB

_logger = logging.getLogger("kstore.log")


def forget_offsets(
    partitions: Iterable[TopicPartition], open_log: Callable[[TopicPartition], WritableLog], topic: str, env: Env
) -> None:
    """Durably append a tombstone to `__consumer_offsets` for each offset of a topic that a group committed, also in a
    transaction that is not decided: a topic of the same name that is created later has none.

    A second call finds nothing to do. A partition that is damaged is passed over with a warning, as its groups can't
    read their offsets either.
    Args: partitions: those of the root.
    Raises: StorageError, with some tombstones possibly written.
    Cost: reads all of `__consumer_offsets`.
    Source: Kafka GroupCoordinatorService.onPartitionsDeleted, OffsetMetadataManager.onPartitionsDeleted.
    """
    for partition in partitions:
        if partition.topic != GROUP_OFFSETS_TOPIC:
            continue
        try:
            log = open_log(partition)
            keys = _offsets_of(topic, log)
        except (CorruptionError, UnsupportedError) as error:
            _logger.warning("offsets of the deleted topic %s may be left in %s: %s", topic, partition, error)
            continue
        if keys:
            for batch in _tombstones(keys, env.wall_clock_ms()):
                log.append(batch, origin=AppendOrigin.COORDINATOR)
            log.flush()
            _logger.info("removed %d committed offsets of the deleted topic %s from %s", len(keys), topic, partition)


def _offsets_of(topic: str, log: WritableLog) -> list[bytes]:
    """Return the keys of the topic's offsets whose newest record has a value."""
    name = sized_name(topic.encode("utf-8", "surrogateescape"))
    found: dict[bytes, bool] = {}
    for batch in log.batches():
        if batch.is_control:
            continue
        for record in batch.records(headers=False):
            key = record.key
            if key is None or not is_of_type(key, OFFSET_COMMIT_TYPES):
                continue
            group = name_of_key(key)
            if group is not None and has_name(key, name, after=group):
                found[key] = record.value is not None
    return [key for key, has_value in found.items() if has_value]


def _tombstones(keys: Iterable[bytes], now_ms: int) -> Iterator[MemoryRecords]:
    builder = None
    for key in keys:
        if builder is None:
            builder = MemoryRecordsBuilder()
        builder.append(timestamp_ms=now_ms, key=key, value=None)
        if builder.estimated_size_in_bytes >= _MOST_TOMBSTONES_BYTES:
            yield builder.build()
            builder = None
    if builder is not None:
        yield builder.build()
