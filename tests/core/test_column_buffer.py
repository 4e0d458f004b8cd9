"""Goal: column memory is writable, of the size asked for and never shared by two users.
Method: buffers of many sizes, taken and given back in turn."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from kstore import _core

MIB = 1 << 20


@pytest.mark.parametrize("capacity", [0, 1, 63, 64, 65, 4096, MIB + 1])
def test_buffer_has_the_size_asked_for_and_is_writable(capacity: int) -> None:
    for _ in range(3):
        buffer = _core.ColumnBuffer(capacity)
        view = memoryview(buffer)
        assert (len(buffer), len(view), view.readonly) == (capacity, capacity, False)
        view[:] = bytes(capacity)


def test_buffers_in_use_are_distinct_whatever_was_given_back_before() -> None:
    for turn in range(200):
        sizes = [8 + 37 * ((turn * n) % 50) for n in range(12)]
        buffers = [_core.ColumnBuffer(size) for size in sizes]
        for number, buffer in enumerate(buffers):
            memoryview(buffer)[:] = bytes([number]) * len(buffer)
        assert [bytes(buffer) for buffer in buffers] == [bytes([number]) * size for number, size in enumerate(sizes)]


def test_a_thread_gets_memory_that_it_had_before_newer_memory_of_another() -> None:
    """A size that no other test leaves behind, so that the two blocks are the only ones that fit."""
    size = 23 * MIB

    def taken() -> tuple[_core.ColumnBuffer, int]:
        buffer = _core.ColumnBuffer(size)
        return buffer, np.frombuffer(buffer, np.uint8).ctypes.data

    with ThreadPoolExecutor(1) as other:
        own, place = taken()
        others, place_of_other = other.submit(taken).result()
        del own, others
        buffer, found = taken()
        assert found == place != place_of_other
        del buffer
        buffer, found = other.submit(taken).result()
        assert found == place_of_other
        second, found = taken()
        assert found == place
        del second
        second, found = other.submit(taken).result()
        assert found == place
        del buffer, second


def test_a_view_keeps_its_memory() -> None:
    view = memoryview(_core.ColumnBuffer(1000))
    view[:] = b"x" * 1000
    others = [_core.ColumnBuffer(1000) for _ in range(40)]
    for other in others:
        memoryview(other)[:] = b"y" * 1000
    assert bytes(view) == b"x" * 1000


def test_negative_capacity_is_misuse() -> None:
    with pytest.raises(ValueError, match="capacity must not be negative"):
        _core.ColumnBuffer(-1)
