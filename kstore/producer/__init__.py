"""The producer: buffer pool, accumulator, partitioners, sender, transactions and Producer; exports the public names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kstore._lazy import lazy_names

if TYPE_CHECKING:
    from kstore._core import RecordAppendResult as RecordAppendResult
    from kstore._core import StickyPartitionInfo as StickyPartitionInfo
    from kstore._core import murmur2 as murmur2
    from kstore._core import partition_for_key as partition_for_key
    from kstore.coordinator.transaction.coordinator import TransactionCoordinator as TransactionCoordinator
    from kstore.coordinator.transaction.coordinator import coordinator_of as coordinator_of
    from kstore.env.process import SYSTEM_CLOCK as SYSTEM_CLOCK
    from kstore.env.process import Clock as Clock
    from kstore.env.process import SystemClock as SystemClock
    from kstore.producer.batches.accumulator import BufferPool as BufferPool
    from kstore.producer.batches.accumulator import RecordAccumulator as RecordAccumulator
    from kstore.producer.batches.batch import CompressionRatioEstimator as CompressionRatioEstimator
    from kstore.producer.batches.batch import FinalState as FinalState
    from kstore.producer.batches.batch import ProducerBatch as ProducerBatch
    from kstore.producer.batches.drain import ReadyCheckResult as ReadyCheckResult
    from kstore.producer.batches.futures import AppendedBatch as AppendedBatch
    from kstore.producer.batches.futures import ColumnsFuture as ColumnsFuture
    from kstore.producer.batches.futures import FutureRecordMetadata as FutureRecordMetadata
    from kstore.producer.batches.futures import ProduceRequestResult as ProduceRequestResult
    from kstore.producer.batches.futures import RecordMetadata as RecordMetadata
    from kstore.producer.cluster import Cluster as Cluster
    from kstore.producer.cluster import Node as Node
    from kstore.producer.cluster import PartitionInfo as PartitionInfo
    from kstore.producer.config import ProducerConfig as ProducerConfig
    from kstore.producer.config import ProducerSettings as ProducerSettings
    from kstore.producer.interceptors import ProducerInterceptor as ProducerInterceptor
    from kstore.producer.interceptors import ProducerRecord as ProducerRecord
    from kstore.producer.partitioner import BuiltInPartitioner as BuiltInPartitioner
    from kstore.producer.partitioner import Partitioner as Partitioner
    from kstore.producer.partitioner import RoundRobinPartitioner as RoundRobinPartitioner
    from kstore.producer.producer import Producer as Producer
    from kstore.producer.sending.sender import Sender as Sender
    from kstore.producer.sending.store_sink import StoreSink as StoreSink
    from kstore.producer.sink import ProduceResponse as ProduceResponse
    from kstore.producer.sink import Sink as Sink
    from kstore.producer.transactions import TransactionManager as TransactionManager

_MODULES = {
    "kstore._core": ("RecordAppendResult", "StickyPartitionInfo", "murmur2", "partition_for_key"),
    "kstore.coordinator.transaction.coordinator": ("TransactionCoordinator", "coordinator_of"),
    "kstore.env.process": ("Clock", "SYSTEM_CLOCK", "SystemClock"),
    "kstore.producer.batches.accumulator": ("BufferPool", "RecordAccumulator"),
    "kstore.producer.batches.batch": ("CompressionRatioEstimator", "FinalState", "ProducerBatch"),
    "kstore.producer.batches.drain": ("ReadyCheckResult",),
    "kstore.producer.batches.futures": (
        "AppendedBatch",
        "ColumnsFuture",
        "FutureRecordMetadata",
        "ProduceRequestResult",
        "RecordMetadata",
    ),
    "kstore.producer.cluster": ("Cluster", "Node", "PartitionInfo"),
    "kstore.producer.config": ("ProducerConfig", "ProducerSettings"),
    "kstore.producer.interceptors": ("ProducerInterceptor", "ProducerRecord"),
    "kstore.producer.partitioner": ("BuiltInPartitioner", "Partitioner", "RoundRobinPartitioner"),
    "kstore.producer.producer": ("Producer",),
    "kstore.producer.sending.sender": ("Sender",),
    "kstore.producer.sending.store_sink": ("StoreSink",),
    "kstore.producer.sink": ("ProduceResponse", "Sink"),
    "kstore.producer.transactions": ("TransactionManager",),
}
__getattr__, __dir__, __all__ = lazy_names(__name__, _MODULES)
