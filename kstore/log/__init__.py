"""One partition: its files, segments and indexes, the Log that reads them and the WritableLog that writes them."""

from kstore.log.cleaning.cleanable import CleanableLog
from kstore.log.cleaning.retention import DueSegment
from kstore.log.damage import Damage, SkippedRange
from kstore.log.damaged.sound import FileRange
from kstore.log.files.names import PartitionDirectory, find_partitions
from kstore.log.following.follower import Follower
from kstore.log.log import Log
from kstore.log.plan import ScanRange
from kstore.log.recovery.context import DamageOutcome, RecoveryReport
from kstore.log.segment.file_records import FileRecords
from kstore.log.segment.segment import LogSegment
from kstore.log.source import FetchData, FetchRange
from kstore.log.verify import VerifiedPartition
from kstore.log.write.compaction import CompactionReport
from kstore.log.write.retention import RetentionHold
from kstore.log.write.rules import LogAppendInfo
from kstore.log.write.writable_log import WritableLog

__all__ = [
    "CleanableLog",
    "CompactionReport",
    "Damage",
    "DamageOutcome",
    "DueSegment",
    "FetchData",
    "FetchRange",
    "FileRange",
    "FileRecords",
    "Follower",
    "Log",
    "LogAppendInfo",
    "LogSegment",
    "PartitionDirectory",
    "RecoveryReport",
    "RetentionHold",
    "ScanRange",
    "SkippedRange",
    "VerifiedPartition",
    "WritableLog",
    "find_partitions",
]
