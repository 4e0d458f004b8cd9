"""Which nodes have something to be sent to them now, and when to look again. Layer 5."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, NamedTuple

from kstore.producer.cluster import Cluster, Node

if TYPE_CHECKING:
    from kstore._core import PartitionQueue, TopicQueues
    from kstore.producer.batch import ProducerBatch
    from kstore.producer.retry_backoff import RetryBackoff

NO_READY_CHECK_MS = 2**63 - 1


class ReadyCheckResult(NamedTuple):
    """Nodes to drain; when to ask again, NO_READY_CHECK_MS (2^63 - 1) if nothing waits for a time; topics with records
    for a partition that nobody leads."""

    ready_nodes: AbstractSet[Node]
    next_ready_check_delay_ms: int
    unknown_leader_topics: AbstractSet[str]


class NodeLatencyStats:
    """When a node could last be sent to, and when it last had something to be sent (KIP-794)."""

    __slots__ = ("drain_time_ms", "ready_time_ms")

    def __init__(self, now_ms: int) -> None:
        self.drain_time_ms = now_ms
        self.ready_time_ms = now_ms


class ReadyCheck:
    """Look at the head of every queue that is not empty; idle partitions cost nothing.

    Args: active: the queues that are not empty; topics: all queues by topic.
    Threads: one at a time, beside appends.  Source: Kafka RecordAccumulator.ready.
    """

    def __init__(
        self,
        active: dict[PartitionQueue, None],
        topics: dict[str, TopicQueues],
        *,
        backoff: RetryBackoff,
        linger_ms: int,
        adaptive_partitioning: bool,
        partition_availability_timeout_ms: int,
    ) -> None:
        self._active = active
        self._topics = topics
        self._backoff = backoff
        self._linger_ms = linger_ms
        self._adaptive_partitioning = adaptive_partitioning
        self._partition_availability_timeout_ms = partition_availability_timeout_ms
        self._node_stats: dict[int, NodeLatencyStats] = {}
        self._weighted_topics: set[str] = set()

    def run(self, cluster: Cluster, now_ms: int, *, is_urgent: bool) -> ReadyCheckResult:
        """Check all queues.

        Args: is_urgent: whether everything is to be sent that is not backing off.
        """
        ready_nodes: set[Node] = set()
        unknown_leader_topics: set[str] = set()
        waiting_topics: set[str] = set()
        delay_ms = NO_READY_CHECK_MS
        for queue in list(self._active):
            topic_partition = queue.topic_partition
            leader = cluster.leader_for(topic_partition)
            if leader is None:
                if len(queue):
                    unknown_leader_topics.add(topic_partition.topic)
                continue
            waiting_topics.add(topic_partition.topic)
            if leader in ready_nodes or queue.is_muted:
                continue
            time_left_ms = self._time_left_ms(queue, cluster, now_ms, is_urgent=is_urgent)
            if time_left_ms == 0:
                ready_nodes.add(leader)
            elif time_left_ms is not None:
                delay_ms = min(delay_ms, time_left_ms)
        if self._adaptive_partitioning:
            self._update_load_stats(cluster, waiting_topics)
        return ReadyCheckResult(ready_nodes, delay_ms, unknown_leader_topics)

    def _time_left_ms(self, queue: PartitionQueue, cluster: Cluster, now_ms: int, *, is_urgent: bool) -> int | None:
        """Return how long the head of a queue waits still, None if there is none."""
        with queue:
            batch: ProducerBatch | None = queue.first
            if batch is None:
                return None
            batch.maybe_update_leader_epoch(cluster.leader_epoch_for(queue.topic_partition))
            if self._backoff.is_backing_off(batch, now_ms):
                return max(self._backoff.of_batch_ms(batch) - batch.waited_ms(now_ms), 1)
            if is_urgent or len(queue) > 1 or batch.is_full:
                return 0
            return max(self._linger_ms - batch.waited_ms(now_ms), 0)

    def update_node_latency_stats(self, node_id: int, *, now_ms: int, can_drain: bool) -> None:
        """Note that a node had something to be sent, and whether any of it could go."""
        if self._partition_availability_timeout_ms <= 0:
            return
        stats = self._node_stats.setdefault(node_id, NodeLatencyStats(now_ms))
        if can_drain:
            stats.drain_time_ms = now_ms
        stats.ready_time_ms = now_ms

    def _is_available(self, leader: Node) -> bool:
        stats = self._node_stats.get(leader.id)
        timeout_ms = self._partition_availability_timeout_ms
        return timeout_ms <= 0 or stats is None or stats.ready_time_ms - stats.drain_time_ms <= timeout_ms

    def _update_load_stats(self, cluster: Cluster, waiting_topics: set[str]) -> None:
        """Tell the partitioners that choose by themselves how long the queues are."""
        for topic in waiting_topics | self._weighted_topics:
            queues = self._topics[topic]
            partitioner = queues.partitioner
            if not queues.is_sticky_used:
                continue
            infos = cluster.partitions_for_topic(topic)
            # a partition without a queue would never be drawn
            if len(queues) < len(infos):
                continue
            sizes = {
                info.partition: queues.size_of(info.partition)
                for info in infos
                if info.leader is not None and self._is_available(info.leader)
            }
            partitioner.update_partition_load_stats(sizes, partition_count=len(infos))
            if topic in waiting_topics:
                self._weighted_topics.add(topic)
            else:
                self._weighted_topics.discard(topic)
