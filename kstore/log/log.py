"""Log: one partition, read by offset or by time from a source: a directory, or a log that this process writes.

A Log of a directory takes no lock and writes nothing, so it is safe to use next to a running broker. It is a snapshot
of the segments and their sizes at the time of open_log; what a broker appends later is seen by the next Log. If files
of the snapshot are removed or replaced, by retention, compaction or a truncation, the Log takes a new snapshot of the
same directory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, get_args

from kstore._core import BatchHeader, Record
from kstore._deprecated import with_old_names
from kstore._html import fields_html, table_html
from kstore.config import MAX_INT32, MAX_INT64, LogConfig
from kstore.env import Arrivals, Closing, Env, StrPath, split_path
from kstore.errors import KStoreError, OffsetOutOfRangeError, checked_index, checked_int
from kstore.log.damage import OnError, OnSkip, SkippedRange, SkipReport, skips_damage
from kstore.log.files.durable_point import DurablePointFile
from kstore.log.files.names import PartitionDirectory
from kstore.log.files.records import BatchPlace, SegmentRecords
from kstore.log.plan import DEFAULT_PLAN_BYTES, RangeSizes, ScanRange, carrying, thread_range_sizes
from kstore.log.reads import Isolation, LogEnd, Reads
from kstore.log.segment.segment import LogSegment
from kstore.log.skipping import KeptTransactions, ReadsAroundDamage
from kstore.log.source import CommittedLog, FetchData, FetchRange, LogSource, last_batch
from kstore.log.state.transactions import AbortedTransaction, OpenTransaction, Transactions, open_transactions
from kstore.record.batches import RecordBatch
from kstore.record.decoding import decoded_records, deserializer_of
from kstore.types import (
    MAX_OFFSET,
    OffsetAndTimestamp,
    Time,
    TopicPartition,
    time_ms,
)
from kstore.waiting import checked_timeout

if TYPE_CHECKING:
    import pyarrow

    from kstore.arrow import SchemaRegistry, SchemaSource, ValueFormat, ValueMode
    from kstore.log.following.follower import Follower
    from kstore.log.following.tail import AutoOffsetReset, EndOffsets, FollowOptions, LogTail, ReadRound
    from kstore.record.search import RecordSearch
    from kstore.serializers import Key, Value

FetchIsolation: TypeAlias = Literal["read_uncommitted", "high_watermark", "read_committed"]
_FETCH_ISOLATIONS = get_args(FetchIsolation)


class Log(Closing):
    """One partition, read as it was when it was opened or at the last refresh(); a WritableLog is always current.

    Also a context manager that closes it. follow() sees what comes later.
    Attributes: topic_partition, path, config.
    Raises: LogClosedError from every method after close(). LogReplacedError if files were replaced, removed or
        truncated since they were listed: from iterators that yielded something before, and from all methods if the path
        belongs to another log by now.
    Threads: thread-safe; each iterator belongs to one thread.  Source: Kafka UnifiedLog, LocalLog.
    """

    def __init__(self, source: LogSource) -> None:
        context = source.context
        self.topic_partition: TopicPartition = context.topic_partition
        self.path = context.directory
        self.config: LogConfig = context.config
        self._source = source
        self._env: Env = source.env
        self._strict = Reads(source)
        self._kept_transactions = KeptTransactions()

    def __iter__(self) -> Iterator[Record]:
        """Iterate the records from the log's start to its end, as read()."""
        return self.read()

    def __len__(self) -> int:
        """Return the number of records.

        Cost: a pass over the log. log_end_offset - log_start_offset costs nothing, and counts markers and what
        compaction removed, too.
        """
        return sum(1 for _ in self.read(verify="header"))

    def __bool__(self) -> bool:
        return True

    def __getitem__(self, offset: object) -> Record:
        """Return the record at an offset; log[-1] is the last record.

        Raises: OffsetOutOfRangeError if there is none, see get(); TypeError for a slice: use read().
        """
        if isinstance(offset, slice):
            raise TypeError("a log takes no slice: use read(start_offset, end_offset)")
        record = self.last() if offset == -1 else self.get(checked_int("offset", offset, least=0))
        if record is None:
            start, end = self.log_start_offset, self.log_end_offset
            where = "the log has no record" if offset == -1 else f"no record has offset {offset}"
            raise OffsetOutOfRangeError(
                f"{where}: the log is empty and ends at offset {end}"
                if start == end
                else f"{where}: the log has {start} to {end - 1}, of which markers and removed records have none",
                path=self.path,
            )
        return record

    def get(self, offset: int, *, isolation: Isolation = "read_uncommitted") -> Record | None:
        """Return the record at an offset.

        Returns: None if there is no such record: below the log's start, at or after its end, of a marker, of a record
            that compaction removed, and with "read_committed" of an aborted one or one that is not decided.
        Raises: TypeError, ValueError for what is no offset; the errors of read().
        Cost: a search in the index, a read and a CRC check of one batch, of which one object is made; where the index
            does not lead to that batch, and for the formats before V2, that of read().
        """
        return self._strict.record_at(checked_int("offset", offset, least=0), isolation=isolation)

    def last(self, *, isolation: Isolation = "read_uncommitted") -> Record | None:
        """Return the record with the greatest offset, None if there is none; see get() for what counts.

        Cost: a read of the last batch, and of those before it as long as they have no record.
        """
        start, end = self.log_start_offset, self.log_end_offset
        record = self.get(end - 1, isolation=isolation) if end > start else None
        if record is not None:
            return record
        step = 2
        while end > start:
            begin = max(start, end - step)
            last = deque(self.read(begin, end, isolation=isolation), maxlen=1)
            if last:
                return last[0]
            end, step = begin, 2 * step
        return None

    def __repr__(self) -> str:
        fields = self._shown() | ({"is_closed": True} if self.is_closed else {})
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in fields.items())})"

    def _shown(self) -> dict[str, object]:
        """Return what repr() shows; it reads no file, so that it also works after close()."""
        return {
            "topic_partition": str(self.topic_partition),
            "path": self.path,
            "segments": len(self.segments),
            "size_in_bytes": self.size_in_bytes,
        }

    def _repr_html_(self) -> str:
        """Return the log and its first segments as tables, for notebooks.

        Cost: that of log_end_offset; nothing is read after close().
        """
        fields: dict[str, object] = dict(self._shown())
        if self.is_closed:
            fields["is_closed"] = "True"
        else:
            for name in ("log_start_offset", "log_end_offset"):
                try:
                    fields[name] = getattr(self, name)
                except KStoreError as error:
                    fields[name] = f"{type(error).__name__}: {error}"
        segments = self.segments
        rows = ((segment.base_offset, segment.size_in_bytes) for segment in segments)
        return fields_html(f"{type(self).__name__} {self.topic_partition}", fields.items()) + table_html(
            "Segments", ("base_offset", "size_in_bytes"), rows, count=len(segments)
        )

    def close(self) -> None:
        """Close the files; a second call does nothing."""
        self._source.close()

    @property
    def is_closed(self) -> bool:
        """Whether close() was called."""
        return self._source.is_closed

    def refresh(self, *, keeps_known: bool = True) -> bool:
        """See what was appended to the directory, removed from it or truncated since the log was opened or refreshed.

        Iterators that are running go on with the segments that they began with. A log that is open for writing always
        shows its own appends.
        Args: keeps_known: whether to keep what is known of files that did not change, and to read a log that only grew
            from the end that was known; False for the same as to open the log again.
        Returns: False if no segment has changed. The root's checkpoints may have.
        Raises: LogReplacedError if the directory was removed or replaced; StorageError.
        Cost: two stats if nothing was written for a second; otherwise one listing and one stat per segment.
        """
        return self._source.refresh(keeps_known=keeps_known)

    @property
    def segments(self) -> tuple[LogSegment, ...]:
        """The segments by base offset."""
        return self._source.segments

    @property
    def size_in_bytes(self) -> int:
        """The size of all .log files in bytes, including preallocated space."""
        return sum(segment.size_in_bytes for segment in self.segments)

    @property
    def log_start_offset(self) -> int:
        """The first readable offset: the first segment's base offset, or the root's checkpoint if that is higher."""
        return self._source.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset after the last whole batch; log_start_offset if that is higher.

        Cost: once, a header walk from the last entry of the last segment's index.
        """
        return self._source.log_end_offset

    @property
    def high_watermark(self) -> int | None:
        """The offset up to which all replicas had the records, None if the root's checkpoint has no entry."""
        return self._source.high_watermark

    @property
    def flushed_offset(self) -> int:
        """Every record below this offset is known to survive a power cut: from kstore's durable point or the root's
        recovery-point-offset-checkpoint, whichever is higher; log_start_offset if there is neither.

        Raises: StorageError.  Cost: two small reads.
        """
        point = DurablePointFile(self.path, self._env).read()
        known = max(self._source.recovery_point or 0, point.offset if point else 0)
        return min(max(known, self.log_start_offset), self.log_end_offset)

    @property
    def last_stable_offset(self) -> int | None:
        """None: finding undecided transactions takes a walk over the whole log; see transactions()."""
        return self._source.last_stable_offset

    def transactions(self) -> Transactions:
        """Return the aborted transactions and the last stable offset, for readers with isolation "read_committed".

        Raises: CorruptRecordError, UnsupportedMagicError for damage in the log.
        Cost: once, a header walk over the whole log.
        """
        return self._source.settled().transactions

    def open_transactions(self) -> tuple[OpenTransaction, ...]:
        """Return the transactions that no marker has ended, by first offset: from the first one on, read_committed
        reads nothing.

        Reads batches only, no .snapshot file, so that the answer is the same after a crash.
        Raises: CorruptRecordError, UnsupportedMagicError for damage in the log; LogReplacedError.
        Cost: a header walk over the whole log.
        Source: Kafka's request DescribeProducers (KIP-664).
        """
        return open_transactions(self.segments, config=self.config)

    @with_old_names
    def follow(
        self,
        from_offset: int | None = None,
        *,
        timeout: float | None = None,
        isolation: Isolation = "read_uncommitted",
        end_offsets: EndOffsets = "written",
        auto_offset_reset: AutoOffsetReset = "none",
        key_deserializer: Callable[[bytes], Key] | str | None = None,
        value_deserializer: Callable[[bytes], Value] | str | None = None,
    ) -> Follower[Record[Key, Value]]:
        """Iterate the records from an offset on as they come, also those that another process appends; see
        kstore.Follower, which can give batches and Arrow record batches too. docs/follow.md says what a follower sees
        of truncation, retention and compaction.

        Args: from_offset: None or kstore.EARLIEST for the log start, kstore.LATEST for the end; timeout: in seconds
            without a record, after which the iteration ends; None for never, 0 to take what there is; isolation:
            "read_committed" waits at the last stable offset; end_offsets: "flushed" or "high_watermark" to wait at
            flushed_offset or high_watermark; auto_offset_reset: where to go on if the log does not hold the next offset
            any more, or was truncated below it: "none" raises OffsetOutOfRangeError or LogTruncationError; otherwise
            where the log differs from what was given, if that is known, else "earliest" or "latest".
        Raises: OffsetOutOfRangeError at once; LogReplacedError if the directory was removed or replaced.
        Lifetime: until this log is closed; its own snapshot does not change.  Cost: a listing; nothing while it waits.
        """
        from kstore.log.following.follower import Feed, Follower, records_of
        from kstore.log.following.partitions import OneLog
        from kstore.log.following.tail import FollowOptions

        options = FollowOptions(isolation, end_offsets, auto_offset_reset)
        timeout_s = checked_timeout(timeout)
        convert = records_of(deserializer_of(key_deserializer), deserializer_of(value_deserializer))
        tail, arrivals = self._tail(from_offset, options=options)
        feed = Feed(OneLog(tail), arrivals, timeout_s=timeout_s, clock=self._env)
        return Follower(feed, convert, config=self.config)

    def _notify(self, arrivals: Arrivals) -> None:
        """Notify `arrivals` when new data may be available, for a reader that calls refresh() then."""
        self._source.notify(arrivals)

    def _tail(
        self,
        from_offset: int | None,
        *,
        options: FollowOptions,
        arrivals: Arrivals | None = None,
        read: ReadRound | None = None,
    ) -> tuple[LogTail, Arrivals]:
        """Return what a follower of this log reads, and what wakes it: `arrivals`, if it follows other logs too.

        Args: read: as in LogTail.
        """
        from kstore.log.following.tail import LogTail

        options.check()
        sees_root = options.end_offsets != "written"
        source, history, waking = self._source.followed(arrivals, sees_root=sees_root)
        log = self if source is self._source else Log(source)
        tail = LogTail(
            Reads(source),
            history,
            from_offset,
            options=options,
            flushed_offset=lambda: log.flushed_offset,
            is_owner=log is not self,
            read=read,
        )
        return tail, waking

    def batches(
        self,
        start_offset: int | None = None,
        end_offset: int | None = None,
        *,
        max_bytes: int | None = None,
        isolation: Isolation = "read_uncommitted",
        on_error: OnError = "raise",
        on_skip: OnSkip | None = None,
    ) -> Iterator[RecordBatch]:
        """Iterate the batches that hold offsets of [start_offset, end_offset), with checked CRC and undecoded records.

        Args: the offsets default to the log's start and end, and an end after the log's end counts as that; max_bytes:
            stop before the total size exceeds this (the first batch is always yielded); isolation: as in read(), but
            control batches are yielded too, except the markers of aborted transactions; on_error, on_skip: as in
            read(), so that the records of each batch can be decoded.
        Raises: OffsetOutOfRangeError at once; CorruptRecordError, UnsupportedMagicError when reached.
        """
        if max_bytes is not None:
            max_bytes = checked_int("max_bytes", max_bytes, least=0)
        reads = self._reads(on_error, on_skip)
        return reads.batches(start_offset, end_offset, isolation=isolation, max_bytes=max_bytes)

    @with_old_names
    def read(
        self,
        start_offset: int | None = None,
        end_offset: int | None = None,
        *,
        isolation: Isolation = "read_uncommitted",
        verify: Literal["crc", "header"] = "crc",
        key_deserializer: Callable[[bytes], Key] | str | None = None,
        value_deserializer: Callable[[bytes], Value] | str | None = None,
        on_error: OnError = "raise",
        on_skip: OnSkip | None = None,
    ) -> Iterator[Record[Key, Value]]:
        """Iterate the records of [start_offset, end_offset); control batches are skipped.

        Args: the offsets default to the log's start and end, and an end after the log's end counts as that; the start
            may be kstore.EARLIEST or kstore.LATEST, the log's end; verify:
            "header" skips the CRC check; the deserializers are called with each key or value that is not null, and may
            be names of built-in ones ("string"; kstore.serializers); isolation: "read_committed" leaves out aborted
            transactions and ends at the last stable offset; on_error: "skip" leaves out damaged batches, also with
            verify="header", and everything from bad framing to the next batch whose place in the log is proven, and
            calls on_skip with each SkippedRange before the records after it (None: a warning is logged). With
            "read_committed" it leaves out too what a transaction wrote before a place where its marker may be lost.
            Nothing is written.
        Raises: OffsetOutOfRangeError at once; CorruptRecordError, InvalidRecordError, DecompressionError,
            UnsupportedError when reached; RecordDeserializationError if a deserializer fails. With on_error="skip" no
            CorruptionError; what is no damage is still raised: UnsupportedCompressionTypeError, MemoryLimitError,
            LogReplacedError, StorageError.
        Cost: one pass; "skip" reads each segment twice, and decodes the records of each batch twice.
        """
        if verify not in ("crc", "header"):
            raise ValueError(f'verify must be "crc" or "header", got {verify!r}')
        reads = self._reads(on_error, on_skip)
        records = reads.records(start_offset, end_offset, isolation=isolation, checks_crc=verify == "crc")
        if key_deserializer is None and value_deserializer is None:
            return records
        return decoded_records(
            records,
            topic_partition=self.topic_partition,
            key_deserializer=deserializer_of(key_deserializer),
            value_deserializer=deserializer_of(value_deserializer),
        )

    def find(
        self,
        search: RecordSearch,
        start_offset: int | None = None,
        end_offset: int | None = None,
        *,
        threads: int = 1,
        isolation: Isolation = "read_uncommitted",
        on_error: OnError = "raise",
        on_skip: OnSkip | None = None,
    ) -> Iterator[Record]:
        """Iterate the records of [start_offset, end_offset) that meet the conditions of a search; no control records.

        Args: search: the conditions; threads: how many look through batches, including the caller's, which decodes
            those that may have a match; the others as in read().
        Raises: as read().
        Cost: one pass over the batches. The bytes that a match must have are looked for in whole batches, without the
            GIL; only in a batch that has them records are decoded, and only those that match become objects. With
            several threads one chunk more than there are of them is in memory. With on_error="skip" every batch is
            decoded, in the caller's thread, since one that cannot be is left out.
        """
        batches = self._batches_for(
            search,
            start_offset,
            end_offset,
            isolation=isolation,
            on_error=on_error,
            on_skip=on_skip,
            threads=checked_int("threads", threads, least=1, greatest=MAX_INT32),
        )
        return search.found_in(
            batches,
            start_offset=self.log_start_offset if start_offset is None else start_offset,
            end_offset=MAX_OFFSET if end_offset is None else end_offset,
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
        offset, max_bytes = _checked_fetch(offset, max_bytes=max_bytes)
        return self._source.answer(
            lambda: self._located(
                offset, max_bytes=max_bytes, min_one_batch=min_one_batch, isolation=isolation
            ).with_records()
        )

    def fetch_range(
        self, offset: int, max_bytes: int, *, min_one_batch: bool = True, isolation: FetchIsolation = "read_uncommitted"
    ) -> FetchRange:
        """Do what fetch does, but lend the file with the records, their position and size instead of their bytes.

        Close what is returned, also in a `with` statement, to give the file back.
        Args, Raises: those of fetch.
        Cost: that of fetch, without the read of the records.
        """
        offset, max_bytes = _checked_fetch(offset, max_bytes=max_bytes)
        lent: list[FetchRange] = []

        def lend() -> FetchRange:
            if lent:
                lent.pop().close()
            part = self._located(offset, max_bytes=max_bytes, min_one_batch=min_one_batch, isolation=isolation)
            lent.append(part.lent())
            return lent[0]

        try:
            return self._source.answer(lend)
        except BaseException:
            if lent:
                lent.pop().close()
            raise

    def _located(self, offset: int, *, max_bytes: int, min_one_batch: bool, isolation: FetchIsolation) -> FetchPart:
        """Find the records of a fetch, and its bounds; in `records` they are missing."""
        reads, source = self._strict, self._source
        if isolation not in _FETCH_ISOLATIONS:
            raise ValueError(f"isolation must be one of {', '.join(_FETCH_ISOLATIONS)}, got {isolation!r}")
        known = source.committed() if isolation == "read_committed" else None
        high_watermark, last_stable_offset = source.watermarks()
        if known is not None:
            # From before the high watermark, which is so not below it.
            last_stable_offset = known.committed.last_stable_offset
        limit = None
        if isolation != "read_uncommitted":
            limit = high_watermark if known is None else last_stable_offset
        segments = reads.segments_from(offset)
        # After the segments were listed, which so have nothing from this end on.
        log_start_offset, log_end_offset = reads.check_in_range(offset)
        if segments and offset < segments[0].base_offset:
            raise reads.below_segments(offset, first_base_offset=segments[0].base_offset)
        if limit is not None and limit >= log_end_offset:
            limit = None
        # Of files that another process writes, the read below also finds that they are damaged or were replaced.
        if offset >= log_end_offset and source.context.is_live:
            segments = ()
        aborted: tuple[AbortedTransaction, ...] = ()
        base_offset, position, size = None, 0, 0
        records: SegmentRecords | None = None
        for segment in segments:
            first = segment.translate_offset(offset)
            if first is not None:
                position = first.position
                size = _size_of_part(segment, first, limit, max_bytes=max_bytes, min_one_batch=min_one_batch)
                if size:
                    records = segment.records
                    base_offset = records.first_offset(first)
                    if known is not None:
                        aborted = self._aborted_in(segment, known, offset, position=position, size_in_bytes=size)
                break
        bounds = FetchData(
            b"", high_watermark, log_start_offset, log_end_offset, base_offset, last_stable_offset, aborted
        )
        return FetchPart(bounds, records, position, size, None if known is None else known.last_batch)

    def _aborted_in(
        self, segment: LogSegment, known: CommittedLog, offset: int, *, position: int, size_in_bytes: int
    ) -> tuple[AbortedTransaction, ...]:
        """Return the aborted transactions of records of a segment that a fetch from an offset found."""
        # What ends above the records is enough to see that there are none, as nearly always.
        end_offset = self.log_end_offset if segment.next_base_offset is None else segment.next_base_offset
        if not known.committed.may_have_aborted(start_offset=offset, end_offset=end_offset):
            return ()
        last_offset = segment.last_offset_between(position, end_position=position + size_in_bytes)
        return known.committed.aborted_between(start_offset=offset, end_offset=max(offset, last_offset + 1))

    def _readable_end(self, *, isolation: Isolation = "read_uncommitted", on_error: OnError = "raise") -> LogEnd:
        """Return where the records end that a reader gets with these arguments of read().

        With on_error="raise" read_end_offset is the same as offset.
        Raises: CorruptRecordError, UnsupportedMagicError for damage in the walked range, unless on_error is "skip".
        Cost: that of log_end_offset; with "read_committed" that of transactions(), with "skip" too a read of the log.
        """
        return self._lookups(on_error).end(isolation)

    def _transactional_from(self) -> int:
        """Return an offset of the log below which no batch of a transaction starts, and no marker.

        Raises, Cost: as transactions().
        """
        return min(self._source.settled().transactional_from, self.log_end_offset)

    def offset_for_timestamp(self, timestamp_ms: Time, *, on_error: OnError = "raise") -> OffsetAndTimestamp | None:
        """Return the first record in offset order whose timestamp is >= timestamp_ms; None if there is none.

        Args: timestamp_ms: a time, also as a datetime with a time zone, or one of Kafka's special values:
            kstore.EARLIEST and EARLIEST_LOCAL for the log start, LATEST for the log end, all with timestamp -1 in the
            result; MAX_TIMESTAMP for the first record with the largest timestamp; LATEST_TIERED, for which the result
            is always None. on_error: "skip" for the first of the records that a read with on_error="skip" returns, if
            the lookup meets damage; a time, not a special value.
        As with a broker's ListOffsets, this may be a control record. A broker searches only one segment and so misses
        records after an emptied one.
        Raises: CorruptRecordError and other errors for damage in the walked range, unless on_error is "skip"; before
            an answer None, and for MAX_TIMESTAMP, also for a last batch with a wrong CRC.
        Cost: for MAX_TIMESTAMP, a header walk over the whole log, or a read of it if the largest was that of records
            which a cleaner removed; for "skip" around damage, a read of it.
        Source: Kafka UnifiedLog.fetchOffsetByTimestamp.
        """
        self._strict.check_open()
        if type(timestamp_ms) is not int or not -MAX_INT64 <= timestamp_ms <= MAX_INT64:
            timestamp_ms = max(time_ms("timestamp_ms", timestamp_ms), -MAX_INT64)
        timestamp_ms = min(timestamp_ms, MAX_OFFSET)
        return self._lookups(on_error).offset_for_timestamp(timestamp_ms)

    @with_old_names
    def plan(
        self,
        *,
        start_offset: int | None = None,
        end_offset: int | None = None,
        max_bytes: int = DEFAULT_PLAN_BYTES,
        isolation: Isolation = "read_uncommitted",
        on_error: OnError = "raise",
        part_of: tuple[int, int | None] | None = None,
    ) -> list[ScanRange]:
        """Split the records of [start_offset, end_offset) into ranges of about max_bytes for separate workers.

        Together they hold every record exactly once, in order. A range starts and ends at a batch boundary, may span
        several files, and exceeds max_bytes only if a single batch does. To split by offsets, plan each part.
        isolation: as in read(). on_error: "skip" for ranges that are read with on_error="skip": no damage prevents the
        planning, and a log without indexes is split at its segments only. part_of: start_offset and end_offset of the
        whole read if this is one of its parts, so that damage at their bounds is reported by one of them.
        Raises: OffsetOutOfRangeError; CorruptRecordError, UnsupportedMagicError for damage that is met.
        Cost: a few reads per range; with "skip" and "read_committed" the whole log is read.
        """
        sizes = RangeSizes(checked_int("max_bytes", max_bytes, least=1))
        return self._source.answer(
            lambda: self._planned(
                self._reads(on_error).ranges(sizes, start_offset, end_offset, isolation=isolation, part_of=part_of)
            )
        )

    def _planned(self, ranges_of_plan: Iterator[ScanRange]) -> list[ScanRange]:
        """Return the ranges with a batch that shows to other processes whether the log was truncated since."""
        last = self._source.last_batch()
        if last is None and self._env.is_mutable:
            last = last_batch(self.segments)
        ranges = [
            planned if planned.last_batch is not None else replace(planned, last_batch=last)
            for planned in ranges_of_plan
        ]
        for place in {scan_range.last_batch for scan_range in ranges if scan_range.last_batch is not None}:
            self.segments[-1].records.check_anchor(place)
        return carrying(ranges, self._env) if self._env.has_views else ranges

    def _scan_ranges(self, sizes: RangeSizes | None = None, *, on_error: OnError = "raise") -> Iterator[ScanRange]:
        """Yield the ranges of the whole log, of about these sizes, for one reader that reads all of them.

        Unlike with plan(), the reader of the last one finds the log's end if that saves a header walk. With sizes None
        they are chosen to suit. on_error: as in plan().
        Raises: as plan().
        """
        reads = self._reads(on_error)

        def ranges() -> list[ScanRange]:
            bounds = reads.scan_bounds(None, None, isolation="read_uncommitted")
            planned = reads.scan_ranges(bounds, sizes=sizes, isolation="read_uncommitted")
            return carrying(planned, self._env) if self._env.has_views else list(planned)

        return iter(self._source.answer(ranges))

    def _range_sizes(self, threads: int) -> RangeSizes | None:
        """Return the sizes of the ranges in which this many threads read the log; see thread_range_sizes."""
        return thread_range_sizes(self.size_in_bytes, threads=threads, env=self._env)

    def _scan_finds_end(self) -> bool:
        """Whether the reader of the last of _scan_ranges finds the log's end."""
        return self._strict.finds_end(self.log_start_offset)

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
        on_error: OnError = "raise",
        on_skip: OnSkip | None = None,
        value: ValueFormat | str | None = None,
        key: ValueFormat | str | None = None,
        schema: SchemaSource | None = None,
        schemas: StrPath | SchemaRegistry | None = None,
        mode: ValueMode = "PERMISSIVE",
        flatten: bool = False,
    ) -> Iterator[pyarrow.RecordBatch]:
        """Iterate the records of [start_offset, end_offset) as Arrow record batches; see kstore.scan.

        on_error, on_skip: as in read(). value, key, schema, schemas, mode, flatten: keys and values as columns.

        Raises: ImportError without pyarrow; as kstore.scan for a format; otherwise as read().
        """
        from kstore.arrow import decoder_of_log

        decode = decoder_of_log(
            PartitionDirectory(self.topic_partition, self.path, split_path(self.path)[0], self._env),
            columns=columns,
            binary=binary,
            batch_bytes=batch_bytes,
            threads=threads,
            config=self.config,
            env=self._env,
            on_error=on_error,
            on_skip=SkipReport(on_skip),
            value=value,
            key=key,
            schema=schema,
            schemas=schemas,
            mode=mode,
            flatten=flatten,
        )
        sizes = self._range_sizes(threads)
        return self._reads(on_error).scanned(start_offset, end_offset, decode, isolation=isolation, sizes=sizes)

    def _relist_or_raise(self, error: KStoreError, *, attempts_left: int) -> None:
        """Take a new snapshot if an error of a read was caused by a change of the files since the last one, else raise
        it.
        """
        self._source.relist_or_raise(error, attempts_left=attempts_left)

    def _reads(self, on_error: OnError, on_skip: OnSkip | None = None) -> Reads:
        """Return the reads for an iterator, which keeps this log alive."""
        report = SkipReport(on_skip)
        if skips_damage(on_error):
            return ReadsAroundDamage(self._source, report, self._kept_transactions, keeps=self)
        return Reads(self._source, keeps=self)

    def _lookups(self, on_error: OnError) -> Reads:
        """Return the reads for a call that returns no iterator, and reports no damage."""
        return self._reads(on_error, _ignore_skipped) if skips_damage(on_error) else self._strict

    def _batches_for(
        self,
        search: RecordSearch,
        start_offset: int | None,
        end_offset: int | None,
        *,
        isolation: Isolation,
        on_error: OnError,
        on_skip: OnSkip | None,
        on_pass: Callable[[int], object] = int,
        threads: int,
    ) -> Iterator[RecordBatch]:
        """Iterate batches as batches() does, without most of those that cannot hold a match of a search.

        Args: on_pass: called with the size in bytes of what is left out; threads: how many look for them.
        """
        reads, passing = self._reads(on_error, on_skip), search.passing(on_pass, threads=threads)
        return reads.batches(start_offset, end_offset, isolation=isolation, passing=passing)

    def _held_offsets(
        self,
        start_offset: int | None = None,
        end_offset: int | None = None,
        *,
        since_ms: int | None = None,
        isolation: Isolation = "read_uncommitted",
        on_error: OnError = "raise",
    ) -> tuple[int, int]:
        """Return start and end of the offsets of [start_offset, end_offset) that the log holds for readers with this
        isolation; they are equal if there are none. No offset is out of range.

        Args: since_ms: not before the first record with this timestamp or a later one; negative ones are no bound;
            on_error: "skip" for a read with on_error="skip", which may end at MAX_OFFSET.
        Raises: CorruptRecordError, UnsupportedMagicError for damage in the walked range, unless on_error is "skip".
        Cost: a lookup by time; with "read_committed" that of transactions().
        """
        return self._lookups(on_error).held_offsets(start_offset, end_offset, since_ms=since_ms, isolation=isolation)


