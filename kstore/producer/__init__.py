"""The producer side: buffer pool, batches, accumulator, partitioners, sender, Producer. Public names only. Layer 5."""

from kstore.producer.cluster import Cluster, Node, PartitionInfo
from kstore.producer.environment import SYSTEM_CLOCK, Clock, SystemClock

__all__ = [
    "SYSTEM_CLOCK",
    "Clock",
    "Cluster",
    "Node",
    "PartitionInfo",
    "SystemClock",
]
