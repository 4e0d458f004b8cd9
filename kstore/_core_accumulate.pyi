"""Types of the accumulator's part of the compiled core, which kstore._core has too."""

from collections.abc import Callable, Iterable
from typing import Any, Final, final

from typing_extensions import Buffer, Self, disjoint_base

from kstore._core import (
    BatchAppender,
    BatchResult,
    PoolMemory,
    RecordAppendResult,
    RecordBatchEncoder,
    RecordBatchPacker,
)
from kstore.types import TopicPartition

_Headers = Iterable[tuple[str, Buffer | None]]
_Callback = Callable[[Any, Any], object]

@disjoint_base
class OwnedLock:
    is_held_here: Final[bool]
    def __init__(self, lock: Any) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *exception: object) -> None: ...

@final
class Bell:
    is_rung: Final[bool]
    def __init__(self, lock: Any) -> None: ...
    def ring(self) -> None: ...
    def wait(self, timeout_s: float) -> None: ...

@final
class PartitionQueue(OwnedLock):
    topic_partition: Final[TopicPartition]
    is_muted: bool
    def __init__(self, topic_partition: TopicPartition, *, lock: Any, active: dict[PartitionQueue, None]) -> None: ...
    def __len__(self) -> int: ...
    def copy(self) -> list[Any]: ...
    first: Final[Any]
    last: Final[Any]
    is_full: Final[bool]
    def push_first(self, batch: BatchAppender) -> None: ...
    def push_last(self, batch: BatchAppender) -> None: ...
    def insert(self, place: int, batch: BatchAppender) -> None: ...
    def pop_first(self) -> Any: ...
    def remove(self, batch: BatchAppender) -> bool: ...
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
class TopicQueues:
    partitioner: Final[Any]
    queues: Final[dict[int, PartitionQueue]]
    is_sticky_used: Final[bool]
    def __init__(self, partitioner: Any) -> None: ...
    def __len__(self) -> int: ...
    def add(self, queue: PartitionQueue) -> PartitionQueue: ...
    def size_of(self, partition: int) -> int: ...
    def stick(self, info: Any, queue: PartitionQueue, *, size: int, room: int) -> None: ...
    def unstick(self, info: Any) -> int: ...

@final
class OpenTransaction:
    is_open: bool
    partitions: Final[set[TopicPartition]]

@disjoint_base
class AppendPath:
    topics: Final[dict[str, TopicQueues]]
    active: Final[dict[PartitionQueue, None]]
    pool: Final[Any]
    batch_size: int
    is_closed: bool
    open_transaction: Final[OpenTransaction | None]
    is_held_here: Final[bool]
    def __init__(
        self,
        *,
        pool: PoolMemory,
        batch_size: int,
        model: RecordBatchEncoder,
        batch_type: type[BatchAppender],
        result_type: type[BatchResult],
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
class SendPath:
    takes_short_way: bool
    partition_counts: dict[str, int]
    def __init__(
        self,
        accumulator: AppendPath,
        *,
        serialize: Callable[[str, Any, Any, str], bytes | None],
        wake_sender: Callable[[], object],
        send_by_the_long_way: Callable[..., Any],
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
def give_up(pool: PoolMemory, held: list[Any], batches: list[Any]) -> None: ...
def rounds_of(queues: list[PartitionQueue], *, most: int, room: int, lingered_since_ms: int) -> list[int]: ...
def take_batches(queue: PartitionQueue, most: int, leader_epoch: int | None, *, room: int) -> list[Any]: ...
def number_batches(
    batches: list[Any], *, producer_id: int, producer_epoch: int, base_sequence: int, is_transactional: bool
) -> int: ...
def close_batches(batches: list[Any], now_ms: int) -> int: ...
def begin_sends(batches: list[Any], created_before_ms: int) -> tuple[list[Any], list[Any]]: ...
def end_sends(batches: list[Any]) -> None: ...
def records_of_batches(batches: list[Any]) -> list[Any]: ...
def sums_of_request(batches: list[Any]) -> tuple[list[_Sum], int]: ...
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
