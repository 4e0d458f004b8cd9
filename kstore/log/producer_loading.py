"""load_producer_state: the producers of a log at its end, by its newest snapshot and a replay of what is behind it.

Layer 5. Source: Kafka LogLoader.recoverSegment, UnifiedLog.rebuildProducerState.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from kstore.log.producer_append import ProducerBatch
from kstore.log.producer_state import ProducerStateManager
from kstore.log.recovery_context import RecoveryContext
from kstore.log.recovery_plan import SegmentPlan


def load_producer_state(
    context: RecoveryContext, segments: Sequence[SegmentPlan], *, log_start_offset: int, log_end_offset: int
) -> ProducerStateManager:
    """Return the producers at log_end_offset; snapshots are written at each recovered segment and at the log end.

    A snapshot at the base of the first segment stays and serves, unless the log starts behind it: it alone has the
    producers whose records retention removed. A broker uses it too, but drops it behind its first recovery.
    Raises: StorageError.
    """
    replay, env = _Replay(context, segments, log_start_offset=log_start_offset), context.env
    manager = context.producer_state()
    recovered = [one for one in segments if one.is_recovered]
    last_two = {one.base_offset for one in segments[-2:]}
    following = {one.base_offset: two.base_offset for one, two in pairwise(segments)}
    replayed_to: int | None = None
    for segment in recovered:
        if replayed_to is not None and replayed_to <= log_start_offset:
            # No snapshot may lie there, and without one Kafka begins anew at each segment.
            manager = context.producer_state()
        replay.bring_to(manager, segment.base_offset, snapshot_offsets={*last_two, segment.base_offset})
        # Kafka loads the snapshot at each segment's base anew.
        manager.reload_own(now_ms=env.wall_clock_ms())
        replay.run(manager, segment, end_offset=segment.next_offset)
        replayed_to = segment.next_offset
        if replayed_to <= log_start_offset:
            continue
        next_base_offset = following.get(segment.base_offset, segment.next_offset)
        if next_base_offset > segment.next_offset:
            # Kafka takes a snapshot inside the gap too and loads that; here it would tell of a segment that is lost.
            manager.reload_own(now_ms=env.wall_clock_ms())
        manager.update_map_end_offset(next_base_offset)
        manager.take_snapshot()
    if recovered:
        # Loaded anew, so that producers which have expired by now are left out.
        manager = context.producer_state()
    manager.remove_stray_snapshots(one.base_offset for one in segments)
    replay.bring_to(manager, log_end_offset, snapshot_offsets={*last_two, log_end_offset})
    # Once more, for one that was the last until now: loading again is to change nothing.
    manager.remove_stray_snapshots(one.base_offset for one in segments)
    return manager


class _Replay:
    """Replays batches of the segments into a ProducerStateManager."""

    def __init__(self, context: RecoveryContext, segments: Sequence[SegmentPlan], *, log_start_offset: int) -> None:
        self._context = context
        self._segments = segments
        self._log_start_offset = log_start_offset
        self._keeps_first = bool(segments) and 0 < log_start_offset == segments[0].base_offset

    def bring_to(self, manager: ProducerStateManager, end_offset: int, *, snapshot_offsets: set[int]) -> None:
        """Load the newest snapshot up to end_offset and replay what lies between."""
        start = self._log_start_offset
        manager.truncate_and_reload(
            log_start_offset=start,
            log_end_offset=end_offset,
            now_ms=self._context.env.wall_clock_ms(),
            keeps_first=self._keeps_first,
        )
        for segment in self._segments:
            if segment.base_offset >= end_offset:
                break
            if segment.next_offset <= manager.map_end_offset:
                continue
            manager.update_map_end_offset(max(segment.base_offset, manager.map_end_offset, start))
            if segment.base_offset in snapshot_offsets:
                manager.take_snapshot()
            manager.replay_together(self._batches_from(manager.map_end_offset, segment, end_offset=end_offset))
            manager.update_map_end_offset(min(segment.next_offset, end_offset))
        manager.update_map_end_offset(end_offset)
        manager.take_snapshot()

    def run(self, manager: ProducerStateManager, segment: SegmentPlan, *, end_offset: int) -> None:
        """Replay the batches of a segment from map_end_offset on."""
        for batch in self._batches_from(manager.map_end_offset, segment, end_offset=end_offset):
            manager.replay(batch)

    def _batches_from(self, start: int, segment: SegmentPlan, *, end_offset: int) -> Iterator[ProducerBatch]:
        for batch in self._batches(segment):
            if batch.base_offset >= end_offset:
                break
            if batch.last_offset >= start:
                yield batch

    def _batches(self, segment: SegmentPlan) -> Iterator[ProducerBatch]:
        producers = segment.producers
        if producers is None:
            walk = self._context.walk(segment.name, base_offset=segment.base_offset, next_base_offset=None)
            producers = walk.producers
        return iter(producers)
