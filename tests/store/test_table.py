"""Goal: a table is the dict of the newest value of each key, whatever becomes of the topic under it, within its memory.
Method: small topics of a store that this process writes, and of a reader beside it; each kind of change by itself."""

from __future__ import annotations

import gc
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore import LogConfig, Record, Table, WritableStore
from kstore.errors import (
    CorruptRecordError,
    LogClosedError,
    LogNotFoundError,
    LogReplacedError,
    MemoryLimitError,
    RecordDeserializationError,
    SerializationError,
)
from kstore.log.following.newest import LEAST_MAP_BYTES
from kstore.log.write.writable_log import WritableLog
from kstore.record import ControlRecordType, EndTransactionMarker
from kstore.record.builder import with_end_transaction_marker, with_transactional_records
from tests.making.batches import flip_bit

CONFIG = LogConfig(
    segment_bytes=4000,
    segment_index_bytes=4096,
    index_interval_bytes=200,
    cleanup_policy="compact",
    file_delete_delay_ms=0,
    read_chunk_bytes=4096,
)
Pairs = dict[bytes, bytes]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[WritableStore]:
    with kstore.open_store(tmp_path / "root", "a", CONFIG) as opened:
        opened.create_topic("t")
        opened.create_topic("many", partitions=3)
        opened.create_topic("plain", config={"cleanup_policy": "delete", "segment_bytes": 1 << 20})
        yield opened


@pytest.fixture(params=["live", "beside"])
def reader(request: pytest.FixtureRequest, store: WritableStore) -> Iterator[kstore.Store | WritableStore]:
    """The store that the table is of: the one that is written, or another one that reads the same root."""
    if request.param == "live":
        yield store
    else:
        with kstore.open_store(store.root, config=CONFIG) as opened:
            yield opened


def put(log: WritableLog, *pairs: tuple[str, str | None], at_ms: int = 1) -> None:
    for key, value in pairs:
        log.append(Record(timestamp_ms=at_ms, key=key.encode(), value=None if value is None else value.encode()))


def replace(log: WritableLog, *pairs: tuple[str, str | None], at_ms: int = 1) -> None:
    """Append newer records, and compact what they replace; an active record with key z comes after them."""
    put(log, *pairs, at_ms=at_ms)
    log.roll()
    put(log, ("z", "active"))
    log.compact(is_forced=True)


def end(log: WritableLog, how: ControlRecordType, producer_id: int = 7) -> None:
    marker = EndTransactionMarker(control_type=how, coordinator_epoch=0)
    log.append_as_follower(
        with_end_transaction_marker(
            marker, offset=log.log_end_offset, timestamp_ms=1, producer_id=producer_id, producer_epoch=0
        )
    )


def begin(log: WritableLog, *pairs: tuple[str, str | None], producer_id: int = 7) -> None:
    records = [Record(timestamp_ms=1, key=key.encode(), value=value and value.encode()) for key, value in pairs]
    log.append_as_follower(
        with_transactional_records(
            records, producer_id=producer_id, producer_epoch=0, base_sequence=0, base_offset=log.log_end_offset
        )
    )


def check(table: Table, expected: Mapping[object, object]) -> None:
    assert len(table) == len(expected)
    assert {key: table[key] for key in expected} == expected
    assert all(key in table for key in expected)
    assert dict(table.items()) == expected
    assert sorted(table) == sorted(expected)  # type: ignore[type-var]
    assert sorted(table.values()) == sorted(expected.values())  # type: ignore[type-var]
    assert b"none" not in table
    assert table.get(b"none") is None


# What it is


