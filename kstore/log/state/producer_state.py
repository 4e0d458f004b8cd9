"""ProducerStateManager: what a log knows of its producers and their transactions, and its snapshots.

A missing or damaged snapshot costs the time of a replay from an older one, but never changes an answer.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import NamedTuple

from kstore._core import ProducerTable
from kstore._lazy import lazy_logger
from kstore.config import LogConfig
from kstore.env import DEFAULT_ENV, Env
from kstore.errors import (
    CorruptSnapshotError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    LogNotFoundError,
)
from kstore.log.files.names import PRODUCER_SNAPSHOT_SUFFIX, producer_snapshot_offsets, segment_path
from kstore.log.files.snapshots import (
    ProducerSnapshotEntry,
    hash_table_size,
    in_hash_order,
    read_snapshot,
    write_snapshot,
)
from kstore.log.state.producer_append import (
    BatchMetadata,
    CompletedTransaction,
    ProducerAppendInfo,
    ProducerStateBatch,
    ProducerStateEntry,
    VerificationStateEntry,
)
from kstore.log.state.producer_append import VerificationGuard as VerificationGuard
from kstore.record.validation import AppendOrigin
from kstore.types import NO_OFFSET, NO_PRODUCER_ID, TopicPartition

LATE_TRANSACTION_BUFFER_MS = 5 * 60 * 1000

_logger = lazy_logger("kstore.log")


class PreparedAppend:
    """What the batches of one append do to the producers once they are written; created by analyze.

    Attributes: duplicate (the batch that was sent before; nothing must be written then), completed.
    """

    __slots__ = ("completed", "duplicate", "infos")

    def __init__(self) -> None:
        self.duplicate: BatchMetadata | None = None
        self.completed: tuple[CompletedTransaction, ...] = ()
        self.infos: dict[int, ProducerAppendInfo] = {}


class SegmentReplay(NamedTuple):
    """One segment from which producer state is rebuilt.

    next_offset: the offset after its last batch, or the base offset of the next segment; batches_from: returns the
    batches of producers that reach an offset.
    """

    base_offset: int
    next_offset: int
    batches_from: Callable[[int], Iterator[ProducerStateBatch]]


class ProducerStateManager:
    """The producers of one partition up to map_end_offset, and its .snapshot files.

    The constructor lists the snapshots and loads none: truncate_and_reload does, and then the log is replayed from
    map_end_offset on. An append is analyzed, written, then committed.
    Args: requires_verification: refuse the first transactional batch of a transaction unless it comes with a guard from
        start_verification; brokers require that, a log without a coordinator cannot. snapshot_offsets: of the snapshots
        that are there, in rising order; None to list them.
    Attributes: map_end_offset; first_unstable_offset (where the first transaction starts that is open, or ended at or
        above the high watermark; None if there is none); table (the producers and verifications, shared with the log's
        LogAppender, which replaces the entry of a producer whose sequence an append continues, and changes nothing
        else).
    Threads: every method requires the caller's lock; the two attributes may be read without it.
    Source: Kafka ProducerStateManager.
    """

    def __init__(
        self,
        topic_partition: TopicPartition,
        directory: str,
        *,
        config: LogConfig,
        env: Env = DEFAULT_ENV,
        requires_verification: bool = False,
        snapshot_offsets: Sequence[int] | None = None,
    ) -> None:
        self.topic_partition = topic_partition
        self.map_end_offset = 0
        self.first_unstable_offset: int | None = None
        self._directory = directory
        self._config = config
        self._env = env
        self._requires_verification = requires_verification
        self.table = ProducerTable()
        self._producers: dict[int, ProducerStateEntry] = self.table.entries
        self._table_size = hash_table_size(0)
        # First offset -> producer id of the open transactions, in rising order.
        self._ongoing: dict[int, int] = {}
        # First offset -> offset of the marker, for transactions that ended at or above the high watermark.
        self._unreplicated: dict[int, int] = {}
        self._verifications: dict[int, VerificationStateEntry] = self.table.verifications
        self._snapshots = self._listed_snapshots() if snapshot_offsets is None else list(snapshot_offsets)
        self._last_snapshot_offset = 0
        # Up to where a reload still has to be replayed; first_unstable_offset does not advance until then.
        self._reload_end_offset: int | None = None

    def __len__(self) -> int:
        return len(self._producers)

    @property
    def active_producers(self) -> Mapping[int, ProducerStateEntry]:
        """The producers by id, in insertion order."""
        return MappingProxyType(self._producers)

    def entry(self, producer_id: int) -> ProducerStateEntry | None:
        """Return what is known of a producer, or None."""
        return self._producers.get(producer_id)

    def last_stable_offset(self, *, high_watermark: int, log_start_offset: int) -> int:
        """Return the offset below which every transaction is decided, at most the high watermark.

        Returns: the log start offset if that is higher.
        """
        unstable = self.first_unstable_offset
        return max(high_watermark if unstable is None else min(unstable, high_watermark), log_start_offset)

    def has_late_transaction(self, now_ms: int, *, max_transaction_timeout_ms: int) -> bool:
        """Whether a transaction has been open for longer than its coordinator would allow."""
        limit_ms = max_transaction_timeout_ms + LATE_TRANSACTION_BUFFER_MS
        oldest = min(
            (self._producers[producer_id].last_timestamp_ms for producer_id in self._ongoing.values()), default=-1
        )
        return oldest > 0 and now_ms - oldest > limit_ms

    # Appends

    def analyze(
        self,
        batches: Iterable[ProducerStateBatch],
        *,
        origin: AppendOrigin,
        verification_guard: VerificationGuard | None = None,
    ) -> PreparedAppend:
        """Check batches that are about to be written, without changing state; batches without a producer id are
        ignored.

        With origin CLIENT the check stops at the first batch that was sent before, which becomes the result's
        `duplicate`.
        Raises: InvalidProducerEpochError, OutOfOrderSequenceError, InvalidTxnStateError,
            TransactionCoordinatorFencedError.
        Source: Kafka UnifiedLog.analyzeAndValidateProducerState.
        """
        prepared = PreparedAppend()
        is_client = origin is AppendOrigin.CLIENT
        for batch in batches:
            producer_id = batch.producer_id
            if producer_id == NO_PRODUCER_ID:
                continue
            known = self._producers.get(producer_id)
            if is_client and known is not None:
                duplicate = known.find_duplicate(batch)
                if duplicate is not None:
                    prepared.duplicate = duplicate
                    return prepared
            if self._requires_verification and batch.is_transactional:
                self._check_verified(batch, origin=origin, guard=verification_guard)
            info = prepared.infos.get(producer_id)
            if info is None:
                info = ProducerAppendInfo(
                    self.topic_partition,
                    producer_id,
                    current=known,
                    origin=origin,
                    verification=self._verifications.get(producer_id),
                )
                prepared.infos[producer_id] = info
            completed = info.append(batch)
            if completed is not None:
                prepared.completed = (*prepared.completed, completed)
        return prepared

    def commit(self, prepared: PreparedAppend) -> list[CompletedTransaction]:
        """Apply what analyze prepared, after its batches were written; return the transactions that they ended."""
        changes_transactions = bool(prepared.completed)
        infos = prepared.infos
        for producer_id in infos if len(infos) == 1 else _as_kafka_takes_over(list(infos)):
            info = infos[producer_id]
            self._take_over(info)
            if info.started:
                changes_transactions = True
            if info.ends_verification:
                self._verifications.pop(producer_id, None)
        if not changes_transactions:
            return []
        completed = [self._complete(completed_txn) for completed_txn in prepared.completed]
        self._publish_first_unstable_offset()
        return completed

    def replay(self, batch: ProducerStateBatch) -> CompletedTransaction | None:
        """Apply a batch that is in the log already; what an append would refuse is only logged.

        Returns: the transaction that it ended, or None.
        """
        if batch.producer_id == NO_PRODUCER_ID:
            return None
        info = ProducerAppendInfo(
            self.topic_partition,
            batch.producer_id,
            current=self._producers.get(batch.producer_id),
            origin=AppendOrigin.REPLICATION,
            verification=self._verifications.get(batch.producer_id),
            refuses=False,
        )
        completed = info.append(batch)
        self._take_over(info)
        if info.ends_verification:
            self._verifications.pop(batch.producer_id, None)
        if completed is not None:
            completed = self._complete(completed)
        self._publish_first_unstable_offset()
        return completed

    def replay_together(self, batches: Iterable[ProducerStateBatch]) -> None:
        """Replay batches of one segment; new producers are added in Kafka's order.

        Source: Kafka UnifiedLog.loadProducersFromRecords.
        """
        known = len(self._producers)
        for batch in batches:
            self.replay(batch)
        new = list(self._producers)[known:]
        if len(new) > 1:
            entries = {producer_id: self._producers.pop(producer_id) for producer_id in new}
            self._producers.update((producer_id, entries[producer_id]) for producer_id in _as_kafka_takes_over(new))

    def update_map_end_offset(self, offset: int) -> None:
        """Set the log end offset after an append of any batches; the next snapshot is named by it."""
        self.map_end_offset = offset
        if self._reload_end_offset is not None and offset >= self._reload_end_offset:
            self._reload_end_offset = None
            self._publish_first_unstable_offset()

    def on_high_watermark(self, high_watermark: int) -> None:
        """Treat transactions whose marker is below the high watermark as decided for readers."""
        if self._unreplicated:
            self._remove_unreplicated(high_watermark)
            self._publish_first_unstable_offset()

    def start_verification(
        self, producer_id: int, *, producer_epoch: int, sequence: int, now_ms: int, supports_epoch_bump: bool = False
    ) -> VerificationGuard | None:
        """Return the guard for the next transactional batch of a producer, None if its transaction is open already.

        Args: supports_epoch_bump: whether each transaction of the producer has an epoch of its own (transaction version
            2). If so, it must start at sequence 0 if no batch of it is known, and a marker with the epoch being
            verified does not end the verification. Only the first call of a verification sets it.
        Raises: InvalidProducerEpochError for an epoch below the known one.
        Source: Kafka UnifiedLog.maybeStartTransactionVerification (KIP-890).
        """
        self._check_epoch(producer_id, producer_epoch=producer_epoch)
        if self._is_ongoing(producer_id, producer_epoch=producer_epoch):
            return None
        verification = self._verifications.get(producer_id)
        if verification is None:
            verification = self._verifications[producer_id] = VerificationStateEntry(
                producer_epoch=producer_epoch,
                lowest_sequence=sequence,
                started_ms=now_ms,
                supports_epoch_bump=supports_epoch_bump,
            )
        verification.note(producer_epoch=producer_epoch, sequence=sequence)
        return verification.guard

    def remove_expired_producers(self, now_ms: int) -> int:
        """Forget producers and verifications older than producer_id_expiration_ms; return the number of producers.

        A producer with an open transaction is kept. The age counts from the timestamp of its last record.
        """
        limit_ms = self._config.producer_id_expiration_ms
        expired = [producer.producer_id for producer in self._producers.values() if self._is_expired(producer, now_ms)]
        for producer_id in expired:
            del self._producers[producer_id]
        old = [
            item for item, verification in self._verifications.items() if now_ms - verification.started_ms >= limit_ms
        ]
        for producer_id in old:
            del self._verifications[producer_id]
        return len(expired)

    def change_config(self, config: LogConfig) -> None:
        """Take over producer_id_expiration_ms."""
        self._config = config

    # Loading and truncation

    def truncate_and_reload(
        self,
        *,
        log_start_offset: int,
        log_end_offset: int,
        now_ms: int,
        keeps_first: bool = False,
        retaken: Container[int] = (),
    ) -> None:
        """Load the newest snapshot inside the log; the caller must then replay batches from map_end_offset on.

        Until update_map_end_offset is called with log_end_offset, no transaction counts as decided.
        Durably removes damaged snapshots, snapshots above the log end, and those at or below the log start (with
        keeps_first, only below it). Nothing is reloaded if the state is at log_end_offset already. Expired producers
        are left out.
        Args: retaken: offsets above the log end at which the caller takes snapshots next: those that are there stay
            until then, and are not loaded.
        Raises: StorageError.
        """
        least = log_start_offset if keeps_first else log_start_offset + 1
        inside = range(least, log_end_offset + 1)
        outside = [
            snapshot_offset
            for snapshot_offset in self._snapshots
            if snapshot_offset not in inside and (snapshot_offset < least or snapshot_offset not in retaken)
        ]
        self._remove_snapshots(outside)
        if log_end_offset == self.map_end_offset:
            self.on_log_start_offset_incremented(log_start_offset)
            return
        self._reload_end_offset = log_end_offset
        self.first_unstable_offset = log_start_offset
        self._clear()
        self.map_end_offset = log_start_offset
        while (offset := self._newest_snapshot(log_end_offset)) is not None:
            path = self._snapshot_path(offset)
            try:
                entries = read_snapshot(path, self._env)
            except CorruptSnapshotError as error:
                _logger.warning("continuing with an older snapshot: %s", error)
                self._remove_snapshots([offset])
                continue
            self._load(entries, now_ms=now_ms)
            self.map_end_offset = offset
            break
        self._last_snapshot_offset = self.map_end_offset
        self.update_map_end_offset(self.map_end_offset)

    def load_newest(self, *, log_start_offset: int, log_end_offset: int, now_ms: int) -> None:
        """Load the newest sound snapshot inside the log, of a manager that has nothing yet, and change no file.

        The caller then replays batches from map_end_offset on. Expired producers are left out.
        Raises: StorageError.
        """
        self.map_end_offset = log_start_offset
        for offset in reversed(self._snapshots):
            if log_start_offset < offset <= log_end_offset:
                with suppress(CorruptSnapshotError, LogNotFoundError):
                    self._load(read_snapshot(self._snapshot_path(offset), self._env), now_ms=now_ms)
                    self.map_end_offset = offset
                    return

    def rebuild(
        self,
        segments: Iterable[SegmentReplay],
        *,
        log_start_offset: int,
        log_end_offset: int,
        snapshot_offsets: Container[int],
        now_ms: int,
        keeps_first: bool = False,
        retaken: Container[int] = (),
    ) -> None:
        """Restore the state at log_end_offset: load the newest snapshot below it, then replay the batches after that.

        Snapshots are taken before each replayed segment whose base offset is in snapshot_offsets, and at the end.
        Args: segments: by base offset; keeps_first, retaken: as in truncate_and_reload.
        Raises: StorageError; CorruptRecordError and other errors of the segments.
        Source: Kafka UnifiedLog.rebuildProducerState.
        """
        self.truncate_and_reload(
            log_start_offset=log_start_offset,
            log_end_offset=log_end_offset,
            now_ms=now_ms,
            keeps_first=keeps_first,
            retaken=retaken,
        )
        for segment in segments:
            if max(segment.base_offset, self.map_end_offset) >= log_end_offset:
                break
            if segment.next_offset <= self.map_end_offset:
                continue
            self.update_map_end_offset(max(segment.base_offset, self.map_end_offset))
            if segment.base_offset in snapshot_offsets:
                self.take_snapshot()
            self.replay_together(segment.batches_from(self.map_end_offset))
            self.update_map_end_offset(min(segment.next_offset, log_end_offset))
        self.update_map_end_offset(log_end_offset)
        self.take_snapshot()

    def reload_own(self, *, now_ms: int) -> None:
        """Replace the state with what loading a snapshot of it would give, that is, without expired producers."""
        entries = self.snapshot_entries()
        self._clear()
        self._table_size = hash_table_size(0)
        self._load(entries, now_ms=now_ms)
        self._publish_first_unstable_offset()

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Forget everything and durably remove all snapshots.

        Raises: StorageError.
        """
        self._clear()
        self._remove_snapshots(list(self._snapshots))
        self._last_snapshot_offset = 0
        self._reload_end_offset = None
        self.map_end_offset = offset
        self._publish_first_unstable_offset()

    def on_log_start_offset_incremented(self, log_start_offset: int) -> None:
        """Adapt to a new log start offset: keep the producers, forget transactions decided below it."""
        self._remove_unreplicated(log_start_offset)
        self.map_end_offset = max(self.map_end_offset, log_start_offset)
        newest = self._newest_snapshot(self.map_end_offset)
        self._last_snapshot_offset = log_start_offset if newest is None else newest
        self._publish_first_unstable_offset()

    # Snapshots

    @property
    def snapshot_offsets(self) -> tuple[int, ...]:
        return tuple(self._snapshots)

    def snapshot_entries(self) -> list[ProducerSnapshotEntry]:
        """Return the entries of a snapshot taken now, in Kafka's order."""
        ordered = in_hash_order(self._producers, table_size=self._table_size)
        return [self._producers[producer_id].snapshot_entry() for producer_id in ordered]

    def take_snapshot(self) -> str | None:
        """Write a snapshot at map_end_offset and return its path, None if the last one is as recent.

        One that is there and says the same is only synced; its name has to be durable.
        Raises: StorageError.  Cost: two syncs, one for a snapshot that stays.
        """
        if self.map_end_offset <= self._last_snapshot_offset:
            return None
        path, is_there = self._snapshot_path(self.map_end_offset), self.map_end_offset in self._snapshots
        write_snapshot(path, self.snapshot_entries(), self._env, keeps_equal=is_there)
        if not is_there:
            insort(self._snapshots, self.map_end_offset)
        self._last_snapshot_offset = self.map_end_offset
        return path

    def take_last_snapshot(self, end_offset: int) -> None:
        """Take the snapshot of a log that is closed, at the end of its batches, and remove those after that.

        Kafka leaves the one of a truncation inside a batch. It is above the end that readers find, as if records after
        it had been lost.
        Raises: StorageError.
        """
        above = [snapshot_offset for snapshot_offset in self._snapshots if snapshot_offset > end_offset]
        if above:
            self._last_snapshot_offset = max(
                (snapshot_offset for snapshot_offset in self._snapshots if snapshot_offset <= end_offset), default=-1
            )
        self.update_map_end_offset(end_offset)
        self.take_snapshot()
        self._remove_snapshots(above)

    def remove_stray_snapshots(self, segment_base_offsets: Iterable[int]) -> None:
        """Remove snapshots that are at no segment's base offset, except the last one if it is above all of those.

        Raises: StorageError.
        """
        bases = set(segment_base_offsets)
        strays = [snapshot_offset for snapshot_offset in self._snapshots if snapshot_offset not in bases]
        if strays and not any(base > strays[-1] for base in bases):
            strays.pop()
        self._remove_snapshots(strays)

    def delete_snapshots_before(self, offset: int) -> None:
        """Remove the snapshots below an offset.

        Raises: StorageError.
        """
        self._remove_snapshots([snapshot_offset for snapshot_offset in self._snapshots if snapshot_offset < offset])

    def delete_snapshots_at(self, base_offsets: Iterable[int]) -> None:
        """Remove the snapshots at the base offsets of segments that were removed.

        Raises: StorageError.  Source: Kafka UnifiedLog.deleteProducerSnapshots.
        """
        self._remove_snapshots([offset for offset in base_offsets if offset in self._snapshots])

    def delete_snapshots_with_open(self, markers: Mapping[int, int]) -> None:
        """Remove the snapshots that have a transaction open whose marker is gone from the log.

        A replay from there would never end it; one from an earlier snapshot, or from the log alone, does not begin it.
        Args: markers: the offset of the last marker that is gone, by producer id.
        Raises: StorageError.
        """
        if markers:
            self._remove_snapshots(
                [snapshot_offset for snapshot_offset in self._snapshots if self._has_open(snapshot_offset, markers)]
            )

    def _has_open(self, offset: int, markers: Mapping[int, int]) -> bool:
        if offset > max(markers.values()):
            return False
        try:
            entries = read_snapshot(self._snapshot_path(offset), self._env)
        except CorruptSnapshotError:
            return True
        return any(
            producer.current_txn_first_offset >= 0 and offset <= markers.get(producer.producer_id, -1)
            for producer in entries
        )

    def delete_snapshots_between(self, start_offset: int, *, end_offset: int) -> None:
        """Remove the snapshots in [start_offset, end_offset).

        Raises: StorageError.
        """
        self._remove_snapshots(
            [snapshot_offset for snapshot_offset in self._snapshots if start_offset <= snapshot_offset < end_offset]
        )

    # Parts

    def _check_verified(
        self, batch: ProducerStateBatch, *, origin: AppendOrigin, guard: VerificationGuard | None
    ) -> None:
        if origin not in (AppendOrigin.CLIENT, AppendOrigin.COORDINATOR) or batch.is_control:
            return
        if self._is_ongoing(batch.producer_id, producer_epoch=batch.producer_epoch):
            return
        # The epoch first: after InvalidProducerEpochError a producer can abort and continue.
        self._check_epoch(batch.producer_id, producer_epoch=batch.producer_epoch)
        verification = self._verifications.get(batch.producer_id)
        if guard is not None and verification is not None and verification.guard is guard:
            return
        raise InvalidTxnStateError(
            f"producer {batch.producer_id}, epoch {batch.producer_epoch}, at offset {batch.base_offset} of "
            f"{self.topic_partition}: expected a verified transaction, found one that is neither open nor verified",
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
        )

    def _check_epoch(self, producer_id: int, *, producer_epoch: int) -> None:
        known = self._producers.get(producer_id)
        if known is not None and producer_epoch < known.producer_epoch:
            raise InvalidProducerEpochError(
                f"producer {producer_id} of {self.topic_partition}: expected an epoch of at least "
                f"{known.producer_epoch}, found {producer_epoch}",
                producer_id=producer_id,
                producer_epoch=producer_epoch,
            )

    def _is_ongoing(self, producer_id: int, *, producer_epoch: int) -> bool:
        known = self._producers.get(producer_id)
        return known is not None and known.has_open_transaction and known.producer_epoch == producer_epoch

    def _take_over(self, info: ProducerAppendInfo) -> None:
        entry = info.entry
        self._producers[entry.producer_id] = entry
        if len(self._producers) * 4 > self._table_size * 3:
            self._table_size = hash_table_size(len(self._producers), size=self._table_size)
        for first_offset in info.started:
            self._open_transaction(first_offset, producer_id=entry.producer_id)

    def _open_transaction(self, first_offset: int, *, producer_id: int) -> None:
        is_last = not self._ongoing or first_offset > next(reversed(self._ongoing))
        self._ongoing[first_offset] = producer_id
        if not is_last:
            self._ongoing = dict(sorted(self._ongoing.items()))

    def _complete(self, completed: CompletedTransaction) -> CompletedTransaction:
        others = (first for first, producer_id in self._ongoing.items() if producer_id != completed.producer_id)
        last_stable_offset = next(others, completed.last_offset + 1)
        self._ongoing.pop(completed.first_offset, None)
        self._unreplicated[completed.first_offset] = completed.last_offset
        return completed._replace(last_stable_offset=last_stable_offset)

    def _publish_first_unstable_offset(self) -> None:
        if self._reload_end_offset is not None:
            return
        ongoing = next(iter(self._ongoing), None)
        firsts = self._unreplicated if ongoing is None else [*self._unreplicated, ongoing]
        self.first_unstable_offset = min(firsts, default=None)

    def _remove_unreplicated(self, offset: int) -> None:
        for first_offset in [first for first, last in self._unreplicated.items() if last < offset]:
            del self._unreplicated[first_offset]

    def _clear(self) -> None:
        self._producers.clear()
        self._ongoing.clear()
        self._unreplicated.clear()

    def _load(self, entries: list[ProducerSnapshotEntry], *, now_ms: int) -> None:
        for entry in map(ProducerStateEntry.of_snapshot, entries):
            if not self._is_expired(entry, now_ms):
                self._producers[entry.producer_id] = entry
        self._table_size = hash_table_size(len(self._producers), size=self._table_size)
        opened = (producer for producer in self._producers.values() if producer.current_txn_first_offset != NO_OFFSET)
        self._ongoing = dict(sorted((entry.current_txn_first_offset, entry.producer_id) for entry in opened))

    def _is_expired(self, entry: ProducerStateEntry, now_ms: int) -> bool:
        age_ms = now_ms - entry.last_timestamp_ms
        return not entry.has_open_transaction and age_ms >= self._config.producer_id_expiration_ms

    def _newest_snapshot(self, end_offset: int) -> int | None:
        """Return the offset of the last snapshot at or below end_offset, None without one."""
        count = bisect_right(self._snapshots, end_offset)
        return self._snapshots[count - 1] if count else None

    def _listed_snapshots(self) -> list[int]:
        return producer_snapshot_offsets(self._env.listdir(self._directory))

    def _remove_snapshots(self, offsets: list[int]) -> None:
        if not offsets:
            return
        for offset in offsets:
            self._env.unlink(self._snapshot_path(offset))
            self._snapshots.remove(offset)
        self._env.sync_directory(self._directory)

    def _snapshot_path(self, offset: int) -> str:
        return segment_path(self._directory, offset, suffix=PRODUCER_SNAPSHOT_SUFFIX)


def _as_kafka_takes_over(producer_ids: list[int]) -> Iterable[int]:
    """Return the producers of one append, or of one replayed segment, in the order in which Kafka adds them.

    Kafka collects them with HashMap.computeIfAbsent, which puts a new key before the others in its bucket.
    """
    return in_hash_order(reversed(producer_ids), table_size=hash_table_size(len(producer_ids)))
