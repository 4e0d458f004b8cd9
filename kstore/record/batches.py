"""Record batches over the bytes they were read from: RecordBatch, MemoryRecords (a run of them), and changes in place.

Format: docs/format.md#record-batch.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from kstore import _core
from kstore._core import (
    ATTRIBUTES_POSITION,
    CRC_POSITION,
    MAGIC_POSITION,
    MAX_TIMESTAMP_POSITION,
    MESSAGE_ATTRIBUTES_POSITION,
    MESSAGE_CRC_POSITION,
    MESSAGE_TIMESTAMP_POSITION,
    TIMESTAMP_TYPE_BIT,
    AppendSurvey,
    BatchHeader,
    MemoryRecordsCore,
    Record,
    RecordIterator,
    assign_offsets,
    batch_size_at,
    crc32c,
    iterate_run,
    patch_batch_header,
    set_last_offset,
    set_partition_leader_epoch,
    survey_replicated,
)
from kstore.compression import CompressionType, decompress
from kstore.config import LogConfig, config_or_default
from kstore.errors import KStoreError
from kstore.types import MAX_OFFSET, NO_TIMESTAMP, TimestampType, TopicPartition

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["assign_offsets", "patch_batch_header", "set_last_offset", "set_max_timestamp", "set_partition_leader_epoch"]

_MOST_SHOWN_BATCHES = 1000
# A dict lookup takes a tenth of the time of a call of the enumeration, and each plain message is a batch.
_COMPRESSION_TYPES = {int(codec): codec for codec in CompressionType}
_TIMESTAMP_TYPES = {int(kind): kind for kind in TimestampType}


class RecordBatch:
    """One record batch: its header as properties, its bytes verbatim, its Records by iteration.

    A message of magic 0 or 1 counts as a batch: of one record, or, if it is a compressed wrapper, of the records inside
    it. Its producer fields and leader epoch are -1; base and largest timestamp are those of the message, -1 in magic 0.
    Attributes: path, topic_partition: of the file that it was read from, else None.
    Args: buffer: exactly the bytes of the batch; position: its position in its file in bytes (for errors);
        allows_low_last_offset: iteration accepts a last offset below those of the records, as Kafka's classes do.
    Raises: CorruptRecordError, UnsupportedMagicError if the header is invalid.
    Lifetime: keeps the buffer; iteration copies keys and values; pickling copies the bytes.  Threads: safe to share.
    Source: Kafka DefaultRecordBatch, AbstractLegacyRecordBatch.
    """

    __slots__ = (
        "_allows_low_last_offset",
        "_base_offset",
        "_buffer",
        "_config",
        "_verified",
        "header",
        "path",
        "topic_partition",
    )

    def __init__(
        self,
        buffer: bytes | memoryview,
        *,
        position: int = 0,
        path: str | None = None,
        topic_partition: TopicPartition | None = None,
        config: LogConfig | None = None,
        allows_low_last_offset: bool = False,
    ) -> None:
        self._buffer = buffer
        self._allows_low_last_offset = allows_low_last_offset
        self._config = config = config_or_default(config)
        self._base_offset: int | None = None
        self._verified = False
        self.path = path
        self.topic_partition = topic_partition
        self.header: BatchHeader = _core.read_header(
            buffer, position=position, path=path, max_batch_bytes=config.max_batch_bytes
        )

    @property
    def position(self) -> int:
        """Its position in its file, in bytes."""
        return self.header.position

    @property
    def size_in_bytes(self) -> int:
        """Its size, header included."""
        return self.header.size_in_bytes

    @property
    def base_offset(self) -> int:
        """The offset of the first record; for magic 2 the base offset, even if compaction removed that record.

        Raises: for a wrapper, as records().  Cost: for a wrapper, one decompression, at the first access.
        """
        if self._base_offset is None:
            has_it = self.header.has_base_offset
            self._base_offset = self.header.base_offset if has_it else self.records(verify=False).first_offset
        return self._base_offset

    @property
    def last_offset(self) -> int:
        """The offset of the last record, or that it had before compaction."""
        return self.header.last_offset

    @property
    def next_offset(self) -> int:
        """The offset after the last one."""
        return self.header.last_offset + 1

    @property
    def record_count(self) -> int | None:
        """The header's record count; None for a wrapper, whose records can only be counted by iterating."""
        return self.header.record_count

    @property
    def magic(self) -> int:
        """The format: 0, 1 or 2."""
        return self.header.magic

    @property
    def compression(self) -> CompressionType:
        """The codec.  Raises: ValueError for an id that Kafka does not define (iteration raises a typed error)."""
        codec = self.header.codec
        known = _COMPRESSION_TYPES.get(codec)
        return CompressionType(codec) if known is None else known

    @property
    def timestamp_type(self) -> TimestampType:
        """Where the timestamps of its records come from."""
        return _TIMESTAMP_TYPES[self.header.timestamp_type]

    @property
    def base_timestamp_ms(self) -> int:
        """The timestamp from which those of its records are counted."""
        return self.header.base_timestamp_ms

    @property
    def max_timestamp_ms(self) -> int:
        """The greatest timestamp of its records, as the header says."""
        return self.header.max_timestamp_ms

    @property
    def delete_horizon_ms(self) -> int | None:
        """The time from which compaction may remove tombstones or the marker (KIP-534); None if it is not set."""
        return self.header.base_timestamp_ms if self.header.has_delete_horizon else None

    @property
    def producer_id(self) -> int:
        """The id of an idempotent producer, else -1."""
        return self.header.producer_id

    @property
    def producer_epoch(self) -> int:
        """The epoch of that producer, else -1."""
        return self.header.producer_epoch

    @property
    def base_sequence(self) -> int:
        """The sequence of its first record, -1 without an idempotent producer."""
        return self.header.base_sequence

    @property
    def partition_leader_epoch(self) -> int:
        """The epoch of the leader that appended it, -1 if unknown."""
        return self.header.partition_leader_epoch

    @property
    def is_transactional(self) -> bool:
        """Whether it is part of a transaction."""
        return self.header.is_transactional

    @property
    def is_control(self) -> bool:
        """Whether it holds markers, and no data."""
        return self.header.is_control

    @property
    def crc(self) -> int:
        """The stored CRC, unsigned: CRC-32C, or CRC-32 for magic 0 and 1."""
        return self.header.crc

    def verify(self) -> None:
        """Check length and CRC.

        Raises: CorruptRecordError with expected (stored) and found (computed) CRC.
        Cost: O(bytes) for the first call; no check after one that passed.
        """
        if not self._verified:
            _core.check_crc(self._buffer, position=self.position, path=self.path)
            self._verified = True

    def records(self, *, verify: bool = True, checks_offsets: bool = True, headers: bool = True) -> RecordIterator:
        """Return an iterator over the Records, control records included.

        Args: verify: check the batch's CRC now, and those of messages inside a wrapper during iteration (Kafka does not
            check the latter); checks_offsets: reject messages inside a wrapper whose offsets do not fit it; headers: if
            False, the Records have no headers, which are still checked.
        Raises: CorruptRecordError, InvalidRecordError, DecompressionError, UnsupportedCompressionTypeError;
            MemoryLimitError if one record has more headers than config.max_decompressed_bytes allows.
        """
        if verify:
            self.verify()
        return _core.iterate_records(
            self._buffer,
            position=self.position,
            path=self.path,
            topic_partition=self.topic_partition,
            decompress=decompress,
            max_decompressed_bytes=self._config.max_decompressed_bytes,
            verify_crc=verify,
            checks_offsets=checks_offsets,
            headers=headers,
            allows_low_last_offset=self._allows_low_last_offset,
        )

    def __iter__(self) -> RecordIterator:
        return self.records()

    def __len__(self) -> int:
        count = self.header.record_count
        return sum(1 for _ in self.records(verify=False, headers=False)) if count is None else max(count, 0)

    def __bytes__(self) -> bytes:
        return bytes(self._buffer)

    def __reduce__(self) -> tuple[object, ...]:
        kind = partial(type(self), allows_low_last_offset=True) if self._allows_low_last_offset else type(self)
        return _restored, (kind, bytes(self), self.position, self.path, self.topic_partition, self._config)

    def __repr__(self) -> str:
        return (
            f"RecordBatch(position={self.position}, size_in_bytes={self.size_in_bytes}, "
            f"magic={self.magic}, last_offset={self.last_offset}, record_count={self.record_count})"
        )