def test_a_table_is_the_newest_value_of_each_key(store: WritableStore, reader: kstore.Store) -> None:
    put(store["t"], ("a", "1"), ("b", "2"), ("a", "3"), ("c", ""), ("", "empty"))
    with reader.table("t") as table:
        check(table, {b"a": b"3", b"b": b"2", b"c": b"", b"": b"empty"})
        assert list(table) == [b"b", b"a", b"c", b""]
        assert list(table.items()) == [(b"b", b"2"), (b"a", b"3"), (b"c", b""), (b"", b"empty")]
        with pytest.raises(KeyError, match="none"):
            table[b"none"]
        found = table.record(b"a")
        assert found is not None
        assert (found.offset, found.value, found.topic_partition) == (2, b"3", ("t", 0))
        assert table.record(b"none") is None
        assert isinstance(table, Mapping)
        assert table == {b"a": b"3", b"b": b"2", b"c": b"", b"": b"empty"}


def test_a_table_follows_what_is_appended(store: WritableStore, reader: kstore.Store) -> None:
    log, table, expected = store["t"], reader.table("t"), Pairs()
    check(table, expected)
    for number in range(300):
        key = f"k{number % 70}"
        put(log, (key, str(number)))
        expected[key.encode()] = b"%d" % number
        assert table[key.encode()] == b"%d" % number
        assert len(table) == len(expected)
    check(table, expected)


def test_a_key_whose_newest_value_is_null_is_not_in_it(store: WritableStore, reader: kstore.Store) -> None:
    log = store["t"]
    put(log, ("a", "1"), ("b", "2"), ("a", None), ("never", None))
    table = reader.table("t")
    check(table, {b"b": b"2"})
    put(log, ("b", None), ("a", "back"))
    check(table, {b"a": b"back"})


def test_records_without_a_key_are_left_out_and_counted(store: WritableStore, reader: kstore.Store) -> None:
    store["plain"].append([Record(value=b"x"), Record(key=b"a", value=b"1"), Record(value=b"y")])
    table = reader.table("plain")
    check(table, {b"a": b"1"})
    assert table.keyless_count == 2
    store["plain"].append(Record(value=b"z"))
    check(table, {b"a": b"1"})
    assert table.keyless_count == 3


def test_records_without_a_key_are_counted_once_though_the_map_grows_among_them(store: WritableStore) -> None:
    keys = [b"%d" % number if number % 2 else None for number in range(6000)]
    builder = kstore.MemoryRecordsBuilder()
    for key in keys:
        builder.append(timestamp_ms=1, key=key, value=b"v")
    store["plain"].append(builder.build())
    table = store.table("plain")
    assert (len(table), table.keyless_count) == (3000, 3000)


def test_batches_larger_than_a_chunk_and_of_each_codec_are_mapped(store: WritableStore, reader: kstore.Store) -> None:
    store.create_topic("large", config={"segment_bytes": 10_000_000})
    expected = Pairs()
    for at, codec in enumerate(["none", "gzip", "snappy", "lz4", "zstd"]):
        records = [Record(key=b"%d" % number, value=os.urandom(100)) for number in range(at, 400, at + 1)]
        builder = kstore.MemoryRecordsBuilder(compression=codec)
        for record in records:
            builder.append(timestamp_ms=1, key=record.key, value=record.value)
        store["large"].append(builder.build())
        expected |= {record.key or b"": record.value or b"" for record in records}
    check(reader.table("large"), expected)


def test_a_map_grows_past_its_first_size_and_answers_as_before(store: WritableStore, reader: kstore.Store) -> None:
    store.create_topic("large", config={"segment_bytes": 10_000_000})
    log, table, expected = store["large"], reader.table("large"), Pairs()
    first_bytes = table.used_bytes
    assert 0.9 * LEAST_MAP_BYTES < first_bytes <= LEAST_MAP_BYTES
    for start in range(0, 4000, 500):
        keys = [b"%d" % number for number in range(start, start + 500)]
        log.append([Record(key=key, value=b"of " + key) for key in keys])
        expected |= {key: b"of " + key for key in keys}
        assert table[b"0"] == b"of 0"
        assert table[keys[-1]] == b"of " + keys[-1]
        assert b"4000" not in table
        assert len(table) == len(expected)
    assert table.used_bytes > 2 * first_bytes
    check(table, expected)


