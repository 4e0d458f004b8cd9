"""verify: checks a log and its side files, and yields each Damage; verify_checkpoints does so for a root.

Verification walks the segments, SideFileCheck compares transaction indexes, producer snapshots, leader epochs and the
topic id with the batches. What the log cannot show any more, because it was cleaned, deleted up to its start offset or
is damaged, does not count as damage of a side file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import NamedTuple, TypeAlias

from kstore._core import BatchHeader, increment_sequence
from kstore.config import MIB
from kstore.env import DEFAULT_ENV, ENOENT, NO_FILE, Env, join_path, split_path
from kstore.errors import InvalidRecordError, LogReplacedError, StorageError
from kstore.log.damage import Damage, SuspectedLoss, damage_of_file, size_of_file
from kstore.log.damaged.check import IndexFile, OffsetIndexCheck, SegmentCheck, Step, TimeIndexCheck
from kstore.log.files.checkpoints import EpochEntry, read_leader_epoch_checkpoint, read_offset_checkpoint
from kstore.log.files.indexes import MAX_INDEX_BYTES
from kstore.log.files.names import (
    LEADER_EPOCH_CHECKPOINT,
    LOCK_FILE,
    LOG_SUFFIX,
    META_PROPERTIES,
    OFFSET_INDEX_SUFFIX,
    PARTITION_METADATA,
    PRODUCER_SNAPSHOT_SUFFIX,
    ROOT_CHECKPOINTS,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    PartitionDirectory,
    producer_snapshot_offsets,
    segment_path,
)
from kstore.log.files.root_files import read_meta_properties, read_partition_metadata
from kstore.log.files.snapshots import (
    SNAPSHOT_ENTRY_SIZE,
    SNAPSHOT_OVERHEAD,
    ProducerSnapshotEntry,
    contradiction_in,
    read_snapshot,
)
from kstore.log.files.transaction_index import TRANSACTION_INDEX_ENTRY_SIZE, AbortedTxn, decode_aborted_txns
from kstore.log.log import Log
from kstore.log.recovery.context import RecoveryContext
from kstore.log.recovery.evidence import SegmentEnd, losses_beside, marks_of_root
from kstore.log.segment.replaced import ERRORS_OF_A_CHANGE, MOST_LOOKS, ListedFile
from kstore.log.segment.segment import LogSegment
from kstore.log.state.leader_epochs import epoch_of_offset, rises
from kstore.log.state.producer_append import TransactionMarker, read_marker
from kstore.record.batches import RecordBatch
from kstore.types import NO_OFFSET, NO_PARTITION_LEADER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, TopicPartition

# How many passes must find damage that a running writer may have caused.
MOST_PASSES = 5


class SideFileState(NamedTuple):
    """The state of a SideFileCheck at one moment, under the names of its attributes."""

    snapshot_entries: dict[int, dict[ProducerSnapshotEntry, tuple[str, int]]]
    open: dict[int, int]
    others: dict[int, str]
    aborted: list[AbortedTxn]
    wrong_epochs: Damage | None
    last_offset: int
    whole_from: int
    is_damaged: bool


class SideFileCheck:
    """Compares the side files of a log with its batches.

    Call start() first, then step() for each batch in order, finish_segment() after the last one of each segment, and
    finish() at the end.
    Args: has_grown: returns whether the log was written since it was listed, so that side files may be ahead of it.
    Threads: not thread-safe.  Cost: a read of each control batch; memory for the side files of the log.
    """

    def __init__(self, log: Log, *, has_grown: Callable[[], bool], env: Env) -> None:
        self._log = log
        self._has_grown = has_grown
        self._env = env
        self._epochs: list[EpochEntry] = []
        self._wrong_epochs: Damage | None = None
        # Last offset of a batch -> what snapshots say about it, with the path and the position of the entry.
        self._snapshot_entries: dict[int, dict[ProducerSnapshotEntry, tuple[str, int]]] = {}
        self._snapshots: dict[str, int] = {}
        self._open: dict[int, int] = {}
        self._aborted: list[AbortedTxn] = []
        # Offset -> description of the other transactions that ended in the current segment.
        self._others: dict[int, str] = {}
        self._last_offset = -1
        # From this offset on there is no gap in the offsets.
        self._whole_from = 0
        self._is_damaged = False
        # Damage that a writer explains which has appended a marker and not yet its index entry, or has truncated the
        # log and not yet the index.
        self.unwritten: set[Damage] = set()

    def start(self) -> Iterator[Damage]:
        """Read the files of the partition and check each on its own.

        Raises: StorageError.
        """
        directory = self._log.path
        read_topic_id = partial(read_partition_metadata, directory, self._env)
        yield from damage_of_file(join_path(directory, PARTITION_METADATA), read_topic_id, env=self._env)
        yield from self._check_epochs(join_path(directory, LEADER_EPOCH_CHECKPOINT))
        for offset in producer_snapshot_offsets(self._env.listdir(directory)):
            yield from self._check_snapshot(segment_path(directory, offset, suffix=PRODUCER_SNAPSHOT_SUFFIX), offset)

    def state(self) -> SideFileState:
        """Return the current state, for restore."""
        return SideFileState(
            dict(self._snapshot_entries),
            dict(self._open),
            dict(self._others),
            list(self._aborted),
            self._wrong_epochs,
            self._last_offset,
            self._whole_from,
            self._is_damaged,
        )

    def restore(self, state: SideFileState) -> None:
        """Restore a state, with the files of the partition as they are now."""
        self._epochs, self._snapshots, self._snapshot_entries = [], {}, {}
        for _ in self.start():
            pass
        known = self._snapshot_entries
        self._snapshot_entries = {key: known[key] for key in state.snapshot_entries if key in known}
        self._open, self._others, self._aborted = dict(state.open), dict(state.others), list(state.aborted)
        self._wrong_epochs, self._is_damaged = state.wrong_epochs, state.is_damaged
        self._last_offset, self._whole_from = state.last_offset, state.whole_from

    def step(self, segment: LogSegment, header: BatchHeader | None, *, is_damaged: bool) -> Iterator[Damage]:
        """Process the next batch of a segment, or a range without one."""
        if header is None or is_damaged:
            self._is_damaged |= is_damaged
            return
        if header.base_offset != self._last_offset + 1:
            self._whole_from = header.base_offset
        self._last_offset = header.last_offset
        yield from self._check_epoch_of(segment, header)
        if header.producer_id <= NO_PRODUCER_ID:
            return
        entries = self._snapshot_entries.pop(header.last_offset, None)
        if entries is not None:
            yield from _compared(entries, header)
        if header.is_control:
            self._end_transaction(segment, header)
        elif header.is_transactional and header.record_count and not self._is_below_log_start(header):
            # Records below the log start are not served, and brokers that load the log there forget the transaction.
            self._open.setdefault(header.producer_id, header.base_offset)

    def finish_segment(self, segment: LogSegment) -> Iterator[Damage]:
        """Check the transaction index of a segment after step was called for all of its batches."""
        yield from self._flush_wrong_epochs()
        path = segment_path(self._log.path, segment.base_offset, suffix=TRANSACTION_INDEX_SUFFIX)
        entries: list[AbortedTxn] = []
        is_readable = True
        read = partial(self._read_aborted, path, segment, into=entries)
        for damage in damage_of_file(path, read, env=self._env, entry_size=TRANSACTION_INDEX_ENTRY_SIZE):
            is_readable = False
            yield damage
        if is_readable and not self._is_damaged:
            yield from self._compare_aborted(path, entries)
        self._aborted, self._others = [], {}

    def finish(self) -> Iterator[Damage]:
        """Check that no file refers to offsets above the log end; skipped for a log that is damaged or has changed."""
        if self._is_damaged or self._has_grown():
            return
        log_end_offset = self._log.log_end_offset
        for path, offset in self._snapshots.items():
            if offset > log_end_offset:
                yield Damage(path, 0, self._size_of(path), f"snapshot is above the log end offset {log_end_offset}")
        above = next((entry for entry in self._epochs if entry.start_offset > log_end_offset), None)
        if above is not None:
            path = join_path(self._log.path, LEADER_EPOCH_CHECKPOINT)
            reason = f"epoch {above.epoch} starts at {above.start_offset}, above the log end offset {log_end_offset}"
            yield Damage(path, 0, self._size_of(path), reason)

    def _check_epochs(self, path: str) -> Iterator[Damage]:
        yield from damage_of_file(path, partial(self._read_epochs, path), env=self._env)
        for before, after in zip(self._epochs, self._epochs[1:], strict=False):
            if not rises(before, after):
                reason = f"epochs or their start offsets do not increase: {tuple(before)}, then {tuple(after)}"
                yield Damage(path, 0, self._size_of(path), reason)
                self._epochs = []
                return

    def _check_epoch_of(self, segment: LogSegment, header: BatchHeader) -> Iterator[Damage]:
        epoch = epoch_of_offset(self._epochs, header.base_offset)
        found = header.partition_leader_epoch
        if epoch is None or found in (epoch, NO_PARTITION_LEADER_EPOCH):
            yield from self._flush_wrong_epochs()
        elif self._wrong_epochs is None:
            reason = f"leader epoch: by {LEADER_EPOCH_CHECKPOINT} {epoch}, found {found}"
            self._wrong_epochs = Damage(segment.path, header.position, header.size_in_bytes, reason)
        else:
            size = header.position + header.size_in_bytes - self._wrong_epochs.position
            self._wrong_epochs = self._wrong_epochs._replace(size_in_bytes=size)

    def _flush_wrong_epochs(self) -> Iterator[Damage]:
        damage, self._wrong_epochs = self._wrong_epochs, None
        if damage is not None:
            yield damage

    def _check_snapshot(self, path: str, offset: int) -> Iterator[Damage]:
        self._snapshots[path] = offset
        entries: list[ProducerSnapshotEntry] = []
        yield from damage_of_file(path, lambda: entries.extend(read_snapshot(path, self._env)), env=self._env)
        for slot, entry in enumerate(entries):
            position = SNAPSHOT_OVERHEAD + slot * SNAPSHOT_ENTRY_SIZE
            contradiction = contradiction_in(entry, offset)
            if contradiction is not None:
                yield Damage(path, position, SNAPSHOT_ENTRY_SIZE, contradiction)
            elif entry.last_offset >= 0:
                key = entry._replace(timestamp_ms=0, coordinator_epoch=0, current_txn_first_offset=NO_OFFSET)
                self._snapshot_entries.setdefault(entry.last_offset, {}).setdefault(key, (path, position))

    def _end_transaction(self, segment: LogSegment, header: BatchHeader) -> None:
        marker = self._marker(segment, header)
        first_offset = self._open.pop(header.producer_id, None)
        if marker is None:
            # Emptied by the cleaner, since nothing else of the transaction is left.
            return
        if not marker.is_abort:
            self._others[header.last_offset] = "a transaction that was committed"
        elif first_offset is not None and first_offset >= self._whole_from and not self._is_below_log_start(header):
            self._aborted.append(AbortedTxn(header.producer_id, first_offset, header.last_offset, NO_OFFSET))

    def _is_below_log_start(self, header: BatchHeader) -> bool:
        """Whether the batch is no longer served, so that a cleaner ignores its transaction."""
        return header.last_offset < self._log.log_start_offset

    def _marker(self, segment: LogSegment, header: BatchHeader) -> TransactionMarker | None:
        data = segment.records.read_bytes(header.size_in_bytes, position=header.position)
        try:
            return read_marker(RecordBatch(data, position=header.position, path=segment.path))
        except InvalidRecordError:
            self._is_damaged = True
            return None

    def _compare_aborted(self, path: str, entries: list[AbortedTxn]) -> Iterator[Damage]:
        known = {transaction.last_offset: transaction for transaction in entries}
        for slot, entry in enumerate(entries):
            reason, is_above = None, False
            if entry.last_offset in self._others:
                reason = f"entry of {self._others[entry.last_offset]} at offset {entry.last_offset}"
            elif entry.last_offset > self._last_offset and not self._has_grown():
                reason, is_above = f"entry of offset {entry.last_offset}, which is after the last batch", True
            elif entry.first_offset > entry.last_offset:
                reason = f"first offset {entry.first_offset} above the marker"
            elif entry.last_stable_offset > self._log.log_end_offset and not self._has_grown():
                # It may be above the marker: a follower that appends several batches at once already knows of
                # transactions that begin after it.
                reason, is_above = f"last stable offset {entry.last_stable_offset} above the log end offset", True
            if reason is not None:
                damage = Damage(path, slot * TRANSACTION_INDEX_ENTRY_SIZE, TRANSACTION_INDEX_ENTRY_SIZE, reason)
                if is_above:
                    self.unwritten.add(damage)
                yield damage
        last_known = max(known, default=-1)
        for transaction in self._aborted:
            stored = known.get(transaction.last_offset)
            if stored is None:
                reason = (
                    f"no entry of the transaction of producer {transaction.producer_id} "
                    f"that was aborted at offset {transaction.last_offset}"
                )
                damage = Damage(path, 0, self._size_of(path), reason)
                if transaction.last_offset > last_known:
                    self.unwritten.add(damage)
                yield damage
            elif stored.producer_id != transaction.producer_id or stored.first_offset > transaction.first_offset:
                expected = f"producer {transaction.producer_id} from offset {transaction.first_offset} or below"
                reason = f"expected {expected}, found producer {stored.producer_id} from offset {stored.first_offset}"
                yield Damage(
                    path, entries.index(stored) * TRANSACTION_INDEX_ENTRY_SIZE, TRANSACTION_INDEX_ENTRY_SIZE, reason
                )

    def _read_aborted(self, path: str, segment: LogSegment, *, into: list[AbortedTxn]) -> None:
        content = self._env.read_file(path, max_bytes=MAX_INDEX_BYTES)
        into += decode_aborted_txns(content, base_offset=segment.base_offset, path=path)

    def _read_epochs(self, path: str) -> None:
        self._epochs = read_leader_epoch_checkpoint(path, self._env) or []

    def _size_of(self, path: str) -> int:
        return size_of_file(path, self._env)


def _compared(entries: dict[ProducerSnapshotEntry, tuple[str, int]], header: BatchHeader) -> Iterator[Damage]:
    """Yield a Damage for each snapshot entry that contradicts the header of its batch.

    Kafka 0.11 stores the offset of a transaction's marker together with the sequence of the data before it.
    """
    delta = header.last_offset - header.base_offset
    sequence = NO_SEQUENCE
    if header.base_sequence != NO_SEQUENCE:
        sequence = increment_sequence(header.base_sequence, count=delta)
    expected = (header.producer_id, header.producer_epoch, sequence, header.last_offset, delta)
    for entry, (path, position) in entries.items():
        if header.is_control and entry._replace(last_sequence=NO_SEQUENCE)[:5] == expected:
            continue
        if tuple(entry[:5]) != expected or header.is_control:
            reason = (
                f"batch with last offset {header.last_offset}: expected producer {expected[0]}, epoch {expected[1]}, "
                f"sequence {expected[2]}, as in the log, "
                f"found {entry.producer_id}, {entry.producer_epoch}, {entry.last_sequence}"
            )
            yield Damage(path, position, SNAPSHOT_ENTRY_SIZE, reason)


class VerifiedPartition(NamedTuple):
    """The result of verifying one log. path is the partition's directory; counts exclude damaged batches.

    topic_partition: of the log; log_start_offset, log_end_offset: its bounds; segment_count, batch_count, record_count:
    what was read. losses: records that are gone without damage, as files beside the log show.
    """

    topic_partition: TopicPartition
    path: str
    log_start_offset: int
    log_end_offset: int
    segment_count: int
    batch_count: int
    record_count: int
    damage: tuple[Damage, ...]
    losses: tuple[SuspectedLoss, ...] = ()

    @property
    def is_unharmed(self) -> bool:
        """Whether nothing is damaged, and no loss proven."""
        return not self.damage and not any(loss.is_proven for loss in self.losses)


_INDEX_CHECKS = ((OFFSET_INDEX_SUFFIX, OffsetIndexCheck), (TIME_INDEX_SUFFIX, TimeIndexCheck))

IndexCheck = OffsetIndexCheck | TimeIndexCheck
OnSegment: TypeAlias = Callable[[LogSegment], Callable[[Step], None]]


class Verification:
    """A walk over one log that yields each Damage; see verify.

    batch_count and record_count (damaged batches are not counted, nor, unless deep, the records inside V0 and V1
    wrappers) grow during the iteration, and so does verified_bytes, the bytes of the .log files that were verified.
    Args: on_segment: called at each look at a segment, of which there are several if it is damaged; what it returns is
        called with each step of that look. on_read: called with the growth of verified_bytes, by chunks of about 1 MiB.
    Threads: not thread-safe.
    """

    def __init__(
        self,
        log: Log,
        *,
        is_deep: bool,
        env: Env,
        on_segment: OnSegment | None = None,
        on_read: Callable[[int], object] = lambda _: None,
    ) -> None:
        self._log = log
        self._on_segment = on_segment
        self._on_read = on_read
        self._is_deep = is_deep
        self._env = env
        self._first_listed: dict[str, ListedFile | None] = {}
        # The end of the last sound batch of the current segment.
        self._sound_end = 0
        # Of each segment, by base offset.
        self._ends: dict[int, SegmentEnd] = {}
        self._verified_before = 0
        self._reported_bytes = 0
        self.batch_count = 0
        self.record_count = 0
        self.verified_bytes = 0

    def __iter__(self) -> Iterator[Damage]:
        try:
            yield from self._damages()
        except StorageError as error:
            if error.errno != ENOENT or error.path != self._log.path:
                raise
            raise _removed(self._log.path) from error

    def result(self) -> VerifiedPartition:
        """Verify the whole log and return the result.  Raises: as iteration."""
        damage = tuple(self)
        return VerifiedPartition(
            self._log.topic_partition,
            self._log.path,
            log_start_offset=self._log.log_start_offset,
            log_end_offset=self._log.log_end_offset,
            segment_count=len(self._log.segments),
            batch_count=self.batch_count,
            record_count=self.record_count,
            damage=damage,
            losses=tuple(self._losses()),
        )

    def _losses(self) -> list[SuspectedLoss]:
        """Return what files beside the log show to be gone, after all of it was verified."""
        log, root = self._log, split_path(self._log.path)[0]
        directory = PartitionDirectory(log.topic_partition, log.path, root, self._env)
        context = RecoveryContext(directory, log.config, self._env, log.log_start_offset)
        ends = [self._ends[base_offset] for base_offset in sorted(self._ends)]
        try:
            return losses_beside(
                context,
                ends,
                marks_of_root(root, self._env),
                is_live=lambda: self._is_written() or self._has_changed(),
            )
        except StorageError as error:
            if error.errno != ENOENT:
                raise
            raise _removed(log.path) from error

    def _damages(self) -> Iterator[Damage]:
        self.batch_count = self.record_count = self.verified_bytes = self._verified_before = self._reported_bytes = 0
        self._ends = {}
        self._first_listed = {listed.path: listed.listed for listed in self._log.segments}
        side_files, early = None, False
        if self._is_deep:
            side_files = SideFileCheck(self._log, has_grown=self._has_changed, env=self._env)
            damage_of_side_files = list(side_files.start())
            # A broker writes a snapshot in place, so a damaged one is checked again at the end.
            early = bool(damage_of_side_files) and self._is_written()
            yield from () if early else damage_of_side_files
        else:
            path = join_path(self._log.path, LEADER_EPOCH_CHECKPOINT)
            yield from damage_of_file(path, partial(read_leader_epoch_checkpoint, path, self._env), env=self._env)
        following: int | None = 0
        attempts_left = MOST_LOOKS
        while following is not None and self._log.segments:
            segment = self._segment_of(following)
            counts = self.batch_count, self.record_count
            state = None if side_files is None else side_files.state()
            try:
                damage = self._confirmed(segment, side_files)
            except ERRORS_OF_A_CHANGE as error:
                attempts_left -= 1
                self.batch_count, self.record_count = counts
                if side_files is not None and state is not None:
                    side_files.restore(state)
                self._log._relist_or_raise(error, attempts_left=attempts_left)
                continue
            if any(damaged.path == segment.path for damaged in damage):
                self._ends[segment.base_offset] = self._ends[segment.base_offset]._replace(is_damaged=True)
            yield from damage
            following = segment.next_base_offset
            self._verified_before = self.verified_bytes
            self._report_growth(least=1)
        if early:
            again = {
                damaged.path: damaged
                for damaged in SideFileCheck(self._log, has_grown=self._has_changed, env=self._env).start()
            }
            yield from (again[damaged.path] for damaged in damage_of_side_files if damaged.path in again)
        if side_files is not None:
            yield from self._damage_above_the_end(side_files)

    def _damage_above_the_end(self, side_files: SideFileCheck) -> Iterator[Damage]:
        """Yield what refers to offsets above the log end, unless a writer may be at work there."""
        damage = list(side_files.finish())
        if damage and not self._is_written():
            # A writer may have changed and closed the log since it was listed.
            self._log.refresh(keeps_known=False)
            side_files.restore(side_files.state())
            damage = list(side_files.finish())
        if not self._is_written():
            yield from damage

    def _segment_of(self, offset: int) -> LogSegment:
        """Return the segment that holds an offset, or the next one if it is gone.

        Raises: LogReplacedError if there is none.
        """
        for segment in self._log.segments:
            if segment.next_base_offset is None or segment.next_base_offset > offset:
                return segment
        raise _removed(self._log.path)

    def _confirmed(self, segment: LogSegment, side_files: SideFileCheck | None) -> list[Damage]:
        """Return the damage of a segment that is found again after a new listing.

        The log may be written concurrently: a half-finished append, or files of different moments, is not damage. While
        a writer holds the lock, damage has to be found MOST_PASSES times.
        """
        counts = self.batch_count, self.record_count
        state = None if side_files is None else side_files.state()
        damage = list(self._verify_segment(segment, side_files))
        for number in range(1, MOST_PASSES):
            if not damage or (number > 1 and not self._is_written()):
                break
            places = {(damaged.path, damaged.position) for damaged in damage}
            self._log.refresh(keeps_known=False)
            self.batch_count, self.record_count = counts
            again = self._segment_of(segment.base_offset)
            if again.base_offset != segment.base_offset:
                raise _removed(segment.path)
            if side_files is not None and state is not None:
                # If a cleaner processed the segments before, their transaction indexes no longer list what they held.
                side_files.restore(state._replace(open={}) if self._has_moved_before(again) else state)
            damage = [
                damaged
                for damaged in self._verify_segment(again, side_files)
                if (damaged.path, damaged.position) in places
            ]
            if again.is_last and damage and self._is_written():
                unwritten = set[Damage]() if side_files is None else side_files.unwritten
                damage = [
                    damaged
                    for damaged in damage
                    if damaged not in unwritten and not self._is_at_the_end(damaged, again)
                ]
        return damage

    def _has_moved_before(self, segment: LogSegment) -> bool:
        """Whether the segments before this one are different files than when the log was first listed."""
        before = [earlier for earlier in self._log.segments if earlier.base_offset < segment.base_offset]
        first = [path for path in self._first_listed if path < segment.path]
        if first != [earlier.path for earlier in before]:
            return True
        pairs = ((earlier.listed, self._first_listed[earlier.path]) for earlier in before)
        return any(now is not None and then is not None and now.identity != then.identity for now, then in pairs)

    def _is_at_the_end(self, damage: Damage, segment: LogSegment) -> bool:
        """Whether damage is at a place where an append may be half finished."""
        return damage.path == segment.path and damage.position >= self._sound_end

    def _is_written(self) -> bool:
        """Whether a broker, or kstore, has the log open for writing."""
        return self._env.is_locked(join_path(split_path(self._log.path)[0], LOCK_FILE))

    def _has_changed(self) -> bool:
        """Whether the log was appended to, or its segments changed, since it was listed."""
        listed = [(segment.path, segment.size_in_bytes) for segment in self._log.segments]
        statuses = ((path, self._env.stat(path)) for path, _ in listed)
        now = [(path, None if status is None else status.size_in_bytes) for path, status in statuses]
        logs = [name for name in self._env.listdir(self._log.path) if name.endswith(LOG_SUFFIX)]
        return now != listed or len(logs) != len(listed)

    def _verify_segment(self, segment: LogSegment, side_files: SideFileCheck | None) -> Iterator[Damage]:
        index_checks: list[IndexCheck] = []
        for suffix, kind in _INDEX_CHECKS:
            path = segment_path(self._log.path, segment.base_offset, suffix=suffix)
            try:
                content = self._env.read_file(path, max_bytes=MAX_INDEX_BYTES)
            except StorageError as error:
                if error.errno != ENOENT:
                    yield Damage(path, 0, 0, str(error))
                continue
            file = IndexFile(
                path=path,
                content=content,
                base_offset=segment.base_offset,
                log_size_in_bytes=segment.size_in_bytes,
                is_last=segment.is_last,
                has_grown=segment.is_last and (self._has_grown(segment) or self._is_written()),
            )
            index_checks.append(kind(file))
        check = SegmentCheck(
            segment.records,
            find_index=lambda: segment.offset_index,
            topic_partition=self._log.topic_partition,
            config=self._log.config,
            is_deep=self._is_deep,
        )
        batch_count, record_count = self.batch_count, self.record_count
        self._sound_end = 0
        next_offset = segment.base_offset
        note = None if self._on_segment is None else self._on_segment(segment)
        for step in check.steps():
            if note is not None:
                note(step)
            if step.header is not None and step.damage is None:
                self._sound_end = step.end_position
                next_offset = step.header.last_offset + 1
            self.batch_count = batch_count + check.batch_count
            self.record_count = record_count + check.record_count
            # In a second look at the segment this stands still until there is more to add.
            self.verified_bytes = max(self.verified_bytes, self._verified_before + step.end_position)
            self._report_growth(least=MIB)
            if step.damage is not None:
                yield step.damage
            for index_check in index_checks:
                yield from index_check.step(step)
            if side_files is not None:
                yield from side_files.step(segment, step.header, is_damaged=step.damage is not None)
        self._ends[segment.base_offset] = SegmentEnd(
            segment.base_offset, next_offset, self._sound_end, is_damaged=False
        )
        if side_files is not None:
            yield from side_files.finish_segment(segment)
        yield from chain.from_iterable(index_check.finish() for index_check in index_checks)

    def _report_growth(self, *, least: int) -> None:
        growth = self.verified_bytes - self._reported_bytes
        if growth >= least:
            self._reported_bytes = self.verified_bytes
            self._on_read(growth)

    def _has_grown(self, segment: LogSegment) -> bool:
        status = self._env.stat(segment.path)
        return status is not None and status.size_in_bytes > segment.size_in_bytes


def _removed(path: str) -> LogReplacedError:
    return LogReplacedError(f"{path} was removed since it was listed: open the log again", path=path, found=NO_FILE)


def verify(log: Log, *, deep: bool = True, env: Env = DEFAULT_ENV) -> Verification:
    """Return a Verification: iterate it for each Damage of the log, segment by segment.

    This checks every batch (framing, CRC, order of offsets, place in its segment), every offset and time index entry
    against the log, and the leader-epoch-checkpoint; if deep, also each record, and transaction indexes, producer
    snapshots, leader epochs and partition.metadata against the log. An incomplete batch at the very end is reported;
    zero bytes there are not, since they are preallocated space. A missing file is not damage, except the transaction
    index of a segment in which a transaction was aborted: without it a broker serves what was rolled back.
    The log may be written concurrently: damage is reported if it is found again after a new listing of the log. While a
    writer holds the lock of the root, damage has to be found five times, and damage at the very end (of the log, of the
    indexes of its last segment, of files that refer to offsets above the log end) is not reported.
    Raises: StorageError while iterating; LogReplacedError if the path has another log, or none, by now.
    Cost: reads everything once, a damaged segment twice, or five times while another process writes the log.
    """
    return Verification(log, is_deep=deep, env=env)


def verify_checkpoints(root: str, env: Env = DEFAULT_ENV) -> Iterator[Damage]:
    """Yield a Damage for each malformed offset checkpoint or meta.properties of a root; a missing file is not
    damage.
    """
    for path in (join_path(root, name) for name in ROOT_CHECKPOINTS):
        yield from damage_of_file(path, partial(read_offset_checkpoint, path, env), env=env)
    yield from damage_of_file(join_path(root, META_PROPERTIES), partial(read_meta_properties, root, env), env=env)
