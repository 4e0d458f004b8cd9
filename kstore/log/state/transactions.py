"""Which transactions of a log were aborted, and the offset below which all are decided.

Found by walking batch headers and reading the end markers, never from .txnindex files: if one is missing, a broker
forgets its aborted transactions. AbortedIndex reads those of a log that this process writes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from kstore._core import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader, HeaderScan
from kstore.config import LogConfig
from kstore.errors import CorruptionError
from kstore.log.damage import SkippedRange
from kstore.log.damaged.sound import DamagedPart, skipped_batch
from kstore.log.segment.segment import LogSegment
from kstore.record.batches import RecordBatch
from kstore.types import MAX_OFFSET, NO_PRODUCER_ID, ControlRecordType, TopicPartition

if TYPE_CHECKING:
    from kstore.record.control import EndTransactionMarker


class AbortedTransaction(NamedTuple):
    """An aborted transaction, as a walk over the batches finds it: producer_id's data from first_offset up to the abort
    marker at last_offset. AbortedTxn is the entry of the .txnindex, which has the last stable offset too.
    """

    producer_id: int
    first_offset: int
    last_offset: int


class OpenTransaction(NamedTuple):
    """A transaction without a marker, as the batches of a log show it.

    producer_epoch: of its newest batch; coordinator_epoch: of the producer's last marker in the log, -1 without one.
    Offsets and timestamps (ms since 1970, -1 for none) are those of its first and last batch; first_timestamp_ms is the
    smallest of the first batch, last_timestamp_ms the largest of the last. size_in_bytes: of its batches.
    """

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    first_offset: int
    last_offset: int
    size_in_bytes: int
    first_timestamp_ms: int
    last_timestamp_ms: int


class Transactions(NamedTuple):
    """aborted: in the order of their markers; last_stable_offset: where the first undecided transaction starts, or the
    log start offset if that is higher.
    """

    aborted: tuple[AbortedTransaction, ...]
    last_stable_offset: int

    def aborted_between(self, *, start_offset: int, end_offset: int) -> tuple[AbortedTransaction, ...]:
        """Return those with data in [start_offset, end_offset)."""
        return tuple(
            transaction
            for transaction in self.aborted
            if transaction.first_offset < end_offset and transaction.last_offset >= start_offset
        )

    def may_have_aborted(self, *, start_offset: int, end_offset: int) -> bool:
        """Whether there are any with data in [start_offset, end_offset)."""
        return bool(self.aborted) and bool(self.aborted_between(start_offset=start_offset, end_offset=end_offset))

    def aborted_filter(self) -> Callable[[BatchHeader], bool]:
        """Return a function that returns whether a batch is data of an aborted transaction.  Cost of a call: O(log
        aborted).
        """
        by_producer: dict[int, list[tuple[int, int]]] = {}
        for producer_id, first_offset, last_offset in self.aborted:
            by_producer.setdefault(producer_id, []).append((first_offset, last_offset))

        def is_aborted(header: BatchHeader) -> bool:
            ranges = by_producer.get(header.producer_id) if header.is_transactional else None
            if not ranges:
                return False
            slot = bisect_right(ranges, (header.base_offset, MAX_OFFSET)) - 1
            return slot >= 0 and header.base_offset <= ranges[slot][1]

        return is_aborted


class Settled(NamedTuple):
    """The result of a walk over a log, and where it stopped: at `position` of a segment, after previous_last_offset.

    open: (producer id, first offset) of the transactions that were not ended; aborted: as in Transactions.
    transactional_from: where the first batch of a transaction starts, or the first marker; MAX_OFFSET without any.
    """

    base_offset: int = -1
    position: int = 0
    previous_last_offset: int = -1
    open: tuple[tuple[int, int], ...] = ()
    aborted: tuple[AbortedTransaction, ...] = ()
    transactional_from: int = MAX_OFFSET

    def transactions(self, *, log_start_offset: int, log_end_offset: int) -> Transactions:
        """Return the transactions of a log with these bounds."""
        first_undecided = min((first_offset for _, first_offset in self.open), default=log_end_offset)
        return Transactions(self.aborted, max(first_undecided, log_start_offset))


NOTHING_SETTLED = Settled()


def settle_transactions(segments: Iterable[LogSegment], *, after: Settled, config: LogConfig) -> Settled:
    """Walk the headers of the segments from where an earlier walk stopped, and find the end of every transaction.

    Args: after: the result of the earlier walk over the same log, which may have grown since.
    Raises: CorruptRecordError and other errors for damage in the walked range.
    Cost: a compiled header walk; each transactional or control batch costs a call, each control batch a read.
    """
    walk = _Walk(after, config)
    base_offset, position, previous_last_offset = after[:3]
    for segment in segments:
        if segment.base_offset < base_offset:
            continue
        if segment.base_offset > base_offset:
            base_offset, position, previous_last_offset = segment.base_offset, 0, -1
        position, previous_last_offset = walk.over(
            segment,
            position=position,
            end_position=segment.scan_end_position,
            previous_last_offset=previous_last_offset,
        )
    return Settled(
        base_offset,
        position,
        previous_last_offset,
        tuple(walk.started.items()),
        tuple(walk.aborted),
        walk.transactional_from,
    )


class EndedTransaction(NamedTuple):
    """A transaction, whichever way it ended: the first offset of its data, and its marker's offset."""

    producer_id: int
    first_offset: int
    marker_offset: int