# Serializers


def test_keys_and_values_are_decoded_and_lookups_are_encoded(store: WritableStore) -> None:
    put(store["t"], ("a", "1"), ("b", "2"))
    table = store.table("t", key_deserializer="string", value_deserializer=int)
    assert dict(table) == {"a": 1, "b": 2}
    assert table["a"] == 1
    assert "b" in table
    assert "c" not in table
    assert ("a", 1) in table.items()
    assert 2 in table.values()
    assert 3 not in table.values()
    assert [(record.key, record.value) for record in table.records()] == [("a", 1), ("b", 2)]
    assert table.record("b").value == 2
    with pytest.raises(KeyError, match="'c'"):
        table["c"]
    with pytest.raises(SerializationError, match="got 7"):
        table[7]
    own = store.table("t", key_serializer=lambda number: b"%c" % number, key_deserializer=ord)
    assert own[97] == b"1"
    assert list(own) == [97, 98]


def test_a_key_that_is_no_bytes_needs_a_serializer(store: WritableStore) -> None:
    put(store["t"], ("a", "1"))
    table = store.table("t", key_deserializer=bytes.decode)
    assert table[b"a"] == b"1"
    assert table[bytearray(b"a")] == b"1"
    for key in ("a", None, 5):
        with pytest.raises(SerializationError, match=r'key of a lookup .* key_deserializer="string"'):
            table[key]
    with pytest.raises(SerializationError):
        "a" in table  # noqa: B015


def test_a_value_that_cannot_be_decoded_says_where_it_is(store: WritableStore) -> None:
    put(store["t"], ("a", "1"), ("b", "x"))
    table = store.table("t", value_deserializer=int)
    assert table[b"a"] == 1
    with pytest.raises(RecordDeserializationError) as raised:
        table[b"b"]
    assert (raised.value.offset, raised.value.origin) == (1, "value")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"isolation_level": "serializable"}, ValueError),
        ({"max_bytes": 1000}, ValueError),
        ({"max_bytes": "1"}, TypeError),
        ({"key_deserializer": "strang"}, ValueError),
        ({"key_serializer": 5}, TypeError),
        ({"value_deserializer": 5}, TypeError),
    ],
)
def test_wrong_arguments_are_refused(store: WritableStore, options: dict[str, object], error: type[Exception]) -> None:
    with pytest.raises(error):
        store.table("t", **options)  # type: ignore[arg-type]


# Transactions


def test_aborted_and_undecided_records_are_left_out(store: WritableStore, reader: kstore.Store) -> None:
    log = store["t"]
    put(log, ("a", "1"), ("b", "1"))
    table, uncommitted = reader.table("t"), reader.table("t", isolation_level="read_uncommitted")
    begin(log, ("a", "2"), ("c", "2"))
    check(table, {b"a": b"1", b"b": b"1"})
    check(uncommitted, {b"a": b"2", b"b": b"1", b"c": b"2"})
    put(log, ("d", "after"))
    assert b"d" not in table
    end(log, ControlRecordType.ABORT)
    check(table, {b"a": b"1", b"b": b"1", b"d": b"after"})
    begin(log, ("a", "3"), ("b", None))
    end(log, ControlRecordType.COMMIT)
    check(table, {b"a": b"3", b"d": b"after"})
    check(uncommitted, {b"a": b"3", b"c": b"2", b"d": b"after"})


def test_a_table_of_uncommitted_records_drops_aborted_ones_that_a_compaction_removed(
    store: WritableStore, reader: kstore.Store
) -> None:
    log = store["t"]
    put(log, ("a", "old"))
    begin(log, ("a", "aborted"), ("c", "aborted"))
    end(log, ControlRecordType.ABORT)
    table = reader.table("t", isolation_level="read_uncommitted")
    check(table, {b"a": b"aborted", b"c": b"aborted"})
    log.roll()
    put(log, ("b", "1"))
    assert len(table) == 3
    log.compact(is_forced=True)
    assert len(table) == 2
    check(table, {b"a": b"old", b"b": b"1"})


