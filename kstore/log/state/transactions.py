"""Which transactions of a log were aborted, and the offset below which all are decided.

Found by walking batch headers and reading the end markers, never from .txnindex files: if one is missing, a broker
forgets its aborted transactions.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from typing import NamedTuple

from kstore._core import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader
from kstore.config import LogConfig
from kstore.log.segment.segment import LogSegment
from kstore.record import RecordBatch
from kstore.record.control import ControlRecordType, control_record_type
from kstore.types import MAX_OFFSET


class AbortedTransaction(NamedTuple):
    """Data of producer_id from first_offset up to the abort marker at last_offset was rolled back."""

    producer_id: int
    first_offset: int
    last_offset: int


class Transactions(NamedTuple):
    """aborted: in the order of their markers; last_stable_offset: where the first undecided transaction starts, or the
    log start offset if that is higher.
    """

    aborted: tuple[AbortedTransaction, ...]
    last_stable_offset: int

    def aborted_between(self, *, start_offset: int, end_offset: int) -> tuple[AbortedTransaction, ...]:
        """Return those with data in [start_offset, end_offset)."""
        return tuple(one for one in self.aborted if one.first_offset < end_offset and one.last_offset >= start_offset)

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
    """

    base_offset: int = -1
    position: int = 0
    previous_last_offset: int = -1
    open: tuple[tuple[int, int], ...] = ()
    aborted: tuple[AbortedTransaction, ...] = ()

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
    started, aborted = dict(after.open), list(after.aborted)
    base_offset, position, previous_last_offset = after[:3]
    for segment in segments:
        if segment.base_offset < base_offset:
            continue
        if segment.base_offset > base_offset:
            base_offset, position, previous_last_offset = segment.base_offset, 0, -1
        while position < segment.scan_end_position:
            scan = segment.records.walk(
                position=position,
                end_position=segment.scan_end_position,
                previous_last_offset=previous_last_offset,
                stop_attributes=TRANSACTIONAL_BIT | CONTROL_BIT,
            )
            header = segment.records.stopped_at(scan)
            if header is None:
                position, previous_last_offset = scan.position, max(previous_last_offset, scan.last_offset)
                break
            position, previous_last_offset = header.position + header.size_in_bytes, header.last_offset
            if not header.is_control:
                started.setdefault(header.producer_id, header.base_offset)
                continue
            end = _end_marker(segment, header, config)
            if end is None:
                continue
            first_offset = started.pop(header.producer_id, None)
            if end is ControlRecordType.ABORT and first_offset is not None:
                aborted.append(AbortedTransaction(header.producer_id, first_offset, header.last_offset))
    return Settled(base_offset, position, previous_last_offset, tuple(started.items()), tuple(aborted))


def _end_marker(segment: LogSegment, header: BatchHeader, config: LogConfig) -> ControlRecordType | None:
    data = segment.records.read_bytes(header.size_in_bytes, position=header.position)
    batch = RecordBatch(data, position=header.position, path=segment.path, config=config)
    ends = (ControlRecordType.ABORT, ControlRecordType.COMMIT)
    kinds = (control_record_type(record, batch) for record in batch.records(headers=False))
    return next((kind for kind in kinds if kind in ends), None)
