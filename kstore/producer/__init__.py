"""The producer side: buffer pool, batches, accumulator, partitioners, sender, Producer. Public names only. Layer 5."""

from kstore._core import murmur2, partition_for_key
from kstore.producer.cluster import Cluster, Node, PartitionInfo
from kstore.producer.environment import SYSTEM_CLOCK, Clock, SystemClock
from kstore.producer.partitioner import BuiltInPartitioner, Partitioner, RoundRobinPartitioner, StickyPartitionInfo

__all__ = [
    "SYSTEM_CLOCK",
    "BuiltInPartitioner",
    "Clock",
    "Cluster",
    "Node",
    "PartitionInfo",
    "Partitioner",
    "RoundRobinPartitioner",
    "StickyPartitionInfo",
    "SystemClock",
    "murmur2",
    "partition_for_key",
]