def _ignore_skipped(skipped: SkippedRange) -> None:
    """Do nothing: a lookup reports no damage."""


class FetchPart(NamedTuple):
    """The bounds of a fetch, and its records in their file, None if there are none.

    anchor: the batch that is in its file as long as no record before it has changed; None for no check.
    """

    bounds: FetchData
    records: SegmentRecords | None
    position: int
    size_in_bytes: int
    anchor: BatchPlace | None

    def with_records(self) -> FetchData:
        """Read the records."""
        if self.records is None:
            return self.bounds
        records = self.records.read_bytes(self.size_in_bytes, position=self.position)
        if self.anchor is not None:
            self.records.check_anchor(self.anchor)
        return FetchData(records, *self.bounds[1:])

    def lent(self) -> FetchRange:
        """Lend the file of the records."""
        lent = FetchRange(self.bounds, self.records, position=self.position, size_in_bytes=self.size_in_bytes)
        if self.records is not None and self.anchor is not None:
            try:
                self.records.check_anchor(self.anchor)
            except BaseException:
                lent.close()
                raise
        return lent


def _size_of_part(
    segment: LogSegment, first: BatchHeader, limit: int | None, *, max_bytes: int, min_one_batch: bool
) -> int:
    """Return the size in bytes of the records of a segment from a batch on, up to a size and below an offset."""
    end_position = segment.valid_end_position if limit is None else _position_of(segment, limit)
    size = max(max_bytes, first.size_in_bytes) if min_one_batch else max_bytes
    return max(min(size, end_position - first.position), 0)


def _checked_fetch(offset: int, *, max_bytes: int) -> tuple[int, int]:
    if type(max_bytes) is not int or not 0 <= max_bytes <= MAX_INT64:
        max_bytes = checked_int("max_bytes", max_bytes, least=0)
    return offset if type(offset) is int else checked_index("offset", offset), max_bytes


def _position_of(segment: LogSegment, offset: int) -> int:
    """Return where the batch that holds an offset starts; the segment's end if the offset is after it."""
    last = segment.translate_offset(offset)
    return segment.valid_end_position if last is None else last.position
