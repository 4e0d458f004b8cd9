"""What the soak writes, and how it is known again: values of three numbers, checked by whole columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy
import pyarrow

from kstore.config import LogConfig
from kstore.env import LocalEnv
from kstore.log.log import Log
from kstore.store.store import WritableStore, open_store

VALUE_BYTES = 24
KEYS = 5000
# Of the serial numbers of the compacted topic, every so many-th record deletes its key.
TOMBSTONES = 11
# A transaction's number, and in it the number of a record.
RECORDS_OF_TRANSACTION = 1 << 20
_MIX, _ADD = numpy.int64(0x5DEECE66D), numpy.int64(0xB)
PLAIN, IDEMPOTENT, TRANSACTIONAL, KEYED, TRUNCATED = "plain", "idempotent", "transactional", "keyed", "truncated"
PARTITIONS = tuple(
    (topic, partition)
    for topic, count in ((PLAIN, 2), (IDEMPOTENT, 2), (TRANSACTIONAL, 2), (KEYED, 1), (TRUNCATED, 1))
    for partition in range(count)
)
CONFIG = LogConfig(
    segment_bytes=2 << 20, segment_index_bytes=64 << 10, retention_bytes=16 << 20, file_delete_delay_ms=1000
)
CONFIGS = {
    KEYED: LogConfig(
        segment_bytes=1 << 20,
        segment_index_bytes=64 << 10,
        cleanup_policy="compact",
        min_cleanable_dirty_ratio=0.1,
        delete_retention_ms=1000,
        file_delete_delay_ms=1000,
    )
}
Numbers = "numpy.ndarray[tuple[int, int], numpy.dtype[numpy.int64]]"


class Read(NamedTuple):
    """Some records: their offsets, of those with a value the three numbers, and which have none."""

    offsets: numpy.ndarray
    numbers: numpy.ndarray
    has_value: numpy.ndarray


def opened(root: str, env: LocalEnv) -> WritableStore:
    """Open the store with all its topics."""
    store = open_store(root, "a", CONFIG, topic_configs=CONFIGS, env=env)
    for topic in dict(PARTITIONS):
        if topic not in store.topics:
            store.create_topic(topic, sum(1 for name, _ in PARTITIONS if name == topic), config=CONFIGS.get(topic))
    return store


def values(serials: numpy.ndarray, second: int) -> pyarrow.Array:
    """Return a value for each serial number: it, a second number, and a mix of both."""
    numbers = numpy.empty((len(serials), 3), "<i8")
    numbers[:, 0], numbers[:, 1] = serials, second
    numbers[:, 2] = _mixed(numbers)
    return _binary(numbers, VALUE_BYTES)


def keys(serials: numpy.ndarray) -> pyarrow.Array:
    return _binary((serials % KEYS).astype("<i8"), 8)


def _binary(numbers: numpy.ndarray, size: int) -> pyarrow.Array:
    count = len(numbers)
    offsets = numpy.arange(0, (count + 1) * size, size, dtype="<i4")
    buffers = [None, pyarrow.py_buffer(offsets), pyarrow.py_buffer(numbers.tobytes())]
    return pyarrow.Array.from_buffers(pyarrow.binary(), count, buffers)


def _mixed(numbers: numpy.ndarray) -> numpy.ndarray:
    with numpy.errstate(over="ignore"):
        return (numbers[:, 0] * _MIX + numbers[:, 1]) * _MIX + _ADD


def columns_of(serials: numpy.ndarray, second: int, *, is_keyed: bool = False) -> pyarrow.RecordBatch:
    """Return what a producer sends."""
    value = values(serials, second)
    if not is_keyed:
        return pyarrow.record_batch({"value": value})
    is_tombstone = pyarrow.array(serials % TOMBSTONES == 0)
    value = pyarrow.compute.if_else(is_tombstone, pyarrow.scalar(None, pyarrow.binary()), value)
    return pyarrow.record_batch({"key": keys(serials), "value": value})


def read(log: Log, start_offset: int | None = None, *, is_committed: bool = False) -> Iterator[Read]:
    """Yield the records of a log from an offset on.

    Raises: AssertionError for a value that nobody wrote.
    """
    isolation = "read_committed" if is_committed else "read_uncommitted"
    tables = log.to_arrow_batches(start_offset=start_offset, columns=["offset", "value"], isolation=isolation)
    for table in tables:
        column = table["value"]
        fixed = column.drop_null().cast(pyarrow.binary(VALUE_BYTES))
        buffer = fixed.buffers()[1]
        numbers = numpy.frombuffer(buffer, "<i8", 3 * len(fixed), offset=fixed.offset * VALUE_BYTES).reshape(-1, 3)
        assert (numbers[:, 2] == _mixed(numbers)).all(), f"{log.topic_partition}: a value that nobody wrote"
        yield Read(table["offset"].to_numpy(), numbers, column.is_valid().to_numpy(zero_copy_only=False))


def read_whole(log: Log, *, is_committed: bool = False) -> Read:
    parts = [*read(log, is_committed=is_committed)]
    if not parts:
        return Read(numpy.empty(0, "<i8"), numpy.empty((0, 3), "<i8"), numpy.empty(0, bool))
    return Read(*(numpy.concatenate(column) for column in zip(*parts, strict=True)))


def transactions_in(found: Read) -> list[tuple[int, int, int]]:
    """Return number, count and the count that its records tell of each transaction, in the order of the log."""
    if not len(found.numbers):
        return []
    numbers = found.numbers[:, 0] // RECORDS_OF_TRANSACTION
    starts = numpy.flatnonzero(numpy.r_[True, numbers[1:] != numbers[:-1]])
    counts = numpy.diff(numpy.r_[starts, len(numbers)])
    places = found.numbers[:, 0] % RECORDS_OF_TRANSACTION
    expected = numpy.arange(len(numbers)) - numpy.repeat(starts, counts) + numpy.repeat(places[starts], counts)
    assert (places == expected).all(), "records of a transaction that do not follow one another"
    return [(int(numbers[at]), int(size), int(found.numbers[at, 1])) for at, size in zip(starts, counts, strict=True)]
