"""Records and record batches in memory. Modules here know nothing of files. Each name is imported at its first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kstore._lazy import lazy_names

if TYPE_CHECKING:
    from kstore._core import BatchHeader as BatchHeader
    from kstore._core import Record as Record
    from kstore.record.batches import MemoryRecords as MemoryRecords
    from kstore.record.batches import RecordBatch as RecordBatch
    from kstore.record.builder import MemoryRecordsBuilder as MemoryRecordsBuilder
    from kstore.record.builder import RecordsInfo as RecordsInfo
    from kstore.record.builder import with_end_transaction_marker as with_end_transaction_marker
    from kstore.record.builder import with_idempotent_records as with_idempotent_records
    from kstore.record.builder import with_kraft_control_record as with_kraft_control_record
    from kstore.record.builder import with_leader_change_message as with_leader_change_message
    from kstore.record.builder import with_records as with_records
    from kstore.record.builder import with_transactional_records as with_transactional_records
    from kstore.record.control import EndTransactionMarker as EndTransactionMarker
    from kstore.record.control import UnknownControlRecord as UnknownControlRecord
    from kstore.record.control import control_record_type as control_record_type
    from kstore.record.control import control_record_value as control_record_value
    from kstore.record.control import decode_control_record as decode_control_record
    from kstore.record.conversion import ConversionStats as ConversionStats
    from kstore.record.conversion import convert as convert
    from kstore.record.conversion import convert_message as convert_message
    from kstore.record.conversion import down_convert as down_convert
    from kstore.record.conversion import up_convert as up_convert
    from kstore.record.kraft import KRaftVersionFeature as KRaftVersionFeature
    from kstore.record.kraft import KRaftVersionRecord as KRaftVersionRecord
    from kstore.record.kraft import LeaderChangeMessage as LeaderChangeMessage
    from kstore.record.kraft import LeaderChangeVoter as LeaderChangeVoter
    from kstore.record.kraft import SnapshotFooterRecord as SnapshotFooterRecord
    from kstore.record.kraft import SnapshotHeaderRecord as SnapshotHeaderRecord
    from kstore.record.kraft import Voter as Voter
    from kstore.record.kraft import VoterEndpoint as VoterEndpoint
    from kstore.record.kraft import VotersRecord as VotersRecord
    from kstore.record.message_writer import BufferingOutputStream as BufferingOutputStream
    from kstore.record.message_writer import MessageWriter as MessageWriter
    from kstore.record.message_writer import ReservedOutput as ReservedOutput
    from kstore.record.message_writer import write_entry as write_entry
    from kstore.record.packing import BinaryColumn as BinaryColumn
    from kstore.record.packing import HeadersColumn as HeadersColumn
    from kstore.record.packing import Int64Column as Int64Column
    from kstore.record.packing import RecordColumns as RecordColumns
    from kstore.record.packing import pack_columns as pack_columns
    from kstore.record.search import RecordSearch as RecordSearch
    from kstore.record.validation import AppendOrigin as AppendOrigin
    from kstore.record.validation import RecordRules as RecordRules
    from kstore.record.validation import ValidationResult as ValidationResult
    from kstore.record.validation import validate_and_assign_offsets as validate_and_assign_offsets
    from kstore.record.validation import validate_replicated as validate_replicated
    from kstore.types import ControlRecordType as ControlRecordType

_MODULES = {
    "kstore._core": (
        "BatchHeader",
        "Record",
    ),
    "kstore.record.batches": (
        "MemoryRecords",
        "RecordBatch",
    ),
    "kstore.record.builder": (
        "MemoryRecordsBuilder",
        "RecordsInfo",
        "with_end_transaction_marker",
        "with_idempotent_records",
        "with_kraft_control_record",
        "with_leader_change_message",
        "with_records",
        "with_transactional_records",
    ),
    "kstore.record.control": (
        "EndTransactionMarker",
        "UnknownControlRecord",
        "control_record_type",
        "control_record_value",
        "decode_control_record",
    ),
    "kstore.record.conversion": (
        "ConversionStats",
        "convert",
        "convert_message",
        "down_convert",
        "up_convert",
    ),
    "kstore.record.kraft": (
        "KRaftVersionFeature",
        "KRaftVersionRecord",
        "LeaderChangeMessage",
        "LeaderChangeVoter",
        "SnapshotFooterRecord",
        "SnapshotHeaderRecord",
        "Voter",
        "VoterEndpoint",
        "VotersRecord",
    ),
    "kstore.record.message_writer": (
        "BufferingOutputStream",
        "MessageWriter",
        "ReservedOutput",
        "write_entry",
    ),
    "kstore.record.packing": (
        "BinaryColumn",
        "HeadersColumn",
        "Int64Column",
        "RecordColumns",
        "pack_columns",
    ),
    "kstore.record.search": ("RecordSearch",),
    "kstore.record.validation": (
        "AppendOrigin",
        "RecordRules",
        "ValidationResult",
        "validate_and_assign_offsets",
        "validate_replicated",
    ),
    "kstore.types": ("ControlRecordType",),
}

__getattr__, __dir__, __all__ = lazy_names(__name__, _MODULES)
