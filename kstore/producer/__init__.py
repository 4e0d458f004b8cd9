"""The producer side: buffer pool, batches, accumulator, partitioners, sender, Producer. Public names only. Layer 5."""

from kstore._core import RecordAppendResult, murmur2, partition_for_key
from kstore.environment import SYSTEM_CLOCK, Clock, SystemClock
from kstore.producer.accumulator import RecordAccumulator
from kstore.producer.batch import FinalState, ProducerBatch
from kstore.producer.buffer_pool import BufferPool
from kstore.producer.cluster import Cluster, Node, PartitionInfo
from kstore.producer.columns_future import AppendedBatch, ColumnsFuture
from kstore.producer.compression_ratio import CompressionRatioEstimator
from kstore.producer.config import ProducerConfig
from kstore.producer.coordinator import TransactionCoordinator, coordinator_of
from kstore.producer.futures import FutureRecordMetadata, RecordMetadata
from kstore.producer.interceptors import ProducerInterceptor, ProducerRecord
from kstore.producer.partitioner import BuiltInPartitioner, Partitioner, RoundRobinPartitioner, StickyPartitionInfo
from kstore.producer.producer import Producer
from kstore.producer.ready_check import ReadyCheckResult
from kstore.producer.result import ProduceRequestResult
from kstore.producer.sender import Sender
from kstore.producer.sink import ProduceResponse, Sink
from kstore.producer.store_sink import StoreSink
from kstore.producer.transaction_manager import TransactionManager

__all__ = [
    "SYSTEM_CLOCK",
    "AppendedBatch",
    "BufferPool",
    "BuiltInPartitioner",
    "Clock",
    "Cluster",
    "ColumnsFuture",
    "CompressionRatioEstimator",
    "FinalState",
    "FutureRecordMetadata",
    "Node",
    "PartitionInfo",
    "Partitioner",
    "ProduceRequestResult",
    "ProduceResponse",
    "Producer",
    "ProducerBatch",
    "ProducerConfig",
    "ProducerInterceptor",
    "ProducerRecord",
    "ReadyCheckResult",
    "RecordAccumulator",
    "RecordAppendResult",
    "RecordMetadata",
    "RoundRobinPartitioner",
    "Sender",
    "Sink",
    "StickyPartitionInfo",
    "StoreSink",
    "SystemClock",
    "TransactionCoordinator",
    "TransactionManager",
    "coordinator_of",
    "murmur2",
    "partition_for_key",
]
