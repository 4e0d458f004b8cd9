"""Produce requests made by hand, each with something that clients do not send, and what a broker answers.

The codes are those that a broker of 4.1 gave (`python -m tests.interop --part codes` asks one again); tests of the
engine hold kstore against them. Each case has a partition of its own in one of TOPICS.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.making.batches import batch, patch_header, record
from tests.making.messages import packed_entry
from tests.reference import codec as reference
from tests.reference.codec import Header, write_batch

HOUR_MS = 3_600_000
# The setting's default since Kafka 4.0; the broker of the lane has it, and the tests give it to kstore.
AFTER_MAX_MS = HOUR_MS
FAR_AHEAD_MS = 4_000_000_000_000
# The settings of a broker's topics.
TOPICS: dict[str, dict[str, str]] = {
    "plain": {},
    "compacted": {"cleanup.policy": "compact"},
    "append-time": {"message.timestamp.type": "LogAppendTime"},
    "lz4": {"compression.type": "lz4"},
    "small-segments": {"segment.bytes": "1048576", "max.message.bytes": "4194304"},
}
# Kafka's codes
NONE, CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE = 0, 2, 10, 18
INVALID_TIMESTAMP, OUT_OF_ORDER, INVALID_EPOCH, UNSUPPORTED_CODEC, INVALID_RECORD = 32, 45, 47, 76, 87
UNKNOWN_SERVER_ERROR = -1
# Why kstore answers something else.
NOT_CAUGHT = "the broker fails with an exception that has no code; kstore says what is wrong with the records"
NOT_BUILT = "Kafka's LogValidator does not look, and its builder may fail; kstore rebuilds no batch with these fields"
NO_SUCH_TIME = "a record cannot have a time below -1, which stands for none; the broker stores it"
WRONG_OFFSETS = "the broker stores records whose offsets its index and its consumers do not agree on"
OF_THE_REQUEST = "the magic is a rule of the request (Produce 3 and later); a log converts old messages"


@dataclass(frozen=True)
class Produced:
    """The records of one request, what the broker answered, and where kstore differs why.

    before: batches that the partition gets first, which are accepted. transactional_id: of the request. kstore: its
    code where it is another one.
    """

    name: str
    records: bytes = field(repr=False)
    broker: int
    topic: str = "plain"
    before: tuple[bytes, ...] = field(default=(), repr=False)
    transactional_id: str | None = None
    kstore: int | None = None
    why: str = ""

    @property
    def expected(self) -> int:
        return self.broker if self.kstore is None else self.kstore


def _unlike(case: Produced, code: int, why: str) -> Produced:
    """The case, with the code of kstore and why it is not the broker's."""
    return replace(case, kstore=code, why=why)


def _header(broker: int = NONE, name: str = "", topic: str = "plain", **fields: int) -> Produced:
    """A batch of two records with some header fields replaced, its CRC right."""
    return Produced(
        name or " ".join(f"{key}={value}" for key, value in fields.items()),
        patch_header(batch(0, 2), **fields),
        broker,
        topic,
    )


def _producer(producer_id: int, epoch: int, sequence: int, count: int = 2, **options: Any) -> bytes:
    """A batch with producer fields that the reference codec would write."""
    return patch_header(
        batch(0, count, **options), producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
    )


def _content(body: bytes, *, count: int = 2, attributes: int = 0) -> bytes:
    """A batch with these bytes for records."""
    header = replace(
        Header.unpack(batch(0, count)), batch_length=reference.HEADER_BYTES - 12 + len(body), attributes=attributes
    )
    return patch_header(header.pack() + body)


def _body(count: int = 2) -> bytearray:
    return bytearray(batch(0, count)[reference.HEADER_BYTES :])


def _with_byte(at: int, value: int) -> bytes:
    body = _body()
    body[at] = value
    return _content(bytes(body))


def _messages(magic: int) -> bytes:
    return packed_entry(b"v", None, offset=0, magic=magic)


