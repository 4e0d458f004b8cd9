"""Columns in Arrow's layout to runs of V2 batches, without a Python object per record.

kstore.arrow.pack_record_batch takes Arrow data; this module takes plain buffers, for example Arrow's or NumPy's.
Format: docs/format.md#record-batch.
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
    """int64 numbers in native byte order, one per row; row 0 is element `start`. validity: bits, 0 for null."""

    data: Buffer
    validity: Buffer | None = None
    start: int = 0


class BinaryColumn(NamedTuple):
    """Byte strings: element i is data[offsets[i]:offsets[i + 1]]; row 0 is element `start`.

    offsets: int32 or int64 in native byte order (offset_bytes 4 or 8). validity: bits, least significant first, 0 for
    null; None if no element is null.
    """

    offsets: Buffer
    data: Buffer
    validity: Buffer | None = None
    start: int = 0
    offset_bytes: int = 4


class HeadersColumn(NamedTuple):
    """Lists of headers: element i has the elements offsets[i] to offsets[i + 1] of keys and values.

    Elements of keys and of values count from the `start` of each. A null list counts as empty; keys are UTF-8 and not
    null.
    """

    offsets: Buffer
    keys: BinaryColumn
    values: BinaryColumn
    validity: Buffer | None = None
    start: int = 0
    offset_bytes: int = 4


class RecordColumns(NamedTuple):
    """The columns of row_count records.

    timestamp: a column, or one number for all records; units_per_ms is the number of its units in a millisecond (1: ms,
    1000: microseconds, rounded down); null becomes -1 ms. offset: None for consecutive offsets. A column that is None
    is null in every row.
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
    """Pack records into V2 batches; return an iterator over runs of complete batches of about run_bytes each.

    Args:
        base_offset: the offset of the first record; with an offset column, the least valid first offset.
        batch_bytes: a batch ends before the record that would make it larger than this, uncompressed; a larger record
            gets a batch of its own. MAX_INT32 gives one batch of all records, up to the limit of a batch.
        base_sequence: that of the first batch; the sequence numbers of later batches follow, modulo 2^31.
        The others are those of MemoryRecordsBuilder.
    Raises: ValueError at once for arguments or buffers that do not match, and for buffers with gaps or with items that
        are neither bytes nor native integers of the expected size. During iteration, with the row: for offsets that do
        not rise, timestamps below -1 ms, indexes out of range, header keys that are null or not UTF-8, and a record of
        2^31 bytes or more.
    Lifetime: the columns' buffers are held until the end; runs own their bytes.  Threads: one at a time; the GIL is
        released.  Cost: one pass; memory for one run and one batch.
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
    """Pack each group of consecutive rows into one V2 batch; yield the batches, b"" for an empty group.

    Args: counts: the number of rows of each group; base_offset: that of each batch. The others are those of
        pack_columns.
    Raises: as pack_columns, with rows counted from the start of their group; ValueError for a group too large for a
        batch.
    Lifetime: a batch owns its bytes, and possibly a larger block of memory.  Cost: one pass.
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
