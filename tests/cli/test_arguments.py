"""Goal: offsets, times and partition selections typed by a user mean what docs/cli.md says.
Method: tables of accepted and refused texts; selections over built roots."""

from __future__ import annotations

import time

import pytest

from kstore.cli.arguments import PartitionSelection, WrongUseError, parse_offset, parse_timestamp_ms
from kstore.errors import LogNotFoundError
from tests.cli.runner import runner
from tests.making.batches import batch, write_root

MAX_INT64 = 2**63 - 1
DIGITS = pytest.param("9" * 5000, id="5000-digits")
NOON_MS = 1_714_564_800_000


@pytest.mark.parametrize(
    ("text", "offset"),
    [
        pytest.param("earliest", 0, id="earliest"),
        pytest.param("latest", MAX_INT64, id="latest"),
        pytest.param("0", 0, id="zero"),
        pytest.param("007", 7, id="leading-zeros"),
        pytest.param(str(MAX_INT64), MAX_INT64, id="largest"),
    ],
)
def test_offset_is_digits_or_a_named_end(text, offset):
    assert parse_offset(text, option="--from") == offset


@pytest.mark.parametrize("text", ["-1", "", "1.5", "0x10", "\u0663", str(MAX_INT64 + 1), "Earliest", "1 ", DIGITS])
def test_any_other_offset_is_wrong_use_and_names_the_option(text):
    with pytest.raises(WrongUseError, match="--to must be"):
        parse_offset(text, option="--to")


@pytest.mark.parametrize(
    ("text", "timestamp_ms"),
    [
        pytest.param("0", 0, id="epoch-ms"),
        pytest.param("-5", -5, id="negative-ms"),
        pytest.param(str(2**63 - 1), 2**63 - 1, id="largest-ms"),
        pytest.param(str(-(2**63)), -(2**63), id="least-ms"),
        pytest.param("2024-05-01T12:00:00Z", NOON_MS, id="zulu"),
        pytest.param("2024-05-01T12:00:00z", NOON_MS, id="zulu-lower-case"),
        pytest.param("2024-05-01T14:00:00+02:00", NOON_MS, id="zone"),
        pytest.param("2024-05-01T12:00:00", NOON_MS, id="no-zone-is-utc"),
        pytest.param("2024-05-01 12:00:00.123", NOON_MS + 123, id="ms"),
        pytest.param("2024-05-01T12:00:00.123000", NOON_MS + 123, id="whole-ms-in-us"),
        pytest.param("2024-05-01T12:00:00.123001", NOON_MS + 124, id="part-of-a-ms-rounds-up"),
        pytest.param("1969-12-31T23:59:59.999500", 0, id="rounds-up-before-the-epoch"),
        pytest.param("2024-05-01", NOON_MS - 43_200_000, id="date"),
    ],
)
def test_time_is_epoch_ms_or_iso_8601(text, timestamp_ms):
    assert parse_timestamp_ms(text, option="--since") == timestamp_ms


@pytest.mark.parametrize(
    ("text", "timestamp_ms"),
    [
        ("-1h", NOON_MS - 3_600_000),
        ("-30m", NOON_MS - 1_800_000),
        ("-2d", NOON_MS - 172_800_000),
        ("-1w", NOON_MS - 604_800_000),
        ("-5s", NOON_MS - 5000),
        ("-5ms", NOON_MS - 5),
        ("-0s", NOON_MS),
        ("1714564800s", NOON_MS),
        ("1714564800ms", 1_714_564_800),
        ("999999999", 999_999_999),
        ("4100000001", 4_100_000_001),
    ],
)
def test_time_may_be_how_long_ago_or_have_a_unit(text, timestamp_ms):
    assert parse_timestamp_ms(text, option="--since", now_ms=NOON_MS) == timestamp_ms


@pytest.mark.parametrize("text", ["1000000000", "1714564800", "4100000000"])
def test_number_that_is_seconds_of_this_century_asks_for_a_unit(text):
    with pytest.raises(
        WrongUseError, match=f"--since {text} may be seconds or ms .* write {text}s for 2.* or {text}ms for 1970"
    ):
        parse_timestamp_ms(text, option="--since")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("20240501", "a date: write 2024-05-01 for it; or write 20240501ms for ms"),
        ("19700101", "a date: write 1970-01-01 for it"),
        ("202405011200", "a date: write 2024-05-01T12:00:00 for it"),
        ("20240501120000", "a date: write 2024-05-01T12:00:00 for it"),
        ("1714564800000000", "microseconds: write 1714564800000 for 2024-05-01T12:00:00Z"),
        ("1714564800000000123", "nanoseconds: write 1714564800000 for 2024-05-01T12:00:00Z"),
    ],
)
def test_number_that_is_a_date_or_another_unit_of_this_century_asks(text, hint):
    with pytest.raises(WrongUseError, match=f"--since {text} may be {hint}"):
        parse_timestamp_ms(text, option="--since")
    if len(text) < 19:
        assert parse_timestamp_ms(f"{text}ms", option="--since") == int(text)