def _headers() -> Iterable[Produced]:
    yield _header(name="as clients send it")
    yield _header(INVALID_RECORD, base_offset=5)
    yield _header(INVALID_RECORD, base_offset=-1)
    yield _header(INVALID_RECORD, base_offset=2**63 - 1)
    yield _header(partition_leader_epoch=77)
    yield _header(partition_leader_epoch=-5)
    yield _header(CORRUPT_MESSAGE, magic=3)
    yield _header(CORRUPT_MESSAGE, magic=-1)
    yield _header(CORRUPT_MESSAGE, batch_length=48)
    yield _header(CORRUPT_MESSAGE, batch_length=-1)
    yield _header(CORRUPT_MESSAGE, batch_length=0)
    yield _unlike(_header(UNKNOWN_SERVER_ERROR, batch_length=2**31 - 1), CORRUPT_MESSAGE, NOT_CAUGHT)
    yield Produced("crc", patch_header(batch(0, 2), repair_crc=False, crc=1), CORRUPT_MESSAGE)
    for attributes in (5, 6, 7):
        yield _unlike(
            _header(UNKNOWN_SERVER_ERROR, attributes=attributes),
            UNSUPPORTED_CODEC,
            NOT_CAUGHT,
        )
    yield _header(NONE, "a client's LogAppendTime", attributes=0x08)
    yield _header(INVALID_TIMESTAMP, "a client's LogAppendTime in a topic of it", "append-time", attributes=0x08)
    yield _header(INVALID_RECORD, "a control batch", attributes=0x20)
    yield _header(NONE, "a delete horizon", attributes=0x40)
    yield _header(NONE, "an unknown bit", attributes=0x80)
    yield _header(NONE, "the highest bit", attributes=-0x8000)
    yield _header(INVALID_RECORD, last_offset_delta=0)
    yield _header(INVALID_RECORD, last_offset_delta=2)
    yield _header(INVALID_RECORD, last_offset_delta=-1)
    yield _header(INVALID_RECORD, last_offset_delta=2**31 - 1)
    yield _header(base_timestamp_ms=0)
    yield _header(base_timestamp_ms=-1)
    yield _unlike(_header(NONE, base_timestamp_ms=-5), INVALID_TIMESTAMP, NO_SUCH_TIME)
    yield _header(INVALID_TIMESTAMP, base_timestamp_ms=FAR_AHEAD_MS)
    yield _header(NONE, "base_timestamp_ms ahead, for LogAppendTime", "append-time", base_timestamp_ms=FAR_AHEAD_MS)
    yield _header(max_timestamp_ms=0)
    yield _header(max_timestamp_ms=FAR_AHEAD_MS)
    yield _header(INVALID_RECORD, record_count=0)
    yield _header(INVALID_RECORD, record_count=-1)
    yield _header(INVALID_RECORD, record_count=1)
    yield _header(INVALID_RECORD, record_count=3)
    yield _header(INVALID_RECORD, record_count=2**31 - 1)
    yield _header(INVALID_RECORD, "count and last offset too low", record_count=1, last_offset_delta=0)
    yield _header(INVALID_RECORD, "count and last offset too high", record_count=3, last_offset_delta=2)


def _producers() -> Iterable[Produced]:
    for epoch, sequence in ((0, 0), (-1, 0), (0, -1), (7, 9), (-3, -5)):
        for topic in ("plain", "lz4"):
            name = f"no producer id, epoch {epoch}, sequence {sequence}, {topic}"
            yield Produced(name, _producer(-1, epoch, sequence), NONE, topic)
    yield Produced("producer id -2", _producer(-2, 0, 0), NONE)
    yield _unlike(Produced("producer id -2, lz4", _producer(-2, 0, 0), NONE, "lz4"), INVALID_RECORD, NOT_BUILT)
    transactional = patch_header(batch(0, 2), attributes=0x10)
    yield Produced("nobody's transaction", transactional, NONE, transactional_id="t")
    rebuilt = Produced("nobody's transaction, lz4", transactional, UNKNOWN_SERVER_ERROR, "lz4", transactional_id="t")
    yield _unlike(rebuilt, INVALID_RECORD, NOT_BUILT)
    yield Produced("no transaction of the request's", batch(0, 2), NONE, transactional_id="t")
    yield Produced("an epoch of -1", _producer(9, -1, 0), NONE)
    rebuilt = Produced("an epoch of -1, lz4", _producer(9, -1, 0), UNKNOWN_SERVER_ERROR, "lz4")
    yield _unlike(rebuilt, INVALID_RECORD, NOT_BUILT)
    yield Produced("an epoch of -2", _producer(9, -2, 0), INVALID_EPOCH)
    yield Produced("a sequence of -1", _producer(9, 0, -1), INVALID_RECORD)
    yield Produced("a sequence of -1, lz4", _producer(9, 0, -1), INVALID_RECORD, "lz4")
    yield Produced("an unknown producer begins later", _producer(9, 0, 5), NONE)
    first = _producer(9, 3, 0)
    yield Produced("the next sequence", _producer(9, 3, 2), NONE, before=(first,))
    yield Produced("a duplicate", first, NONE, before=(first,))
    yield Produced("a gap in the sequences", _producer(9, 3, 3), OUT_OF_ORDER, before=(first,))
    yield Produced("half of a duplicate", _producer(9, 3, 1), OUT_OF_ORDER, before=(first,))
    yield Produced("an older epoch", _producer(9, 2, 2), INVALID_EPOCH, before=(first,))
    yield Produced("no epoch after one", _producer(9, -1, 2), INVALID_EPOCH, before=(first,))
    yield Produced("a new epoch", _producer(9, 4, 0), NONE, before=(first,))
    yield Produced("a new epoch with an old sequence", _producer(9, 4, 2), OUT_OF_ORDER, before=(first,))
    nameless = _producer(9, -1, 0)
    yield Produced("an epoch of -1 again", _producer(9, -1, 2), NONE, before=(nameless,))
    yield Produced("an epoch of -1 with a gap", _producer(9, -1, 7), NONE, before=(nameless,))
    yield Produced("an epoch after -1", _producer(9, 0, 4), NONE, before=(nameless,))
    yield Produced("nobody's sequences repeat", _producer(-1, 0, 0), NONE, before=(_producer(-1, 0, 0),))


