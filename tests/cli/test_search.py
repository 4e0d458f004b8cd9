"""Goal: `kstore cat` finds exactly the records that meet all conditions of a search, wherever cat reads.
Method: built partitions of every magic and codec, searched by the command, held against a search record by record."""

from __future__ import annotations

import re

import pytest

from tests.cli.runner import runner
from tests.making.batches import batch, batches, flip_bit, record, write_partition, write_root
from tests.making.messages import packed_entry
from tests.reference.codec import write_batch, write_end_transaction_marker

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


@pytest.fixture
def kstore(monkeypatch, capsysbinary):
    return runner(monkeypatch, capsysbinary)


def found(run):
    assert (run.status, run.err) == (0, "")
    return [shown["offset"] for shown in run.objects()]


@pytest.fixture
def directory(tmp_path):
    """Offsets 0 to 6 in three batches; null and empty keys and values, headers, two producers."""
    return write_partition(
        tmp_path,
        [
            [
                write_batch(
                    [
                        record(0, b"order 17 failed", b"a", headers=[(b"trace", b"x1"), (b"h", None)]),
                        record(1, b"order 18 ok", b"ab", headers=[(b"trace", b"x2")]),
                        record(2, None, b""),
                    ],
                    producer_id=7,
                    producer_epoch=0,
                    base_sequence=0,
                ),
                write_batch([record(3, b"a", None), record(4, b"", b"a", headers=[(b"trace", b"")])]),
            ],
            [
                write_batch(
                    [record(5, "größe 17".encode(), b"\x00\xff"), record(6, b"order 19 failed", b"ab")],
                    producer_id=0,
                    producer_epoch=0,
                    base_sequence=0,
                )
            ],
        ],
    )


@pytest.mark.parametrize(
    ("options", "offsets"),
    [
        pytest.param(["--key-equals", "a"], [0, 4], id="key"),
        pytest.param(["--key-equals", ""], [2], id="an-empty-key-is-not-null"),
        pytest.param(["--key-equals", "hex:00ff"], [5], id="key-in-hex"),
        pytest.param(["--key-equals", "base64:AP8="], [5], id="key-in-base64"),
        pytest.param(["--key-equals", "text:ab"], [1, 6], id="key-as-text"),
        pytest.param(["--key-regex", "b"], [1, 6], id="literal-key-expression"),
        pytest.param(["--key-regex", "^a"], [0, 1, 4, 6], id="key-expression"),
        pytest.param(["--value-regex", "order"], [0, 1, 6], id="literal-value"),
        pytest.param(["--value-regex", r"order \d+ failed"], [0, 6], id="value-expression"),
        pytest.param(["--value-regex", "^$"], [4], id="an-empty-value-is-not-null"),
        pytest.param(["--value-regex", "größe .7"], [5], id="expression-over-text"),
        pytest.param(["--value-regex", "gr.ße"], [5], id="a-dot-is-one-character-of-text"),
        pytest.param(["--header", "trace"], [0, 1, 4], id="header-present"),
        pytest.param(["--header", "h"], [0], id="header-with-null-present"),
        pytest.param(["--header", "h="], [], id="null-header-is-not-empty"),
        pytest.param(["--header", "trace="], [4], id="empty-header"),
        pytest.param(["--header", "trace=x2"], [1], id="header-value"),
        pytest.param(["--header", "trace=hex:7832"], [1], id="header-value-in-hex"),
        pytest.param(["--header", "trace=x1", "--header", "h"], [0], id="two-headers"),
        pytest.param(["--header", "trace=x2", "--header", "h"], [], id="two-headers-of-two-records"),
        pytest.param(["--producer-id", "7"], [0, 1, 2], id="producer"),
        pytest.param(["--producer-id", "0"], [5, 6], id="producer-zero"),
        pytest.param(["--producer-id", "-1"], [3, 4], id="no-producer"),
        pytest.param(["--key-equals", "ab", "--value-regex", "failed"], [6], id="all-conditions"),
        pytest.param(["--key-regex", "a", "--limit", "2"], [0, 1], id="limit"),
        pytest.param(["--key-regex", "a", "--from", "1", "--to", "6"], [1, 4], id="offsets"),
        pytest.param(["--key-regex", "a", "--since", "1600000000001", "--until", "1600000000006"], [1, 4], id="times"),
        pytest.param(["--key-regex", "nothing"], [], id="nothing"),
    ],
)
def test_search_finds_what_meets_all_conditions(kstore, directory, options, offsets):
    assert found(kstore("cat", "--json", directory, *options)) == offsets


@pytest.mark.parametrize("codec", CODECS)
def test_search_finds_the_same_in_each_codec(kstore, tmp_path, codec):
    parts = batches(0, 4, records_per_batch=25, value_bytes=40, codec=CODECS[codec])
    directory = write_partition(tmp_path, [parts])
    assert found(kstore("cat", "--json", directory, "--value-regex", "v[0-9]7")) == [*range(17, 100, 10)]
    assert found(kstore("cat", "--json", directory, "--header", "h=30")) == [30]


