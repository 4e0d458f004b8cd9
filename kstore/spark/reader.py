"""DataSourceReader of batch reads: partitions() runs on the driver, read() in the tasks."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from functools import cache, partial
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from kstore.config import MIB
from kstore.spark.options import ReadOptions
from kstore.spark.planning import ScanPartition, plan_partitions
from kstore.spark.pushdown import Constraint, constraint_of
from kstore.spark.retention import read_what_is_left
from kstore.spark.schema import Projection

if TYPE_CHECKING:
    import pyarrow as pa

_BATCH_BYTES = 4 * MIB
_TASK_BYTES = 128 * MIB
# For reads of batch headers only, which are so fast that starting a task would take longer than its work.
_LIGHT_TASK_BYTES = 512 * MIB


@cache
def _settle_worker() -> None:
    """Exclude imported modules from garbage collection: Spark runs a full one after each task of a reused worker."""
    gc.collect()
    gc.freeze()


class KStoreReader(DataSourceReader):
    """Reads a snapshot of the logs: offsets are resolved once per load(), when Spark plans the first action."""

    def __init__(self, options: ReadOptions, projection: Projection) -> None:
        self._options = options
        self._projection = projection
        self._constraint = Constraint()

    def partitions(self) -> list[InputPartition]:
        """Resolve topics and offsets and split them into tasks.

        Raises: ValueError, OffsetOutOfRangeError or StorageError, before any task starts.
        """
        task_bytes = _LIGHT_TASK_BYTES if self._projection.is_light else _TASK_BYTES
        max_partition_bytes = self._options.max_partition_bytes or task_bytes
        return list(plan_partitions(self._options, self._constraint, max_partition_bytes=max_partition_bytes))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return an iterator over Arrow batches of about 4 MiB, in offset order within each range.

        Raises: CorruptionError with file and position for damaged bytes; OffsetOutOfRangeError, with failOnDataLoss,
            if a segment was deleted after planning.
        """
        from kstore.arrow import record_batches

        if not isinstance(partition, ScanPartition):
            return iter(())
        if TaskContext.get() is not None:
            _settle_worker()
        decoded = partial(
            record_batches,
            columns=self._projection.columns,
            strings=self._projection.strings,
            binary="copy",
            batch_bytes=_BATCH_BYTES,
        )
        batches = (batch for scan in partition.ranges for batch in read_what_is_left(scan, decoded, self._options))
        in_time = (self._constraint.rows_in_time(batch) for batch in batches)
        return self._projection.conform(batch for batch in in_time if batch.num_rows)


class FilteringReader(KStoreReader):
    """A KStoreReader that accepts pushed filters.

    This is a separate class because Spark refuses any reader with a pushFilters method while filter pushdown is off.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Accept the filters that can be evaluated exactly and return the others."""
        self._constraint, left = constraint_of(filters)
        return left
