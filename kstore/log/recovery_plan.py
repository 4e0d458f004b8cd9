"""RecoveryPlan: what recovery will do to the segments of a log, worked out by reading only.

Layer 5. plan_unclean walks what may be damaged, plan_clean looks only where a clean shutdown leaves a doubt. Nothing is
changed here, so that strict mode can refuse, and a dry run report, with every byte as it was.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from kstore.log.checkpoints import EpochEntry
from kstore.log.damage import Damage
from kstore.log.durable_point import DurablePoint
from kstore.log.filenames import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SEGMENT_INDEX_SUFFIXES,
    SWAP_STATE,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    base_offset_file_name,
)
from kstore.log.partition_files import PartitionFiles, SegmentFiles
from kstore.log.preallocated import holds_only_zeros, is_preallocated
from kstore.log.producer_append import ProducerBatch
from kstore.log.recovery_context import RecoveryContext
from kstore.log.recovery_indexes import (
    OpenTransactions,
    forgets_aborted,
    index_content,
    is_wrong_index,
    plausible_aborted_txns,
)
from kstore.log.segment_tail import find_tail
from kstore.log.segment_walk import SegmentWalk


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
