"""Goal: the headers of a run of sound batches are those that the checks of one batch accept, one after the other.
Method: runs of all magics, whole, damaged at any byte and ended at any byte; read_header, check_place and check_crc."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore import _core
from kstore.errors import CorruptionError, UnsupportedMagicError
from tests.making.batches import batch
from tests.making.messages import packed_entry

MOST_BATCH_BYTES = 400
START = 1_000_000


def entry(offset: int, kind: int) -> bytes:
    if kind < 2:
        return packed_entry(b"value", b"key", offset=offset, magic=kind)
    return batch(offset, kind - 1, value_bytes=20 * kind)


@st.composite
def runs(draw: st.DrawFn) -> bytes:
    """Batches with offsets that mostly rise, of which a byte may be wrong."""
    offset, parts = 0, []
    for kind in draw(st.lists(st.integers(0, 9), max_size=6)):
        offset = max(0, offset + draw(st.sampled_from([0, 0, 0, 0, 0, 5, -1])))
        parts.append(entry(offset, kind))
        offset += max(1, kind - 1)
    data = bytearray(b"".join(parts))
    if data and draw(st.booleans()):
        data[draw(st.integers(0, len(data) - 1))] ^= draw(st.integers(1, 255))
    return bytes(data[: draw(st.integers(0, len(data)))] if draw(st.booleans()) else data)


def one_by_one(data: bytes, *, at: int, least_offset: int, next_base_offset: int | None) -> list[tuple[int, int, int]]:
    found = []
    while True:
        position = START + at
        try:
            header = _core.read_header(
                data,
                at,
                position=position,
                max_batch_bytes=MOST_BATCH_BYTES,
                end_position=START + len(data),
            )
            header.check_place(least_offset=least_offset, next_base_offset=next_base_offset)
            _core.check_crc(data[at : at + header.size_in_bytes], position=position)
        except (CorruptionError, UnsupportedMagicError):
            return found
        found.append((header.position, header.size_in_bytes, header.last_offset))
        at += header.size_in_bytes
        least_offset = header.last_offset + 1


@given(runs(), st.integers(0, 3), st.integers(0, 3), st.sampled_from([None, 3, 10, 30]))
def test_headers_are_those_of_the_checks_one_by_one(
    data: bytes, at: int, least_offset: int, next_base_offset: int | None
) -> None:
    at = min(at, len(data)) if at < 3 else 0
    headers = _core.sound_headers(
        data,
        at,
        position=START + at,
        least_offset=least_offset,
        next_base_offset=next_base_offset,
        max_batch_bytes=MOST_BATCH_BYTES,
    )
    found = [(header.position, header.size_in_bytes, header.last_offset) for header in headers]
    assert found == one_by_one(data, at=at, least_offset=least_offset, next_base_offset=next_base_offset)


def test_a_run_of_all_kinds_is_whole() -> None:
    sizes = [len(entry(offset, kind)) for offset, kind in enumerate((0, 1, 2, 2))]
    data = b"".join(entry(offset, kind) for offset, kind in enumerate((0, 1, 2, 2)))
    headers = _core.sound_headers(b"xx" + data, 2, position=START, least_offset=0)
    assert [header.size_in_bytes for header in headers] == sizes
    assert [header.base_offset for header in headers] == [0, 1, 2, 3]
    assert headers[-1].position == START + sum(sizes[:-1])


@pytest.mark.parametrize("at", [-1, 3])
def test_a_place_outside_of_the_buffer_is_refused(at: int) -> None:
    with pytest.raises(ValueError, match="at must be from 0 to 2"):
        _core.sound_headers(b"ab", at, position=0, least_offset=0)
