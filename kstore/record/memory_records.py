"""MemoryRecords: a run of record batches in one buffer (ByteBufferMessageSet of old)."""

from __future__ import annotations

from collections.abc import Iterator

from kstore._core import (
    LOG_OVERHEAD,
    MAGIC_POSITION,
    MESSAGE_TIMESTAMP_POSITION,
    AppendSurvey,
    Record,
    RecordsBuffer,
    iterate_run,
    survey_replicated,
)
from kstore.compression import decompress
from kstore.record.batch import RecordBatch

# Offset, size, CRC and magic: what any entry has to show before its kind is known.
SIZE_UP_TO_MAGIC = MAGIC_POSITION + 1
# By magic: with the sizes of key and value, and in V1 the timestamp, behind the attributes.
LEAST_MESSAGE_SIZES = (MESSAGE_TIMESTAMP_POSITION + 8, MESSAGE_TIMESTAMP_POSITION + 16)
_MAGIC_V2 = 2
# A size below it is damage, even where the magic is cut off.
_LEAST_BATCH_SIZE = LEAST_MESSAGE_SIZES[0]


class MemoryRecords(RecordsBuffer):
    """A run of batches of any magic, mixed or not, over any buffer: shallow by batches(), deep by iteration.

    Args: position: where the buffer starts in its file (for errors and RecordBatch.position).
    Lifetime: batches hold slices of the buffer, no copy.  Threads: safe to share.
    Source: Kafka MemoryRecords, ByteBufferLogInputStream.
    """

    __slots__ = ()

    @property
    def valid_bytes(self) -> int:
        """Bytes of the whole batches.  Cost: O(batches)."""
        return sum(batch.size_in_bytes for batch in self.batches())

    def batches(self) -> Iterator[RecordBatch]:
        """Iterate the batches; an incomplete last one with a known magic ends the iteration, as in Kafka.

        Raises: CorruptRecordError, UnsupportedMagicError with the position. The CRC is not checked here.
        """
        view, at = self.buffer, 0
        while len(view) - at >= LOG_OVERHEAD:
            size = int.from_bytes(view[at + 8 : at + LOG_OVERHEAD], "big", signed=True) + LOG_OVERHEAD
            has_magic = len(view) - at >= SIZE_UP_TO_MAGIC
            if not has_magic and size >= _LEAST_BATCH_SIZE:
                return
            is_incomplete = size > len(view) - at and size <= self._config.max_batch_bytes
            if has_magic and is_incomplete and view[at + MAGIC_POSITION] <= _MAGIC_V2:
                return
            end = at + size if size > SIZE_UP_TO_MAGIC else len(view)
            yield RecordBatch(
                view[at:end],
                position=self._position + at,
                path=self._path,
                topic_partition=self._topic_partition,
                config=self._config,
            )
            at = end

    def verify(self) -> None:
        """Check length and CRC of every batch, not the records inside them; an incomplete last one is passed over.

        Raises: CorruptRecordError, UnsupportedMagicError with the position.  Cost: O(bytes).
        """
        for batch in self.batches():
            batch.verify()

    def survey(self) -> AppendSurvey:
        """Check header and CRC of every whole batch, and return what a log has to know of them.

        Raises: CorruptRecordError, InvalidRecordError, Unsupported...Error with the position.
        Cost: O(bytes) for the CRC; looks at no record.
        """
        return survey_replicated(
            self.buffer, max_batch_bytes=self._config.max_batch_bytes, path=self._path, position=self._position
        )

    def __iter__(self) -> Iterator[Record]:
        """Iterate the Records of all batches, each batch verified before its first one.

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
