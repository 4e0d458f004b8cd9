"""Log: one partition directory, opened for reading.

A Log takes no lock and writes nothing, so it is safe to use next to a running broker. It is a snapshot of the segments
and their sizes at the time of open_log; what a broker appends later is seen by the next Log. If files of the snapshot
are removed or replaced, by retention, compaction or a truncation, the Log takes a new snapshot of the same directory.
Also here: the decoding of keys and values.
"""

from __future__ import annotations

import logging
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

from kstore._core import BatchHeader, check_crc, iterate_records
from kstore.compression import decompress
from kstore.config import MAX_INT64, LogConfig
from kstore.errors import (
    CorruptCheckpointError,
    CorruptionError,
    KStoreError,
    LogClosedError,
    LogReplacedError,
    OffsetOutOfRangeError,
    RecordDeserializationError,
    StorageError,
    UnsupportedError,
    checked_index,
    checked_int,
)
from kstore.log.env import DEFAULT_ENV, ENOENT, Closing, Env, FileStatus, OpenFiles, is_same_file, join_path
from kstore.log.files.checkpoints import OffsetCheckpoints
from kstore.log.files.names import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOCK_FILE,
    LOG_START_OFFSET_CHECKPOINT,
    LOG_SUFFIX,
    SWAP_STATE,
    PartitionDirectory,
    parse_segment_name,
)
from kstore.log.plan import Extent, ScanRange, extents, plan_ranges
from kstore.log.segment.indexes import IndexCache
from kstore.log.segment.records import status_of_segment
from kstore.log.segment.replaced import ERRORS_OF_A_CHANGE, MOST_LOOKS, ListedFile, change_behind, is_settled
from kstore.log.segment.segment import LogContext, LogSegment
from kstore.log.state.transactions import NOTHING_SETTLED, AbortedTransaction, Transactions, settle_transactions
from kstore.record import Record, RecordBatch
from kstore.serializers import deserializer
from kstore.types import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    LATEST_TIERED,
    MAX_OFFSET,
    MAX_TIMESTAMP,
    NO_OFFSET,
    NO_TIMESTAMP,
    OffsetAndTimestamp,
    TopicPartition,
)

if TYPE_CHECKING:
    import pyarrow

Decoder: TypeAlias = Callable[[bytes], Any]


def decoder_of(decoder: Decoder | str | None) -> Decoder | None:
    """Return a callable as it is, or the built-in decoder of that name.

    Raises: ValueError for an unknown name; TypeError for anything that is not callable.
    """
    if isinstance(decoder, str):
        return deserializer(decoder)
    if decoder is not None and not callable(decoder):
        raise TypeError(f"a decoder must be a name or a callable, got {decoder!r}")
    return decoder


def decoded_records(
    records: Iterable[Record],
    *,
    topic_partition: TopicPartition,
    key_decoder: Decoder | None,
    value_decoder: Decoder | None,
) -> Iterator[Record]:
    """Yield the records with keys and values decoded; null stays None and is not passed to a decoder.

    Raises: RecordDeserializationError for any exception of a decoder, which is its cause.
    """
    for record in records:
        key, value = record.key, record.value
        if key is not None and key_decoder is not None:
            key = decode(key, key_decoder, record, topic_partition=topic_partition, origin="key")
        if value is not None and value_decoder is not None:
            value = decode(value, value_decoder, record, topic_partition=topic_partition, origin="value")
        yield Record(
            offset=record.offset,
            timestamp_ms=record.timestamp_ms,
            timestamp_type=record.timestamp_type,
            key=key,
            value=value,
            headers=record.headers,
            topic_partition=record.topic_partition,
            sequence=record.sequence,
            is_control=record.is_control,
        )


def decode(data: bytes, decoder: Decoder, record: Record, *, topic_partition: TopicPartition, origin: str) -> Any:
    """Return decoder(data); raises as decoded_records."""
    try:
        return decoder(data)
    except Exception as error:
        topic, partition = topic_partition
        raise RecordDeserializationError(
            f"cannot decode the {origin} of the record at offset {record.offset} of {topic_partition}: "
            f"{type(error).__name__}: {error}",
            topic=topic,
            partition=partition,
            offset=record.offset,
            timestamp_ms=record.timestamp_ms,
            origin=origin,
        ) from error


DEFAULT_PLAN_BYTES = 128 * 1024 * 1024

