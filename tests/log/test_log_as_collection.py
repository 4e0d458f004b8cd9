"""Goal: a log and a store answer as Python's collections do, by offsets, also where offsets have no record.
Method: logs with gaps, markers, aborted records and none at all; appends that expect an end, and that are too large."""

from __future__ import annotations

import pytest

import kstore
from kstore import LogConfig, Record
from kstore.errors import (
    LogNotFoundError,
    OffsetOutOfRangeError,
    RecordTooLargeError,
    RecordValidationError,
    UnexpectedAppendOffsetError,
)
from kstore.record import MemoryRecordsBuilder


@pytest.fixture
def store(tmp_path):
    with kstore.open_store(tmp_path, "a") as opened:
        opened.create_topic("t")
        opened.create_topic("many", partitions=3)
        yield opened


@pytest.fixture
def log(store):
    return store["t"]


def fill(log, *values):
    for value in values:
        log.append(Record(value=value))


# Records by offset


def test_a_record_is_found_by_its_offset(log):
    fill(log, b"0", b"1", b"2")
    assert [log.get(offset).value for offset in range(3)] == [b"0", b"1", b"2"]
    assert log.get(3) is None
    assert log[1].value == b"1"
    with pytest.raises(OffsetOutOfRangeError, match="no record has offset 3: the log has 0 to 2"):
        log[3]
    with pytest.raises(TypeError):
        log[0:2]
    with pytest.raises(ValueError, match=r"offset must be from 0 to .*, got -2"):
        log.get(-2)


def test_the_last_record_is_before_markers(store, log):
    assert log.last() is None
    with pytest.raises(OffsetOutOfRangeError, match="the log is empty and ends at offset 0"):
        log[-1]
    fill(log, b"first")
    with kstore.Producer(store, transactional_id="x") as producer:
        producer.init_transactions()
        with producer.begin_transaction():
            producer.send("t", b"second")
        for _ in range(3):
            producer.begin_transaction()
            producer.send("t", b"aborted")
            producer.flush()
            producer.abort_transaction()
    assert log[-1].value == b"aborted"
    assert log.last(isolation="read_committed").value == b"second"
    assert log.get(2) is None
    assert log.get(3, isolation="read_committed") is None
    assert log.get(3).value == b"aborted"


def test_a_record_of_an_open_transaction_is_not_committed(store, log):
    fill(log, b"0")
    with kstore.Producer(store, transactional_id="x") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"1")
        producer.flush()
        fill(log, b"2")
        for offset, committed in ((0, b"0"), (1, None), (2, None)):
            assert log.get(offset).value == b"%d" % offset
            record = log.get(offset, isolation="read_committed")
            assert (record and record.value) == committed
        assert log.last(isolation="read_committed").value == b"0"
        producer.commit_transaction()
    assert [log.get(offset, isolation="read_committed").value for offset in range(3)] == [b"0", b"1", b"2"]


def test_records_of_a_batch_below_the_log_start_are_not_there(log):
    log.append([Record(value=b"%d" % n) for n in range(5)])
    log.delete_records(3)
    assert log.get(2) is None
    assert log.get(3).value == b"3"
    assert len(log) == 2
    assert [record.offset for record in log] == [3, 4]
    log.delete_records(5)
    assert log.last() is None


def test_offsets_that_compaction_removed_have_no_record(store):
    store.create_topic("c", config={"cleanup_policy": "compact"})
    log = store["c"]
    for number in range(6):
        log.append(Record(key=b"k" if number else b"other", value=b"%d" % number))
    log.roll()
    log.compact()
    assert [log.get(offset) is None for offset in range(6)] == [False, True, True, True, True, False]
    assert len(log) == 2
    assert len(list(log)) == 2


def test_an_empty_log_is_true(log):
    assert len(log) == 0
    assert log


def test_a_log_of_a_great_offset_is_listed_without_memory_for_all_offsets(log):
    log.truncate_fully_and_start_at(2**50)
    fill(log, b"a")
    assert [record.offset for record in list(log)] == [2**50]
    assert log[-1].offset == 2**50


