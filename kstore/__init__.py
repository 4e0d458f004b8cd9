"""kstore: Apache Kafka's message store as a Python library.

This module has the public names only. Each is imported when it is first used.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING

from kstore._lazy import lazy_names

if TYPE_CHECKING:
    from kstore._core import Record as Record
    from kstore.adoption.report import AdoptedTopic as AdoptedTopic
    from kstore.adoption.report import AdoptionReport as AdoptionReport
    from kstore.adoption.run import adopt as adopt
    from kstore.archive import ExportSummary as ExportSummary
    from kstore.archive import RestoredPartition as RestoredPartition
    from kstore.archive import RestoreSummary as RestoreSummary
    from kstore.archive import TableSummary as TableSummary
    from kstore.archive import export as export
    from kstore.archive import restore as restore
    from kstore.arrow import Scan as Scan
    from kstore.arrow import pack_record_batch as pack_record_batch
    from kstore.arrow import scan as scan
    from kstore.compression import CompressionType as CompressionType
    from kstore.config import LogConfig as LogConfig
    from kstore.consumer import Consumer as Consumer
    from kstore.consumer import Group as Group
    from kstore.consumer import GroupMember as GroupMember
    from kstore.consumer import GroupOffset as GroupOffset
    from kstore.consumer import delete_group as delete_group
    from kstore.consumer import delete_offsets as delete_offsets
    from kstore.consumer import read_groups as read_groups
    from kstore.consumer import reset_offsets as reset_offsets
    from kstore.errors import AdoptionError as AdoptionError
    from kstore.errors import AppendError as AppendError
    from kstore.errors import AuthenticationError as AuthenticationError
    from kstore.errors import BufferExhaustedError as BufferExhaustedError
    from kstore.errors import ClusterOwnedError as ClusterOwnedError
    from kstore.errors import ConsumerClosedError as ConsumerClosedError
    from kstore.errors import CorruptCheckpointError as CorruptCheckpointError
    from kstore.errors import CorruptIndexError as CorruptIndexError
    from kstore.errors import CorruptionError as CorruptionError
    from kstore.errors import CorruptLogError as CorruptLogError
    from kstore.errors import CorruptManifestError as CorruptManifestError
    from kstore.errors import CorruptRecordError as CorruptRecordError
    from kstore.errors import CorruptSnapshotError as CorruptSnapshotError
    from kstore.errors import DecompressionError as DecompressionError
    from kstore.errors import ExportConflictError as ExportConflictError
    from kstore.errors import ExportError as ExportError
    from kstore.errors import ExportOptionsError as ExportOptionsError
    from kstore.errors import ExportSourceError as ExportSourceError
    from kstore.errors import ExportTablesError as ExportTablesError
    from kstore.errors import ExportTransactionError as ExportTransactionError
    from kstore.errors import GroupStateError as GroupStateError
    from kstore.errors import InvalidPidMappingError as InvalidPidMappingError
    from kstore.errors import InvalidProducerEpochError as InvalidProducerEpochError
    from kstore.errors import InvalidRecordError as InvalidRecordError
    from kstore.errors import InvalidRequestError as InvalidRequestError
    from kstore.errors import InvalidSchemaError as InvalidSchemaError
    from kstore.errors import InvalidTimestampError as InvalidTimestampError
    from kstore.errors import InvalidTopicError as InvalidTopicError
    from kstore.errors import InvalidTxnStateError as InvalidTxnStateError
    from kstore.errors import KeylessRecordsError as KeylessRecordsError
    from kstore.errors import KStoreError as KStoreError
    from kstore.errors import LogClosedError as LogClosedError
    from kstore.errors import LogFailedError as LogFailedError
    from kstore.errors import LogLockedError as LogLockedError
    from kstore.errors import LogNotFoundError as LogNotFoundError
    from kstore.errors import LogReplacedError as LogReplacedError
    from kstore.errors import LogTruncationError as LogTruncationError
    from kstore.errors import MemoryLimitError as MemoryLimitError
    from kstore.errors import NoOffsetForPartitionError as NoOffsetForPartitionError
    from kstore.errors import OffsetError as OffsetError
    from kstore.errors import OffsetOutOfRangeError as OffsetOutOfRangeError
    from kstore.errors import OffsetsOutOfOrderError as OffsetsOutOfOrderError
    from kstore.errors import OutOfOrderSequenceError as OutOfOrderSequenceError
    from kstore.errors import ProducerClosedError as ProducerClosedError
    from kstore.errors import ProducerFencedError as ProducerFencedError
    from kstore.errors import ProducerStateError as ProducerStateError
    from kstore.errors import ProducerTimeoutError as ProducerTimeoutError
    from kstore.errors import RecordBatchTooLargeError as RecordBatchTooLargeError
    from kstore.errors import RecordDeserializationError as RecordDeserializationError
    from kstore.errors import RecordError as RecordError
    from kstore.errors import RecordErrorReason as RecordErrorReason
    from kstore.errors import RecordTooLargeError as RecordTooLargeError
    from kstore.errors import RecordValidationError as RecordValidationError
    from kstore.errors import RemoteSegmentError as RemoteSegmentError
    from kstore.errors import ReplayError as ReplayError
    from kstore.errors import ReplayStateError as ReplayStateError
    from kstore.errors import RestoreError as RestoreError
    from kstore.errors import SchemaError as SchemaError
    from kstore.errors import SchemaNotFoundError as SchemaNotFoundError
    from kstore.errors import SecurityError as SecurityError
    from kstore.errors import SegmentTooLargeError as SegmentTooLargeError
    from kstore.errors import SerializationError as SerializationError
    from kstore.errors import SinkResponseError as SinkResponseError
    from kstore.errors import StorageError as StorageError
    from kstore.errors import TierEpochError as TierEpochError
    from kstore.errors import TierKeyError as TierKeyError
    from kstore.errors import TopicExistsError as TopicExistsError
    from kstore.errors import TopicSettingsError as TopicSettingsError
    from kstore.errors import TransactionAbortedError as TransactionAbortedError
    from kstore.errors import TransactionCoordinatorFencedError as TransactionCoordinatorFencedError
    from kstore.errors import TransactionStateError as TransactionStateError
    from kstore.errors import UnexpectedAppendOffsetError as UnexpectedAppendOffsetError
    from kstore.errors import UnknownSettingsError as UnknownSettingsError
    from kstore.errors import UnknownTopicOrPartitionError as UnknownTopicOrPartitionError
    from kstore.errors import UnsentRecordsError as UnsentRecordsError
    from kstore.errors import UnstableOffsetCommitError as UnstableOffsetCommitError
    from kstore.errors import UnsupportedCompressionTypeError as UnsupportedCompressionTypeError
    from kstore.errors import UnsupportedError as UnsupportedError
    from kstore.errors import UnsupportedForMessageFormatError as UnsupportedForMessageFormatError
    from kstore.errors import UnsupportedMagicError as UnsupportedMagicError
    from kstore.errors import UnsupportedVersionError as UnsupportedVersionError
    from kstore.errors import WakeupError as WakeupError
    from kstore.log.cleaning.cleanable import CleanableLog as CleanableLog
    from kstore.log.cleaning.retention import DueSegment as DueSegment
    from kstore.log.damage import Damage as Damage
    from kstore.log.damage import SkippedRange as SkippedRange
    from kstore.log.following.follower import Follower as Follower
    from kstore.log.log import Log as Log
    from kstore.log.plan import ScanRange as ScanRange
    from kstore.log.recovery.context import DamageOutcome as DamageOutcome
    from kstore.log.recovery.context import RecoveryReport as RecoveryReport
    from kstore.log.segment.file_records import FileRecords as FileRecords
    from kstore.log.segment.segment import LogSegment as LogSegment
    from kstore.log.source import FetchData as FetchData
    from kstore.log.source import FetchRange as FetchRange
    from kstore.log.verify import VerifiedPartition as VerifiedPartition
    from kstore.log.write.compaction import CompactionReport as CompactionReport
    from kstore.log.write.retention import RetentionHold as RetentionHold
    from kstore.log.write.rules import LogAppendInfo as LogAppendInfo
    from kstore.log.write.writable_log import WritableLog as WritableLog
    from kstore.producer import BufferPool as BufferPool
    from kstore.producer import Producer as Producer
    from kstore.producer import ProducerBatch as ProducerBatch
    from kstore.producer import ProducerConfig as ProducerConfig
    from kstore.producer import RecordAccumulator as RecordAccumulator
    from kstore.producer import RecordMetadata as RecordMetadata
    from kstore.record.batches import MemoryRecords as MemoryRecords
    from kstore.record.batches import RecordBatch as RecordBatch
    from kstore.record.builder import MemoryRecordsBuilder as MemoryRecordsBuilder
    from kstore.record.search import RecordSearch as RecordSearch
    from kstore.replaying import ReplayedPartition as ReplayedPartition
    from kstore.replaying import ReplaySummary as ReplaySummary
    from kstore.replaying import TranslatedOffset as TranslatedOffset
    from kstore.replaying import replay as replay
    from kstore.reporting.report import Report as Report
    from kstore.reporting.report import report as report
    from kstore.store.checks import VerificationReport as VerificationReport
    from kstore.store.checks import recover as recover
    from kstore.store.checks import verify as verify
    from kstore.store.opening import open_log as open_log
    from kstore.store.store import Store as Store
    from kstore.store.store import WritableStore as WritableStore
    from kstore.store.store import open_store as open_store
    from kstore.store.table import Table as Table
    from kstore.store.transactions import PlannedMarker as PlannedMarker
    from kstore.store.transactions import TransactionsReport as TransactionsReport
    from kstore.store.transactions import UndecidedTransaction as UndecidedTransaction
    from kstore.store.transactions import abort_transaction as abort_transaction
    from kstore.store.transactions import planned_markers as planned_markers
    from kstore.store.transactions import read_transactions as read_transactions
    from kstore.store.upkeep.maintenance import MaintenanceIntervals as MaintenanceIntervals
    from kstore.store.upkeep.maintenance import MaintenanceReport as MaintenanceReport
    from kstore.store.upkeep.prometheus import StoreCollector as StoreCollector
    from kstore.store.upkeep.recovering import RecoveredPartition as RecoveredPartition
    from kstore.types import EARLIEST as EARLIEST
    from kstore.types import EARLIEST_LOCAL as EARLIEST_LOCAL
    from kstore.types import LATEST as LATEST
    from kstore.types import LATEST_TIERED as LATEST_TIERED
    from kstore.types import MAX_TIMESTAMP as MAX_TIMESTAMP
    from kstore.types import OffsetAndMetadata as OffsetAndMetadata
    from kstore.types import OffsetAndTimestamp as OffsetAndTimestamp
    from kstore.types import TimestampType as TimestampType
    from kstore.types import TopicPartition as TopicPartition
    from kstore.values.formats import ValueFormat as ValueFormat
    from kstore.values.registry import RegisteredSchema as RegisteredSchema
    from kstore.values.registry import SchemaRegistry as SchemaRegistry
    from kstore.values.sources import read_schemas as read_schemas

_ROOMS = {
    "kstore.adoption.report": ("AdoptedTopic", "AdoptionReport"),
    "kstore.adoption.run": ("adopt",),
    "kstore.archive": ("ExportSummary", "RestoreSummary", "RestoredPartition", "TableSummary", "export", "restore"),
    "kstore.arrow": ("Scan", "pack_record_batch", "scan"),
    "kstore.compression": ("CompressionType",),
    "kstore.config": ("LogConfig",),
    "kstore.consumer": (
        "Consumer",
        "Group",
        "GroupMember",
        "GroupOffset",
        "delete_group",
        "delete_offsets",
        "read_groups",
        "reset_offsets",
    ),
    "kstore.errors": (
        "AdoptionError",
        "AppendError",
        "AuthenticationError",
        "BufferExhaustedError",
        "ClusterOwnedError",
        "ConsumerClosedError",
        "CorruptCheckpointError",
        "CorruptIndexError",
        "CorruptLogError",
        "CorruptManifestError",
        "CorruptRecordError",
        "CorruptSnapshotError",
        "CorruptionError",
        "DecompressionError",
        "ExportConflictError",
        "ExportError",
        "ExportOptionsError",
        "ExportSourceError",
        "ExportTablesError",
        "ExportTransactionError",
        "GroupStateError",
        "InvalidPidMappingError",
        "InvalidProducerEpochError",
        "InvalidRecordError",
        "InvalidRequestError",
        "InvalidSchemaError",
        "InvalidTimestampError",
        "InvalidTopicError",
        "InvalidTxnStateError",
        "KStoreError",
        "KeylessRecordsError",
        "LogClosedError",
        "LogFailedError",
        "LogLockedError",
        "LogNotFoundError",
        "LogReplacedError",
        "LogTruncationError",
        "MemoryLimitError",
        "NoOffsetForPartitionError",
        "OffsetError",
        "OffsetOutOfRangeError",
        "OffsetsOutOfOrderError",
        "OutOfOrderSequenceError",
        "ProducerClosedError",
        "ProducerFencedError",
        "ProducerStateError",
        "ProducerTimeoutError",
        "RecordBatchTooLargeError",
        "RecordDeserializationError",
        "RecordError",
        "RecordErrorReason",
        "RecordTooLargeError",
        "RecordValidationError",
        "RemoteSegmentError",
        "ReplayError",
        "ReplayStateError",
        "RestoreError",
        "SecurityError",
        "SegmentTooLargeError",
        "SchemaError",
        "SchemaNotFoundError",
        "SerializationError",
        "SinkResponseError",
        "StorageError",
        "TierEpochError",
        "TierKeyError",
        "TopicExistsError",
        "TopicSettingsError",
        "TransactionAbortedError",
        "TransactionCoordinatorFencedError",
        "TransactionStateError",
        "UnexpectedAppendOffsetError",
        "UnknownSettingsError",
        "UnknownTopicOrPartitionError",
        "UnsentRecordsError",
        "UnstableOffsetCommitError",
        "UnsupportedCompressionTypeError",
        "UnsupportedError",
        "UnsupportedForMessageFormatError",
        "UnsupportedMagicError",
        "UnsupportedVersionError",
        "WakeupError",
    ),
    "kstore.log.cleaning.cleanable": ("CleanableLog",),
    "kstore.log.cleaning.retention": ("DueSegment",),
    "kstore.log.damage": ("Damage", "SkippedRange"),
    "kstore.log.following.follower": ("Follower",),
    "kstore.log.log": ("Log",),
    "kstore.log.plan": ("ScanRange",),
    "kstore.log.recovery.context": ("DamageOutcome", "RecoveryReport"),
    "kstore.log.segment.file_records": ("FileRecords",),
    "kstore.log.segment.segment": ("LogSegment",),
    "kstore.log.source": ("FetchData", "FetchRange"),
    "kstore.log.verify": ("VerifiedPartition",),
    "kstore.log.write.compaction": ("CompactionReport",),
    "kstore.log.write.retention": ("RetentionHold",),
    "kstore.log.write.rules": ("LogAppendInfo",),
    "kstore.log.write.writable_log": ("WritableLog",),
    "kstore.producer": (
        "BufferPool",
        "Producer",
        "ProducerBatch",
        "ProducerConfig",
        "RecordAccumulator",
        "RecordMetadata",
    ),
    "kstore.record": ("MemoryRecords", "MemoryRecordsBuilder", "Record", "RecordBatch", "RecordSearch"),
    "kstore.replaying": ("ReplaySummary", "ReplayedPartition", "TranslatedOffset", "replay"),
    "kstore.reporting.report": ("Report", "report"),
    "kstore.store.checks": ("VerificationReport", "recover", "verify"),
    "kstore.store.opening": ("open_log",),
    "kstore.store.store": ("Store", "WritableStore", "open_store"),
    "kstore.store.table": ("Table",),
    "kstore.store.transactions": (
        "PlannedMarker",
        "TransactionsReport",
        "UndecidedTransaction",
        "abort_transaction",
        "planned_markers",
        "read_transactions",
    ),
    "kstore.store.upkeep.maintenance": ("MaintenanceIntervals", "MaintenanceReport"),
    "kstore.store.upkeep.prometheus": ("StoreCollector",),
    "kstore.store.upkeep.recovering": ("RecoveredPartition",),
    "kstore.types": (
        "EARLIEST",
        "EARLIEST_LOCAL",
        "LATEST",
        "LATEST_TIERED",
        "MAX_TIMESTAMP",
        "OffsetAndMetadata",
        "OffsetAndTimestamp",
        "TimestampType",
        "TopicPartition",
    ),
    "kstore.values.formats": ("ValueFormat",),
    "kstore.values.registry": ("RegisteredSchema", "SchemaRegistry"),
    "kstore.values.sources": ("read_schemas",),
}
if sys.platform == "win32":
    raise ImportError(
        "kstore runs on Linux and macOS, not on Windows: it locks, reads and replaces files by calls of POSIX. "
        "In WSL it is installed as on Linux (docs/platforms.md)",
        name=__name__,
    )
if PathFinder.find_spec("kstore._core", __path__) is None:
    try:
        import_module("kstore._core")  # for programs that bring their modules in another way, such as PyInstaller
    except ModuleNotFoundError as error:
        if error.name != "kstore._core":
            raise
        tree = __path__[0]
        raise ModuleNotFoundError(
            f"the compiled core of kstore, kstore._core, is not built in {tree} for this Python "
            f"({sys.implementation.cache_tag}). If that is a source tree, build it there with "
            f"`{sys.executable} -m pip install --editable .` (or with `make build`, into .venv); or, if kstore is "
            "installed too, start Python in another directory, so that the installed package is imported",
            name=error.name,
        ) from None

__version__ = "0.1.0"
__getattr__, __dir__, __all__ = lazy_names(__name__, _ROOMS)
