"""RecoveryPlan: what recovery will do to the segments of a log, worked out by reading only.

Layer 5. plan_unclean walks what may be damaged, plan_clean looks only where a clean shutdown leaves a doubt. Nothing is
changed here, so that strict mode can refuse, and a dry run report, with every byte as it was.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from kstore.errors import CorruptIndexError, CorruptSnapshotError, StorageError
from kstore.log.damage import Damage
from kstore.log.env import ENOENT, Env
from kstore.log.files.checkpoints import EpochEntry, replace_file
from kstore.log.files.durable_point import DurablePoint
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
from kstore.log.files.snapshots import read_snapshot
from kstore.log.recovery.context import RecoveryContext
from kstore.log.recovery.files import PartitionFiles, Quarantine, SegmentFiles, settle_side_files
from kstore.log.recovery.walk import SegmentWalk, find_tail
from kstore.log.segment.check import IndexFile, OffsetIndexCheck, TimeIndexCheck
from kstore.log.segment.indexes import MAX_INDEX_BYTES, OffsetIndex, TimeIndex
from kstore.log.segment.records import holds_only_zeros, is_preallocated
from kstore.log.segment.transaction_index import AbortedTxn, decode_aborted_txns, encode_aborted_txn
from kstore.log.state.producer_append import ProducerBatch


class Cut(NamedTuple):
    """Damage that ends a segment; offset: the first one that is not, or not surely, in the log any more.

    size_in_bytes: of all that lies in the file from the damage on, where the damage itself may be less.
    """

    damage: Damage
    base_offset: int
    offset: int
    size_in_bytes: int


@dataclass
class SegmentPlan:
    """What becomes of one segment.

    log_name: of the file that holds it now; start_position: where it starts there; size_in_bytes: from there to the end
    of the file; end_position: how much of that stays; is_padded: whether the rest is preallocated space. producers and
    epochs as in SegmentWalk, None if it was not walked. indexes: new content by suffix.
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
    producers: tuple[ProducerBatch, ...] | None = None
    epochs: tuple[EpochEntry, ...] | None = None
    indexes: dict[str, bytes] = field(default_factory=dict)

    @property
    def is_walked(self) -> bool:
        """Whether its batches were read, so that next_offset is that behind the last of them."""
        return self.epochs is not None

    @property
    def is_split_off(self) -> bool:
        """Whether it comes out of the file of another segment, perhaps from its very start."""
        return self.name != self.log_name.removesuffix(SWAP_STATE)

    @property
    def name(self) -> str:
        return base_offset_file_name(self.base_offset, suffix=LOG_SUFFIX)


@dataclass
class RecoveryPlan:
    """The segments that stay, those that go, and what was found on the way.

    cuts: where recovered segments end before their file does; older: damage in segments that are not to be recovered,
    which stays there; rebuilt: names of index files and checkpoints that are written anew.
    """

    files: PartitionFiles
    segments: list[SegmentPlan] = field(default_factory=list)
    dropped: list[SegmentFiles] = field(default_factory=list)
    cuts: list[Cut] = field(default_factory=list)
    older: list[Cut] = field(default_factory=list)
    rebuilt: list[str] = field(default_factory=list)

    @property
    def log_end_offset(self) -> int:
        return self.segments[-1].next_offset if self.segments else 0


