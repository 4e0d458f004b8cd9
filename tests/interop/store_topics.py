"""Topics that kstore writes for a broker, each with the records that a consumer must get from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from kstore.config import LogConfig
from kstore.log.write.writable_log import WritableLog
from kstore.record import (
    AppendOrigin,
    ControlRecordType,
    EndTransactionMarker,
    MemoryRecords,
    with_end_transaction_marker,
)
from tests.making import matrix
from tests.making.batches import FIRST_TIMESTAMP_MS, records
from tests.making.matrix import Case
from tests.making.writing import builder_of, write_case
from tests.reference import codecs as codecs
from tests.reference.codec import CREATE_TIME, LOG_APPEND_TIME, Record

MIB = 1 << 20
PRODUCER_ID = 4_000_000_100
# Of the matrix, what a producer can't send, or not to a log that has the case before.
NOT_SENT = {"gaps", "delete-horizon", "abort", "commit", "leader-epoch", "transactional", "sequence-wrap", "idempotent"}
SMALL_SEGMENTS = LogConfig(segment_bytes=20_000, index_interval_bytes=500)


@dataclass
class Written:
    """What consumers must get, by isolation, the last offset of each batch, and where the log starts and ends."""

    visible: list[Record] = field(default_factory=list)
    last_offsets: list[int] = field(default_factory=list)
    aborted: set[int] = field(default_factory=set)
    log_start_offset: int = 0
    log_end_offset: int = 0
    last_stable_offset: int | None = None

    def committed(self) -> list[Record]:
        end = self.log_end_offset if self.last_stable_offset is None else self.last_stable_offset
        return [record for record in self.visible if record.offset not in self.aborted and record.offset < end]

    def add(self, log: WritableLog, sent: Iterable[Record], data: MemoryRecords, **options: object) -> list[int]:
        """Append, and note the records with the offsets that they got."""
        info = log.append(data, **options)
        offsets = list(range(info.base_offset, info.last_offset + 1))
        for offset, record in zip(offsets, sent, strict=True):
            stamped = info.log_append_time_ms
            record = record._replace(offset=offset)
            if stamped >= 0:
                record = record._replace(timestamp_ms=stamped, timestamp_type=LOG_APPEND_TIME)
            self.visible.append(record)
        self.last_offsets.append(info.last_offset)
        self.log_end_offset = log.log_end_offset
        return offsets


class Topic(NamedTuple):
    """A topic, its settings for kstore and, where they matter, for the broker, and what fills it."""

    name: str
    config: LogConfig
    settings: tuple[str, ...]
    write: Callable[[WritableLog], Written]


def sent(count: int, **options: object) -> tuple[list[Record], MemoryRecords]:
    """Records of one batch as a producer sends it."""
    rows = records(0, count, value_bytes=100)
    return rows, builder_of(rows, **options).build()


def _batches(codec: int) -> Callable[[WritableLog], Written]:
    def write(log: WritableLog) -> Written:
        written = Written()
        for number in range(60):
            written.add(log, *sent(1 + number % 17, codec=codec))
        return written

    return write


def _shapes(log: WritableLog) -> Written:
    written = Written()
    for case in matrix.cases(2):
        if case.timestamp_type == CREATE_TIME and case.shape not in NOT_SENT:
            _send_case(log, written, case.at(0))
    return written


def _send_case(log: WritableLog, written: Written, case: Case) -> None:
    written.add(log, case.expected, MemoryRecords(write_case("builder", case)))


def _idempotent(log: WritableLog) -> Written:
    written = Written()
    for number in range(20):
        written.add(log, *sent(5, producer_id=PRODUCER_ID, producer_epoch=0, base_sequence=5 * number))
    repeated = log.append(sent(5, producer_id=PRODUCER_ID, producer_epoch=0, base_sequence=95)[1])
    if not repeated.is_duplicate:
        raise AssertionError(f"a batch sent twice was appended: {repeated}")
    return written


def _transactions(log: WritableLog) -> Written:
    """Three producers whose transactions overlap, with both ends, over several segments; one stays open."""
    written = Written()
    sequences = [0, 0, 0]
    for number in range(30):
        for producer in range(3):
            offsets = _send_transactional(log, written, producer, sequences)
            if (number + producer) % 4 == 3:
                written.aborted.update(offsets)
                _end(log, written, producer, ControlRecordType.ABORT)
            else:
                _end(log, written, producer, ControlRecordType.COMMIT)
    written.last_stable_offset = written.log_end_offset
    _send_transactional(log, written, 0, sequences)
    written.add(log, *sent(3))
    return written


def _send_transactional(log: WritableLog, written: Written, producer: int, sequences: list[int]) -> list[int]:
    rows, data = sent(
        4,
        producer_id=PRODUCER_ID + producer,
        producer_epoch=0,
        base_sequence=sequences[producer],
        is_transactional=True,
        codec=producer,
    )
    sequences[producer] += len(rows)
    return written.add(log, rows, data)


def _end(log: WritableLog, written: Written, producer: int, kind: ControlRecordType) -> None:
    marker = with_end_transaction_marker(
        EndTransactionMarker(control_type=kind, coordinator_epoch=0),
        timestamp_ms=FIRST_TIMESTAMP_MS,
        producer_id=PRODUCER_ID + producer,
        producer_epoch=0,
    )
    log.append(marker, origin=AppendOrigin.COORDINATOR)
    written.log_end_offset = log.log_end_offset


def _followed(log: WritableLog) -> Written:
    """Batches of a leader, under rising epochs, with gaps as compaction leaves them."""
    written = Written()
    for number in range(40):
        rows = records(number * 10, 7, value_bytes=100)
        log.append_as_follower(builder_of(rows, partition_leader_epoch=number // 15, codec=number % 5).build())
        written.visible += rows
    written.log_end_offset = log.log_end_offset
    return written


def _deleted(log: WritableLog) -> Written:
    written = _batches(codecs.NONE)(log)
    written.log_start_offset = log.delete_records(123)
    written.visible = [record for record in written.visible if record.offset >= 123]
    return written


def _cut(log: WritableLog) -> Written:
    """Cut inside a batch, which goes as a whole; the next one begins at the offset of the cut."""
    written = _batches(codecs.ZSTD)(log)
    log.truncate_to(200)
    kept = max(offset for offset in written.last_offsets if offset < 200)
    written.visible = [record for record in written.visible if record.offset <= kept]
    for _ in range(5):
        written.add(log, *sent(9))
    return written


def _restarted(log: WritableLog) -> Written:
    _batches(codecs.NONE)(log)
    log.truncate_fully_and_start_at(5000)
    written = Written(log_start_offset=5000)
    for _ in range(5):
        written.add(log, *sent(9))
    return written


def _nothing(log: WritableLog) -> Written:
    return Written(log_end_offset=log.log_end_offset)


TOPICS = (
    *(
        Topic(f"codec-{codecs.CODEC_NAMES[codec]}", SMALL_SEGMENTS, (), _batches(codec))
        for codec in (codecs.NONE, codecs.GZIP, codecs.SNAPPY, codecs.LZ4, codecs.ZSTD)
    ),
    Topic("shapes", LogConfig(max_message_bytes=4 * MIB), ("max.message.bytes=4194304",), _shapes),
    Topic(
        "append-time",
        LogConfig(segment_bytes=20_000, message_timestamp_type="LogAppendTime"),
        ("message.timestamp.type=LogAppendTime",),
        _batches(codecs.LZ4),
    ),
    Topic("idempotent", SMALL_SEGMENTS, (), _idempotent),
    Topic("transactions", SMALL_SEGMENTS, (), _transactions),
    Topic("followed", SMALL_SEGMENTS, (), _followed),
    Topic("deleted", SMALL_SEGMENTS, (), _deleted),
    Topic("cut", SMALL_SEGMENTS, (), _cut),
    Topic("restarted", SMALL_SEGMENTS, (), _restarted),
    Topic("preallocated", LogConfig(segment_bytes=20_000, preallocate=True), (), _batches(codecs.SNAPPY)),
    Topic("empty", LogConfig(), (), _nothing),
)
