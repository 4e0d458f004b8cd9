"""Goal: a patched batch is the batch that a writer with the new values makes, and a refused patch writes nothing.

Method: V2 batches of the reference codec and V0 and V1 messages by their fields, compared whole before and after.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore.errors import CorruptRecordError, InvalidRecordError, UnsupportedMagicError
from kstore.record import batches as rewriting
from kstore.types import TimestampType
from tests.making import batches as builders
from tests.making.messages import packed_entry
from tests.making.writing import writable_records
from tests.reference import codec as reference

APPEND_TIME = TimestampType.LOG_APPEND_TIME
V1 = {"magic": 1, "timestamp_ms": 50}
GZIP_WRAPPER, APPEND_TIME_BIT = 1, 8
MAX_INT64 = 2**63 - 1


def set_epoch(data: bytearray, at: int = 0) -> object:
    return rewriting.set_partition_leader_epoch(data, at, partition_leader_epoch=5)


def set_offset(data: bytearray, at: int = 0) -> object:
    return rewriting.set_last_offset(data, at, last_offset=5)


def set_time(data: bytearray, at: int = 0) -> object:
    return rewriting.set_max_timestamp(data, at, max_timestamp_ms=5)


def assign(data: bytearray, at: int = 0) -> object:
    return rewriting.assign_offsets(memoryview(data)[at:], base_offset=5)


PATCHES: dict[str, Callable[..., object]] = {
    "last offset": set_offset,
    "leader epoch": set_epoch,
    "timestamp": set_time,
    "offsets": assign,
}
patches = pytest.mark.parametrize("patch", PATCHES.values(), ids=PATCHES)


@given(records=writable_records(), base_offset=st.integers(0, 2**62), epoch=st.integers(-1, 2**31 - 1))
def test_assigned_offsets_and_epoch_are_those_of_batches_written_so(
    records: list[reference.Record], base_offset: int, epoch: int
) -> None:
    span = records[-1].offset + 1
    data = bytearray(reference.write_batch(records, base_offset=0) * 2)
    next_offset = rewriting.assign_offsets(data, base_offset=base_offset, partition_leader_epoch=epoch)
    assert next_offset == base_offset + 2 * span
    expected = b""
    for first in (base_offset, base_offset + span):
        moved = [record._replace(offset=first + record.offset) for record in records]
        expected += reference.write_batch(moved, base_offset=first, partition_leader_epoch=epoch)
    assert data == expected


def test_plain_messages_take_one_offset_each_between_batches() -> None:
    old = [packed_entry(b"a", None, offset=9, magic=0), packed_entry(b"b", b"k", offset=9, **V1), builders.batch(9, 3)]
    data = bytearray(b"".join(old))
    assert rewriting.assign_offsets(data, base_offset=7, partition_leader_epoch=2) == 12
    new_batch = builders.patch_header(old[2], repair_crc=False, base_offset=9, partition_leader_epoch=2)
    new = [packed_entry(b"a", None, offset=7, magic=0), packed_entry(b"b", b"k", offset=8, **V1), new_batch]
    assert data == b"".join(new)


def test_no_batch_takes_no_offset() -> None:
    assert rewriting.assign_offsets(bytearray(), base_offset=7) == 7


def test_offsets_of_a_wrapper_are_not_guessed() -> None:
    data = bytearray(builders.batch(0) + packed_entry(b"...", None, offset=3, attributes=GZIP_WRAPPER, **V1))
    before = bytes(data)
    with pytest.raises(ValueError, match=f"wrapper at position {len(builders.batch(0))} does not say"):
        rewriting.assign_offsets(data, base_offset=0)
    assert data == before


@pytest.mark.parametrize("base_offset", [-1, MAX_INT64 - 5, MAX_INT64])
def test_offsets_that_no_log_can_have_are_not_assigned(base_offset: int) -> None:
    data = bytearray(builders.batch(0, 3) * 2)
    before = bytes(data)
    with pytest.raises(ValueError, match="base_offset"):
        rewriting.assign_offsets(data, base_offset=base_offset)
    assert data == before
    assert rewriting.assign_offsets(data, base_offset=MAX_INT64 - 6) == MAX_INT64


@pytest.mark.parametrize("at", [0, 5])
def test_last_offset_of_a_batch_moves_its_base(at: int) -> None:
    data = bytearray(at) + builders.batch(0, 3)
    rewriting.set_last_offset(data, at, last_offset=2**40)
    assert data[at:] == builders.patch_header(builders.batch(0, 3), repair_crc=False, base_offset=2**40 - 2)


@pytest.mark.parametrize("attributes", [0, GZIP_WRAPPER], ids=["plain", "wrapper"])
@pytest.mark.parametrize("fields", [{"magic": 0}, V1], ids=["V0", "V1"])
def test_last_offset_of_a_message_is_its_offset(fields: dict[str, int], attributes: int) -> None:
    data = bytearray(packed_entry(b"v", None, offset=1, attributes=attributes, **fields))
    rewriting.set_last_offset(data, last_offset=77)
    assert data == packed_entry(b"v", None, offset=77, attributes=attributes, **fields)


@pytest.mark.parametrize("last_offset", [-1, 1, MAX_INT64])
def test_last_offset_that_no_batch_can_have_is_refused(last_offset: int) -> None:
    data = bytearray(builders.batch(0, 3))
    before = bytes(data)
    with pytest.raises(ValueError, match=f"last_offset must be from 2 to {MAX_INT64 - 1}, got {last_offset}"):
        rewriting.set_last_offset(data, last_offset=last_offset)
    assert data == before


def test_leader_epoch_is_outside_the_crc() -> None:
    data = bytearray(builders.batch(4, 2))
    rewriting.set_partition_leader_epoch(data, partition_leader_epoch=9)
    assert data == builders.patch_header(builders.batch(4, 2), repair_crc=False, partition_leader_epoch=9)
    reference.read_batch(bytes(data))


@pytest.mark.parametrize("fields", [{"magic": 0}, V1], ids=["V0", "V1"])
def test_message_has_no_leader_epoch(fields: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="has no partition leader epoch"):
        set_epoch(bytearray(packed_entry(b"v", None, offset=1, **fields)))


@given(records=writable_records(), append_time_ms=st.integers(-1, MAX_INT64), codec=st.integers(0, 4))
def test_append_time_rewrites_the_header_of_a_batch_alone(
    records: list[reference.Record], append_time_ms: int, codec: int
) -> None:
    data = bytearray(reference.write_batch(records, codec=codec))
    assert rewriting.set_max_timestamp(data, max_timestamp_ms=append_time_ms, timestamp_type=APPEND_TIME)
    assert data == reference.write_batch(records, codec=codec, log_append_time_ms=append_time_ms)
    assert not rewriting.set_max_timestamp(data, max_timestamp_ms=append_time_ms, timestamp_type=APPEND_TIME)
    largest_ms = max(record.timestamp_ms for record in records)
    assert rewriting.set_max_timestamp(data, max_timestamp_ms=largest_ms)
    assert data == reference.write_batch(records, codec=codec)


@pytest.mark.parametrize("attributes", [0, GZIP_WRAPPER], ids=["plain", "wrapper"])
@pytest.mark.parametrize("at", [0, 5])
def test_timestamp_of_a_message_is_under_its_crc(at: int, attributes: int) -> None:
    data = bytearray(at) + packed_entry(b"v", b"k", offset=3, attributes=attributes, **V1)
    assert rewriting.set_max_timestamp(data, at, max_timestamp_ms=99, timestamp_type=APPEND_TIME)
    attributes |= APPEND_TIME_BIT
    assert data[at:] == packed_entry(b"v", b"k", offset=3, magic=1, timestamp_ms=99, attributes=attributes)


KNOWN: dict[str, tuple[bytes, int]] = {
    "V1 message": (packed_entry(b"v", None, offset=3, attributes=0x70, **V1), 17),
    "V2 batch": (builders.patch_header(builders.batch(0), attributes=0x0780), 21),
}


@pytest.mark.parametrize(("data", "attributes_at"), KNOWN.values(), ids=KNOWN)
def test_undefined_attribute_bits_are_dropped_by_a_rewrite_only(data: bytes, attributes_at: int) -> None:
    patched = bytearray(data)
    current_ms = 50 if attributes_at == 17 else reference.Header.unpack(data).max_timestamp_ms
    assert not rewriting.set_max_timestamp(patched, max_timestamp_ms=current_ms)
    assert patched == data
    assert rewriting.set_max_timestamp(patched, max_timestamp_ms=current_ms + 1)
    width = 1 if attributes_at == 17 else 2
    assert patched[attributes_at : attributes_at + width] == bytes(width)


def test_v0_message_has_no_timestamp() -> None:
    with pytest.raises(ValueError, match="magic 0"):
        set_time(bytearray(packed_entry(b"v", None, offset=1, magic=0)))


@pytest.mark.parametrize(
    "options",
    [
        {"max_timestamp_ms": -2},
        {"max_timestamp_ms": 2**63},
        {"max_timestamp_ms": 1, "timestamp_type": TimestampType.NO_TIMESTAMP_TYPE},
    ],
    ids=["below -1", "beyond int64", "no type"],
)
def test_timestamp_that_no_batch_can_have_is_refused(options: dict[str, Any]) -> None:
    data = bytearray(builders.batch(0))
    with pytest.raises(ValueError, match="timestamp"):
        rewriting.set_max_timestamp(data, **options)
    assert data == builders.batch(0)


BAD: dict[str, tuple[bytes, type[Exception]]] = {
    "16 bytes": (builders.batch(0)[:16], CorruptRecordError),
    "header cut off": (builders.batch(0)[:60], CorruptRecordError),
    "batch cut off": (builders.batch(0)[:-1], CorruptRecordError),
    "V0 message cut off": (packed_entry(b"v", None, offset=1, magic=0)[:-1], CorruptRecordError),
    "V0 message of 25 bytes": (bytes(11) + b"\x0d" + bytes(13), CorruptRecordError),
    "V1 message of 33 bytes": (bytes(11) + b"\x15" + bytes(4) + b"\x01" + bytes(16), CorruptRecordError),
    "negative length": (bytes(8) + b"\xff" * 4 + builders.batch(0)[12:], CorruptRecordError),
    "magic 3": (builders.batch(0)[:16] + b"\x03" + builders.batch(0)[17:], UnsupportedMagicError),
    "magic -1": (builders.batch(0)[:16] + b"\xff" + builders.batch(0)[17:], UnsupportedMagicError),
}


@patches
@pytest.mark.parametrize(("data", "error"), BAD.values(), ids=BAD)
def test_what_is_no_whole_batch_is_not_patched(
    patch: Callable[..., object], data: bytes, error: type[Exception]
) -> None:
    target = bytearray(data)
    with pytest.raises(error):
        patch(target)
    assert target == data


@pytest.mark.parametrize("patch", [set_offset, assign])
@pytest.mark.parametrize("delta", [-1, -(2**31)])
def test_negative_last_offset_delta_is_invalid(patch: Callable[..., object], delta: int) -> None:
    data = bytearray(builders.patch_header(builders.batch(0), last_offset_delta=delta))
    with pytest.raises(InvalidRecordError, match=f"found {delta}"):
        patch(data)


@pytest.mark.parametrize("patch", [set_offset, set_epoch, set_time])
@pytest.mark.parametrize("at", [-1, 1000])
def test_place_outside_the_buffer_is_refused(patch: Callable[..., object], at: int) -> None:
    with pytest.raises(ValueError, match="at must be from 0 to"):
        patch(bytearray(builders.batch(0)), at)


@patches
def test_read_only_buffer_is_refused(patch: Callable[..., object]) -> None:
    with pytest.raises((BufferError, ValueError, TypeError), match=r"read-only|not writable"):
        patch(builders.batch(0))
