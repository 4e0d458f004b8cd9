"""KStoreStreamReader: micro-batches of the records that are appended to logs.

Needs Spark 4.2, whose driver asks a Python source for micro-batches of a limited size.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from kstore.errors import InvalidSchemaError
from kstore.log.files.names import PartitionDirectory
from kstore.spark.pushdown import Constraint
from kstore.spark.readers import read_rows, task_bytes
from kstore.spark.schema import UserSchema
from kstore.spark.stream.limits import TriggerDelay, limited
from kstore.spark.stream.logs import LogBounds, StreamLogs
from kstore.spark.stream.options import StreamOptions
from kstore.spark.stream.positions import Offsets, StreamPosition
from kstore.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from kstore.spark.values.plans import ValuePlans


class KStoreStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads logs as Spark's Kafka source reads topics.

    One object lives on the driver as long as the query runs, and finds the new offsets; copies of another one read in
    the tasks, each only the partition that it gets.
    Source: Spark KafkaMicroBatchStream.
    """

    def __init__(self, options: StreamOptions, user_schema: UserSchema) -> None:
        self._options = options
        self._user_schema = user_schema
        self._logs = StreamLogs(options)
        self._values = _value_plans(options)
        self._start: StreamPosition | None = None
        # As of the last check; with Trigger.AvailableNow, of the only one.
        self._bounds: dict[TopicPartition, LogBounds] = {}
        self._is_pinned = False
        self._delay: TriggerDelay | None = None
        if options.min_offsets is not None:
            self._delay = TriggerDelay(least=options.min_offsets, most_delay_ms=options.max_trigger_delay_ms)

    def initialOffset(self) -> dict[str, Any]:
        """Return the start of the stream, which the offsets of the first micro-batch record too.

        Raises: as StreamLogs.starting_offsets.
        """
        if self._start is None:
            offsets = self._logs.starting_offsets()
            self._start = StreamPosition(offsets, offsets, self._schema_ids({}))
        return self._start.to_json()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the next micro-batch; `start` itself if there are no new offsets, or not enough.

        Raises: as StreamLogs.bounds; ValueError for a checkpoint of another source.
        """
        position = StreamPosition.of(start)
        if not self._is_pinned:
            self._bounds = self._logs.bounds()
        ends = self._ends(position.offsets, limit)
        if ends == position.offsets:
            return start
        schema_ids = self._schema_ids(position.schema_ids or {})
        return StreamPosition(ends, position.start if position.is_start else None, schema_ids).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return maxOffsetsPerTrigger or minOffsetsPerTrigger. If both are set, Spark knows only of the first."""
        if self._options.max_offsets is not None:
            return ReadMaxRows(self._options.max_offsets)
        if self._options.min_offsets is not None:
            return ReadMinRows(self._options.min_offsets)
        return ReadAllAvailable()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the ends of the logs at the last check, for the query's progress."""
        if not self._bounds:
            return None
        return StreamPosition({partition: bounds.end for partition, bounds in self._bounds.items()}).to_json()

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of the query: the present ends of the logs."""
        self._bounds = self._logs.bounds()
        self._is_pinned = True

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the tasks of a micro-batch.

        If `end` records where the stream started, that is used in place of `start`, which Spark looks up again when a
        query is restarted.
        Raises: as StreamLogs.tasks; SchemaError, or ValueError for other columns than those of the schemas whose ids
            `end` records.
        """
        until = StreamPosition.of(end)
        begin = StreamPosition.of(start).offsets if until.start is None else until.start
        max_partition_bytes = task_bytes(self._options.read, self._user_schema)
        tasks = self._logs.tasks(begin, until.offsets, self._bounds, max_partition_bytes=max_partition_bytes)
        if self._values is None:
            return list(tasks)
        try:
            return list(self._values.attached(tasks, self._user_schema, self._directories(), until.schema_ids))
        except (ValueError, InvalidSchemaError) as error:
            raise ValueError(_of_another_schema(error, until.schema_ids or {})) from error

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return an iterator over the Arrow batches of a task; raises as KStoreReader.read."""
        return read_rows(partition, self._options.read, self._user_schema, Constraint())

    def stop(self) -> None:
        """Close the logs."""
        self._logs.close()
        if self._values is not None:
            self._values.close()

    def _directories(self) -> list[PartitionDirectory]:
        bounds = self._bounds or self._logs.bounds()
        return [bounds[partition].directory for partition in sorted(bounds)]

    def _schema_ids(self, pinned: Mapping[str, int | str]) -> dict[str, int | str] | None:
        """Return the ids of the schemas that keys and values are read as: those of a checkpoint, if it has them."""
        return None if self._values is None else self._values.schema_ids(self._directories(), pinned)

    def _ends(self, start: Offsets, limit: ReadLimit) -> Offsets:
        # An end may be below what was read before, because the options changed; the log still has those records.
        ends = {
            partition: max(bounds.end, min(start.get(partition, 0), bounds.log_end))
            for partition, bounds in self._bounds.items()
        }
        if isinstance(limit, ReadAllAvailable):
            return ends
        begin: Mapping[TopicPartition, int] = {
            partition: bounds.start for partition, bounds in self._bounds.items()
        } | start
        if self._delay is not None and not self._is_pinned and self._delay.holds_back(begin, ends):
            return start
        return limited(begin, ends, most=limit.max_rows) if isinstance(limit, ReadMaxRows) else ends


def _value_plans(options: StreamOptions) -> ValuePlans | None:
    if options.read.values is None:
        return None
    from kstore.spark.values.plans import ValuePlans

    return ValuePlans(options.read)


def _of_another_schema(error: Exception, schema_ids: Mapping[str, int | str]) -> str:
    if not schema_ids:
        return str(error)
    options = {str: "Schema", int: "SchemaId"}
    pinned = " and ".join(f"{origin}{options[type(each)]}={each}" for origin, each in sorted(schema_ids.items()))
    return (
        f"{error}. The query reads by the schemas that it began with, {pinned}, and newer ones have other columns: set "
        "these options to keep its columns, or others to change them"
    )
