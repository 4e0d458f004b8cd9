"""LogWalk: what the batches of one log say, gathered while verify walks them, in bounded memory."""

from __future__ import annotations

from collections import Counter
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kstore.errors import CorruptionError
from kstore.log.state.transactions import end_marker
from kstore.reporting.statistics import LargestKeys, LogStatistics
from kstore.types import NO_PRODUCER_ID, NO_TIMESTAMP, ControlRecordType

if TYPE_CHECKING:
    from collections.abc import Callable

    from kstore._core import BatchHeader
    from kstore.config import LogConfig
    from kstore.log.damaged.check import Step
    from kstore.log.segment.segment import LogSegment

# Kafka's default of message.timestamp.after.max.ms: a broker refuses what is further in the future.
FUTURE_MS = 3_600_000
TIME_BINS = 64
MOST_PRODUCERS = 1000
MOST_RANGES = 1000


@dataclass
class SegmentFacts:
    """One .log: its bytes, batches and offsets; damaged: bytes that are damaged."""

    base_offset: int
    end_offset: int
    size_in_bytes: int
    batches: int = 0
    records: int = 0
    max_timestamp_ms: int | None = None
    damaged_bytes: int = 0


@dataclass
class ProducerFacts:
    """One producer id, by its batches."""

    epoch: int
    batches: int = 0
    records: int = 0
    last_sequence: int = -1
    last_offset: int = -1
    last_timestamp_ms: int | None = None


@dataclass
class Facts:
    """What the batches of a log say so far.

    gaps: (first, end) of offsets between batches, the first MOST_RANGES; gap_count, gap_offsets: of all.
    removed_in_batches: offsets in batches that have no record any more. late_batches: whose largest timestamp is below
    one before it; latest_ms: by how much at most. damaged_offsets: (first, end) around each damaged range. times: by
    bin of the offset range, the least and the largest timestamp. open: the first offset and the timestamp of each
    transaction that is not ended, by producer id. aborted: (producer id, first offset, marker's offset).
    """

    statistics: LogStatistics = field(default_factory=lambda: LogStatistics(LargestKeys(1)))
    magics: Counter[int] = field(default_factory=Counter)
    batch_sizes: Counter[int] = field(default_factory=Counter)
    stored_record_sizes: Counter[int] = field(default_factory=Counter)
    gaps: list[tuple[int, int]] = field(default_factory=list)
    gap_count: int = 0
    gap_offsets: int = 0
    removed_in_batches: int = 0
    late_batches: int = 0
    latest_ms: int = 0
    future_batches: int = 0
    batches_without_timestamp: int = 0
    damaged_offsets: list[tuple[int, int]] = field(default_factory=list)
    times: dict[int, list[int]] = field(default_factory=dict)
    producers: dict[int, ProducerFacts] = field(default_factory=dict)
    producers_left_out: int = 0
    transactional_batches: int = 0
    open: dict[int, tuple[int, int]] = field(default_factory=dict)
    aborted: list[tuple[int, int, int]] = field(default_factory=list)
    aborted_count: int = 0
    committed_count: int = 0
    epochs: list[tuple[int, int]] = field(default_factory=list)
    epoch: int | None = None
    next_offset: int | None = None
    largest_timestamp_ms: int = NO_TIMESTAMP
    is_after_damage: bool = False