# Partitions


def test_a_key_of_several_partitions_has_the_value_with_the_greatest_timestamp(
    store: WritableStore, reader: kstore.Store
) -> None:
    put(store["many", 0], ("a", "late"), ("b", "0"), at_ms=9)
    put(store["many", 1], ("a", "early"), ("c", "1"), at_ms=3)
    put(store["many", 2], ("b", "same time"), ("d", "2"), at_ms=9)
    table = reader.table("many")
    expected = {b"a": b"late", b"b": b"same time", b"c": b"1", b"d": b"2"}
    check(table, expected)
    put(store["many", 0], ("b", None), ("a", None), at_ms=10)
    check(table, expected | {b"a": b"early"})
    assert len(list(table)) == 4


def test_partitions_that_are_added_are_taken_up(store: WritableStore, reader: kstore.Store) -> None:
    put(store["t"], ("a", "1"))
    table = reader.table("t")
    check(table, {b"a": b"1"})
    store.create_partitions("t", 2)
    put(store["t", 1], ("b", "2"))
    check(table, {b"a": b"1", b"b": b"2"})


def test_a_topic_that_is_deleted_is_not_found_and_one_that_is_created_again_is_another(
    store: WritableStore, reader: kstore.Store
) -> None:
    put(store["t"], ("a", "1"), ("b", "2"))
    table = reader.table("t")
    check(table, {b"a": b"1", b"b": b"2"})
    store.delete_topic("t")
    for ask in (lambda: table[b"a"], lambda: len(table), lambda: b"a" in table, lambda: list(table)):
        with pytest.raises(LogNotFoundError, match="no topic 't'"):
            ask()
    store.create_topic("t")
    check(table, {})
    put(store["t"], ("a", "new"))
    check(table, {b"a": b"new"})
    store.delete_topic("t")
    store.create_topic("t", 2)
    put(store["t", 1], ("c", "3"))
    check(table, {b"c": b"3"})


def test_there_is_no_table_of_a_topic_that_does_not_exist(reader: kstore.Store) -> None:
    with pytest.raises(LogNotFoundError, match="no topic 'none'"):
        reader.table("none")


# Logs that change


def test_keys_below_the_log_start_are_gone(store: WritableStore, reader: kstore.Store) -> None:
    log = store["t"]
    log.append([Record(timestamp_ms=1, key=b"%d" % number, value=b"v") for number in range(6)])
    put(log, ("1", "new"))
    table = reader.table("t")
    assert len(table) == 6
    log.delete_records(3)
    check(table, {b"1": b"new"} | {b"%d" % number: b"v" for number in (3, 4, 5)})
    log.delete_records(7)
    check(table, {})
    put(log, ("0", "again"))
    check(table, {b"0": b"again"})


def test_retention_beyond_what_was_mapped_begins_again(store: WritableStore, reader: kstore.Store) -> None:
    log = store["t"]
    put(log, *((str(number), "x" * 100) for number in range(10)))
    table = reader.table("t")
    assert len(table) == 10
    put(log, *((str(number), "y" * 100) for number in range(10, 60)))
    log.delete_records(50)
    check(table, {b"%d" % number: b"y" * 100 for number in range(50, 60)})


def test_a_truncated_log_is_mapped_again(store: WritableStore, reader: kstore.Store) -> None:
    log = store["t"]
    put(log, ("a", "1"), ("b", "2"), ("a", "3"), ("c", "4"))
    table = reader.table("t")
    check(table, {b"a": b"3", b"b": b"2", b"c": b"4"})
    log.truncate_to(2)
    check(table, {b"a": b"1", b"b": b"2"})
    log.truncate_to(1)
    put(log, ("c", "new"), ("d", "new"), ("e", "new"))
    check(table, {b"a": b"1", b"c": b"new", b"d": b"new", b"e": b"new"})
    log.truncate_fully_and_start_at(1000)
    check(table, {})
    put(log, ("a", "far"))
    check(table, {b"a": b"far"})


