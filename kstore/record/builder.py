"""MemoryRecordsBuilder: one record batch, made record by record. Format: docs/format.md#record-batch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from kstore._core import (
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    RECORD_BATCH_OVERHEAD,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    ColumnBuffer,
    Record,
    RecordBatchEncoder,
)
from kstore.compression import CompressionType, compress, level_of
from kstore.config import MAX_INT32, MIB
from kstore.errors import UnsupportedMagicError
from kstore.record.control import ControlRecordType, control_record_key, end_transaction_marker_value
from kstore.record.memory_records import MemoryRecords
from kstore.types import (
    MAX_OFFSET,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TimestampType,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer

_MAGIC_V2 = 2
_NONE = CompressionType.NONE
_CREATE_TIME = TimestampType.CREATE_TIME
_LOG_APPEND_TIME = TimestampType.LOG_APPEND_TIME
_MAX_INT16 = 2**15 - 1
_FIRST_CAPACITY_BYTES = 16 * 1024
# Kafka's margin for a batch that compresses worse than the last ones.
_COMPRESSION_RATIO_ESTIMATION_FACTOR = 1.05


class RecordsInfo(NamedTuple):
    """What the log keeps of a batch: its largest timestamp (ms) and the offset its time index gives for it, or -1."""

    max_timestamp_ms: int
    shallow_offset_of_max_timestamp: int


class MemoryRecordsBuilder(RecordBatchEncoder):
    """Make one V2 record batch: append() records, then build() MemoryRecords; see RecordBatchEncoder.append.

    Args:
        compression: none, gzip, snappy, lz4 or zstd; level: None for Kafka's default.
        log_append_time_ms: with TimestampType.LOG_APPEND_TIME, the timestamp that all records get.
        producer_id, producer_epoch, base_sequence: of an idempotent producer; all three or none.
        delete_horizon_ms: when compaction may drop the tombstones (KIP-534).
        write_limit_bytes: size at which the batch counts as full; append does not ask, has_room_for and is_full do.
    Raises: ValueError if the arguments contradict each other; UnsupportedMagicError for magic 0 and 1, which are not
        written yet.
    Threads: not safe.
    Source: Kafka MemoryRecordsBuilder.
    """

    def __init__(
        self,
        *,
        magic: int = _MAGIC_V2,
        compression: str | CompressionType = "none",
        level: int | None = None,
        timestamp_type: TimestampType = _CREATE_TIME,
        base_offset: int = 0,
        log_append_time_ms: int = NO_TIMESTAMP,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        is_transactional: bool = False,
        is_control: bool = False,
        partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
        delete_horizon_ms: int | None = None,
        write_limit_bytes: int = MAX_INT32,
    ) -> None:
        _check_magic(magic)
        if timestamp_type not in (_CREATE_TIME, _LOG_APPEND_TIME):
            raise ValueError(f"timestamp_type must be CREATE_TIME or LOG_APPEND_TIME, got {timestamp_type!r}")
        _check_range("log_append_time_ms", log_append_time_ms, most=MAX_OFFSET)
        _check_range("partition_leader_epoch", partition_leader_epoch, most=MAX_INT32)
        _check_range("write_limit_bytes", write_limit_bytes, least=0, most=MAX_INT32)
        super().__init__(
            base_offset=base_offset,
            is_control=is_control,
            delete_horizon_ms=delete_horizon_ms,
            capacity_bytes=min(write_limit_bytes, MIB) if write_limit_bytes < MAX_INT32 else _FIRST_CAPACITY_BYTES,
        )
        self.magic = magic
        self.compression = (
            compression if isinstance(compression, CompressionType) else CompressionType.for_name(compression)
        )
        if level is not None:
            level_of(self.compression, level)
        self.level = level
        self.timestamp_type = timestamp_type
        self.log_append_time_ms = log_append_time_ms
        self.partition_leader_epoch = partition_leader_epoch
        self.write_limit_bytes = write_limit_bytes
        self.estimated_compression_ratio = 1.0
        self._has_delete_horizon = delete_horizon_ms is not None
        self._batch = memoryview(b"")  # header and payload, once the records are taken
        self._built: MemoryRecords | None = None
        self._is_aborted = False
        self._set_producer_state(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            is_transactional=is_transactional,
        )

    @property
    def is_closed(self) -> bool:
        """Whether the batch is written, so that only reopen_and_rewrite_producer_state can change it."""
        return self._built is not None

    @property
    def is_full(self) -> bool:
        """Whether no record should be appended any more: it was closed for that, or the write limit is reached."""
        return not self.is_open or (self.record_count > 0 and self.write_limit_bytes <= self.estimated_size_in_bytes)

    @property
    def uncompressed_size_in_bytes(self) -> int:
        """Header and records, before compression."""
        return RECORD_BATCH_OVERHEAD + self.records_size_in_bytes

    @property
    def estimated_size_in_bytes(self) -> int:
        """The size of the batch if it is closed, else what it would probably be if it were closed now.

        estimated_compression_ratio, 1.0 unless it is set, is what the caller knows of the topic's data.
        """
        if self._built is not None:
            return self._built.size_in_bytes
        if self.compression == _NONE:
            return self.uncompressed_size_in_bytes
        ratio = self.estimated_compression_ratio * _COMPRESSION_RATIO_ESTIMATION_FACTOR
        return RECORD_BATCH_OVERHEAD + int(self.records_size_in_bytes * ratio)

    @property
    def compression_ratio(self) -> float:
        """Size of the payload by size of the records; 1.0 until the batch is closed."""
        if self._built is None or not self.record_count:
            return 1.0
        return (len(self._batch) - RECORD_BATCH_OVERHEAD) / self.records_size_in_bytes

    @property
    def info(self) -> RecordsInfo:
        """The largest timestamp and the offset that stands for it: the last one, as in all formats that compress."""
        last_offset = self.last_offset
        max_timestamp_ms = self._batch_max_timestamp_ms
        if last_offset is None or max_timestamp_ms == NO_TIMESTAMP:
            return RecordsInfo(max_timestamp_ms, -1)
        return RecordsInfo(max_timestamp_ms, last_offset)

    @property
    def _batch_max_timestamp_ms(self) -> int:
        is_append_time = self.timestamp_type == _LOG_APPEND_TIME
        return self.log_append_time_ms if is_append_time else self.max_timestamp_ms

    def has_room_for(
        self,
        record: Record | None = None,
        /,
        *,
        timestamp_ms: int | None = None,
        key: Buffer | None = None,
        value: Buffer | None = None,
        headers: Iterable[tuple[str, Buffer | None]] = (),
    ) -> bool:
        """Say whether one more record fits the write limit; the first always does, others count uncompressed.

        Args: as of append.
        """
        if self.is_full:
            return False
        size = self.record_size(record, timestamp_ms=timestamp_ms, key=key, value=value, headers=headers)
        return not self.record_count or self.write_limit_bytes >= self.estimated_size_in_bytes + size

    def append_control_record(
        self, control_type: ControlRecordType, value: bytes | None, *, timestamp_ms: int
    ) -> MemoryRecordsBuilder:
        """Append a control record at the next offset and return self.

        Raises: ValueError as append, and for ControlRecordType.UNKNOWN.
        """
        key = control_record_key(control_type)
        record = Record(offset=self.next_offset, timestamp_ms=timestamp_ms, key=key, value=value, is_control=True)
        return self.append(record)

    def append_end_transaction_marker(
        self, control_type: ControlRecordType, *, timestamp_ms: int, coordinator_epoch: int
    ) -> MemoryRecordsBuilder:
        """Append the marker that ends a transaction, ABORT or COMMIT, and return self.

        Raises: ValueError as append, for another type, or if the batch has no producer id or is not transactional.
        """
        if self.producer_id == NO_PRODUCER_ID:
            raise ValueError("an end transaction marker needs a producer id")
        if not self.is_transactional:
            raise ValueError("an end transaction marker needs a transactional batch")
        value = end_transaction_marker_value(control_type, coordinator_epoch=coordinator_epoch)
        return self.append_control_record(control_type, value, timestamp_ms=timestamp_ms)

    def set_producer_state(
        self, *, producer_id: int, producer_epoch: int, base_sequence: int, is_transactional: bool
    ) -> None:
        """Set what the header says of the producer.

        Raises: ValueError if the batch is closed: sequence numbers are given when it is sent the first time.
        """
        if self._built is not None:
            raise ValueError("the batch is closed: its producer state can only be rewritten by reopening it")
        self._set_producer_state(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            is_transactional=is_transactional,
        )

    def reopen_and_rewrite_producer_state(
        self, *, producer_id: int, producer_epoch: int, base_sequence: int, is_transactional: bool
    ) -> None:
        """Set the producer state of a batch that may be closed; the next close writes a new header, with a new CRC.

        Nothing is compressed again. MemoryRecords built before keep their bytes.
        Raises: ValueError if it was aborted.
        """
        if self._is_aborted:
            raise ValueError("the batch was aborted: it can't be reopened")
        self._set_producer_state(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            is_transactional=is_transactional,
        )
        if self._built is not None and self.record_count:
            self._batch = _copy_of(self._batch)
        self._built = None

    def close_for_record_appends(self) -> None:
        """Take no more records, and compress them now; the producer state can still be set."""
        if not self.is_open:
            return
        records = memoryview(self.take())
        if self.compression != _NONE and self.record_count:
            payload = compress(self.compression, records[RECORD_BATCH_OVERHEAD:], self.level)
            self._batch = memoryview(ColumnBuffer(RECORD_BATCH_OVERHEAD + len(payload)))
            self._batch[RECORD_BATCH_OVERHEAD:] = payload
        else:
            self._batch = records

    def close(self) -> None:
        """Write the batch; without a record there are no bytes. Closing again does nothing.

        Raises: ValueError if it was aborted or its producer state contradicts itself.
        """
        self.build()

    def build(self) -> MemoryRecords:
        """Close the batch and return it; the same object until it is reopened.

        Raises: ValueError as close.
        Lifetime: the MemoryRecords own their bytes, nothing that happens to the builder changes them.
        """
        if self._is_aborted:
            raise ValueError("the batch was aborted: it can't be closed")
        if self._built is None:
            self._check_producer_state()
            self.close_for_record_appends()
            self._built = self._seal() if self.record_count else MemoryRecords(b"")
        return self._built

    def _seal(self) -> MemoryRecords:
        self.seal(
            self._batch,
            attributes=self._attributes,
            max_timestamp_ms=self._batch_max_timestamp_ms,
            partition_leader_epoch=self.partition_leader_epoch,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=self.base_sequence,
        )
        return MemoryRecords(self._batch)

    def abort(self) -> None:
        """Drop the records; the builder can't be used again."""
        if self.is_open:
            self.take()
        self._batch = memoryview(b"")
        self._is_aborted = True

    @property
    def _attributes(self) -> int:
        is_append_time = self.timestamp_type == _LOG_APPEND_TIME
        return (
            self.compression
            | (TIMESTAMP_TYPE_BIT if is_append_time else 0)
            | (TRANSACTIONAL_BIT if self.is_transactional else 0)
            | (CONTROL_BIT if self.is_control else 0)
            | (DELETE_HORIZON_BIT if self._has_delete_horizon else 0)
        )

    def _set_producer_state(
        self, *, producer_id: int, producer_epoch: int, base_sequence: int, is_transactional: bool
    ) -> None:
        _check_range("producer_id", producer_id, most=MAX_OFFSET)
        _check_range("producer_epoch", producer_epoch, most=_MAX_INT16)
        _check_range("base_sequence", base_sequence, most=MAX_INT32)
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.is_transactional = is_transactional

    def _check_producer_state(self) -> None:
        if self.producer_id == NO_PRODUCER_ID:
            if self.is_transactional:
                raise ValueError("a transactional batch needs a producer id")
            return
        if self.producer_epoch == NO_PRODUCER_EPOCH:
            raise ValueError(f"producer {self.producer_id} needs a producer epoch")
        if self.base_sequence == NO_SEQUENCE and not self.is_control:
            raise ValueError(f"producer {self.producer_id} needs a base sequence unless the batch is a control batch")


def _check_magic(magic: int) -> None:
    if magic in (0, 1):
        error = UnsupportedMagicError(f"magic {magic} is not written yet: expected {_MAGIC_V2}, got {magic}")
        error.magic = magic
        raise error
    if magic != _MAGIC_V2:
        raise ValueError(f"magic must be {_MAGIC_V2}, got {magic}")


def _check_range(name: str, value: int, *, least: int = -1, most: int) -> None:
    if not least <= value <= most:
        raise ValueError(f"{name} must be from {least} to {most}, got {value}")


def _copy_of(batch: memoryview) -> memoryview:
    copy = memoryview(ColumnBuffer(len(batch)))
    copy[:] = batch
    return copy
