"""Bytes in memory: records and record batches. Layer 4: knows nothing of files."""

from kstore._core import BatchHeader, Record
from kstore.record.batch import RecordBatch
from kstore.record.memory_records import MemoryRecords

__all__ = ["BatchHeader", "MemoryRecords", "Record", "RecordBatch"]
