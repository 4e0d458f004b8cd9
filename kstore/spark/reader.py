"""DataSourceReader of the batch read: partitions() on the driver, read() in the tasks. Layer: spark."""

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
# Of a read so fast that the start of a task would take longer than its work.
_LIGHT_TASK_BYTES = 512 * MIB


@cache
def _settle_worker() -> None:
    """Leave what was imported out of garbage collections: Spark runs a full one after each task of a reused worker."""
    gc.collect()
    gc.freeze()


class KStoreReader(DataSourceReader):
    """Reads a snapshot: offsets are resolved when Spark plans the first action, once per load()."""

    def __init__(self, options: ReadOptions, projection: Projection) -> None:
        self._options = options
        self._projection = projection
        self._constraint = Constraint()

    def partitions(self) -> list[InputPartition]:
        """Resolve topics and offsets and cut them into tasks.

        Raises: ValueError, OffsetOutOfRangeError or StorageError, before any task starts.
        """
        task_bytes = _LIGHT_TASK_BYTES if self._projection.is_light else _TASK_BYTES
        max_partition_bytes = self._options.max_partition_bytes or task_bytes
        return list(plan_partitions(self._options, self._constraint, max_partition_bytes=max_partition_bytes))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield Arrow batches of about 4 MiB in the order of the offsets.

        Raises: CorruptionError naming file and position for damaged bytes; OffsetOutOfRangeError, with failOnDataLoss,
            for a segment that was deleted since.
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
    """The reader of a query with pushed filters.

    A class of its own: Spark refuses every reader that has pushFilters while its filter pushdown is off.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take the filters that can be answered exactly; give back the others."""
        self._constraint, left = constraint_of(filters)
        return left
