"""Goal: `kstore stat` shows what a log weighs: exact where it says so, and within its bounds where not.
Method: logs that kstore and brokers wrote, counted by a plain model; compaction itself for what it would save."""

from __future__ import annotations

import json
import random
import shutil
from base64 import b64decode
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore import LogConfig, Producer, open_log, open_store
from kstore.env.local import LocalEnv
from kstore.record import Record, with_records
from kstore.reporting.statistics import LargestKeys, Rates
from tests.cli.runner import runner
from tests.golden.sets import MAIN_SETS, V0_SET, golden_partitions
from tests.making.batches import flip_bit
from tests.making.collecting import over


@pytest.fixture
def kstore(monkeypatch, capsysbinary):
    return runner(monkeypatch, capsysbinary)


def record(number, key, value=b"v"):
    return Record(timestamp_ms=1_000_000 + 1000 * number, key=key, value=value)


@pytest.fixture
def root(tmp_path):
    """t-0: 100 records of 5 keys in batches of 10, every other one compressed, and a tombstone."""
    with open_store(tmp_path / "root", "a", LogConfig(segment_bytes=2000)) as store:
        store.create_topic("t")
        store.create_topic("u")
        log = store.log("t")
        for start in range(0, 100, 10):
            codec = "gzip" if start % 20 else "none"
            records = [record(n, b"key-%d" % (n % 5), b"v" * (n % 5) * 10) for n in range(start, start + 10)]
            log.append(with_records(records, compression=codec))
        log.append(record(100, b"key-1", None))
    return tmp_path / "root"


def test_sizes_records_and_rates_are_those_of_the_log(kstore, root):
    run = kstore("stat", root, "--topic", "t", "--json")
    assert (run.status, run.err) == (0, "")
    (shown,) = run.objects()
    with open_log(root / "t-0") as log:
        assert (shown["segments"], shown["size_in_bytes"]) == (len(log.segments), log.size_in_bytes)
        sizes = Counter()
        for batch in log.batches():
            sizes[batch.compression.label] += batch.size_in_bytes
    counts = ("batches", "control_batches", "records", "tombstones", "records_without_key", "largest_record_bytes")
    assert [shown[name] for name in counts] == [11, 0, 101, 1, 0, 45]
    assert (shown["first_timestamp"], shown["last_timestamp"]) == (1_000_000, 1_100_000)
    assert shown["records_per_second"] == 1.01
    assert {name: one["size_in_bytes"] for name, one in shown["codecs"].items()} == sizes
    assert shown["codecs"]["none"]["ratio"] == 1
    assert 0 < shown["codecs"]["gzip"]["ratio"] < 1
    buckets = shown["rates"]["buckets"]
    assert sum(records for _, records, _ in buckets) == 101
    assert sum(size for _, _, size in buckets) == log.size_in_bytes
    assert [start for start, _, _ in buckets] == sorted({start for start, _, _ in buckets})


def test_keys_are_counted_and_the_largest_come_first(kstore, root):
    (shown,) = kstore("stat", root, "--topic", "t", "--json", "--top", "2").objects()
    assert (shown["unique_keys"], shown["unique_keys_are_exact"]) == (5, True)
    keys = [
        (b64decode(one["key"]), one["records"], one["bytes"], one["bytes_at_most"]) for one in shown["largest_keys"]
    ]
    assert keys == [(b"key-4", 20, 900, 900), (b"key-3", 20, 700, 700)]


def test_more_keys_than_the_map_holds_are_a_lower_bound(kstore, tmp_path):
    with open_store(tmp_path / "root", "a") as store:
        store.create_topic("t")
        store.log("t").append(with_records([record(n, b"%d" % n) for n in range(500)]))
    (shown,) = kstore("stat", tmp_path / "root", "--json", "--map-bytes", "2400").objects()
    assert shown["unique_keys_are_exact"] is False
    assert 50 <= shown["unique_keys"] <= 100
    run = kstore("stat", tmp_path / "root", "--map-bytes", "2400", "--top", "0")
    assert f">={shown['unique_keys']}" in run.out