def _records() -> Iterable[Produced]:
    yield Produced("no bytes", b"", INVALID_RECORD)
    yield Produced("less than a header", batch(0, 2)[:40], INVALID_RECORD)
    yield Produced("an incomplete batch", batch(0, 2)[:-1], INVALID_RECORD)
    yield Produced("bytes after the batch", batch(0, 2) + b"\x00\x01\x02", NONE)
    yield Produced("two batches", batch(0, 2) + batch(2, 2), INVALID_RECORD)
    yield _unlike(Produced("a message of magic 0", _messages(0), INVALID_RECORD), NONE, OF_THE_REQUEST)
    yield _unlike(Produced("a message of magic 1", _messages(1), INVALID_RECORD), NONE, OF_THE_REQUEST)
    yield Produced("no records, a right count", _content(b"", count=1), INVALID_RECORD)
    yield Produced("bytes after the records", _content(bytes(_body()) + b"\x00"), INVALID_RECORD)
    yield Produced("record size too high", _with_byte(0, 0x7E), INVALID_RECORD)
    yield Produced("record size of 0", _with_byte(0, 0), INVALID_RECORD)
    yield Produced("record size below 0", _with_byte(0, 1), INVALID_RECORD)
    yield Produced("record attributes", _with_byte(1, 0x55), NONE)
    yield _unlike(Produced("offset deltas 1, 1", _with_byte(3, 2), NONE), INVALID_RECORD, WRONG_OFFSETS)
    yield _unlike(Produced("a negative offset delta", _with_byte(3, 1), NONE), INVALID_RECORD, WRONG_OFFSETS)
    yield Produced("key size below -1", _with_byte(4, 3), INVALID_RECORD)
    yield Produced("key size too high", _with_byte(4, 0x7E), INVALID_RECORD)
    yield _unlike(
        Produced("an endless varint", _content(b"\xff" * 40), UNKNOWN_SERVER_ERROR), INVALID_RECORD, NOT_CAUGHT
    )
    yield Produced("a record without a key", write_batch([record(0, b"v")]), INVALID_RECORD, "compacted")
    yield Produced("a record with a key", batch(0, 2), NONE, "compacted")
    late = [record(0, b"v", timestamp_ms=FAR_AHEAD_MS)]
    yield Produced("a timestamp ahead", write_batch(late), INVALID_TIMESTAMP)
    yield Produced("a timestamp of 0", write_batch([record(0, b"v", timestamp_ms=0)]), NONE)
    yield Produced("no timestamp", write_batch([record(0, b"v", timestamp_ms=-1)]), NONE)
    negative = write_batch([record(0, b"v", timestamp_ms=-2)])
    yield _unlike(Produced("a timestamp below -1", negative, NONE), INVALID_TIMESTAMP, NO_SUCH_TIME)
    yield Produced("max.message.bytes", write_batch([record(0, b"v" * 1_048_600)]), MESSAGE_TOO_LARGE)
    yield Produced("segment.bytes", write_batch([record(0, b"v" * 1_048_600)]), RECORD_LIST_TOO_LARGE, "small-segments")


def _compressed() -> Iterable[Produced]:
    for codec, name in ((1, "gzip"), (2, "snappy"), (3, "lz4"), (4, "zstd")):
        yield Produced(f"{name}", batch(0, 2, codec=codec), NONE)
        garbage = _content(b"\x01garbage, not a frame", attributes=codec)
        yield _unlike(Produced(f"{name} of garbage", garbage, UNKNOWN_SERVER_ERROR), INVALID_RECORD, NOT_CAUGHT)
        whole = batch(0, 2, codec=codec)
        yield Produced(
            f"{name}, count too high", patch_header(whole, record_count=3, last_offset_delta=2), INVALID_RECORD
        )
        yield Produced(
            f"{name}, count too low", patch_header(whole, record_count=1, last_offset_delta=0), INVALID_RECORD
        )
    endless = _content(gzip.compress(b"\xff" * 20), attributes=1)
    yield Produced("gzip of an endless varint", endless, INVALID_RECORD)
    yield Produced("gzip after bytes", _content(gzip.compress(bytes(_body())) + b"xx", attributes=1), NONE)
    cut_off = _content(gzip.compress(bytes(_body()))[:-9], attributes=1)
    yield _unlike(Produced("gzip cut off", cut_off, UNKNOWN_SERVER_ERROR), INVALID_RECORD, NOT_CAUGHT)


CASES: Sequence[Produced] = (*_headers(), *_producers(), *_records(), *_compressed())
