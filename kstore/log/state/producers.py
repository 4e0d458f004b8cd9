"""active_producers: the producers that a broker which loads a log knows of, read without changing a file."""

from __future__ import annotations

from collections.abc import Iterable

from kstore.config import LogConfig
from kstore.env import Env
from kstore.log.files.names import PartitionDirectory
from kstore.log.files.snapshots import ProducerSnapshotEntry
from kstore.log.segment.segment import LogSegment
from kstore.log.state.producer_append import producer_batches_of
from kstore.log.state.producer_state import ProducerStateManager


def active_producers(
    directory: PartitionDirectory,
    segments: Iterable[LogSegment],
    *,
    log_start_offset: int,
    log_end_offset: int,
    now_ms: int,
    config: LogConfig,
    env: Env,
) -> list[ProducerSnapshotEntry]:
    """Return the producers of a log at its end, by id, by its newest snapshot and the batches after it.

    Args: now_ms: producers without an open transaction are forgotten producer_id_expiration_ms after their last batch.
    Raises: CorruptRecordError and other errors for damage in the walked range; LogReplacedError; StorageError.
    Cost: a walk over the headers from the snapshot on.
    Source: Kafka's request DescribeProducers, ProducerStateManager.activeProducers.
    """
    manager = ProducerStateManager(directory.topic_partition, directory.path, config=config, env=env)
    manager.load_newest(log_start_offset=log_start_offset, log_end_offset=log_end_offset, now_ms=now_ms)
    for segment in segments:
        if segment.next_base_offset is not None and segment.next_base_offset <= manager.map_end_offset:
            continue
        manager.replay_together(producer_batches_of(segment, max(segment.base_offset, manager.map_end_offset)))
    manager.update_map_end_offset(log_end_offset)
    manager.remove_expired_producers(now_ms)
    return sorted(manager.snapshot_entries())