@pytest.mark.parametrize("magic", [0, 1])
def test_search_finds_messages_and_never_by_a_header(kstore, tmp_path, magic):
    directory = tmp_path / "t-0"
    directory.mkdir()
    messages = [packed_entry(b"value %d" % n, b"k%d" % (n % 2), offset=n, magic=magic) for n in range(4)]
    (directory / f"{0:020}.log").write_bytes(b"".join(messages))
    assert found(kstore("cat", "--json", directory, "--key-equals", "k1")) == [1, 3]
    assert found(kstore("cat", "--json", directory, "--value-regex", r"value [2-9]")) == [2, 3]
    assert found(kstore("cat", "--json", directory, "--key-equals", "k1", "--header", "h")) == []
    assert found(kstore("cat", "--json", directory, "--producer-id", "-1")) == [0, 1, 2, 3]


def test_search_leaves_aborted_records_out(kstore, tmp_path):
    ids = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
    marker = write_end_transaction_marker(2, timestamp_ms=5, producer_id=5, producer_epoch=0, commit=False)
    directory = write_partition(tmp_path, [[batch(0, 2, **ids), marker, batch(3, 2)]])
    assert found(kstore("cat", "--json", directory, "--key-regex", "k")) == [0, 1, 3, 4]
    committed = ["--isolation", "read_committed", "--key-regex", "k"]
    assert found(kstore("cat", "--json", directory, *committed)) == [3, 4]
    assert found(kstore("cat", "--json", directory, "--control", "--producer-id", "5")) == [0, 1, 2]


def test_search_reads_around_damage(kstore, tmp_path):
    parts = batches(0, 3, records_per_batch=3)
    directory = write_partition(tmp_path, [parts])
    flip_bit(directory / f"{0:020}.log", len(parts[0]) + 70, bit=1)
    run = kstore("cat", "--json", directory, "--key-regex", "k[0-9]", "--skip-damaged")
    assert (run.status, [shown["offset"] for shown in run.objects()]) == (1, [0, 1, 2, 6, 7, 8])
    run = kstore("cat", "--json", directory, "--key-equals", "k8")
    assert (run.status, run.out) == (1, "")
    assert "CRC mismatch" in run.err


def test_search_goes_on_in_a_followed_log(kstore, directory):
    run = kstore("cat", "--json", directory, "--follow", "--key-equals", "ab", "--limit", "2")
    assert found(run) == [1, 6]


@pytest.mark.parametrize(
    ("option", "reason"),
    [
        (["--key-regex", "("], "--key-regex is no regular expression: missing )"),
        (["--value-regex", "é("], "--value-regex is no regular expression: missing )"),
        (["--key-equals", "hex:0"], "--key-equals must be hex after hex:, got '0'"),
        (["--header", "k=base64:?"], "--header must be base64 after base64:, got '?'"),
    ],
)
def test_search_that_is_wrong_names_the_option(kstore, directory, option, reason):
    run = kstore("cat", directory, *option)
    assert (run.status, run.out) == (2, "")
    assert reason in run.err


def test_topic_pattern_selects_topics_and_a_name_stays_exact(kstore, tmp_path):
    root = write_root(tmp_path / "logs", {name: [[batch(0)]] for name in ("orders-eu-0", "orders-us-1", "orders-0")})
    shown = [line.split("\t")[0] for line in kstore("cat", root, "--topic", "orders-*").out.splitlines()]
    assert shown == ["orders-eu-0", "orders-us-1"]
    assert kstore("cat", root, "--topic", "orders").out.startswith("orders-0\t")
    run = kstore("cat", root, "--topic", "order?")
    assert [line.split("\t")[0] for line in run.out.splitlines()] == ["orders-0"]
    run = kstore("cat", root, "--topic", "x*")
    assert (run.status, "found no partition of topic x* among the 3" in run.err) == (2, True)


def test_several_directories_are_read_as_one_and_a_partition_in_two_is_told(kstore, tmp_path):
    first = write_root(tmp_path / "d1", {"a-0": [[batch(0)]], "b-0": [[batch(0)]]})
    second = write_root(tmp_path / "d2", {"a-1": [[batch(0)]]})
    assert [line.split("\t")[0] for line in kstore("cat", first, second, "--topic", "a").out.splitlines()] == [
        "a-0",
        "a-1",
    ]
    assert [shown["partition"] for shown in kstore("verify", "--json", first, second).objects()] == [0, 1, 0]
    assert [shown["partition"] for shown in kstore("ls", "--json", first, second).objects()] == [0, 1, 0]
    third = write_root(tmp_path / "d3", {"b-0": [[batch(0)]]})
    run = kstore("cat", first, third)
    assert run.out == ""
    assert re.search(r"partition b-0 found twice: .*/d1/b-0 and .*/d3/b-0", run.err)


def test_follow_sees_new_partitions_in_each_directory(kstore, tmp_path):
    first = write_root(tmp_path / "d1", {"a-0": [[batch(0)]]})
    second = write_root(tmp_path / "d2", {"a-1": [[batch(0)]]})
    run = kstore("cat", "--json", first, second, "--follow", "--limit", "2")
    assert sorted(shown["partition"] for shown in run.objects()) == [0, 1]
