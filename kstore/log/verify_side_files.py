"""SideFileCheck: transaction indexes, producer snapshots, leader epochs and the topic id against the log beside them.

Layer 5. Told every batch of a walk in order. What the log can't tell any more, since it was cleaned, cut at the start
or is damaged, is no damage of a side file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from kstore._core import BatchHeader
from kstore.config import MAX_INT32
from kstore.errors import InvalidRecordError
from kstore.log.checkpoints import EpochEntry, read_leader_epoch_checkpoint
from kstore.log.damage import Damage, damage_of_file, size_of_file
from kstore.log.env import Env, join_path
from kstore.log.filenames import (
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    PRODUCER_SNAPSHOT_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    producer_snapshot_offsets,
    segment_path,
)
from kstore.log.index import MAX_INDEX_BYTES
from kstore.log.leader_epochs import epoch_of_offset
from kstore.log.log import Log
from kstore.log.producer_append import TransactionMarker, read_marker
from kstore.log.producer_snapshot import (
    SNAPSHOT_ENTRY_SIZE,
    SNAPSHOT_OVERHEAD,
    ProducerSnapshotEntry,
    read_snapshot,
)
from kstore.log.root_files import read_partition_metadata
from kstore.log.segment import LogSegment
from kstore.log.transaction_index import TRANSACTION_INDEX_ENTRY_SIZE, AbortedTxn, decode_aborted_txns
from kstore.record import RecordBatch
from kstore.types import NO_OFFSET, NO_PARTITION_LEADER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE


class SideFileState(NamedTuple):
    """What a SideFileCheck knew at a moment, under the names of its attributes."""

    snapshot_entries: dict[int, dict[ProducerSnapshotEntry, tuple[str, int]]]
    open: dict[int, int]
    others: dict[int, str]
    aborted: list[AbortedTxn]
    wrong_epochs: Damage | None
    last_offset: int
    whole_from: int
    is_damaged: bool


class SideFileCheck:
    """Holds the side files of a log against its batches.

    start() comes first, then step() for each batch in order, with finish_segment() behind the last one of each segment,
    finish() at the end.
    Args: has_grown: tells whether the log was written since it was listed, so that side files may be ahead of it.
    Threads: not safe.  Cost: a read of each control batch; memory for the side files of the log.
    """

    def __init__(self, log: Log, *, has_grown: Callable[[], bool], env: Env) -> None:
        self._log = log
        self._has_grown = has_grown
        self._env = env
        self._epochs: list[EpochEntry] = []
        self._wrong_epochs: Damage | None = None
        # Last offset of a batch -> what snapshots say of it, with the path and the position of the entry.
        self._snapshot_entries: dict[int, dict[ProducerSnapshotEntry, tuple[str, int]]] = {}
        self._snapshots: dict[str, int] = {}
        self._open: dict[int, int] = {}
        self._aborted: list[AbortedTxn] = []
        # Of the segment at hand, as far as they matter for its transaction index.
        self._others: dict[int, str] = {}
        self._last_offset = -1
        # From here on no offset is left out.
        self._whole_from = 0
        self._is_damaged = False

    def start(self) -> Iterator[Damage]:
        """Read the files of the partition and check each by itself.

        Raises: StorageError.
        """
        directory = self._log.path
        read_topic_id = partial(read_partition_metadata, directory, self._env)
        yield from damage_of_file(join_path(directory, PARTITION_METADATA), read_topic_id, env=self._env)
        yield from self._check_epochs(join_path(directory, LEADER_EPOCH_CHECKPOINT))
        for offset in producer_snapshot_offsets(self._env.listdir(directory)):
            yield from self._check_snapshot(segment_path(directory, offset, suffix=PRODUCER_SNAPSHOT_SUFFIX), offset)

    def state(self) -> SideFileState:
        """Return what is known so far, for restore."""
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
        """Go back to what was known when the state was taken, with the files of the partition as they are by now."""
        self._epochs, self._snapshots, self._snapshot_entries = [], {}, {}
        for _ in self.start():
            pass
        known = self._snapshot_entries
        self._snapshot_entries = {key: known[key] for key in state.snapshot_entries if key in known}
        self._open, self._others, self._aborted = dict(state.open), dict(state.others), list(state.aborted)
        self._wrong_epochs, self._is_damaged = state.wrong_epochs, state.is_damaged
        self._last_offset, self._whole_from = state.last_offset, state.whole_from

    def step(self, segment: LogSegment, header: BatchHeader | None, *, is_damaged: bool) -> Iterator[Damage]:
        """Take the next batch of a segment, or a stretch without one."""
        if header is None or is_damaged:
            self._is_damaged |= is_damaged
            return
        if header.base_offset != self._last_offset + 1:
            self._whole_from = header.base_offset
        self._last_offset = header.last_offset
        yield from self._check_epoch_of(segment, header)
        if header.producer_id == NO_PRODUCER_ID:
            return
        entries = self._snapshot_entries.pop(header.last_offset, None)
        if entries is not None:
            yield from _compared(entries, header)
        if header.is_control:
            self._end_transaction(segment, header)
        elif header.is_transactional and header.record_count and not self._is_below_log_start(header):
            # What lies below the log start nobody is served, and brokers that load the log there forget it.
            self._open.setdefault(header.producer_id, header.base_offset)

    def finish_segment(self, segment: LogSegment) -> Iterator[Damage]:
        """Check the transaction index of a segment whose batches are all told."""
        yield from self._flush_wrong_epochs()
        path = segment_path(self._log.path, segment.base_offset, suffix=TRANSACTION_INDEX_SUFFIX)
        found: list[AbortedTxn] = []
        is_readable = True
        read = partial(self._read_aborted, path, segment, into=found)
        for damage in damage_of_file(path, read, env=self._env, entry_size=TRANSACTION_INDEX_ENTRY_SIZE):
            is_readable = False
            yield damage
        if is_readable and not self._is_damaged:
            yield from self._compare_aborted(path, found)
        self._aborted, self._others = [], {}

    def finish(self) -> Iterator[Damage]:
        """Check that nothing is said of offsets above the log end, which a damaged log can't be asked."""
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
            if not (before.epoch < after.epoch and before.start_offset < after.start_offset):
                reason = f"epochs or their start offsets do not rise: {tuple(before)}, then {tuple(after)}"
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
            contradiction = _contradiction(entry, offset)
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
        """Whether nobody is served the batch any more, so that a cleaner passes over its transaction."""
        return header.last_offset < self._log.log_start_offset

    def _marker(self, segment: LogSegment, header: BatchHeader) -> TransactionMarker | None:
        data = segment.records.read_bytes(header.size_in_bytes, position=header.position)
        try:
            return read_marker(RecordBatch(data, position=header.position, path=segment.path))
        except InvalidRecordError:
            self._is_damaged = True
            return None

    def _compare_aborted(self, path: str, found: list[AbortedTxn]) -> Iterator[Damage]:
        known = {one.last_offset: one for one in found}
        for slot, one in enumerate(found):
            reason = None
            if one.last_offset in self._others:
                reason = f"entry of {self._others[one.last_offset]} at offset {one.last_offset}"
            elif one.last_offset > self._last_offset and not self._has_grown():
                reason = f"entry of offset {one.last_offset} behind the last batch"
            elif one.first_offset > one.last_offset:
                reason = f"first offset {one.first_offset} above the marker"
            elif one.last_stable_offset > self._log.log_end_offset and not self._has_grown():
                # Above the marker it may lie: a follower that takes several batches at once knows of transactions that
                # begin behind it.
                reason = f"last stable offset {one.last_stable_offset} behind the log end"
            if reason is not None:
                yield Damage(path, slot * TRANSACTION_INDEX_ENTRY_SIZE, TRANSACTION_INDEX_ENTRY_SIZE, reason)
        for one in self._aborted:
            entry = known.get(one.last_offset)
            if entry is None:
                reason = (
                    f"no entry of the transaction of producer {one.producer_id} aborted at offset {one.last_offset}"
                )
                yield Damage(path, 0, self._size_of(path), reason)
            elif entry.producer_id != one.producer_id or entry.first_offset > one.first_offset:
                expected = f"producer {one.producer_id} from offset {one.first_offset} or below"
                reason = f"expected {expected}, found producer {entry.producer_id} from offset {entry.first_offset}"
                yield Damage(
                    path, found.index(entry) * TRANSACTION_INDEX_ENTRY_SIZE, TRANSACTION_INDEX_ENTRY_SIZE, reason
                )

    def _read_aborted(self, path: str, segment: LogSegment, *, into: list[AbortedTxn]) -> None:
        content = self._env.read_file(path, max_bytes=MAX_INDEX_BYTES)
        into += decode_aborted_txns(content, base_offset=segment.base_offset, path=path)

    def _read_epochs(self, path: str) -> None:
        self._epochs = read_leader_epoch_checkpoint(path, self._env) or []

    def _size_of(self, path: str) -> int:
        return size_of_file(path, self._env)