def test_a_compaction_that_replaces_segments_leaves_the_table_as_it_is(
    store: WritableStore, reader: kstore.Store
) -> None:
    log, expected = store["t"], Pairs()
    table = reader.table("t")
    for step in range(4):
        for number in range(60):
            put(log, (str(number % 13), f"{step}-{number}"))
            expected[b"%d" % (number % 13)] = f"{step}-{number}".encode()
        put(log, (str(step), None))
        expected.pop(b"%d" % step, None)
        log.roll()
        put(log, ("active", str(step)))
        expected[b"active"] = b"%d" % step
        if step % 2:
            check(table, expected)
        assert log.compact(is_forced=True).records_kept
        assert len(table) == len(expected)
        check(table, expected)


def test_an_update_and_a_compaction_between_two_lookups_are_seen(store: WritableStore, reader: kstore.Store) -> None:
    log = store["t"]
    put(log, ("a", "1"))
    table = reader.table("t")
    assert table[b"a"] == b"1"
    put(log, ("a", "2"))
    log.roll()
    put(log, ("b", "3"))
    log.compact(is_forced=True)
    assert table[b"a"] == b"2"
    check(table, {b"a": b"2", b"b": b"3"})


def log_and_table_without_old_tombstones(store: WritableStore, reader: kstore.Store) -> tuple[WritableLog, Table]:
    """Return a log with two keys, whose tombstones a compaction removes at once, and a table of it."""
    store.change_topic_config("t", {"delete_retention_ms": 0})
    log = store["t"]
    put(log, ("a", "1"), ("b", "2"))
    table = reader.table("t")
    assert len(table) == 2
    return log, table


def compact_three_times(log: WritableLog, key: str) -> None:
    """Compact in rounds, each with a new active segment, so that tombstones go."""
    for number in range(3):
        log.roll()
        put(log, (key, str(number)))
        log.compact(is_forced=True)


def test_a_tombstone_that_a_compaction_removed_before_it_was_mapped_removes_its_key(
    store: WritableStore, reader: kstore.Store
) -> None:
    log, table = log_and_table_without_old_tombstones(store, reader)
    put(log, ("a", None))
    compact_three_times(log, "c")
    assert [record.key for record in log if record.value is None] == []
    assert b"a" not in table
    check(table, {b"b": b"2", b"c": b"2"})


def test_a_tombstone_that_is_gone_from_a_segment_which_a_truncation_made_the_active_one_removes_its_key(
    store: WritableStore, reader: kstore.Store
) -> None:
    log, table = log_and_table_without_old_tombstones(store, reader)
    put(log, ("a", None), ("c", "3"))
    end = log.log_end_offset
    compact_three_times(log, "d")
    log.truncate_to(end)
    assert [record.key for record in log] == [b"b", b"c"]
    assert len(log.segments) == 1
    assert b"a" not in table
    check(table, {b"b": b"2", b"c": b"3"})


def test_a_log_that_was_closed_by_itself_is_opened_again(store: WritableStore) -> None:
    put(store["t"], ("a", "1"))
    table = store.table("t")
    store["t"].close()
    assert table[b"a"] == b"1"
    put(store["t"], ("b", "2"))
    check(table, {b"a": b"1", b"b": b"2"})


def test_damage_is_an_error_and_no_value_of_another_time(store: WritableStore, tmp_path: Path) -> None:
    put(store["t"], ("a", "1"), ("b", "2"), ("a", "3"))
    store.close()
    copy = tmp_path / "copy"
    shutil.copytree(store.root, copy)
    path = copy / "t-0" / f"{0:020d}.log"
    flip_bit(path, path.stat().st_size - 3, bit=0)
    with kstore.open_store(copy, config=CONFIG) as damaged, pytest.raises(CorruptRecordError):
        damaged.table("t")