Isolation: TypeAlias = Literal["read_uncommitted", "read_committed"]
FetchIsolation: TypeAlias = Literal["read_uncommitted", "high_watermark", "read_committed"]
# The segment, header and bytes of a batch.
RawBatch: TypeAlias = tuple[LogSegment, BatchHeader, bytes]
Found = TypeVar("Found")

_logger = logging.getLogger("kstore.log")
_CHECKPOINTS = OffsetCheckpoints(DEFAULT_ENV)


class Watch(Protocol):
    """Wraps the items that a reader iterates from start_offset on, to detect concurrent truncations.

    reached_by returns the last offset that an item holds, or may hold.
    """

    def __call__(
        self, found: Iterator[Found], start_offset: int, reached_by: Callable[[Found], int], /
    ) -> Iterator[Found]: ...


class FetchData(NamedTuple):
    """The result of a fetch, as a broker's: record bytes, whose last batch may be incomplete, and the log's bounds.

    base_offset is that of the first batch, None if there are no records. With isolation "read_committed" aborted holds
    the transactions whose data in these records a reader must leave out.
    """

    records: bytes
    high_watermark: int | None
    log_start_offset: int
    log_end_offset: int
    base_offset: int | None
    last_stable_offset: int | None = None
    aborted: tuple[AbortedTransaction, ...] = ()


