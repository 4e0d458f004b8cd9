"""format("kstore") for Spark: the data source and its readers.

A reader's partitions() runs on the driver, its read() in the tasks.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    Filter,
    InputPartition,
)
from pyspark.sql.types import StructType

from kstore.config import MIB
from kstore.errors import UnsupportedError
from kstore.log import SkippedRange
from kstore.log.damage import OnSkip
from kstore.spark.options import ReadOptions, parse_read_options
from kstore.spark.planning import ScanPartition, plan_partitions
from kstore.spark.pushdown import Constraint, constraint_of
from kstore.spark.retention import read_what_is_left
from kstore.spark.schema import UserSchema, source_schema
from kstore.spark.sink.options import parse_write_options
from kstore.spark.skipped import DAMAGE_SCHEMA, RECORD_COLUMNS, damage_batch, warn_of

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
        options = parse_read_options(self.options)
        return DAMAGE_SCHEMA if options.gives_damage else source_schema(include_headers=options.include_headers)

    def reader(self, schema: StructType) -> KStoreReader | DamageReader:
        """Check the options and the schema and return a reader.

        Raises: ValueError for an invalid option or an unknown column.
        """
        options = parse_read_options(self.options)
        if options.gives_damage:
            if schema != DAMAGE_SCHEMA:
                raise ValueError(f"schema: rows=damage has its own, {DAMAGE_SCHEMA.simpleString()}; leave it out")
            return DamageReader(options)
        user_schema = UserSchema.of(schema)
        # Only this worker process of Spark calls pushFilters; in others Spark refuses a reader that has it.
        if options.push_filters and _PUSHDOWN_WORKER in sys.modules:
            return FilteringReader(options, user_schema)
        return KStoreReader(options, user_schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return a reader whose methods raise UnsupportedError, since only batch reads are supported."""
        return _NoStreamReader(schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Check the options and the columns and return a writer.

        Raises: ValueError for an invalid option, a wrong column or a save mode other than append;
            UnknownTopicOrPartitionError; LogLockedError if a broker or another writer holds the root; StorageError;
            UnsupportedError with a Spark that has no DataSourceArrowWriter.
        """
        options = parse_write_options(self.options, is_stream=False)
        with _spark_with("DataSourceArrowWriter", "4.0"):
            from kstore.spark.sink.writers import KStoreWriter
        return KStoreWriter(options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Check the options and the columns and return a writer of micro-batches.

        Raises: as writer; UnsupportedError with a Spark that has no DataSourceStreamArrowWriter.
        """
        options = parse_write_options(self.options, is_stream=True)
        with _spark_with("DataSourceStreamArrowWriter", "4.1"):
            from kstore.spark.sink.streaming import KStoreStreamWriter
        return KStoreStreamWriter(options, schema, overwrite=overwrite)


@contextmanager
def _spark_with(name: str, version: str) -> Iterator[None]:
    """Context manager: turn the ImportError of a class that this Spark does not have into an UnsupportedError."""
    try:
        yield
    except ImportError as error:
        if name not in str(error):
            raise
        found = sys.modules["pyspark"].__version__
        raise UnsupportedError(f'writing to format("kstore") needs Spark {version} or later, found {found}') from error


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

        Raises: CorruptionError with file and position for damaged bytes, after the rows before them, unless mode is
            PERMISSIVE; OffsetOutOfRangeError, with failOnDataLoss, if files changed after planning.
        """
        if not isinstance(partition, ScanPartition):
            return iter(())
        if TaskContext.get() is not None:
            _settle_worker()
        schema = self._user_schema
        batches = read_partition(
            partition, self._options, columns=schema.columns, strings=schema.strings, on_skip=warn_of
        )
        in_time = (self._constraint.rows_in_time(batch) for batch in batches)
        return schema.conform(batch for batch in in_time if batch.num_rows)


def read_partition(
    partition: ScanPartition,
    options: ReadOptions,
    *,
    columns: Sequence[str],
    strings: Sequence[str],
    on_skip: OnSkip,
) -> Iterator[pa.RecordBatch]:
    """Iterate the rows of a task as Arrow batches of about 4 MiB.

    Args: on_skip: called with each range that mode PERMISSIVE leaves out, before the rows after it.
    """
    from kstore.arrow import record_batches

    # What is left of a file that changes is found by the offset that was reached.
    adds_offset = not options.fail_on_data_loss and "offset" not in columns
    decoded = partial(
        record_batches,
        columns=[*columns, "offset"] if adds_offset else columns,
        strings=strings,
        binary="copy",
        batch_bytes=_BATCH_BYTES,
        on_error=options.on_error,
        on_skip=on_skip,
    )
    for scan in partition.ranges:
        for batch in read_what_is_left(scan, decoded, options):
            yield batch.select(range(len(columns))) if adds_offset else batch


class DamageReader(DataSourceReader):
    """Reads the same ranges as a KStoreReader in mode PERMISSIVE, and returns what that leaves out."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = replace(options, mode="PERMISSIVE")

    def partitions(self) -> list[InputPartition]:
        """Split the selected offsets into tasks, as KStoreReader does; raises as that."""
        max_partition_bytes = self._options.max_partition_bytes or _TASK_BYTES
        return list(plan_partitions(self._options, Constraint(), max_partition_bytes=max_partition_bytes))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return an iterator over Arrow batches of DAMAGE_SCHEMA; raises as KStoreReader.read."""
        if not isinstance(partition, ScanPartition):
            return
        skipped: list[SkippedRange] = []
        # Records that only some columns can't be decoded into count too.
        for _ in read_partition(partition, self._options, columns=RECORD_COLUMNS, strings=(), on_skip=skipped.append):
            if skipped:
                yield damage_batch(skipped)
                skipped.clear()
        if skipped:
            yield damage_batch(skipped)


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
