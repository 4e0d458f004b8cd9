"""RecordBatch: one record batch of any magic over the bytes it was read from. Format: docs/format.md#record-batch."""

from __future__ import annotations

from kstore import _core
from kstore._core import BatchHeader, RecordIterator
from kstore.compression import CompressionType, decompress
from kstore.config import LogConfig
from kstore.types import TimestampType, TopicPartition

_DEFAULTS = LogConfig()
# A look-up takes a tenth of what a call of the enumeration does, and each plain message is a batch.
_COMPRESSION_TYPES = {int(one): one for one in CompressionType}
_TIMESTAMP_TYPES = {int(one): one for one in TimestampType}


class RecordBatch:
    """One record batch: its header as properties, its bytes verbatim, its Records by iteration.

    A message of magic 0 or 1 is a batch of its own, of one record or, as a compressed wrapper, of those inside it. Its
    producer fields and leader epoch are -1; base and largest timestamp are that of the message, -1 in magic 0.
    Args: buffer: exactly the bytes of the batch; position: where it starts in its file (for errors).
    Raises: CorruptRecordError, UnsupportedMagicError if the header can't be right.
    Lifetime: keeps the buffer; iteration copies keys and values out of it.  Threads: safe to share.
    Source: Kafka DefaultRecordBatch, AbstractLegacyRecordBatch.
    """

    __slots__ = ("_base_offset", "_buffer", "_config", "_verified", "header", "path", "topic_partition")

    def __init__(
        self,
        buffer: bytes | memoryview,
        *,
        position: int = 0,
        path: str | None = None,
        topic_partition: TopicPartition | None = None,
        config: LogConfig = _DEFAULTS,
    ) -> None:
        self._buffer = buffer
        self._config = config
        self._base_offset: int | None = None
        self._verified = False
        self.path = path
        self.topic_partition = topic_partition
        self.header: BatchHeader = _core.read_header(
            buffer, position=position, path=path, max_batch_bytes=config.max_batch_bytes
        )

    @property
    def position(self) -> int:
        return self.header.position

    @property
    def size_in_bytes(self) -> int:
        return self.header.size_in_bytes

    @property
    def base_offset(self) -> int:
        """The offset of the first record; of magic 2 also if compaction removed that record.

        Raises: of a wrapper, as records() does.  Cost: of a wrapper, once, its decompression.
        """
        if self._base_offset is None:
            has_it = self.header.has_base_offset
            self._base_offset = self.header.base_offset if has_it else self.records(verify=False).first_offset
        return self._base_offset

    @property
    def last_offset(self) -> int:
        return self.header.last_offset

    @property
    def next_offset(self) -> int:
        return self.header.last_offset + 1

    @property
    def record_count(self) -> int | None:
        """What the header says; None for a wrapper, whose records only iteration counts."""
        return self.header.record_count

    @property
    def magic(self) -> int:
        return self.header.magic

    @property
    def compression(self) -> CompressionType:
        """Raises: ValueError for an id that Kafka does not define (then iteration raises a typed error)."""
        codec = self.header.codec
        known = _COMPRESSION_TYPES.get(codec)
        return CompressionType(codec) if known is None else known

    @property
    def timestamp_type(self) -> TimestampType:
        return _TIMESTAMP_TYPES[self.header.timestamp_type]

    @property
    def base_timestamp_ms(self) -> int:
        return self.header.base_timestamp_ms

    @property
    def max_timestamp_ms(self) -> int:
        return self.header.max_timestamp_ms

    @property
    def delete_horizon_ms(self) -> int | None:
        """When tombstones or the marker may go (KIP-534); None if compaction has not set it."""
        return self.header.base_timestamp_ms if self.header.has_delete_horizon else None

    @property
    def producer_id(self) -> int:
        return self.header.producer_id

    @property
    def producer_epoch(self) -> int:
        return self.header.producer_epoch

    @property
    def base_sequence(self) -> int:
        return self.header.base_sequence

    @property
    def partition_leader_epoch(self) -> int:
        return self.header.partition_leader_epoch

    @property
    def is_transactional(self) -> bool:
        return self.header.is_transactional

    @property
    def is_control(self) -> bool:
        return self.header.is_control

    @property
    def crc(self) -> int:
        """The stored CRC, unsigned: CRC-32C, or CRC-32 in magic 0 and 1."""
        return self.header.crc

    def verify(self) -> None:
        """Check length and CRC.

        Raises: CorruptRecordError with expected (stored) and found (computed) CRC.  Cost: O(bytes), once.
        """
        if not self._verified:
            _core.check_crc(self._buffer, position=self.position, path=self.path)
            self._verified = True

    def records(self, *, verify: bool = True, checks_offsets: bool = True, headers: bool = True) -> RecordIterator:
        """Return an iterator over the Records, control records included.

        Args: verify: check the CRC first, and those of the messages inside a wrapper as they come (which Kafka's
            iteration does not); checks_offsets: refuse messages inside a wrapper whose offsets do not fit it;
            headers: False leaves them out of the Records, checked like the rest.
        Raises: CorruptRecordError, InvalidRecordError, DecompressionError, UnsupportedCompressionTypeError,
            MemoryLimitError for more headers in one record than config.max_decompressed_bytes allows.
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
        )

    def __iter__(self) -> RecordIterator:
        return self.records()

    def __len__(self) -> int:
        count = self.header.record_count
        return sum(1 for _ in self.records(verify=False, headers=False)) if count is None else max(count, 0)

    def __bytes__(self) -> bytes:
        return bytes(self._buffer)

    def __repr__(self) -> str:
        return (
            f"RecordBatch(position={self.position}, size_in_bytes={self.size_in_bytes}, "
            f"magic={self.magic}, last_offset={self.last_offset}, record_count={self.record_count})"
        )
