"""Goal: a call of a log or a store with what is no number, or beyond its range, says what it expected and found.
Method: every public call that takes a number, with each kind of thing that is none; logs at the end of all offsets."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kstore
from kstore.config import LogConfig
from kstore.errors import KStoreError, OffsetError, OffsetOutOfRangeError, checked_int
from kstore.log.write.writable_log import WritableLog
from kstore.record import MemoryRecords, Record, with_records
from kstore.store.opening import open_log
from kstore.store.store import WritableStore, open_store
from tests.making.batches import batch
from tests.reference.codec import CREATE_TIME, write_batch
from tests.reference.codec import Record as ReferenceRecord

# Without None, which stands for a default in some places.
NO_NUMBERS = [1.0, float("nan"), True, "1", b"1", [1]]
BEYOND = [2**63, 2**80, -(2**63) - 1, -(2**80)]
LAST = 2**63 - 2

Call = Callable[[Any, Any], Any]
# Those that an int beyond 64 bits is out of range for, as any other offset that the log does not have.
FROM_OFFSETS: dict[str, Call] = {
    "read": lambda log, value: log.read(value),
    "batches": lambda log, value: log.batches(value),
    "fetch": lambda log, value: log.fetch(value, 100),
    "plan start": lambda log, value: log.plan(start_offset=value, max_bytes=100),
    "arrow start": lambda log, value: log.to_arrow_batches(value),
}
READS: dict[str, Call] = {
    "read end": lambda log, value: log.read(0, value),
    "batches end": lambda log, value: log.batches(0, value),
    "batches max_bytes": lambda log, value: log.batches(max_bytes=value),
    "fetch max_bytes": lambda log, value: log.fetch(0, value),
    "plan": lambda log, value: log.plan(max_bytes=value),
    "plan end": lambda log, value: log.plan(start_offset=0, end_offset=value, max_bytes=100),
    "arrow end": lambda log, value: log.to_arrow_batches(0, value),
    "arrow threads": lambda log, value: list(log.to_arrow_batches(threads=value)),
    "arrow batch_bytes": lambda log, value: list(log.to_arrow_batches(batch_bytes=value)),
    "offset_for_timestamp": lambda log, value: log.offset_for_timestamp(value),
}
WRITES: dict[str, Call] = {
    "append": lambda log, value: log.append(MemoryRecords(batch(0)), partition_leader_epoch=value),
    "truncate_to": lambda log, value: log.truncate_to(value),
    "truncate_fully_and_start_at": lambda log, value: log.truncate_fully_and_start_at(value),
    "delete_records": lambda log, value: log.delete_records(value),
    "update_high_watermark": lambda log, value: log.update_high_watermark(value),
}
OF_STORES: dict[str, Call] = {
    "create_topic": lambda store, value: store.create_topic("new", value),
    "create_partitions": lambda store, value: store.create_partitions("t", value),
}


@pytest.fixture
def log(tmp_path: Path) -> WritableLog:
    log = open_log(tmp_path / "t-0", "a")
    log.append(with_records([Record(offset=0, timestamp_ms=5, value=b"v")] * 3))
    return log


@pytest.fixture
def store(tmp_path: Path) -> WritableStore:
    store = open_store(tmp_path, "a")
    store.create_topic("t")
    return store


def told(error: Exception) -> None:
    assert re.search(r"must be from|expected", str(error))
    assert re.search(r"got|found|offset", str(error))


def check(call: Call, target: Any, *, beyond: type[Exception] = ValueError) -> None:
    for value in NO_NUMBERS:
        with pytest.raises(TypeError, match=re.escape(f"must be an int, got {value!r}")):
            call(target, value)
    for value in BEYOND:
        with pytest.raises(beyond, match=rf"{value}\b.*") as caught:
            call(target, value)
        told(caught.value)


@pytest.mark.parametrize("make_copy", [copy.copy, copy.deepcopy, pickle.dumps])
def test_what_holds_open_files_is_not_copied(tmp_path: Path, make_copy: Callable[[object], object]) -> None:
    with kstore.open_store(tmp_path / "root", "a") as store:
        store.create_topic("t")
        log = store.log("t")
        log.append(kstore.Record(timestamp_ms=1, value=b"v"))
        for one in (log, store, kstore.open_log(tmp_path / "root" / "t-0"), kstore.open_store(tmp_path / "root")):
            with pytest.raises(TypeError, match=f"{type(one).__name__} holds open files and locks: it can't be"):
                make_copy(one)
        assert [record.value for record in log.read()] == [b"v"]


@pytest.mark.parametrize("name", [*FROM_OFFSETS, *READS, *WRITES])
def test_log_refuses_what_is_no_number_or_beyond_its_range(log: WritableLog, name: str) -> None:
    beyond = OffsetOutOfRangeError if name in FROM_OFFSETS else ValueError
    call = (FROM_OFFSETS | READS | WRITES)[name]
    check(call, log, beyond=beyond)
    assert [record.offset for record in log.read()] == [0, 1, 2]
    if name not in WRITES:
        with open_log(log.path) as reader:
            check(call, reader, beyond=beyond)


@pytest.mark.parametrize("name", OF_STORES)
def test_store_refuses_what_is_no_number_or_beyond_its_range(store: WritableStore, name: str) -> None:
    check(OF_STORES[name], store)
    assert store.topics == ("t",)


@pytest.mark.parametrize("value", NO_NUMBERS, ids=repr)
def test_partition_that_is_no_number_is_refused(store: WritableStore, value: object) -> None:
    with pytest.raises(TypeError, match="partition must be an int"):
        store.log("t", value)  # type: ignore[arg-type]


def test_numbers_of_numpy_are_numbers(log: WritableLog) -> None:
    assert [record.offset for record in log.read(np.int64(1), np.int32(2))] == [1]
    assert type(checked_int("n", np.int64(1))) is int


@pytest.mark.parametrize("records", [None, 5, "text", b"bytes", 1.5], ids=repr)
def test_append_of_what_holds_no_records_names_what_it_takes(log: WritableLog, records: Any) -> None:
    with pytest.raises(
        TypeError, match=f"expected MemoryRecords, a RecordBatch or Records, got {type(records).__name__}"
    ):
        log.append(records)


@pytest.mark.parametrize("compression", ["none", "gzip"])
@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("start", [LAST - 3, LAST - 1, LAST, LAST + 1])
def test_leader_gives_no_offset_that_leaves_none_for_the_end(
    tmp_path: Path, start: int, magic: int, compression: str
) -> None:
    with open_log(tmp_path / "t-0", "a", LogConfig(message_format_magic=magic)) as log:
        log.truncate_fully_and_start_at(start)
        left = LAST + 1 - start
        for _ in range(2):
            records = [Record(offset=0, timestamp_ms=5 if magic else -1, value=b"v")] * (left + 1)
            with pytest.raises(OffsetError, match=f"expected at most {LAST}.*found {LAST + 1}"):
                log.append(with_records(records, magic=magic, compression=compression))
            assert (log.log_end_offset, log.size_in_bytes, log.has_failed) == (start, 0, False)
        if left:
            assert log.append(with_records(records[:left], magic=magic, compression=compression)).last_offset == LAST
        assert [record.offset for record in log.read()] == list(range(start, LAST + 1))
        (error,) = log.append_batches([MemoryRecords(batch(0))])
        assert isinstance(error, OffsetError)
    with open_log(tmp_path / "t-0", "a") as log:
        assert (log.log_start_offset, log.log_end_offset) == (start, LAST + 1)


def test_follower_takes_no_offset_that_leaves_none_for_the_end(tmp_path: Path) -> None:
    with open_log(tmp_path / "t-0", "a") as log:
        record = ReferenceRecord(LAST, 5, CREATE_TIME, None, b"v", ())
        whole = write_batch([record])
        log.append_as_follower(MemoryRecords(whole))
        assert log.log_end_offset == LAST + 1
    with open_log(tmp_path / "u-0", "a") as log:
        beyond = (LAST + 1).to_bytes(8, "big") + whole[8:]
        with pytest.raises(KStoreError, match=str(LAST + 1)):
            log.append_as_follower(MemoryRecords(beyond))
        assert (log.log_end_offset, log.size_in_bytes) == (0, 0)


@pytest.mark.parametrize("path", [b"t-0", 5, None], ids=["bytes", "int", "none"])
@pytest.mark.parametrize("call", [open_log, open_store, kstore.verify, kstore.recover, kstore.scan])
def test_path_that_is_none_is_refused_with_what_it_must_be(call: Any, path: Any) -> None:
    with pytest.raises(TypeError, match=f"path must be str or a path of str, got {type(path).__name__}$"):
        call(path)
