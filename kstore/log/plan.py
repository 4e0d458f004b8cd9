"""ScanRange: a part of a log that one worker reads on its own; plan_ranges: splits a log into them.

A split point is where a header walk from a verified index entry (or from the previous split point) arrives, so a wrong
index costs only time. Each range names its files, since another process may read it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from kstore._core import RECORD_BATCH_OVERHEAD, BatchHeader, check_crc
from kstore.config import MAX_INT64, MIB, LogConfig
from kstore.env import DEFAULT_ENV, Env, EnvMaker, Identity, locate
from kstore.errors import CorruptionError, KStoreError, UnsupportedError, checked_int
from kstore.log.damage import SkippedRange
from kstore.log.damaged.sound import FileRange
from kstore.log.files.names import LOG_SUFFIX, OFFSET_INDEX_SUFFIX
from kstore.log.files.records import HEADER_CHUNK_BYTES, BatchPlace
from kstore.log.read_ahead import read_ahead
from kstore.log.segment.passing import Look, Piece
from kstore.log.segment.segment import ENTRIES_TRIED, LogSegment
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from kstore.record.search import Passing

DEFAULT_PLAN_BYTES = 128 * 1024 * 1024
# The largest range that one thread decodes ahead of the reader. Decompressed to a few times its size, it should still
# fit the memory allowed per thread.
THREAD_RANGE_BYTES = 8 * MIB
# Smaller ones cost more to plan and to begin than their tables gain in the cache.
_LEAST_THREAD_RANGE_BYTES = 2 * MIB
# So that no thread works on a last range for long while the others have none.
_RANGES_PER_THREAD = 6
_LEAST_LAST_RANGE_BYTES = 1 * MIB
# In fewer rounds of ranges, the smaller ones at the end would be most of the log.
_LEAST_ROUNDS = 3
# A range ends at the start of a batch: so much more, for what that leaves, makes no range of its own at the end.
_ROUNDING = 128
# Batches that a search found, and its reader has not got to.
_MOST_FOUND_BYTES = 4 * MIB


class RangeSizes(NamedTuple):
    """The sizes of the ranges of a log: max_bytes, but with divides_last a half and quarters in place of the last range
    and of less than a quarter after it: a thread that works on the last one so does not work for long while the others
    have none.
    """

    max_bytes: int
    divides_last: bool = False

    def at(self, left: int) -> int:
        """Return the size of the range that begins so many bytes before the end of the log."""
        quarter = self.max_bytes // 4
        if left > self.max_bytes + quarter or not self.divides_last:
            return self.max_bytes
        smaller = self.max_bytes // 2 if left > self.max_bytes - quarter else quarter
        return min(max(smaller, _LEAST_LAST_RANGE_BYTES), self.max_bytes)


def thread_range_sizes(size_in_bytes: int, *, threads: int, env: Env) -> RangeSizes | None:
    """Return the sizes of the ranges in which threads read a log of this size, None for one thread: as large as may be.

    Several threads get as many ranges each, of at most THREAD_RANGE_BYTES; a small log is one range. Where each range
    begins with requests, few large ones are better; in a tier all but the last ones, which have their blocks in common.
    """
    if checked_int("threads", threads, least=1) == 1:
        return None
    if size_in_bytes < min(_LEAST_THREAD_RANGE_BYTES * threads, THREAD_RANGE_BYTES):
        return RangeSizes(THREAD_RANGE_BYTES)
    if env.is_high_latency:
        divides_last = env.has_views and size_in_bytes >= _LEAST_ROUNDS * THREAD_RANGE_BYTES
        return RangeSizes(THREAD_RANGE_BYTES, divides_last=divides_last)
    least_count = -(-size_in_bytes // THREAD_RANGE_BYTES)
    count = max(least_count, min(_RANGES_PER_THREAD * threads, size_in_bytes // _LEAST_THREAD_RANGE_BYTES))
    rounds = -(-count // threads)
    even = -(-size_in_bytes // (rounds * threads))
    most = min(even + even // _ROUNDING, THREAD_RANGE_BYTES)
    return RangeSizes(most, divides_last=rounds >= _LEAST_ROUNDS)


class Share(NamedTuple):
    """One of the parts into which a read is divided by offsets: [start_offset, end_offset) of [read_start_offset,
    read_end_offset). Damage across the bounds of parts is met by the reader of each of them.
    """

    start_offset: int
    end_offset: int
    read_start_offset: int
    read_end_offset: int

    def owned(self, skipped: SkippedRange) -> SkippedRange | None:
        """Return what the whole read leaves out with some damage if this part must report it, else None: the part with
        its first missing offset must.
        """
        whole = skipped.within(start_offset=self.read_start_offset, end_offset=self.read_end_offset)
        if whole is None or whole.first_missing_offset < self.start_offset:
            return None
        is_last = self.end_offset == self.read_end_offset
        return whole if whole.first_missing_offset < self.end_offset or is_last else None


@dataclass(frozen=True)
class ScanRange:
    """The records with start_offset <= offset < end_offset, all of which are in these parts of files.

    topic, partition: those of the log. The first and the last batch may also hold records outside these offsets.
    path is the partition's directory.
    end_offset is MAX_OFFSET if the end of the log is found by reading it; size_in_bytes may be too large then. aborted:
    (producer id, first offset, last offset) of the transactions whose records are left out. identities: of the planned
    files, by path, so that a worker reads no other files with their names. last_batch: the last one of the log when it
    was planned, which must still be in its file while the range is read. skipped: what a read of the range with
    on_error="skip" leaves out, apart from damage that it finds. share: set for a part of a read divided by offsets.
    is_live: planned by the writer of the log, which renames files that it replaces.
    url: from which a process that reads the range makes the Env, with its options, which may be secret; None for local
    files. carried: what makes that Env where a URL does not suffice, for files of tiered storage.
    Lifetime: valid while the files keep their content; reading raises an error if they did not. Picklable.
    """

    topic: str
    partition: int
    path: str
    files: tuple[FileRange, ...]
    start_offset: int
    end_offset: int
    aborted: tuple[tuple[int, int, int], ...] = ()
    identities: tuple[tuple[str, Identity], ...] = ()
    last_batch: BatchPlace | None = None
    skipped: tuple[SkippedRange, ...] = ()
    share: Share | None = None
    is_live: bool = False
    url: str | None = field(default=None, repr=False)
    carried: EnvMaker | None = field(default=None, repr=False)

    @property
    def env(self) -> Env:
        """The Env that reads the files, chosen again."""
        if self.carried is not None:
            return self.carried.env()
        return DEFAULT_ENV if self.url is None else locate(self.url).env

    def clipped(self, skipped: SkippedRange) -> SkippedRange | None:
        """Return what the reader of this range reports of damage in its files, None for nothing."""
        if self.share is not None:
            return self.share.owned(skipped)
        return skipped.within(start_offset=self.start_offset, end_offset=self.end_offset)

    @property
    def read_end_offset(self) -> int:
        """Where the read ends that this range is a part of."""
        return self.end_offset if self.share is None else self.share.read_end_offset

    @property
    def topic_partition(self) -> TopicPartition:
        """The topic and partition as one value."""
        return TopicPartition(self.topic, self.partition)

    @property
    def size_in_bytes(self) -> int:
        """The number of bytes to read."""
        return sum(file.end_position - file.start_position for file in self.files)


def _opened_paths(scan_range: ScanRange) -> Iterator[str]:
    """Yield the files that a reader of a range may open."""
    for file in scan_range.files:
        yield file.path
        yield file.path.removesuffix(LOG_SUFFIX) + OFFSET_INDEX_SUFFIX
    if scan_range.last_batch is not None:
        yield scan_range.last_batch.path


def carrying(ranges: Iterable[ScanRange], env: Env) -> list[ScanRange]:
    """Return ranges with what another process needs to open their files, of an Env with views."""
    return [replace(scan_range, carried=env.carried(_opened_paths(scan_range))) for scan_range in ranges]


class Extent(NamedTuple):
    """The batches of [start_position, end_position) of a segment; finds_end, following_offset: as in FileRange."""

    segment: LogSegment
    start_position: int
    end_position: int
    finds_end: bool
    following_offset: int | None = None


# A batch with its segment, header and bytes.
RawBatch: TypeAlias = tuple[LogSegment, BatchHeader, bytes]


class _SplitPoint(NamedTuple):
    """A split point: the start of a batch, and an offset at or below all of its offsets and above all before."""

    position: int
    offset: int
    is_proven: bool = False


class _FindSplit(Protocol):
    def __call__(self, segment: LogSegment, *, position: int, target: int, end_position: int) -> _SplitPoint | None: ...


class _Planner:
    """Collects file ranges until they are as large as may be, then yields them as a ScanRange.

    With sizes None each segment is one range, and none is split. With keeps_segments, and where a split takes requests,
    only a segment that is larger is split. Parts of extents whose offsets are all below start_offset, or all from
    end_offset on, are left out.
    """

    def __init__(
        self,
        segments: Sequence[LogSegment],
        topic_partition: TopicPartition,
        *,
        path: str,
        start_offset: int,
        end_offset: int,
        sizes: RangeSizes | None,
        find_split: _FindSplit,
        keeps_segments: bool = False,
        last_batch: BatchPlace | None = None,
    ) -> None:
        self._keeps_segments = keeps_segments
        self._last_batch = last_batch
        self._url: str | None = None
        self._end_offset = end_offset
        self._topic_partition = topic_partition
        self._find_split = find_split
        self._path = path
        self._sizes = sizes
        self._bytes_after = _bytes_after(segments) if sizes is not None and sizes.divides_last else {}
        self._start_offset = start_offset
        self._files: list[FileRange] = []
        self._identities: list[tuple[str, Identity]] = []
        self._is_live = False
        self._size_in_bytes = 0

    def add_extent(self, extent: Extent) -> Iterator[ScanRange]:
        """Add the batches of an extent, and yield the ranges that are full."""
        segment, position, end_position, finds_end, following_offset = extent
        if self._sizes is None and self._files:
            yield from self.close(end_offset=segment.base_offset)
        end_of_log = end_position + self._bytes_after.get(segment.base_offset, 0)
        while end_position - position > (room := self._room(end_of_log - position)):
            if self._files and self._keeps_segments and segment.is_costly_to_split:
                yield from self.close(end_offset=segment.base_offset)
                continue
            split = self._find_split(segment, position=position, target=position + room, end_position=end_position)
            if self._files and (split is None or split.position > position + room):
                # Not one batch fits after the earlier segments' parts: close the range at the segment bound and split
                # again.
                yield from self.close(end_offset=segment.base_offset)
                continue
            if split is None:
                break
            if split.offset <= self._start_offset:
                position = split.position
                continue
            proven_offset = split.offset if split.is_proven else None
            self._add(Extent(segment, position, split.position, finds_end=False, following_offset=proven_offset))
            if split.offset >= self._end_offset:
                return
            yield from self.close(end_offset=split.offset)
            position = split.position
        self._add(Extent(segment, position, end_position, finds_end, following_offset))

    def close(self, *, end_offset: int) -> Iterator[ScanRange]:
        """Yield the collected parts as a range, if there are any."""
        if self._files:
            yield ScanRange(
                *self._topic_partition,
                path=self._path,
                files=tuple(self._files),
                start_offset=self._start_offset,
                end_offset=end_offset,
                identities=tuple(self._identities),
                last_batch=self._last_batch,
                is_live=self._is_live,
                url=self._url,
            )
        self._files, self._identities = [], []
        self._size_in_bytes = 0
        self._start_offset = end_offset

    def _room(self, left: int) -> int:
        """Return how many of the bytes that are left the range still takes."""
        if self._sizes is None:
            return MAX_INT64
        return max(self._sizes.at(left + self._size_in_bytes) - self._size_in_bytes, 0)

    def _add(self, extent: Extent) -> None:
        segment, start_position, end_position, finds_end, following_offset = extent
        if start_position < end_position:
            place = (segment.path, segment.base_offset, start_position, end_position)
            self._files.append(FileRange(*place, segment.next_base_offset, finds_end, following_offset))
            self._identities.append((segment.path, segment.file_identity()))
            self._is_live = segment.records.is_live
            self._url = segment.url
            self._size_in_bytes += end_position - start_position


def plan_ranges(
    segments: Sequence[LogSegment],
    topic_partition: TopicPartition,
    *,
    path: str,
    start_offset: int,
    end_offset: int,
    log_end_offset: int | None,
    sizes: RangeSizes | None,
    last_batch: BatchPlace | None = None,
) -> Iterator[ScanRange]:
    """Split the records of [start_offset, end_offset) into ranges of about these sizes, lazily; see Log.plan.

    If end_offset is the log end and the last segment ends in damage, the last range covers the damage as well.
    Args: log_end_offset: None if it is not known, and the reader of the last range finds it; sizes: None for one range
        per segment; last_batch: that of the ranges.
    """
    planner = _Planner(
        segments,
        topic_partition,
        path=path,
        start_offset=start_offset,
        end_offset=end_offset,
        sizes=sizes,
        find_split=_find_split_point,
        keeps_segments=log_end_offset is None,
        last_batch=last_batch,
    )
    for extent in extents(segments, start_offset=start_offset, end_offset=end_offset, log_end_offset=log_end_offset):
        yield from planner.add_extent(extent)
    yield from planner.close(end_offset=end_offset)


def _bytes_after(segments: Sequence[LogSegment]) -> dict[int, int]:
    """Return by base offset how many bytes the segments after each one have."""
    found, size_in_bytes = {}, 0
    for segment in reversed(segments):
        found[segment.base_offset] = size_in_bytes
        size_in_bytes += segment.size_in_bytes
    return found


def started_ranges(
    segments: Sequence[LogSegment],
    topic_partition: TopicPartition,
    *,
    path: str,
    start_offset: int,
    max_bytes: int,
) -> Iterator[ScanRange]:
    """Yield a range without records, for another thread than the one that plans the first range from start_offset on.

    What begins a segment that is decoded in parts is in memory once it was read, and the plan decodes another part; of
    all other segments there is no such range.
    Args: as of plan_ranges.
    """
    segment = next(
        (one for one in segments if one.next_base_offset is None or one.next_base_offset > start_offset), None
    )
    if segment is None or start_offset > segment.base_offset or segment.size_in_bytes <= max_bytes:
        return
    with segment.records.lend() as file:
        has_parts = file.has_parts
    if has_parts:
        yield ScanRange(
            *topic_partition,
            path=path,
            files=(FileRange(segment.path, segment.base_offset, 0, 0, segment.next_base_offset),),
            start_offset=start_offset,
            end_offset=start_offset,
            identities=((segment.path, segment.file_identity()),),
            url=segment.url,
        )


def plan_ranges_around_damage(
    segments: Sequence[LogSegment],
    topic_partition: TopicPartition,
    *,
    path: str,
    start_offset: int,
    end_offset: int,
    sizes: RangeSizes,
) -> Iterator[ScanRange]:
    """Split the records of [start_offset, end_offset) as plan_ranges does, for readers that go on after damage.

    Nothing follows the headers of batches whose CRC is unknown: ranges start and end only where segments do, or where
    an index entry points to a sound batch. end_offset: MAX_OFFSET for the end of the last segment, wherever that is.
    """
    planner = _Planner(
        segments,
        topic_partition,
        path=path,
        start_offset=start_offset,
        end_offset=end_offset,
        sizes=sizes,
        find_split=_find_proven_split,
    )
    for extent in extents_around_damage(segments, start_offset=start_offset, end_offset=end_offset):
        yield from planner.add_extent(extent)
    yield from planner.close(end_offset=end_offset)


def extents_around_damage(segments: Sequence[LogSegment], *, start_offset: int, end_offset: int) -> Iterator[Extent]:
    """Yield a part of each segment that contains the batches with records of [start_offset, end_offset), and perhaps
    others before and after them.
    """
    for segment in segments:
        if segment.next_base_offset is not None and segment.next_base_offset <= start_offset:
            continue
        if segment.base_offset >= end_offset:
            return
        end_position = segment.scan_end_position
        start_position = 0
        if start_offset > segment.base_offset:
            start_position = segment.floor_position(start_offset, end_position=end_position)
        following_offset = None
        if segment.next_base_offset is None or segment.next_base_offset > end_offset:
            ceiling = segment.ceiling_batch(end_offset, end_position=end_position)
            if ceiling is not None:
                end_position, following_offset = ceiling.position, segment.records.first_offset(ceiling)
        if start_position < end_position:
            finds_end = segment.is_last and following_offset is None
            yield Extent(segment, start_position, end_position, finds_end, following_offset)


def extents(
    segments: Sequence[LogSegment], *, start_offset: int, end_offset: int, log_end_offset: int | None
) -> Iterator[Extent]:
    """Yield the part of each segment with the batches that hold records of [start_offset, end_offset).

    Everything at the end of the last segment is included if end_offset is log_end_offset.
    """
    reaches_end = log_end_offset is None or end_offset >= log_end_offset
    if start_offset >= end_offset and not reaches_end:
        return
    for segment in segments:
        if segment.next_base_offset is not None and segment.next_base_offset <= start_offset:
            continue
        if segment.base_offset >= end_offset and not (reaches_end and segment.is_last):
            return
        start_position = 0
        if start_offset > segment.base_offset:
            first = (
                segment.translate_offset(start_offset)
                if log_end_offset is None or start_offset < log_end_offset
                else None
            )
            start_position = segment.valid_end_position if first is None else first.position
        finds_end = log_end_offset is None and segment.is_last
        end_position = segment.size_in_bytes if finds_end else segment.scan_end_position
        if not reaches_end and (segment.next_base_offset is None or segment.next_base_offset > end_offset):
            last = segment.translate_offset(end_offset)
            if last is not None:
                is_needed = _starts_before(end_offset, last, segment)
                end_position = last.position + (last.size_in_bytes if is_needed else 0)
        if start_position < end_position:
            yield Extent(segment, start_position, end_position, finds_end)


def _starts_before(offset: int, batch: BatchHeader, segment: LogSegment) -> bool:
    """Whether a batch may have records below an offset; a damaged one may, so that reading reports the damage."""
    try:
        return segment.records.first_offset(batch) < offset
    except (CorruptionError, UnsupportedError):
        return True


def _find_split_point(segment: LogSegment, *, position: int, target: int, end_position: int) -> _SplitPoint | None:
    """Return the last batch that starts in (position, target], or the first one after `position` if there is none.

    None if no other batch starts before end_position, or damage hides where it does. The target may be moved, or no
    split be worth it: see ReadFile.split_target.
    """
    near = _split_target(segment, target, position=position, end_position=end_position)
    if near is None:
        return None
    indexed = segment.batch_before(near)
    if indexed is not None and _is_split(indexed, position=position, target=near, end_position=end_position):
        return _SplitPoint(indexed.position, indexed.base_offset)
    for start in _walk_starts(segment, position=position, target=near, end_position=end_position):
        walk = segment.records.walk(position=start, end_position=near)
        boundary, last_offset = walk.position, walk.last_offset
        if boundary == start > position:
            continue
        if boundary == position:
            first = segment.records.walk(
                position=position, end_position=end_position, stop_offset=0, first_bytes=RECORD_BATCH_OVERHEAD
            ).found
            if first is None:
                return None
            boundary, last_offset = position + first.size_in_bytes, first.last_offset
        if boundary >= end_position:
            return None
        split: BatchHeader | None = segment.records.walk(
            position=boundary,
            end_position=end_position,
            previous_last_offset=last_offset,
            stop_offset=0,
            first_bytes=RECORD_BATCH_OVERHEAD,
        ).found
        if split is not None:
            return _SplitPoint(split.position, split.base_offset if split.has_base_offset else last_offset + 1)
    return None


def _is_split(batch: BatchHeader, *, position: int, target: int, end_position: int) -> bool:
    """Whether a batch is the last one that starts in (position, target], and before end_position."""
    starts_there = position < batch.position < end_position and batch.has_base_offset
    return starts_there and batch.position <= target < batch.position + batch.size_in_bytes


def _find_proven_split(segment: LogSegment, *, position: int, target: int, end_position: int) -> _SplitPoint | None:
    """Return the batch at the last index entry in (position, target] that the log proves, or else at the first one
    after `target`, None if there is none, or no split is worth it.
    """
    index = segment.offset_index
    if index is None:
        return None
    near = _split_target(segment, target, position=position, end_position=end_position)
    if near is None:
        return None
    before = index.slot_of_position(near)
    for slot in (*range(before, max(before - ENTRIES_TRIED, -1), -1), *range(before + 1, index.entry_count)):
        if not position < index.entry(slot).position < end_position:
            continue
        batch = segment.proven_batch(index, slot, end_position=end_position)
        if batch is not None:
            return _SplitPoint(batch.position, segment.records.first_offset(batch), is_proven=True)
    return None


def _split_target(segment: LogSegment, target: int, *, position: int, end_position: int) -> int | None:
    """Return where to look for a split of [position, end_position): near `target`, and inside; None for nowhere."""
    with segment.records.lend() as file:
        found = file.split_target(target, position=position)
    if found >= end_position:
        return None
    return found if position < found else target


def _walk_starts(segment: LogSegment, *, position: int, target: int, end_position: int) -> Iterator[int]:
    """Yield batch boundaries in [position, target] from which to walk to the target, the best one first.

    The entry nearest to the target is skipped: what precedes it has to be walked too, so that the batch at the split
    point is known to follow in order.
    """
    index = segment.offset_index
    if index is not None:
        slot = index.slot_of_position(target) - 1
        for candidate in range(slot, max(slot - ENTRIES_TRIED, -1), -1):
            entry_position = index.entry(candidate).position
            if entry_position <= position:
                break
            if entry_position > target:
                continue
            if segment.verified_batch(index, candidate, end_position=end_position) is not None:
                yield entry_position
    yield position


def batches_of(parts: Iterable[Extent], *, checks_crc: bool, anchor: BatchPlace | None) -> Iterator[RawBatch]:
    """Iterate the batches of extents.

    Args: anchor: as in SegmentRecords.read_batches.
    Raises: CorruptRecordError, UnsupportedMagicError; LogReplacedError; StorageError.
    """
    for segment, position, end_position, *_ in parts:
        batches = segment.records.read_batches(position=position, end_position=end_position, anchor=anchor)
        for header, data in batches:
            if checks_crc:
                check_crc(data, position=header.position, path=segment.path)
            yield segment, header, data


def unpassed_batches(
    parts: Iterable[Extent], passing: Passing, *, anchor: BatchPlace | None, config: LogConfig
) -> Generator[RawBatch, None, None]:
    """Iterate the batches of extents that a search does not pass over.

    Args: passing: on_pass is called by the thread that iterates; anchor: as in SegmentRecords.read_batches.
    Raises: as batches_of.
    Threads: passing.threads look, one of which is the caller's.
    Cost: a chunk for each thread; with several of them, batches of a few MiB too.
    """
    if passing.threads == 1:
        look = Look(passing, anchor=anchor, first_bytes=HEADER_CHUNK_BYTES, config=config)
        found = (one for extent in parts for one in look.through(Piece(*extent[:3], extent.end_position)))
    else:
        look = Look(passing, anchor=anchor, first_bytes=config.read_chunk_bytes, config=config)
        pieces = (piece for extent in parts for piece in _divided(extent))
        size_of, most = attrgetter("size_in_bytes"), _MOST_FOUND_BYTES
        found = read_ahead(pieces, look.through, threads=passing.threads, size_of=size_of, most_bytes_ahead=most)
    read_on: tuple[LogSegment, int] | None = None
    with closing(found):
        for piece, passed_bytes, header, data, rest in found:
            if read_on == (piece.segment, piece.rest_position):
                # What follows was read in order.
                continue
            passing.on_pass(passed_bytes)
            if header is not None:
                yield piece.segment, header, data
            elif rest is not None:
                read_on = piece.segment, piece.rest_position
                for header, data in piece.segment.records.read_batches(
                    position=rest[0], end_position=piece.rest_position, previous_last_offset=rest[1], anchor=anchor
                ):
                    yield piece.segment, header, data


def _divided(extent: Extent) -> Iterator[Piece]:
    """Yield an extent in pieces for threads.

    What hinders a division, or makes it costly, makes pieces larger, and is no error.
    """
    segment, position, end_position, *_ = extent
    while end_position - position > THREAD_RANGE_BYTES and not segment.is_costly_to_split:
        split, target = None, position + THREAD_RANGE_BYTES
        with suppress(KStoreError):
            split = _find_split_point(segment, position=position, target=target, end_position=end_position)
        if split is None:
            break
        yield Piece(segment, position, split.position, end_position)
        position = split.position
    yield Piece(segment, position, end_position, end_position)
