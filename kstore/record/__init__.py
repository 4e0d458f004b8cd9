"""Records and record batches in memory. Modules here know nothing of files."""

from kstore._core import BatchHeader, Record
from kstore.record.batches import MemoryRecords, RecordBatch
from kstore.record.builder import (
    MemoryRecordsBuilder,
    RecordsInfo,
    with_end_transaction_marker,
    with_idempotent_records,
    with_kraft_control_record,
    with_leader_change_message,
    with_records,
    with_transactional_records,
)
from kstore.record.control import (
    ControlRecordType,
    EndTransactionMarker,
    KRaftVersionFeature,
    KRaftVersionRecord,
    LeaderChangeMessage,
    LeaderChangeVoter,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    UnknownControlRecord,
    Voter,
    VoterEndpoint,
    VotersRecord,
    control_record_type,
    control_record_value,
    decode_control_record,
)
from kstore.record.conversion import ConversionStats, convert, convert_message, down_convert, up_convert
from kstore.record.message_writer import BufferingOutputStream, MessageWriter, ReservedOutput, write_entry
from kstore.record.packing import BinaryColumn, HeadersColumn, Int64Column, RecordColumns, pack_columns
from kstore.record.schemas import topics as internal_topics
from kstore.record.search import RecordSearch
from kstore.record.validation import (
    AppendOrigin,
    RecordRules,
    ValidationResult,
    validate_and_assign_offsets,
    validate_replicated,
)

__all__ = [
    "AppendOrigin",
    "BatchHeader",
    "BinaryColumn",
    "BufferingOutputStream",
    "ControlRecordType",
    "ConversionStats",
    "EndTransactionMarker",
    "HeadersColumn",
    "Int64Column",
    "KRaftVersionFeature",
    "KRaftVersionRecord",
    "LeaderChangeMessage",
    "LeaderChangeVoter",
    "MemoryRecords",
    "MemoryRecordsBuilder",
    "MessageWriter",
    "Record",
    "RecordBatch",
    "RecordColumns",
    "RecordRules",
    "RecordSearch",
    "RecordsInfo",
    "ReservedOutput",
    "SnapshotFooterRecord",
    "SnapshotHeaderRecord",
    "UnknownControlRecord",
    "ValidationResult",
    "Voter",
    "VoterEndpoint",
    "VotersRecord",
    "control_record_type",
    "control_record_value",
    "convert",
    "convert_message",
    "decode_control_record",
    "down_convert",
    "internal_topics",
    "pack_columns",
    "up_convert",
    "validate_and_assign_offsets",
    "validate_replicated",
    "with_end_transaction_marker",
    "with_idempotent_records",
    "with_kraft_control_record",
    "with_leader_change_message",
    "with_records",
    "with_transactional_records",
    "write_entry",
]
