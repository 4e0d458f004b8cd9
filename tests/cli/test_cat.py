"""Goal: `kstore cat` shows exactly the records asked for, by offset, time, number and kind, and stops at damage.
Method: built partitions with gaps, control batches, times out of order and damage, run through the command."""

from __future__ import annotations

import base64
import itertools
import threading

import pytest

from kstore import Record
from kstore.cli import render
from kstore.cli.printing import cat
from kstore.log.following.follower import Feed
from kstore.store.opening import open_log
from tests.cli.runner import runner
from tests.making.batches import (
    FIRST_TIMESTAMP_MS,
    batch,
    batches,
    flip_bit,
    record,
    shrink,
    write_partition,
    write_root,
)
from tests.making.cat_groups import groups
from tests.reference.codec import write_batch, write_end_transaction_marker


@pytest.fixture
def kstore(monkeypatch, capsysbinary):
    return runner(monkeypatch, capsysbinary)


@pytest.fixture
def directory(tmp_path):
    """Offsets 0 to 11: four batches of three records in two segments."""
    parts = batches(0, 4, records_per_batch=3)
    return write_partition(tmp_path, [parts[:2], parts[2:]])


def offsets(run):
    return [shown["offset"] for shown in run.objects()]


def test_json_record_has_the_contracted_fields_in_order(kstore, tmp_path):
    data = write_batch([record(0, b"\x00v", None, timestamp_ms=7, headers=[(b"h", b""), (b"h", None)])])
    run = kstore("cat", "--json", write_partition(tmp_path, [[data]], topic="a.b_c-d", partition=12))
    assert [list(shown.items()) for shown in run.objects()] == [
        [
            ("topic", "a.b_c-d"),
            ("partition", 12),
            ("offset", 0),
            ("timestamp", 7),
            ("timestampType", "CreateTime"),
            ("key", None),
            ("value", base64.b64encode(b"\x00v").decode()),
            ("headers", [["h", ""], ["h", None]]),
            ("keyText", None),
            ("valueText", "\x00v"),
            ("headersText", [["h", ""], ["h", None]]),
            ("producerId", -1),
            ("producerEpoch", -1),
            ("sequence", -1),
            ("isTransactional", False),
            ("leaderEpoch", 0),
        ]
    ]
    assert (run.status, run.err) == (0, "")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param([], range(12), id="everything"),
        pytest.param(["--from", "4"], range(4, 12), id="from-inside-a-batch"),
        pytest.param(["--to", "4"], range(4), id="to-inside-a-batch"),
        pytest.param(["--from", "3", "--to", "9"], range(3, 9), id="whole-batches-over-two-segments"),
        pytest.param(["--from", "5", "--to", "6"], [5], id="one-record"),
        pytest.param(["--from", "5", "--to", "5"], [], id="empty-range"),
        pytest.param(["--from", "earliest", "--to", "latest"], range(12), id="named-ends"),
        pytest.param(["--from", "latest"], [], id="from-latest"),
        pytest.param(["--to", "earliest"], [], id="to-earliest"),
        pytest.param(["--from", "12"], [], id="from-the-end"),
        pytest.param(["--from", "999"], [], id="from-behind-the-end"),
        pytest.param(["--to", "999"], range(12), id="to-behind-the-end"),
        pytest.param(["--limit", "0"], [], id="limit-0"),
        pytest.param(["--limit", "4"], range(4), id="limit-inside-a-batch"),
        pytest.param(["--limit", "3"], range(3), id="limit-at-a-batch-end"),
        pytest.param(["--limit", "99"], range(12), id="limit-behind-the-end"),
        pytest.param(["--from", "4", "--limit", "3"], [4, 5, 6], id="from-and-limit"),
        pytest.param(["--since", str(FIRST_TIMESTAMP_MS + 4)], range(4, 12), id="since"),
        pytest.param(["--since", str(FIRST_TIMESTAMP_MS + 5)], range(5, 12), id="since-the-last-of-a-batch"),
        pytest.param(["--until", str(FIRST_TIMESTAMP_MS + 4)], range(4), id="until"),
        pytest.param(["--since", "2020-09-13T12:26:40.010Z"], [10, 11], id="since-iso"),
        pytest.param(["--since", str(FIRST_TIMESTAMP_MS + 12)], [], id="since-behind-the-last"),
        pytest.param(["--until", str(FIRST_TIMESTAMP_MS)], [], id="until-the-first"),
        pytest.param(["--since", str(FIRST_TIMESTAMP_MS + 4), "--from", "6"], range(6, 12), id="since-and-from"),
    ],
)
def test_bounds_are_half_open_and_exact_inside_batches(kstore, directory, options, expected):
    run = kstore("cat", "--json", directory, *options)
    assert offsets(run) == list(expected)
    assert (run.status, run.err) == (0, "")


