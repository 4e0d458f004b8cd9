"""The invariants of writing: what is written reads back as meant, and what is refused leaves everything as it was.

Each target takes a mutator, does one thing and raises a Disagreement if an invariant is broken.
"""

from __future__ import annotations

import random
import struct
from typing import Any

from kstore.compression import CompressionType
from kstore.errors import CorruptionError, InvalidRecordError, UnsupportedError
from kstore.record import MemoryRecordsBuilder, MessageWriter, Record, write_entry
from kstore.record.batches import assign_offsets, set_last_offset, set_max_timestamp, set_partition_leader_epoch
from kstore.record.control import decode_control_record
from kstore.types import ControlRecordType, TimestampType
from tests.fuzz.agreement import agree
from tests.fuzz.message_mutator import MessageMutator
from tests.fuzz.mutator import INTERESTING_64
from tests.making.writing import append, builder_of
from tests.reference import codec as reference
from tests.reference import messages as reference_messages
from tests.reference.verdicts import reference_batch_verdict

TYPED = (CorruptionError, UnsupportedError)
MAX_INT64 = 2**63 - 1


def builder_case(mutator: MessageMutator) -> None:
    """A batch is the reference's, byte for byte or record for record, whatever was refused on the way."""
    rng = mutator.random
    records = [writable(record) for record in mutator.records(rng.choice([0, 5, 2**40]))]
    options = builder_options(rng)
    builder = builder_of(records[:1], base_offset=records[0].offset, **options)
    for record in records[1:]:
        if rng.random() < 0.2:
            refuse_append(builder, mutator)
        builder.has_room_for(timestamp_ms=rng.choice([0, 5]), key=record.key, value=record.value)
        append(builder, record)
    if rng.random() < 0.2:
        reopen(builder, rng)
    check_built(builder, records, options)


def writable(record: reference.Record) -> reference.Record:
    """With a timestamp that a producer may send."""
    return record._replace(timestamp_ms=max(record.timestamp_ms, -1))


def builder_options(rng: random.Random) -> dict[str, Any]:
    options: dict[str, Any] = {"codec": rng.randint(0, 4), "partition_leader_epoch": rng.choice([-1, 0, 2**31 - 1])}
    if rng.random() < 0.3:
        options["log_append_time_ms"] = rng.choice([0, 5, 2**53])
    if rng.random() < 0.2:
        options["delete_horizon_ms"] = rng.choice([0, 7, 2**53])
    if rng.random() < 0.4:
        options |= {"producer_id": rng.choice([0, 2**40]), "producer_epoch": rng.choice([0, 2**15 - 1])}
        options |= {"base_sequence": rng.choice([0, 2**31 - 2]), "is_transactional": rng.random() < 0.5}
    return options


def refuse_append(builder: MemoryRecordsBuilder, mutator: MessageMutator) -> None:
    """Append what can't be appended; only ValueError may come of it, and nothing be appended."""
    before = (builder.record_count, builder.estimated_size_in_bytes)
    wrong: dict[str, Any] = mutator.random.choice(
        [
            {"timestamp_ms": -2},
            {"timestamp_ms": 0, "offset": builder.last_offset},
            {"timestamp_ms": 0, "offset": builder.base_offset + 2**31},
            {"timestamp_ms": 0, "headers": (("\ud800", b""),)},
        ]
    )
    try:
        builder.append(key=b"key", value=b"value", **wrong)
    except ValueError:
        agree("builder", b"", found=(builder.record_count, builder.estimated_size_in_bytes), expected=before)
        return
    agree("builder", b"", found=wrong, expected="ValueError")


def reopen(builder: MemoryRecordsBuilder, rng: random.Random) -> None:
    """Close, reopen with another producer and go back to the first one's state."""
    state = ("producer_id", "producer_epoch", "base_sequence", "is_transactional")
    before = {name: getattr(builder, name) for name in state}
    builder.close()
    builder.reopen_and_rewrite_producer_state(
        producer_id=9, producer_epoch=1, base_sequence=rng.randint(0, 9), is_transactional=True
    )
    builder.close()
    builder.reopen_and_rewrite_producer_state(**before)


def check_built(builder: MemoryRecordsBuilder, records: list[reference.Record], options: dict[str, Any]) -> None:
    built = bytes(builder.build())
    expected = reference.write_batch(records, **options)
    if options["codec"] == CompressionType.NONE:
        agree("builder", expected, found=built, expected=expected)
    agree("builder", built, found=reference_batch_verdict(built), expected=reference_batch_verdict(expected))


def message_writer_case(mutator: MessageMutator) -> None:
    """Messages and wrappers in segments of any size are read back as they were given."""
    rng = mutator.random
    writer = MessageWriter(rng.choice([1, 7, 26, 100, 4096]))
    expected: list[reference.Record] = []
    offset = rng.choice([0, 2**40])
    for _ in range(rng.randint(1, 4)):
        magic = rng.randint(0, 1)
        written = write_set(writer, mutator, offset, magic=magic)
        expected += written
        offset = written[-1].offset + rng.choice([1, 1, 9])
    data = bytes(writer)
    agree("message writer", data, found=reference_messages.read_all(data), expected=expected)


