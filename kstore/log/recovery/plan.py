"""RecoveryPlan: what recovery will do to the segments of a log; Planner makes it by reading only, carry_out applies it.

plan_unclean walks the segments that may be damaged, plan_clean checks only what a clean shutdown leaves open. Planning
changes nothing, so that strict mode can refuse, and a dry run report, with every byte untouched. OpenTransactions
rebuilds the transaction indexes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from kstore.env import ENOENT, Env
from kstore.errors import CorruptIndexError, CorruptSnapshotError, StorageError
from kstore.log.damage import Damage
from kstore.log.damaged.check import IndexFile, OffsetIndexCheck, TimeIndexCheck
from kstore.log.files.checkpoints import EpochEntry, replace_file
from kstore.log.files.durable_point import DurablePoint
from kstore.log.files.indexes import MAX_INDEX_BYTES, OffsetIndex, TimeIndex
from kstore.log.files.names import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    PRODUCER_SNAPSHOT_SUFFIX,
    SEGMENT_INDEX_SUFFIXES,
    SWAP_STATE,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    base_offset_file_name,
    segment_path,
)
from kstore.log.files.records import holds_only_zeros, is_preallocated
from kstore.log.files.snapshots import read_snapshot
from kstore.log.files.transaction_index import AbortedTxn, decode_aborted_txns, encode_aborted_txn
from kstore.log.recovery.context import RecoveryContext
from kstore.log.recovery.files import PartitionFiles, Quarantine, SegmentFiles, settle_side_files
from kstore.log.recovery.walk import SegmentWalk, find_intact_end
from kstore.log.state.producer_append import ProducerStateBatch


class Truncation(NamedTuple):
    """Damage at which a segment is truncated.

    offset: the first one that is missing from the log, or may be. size_in_bytes: from the damage to the end of the
    file; the damage itself may be smaller. damage_end_offset: the offset of the first whole batch after the damage, or
    of the next segment; lost_end_offset: the offset after the last whole batch that goes with the truncation; None if
    there is none.
    """

    damage: Damage
    base_offset: int
    offset: int
    size_in_bytes: int
    damage_end_offset: int | None
    lost_end_offset: int | None


class _DamagedRange(NamedTuple):
    """The damaged bytes where a walk stopped. end_offset: of the first whole batch after them, last_end_offset: the
    offset after the last one of the segment; None if there is none.
    """

    size_in_bytes: int
    end_offset: int | None = None
    last_end_offset: int | None = None


@dataclass
class SegmentPlan:
    """What recovery will do to one segment.

    log_name: the file that holds it now; start_position: where it starts in that file; size_in_bytes: from there to the
    end of the file; end_position: how much of that remains; is_padded: whether the rest is preallocated space.
    producers and epochs as in SegmentWalk, None if it was not walked. indexes: new content by suffix.
    """

    base_offset: int
    log_name: str
    size_in_bytes: int
    end_position: int
    next_offset: int
    start_position: int = 0
    max_timestamp_ms: int = -1
    offset_of_max_timestamp: int = -1
    is_recovered: bool = False
    is_padded: bool = False
    producers: tuple[ProducerStateBatch, ...] | None = None
    epochs: tuple[EpochEntry, ...] | None = None
    indexes: dict[str, bytes] = field(default_factory=dict)

    @property
    def is_walked(self) -> bool:
        """Whether its batches were read, so that next_offset is the offset after the last one."""
        return self.epochs is not None

    @property
    def is_split_off(self) -> bool:
        """Whether it is split off from the file of another segment, possibly from its very start."""
        return self.name != self.log_name.removesuffix(SWAP_STATE)

    @property
    def name(self) -> str:
        return base_offset_file_name(self.base_offset, suffix=LOG_SUFFIX)


@dataclass
class RecoveryPlan:
    """The segments that remain, those that are removed, and the damage found.

    truncations: where recovered segments are truncated; older: damage in segments that are not recovered, which stays
    in place; rebuilt: names of index files and checkpoints that are rewritten.
    """

    files: PartitionFiles
    segments: list[SegmentPlan] = field(default_factory=list)
    dropped: list[SegmentFiles] = field(default_factory=list)
    truncations: list[Truncation] = field(default_factory=list)
    older: list[Truncation] = field(default_factory=list)
    rebuilt: list[str] = field(default_factory=list)

    @property
    def log_end_offset(self) -> int:
        return self.segments[-1].next_offset if self.segments else 0


class Planner:
    """Makes the RecoveryPlan of one partition; see plan_unclean and plan_clean.

    Args: point: the offset below which everything is known to be durable.
    """

    def __init__(self, context: RecoveryContext, files: PartitionFiles, *, point: int) -> None:
        self._context = context
        self._point = point
        self._plan = RecoveryPlan(files)
        self._transactions: OpenTransactions | None = None
        # Of the segments that recovery leaves alone, by base offset: what a transaction index has to say at least.
        self._aborted_in: dict[int, bytes] = {}

    def plan_unclean(self, *, trusts_point: bool) -> RecoveryPlan:
        """Plan after an unclean shutdown: walk every segment.

        With trusts_point, segments before that of the recovery point are not walked if their indexes look sound.
        """
        segments = self._plan.files.segments
        floor = max((slot for slot, files in enumerate(segments) if files.base_offset <= self._point), default=0)
        first = floor if trusts_point else 0
        self._take_unread(first)
        if segments:
            self._transactions = self._transactions_at(first)
        for slot in range(first, len(segments)):
            walk = self._walk(segments[slot], _next_base(segments, slot))
            if first < slot <= floor:
                self._settle_transactions(segments[slot].base_offset, is_recovered=slot == floor)
            if self._starts_without_transactions(segments[slot]):
                self._transactions = OpenTransactions({}, map_end_offset=0)
            if slot < floor:
                self._take_older(segments[slot], walk)
            elif not self._take_recovered(segments[slot], walk, next_base_offset=_next_base(segments, slot)):
                self._plan.dropped += segments[slot + 1 :]
                break
        self._check_stable_offsets()
        return self._plan

    def plan_clean(self, noted: DurablePoint | None) -> RecoveryPlan:
        """Plan after a clean shutdown: check the end of the last segment, and rebuild indexes that a listing shows to
        be wrong.

        Args: noted: the last durable point; if it is the end of the log file, no byte of that is read.
        """
        segments = self._plan.files.segments
        self._take_unread(len(segments))
        if segments:
            self._settle_clean_end(segments[-1], noted)
        return self._plan

    def _take_unread(self, count: int) -> None:
        """Take the first `count` segments as they are, but walk those whose indexes a listing shows to be wrong."""
        segments = self._plan.files.segments
        for slot, files in enumerate(segments[:count]):
            if self._looks_sound(files):
                self._plan.segments.append(_unread(segments, slot))
            else:
                self._transactions = self._transactions_at(slot)
                self._take_older(files, self._walk(files, _next_base(segments, slot)))

    def _settle_clean_end(self, files: SegmentFiles, noted: DurablePoint | None) -> None:
        last = self._plan.segments[-1]
        end = find_intact_end(
            self._context.path_of(files.log_name),
            base_offset=files.base_offset,
            size_in_bytes=files.size_in_bytes,
            indexes={suffix: self._content(files, suffix) for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX)},
            noted=noted,
            config=self._context.config,
            env=self._context.env,
        )
        if end is not None:
            last.next_offset = end.next_offset
            last.max_timestamp_ms, last.offset_of_max_timestamp = end.max_timestamp_ms, end.offset_of_max_timestamp
            return
        # The clean shutdown marker does not hold for this segment: recover it as after a crash.
        self._plan.segments.pop()
        self._plan.older = [kept for kept in self._plan.older if kept.base_offset != files.base_offset]
        if self._starts_without_transactions(files):
            self._transactions = OpenTransactions({}, map_end_offset=0)
        else:
            self._transactions = self._transactions_at(len(self._plan.segments))
        self._take_recovered(files, self._walk(files, None), next_base_offset=None)

    def _looks_sound(self, files: SegmentFiles) -> bool:
        sizes = files.index_sizes
        if OFFSET_INDEX_SUFFIX not in sizes or TIME_INDEX_SUFFIX not in sizes:
            return False
        if sizes[OFFSET_INDEX_SUFFIX] % 8 or sizes[TIME_INDEX_SUFFIX] % 12:
            return False
        content = self._content(files, TRANSACTION_INDEX_SUFFIX)
        return content is None or plausible_aborted_txns(content, base_offset=files.base_offset) is not None

    def _walk(self, files: SegmentFiles, next_base_offset: int | None, *, start_position: int = 0) -> SegmentWalk:
        walk = self._context.walk(
            files.log_name,
            base_offset=files.base_offset,
            next_base_offset=next_base_offset,
            start_position=start_position,
        )
        position = start_position + walk.end_position
        if walk.status == "zeros" and self._is_preallocated(files, walk, next_base_offset, position=position):
            return walk._replace(status="end")
        return walk

    def _is_preallocated(
        self, files: SegmentFiles, walk: SegmentWalk, next_base_offset: int | None, *, position: int
    ) -> bool:
        with self._context.env.open_read(self._context.path_of(files.log_name)) as file:
            return is_preallocated(
                file,
                position=position,
                end_position=files.size_in_bytes,
                next_offset=walk.next_offset,
                next_base_offset=next_base_offset,
                cleaned_below=self._context.cleaned_below,
                point=self._point,
            )

    def _take_older(self, files: SegmentFiles, walk: SegmentWalk) -> None:
        """Check a segment that recovery leaves alone: its indexes may be rewritten, and preallocated zeros after its
        last batch removed.
        """
        plan = _planned(files, walk)
        plan.epochs = walk.epochs
        aborted = self._aborted(walk)
        if walk.status != "end":
            plan.end_position = files.size_in_bytes
            self._plan.older.append(self._truncation_at(files, walk))
            self._transactions = None
        else:
            contents = {OFFSET_INDEX_SUFFIX: walk.offset_entries, TIME_INDEX_SUFFIX: walk.time_entries}
            for suffix, content in contents.items():
                content_of_file = self._content(files, suffix)
                if content_of_file != content and is_wrong_index(
                    self._context, files, content_of_file, suffix=suffix, next_base_offset=plan.next_offset
                ):
                    plan.indexes[suffix] = content
            content_of_file = self._content(files, TRANSACTION_INDEX_SUFFIX)
            kept = stated_aborted_txns(content_of_file, walk, base_offset=files.base_offset)
            if aborted is not None:
                self._aborted_in[files.base_offset] = aborted
            if aborted is not None and forgets_aborted(kept, aborted, base_offset=files.base_offset):
                plan.indexes[TRANSACTION_INDEX_SUFFIX] = aborted
            elif kept != content_of_file and kept is not None:
                plan.indexes[TRANSACTION_INDEX_SUFFIX] = kept
        self._note_rebuilt(plan)
        self._plan.segments.append(plan)

    def _check_stable_offsets(self) -> None:
        """Write the transaction indexes again in which a last stable offset is above the end of the log."""
        for plan in self._plan.segments:
            aborted = self._aborted_in.get(plan.base_offset)
            if aborted is None or TRANSACTION_INDEX_SUFFIX in plan.indexes:
                continue
            name = base_offset_file_name(plan.base_offset, suffix=TRANSACTION_INDEX_SUFFIX)
            content = index_content(self._context, name)
            entries = plausible_aborted_txns(content or b"", base_offset=plan.base_offset) or ()
            if any(entry.last_stable_offset > self._plan.log_end_offset for entry in entries):
                plan.indexes[TRANSACTION_INDEX_SUFFIX] = aborted
                self._plan.rebuilt.append(name)

    def _take_recovered(self, files: SegmentFiles, walk: SegmentWalk, *, next_base_offset: int | None) -> bool:
        """Plan what remains of a segment; return whether the segments after it remain too.

        Batches that its indexes cannot address become a segment of their own (Kafka: splitOverflowedSegment).
        """
        start = 0
        self._plan_recovered(files, walk, start_position=start)
        while walk.status == "overflow":
            start += walk.end_position
            files = SegmentFiles(walk.overflow_base_offset, files.log_name, files.size_in_bytes, {}, {})
            walk = self._walk(files, next_base_offset, start_position=start)
            self._plan_recovered(files, walk, start_position=start)
        if walk.status == "end":
            return True
        truncation = self._truncation_at(files, walk, start_position=start)
        keeps_later = walk.status == "overlap"
        end = self._end_before_truncation(truncation, keeps_later=keeps_later)
        self._plan.truncations.append(truncation._replace(lost_end_offset=end))
        return keeps_later

    def _plan_recovered(self, files: SegmentFiles, walk: SegmentWalk, *, start_position: int) -> None:
        plan = _planned(files, walk, start_position=start_position)
        plan.is_recovered, plan.producers, plan.epochs = True, walk.producers, walk.epochs
        contents = {OFFSET_INDEX_SUFFIX: walk.offset_entries, TIME_INDEX_SUFFIX: walk.time_entries}
        aborted = self._aborted(walk)
        if aborted is not None and (aborted or TRANSACTION_INDEX_SUFFIX in files.index_sizes):
            contents[TRANSACTION_INDEX_SUFFIX] = aborted
        plan.indexes = {
            suffix: content for suffix, content in contents.items() if self._content(files, suffix) != content
        }
        self._note_rebuilt(plan)
        self._plan.segments.append(plan)

    def _truncation_at(self, files: SegmentFiles, walk: SegmentWalk, *, start_position: int = 0) -> Truncation:
        path = self._context.path_of(files.log_name)
        position = start_position + walk.end_position
        later = [segment for segment in self._plan.files.segments if segment.base_offset > files.base_offset]
        damaged_range = self._damaged_range(
            files, walk, position, next_base_offset=later[0].base_offset if later else None
        )
        damage = Damage(path, position, damaged_range.size_in_bytes, walk.reason)
        left = files.size_in_bytes - position
        return Truncation(
            damage, files.base_offset, walk.next_offset, left, damaged_range.end_offset, damaged_range.last_end_offset
        )

    def _end_before_truncation(self, truncation: Truncation, *, keeps_later: bool) -> int | None:
        """Return the offset at which the records end that go with a truncation; None if there are no whole ones."""
        later = [segment for segment in self._plan.files.segments if segment.base_offset > truncation.base_offset]
        if not later:
            return truncation.lost_end_offset
        if keeps_later:
            return later[0].base_offset
        return self._walk(later[-1], None).next_offset

    def _damaged_range(
        self, files: SegmentFiles, walk: SegmentWalk, position: int, *, next_base_offset: int | None
    ) -> _DamagedRange:
        """Return the damage where a walk stopped, with its size as `verify` counts it."""
        left = files.size_in_bytes - position
        if walk.status == "zeros":
            with self._context.env.open_read(self._context.path_of(files.log_name)) as file:
                if holds_only_zeros(file, position=position, end_position=files.size_in_bytes):
                    return _DamagedRange(left, next_base_offset)
        with self._context.check_of(files, next_base_offset=next_base_offset) as check:
            steps = check.steps(position, least_offset=walk.next_offset)
            first = next(steps, None)
            if first is None:
                return _DamagedRange(left, next_base_offset)
            whole = (step.header for step in steps if step.header is not None and step.damage is None)
            following = next(whole, None)
            last = deque(whole, maxlen=1)
        size = first.end_position - position
        if following is None:
            return _DamagedRange(size, next_base_offset)
        end_offset = following.base_offset if following.has_base_offset else None
        return _DamagedRange(size, end_offset, (last.pop() if last else following).last_offset + 1)

    def _aborted(self, walk: SegmentWalk) -> bytes | None:
        """Return the transaction index of a walked segment, None if the transactions open before it are unknown."""
        return None if self._transactions is None else self._transactions.aborted_of(walk.producers)

    def _transactions_at(self, slot: int) -> OpenTransactions:
        """Return the transactions open at the start of a segment, from the last snapshot before it and a walk."""
        segments = self._plan.files.segments
        base_offset = segments[slot].base_offset
        transactions = OpenTransactions.of_snapshots(
            self._context, self._plan.files.snapshot_offsets, base_offset=base_offset
        )
        for earlier in range(slot):
            next_base = segments[earlier + 1].base_offset
            if next_base > transactions.map_end_offset:
                transactions.aborted_of(self._walk(segments[earlier], next_base).producers)
        return transactions

    def _starts_without_transactions(self, files: SegmentFiles) -> bool:
        """True if recovery of a segment starts without open transactions, because everything before it is below the log
        start.

        No snapshot may exist there, and without one Kafka starts each recovered segment with empty state.
        """
        if not self._plan.segments:
            return files.base_offset < self._context.log_start_offset
        return self._plan.segments[-1].next_offset <= self._context.log_start_offset

    def _settle_transactions(self, base_offset: int, *, is_recovered: bool) -> None:
        """Use the snapshot at exactly this offset where it knows more open transactions than the walk up to there.

        Where recovery starts, the snapshot is trusted, as brokers do: a cleaner may have removed the records of a
        transaction whose marker is still to come. In an older segment such a marker needs no index entry. Only the
        snapshot knows which transactions ended inside a gap of offsets.
        """
        has_gap = self._plan.segments[-1].next_offset < base_offset
        if not has_gap and not is_recovered:
            return
        noted = OpenTransactions.of_snapshots(self._context, self._plan.files.snapshot_offsets, base_offset=base_offset)
        if noted.map_end_offset != base_offset:
            self._transactions = None if has_gap else self._transactions
        elif is_recovered:
            self._transactions = noted
        elif self._transactions is not None:
            self._transactions.keep_only(noted)

    def _content(self, files: SegmentFiles, suffix: str) -> bytes | None:
        name = files.index_names.get(suffix)
        return None if name is None else index_content(self._context, name)

    def _note_rebuilt(self, plan: SegmentPlan) -> None:
        self._plan.rebuilt += [
            base_offset_file_name(plan.base_offset, suffix=suffix)
            for suffix in SEGMENT_INDEX_SUFFIXES
            if suffix in plan.indexes
        ]


def _planned(files: SegmentFiles, walk: SegmentWalk, *, start_position: int = 0) -> SegmentPlan:
    return SegmentPlan(
        base_offset=files.base_offset,
        log_name=files.log_name,
        start_position=start_position,
        size_in_bytes=files.size_in_bytes - start_position,
        end_position=walk.end_position,
        next_offset=walk.next_offset,
        max_timestamp_ms=walk.max_timestamp_ms,
        offset_of_max_timestamp=walk.offset_of_max_timestamp,
        is_padded=walk.status == "end" and walk.end_position < files.size_in_bytes - start_position,
    )


def _next_base(segments: tuple[SegmentFiles, ...], slot: int) -> int | None:
    return segments[slot + 1].base_offset if slot + 1 < len(segments) else None


def _unread(segments: tuple[SegmentFiles, ...], slot: int) -> SegmentPlan:
    files = segments[slot]
    following = _next_base(segments, slot)
    next_offset = files.base_offset if following is None else following
    return SegmentPlan(files.base_offset, files.log_name, files.size_in_bytes, files.size_in_bytes, next_offset)


class OpenTransactions:
    """The transactions open at map_end_offset; fed with batches, it finds those that abort."""

    def __init__(self, first_offsets: dict[int, int], *, map_end_offset: int) -> None:
        self._first_offsets = first_offsets
        self.map_end_offset = map_end_offset

    @classmethod
    def of_snapshots(
        cls, context: RecoveryContext, snapshot_offsets: Iterable[int], *, base_offset: int
    ) -> OpenTransactions:
        """Return those of the last readable snapshot at or below base_offset; none if there is no snapshot."""
        for offset in sorted(
            (snapshot_offset for snapshot_offset in snapshot_offsets if snapshot_offset <= base_offset), reverse=True
        ):
            path = segment_path(context.path, offset, suffix=PRODUCER_SNAPSHOT_SUFFIX)
            try:
                entries = read_snapshot(path, context.env)
            except CorruptSnapshotError:
                continue
            open_ones = {
                entry.producer_id: entry.current_txn_first_offset
                for entry in entries
                if entry.current_txn_first_offset >= 0
            }
            return cls(open_ones, map_end_offset=offset)
        return cls({}, map_end_offset=0)

    def keep_only(self, others: OpenTransactions) -> None:
        """Forget the transactions that are not in `others`; there they may start earlier."""
        begun = others._first_offsets
        self._first_offsets = {
            producer_id: first_offset
            for producer_id, first_offset in self._first_offsets.items()
            if begun.get(producer_id, first_offset + 1) <= first_offset
        }

    def aborted_of(self, batches: Iterable[ProducerStateBatch]) -> bytes:
        """Process the batches from map_end_offset on, and return the transaction index for them."""
        content = []
        for batch in batches:
            if batch.last_offset < self.map_end_offset:
                continue
            if not batch.is_control:
                if batch.is_transactional:
                    self._first_offsets.setdefault(batch.producer_id, batch.base_offset)
            elif batch.marker is not None:
                first_offset = self._first_offsets.pop(batch.producer_id, None)
                if batch.marker.is_abort and first_offset is not None:
                    stable = min(self._first_offsets.values(), default=batch.base_offset + 1)
                    aborted = AbortedTxn(batch.producer_id, first_offset, batch.base_offset, stable)
                    content.append(encode_aborted_txn(aborted))
        return b"".join(content)


def index_content(context: RecoveryContext, name: str) -> bytes | None:
    """Return the content of an index file, None if it does not exist or is too large to be one."""
    try:
        return context.env.read_file(context.path_of(name), max_bytes=MAX_INDEX_BYTES)
    except StorageError as error:
        if error.errno in (None, ENOENT):
            return None
        raise


def plausible_aborted_txns(content: bytes, *, base_offset: int) -> tuple[AbortedTxn, ...] | None:
    """Return the entries of a transaction index, None if they are impossible whatever the log holds."""
    try:
        entries = decode_aborted_txns(content, base_offset=base_offset, path="")
    except CorruptIndexError:
        return None
    return entries if all(entry.first_offset <= entry.last_offset for entry in entries) else None


def forgets_aborted(content: bytes | None, aborted: bytes, *, base_offset: int) -> bool:
    """True if a transaction index lacks one of the aborted transactions, or is damaged.

    It may have more of them, or an earlier first offset: a cleaner removes the data of aborted transactions, not their
    entries.
    """
    if content is None:
        return bool(aborted)
    entries = plausible_aborted_txns(content, base_offset=base_offset)
    if entries is None:
        return True
    known = {(entry.producer_id, entry.last_offset): entry.first_offset for entry in entries}
    return any(
        known.get((found.producer_id, found.last_offset), found.last_offset) > found.first_offset
        for found in decode_aborted_txns(aborted, base_offset=base_offset, path="")
    )


def stated_aborted_txns(content: bytes | None, walk: SegmentWalk, *, base_offset: int) -> bytes | None:
    """Return a transaction index without what the batches of its segment contradict: entries of markers after the last
    batch, as those of a .log that was emptied, and of transactions that were committed. None without an index.
    """
    entries = None if content is None else plausible_aborted_txns(content, base_offset=base_offset)
    if entries is None:
        return content
    committed = {
        producer_batch.last_offset
        for producer_batch in walk.producers
        if producer_batch.marker is not None and not producer_batch.marker.is_abort
    }
    kept = (entry for entry in entries if entry.last_offset < walk.next_offset and entry.last_offset not in committed)
    return b"".join(map(encode_aborted_txn, kept))


def is_wrong_index(
    context: RecoveryContext, files: SegmentFiles, content: bytes | None, *, suffix: str, next_base_offset: int
) -> bool:
    """Check an offset or time index of a whole segment against its batches; a missing or empty one is wrong.

    Cost: reads the segment.
    """
    if not content:
        return True
    kind = OffsetIndexCheck if suffix == OFFSET_INDEX_SUFFIX else TimeIndexCheck
    check = kind(
        IndexFile(
            path=segment_path(context.path, files.base_offset, suffix=suffix),
            content=content,
            base_offset=files.base_offset,
            log_size_in_bytes=files.size_in_bytes,
            is_last=False,
            has_grown=False,
        )
    )
    with context.check_of(files, next_base_offset=next_base_offset) as walk:
        return any(any(check.step(step)) for step in walk.steps()) or any(check.finish())


def reaches_beyond(
    content: bytes | None, *, suffix: str, base_offset: int, end_position: int, next_offset: int, least_beyond: int
) -> bool:
    """True if an index is in order and its last entry refers to a batch after the end of the log file.

    Such an index is evidence of records that are gone. One that is out of order, or has an offset >= least_beyond,
    which the segment cannot have held, is evidence of nothing.
    """
    if not content:
        return False
    if suffix == OFFSET_INDEX_SUFFIX:
        offsets = OffsetIndex(content, base_offset=base_offset, path="")
        entries = [offsets.entry(slot) for slot in range(offsets.entry_count)]
        rises = all(
            entry.offset < later.offset and entry.position < later.position for entry, later in pairwise(entries)
        )
        offsets_of_entries = [entry.offset for entry in entries]
        is_beyond = bool(entries) and entries[-1].position >= end_position
    else:
        times = TimeIndex(content, base_offset=base_offset, path="")
        rises = times.is_increasing()
        offsets_of_entries = [times.entry(slot).offset for slot in range(times.entry_count)]
        is_beyond = bool(offsets_of_entries) and offsets_of_entries[-1] >= next_offset
    return is_beyond and rises and base_offset <= offsets_of_entries[0] and offsets_of_entries[-1] < least_beyond


def carry_out(context: RecoveryContext, plan: RecoveryPlan, *, quarantine: Quarantine, dry_run: bool) -> None:
    """Bring the files of a partition to what the plan says; in a dry run, only find what goes to the quarantine.

    Raises: StorageError; carrying out a new plan then continues where this one stopped.
    """
    env = context.env
    settle_side_files(context.path, plan.files, env, quarantine)
    for files in reversed(plan.dropped):
        drop_segment(files, quarantine=quarantine)
    for segment in plan.segments:
        if segment.is_split_off and not dry_run:
            _split_off(context, segment)
    copied = {truncation.damage.path.removesuffix(SWAP_STATE): truncation for truncation in plan.truncations}
    for segment in plan.segments:
        if segment.is_split_off or segment.end_position >= segment.size_in_bytes:
            continue
        log_path = context.path_of(segment.name)
        if log_path in copied:
            truncation = copied[log_path]
            quarantine.keep_range(log_path, position=truncation.damage.position, size_in_bytes=truncation.size_in_bytes)
        if not dry_run:
            is_in_place = segment.is_padded or segment is plan.segments[-1]
            _truncate_file(log_path, segment.end_position, env, is_in_place=is_in_place)
    for segment in plan.segments:
        for suffix, content in segment.indexes.items():
            name = base_offset_file_name(segment.base_offset, suffix=suffix)
            if suffix == TRANSACTION_INDEX_SUFFIX and not content:
                # A segment without aborted transactions has no such file.
                quarantine.take([name])
            elif not dry_run:
                replace_file(segment_path(context.path, segment.base_offset, suffix=suffix), content, env)
    if not dry_run:
        _sync_recovered(context, plan)


def _sync_recovered(context: RecoveryContext, plan: RecoveryPlan) -> None:
    """Sync what a killed broker may not have synced: the recovered segments except the last, which the writer syncs."""
    recovered = [segment for segment in plan.segments if segment.is_recovered]
    for segment in recovered[:-1]:
        with context.env.open_write(context.path_of(segment.name)) as file:
            file.sync()
    if recovered:
        context.env.sync_directory(context.path)


def drop_segment(files: SegmentFiles, *, quarantine: Quarantine) -> None:
    """Take all files of a segment out of the partition, its .log first, so that a crash leaves only orphans.

    Raises: StorageError.
    """
    suffixes = [LOG_SUFFIX, *(suffix for suffix in SEGMENT_INDEX_SUFFIXES if suffix in files.index_names)]
    quarantine.take(base_offset_file_name(files.base_offset, suffix=suffix) for suffix in suffixes)


def create_segment(context: RecoveryContext, base_offset: int) -> None:
    """Durably create the empty files of a first segment.

    Raises: StorageError.
    """
    for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, LOG_SUFFIX):
        with context.env.open_write(segment_path(context.path, base_offset, suffix=suffix)) as file:
            if not file.is_new:
                file.truncate(0)
                file.sync()
    context.env.sync_directory(context.path)


def _split_off(context: RecoveryContext, segment: SegmentPlan) -> None:
    """Copy the part of a .log that becomes a segment of its own; the source file is truncated afterwards."""
    source = context.path_of(segment.log_name.removesuffix(SWAP_STATE))
    target = context.path_of(segment.name)
    with context.env.open_read(source) as file:
        replace_file(target, file.chunks(segment.end_position, position=segment.start_position), context.env)


def _truncate_file(path: str, end_position: int, env: Env, *, is_in_place: bool) -> None:
    """Durably truncate a .log.

    If damage is removed and segments follow, this writes a copy: a truncation that is itself interrupted may leave
    zeros, and the following segments would be taken for data after damage. In preallocated space it only leaves less of
    it.
    """
    if not is_in_place:
        with env.open_read(path) as source:
            replace_file(path, source.chunks(end_position, position=0), env)
        return
    with env.open_write(path) as file:
        file.truncate(end_position)
        file.sync()