class Log(Closing):
    """The segments of one partition, read by offset or by time; also a context manager that closes it.

    Attributes: topic_partition, path, config.
    Raises: LogClosedError from every method after close(). LogReplacedError if files were replaced, removed or
        truncated since they were listed: from iterators that yielded something before, and from all methods if the path
        belongs to another log by now.
    Threads: thread-safe; each iterator belongs to one thread.  Source: Kafka UnifiedLog, LocalLog.
    """

    def __init__(self, directory: PartitionDirectory, *, config: LogConfig, env: Env = DEFAULT_ENV) -> None:
        self.topic_partition: TopicPartition = directory.topic_partition
        self.path = directory.path
        self.config = config
        self._root = directory.root
        self._env = env
        self._files = OpenFiles(env)
        self._is_closed = False
        self._checkpoints = _CHECKPOINTS if env is DEFAULT_ENV else OffsetCheckpoints(env)
        self._checkpointed: dict[str, int | None] = {}
        self._log_end_offset: int | None = None
        self._transactions: Transactions | None = None
        self._indexes = IndexCache(env)
        self._context = LogContext(
            self.topic_partition, self.path, config, self._files, self._indexes, self._cleaned_below
        )
        self._renewing = threading.Lock()
        self._renewals = 0
        self._directory_status = env.stat(self.path)
        self._segments = self._find_segments()

    def __repr__(self) -> str:
        return f"Log(topic_partition={str(self.topic_partition)!r}, path={self.path!r}, segments={len(self.segments)})"

    def close(self) -> None:
        """Close the files; a second call does nothing."""
        self._is_closed = True
        self._files.close()
        self._indexes.close()

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    @property
    def segments(self) -> tuple[LogSegment, ...]:
        """The segments by base offset."""
        return self._segments

    @property
    def size_in_bytes(self) -> int:
        """The size of all .log files in bytes, including preallocated space."""
        return sum(segment.size_in_bytes for segment in self.segments)

    @property
    def log_start_offset(self) -> int:
        """The first readable offset: the first segment's base offset, or the root's checkpoint if that is higher."""
        first = self.segments[0].base_offset if self.segments else 0
        return max(first, self._checkpoint(LOG_START_OFFSET_CHECKPOINT) or 0)

    @property
    def log_end_offset(self) -> int:
        """The offset after the last whole batch; log_start_offset if that is higher.

        Cost: once, a header walk from the last entry of the last segment's index.
        """
        self._check_open()
        end = self._log_end_offset
        if end is None:
            end = self._unchanged(self._find_end_offset)
        return end

    @property
    def high_watermark(self) -> int | None:
        """The offset up to which all replicas had the records, None if the root's checkpoint has no entry."""
        checkpointed = self._checkpoint(HIGH_WATERMARK_CHECKPOINT)
        if checkpointed is None:
            return None
        return min(max(checkpointed, self.log_start_offset), self.log_end_offset)

    @property
    def last_stable_offset(self) -> int | None:
        """None: finding undecided transactions takes a walk over the whole log; see transactions()."""
        return None

    def transactions(self) -> Transactions:
        """Return the aborted transactions and the last stable offset, for readers with isolation "read_committed".

        Raises: CorruptRecordError, UnsupportedMagicError for damage in the log.
        Cost: once, a header walk over the whole log.
        """
        self._check_open()
        found = self._transactions
        return self._unchanged(self._find_transactions) if found is None else found

    def batches(
        self, start_offset: int | None = None, end_offset: int | None = None, *, max_bytes: int | None = None
    ) -> Iterator[RecordBatch]:
        """Iterate the batches that hold offsets of [start_offset, end_offset), with checked CRC and undecoded records.

        Args: the offsets default to the log's start and end, and an end after the log's end counts as that; max_bytes:
            stop before the total size exceeds this (the first batch is always yielded).
        Raises: OffsetOutOfRangeError at once; CorruptRecordError, UnsupportedMagicError when reached.
        """
        watched = self._watch()
        start, end = self._bounds(start_offset, end_offset)
        if max_bytes is not None:
            max_bytes = checked_int("max_bytes", max_bytes, least=0)
        found = watched(self._raw_batches(start, end_offset=end), start, _last_offset)
        return self._batches(found, max_bytes=max_bytes)

    def read(
        self,
        start_offset: int | None = None,
        end_offset: int | None = None,
        *,
        isolation: Isolation = "read_uncommitted",
        verify: Literal["crc", "header"] = "crc",
        key_decoder: Decoder | str | None = None,
        value_decoder: Decoder | str | None = None,
    ) -> Iterator[Record]:
        """Iterate the records of [start_offset, end_offset); control batches are skipped.

        Args: the offsets default to the log's start and end, and an end after the log's end counts as that; verify:
            "header" skips the CRC check; the decoders are called with each key or value that is not null, and may be
            names of built-in ones ("string"; kstore.serializers); isolation: "read_committed" leaves out aborted
            transactions and ends at the last stable offset.
        Raises: OffsetOutOfRangeError at once; CorruptRecordError, InvalidRecordError, DecompressionError,
            UnsupportedError when reached; RecordDeserializationError if a decoder fails.
        """
        watched = self._watch()
        start, end = self._bounds(start_offset, end_offset)
        if verify not in ("crc", "header"):
            raise ValueError(f'verify must be "crc" or "header", got {verify!r}')
        settled = self._settled(isolation)
        if settled is not None:
            end = min(end, settled.last_stable_offset)
        raw = self._raw_batches(start, end_offset=end, checks_crc=verify == "crc")
        found = watched(raw, start, _last_offset)
        records = self._read(found, start, end_offset=end, checks_crc=verify == "crc", settled=settled)
        if key_decoder is None and value_decoder is None:
            return records
        return decoded_records(
            records,
            topic_partition=self.topic_partition,
            key_decoder=decoder_of(key_decoder),
            value_decoder=decoder_of(value_decoder),
        )

    def fetch(
        self, offset: int, max_bytes: int, *, min_one_batch: bool = True, isolation: FetchIsolation = "read_uncommitted"
    ) -> FetchData:
        """Return record bytes starting with the batch that holds `offset`, as a broker's fetch does, from one segment
        only.

        The bytes end at max_bytes, possibly inside a batch; with min_one_batch the first batch is always whole. They
        are the file's bytes: the reader must check the CRC.
        Args: isolation: where the bytes end (Kafka: FetchIsolation): "read_uncommitted" at the log end, as for a
            follower; "high_watermark" before the batch at the high watermark, as for a consumer (at the log end if the
            log is only read and the root's checkpoint has no entry); "read_committed" before the batch at the last
            stable offset.
        Raises: OffsetOutOfRangeError, also below the first segment, where tiered storage has the records;
            CorruptRecordError, UnsupportedMagicError for damage in the walked range.
        Source: Kafka UnifiedLog.read, LogSegment.read.
        """
        if type(max_bytes) is not int or not 0 <= max_bytes <= MAX_INT64:
            max_bytes = checked_int("max_bytes", max_bytes, least=0)
        if type(offset) is not int:
            offset = checked_index("offset", offset)
        return self._unchanged(
            lambda: self._fetched(offset, max_bytes=max_bytes, min_one_batch=min_one_batch, isolation=isolation)
        )

    def _fetched(self, offset: int, *, max_bytes: int, min_one_batch: bool, isolation: FetchIsolation) -> FetchData:
        self._check_in_range(offset)
        limit, settled = None, None
        if isolation == "high_watermark":
            limit = self.high_watermark
        else:
            settled = self._settled(isolation)
        last_stable_offset = self.last_stable_offset
        if settled is not None:
            limit = last_stable_offset = settled.last_stable_offset
        records, base_offset, end_offset = b"", None, offset
        segments = self._segments_from(offset)
        if segments and offset < segments[0].base_offset:
            raise self._below_segments(offset, first_base_offset=segments[0].base_offset)
        for segment in segments:
            first = segment.translate_offset(offset)
            if first is not None:
                end_position = segment.valid_end_position if limit is None else _position_of(segment, limit)
                size = max(max_bytes, first.size_in_bytes) if min_one_batch else max_bytes
                size = min(size, max(end_position - first.position, 0))
                records = segment.records.read_bytes(size, position=first.position)
                base_offset = segment.records.first_offset(first) if records else None
                if records and settled is not None:
                    walk = segment.records.walk(position=first.position, end_position=first.position + size)
                    end_offset = walk.last_offset + 1
                break
        aborted = settled.aborted_between(start_offset=offset, end_offset=end_offset) if settled and records else ()
        return FetchData(
            records,
            self.high_watermark,
            self.log_start_offset,
            self.log_end_offset,
            base_offset,
            last_stable_offset,
            aborted,
        )

    def offset_for_timestamp(self, timestamp_ms: int) -> OffsetAndTimestamp | None:
        """Return the first record in offset order whose timestamp is >= timestamp_ms; None if there is none.

        Args: timestamp_ms: a time, or one of Kafka's special values: kstore.EARLIEST and EARLIEST_LOCAL for the log
            start, LATEST for the log end, all with timestamp -1 in the result; MAX_TIMESTAMP for the first record with
            the largest timestamp; LATEST_TIERED, for which the result is always None.
        As with a broker's ListOffsets, this may be a control record. A broker searches only one segment and so misses
        records after an emptied one.
        Raises: CorruptRecordError and other errors for damage in the walked range.
        Cost: for MAX_TIMESTAMP, a header walk over the whole log.
        Source: Kafka UnifiedLog.fetchOffsetByTimestamp.
        """
        self._check_open()
        if type(timestamp_ms) is not int or not -MAX_INT64 <= timestamp_ms <= MAX_INT64:
            timestamp_ms = max(checked_int("timestamp_ms", timestamp_ms), -MAX_INT64)
        return self._unchanged(lambda: self._found_by_timestamp(min(timestamp_ms, MAX_OFFSET)))

    def _found_by_timestamp(self, timestamp_ms: int) -> OffsetAndTimestamp | None:
        if LATEST_TIERED <= timestamp_ms < 0:
            special = self._special_offset(timestamp_ms)
            if special is None or special.offset != NO_OFFSET:
                return special
            timestamp_ms = special.timestamp_ms
        start = self.log_start_offset
        if start >= self.log_end_offset:
            return None
        for segment in self._segments_from(start):
            answer = segment.search_timestamp(timestamp_ms, start_offset=start)
            if answer is not None:
                return answer
        return None

    def _special_offset(self, timestamp_ms: int) -> OffsetAndTimestamp | None:
        """Answer one of Kafka's special timestamps; with offset -1, the answer is the first record with that
        timestamp.
        """
        if timestamp_ms in (EARLIEST, EARLIEST_LOCAL):
            return OffsetAndTimestamp(self.log_start_offset, NO_TIMESTAMP)
        if timestamp_ms == LATEST:
            return OffsetAndTimestamp(self.log_end_offset, NO_TIMESTAMP)
        largest = self._largest_timestamp_ms() if timestamp_ms == MAX_TIMESTAMP else NO_TIMESTAMP
        return None if largest == NO_TIMESTAMP else OffsetAndTimestamp(NO_OFFSET, largest)

    def _largest_timestamp_ms(self) -> int:
        """Return the largest timestamp of the records from the log start on, NO_TIMESTAMP if none has one."""
        start, largest = self.log_start_offset, NO_TIMESTAMP
        for segment in self._segments_from(start):
            first = segment.translate_offset(start)
            if first is None:
                continue
            position = first.position
            if segment.base_offset < start and segment.records.first_offset(first) < start:
                # Only some records count in the batch that contains the log start offset.
                position += first.size_in_bytes
                within = self.batches(start, min(first.last_offset + 1, self.log_end_offset))
                records = (record for batch in within for record in batch if record.offset >= start)
                largest = max((record.timestamp_ms for record in records), default=largest)
            scan = segment.records.walk(position=position, end_position=segment.valid_end_position)
            largest = max(largest, scan.max_timestamp_ms)
        return largest

    def plan(
        self,
        max_bytes: int = DEFAULT_PLAN_BYTES,
        start_offset: int | None = None,
        end_offset: int | None = None,
        *,
        isolation: Isolation = "read_uncommitted",
    ) -> list[ScanRange]:
        """Split the records of [start_offset, end_offset) into ranges of about max_bytes for separate workers.

        Together they hold every record exactly once, in order. A range starts and ends at a batch boundary, may span
        several files, and exceeds max_bytes only if a single batch does. To split by offsets, plan each part.
        isolation: as in read().
        Raises: OffsetOutOfRangeError; CorruptRecordError, UnsupportedMagicError for damage that is met.
        Cost: a few reads per range.
        """
        return self._unchanged(lambda: list(self._ranges(max_bytes, start_offset, end_offset, isolation=isolation)))

    def _ranges(
        self, max_bytes: int, start_offset: int | None, end_offset: int | None, *, isolation: Isolation
    ) -> Iterator[ScanRange]:
        """Check the arguments of plan, and return its ranges, which are computed lazily."""
        start, end = self._bounds(start_offset, end_offset)
        max_bytes = checked_int("max_bytes", max_bytes, least=1)
        settled = self._settled(isolation)
        if settled is not None:
            end = max(start, min(end, settled.last_stable_offset))
        ranges = plan_ranges(
            self.segments,
            self.topic_partition,
            path=self.path,
            start_offset=start,
            end_offset=end,
            log_end_offset=self.log_end_offset,
            max_bytes=max_bytes,
        )
        if settled is None:
            return ranges
        return (
            replace(one, aborted=settled.aborted_between(start_offset=one.start_offset, end_offset=one.end_offset))
            for one in ranges
        )

    def _ranges_to_the_end(self, max_bytes: int | None, start: int) -> Iterator[ScanRange]:
        """Yield ranges from an offset to the end of the log, which the reader of the last one finds."""
        return plan_ranges(
            self.segments,
            self.topic_partition,
            path=self.path,
            start_offset=start,
            end_offset=MAX_OFFSET,
            log_end_offset=None,
            max_bytes=max_bytes,
        )

    def scan_ranges(self, max_bytes: int | None = None) -> Iterator[ScanRange]:
        """Yield the ranges of the whole log, of about max_bytes, for one reader that reads all of them.

        Unlike with plan(), the reader of the last one finds the log's end if that saves a header walk. With max_bytes
        None the sizes are chosen to suit.
        Raises: as plan().
        """
        return iter(self._unchanged(lambda: list(self._scan_ranges(max_bytes))))

    def _scan_ranges(self, max_bytes: int | None) -> Iterator[ScanRange]:
        start = self.log_start_offset
        if self._is_read_to_find_its_end(start):
            return self._ranges_to_the_end(max_bytes, start)
        size = DEFAULT_PLAN_BYTES if max_bytes is None else max_bytes
        return self._ranges(size, start, None, isolation="read_uncommitted")

    def to_arrow_batches(
        self,
        start_offset: int | None = None,
        end_offset: int | None = None,
        *,
        columns: list[str] | None = None,
        binary: Literal["copy", "view"] = "copy",
        batch_bytes: int = 1024 * 1024,
        threads: int = 1,
        isolation: Isolation = "read_uncommitted",
    ) -> Iterator[pyarrow.RecordBatch]:
        """Iterate the records of [start_offset, end_offset) as Arrow record batches; see kstore.scan.

        Raises: ImportError without pyarrow; otherwise as read().
        """
        from kstore.arrow import THREAD_RANGE_BYTES, record_batches

        watched = self._watch()
        start = self.log_start_offset if start_offset is None else checked_index("start_offset", start_offset)
        finds_end = end_offset is None and isolation == "read_uncommitted"
        max_bytes = DEFAULT_PLAN_BYTES if threads == 1 else THREAD_RANGE_BYTES
        if finds_end and self._unchanged(lambda: self._is_read_to_find_its_end(start)):
            end = MAX_OFFSET
        else:
            finds_end = False
            start, end = self._bounds(start, end_offset)

        def decoded() -> Iterator[pyarrow.RecordBatch]:
            begin = max(start, self.log_start_offset) if start_offset is None else start
            if finds_end:
                ranges = self._ranges_to_the_end(None if threads == 1 else THREAD_RANGE_BYTES, begin)
            else:
                ranges = self._ranges(max_bytes, begin, end, isolation=isolation)
            return record_batches(
                ranges,
                columns=columns,
                binary=binary,
                batch_bytes=batch_bytes,
                threads=threads,
                config=self.config,
                env=self._env,
            )

        return watched(self._renewed(decoded(), decoded), start, lambda _: end - 1)

    def _is_read_to_find_its_end(self, start: int) -> bool:
        """Whether a scan from an offset should find the log's end itself, which saves a header walk."""
        self._check_open()
        if self._log_end_offset is not None or not self.segments:
            return False
        last = self.segments[-1]
        return self.log_start_offset <= start <= last.base_offset and not last.tells_its_end()

    def _batches(self, found: Iterator[RawBatch], *, max_bytes: int | None) -> Iterator[RecordBatch]:
        size_in_bytes = 0
        try:
            for segment, header, data in found:
                size_in_bytes += header.size_in_bytes
                if max_bytes is not None and header.size_in_bytes < size_in_bytes > max_bytes:
                    return
                batch = RecordBatch(
                    data,
                    position=header.position,
                    path=segment.path,
                    topic_partition=self.topic_partition,
                    config=self.config,
                )
                batch.verify()
                yield batch
        except KStoreError as error:
            self._raise_change_behind(error)
            raise

    def _settled(self, isolation: Isolation) -> Transactions | None:
        if isolation not in ("read_uncommitted", "read_committed"):
            raise ValueError(f'isolation must be "read_uncommitted" or "read_committed", got {isolation!r}')
        return self.transactions() if isolation == "read_committed" else None

    def _read(
        self,
        found: Iterator[RawBatch],
        start_offset: int,
        *,
        end_offset: int,
        checks_crc: bool,
        settled: Transactions | None,
    ) -> Iterator[Record]:
        is_aborted = None if settled is None else settled.aborted_filter()
        read_segment, least_offset = None, 0
        try:
            for segment, header, data in found:
                first_least = segment.base_offset if segment is not read_segment else least_offset
                read_segment, least_offset = segment, header.last_offset + 1
                if header.is_control or (is_aborted is not None and is_aborted(header)):
                    continue
                for record in iterate_records(
                    data,
                    position=header.position,
                    path=segment.path,
                    topic_partition=self.topic_partition,
                    decompress=decompress,
                    max_decompressed_bytes=self.config.max_decompressed_bytes,
                    verify_crc=checks_crc,
                    least_offset=first_least,
                ):
                    if start_offset <= record.offset < end_offset:
                        yield record
        except KStoreError as error:
            self._raise_change_behind(error)
            raise

    def _watch(self) -> Watch:
        """Return the wrapper for everything that is found, and read, from now on."""
        return _let_pass

    def _raw_batches(self, start_offset: int, *, end_offset: int, checks_crc: bool = False) -> Iterator[RawBatch]:
        """Iterate the batches of the current segments."""

        def found() -> Iterator[RawBatch]:
            return _read_extents(
                extents(
                    self.segments, start_offset=start_offset, end_offset=end_offset, log_end_offset=self.log_end_offset
                ),
                checks_crc=checks_crc,
            )

        return self._renewed(found(), found)

    def _unchanged(self, find: Callable[[], Found]) -> Found:
        """Return what `find` returns, from a new snapshot if files were replaced or removed while it ran.

        Raises: what find raises; LogReplacedError if the path belongs to another log, or files change too often.
        """
        looks_left = MOST_LOOKS
        while True:
            renewals = self._renewals
            try:
                return find()
            except ERRORS_OF_A_CHANGE as error:
                looks_left -= 1
                self._renew_after(error, renewals=renewals, looks_left=looks_left)

    def _renewed(self, found: Iterator[Found], find_again: Callable[[], Iterator[Found]]) -> Iterator[Found]:
        """Yield from `found`, or from find_again() in a new snapshot if files changed before anything was yielded."""
        looks_left = MOST_LOOKS
        while True:
            renewals = self._renewals
            try:
                for one in found:
                    looks_left = 0
                    yield one
                return
            except ERRORS_OF_A_CHANGE as error:
                looks_left -= 1
                self._renew_after(error, renewals=renewals, looks_left=looks_left)
            found = find_again()

    def _renew_after(self, error: KStoreError, *, renewals: int, looks_left: int) -> None:
        """Take a new snapshot if an error was caused by a change of the files, else raise it.

        Args: renewals: the number of snapshots taken before the read that failed; looks_left: how many more may be
            taken.
        """
        if self._renewals != renewals and looks_left > 0:
            return
        change = self._change_behind(error)
        if change is None:
            raise error
        if looks_left <= 0:
            raise change from error
        with self._renewing:
            if self._renewals == renewals:
                self._renew(change)

    def renew_listing(self) -> None:
        """Take a new snapshot of the directory.

        Raises: LogReplacedError if it was removed or replaced; StorageError.
        """
        self._check_open()
        with self._renewing:
            self._renew(LogReplacedError(f"{self.path} was removed or replaced: open the log again", path=self.path))

    def renew_after(self, error: KStoreError, *, looks_left: int) -> None:
        """Take a new snapshot if an error of a read was caused by a change of the files since the last one, else raise
        it.
        """
        self._renew_after(error, renewals=self._renewals, looks_left=looks_left)

    def _change_behind(self, error: KStoreError) -> LogReplacedError | None:
        """Return the change of a listed file that caused an error, None if the error means what it says."""
        listed = next((one.listed for one in self.segments if one.path == error.path), None)
        if listed is None and isinstance(error, CorruptionError | UnsupportedError):
            return LogReplacedError(f"{error.path} was removed while it was read: open the log again", path=error.path)
        return change_behind(error, listed, config=self.config, env=self._env)

    def _raise_change_behind(self, error: KStoreError) -> None:
        change = self._change_behind(error)
        if change is not None and change is not error:
            raise change from error

    def _renew(self, change: LogReplacedError) -> None:
        """Take a new snapshot of the directory.

        Raises: the change, if the directory was removed or replaced.
        """
        before, now = self._directory_status, self._env.stat(self.path)
        if before is None or now is None or not is_same_file(before.file, now.file):
            raise change
        for segment in self._segments:
            segment.forget_files()
        try:
            self._segments = self._find_segments()
        except StorageError as error:
            if error.errno == ENOENT:
                raise change from error
            raise
        self._renewals += 1
        self._log_end_offset = self._transactions = None
        self._checkpointed = {}

    def _find_end_offset(self) -> int:
        renewals = self._renewals
        end = max(self._segments_end_offset(), self.log_start_offset)
        if renewals == self._renewals:
            self._log_end_offset = end
        return end

    def _find_transactions(self) -> Transactions:
        renewals = self._renewals
        settled = settle_transactions(self.segments, behind=NOTHING_SETTLED, config=self.config)
        found = settled.transactions(log_start_offset=self.log_start_offset, log_end_offset=self.log_end_offset)
        if renewals == self._renewals:
            self._transactions = found
        return found

    def _bounds(self, start_offset: int | None, end_offset: int | None) -> tuple[int, int]:
        start = self.log_start_offset if start_offset is None else checked_index("start_offset", start_offset)
        self._check_in_range(start)
        end = self.log_end_offset
        if end_offset is not None:
            end = min(checked_int("end_offset", end_offset), end)
        if end < start:
            raise ValueError(f"end_offset must not be below start_offset {start}, got {end_offset}")
        return start, end

    def _check_in_range(self, offset: int) -> None:
        self._check_open()
        start, end = self.log_start_offset, self.log_end_offset
        if not start <= offset <= end:
            where = f"{self.topic_partition} in {self.path}"
            raise self._out_of_range(offset, f"offset {offset} is out of range of {where}: expected {start} to {end}")

    def _below_segments(self, offset: int, *, first_base_offset: int) -> OffsetOutOfRangeError:
        where = f"{self.topic_partition} in {self.path}"
        return self._out_of_range(
            offset,
            f"offset {offset} lies below the first segment of {where}: expected {first_base_offset} to "
            f"{self.log_end_offset}; tiered storage may have it",
        )

    def _out_of_range(self, offset: int, message: str) -> OffsetOutOfRangeError:
        return OffsetOutOfRangeError(
            message,
            path=self.path,
            offset=offset,
            log_start_offset=self.log_start_offset,
            log_end_offset=self.log_end_offset,
        )

    def _check_open(self) -> None:
        if self._is_closed:
            raise LogClosedError(f"the log of {self.topic_partition} in {self.path} was closed", path=self.path)

    def _segments_from(self, offset: int) -> tuple[LogSegment, ...]:
        segments = self.segments
        return segments[max(bisect_right(segments, offset, key=_base_offset) - 1, 0) :]

    def _find_segments(self) -> tuple[LogSegment, ...]:
        return _open_segments(self._context, self._env, lock_path=join_path(self._root, LOCK_FILE))

    def _segments_end_offset(self) -> int:
        if not self.segments:
            return 0
        last = self.segments[-1]
        return last.tail.last_offset + 1 if last.tail.last_offset >= 0 else last.base_offset

    def _cleaned_below(self) -> int:
        """Return the offset below which a cleaner has cleaned the log, or may have by its configuration."""
        return MAX_INT64 if self.config.is_compacted else self._checkpoint(CLEANER_CHECKPOINT) or 0

    def _checkpoint(self, name: str) -> int | None:
        """Return this partition's offset in one of the root's checkpoints, read once; None if it has no entry."""
        self._check_open()
        if name not in self._checkpointed:
            try:
                offsets = self._checkpoints.offsets(join_path(self._root, name)) or {}
            except (CorruptCheckpointError, StorageError) as error:
                _logger.warning("going on without a checkpoint: %s", error)
                offsets = {}
            self._checkpointed[name] = offsets.get(self.topic_partition)
        return self._checkpointed[name]


