"""format("kstore") for Spark: the data source and its readers.

A reader's partitions() runs on the driver, its read() in the tasks.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable, Iterator
from functools import cache, partial
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.types import StructType

from kstore.config import MIB
from kstore.errors import UnsupportedError
from kstore.spark.options import ReadOptions, parse_read_options
from kstore.spark.planning import ScanPartition, plan_partitions
from kstore.spark.pushdown import Constraint, constraint_of
from kstore.spark.retention import read_what_is_left
from kstore.spark.schema import UserSchema, source_schema

if TYPE_CHECKING:
    import pyarrow as pa

_BATCH_BYTES = 4 * MIB
_TASK_BYTES = 128 * MIB
# For reads of batch headers only, which are so fast that starting a task would take longer than its work.
_LIGHT_TASK_BYTES = 512 * MIB
_PUSHDOWN_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"


class KStoreDataSource(DataSource):
    """Reads Kafka log directories as DataFrames.

    Columns and options are those of Spark's Kafka source, with `path` in place of kafka.bootstrap.servers.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name for format()."""
        return "kstore"

    def schema(self) -> StructType:
        """Return the schema of a read without a user schema.

        Raises: ValueError for an invalid option, when load() is called.
        """
        return source_schema(include_headers=parse_read_options(self.options).include_headers)

    def reader(self, schema: StructType) -> KStoreReader:
        """Check the options and the schema and return a reader.

        Raises: ValueError for an invalid option or an unknown column.
        """
        options = parse_read_options(self.options)
        user_schema = UserSchema.of(schema)
        # Only this worker process of Spark calls pushFilters; in others Spark refuses a reader that has it.
        if options.push_filters and _PUSHDOWN_WORKER in sys.modules:
            return FilteringReader(options, user_schema)
        return KStoreReader(options, user_schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return a reader whose methods raise UnsupportedError, since only batch reads are supported."""
        return _NoStreamReader(schema)


@cache
def _settle_worker() -> None:
    """Exclude imported modules from garbage collection: Spark runs a full one after each task of a reused worker."""
    gc.collect()
    gc.freeze()


class KStoreReader(DataSourceReader):
    """Reads a snapshot of the logs: offsets are resolved once per load(), when Spark plans the first action."""

    def __init__(self, options: ReadOptions, user_schema: UserSchema) -> None:
        self._options = options
        self._user_schema = user_schema
        self._constraint = Constraint()

    def partitions(self) -> list[InputPartition]:
        """Resolve topics and offsets and split them into tasks.

        Raises: ValueError, OffsetOutOfRangeError or StorageError, before any task starts.
        """
        task_bytes = _LIGHT_TASK_BYTES if self._user_schema.is_light else _TASK_BYTES
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
            columns=self._user_schema.columns,
            strings=self._user_schema.strings,
            binary="copy",
            batch_bytes=_BATCH_BYTES,
        )
        batches = (batch for scan in partition.ranges for batch in read_what_is_left(scan, decoded, self._options))
        in_time = (self._constraint.rows_in_time(batch) for batch in batches)
        return self._user_schema.conform(batch for batch in in_time if batch.num_rows)


class FilteringReader(KStoreReader):
    """A KStoreReader that accepts pushed filters.

    This is a separate class because Spark refuses any reader with a pushFilters method while filter pushdown is off.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Accept the filters that can be evaluated exactly and return the others."""
        self._constraint, left = constraint_of(filters)
        return left


class _NoStreamReader(DataSourceStreamReader):
    """A stream reader that raises UnsupportedError.

    Spark shows an error of this class's methods, but would hide one raised by streamReader() itself.
    """

    def __init__(self, schema: StructType) -> None:
        self._columns = ", ".join(schema.names)

    def initialOffset(self) -> dict[str, int]:
        raise UnsupportedError(
            f'no stream of {self._columns}: format("kstore") has batch reads only, use spark.read, not spark.readStream'
        )

    def read(self, partition: InputPartition) -> Iterator[tuple[object, ...]]:
        raise UnsupportedError(f"no stream of {self._columns}: {partition} can't be read")
