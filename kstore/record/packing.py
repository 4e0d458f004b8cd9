"""Columns in Arrow's layout -> runs of V2 batches, no Python object per record. Format: docs/format.md#record-batch.

kstore.arrow.pack_record_batch takes Arrow data; this module knows buffers alone, Arrow's or NumPy's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from kstore._core import RecordBatchPacker
from kstore.compression import CompressionType, compress, level_of
from kstore.config import MAX_INT32
from kstore.record.batches import MemoryRecords
from kstore.types import NO_PARTITION_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, TimestampType

if TYPE_CHECKING:
    from typing_extensions import Buffer

DEFAULT_BATCH_BYTES = 16 * 1024
DEFAULT_RUN_BYTES = 256 * 1024


class Int64Column(NamedTuple):
    """int64 numbers in native byte order, one per row from element `start` on; validity: bits, 0 for null."""

    data: Buffer
    validity: Buffer | None = None
    start: int = 0


class BinaryColumn(NamedTuple):
    """Byte strings: that of element i is data[offsets[i]:offsets[i + 1]]; row 0 is element `start`.

    offsets: int32 or int64 in native byte order (offset_bytes 4 or 8); validity: bits, least significant first, 0 for
    null, None where no element is null.
    """

    offsets: Buffer
    data: Buffer
    validity: Buffer | None = None
    start: int = 0
    offset_bytes: int = 4


class HeadersColumn(NamedTuple):
    """Lists of headers: those of element i are elements offsets[i] to offsets[i + 1] of keys and values, both counted
    from their own `start`. A null list is an empty one; keys are UTF-8 and never null."""

    offsets: Buffer
    keys: BinaryColumn
    values: BinaryColumn
    validity: Buffer | None = None
    start: int = 0
    offset_bytes: int = 4


class RecordColumns(NamedTuple):
    """The columns of row_count records.

    timestamp: numbers, or one for all, in units_per_ms to the millisecond (1: ms, 1000: microseconds, rounded down);
    null is -1 ms. offset: None to count. A column that is None is null in every row.
    """

    row_count: int
    timestamp: Int64Column | int
    key: BinaryColumn | None = None
    value: BinaryColumn | None = None
    headers: HeadersColumn | None = None
    offset: Int64Column | None = None
    units_per_ms: int = 1


def pack_columns(
    columns: RecordColumns,
    *,
    base_offset: int = 0,
    batch_bytes: int = DEFAULT_BATCH_BYTES,
    run_bytes: int = DEFAULT_RUN_BYTES,
    compression: str | CompressionType = "none",
    level: int | None = None,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    log_append_time_ms: int = -1,
    partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
) -> Iterator[MemoryRecords]:
    """Pack records into V2 batches; iterate them in runs of about run_bytes, each some whole batches.

    Args:
        base_offset: offset of the first record; where there is an offset column, what its first one must reach.
        batch_bytes: a batch ends before the record that would take it, uncompressed, above this size; one record that
            is larger alone has a batch of its own. MAX_INT32 makes one batch of all that a batch can hold.
        base_sequence: of the first batch; the next one goes on behind the last sequence, modulo 2^31.
        The others are those of MemoryRecordsBuilder.
    Raises: ValueError at once for arguments or buffers that don't fit together, and for buffers with gaps, or of items
        that are neither bytes nor the native integers asked for; while iterating, with the row, for offsets that don't
        rise, timestamps below -1 ms, indexes outside their data, header keys that are null or not UTF-8, and a record
        of 2^31 bytes or more.
    Lifetime: the columns' buffers are held until the end; runs own their bytes.  Threads: one at a time; the GIL is
        released.  Cost: one pass, memory of one run and one batch.
    """
    codec = _codec_of(compression, level)
    packer = RecordBatchPacker(
        **columns._asdict(),
        base_offset=base_offset,
        batch_bytes=batch_bytes,
        run_bytes=run_bytes,
        codec_id=codec,
        level=level,
        timestamp_type=timestamp_type,
        log_append_time_ms=log_append_time_ms,
        partition_leader_epoch=partition_leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        is_transactional=is_transactional,
    )
    return _runs_of(packer)


def pack_groups(
    columns: RecordColumns,
    counts: Iterable[int],
    *,
    base_offset: int = 0,
    compression: str | CompressionType = "none",
    level: int | None = None,
) -> Iterator[Buffer]:
    """Pack each group of rows that follow one another into one V2 batch; iterate them, no bytes for a group of none.

    Args: counts: the rows of each group; base_offset: of each batch. The others are those of pack_columns.
    Raises: as pack_columns, rows counted from the start of their group; ValueError for more than a batch can hold.
    Lifetime: a batch owns its bytes, and memory for many more.  Cost: one pass.
    """
    codec = _codec_of(compression, level)
    packer = RecordBatchPacker(**columns._asdict(), batch_bytes=MAX_INT32, run_bytes=1, codec_id=codec, level=level)
    first = 0
    for count in counts:
        packer.restart(first=first, count=count, base_offset=base_offset)
        batch = packer.next_run(compress)
        if packer.rows_left:
            raise ValueError(f"{count} records are more than one record batch can hold")
        yield b"" if batch is None else batch
        first += count


def _codec_of(compression: str | CompressionType, level: int | None) -> CompressionType:
    codec = compression if isinstance(compression, CompressionType) else CompressionType.for_name(compression)
    if level is not None:
        level_of(codec, level)
    return codec


def _runs_of(packer: RecordBatchPacker) -> Iterator[MemoryRecords]:
    while (run := packer.next_run(compress)) is not None:
        yield MemoryRecords(run)