@pytest.mark.parametrize("codec", [0, 3], ids=["plain", "lz4"])
def test_every_range_shows_what_the_log_reads(tmp_path, codec):
    directory = write_partition(tmp_path, [batches(0, 4, records_per_batch=3, codec=codec)])
    with open_log(directory) as log:
        for first, end in itertools.combinations_with_replacement(range(13), 2):
            wanted = cat.CatOptions(start_offset=first, end_offset=end)
            one_by_one = [record.offset for group in groups(log, wanted) for record in group.records]
            assert one_by_one == [record.offset for record in log.read(min(first, 12), end)]


@pytest.mark.parametrize("options", [[], ["--key", "bytes"], ["--limit", "99"]], ids=["whole", "decoded", "limit"])
def test_every_range_is_shown_by_the_command(kstore, tmp_path, options):
    directory = write_partition(tmp_path, [batches(0, 3, records_per_batch=2)])
    for first, end in itertools.combinations_with_replacement(range(7), 2):
        shown = offsets(kstore("cat", "--json", directory, "--from", first, "--to", end, *options))
        assert shown == [*range(first, min(end, 6))]


@pytest.mark.parametrize("options", [[], ["--key", "bytes"]], ids=["whole", "decoded"])
def test_times_out_of_order_are_compared_record_by_record(kstore, tmp_path, options):
    times = [50, 10, 40, 20, 60, 30]
    data = [
        write_batch([record(n, timestamp_ms=times[n]), record(n + 1, timestamp_ms=times[n + 1])]) for n in (0, 2, 4)
    ]
    directory = write_partition(tmp_path, [data])
    run = kstore("cat", "--json", directory, "--since", 20, "--until", 50, *options)
    assert [shown["timestamp"] for shown in run.objects()] == [40, 20, 30]


def test_records_below_the_log_start_are_not_shown(kstore, tmp_path):
    root = write_root(tmp_path / "logs", {"t-0": [batches(0, 3, records_per_batch=3)]}, log_start_offsets={"t-0": 4})
    assert offsets(kstore("cat", "--json", root)) == [4, 5, 6, 7, 8]
    assert offsets(kstore("cat", "--json", root, "--from", 0, "--limit", 1)) == [4]


def test_partitions_follow_each_other_and_share_the_limit(kstore, tmp_path):
    root = write_root(tmp_path / "logs", {"b-0": [[batch(0, 2)]], "a-10": [[batch(5, 2)]], "a-2": [[batch(7, 2)]]})
    run = kstore("cat", "--json", root, "--limit", 5)
    places = [(shown["topic"], shown["partition"], shown["offset"]) for shown in run.objects()]
    assert places == [("a", 2, 7), ("a", 2, 8), ("a", 10, 5), ("a", 10, 6), ("b", 0, 0)]


