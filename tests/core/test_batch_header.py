"""Goal: a batch header is read field by field, and a frame that can't be right is refused with its place.

Method: headers of the reference codec with each field at its limits; a table of wrong frames.
"""

from __future__ import annotations

import pickle
import zlib
from dataclasses import replace

import pytest

from kstore import _core
from kstore.errors import CorruptionError, CorruptRecordError, UnsupportedMagicError
from tests.making import batches as builders
from tests.making.messages import packed_entry
from tests.reference import codec as reference
from tests.reference.codec import HEADER_BYTES, Header

MIN_INT64, MAX_INT64 = -(2**63), 2**63 - 1
MIN_INT32, MAX_INT32 = -(2**31), 2**31 - 1

# The fields that read_header takes as they are: any value of the type is legal for it.
FREE_FIELDS = {
    "base_offset": (0, MIN_INT64, MAX_INT64),
    "partition_leader_epoch": (0, -1, MIN_INT32, MAX_INT32),
    "crc": (0, 1, 2**31, 2**32 - 1),
    "attributes": (0, 1, -1, -(2**15), 2**15 - 1),
    "base_timestamp_ms": (0, -1, MIN_INT64, MAX_INT64),
    "max_timestamp_ms": (0, -1, MIN_INT64, MAX_INT64),
    "producer_id": (0, -1, MIN_INT64, MAX_INT64),
    "producer_epoch": (0, -1, -(2**15), 2**15 - 1),
    "base_sequence": (0, -1, MIN_INT32, MAX_INT32),
    "record_count": (0, 1, -1, MIN_INT32, MAX_INT32),
}
CASES = [(field, value) for field, values in FREE_FIELDS.items() for value in values]
DISTINCT = Header(
    base_offset=0x0102030405060708,
    batch_length=49,
    partition_leader_epoch=0x11121314,
    crc=0xF1F2F3F4,
    attributes=0x0003,
    last_offset_delta=0x21222324,
    base_timestamp_ms=0x3132333435363738,
    max_timestamp_ms=0x4142434445464748,
    producer_id=0x5152535455565758,
    producer_epoch=0x6162,
    base_sequence=0x71727374,
    record_count=0x01828384,
)


def test_constants_are_those_of_the_format() -> None:
    assert _core.RECORD_BATCH_OVERHEAD == HEADER_BYTES
    assert _core.LOG_OVERHEAD == reference.LOG_OVERHEAD
    assert reference.OFFSET_ENTRY.size == _core.OFFSET_INDEX_ENTRY_SIZE
    assert reference.TIME_ENTRY.size == _core.TIME_INDEX_ENTRY_SIZE


def test_each_field_comes_from_its_own_bytes() -> None:
    header = _core.read_header(DISTINCT.pack(), position=77)
    assert header.position == 77
    assert header.size_in_bytes == 61
    assert header.magic == 2
    assert header.last_offset == DISTINCT.base_offset + DISTINCT.last_offset_delta
    for field in FREE_FIELDS:
        assert getattr(header, field) == getattr(DISTINCT, field), field


def test_a_last_offset_beyond_int64_is_told_as_it_is() -> None:
    header = _core.read_header(replace(DISTINCT, base_offset=2**63 - 2, last_offset_delta=2).pack(), position=0)
    assert header.last_offset == 2**63


@pytest.mark.parametrize(("field", "value"), CASES, ids=[f"{field} {value}" for field, value in CASES])
def test_field_keeps_every_value_of_its_type(field: str, value: int) -> None:
    data = builders.patch_header(builders.batch(0), repair_crc=False, **{field: value})
    assert getattr(_core.read_header(data, position=0), field) == value


@pytest.mark.parametrize("codec", range(8))
def test_codec_is_the_three_lowest_attribute_bits(codec: int) -> None:
    data = builders.patch_header(builders.batch(0), attributes=codec | 0x78)
    assert _core.read_header(data, position=0).codec == codec


ATTRIBUTE_BITS = {
    "LogAppendTime": (0x08, "timestamp_type", 1),
    "transactional": (0x10, "is_transactional", True),
    "control": (0x20, "is_control", True),
    "delete horizon": (0x40, "has_delete_horizon", True),
}


@pytest.mark.parametrize(("bit", "name", "value"), ATTRIBUTE_BITS.values(), ids=ATTRIBUTE_BITS)
def test_attribute_bit_sets_one_property_alone(bit: int, name: str, value: object) -> None:
    header = _core.read_header(builders.patch_header(builders.batch(0), attributes=bit), position=0)
    assert getattr(header, name) == value
    others = {other for _, other, _ in ATTRIBUTE_BITS.values()} - {name}
    assert not any(getattr(header, other) for other in others)