def open_transactions(segments: Iterable[LogSegment], *, config: LogConfig) -> tuple[OpenTransaction, ...]:
    """Return the transactions that are not ended in the segments, by first offset.

    Needs no .snapshot files, so that the answer is the same after a crash.
    Raises: CorruptRecordError and other errors for damage; LogReplacedError.
    Cost: that of settle_transactions over the whole log.
    """
    started: dict[int, OpenTransaction] = {}
    epochs: dict[int, int] = {}
    for segment in segments:
        for header in _headers_from(segment, segment.base_offset):
            producer_id = header.producer_id
            if not header.is_control:
                known = started.get(producer_id)
                started[producer_id] = (
                    _begun(header, epochs.get(producer_id, -1))
                    if known is None
                    else known._replace(
                        producer_epoch=header.producer_epoch,
                        last_offset=header.last_offset,
                        size_in_bytes=known.size_in_bytes + header.size_in_bytes,
                        last_timestamp_ms=header.max_timestamp_ms,
                    )
                )
                continue
            for marker in _end_markers(segment, header, config):
                epochs[producer_id] = marker.coordinator_epoch
                started.pop(producer_id, None)
    return tuple(sorted(started.values(), key=attrgetter("first_offset")))


def _begun(header: BatchHeader, coordinator_epoch: int) -> OpenTransaction:
    return OpenTransaction(
        header.producer_id,
        header.producer_epoch,
        coordinator_epoch,
        header.base_offset,
        header.last_offset,
        header.size_in_bytes,
        header.base_timestamp_ms,
        header.max_timestamp_ms,
    )


def transactions_ending_from(
    segments: Iterable[LogSegment],
    start_offset: int,
    *,
    end_offset: int,
    started: dict[int, int],
    config: LogConfig,
) -> Iterator[EndedTransaction]:
    """Yield the transactions whose markers are at start_offset or above, until all that began below end_offset ended.

    Args: started: the first offset of each transaction that is open at start_offset, by producer id; at the end, of
        those that were not ended.
    Raises: CorruptRecordError and other errors for damage in the walked range; LogReplacedError.
    Cost: that of settle_transactions, from the batch at start_offset on.
    """
    walk = _Walk(NOTHING_SETTLED, config)
    walk.started = started
    for segment in segments:
        if segment.next_base_offset is not None and segment.next_base_offset <= start_offset:
            continue
        for header in _headers_from(segment, start_offset):
            if header.base_offset >= end_offset and not any(first < end_offset for first in started.values()):
                return
            first_offset = started.get(header.producer_id)
            walk.note(segment, header)
            if first_offset is not None and header.producer_id not in started:
                yield EndedTransaction(header.producer_id, first_offset, header.last_offset)


def find_aborted(
    segments: Iterable[LogSegment], start_offset: int, *, end_offset: int, config: LogConfig
) -> tuple[AbortedTransaction, ...]:
    """Find the aborted transactions with data in [start_offset, end_offset), in the order of their markers.

    first_offset of each is that of its data in the range.

    Args: start_offset: of a batch; segments: from the one that holds it on.
    Raises: CorruptRecordError and other errors for damage in the walked range; LogReplacedError.
    Cost: a header walk over the range, and on until each of its transactions is ended.
    """
    walk = _Walk(NOTHING_SETTLED, config)
    for segment in segments:
        reached, end_position = _start_in(segment, start_offset), segment.scan_end_position
        while reached[0] < end_position:
            stop_offset = None if walk.started else end_offset
            scan = _next_of_transaction(segment, reached, end_position=end_position, stop_offset=stop_offset)
            header = segment.records.stopped_at(scan)
            if header is None:
                break
            reached = header.position + header.size_in_bytes, header.last_offset
            if header.is_control or (header.is_transactional and header.base_offset < end_offset):
                walk.note(segment, header)
            if reached[1] >= end_offset - 1 and not walk.started:
                return tuple(walk.aborted)
    return tuple(walk.aborted)