@pytest.fixture
def transactional(tmp_path):
    """A transaction's record, its COMMIT, a record outside, an ABORT, a marker of a type that is not known."""
    marker = {"timestamp_ms": FIRST_TIMESTAMP_MS, "producer_id": 9, "producer_epoch": 0}
    parts = [
        batch(0, producer_id=9, producer_epoch=0, base_sequence=0, is_transactional=True),
        write_end_transaction_marker(1, commit=True, **marker),
        batch(2),
        write_end_transaction_marker(3, commit=False, **marker),
        write_batch([record(4, b"", b"\x00\x00\x00\x63")], is_control=True),
    ]
    return write_partition(tmp_path, [parts])


def test_control_records_are_skipped_as_a_consumer_skips_them(kstore, transactional):
    run = kstore("cat", "--json", transactional)
    assert offsets(run) == [0, 2]
    assert not any("controlType" in shown for shown in run.objects())


def test_control_option_shows_control_records_with_their_type(kstore, transactional):
    run = kstore("cat", "--json", transactional, "--control")
    types = [(shown["offset"], shown.get("controlType")) for shown in run.objects()]
    assert types == [(0, None), (1, "COMMIT"), (2, None), (3, "ABORT"), (4, "UNKNOWN(99)")]
    assert list(run.objects()[1])[7:10] == ["headers", "controlType", "controlValue"]


def test_damaged_batch_ends_its_partition_and_not_the_others(kstore, tmp_path):
    root = write_root(tmp_path / "logs", {"a-0": [batches(0, 3)], "b-0": [[batch(0)]]})
    log = root / "a-0" / "00000000000000000000.log"
    position = len(batch(0))
    flip_bit(log, position + 70, bit=1)
    run = kstore("cat", "--json", root)
    assert [(shown["topic"], shown["offset"]) for shown in run.objects()] == [("a", 0), ("b", 0)]
    assert run.status == 1
    assert f"CRC mismatch in batch at position {position} of {log}" in run.err
    assert run.err.count("\n") == 1


def test_cut_off_last_batch_is_the_end_of_the_log(kstore, directory):
    shrink(directory / "00000000000000000006.log", by_bytes=1)
    run = kstore("cat", "--json", directory)
    assert offsets(run) == list(range(9))
    assert (run.status, run.err) == (0, "")


def test_empty_log_shows_nothing(kstore, tmp_path):
    run = kstore("cat", "--json", write_partition(tmp_path, [[]]))
    assert (run.status, run.out, run.err) == (0, "", "")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param(["--from", "5", "--to", "4"], "--from 5 is greater than --to 4", id="offsets-turned-round"),
        pytest.param(["--since", "5", "--until", "4"], "--since 5 is greater than --until 4", id="times-turned-round"),
        pytest.param(["--to", "-1"], "--to must be", id="negative-offset"),
        pytest.param(["--since", "noon"], "--since must be", id="no-time"),
        pytest.param(["--topic", "other"], "no partition of topic other", id="topic-not-there"),
    ],
)
def test_wrong_use_is_one_line_and_2(kstore, directory, options, message):
    run = kstore("cat", directory, *options)
    assert (run.status, run.out) == (2, "")
    assert message in run.err
    assert run.err.startswith("kstore: ")
    assert run.err.count("\n") == 1


def test_missing_directory_is_wrong_use(kstore, tmp_path):
    run = kstore("cat", tmp_path / "none")
    assert (run.status, run.out) == (2, "")
    assert run.err == f"kstore: no such directory: {tmp_path / 'none'}\n"


def test_isolation_read_uncommitted_is_the_default(kstore, transactional):
    assert kstore("cat", transactional, "--isolation", "read_uncommitted").out == kstore("cat", transactional).out