def _contradiction(entry: ProducerSnapshotEntry, offset: int) -> str | None:
    """Return why an entry can't be in a snapshot at that offset."""
    if not -1 <= entry.last_offset < offset:
        return f"last offset of producer {entry.producer_id}: expected less than {offset}, found {entry.last_offset}"
    if not -1 <= entry.current_txn_first_offset < offset:
        found = entry.current_txn_first_offset
        return f"open transaction of producer {entry.producer_id}: expected less than {offset}, found {found}"
    if entry.producer_id < 0 or not 0 <= entry.offset_delta <= max(entry.last_offset, 0):
        return f"producer {entry.producer_id} with an offset delta of {entry.offset_delta}"
    return None


def _compared(entries: dict[ProducerSnapshotEntry, tuple[str, int]], header: BatchHeader) -> Iterator[Damage]:
    """Yield the snapshot entries that say something else of a batch than its header does.

    Kafka 0.11 notes the offset of a transaction's marker together with the sequence of the data before it.
    """
    delta = header.last_offset - header.base_offset
    sequence = NO_SEQUENCE if header.base_sequence == NO_SEQUENCE else (header.base_sequence + delta) & MAX_INT32
    expected = (header.producer_id, header.producer_epoch, sequence, header.last_offset, delta)
    for entry, (path, position) in entries.items():
        if header.is_control and entry._replace(last_sequence=NO_SEQUENCE)[:5] == expected:
            continue
        if tuple(entry[:5]) != expected or header.is_control:
            reason = (
                f"batch up to offset {header.last_offset}: in the log producer {expected[0]}, epoch {expected[1]}, "
                f"sequence {expected[2]}, found {entry.producer_id}, {entry.producer_epoch}, {entry.last_sequence}"
            )
            yield Damage(path, position, SNAPSHOT_ENTRY_SIZE, reason)