def test_undefined_attribute_bits_change_nothing_else() -> None:
    header = _core.read_header(builders.patch_header(builders.batch(0), attributes=-128), position=0)
    assert header.codec == 0
    assert not any(getattr(header, name) for _, name, _ in ATTRIBUTE_BITS.values())


def test_header_is_read_where_at_says() -> None:
    data = b"\xff" * 5 + builders.batch(9)
    assert _core.read_header(data, 5, position=1000).base_offset == 9
    assert _core.read_header(data, at=5, position=1000).position == 1000


def test_header_keeps_no_view_of_the_buffer() -> None:
    data = bytearray(builders.batch(3))
    header = _core.read_header(data, position=0)
    data.clear()
    assert header.base_offset == 3


WHOLE = builders.batch(5, 2)
MESSAGE_V0 = packed_entry(b"v", b"k", offset=5, magic=0)
MESSAGE_V1 = packed_entry(b"v", b"k", offset=5, magic=1, timestamp_ms=7)
END, SMALL = (
    "batch runs past the end: expected {} bytes, found {}",
    "batch smaller than its header: expected at least {}",
)
LARGE = f"batch larger than the limit: expected at most {reference.MAX_BATCH_BYTES} bytes, found"
MAGIC = "unsupported magic: expected 0 to 2, found"


def framed(**fields: int) -> bytes:
    return builders.patch_header(WHOLE, repair_crc=False, **fields)


# The bytes, and the reason by which they are refused.
BAD_FRAMES: dict[str, tuple[bytes, str]] = {
    "no bytes": (b"", END.format(61, 0)),
    "cut before the magic": (WHOLE[:16], END.format(61, 16)),
    "cut before the end of the header": (WHOLE[:60], END.format(61, 60)),
    "size -1": (framed(batch_length=-1), SMALL.format("61 bytes, found 11")),
    "size 0": (framed(batch_length=0), SMALL.format("61 bytes, found 12")),
    "size 48": (framed(batch_length=48), SMALL.format("61 bytes, found 60")),
    "smallest size": (framed(batch_length=MIN_INT32), SMALL.format(f"61 bytes, found {MIN_INT32 + 12}")),
    "above max_batch_bytes": (
        framed(batch_length=reference.MAX_BATCH_BYTES - 11),
        f"{LARGE} {reference.MAX_BATCH_BYTES + 1}",
    ),
    "largest size": (framed(batch_length=MAX_INT32), f"{LARGE} {MAX_INT32 + 12}"),
    "magic 0 and size 13": (MESSAGE_V0[:11] + b"\x0d" + MESSAGE_V0[12:], SMALL.format("26 bytes, found 25")),
    "magic 1 and size 21": (MESSAGE_V1[:11] + b"\x15" + MESSAGE_V1[12:], SMALL.format("34 bytes, found 33")),
    "magic 0 cut before the end of its header": (MESSAGE_V0[:25], END.format(26, 25)),
    "magic 3": (framed(magic=3), f"{MAGIC} 3"),
    "magic -1": (framed(magic=-1), f"{MAGIC} -1"),
    "magic 127": (framed(magic=127), f"{MAGIC} 127"),
    "17 bytes of magic 3": (framed(magic=3)[:17], f"{MAGIC} 3"),
}


@pytest.mark.parametrize(("data", "reason"), BAD_FRAMES.values(), ids=BAD_FRAMES)
def test_wrong_frame_is_refused_with_reason_path_and_position(data: bytes, reason: str) -> None:
    with pytest.raises(CorruptionError) as caught:
        _core.read_header(data, position=4096, path="x.log", max_batch_bytes=reference.MAX_BATCH_BYTES)
    assert type(caught.value) is (UnsupportedMagicError if reason.startswith(MAGIC) else CorruptRecordError)
    assert (caught.value.reason, caught.value.position, caught.value.path) == (reason, 4096, "x.log")
    assert "4096" in str(caught.value)
    assert "x.log" in str(caught.value)


def test_unsupported_magic_is_named() -> None:
    with pytest.raises(UnsupportedMagicError) as caught:
        _core.read_header(builders.patch_header(WHOLE, magic=3), position=0)
    assert caught.value.magic == 3


