"""Types of the producer's part of the compiled core, which kstore._core has too."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol, final

from typing_extensions import Buffer, disjoint_base

from kstore._core import ColumnBuffer, RecordBatchEncoder
from kstore.errors import KStoreError
from kstore.types import TopicPartition

class _Clock(Protocol):
    def monotonic_ms(self) -> int: ...

@disjoint_base
class PoolMemory:
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
class BatchResult:
    topic_partition: Final[TopicPartition]
    base_offset: Final[int]
    log_append_time_ms: Final[int]
    pieces: Final[tuple[Any, ...]]
    first_indexes: Final[tuple[int, ...]]
    is_done: Final[bool]
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
    def add_watcher(self, watcher: Any) -> bool: ...
    def add_waiter(self, lock: Any) -> bool: ...
    def remove_waiter(self, lock: Any) -> None: ...

@disjoint_base
class RecordFuture:
    produce_result: Final[Any]
    index: Final[int]
    timestamp_ms: Final[int]
    serialized_key_size: Final[int]
    serialized_value_size: Final[int]
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
class BatchAppender:
    future_type: type[RecordFuture]
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
        builder: RecordBatchEncoder,
        created_ms: int,
        *,
        result: Any,
        pool: PoolMemory | None = None,
        estimator: Any = None,
        is_split_batch: bool = False,
    ) -> None: ...
    builder: Final[Any]
    pool: Final[PoolMemory | None]
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