def test_a_table_has_a_row_per_partition_and_the_largest_keys(kstore, root):
    run = kstore("stat", root, "--top", "1")
    assert run.status == 0
    lines = [line.split() for line in run.out.splitlines()]
    assert lines[1][:2] == ["t", "0"]
    assert lines[2][:2] == ["u", "0"]
    assert lines[1][4:6] == ["11", "101"]
    assert lines[-1] == ["t", "0", "key-4", "20", "900"]


def test_rates_are_a_table_of_intervals(kstore, root):
    run = kstore("stat", root, "--topic", "t", "--rates", "--top", "0")
    _, _, _, head, *rows = [line.split() for line in run.out.splitlines()]
    assert " ".join(head) == "topic partition from seconds records records/s bytes/s"
    assert rows[0][:4] == ["t", "0", "1970-01-01T00:16:49.000Z", "1"]
    assert (sum(int(row[4]) for row in rows), rows[0][5]) == (101, "10")


def test_shallow_reads_headers_only(kstore, root):
    (shown,) = kstore("stat", root, "--topic", "t", "--json", "--shallow").objects()
    assert (shown["records"], shown["batches"]) == (101, 11)
    assert shown["codecs"]["gzip"]["ratio"] is None
    assert not {"unique_keys", "compaction", "largest_keys"} & shown.keys()


def test_records_of_old_messages_are_counted_where_they_are_decoded(kstore):
    partition = next(one for one in golden_partitions(V0_SET) if "gzip" in one.topic)
    with open_log(partition.directory) as log:
        expected = sum(1 for _ in log.read())
    (deep,) = kstore("stat", partition.directory, "--json").objects()
    assert (deep["records"], deep["first_timestamp"], deep["codecs"]["gzip"]["ratio"]) == (expected, None, None)
    (shallow,) = kstore("stat", partition.directory, "--json", "--shallow").objects()
    assert shallow["records"] is None


def test_markers_are_batches_and_no_records(kstore, tmp_path):
    with open_store(tmp_path / "root", "a") as store:
        store.create_topic("t")
        store.create_topic("__transaction_state", 1)
        with Producer(store, transactional_id="x") as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send("t", b"v", key=b"k")
            producer.commit_transaction()
    (shown,) = kstore("stat", tmp_path / "root", "--topic", "t", "--json").objects()
    assert (shown["batches"], shown["control_batches"], shown["records"]) == (2, 1, 1)


def test_damage_is_reported_and_the_other_partitions_are_shown(kstore, root):
    flip_bit(root / "t-0" / "00000000000000000000.log", 70, bit=0)
    run = kstore("stat", root, "--json")
    assert (run.status, [one["topic"] for one in run.objects()]) == (1, ["u"])
    assert "CRC mismatch" in run.err


# What compaction would save


def test_compaction_saves_what_was_said(kstore, root):
    (shown,) = kstore("stat", root, "--topic", "t", "--json").objects()
    (done,) = kstore("compact", root, "--topic", "t", "--roll", "--json").objects()
    said = shown["compaction"]
    assert said["saved_bytes"] > 0
    assert (said["bytes_before"], said["bytes_after"]) == (done["bytes_before"], done["bytes_after"])
    assert (said["records"], said["records_kept"]) == (done["records_read"], done["records_kept"])


def test_a_record_without_a_key_leaves_compaction_out(kstore, root):
    with open_store(root, "a") as store:
        store.log("t").append(record(1, None))
    (shown,) = kstore("stat", root, "--topic", "t", "--json").objects()
    assert (shown["compaction"], shown["records_without_key"]) == (None, 1)


def test_an_open_transaction_is_left_out_of_what_compaction_saves(kstore, tmp_path):
    with open_store(tmp_path / "root", "a", LogConfig(segment_ms=2**62)) as store:
        store.create_topic("t")
        store.create_topic("__transaction_state", 1)
        for _ in range(3):
            store.log("t").append(record(1, b"k"))
        store.log("t").roll()
        # In the segment of the transaction, which stays whole.
        store.log("t").append(record(1, b"k"))
        with Producer(store, transactional_id="x") as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send("t", b"v", key=b"k")
            producer.flush()
            (shown,) = kstore("stat", tmp_path / "root", "--topic", "t", "--json").objects()
    assert (shown["records"], shown["compaction"]["records"], shown["compaction"]["records_kept"]) == (5, 3, 1)