# Offset, size, CRC and magic: the start of any entry.
SIZE_UP_TO_MAGIC = MAGIC_POSITION + 1
# By magic. They include the sizes of key and value and, in V1, the timestamp, all after the attributes.
LEAST_MESSAGE_SIZES = (MESSAGE_TIMESTAMP_POSITION + 8, MESSAGE_TIMESTAMP_POSITION + 16)
# A smaller size is damage, even if the magic is truncated.
_LEAST_BATCH_SIZE = LEAST_MESSAGE_SIZES[0]


class MemoryRecords(MemoryRecordsCore):
    """A run of batches of any magic, possibly mixed, over a buffer: its batches(), or all Records by iteration.

    Args: position: the buffer's position in its file in bytes (for errors and RecordBatch.position).
    Lifetime: batches hold slices of the buffer, no copies; pickling copies the bytes.  Threads: safe to share.
    Source: Kafka MemoryRecords, ByteBufferLogInputStream.
    """

    __slots__ = ()

    @property
    def valid_bytes(self) -> int:
        """The size of the complete batches in bytes.  Cost: O(batches)."""
        return sum(batch.size_in_bytes for batch in self.batches())

    def batches(self) -> Iterator[RecordBatch]:
        """Iterate over the batches. An incomplete last one with a known magic ends the iteration, as in Kafka.

        Raises: CorruptRecordError, UnsupportedMagicError with the position. CRCs are not checked.
        """
        view, at, limit = self.buffer, 0, self._config.max_batch_bytes
        while header := _core.next_header(
            view, at, position=self._position + at, path=self._path, max_batch_bytes=limit
        ):
            end = at + header.size_in_bytes
            yield RecordBatch(
                view[at:end],
                position=header.position,
                path=self._path,
                topic_partition=self._topic_partition,
                config=self._config,
            )
            at = end

    def __repr__(self) -> str:
        fields: dict[str, object] = {}
        count = 0
        try:
            for batch in islice(self.batches(), _MOST_SHOWN_BATCHES):
                if count == 0 and batch.header.has_base_offset:
                    fields["base_offset"] = batch.base_offset
                fields["last_offset"] = batch.last_offset
                count += 1
        except KStoreError as error:
            fields["damage"] = str(error)
        more = "+" if count == _MOST_SHOWN_BATCHES else ""
        shown = "".join(f", {name}={value!r}" for name, value in fields.items())
        return f"MemoryRecords(size_in_bytes={self.size_in_bytes}, batches={count}{more}{shown})"

    def verify(self) -> None:
        """Check length and CRC of every batch, but not its records. An incomplete last batch is ignored.

        Raises: CorruptRecordError, UnsupportedMagicError with the position.  Cost: O(bytes).
        """
        for batch in self.batches():
            batch.verify()

    def survey(self) -> AppendSurvey:
        """Check header and CRC of every complete batch; return the facts that an append needs.

        Raises: CorruptRecordError, InvalidRecordError, UnsupportedError with the position.
        Cost: O(bytes) for the CRC; reads no record.
        """
        return survey_replicated(
            self.buffer, max_batch_bytes=self._config.max_batch_bytes, path=self._path, position=self._position
        )

    def __iter__(self) -> Iterator[Record]:
        """Iterate over the Records of all batches; each batch is verified before its first Record.

        Raises: as batches() and RecordBatch.records().  Lifetime: the Records hold copies.
        """
        return iterate_run(
            self.buffer,
            position=self._position,
            path=self._path,
            topic_partition=self._topic_partition,
            decompress=decompress,
            max_batch_bytes=self._config.max_batch_bytes,
            max_decompressed_bytes=self._config.max_decompressed_bytes,
        )

    def __bytes__(self) -> bytes:
        return bytes(self.buffer)

    def __reduce__(self) -> tuple[object, ...]:
        return _restored, (type(self), bytes(self), self._position, self._path, self._topic_partition, self._config)


