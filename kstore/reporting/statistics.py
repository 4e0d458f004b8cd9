"""LogStatistics: sizes, rates, codecs and keys of one log, gathered batch by batch in bounded memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from kstore._core import RECORD_BATCH_OVERHEAD, iterate_records
from kstore.compression import codec_name, decompress
from kstore.types import MAGIC_V2, NO_TIMESTAMP, TimestampType

if TYPE_CHECKING:
    from kstore._core import BatchHeader
    from kstore.compression import Payload
    from kstore.config import LogConfig
    from kstore.record.batches import RecordBatch

_FIRST_BUCKET_MS = 1000
_MOST_BUCKETS = 64
# An int: to compare one with a member of an enum takes several times as long, for each batch.
_CREATE_TIME = int(TimestampType.CREATE_TIME)
_SHOWN_KEY_BYTES = 64
_WHOLE_KEY_BYTES = 128

# A key; of a long one, which would take too much memory, its start, its size and a hash.
KeyId: TypeAlias = "bytes | tuple[bytes, int, bytes]"


class KeyWeight(NamedTuple):
    """A key with the number of its records, and their bytes of keys and values.

    Both are lower bounds: key_bytes_at_most is the upper one, equal to them unless keys were dropped.
    """

    key: bytes
    key_size: int
    records: int
    size_in_bytes: int
    at_most_bytes: int


class LargestKeys:
    """The keys whose records take the most bytes; at most 2 * `most` keys are counted at a time.

    Counts are exact up to that many keys. Beyond it the lightest keys are dropped: a key that comes again may have had
    up to floor_bytes before, and no key with more bytes than that is missing.
    Attributes: floor_bytes.  Source: Metwally et al., "Efficient computation of frequent and top-k elements", 2005.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._counts: dict[KeyId, list[int]] = {}
        self.floor_bytes = 0

    def add(self, key: bytes, size_in_bytes: int) -> None:
        """Count a record of a key."""
        known: KeyId = (
            key
            if len(key) <= _WHOLE_KEY_BYTES
            else (key[:_SHOWN_KEY_BYTES], len(key), blake2b(key, digest_size=16).digest())
        )
        count = self._counts.get(known)
        if count is None:
            if len(self._counts) >= 2 * self._most:
                self._drop()
            self._counts[known] = [size_in_bytes, 1, self.floor_bytes]
        else:
            count[0] += size_in_bytes
            count[1] += 1

    def top(self, count: int) -> list[KeyWeight]:
        """Return the heaviest keys, the heaviest first; equal ones by key."""
        weights = [
            KeyWeight(
                known if isinstance(known, bytes) else known[0],
                len(known) if isinstance(known, bytes) else known[1],
                records,
                size,
                size + before,
            )
            for known, (size, records, before) in self._counts.items()
        ]
        return sorted(weights, key=lambda weight: (-weight.size_in_bytes, weight.key))[:count]

    def _drop(self) -> None:
        kept = sorted(self._counts.items(), key=lambda item: item[1][0] + item[1][2], reverse=True)
        self.floor_bytes = max(self.floor_bytes, sum(kept[self._most][1][::2]))
        self._counts = dict(kept[: self._most])


class Rates:
    """Records and bytes by time, in at most 64 intervals of equal length: one second, doubled as the time grows.

    A batch counts at its largest timestamp.
    Attributes: bucket_ms (the length of an interval), buckets (start in ms -> [records, bytes]).
    """

    def __init__(self) -> None:
        self.bucket_ms = _FIRST_BUCKET_MS
        self.buckets: dict[int, list[int]] = {}

    def add(self, timestamp_ms: int, *, records: int, size_in_bytes: int) -> None:
        """Count a batch."""
        start = timestamp_ms - timestamp_ms % self.bucket_ms
        bucket = self.buckets.get(start)
        if bucket is not None:
            bucket[0] += records
            bucket[1] += size_in_bytes
            return
        self.buckets[start] = [records, size_in_bytes]
        while len(self.buckets) > _MOST_BUCKETS:
            self._double()

    def widen(self, most: int, *, within: range) -> None:
        """Make the intervals longer until at most so many, also empty ones, are between the first and the last.

        Args: within: the starts in ms that count as first and last.
        """
        starts = [start for start in self.buckets if start in within]
        while starts and max(starts) - min(starts) >= most * self.bucket_ms:
            self._double()

    def _double(self) -> None:
        before, self.buckets = self.buckets, {}
        self.bucket_ms *= 2
        for start, (records, size) in before.items():
            bucket = self.buckets.setdefault(start - start % self.bucket_ms, [0, 0])
            bucket[0] += records
            bucket[1] += size


