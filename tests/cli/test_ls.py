"""Goal: `kstore ls` tells offsets, size, times, magics and codecs of each partition, cheaply and rightly.
Method: built roots: empty, rolled, compacted, preallocated, deleted from, damaged; JSON compared whole."""

from __future__ import annotations

import pytest

from tests.cli.runner import runner
from tests.making.batches import (
    FIRST_TIMESTAMP_MS,
    Layout,
    batch,
    batches,
    flip_bit,
    grow,
    patch_header,
    record,
    set_byte,
    write_partition,
    write_root,
)
from tests.reference.codec import write_batch, write_empty_batch

FIELDS = [
    "topic", "partition", "log_start_offset", "log_end_offset", "last_stable_offset", "segments", "size_in_bytes",
    "first_timestamp_ms", "last_timestamp_ms", "magics", "codecs", "suspected_losses",
]  # fmt: skip
SEGMENT_0 = "00000000000000000000.log"
MIB = 1 << 20


@pytest.fixture
def kstore(monkeypatch, capsysbinary):
    return runner(monkeypatch, capsysbinary)


def listed(kstore, directory, *options):
    """The one partition's object, after a fine run."""
    run = kstore("ls", "--json", directory, *options)
    assert (run.status, run.err) == (0, "")
    (shown,) = run.objects()
    return shown


def test_json_has_the_contracted_fields_in_order(kstore, tmp_path):
    parts = [batch(4, 2), batch(6, 3, codec=4)]
    directory = write_partition(tmp_path, [parts[:1], parts[1:]], topic="flights", partition=3)
    shown = listed(kstore, directory)
    assert list(shown) == FIELDS
    assert shown == {
        "topic": "flights",
        "partition": 3,
        "log_start_offset": 4,
        "log_end_offset": 9,
        "last_stable_offset": None,
        "segments": 2,
        "size_in_bytes": len(b"".join(parts)),
        "first_timestamp_ms": FIRST_TIMESTAMP_MS + 4,
        "last_timestamp_ms": FIRST_TIMESTAMP_MS + 8,
        "magics": [2],
        "codecs": ["none", "zstd"],
        "suspected_losses": [],
    }


def test_partition_without_records_has_no_times_magics_or_codecs(kstore, tmp_path):
    shown = listed(kstore, write_partition(tmp_path, [[]]))
    assert [shown[name] for name in FIELDS[2:]] == [0, 0, None, 1, 0, None, None, [], [], []]


def test_first_timestamp_is_that_of_the_record_at_the_log_start(kstore, tmp_path):
    root = write_root(tmp_path / "logs", {"t-0": [[batch(0, 5), batch(5, 5)]]}, log_start_offsets={"t-0": 7})
    shown = listed(kstore, root)
    assert (shown["log_start_offset"], shown["first_timestamp_ms"]) == (7, FIRST_TIMESTAMP_MS + 7)


def test_log_deleted_to_its_end_has_no_times(kstore, tmp_path):
    root = write_root(tmp_path / "logs", {"t-0": [[batch(0, 5)]]}, log_start_offsets={"t-0": 5})
    shown = listed(kstore, root)
    assert (shown["log_start_offset"], shown["log_end_offset"]) == (5, 5)
    assert (shown["first_timestamp_ms"], shown["last_timestamp_ms"]) == (None, None)


def test_first_timestamp_passes_over_emptied_batches_and_delete_horizons(kstore, tmp_path):
    emptied = write_empty_batch(0, last_offset=9, max_timestamp_ms=1)
    kept = write_batch([record(12, timestamp_ms=500)], base_offset=10, delete_horizon_ms=9999)
    shown = listed(kstore, write_partition(tmp_path, [[emptied, kept]]))
    assert (shown["first_timestamp_ms"], shown["last_timestamp_ms"]) == (500, 500)


def test_last_timestamp_is_that_of_the_last_batch_before_empty_segments(kstore, tmp_path):
    shown = listed(kstore, write_partition(tmp_path, [[batch(0), batch(1)], []]))
    assert (shown["log_end_offset"], shown["last_timestamp_ms"]) == (2, FIRST_TIMESTAMP_MS + 1)