class LogWalk:
    """Gathers the Facts of a log as the `on_segment` of a Verification.

    A second look at a segment starts again with what was known before it.
    Args: start_offset, end_offset: of the log, by which times are divided into TIME_BINS.
    Attributes: facts; segments, in the order of the log.
    Cost: some microseconds a batch; a read for each control batch.  Threads: not thread-safe.
    """

    def __init__(self, config: LogConfig, *, start_offset: int, end_offset: int, now_ms: int) -> None:
        self._config = config
        self._start_offset = start_offset
        self._offsets_of_bin = max(1, -(-(end_offset - start_offset) // TIME_BINS))
        self._future_ms = now_ms + FUTURE_MS
        self._before = Facts()
        self._base_offset: int | None = None
        self.facts = Facts()
        self.segments: list[SegmentFacts] = []

    def on_segment(self, segment: LogSegment) -> Callable[[Step], None]:
        """Begin a look at a segment."""
        if segment.base_offset == self._base_offset:
            self.facts = deepcopy(self._before)
            self.segments.pop()
        else:
            self._before, self._base_offset = deepcopy(self.facts), segment.base_offset
        of_segment = SegmentFacts(segment.base_offset, segment.base_offset, segment.size_in_bytes)
        self.segments.append(of_segment)

        def note(step: Step) -> None:
            self._note(segment, of_segment, step)

        return note

    def bin_start(self, number: int) -> int:
        """Return the first offset of a bin of `times`."""
        return self._start_offset + number * self._offsets_of_bin

    def _note(self, segment: LogSegment, of_segment: SegmentFacts, step: Step) -> None:
        facts, header = self.facts, step.header
        if step.damage is not None or header is None:
            if step.damage is not None:
                of_segment.damaged_bytes += step.damage.size_in_bytes
                facts.is_after_damage = True
            if header is None or step.damage is not None:
                return
        self._note_place(of_segment, header)
        self._note_time(of_segment, header)
        if header.is_control or header.is_transactional:
            self._note_transaction(segment, header)
        count = header.record_count
        facts.statistics.add_header(header, count)
        facts.magics[header.magic] += 1
        facts.batch_sizes[header.size_in_bytes.bit_length()] += 1
        of_segment.batches += 1
        if header.partition_leader_epoch != facts.epoch:
            facts.epoch = header.partition_leader_epoch
            if facts.epoch >= 0 and len(facts.epochs) < MOST_RANGES:
                facts.epochs.append((facts.epoch, header.base_offset))
        if header.is_control:
            return
        if count is not None:
            of_segment.records += count
            if count:
                facts.stored_record_sizes[(header.size_in_bytes // count).bit_length()] += count
        if header.producer_id > NO_PRODUCER_ID:
            self._note_producer(header, count or 0)

    def _note_place(self, of_segment: SegmentFacts, header: BatchHeader) -> None:
        facts, next_offset = self.facts, self.facts.next_offset
        base_offset = header.base_offset if header.has_base_offset else header.last_offset
        if facts.is_after_damage:
            first = of_segment.base_offset if next_offset is None else next_offset
            if len(facts.damaged_offsets) < MOST_RANGES:
                facts.damaged_offsets.append((first, max(first, base_offset)))
            facts.is_after_damage = False
        elif next_offset is not None and base_offset > next_offset:
            facts.gap_count += 1
            facts.gap_offsets += base_offset - next_offset
            if len(facts.gaps) < MOST_RANGES:
                facts.gaps.append((next_offset, base_offset))
        if header.record_count is not None:
            facts.removed_in_batches += header.last_offset + 1 - base_offset - header.record_count
        facts.next_offset = of_segment.end_offset = header.last_offset + 1

    def _note_time(self, of_segment: SegmentFacts, header: BatchHeader) -> None:
        facts, timestamp_ms = self.facts, header.max_timestamp_ms
        if timestamp_ms == NO_TIMESTAMP:
            facts.batches_without_timestamp += 1
            return
        if of_segment.max_timestamp_ms is None or timestamp_ms > of_segment.max_timestamp_ms:
            of_segment.max_timestamp_ms = timestamp_ms
        if header.is_control:
            return
        if timestamp_ms < facts.largest_timestamp_ms:
            facts.late_batches += 1
            facts.latest_ms = max(facts.latest_ms, facts.largest_timestamp_ms - timestamp_ms)
        else:
            facts.largest_timestamp_ms = timestamp_ms
        if timestamp_ms > self._future_ms:
            facts.future_batches += 1
        number = max(0, header.last_offset - self._start_offset) // self._offsets_of_bin
        bounds = facts.times.get(number)
        if bounds is None:
            facts.times[number] = [timestamp_ms, timestamp_ms]
        elif timestamp_ms < bounds[0]:
            bounds[0] = timestamp_ms
        elif timestamp_ms > bounds[1]:
            bounds[1] = timestamp_ms

    def _note_transaction(self, segment: LogSegment, header: BatchHeader) -> None:
        facts, producer_id = self.facts, header.producer_id
        if not header.is_control:
            if producer_id <= NO_PRODUCER_ID:
                return
            facts.transactional_batches += 1
            facts.open.setdefault(producer_id, (header.base_offset, header.max_timestamp_ms))
            return
        try:
            end = end_marker(segment, header, self._config)
        except CorruptionError:
            return
        if end is None:
            return
        first_offset, _ = facts.open.pop(producer_id, (None, None))
        if end is ControlRecordType.COMMIT:
            facts.committed_count += 1
        elif first_offset is not None:
            facts.aborted_count += 1
            if len(facts.aborted) < MOST_RANGES:
                facts.aborted.append((producer_id, first_offset, header.last_offset))

    def _note_producer(self, header: BatchHeader, count: int) -> None:
        facts = self.facts
        producer = facts.producers.get(header.producer_id)
        if producer is None:
            if len(facts.producers) >= MOST_PRODUCERS:
                facts.producers_left_out += 1
                return
            producer = facts.producers[header.producer_id] = ProducerFacts(header.producer_epoch)
        producer.epoch = header.producer_epoch
        producer.batches += 1
        producer.records += count
        producer.last_offset = header.last_offset
        producer.last_sequence = (header.base_sequence + header.last_offset - header.base_offset) % (1 << 31)
        if header.max_timestamp_ms != NO_TIMESTAMP:
            producer.last_timestamp_ms = header.max_timestamp_ms
