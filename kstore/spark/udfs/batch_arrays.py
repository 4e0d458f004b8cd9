"""Unpack, inspect and pack record batches that are the values of an Arrow array.

This is the work of the UDFs of kstore.spark.udfs in a Python worker, independent of Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from kstore import _core
from kstore.arrow import record_columns, schema
from kstore.arrow.assembler import Assembler, Projection
from kstore.compression import codec_name
from kstore.config import MAX_INT32, LogConfig
from kstore.errors import KStoreError
from kstore.log.files.columns import column_decoder
from kstore.record.batches import RecordBatch
from kstore.record.packing import pack_groups
from kstore.types import NO_TIMESTAMP

if TYPE_CHECKING:
    import pyarrow as pa

TABLE_BYTES = 1024 * 1024
MOST_TABLE_BYTES = 64 * 1024 * 1024
# Spark's lists, and the binary columns in them, have int32 offsets.
MOST_BYTES = MAX_INT32
_CONFIG = LogConfig()


class Unpacker:
    """Decodes the record batches of many values into one sequence of rows. A value is added as a whole or not at all.

    Batches are independent: offsets need not increase from one batch to the next. Control batches give no rows.
    Args: table_bytes: approximate size in bytes of the tables that rows are decoded into; finish() joins the tables.
    Threads: not thread-safe.
    """

    def __init__(self, columns: Sequence[str], *, table_bytes: int) -> None:
        self._table_bytes = table_bytes
        self._projection = Projection(schema(columns), verify_crc=True)
        self._assembler = Assembler(self._projection)
        self._decoder = self._new_decoder()
        self._tables: list[pa.RecordBatch] = []
        self._rows_taken = 0
        self._size_in_bytes = 0
        # The values added since the last table: the rows in the decoder are exactly theirs.
        self._since_take: list[memoryview] = []
        self.row_count = 0

    def add(self, value: memoryview) -> int:
        """Decode one value and return its number of records.

        Raises: as ColumnDecoder.run, after which nothing of the value is kept; ValueError if all rows together exceed
            2 GiB.
        """
        rows_taken = self._rows_taken
        try:
            self._decode(value)
        except KStoreError:
            self._drop_damaged()
            raise
        rows_before, self.row_count = self.row_count, self._rows_taken + self._decoder.row_count
        if self._rows_taken > rows_taken:
            self._take()
        else:
            self._since_take.append(value)
        return self.row_count - rows_before

    def add_all(self, values: pa.Array) -> list[int | None]:
        """Decode all values of a binary array in place; return the offsets of a list array, None where a null starts.

        Requires: nothing was added yet; are_contiguous(values).
        Raises: as add, with positions relative to the array's first byte; the Unpacker can't be used after that.
        """
        places, data = value_places(values)
        self._decoder.start_file(position=0, end_position=0)
        self._decoder.feed(data, 0)
        ends: list[int | None] = [0]
        for number, is_null in enumerate(values.is_null().to_pylist()):
            position, end = (0, 0) if is_null else places[number : number + 2]
            while position < end:
                batch_end = position + _core.batch_size_at(data[position:end], 0)
                self._decoder.start_file(position=position, end_position=batch_end, keeps_chunk=True)
                while self._decoder.run() != "done":
                    self._take()
                position = batch_end
            if is_null:
                ends[-1] = None
            ends.append(self._rows_taken + self._decoder.row_count)
        return ends

    def finish(self) -> pa.StructArray:
        """Return the rows of all values as one struct array; copies if there are several tables."""
        import pyarrow as pa

        self._take()
        table = pa.Table.from_batches(self._tables, self._projection.schema)
        arrays = [column.combine_chunks() if column.num_chunks != 1 else column.chunk(0) for column in table.columns]
        return pa.StructArray.from_arrays(arrays, fields=list(self._projection.schema))

    def _new_decoder(self) -> _core.ColumnDecoder:
        return column_decoder(self._projection.selection, batch_bytes=self._table_bytes, config=_CONFIG, start_offset=0)

    def _decode(self, value: memoryview) -> None:
        for position, size in batch_places(value):
            self._decoder.start_file(position=position, end_position=position + size)
            self._decoder.feed(value[position : position + size], position)
            while self._decoder.run() != "done":
                self._take()

    def _take(self) -> None:
        if self._decoder.row_count:
            table = self._assembler.record_batch(self._decoder.take())
            self._size_in_bytes += table.nbytes
            _check_size(self._size_in_bytes, "records")
            self._tables.append(table)
            self._rows_taken += table.num_rows
        self._since_take.clear()

    def _drop_damaged(self) -> None:
        """Return to the end of the last good value. Values added since the last table are decoded again."""
        while self._rows_taken > self.row_count:
            last = self._tables.pop()
            self._rows_taken -= last.num_rows
            if self._rows_taken < self.row_count:
                kept = last.slice(0, self.row_count - self._rows_taken)
                self._tables.append(kept)
                self._rows_taken += kept.num_rows
        self._decoder = self._new_decoder()
        for value in self._since_take:
            self._decode(value)
        self._take()


def batch_places(value: memoryview) -> Iterator[tuple[int, int]]:
    """Yield position and size in bytes of each batch in a value, which must hold whole batches only.

    Raises: CorruptRecordError, UnsupportedMagicError.
    """
    position = 0
    while position < len(value):
        size = _core.batch_size_at(value, position)
        yield position, size
        position += size


def are_contiguous(values: pa.Array) -> bool:
    """True if the values of a binary array are contiguous, with offsets; those of a view or of fixed size are not."""
    import pyarrow as pa

    return bool(pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type))


def value_places(values: pa.Array) -> tuple[list[int], memoryview]:
    """Return the n+1 offsets of the values of a binary array and the bytes that they point into, without a copy.

    Requires: are_contiguous(values).
    """
    import pyarrow as pa

    if not len(values):
        return [0], memoryview(b"")
    _, offsets, data = values.buffers()
    places = memoryview(offsets).cast("B").cast("q" if pa.types.is_large_binary(values.type) else "i")
    places = places[values.offset : values.offset + len(values) + 1]
    return places.tolist(), memoryview(b"" if data is None else data).cast("B")


def views(values: pa.Array) -> Iterator[memoryview | None]:
    """Yield the bytes of each value of a binary array, None for null, without a copy."""
    for value in values:
        buffer = value.as_buffer()
        yield None if buffer is None else memoryview(buffer).cast("B")


def unpack(values: pa.Array, columns: Sequence[str], *, is_permissive: bool) -> pa.Array:
    """Return the records of each value as a list, null for null; see kstore.spark.udfs.unpack_batches.

    The values are decoded in place first. If one is damaged, they are decoded again one by one, to find out which.
    """
    import pyarrow as pa

    # All rows of uncompressed values usually fit into one table, which finish() then need not copy.
    table_bytes = min(max(TABLE_BYTES, 2 * values.nbytes), MOST_TABLE_BYTES)
    unpacker = Unpacker(columns, table_bytes=table_bytes)
    reasons: list[str | None] = [None] * len(values)
    ends: list[int | None] | None = None
    if are_contiguous(values):
        with suppress(KStoreError):
            ends = unpacker.add_all(values)
    if ends is None:
        unpacker = Unpacker(columns, table_bytes=TABLE_BYTES)
        ends = _add_each(unpacker, values, reasons, is_permissive=is_permissive)
    records = unpacker.finish()
    kind = pa.list_(pa.field("element", records.type))
    lists = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), records, type=kind)
    if not is_permissive:
        return lists
    return pa.StructArray.from_arrays([lists, pa.array(reasons, pa.string())], names=["records", "error"])


def _add_each(
    unpacker: Unpacker, values: pa.Array, reasons: list[str | None], *, is_permissive: bool
) -> list[int | None]:
    """Add the values one by one, so that an error belongs to one value; return the offsets of the list array."""
    ends: list[int | None] = [0]
    for number, view in enumerate(views(values)):
        try:
            if view is None:
                ends[-1] = None
            else:
                unpacker.add(view)
        except KStoreError as error:
            if not is_permissive:
                raise
            ends[-1] = None
            reasons[number] = describe(error)
        ends.append(unpacker.row_count)
    return ends


def describe(error: KStoreError) -> str:
    """Return the text of the `error` field of a damaged value: the class of the error and its message."""
    return f"{type(error).__name__}: {error}"


def are_crcs_right(value: memoryview) -> bool:
    """True if a value consists of whole batches whose CRCs are correct."""
    try:
        for position, size in batch_places(value):
            _core.check_crc(value[position : position + size], position=position)
    except KStoreError:
        return False
    return True


def crc_ok(values: pa.Array) -> pa.Array:
    """Return a bool array: whether the CRCs of each value are correct, null for null."""
    import pyarrow as pa

    return pa.array([None if view is None else are_crcs_right(view) for view in views(values)], pa.bool_())


def info(values: pa.Array, *, is_permissive: bool) -> pa.Array:
    """Return the header fields of the first batch of each value; see kstore.spark.udfs.batch_info."""
    import pyarrow as pa

    rows: list[dict[str, Any] | None] = []
    for view in views(values):
        try:
            rows.append(None if view is None else first_batch(view))
        except KStoreError as error:
            if not is_permissive:
                raise
            rows.append({"error": describe(error)})
    fields = [(name, pa.type_for_alias(kind)) for name, (kind, _) in BATCH_INFO.items()]
    fields.append(("batches", pa.int32()))
    return pa.array(rows, pa.struct([*fields, ("error", pa.string())] if is_permissive else fields))


def first_batch(value: memoryview) -> dict[str, Any] | None:
    """Return the header fields of the first batch, by the names of BATCH_INFO; None if there is no batch.

    Raises: CorruptRecordError, UnsupportedMagicError if the value does not consist of whole batches.
    """
    places = list(batch_places(value))
    if not places:
        return None
    position, size = places[0]
    header = RecordBatch(value[position : position + size]).header
    return {name: get(header) for name, (_, get) in BATCH_INFO.items()} | {"batches": len(places)}


# Kafka's names, as `kstore dump --json` prints them.
BATCH_INFO: dict[str, tuple[str, Callable[[_core.BatchHeader], Any]]] = {
    "magic": ("int8", lambda header: header.magic),
    "size": ("int32", lambda header: header.size_in_bytes),
    "baseOffset": ("int64", lambda header: header.base_offset if header.has_base_offset else None),
    "lastOffset": ("int64", lambda header: header.last_offset),
    "count": ("int32", lambda header: header.record_count),
    "codec": ("string", lambda header: codec_name(header.codec)),
    "timestampType": ("int32", lambda header: header.timestamp_type),
    "baseTimestamp": ("int64", lambda header: header.base_timestamp_ms),
    "maxTimestamp": ("int64", lambda header: header.max_timestamp_ms),
    "producerId": ("int64", lambda header: header.producer_id),
    "producerEpoch": ("int16", lambda header: header.producer_epoch),
    "baseSequence": ("int32", lambda header: header.base_sequence),
    "isTransactional": ("bool", lambda header: header.is_transactional),
    "isControl": ("bool", lambda header: header.is_control),
    "leaderEpoch": ("int32", lambda header: header.partition_leader_epoch),
    "crc": ("int64", lambda header: header.crc),
}


def pack(values: pa.ListArray, **options: Any) -> pa.Array:
    """Return one record batch for each list of records: null for null, an empty value for an empty list.

    Only the PACKED_FIELDS of a record are used; a missing timestamp is -1.
    Args: options: those of pack_groups.
    Raises: as pack_groups; ValueError for a null record and if all batches together exceed 2 GiB.
    """
    import pyarrow as pa

    records = values.flatten()
    if records.null_count:
        raise ValueError("a record must not be null")
    columns = {name: records.field(name) for name in PACKED_FIELDS if records.type.get_field_index(name) >= 0}
    if "timestamp" not in columns:
        columns["timestamp"] = pa.repeat(pa.scalar(NO_TIMESTAMP, pa.int64()), len(records))
    table = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
    counts = values.value_lengths().to_pylist()
    data, ends = bytearray(), [0]
    for batch in pack_groups(record_columns(table), (count or 0 for count in counts), **options):
        data += batch
        ends.append(len(data))
    _check_size(len(data), "batches")
    validity = pa.array([count is not None for count in counts], pa.bool_()).buffers()[1] if values.null_count else None
    return pa.Array.from_buffers(
        pa.binary(), len(counts), [validity, pa.array(ends, pa.int32()).buffers()[1], pa.py_buffer(data)]
    )


def _check_size(size_in_bytes: int, what: str) -> None:
    if size_in_bytes > MOST_BYTES:
        raise ValueError(
            f"the {what} of one Arrow batch exceed {MOST_BYTES} bytes: "
            "lower spark.sql.execution.arrow.maxRecordsPerBatch"
        )


PACKED_FIELDS = ("key", "value", "timestamp", "headers", "offset")
