"""Goal: messages and wrappers of magic 0 and 1 made to hurt are refused in bounded memory, never with a crash.

Method: the table of test_hostile_input.py for the older formats, CRC right unless the row is about it; each row is read
as records and as columns under a limit, with the error class written out and Python's allocations traced.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace

import pytest

from kstore.errors import CorruptRecordError
from kstore.record import MemoryRecords
from tests.fuzz.message_mutator import Fields
from tests.hostile.test_input import ALLOWED_BYTES, BOMB_BYTES, LIMIT, MAX_INT32, PAYLOADS, bounded_memory
from tests.reference import codec as reference
from tests.reference import codecs as codecs
from tests.reference import messages as reference_messages
from tests.reference.codec import TIMESTAMP_TYPE_BIT
from tests.reference.verdicts import (
    DEFAULT_LIMIT_BYTES,
    Refused,
    as_reference,
    column_verdict,
    core_batch_verdict,
    reference_verdict,
)

# Each row must be decided at once; this only ends a hang.
pytestmark = pytest.mark.timeout(120)
MOST_OFFSET = 2**63 - 1
# What the reference codec can decide in little time.
QUICK_BYTES = 1 << 20
magics = pytest.mark.parametrize("magic", [0, 1], ids=["v0", "v1"])


def plain(**changes: object) -> Fields:
    return replace(Fields(key=b"k", value=b"v", timestamp_ms=5), **changes)


def inner(count: int, *, magic: int = 1, first: int = 0) -> list[Fields]:
    return [plain(magic=magic, offset=first + n) for n in range(count)]


def wrapped(messages: list[Fields], *, codec: int = codecs.GZIP, tail: bytes = b"", **changes: object) -> Fields:
    """A wrapper whose offset is right for V1 messages that count from 0."""
    content = b"".join(map(Fields.pack, messages)) + tail
    return around(content, codec=codec, **{"offset": max(len(messages) - 1, 0)} | changes)


def around(content: bytes, *, codec: int = codecs.GZIP, **changes: object) -> Fields:
    fields = {"attributes": codec, "timestamp_ms": 5, "value": codecs.compress(codec, content)}
    return Fields(**fields | changes)


def nested(depth: int) -> Fields:
    """A message inside so many wrappers."""
    message = plain()
    for _ in range(depth):
        message = wrapped([message])
    return message


ROWS: dict[str, tuple[Fields | bytes, str]] = {
    "T1 size -1": (plain(size=-1), "CorruptRecordError"),
    "T2 size 0": (plain(size=0), "CorruptRecordError"),
    "T3 size one below a V1 message": (plain(key=None, value=None, size=21), "CorruptRecordError"),
    "T3 size one below a V0 message": (plain(magic=0, key=None, value=None, size=13), "CorruptRecordError"),
    "T4 size 2^31-1": (plain(size=MAX_INT32), "CorruptRecordError"),
    "T5 size past the end": (plain().pack()[:-1], "CorruptRecordError"),
    "T6 magic 3": (plain(magic=3), "UnsupportedMagicError"),
    "T6 magic -1": (plain(magic=-1), "UnsupportedMagicError"),
    "T7 empty wrapper": (wrapped([]), "InvalidRecordError"),
    "T7 wrapper around less than a message": (around(b"\0" * 11), "InvalidRecordError"),
    "T7 null wrapper": (plain(attributes=codecs.GZIP, value=None), "InvalidRecordError"),
    "T8 offset -1": (plain(offset=-1), "CorruptRecordError"),
    "T8 offset 2^63-1": (plain(offset=MOST_OFFSET), "CorruptRecordError"),
    "T8 wrapper offset below its last message's": (wrapped(inner(3), offset=1), "InvalidRecordError"),
    "T8 wrapper offset 2^63-1": (wrapped(inner(3), offset=MOST_OFFSET), "CorruptRecordError"),
    "T8 V0 inner offset -2^63": (
        wrapped([plain(magic=0, offset=1), plain(magic=0, offset=-(2**63))], magic=0, offset=1),
        "InvalidRecordError",
    ),
    "T8 V0 inner offset above the wrapper's": (
        wrapped(inner(2, magic=0, first=8), magic=0, offset=8),
        "InvalidRecordError",
    ),
    "T9 inner offset repeated": (wrapped([plain(), plain()], offset=5), "InvalidRecordError"),
    "T9 inner offsets backwards": (wrapped(inner(3)[::-1], offset=5), "InvalidRecordError"),
    "T10 codec zstd": (plain(attributes=codecs.ZSTD), "InvalidRecordError"),
    "T10 codec 5": (plain(attributes=5), "UnsupportedCompressionTypeError"),
    "T10 codec 7": (plain(attributes=7), "UnsupportedCompressionTypeError"),
    "T10 wrong CRC": (plain(crc=1), "CorruptRecordError"),
    "T10 wrong CRC of an inner message": (wrapped([plain(crc=1)]), "CorruptRecordError"),
    "T12 key length -2": (plain(key_size=-2), "InvalidRecordError"),
    "T12 key length 2^31-1": (plain(key_size=MAX_INT32), "InvalidRecordError"),
    "T12 key length that leaves 3 bytes for the value's": (plain(key_size=3), "InvalidRecordError"),
    "T12 value length -2": (plain(value_size=-2), "InvalidRecordError"),
    "T12 value length 2^31-1": (plain(value_size=MAX_INT32), "InvalidRecordError"),
    "T12 value one past the message": (plain(value_size=2), "InvalidRecordError"),
    "T12 inner key length 2^31-1": (wrapped([plain(key_size=MAX_INT32)]), "InvalidRecordError"),
    "T13 message longer than its fields": (plain(tail=b"\0"), "InvalidRecordError"),
    "T13 value null but bytes left": (plain(value_size=-1), "InvalidRecordError"),
    "T13 inner size -1": (wrapped([plain(size=-1)]), "CorruptRecordError"),
    "T13 inner size 2^31-1 behind a sound message": (
        wrapped(inner(1), tail=plain(size=MAX_INT32).pack()),
        "CorruptRecordError",
    ),
    "T13 inner size one above the limit": (
        wrapped(inner(1), tail=plain(size=LIMIT - 11).pack()),
        "CorruptRecordError",
    ),
    "T13 inner size 13": (wrapped([plain(size=13)]), "CorruptRecordError"),
    "T13 inner V1 message of a V0 message's size": (
        around(struct.pack(">qiIbbii", 0, 14, 0, 1, 0, -1, -1)),
        "CorruptRecordError",
    ),
    "T13 inner magic -1": (wrapped([plain(magic=-1)]), "InvalidRecordError"),
    "T13 inner magic 2": (wrapped([plain(magic=2)]), "InvalidRecordError"),
    "T23 wrapper in a wrapper": (nested(2), "InvalidRecordError"),
    "T23 a hundred wrappers": (nested(100), "InvalidRecordError"),
}


def data_of(row: Fields | bytes) -> bytes:
    return row if isinstance(row, bytes) else row.pack()


def both_verdicts(data: bytes) -> Refused:
    """The refusal that records and columns agree on, found in bounded memory."""
    with bounded_memory(LIMIT + ALLOWED_BYTES):
        records = core_batch_verdict(data, limit=LIMIT)
        columns = column_verdict(data, limit=LIMIT)
    assert isinstance(records, Refused)
    assert columns == records
    return records


def reference_says(data: bytes) -> object:
    return reference_verdict(lambda: reference_messages.read_any(data, max_decompressed_bytes=LIMIT).records)


@pytest.mark.parametrize(("row", "error"), ROWS.values(), ids=list(ROWS))
def test_hostile_message_or_wrapper_is_refused(row: Fields | bytes, error: str) -> None:
    data = data_of(row)
    assert reference_says(data) == Refused(error, 0)
    assert both_verdicts(data) == Refused(error, 0)


# The lz4 header checksum of V0 is not looked at; zstd has no place in messages.
MESSAGE_PAYLOADS = {
    f"v{magic} {name}": (magic, codec, payload)
    for magic in (0, 1)
    for name, (codec, payload) in PAYLOADS.items()
    if codec != codecs.ZSTD and not (magic == 0 and "header checksum" in name)
}


@pytest.mark.parametrize(("magic", "codec", "payload"), MESSAGE_PAYLOADS.values(), ids=list(MESSAGE_PAYLOADS))
def test_hostile_wrapper_payload_is_refused_in_bounded_memory(
    magic: int, codec: int, payload: Callable[[], bytes]
) -> None:
    value = payload()
    data = Fields(magic=magic, attributes=codec, value=value).pack()
    assert both_verdicts(data) == Refused("DecompressionError", 0)
    if len(value) < QUICK_BYTES:
        assert reference_says(data) == Refused("DecompressionError", 0)


LAWFUL: dict[str, tuple[Fields, list[tuple[int, int, int]]]] = {
    "T5 inner tail cut off, which Kafka drops": (wrapped(inner(2), tail=plain().pack()[:-1]), [(0, 5, 0), (1, 5, 0)]),
    "T5 inner tail that claims all that a payload may hold": (
        wrapped(inner(2), tail=plain(size=DEFAULT_LIMIT_BYTES - 12).pack()),
        [(0, 5, 0), (1, 5, 0)],
    ),
    "T8 wrapper offset 0, as some producers wrote it": (wrapped(inner(2), offset=0), [(0, 5, 0), (1, 5, 0)]),
    "T8 offset 2^63-2": (plain(offset=MOST_OFFSET - 1), [(MOST_OFFSET - 1, 5, 0)]),
    "T9 gaps inside, as compaction leaves them": (
        wrapped([plain(offset=3), plain(offset=9)], offset=109),
        [(103, 5, 0), (109, 5, 0)],
    ),
    "T10 undefined attribute bits": (plain(attributes=0xF0 - 256), [(0, 5, 0)]),
    "T10 wrapper with a key": (wrapped(inner(1), key=b"k"), [(0, 5, 0)]),
    "T14 timestamp -2": (plain(timestamp_ms=-2), [(0, -2, 0)]),
    "T14 wrapper timestamp below its messages'": (wrapped(inner(1), timestamp_ms=1), [(0, 5, 0)]),
    "T14 LogAppendTime of a wrapper over CreateTime inside": (
        wrapped(inner(1), attributes=codecs.GZIP | TIMESTAMP_TYPE_BIT, timestamp_ms=99),
        [(0, 99, 1)],
    ),
    "T20 lz4 in V1": (wrapped(inner(1), codec=codecs.LZ4), [(0, 5, 0)]),
    "T21 snappy in V1": (wrapped(inner(1), codec=codecs.SNAPPY), [(0, 5, 0)]),
    "T23 V0 message in a V1 wrapper": (wrapped(inner(1, magic=0)), [(0, -1, -1)]),
}


@pytest.mark.parametrize(("row", "expected"), LAWFUL.values(), ids=list(LAWFUL))
def test_odd_but_lawful_message_is_read(row: Fields, expected: list[tuple[int, int, int]]) -> None:
    data = row.pack()
    records = [as_reference(record) for record in MemoryRecords(data)]
    assert records == reference_messages.read_all(data)
    found = [(record.offset, record.timestamp_ms, record.timestamp_type) for record in records]
    assert found == expected
    assert all((record.key, record.value) == (b"k", b"v") for record in records)
    rows = column_verdict(data)
    assert isinstance(rows, list)
    assert [row.offset for row in rows] == [offset for offset, _, _ in expected]


@magics
def test_bomb_of_messages_stops_at_the_limit(magic: int) -> None:
    messages = [plain(magic=magic, offset=n, value=bytes(1 << 20)) for n in range(BOMB_BYTES >> 20)]
    data = wrapped(messages, magic=magic).pack()
    assert both_verdicts(data) == Refused("DecompressionError", 0)


@pytest.mark.parametrize(("row", "error"), ROWS.values(), ids=list(ROWS))
def test_place_of_a_hostile_message_behind_sound_ones_is_told(row: Fields | bytes, error: str) -> None:
    sound = plain().pack() + reference.write_batch([reference.Record(1, 5, 0, b"k", b"v")])
    data = sound + data_of(row)
    verdict = column_verdict(data, limit=LIMIT)
    assert isinstance(verdict, Refused)
    assert verdict.position == len(sound)


# What is left of an entry before its magic, and whether that can be one.
TAILS: dict[str, tuple[bytes, bool]] = {
    "11 zeros": (bytes(11), True),
    "12 zeros": (bytes(12), False),
    "size -1": (struct.pack(">qi", 2, -1), False),
    "size 13": (struct.pack(">qi", 2, 13) + bytes(4), False),
    "size 14": (struct.pack(">qi", 2, 14) + bytes(4), True),
    "size 2^31-1": (struct.pack(">qi", 2, MAX_INT32), True),
    "size -2090845409, which Kafka refused": (bytes.fromhex("0a1f699cdc85a7cea83603b1f0"), False),
}


@pytest.mark.parametrize(("tail", "is_end"), TAILS.values(), ids=list(TAILS))
def test_tail_before_its_magic_ends_the_records_unless_its_size_is_wrong(tail: bytes, is_end: bool) -> None:
    sound = plain().pack()
    records = MemoryRecords(sound + tail)
    if is_end:
        assert [record.value for record in records] == [b"v"]
        assert records.valid_bytes == len(sound)
    else:
        for read in (list, lambda records: list(records.batches())):
            with pytest.raises(CorruptRecordError) as caught:
                read(records)
            assert caught.value.position == len(sound)