class OpenTransactions(NamedTuple):
    """The transactions that are open at an offset: they have data below it, and no marker there.

    open: (producer id, first offset) of each; settled_offset: the highest offset up to this one at which none is open.
    """

    open: tuple[tuple[int, int], ...]
    settled_offset: int


def open_transactions_at(segments: Iterable[LogSegment], end_offset: int, *, config: LogConfig) -> OpenTransactions:
    """Return the transactions of a log that are open at an offset, as if the log ended there.

    Raises: CorruptRecordError and other errors for damage in the walked range; LogReplacedError.
    Cost: that of settle_transactions, up to the offset.
    """
    walk = _Walk(NOTHING_SETTLED, config)
    settled_offset = end_offset
    for segment in segments:
        if segment.base_offset >= end_offset:
            break
        for header in _headers_from(segment, segment.base_offset):
            if header.base_offset >= end_offset:
                break
            had_none = not walk.started
            walk.note(segment, header)
            if had_none and walk.started:
                settled_offset = header.base_offset
    return OpenTransactions(tuple(walk.started.items()), settled_offset if walk.started else end_offset)


def producers_in(segments: Iterable[LogSegment], start_offset: int, *, end_offset: int) -> set[int]:
    """Return the ids of the producers with transactional data in [start_offset, end_offset) that a log still has.

    Raises, Cost: as transactions_ending_from.
    """
    producer_ids = set[int]()
    for segment in segments:
        if segment.base_offset >= end_offset:
            break
        if segment.next_base_offset is None or segment.next_base_offset > start_offset:
            headers = _headers_from(segment, start_offset)
            producer_ids |= {
                header.producer_id for header in headers if not header.is_control and header.base_offset < end_offset
            }
    return producer_ids


class SettledAroundDamage(NamedTuple):
    """The transactions of a log as far as its sound batches show; see settle_around_damage.

    open, aborted: as in Settled. Transactions whose end may have been in damage are in aborted too; doubtful has what
    is missing because of them, and the damage.
    """

    open: tuple[tuple[int, int], ...]
    aborted: tuple[AbortedTransaction, ...]
    doubtful: tuple[SkippedRange, ...]


def settle_around_damage(
    segments: Iterable[LogSegment],
    *,
    topic_partition: TopicPartition,
    check_unchanged: Callable[[CorruptionError], None],
    config: LogConfig,
) -> SettledAroundDamage:
    """Find the end of every transaction in the sound batches of a log.

    A transaction that is open where offsets are missing may have ended there, by either marker: what the log has of it
    before that place counts as aborted. Data after it belongs to the transaction that the next marker ends.
    Args: check_unchanged: called with a fault that was found; raises an error if a change of the files caused it.
    Raises: StorageError, LogReplacedError; UnsupportedCompressionTypeError for a marker.
    Cost: reads the whole log, and walks its headers.
    """
    walk = _Walk(NOTHING_SETTLED, config, topic_partition)
    for segment in segments:
        end_position = segment.scan_end_position
        piece = segment.file_range(position=0, end_position=end_position)
        parts, fault = segment.sound_parts(piece)
        if fault is not None:
            check_unchanged(fault)
        for part in parts:
            if isinstance(part, DamagedPart):
                walk.pass_damage(part.skipped(piece, topic_partition, end_offset=MAX_OFFSET))
            else:
                walk.over(
                    segment,
                    position=part.position,
                    end_position=part.end_position,
                    previous_last_offset=part.least_offset - 1,
                )
    return SettledAroundDamage(tuple(walk.started.items()), tuple(walk.aborted), tuple(walk.doubtful))