def _restored(
    kind: Callable[..., RecordBatch | MemoryRecords],
    data: bytes,
    position: int,
    path: str | None,
    topic_partition: TopicPartition | None,
    config: LogConfig,
) -> RecordBatch | MemoryRecords:
    """Return a pickled RecordBatch or MemoryRecords."""
    return kind(data, position=position, path=path, topic_partition=topic_partition, config=config)


_INT16 = struct.Struct(">h")
_UINT32 = struct.Struct(">I")
_INT64 = struct.Struct(">q")
_KNOWN_MESSAGE_BITS = 0x0F
_KNOWN_BATCH_BITS = 0x7F


def set_max_timestamp(
    buffer: Buffer, at: int = 0, *, max_timestamp_ms: int, timestamp_type: TimestampType = TimestampType.CREATE_TIME
) -> bool:
    """Set timestamp type and largest timestamp of the V1 or V2 batch at buffer[at], in place, and update its CRC.

    With LOG_APPEND_TIME this is the timestamp of all its records. Clears attribute bits that Kafka does not define, as
    Kafka does. A batch that already has both values is not changed.
    Returns: whether the batch was changed.
    Raises: CorruptRecordError, UnsupportedMagicError; ValueError for magic 0, which has no timestamp, a timestamp below
        -1, or another type; TypeError for a read-only buffer.
    Threads: the GIL is released for large batches.  Cost: O(bytes of the batch) for the CRC.
    Source: Kafka MutableRecordBatch.setMaxTimestamp.
    """
    if timestamp_type not in (TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME):
        raise ValueError(f"timestamp_type must be CREATE_TIME or LOG_APPEND_TIME, got {timestamp_type!r}")
    if not NO_TIMESTAMP <= max_timestamp_ms <= MAX_OFFSET:
        raise ValueError(f"max_timestamp_ms must be from {NO_TIMESTAMP} to {MAX_OFFSET}, got {max_timestamp_ms}")
    size = batch_size_at(buffer, at)
    batch = memoryview(buffer).cast("B")[at : at + size]
    if batch.readonly:
        raise TypeError(f"expected a writable buffer, found a read-only {type(buffer).__name__}")
    magic = batch[MAGIC_POSITION]
    if magic == 0:
        raise ValueError(f"the message at position {at} has magic 0, which has no timestamp")
    if magic == 1:
        return _set_message_timestamp(batch, max_timestamp_ms, timestamp_type)
    return _set_batch_timestamp(batch, max_timestamp_ms, timestamp_type)


