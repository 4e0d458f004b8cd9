"""The size of a micro-batch: maxOffsetsPerTrigger, minOffsetsPerTrigger, maxTriggerDelay.

Numbers in, numbers out; no log is opened.  Source: Spark KafkaMicroBatchStream.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from kstore.config import MAX_INT64
from kstore.env.process import SYSTEM_CLOCK, Clock
from kstore.spark.stream.positions import Offsets
from kstore.types import TopicPartition


def limited(start: Mapping[TopicPartition, int], end: Offsets, *, most: int) -> Offsets:
    """Return the end of a micro-batch of about `most` offsets, shared out in proportion to what each partition has.

    A partition whose share is below one offset gets one, so the whole can be more than `most`.
    Args: start: of every partition of `end`.
    """
    sizes = {partition: offset - start[partition] for partition, offset in end.items() if offset > start[partition]}
    total = sum(sizes.values())
    ends = dict(end)
    for partition, size in sizes.items():
        # As in Spark, in double precision: other numbers would be other micro-batches.
        share = most * (size / float(total))
        count = min(math.ceil(share) if share < 1 else math.floor(share), MAX_INT64)
        ends[partition] = min(end[partition], start[partition] + count)
    return ends


class TriggerDelay:
    """Holds micro-batches back until they have a number of offsets, or a time has passed since the last one.

    The first one after a start is never held back.
    """

    def __init__(self, *, least: int, most_delay_ms: int, clock: Clock = SYSTEM_CLOCK) -> None:
        self._least = least
        self._most_delay_ms = most_delay_ms
        self._clock = clock
        self._last_ms: int | None = None

    def holds_back(self, start: Mapping[TopicPartition, int], end: Offsets) -> bool:
        """Return whether the new offsets must wait; if not, restart the delay."""
        now_ms = self._clock.monotonic_ms()
        is_due = self._last_ms is None or now_ms - self._last_ms >= self._most_delay_ms
        if not is_due and sum(offset - start[partition] for partition, offset in end.items()) < self._least:
            return True
        self._last_ms = now_ms
        return False
