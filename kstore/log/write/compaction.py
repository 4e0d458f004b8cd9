"""LogCompaction: compaction of one open log, round by round; each group of segments is swapped in as it is cleaned.

The cleaner works without a lock on sealed segments, which appends do not change; only a swap takes both locks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import NamedTuple

from kstore._lazy import lazy_logger
from kstore.config import LogConfig, check_rate
from kstore.env import ENOENT, Env
from kstore.errors import CorruptIndexError, LogReplacedError, StorageError
from kstore.log.cleaning.cleanable import CleanableLog, LogBounds, find_cleanable, first_dirty_offset
from kstore.log.cleaning.cleaner import CleanedSegment, Cleaner, CleanerInput, CleanerTotals, CleaningStoppedError
from kstore.log.files.indexes import MAX_INDEX_BYTES
from kstore.log.files.names import TRANSACTION_INDEX_SUFFIX, segment_path
from kstore.log.files.transaction_index import AbortedTxn, decode_aborted_txns
from kstore.log.segment.segment import LogSegment
from kstore.log.state.producer_state import ProducerStateManager
from kstore.log.write.live_source import LiveSource
from kstore.log.write.local_log import LocalLog
from kstore.log.write.ownership import WriteGate, WriterFiles

_logger = lazy_logger("kstore.log")
# How long a throttled compaction sleeps at most before it asks whether it should stop.
_LONGEST_SLEEP_MS = 100


class CompactionReport(NamedTuple):
    """What a compaction did.

    first_dirty_offset, end_offset: it cleaned the offsets between, and below; equal if nothing was due. rounds: how
    often the key map was filled. bytes_before, bytes_after: the size of the log. bytes_mapped, bytes_read,
    bytes_written: what the cleaner read for its map, read again, and wrote. records_read, records_kept: of the segments
    that were cleaned, over all rounds. replaced_segments: how many old segments made way. is_stopped: the caller, or a
    change of the log, stopped it: what was swapped in stays, and the next call does the rest.
    """

    first_dirty_offset: int
    end_offset: int
    rounds: int
    bytes_before: int
    bytes_after: int
    bytes_mapped: int
    bytes_read: int
    bytes_written: int
    records_read: int
    records_kept: int
    replaced_segments: int
    is_stopped: bool


class Throttle:
    """Limits a compaction to a number of bytes per second that it reads and writes, and lets it be stopped.

    Args: should_stop: asked before each read and write; None for never.
    Raises: as check_rate.
    Threads: one.  Source: Kafka Throttler.
    """

    def __init__(self, *, max_bytes_per_second: float | None, should_stop: Callable[[], bool] | None, env: Env) -> None:
        check_rate(max_bytes_per_second)
        self._rate = max_bytes_per_second
        self._should_stop = should_stop
        self._env = env
        self._started_ms = env.monotonic_ms()
        self._bytes = 0

    def pause(self, size: int) -> None:
        """Wait until `size` more bytes are within the rate.  Raises: CleaningStoppedError."""
        self._bytes += size
        self._check()
        if self._rate is None:
            return
        while (left_ms := 1000 * self._bytes / self._rate - self._env.monotonic_ms() + self._started_ms) > 0:
            self._env.sleep_ms(min(left_ms, _LONGEST_SLEEP_MS))
            self._check()

    def _check(self) -> None:
        if self._should_stop is not None and self._should_stop():
            raise CleaningStoppedError


class LogCompaction:
    """Compacts one log; made by WritableLog.

    Threads: run may be called by several threads, one of which works at a time.  Source: Kafka LogCleaner.
    """

    def __init__(
        self,
        local: LocalLog,
        *,
        live: LiveSource,
        gate: WriteGate,
        files: WriterFiles,
        producers: ProducerStateManager,
        flush: Callable[[], int],
        config: LogConfig,
        env: Env,
    ) -> None:
        self._local = local
        self._live = live
        self._gate = gate
        self._files = files
        self._producers = producers
        self._flush = flush
        self._config = config
        self._env = env
        self._running = threading.RLock()
        self._is_running = False
        # The count of truncations when the round began.
        self._truncations = 0

    def change_config(self, config: LogConfig) -> None:
        """Take over the settings for the next compaction."""
        self._config = config

    def cleanable(self, *, now_ms: int) -> CleanableLog:
        """Return what there is to clean."""
        with self._gate.append_lock:
            segments, bounds = self._local.segments, self._bounds()
        return find_cleanable(segments, bounds, now_ms=now_ms, config=self._config, env=self._env)

    def run(self, *, now_ms: int, is_forced: bool, throttle: Throttle, drops_keyless: bool) -> CompactionReport:
        """Compact until nothing is due, or the throttle stops it.

        Args: is_forced: also if the dirty ratio is not above min_cleanable_dirty_ratio; drops_keyless: also the records
            without a key.
        Raises: KeylessRecordsError; CorruptRecordError and other errors for damage, with the segments that have it
            unchanged; StorageError; RuntimeError if should_stop of a compaction of this log calls it.
        """
        with self._running:
            if self._is_running:
                raise RuntimeError(f"{self._live.context.directory} is being compacted by the caller")
            self._is_running = True
            try:
                return self._run(now_ms, throttle, is_forced=is_forced, drops_keyless=drops_keyless)
            finally:
                self._is_running = False

    def _run(self, now_ms: int, throttle: Throttle, *, is_forced: bool, drops_keyless: bool) -> CompactionReport:
        totals = CleanerTotals()
        before = self._size()
        self._replace_impossible_checkpoint()
        cleanable = self._begin_round(now_ms)
        start = end = cleanable.first_dirty_offset
        rounds, replaced, is_stopped = 0, 0, False
        while cleanable.is_due(self._config) or (is_forced and cleanable.cleanable_bytes):
            rounds += 1
            try:
                end, count = self._round(cleanable, now_ms, throttle, totals, drops_keyless=drops_keyless)
            except CleaningStoppedError:
                is_stopped = True
                break
            replaced += count
            if end <= cleanable.first_dirty_offset:
                break
            cleanable = self._begin_round(now_ms)
        with self._gate.append_lock:
            if self._gate.failure is None:
                self._local.deleted.remove_due()
        report = CompactionReport(
            start,
            end,
            rounds,
            before,
            self._size(),
            totals.bytes_mapped,
            totals.bytes_read,
            totals.bytes_written,
            totals.records_read,
            totals.records_kept,
            replaced,
            is_stopped,
        )
        if rounds:
            _logger.info("compacted %s: %s", self._live.context.directory, report)
        return report

    def _replace_impossible_checkpoint(self) -> None:
        """Save where the log is dirty from if the cleaner's checkpoint is outside of the log."""
        with self._gate.flush_lock, self._gate.append_lock:
            self._gate.check()
            bounds = self._bounds()
            dirty = first_dirty_offset(bounds)
            if bounds.cleaned_offset not in (None, dirty):
                self._gate.check_lock_and_file(self._local.active.records)
                self._files.save_cleaned_offset(dirty)

    def _bounds(self) -> LogBounds:
        """Return the bounds of the log. Requires: the append lock."""
        local = self._local
        return LogBounds(
            local.log_start_offset, local.log_end_offset, local.last_stable_offset, self._files.cleaned_offset()
        )

    def _begin_round(self, now_ms: int) -> CleanableLog:
        self._truncations = self._live.truncations.count
        return self.cleanable(now_ms=now_ms)

    def _size(self) -> int:
        return sum(segment.size_in_bytes for segment in self._local.segments)

    def _round(
        self, cleanable: CleanableLog, now_ms: int, throttle: Throttle, totals: CleanerTotals, *, drops_keyless: bool
    ) -> tuple[int, int]:
        """Clean the log once, and return the offset below which it is clean then, and how many segments made way."""
        # What was found of transactions and newer records must not be lost where older ones are removed for it.
        self._flush()
        segments = self._local.segments[:-1]
        cleaner = Cleaner(
            CleanerInput(
                directory=self._live.context.directory,
                segments=segments,
                cleanable=cleanable,
                high_watermark=self._local.high_watermark,
                aborted=self._live.settled().transactions.aborted,
                entries=self._aborted_entries(segments),
                last_records=self._last_records,
                now_ms=now_ms,
                pause=throttle.pause,
                config=self._config,
                env=self._env,
                drops_keyless=drops_keyless,
                # The first round has looked at what later ones map.
                looks_ahead=not drops_keyless and totals.bytes_mapped == 0,
            ),
            totals,
        )
        replaced = 0
        with closing(cleaner):
            with self._stopping_if_changed(segments):
                cleaner.build_map()
            for group in cleaner.groups():
                with self._stopping_if_changed(group):
                    cleaned = cleaner.clean(group)
                if cleaned is not None:
                    self._swap(group, cleaned)
                    replaced += len(group)
        with self._gate.flush_lock, self._gate.append_lock:
            self._gate.check()
            if self._is_truncated() or cleaner.end_offset > self._local.active.base_offset:
                raise CleaningStoppedError
            self._gate.check_lock_and_file(self._local.active.records)
            self._files.save_cleaned_offset(cleaner.end_offset)
        return cleaner.end_offset, replaced

    def _is_truncated(self) -> bool:
        """Whether the log was truncated since the round began: the key map knows records that are gone."""
        return self._live.truncations.may_have_changed(self._truncations)

    @contextmanager
    def _stopping_if_changed(self, segments: Sequence[LogSegment]) -> Iterator[None]:
        """Raise CleaningStoppedError for an error that a truncation or deletion of the segments caused."""
        try:
            yield
        except (LogReplacedError, StorageError) as error:
            if isinstance(error, StorageError) and error.errno != ENOENT:
                raise
            with self._gate.append_lock:
                if self._local.has_all(segments) and not self._is_truncated():
                    raise
            raise CleaningStoppedError from error

    def _swap(self, group: Sequence[LogSegment], cleaned: CleanedSegment) -> None:
        gate, local = self._gate, self._local
        with gate.flush_lock, gate.append_lock:
            gate.check()
            if self._is_truncated() or not local.has_all(group):
                self._remove_cleaned(cleaned)
                raise CleaningStoppedError
            gate.check_lock_and_file(local.active.records)
            with gate.failing():
                # Also that of a shutdown inside of a segment: without its records it would speak of a lost segment.
                end_offset = group[-1].next_base_offset or local.active.base_offset
                self._producers.delete_snapshots_between(group[0].base_offset + 1, end_offset=end_offset)
                self._producers.delete_snapshots_with_open(dict(cleaned.dropped_markers))
                local.replace(group, cleaned)
            self._live.note_replaced([segment.base_offset for segment in group])

    def _remove_cleaned(self, cleaned: CleanedSegment) -> None:
        for path in self._local.cleaned_paths(cleaned.base_offset):
            self._env.unlink(path)

    def _last_records(self) -> Iterable[tuple[int, int, int]]:
        """Return (id, offset of the last data batch or -1, epoch) of each producer."""
        with self._gate.append_lock:
            producers = list(self._producers.active_producers.values())
        return [
            (
                producer.producer_id,
                producer.batches[-1].last_offset if producer.batches else -1,
                producer.producer_epoch,
            )
            for producer in producers
        ]

    def _aborted_entries(self, segments: Sequence[LogSegment]) -> dict[tuple[int, int], AbortedTxn]:
        """Return the entries of the transaction indexes. They decide nothing: without one, a new entry has what the
        batches show.
        """
        all_entries: dict[tuple[int, int], AbortedTxn] = {}
        for segment in segments:
            path = segment_path(segment.directory, segment.base_offset, suffix=TRANSACTION_INDEX_SUFFIX)
            if self._env.stat(path) is None:
                continue
            try:
                content = self._env.read_file(path, max_bytes=MAX_INDEX_BYTES)
                entries = decode_aborted_txns(content, base_offset=segment.base_offset, path=path)
            except CorruptIndexError as error:
                _logger.warning("continuing without a transaction index: %s", error)
                continue
            except StorageError as error:
                if error.errno != ENOENT:
                    raise
                continue
            all_entries |= {(entry.producer_id, entry.last_offset): entry for entry in entries}
        return all_entries