@pytest.mark.parametrize("text", ["0", "7", "20241301", "21000101", "1714564800000", "-1", "-20240501", str(2**63 - 1)])
def test_number_that_is_nothing_else_is_ms(text):
    assert parse_timestamp_ms(text, option="--since") == int(text)


@pytest.mark.parametrize("text", ["-9999999999999999999999h", "-999999999999999w", "999999999999999999s", "-1y", "5h"])
def test_time_beyond_64_bits_or_of_another_unit_is_wrong_use(text):
    with pytest.raises(WrongUseError, match="--since must be"):
        parse_timestamp_ms(text, option="--since", now_ms=NOON_MS)


def test_time_without_a_zone_is_utc_wherever_the_user_is(monkeypatch):
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "America/New_York")
        time.tzset()
        assert parse_timestamp_ms("2024-05-01T12:00:00", option="--since") == NOON_MS
    time.tzset()


@pytest.mark.parametrize(
    "text", ["", "yesterday", "1.5", "2024-13-01", "12:00", "--5", str(2**63), str(-(2**63) - 1), DIGITS]
)
def test_any_other_time_is_wrong_use_and_names_the_option(text):
    with pytest.raises(WrongUseError, match="--until must be"):
        parse_timestamp_ms(text, option="--until")


@pytest.fixture
def root(tmp_path):
    return write_root(tmp_path / "logs", {name: [[batch(0)]] for name in ("a-0", "a-2", "a-10", "b-0")})


@pytest.mark.parametrize(
    ("topics", "partitions", "names"),
    [
        pytest.param((), (), ["a-0", "a-2", "a-10", "b-0"], id="all-in-numeric-order"),
        pytest.param(("a",), (), ["a-0", "a-2", "a-10"], id="topic"),
        pytest.param((), (0,), ["a-0", "b-0"], id="partition-of-every-topic"),
        pytest.param(("a", "b"), (0, 10), ["a-0", "a-10", "b-0"], id="several-of-both"),
    ],
)
def test_selection_keeps_the_named_topics_and_partitions(root, topics, partitions, names):
    selection = PartitionSelection(directory=str(root), topics=topics, partitions=partitions)
    assert [str(partition.topic_partition) for partition in selection.find()] == names


def test_selecting_nothing_is_wrong_use(root):
    with pytest.raises(WrongUseError, match="found no partition of topic c numbered 1 among the 4 in"):
        PartitionSelection(directory=str(root), topics=("c",), partitions=(1,)).find()


@pytest.mark.parametrize(
    ("topics", "number", "numbers"),
    [
        (("a",), 1, "; there are 0, 2, 10"),
        (("b",), 9, "; there is 0"),
        ((), 7, "; there are 0, 2, 10"),
        (("c",), 1, ""),
    ],
)
def test_partition_that_is_not_there_is_answered_with_those_that_are(root, topics, number, numbers):
    with pytest.raises(WrongUseError) as refused:
        PartitionSelection(directory=str(root), topics=topics, partitions=(number,)).find()
    assert str(refused.value).endswith(numbers)
    assert ("; there" in str(refused.value)) == bool(numbers)


@pytest.mark.parametrize("command", ["ls", "cat", "dump", "verify", "recover"])
def test_empty_directory_name_is_wrong_use_and_not_the_working_directory(root, monkeypatch, capsysbinary, command):
    monkeypatch.chdir(root)
    run = runner(monkeypatch, capsysbinary)(command, "")
    assert (run.status, run.out, run.err) == (2, "", "kstore: the path is empty\n")


def test_name_that_is_too_long_for_a_file_is_wrong_use(monkeypatch, capsysbinary):
    assert runner(monkeypatch, capsysbinary)("ls", "a" * 5000).status == 2


def test_directory_without_logs_is_not_found(tmp_path):
    with pytest.raises(LogNotFoundError):
        PartitionSelection(directory=str(tmp_path)).find()
