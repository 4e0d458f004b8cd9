"""Goal: deep iteration of MemoryRecords gives what its batches give, one after the other, and fails as they do.

Method: a run of every kind of batch, whole, cut at each byte and with each byte changed, read both ways.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterable
from itertools import chain
from typing import Any

import pytest

from kstore._core import Record
from kstore.config import LogConfig
from kstore.errors import CorruptRecordError, DecompressionError, KStoreError
from kstore.record import MemoryRecords, MemoryRecordsBuilder
from kstore.types import TopicPartition
from tests.making import batches as builders
from tests.making.messages import packed_entry, write_wrapper
from tests.reference import codec as reference
from tests.reference import codecs as codecs

POSITION = 4096
PLAIN = [packed_entry(b"v1", b"k", offset=4, magic=1, timestamp_ms=7), packed_entry(None, None, offset=5, magic=0)]
INNER = [packed_entry(b"a", None, offset=n, magic=1, timestamp_ms=n) for n in range(2)]
KINDS = {
    "magic 2": builders.batch(0, 3, value_bytes=300),
    "plain messages": b"".join(PLAIN),
    "wrapper": write_wrapper(INNER, offset=7, magic=1, codec=codecs.GZIP),
    "compressed": builders.batch(8, 2, codec=codecs.GZIP),
    "empty": reference.write_empty_batch(10, last_offset=11, max_timestamp_ms=5, attributes=0),
    "last": builders.batch(12, 1),
}
RUN = b"".join(KINDS.values())


def read_out(records: Iterable[Record]) -> tuple[list[Record], str | None]:
    """The records up to the first error, and that error."""
    found: list[Record] = []
    try:
        for record in records:
            found.append(record)
    except KStoreError as error:
        return found, f"{type(error).__name__}: {error}"
    return found, None


def both_ways(data: bytes, **options: LogConfig) -> tuple[tuple[list[Record], str | None], ...]:
    memory = MemoryRecords(data, position=POSITION, path="x.log", **options)
    return read_out(memory), read_out(chain.from_iterable(memory.batches()))


def test_batch_with_a_wrong_crc_gives_no_record_however_often_it_is_asked() -> None:
    data = bytearray(builders.batch(0, 3))
    builders.flip_bit(data, len(data) - 1, bit=0)
    (batch,) = MemoryRecords(data).batches()
    for _ in range(3):
        with pytest.raises(CorruptRecordError):
            next(iter(batch))


@pytest.mark.parametrize("name", KINDS)
def test_iteration_of_one_kind_equals_that_of_its_batch(name: str) -> None:
    deep, by_batch = both_ways(KINDS[name])
    assert deep == by_batch
    assert deep[1] is None


def test_iteration_of_a_mixed_run_gives_all_records_in_order() -> None:
    deep, by_batch = both_ways(RUN)
    assert deep == by_batch
    assert [record.offset for record in deep[0]] == [0, 1, 2, 4, 5, 6, 7, 8, 9, 12]


def test_iteration_of_a_run_that_is_cut_off_ends_or_fails_as_its_batches_do() -> None:
    for size in range(len(RUN)):
        deep, by_batch = both_ways(RUN[:size])
        assert deep == by_batch, size


@pytest.mark.parametrize("mask", [0x01, 0x80], ids=hex)
def test_iteration_of_a_damaged_run_fails_where_its_batches_do(mask: int) -> None:
    failures = 0
    for at in range(len(RUN)):
        data = bytearray(RUN)
        data[at] ^= mask
        deep, by_batch = both_ways(bytes(data))
        assert deep == by_batch, at
        failures += deep[1] is not None
    assert failures > len(RUN) // 2


@pytest.mark.parametrize("limit", [61, 100, 200])
def test_a_batch_above_the_limit_is_refused_as_it_is_by_its_batches(limit: int) -> None:
    deep, by_batch = both_ways(RUN, config=LogConfig(max_batch_bytes=limit))
    assert deep == by_batch
    assert "larger than the limit" in str(deep[1])


def test_iteration_that_failed_fails_again_and_gives_no_other_record() -> None:
    broken = bytearray(builders.batch(8, 2, codec=codecs.GZIP))
    broken[61:71] = bytes(10)
    builders.fix_crc(broken)
    iterator = iter(MemoryRecords(KINDS["magic 2"] + bytes(broken)))
    assert [next(iterator).offset for _ in range(3)] == [0, 1, 2]
    for _ in range(3):
        with pytest.raises(DecompressionError):
            next(iterator)


def test_buffer_of_built_records_is_read_only_and_the_same_each_time() -> None:
    records = MemoryRecordsBuilder().append(timestamp_ms=1, value=b"a").build()
    assert len(records) == records.size_in_bytes == len(records.buffer)
    assert records.buffer is records.buffer
    with pytest.raises(TypeError, match="read-only"):
        records.buffer[0] = 1


def test_any_contiguous_buffer_is_taken_as_bytes() -> None:
    wide = memoryview(bytearray(RUN + bytes(-len(RUN) % 4))).cast("I")
    assert bytes(MemoryRecords(wide)) == bytes(wide)
    assert MemoryRecords(bytearray(RUN)).buffer.readonly


@pytest.mark.parametrize("call", [pickle.dumps, copy.deepcopy], ids=["pickle", "copy"])
def test_pickled_records_and_batches_are_the_same_bytes_from_the_same_place(call: Any) -> None:
    where: dict[str, Any] = {"position": POSITION, "path": "/logs/t-3/0.log", "topic_partition": TopicPartition("t", 3)}
    records = MemoryRecords(memoryview(RUN), config=LogConfig(max_batch_bytes=10**6), **where)
    given = [records, *records.batches()]
    made = call(given)
    restored = pickle.loads(made) if isinstance(made, bytes) else made
    for one, other in zip(given, restored, strict=True):
        assert (type(one), bytes(one), repr(one)) == (type(other), bytes(other), repr(other))
    run, *batches = restored
    assert [bytes(batch) for batch in run.batches()] == list(map(bytes, batches))
    assert read_out(run) == read_out(records)
    assert [(batch.position, batch.path, batch.topic_partition) for batch in batches] == [
        (batch.position, batch.path, batch.topic_partition) for batch in records.batches()
    ]
    with pytest.raises(CorruptRecordError, match=f"at position {POSITION} "):
        list(pickle.loads(pickle.dumps(MemoryRecords(b"\0" + RUN[1:20] + b"\1" + RUN[21:], **where))))


def test_built_records_are_pickled() -> None:
    built = MemoryRecordsBuilder().append(timestamp_ms=1, value=b"v").build()
    assert list(pickle.loads(pickle.dumps(built))) == list(built)