@pytest.mark.parametrize("options", [["--json"], ["--json", "--limit", "99"]], ids=["whole-batches", "one-by-one"])
def test_isolation_read_committed_shows_neither_aborted_nor_undecided_records(kstore, tmp_path, options):
    producer = {"producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
    marker = {"timestamp_ms": FIRST_TIMESTAMP_MS, "producer_epoch": 0}
    parts = [
        batch(0, 2, producer_id=1, **producer),
        batch(2, 2, producer_id=2, **producer),
        write_end_transaction_marker(4, commit=False, producer_id=1, **marker),
        write_end_transaction_marker(5, commit=True, producer_id=2, **marker),
        batch(6, 2),
        batch(8, 2, producer_id=3, **producer),
        batch(10, 2),
    ]
    directory = write_partition(tmp_path, [parts])
    assert offsets(kstore("cat", directory, "--isolation", "read_committed", *options)) == [2, 3, 6, 7]
    assert offsets(kstore("cat", directory, *options)) == [0, 1, 2, 3, 6, 7, 8, 9, 10, 11]


def test_batch_that_is_passed_over_is_checked_too(kstore, transactional):
    log = next(transactional.glob("*.log"))
    flip_bit(log, len(batch(0, producer_id=9, producer_epoch=0, base_sequence=0, is_transactional=True)) + 65, bit=0)
    run = kstore("cat", "--json", transactional)
    assert (run.status, offsets(run)) == (1, [0])
    assert "CRC" in run.err


CONTENT = '{"version":0,"coordinatorEpoch":0}'


def test_text_is_one_tab_separated_line_per_record(kstore, transactional):
    lines = kstore("cat", transactional, "--control").out.splitlines()
    assert [line.split("\t") for line in lines[:3]] == [
        ["t-0", "0", "2020-09-13T12:26:40.000Z", "k0", "v0", "h=0"],
        [
            "t-0",
            "1",
            "2020-09-13T12:26:40.000Z",
            "\\x00\\x00\\x00\\x01",
            "\\x00\\x00\\x00\\x00\\x00\\x00",
            "COMMIT",
            CONTENT,
        ],
        ["t-0", "2", "2020-09-13T12:26:40.002Z", "k2", "v2"],
    ]


@pytest.mark.parametrize(("since", "expected"), [(None, [2, 1] * 4), (10, [1, 1])], ids=["all", "since"])
def test_records_of_a_large_batch_are_shown_part_by_part(monkeypatch, directory, since, expected):
    monkeypatch.setattr(render, "MOST_RECORDS", 2)
    wanted = cat.CatOptions(
        start_offset=0, end_offset=100, since_ms=None if since is None else FIRST_TIMESTAMP_MS + since
    )
    with open_log(directory) as log:
        assert [len(group.records) for group in groups(log, wanted)] == expected


ZERO_UUID = "00000000-0000-0000-0000-000000000000"
DECODED = [
    pytest.param("string", b"\xc3\xa9", '"é"', "é", id="string"),
    pytest.param("long", bytes(7) + b"\x05", "5", "5", id="long"),
    pytest.param("double", b"\x7f\xf0" + bytes(6), '"Infinity"', "Infinity", id="double"),
    pytest.param("float", b"\x3d\xcc\xcc\xcd", "0.1", "0.1", id="short"),
    pytest.param("float", b"\xff\x80" + bytes(2), '"-Infinity"', "-Infinity", id="float"),
    pytest.param("float", b"\x7f\xc0" + bytes(2), '"NaN"', "NaN", id="nan"),
    pytest.param("bytes", b"\xff", '"/w=="', "\\xff", id="bytes"),
    pytest.param("bytebuffer", b"\xff", '"/w=="', "\\xff", id="bytebuffer"),
    pytest.param("uuid", ZERO_UUID.encode(), f'"{ZERO_UUID}"', ZERO_UUID, id="uuid"),
    pytest.param("list<short>", b"\0\0\0\0\1\0\0\0\0\0\0\0\2\0\7", "[null,7]", "[null,7]", id="list"),
    pytest.param("string", b"", '""', "<empty>", id="empty"),
    pytest.param("string", None, "null", "<null>", id="null"),
]


@pytest.mark.parametrize(("name", "data", "as_json", "as_text"), DECODED)
def test_decoded_key_and_value_stand_behind_their_bytes(kstore, tmp_path, name, data, as_json, as_text):
    path = write_partition(tmp_path, [[write_batch([record(0, data, data)])]])
    options = ["--key", name, "--value", name]
    (line,) = kstore("cat", "--json", path, *options).out.splitlines()
    assert f'"headers":[],"decodedKey":{as_json},"decodedValue":{as_json},"keyText":' in line
    assert kstore("cat", path, *options).out.splitlines()[0].split("\t")[3:] == [as_text, as_text]


def test_record_that_can_not_be_decoded_ends_its_partition_on_request(kstore, directory):
    run = kstore("cat", "--json", directory, "--value", "string", "--key", "uuid", "--mode", "FAILFAST")
    assert run.status == 1
    assert run.objects() == []
    assert "key of the record at offset 0" in run.err


@pytest.mark.parametrize("options", [[], ["--json"], ["--limit", "8"], ["--json", "--limit", "8"]], ids=" ".join)
@pytest.mark.parametrize("follow", [[], ["--follow"]], ids=["", "follow"])
def test_records_before_one_that_can_not_be_decoded_are_shown(kstore, tmp_path, follow, options):
    values = [b"\xff" if number == 7 else b"\0\1" for number in range(10)]
    path = write_partition(tmp_path, [[write_batch([record(*one, None) for one in enumerate(values)])]])
    run = kstore("cat", path, "--value", "short", "--mode", "failfast", *options, *follow)
    assert len(run.out.splitlines()) == 7
    assert run.status == 1
    assert "value of the record at offset 7" in run.err


@pytest.mark.parametrize("options", [[], ["--json"]], ids=" ".join)
@pytest.mark.parametrize("mode", ["FAILFAST", "PERMISSIVE", "DROPMALFORMED"])
def test_limit_before_a_record_that_can_not_be_decoded_ends_the_command_as_usual(kstore, tmp_path, options, mode):
    values = [b"\0\1", b"\0\1", b"\xff"]
    path = write_partition(tmp_path, [[write_batch([record(*one, None) for one in enumerate(values)])]])
    run = kstore("cat", path, "--value", "short", "--limit", "2", "--mode", mode, *options)
    assert (run.status, run.err, len(run.out.splitlines())) == (0, "", 2)


def test_control_records_are_not_decoded(kstore, tmp_path):
    marker = write_end_transaction_marker(1, timestamp_ms=7, producer_id=5, producer_epoch=0, commit=True)
    path = write_partition(tmp_path, [[batch(0), marker]])
    shown = kstore("cat", "--json", path, "--control", "--key", "string").objects()
    assert [list(one)[one_more:][0] for one, one_more in zip(shown, (8, 9), strict=True)] == [
        "decodedKey",
        "controlValue",
    ]


def test_unknown_decoder_is_wrong_use(kstore, directory):
    run = kstore("cat", directory, "--key", "xml")
    assert run.status == 2
    assert "expected one of the formats avro" in run.err


def test_damage_is_skipped_on_request_with_one_line_for_each_range(kstore, tmp_path):
    data = batches(0, 9, records_per_batch=2, value_bytes=30)
    root = write_root(tmp_path, {"t-0": [data[:3], data[3:6], data[6:]], "u-0": [data[:1]]})
    damaged = root / "t-0" / f"{6:020}.log"
    flip_bit(damaged, len(data[3]) + 80, bit=1)
    flip_bit(root / "t-0" / f"{12:020}.log", len(data[6]) + len(data[7]) + 80, bit=1)
    before = {name: name.read_bytes() for name in root.rglob("*") if name.is_file()}
    for decoding in ((), ("--key", "string"), ("--limit", 100)):
        ended = kstore("cat", "--json", root, *decoding)
        assert [(one["topic"], one["offset"]) for one in ended.objects()] == [("t", n) for n in range(8)] + [
            ("u", 0),
            ("u", 1),
        ]
        run = kstore("cat", "--json", root, "--skip-damaged", *decoding)
        assert [one["offset"] for one in run.objects()] == [*range(8), *range(10, 16), 0, 1]
        assert run.status == ended.status == 1
        first, last = run.err.splitlines()
        place = f"{len(data[4])} bytes at position {len(data[3])} of {damaged}: CRC mismatch: stored"
        assert first.startswith(f"kstore: skipped offsets 8 to 9 of t-0: {place}")
        assert last.startswith("kstore: skipped offsets 16 to 17 of t-0: ")
    assert kstore("cat", "--json", root / "u-0", "--skip-damaged").status == 0
    assert {name: name.read_bytes() for name in root.rglob("*") if name.is_file()} == before


def test_damage_before_the_first_offset_or_after_the_limit_is_not_met(kstore, tmp_path):
    directory = write_partition(tmp_path, [batches(0, 3, records_per_batch=2)])
    flip_bit(directory / f"{0:020}.log", 80, bit=1)
    run = kstore("cat", "--json", directory, "--skip-damaged", "--from", 2)
    assert (offsets(run), run.status, run.err) == ([2, 3, 4, 5], 0, "")
    run = kstore("cat", "--json", directory, "--skip-damaged", "--since", 0, "--limit", 1)
    assert (offsets(run), run.status) == ([2], 1)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--from", "-4"], [8, 9, 10, 11]),
        (["--from=-100"], [*range(12)]),
        (["--from", "-4", "--to", "10"], [6, 7, 8, 9]),
        (["--from", "-4", "--skip-damaged"], [8, 9, 10, 11]),
    ],
)
def test_negative_first_offset_counts_from_the_end_of_each_log(kstore, directory, options, expected):
    assert offsets(kstore("cat", "--json", directory, *options)) == expected