def test_a_segment_in_which_nothing_is_replaced_keeps_its_bytes(kstore, tmp_path):
    with open_store(tmp_path / "root", "a") as store:
        store.create_topic("t")
        for number in range(3):
            store.log("t").append(record(1, b"%d" % number))
    (shown,) = kstore("stat", tmp_path / "root", "--topic", "t", "--json").objects()
    said = shown["compaction"]
    assert (said["records_kept"], said["saved_bytes"]) == (3, 0)
    assert said["bytes_after"] == said["bytes_before"] == shown["size_in_bytes"]


NOW_MS = 1_800_000_000_000
COMPACTED = [
    one for one in golden_partitions(MAIN_SETS[-1]) if one.topic in ("compact-never", "compact-keep", "compact-lz4")
]


@over("partition", COMPACTED)
def test_compaction_of_a_brokers_log_saves_what_was_said(kstore, tmp_path, monkeypatch, partition):
    # The delete horizon that a tombstone gets, and so the size of its batch, depends on the time.
    monkeypatch.setattr(LocalEnv, "wall_clock_ms", lambda _: NOW_MS)
    copy = tmp_path / partition.set_name / partition.name
    shutil.copytree(partition.directory, copy)
    (shown,) = kstore("stat", copy, "--json").objects()
    (done,) = kstore("compact", copy, "--roll", "--json").objects()
    assert shown["compaction"]["bytes_after"] == done["bytes_after"]
    shutil.rmtree(copy)


# In bounded memory


WEIGHTS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 50)), max_size=300)


@given(WEIGHTS)
def test_the_largest_keys_are_within_their_bounds(weights):
    keys, exact, counts = LargestKeys(4), Counter(), Counter()
    for number, size in weights:
        key = b"%d" % number
        keys.add(key, size)
        exact[key] += size
        counts[key] += 1
    found = {one.key: one for one in keys.top(100)}
    assert len(found) <= 8
    for key, one in found.items():
        assert one.size_in_bytes <= exact[key] <= one.at_most_bytes
        assert one.records <= counts[key]
    assert all(exact[key] <= keys.floor_bytes for key in exact.keys() - found.keys())
    if len(exact) <= 8:
        assert {key: (one.size_in_bytes, one.records) for key, one in found.items()} == {
            key: (exact[key], counts[key]) for key in exact
        }


def test_a_heavy_key_is_found_among_many():
    keys, choice = LargestKeys(50), random.Random(1)
    for number in range(20_000):
        keys.add(b"heavy" if number % 10 == 0 else b"%d" % choice.randrange(10**6), 100)
    heaviest = keys.top(1)[0]
    assert heaviest.key == b"heavy"
    assert heaviest.size_in_bytes <= 200_000 <= heaviest.at_most_bytes


def test_long_keys_are_kept_by_their_start_and_counted_apart():
    keys = LargestKeys(10)
    for last in (b"a", b"b", b"a"):
        keys.add(b"x" * 1000 + last, 5)
    assert [(one.key, one.key_size, one.records) for one in keys.top(10)] == [
        (b"x" * 64, 1001, 2),
        (b"x" * 64, 1001, 1),
    ]


@given(st.lists(st.tuples(st.integers(0, 10**13), st.integers(0, 9), st.integers(0, 99)), max_size=200))
def test_rates_keep_the_sums_in_few_intervals(batches):
    rates = Rates()
    for timestamp_ms, records, size in batches:
        rates.add(timestamp_ms, records=records, size_in_bytes=size)
    assert len(rates.buckets) <= 64
    assert sum(records for records, _ in rates.buckets.values()) == sum(one[1] for one in batches)
    assert all(start % rates.bucket_ms == 0 for start in rates.buckets)
    expected = Counter()
    for timestamp_ms, _, size in batches:
        expected[timestamp_ms - timestamp_ms % rates.bucket_ms] += size
    assert {start: size for start, (_, size) in rates.buckets.items()} == expected


def test_json_is_one_object_a_line(kstore, root):
    assert [json.loads(line)["topic"] for line in kstore("stat", root, "--json").out.splitlines()] == ["t", "u"]
