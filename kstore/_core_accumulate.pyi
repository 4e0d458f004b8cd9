"""Types of the accumulator's part of the compiled core, which kstore._core has too."""

from collections.abc import Callable, Iterable
from typing import Any, Final, final

from typing_extensions import Buffer, Self, disjoint_base

from kstore._core import BatchAppender, ColumnBuffer, PoolMemory, RecordAppendResult, RecordBatchPacker
from kstore.types import TopicPartition

_Headers = Iterable[tuple[str, Buffer | None]]
_Callback = Callable[[Any, Any], object]

@final
class PartitionQueue:
    topic_partition: Final[TopicPartition]
    is_muted: bool
    def __init__(self, topic_partition: TopicPartition, *, lock: Any, active: dict[PartitionQueue, None]) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *exception: object) -> None: ...
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
    def append_to_new(
        self,
        batch: BatchAppender,
        timestamp_ms: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: _Headers,
        callback: _Callback | None,
        *,
        now_ms: int,
    ) -> RecordAppendResult: ...
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
    def size_of(self, partition: int) -> int: ...
    def stick(self, info: Any, queue: PartitionQueue, room: int) -> None: ...
    def unstick(self, info: Any) -> int: ...

@disjoint_base
class AppendPath:
    topics: Final[dict[str, TopicQueues]]
    active: Final[dict[PartitionQueue, None]]
    is_closed: bool
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
    def append_slowly(
        self,
        topic: str,
        partition: int | None,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: tuple[Any, ...],
        callback: _Callback | None,
        *,
        max_time_to_block_ms: int,
        now_ms: int,
        cluster: Any,
        abort_on_new_batch: bool,
    ) -> RecordAppendResult: ...

def pack_rows_into(batches: list[Any], packer: RecordBatchPacker) -> int: ...
def try_allocate(pool: PoolMemory, size: int) -> ColumnBuffer | None: ...

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
    def send_by_the_long_way(
        self,
        topic: str,
        value: Any,
        key: Any,
        headers: Any,
        partition: int | None,
        timestamp_ms: int | None,
        on_delivery: _Callback | None,
    ) -> Any: ...
    def send_serialized(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Any,
        partition: int | None,
        timestamp_ms: int | None,
        on_delivery: _Callback | None,
    ) -> Any: ...
