"""Bytes in memory: records and record batches. Layer 4: knows nothing of files."""

from kstore._core import BatchHeader, Record
from kstore.record.batch import RecordBatch
from kstore.record.builder import MemoryRecordsBuilder, RecordsInfo
from kstore.record.memory_records import MemoryRecords
from kstore.record.message_writer import BufferingOutputStream, MessageWriter, ReservedOutput, write_entry

__all__ = [
    "BatchHeader",
    "BufferingOutputStream",
    "MemoryRecords",
    "MemoryRecordsBuilder",
    "MessageWriter",
    "Record",
    "RecordBatch",
    "RecordsInfo",
    "ReservedOutput",
    "write_entry",
]
