"""MemoryRecords: a run of record batches in one buffer (ByteBufferMessageSet of old)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kstore._core import LOG_OVERHEAD, Record
from kstore.config import LogConfig
from kstore.record.batch import RecordBatch
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from typing_extensions import Buffer

_DEFAULTS = LogConfig()
_HEADER_SIZE_UP_TO_MAGIC = LOG_OVERHEAD + 5
_MAGIC_V2 = 2
# Of a V0 message; a size below it is damage, even where the magic is cut off.
_LEAST_BATCH_SIZE = LOG_OVERHEAD + 14


class MemoryRecords:
    """A run of batches of any magic, mixed or not, over any buffer: shallow by batches(), deep by iteration.

    Args: position: where the buffer starts in its file (for errors and RecordBatch.position).
    Lifetime: batches hold slices of the buffer, no copy.  Threads: safe to share.
    Source: Kafka MemoryRecords, ByteBufferLogInputStream.
    """

    def __init__(
        self,
        buffer: Buffer,
        *,
        position: int = 0,
        path: str | None = None,
        topic_partition: TopicPartition | None = None,
        config: LogConfig = _DEFAULTS,
    ) -> None:
        view = memoryview(buffer)
        self._view = view if view.readonly and view.format == "B" and view.ndim == 1 else view.cast("B").toreadonly()
        self._position = position
        self._path = path
        self._topic_partition = topic_partition
        self._config = config

    @property
    def size_in_bytes(self) -> int:
        """All bytes, an incomplete last batch included."""
        return len(self._view)

    @property
    def buffer(self) -> memoryview:
        """All bytes, read-only, without a copy."""
        return self._view

    @property
    def valid_bytes(self) -> int:
        """Bytes of the whole batches.  Cost: O(batches)."""
        return sum(batch.size_in_bytes for batch in self.batches())

    def batches(self) -> Iterator[RecordBatch]:
        """Iterate the batches; an incomplete last one with a known magic ends the iteration, as in Kafka.

        Raises: CorruptRecordError, UnsupportedMagicError with the position. The CRC is not checked here.
        """
        view, at = self._view, 0
        while len(view) - at >= LOG_OVERHEAD:
            size = int.from_bytes(view[at + 8 : at + LOG_OVERHEAD], "big", signed=True) + LOG_OVERHEAD
            has_magic = len(view) - at >= _HEADER_SIZE_UP_TO_MAGIC
            if not has_magic and size >= _LEAST_BATCH_SIZE:
                return
            is_incomplete = size > len(view) - at and size <= self._config.max_batch_bytes
            if has_magic and is_incomplete and view[at + _HEADER_SIZE_UP_TO_MAGIC - 1] <= _MAGIC_V2:
                return
            end = at + size if size > _HEADER_SIZE_UP_TO_MAGIC else len(view)
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

    def __iter__(self) -> Iterator[Record]:
        for batch in self.batches():
            yield from batch

    def __bytes__(self) -> bytes:
        return bytes(self._view)

    def __len__(self) -> int:
        return len(self._view)
