"""Cleaner: one round of compaction. It maps the keys of the dirty part, then writes each group of segments again,
beside the old ones, as .cleaned files. It changes nothing else: WritableLog puts the new files in place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import NamedTuple

from kstore._core import (
    BatchHeader,
    CompactionPass,
    OffsetIndexEntries,
    OffsetMap,
    RecoveryWalk,
    TimeIndexEntries,
    read_header,
)
from kstore.compression import Payload, compress, decompress
from kstore.config import MAX_INT32, LogConfig
from kstore.env import Env, WriteFile
from kstore.env.process import random_bytes
from kstore.errors import KeylessRecordsError
from kstore.log.cleaning.cleanable import CleanableLog, group_segments, modified_ms
from kstore.log.files.names import (
    CLEANED_STATE,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SEGMENT_SUFFIXES,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    segment_path,
)
from kstore.log.files.records import entry_size, read_exactly, too_large
from kstore.log.files.transaction_index import AbortedTxn, encode_aborted_txn
from kstore.log.segment.segment import LogSegment
from kstore.log.state.transactions import AbortedTransaction
from kstore.record.batches import RecordBatch

_SECRET_BYTES = 16
# Of an OffsetMap that is half full.
_MAP_BYTES_OF_A_KEY = 48
_LEAST_HEADER_BYTES = 12


class CleaningStoppedError(Exception):
    """Raised inside of a round whose caller asked it to stop; nothing but .cleaned files is left, and these are
    removed.
    """


class CleanedSegment(NamedTuple):
    """A new segment in .cleaned files, which are durable: its base offset, its size in bytes, and the offset after its
    last batch (the base offset for none). dropped_markers: (producer id, offset) of markers that are gone.
    """

    base_offset: int
    size_in_bytes: int
    next_offset: int
    dropped_markers: tuple[tuple[int, int], ...]


@dataclass
class CleanerTotals:
    """What a compaction read and wrote, in bytes and records, over all its rounds."""

    bytes_mapped: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_kept: int = 0


@dataclass(frozen=True, kw_only=True)
class CleanerInput:
    """What a Cleaner is told of the log.

    aborted: of the whole log; entries: those of the transaction indexes, by producer id and offset of the marker.
    last_records: returns (producer id, offset of its last data batch or -1, epoch) of each producer that is known now.
    pause: called with the number of bytes that were read or written since the last call; raises CleaningStoppedError.
    drops_keyless: whether records without a key may go; they never stay. looks_ahead: whether build_map looks for them
        in all of the dirty part, also where the map is full before its end.
    """

    directory: str
    segments: Sequence[LogSegment]
    cleanable: CleanableLog
    high_watermark: int
    aborted: Sequence[AbortedTransaction]
    entries: Mapping[tuple[int, int], AbortedTxn]
    last_records: Callable[[], Iterable[tuple[int, int, int]]]
    now_ms: int
    pause: Callable[[int], None]
    config: LogConfig
    env: Env
    drops_keyless: bool = False
    looks_ahead: bool = True


class Cleaner:
    """One round over a log: build_map, then clean for each of groups().

    Attributes: end_offset (below it all is clean after the round; set by build_map), totals.
    Threads: one.  Source: Kafka Cleaner.
    """

    def __init__(self, given: CleanerInput, totals: CleanerTotals) -> None:
        self._given = given
        self._config = config = given.config
        self._map = OffsetMap(
            memory_bytes=config.cleaner_dedupe_buffer_bytes,
            load_factor=config.cleaner_dedupe_buffer_load_factor,
            secret=random_bytes(_SECRET_BYTES),
        )
        self.totals = totals
        self.end_offset = given.cleanable.first_dirty_offset
        self._filter: CompactionPass | None = None
        self._old_tombstones_ms = self._oldest_tombstones_ms()

    def build_map(self) -> None:
        """Map the keys of the dirty part, as far as they fit the map.

        Raises: KeylessRecordsError if a record of the dirty part has no key, whether or not it fits, unless they may
            go; CorruptRecordError and other errors for damage; StorageError; CleaningStoppedError.
        """
        start = self._given.cleanable.first_dirty_offset
        mapping = self._made_pass(start)
        for segment in self._map_all(mapping, start):
            self._map.pass_to(self._end_of(segment) - 1)
        self.end_offset = max(self._map.latest_offset + 1, start)
        looking = [mapping]
        if mapping.is_full and self._given.looks_ahead:
            looking.append(self._made_pass(self.end_offset, only_looks=True))
            for _ in self._map_all(looking[-1], self.end_offset):
                pass
        self._check_keyless(looking)
        self._filter = self._made_pass(start)

    def _map_all(self, mapping: CompactionPass, start: int) -> Iterator[LogSegment]:
        """Feed the segments of the dirty part from an offset on to a pass, and yield each that it took whole."""
        end = self._given.cleanable.first_uncleanable_offset
        for segment in self._given.segments:
            if self._end_of(segment) <= start or segment.base_offset >= end:
                continue
            first = segment.translate_offset(start) if segment.base_offset < start else None
            position = first.position if first is not None else 0
            for _ in self._run(mapping, mapping.map_keys, segment, position=position, reads=self._count_mapped):
                pass
            if mapping.is_full:
                return
            yield segment

    def _check_keyless(self, passes: Iterable[CompactionPass]) -> None:
        """Raise KeylessRecordsError if passes met records without a key, unless these may go."""
        met = [mapped.keyless for mapped in passes if mapped.keyless[0]]
        if met and not self._given.drops_keyless:
            count, first = sum(count for count, _ in met), met[0][1]
            raise KeylessRecordsError(
                f"compaction of {self._given.directory} would remove {count} records that have no key, the first at "
                f"offset {first}: expected a key in every record of a compacted topic; none of them was removed",
                record_count=count,
                path=self._given.directory,
                base_offset=first,
            )

    def groups(self) -> list[list[LogSegment]]:
        """Return the segments to be written again, in groups that become one segment each."""
        below = [segment for segment in self._given.segments if segment.base_offset < self.end_offset]
        return group_segments(
            below,
            first_uncleanable_offset=self._given.cleanable.first_uncleanable_offset,
            config=self._config,
            env=self._given.env,
        )

    def clean(self, group: Sequence[LogSegment]) -> CleanedSegment | None:
        """Write a group of segments into the .cleaned files of one; None if it is one segment that stays as it is.

        Raises: as build_map; no .cleaned file is left then.
        """
        given, records = self._given, self._filter
        if records is None:
            raise ValueError("build_map comes before clean")
        if len(group) == 1 and group[0].size_in_bytes == 0:
            return None
        base_offset = group[0].base_offset
        records.set_last_records(given.last_records())
        changed_before = records.totals[3:]
        with ExitStack() as undoing:
            undoing.callback(self._remove_cleaned, base_offset)
            target = _CleanedFiles(given.directory, base_offset, config=self._config, env=given.env)
            undoing.callback(target.close)
            for segment in group:
                keeps_old = modified_ms(segment, given.env) > self._old_tombstones_ms
                for _ in self._run(
                    records, records.filter_records, segment, reads=self._count_read, keeps_old_tombstones=keeps_old
                ):
                    out = records.take_output()
                    target.write(out)
                    self.totals.bytes_written += len(out)
                    given.pause(len(out))
            self._check_keyless([records])
            is_changed = len(group) > 1 or records.totals[3:] != changed_before
            aborted, dropped = records.take_aborted(), records.take_dropped()
            if not is_changed:
                return None
            target.finish(
                [self._entry(producer_id=producer_id, last_offset=offset) for producer_id, offset in aborted],
                modified_like=group[-1].path,
            )
            undoing.pop_all()
        target.close()
        return CleanedSegment(base_offset, target.size_in_bytes, target.next_offset, tuple(dropped))

    def measure(self, group: Sequence[LogSegment]) -> int:
        """Return the bytes that clean would leave of a group, without writing them.

        Raises: as build_map.
        """
        records, size = self._filter, 0
        if records is None:
            raise ValueError("build_map comes before measure")
        changed_before = records.totals[3:]
        for segment in group:
            keeps_old = modified_ms(segment, self._given.env) > self._old_tombstones_ms
            for _ in self._run(
                records, records.filter_records, segment, reads=self._count_read, keeps_old_tombstones=keeps_old
            ):
                size += len(records.take_output())
        self._check_keyless([records])
        if len(group) == 1 and records.totals[3:] == changed_before:
            return group[0].valid_end_position
        return size

    @property
    def key_count(self) -> int:
        """The number of keys in the map."""
        return self._map.entry_count

    def close(self) -> None:
        """Count the records of the round; the totals have them from then on."""
        if self._filter is not None:
            _, read, kept, *_ = self._filter.totals
            self.totals.records_read += read
            self.totals.records_kept += kept

    def _made_pass(self, start_offset: int, *, only_looks: bool = False) -> CompactionPass:
        return CompactionPass(
            self._map,
            aborted=[
                (transaction.producer_id, transaction.first_offset, transaction.last_offset)
                for transaction in self._given.aborted
            ],
            decompress=decompress,
            compress=_compress,
            now_ms=self._given.now_ms,
            delete_retention_ms=self._config.delete_retention_ms,
            start_offset=start_offset,
            high_watermark=self._given.high_watermark,
            max_batch_bytes=self._config.max_batch_bytes,
            max_decompressed_bytes=self._config.max_decompressed_bytes,
            only_looks=only_looks,
        )

    def _run(
        self,
        records: CompactionPass,
        take: Callable[[bytes, int], int],
        segment: LogSegment,
        *,
        reads: Callable[[int], None],
        position: int = 0,
        keeps_old_tombstones: bool = True,
    ) -> Iterator[int]:
        """Feed a segment to a pass, and yield the position after each chunk."""
        end = segment.valid_end_position
        records.start_segment(
            base_offset=segment.base_offset,
            next_base_offset=segment.next_base_offset,
            end_position=end,
            position=position,
            keeps_old_tombstones=keeps_old_tombstones,
            path=segment.path,
        )
        most = max(self._config.cleaner_io_buffer_bytes // 2, _LEAST_HEADER_BYTES)
        wanted = most
        with segment.records.lend() as file:
            while position < end and not records.is_full:
                chunk = read_exactly(file, min(wanted, end - position), position=position)
                self._given.pause(len(chunk))
                reached = take(chunk, position)
                reads(reached - position)
                wanted = most
                if reached == position:
                    wanted = self._size_of_batch(chunk, segment, position)
                position = reached
                yield position

    def _size_of_batch(self, chunk: bytes, segment: LogSegment, position: int) -> int:
        """Return the bytes that the batch at a position takes; at least as many as tell its size."""
        if len(chunk) < _LEAST_HEADER_BYTES + 5:
            return _LEAST_HEADER_BYTES + 5 + len(chunk) * 2
        limit = self._config.max_batch_bytes
        if entry_size(chunk) > limit:
            read_header(chunk, position=position, path=segment.path, max_batch_bytes=limit)
        return max(entry_size(chunk), 2 * len(chunk))

    def _count_mapped(self, size: int) -> None:
        self.totals.bytes_mapped += size

    def _count_read(self, size: int) -> None:
        self.totals.bytes_read += size

    def _end_of(self, segment: LogSegment) -> int:
        end = self._given.cleanable.first_uncleanable_offset
        return end if segment.next_base_offset is None else segment.next_base_offset

    def _oldest_tombstones_ms(self) -> int:
        """Return the time of the file at or below which tombstones of magic 0 and 1 go: they have no horizon."""
        clean = [
            segment
            for segment in self._given.segments
            if segment.base_offset < self._given.cleanable.first_dirty_offset
        ]
        return modified_ms(clean[-1], self._given.env) - self._config.delete_retention_ms if clean else 0

    def _entry(self, *, producer_id: int, last_offset: int) -> AbortedTxn:
        """Return the transaction index entry of an abort marker that stays."""
        entry = self._given.entries.get((producer_id, last_offset))
        if entry is not None:
            return entry
        first_offset = next(
            (
                transaction.first_offset
                for transaction in self._given.aborted
                if transaction[0] == producer_id and transaction[2] == last_offset
            ),
            last_offset,
        )
        # Which transactions were open at the marker is not known: with this last stable offset no search ends there.
        return AbortedTxn(producer_id, first_offset, last_offset, first_offset)

    def _remove_cleaned(self, base_offset: int) -> None:
        for suffix in SEGMENT_SUFFIXES:
            self._given.env.unlink(segment_path(self._given.directory, base_offset, suffix=suffix) + CLEANED_STATE)


def without_records_below(
    offset: int, data: bytes, header: BatchHeader, *, path: str, config: LogConfig, now_ms: int
) -> bytes:
    """Return a batch without its records below an offset, as a cleaning leaves it: with the same offsets.

    Args: now_ms: for the delete horizon of tombstones.
    Raises: CorruptRecordError, UnsupportedError.
    """
    batch = RecordBatch(data, path=path, config=config)
    keys = [
        bytes(record.key)
        for record in batch.records(headers=False)
        if record.key is not None and record.offset < offset
    ]
    # As if each of them had a newer record at `offset`; records above latest_offset are kept.
    newer = OffsetMap(
        memory_bytes=_MAP_BYTES_OF_A_KEY * (len(keys) + 1), load_factor=0.5, secret=random_bytes(_SECRET_BYTES)
    )
    for key in keys:
        newer.put(key, offset)
    newer.pass_to(offset - 1)
    records = CompactionPass(
        newer,
        aborted=(),
        decompress=decompress,
        compress=_compress,
        now_ms=now_ms,
        delete_retention_ms=config.delete_retention_ms,
        start_offset=header.base_offset,
        high_watermark=header.last_offset + 1,
        max_batch_bytes=config.max_batch_bytes,
        max_decompressed_bytes=config.max_decompressed_bytes,
    )
    records.start_segment(base_offset=header.base_offset, next_base_offset=None, end_position=len(data), path=path)
    records.filter_records(data, 0)
    return records.take_output()


class _CleanedFiles:
    """The .cleaned files of one segment. What is written is checked as recovery would check it, and indexed."""

    def __init__(self, directory: str, base_offset: int, *, config: LogConfig, env: Env) -> None:
        self._env = env
        self._directory = directory
        self._paths = {
            suffix: segment_path(directory, base_offset, suffix=suffix) + CLEANED_STATE for suffix in SEGMENT_SUFFIXES
        }
        for path in self._paths.values():
            env.unlink(path)
        self._file: WriteFile | None = env.open_write(self._paths[LOG_SUFFIX])
        self.size_in_bytes = 0
        size = config.segment_index_bytes
        self._offsets = OffsetIndexEntries(b"", base_offset=base_offset, max_bytes=size)
        self._times = TimeIndexEntries(b"", base_offset=base_offset, max_bytes=size)
        self._base_offset = base_offset
        self._walk = RecoveryWalk(
            end_position=MAX_INT32,
            base_offset=base_offset,
            max_batch_bytes=MAX_INT32,
            path=self._paths[LOG_SUFFIX],
            index_interval_bytes=config.index_interval_bytes,
            offset_entries=self._offsets,
            time_entries=self._times,
        )

    @property
    def next_offset(self) -> int:
        """The offset after the last batch."""
        return self._walk.last_offset + 1 if self._walk.batch_count else self._base_offset

    def write(self, data: bytes) -> None:
        """Add whole batches."""
        if not data:
            return
        if self._file is None or len(data) > MAX_INT32 - self.size_in_bytes:
            raise too_large(self._paths[LOG_SUFFIX], found=self.size_in_bytes + len(data))
        self._walk.feed(data, self.size_in_bytes)
        self._walk.take_headers()
        if self._walk.error is not None:
            raise self._walk.error
        self._file.pwrite(data, position=self.size_in_bytes)
        self._file.start_write_back(len(data), position=self.size_in_bytes)
        self.size_in_bytes += len(data)

    def finish(self, aborted: Sequence[AbortedTxn], *, modified_like: str) -> None:
        """Write the indexes and make all files and their names durable.

        Args: modified_like: the file whose modification time the new .log gets; brokers of old versions, and the rule
            for magic 0 and 1, tell the age of tombstones by it.
        """
        if self._walk.max_timestamp_ms > self._times.last_entry[0]:
            self._times.maybe_append(
                timestamp_ms=self._walk.max_timestamp_ms,
                offset=self._walk.offset_of_max_timestamp,
                skip_full_check=True,
            )
        if self._file is not None:
            self._file.sync()
        contents = {
            OFFSET_INDEX_SUFFIX: bytes(self._offsets.content),
            TIME_INDEX_SUFFIX: bytes(self._times.content),
        }
        if aborted:
            contents[TRANSACTION_INDEX_SUFFIX] = b"".join(map(encode_aborted_txn, aborted))
        for suffix, content in contents.items():
            with self._env.open_write(self._paths[suffix]) as file:
                file.pwrite(content, position=0)
                file.sync()
        self.close()
        self._env.copy_modification_time(modified_like, self._paths[LOG_SUFFIX])
        self._env.sync_directory(self._directory)

    def close(self) -> None:
        """Close the .log."""
        file, self._file = self._file, None
        if file is not None:
            file.close()


def _compress(codec_id: int, data: Payload, magic: int) -> Payload:
    return compress(codec_id, data, magic=magic)