# Topics by name


def test_a_store_has_its_topics(store):
    assert "t" in store
    assert ("many", 2) in store
    assert "none" not in store
    assert ("many", 3) not in store
    assert 7 not in store
    assert list(store) == ["many", "t"]
    assert store["many", 2].topic_partition == ("many", 2)
    with pytest.raises(ValueError, match=r"topic 'many' has 3 partitions: name one of them, as store\['many', 0\]"):
        store["many"]
    with pytest.raises(LogNotFoundError):
        store["none"]


# Appends under a condition


def test_an_append_that_expects_another_end_writes_nothing(log):
    assert log.append(Record(value=b"a"), expected_end_offset=0).base_offset == 0
    with pytest.raises(UnexpectedAppendOffsetError, match="expected 0, found 1"):
        log.append(Record(value=b"b"), expected_end_offset=0)
    assert log.append(Record(value=b"c"), expected_end_offset=1).base_offset == 1
    assert [record.value for record in log] == [b"a", b"c"]
    with pytest.raises(ValueError, match=r"expected_end_offset must be from 0 to .*, got -1"):
        log.append(Record(value=b"d"), expected_end_offset=-1)


def test_of_threads_that_expect_one_end_one_appends(log):
    from concurrent.futures import ThreadPoolExecutor

    def append(number):
        try:
            log.append(Record(value=b"%d" % number), expected_end_offset=0)
        except UnexpectedAppendOffsetError:
            return 0
        return 1

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(append, range(64))) == 1
    assert len(log) == 1


# Appends of more than a batch


@pytest.fixture
def small(tmp_path):
    with kstore.open_store(tmp_path / "small", "a", config=LogConfig(max_message_bytes=1000)) as opened:
        opened.create_topic("t")
        yield opened["t"]


@pytest.mark.parametrize("count", [1, 2, 9, 100])
def test_an_append_above_the_size_of_a_batch_is_divided(small, count):
    records = [Record(value=b"%03d" % n + bytes(200), timestamp_ms=n) for n in range(count)]
    info = small.append(iter(records))
    assert (info.base_offset, info.last_offset, info.max_timestamp_ms) == (0, count - 1, count - 1)
    assert info.size_in_bytes == small.size_in_bytes
    assert [int(record.value[:3]) for record in small] == list(range(count))
    assert all(batch.size_in_bytes <= 1000 for batch in small.batches())


def test_records_of_unequal_sizes_are_divided_in_order(small):
    sizes = [900, 1, 1, 1, 900, 900, 5, 5, 300, 300, 300, 1]
    small.append([Record(value=bytes([n]) * size) for n, size in enumerate(sizes)])
    assert [(record.value[0], len(record.value)) for record in small] == list(enumerate(sizes))


def test_an_atomic_append_is_one_batch_or_none(small):
    records = [Record(value=bytes(200)) for _ in range(9)]
    with pytest.raises(RecordTooLargeError):
        small.append(records, atomic=True)
    assert small.append(records[:2], atomic=True).last_offset == 1


def test_a_record_that_is_refused_keeps_all_parts_out(tmp_path):
    config = LogConfig(max_message_bytes=1000, cleanup_policy="compact")
    with kstore.open_store(tmp_path, "a", config=config) as store:
        store.create_topic("t")
        records = [Record(key=b"k", value=bytes(200)) for _ in range(20)]
        with pytest.raises(RecordValidationError, match="record 20: expected a key"):
            store["t"].append([*records, Record(value=b"has no key")])
        with pytest.raises(RecordTooLargeError):
            store["t"].append([*records, Record(key=b"k", value=bytes(2000))])
        assert len(store["t"]) == 0


def test_the_bytes_of_a_producer_are_not_divided(small):
    builder = MemoryRecordsBuilder(magic=2)
    for _ in range(9):
        builder.append(timestamp_ms=0, value=bytes(200))
    with pytest.raises(RecordTooLargeError):
        small.append(builder.build())
