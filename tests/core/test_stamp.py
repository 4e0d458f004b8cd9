# Goal: stamped batches are those that a transactional producer would have sent, and nothing else gets a stamp.
# Method: batches of the reference codec, stamped and compared with those that it writes with the fields from the start.

from __future__ import annotations

import random
import struct

import pytest

from kstore._core import stamp_batches
from kstore.errors import (
    CorruptRecordError,
    InvalidRecordError,
    KStoreError,
    UnsupportedCompressionTypeError,
    UnsupportedMagicError,
)
from tests.making.collecting import over
from tests.reference import codec as reference
from tests.reference import codecs

PRODUCER = {"producer_id": 2**62 - 1, "producer_epoch": 2**15 - 2}
MAX_INT32 = 2**31 - 1
TRANSACTIONAL = {"is_transactional": True, **PRODUCER}


def records(count: int, *, seed: int = 1, value_bytes: int = 20) -> list[reference.Record]:
    rng = random.Random(seed)
    return [
        reference.Record(
            offset=at,
            timestamp_ms=1_700_000_000_000 + at,
            key=b"%d" % at,
            value=rng.randbytes(value_bytes),
            timestamp_type=0,
        )
        for at in range(count)
    ]


def plain(*counts: int, **fields: object) -> bytearray:
    return bytearray(b"".join(reference.write_batch(records(count, seed=count), **fields) for count in counts))


def stamped(*counts: int, base_sequence: int, **fields: object) -> bytes:
    batches = []
    for count in counts:
        batches.append(
            reference.write_batch(records(count, seed=count), base_sequence=base_sequence, **TRANSACTIONAL, **fields)
        )
        base_sequence = (base_sequence + count) & MAX_INT32
    return b"".join(batches)


@over(
    "codec",
    [codecs.NONE, codecs.GZIP, codecs.SNAPPY, codecs.LZ4, codecs.ZSTD],
    by=lambda _: "codecs",
)
def test_stamped_batches_are_those_that_a_transactional_producer_sends(codec: int) -> None:
    counts = (3, 1, 200, 7)
    buffer = plain(*counts, codec=codec)
    sizes = [len(plain(count, codec=codec)) for count in counts]
    ends, following = stamp_batches(buffer, base_sequence=41, **PRODUCER)
    assert bytes(buffer) == stamped(*counts, base_sequence=41, codec=codec)
    assert ends == [sum(sizes[: at + 1]) for at in range(len(sizes))]
    assert following == 41 + sum(counts)


def test_batches_of_any_size_are_stamped_as_the_reference_writes_them() -> None:
    rng = random.Random(5)
    for seed in range(300):
        batch = records(rng.choice([1, 2, 9, 60]), seed=seed, value_bytes=rng.choice([0, 1, 63, 64, 1000, 20_000]))
        sequence = rng.choice([0, 1, MAX_INT32 - 3, MAX_INT32, rng.randrange(MAX_INT32)])
        buffer = bytearray(reference.write_batch(batch))
        _, following = stamp_batches(buffer, base_sequence=sequence, **PRODUCER)
        assert bytes(buffer) == reference.write_batch(batch, base_sequence=sequence, **TRANSACTIONAL)
        assert following == (sequence + len(batch)) & MAX_INT32


def test_sequence_after_the_largest_is_zero() -> None:
    buffer = plain(2, 3)
    _, following = stamp_batches(buffer, base_sequence=MAX_INT32 - 1, **PRODUCER)
    assert bytes(buffer) == stamped(2, 3, base_sequence=MAX_INT32 - 1)
    assert [batch.header.base_sequence for batch in reference.read_batches(bytes(buffer))] == [MAX_INT32 - 1, 0]
    assert following == 3


def test_incomplete_last_batch_is_left_as_it_is() -> None:
    whole = plain(3, 5)
    first = len(plain(3))
    for size in (0, 1, 11, 12, 16, 17, 60, 61, first - 1, first, first + 1, first + 60, first + 61, len(whole) - 1):
        buffer = whole[:size]
        ends, following = stamp_batches(buffer, base_sequence=0, **PRODUCER)
        if size < first:
            assert (ends, following, buffer) == ([], 0, whole[:size])
        else:
            assert (ends, following) == ([first], 3)
            assert bytes(buffer) == stamped(3, base_sequence=0) + bytes(whole[first:size])


def flipped(at: int) -> bytearray:
    buffer = plain(3, 5)
    buffer[at] ^= 1
    return buffer


SECOND = len(plain(3))