@dataclass
class CodecWeight:
    """The batches of one codec: their bytes in the log, and those of their records before and after compression.

    The latter two count batches of magic 2 only, whose header is not compressed, and are 0 where nothing was decoded.
    """

    batches: int = 0
    size_in_bytes: int = 0
    compressed_bytes: int = 0
    uncompressed_bytes: int = 0

    @property
    def ratio(self) -> float | None:
        """Compressed size / uncompressed size, as of Kafka's compression-rate; None if it is not known."""
        return self.compressed_bytes / self.uncompressed_bytes if self.uncompressed_bytes else None


@dataclass
class LogStatistics:
    """The statistics of a log. Control batches count as batches, but not their records.

    records: None if a batch that was not decoded has no record count. tombstones, records_without_key,
    largest_record_bytes and record_sizes (of key and value; records by the number of bits of the size): of decoded
    batches.
    """

    keys: LargestKeys
    batches: int = 0
    control_batches: int = 0
    records: int | None = 0
    tombstones: int = 0
    records_without_key: int = 0
    largest_record_bytes: int = 0
    record_sizes: Counter[int] = field(default_factory=Counter)
    first_timestamp_ms: int | None = None
    last_timestamp_ms: int | None = None
    rates: Rates = field(default_factory=Rates)
    by_codec: dict[int, CodecWeight] = field(default_factory=dict)

    @property
    def codecs(self) -> Mapping[str, CodecWeight]:
        """The codecs by name, in the order of Kafka's ids."""
        return {codec_name(codec): self.by_codec[codec] for codec in sorted(self.by_codec)}

    def add(self, batch: RecordBatch, *, config: LogConfig | None) -> None:
        """Count a batch.

        Args: config: limits what is decoded; None to use the header only.
        Raises: InvalidRecordError, DecompressionError, UnsupportedCompressionTypeError, MemoryLimitError.
        """
        header = batch.header
        count = header.record_count
        if config is not None and not header.is_control:
            count = self._decode(batch, self.by_codec.setdefault(header.codec, CodecWeight()), config)
        self.add_header(header, count)

    def add_header(self, header: BatchHeader, count: int | None) -> None:
        """Count a batch by its header; count: of its records, None if that is not known."""
        self.batches += 1
        codec = self.by_codec.get(header.codec)
        if codec is None:
            codec = self.by_codec[header.codec] = CodecWeight()
        codec.batches += 1
        codec.size_in_bytes += header.size_in_bytes
        if header.is_control:
            self.control_batches += 1
            return
        if count is None or self.records is None:
            self.records = None
        else:
            self.records += count
        self._note_time(header, count or 0)

    def _note_time(self, header: BatchHeader, count: int) -> None:
        last_ms = header.max_timestamp_ms
        if last_ms == NO_TIMESTAMP:
            return
        # The other field is a producer's clock, or a delete horizon.
        first_ms = last_ms
        if header.timestamp_type == _CREATE_TIME and not header.has_delete_horizon:
            base_ms = header.base_timestamp_ms
            if base_ms != NO_TIMESTAMP:
                first_ms = base_ms
        known_ms = self.first_timestamp_ms
        if known_ms is None or first_ms < known_ms:
            self.first_timestamp_ms = first_ms
        known_ms = self.last_timestamp_ms
        if known_ms is None or last_ms > known_ms:
            self.last_timestamp_ms = last_ms
        self.rates.add(last_ms, records=count, size_in_bytes=header.size_in_bytes)

    def _decode(self, batch: RecordBatch, codec: CodecWeight, config: LogConfig) -> int:
        """Count the records of a batch, and return their number."""
        header = batch.header
        sizes = [0]
        records = iterate_records(
            bytes(batch),
            position=batch.position,
            path=batch.path,
            topic_partition=batch.topic_partition,
            decompress=partial(_decompressed, sizes),
            max_decompressed_bytes=config.max_decompressed_bytes,
            verify_crc=False,
            headers=False,
        )
        count, add = 0, self.keys.add
        for record in records:
            key, value = record.key, record.value
            size = (0 if value is None else len(value)) + (0 if key is None else len(key))
            count += 1
            self.record_sizes[size.bit_length()] += 1
            if size > self.largest_record_bytes:
                self.largest_record_bytes = size
            if key is None:
                self.records_without_key += 1
            else:
                self.tombstones += value is None
                add(key, size)
        if header.magic == MAGIC_V2:
            payload = header.size_in_bytes - RECORD_BATCH_OVERHEAD
            codec.compressed_bytes += payload
            codec.uncompressed_bytes += sizes[0] or payload
        return count


def _decompressed(sizes: list[int], codec_id: int, payload: Payload, limit: int, *, magic: int = MAGIC_V2) -> Payload:
    data = decompress(codec_id, payload, limit, magic=magic)
    sizes[0] += len(data)
    return data
