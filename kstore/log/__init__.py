"""Log storage: directories, segments, indexes, the Log that reads them and the WritableLog that writes them."""

from kstore.log.cleaning.cleanable import CleanableLog
from kstore.log.cleaning.retention import DueSegment
from kstore.log.damage import Damage, SkippedRange
from kstore.log.files.names import PartitionDirectory, find_partitions
from kstore.log.following.follower import Follower
from kstore.log.log import Log
from kstore.log.maintenance import VerificationReport
from kstore.log.opening import open_log
from kstore.log.plan import ScanRange
from kstore.log.recovery.context import DamageOutcome, RecoveryReport
from kstore.log.segment.file_records import FileRecords, FileRecordsSlice
from kstore.log.segment.segment import LogSegment
from kstore.log.segment.sound import FileRange
from kstore.log.source import FetchData
from kstore.log.store import Store, WritableStore, open_store
from kstore.log.upkeep.maintenance import MaintenanceIntervals, MaintenanceReport
from kstore.log.upkeep.prometheus import StoreCollector
from kstore.log.upkeep.recovering import RecoveredPartition
from kstore.log.verify import VerifiedPartition
from kstore.log.write.compaction import CompactionReport
from kstore.log.write.retaining import RetentionHold
from kstore.log.write.rules import LogAppendInfo
from kstore.log.write.writable_log import WritableLog

__all__ = [
    "CleanableLog",
    "CompactionReport",
    "Damage",
    "DamageOutcome",
    "DueSegment",
    "FetchData",
    "FileRange",
    "FileRecords",
    "FileRecordsSlice",
    "Follower",
    "Log",
    "LogAppendInfo",
    "LogSegment",
    "MaintenanceIntervals",
    "MaintenanceReport",
    "PartitionDirectory",
    "RecoveredPartition",
    "RecoveryReport",
    "RetentionHold",
    "ScanRange",
    "SkippedRange",
    "Store",
    "StoreCollector",
    "VerificationReport",
    "VerifiedPartition",
    "WritableLog",
    "WritableStore",
    "find_partitions",
    "open_log",
    "open_store",
]
