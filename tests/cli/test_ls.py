"""Goal: `kstore ls` tells offsets, size, times, magics and codecs of each partition, cheaply and rightly.
Method: built roots: empty, rolled, compacted, preallocated, deleted from, damaged; JSON compared whole."""

from __future__ import annotations

import re

import pytest

from kstore.env import LocalEnv
from tests.cli.runner import runner
from tests.cli.test_process import on_a_terminal
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
from tests.reference.codec import write_batch, write_empty_batch, write_end_transaction_marker

FIELDS = [
    "topic", "partition", "log_start_offset", "log_end_offset", "last_stable_offset", "segments", "size_in_bytes",
    "first_timestamp_ms", "last_timestamp_ms", "magics", "codecs", "suspected_losses", "state",
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
        "state": None,
    }


def test_partition_without_records_has_no_times_magics_or_codecs(kstore, tmp_path):
    shown = listed(kstore, write_partition(tmp_path, [[]]))
    assert [shown[name] for name in FIELDS[2:]] == [0, 0, None, 1, 0, None, None, [], [], [], None]


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


def test_segment_that_reaches_into_the_next_one_is_reported(kstore, tmp_path):
    directory = write_partition(tmp_path, [[batch(0), batch(1, 5)], [batch(6)]])
    (directory / "00000000000000000006.log").rename(directory / "00000000000000000005.log")
    run = kstore("ls", "--json", directory)
    assert (run.status, run.out) == (1, "")
    assert f"position {len(batch(0))} of {directory / SEGMENT_0}" in run.err
    assert "expected less than 5, found 5" in run.err


def test_damage_at_the_end_of_the_last_segment_with_batches_is_reported(kstore, tmp_path):
    directory = write_partition(tmp_path, [[batch(0), batch(1), batch(2)], []])
    position = len(batch(0) + batch(1))
    set_byte(directory / SEGMENT_0, position + 8, value=0xFF)
    run = kstore("ls", "--json", directory)
    assert (run.status, run.out) == (1, "")
    assert f"position {position} of {directory / SEGMENT_0}" in run.err


def test_first_timestamp_is_of_the_first_record_though_its_batch_has_another_base(kstore, tmp_path):
    cleaned = write_batch([record(3, timestamp_ms=700)], base_offset=0, last_offset=4, delete_horizon_ms=500)
    compressed = write_batch([record(5, timestamp_ms=900)], base_offset=5, codec=1)
    shown = listed(kstore, write_partition(tmp_path, [[cleaned, compressed]]))
    assert shown["first_timestamp_ms"] == 700
    root = write_root(tmp_path / "logs", {"t-0": [[cleaned, compressed]]}, log_start_offsets={"t-0": 4})
    assert listed(kstore, root)["first_timestamp_ms"] == 900


