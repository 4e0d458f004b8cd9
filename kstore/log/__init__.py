"""Files: directories, segments, indexes and the Log over them, which only read; FileRecords. Layer 5: takes no lock."""

from kstore.log.directory import PartitionDirectory, find_partitions
from kstore.log.file_records import FileRecords, FileRecordsSlice
from kstore.log.log import FetchData, Log
from kstore.log.opening import open_log
from kstore.log.plan import FileRange, ScanRange
from kstore.log.segment import LogSegment

__all__ = [
    "FetchData",
    "FileRange",
    "FileRecords",
    "FileRecordsSlice",
    "Log",
    "LogSegment",
    "PartitionDirectory",
    "ScanRange",
    "find_partitions",
    "open_log",
]
