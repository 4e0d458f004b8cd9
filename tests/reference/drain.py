"""A plain model of Kafka's RecordAccumulator.drain, written from its source and from the documented differences.

Differences from Kafka: a partition that may not send is skipped instead of ending its node's turn; each node has its
own starting point; and one request may take several batches of a partition, round by round. Every batch is looked at
by itself, one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field

Place = tuple[str, int]


@dataclass
class WaitingBatch:
    """A batch in a queue.

    Args: size: its estimated size while it waits, in bytes; closed_size: returns its size once it is taken; can_go:
        whether it is not backing off and the producer's state allows to send it.
    """

    name: Hashable
    size: int
    closed_size: Callable[[], int]
    is_full: bool
    waited_ms: int
    can_go: Callable[[], bool]


@dataclass
class WaitingQueue:
    """The batches of one partition, oldest first."""

    place: Place
    batches: list[WaitingBatch]
    is_muted: bool = False

    def is_due(self, linger_ms: int) -> bool:
        """Return whether the first batch need not wait for more records (Kafka: batchReady)."""
        first = self.batches[0]
        return len(self.batches) > 1 or first.is_full or first.waited_ms >= linger_ms


@dataclass
class ModelDrain:
    """Takes batches for one request to one node.

    Attributes: next_place: where the next request of each node starts.
    """

    next_place: dict[int, Place] = field(default_factory=dict)

    def run(
        self, node_id: int, queues: Iterable[WaitingQueue], *, max_size: int, most_rounds: int, linger_ms: int
    ) -> list[Hashable]:
        """Return the names of the batches of one request, in order."""
        request = _ModelRequest(max_size)
        in_turn = self._in_turn(node_id, queues)
        rest = []
        first_place = full_place = None
        for queue in in_turn:
            if request.take_first(queue):
                rest.append(queue)
                first_place = first_place or (queue.place[0], queue.place[1] + 1)
            if request.is_full:
                full_place = queue.place
                break
        self.next_place[node_id] = full_place or first_place or self.next_place.get(node_id, ("", 0))
        for _ in range(most_rounds - 1):
            if request.is_full:
                break
            # A round goes on past a batch that does not fit: a smaller one of another partition may.
            rest = [queue for queue in rest if queue.batches and queue.is_due(linger_ms) and request.take_first(queue)]
        return request.names

    def _in_turn(self, node_id: int, queues: Iterable[WaitingQueue]) -> list[WaitingQueue]:
        start = self.next_place.get(node_id, ("", 0))
        ordered = sorted((queue for queue in queues if not queue.is_muted), key=lambda queue: queue.place)
        return [one for one in ordered if one.place >= start] + [one for one in ordered if one.place < start]


@dataclass
class _ModelRequest:
    max_size: int
    names: list[Hashable] = field(default_factory=list)
    size: int = 0
    is_full: bool = False

    def take_first(self, queue: WaitingQueue) -> bool:
        if not queue.batches or not queue.batches[0].can_go():
            return False
        batch = queue.batches[0]
        if self.names and self.size + batch.size > self.max_size:
            self.is_full = True
            return False
        del queue.batches[0]
        self.names.append(batch.name)
        self.size += batch.closed_size()
        return True
