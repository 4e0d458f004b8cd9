"""Flow: how far the replay of one partition is, by what the cluster has acknowledged."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple

from kstore._core import Record
from kstore.log.files.names import PartitionDirectory
from kstore.replaying.cluster import TargetTopic
from kstore.replaying.state import PartitionState, Sync, thinned
from kstore.replaying.wanted import Filter
from kstore.types import TopicPartition


class Failure(NamedTuple):
    """Why a record was not acknowledged. error: librdkafka's; offset: of the record in the source."""

    error: Any
    offset: int


class Flow:
    """One partition of the source on its way to one of the cluster.

    The cluster answers in the order of the offsets: a record is acknowledged once all before it are.
    Args: directory, topic_id: of the source; target, topic: of the cluster; known: what a state file has of the
        partition; start_offset: from which this run sends; target_end_offset: where the cluster's partition ends now;
        points: offsets of the source that groups have committed; failures: gets this flow when a record of it fails.
    Attributes: next_offset, target_offset, record_count, syncs: as in PartitionState; acked_count: records that were
        acknowledged in this run; found_count: those that were found in the cluster; end_offset: up to which the source
        is read; size_in_bytes: of the keys and values that were sent; is_known: whether the broker has a batch of this
        run; failure: of the first record that was not acknowledged, None if there is none; places: by a point, the
        offset in the cluster of the first record at or after it.
    Threads: not thread-safe; librdkafka's reports are made by the thread that polls.
    """

    def __init__(
        self,
        directory: PartitionDirectory,
        *,
        topic_id: str | None,
        target: TopicPartition,
        topic: TargetTopic,
        known: PartitionState | None,
        start_offset: int,
        target_end_offset: int,
        points: Iterable[int] = (),
        failures: list[Flow],
    ) -> None:
        self.directory = directory
        self.source = directory.topic_partition
        self.topic_id = topic_id
        self.target = target
        self.topic = topic
        self.start_offset = self.next_offset = self.end_offset = start_offset
        self.base_target_offset = target_end_offset if known is None else known.base_target_offset
        self.target_start_offset = target_end_offset
        self.target_offset = target_end_offset if known is None else known.target_offset
        self.earlier_count = 0 if known is None else known.record_count
        self.syncs: list[Sync] = [] if known is None else list(known.syncs)
        self.acked_count = self.found_count = self.size_in_bytes = 0
        self.is_known = False
        self.failure: Failure | None = None
        self.places: dict[int, int] = {}
        self._points = sorted({point for point in points if point >= start_offset})
        self._pending: deque[int] = deque()
        self._marks: dict[int, list[int]] = {}
        self._last: Any = None
        self._failures = failures

    @property
    def is_settled(self) -> bool:
        """Whether every record that was sent was acknowledged."""
        return not self._pending and self.failure is None

    @property
    def record_count(self) -> int:
        return self.earlier_count + self.acked_count + self.found_count

    def begin(self, record: Record) -> None:
        """Note that a record is about to be sent."""
        offset = record.offset
        if self._points and self._points[0] <= offset:
            at = bisect_left(self._points, offset + 1)
            self._marks[offset] = self._points[:at]
            del self._points[:at]
        # Before it is sent: an interrupt in between leaves an offset that nothing is reported of, and none too few.
        self._pending.append(offset)

    def report(self, error: Any, message: Any) -> None:
        """Take librdkafka's report on the first record that is pending."""
        offset = self._pending.popleft()
        if error is not None or self.failure is not None:
            if self.failure is None:
                self.failure = Failure(error, offset)
                self._failures.append(self)
            return
        self.acked_count += 1
        self.next_offset = offset + 1
        self._last = message
        if self._marks and offset in self._marks:
            self._mark(offset, target_offset=message.offset())

    def found(self, record: Record, target_offset: int) -> None:
        """Note that a record is in the cluster, where an earlier run sent it."""
        self.begin(record)
        self._pending.pop()
        self.found_count += 1
        self.next_offset, self.target_offset = record.offset + 1, target_offset + 1
        if record.offset in self._marks:
            self._mark(record.offset, target_offset=target_offset)

    def pass_over(self, offset: int) -> None:
        """Note that no record below an offset is left to be sent."""
        self._advance()
        if self.is_settled:
            self.next_offset = max(self.next_offset, offset)

    def _mark(self, offset: int, *, target_offset: int | None) -> None:
        points = self._marks.pop(offset)
        # An answer that a batch is there already may not say where.
        if target_offset is None or target_offset < 0:
            return
        for point in points:
            self.places[point] = target_offset
            self._sync(Sync(point, target_offset))

    def _sync(self, sync: Sync) -> None:
        last = self.syncs[-1] if self.syncs else Sync(-1, -1)
        if sync.source_offset > last.source_offset and sync.target_offset >= last.target_offset:
            self.syncs.append(sync)

    def _advance(self) -> None:
        """Take up where the last acknowledged record is in the cluster."""
        offset = None if self._last is None else self._last.offset()
        if offset is None or offset < self.target_offset:
            return
        self.target_offset = offset + 1
        self._sync(Sync(self.next_offset, offset + 1))

    def state(self, filter_: Filter, *, is_settled: bool) -> PartitionState:
        """Return what a state file keeps of the partition."""
        self._advance()
        self.syncs = list(thinned(self.syncs))
        return PartitionState(
            *self.source,
            self.topic_id,
            self.directory.path,
            self.target.topic,
            self.topic.topic_id,
            self.next_offset,
            self.target_offset,
            self.base_target_offset,
            is_settled,
            filter_.since_ms,
            filter_.until_ms,
            filter_.isolation,
            self.record_count,
            tuple(self.syncs),
        )

    def translated(self, offset: int) -> int:
        """Return where a consumer of the source's offset goes on in the cluster: at the first record at or after it.

        For an offset that was passed before its place was asked for, a record before it, so that none is left out, but
        some may be read again (Kafka: OffsetSyncStore.translateDownstream).
        """
        self._advance()
        place = self.places.get(offset)
        if place is not None:
            return place
        if offset >= self.next_offset:
            return self.target_offset
        at = bisect_left(self.syncs, Sync(offset + 1, -1))
        return self.syncs[at - 1].target_offset if at else self.base_target_offset