class Planner:
    """Works out the RecoveryPlan of one partition; see plan_unclean and plan_clean.

    Args: point: the offset below which all is durable, as far as that is known.
    """

    def __init__(self, context: RecoveryContext, files: PartitionFiles, *, point: int) -> None:
        self._context = context
        self._point = point
        self._plan = RecoveryPlan(files)
        self._transactions: OpenTransactions | None = None

    def plan_unclean(self, *, trusts_point: bool) -> RecoveryPlan:
        """Walk every segment, but with trusts_point none before that of the point whose indexes look sound."""
        segments = self._plan.files.segments
        floor = max((slot for slot, one in enumerate(segments) if one.base_offset <= self._point), default=0)
        first = floor if trusts_point else 0
        self._take_unread(first)
        if segments:
            self._transactions = self._transactions_at(first)
        for slot in range(first, len(segments)):
            walk = self._walk(segments[slot], _next_base(segments, slot))
            if first < slot <= floor:
                self._settle_transactions(segments[slot].base_offset, is_recovered=slot == floor)
            if self._begins_anew(segments[slot]):
                self._transactions = OpenTransactions({}, map_end_offset=0)
            if slot < floor:
                self._take_older(segments[slot], walk)
            elif not self._take_recovered(segments[slot], walk, next_base_offset=_next_base(segments, slot)):
                self._plan.dropped += segments[slot + 1 :]
                break
        return self._plan

    def plan_clean(self, noted: DurablePoint | None) -> RecoveryPlan:
        """Look at the end of the last segment, and rebuild indexes that a listing shows to be wrong.

        noted: the last durable point; where it is the end of the log file, no byte of that is read.
        """
        segments = self._plan.files.segments
        self._take_unread(len(segments))
        if segments:
            self._settle_clean_end(segments[-1], noted)
        return self._plan

    def _take_unread(self, count: int) -> None:
        """Take the first segments as they are, but read those whose indexes a listing shows to be wrong."""
        segments = self._plan.files.segments
        for slot, files in enumerate(segments[:count]):
            if self._looks_sound(files):
                self._plan.segments.append(_unread(segments, slot))
            else:
                self._transactions = self._transactions_at(slot)
                self._take_older(files, self._walk(files, _next_base(segments, slot)))

    def _settle_clean_end(self, files: SegmentFiles, noted: DurablePoint | None) -> None:
        last = self._plan.segments[-1]
        tail = find_tail(
            self._context.path_of(files.log_name),
            base_offset=files.base_offset,
            size_in_bytes=files.size_in_bytes,
            indexes={suffix: self._content(files, suffix) for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX)},
            noted=noted,
            config=self._context.config,
            env=self._context.env,
        )
        if tail is not None:
            last.next_offset = tail.next_offset
            last.max_timestamp_ms, last.offset_of_max_timestamp = tail.max_timestamp_ms, tail.offset_of_max_timestamp
            return
        # The marker is not true of this segment: it is recovered as after a crash.
        self._plan.segments.pop()
        self._plan.older = [cut for cut in self._plan.older if cut.base_offset != files.base_offset]
        if self._begins_anew(files):
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
            )

    def _take_older(self, files: SegmentFiles, walk: SegmentWalk) -> None:
        """Check a segment that recovery leaves alone: its indexes may be written anew, and zeros after its last batch
        removed where they are preallocated space."""
        plan = _planned(files, walk)
        plan.epochs = walk.epochs
        aborted = self._aborted(walk)
        if walk.status != "end":
            plan.end_position = files.size_in_bytes
            self._plan.older.append(self._cut_at(files, walk))
            self._transactions = None
        else:
            contents = {OFFSET_INDEX_SUFFIX: walk.offset_entries, TIME_INDEX_SUFFIX: walk.time_entries}
            for suffix, content in contents.items():
                found = self._content(files, suffix)
                if found != content and is_wrong_index(
                    self._context, files, found, suffix=suffix, next_base_offset=plan.next_offset
                ):
                    plan.indexes[suffix] = content
            found = self._content(files, TRANSACTION_INDEX_SUFFIX)
            if aborted is not None and forgets_aborted(found, aborted, base_offset=files.base_offset):
                plan.indexes[TRANSACTION_INDEX_SUFFIX] = aborted
        self._note_rebuilt(plan)
        self._plan.segments.append(plan)

    def _take_recovered(self, files: SegmentFiles, walk: SegmentWalk, *, next_base_offset: int | None) -> bool:
        """Plan what stays of a segment; return whether the segments behind it stay too.

        What its indexes can't reach becomes a segment of its own (Kafka: splitOverflowedSegment).
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
        self._plan.cuts.append(self._cut_at(files, walk, start_position=start))
        return walk.status == "overlap"

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

    def _cut_at(self, files: SegmentFiles, walk: SegmentWalk, *, start_position: int = 0) -> Cut:
        path = self._context.path_of(files.log_name)
        position = start_position + walk.end_position
        size = self._damaged_bytes(files, walk, position)
        damage = Damage(path, position, size, walk.reason)
        return Cut(damage, files.base_offset, walk.next_offset, files.size_in_bytes - position)

    def _damaged_bytes(self, files: SegmentFiles, walk: SegmentWalk, position: int) -> int:
        """Return how many bytes are damaged where a walk stopped, as `verify` counts them."""
        left = files.size_in_bytes - position
        if walk.status == "zeros":
            with self._context.env.open_read(self._context.path_of(files.log_name)) as file:
                if holds_only_zeros(file, position=position, end_position=files.size_in_bytes):
                    return left
        later = (one.base_offset for one in self._plan.files.segments if one.base_offset > files.base_offset)
        with self._context.check_of(files, next_base_offset=min(later, default=None)) as check:
            step = next(check.steps(position, least_offset=walk.next_offset), None)
        return left if step is None else step.end_position - position

    def _aborted(self, walk: SegmentWalk) -> bytes | None:
        """Return the content of the transaction index of a walked segment, None if the state before it is unknown."""
        return None if self._transactions is None else self._transactions.aborted_of(walk.producers)

    def _transactions_at(self, slot: int) -> OpenTransactions:
        """Return the transactions that are open where a segment begins, by the last snapshot before it and a walk."""
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

    def _begins_anew(self, files: SegmentFiles) -> bool:
        """Tell whether a segment knows of no transaction before it, as all that was is below the log start: there no
        snapshot may lie, and without one Kafka begins anew at each segment that it recovers."""
        if not self._plan.segments:
            return files.base_offset < self._context.log_start_offset
        return self._plan.segments[-1].next_offset <= self._context.log_start_offset

    def _settle_transactions(self, base_offset: int, *, is_recovered: bool) -> None:
        """Take the open transactions of a snapshot at just that offset where it knows more than the walk up to there.

        Where recovery begins it is believed as brokers believe it: a cleaner may have removed the records of a
        transaction whose marker is still to come. In an older segment such a marker needs no entry. What ended inside a
        gap of offsets only the snapshot knows.
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
    """The transactions that are open at map_end_offset, and, batch by batch, the ones that end in an abort."""

    def __init__(self, first_offsets: dict[int, int], *, map_end_offset: int) -> None:
        self._first_offsets = first_offsets
        self.map_end_offset = map_end_offset

    @classmethod
    def of_snapshots(
        cls, context: RecoveryContext, snapshot_offsets: Iterable[int], *, base_offset: int
    ) -> OpenTransactions:
        """Return those that the last readable snapshot up to base_offset has; none are open where there is none."""
        for offset in sorted((one for one in snapshot_offsets if one <= base_offset), reverse=True):
            path = segment_path(context.path, offset, suffix=PRODUCER_SNAPSHOT_SUFFIX)
            try:
                entries = read_snapshot(path, context.env)
            except CorruptSnapshotError:
                continue
            open_ones = {
                one.producer_id: one.current_txn_first_offset for one in entries if one.current_txn_first_offset >= 0
            }
            return cls(open_ones, map_end_offset=offset)
        return cls({}, map_end_offset=0)

    def keep_only(self, others: OpenTransactions) -> None:
        """Forget the transactions that are not among the others, where they may begin earlier."""
        begun = others._first_offsets
        self._first_offsets = {
            producer_id: first_offset
            for producer_id, first_offset in self._first_offsets.items()
            if begun.get(producer_id, first_offset + 1) <= first_offset
        }

    def aborted_of(self, batches: Iterable[ProducerBatch]) -> bytes:
        """Take the batches from map_end_offset on; return the content of a transaction index of them."""
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
    """Return the whole index file, None if it is not there or too large to be one."""
    try:
        return context.env.read_file(context.path_of(name), max_bytes=MAX_INDEX_BYTES)
    except StorageError as error:
        if error.errno in (None, ENOENT):
            return None
        raise


