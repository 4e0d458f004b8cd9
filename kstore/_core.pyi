"""Types of the compiled core. The docstrings are in its parts, kstore/core."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from types import GenericAlias, ModuleType
from typing import Any, ClassVar, Final, Generic, Literal, Protocol, final

from typing_extensions import Buffer, Self, TypeVar, disjoint_base

from kstore.config import LogConfig
from kstore.errors import DecompressionError, KStoreError
from kstore.types import OffsetAndTimestamp, Time, TimestampType, TopicPartition

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
CODEC_BITS: Final[int]
CODEC_NAMES: Final[dict[int, str]]
BUILD: Final[Literal["release", "fast", "debug"]]
TIMESTAMP_TYPE_BIT: Final[int]
TRANSACTIONAL_BIT: Final[int]
CONTROL_BIT: Final[int]
DELETE_HORIZON_BIT: Final[int]

_Decompress = Callable[..., Buffer]
_Compress = Callable[[int, memoryview, int | None], Buffer]
_Key = TypeVar("_Key", covariant=True, default=Any)
_Value = TypeVar("_Value", covariant=True, default=Any)
_Mode = Literal["copy", "view", "string"]
_Variable = tuple[int, ColumnBuffer | None, ColumnBuffer, list[Any]]

def crc32c(data: Buffer, value: int = 0) -> int: ...
def crc32c_by(path: str, data: Buffer, value: int = 0) -> int: ...
def text_classes(data: bytes, *, is_portable: bool) -> tuple[int, int]: ...
def short_text(data: bytes, *, size: int, is_portable: bool) -> tuple[bool, bytes]: ...
def has_bits(data: bytes, mask: bytes, bits: bytes, *, is_portable: bool) -> bool: ...
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
def next_zstd_frame(payload: Buffer, position: int) -> tuple[int, int, int, int]: ...

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
    def check_place(
        self, *, least_offset: int, next_base_offset: int | None = None, path: str | None = None
    ) -> None: ...

def increment_sequence(sequence: int, *, count: int) -> int: ...
def read_header(
    buffer: Buffer,
    at: int = 0,
    *,
    position: int,
    path: str | None = None,
    max_batch_bytes: int = ...,
    end_position: int = ...,
) -> BatchHeader: ...
def sound_headers(
    buffer: Buffer,
    at: int = 0,
    *,
    position: int,
    least_offset: int,
    next_base_offset: int | None = None,
    max_batch_bytes: int = ...,
) -> list[BatchHeader]: ...
def next_header(
    buffer: Buffer,
    at: int = 0,
    *,
    position: int,
    left: int | None = None,
    path: str | None = None,
    max_batch_bytes: int = ...,
) -> BatchHeader | None: ...
def check_crc(buffer: Buffer, *, position: int, path: str | None = None) -> None: ...
def sizes_by_crc(buffer: Buffer) -> list[int]: ...
def find_batch_header(
    buffer: Buffer, at: int = 0, *, least_offset: int, most_offset: int, max_batch_bytes: int
) -> int: ...
def find_last_record(buffer: Buffer, before: int) -> int | None: ...
def find_record_around(buffer: Buffer, *, start: int, end: int, ends: Iterable[int], messages: bool = False) -> int: ...

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
        next_base_offset: int | None = None,
        stop_offset: int | None = None,
        stop_timestamp_ms: int | None = None,
        stop_attributes: int = 0,
        producer_ids_below: int | None = None,
    ) -> None: ...
    def feed(self, chunk: Buffer, position: int) -> int: ...
    status: Final[Literal["more", "found", "end", "torn", "zeros", "corrupt"]]
    position: Final[int]
    batch_count: Final[int]
    record_count: Final[int]
    last_position: Final[int]
    last_offset: Final[int]
    magics: Final[frozenset[int]]
    codec_ids: Final[frozenset[int]]
    max_timestamp_ms: Final[int]
    offset_of_max_timestamp: Final[int]
    max_leader_epoch: Final[int]
    max_producer_id: Final[int]
    found: Final[BatchHeader | None]
    error: Final[KStoreError | None]

@final
class Record(Generic[_Key, _Value]):
    def __init__(
        self: Record[Any, Any],
        *,
        offset: int = -1,
        timestamp_ms: Time = -1,
        key: Buffer | None = None,
        value: Buffer | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
        timestamp_type: TimestampType = ...,
        topic_partition: TopicPartition | None = None,
        sequence: int = -1,
        is_control: bool = False,
    ) -> None: ...
    offset: Final[int]
    timestamp_ms: Final[int]
    timestamp_type: Final[TimestampType]
    headers: Final[tuple[tuple[str, bytes | None], ...]]
    topic_partition: Final[TopicPartition | None]
    sequence: Final[int]
    is_control: Final[bool]
    @property
    def key(self) -> _Key: ...
    @property
    def value(self) -> _Value: ...
    @property
    def topic(self) -> str | None: ...
    @property
    def partition(self) -> int | None: ...
    @property
    def timestamp(self) -> datetime | None: ...
    def __replace__(self, /, **changes: Any) -> Record[Any, Any]: ...
    def __class_getitem__(cls, item: Any) -> GenericAlias: ...
    def __hash__(self) -> int: ...
    def __eq__(self, value: object, /) -> bool: ...

def with_content(record: Record, key: Any, value: Any) -> Record: ...

@final
class RecordIterator:
    first_offset: Final[int]
    incomplete_bytes: Final[int]
    def __iter__(self) -> Self: ...
    def __next__(self) -> Record: ...
    def find(self, offset: int) -> Record | None: ...
    def take(self, *, most_records: int, most_bytes: int) -> list[Record]: ...

@final
class RunIterator:
    def __iter__(self) -> Self: ...
    def __next__(self) -> Record: ...

@disjoint_base
class MemoryRecordsCore:
    def __init__(
        self,
        buffer: Buffer,
        *,
        position: int = 0,
        path: str | None = None,
        topic_partition: TopicPartition | None = None,
        config: LogConfig | None = ...,
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
    allows_low_last_offset: bool = False,
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

@final
class RecordLines:
    def __new__(cls, steps: Iterable[bytes | str]) -> Self: ...

def lines_of_records(
    records: RecordIterator,
    lines: RecordLines,
    *,
    start_offset: int,
    end_offset: int,
    since_ms: int,
    until_ms: int,
    limit: int,
    most_bytes: int,
) -> tuple[bytes, int] | None: ...

@final
class RecordMatcher:
    def __init__(
        self,
        *,
        key: bytes | None = None,
        key_part: bytes | None = None,
        value_part: bytes | None = None,
        headers: Iterable[tuple[bytes, bytes | None]] = (),
        key_table: bytes | None = None,
        value_table: bytes | None = None,
        key_test: Callable[[bytes], object] | None = None,
        value_test: Callable[[bytes], object] | None = None,
        producer_id: int | None = None,
    ) -> None: ...
    def pass_over(
        self,
        chunk: Buffer,
        at: int = 0,
        *,
        position: int,
        end_position: int,
        least_offset: int,
        next_base_offset: int | None,
        max_batch_bytes: int,
    ) -> tuple[int, int]: ...

def find_records(
    records: RecordIterator, matcher: RecordMatcher, *, most_records: int, most_bytes: int
) -> list[Record]: ...
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
    truncation_count: int
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
    def slot_of_position(self, position: int) -> int: ...
    def last_batch_before(
        self, pread: Callable[..., bytes], *, end_position: int, max_batch_bytes: int
    ) -> tuple[int, int, bytes] | None: ...

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
        decompress: _Decompress | None = None,
        max_decompressed_bytes: int = ...,
        path: str | None = None,
        topic_partition: TopicPartition | None = None,
    ) -> None: ...
    def batch_of_offset(self, offset: int) -> BatchHeader | None: ...
    def batch_after(self, start: BatchHeader, offset: int) -> BatchHeader | None: ...
    def record_of_offset(
        self,
        offset: int,
        unproven: Record,
        check: Callable[[], object] | None = None,
        is_left_out: Callable[[BatchHeader], bool] | None = None,
    ) -> Record | None: ...
    def record_of_timestamp(self, timestamp_ms: int, *, start_offset: int) -> OffsetAndTimestamp | None: ...
    def batch_of_timestamp(self, timestamp_ms: int, *, start_offset: int) -> tuple[int, BatchHeader, bytes] | None: ...
    def note_checked(self, slot: int, data: bytes) -> None: ...

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

@final
class OffsetMap:
    entry_count: int
    most_entries: int
    latest_offset: int
    memory_bytes: int
    size_in_bytes: int
    def __init__(self, *, memory_bytes: int, load_factor: float, secret: Buffer) -> None: ...
    def grow(self, *, memory_bytes: int, load_factor: float) -> None: ...
    def put(self, key: Buffer, offset: int) -> bool: ...
    def get(self, key: Buffer) -> int: ...
    def remove(self, key: Buffer) -> bool: ...
    def remove_below(self, offset: int) -> None: ...
    def pass_to(self, offset: int) -> None: ...

def count_keys(maps: Iterable[OffsetMap]) -> int: ...
def siphash128(data: Buffer, key: Buffer) -> bytes: ...

@final
class CompactionPass:
    def __init__(
        self,
        offset_map: OffsetMap,
        *,
        aborted: Iterable[tuple[int, int, int]],
        decompress: Callable[..., Buffer],
        compress: Callable[[int, bytes, int], Buffer] | None = None,
        now_ms: int = 0,
        delete_retention_ms: int = 0,
        start_offset: int,
        high_watermark: int = ...,
        max_batch_bytes: int = ...,
        max_decompressed_bytes: int = ...,
        only_looks: bool = ...,
        removes_tombstones: bool = ...,
        end_offset: int = ...,
    ) -> None: ...
    is_full: bool
    is_past_end: bool
    position: int
    last_position: int
    keyless: tuple[int, int | None]
    totals: tuple[int, int, int, int, int]
    def set_last_records(self, records: Iterable[tuple[int, int, int]]) -> None: ...
    def start_segment(
        self,
        *,
        base_offset: int,
        next_base_offset: int | None,
        end_position: int,
        position: int = 0,
        keeps_old_tombstones: bool = True,
        path: str | None = None,
    ) -> None: ...
    def map_keys(self, chunk: Buffer, position: int) -> int: ...
    def filter_records(self, chunk: Buffer, position: int) -> int: ...
    def take_output(self) -> bytes: ...
    def take_aborted(self) -> list[tuple[int, int]]: ...
    def take_dropped(self) -> list[tuple[int, int]]: ...

def patch_batch_header(buffer: Buffer, at: int = 0, *, base_offset: int, partition_leader_epoch: int) -> None: ...

@disjoint_base
class MemoryRecordsBuilderCore:
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

def append_of_builder(
    self: MemoryRecordsBuilderCore,
    record: Record | None = None,
    /,
    *,
    timestamp_ms: int | None = None,
    key: Buffer | None = None,
    value: Buffer | None = None,
    headers: Iterable[tuple[str, Buffer | None]] = (),
    offset: int | None = None,
) -> MemoryRecordsBuilderCore: ...
def set_last_offset(buffer: Buffer, at: int = 0, *, last_offset: int) -> None: ...
def set_partition_leader_epoch(buffer: Buffer, at: int = 0, *, partition_leader_epoch: int) -> None: ...
def batch_size_at(buffer: Buffer, at: int = 0) -> int: ...
def assign_offsets(buffer: Buffer, *, base_offset: int, partition_leader_epoch: int = -1) -> int: ...
def stamp_batches(
    buffer: Buffer,
    *,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    position: int = 0,
    path: str | None = None,
) -> tuple[list[int], int]: ...

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
    def pack_into(self, batches: list[MemoryRecordsBuilderCore]) -> int: ...

@final
class HeldBuffer:
    def __init__(self, data: Buffer, flags: int = ...) -> None: ...

VALUE_LAYOUTS: Final[dict[str, int]]
AVRO_STEPS: Final[dict[str, int]]
JSON_NODES: Final[dict[str, int]]
AVRO_SKIPS: Final[dict[str, int]]
VALUE_FRAMINGS: Final[dict[str, int]]
VALUE_STOPS: Final[dict[str, int]]
VALUE_FAULTS: Final[tuple[str, ...]]

@final
class ValueColumns:
    def __init__(self, layout: Sequence[tuple[int, int, int, int]], *, most_bytes: int) -> None: ...
    most_bytes: Final[int]
    @property
    def row_count(self) -> int: ...
    @property
    def least_bytes(self) -> int: ...
    def take(self) -> tuple[int, int, Sequence[Any], Sequence[Any]]: ...

@final
class AvroProgram:
    def __init__(
        self,
        columns: ValueColumns,
        steps: Sequence[tuple[int, int, int, int, int, int, int]],
        references: Sequence[int],
        constants: bytes,
        *,
        root: int,
    ) -> None: ...

@final
class JsonProgram:
    def __init__(
        self, columns: ValueColumns, nodes: Sequence[tuple[int, int, int, int, int, int, int]], names: bytes
    ) -> None: ...

@final
class ValueDecoder:
    def __init__(
        self,
        columns: ValueColumns,
        *,
        framing: Literal["none", "confluent", "apicurio"],
        allows_trailing: bool,
    ) -> None: ...
    columns: Final[ValueColumns]
    schema_id: int
    def add(self, schema_id: int, program: AvroProgram | JsonProgram | None) -> None: ...
    def forget(self, *, keeps_readable: bool) -> None: ...
    def decode(
        self,
        validity: Buffer | None,
        index: Buffer,
        data: Buffer | list[Buffer] | None,
        *,
        first: int,
        row_count: int,
        row: int = 0,
        ids: Buffer | None = None,
    ) -> tuple[int, int]: ...
    def faults(self) -> list[tuple[int, str, int, int, int]]: ...

@final
class ExportedBatch:
    def __init__(self, columns: Sequence[tuple[int, int, Sequence[Any], Sequence[Any]]], *, row_count: int) -> None: ...
    @property
    def address(self) -> int: ...

@final
class Columns:
    row_count: Final[int]
    start: Final[int]
    end: Final[int]
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
    def slice(self, start: int, *, end: int) -> Columns: ...
    def exported(self, name: str) -> tuple[int, int, Sequence[Any], Sequence[Any]]: ...

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
        allows_low_last_offset: bool = False,
        aborted: Sequence[tuple[int, int, int]] = (),
    ) -> None: ...
    position: Final[int]
    needed: Final[int]
    last_position: Final[int]
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
    def note_last(self, reads: DirectReads) -> None: ...
    def run(self, reads: DirectReads | None = None) -> Literal["more", "full", "done"]: ...
    def take(self) -> Columns: ...
    def full_tables(
        self, read_chunk: Callable[[ColumnDecoder], Buffer] | None = None, reads: DirectReads | None = None
    ) -> Iterator[Columns]: ...

@final
class DirectReads:
    last: Final[tuple[int, bytes] | None]
    def __init__(self, *, chunk_bytes: int) -> None: ...
    def begin(self, file: PositionedFile, last: tuple[int, Buffer] | None = None) -> None: ...
    def hold_to(
        self,
        position: int,
        header: Buffer,
        *,
        file: PositionedFile | None = None,
        path: str | None = None,
        identity: tuple[int, int, int] | None = None,
    ) -> None: ...
    def is_anchor_in_place(self) -> bool: ...

def file_status(of: str | int, *, follow_symlinks: bool = True) -> tuple[int, int, int, int, int, int] | None: ...
def regular_sizes(directory: str, names: Iterable[str]) -> list[int | None] | None: ...
def read_small_file(path: str, *, max_bytes: int) -> bytes | None: ...
def are_cached(fd: int, *, position: int, size: int) -> bool | None: ...
def send_part(fd: int, data: bytes | bytearray | memoryview, *, is_last: bool) -> int: ...

@final
class MappedBytes:
    size_in_bytes: Final[int]
    def __init__(self, fd: int, *, size: int) -> None: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

@disjoint_base
class PositionedFile:
    path: str
    _fd: int
    def __init__(
        self, fd: int, *, path: str, system: ModuleType, to_error: Callable[[str, str, OSError], Exception]
    ) -> None: ...
    def fileno(self) -> int: ...
    def pread(self, size: int, *, position: int) -> bytes: ...
    def pread_cached(self, size: int, *, position: int) -> bytes | None: ...
    def map(self, size: int) -> MappedBytes: ...
    def walk_cached(self, scan: HeaderScan) -> None: ...
    def close(self) -> None: ...

@disjoint_base
class FetchRangeCore:
    _loan: Any
    file: Any
    position: Final[int]
    size_in_bytes: Final[int]
    def __init__(self, bounds: Any, records: Any = None, *, position: int = 0, size_in_bytes: int = 0) -> None: ...
    def __len__(self) -> int: ...
    def bounds(self) -> Any: ...
    def close(self) -> None: ...

class PositionedWriteFile(PositionedFile):
    def pwrite(self, data: bytes | bytearray | memoryview, *, position: int) -> None: ...

@final
class StampedBatch:
    def __len__(self) -> int: ...
    def __bytes__(self) -> bytes: ...

WRITE_BYTES: Final[int]

@disjoint_base
class AppendedFile:
    _size_in_bytes: int
    _writer: Any
    _plain_writer: PositionedWriteFile | None
    _failure: Any
    _is_closed: bool
    _is_undoing: bool
    def append_bytes(self, batches: bytes | bytearray | memoryview) -> int: ...
    def append_parts(self, parts: list[Buffer], size_in_bytes: int) -> int: ...

def open_watches() -> int: ...
def add_watch(fd: int, path: bytes) -> int: ...
def remove_watch(fd: int, *, watch: int) -> None: ...
def is_watchable(path: bytes) -> bool: ...

BATCHES_KEPT: Final[int]

@final
class AppendSurvey:
    records: Final[bytes | bytearray | memoryview]
    size_in_bytes: Final[int]
    batch_count: Final[int]
    first_offset: Final[int]
    last_offset: Final[int]
    max_timestamp_ms: Final[int]
    offset_of_max_timestamp: Final[int]
    disorder_position: Final[int]
    leader_epoch: Final[int]
    is_one_epoch: Final[bool]
    has_messages: Final[bool]
    has_producers: Final[bool]

def survey_replicated(
    records: bytes | bytearray | memoryview,
    *,
    max_batch_bytes: int = ...,
    path: str | None = None,
    position: int = 0,
) -> AppendSurvey: ...

@final
class LeaderAssigner:
    def __init__(
        self,
        *,
        max_message_bytes: int,
        timestamp_before_max_ms: int,
        timestamp_after_max_ms: int,
        is_compacted: bool,
        is_log_append_time: bool,
        codec_id: int = 0,
        max_decompressed_bytes: int = ...,
        decompress: Callable[..., bytes | bytearray | memoryview] | None = None,
    ) -> None: ...

@disjoint_base
class ProducerStateEntryCore:
    producer_id: Final[int]
    producer_epoch: int
    coordinator_epoch: int
    last_timestamp_ms: int
    current_txn_first_offset: int
    kept_batches: Final[list[tuple[int, int, int, int]]]
    last_sequence: Final[int]
    has_open_transaction: Final[bool]
    def __init__(
        self,
        producer_id: int,
        *,
        producer_epoch: int = ...,
        coordinator_epoch: int = ...,
        last_timestamp_ms: int = ...,
        current_txn_first_offset: int = ...,
        batches: Iterable[tuple[int, int, int, int]] = (),
    ) -> None: ...
    def copy(self) -> Self: ...
    def add_batch(self, *, base_sequence: int, base_offset: int, last_offset: int, timestamp_ms: int) -> None: ...
    def forget_batches(self) -> None: ...

@final
class SegmentAppender:
    first_timestamp_ms: int
    def __init__(
        self,
        offset_entries: OffsetIndexEntries,
        time_entries: TimeIndexEntries,
        *,
        write: Callable[[bytes | bytearray | memoryview], object],
        write_parts: Callable[[list[Buffer], int], object],
        write_index_pages: Callable[[], None],
        index_interval_bytes: int,
        segment_bytes: int,
        max_age_ms: int,
        created_ms: int,
        start_write_back: Callable[[int], None] | None = None,
        size_in_bytes: int = 0,
        first_timestamp_ms: int = -1,
        max_timestamp_ms: int = -1,
        offset_of_max_timestamp: int = -1,
    ) -> None: ...
    size_in_bytes: Final[int]
    bytes_since_last_index_entry: Final[int]
    max_timestamp_ms: Final[int]
    offset_of_max_timestamp: Final[int]
    def expect_flush(self) -> None: ...
    def should_roll(self, survey: AppendSurvey, *, now_ms: int) -> bool: ...
    def append(self, survey: AppendSurvey) -> None: ...

@final
class ProducerTable:
    entries: Final[dict[int, Any]]
    verifications: Final[dict[int, Any]]

@final
class LogAppender:
    log_start_offset: int
    leader_epoch: int
    def __init__(
        self,
        info_type: type[tuple[Any, ...]],
        *,
        assigner: LeaderAssigner | None,
        max_batch_bytes: int,
        log_start_offset: int,
        leader_epoch: int,
        producers: ProducerTable | None = None,
    ) -> None: ...
    published: Final[Any]
    log_end_offset: Final[int]
    def publish(self, sealed: object, active: object, segment: SegmentAppender, *, log_end_offset: int) -> None: ...
    def append_as_leader(
        self, records: bytes | bytearray | memoryview, *, leader_epoch: int | None, now_ms: int
    ) -> Any: ...
    def append_all_as_leader(self, batches: list[Any], done: list[Any], *, now_ms: int) -> int: ...
    def is_small_and_plain(self, records: bytes | bytearray | memoryview) -> bool: ...
    def append_as_follower(self, records: bytes | bytearray | memoryview) -> Any: ...
    def append(self, survey: AppendSurvey, *, log_append_time_ms: int) -> Any: ...
    def info_of(self, survey: AppendSurvey, *, log_append_time_ms: int) -> Any: ...

@disjoint_base
class LeaderLog:
    _system_wall_clock_ms: Any
    def append(
        self,
        records: Any,
        *,
        ack: Any = "written",
        partition_leader_epoch: int | None = None,
        origin: Any = None,
        guard: Any = None,
        expected_end_offset: int | None = None,
        expected_key_offset: int | None = None,
        atomic: bool = False,
    ) -> Any: ...

class _Clock(Protocol):
    def monotonic_ms(self) -> int: ...

@disjoint_base
class BufferPoolCore:
    make_lock: Callable[[], Any]
    buffer_exhausted_count: Final[int]
    def __init__(self, memory: int, poolable_size: int, *, clock: _Clock) -> None: ...
    memory: Final[int]
    poolable_size: Final[int]
    is_closed: Final[bool]
    available_memory: Final[int]
    unallocated_memory: Final[int]
    queued: Final[int]
    gathered_memory: Final[int]
    wait_time_ns: Final[int]
    def allocate(self, size: int, *, max_time_to_block_ms: int) -> ColumnBuffer: ...
    def allocate_into(self, held: list[Any], size: int, *, max_time_to_block_ms: int) -> None: ...
    def deallocate(self, buffer: ColumnBuffer) -> None: ...
    def deallocate_all(self, held: list[Any]) -> None: ...
    def try_reserve(self, size: int) -> bool: ...
    def release(self, size: int) -> None: ...
    def allocate_anyway(self, size: int) -> ColumnBuffer: ...
    def close(self) -> None: ...
    def cycle(self, count: int) -> int: ...

def estimate_size_in_bytes_upper_bound(
    *,
    magic: int,
    compression: int,
    key: Buffer | None = None,
    value: Buffer | None = None,
    headers: Iterable[tuple[str, Buffer | None]] = (),
) -> int: ...

@disjoint_base
class ProduceRequestResultCore:
    topic_partition: Final[TopicPartition]
    base_offset: Final[int]
    log_append_time_ms: Final[int]
    pieces: Final[tuple[Any, ...]]
    first_indexes: Final[tuple[int, ...]]
    is_done: Final[bool]
    is_awaited: Final[bool]
    def __init__(self, topic_partition: TopicPartition) -> None: ...
    def set(
        self,
        base_offset: int,
        *,
        log_append_time_ms: int = -1,
        error_of: Callable[[int], KStoreError] | None = None,
    ) -> None: ...
    def point_to(self, pieces: tuple[Any, ...], first_indexes: tuple[int, ...]) -> None: ...
    def end(self) -> Sequence[Any]: ...
    def error_of(self, index: int) -> KStoreError | None: ...
    def hurry(self) -> None: ...
    def send_now(self) -> bool: ...
    def add_watcher(self, watcher: Any) -> bool: ...
    def add_waiter(self, lock: Any) -> bool: ...
    def remove_waiter(self, lock: Any) -> None: ...

@disjoint_base
class FutureRecordMetadataCore:
    produce_result: Final[Any]
    index: Final[int]
    timestamp_ms: Final[int]
    serialized_key_size: Final[int]
    serialized_value_size: Final[int]
    callbacks: Final[list[Callable[[Any], object]] | None]
    def metadata_now(self, metadata_type: type, *, waits: bool) -> Any: ...
    def made_callbacks(self) -> list[Callable[[Any], object]]: ...
    def __init__(
        self,
        produce_result: Any,
        *,
        index: int,
        timestamp_ms: int,
        serialized_key_size: int,
        serialized_value_size: int,
    ) -> None: ...

@final
class RecordAppendResult:
    produce_result: Final[Any]
    callback: Final[Any]
    timestamp_ms: Final[int]
    index: Final[int]
    serialized_key_size: Final[int]
    serialized_value_size: Final[int]
    partition: Final[int]
    appended_bytes: Final[int]
    batch_is_full: Final[bool]
    new_batch_created: Final[bool]
    abort_for_new_batch: Final[bool]
    future: Final[Any]

@disjoint_base
class ProducerBatchCore:
    future_type: type[FutureRecordMetadataCore]
    is_inflight: bool
    topic_partition: Final[TopicPartition]
    result: Final[Any]
    estimator: Final[Any]
    final_state: Final[Any]
    created_ms: Final[int]
    last_append_ms: Final[int]
    last_attempt_ms: Final[int]
    drained_ms: Final[int]
    max_record_size: Final[int]
    attempts: Final[int]
    send_count: Final[int]
    is_deallocated: Final[bool]
    is_split_batch: Final[bool]
    in_retry: bool
    is_in_doubt: bool
    current_leader_epoch: Final[int | None]
    def __init__(
        self,
        topic_partition: TopicPartition,
        builder: MemoryRecordsBuilderCore,
        created_ms: int,
        *,
        result: Any,
        pool: BufferPoolCore | None = None,
        estimator: Any = None,
        is_split_batch: bool = False,
    ) -> None: ...
    builder: Final[Any]
    pool: Final[BufferPoolCore | None]
    record_count: Final[int]
    magic: Final[int]
    is_compressed: Final[bool]
    is_transactional: Final[bool]
    producer_id: Final[int]
    producer_epoch: Final[int]
    base_sequence: Final[int]
    last_sequence: Final[int]
    has_sequence: Final[bool]
    sequence_has_been_reset: Final[bool]
    is_done: Final[bool]
    is_closed: Final[bool]
    is_writable: Final[bool]
    is_full: Final[bool]
    estimated_size_in_bytes: Final[int]
    compression_ratio: Final[float]
    counted_bytes: Final[int]
    has_leader_changed_for_the_ongoing_retry: Final[bool]
    def append_record(
        self,
        timestamp_ms: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: Iterable[tuple[str, Buffer | None]],
        callback: Callable[[Any, Any], object] | None,
        now_ms: int,
    ) -> RecordAppendResult | None: ...
    def try_append(
        self,
        timestamp_ms: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: Iterable[tuple[str, Buffer | None]],
        callback: Callable[[Any, Any], object] | None,
        now_ms: int,
    ) -> Any: ...
    def close_for_record_appends(self) -> None: ...
    def compress_records(self) -> None: ...
    def abort_record_appends(self) -> None: ...
    def seal(self) -> Any: ...
    def set_producer_state(
        self, *, producer_id: int, producer_epoch: int, base_sequence: int, is_transactional: bool
    ) -> None: ...
    def reset_producer_state(
        self, *, producer_id: int, producer_epoch: int, base_sequence: int, is_transactional: bool
    ) -> None: ...
    def begin_send(self) -> None: ...
    def end_send(self) -> None: ...
    def deallocate(self) -> bool: ...
    def deallocate_once(self) -> bool: ...
    def set_final_state(self, state: object) -> bool: ...
    def take_thunks(self) -> list[RecordAppendResult]: ...
    def adopt(self, thunk: RecordAppendResult, *, index: int) -> None: ...
    def drained(self, now_ms: int) -> None: ...
    def reenqueued(self, now_ms: int) -> None: ...
    def maybe_update_leader_epoch(self, leader_epoch: int | None) -> None: ...

_Headers = Iterable[tuple[str, Buffer | None]]
_Callback = Callable[[Any, Any], object]

@disjoint_base
class OwnedLock:
    is_held_here: Final[bool]
    def __init__(self, lock: Any) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *exception: object) -> None: ...

@final
class TriedLock:
    def __init__(self, lock: Any) -> None: ...
    def __enter__(self) -> bool: ...
    def __exit__(self, *exception: object) -> None: ...

@final
class Bell:
    is_rung: Final[bool]
    def __init__(self, lock: Any, *, patience_s: float = 0, work: dict[Any, Any] | None = None) -> None: ...
    def ring(self) -> None: ...
    def call(self) -> None: ...
    def wait(self, timeout_s: float) -> None: ...

@final
class PartitionQueue(OwnedLock):
    topic_partition: Final[TopicPartition]
    is_muted: bool
    def __init__(
        self,
        topic_partition: TopicPartition,
        *,
        lock: Any,
        active: dict[PartitionQueue, None],
        wake_sender: Callable[[], object] | None = None,
        direct: DirectSend | None = None,
    ) -> None: ...
    def __len__(self) -> int: ...
    def copy(self) -> list[Any]: ...
    first: Final[Any]
    last: Final[Any]
    is_full: Final[bool]
    is_first_due: Final[bool]
    def send_now(self, result: ProduceRequestResultCore) -> None: ...
    def push_first(self, batch: ProducerBatchCore) -> None: ...
    def push_last(self, batch: ProducerBatchCore) -> None: ...
    def insert(self, place: int, batch: ProducerBatchCore) -> None: ...
    def pop_first(self) -> Any: ...
    def remove(self, batch: ProducerBatchCore) -> bool: ...
    def append_to_last(
        self,
        timestamp_ms: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: _Headers,
        callback: _Callback | None,
        *,
        now_ms: int,
    ) -> RecordAppendResult | None: ...
    def stopped_before_new_batch(self) -> RecordAppendResult: ...

@final
class StickyPartitionInfo:
    partition: Final[int]
    produced_bytes: Final[int]
    sticky_batch_size: Final[int]
    def __init__(self, partition: int, *, sticky_batch_size: int) -> None: ...
    def add(self, appended_bytes: int) -> None: ...
    def has_enough(self, *, has_room: bool) -> bool: ...

@final
class TopicQueues:
    partitioner: Final[Any]
    queues: Final[dict[int, PartitionQueue]]
    is_sticky_used: Final[bool]
    def __init__(self, partitioner: Any) -> None: ...
    def __len__(self) -> int: ...
    def add(self, queue: PartitionQueue) -> PartitionQueue: ...
    def size_of(self, partition: int) -> int: ...
    def stick(self, info: StickyPartitionInfo, queue: PartitionQueue) -> None: ...
    def unstick(self, info: StickyPartitionInfo) -> None: ...

@final
class OpenTransaction:
    is_open: bool
    partitions: Final[set[TopicPartition]]

@disjoint_base
class RecordAccumulatorCore:
    topics: Final[dict[str, TopicQueues]]
    active: Final[dict[PartitionQueue, None]]
    pool: Final[Any]
    batch_size: int
    is_closed: bool
    open_transaction: Final[OpenTransaction | None]
    is_held_here: Final[bool]
    future_type: Any
    def __init__(
        self,
        *,
        pool: BufferPoolCore,
        batch_size: int,
        model: MemoryRecordsBuilderCore,
        batch_type: type[ProducerBatchCore],
        result_type: type[ProduceRequestResultCore],
        estimator: Any,
        incomplete: dict[Any, None],
        append_slowly: Callable[..., RecordAppendResult],
        open_transaction: OpenTransaction | None = None,
    ) -> None: ...
    def append(
        self,
        topic: str,
        partition: int | None,
        timestamp_ms: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: _Headers = (),
        callback: _Callback | None = None,
        *,
        max_time_to_block_ms: int,
        now_ms: int,
        cluster: Any,
        abort_on_new_batch: bool = False,
    ) -> RecordAppendResult: ...
    def append_first(
        self,
        queue: PartitionQueue,
        held: list[Any],
        timestamp_ms: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: _Headers,
        callback: _Callback | None,
        *,
        now_ms: int,
    ) -> RecordAppendResult: ...
    def open_batches(
        self, batches: list[Any], topic_partition: TopicPartition, held: list[Any], now_ms: int, *, most: int
    ) -> None: ...

def pack_rows_into(batches: list[Any], packer: RecordBatchPacker) -> int: ...

@disjoint_base
class ProducerCore:
    _uses_fast_path: bool
    _partition_counts: dict[str, int]
    def __init__(
        self,
        accumulator: RecordAccumulatorCore,
        *,
        serialize: Callable[[str, Any, Any, str], bytes | None],
        wake_sender: Callable[[], object],
        call_sender: Callable[[], object],
        send_slowly: Callable[..., Any],
        send_serialized: Callable[..., Any],
        key_serializer: Callable[[Any], bytes | None] | None,
        value_serializer: Callable[[Any], bytes | None] | None,
        max_record_bytes: int,
        ignores_keys: bool,
        clock: Any = None,
    ) -> None: ...
    def send(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        headers: Any = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: _Callback | None = None,
    ) -> Any: ...

_Sum = tuple[float, float]

def push_batches(queue: PartitionQueue, batches: list[Any], count: int, incomplete: dict[Any, None]) -> None: ...
def give_up(pool: BufferPoolCore, held: list[Any], batches: list[Any]) -> None: ...

@disjoint_base
class DrainRequest:
    batches: Final[list[Any]]
    now_ms: Final[int]
    size: Final[int]
    is_full: Final[bool]
    was_changed: Final[bool]
    def __init__(self, *, max_size: int, now_ms: int, linger_ms: int) -> None: ...
    def due(self, queue: PartitionQueue, *, is_first: bool) -> Any: ...
    def admits(self, batch: ProducerBatchCore) -> bool: ...
    def take(self, queue: PartitionQueue) -> list[Any]: ...
    def plain_rounds(self, queues: list[PartitionQueue], *, most: int) -> list[int]: ...
    def take_plain(self, queue: PartitionQueue, most: int, leader_epoch: int | None) -> list[Any]: ...
    def close(self, taken: list[Any]) -> list[Any]: ...

def number_batches(
    batches: list[Any], *, producer_id: int, producer_epoch: int, base_sequence: int, is_transactional: bool
) -> int: ...
def begin_sends(batches: list[Any], created_before_ms: int) -> tuple[list[Any], list[Any]]: ...
def end_sends(batches: list[Any]) -> None: ...
def records_of_batches(batches: list[Any]) -> list[Any]: ...

@final
class RequestSums:
    batches: Final[int]
    records: Final[int]
    latency_ms: Final[int]
    greatest_latency_ms: Final[int]
    last_ms: Final[int]
    def values(self) -> list[_Sum]: ...

def sums_of_request(batches: list[Any]) -> RequestSums: ...
def answered_from(batches: list[Any], responses: list[Any], start: int, response_type: type) -> int: ...
def complete_batches(
    batches: list[Any],
    responses: list[Any],
    *,
    start: int,
    end: int,
    state: object,
    incomplete: dict[Any, None],
    complete: Callable[[Any, Any], object],
) -> None: ...

@final
class DirectSend:
    returned: Final[list[Any]]
    ended: Final[list[tuple[Any, Sequence[Any]]]]
    is_closed: Final[bool]
    is_wanted: Final[bool]
    is_held_here: Final[bool]
    has_work: Final[bool]
    def __init__(
        self,
        lock: Any,
        *,
        wake_sender: Callable[[], object],
        sequences_of: Callable[[TopicPartition], Any],
        append: Callable[[TopicPartition, Any], Any],
        incomplete: dict[Any, None],
        state: Any,
        delivery_timeout_ms: int,
        clock: Any = None,
    ) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *exception: object) -> None: ...
    def close(self) -> None: ...
    def take_sums(self) -> RequestSums | None: ...
    def send(self, queue: PartitionQueue, result: ProduceRequestResultCore) -> None: ...

@final
class LoopBatch:
    index: ClassVar[int]
    result: Final[ProduceRequestResultCore]
    left: Final[int]
    def __init__(self, result: ProduceRequestResultCore, when_done: Callable[[LoopBatch], object]) -> None: ...
    def settle(self) -> None: ...
    def set_some(self, most: int, metadata_type: type, set_slowly: Callable[[Any, Any], object]) -> int: ...

@disjoint_base
class LoopSender:
    _new_future: Callable[[], Any] | None
    _may_send: bool
    _waiting_count: int
    _batches: Final[dict[Any, LoopBatch]]
    _newest: Final[LoopBatch | None]
    def __init__(self, producer: ProducerCore, *, would_block: type[Exception]) -> None: ...
    def send_nowait(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        headers: Any = (),
        partition: int | None = None,
        timestamp_ms: Any = None,
        on_delivery: Any = None,
    ) -> Any: ...
    def _sent_now(
        self,
        topic: str,
        value: Any,
        key: Any,
        headers: Any,
        partition: int | None,
        timestamp_ms: Any,
        on_delivery: Any,
    ) -> Any: ...
    def _future_of(self, sent: Any) -> Any: ...
    def _forget(self, batch: LoopBatch) -> None: ...

def record_size(record: Record) -> int: ...
def take_records(
    records: Iterable[Any], into: list[Any], *, least_offset: int, most_records: int, most_bytes: int
) -> tuple[int, bool]: ...