def test_each_file_of_a_partition_is_opened_once(kstore, tmp_path, monkeypatch):
    directory = write_partition(tmp_path, [batches(0, 20, value_bytes=2000)])
    (directory / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    opened = []
    open_read = LocalEnv.open_read
    monkeypatch.setattr(LocalEnv, "open_read", lambda env, path: opened.append(path) or open_read(env, path))
    listed(kstore, directory)
    assert sorted(opened) == sorted(set(opened))


def test_first_batch_with_a_wrong_crc_is_reported(kstore, tmp_path):
    directory = write_partition(tmp_path, [[batch(0, value_bytes=9), batch(1)]])
    flip_bit(directory / SEGMENT_0, len(batch(0, value_bytes=9)) - 3, bit=0)
    run = kstore("ls", "--json", directory)
    assert (run.status, run.out) == (1, "")
    assert "position 0 of" in run.err


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


def marker(offset, timestamp_ms):
    return write_end_transaction_marker(offset, timestamp_ms=timestamp_ms, producer_id=1, producer_epoch=0, commit=True)


@pytest.mark.parametrize("markers", [1, 50, 3000])
def test_times_are_those_of_data_and_not_of_markers(kstore, tmp_path, markers):
    parts = [marker(0, 1), batch(1, 3), *(marker(offset, 9 + offset) for offset in range(4, 4 + markers))]
    shown = listed(kstore, write_partition(tmp_path, [parts]))
    assert shown["log_end_offset"] == 4 + markers
    assert (shown["first_timestamp_ms"], shown["last_timestamp_ms"]) == (FIRST_TIMESTAMP_MS + 1, FIRST_TIMESTAMP_MS + 3)


def test_log_of_markers_has_no_times(kstore, tmp_path):
    shown = listed(kstore, write_partition(tmp_path, [[marker(0, 1)], [marker(1, 2), marker(2, 3)]]))
    assert (shown["first_timestamp_ms"], shown["last_timestamp_ms"]) == (None, None)


def test_last_timestamp_is_of_an_earlier_segment_if_the_last_one_has_markers_only(kstore, tmp_path):
    shown = listed(kstore, write_partition(tmp_path, [[batch(0, 2)], [marker(2, 5)]]))
    assert shown["last_timestamp_ms"] == FIRST_TIMESTAMP_MS + 1


@pytest.fixture
def three(tmp_path):
    """a-0 is the smallest and goes furthest, b-0 the largest and the one with most segments, b-1 is between."""
    logs = {
        "a-0": [[batch(50, 1)]],
        "b-0": [[batch(0, 1, value_bytes=3000)], [batch(1, 1)]],
        "b-1": [[batch(0, 20)]],
    }
    return write_root(tmp_path / "logs", logs)


@pytest.mark.parametrize(
    ("options", "order"),
    [
        ([], ["a-0", "b-0", "b-1"]),
        (["-r"], ["b-1", "b-0", "a-0"]),
        (["--sort", "size"], ["a-0", "b-1", "b-0"]),
        (["--sort", "size", "-r"], ["b-0", "b-1", "a-0"]),
        (["--sort", "offset"], ["b-0", "b-1", "a-0"]),
        (["--sort", "segments"], ["a-0", "b-1", "b-0"]),
        (["--sort", "time"], ["b-0", "b-1", "a-0"]),
    ],
    ids=" ".join,
)
def test_partitions_are_sorted_as_asked_for(kstore, three, options, order):
    shown = kstore("ls", "--json", three, *options).objects()
    assert [f"{one['topic']}-{one['partition']}" for one in shown] == order
    rows = [line.split() for line in kstore("ls", three, *options).out.splitlines()[1:]]
    assert [f"{row[0]}-{row[1]}" for row in rows] == order


def test_topics_have_totals(kstore, three):
    whole = kstore("ls", "--json", three).objects()
    a, b = kstore("ls", "--json", "--topics", three).objects()
    assert (a["topic"], a["partitions"], a["offsets"], a["segments"]) == ("a", 1, 1, 1)
    assert b == {
        "topic": "b",
        "partitions": 2,
        "offsets": 22,
        "segments": 3,
        "size_in_bytes": whole[1]["size_in_bytes"] + whole[2]["size_in_bytes"],
        "first_timestamp_ms": FIRST_TIMESTAMP_MS,
        "last_timestamp_ms": FIRST_TIMESTAMP_MS + 19,
    }
    assert [line.split()[0] for line in kstore("ls", "--topics", three, "--sort", "size", "-r").out.splitlines()] == [
        "topic",
        "b",
        "a",
    ]


def test_human_sizes_are_those_of_the_report(kstore, three):
    assert " kB " in kstore("ls", "--human", three, "--topic", "b").out
    assert " B " in kstore("ls", "--human", three, "--topic", "a").out


def test_directories_that_a_broker_renamed_are_listed_with_their_state(kstore, three):
    unique = "0123456789abcdef0123456789abcdef"
    for state in ("delete", "stray", "future"):
        directory = three / f"old-topic-3.{unique}-{state}"
        directory.mkdir()
        (directory / SEGMENT_0).write_bytes(bytes(1234))
        (directory / "leader-epoch-checkpoint").write_bytes(bytes(10))
        (directory / "inner").mkdir()
    shown = kstore("ls", "--json", three).objects()
    assert [list(one) for one in shown] == [FIELDS] * 6
    assert [(one["topic"], one["partition"], one["size_in_bytes"], one["state"]) for one in shown[3:]] == [
        ("old-topic", 3, 1244, "delete"),
        ("old-topic", 3, 1244, "future"),
        ("old-topic", 3, 1244, "stray"),
    ]
    last = kstore("ls", three).out.splitlines()[-1].split()
    assert last[:3] == [f"old-topic-3.{unique}-stray", "1244", "-stray"]
    assert kstore("ls", "--json", three, "--topic", "a").out.count("\n") == 1
    assert kstore("ls", "--json", three / "a-0").out.count("\n") == 1


def test_table_leaves_out_columns_on_a_narrow_terminal_and_names_them(three):
    status, shown = on_a_terminal("ls", three, columns=80)
    assert status == 0
    lines = re.sub(r"\x1b\[[0-9;]*m", "", shown).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[-1].startswith("no room for: ")
    assert "magic" in lines[-1]
    assert "bytes" in lines[0]
    assert "no room" not in on_a_terminal("ls", three, columns=200)[1]


def test_topic_with_a_typo_is_told_what_was_meant(kstore, tmp_path):
    root = write_root(tmp_path / "logs", {"orders-0": [[batch(0)]], "payments-0": [[batch(0)]]})
    run = kstore("ls", root, "--topic", "order")
    assert (run.status, run.out) == (2, "")
    assert run.err.endswith("; did you mean orders?\n")
    assert "did you mean" not in kstore("ls", root, "--topic", "zzz").err
    assert "did you mean" not in kstore("ls", root, "--topic", "orders", "--partition", 7).err
