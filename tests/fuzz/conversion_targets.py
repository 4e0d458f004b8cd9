"""The invariants of converting and validating: what comes out is what went in, where it belongs, or a typed error.

Each target takes a mutator, does one thing and raises a Disagreement if an invariant is broken.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kstore.compression import CompressionType
from kstore.config import LogConfig
from kstore.errors import AppendError, CorruptionError, OffsetError, UnsupportedError
from kstore.record import (
    AppendOrigin,
    MemoryRecords,
    RecordRules,
    convert,
    validate_and_assign_offsets,
    validate_replicated,
)
from kstore.types import TimestampType
from tests.fuzz.agreement import agree
from tests.fuzz.message_mutator import MessageMutator
from tests.reference import messages as reference_messages
from tests.reference.codec import CREATE_TIME, HEADER_BYTES_UP_TO_MAGIC, LOG_APPEND_TIME, Record, Refusal

LIMIT = 1 << 16
CONFIG = LogConfig(max_decompressed_bytes=LIMIT)
TYPED = (CorruptionError, UnsupportedError)
NOW_MS = 1_600_000_000_050
Row = tuple[bytes | None, bytes | None]


def some_bytes(mutator: MessageMutator) -> bytes:
    offset = mutator.random.choice([0, 0, 3])
    return mutator.one_of(
        mutator.mixed_log,
        mutator.log,
        lambda: mutator.entry(offset=offset),
        lambda: mutator.batch(base_offset=offset),
        lambda: mutator.sound_entry(offset),
        lambda: mutator.sound(offset),
    )


def entries_of(data: bytes) -> list[reference_messages.Entry] | None:
    """The whole entries by the reference, without an incomplete one at the end; None if one is wrong."""
    found, at = [], 0
    while len(data) - at >= HEADER_BYTES_UP_TO_MAGIC:
        size = 12 + int.from_bytes(data[at + 8 : at + 12], "big", signed=True)
        if size > len(data) - at:
            break
        try:
            found.append(reference_messages.read_any(data, at, max_decompressed_bytes=LIMIT))
        except Refusal:
            return None
        at += found[-1].size
    return found


def row_of(record: Record) -> Row:
    return record.key, record.value


def conversion_case(mutator: MessageMutator) -> None:
    """Sound bytes are converted to their records, unless the format has no room; others raise a typed error."""
    data = some_bytes(mutator)
    magic = mutator.random.randint(0, 2)
    chunks = convert(MemoryRecords(data, config=CONFIG).batches(), magic=magic, chunk_bytes=1)
    try:
        converted = b"".join(map(bytes, chunks))
    except TYPED:
        return
    entries = entries_of(data)
    if entries is None:
        check_verbatim(data, converted, magic=magic)
        return
    expected = [
        (record.offset, *row_of(record))
        for entry in entries
        for record in entry.records
        if entry.magic <= magic or magic == 2 or not record.is_control
    ]
    found = [(record.offset, *row_of(record)) for record in reference_messages.read_all(converted)]
    agree("conversion", data, found=found, expected=expected)


def check_verbatim(data: bytes, converted: bytes, *, magic: int) -> None:
    """Only batches that keep their bytes, or are left out for what they are, are not looked into."""
    batches = list(MemoryRecords(data, config=CONFIG).batches())
    kept = [batch for batch in batches if batch.magic == magic]
    agree("conversion of damage", data, found=bool(kept) or any(batch.is_control for batch in batches), expected=True)
    agree("conversion of damage", data, found=all(bytes(batch) in converted for batch in kept), expected=True)


def validation_case(mutator: MessageMutator) -> None:
    """What is appended holds the records sent, with the next offsets; what is not raises a typed error."""
    rng = mutator.random
    data = some_bytes(mutator)
    kind = rng.choice([TimestampType.CREATE_TIME, TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME])
    rules = RecordRules(
        magic=rng.choice([0, 1, 2, 2]),
        compression=rng.choice([None, None, *CompressionType]),
        timestamp_type=kind,
        timestamp_before_max_ms=rng.choice([10, 2**63 - 1]),
        timestamp_after_max_ms=rng.choice([10, 2**63 - 1]),
        is_compacted=rng.random() < 0.2,
    )
    base_offset = rng.choice([0, 5, 2**40])
    origin = rng.choice(list(AppendOrigin))
    records = MemoryRecords(data, config=CONFIG)
    try:
        result = validate_and_assign_offsets(
            records, rules=rules, base_offset=base_offset, now_ms=NOW_MS, origin=origin
        )
    except (*TYPED, AppendError):
        check_replicated(records, data)
        return
    found = reference_messages.read_all(bytes(result.records))
    offsets = [record.offset for record in found]
    agree("validation", data, found=offsets, expected=list(range(base_offset, result.next_offset)))
    if kind == TimestampType.LOG_APPEND_TIME and rules.magic:
        agree("validation", data, found={record.timestamp_ms for record in found}, expected={NOW_MS})
    if rules.magic:
        agree("validation", data, found={record.timestamp_type for record in found}, expected={int(kind)})
    entries = entries_of(data)
    if entries is not None:
        sent = [record for entry in entries for record in entry.records]
        agree("validation", data, found=list(map(row_of, found)), expected=list(map(row_of, sent)))
        check_timestamps(data, found, sent, rules=rules)


def check_timestamps(data: bytes, found: list[Record], sent: list[Record], *, rules: RecordRules) -> None:
    """A CreateTime stays where both formats have it."""
    if rules.magic and rules.timestamp_type == CREATE_TIME and LOG_APPEND_TIME not in {r.timestamp_type for r in sent}:
        stamps = [record.timestamp_ms for record in sent]
        agree("validation", data, found=[record.timestamp_ms for record in found], expected=stamps)


def check_replicated(records: MemoryRecords, data: bytes) -> None:
    """A follower takes whole batches as they are, or none."""
    try:
        result = validate_replicated(records, log_end_offset=0)
    except (*TYPED, OffsetError):
        return
    agree("replication", data, found=data.startswith(bytes(result.records)), expected=True)


CONVERSION_TARGETS: dict[str, Callable[[MessageMutator], Any]] = {
    "conversion": conversion_case,
    "validation": validation_case,
}