def _set_message_timestamp(message: memoryview, timestamp_ms: int, timestamp_type: TimestampType) -> bool:
    attributes = message[MESSAGE_ATTRIBUTES_POSITION]
    if (_timestamp_type(attributes), _INT64.unpack_from(message, MESSAGE_TIMESTAMP_POSITION)[0]) == (
        timestamp_type,
        timestamp_ms,
    ):
        return False
    message[MESSAGE_ATTRIBUTES_POSITION] = _with_type(attributes & _KNOWN_MESSAGE_BITS, timestamp_type)
    _INT64.pack_into(message, MESSAGE_TIMESTAMP_POSITION, timestamp_ms)
    _UINT32.pack_into(message, MESSAGE_CRC_POSITION, zlib.crc32(message[MAGIC_POSITION:]))
    return True


def _set_batch_timestamp(batch: memoryview, timestamp_ms: int, timestamp_type: TimestampType) -> bool:
    attributes = _INT16.unpack_from(batch, ATTRIBUTES_POSITION)[0]
    if (_timestamp_type(attributes), _INT64.unpack_from(batch, MAX_TIMESTAMP_POSITION)[0]) == (
        timestamp_type,
        timestamp_ms,
    ):
        return False
    _INT16.pack_into(batch, ATTRIBUTES_POSITION, _with_type(attributes & _KNOWN_BATCH_BITS, timestamp_type))
    _INT64.pack_into(batch, MAX_TIMESTAMP_POSITION, timestamp_ms)
    _UINT32.pack_into(batch, CRC_POSITION, crc32c(batch[ATTRIBUTES_POSITION:]))
    return True


def _timestamp_type(attributes: int) -> TimestampType:
    return TimestampType.LOG_APPEND_TIME if attributes & TIMESTAMP_TYPE_BIT else TimestampType.CREATE_TIME


def _with_type(attributes: int, timestamp_type: TimestampType) -> int:
    cleared = attributes & ~TIMESTAMP_TYPE_BIT
    return cleared | TIMESTAMP_TYPE_BIT if timestamp_type == TimestampType.LOG_APPEND_TIME else cleared