@over("at", [*range(17, 61), 70, SECOND - 1], by=lambda _: "positions")
def test_flipped_bit_that_the_crc_covers_is_found_with_its_batch(at: int) -> None:
    for start in (0, SECOND):
        with pytest.raises(CorruptRecordError) as found:
            stamp_batches(flipped(start + at), base_sequence=0, position=1000, path="f", **PRODUCER)
        assert (found.value.path, found.value.position) == ("f", 1000 + start)


def with_field(at: int, value: bytes) -> bytearray:
    """A batch with other bytes in its header, and the CRC of these."""
    buffer = plain(3)
    buffer[at : at + len(value)] = value
    buffer[17:21] = struct.pack(">I", reference.crc32c(bytes(buffer[21:])))
    return buffer


NO_CLIENT = {
    "producer id": plain(3, producer_id=5),
    "producer epoch": plain(3, producer_epoch=0),
    "base sequence": plain(3, base_sequence=0),
    "transactional": plain(3, is_transactional=True),
    "control": plain(3, is_control=True),
    "base offset": plain(3, base_offset=1, last_offset=3),
    "offset gap": plain(3, last_offset=4),
    "stamped before": bytearray(stamped(3, base_sequence=0)),
}


@over("name", list(NO_CLIENT), by=lambda _: "batches")
def test_batch_that_no_producer_without_an_id_sends_is_refused(name: str) -> None:
    before = bytes(NO_CLIENT[name])
    buffer = bytearray(before)
    with pytest.raises(ValueError, match="position 7 of f: expected offsets from 0 on and no producer id"):
        stamp_batches(buffer, base_sequence=0, position=7, path="f", **PRODUCER)
    assert buffer == before


def test_counts_and_sizes_that_do_not_fit_are_refused() -> None:
    cases = [
        (with_field(57, struct.pack(">i", 4)), InvalidRecordError, "record count"),
        (with_field(57, struct.pack(">i", -1)), InvalidRecordError, "record count"),
        (with_field(57, struct.pack(">i", MAX_INT32)), InvalidRecordError, "record count"),
        (with_field(23, struct.pack(">i", -1)), InvalidRecordError, "last offset delta"),
        (with_field(21, struct.pack(">h", 7)), UnsupportedCompressionTypeError, "compression type"),
        (with_field(8, struct.pack(">i", 48)), CorruptRecordError, "smaller than its header"),
        (with_field(8, struct.pack(">i", -1)), CorruptRecordError, "smaller than its header"),
        (with_field(16, b"\3"), UnsupportedMagicError, "magic"),
    ]
    for buffer, kind, reason in cases:
        with pytest.raises(kind, match=reason):
            stamp_batches(buffer, base_sequence=0, **PRODUCER)


def test_arguments_below_zero_are_refused() -> None:
    for name in ("producer_id", "producer_epoch", "base_sequence", "position"):
        arguments = {"base_sequence": 0, "position": 0, **PRODUCER, name: -1}
        with pytest.raises(ValueError, match="of 0 or more"):
            stamp_batches(plain(1), **arguments)


def test_mutated_bytes_are_refused_or_stamped_as_whole_batches() -> None:
    rng = random.Random(11)
    original = plain(3, 1, 8)
    stamped_count = 0
    for _ in range(3000):
        buffer = bytearray(original)
        for _ in range(rng.randint(1, 3)):
            kind = rng.randrange(4)
            at = rng.randrange(len(buffer) or 1)
            if kind == 0 and buffer:
                buffer[at] ^= 1 << rng.randrange(8)
            elif kind == 1:
                buffer[at : at + 4] = struct.pack(">i", rng.choice([-1, 0, 49, 61, len(buffer), MAX_INT32, -(2**31)]))
            elif kind == 2:
                del buffer[at:]
                buffer += b"\0" * rng.choice([0, 1, 17, 70])
            else:
                buffer[at:at] = bytes(original[: rng.randrange(len(original))])
        before = bytes(buffer)
        try:
            ends, following = stamp_batches(buffer, base_sequence=5, **PRODUCER)
        except (KStoreError, ValueError):
            continue
        stamped_count += len(ends)
        end = ends[-1] if ends else 0
        assert buffer[end:] == before[end:]
        found = list(reference.read_batches(bytes(buffer[:end])))
        assert [one.position + one.header.size for one in found] == ends
        assert following == 5 + sum(one.header.record_count for one in found)
        assert {(one.header.producer_id, one.header.attributes & 16) for one in found} <= {
            (PRODUCER["producer_id"], 16)
        }
    assert stamped_count > 100