class _Walk:
    """A walk over the headers of a log.

    Args: topic_partition: if it is given, a marker that cannot be decoded leaves its transaction in doubt; otherwise it
        raises its error.
    Attributes: started (the first offset of each open transaction, by producer id), aborted, doubtful;
    transactional_from (as in Settled).
    """

    def __init__(self, after: Settled, config: LogConfig, topic_partition: TopicPartition | None = None) -> None:
        self._config = config
        self._topic_partition = topic_partition
        self.started = dict(after.open)
        self.aborted = list(after.aborted)
        self.doubtful: list[SkippedRange] = []
        self.transactional_from = after.transactional_from

    def over(
        self, segment: LogSegment, *, position: int, end_position: int, previous_last_offset: int
    ) -> tuple[int, int]:
        """Walk [position, end_position) of a segment; return where it ended, and the last offset before that."""
        reached = position, previous_last_offset
        while reached[0] < end_position:
            scan = _next_of_transaction(segment, reached, end_position=end_position)
            header = segment.records.stopped_at(scan)
            if header is None:
                return scan.position, max(reached[1], scan.last_offset)
            reached = header.position + header.size_in_bytes, header.last_offset
            self.transactional_from = min(self.transactional_from, header.base_offset)
            self.note(segment, header)
        return reached

    def pass_damage(self, skipped: SkippedRange) -> None:
        """Put the open transactions in doubt, if offsets are missing with the damage."""
        last = skipped.last_missing_offset
        if last is None or skipped.first_missing_offset <= last:
            for producer_id in [*self.started]:
                self._doubt(producer_id, skipped)

    def _doubt(self, producer_id: int, skipped: SkippedRange) -> None:
        first_offset = self.started.pop(producer_id, None)
        if first_offset is None:
            return
        last_offset = skipped.first_missing_offset - 1
        self.aborted.append(AbortedTransaction(producer_id, first_offset, last_offset))
        reason = f"the transaction of producer {producer_id} may have been aborted there: {skipped.reason}"
        missing = skipped._replace(first_missing_offset=first_offset, last_missing_offset=last_offset)
        self.doubtful.append(missing._replace(reason=reason))

    def note(self, segment: LogSegment, header: BatchHeader) -> None:
        """Note what a transactional or control batch begins or ends."""
        if not header.is_control:
            if header.producer_id > NO_PRODUCER_ID:
                self.started.setdefault(header.producer_id, header.base_offset)
            return
        try:
            end = end_marker(segment, header, self._config)
        except CorruptionError as error:
            if self._topic_partition is None:
                raise
            place = (header, self._topic_partition, segment.path)
            self._doubt(header.producer_id, skipped_batch(*place, least_offset=header.last_offset, reason=error.reason))
            return
        if end is None:
            return
        first_offset = self.started.pop(header.producer_id, None)
        if end is ControlRecordType.ABORT and first_offset is not None:
            self.aborted.append(AbortedTransaction(header.producer_id, first_offset, header.last_offset))


def _next_of_transaction(
    segment: LogSegment, reached: tuple[int, int], *, end_position: int, stop_offset: int | None = None
) -> HeaderScan:
    """Walk to the next transactional or control batch, or to the batch that holds stop_offset.

    Args: reached: the position to walk from, and the last offset before it.
    """
    position, previous_last_offset = reached
    return segment.records.walk(
        position=position,
        end_position=end_position,
        previous_last_offset=previous_last_offset,
        stop_offset=stop_offset,
        stop_attributes=TRANSACTIONAL_BIT | CONTROL_BIT,
    )


def _start_in(segment: LogSegment, start_offset: int) -> tuple[int, int]:
    """Return the position of the batch that holds an offset, and -1 for the last offset before it; the segment's start
    for an offset below it, its end for one after it.
    """
    if start_offset <= segment.base_offset:
        return 0, -1
    first = segment.translate_offset(start_offset)
    return segment.scan_end_position if first is None else first.position, -1


def _headers_from(segment: LogSegment, start_offset: int) -> Iterator[BatchHeader]:
    """Yield the headers of the control batches, and of the batches of transactions, from start_offset of a segment on.

    A transactional batch without a producer id is not part of a transaction, as in Kafka.
    """
    position, previous_last_offset = _start_in(segment, start_offset)
    while position < segment.scan_end_position:
        reached = position, previous_last_offset
        scan = _next_of_transaction(segment, reached, end_position=segment.scan_end_position)
        header = segment.records.stopped_at(scan)
        if header is None:
            return
        position, previous_last_offset = header.position + header.size_in_bytes, header.last_offset
        if header.is_control or header.producer_id > NO_PRODUCER_ID:
            yield header


def end_marker(segment: LogSegment, header: BatchHeader, config: LogConfig) -> ControlRecordType | None:
    """Return how a control batch ends a transaction, ABORT or COMMIT; None if it ends none.

    Raises: InvalidRecordError for a marker that cannot be decoded.  Cost: a read of the batch.
    """
    from kstore.record.control import control_record_type

    ends = (ControlRecordType.ABORT, ControlRecordType.COMMIT)
    batch = _batch_of(segment, header, config)
    kinds = (control_record_type(record, batch) for record in batch.records(headers=False))
    return next((kind for kind in kinds if kind in ends), None)


def _end_markers(segment: LogSegment, header: BatchHeader, config: LogConfig) -> Iterator[EndTransactionMarker]:
    from kstore.record.control import EndTransactionMarker, control_record_value

    batch = _batch_of(segment, header, config)
    values = (control_record_value(record, batch) for record in batch.records(headers=False))
    return (value for value in values if isinstance(value, EndTransactionMarker))


def _batch_of(segment: LogSegment, header: BatchHeader, config: LogConfig) -> RecordBatch:
    data = segment.records.read_bytes(header.size_in_bytes, position=header.position)
    return RecordBatch(data, position=header.position, path=segment.path, config=config)
