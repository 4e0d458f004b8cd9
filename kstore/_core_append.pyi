"""Types of the parts of the compiled core that take appends, which kstore._core has too."""

from collections.abc import Callable, Iterable
from typing import Any, Final, final

from typing_extensions import Buffer, Self, disjoint_base

from kstore._core import OffsetIndexEntries, TimeIndexEntries

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
class ProducerEntry:
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
        producers: dict[int, Any] | None = None,
        verifications: dict[int, Any] | None = None,
    ) -> None: ...
    published: Final[Any]
    log_end_offset: Final[int]
    def publish(self, sealed: object, active: object, segment: SegmentAppender, *, log_end_offset: int) -> None: ...
    def append_sent(self, records: bytes | bytearray | memoryview, *, leader_epoch: int | None, now_ms: int) -> Any: ...
    def append_all_sent(self, batches: list[Any], *, start: int, now_ms: int) -> list[Any]: ...
    def append_replicated(self, records: bytes | bytearray | memoryview) -> Any: ...
    def append(self, survey: AppendSurvey, *, log_append_time_ms: int) -> Any: ...
    def info_of(self, survey: AppendSurvey, *, log_append_time_ms: int) -> Any: ...
