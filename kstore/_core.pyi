"""Types of the compiled core; see the docstrings of its functions and classes."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Final, Literal, final

from typing_extensions import Buffer, Self, disjoint_base

from kstore._core_accumulate import AppendPath as AppendPath
from kstore._core_accumulate import Bell as Bell
from kstore._core_accumulate import OpenTransaction as OpenTransaction
from kstore._core_accumulate import OwnedLock as OwnedLock
from kstore._core_accumulate import PartitionQueue as PartitionQueue
from kstore._core_accumulate import SendPath as SendPath
from kstore._core_accumulate import TopicQueues as TopicQueues
from kstore._core_accumulate import answered_from as answered_from
from kstore._core_accumulate import begin_sends as begin_sends
from kstore._core_accumulate import close_batches as close_batches
from kstore._core_accumulate import complete_batches as complete_batches
from kstore._core_accumulate import end_sends as end_sends
from kstore._core_accumulate import give_up as give_up
from kstore._core_accumulate import number_batches as number_batches
from kstore._core_accumulate import pack_rows_into as pack_rows_into
from kstore._core_accumulate import push_batches as push_batches
from kstore._core_accumulate import records_of_batches as records_of_batches
from kstore._core_accumulate import rounds_of as rounds_of
from kstore._core_accumulate import sums_of_request as sums_of_request
from kstore._core_accumulate import take_batches as take_batches
from kstore._core_append import BATCHES_KEPT as BATCHES_KEPT
from kstore._core_append import AppendSurvey as AppendSurvey
from kstore._core_append import LeaderAssigner as LeaderAssigner
from kstore._core_append import LogAppender as LogAppender
from kstore._core_append import ProducerEntry as ProducerEntry
from kstore._core_append import SegmentAppender as SegmentAppender
from kstore._core_append import survey_replicated as survey_replicated
from kstore._core_file import PositionedFile as PositionedFile
from kstore._core_file import PositionedWriteFile as PositionedWriteFile
from kstore._core_producer import BatchAppender as BatchAppender
from kstore._core_producer import BatchResult as BatchResult
from kstore._core_producer import PoolMemory as PoolMemory
from kstore._core_producer import RecordAppendResult as RecordAppendResult
from kstore._core_producer import RecordFuture as RecordFuture
from kstore._core_producer import estimate_size_in_bytes_upper_bound as estimate_size_in_bytes_upper_bound
from kstore.config import LogConfig
from kstore.errors import DecompressionError, KStoreError
from kstore.types import OffsetAndTimestamp, TimestampType, TopicPartition

LOG_OVERHEAD: Final[int]
MAGIC_POSITION: Final[int]
CRC_POSITION: Final[int]
ATTRIBUTES_POSITION: Final[int]
MAX_TIMESTAMP_POSITION: Final[int]
MESSAGE_CRC_POSITION: Final[int]
MESSAGE_ATTRIBUTES_POSITION: Final[int]
MESSAGE_TIMESTAMP_POSITION: Final[int]
RECORD_BATCH_OVERHEAD: Final[int]
OFFSET_INDEX_ENTRY_SIZE: Final[int]
TIME_INDEX_ENTRY_SIZE: Final[int]
BATCH_ROW_FIELDS: Final[tuple[str, ...]]
CRC32C_PATHS: Final[tuple[str, ...]]
CRC32_PATHS: Final[tuple[str, ...]]
TIMESTAMP_TYPE_BIT: Final[int]
TRANSACTIONAL_BIT: Final[int]
CONTROL_BIT: Final[int]
DELETE_HORIZON_BIT: Final[int]

_Decompress = Callable[..., Buffer]
_Compress = Callable[[int, memoryview, int | None], Buffer]
_Mode = Literal["copy", "view", "string"]
_Variable = tuple[int, ColumnBuffer | None, ColumnBuffer, list[Any]]

def crc32c(data: Buffer, value: int = 0) -> int: ...
def crc32c_by(path: str, data: Buffer, value: int = 0) -> int: ...
def crc32(data: Buffer, value: int = 0) -> int: ...
def crc32_by(path: str, data: Buffer, value: int = 0) -> int: ...
def murmur2(data: Buffer) -> int: ...
def header_pairs(headers: Iterable[tuple[str, bytes | None]]) -> tuple[tuple[str, bytes | None], ...]: ...
def partition_for_key(key: Buffer, partition_count: int) -> int: ...
def decode_varint(buffer: Buffer, position: int = 0) -> tuple[int, int]: ...
def decode_varlong(buffer: Buffer, position: int = 0) -> tuple[int, int]: ...
def encode_varint(value: int) -> bytes: ...
def encode_varlong(value: int) -> bytes: ...
def size_of_varint(value: int) -> int: ...
def size_of_varlong(value: int) -> int: ...
def decompress_blocks(payload: Buffer, *, codec_id: int, limit: int, magic: int) -> memoryview: ...
def output_too_large(codec: str, limit: int) -> DecompressionError: ...
def zstd_frame_bound(frame: Buffer) -> tuple[int, int]: ...

@final
class BatchHeader:
    position: Final[int]
    size_in_bytes: Final[int]
    base_offset: Final[int]
    last_offset: Final[int]
    magic: Final[int]
    attributes: Final[int]
    crc: Final[int]
    partition_leader_epoch: Final[int]
    base_timestamp_ms: Final[int]
    max_timestamp_ms: Final[int]
    producer_id: Final[int]
    producer_epoch: Final[int]
    base_sequence: Final[int]
    record_count: Final[int | None]
    has_base_offset: Final[bool]
    codec: Final[int]
    timestamp_type: Final[int]
    is_transactional: Final[bool]
    is_control: Final[bool]
    has_delete_horizon: Final[bool]

def read_header(
    buffer: Buffer, at: int = 0, *, position: int, path: str | None = None, max_batch_bytes: int = ...
) -> BatchHeader: ...
def check_crc(buffer: Buffer, *, position: int, path: str | None = None) -> None: ...
def sizes_by_crc(buffer: Buffer) -> list[int]: ...
def find_batch_header(
    buffer: Buffer, at: int = 0, *, least_offset: int, most_offset: int, max_batch_bytes: int
) -> int: ...

@final
class HeaderScan:
    def __init__(
        self,
        *,
        position: int,
        end_position: int,
        base_offset: int = 0,
        max_batch_bytes: int = ...,
        path: str | None = None,
        previous_last_offset: int = -1,
        stop_offset: int | None = None,
        stop_timestamp_ms: int | None = None,
        stop_attributes: int = 0,
    ) -> None: ...
    def feed(self, chunk: Buffer, position: int) -> int: ...
    status: Final[Literal["more", "found", "end", "torn", "zeros", "corrupt"]]
    position: Final[int]
    batch_count: Final[int]
    record_count: Final[int]
    last_offset: Final[int]
    max_timestamp_ms: Final[int]
    offset_of_max_timestamp: Final[int]
    found: Final[BatchHeader | None]
    error: Final[KStoreError | None]

@final
class Record:
    def __init__(
        self,
        *,
        offset: int,
        timestamp_ms: int,
        key: Any = None,
        value: Any = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
        timestamp_type: TimestampType = ...,
        topic_partition: TopicPartition | None = None,
        sequence: int = -1,
        is_control: bool = False,
    ) -> None: ...
    offset: Final[int]
    timestamp_ms: Final[int]
    timestamp_type: Final[TimestampType]
    key: Final[Any]
    value: Final[Any]
    headers: Final[tuple[tuple[str, bytes | None], ...]]
    topic_partition: Final[TopicPartition | None]
    sequence: Final[int]
    is_control: Final[bool]
    def __hash__(self) -> int: ...
    def __eq__(self, value: object, /) -> bool: ...

@final
class RecordIterator:
    first_offset: Final[int]
    incomplete_bytes: Final[int]
    def __iter__(self) -> Self: ...
    def __next__(self) -> Record: ...
    def take(self, *, most_records: int, most_bytes: int) -> list[Record]: ...

@final
class RunIterator:
    def __iter__(self) -> Self: ...
    def __next__(self) -> Record: ...

@disjoint_base
class RecordsBuffer:
    def __init__(
        self,
        buffer: Buffer,
        *,
        position: int = 0,
        path: str | None = None,
        topic_partition: TopicPartition | None = None,
        config: LogConfig = ...,
    ) -> None: ...
    _position: Final[int]
    _path: Final[str | None]
    _topic_partition: Final[TopicPartition | None]
    _config: Final[LogConfig]
    size_in_bytes: Final[int]
    buffer: Final[memoryview]
    def __len__(self) -> int: ...

def iterate_records(
    buffer: Buffer,
    *,
    position: int,
    decompress: _Decompress,
    max_decompressed_bytes: int,
    path: str | None = None,
    topic_partition: TopicPartition | None = None,
    verify_crc: bool = True,
    checks_offsets: bool = True,
    least_offset: int = 0,
    headers: bool = True,
) -> RecordIterator: ...
def iterate_run(
    buffer: Buffer,
    *,
    position: int,
    decompress: _Decompress,
    max_batch_bytes: int,
    max_decompressed_bytes: int,
    path: str | None = None,
    topic_partition: TopicPartition | None = None,
) -> RunIterator: ...
def search_timestamp(records: RecordIterator, *, timestamp_ms: int, start_offset: int) -> tuple[int, int] | None: ...
def json_of_records(
    records: RecordIterator, *, opening: Buffer, middle: Buffer, separator: Buffer, most_bytes: int
) -> str | None: ...
def search_timestamp_in_batch(
    buffer: Buffer, *, position: int, timestamp_ms: int, start_offset: int, path: str | None = None
) -> tuple[int, int] | None: ...
def survey_records(records: RecordIterator) -> tuple[int, int, int, int, int, bool]: ...
def magics_of_records(records: RecordIterator) -> bytes: ...
def index_entry_count(buffer: Buffer, entry_size: int) -> int: ...
def offset_index_entry(buffer: Buffer, slot: int) -> tuple[int, int]: ...
def time_index_entry(buffer: Buffer, slot: int) -> tuple[int, int]: ...

@final
class ColumnBuffer:
    def __init__(self, capacity: int) -> None: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __len__(self) -> int: ...

@disjoint_base
class IndexEntries:
    def __init__(self, content: Buffer, *, base_offset: int, max_bytes: int) -> None: ...
    base_offset: int
    entry_count: int
    max_entries: int
    cut_count: int
    entry_size: int
    content: memoryview
    def extend(self, content: Buffer) -> None: ...
    def keep(self, entry_count: int) -> None: ...

@final
class OffsetIndexEntries(IndexEntries):
    def append(self, *, offset: int, position: int) -> None: ...
    last_offset: int

@final
class TimeIndexEntries(IndexEntries):
    def maybe_append(self, *, timestamp_ms: int, offset: int, skip_full_check: bool = False) -> bool: ...
    last_entry: tuple[int, int]

def first_disordered_slot(entries: Buffer, entry_size: int) -> int: ...

@final
class OffsetIndexSearch:
    def __init__(self, entries: Buffer, *, base_offset: int, earlier: OffsetIndexSearch | None = None) -> None: ...
    entry_count: int
    def slot_of_offset(self, offset: int) -> int: ...
    def slots_of_offsets(self, offsets: Buffer) -> ColumnBuffer: ...

@final
class TimeIndexSearch:
    def __init__(self, entries: Buffer, *, base_offset: int, earlier: TimeIndexSearch | None = None) -> None: ...
    entry_count: int
    def slot_of_timestamp(self, timestamp_ms: int) -> int: ...
    def confirm(self, slot: int) -> None: ...

@final
class SegmentLookup:
    def __init__(
        self,
        fetch_offsets: Callable[[], OffsetIndexSearch | None],
        fetch_times: Callable[[], TimeIndexSearch | None],
        fetch_pread: Callable[[], Callable[..., bytes]],
        *,
        end_position: int,
        next_base_offset: int | None = None,
        max_batch_bytes: int = ...,
    ) -> None: ...
    def batch_of_offset(self, offset: int) -> BatchHeader | None: ...
    def record_of_timestamp(self, timestamp_ms: int, *, start_offset: int) -> OffsetAndTimestamp | None: ...
    def batch_of_timestamp(self, timestamp_ms: int, *, start_offset: int) -> tuple[int, BatchHeader, bytes] | None: ...
    def note_checked(self, slot: int) -> None: ...

@final
class RecoveryWalk:
    def __init__(
        self,
        *,
        end_position: int,
        base_offset: int,
        next_base_offset: int | None = None,
        max_batch_bytes: int = ...,
        path: str | None = None,
        index_interval_bytes: int = 4096,
        offset_entries: OffsetIndexEntries | None = None,
        time_entries: TimeIndexEntries | None = None,
    ) -> None: ...
    def feed(self, chunk: Buffer, position: int) -> int: ...
    def take_headers(self) -> list[BatchHeader]: ...
    status: str
    position: int
    end_position: int
    batch_count: int
    record_count: int
    last_offset: int
    max_timestamp_ms: int
    offset_of_max_timestamp: int
    leader_epoch: int
    next_position: int
    error: KStoreError | None

def patch_batch_header(buffer: Buffer, at: int = 0, *, base_offset: int, partition_leader_epoch: int) -> None: ...

@disjoint_base
class RecordBatchEncoder:
    estimated_compression_ratio: float
    _built: Any
    def __init__(
        self,
        *,
        magic: int = 2,
        compression: str | int = "none",
        level: int | None = None,
        timestamp_type: TimestampType = TimestampType.CREATE_TIME,
        base_offset: int = 0,
        log_append_time_ms: int = -1,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        is_transactional: bool = False,
        is_control: bool = False,
        partition_leader_epoch: int = -1,
        delete_horizon_ms: int | None = None,
        write_limit_bytes: int = 2147483647,
        buffer: ColumnBuffer | None = None,
    ) -> None: ...
    def codec_id_of(self, compression: str | int, level: int | None) -> int: ...
    magic: Final[int]
    base_offset: Final[int]
    next_offset: Final[int]
    last_offset: Final[int | None]
    record_count: Final[int]
    base_timestamp_ms: Final[int]
    max_timestamp_ms: Final[int]
    offset_of_max_timestamp: Final[int]
    records_size_in_bytes: Final[int]
    uncompressed_size_in_bytes: Final[int]
    estimated_size_in_bytes: Final[int]
    compression_ratio: Final[float]
    attributes: Final[int]
    level: Final[int | None]
    log_append_time_ms: Final[int]
    partition_leader_epoch: Final[int]
    producer_id: Final[int]
    producer_epoch: Final[int]
    base_sequence: Final[int]
    write_limit_bytes: Final[int]
    is_open: Final[bool]
    is_closed: Final[bool]
    is_full: Final[bool]
    is_transactional: Final[bool]
    is_control: Final[bool]
    def append(
        self,
        record: Record | None = None,
        /,
        *,
        timestamp_ms: int | None = None,
        key: Buffer | None = None,
        value: Buffer | None = None,
        headers: Iterable[tuple[str, Buffer | None]] = (),
        offset: int | None = None,
    ) -> Self: ...
    def record_size(
        self,
        record: Record | None = None,
        /,
        *,
        timestamp_ms: int | None = None,
        key: Buffer | None = None,
        value: Buffer | None = None,
        headers: Iterable[tuple[str, Buffer | None]] = (),
    ) -> int: ...
    def has_room_for(
        self,
        record: Record | None = None,
        /,
        *,
        timestamp_ms: int | None = None,
        key: Buffer | None = None,
        value: Buffer | None = None,
        headers: Iterable[tuple[str, Buffer | None]] = (),
    ) -> bool: ...
    def set_producer_state(
        self, *, producer_id: int, producer_epoch: int, base_sequence: int, is_transactional: bool
    ) -> None: ...
    def reopen_and_rewrite_producer_state(
        self, *, producer_id: int, producer_epoch: int, base_sequence: int, is_transactional: bool
    ) -> None: ...
    records_type: ClassVar[type]
    def compress_records(self, codec_id: int, records: memoryview, level: int | None) -> Buffer: ...
    def end_appends(self, compress: _Compress) -> None: ...
    def build(self) -> Any: ...
    def finish(self, compress: _Compress) -> ColumnBuffer: ...
    def abort(self) -> None: ...

def set_last_offset(buffer: Buffer, at: int = 0, *, last_offset: int) -> None: ...
def set_partition_leader_epoch(buffer: Buffer, at: int = 0, *, partition_leader_epoch: int) -> None: ...
def batch_size_at(buffer: Buffer, at: int = 0) -> int: ...
def assign_offsets(buffer: Buffer, *, base_offset: int, partition_leader_epoch: int = -1) -> int: ...

@final
class RecordBatchPacker:
    def __init__(
        self,
        *,
        row_count: int,
        timestamp: Any,
        key: Any = None,
        value: Any = None,
        headers: Any = None,
        offset: Any = None,
        units_per_ms: int = 1,
        batch_bytes: int,
        run_bytes: int,
        codec_id: int = 0,
        level: int | None = None,
        timestamp_type: TimestampType = TimestampType.CREATE_TIME,
        log_append_time_ms: int = -1,
        base_offset: int = 0,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        is_transactional: bool = False,
        partition_leader_epoch: int = -1,
    ) -> None: ...
    def next_run(self, compress: _Compress) -> ColumnBuffer | None: ...
    def check_rows(self) -> int: ...
    def sort_by_partition(self, partition_count: int) -> list[int]: ...
    def select(self, *, first: int, count: int) -> None: ...
    def restart(self, *, first: int, count: int, base_offset: int) -> None: ...
    rows_left: Final[int]
    next_record_bytes: Final[int]
    def pack_into(self, batches: list[RecordBatchEncoder]) -> int: ...

@final
class HeldBuffer:
    def __init__(self, data: Buffer, flags: int = ...) -> None: ...

@final
class ExportedBatch:
    def __init__(self, columns: Sequence[tuple[int, int, Sequence[Any], Sequence[Any]]], *, row_count: int) -> None: ...
    @property
    def address(self) -> int: ...

@final
class Columns:
    row_count: Final[int]
    offset: Final[ColumnBuffer | None]
    timestamp: Final[ColumnBuffer | None]
    timestamp_null_count: Final[int]
    timestamp_validity: Final[ColumnBuffer | None]
    lost_timestamp: Final[tuple[int, int] | None]
    key: Final[_Variable | None]
    value: Final[_Variable | None]
    headers: Final[tuple[int, ColumnBuffer | None, ColumnBuffer, int, _Variable, _Variable] | None]
    batches: Final[ColumnBuffer]
    size_in_bytes: Final[int]

@final
class ColumnDecoder:
    def __init__(
        self,
        *,
        key: _Mode | None = None,
        value: _Mode | None = None,
        offset: bool = False,
        timestamp: bool = False,
        headers: bool = False,
        batch_bytes: int,
        max_batch_bytes: int,
        max_decompressed_bytes: int,
        decompress: _Decompress,
        start_offset: int = 0,
        end_offset: int | None = None,
        verify_crc: bool = True,
        aborted: Sequence[tuple[int, int, int]] = (),
    ) -> None: ...
    position: Final[int]
    needed: Final[int]
    row_count: Final[int]
    def start_file(
        self,
        *,
        position: int,
        end_position: int,
        base_offset: int = 0,
        next_base_offset: int | None = None,
        path: str | None = None,
        keeps_chunk: bool = False,
        finds_end: bool = False,
    ) -> None: ...
    def feed(self, chunk: Buffer, position: int) -> None: ...
    def run(self) -> Literal["more", "full", "done"]: ...
    def take(self) -> Columns: ...
