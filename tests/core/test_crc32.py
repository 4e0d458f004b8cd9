"""Goal: the CRC-32 of old messages is right on every path, for every length, alignment and chaining.

Method: zlib's crc32 over all short lengths, lengths around the block sizes of the fast path, and parts of a whole.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from functools import partial

import pytest

from kstore import _core

Crc = Callable[..., int]
PATHS = {"dispatched": _core.crc32} | {name: partial(_core.crc32_by, name) for name in _core.CRC32_PATHS}
DATA = random.Random(1952).randbytes(50_000)
LENGTHS = [*range(330), 511, 512, 513, 575, 576, 577, 1042, 4095, 4096, 4097, 5119, 5120, 33_000]


@pytest.fixture(params=list(PATHS.values()), ids=list(PATHS))
def crc(request: pytest.FixtureRequest) -> Crc:
    path: Crc = request.param
    return path


def test_published_check_value_holds(crc: Crc) -> None:
    assert crc(b"123456789") == 0xCBF43926
    assert crc(b"") == 0


@pytest.mark.parametrize("alignment", range(9))
def test_any_length_from_any_alignment_equals_zlib(crc: Crc, alignment: int) -> None:
    for length in LENGTHS:
        piece = memoryview(DATA)[alignment : alignment + length]
        assert crc(piece) == zlib.crc32(piece), length
        assert crc(piece, 0xDEADBEEF) == zlib.crc32(piece, 0xDEADBEEF), length


def test_a_sum_of_parts_is_the_sum_of_the_whole(crc: Crc) -> None:
    whole = crc(DATA)
    for cut in (0, 1, 15, 16, 63, 64, 65, 1000, len(DATA)):
        assert crc(DATA[cut:], crc(DATA[:cut])) == whole, cut


def test_every_single_bit_changes_the_sum(crc: Crc) -> None:
    data = DATA[:340]
    sums = {crc(data)}
    for position in range(len(data)):
        for bit in range(8):
            sums.add(crc(data[:position] + bytes([data[position] ^ 1 << bit]) + data[position + 1 :]))
    assert len(sums) == 1 + 340 * 8


def test_misuse_is_a_type_or_value_error(crc: Crc) -> None:
    with pytest.raises(TypeError):
        crc("123456789")
    with pytest.raises((ValueError, BufferError)):
        crc(memoryview(b"123456789")[::2])
    with pytest.raises(OverflowError):
        crc(b"", 2**32)


def test_the_portable_path_is_always_there_and_an_unknown_one_refused() -> None:
    assert _core.CRC32_PATHS[-1] == "portable"
    with pytest.raises(ValueError, match="not in tuple"):
        _core.crc32_by("abacus", b"")
