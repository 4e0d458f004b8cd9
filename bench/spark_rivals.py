"""The rivals in the Spark workloads, imported by Spark's Python workers. This module does not use kstore."""

from __future__ import annotations

import json
import os
import struct
import uuid
from collections.abc import Iterator
from functools import cache
from io import FileIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
from aiokafka.record._crecords import DefaultRecordBatchBuilder, MemoryRecords
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

ALL_COLUMNS = (
    "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, timestampType int"
)
ARROW_SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestampType", pa.int32()),
    ]
)
ROWS_PER_BATCH = 20_000
MOST_BATCH_BYTES = 1 << 20
LOG_OVERHEAD, LENGTH_AT, EPOCH_AT, RECORD_COUNT_AT = 12, 8, 12, 57
RECORD_COUNT = EPOCH = struct.Struct(">i")
READY_BATCH_BYTES = 3 * 1024 * 1024
# The most bytes of a read or a write: Linux takes more CPU time for larger writes where memory is fragmented.
PIECE_BYTES = 256 * 1024


# What users write without kstore --------------------------------------------------------------------------------


def decode_files(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For mapInArrow: turn rows of (path, topic, partition) into rows of Kafka records with aiokafka's reader."""
    for files in batches:
        for file in files.to_pylist():
            records = MemoryRecords(Path(file["path"]).read_bytes())
            keys, values, offsets, timestamps_ms, types = [], [], [], [], []
            while (batch := records.next_batch()) is not None:
                if not batch.validate_crc():
                    raise ValueError(f"{file['path']}: wrong CRC in the batch at offset {batch.base_offset}")
                for record in batch:
                    keys.append(record.key)
                    values.append(record.value)
                    offsets.append(record.offset)
                    timestamps_ms.append(record.timestamp)
                    types.append(record.timestamp_type)
                if len(offsets) >= ROWS_PER_BATCH:
                    yield to_arrow(keys, values, offsets, timestamps_ms, types, file=file)
                    keys, values, offsets, timestamps_ms, types = [], [], [], [], []
            if offsets:
                yield to_arrow(keys, values, offsets, timestamps_ms, types, file=file)


def to_arrow(
    keys: list[bytes],
    values: list[bytes],
    offsets: list[int],
    timestamps_ms: list[int],
    timestamp_types: list[int],
    *,
    file: dict[str, Any],
) -> pa.RecordBatch:
    """Return one Arrow batch with the columns of Spark's Kafka source from lists."""
    columns = [
        pa.array(keys, pa.binary()),
        pa.array(values, pa.binary()),
        pa.repeat(pa.scalar(file["topic"]), len(offsets)),
        pa.repeat(pa.scalar(file["partition"], pa.int32()), len(offsets)),
        pa.array(offsets, pa.int64()),
        pa.array(timestamps_ms, pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC")),
        pa.array(timestamp_types, pa.int32()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=ARROW_SCHEMA)


def decode_values(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For mapInArrow: the same, hand-written for one column."""
    for files in batches:
        for path in files["path"].to_pylist():
            records = MemoryRecords(Path(path).read_bytes())
            values: list[bytes] = []
            while (batch := records.next_batch()) is not None:
                if not batch.validate_crc():
                    raise ValueError(f"{path}: wrong CRC in the batch at offset {batch.base_offset}")
                values += [record.value for record in batch]
                if len(values) >= ROWS_PER_BATCH:
                    yield pa.RecordBatch.from_arrays([pa.array(values, pa.binary())], names=["value"])
                    values = []
            if values:
                yield pa.RecordBatch.from_arrays([pa.array(values, pa.binary())], names=["value"])


def count_records(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For mapInArrow: the number of records of each file by its batch headers, with CRCs checked."""
    for files in batches:
        counts = [records_in(Path(path).read_bytes()) for path in files["path"].to_pylist()]
        yield pa.RecordBatch.from_arrays([pa.array(counts, pa.int64())], names=["count"])


def records_in(data: bytes) -> int:
    """Return the number of records in the batches of a file."""
    records, count, position = MemoryRecords(data), 0, 0
    while (batch := records.next_batch()) is not None:
        if not batch.validate_crc():
            raise ValueError(f"wrong CRC in the batch at offset {batch.base_offset}")
        count += RECORD_COUNT.unpack_from(data, position + RECORD_COUNT_AT)[0]
        position += LOG_OVERHEAD + RECORD_COUNT.unpack_from(data, position + LENGTH_AT)[0]
    return count


def unpack_flat(values: pa.Array) -> pa.Array:
    """For arrow_udf: the records of each value, with CRCs checked, built from one flat list per field."""
    ends, keys, contents, offsets, timestamps_ms = [0], [], [], [], []
    for value in values.to_pylist():
        records = MemoryRecords(value)
        while (batch := records.next_batch()) is not None:
            if not batch.validate_crc():
                raise ValueError("wrong CRC")
            for record in batch:
                keys.append(record.key)
                contents.append(record.value)
                offsets.append(record.offset)
                timestamps_ms.append(record.timestamp)
        ends.append(len(keys))
    columns = [
        pa.array(keys, pa.binary()),
        pa.array(contents, pa.binary()),
        pa.array(offsets, pa.int64()),
        pa.array(timestamps_ms, pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC")),
    ]
    structs = pa.StructArray.from_arrays(columns, names=["key", "value", "offset", "timestamp"])
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), structs)


def pack_flat(lists: pa.Array) -> pa.Array:
    """For arrow_udf: one batch per list of records, from one flat list per field, with leader epoch -1."""
    structs, ends = lists.values, lists.offsets.to_pylist()
    keys, values = structs.field("key").to_pylist(), structs.field("value").to_pylist()
    timestamps_ms = structs.field("timestamp").to_pylist()
    batches: list[bytes] = []
    for start, end in pairwise(ends):
        builder = DefaultRecordBatchBuilder(
            magic=2,
            compression_type=0,
            is_transactional=False,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            batch_size=MOST_BATCH_BYTES,
        )
        for at in range(start, end):
            builder.append(at - start, timestamps_ms[at], keys[at], values[at], [])
        batch = builder.build()
        EPOCH.pack_into(batch, EPOCH_AT, -1)
        batches.append(bytes(batch))
    return pa.array(batches, pa.binary())


# The ceiling of any Python data source --------------------------------------------------------------------------


def write_ready_made(log_files: list[Path], target: Path, *, topic: str, partition: int) -> None:
    """Write the decoded records of one partition as an Arrow file, in batches of about 3 MiB."""
    part = target.with_suffix(".part")
    with pa.ipc.new_file(part, ARROW_SCHEMA) as writer:
        for log_file in log_files:
            files = pa.RecordBatch.from_pylist([{"path": str(log_file), "topic": topic, "partition": partition}])
            table = pa.Table.from_batches(decode_files(iter([files]))).combine_chunks()
            rows = max(1, READY_BATCH_BYTES * table.num_rows // table.nbytes)
            writer.write_table(table, max_chunksize=rows)
    part.rename(target)


@cache
def ready_made_batches(path: str, columns: tuple[str, ...]) -> tuple[pa.RecordBatch, ...]:
    """Return the batches of an Arrow file, which a worker maps once and never decodes again."""
    reader = pa.ipc.open_file(pa.memory_map(path))
    return tuple(reader.get_batch(i).select(list(columns)) for i in range(reader.num_record_batches))


class ReadyMadeTask(InputPartition):
    """Consecutive batches of one Arrow file."""

    def __init__(self, path: str, *, first: int, count: int) -> None:
        super().__init__(path)
        self.path = path
        self.first = first
        self.count = count


class ReadyMadeReader(DataSourceReader):
    def __init__(self, schema: StructType, options: dict[str, str]) -> None:
        self._columns = tuple(schema.fieldNames())
        self._paths: list[str] = json.loads(options["paths"])
        self._tasks_per_path = int(options["tasksperpath"])

    def partitions(self) -> list[InputPartition]:
        tasks: list[InputPartition] = []
        for path in self._paths:
            batch_count = len(ready_made_batches(path, self._columns))
            step = -(-batch_count // self._tasks_per_path)
            tasks += [ReadyMadeTask(path, first=first, count=step) for first in range(0, batch_count, step)]
        return tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, ReadyMadeTask):
            raise TypeError(f"expected a ReadyMadeTask, got {type(partition).__name__}")
        batches = ready_made_batches(partition.path, self._columns)
        return iter(batches[partition.first : partition.first + partition.count])


class ReadyMadeSource(DataSource):
    """A data source that only yields existing batches: the fastest possible one in Python."""

    @classmethod
    def name(cls) -> str:
        return "ready_made"

    def schema(self) -> str:
        return ALL_COLUMNS

    def reader(self, schema: StructType) -> DataSourceReader:
        return ReadyMadeReader(schema, dict(self.options))


class Counted(WriterCommitMessage):
    """The rows of one task of CountingSink."""

    def __init__(self, rows: int) -> None:
        self.rows = rows


class CountingWriter(DataSourceArrowWriter):
    """Counts the rows that Spark sends."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Counted:
        return Counted(sum(batch.num_rows for batch in iterator))


class CountingSink(DataSource):
    """A sink that only counts: the fastest possible one in Python."""

    @classmethod
    def name(cls) -> str:
        return "counting"

    def writer(self, schema: StructType, overwrite: object) -> DataSourceWriter:
        del schema, overwrite
        return CountingWriter()


class Staged(WriterCommitMessage):
    """The file that one task of StagingByHand wrote."""

    def __init__(self, path: str) -> None:
        self.path = path


def write_pieces(file: FileIO, data: memoryview) -> None:
    """Write all of a buffer."""
    done = 0
    while done < len(data):
        done += file.write(data[done : done + PIECE_BYTES])


class StagingByHandWriter(DataSourceArrowWriter):
    """Writes the bytes of the columns as they are to a file a task, fsynced, and joins the files in the commit: what
    a sink that shows a write whole or not at all has to do besides encoding.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        path = os.path.join(self._directory, uuid.uuid4().hex)
        with open(path, "wb", buffering=0) as file:
            for batch in iterator:
                for column in batch.columns:
                    for buffer in column.buffers():
                        if buffer is not None:
                            write_pieces(file, memoryview(buffer))
            os.fdatasync(file.fileno())
        return Staged(path)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        buffer = bytearray(PIECE_BYTES)
        with open(os.path.join(self._directory, "joined"), "wb", buffering=0) as joined:
            for message in messages:
                if isinstance(message, Staged):
                    with open(message.path, "rb", buffering=0) as file:
                        while count := file.readinto(buffer):
                            joined.write(memoryview(buffer)[:count])
                    os.unlink(message.path)
            os.fdatasync(joined.fileno())


class StagingByHand(DataSource):
    """A sink that stages and commits bytes without encoding them; option `directory`."""

    @classmethod
    def name(cls) -> str:
        return "staging_by_hand"

    def writer(self, schema: StructType, overwrite: object) -> DataSourceWriter:
        del schema, overwrite
        return StagingByHandWriter(self.options["directory"])
