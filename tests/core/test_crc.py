"""Goal: CRC-32C is right on every path, for every length, alignment and chaining.

Method: published check values, then the bitwise definition and the reference table on all short lengths and
on lengths around the block sizes of the fast paths.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache, partial

import pytest

from kstore import _core
from tests.reference import codec as reference

Crc = Callable[..., int]
PATHS = {"dispatched": _core.crc32c} | {name: partial(_core.crc32c_by, name) for name in _core.CRC32C_PATHS}

# RFC 3720 appendix B.4, and the usual nine digits.
CHECK_VALUES = {
    "empty": (b"", 0),
    "nine digits": (b"123456789", 0xE3069283),
    "32 zeros": (bytes(32), 0x8A9136AA),
    "32 ones": (b"\xff" * 32, 0x62A8AB43),
    "32 ascending": (bytes(range(32)), 0x46DD794E),
    "32 descending": (bytes(reversed(range(32))), 0x113FDB5C),
}
DATA = random.Random(20111).randbytes(100_000)
LENGTHS = [*range(200), *range(250, 330), 511, 512, 513, 575, 576, 577, 767, 768, 769, 1023, 1024, 1025]
LENGTHS += [3071, 3072, 3073, 8191, 8192, 24_577]
LENGTHS += [33_000, 98_304, 98_400]


@pytest.fixture(params=list(PATHS.values()), ids=list(PATHS))
def crc(request: pytest.FixtureRequest) -> Crc:
    path: Crc = request.param
    return path


@pytest.mark.parametrize(("data", "expected"), CHECK_VALUES.values(), ids=CHECK_VALUES)
def test_published_check_values_hold(crc: Crc, data: bytes, expected: int) -> None:
    assert crc(data) == expected
    assert reference.crc32c(data) == reference.crc32c_by_table(data) == expected


@cache
def table_sum(start: int, length: int) -> int:
    return reference.crc32c_by_table(DATA[start : start + length])


@pytest.mark.parametrize("alignment", range(9))
def test_any_length_from_any_alignment_equals_the_reference(crc: Crc, alignment: int) -> None:
    lengths = LENGTHS if alignment in (0, 3) else LENGTHS[:200:7]
    for length in lengths:
        piece = memoryview(DATA)[alignment : alignment + length]
        assert crc(piece) == table_sum(alignment, length), length


def test_a_sum_of_parts_is_the_sum_of_the_whole(crc: Crc) -> None:
    whole = crc(DATA)
    for cut in (0, 1, 7, 8, 63, 1000, 16_384, len(DATA)):
        assert crc(DATA[cut:], crc(DATA[:cut])) == whole, cut


def test_every_single_bit_changes_the_sum(crc: Crc) -> None:
    data = DATA[:340]
    sums = {crc(data)}
    for position in range(len(data)):
        for bit in range(8):
            sums.add(crc(data[:position] + bytes([data[position] ^ 1 << bit]) + data[position + 1 :]))
    assert len(sums) == 1 + 340 * 8


@pytest.mark.parametrize("buffer", [bytes, bytearray, memoryview], ids=lambda kind: kind.__name__)
def test_any_contiguous_buffer_is_taken(crc: Crc, buffer: Callable[[bytes], object]) -> None:
    assert crc(buffer(b"123456789")) == 0xE3069283


def test_misuse_is_a_type_or_value_error(crc: Crc) -> None:
    with pytest.raises(TypeError):
        crc("123456789")
    with pytest.raises((ValueError, BufferError)):
        crc(memoryview(b"123456789")[::2])
    with pytest.raises(OverflowError):
        crc(b"", 2**32)
    with pytest.raises(OverflowError):
        crc(b"", -1)


def test_the_portable_path_is_always_there() -> None:
    assert _core.CRC32C_PATHS[-1] == "portable"


def test_a_path_that_the_cpu_has_not_is_refused() -> None:
    with pytest.raises(ValueError, match="not in tuple"):
        _core.crc32c_by("abacus", b"")
