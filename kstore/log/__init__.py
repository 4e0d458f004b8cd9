"""Log storage: directories, segments, indexes, the Log that reads them and the WritableLog that writes them."""

from kstore.log.files.names import PartitionDirectory, find_partitions
from kstore.log.log import FetchData, Log
from kstore.log.opening import open_log
from kstore.log.plan import FileRange, ScanRange
from kstore.log.segment.file_records import FileRecords, FileRecordsSlice
from kstore.log.segment.segment import LogSegment
from kstore.log.store import Store, WritableStore, open_store
from kstore.log.write.rules import LogAppendInfo
from kstore.log.write.writable_log import WritableLog

__all__ = [
    "FetchData",
    "FileRange",
    "FileRecords",
    "FileRecordsSlice",
    "Log",
    "LogAppendInfo",
    "LogSegment",
    "PartitionDirectory",
    "ScanRange",
    "Store",
    "WritableLog",
    "WritableStore",
    "find_partitions",
    "open_log",
    "open_store",
]
