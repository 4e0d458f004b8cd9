"""The logs that a stream follows, which stay open between micro-batches, so that only what changed is read."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from kstore.errors import LogNotFoundError, OffsetOutOfRangeError
from kstore.log.files.names import PartitionDirectory
from kstore.log.log import Log
from kstore.spark.offsets import OffsetRange, resolve_start
from kstore.spark.options import EARLIEST, Bound
from kstore.spark.planning import ScanPartition, selected_partitions, tasks_between, use_logs
from kstore.spark.retention import LogPool
from kstore.spark.stream.options import StreamOptions
from kstore.spark.stream.positions import Offsets, named
from kstore.types import TopicPartition

# A log that is kept takes a few KiB.
_MOST_KEPT = 100_000
# Attempts to plan a micro-batch whose partitions are deleted at the same time.
_MOST_PLANS = 10

_logger = logging.getLogger("kstore.spark")


class LogBounds(NamedTuple):
    """The offsets [start, end) that a stream may read of a log; log_end: its log end offset."""

    directory: PartitionDirectory
    start: int
    end: int
    log_end: int


class StreamLogs:
    """The logs of the partitions that a stream selects.

    Raises: from all methods LogNotFoundError if a topic of subscribe or a partition of assign does not exist;
        StorageError; CorruptRecordError for damage that is met on the way to the end of a log, with read_committed
        anywhere in it, unless mode is PERMISSIVE.
    Threads: not thread-safe.
    """

    def __init__(self, options: StreamOptions) -> None:
        self._options = options
        # For partitions that are added later, which startingOffsets could not name.
        anywhere = Bound(option="startingOffsets", everywhere=EARLIEST)
        self._read = replace(options.read, starting=anywhere)
        self._pool = LogPool(keeps_logs=True, most_kept=_MOST_KEPT)

    def close(self) -> None:
        """Close the logs; the next call opens them again."""
        self._pool.close()

    def starting_offsets(self) -> Offsets:
        """Return the offsets that the starting options mean now.

        Raises: ValueError if they name other partitions than there are, or if no record has the starting timestamp or a
            later one; OffsetOutOfRangeError, with failOnDataLoss, for an offset that a log does not hold.
        """
        options = self._options.read

        def find(directories: list[PartitionDirectory]) -> Offsets:
            return dict(
                use_logs(
                    directories,
                    lambda log: (log.topic_partition, self._held_start(log)),
                    options,
                    pool=self._pool,
                )
            )

        return selected_partitions(options, find)

    def bounds(self) -> dict[TopicPartition, LogBounds]:
        """Return the bounds of every selected partition, as the logs are now.

        Cost: a listing for each path; for each log two stats, and if it was written within the last second or changed,
            a walk over the headers of its new batches, with read_committed and PERMISSIVE a read of the whole log.
        """

        def find(directories: list[PartitionDirectory]) -> dict[TopicPartition, LogBounds]:
            by_partition = {directory.topic_partition: directory for directory in directories}
            looked_up = use_logs(
                directories,
                lambda log: self._bounds_of(log, by_partition[log.topic_partition]),
                self._read,
                pool=self._pool,
            )
            return {log_bounds.directory.topic_partition: log_bounds for log_bounds in looked_up}

        bounds = selected_partitions(self._read, find)
        self._pool.keep_only({log_bounds.directory.path for log_bounds in bounds.values()})
        return bounds

    def tasks(
        self, start: Offsets, end: Offsets, bounds: Mapping[TopicPartition, LogBounds], *, max_partition_bytes: int
    ) -> list[ScanPartition]:
        """Return the tasks that read from one position to another.

        Args: bounds: from bounds(), which is called again if they lack partitions of `end`.
        Raises: OffsetOutOfRangeError, with failOnDataLoss, if offsets are not there any more; without it, a warning
            says so.
        """
        plans_left = _MOST_PLANS
        while True:
            plans_left -= 1
            if not end.keys() <= bounds.keys():
                bounds = self.bounds()
            try:
                return tasks_between(
                    self._ranges(start, end, bounds),
                    [log_bounds.directory for log_bounds in bounds.values()],
                    self._read,
                    max_partition_bytes=max_partition_bytes,
                    pool=self._pool,
                )
            except LogNotFoundError:
                if not plans_left:
                    raise
                bounds = {}

    def _ranges(self, start: Offsets, end: Offsets, bounds: Mapping[TopicPartition, LogBounds]) -> list[OffsetRange]:
        """Source: Spark KafkaOffsetReader.getOffsetRangesFromResolvedOffsets."""
        gone = sorted({*start, *end} - {*bounds} | (start.keys() - end.keys()))
        if gone:
            self._report_loss(f"partitions {named(gone)} are gone")
        ranges = []
        for partition, end_offset in sorted(end.items()):
            if partition not in bounds:
                continue
            start_offset = start.get(partition)
            if start_offset is None:
                start_offset = bounds[partition].start
                if start_offset:
                    self._report_loss(
                        f"the new partition {partition} starts at offset {start_offset} instead of 0", start_offset
                    )
            if end_offset < start_offset:
                changed = f"the end of {partition} was at offset {start_offset} or above, and is at {end_offset} now"
                self._report_loss(changed, start_offset)
            ranges.append(OffsetRange(partition, start_offset, max(start_offset, end_offset)))
        return ranges

    def _report_loss(self, what: str, offset: int = 0) -> None:
        if self._read.fail_on_data_loss:
            raise OffsetOutOfRangeError(
                f"Some data may have been lost because they are not available any more: {what}; to go on with what is "
                "left, set the option failOnDataLoss to false",
                offset=offset,
            )
        _logger.warning("Some data may have been lost because they are not available any more: %s", what)

    def _held_start(self, log: Log) -> int:
        log.refresh()
        bounds = self._ends_of(log)
        asked = resolve_start(log.topic_partition, log, self._options.read, latest=bounds[0])
        held = min(max(asked, log.log_start_offset), bounds[1])
        if held != asked:
            range_held = f"[{log.log_start_offset}, {bounds[1]}]"
            self._report_loss(
                f"{log.topic_partition} was to be read from offset {asked}, the log holds {range_held}", asked
            )
        return held

    def _bounds_of(self, log: Log, directory: PartitionDirectory) -> LogBounds:
        log.refresh()
        return LogBounds(directory, log.log_start_offset, *self._ends_of(log))

    def _ends_of(self, log: Log) -> tuple[int, int]:
        """Return the offset up to which a stream may read now, and the log end offset.

        Unlike a batch read, a stream stops before damage at the end of a log: a recovery may put other records there.
        """
        read = self._read
        end = log._readable_end(isolation=read.isolation_level, on_error=read.on_error).offset
        if self._options.end_offsets == "flushed":
            end = min(end, log.flushed_offset)
        return max(end, log.log_start_offset), log.log_end_offset
