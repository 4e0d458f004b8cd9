"""Goal: the core's varints have Kafka's bytes, limits and tolerance.

Method: boundary values in tables with their bytes, then every size against the reference codec.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kstore import _core
from kstore.errors import InvalidRecordError
from tests.reference import codec as reference

MIN_INT32, MAX_INT32 = -(2**31), 2**31 - 1
MIN_INT64, MAX_INT64 = -(2**63), 2**63 - 1

VARINTS = {
    "zero": (0, "00"),
    "minus one": (-1, "01"),
    "one": (1, "02"),
    "last of one byte": (63, "7e"),
    "last negative of one byte": (-64, "7f"),
    "first of two bytes": (64, "8001"),
    "first negative of two bytes": (-65, "8101"),
    "last of two bytes": (8191, "fe7f"),
    "first of three bytes": (8192, "808001"),
    "last of four bytes": (2**27 - 1, "feffff7f"),
    "first of five bytes": (2**27, "8080808001"),
    "largest int32": (MAX_INT32, "feffffff0f"),
    "smallest int32": (MIN_INT32, "ffffffff0f"),
}
VARLONGS = VARINTS | {
    "beyond int32": (2**31, "8080808010"),
    "last of nine bytes": (2**62 - 1, "feffffffffffffff7f"),
    "largest int64": (MAX_INT64, "feffffffffffffffff01"),
    "smallest int64": (MIN_INT64, "ffffffffffffffffff01"),
}


@pytest.mark.parametrize(("value", "shown"), VARINTS.values(), ids=VARINTS)
def test_varint_has_the_expected_bytes_both_ways(value: int, shown: str) -> None:
    data = bytes.fromhex(shown)
    assert _core.encode_varint(value) == data
    assert _core.decode_varint(data) == (value, len(data))
    assert _core.size_of_varint(value) == len(data)


@pytest.mark.parametrize(("value", "shown"), VARLONGS.values(), ids=VARLONGS)
def test_varlong_has_the_expected_bytes_both_ways(value: int, shown: str) -> None:
    data = bytes.fromhex(shown)
    assert _core.encode_varlong(value) == data
    assert _core.decode_varlong(data) == (value, len(data))
    assert _core.size_of_varlong(value) == len(data)


def test_every_power_of_two_and_its_neighbours_agree_with_the_reference() -> None:
    for exponent in range(64):
        for value in {(1 << exponent) + step for step in (-1, 0, 1)} | {-(1 << exponent) + step for step in (-1, 0, 1)}:
            if MIN_INT64 <= value <= MAX_INT64:
                data = reference.encode_varint(value)
                assert _core.encode_varlong(value) == data
                assert _core.decode_varlong(data) == (value, len(data))
            if MIN_INT32 <= value <= MAX_INT32:
                data = reference.encode_varint(value)
                assert _core.encode_varint(value) == data
                assert _core.decode_varint(data) == (value, len(data))


def test_decoding_starts_at_the_position_and_ignores_what_follows() -> None:
    assert _core.decode_varint(b"\xff\xff\x80\x01\xff", 2) == (64, 4)
    assert _core.decode_varlong(b"\xff\x02", 1) == (1, 2)


@pytest.mark.parametrize("size", range(2, 6))
def test_padded_varint_is_read_like_the_short_one(size: int) -> None:
    assert _core.decode_varint(reference.encode_varint(1, size=size)) == (1, size)


@pytest.mark.parametrize("size", range(2, 11))
def test_padded_varlong_is_read_like_the_short_one(size: int) -> None:
    assert _core.decode_varlong(reference.encode_varint(-2, size=size)) == (-2, size)


def test_bits_above_the_type_are_dropped() -> None:
    assert _core.decode_varint(bytes.fromhex("ffffffff7f")) == (MIN_INT32, 5)
    assert _core.decode_varlong(bytes.fromhex("ffffffffffffffffff7f")) == (MIN_INT64, 10)


Decode = Callable[..., tuple[int, int]]
CUT_OR_LONG = {
    "no bytes": (_core.decode_varint, "", 0),
    "position at the end": (_core.decode_varint, "00", 1),
    "cut after one byte": (_core.decode_varint, "80", 0),
    "cut after four bytes": (_core.decode_varint, "ffffffff", 0),
    "six bytes": (_core.decode_varint, "808080808000", 0),
    "no bytes for a varlong": (_core.decode_varlong, "", 0),
    "varlong cut after nine bytes": (_core.decode_varlong, "ff" * 9, 0),
    "varlong of eleven bytes": (_core.decode_varlong, "80" * 10 + "00", 0),
}


@pytest.mark.parametrize(("decode", "shown", "position"), CUT_OR_LONG.values(), ids=CUT_OR_LONG)
def test_cut_or_too_long_varint_is_refused_at_its_position(decode: Decode, shown: str, position: int) -> None:
    with pytest.raises(InvalidRecordError) as caught:
        decode(bytes.fromhex(shown), position)
    assert type(caught.value) is InvalidRecordError
    assert caught.value.position == position


@pytest.mark.parametrize("decode", [_core.decode_varint, _core.decode_varlong])
@pytest.mark.parametrize("position", [-1, 3, 2**40])
def test_position_outside_the_buffer_is_misuse(decode: Decode, position: int) -> None:
    with pytest.raises(ValueError, match="position"):
        decode(b"\x00\x00", position)


@pytest.mark.parametrize(
    ("encode", "value"),
    [
        (_core.encode_varint, MAX_INT32 + 1),
        (_core.encode_varint, MIN_INT32 - 1),
        (_core.encode_varlong, MAX_INT64 + 1),
        (_core.encode_varlong, MIN_INT64 - 1),
    ],
)
def test_value_outside_the_type_is_misuse(encode: Callable[[int], bytes], value: int) -> None:
    with pytest.raises(OverflowError):
        encode(value)
