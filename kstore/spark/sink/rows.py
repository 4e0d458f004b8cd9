"""Rows of a DataFrame to records: the columns of Spark's Kafka sink, checked, and sent to topics and partitions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kstore._core import partition_for_key
from kstore.config import MIB
from kstore.env.process import SYSTEM_CLOCK

if TYPE_CHECKING:
    import pyarrow as pa

    from kstore.producer.batches.futures import ColumnsFuture
    from kstore.producer.producer import Producer
    from kstore.staging.sink import StagingSink

_HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
_TEXT: tuple[DataType, ...] = (StringType(), BinaryType())
_TYPES: dict[str, tuple[DataType, ...]] = {
    "topic": (StringType(),),
    "key": _TEXT,
    "value": _TEXT,
    "headers": (_HEADERS,),
    "partition": (IntegerType(),),
    "timestamp": (TimestampType(),),
}
_RECORD_COLUMNS = ("key", "value", "headers", "timestamp")
_US_PER_MS = 1000
# Small batches of Spark are joined up to this, so that each partition gets batches of some size.
_JOINED_BYTES = 4 * MIB
_MOST_FUTURES = 64


def check_columns(schema: StructType, *, has_topic: bool) -> None:
    """Check the columns of a DataFrame as Spark's Kafka sink does; other columns than the sink's are ignored.

    Args: has_topic: whether there is an option `topic`.
    Raises: ValueError.
    """
    by_name = {field.name: field.dataType for field in schema.fields if field.name in _TYPES}
    names = [field.name for field in schema.fields if field.name in _TYPES]
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        raise ValueError(f"column {repeated} is there {names.count(repeated)} times in {schema.simpleString()}")
    if not has_topic and "topic" not in by_name:
        raise ValueError(
            "topic option required when no 'topic' attribute is present. Use the topic option for setting a topic."
        )
    if "value" not in by_name:
        raise ValueError(f"Required attribute 'value' not found, in {schema.simpleString()}")
    for name, column_type in by_name.items():
        kinds = _TYPES[name]
        if not any(_is_of(column_type, kind) for kind in kinds):
            expected = " or ".join(kind.simpleString() for kind in kinds)
            raise ValueError(
                f"{name} attribute unsupported type {column_type.simpleString()}. {name} must be a(n) {expected}"
            )


def _is_of(column: DataType, kind: DataType) -> bool:
    """Return whether a type is of a kind; nullability, and the collation of a string, do not count."""
    if isinstance(kind, ArrayType):
        return column.simpleString() == kind.simpleString()
    return isinstance(column, type(kind))


class RowSender:
    """Sends Arrow batches of a DataFrame to a producer; the rows of a partition stay in their order.

    Args: topic: that of all rows, None to take it from the topic column.
    Threads: one.
    """

    def __init__(self, producer: Producer, sink: StagingSink, *, topic: str | None) -> None:
        self._producer = producer
        self._sink = sink
        self._topic = topic
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._futures: list[ColumnsFuture] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Take a batch; it may be sent later, together with others.

        Raises: ValueError for a row that is no record, with the reason; UnknownTopicOrPartitionError;
            RecordTooLargeError; the errors of earlier batches.
        """
        self._waiting.append(batch)
        self._waiting_bytes += batch.nbytes
        if self._waiting_bytes >= _JOINED_BYTES:
            self._send_waiting()

    def finish(self) -> None:
        """Send the remaining rows and wait until the sink has all records.

        Raises: as write.
        """
        self._send_waiting()
        self._producer.flush()
        for future in self._futures:
            future.result()

    def _send_waiting(self) -> None:
        import pyarrow as pa

        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        if not waiting:
            return
        self._send(waiting[0] if len(waiting) == 1 else pa.concat_batches(waiting))

    def _send(self, batch: pa.RecordBatch) -> None:
        import pyarrow as pa

        if not batch.num_rows:
            return
        columns = {
            name: _timed(batch[name]) if name == "timestamp" else batch[name]
            for name in batch.schema.names
            if name in _RECORD_COLUMNS
        }
        records = pa.RecordBatch.from_pydict(columns)
        partitions = batch["partition"] if "partition" in batch.schema.names else None
        if self._topic is not None:
            self._send_to(self._topic, records, partitions)
            return
        for topic, rows in _groups(batch["topic"]):
            if topic is None:
                raise ValueError(
                    "The Kafka message data sent to the producer contains a null topic. Use the `topic` option for "
                    "setting a default topic."
                )
            self._send_to(topic, _rows(records, rows), None if partitions is None else _rows(partitions, rows))

    def _send_to(self, topic: str, records: pa.RecordBatch, partitions: pa.Array | None) -> None:
        count = self._sink.partition_count(topic)
        if partitions is None or partitions.null_count == len(partitions):
            self._keep(self._producer.send_columns(topic, records))
            return
        if not self._producer.config.partitioner_ignore_keys:
            partitions = _filled(partitions, records, count=count)
        for partition, rows in _groups(partitions):
            self._keep(self._producer.send_columns(topic, _rows(records, rows), partition=partition))

    def _keep(self, future: ColumnsFuture) -> None:
        self._futures.append(future)
        if len(self._futures) >= _MOST_FUTURES:
            waiting = [sent for sent in self._futures if not sent.done()]
            for sent in self._futures:
                if sent.done():
                    sent.result()
            self._futures = waiting


def _timed(column: pa.Array) -> pa.Array:
    """Return a timestamp column with the current time in place of nulls, as Kafka's producer has it."""
    import pyarrow as pa

    if not column.null_count:
        return column
    now = pa.scalar(SYSTEM_CLOCK.wall_clock_ms() * _US_PER_MS, pa.int64()).cast(column.type)
    return column.fill_null(now)


def _filled(partitions: pa.Array, records: pa.RecordBatch, *, count: int) -> pa.Array:
    """Return the partition of each row: the given one, or that of its key; null for rows with neither.

    This keeps the order of each partition's rows, whether they name it or their key does.
    """
    import pyarrow as pa

    if not partitions.null_count or "key" not in records.schema.names:
        return partitions
    keys = records["key"].cast(pa.large_binary()).to_pylist()
    return pa.array(
        [
            partition_for_key(key, count) if given is None and key is not None else given
            for given, key in zip(partitions.to_pylist(), keys, strict=True)
        ],
        pa.int32(),
    )


def _groups(column: pa.Array) -> Iterator[tuple[Any, pa.Array | None]]:
    """Yield each value of a column with the indexes of its rows, in order; None for all rows."""
    import pyarrow.compute as pc

    encoded = column.dictionary_encode(null_encoding="encode")
    values = encoded.dictionary
    if len(values) == 1:
        yield values[0].as_py(), None
        return
    order = pc.array_sort_indices(encoded.indices)
    first = 0
    counts = pc.value_counts(encoded.indices)
    by_code = dict(zip(counts.field("values").to_pylist(), counts.field("counts").to_pylist(), strict=True))
    for code, value in enumerate(values.to_pylist()):
        yield value, order.slice(first, by_code[code])
        first += by_code[code]


def _rows(data: Any, indexes: pa.Array | None) -> Any:
    return data if indexes is None else data.take(indexes)