# Memory


def fill_keys(log: WritableLog, start: int, stop: int) -> None:
    for at in range(start, stop, 500):
        log.append([Record(key=b"%d" % number, value=b"v") for number in range(at, min(at + 500, stop))])


def test_keys_that_do_not_fit_the_memory_are_an_error(store: WritableStore) -> None:
    store.create_topic("large", config={"segment_bytes": 1 << 20})
    log = store["large"]
    fill_keys(log, 0, 3000)
    table = store.table("large", max_bytes=3 * LEAST_MAP_BYTES)
    assert len(table) == 3000
    fill_keys(log, 3000, 9000)
    for _ in range(2):
        with pytest.raises(MemoryLimitError, match=r"do not fit max_bytes=196608: \d+ keys of 1 partitions") as raised:
            table[b"1"]
    assert (raised.value.limit, raised.value.option) == (196608, "max_bytes")
    assert table.used_bytes <= 3 * LEAST_MAP_BYTES
    keys = int(str(raised.value).split("do not fit")[1].split(": ")[1].split(" ")[0])
    assert keys >= 0.85 * (3 * LEAST_MAP_BYTES - 24 * 1024) // 24
    with pytest.raises(MemoryLimitError):
        store.table("large", max_bytes=3 * LEAST_MAP_BYTES)
    assert len(store.table("large", max_bytes=8 * LEAST_MAP_BYTES)) == 9000
    with pytest.raises(MemoryLimitError):
        table.refresh()
    log.delete_records(7000)
    assert table.refresh()
    assert len(table) == 2000


def test_each_partition_needs_memory_for_a_map(store: WritableStore) -> None:
    with pytest.raises(MemoryLimitError):
        store.table("many", max_bytes=2 * LEAST_MAP_BYTES)
    assert len(store.table("many", max_bytes=3 * LEAST_MAP_BYTES)) == 0


def test_removed_keys_leave_their_memory_to_others(store: WritableStore) -> None:
    store.create_topic("large", config={"segment_bytes": 1 << 20})
    log, table = store["large"], store.table("large", max_bytes=LEAST_MAP_BYTES)
    for start in range(0, 10_000, 500):
        fill_keys(log, start, start + 500)
        assert len(table) == 500
        log.append([Record(key=b"%d" % number) for number in range(start, start + 500)])
        assert len(table) == 0
    assert table.used_bytes <= LEAST_MAP_BYTES


def test_the_memory_of_a_map_that_is_made_again_is_free_again(store: WritableStore) -> None:
    store.create_topic("large", config={"segment_bytes": 1 << 20})
    log, table = store["large"], store.table("large", max_bytes=4 * LEAST_MAP_BYTES)
    for _ in range(5):
        fill_keys(log, 0, 5000)
        assert len(table) == 5000
        log.truncate_fully_and_start_at(log.log_end_offset)
        assert len(table) == 0
        assert table.used_bytes <= LEAST_MAP_BYTES


# Iterations


def test_a_table_stays_as_it_was_while_it_is_iterated(store: WritableStore, reader: kstore.Store) -> None:
    log = store["t"]
    put(log, ("a", "1"), ("b", "2"), ("c", "3"))
    table = reader.table("t")
    found, others = iter(table.items()), iter(table)
    assert next(found) == (b"a", b"1")
    assert next(others) == b"a"
    put(log, ("b", "new"), ("d", "4"), ("c", None))
    assert (len(table), b"d" in table, table[b"b"]) == (3, False, b"2")
    assert not table.refresh()
    assert list(found) == [(b"b", b"2"), (b"c", b"3")]
    assert len(table) == 3
    others.close()  # type: ignore[attr-defined]
    check(table, {b"a": b"1", b"b": b"new", b"d": b"4"})


