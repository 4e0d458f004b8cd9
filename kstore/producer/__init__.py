"""The producer: buffer pool, accumulator, partitioners, sender, transactions and Producer; exports the public names."""

from kstore._core import RecordAppendResult, StickyPartitionInfo, murmur2, partition_for_key
from kstore.coordinator.transaction.coordinator import TransactionCoordinator, coordinator_of
from kstore.env.process import SYSTEM_CLOCK, Clock, SystemClock
from kstore.producer.batches.accumulator import BufferPool, RecordAccumulator
from kstore.producer.batches.batch import CompressionRatioEstimator, FinalState, ProducerBatch
from kstore.producer.batches.drain import ReadyCheckResult
from kstore.producer.batches.futures import (
    AppendedBatch,
    ColumnsFuture,
    FutureRecordMetadata,
    ProduceRequestResult,
    RecordMetadata,
)
from kstore.producer.cluster import Cluster, Node, PartitionInfo
from kstore.producer.config import ProducerConfig, ProducerSettings
from kstore.producer.interceptors import ProducerInterceptor, ProducerRecord
from kstore.producer.partitioner import BuiltInPartitioner, Partitioner, RoundRobinPartitioner
from kstore.producer.producer import Producer
from kstore.producer.sending.sender import Sender
from kstore.producer.sending.store_sink import StoreSink
from kstore.producer.sink import ProduceResponse, Sink
from kstore.producer.transactions import TransactionManager

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
    "ProducerSettings",
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
