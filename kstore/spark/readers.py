"""The readers of format("kstore"): KStoreReader for batch reads, and what readers of streams have in common with it.

A reader's partitions() runs on the driver, its read() in the tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from kstore.config import MIB
from kstore.env.process import exclude_from_collection
from kstore.log.damage import OnSkip, SkippedRange
from kstore.spark.options import ReadOptions
from kstore.spark.planning import ScanPartition, plan_partitions, selected_partitions
from kstore.spark.pushdown import Constraint, constraint_of
from kstore.spark.retention import read_despite_changes
from kstore.spark.schema import UserSchema
from kstore.spark.skipped import RECORD_COLUMNS, damage_batch, warn_of

if TYPE_CHECKING:
    import pyarrow as pa

_BATCH_BYTES = 4 * MIB
_TASK_BYTES = 128 * MIB
# For reads of batch headers only, which are so fast that starting a task would take longer than its work.
_LIGHT_TASK_BYTES = 512 * MIB


def task_bytes(options: ReadOptions, schema: UserSchema) -> int:
    """Return how many bytes a task reads at most."""
    is_light = schema.is_light and options.values is None
    return options.max_partition_bytes or (_LIGHT_TASK_BYTES if is_light else _TASK_BYTES)


class KStoreReader(DataSourceReader):
    """Reads a snapshot of the logs: offsets are resolved once per load(), when Spark plans the first action."""

    def __init__(self, options: ReadOptions, user_schema: UserSchema) -> None:
        self._options = options
        self._user_schema = user_schema
        self._constraint = Constraint()

    def partitions(self) -> list[InputPartition]:
        """Resolve topics and offsets and split them into tasks.

        Raises: ValueError, OffsetOutOfRangeError, StorageError or SchemaError, before any task starts.
        """
        options, schema = self._options, self._user_schema
        max_partition_bytes = task_bytes(options, schema)
        tasks = plan_partitions(options, self._constraint, max_partition_bytes=max_partition_bytes)
        return list(with_values(tasks, options, schema))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return an iterator over Arrow batches of about 4 MiB, in offset order within each range.

        Raises: CorruptionError with file and position for damaged bytes, after the rows before them, unless mode is
            PERMISSIVE; OffsetOutOfRangeError, with failOnDataLoss, if files changed after planning.
        """
        return read_rows(partition, self._options, self._user_schema, self._constraint)


def read_rows(
    partition: InputPartition, options: ReadOptions, schema: UserSchema, constraint: Constraint
) -> Iterator[pa.RecordBatch]:
    """Return an iterator over the Arrow batches of a task; raises as KStoreReader.read."""
    if not isinstance(partition, ScanPartition):
        return iter(())
    if TaskContext.get() is not None:
        # Spark runs a full collection after each task of a reused worker.
        exclude_from_collection()
    columns: Sequence[str] = schema.columns
    strings = schema.strings
    if partition.values:
        from kstore.spark.values.plans import base_columns, typed_batches

        columns, strings = base_columns(partition.values)
    batches = read_partition(partition, options, columns=columns, strings=strings, on_skip=warn_of)
    rows: Iterator[pa.RecordBatch] = (constraint.rows_in_time(batch) for batch in batches)
    if partition.values:
        rows = typed_batches(partition.values, rows)
    return schema.conform(batch for batch in rows if batch.num_rows)


def with_values(tasks: list[ScanPartition], options: ReadOptions, schema: UserSchema) -> list[ScanPartition]:
    """Return planned tasks with what they need to decode keys and values that have a format.

    The schemas are looked up after the plan, so that those of all records that it has are known.
    Raises: ValueError, SchemaNotFoundError, InvalidSchemaError; what reading `_schemas` raises.
    """
    if options.values is None:
        return tasks
    from kstore.spark.values.plans import ValuePlans

    with ValuePlans(options) as plans:
        return selected_partitions(options, lambda directories: plans.attached(tasks, schema, directories))


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

    # After a file changes, the read continues from the last offset.
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
        for batch in read_despite_changes(scan, decoded, options):
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
        # All columns, so that records of which only some fields can't be decoded count too.
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