def plausible_aborted_txns(content: bytes, *, base_offset: int) -> tuple[AbortedTxn, ...] | None:
    """Return the entries of a transaction index, None if without the log it shows that they can't be right."""
    try:
        entries = decode_aborted_txns(content, base_offset=base_offset, path="")
    except CorruptIndexError:
        return None
    return entries if all(one.first_offset <= one.last_offset for one in entries) else None


def forgets_aborted(content: bytes | None, aborted: bytes, *, base_offset: int) -> bool:
    """Tell whether a transaction index lacks one of the aborted transactions, or is damaged.

    It may know more, or an earlier first offset: a cleaner removes the data of aborted transactions, not their entries.
    """
    if content is None:
        return bool(aborted)
    entries = plausible_aborted_txns(content, base_offset=base_offset)
    if entries is None:
        return True
    known = {(one.producer_id, one.last_offset): one.first_offset for one in entries}
    return any(
        known.get((one.producer_id, one.last_offset), one.last_offset) > one.first_offset
        for one in decode_aborted_txns(aborted, base_offset=base_offset, path="")
    )


def is_wrong_index(
    context: RecoveryContext, files: SegmentFiles, content: bytes | None, *, suffix: str, next_base_offset: int
) -> bool:
    """Hold an offset or time index of a whole segment against its batches; a missing one is wrong, so is an empty one.

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
    """Tell whether an index is in order and its last entry speaks of a batch behind the end of the log file.

    Such an index bears witness of records that are gone; one that is out of order, or has an offset from least_beyond
    on, where the segment can't have had any, bears witness of nothing.
    """
    if not content:
        return False
    if suffix == OFFSET_INDEX_SUFFIX:
        offsets = OffsetIndex(content, base_offset=base_offset, path="")
        entries = [offsets.entry(slot) for slot in range(offsets.entry_count)]
        rises = all(one.offset < two.offset and one.position < two.position for one, two in pairwise(entries))
        found = [entry.offset for entry in entries]
        is_beyond = bool(entries) and entries[-1].position >= end_position
    else:
        times = TimeIndex(content, base_offset=base_offset, path="")
        rises = times.is_increasing()
        found = [times.entry(slot).offset for slot in range(times.entry_count)]
        is_beyond = bool(found) and found[-1] >= next_offset
    return is_beyond and rises and base_offset <= found[0] and found[-1] < least_beyond


def carry_out(context: RecoveryContext, plan: RecoveryPlan, *, quarantine: Quarantine) -> None:
    """Bring the files of a partition to what the plan says.

    Raises: StorageError; then carrying out a new plan goes on where this one stopped.
    """
    env = context.env
    settle_side_files(context.path, plan.files, env, quarantine)
    for files in reversed(plan.dropped):
        drop_segment(files, quarantine=quarantine)
    for segment in plan.segments:
        if segment.is_split_off:
            _split_off(context, segment)
    copied = {cut.damage.path.removesuffix(SWAP_STATE): cut for cut in plan.cuts}
    for segment in plan.segments:
        if not segment.is_split_off and segment.end_position < segment.size_in_bytes:
            log_path = context.path_of(segment.name)
            if log_path in copied:
                cut = copied[log_path]
                quarantine.keep_range(log_path, position=cut.damage.position, size_in_bytes=cut.size_in_bytes)
            is_in_place = segment.is_padded or segment is plan.segments[-1]
            _cut_short(log_path, segment.end_position, env, is_in_place=is_in_place)
    for segment in plan.segments:
        for suffix, content in segment.indexes.items():
            replace_file(segment_path(context.path, segment.base_offset, suffix=suffix), content, env)
    _sync_recovered(context, plan)


def _sync_recovered(context: RecoveryContext, plan: RecoveryPlan) -> None:
    """Make durable what a killed broker may not have synced: its later segments, of which the writer syncs the last."""
    recovered = [segment for segment in plan.segments if segment.is_recovered]
    for segment in recovered[:-1]:
        with context.env.open_write(context.path_of(segment.name)) as file:
            file.sync()
    if recovered:
        context.env.sync_directory(context.path)


def drop_segment(files: SegmentFiles, *, quarantine: Quarantine) -> None:
    """Take all files of a segment out of the partition, its .log first, so that what is left are orphans.

    Raises: StorageError.
    """
    suffixes = [LOG_SUFFIX, *(suffix for suffix in SEGMENT_INDEX_SUFFIXES if suffix in files.index_names)]
    quarantine.take(base_offset_file_name(files.base_offset, suffix=suffix) for suffix in suffixes)


def create_segment(context: RecoveryContext, base_offset: int) -> None:
    """Make the empty files of a first segment, durably.

    Raises: StorageError.
    """
    for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, LOG_SUFFIX):
        with context.env.open_write(segment_path(context.path, base_offset, suffix=suffix)) as file:
            file.truncate(0)
            file.sync()
    context.env.sync_directory(context.path)


def _split_off(context: RecoveryContext, segment: SegmentPlan) -> None:
    """Copy the part of a .log that is to be a segment of its own; the file it comes from is cut afterwards."""
    source = context.path_of(segment.log_name.removesuffix(SWAP_STATE))
    target = context.path_of(segment.name)
    with context.env.open_read(source) as file:
        replace_file(target, file.chunks(segment.end_position, position=segment.start_position), context.env)


def _cut_short(path: str, end_position: int, env: Env, *, is_in_place: bool) -> None:
    """Truncate a .log, durably.

    Where damage goes and segments follow, by a copy: a truncation that is itself torn may leave zeros, and those
    segments would be taken for what follows damage. Of preallocated space it only leaves less.
    """
    if not is_in_place:
        with env.open_read(path) as source:
            replace_file(path, source.chunks(end_position, position=0), env)
        return
    with env.open_write(path) as file:
        file.truncate(end_position)
        file.sync()