def _let_pass(found: Iterator[Found], _start_offset: int, _reached_by: Callable[[Found], int]) -> Iterator[Found]:
    return found


def _last_offset(found: RawBatch) -> int:
    return found[1].last_offset


def _position_of(segment: LogSegment, offset: int) -> int:
    """Return where the batch that holds an offset starts; the segment's end if the offset is after it."""
    last = segment.translate_offset(offset)
    return segment.valid_end_position if last is None else last.position


def _base_offset(segment: LogSegment) -> int:
    return segment.base_offset


def _read_extents(found: Iterator[Extent], *, checks_crc: bool) -> Iterator[RawBatch]:
    previous = None
    for segment, position, end_position, _ in found:
        if previous is not None:
            # Its open file may have been removed, if the segments before it were truncated and rewritten.
            segment.records.check_in_place()
        previous = segment
        for header, data in segment.records.read_batches(position=position, end_position=end_position):
            if checks_crc:
                check_crc(data, position=header.position, path=segment.path)
            yield segment, header, data


def _open_segments(context: LogContext, env: Env, *, lock_path: str) -> tuple[LogSegment, ...]:
    """Return the segments of a directory at one moment.

    A listing that overlaps a change of the directory may miss segments that existed before and after it: Kafka's
    cleaner renames the files that it replaces before the replacements (LocalLog.replaceSegments). So it is repeated.
    """
    for _ in range(MOST_LOOKS):
        before = env.stat(context.directory)
        found, is_whole = _listed_files(context.directory, env, lock_path=lock_path)
        if is_whole and env.stat(context.directory) == before:
            break
    bases = [one.base_offset for one in found]
    return tuple(
        LogSegment(
            context,
            base_offset=one.base_offset,
            next_base_offset=following,
            size_in_bytes=one.size_in_bytes,
            listed=one._replace(next_base_offset=following),
        )
        for one, following in zip_longest(found, bases[1:])
    )


def _listed_files(directory: str, env: Env, *, lock_path: str) -> tuple[list[ListedFile], bool]:
    """Return the .log files by base offset, and whether no change of the directory was seen."""
    found: list[ListedFile] = []
    names = env.listdir(directory)
    is_whole = True
    for name in names:
        segment_name = parse_segment_name(name.removesuffix(SWAP_STATE))
        if segment_name is None or segment_name.suffix != LOG_SUFFIX:
            continue
        if name.endswith(SWAP_STATE):
            # A swap file of a crash remains; that of a running cleaner is about to be renamed.
            is_whole = is_whole and not env.is_locked(lock_path)
            continue
        path = join_path(directory, name)
        status = status_of_segment(path, env)
        if status is None:
            is_whole = False
            continue
        found.append(_listed(path, segment_name.base_offset, status, env))
    return sorted(found, key=lambda one: one.base_offset), is_whole


def _listed(path: str, base_offset: int, status: FileStatus, env: Env) -> ListedFile:
    return ListedFile(
        path, base_offset, None, status.size_in_bytes, status.file, status, is_settled=is_settled(status, env)
    )
