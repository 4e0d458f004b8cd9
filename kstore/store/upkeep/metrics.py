"""StoreMetrics: the figures of a store under the names of Kafka's MBeans, taken from what the logs know already."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from kstore.env import Env
from kstore.store.upkeep.maintenance import Maintenance
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from kstore.log.write.writable_log import LogCounts, WritableLog

# A figure of the store, or one for each partition that is open.
Metric: TypeAlias = float | Mapping[TopicPartition, float]


def added(counts: Iterable[LogCounts]) -> LogCounts:
    """Return the counts of logs together."""
    from kstore.log.write.writable_log import LogCounts

    total = LogCounts(0, 0, 0, 0, 0)
    for one in counts:
        total = LogCounts(
            total.offsets_in + one.offsets_in,
            total.bytes_in + one.bytes_in,
            total.flushes + one.flushes,
            total.flush_total_ms + one.flush_total_ms,
            max(total.flush_max_ms, one.flush_max_ms),
        )
    return total


class StoreMetrics:
    """The figures of one store.

    Threads: as the store.
    """

    def __init__(self, env: Env) -> None:
        self._env = env
        self._started_ms = env.monotonic_ms()
        # Of logs that were closed, and opened again or deleted since.
        self._earlier: LogCounts | None = None

    def keep(self, log: WritableLog) -> None:
        """Count what happened to a log that the store lets go."""
        self._earlier = log.counts if self._earlier is None else added((self._earlier, log.counts))

    def taken(
        self,
        partitions: Sequence[TopicPartition],
        logs: Sequence[WritableLog],
        maintenance: Maintenance,
        *,
        deleted_directories: int,
        refused: int,
    ) -> dict[str, Metric]:
        """Return the figures now, of the partitions that exist and the logs that were opened."""
        live = [log for log in logs if not log.is_closed]
        earlier = () if self._earlier is None else (self._earlier,)
        total = added((*earlier, *(log.counts for log in logs)))
        now_ms = self._env.monotonic_ms()
        seconds = max(now_ms - self._started_ms, 1) / 1000
        stats = maintenance.stats
        return {
            "LogStartOffset": {log.topic_partition: log.log_start_offset for log in live},
            "LogEndOffset": {log.topic_partition: log.log_end_offset for log in live},
            "Size": {log.topic_partition: log.size_in_bytes for log in live},
            "NumLogSegments": {log.topic_partition: len(log.segments) for log in live},
            "ProducerIdCount": sum(len(log.producer_state.active_producers) for log in live),
            "PartitionCount": len(partitions),
            "OfflineReplicaCount": refused + sum(log.has_failed for log in logs),
            "MessagesInPerSec.Count": total.offsets_in,
            "MessagesInPerSec.MeanRate": total.offsets_in / seconds,
            "BytesInPerSec.Count": total.bytes_in,
            "BytesInPerSec.MeanRate": total.bytes_in / seconds,
            "LogFlushRateAndTimeMs.Count": total.flushes,
            "LogFlushRateAndTimeMs.Mean": total.flush_total_ms / total.flushes if total.flushes else 0.0,
            "LogFlushRateAndTimeMs.Max": total.flush_max_ms,
            "uncleanable-partitions-count": len(maintenance.uncleanable),
            "max-dirty-percent": stats.max_dirty_percent,
            "max-clean-time-secs": stats.max_clean_time_ms / 1000,
            "time-since-last-run-ms": now_ms - stats.last_run_ms,
            "deleted-directories-waiting": deleted_directories,
        }
