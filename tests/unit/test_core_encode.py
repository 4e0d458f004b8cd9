"""Goal: the compiled encoder keeps to its buffers whatever is done to it, and headers are patched in place.

Method: calls out of order, wrong buffers and callers' code that runs in the middle of an append.
"""

from __future__ import annotations

from typing import Any

import pytest

from kstore import _core
from kstore.errors import CorruptRecordError, UnsupportedMagicError
from tests import builders, reference

HEADER: dict[str, Any] = {
    "attributes": 0,
    "max_timestamp_ms": 1,
    "partition_leader_epoch": 0,
    "producer_id": -1,
    "producer_epoch": -1,
    "base_sequence": -1,
}


def encoder(**options: Any) -> _core.RecordBatchEncoder:
    return _core.RecordBatchEncoder(**options)


def test_taken_records_stand_behind_room_for_the_header() -> None:
    taken = encoder().append(timestamp_ms=1, value=b"a").append(timestamp_ms=1, key=b"b").take()
    [first, second] = [builders.record(0, b"a", timestamp_ms=1), builders.record(1, None, b"b", timestamp_ms=1)]
    assert bytes(taken)[61:] == reference.write_batch([first, second])[61:]


def test_sealed_batch_is_that_of_the_reference() -> None:
    filled = encoder(base_offset=4).append(timestamp_ms=1, value=b"a")
    batch = memoryview(filled.take())
    filled.seal(batch, **HEADER)
    assert bytes(batch) == reference.write_batch([builders.record(4, b"a", timestamp_ms=1)])


@pytest.mark.parametrize("capacity_bytes", [-5, 0, 61, 62, 68, 69, 1 << 16])
def test_first_capacity_does_not_show(capacity_bytes: int) -> None:
    filled = encoder(capacity_bytes=capacity_bytes)
    for n in range(300):
        filled.append(timestamp_ms=n, value=b"v" * n, headers=[("h", b"x" * n)])
    expected = [builders.record(n, b"v" * n, timestamp_ms=n, headers=[(b"h", b"x" * n)]) for n in range(300)]
    assert bytes(filled.take())[61:] == reference.write_batch(expected)[61:]


def test_taken_records_are_not_taken_again() -> None:
    filled = encoder().append(timestamp_ms=1)
    taken = filled.take()
    with pytest.raises(ValueError, match="closed"):
        filled.take()
    with pytest.raises(ValueError, match="closed"):
        filled.append(timestamp_ms=1)
    assert (filled.is_open, filled.record_count, filled.records_size_in_bytes) == (False, 1, len(taken) - 61)


def test_encoder_that_was_never_initialized_takes_nothing() -> None:
    raw = _core.RecordBatchEncoder.__new__(_core.RecordBatchEncoder)
    with pytest.raises(ValueError, match="closed"):
        raw.append(timestamp_ms=1)
    with pytest.raises(ValueError, match="closed"):
        raw.take()


def test_encoder_initialized_again_starts_anew() -> None:
    filled = encoder(base_offset=7).append(timestamp_ms=1, value=b"old")
    filled.__init__(base_offset=3)
    taken = filled.append(timestamp_ms=1, value=b"a").take()
    assert bytes(taken)[61:] == reference.write_batch([builders.record(0, b"a", timestamp_ms=1)])[61:]


@pytest.mark.parametrize("size", [0, 60, 61])
def test_batch_without_room_for_a_header_and_a_payload_is_not_sealed(size: int) -> None:
    with pytest.raises(ValueError, match="batch must have from 62"):
        encoder().append(timestamp_ms=1).seal(bytearray(size), **HEADER)


def test_read_only_batch_is_not_sealed() -> None:
    with pytest.raises((BufferError, ValueError), match=r"read-only|not writable"):
        encoder().append(timestamp_ms=1).seal(bytes(70), **HEADER)


class Meddling:
    """Headers whose iteration does something to the encoder."""

    def __init__(self, act: Any) -> None:
        self.act = act

    def __iter__(self) -> Any:
        self.act()
        yield ("h", b"v")


def test_record_appended_while_headers_are_read_comes_first() -> None:
    filled = encoder(capacity_bytes=0)
    meddling = Meddling(lambda: filled.append(timestamp_ms=1, value=b"inner" * 1000))
    filled.append(timestamp_ms=2, value=b"outer", headers=meddling)
    with pytest.raises(ValueError, match="expected at least 3, got 2"):
        filled.append(timestamp_ms=2, headers=meddling, offset=2)
    inner = builders.record(0, b"inner" * 1000, timestamp_ms=1)
    outer = builders.record(1, b"outer", timestamp_ms=2, headers=[(b"h", b"v")])
    written = [inner, outer, inner._replace(offset=2)]
    assert bytes(filled.take())[61:] == reference.write_batch(written)[61:]


def test_encoder_closed_while_headers_are_read_refuses_the_record() -> None:
    filled = encoder().append(timestamp_ms=1)
    with pytest.raises(ValueError, match="closed"):
        filled.append(timestamp_ms=2, headers=Meddling(filled.take))
    assert filled.record_count == 1


@pytest.mark.parametrize("at", [0, 5])
def test_patch_changes_offset_and_leader_epoch_and_nothing_else(at: int) -> None:
    data = bytearray(at) + builders.batch(0, 3)
    _core.patch_batch_header(data, at, base_offset=2**40, partition_leader_epoch=9)
    expected = builders.patch_header(
        builders.batch(0, 3), repair_crc=False, base_offset=2**40, partition_leader_epoch=9
    )
    assert data[at:] == expected
    _core.check_crc(data[at:], position=at)


@pytest.mark.parametrize("base_offset", [-1, 2**63 - 3, 2**63 - 1])
def test_patch_refuses_offsets_that_no_log_can_have(base_offset: int) -> None:
    data = bytearray(builders.batch(0, 3))
    before = bytes(data)
    with pytest.raises(ValueError, match=f"base_offset must be from 0 to {2**63 - 4}, got {base_offset}"):
        _core.patch_batch_header(data, base_offset=base_offset, partition_leader_epoch=0)
    assert data == before
    _core.patch_batch_header(data, base_offset=2**63 - 4, partition_leader_epoch=0)


def test_patch_refuses_what_is_no_v2_batch() -> None:
    with pytest.raises(CorruptRecordError):
        _core.patch_batch_header(bytearray(builders.batch(0)[:60]), base_offset=0, partition_leader_epoch=0)
    data = bytearray(builders.batch(0))
    data[16] = 1
    with pytest.raises(UnsupportedMagicError):
        _core.patch_batch_header(data, base_offset=0, partition_leader_epoch=0)


def test_batch_beyond_int32_is_refused_before_memory_is_asked_for() -> None:
    filled = encoder().append(timestamp_ms=1)
    gigabyte = bytes(2**30)
    with pytest.raises(ValueError, match=f"a batch has at most {2**31 - 1} bytes"):
        filled.append(timestamp_ms=1, key=gigabyte, value=gigabyte)
    assert filled.record_size(timestamp_ms=1, key=gigabyte, value=gigabyte) == 2**31 + 5 + 1 + 1 + 1 + 5 + 5 + 1
    assert filled.record_count == 1