@pytest.fixture
def once_it_waits(monkeypatch):
    """Return a function that has a call made in a thread when a feed waits for the first time."""
    threads = []

    def make(call):
        def wait(feed):
            monkeypatch.undo()
            threads.append(threading.Thread(target=call))
            threads[0].start()
            feed.wait()

        monkeypatch.setattr(Feed, "wait", wait)

    yield make
    (thread,) = threads
    thread.join()


def test_follow_goes_on_with_what_comes_until_the_limit(kstore, directory, once_it_waits):
    with open_log(directory, "a") as log:
        once_it_waits(lambda: log.append([Record(offset=0, timestamp_ms=1, key=b"k", value=b"new")]))
        run = kstore("cat", "--json", "--follow", directory, "--from", "-2", "--limit", "3")
    assert (offsets(run), run.status, run.err) == ([10, 11, 12], 0, "")


def test_follow_picks_up_new_partitions_from_their_start(kstore, tmp_path, once_it_waits):
    write_partition(tmp_path, [[batch(0, 2)]], topic="t", partition=0)

    def add():
        with open_log(tmp_path / "t-1", "a") as log:
            log.append([Record(offset=0, timestamp_ms=1, key=b"k", value=b"v")])

    once_it_waits(add)
    run = kstore("cat", "--json", "-f", tmp_path, "--from", "latest", "--limit", "1")
    assert [(one["partition"], one["offset"]) for one in run.objects()] == [(1, 0)]


def test_follow_decodes_and_selects_by_time(kstore, directory):
    since = str(FIRST_TIMESTAMP_MS + 10)
    options = ["--since", since, "--limit", "2", "--value", "bytes"]
    run = kstore("cat", "--json", "--follow", directory, *options)
    assert all(one["timestamp"] >= int(since) for one in run.objects())
    assert len(run.objects()) == 2


@pytest.mark.parametrize("option", [["--to", "3"], ["--until", "2024-01-01"], ["--skip-damaged"]])
def test_follow_refuses_what_would_end_it(kstore, directory, option):
    run = kstore("cat", "--follow", directory, *option)
    assert (run.status, run.out) == (2, "")
    assert "--follow takes no --to" in run.err
