"""Goal: the compiled encoder keeps to its buffers whatever is done to it, and headers are patched in place.

Method: calls out of order, wrong buffers and callers' code that runs in the middle of an append.
"""

from __future__ import annotations

from typing import Any

import pytest

from kstore import _core
from kstore.compression import compress
from kstore.errors import CorruptRecordError, UnsupportedMagicError
from tests.making import batches as builders
from tests.reference import codec as reference


def encoder(**options: Any) -> _core.MemoryRecordsBuilderCore:
    return _core.MemoryRecordsBuilderCore(**options)


def finish(filled: _core.MemoryRecordsBuilderCore) -> bytes:
    return bytes(filled.finish(compress))


def test_finished_batch_is_that_of_the_reference() -> None:
    filled = encoder(base_offset=4, partition_leader_epoch=0).append(timestamp_ms=1, value=b"a")
    assert finish(filled) == reference.write_batch([builders.record(4, b"a", timestamp_ms=1)])


@pytest.mark.parametrize("write_limit_bytes", [0, 1, 61, 62, 69, 1 << 16, 2**31 - 1])
def test_first_capacity_does_not_show(write_limit_bytes: int) -> None:
    filled = encoder(write_limit_bytes=write_limit_bytes, partition_leader_epoch=0)
    for n in range(300):
        filled.append(timestamp_ms=n, value=b"v" * n, headers=[("h", b"x" * n)])
    expected = [builders.record(n, b"v" * n, timestamp_ms=n, headers=[(b"h", b"x" * n)]) for n in range(300)]
    assert finish(filled) == reference.write_batch(expected)


@pytest.mark.parametrize("missing", [0, 1])
def test_buffer_that_was_given_is_left_only_for_a_record_that_it_may_not_hold(missing: int) -> None:
    """The length field of a record is reserved with its five bytes, whatever it takes."""
    header_bytes, length_bytes, body_bytes = 61, 5, 6 + 20
    buffer = _core.ColumnBuffer(header_bytes + length_bytes + body_bytes - missing)
    filled = encoder(buffer=buffer, partition_leader_epoch=0).append(timestamp_ms=1, value=b"v" * 20)
    batch = filled.finish(compress)
    assert (batch is buffer) == (missing == 0)
    assert bytes(batch) == reference.write_batch([builders.record(0, b"v" * 20, timestamp_ms=1)])


def test_finished_batch_is_read_only_and_stays_what_it_was() -> None:
    filled = encoder().append(timestamp_ms=1, value=b"a")
    batch = filled.finish(compress)
    before = bytes(batch)
    with pytest.raises(TypeError, match="read-only"):
        memoryview(batch)[0] = 1
    with pytest.raises(ValueError, match="closed"):
        filled.append(timestamp_ms=1)
    filled.reopen_and_rewrite_producer_state(producer_id=5, producer_epoch=1, base_sequence=9, is_transactional=False)
    assert finish(filled) != before
    assert bytes(batch) == before
    filled.abort()
    assert bytes(batch) == before


def test_encoder_that_was_never_initialized_takes_nothing() -> None:
    raw = _core.MemoryRecordsBuilderCore.__new__(_core.MemoryRecordsBuilderCore)
    with pytest.raises(ValueError, match="closed"):
        raw.append(timestamp_ms=1)
    raw.reopen_and_rewrite_producer_state(producer_id=1, producer_epoch=1, base_sequence=1, is_transactional=False)
    with pytest.raises(ValueError, match="closed"):
        raw.finish(compress)
    raw.end_appends(compress)
    raw.abort()


def test_encoder_initialized_again_starts_anew() -> None:
    filled = encoder(base_offset=7, partition_leader_epoch=9).append(timestamp_ms=1, value=b"old")
    old = filled.finish(compress)
    before = bytes(old)
    filled.__init__(base_offset=3, partition_leader_epoch=0)
    expected = reference.write_batch([builders.record(3, b"a", timestamp_ms=1)])
    assert finish(filled.append(timestamp_ms=1, value=b"a")) == expected
    assert bytes(old) == before


@pytest.mark.parametrize("compression", ["gzip", 5, -1, None])
def test_encoder_alone_knows_codecs_by_their_ids(compression: Any) -> None:
    with pytest.raises(ValueError, match="compression must be from 0 to 4"):
        encoder(compression=compression)
    assert encoder(compression=4).attributes == 4


def test_compression_that_fails_leaves_the_batch_open() -> None:
    filled = encoder(compression=1).append(timestamp_ms=1)

    def fail(*_: object) -> bytes:
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        filled.finish(fail)
    assert filled.is_open
    filled.append(timestamp_ms=1)
    assert [r.offset for r in reference.read_records(finish(filled))] == [0, 1]


class Meddling:
    """Headers whose iteration does something to the encoder."""

    def __init__(self, act: Any) -> None:
        self.act = act

    def __iter__(self) -> Any:
        self.act()
        yield ("h", b"v")


def test_record_appended_while_headers_are_read_comes_first() -> None:
    filled = encoder(write_limit_bytes=0, partition_leader_epoch=0)
    meddling = Meddling(lambda: filled.append(timestamp_ms=1, value=b"inner" * 1000))
    filled.append(timestamp_ms=2, value=b"outer", headers=meddling)
    with pytest.raises(ValueError, match="expected at least 3, got 2"):
        filled.append(timestamp_ms=2, headers=meddling, offset=2)
    inner = builders.record(0, b"inner" * 1000, timestamp_ms=1)
    outer = builders.record(1, b"outer", timestamp_ms=2, headers=[(b"h", b"v")])
    written = [inner, outer, inner._replace(offset=2)]
    assert finish(filled) == reference.write_batch(written)


def test_encoder_closed_while_headers_are_read_refuses_the_record() -> None:
    filled = encoder().append(timestamp_ms=1)
    with pytest.raises(ValueError, match="closed"):
        filled.append(timestamp_ms=2, headers=Meddling(lambda: filled.end_appends(compress)))
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