def test_an_iterator_that_is_dropped_lets_the_table_go_on(store: WritableStore) -> None:
    put(store["t"], ("a", "1"), ("b", "2"))
    table = store.table("t")
    for key in table:
        assert key == b"a"
        break
    gc.collect()
    put(store["t"], ("a", "3"))
    assert table[b"a"] == b"3"


def test_an_iteration_reads_what_a_compaction_replaced_meanwhile(store: WritableStore) -> None:
    for number in range(3):
        put(store["many", number], ("a", "1"), ("b", "2"), ("c", "3"))
    table = store.table("many")
    found = iter(table.items())
    first = next(found)
    for number in range(3):
        log = store["many", number]
        replace(log, ("a", "new"), ("b", "new"), ("c", "new"), at_ms=2)
    assert sorted([first, *found]) == [(b"a", b"1"), (b"b", b"2"), (b"c", b"3")]
    check(table, {b"a": b"new", b"b": b"new", b"c": b"new", b"z": b"active"})


def test_a_lookup_of_a_record_that_is_gone_while_the_table_stays_as_it_was_gives_the_newer_one(
    store: WritableStore,
) -> None:
    for number in range(2):
        put(store["many", number], (f"a{number}", "1"), ("b", "2"), ("c", "3"), at_ms=1)
    table = store.table("many")
    found = iter(table)
    next(found)
    for number in range(2):
        log = store["many", number]
        put(log, (f"a{number}", "newer"), ("b", "new"), at_ms=2)
        log.roll()
        put(log, ("z", "active"), (f"a{number}", "new"), at_ms=2)
        log.compact(is_forced=True)
    assert [table[key] for key in (b"a0", b"a1", b"b", b"c")] == [b"new", b"new", b"new", b"3"]
    assert table.get(b"z") is None
    del found
    check(table, {b"a0": b"new", b"a1": b"new", b"b": b"new", b"c": b"3", b"z": b"active"})