@pytest.mark.parametrize("magic", [0, 1])
def test_body_of_magic_2_under_another_magic_is_named_by_its_crc(magic: int) -> None:
    data = builders.patch_header(WHOLE, magic=magic)
    with pytest.raises(UnsupportedMagicError, match=f"expected 2, found {magic}") as caught:
        _core.check_crc(data, position=7)
    assert (caught.value.magic, caught.value.position) == (magic, 7)


def test_size_limits_are_inclusive() -> None:
    smallest = reference.seal(Header(), b"")
    assert _core.read_header(smallest, position=0).size_in_bytes == HEADER_BYTES
    assert _core.read_header(WHOLE, position=0, max_batch_bytes=len(WHOLE)).size_in_bytes == len(WHOLE)
    with pytest.raises(CorruptRecordError) as caught:
        _core.read_header(WHOLE, position=9, max_batch_bytes=len(WHOLE) - 1)
    expected = f"batch larger than the limit: expected at most {len(WHOLE) - 1} bytes, found {len(WHOLE)}"
    assert (caught.value.reason, caught.value.position) == (expected, 9)


@pytest.mark.parametrize("at", [-1, len(WHOLE) + 1])
def test_place_outside_the_buffer_is_misuse(at: int) -> None:
    with pytest.raises(ValueError, match="at must be"):
        _core.read_header(WHOLE, at, position=0)


def test_right_crc_passes() -> None:
    _core.check_crc(WHOLE, position=0)
    _core.check_crc(reference.write_empty_batch(0, last_offset=3, max_timestamp_ms=-1), position=0)


def test_wrong_crc_tells_stored_and_computed() -> None:
    damaged = bytearray(WHOLE)
    builders.flip_bit(damaged, len(damaged) - 1, bit=0)
    with pytest.raises(CorruptRecordError) as caught:
        _core.check_crc(damaged, position=8192, path="x.log")
    stored, computed = Header.unpack(WHOLE).crc, reference.crc32c(bytes(damaged[reference.ATTRIBUTES_AT :]))
    assert (caught.value.expected, caught.value.found) == (stored, computed)
    assert (caught.value.position, caught.value.base_offset, caught.value.path) == (8192, 5, "x.log")
    assert f"stored 0x{stored:08x}" in str(caught.value)
    assert f"computed 0x{computed:08x}" in str(caught.value)


@pytest.mark.parametrize("data", [WHOLE[:-1], WHOLE + b"\0"], ids=["a byte short", "a byte more"])
def test_crc_wants_exactly_one_batch(data: bytes) -> None:
    with pytest.raises(CorruptRecordError) as caught:
        _core.check_crc(data, position=9)
    assert (caught.value.reason, caught.value.position) == (END.format(len(WHOLE), len(data)), 9)
    assert (caught.value.expected, caught.value.found) == (len(WHOLE), len(data))


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_size_is_told_by_the_crc_whatever_its_field_says(magic: int) -> None:
    whole = builders.batch(5, 3, value_bytes=40) if magic == 2 else packed_entry(b"v" * 50, b"k", offset=5, magic=magic)
    for size_field in (b"\0\0\0\0", b"\xff\xff\xff\xff", whole[8:12]):
        data = whole[:8] + size_field + whole[12:]
        assert _core.sizes_by_crc(data + whole) == [len(whole)]
        assert _core.sizes_by_crc(data) == [len(whole)]
        assert _core.sizes_by_crc(data[:-1]) == []


def test_no_size_is_told_of_what_can_be_no_batch() -> None:
    whole = builders.batch(5)
    for data in (b"", bytes(16), bytes(60), whole[:60], whole[:16] + b"\3" + whole[17:]):
        assert _core.sizes_by_crc(data) == []
    changed = bytearray(whole)
    changed[-1] ^= 1
    assert _core.sizes_by_crc(changed) == []
    assert len(_core.sizes_by_crc(bytes(12) + zlib.crc32(b"").to_bytes(4, "big") + bytes(10_000))) <= 8


@pytest.mark.parametrize("magic", [3, 5, 127, -1])
def test_magic_that_is_none_of_kafkas_is_corruption(magic: int) -> None:
    data = builders.patch_header(WHOLE, repair_crc=False, magic=magic)
    with pytest.raises(CorruptionError) as caught:
        _core.read_header(data, 0, position=0)
    error = caught.value
    reason = f"unsupported magic: expected 0 to 2, found {magic}"
    assert (error.reason, error.position, error.expected, error.found) == (reason, 0, "0 to 2", magic)
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), copy.magic, copy.reason) == (UnsupportedMagicError, magic, reason)
