"""Which transactions of a log were aborted, and up to where all are decided.

Layer 5. Found by walking batch headers and reading the end markers, never from .txnindex files: a missing one makes a
broker forget its aborted transactions.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from kstore._core import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader
from kstore.config import LogConfig
from kstore.log.segment import LogSegment
from kstore.record import RecordBatch
from kstore.record.control import ControlRecordType, control_record_type
from kstore.types import MAX_OFFSET


class AbortedTransaction(NamedTuple):
    """Data of producer_id from first_offset up to the abort marker at last_offset was rolled back."""

    producer_id: int
    first_offset: int
    last_offset: int


class Transactions(NamedTuple):
    """aborted: in the order of their markers; last_stable_offset: where the first undecided transaction starts."""

    aborted: tuple[AbortedTransaction, ...]
    last_stable_offset: int

    def aborted_between(self, *, start_offset: int, end_offset: int) -> tuple[AbortedTransaction, ...]:
        """Return those with data in [start_offset, end_offset)."""
        return tuple(one for one in self.aborted if one.first_offset < end_offset and one.last_offset >= start_offset)

    def aborted_filter(self) -> Callable[[BatchHeader], bool]:
        """Return a function that tells whether a batch is data of one of them.  Cost of a call: O(log aborted)."""
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


def find_transactions(segments: Iterable[LogSegment], *, log_end_offset: int, config: LogConfig) -> Transactions:
    """Walk all headers of the segments and settle every transaction.

    Raises: CorruptRecordError and the like for damage on the way.
    Cost: a compiled header walk; each transactional or control batch costs a call, each control batch a read.
    """
    started: dict[int, int] = {}
    aborted: list[AbortedTransaction] = []
    for segment in segments:
        for header in _marked_batches(segment):
            if not header.is_control:
                started.setdefault(header.producer_id, header.base_offset)
                continue
            end = _end_marker(segment, header, config)
            if end is None:
                continue
            first_offset = started.pop(header.producer_id, None)
            if end is ControlRecordType.ABORT and first_offset is not None:
                aborted.append(AbortedTransaction(header.producer_id, first_offset, header.last_offset))
    return Transactions(tuple(aborted), min(started.values(), default=log_end_offset))


def _marked_batches(segment: LogSegment) -> Iterator[BatchHeader]:
    position, end_position, previous = 0, segment.scan_end_position, -1
    while position < end_position:
        scan = segment.records.walk(
            position=position,
            end_position=end_position,
            previous_last_offset=previous,
            stop_attributes=TRANSACTIONAL_BIT | CONTROL_BIT,
        )
        header = segment.records.stopped_at(scan)
        if header is None:
            return
        yield header
        position, previous = header.position + header.size_in_bytes, header.last_offset


def _end_marker(segment: LogSegment, header: BatchHeader, config: LogConfig) -> ControlRecordType | None:
    data = segment.records.read_bytes(header.size_in_bytes, position=header.position)
    batch = RecordBatch(data, position=header.position, path=segment.path, config=config)
    ends = (ControlRecordType.ABORT, ControlRecordType.COMMIT)
    kinds = (control_record_type(record, batch) for record in batch)
    return next((kind for kind in kinds if kind in ends), None)