def test_a_newer_record_is_read_from_where_the_map_ended_although_the_iteration_has_ended(
    store: WritableStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = store["t"]
    put(log, ("a", "1"), ("b", "2"))
    table = store.table("t")
    found = iter(table)
    next(found)
    replace(log, ("a", "new"))
    replaced = table._replaced

    def after_the_iteration(*arguments: Any) -> Any:
        found.close()
        assert b"z" in table
        return replaced(*arguments)

    monkeypatch.setattr(table, "_replaced", after_the_iteration)
    assert table[b"a"] == b"new"


class _Lock:
    """The lock of a table; when_free is called each time that it is free again."""

    def __init__(self, when_free: Callable[[], object]) -> None:
        self._lock = threading.RLock()
        self._depth = 0
        self._when_free = when_free

    def __enter__(self) -> None:
        self._lock.acquire()
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        is_free = not self._depth
        self._lock.release()
        if is_free:
            self._when_free()


def test_a_partition_that_a_lookup_maps_again_is_mapped_before_an_iteration_may_begin(
    store: WritableStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store["t"], ("a", "1"))
    table = store.table("t")
    (part,) = table._parts.values()
    restart, read = part.newest.restart, table._read
    looks: list[bytes] = []
    restarts: list[bool] = []

    def restarted() -> None:
        restarts.append(True)
        restart()

    def missed_twice(places: Any, key: bytes) -> Any:
        looks.append(key)
        return read(places, key) if len(looks) > 2 else [(place, None) for place in places]

    monkeypatch.setattr(part.newest, "restart", restarted)
    monkeypatch.setattr(table, "_read", missed_twice)
    # As another thread does that gets the lock then.
    monkeypatch.setattr(table, "_lock", _Lock(lambda: table._running.update(restarts)))
    assert (table[b"a"], looks, restarts) == (b"1", [b"a"] * 3, [True])


def test_a_lookup_of_a_key_that_is_gone_while_the_table_stays_as_it_was_finds_none(store: WritableStore) -> None:
    log = store["t"]
    put(log, ("a", "1"), ("b", "2"))
    table = store.table("t")
    found = iter(table)
    next(found)
    log.roll()
    put(log, ("b", "new"))
    log.delete_records(2)
    assert (table.get(b"a"), table[b"b"]) == (None, b"new")
    del found
    check(table, {b"b": b"new"})


def test_an_iteration_begins_with_the_map_of_the_files_that_it_reads(
    store: WritableStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = store["t"]
    put(log, ("a", "1"), ("b", "2"))
    table = store.table("t")
    (part,) = table._parts.values()
    records, begun = part.records, []

    def compacted_before(*arguments: Any) -> Any:
        begun.append(arguments)
        if len(begun) == 1:
            replace(log, ("a", "new"), ("b", "new"))
        return records(*arguments)

    monkeypatch.setattr(part, "records", compacted_before)
    assert dict(table.items()) == {b"a": b"new", b"b": b"new", b"z": b"active"}
    assert len(begun) == 2


def test_an_iteration_that_misses_records_says_so(store: WritableStore, monkeypatch: pytest.MonkeyPatch) -> None:
    put(store["t"], ("a", "1"), ("b", "2"))
    table = store.table("t")
    (part,) = table._parts.values()
    monkeypatch.setattr(type(part.newest), "key_count", property(lambda _: 3))
    with pytest.raises(LogReplacedError, match="1 of its records are gone"):
        list(table)


# Life


def test_a_closed_table_answers_nothing(store: WritableStore, reader: kstore.Store) -> None:
    put(store["t"], ("a", "1"), ("b", "2"))
    with reader.table("t") as table:
        found = iter(table)
        next(found)
    for ask in (lambda: table[b"a"], lambda: len(table), lambda: b"a" in table, lambda: list(table), table.refresh):
        with pytest.raises(LogClosedError, match="table of 't' was closed"):
            ask()
    with pytest.raises(LogClosedError):
        list(found)
    table.close()
    assert "is_closed=True" in repr(table)
    assert "is_closed" in table._repr_html_()
    assert table.used_bytes == 0


def test_a_table_of_a_closed_store_answers_nothing(store: WritableStore, reader: kstore.Store) -> None:
    put(store["t"], ("a", "1"))
    table = reader.table("t")
    assert table[b"a"] == b"1"
    reader.close()
    for ask in (lambda: table[b"a"], lambda: len(table), lambda: list(table)):
        with pytest.raises(LogClosedError):
            ask()
    table.close()


def test_a_table_shows_itself(store: WritableStore) -> None:
    put(store["t"], ("a", "1"))
    table = store.table("t")
    assert repr(table) == (
        f"Table(topic='t', root={store.root!r}, isolation_level='read_committed', partitions=1, keys=1, "
        f"used_bytes={table.used_bytes})"
    )
    assert "Table t" in table._repr_html_()


def test_threads_look_up_while_the_topic_grows(store: WritableStore, reader: kstore.Store) -> None:
    log, table = store["t"], reader.table("t")
    put(log, *((str(number), "0") for number in range(20)))
    failures: list[BaseException] = []
    is_done = threading.Event()

    def look(ask: Callable[[int], object]) -> None:
        try:
            while not is_done.is_set():
                for number in range(20):
                    ask(number)
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    threads = [
        threading.Thread(target=look, args=(ask,))
        for ask in (lambda number: table[b"%d" % number], lambda _: len(table), lambda _: dict(table.items()))
    ]
    for thread in threads:
        thread.start()
    for step in range(1, 6):
        put(log, *((str(number), str(step)) for number in range(20)))
        if reader is store:
            log.roll()
            log.compact(is_forced=True)
    is_done.set()
    for thread in threads:
        thread.join()
    assert failures == []
    check(table, {b"%d" % number: b"5" for number in range(20)})