def test_last_timestamp_is_found_without_the_index_and_in_preallocated_files(kstore, tmp_path):
    parts = batches(0, 20, value_bytes=2000)
    directory = write_partition(tmp_path, [parts], layout=Layout(is_closed=False))
    grow(directory / SEGMENT_0, bytes(5000))
    with_index = listed(kstore, directory)
    (directory / "00000000000000000000.index").unlink()
    assert listed(kstore, directory) == with_index
    assert with_index["last_timestamp_ms"] == FIRST_TIMESTAMP_MS + 19


def test_log_append_time_counts_as_the_time_of_the_records(kstore, tmp_path):
    shown = listed(kstore, write_partition(tmp_path, [[batch(0, 2, log_append_time_ms=77)]]))
    assert (shown["first_timestamp_ms"], shown["last_timestamp_ms"]) == (77, 77)


def test_codecs_are_those_of_the_start_of_each_segment_unless_exact(kstore, tmp_path):
    parts = [batch(0, value_bytes=MIB), batch(1, codec=1, value_bytes=10), batch(2, value_bytes=10)]
    directory = write_partition(tmp_path, [parts])
    assert listed(kstore, directory)["codecs"] == ["none"]
    assert listed(kstore, directory, "--exact")["codecs"] == ["none", "gzip"]


def test_codec_of_the_last_batch_is_shown_though_it_lies_behind_the_start(kstore, tmp_path):
    directory = write_partition(tmp_path, [[batch(0, value_bytes=MIB), batch(1, codec=1)]])
    assert listed(kstore, directory)["codecs"] == ["none", "gzip"]


def test_undefined_codec_is_named_by_its_number(kstore, tmp_path):
    directory = write_partition(tmp_path, [[batch(0), patch_header(batch(1), attributes=7), batch(2)]])
    assert listed(kstore, directory)["codecs"] == ["none", "UNKNOWN(7)"]


def test_partitions_are_sorted_by_topic_and_number(kstore, tmp_path):
    root = write_root(tmp_path / "logs", {name: [[batch(0)]] for name in ("b-0", "a-10", "a-9", "a-0")})
    run = kstore("ls", "--json", root)
    assert [(shown["topic"], shown["partition"]) for shown in run.objects()] == [
        ("a", 0),
        ("a", 9),
        ("a", 10),
        ("b", 0),
    ]
    narrowed = kstore("ls", "--json", root, "--topic", "a", "--partition", 9, "--partition", 0)
    assert [shown["partition"] for shown in narrowed.objects()] == [0, 9]


def test_damage_in_the_last_segment_is_reported_beside_what_is_whole(kstore, tmp_path):
    directory = write_partition(tmp_path, [[batch(0), batch(1)]])
    log = directory / SEGMENT_0
    position = len(batch(0))
    set_byte(log, position + 8, value=0xFF)
    run = kstore("ls", "--json", directory)
    assert [shown["log_end_offset"] for shown in run.objects()] == [1]
    assert run.status == 1
    assert f"position {position} of {log}" in run.err


def test_partition_that_can_not_be_read_does_not_hide_the_others(kstore, tmp_path):
    root = write_root(tmp_path / "logs", {"a-0": [[batch(0), batch(1)]], "b-0": [[batch(0)]]})
    flip_bit(root / "a-0" / SEGMENT_0, 65, bit=0)
    run = kstore("ls", "--json", root)
    assert [shown["topic"] for shown in run.objects()] == ["b"]
    assert run.status == 1
    assert run.err.count("\n") == 1


def test_text_is_a_table_that_is_never_cut(kstore, tmp_path):
    topic = "t" * 200
    root = write_root(tmp_path / "logs", {f"{topic}-0": [[batch(0)]], "b-1": [[]]})
    heading, first, second = kstore("ls", root).out.splitlines()
    assert heading.split()[0:3] == ["topic", "partition", "log"]
    assert first.split() == ["b", "1", "0", "0", "1", "0", "-", "-", "-", "-"]
    assert second.split()[0] == topic
    assert second.split()[-1] == "none"


@pytest.mark.parametrize("name", ["none", "file", "empty"])
def test_path_without_a_log_is_wrong_use(kstore, tmp_path, name):
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "empty").mkdir()
    run = kstore("ls", "--json", tmp_path / name)
    assert (run.status, run.out) == (2, "")
    assert run.err.count("\n") == 1