def write_set(writer: MessageWriter, mutator: MessageMutator, offset: int, *, magic: int) -> list[reference.Record]:
    """One message, or several in a wrapper; the records that must be read."""
    rng = mutator.random
    codec = rng.choice([0, 0, 1, 2, 3])
    kind = rng.choice([TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME])
    stamp = rng.choice([-1, 0, 5, 2**53]) if magic else -1
    rows = [(mutator.payload(), mutator.payload()) for _ in range(rng.randint(1, 5) if codec else 1)]
    read_type = kind if magic else TimestampType.NO_TIMESTAMP_TYPE
    records = [reference.Record(offset + n, stamp, int(read_type), key, value) for n, (key, value) in enumerate(rows)]
    fields: dict[str, Any] = {"magic": magic, "timestamp_ms": stamp, "timestamp_type": kind}

    def write_inner(output: Any) -> None:
        for n, (key, value) in enumerate(rows):
            write_entry(output, value, offset=n if magic else offset + n, key=key, **fields)

    if codec:
        compression = CompressionType(codec)
        writer.write_entry(write_inner, offset=records[-1].offset, compression=compression, **fields)
    else:
        writer.write_entry(rows[0][1], offset=offset, key=rows[0][0], **fields)
    return records


def rewriting_case(mutator: MessageMutator) -> None:
    """A run of batches patched in place reads as before but for what was patched, or is refused and stays as it was."""
    rng = mutator.random
    data = rng.choice([mutator.mixed_log, mutator.log])()
    buffer = bytearray(data)
    value = rng.choice([*INTERESTING_64, 5, 1_600_000_000_000])
    epoch = rng.choice([-1, 0, 7, 2**31 - 1])
    at = rng.choice([0, 0, 0, rng.randint(-1, len(data) + 1)])
    steps = {
        "offsets": lambda: assign_offsets(buffer, base_offset=value, partition_leader_epoch=epoch),
        "last offset": lambda: set_last_offset(buffer, at, last_offset=value),
        "leader epoch": lambda: set_partition_leader_epoch(buffer, at, partition_leader_epoch=epoch),
        "timestamp": lambda: set_max_timestamp(
            buffer, at, max_timestamp_ms=value, timestamp_type=TimestampType(rng.randint(0, 1))
        ),
    }
    name = rng.choice(list(steps))
    try:
        steps[name]()
    except (*TYPED, ValueError):
        agree(f"rewriting of {name}", data, found=bytes(buffer), expected=data)
        return
    agree(f"rewriting of {name}", data, found=len(buffer), expected=len(data))
    if name == "offsets":
        check_assigned(data, bytes(buffer), base_offset=value)


def check_assigned(data: bytes, assigned: bytes, *, base_offset: int) -> None:
    """Every entry is as it was but for its offset, and the offsets follow each other from base_offset."""
    at, expected = 0, base_offset
    while at < len(data):
        size = 12 + int.from_bytes(data[at + 8 : at + 12], "big", signed=True)
        span = 1
        if data[at + 16] == 2:
            span += reference.Header.unpack(data, at).last_offset_delta
        found = int.from_bytes(assigned[at : at + 8], "big", signed=True)
        agree("rewriting of offsets", data, found=found, expected=expected)
        end = at + size
        untouched = slice(at + 16, end) if data[at + 16] == 2 else slice(at + 8, end)
        agree("rewriting of offsets", data, found=assigned[untouched], expected=data[untouched])
        expected += span
        at = end


CONTROL_VALUES = (
    struct.pack(">hi", 0, 7),
    bytes.fromhex("0000 00000001 02 00000001 00 02 00000001 00 00"),
    bytes.fromhex("0001 00000001 02 00000001") + bytes(range(16)) + bytes.fromhex("00 01 00"),
    bytes.fromhex("0000 00000000000004d2 00"),
    bytes.fromhex("0000 00"),
    bytes.fromhex("0000 0001 00"),
    bytes.fromhex("0000 02 00000001")
    + bytes(range(16))
    + bytes.fromhex("02 03 4142 03 6868 2384 00 0000 0001 00 00 00"),
)


def control_case(mutator: MessageMutator) -> None:
    """A control record is decoded, or refused; what is decoded encodes to what decodes to the same."""
    rng = mutator.random
    key: bytes | None = struct.pack(">hh", rng.choice([0, 0, 0, 1, -1]), rng.choice([*range(7), 7, -1]))
    value: bytes | None = rng.choice(CONTROL_VALUES)
    if rng.random() < 0.1:
        key = rng.choice([None, b"", mutator.raw(key or b"")])
    if rng.random() < 0.8:
        value = rng.choice([None, b"", *[mutator.raw(value or b"")] * 20])
    try:
        decoded = decode_control_record(key, value)
    except InvalidRecordError:
        return
    again = decode_control_record(key, decoded.to_bytes())
    agree("control", value or b"", found=again, expected=decoded)


def control_batch_case(mutator: MessageMutator) -> None:
    """A control batch is built and read with its keys and values as they were given, whatever they are."""
    rng = mutator.random
    builder = MemoryRecordsBuilder(is_control=True)
    value = mutator.raw(rng.choice(CONTROL_VALUES))
    key = mutator.raw(struct.pack(">hh", 0, ControlRecordType.LEADER_CHANGE))
    builder.append(Record(offset=0, timestamp_ms=5, key=key, value=value, is_control=True))
    built = bytes(builder.build())
    [found] = reference.read_records(built)
    agree("control batch", built, found=(found.key, found.value, found.is_control), expected=(key, value, True))


WRITING_TARGETS = {
    "builder": builder_case,
    "message writer": message_writer_case,
    "rewriting": rewriting_case,
    "control": control_case,
    "control batch": control_batch_case,
}
