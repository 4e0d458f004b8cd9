"""MemoryRecordsBuilder: one record batch of any magic, made record by record. Format: docs/format.md."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kstore._core import TIMESTAMP_TYPE_BIT, Record, RecordBatchEncoder
from kstore.compression import LZ4_HEADER_OF_V0, CompressionType, Payload, compress, level_of
from kstore.record.control import ControlRecordType, control_record_key, end_transaction_marker_value
from kstore.record.memory_records import MemoryRecords
from kstore.types import NO_PRODUCER_ID, NO_TIMESTAMP, TimestampType

_MAGIC_V2 = 2
_CODEC_MASK = 0x07


class RecordsInfo(NamedTuple):
    """What the log keeps of a batch: its largest timestamp (ms) and the offset its time index gives for it, or -1."""

    max_timestamp_ms: int
    shallow_offset_of_max_timestamp: int


class MemoryRecordsBuilder(RecordBatchEncoder):
    """Make one record batch: append() records, then build() MemoryRecords; see RecordBatchEncoder.append.

    Args:
        magic: 2; or 1 or 0, whose records are messages one behind the other, or compressed in one wrapper. These
            have no headers, producer state, control records, delete horizon or zstd; the leader epoch says nothing
            there, and the timestamps neither in magic 0.
        compression: none, gzip, snappy, lz4 or zstd; level: None for Kafka's default.
        log_append_time_ms: with TimestampType.LOG_APPEND_TIME, the timestamp that all records get.
        producer_id, producer_epoch, base_sequence: of an idempotent producer; a log takes all three or none.
        delete_horizon_ms: when compaction may drop the tombstones (KIP-534).
        write_limit_bytes: size at which the batch counts as full; append does not ask, has_room_for and is_full do.
    Raises: ValueError if the arguments contradict each other.
    Threads: not safe.
    Source: Kafka MemoryRecordsBuilder.
    """

    __slots__ = ()
    records_type = MemoryRecords

    if TYPE_CHECKING:

        def build(self) -> MemoryRecords: ...

    def codec_id_of(self, compression: str | int, level: int | None) -> int:
        """Return the id of a codec after a look at its level, for the constructor.

        Raises: ValueError for an unknown name or a level that is out of range.
        """
        codec = compression if isinstance(compression, CompressionType) else CompressionType.for_name(str(compression))
        if level is not None:
            level_of(codec, level)
        return codec

    @property
    def compression(self) -> CompressionType:
        return CompressionType(self.attributes & _CODEC_MASK)

    @property
    def timestamp_type(self) -> TimestampType:
        if self.magic == 0:
            return TimestampType.NO_TIMESTAMP_TYPE
        is_append_time = self.attributes & TIMESTAMP_TYPE_BIT
        return TimestampType.LOG_APPEND_TIME if is_append_time else TimestampType.CREATE_TIME

    @property
    def info(self) -> RecordsInfo:
        """The largest timestamp and the offset that stands for it in a time index.

        That of the batch or wrapper is its last one; among plain V1 messages it is that of the message, or with
        LOG_APPEND_TIME the base offset.
        """
        last_offset = self.last_offset
        is_append_time = self.timestamp_type == TimestampType.LOG_APPEND_TIME
        max_timestamp_ms = self.log_append_time_ms if is_append_time else self.max_timestamp_ms
        if last_offset is None or max_timestamp_ms == NO_TIMESTAMP:
            return RecordsInfo(max_timestamp_ms, -1)
        if self.magic == _MAGIC_V2 or self.compression != CompressionType.NONE:
            return RecordsInfo(max_timestamp_ms, last_offset)
        return RecordsInfo(max_timestamp_ms, self.base_offset if is_append_time else self.offset_of_max_timestamp)

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

    def close_for_record_appends(self) -> None:
        """Take no more records, and compress them now; the producer state can still be set."""
        self.end_appends(self.compress_records)

    def close(self) -> None:
        """Write the batch; without a record there are no bytes. Closing again does nothing.

        Raises: ValueError if it was aborted or its producer state contradicts itself.
        """
        self.build()

    def compress_records(self, codec_id: int, records: memoryview, level: int | None) -> Payload:
        """Return the records in a codec, in the framing that the magic asks for."""
        payload = compress(codec_id, records, level)
        if self.magic == 0 and codec_id == CompressionType.LZ4:
            payload = bytearray(payload)
            payload[: len(LZ4_HEADER_OF_V0)] = LZ4_HEADER_OF_V0
        return payload
