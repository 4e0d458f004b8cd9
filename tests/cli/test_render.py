"""Goal: the text of records is lossless for people and exact for programs.
Method: tables of byte strings, times and control keys; JSON parsed back with the standard library."""

from __future__ import annotations

import json

import pytest

from kstore import _core
from kstore.cli import render
from kstore.cli.output import printable
from kstore.cli.render import (
    JSON_STEPS,
    bytes_text,
    control_type,
    header_key_text,
    json_bytes,
    json_records,
    text_of_batch,
    time_text,
)
from kstore.record import RecordBatch
from tests.making.batches import record
from tests.reference.codec import write_batch


@pytest.mark.parametrize(
    ("data", "text"),
    [
        pytest.param(None, "<null>", id="null"),
        pytest.param(b"", "<empty>", id="empty"),
        pytest.param(b"plain text", "plain text", id="ascii"),
        pytest.param("žluťoučký 🔑".encode(), "žluťoučký 🔑", id="utf-8"),
        pytest.param(b"a\tb\nc", "a\\tb\\nc", id="tab-and-newline"),
        pytest.param(b"\x1b[31mred", "\\x1b[31mred", id="terminal-escape"),
        pytest.param("\u202e\u200b".encode(), "\\u202e\\u200b", id="invisible"),
        pytest.param(b"\xff\x00ok", "\\xff\\x00ok", id="not-utf-8"),
        pytest.param(b"\\xff", "\\\\xff", id="backslash-is-doubled"),
        pytest.param(b"\xed\xa0\x80", "\\xed\\xa0\\x80", id="surrogate-in-utf-8"),
    ],
)
def test_bytes_are_shown_without_loss_or_control_characters(data, text):
    assert bytes_text(data) == text


@pytest.mark.parametrize(
    ("timestamp_ms", "text"),
    [
        pytest.param(None, "-", id="unknown"),
        pytest.param(-1, "-", id="no-timestamp"),
        pytest.param(0, "1970-01-01T00:00:00.000Z", id="epoch"),
        pytest.param(-2, "1969-12-31T23:59:59.998Z", id="before-the-epoch"),
        pytest.param(1_714_564_800_007, "2024-05-01T12:00:00.007Z", id="ms"),
        pytest.param(-62_135_596_800_000, "0001-01-01T00:00:00.000Z", id="year-1"),
        pytest.param(253_402_300_799_999, "9999-12-31T23:59:59.999Z", id="year-9999"),
        pytest.param(253_402_300_800_000, "253402300800000", id="year-10000-stays-a-number"),
        pytest.param(2**63 - 1, str(2**63 - 1), id="largest"),
        pytest.param(-(2**63), str(-(2**63)), id="smallest"),
    ],
)
def test_time_is_iso_8601_where_the_calendar_reaches(timestamp_ms, text):
    assert time_text(timestamp_ms) == text


@pytest.mark.parametrize(
    ("key", "name"),
    [
        pytest.param(b"\x00\x00\x00\x00", "ABORT", id="abort"),
        pytest.param(b"\x00\x00\x00\x01", "COMMIT", id="commit"),
        pytest.param(b"\x00\x00\x00\x02", "LEADER_CHANGE", id="leader-change"),
        pytest.param(b"\x00\x00\x00\x06", "KRAFT_VOTERS", id="kraft-voters"),
        pytest.param(b"\x00\x01\x00\x01", "COMMIT", id="higher-version-reads-as-0"),
        pytest.param(b"\x00\x00\x00\x01rest", "COMMIT", id="more-bytes"),
        pytest.param(b"\x00\x00\x00\x07", "UNKNOWN(7)", id="undefined"),
        pytest.param(b"\x00\x00\xff\xff", "UNKNOWN(-1)", id="negative"),
        pytest.param(b"\xff\xff\x00\x01", "UNKNOWN(no type)", id="negative-version"),
        pytest.param(b"\x00\x00\x01", "UNKNOWN(no type)", id="short"),
        pytest.param(None, "UNKNOWN(no type)", id="null"),
    ],
)
def test_control_type_is_named_by_the_key(key, name):
    assert control_type(key) == name


def test_header_key_bytes_that_are_not_utf_8_become_replacement_characters():
    assert header_key_text("ab\udcffč") == "ab\ufffdč"


@pytest.mark.parametrize(
    ("data", "text"), [(None, "null"), (b"", '""'), (b"\xfb\xff", '"+/8="')], ids=["null", "empty", "standard-alphabet"]
)
def test_json_bytes_are_standard_base64(data, text):
    assert json_bytes(data) == text


def test_json_record_parses_to_its_fields_in_the_documented_order():
    header = RecordBatch(write_batch([record(0)]), position=0).header
    shown = _core.Record(
        offset=2**63 - 1,
        timestamp_ms=-1,
        key=None,
        value=b"",
        headers=(('quote"back\\slash\n', b"\x00"), ("\udcfe", None), ("", b"")),
    )
    (line,) = json_records([shown], header, timestamp_type=1, prefix='"topic":"t","partition":3,')
    assert list(json.loads(line).items()) == [
        ("topic", "t"),
        ("partition", 3),
        ("offset", 2**63 - 1),
        ("timestamp", -1),
        ("timestampType", "LogAppendTime"),
        ("key", None),
        ("value", ""),
        ("headers", [['quote"back\\slash\n', "AA=="], ["\ufffd", None], ["", ""]]),
        ("keyText", None),
        ("valueText", ""),
        ("headersText", [['quote"back\\slash\n', "\0"], ["\ufffd", None], ["", ""]]),
        ("producerId", -1),
        ("producerEpoch", -1),
        ("sequence", -1),
        ("isTransactional", False),
        ("leaderEpoch", 0),
    ]


def test_printable_text_is_returned_as_it_is():
    text = "C:\\logs žluť"
    assert printable(text) is text


PLAIN = [
    pytest.param([record(7)], {}, id="empty-value"),
    pytest.param([record(0, b"a" * size, bytes(range(size))) for size in range(70)], {}, id="sizes"),
    pytest.param([record(3, None, None), record(9, b"", b"")], {}, id="null-and-empty"),
    pytest.param(
        [record(2**62 + n, b"\xff" * n, timestamp_ms=ms) for n, ms in enumerate((0, 9, 10, 10**12, 2**62))],
        {},
        id="numbers",
    ),
    pytest.param([record(1, timestamp_ms=-1), record(2, timestamp_ms=5)], {}, id="no-timestamp"),
    pytest.param(
        [record(1, b"v", headers=[(b"h", b"1"), (b"h", None), (b"", b""), (b"~ #[]", b"12")]), record(2)],
        {},
        id="headers",
    ),
    pytest.param([record(n, b"value" * 9) for n in range(50)], {"codec": 2}, id="codec"),
    pytest.param([record(5, b"x"), record(6)], {"log_append_time_ms": 1_700_000_000_123}, id="log-append-time"),
]


@pytest.mark.parametrize(("records", "options"), PLAIN)
@pytest.mark.parametrize("prefix", ["", '"topic":"t","partition":0,'])
def test_batch_as_a_whole_is_the_same_json_as_its_records(records, options, prefix):
    data = write_batch([one._replace(offset=one.offset + n) for n, one in enumerate(records)], **options)
    batch = RecordBatch(data, position=0)
    wanted = json_records(list(batch), batch.header, timestamp_type=batch.header.timestamp_type, prefix=prefix)
    whole = text_of_batch(batch, lines_of(prefix))
    assert whole.data.decode() == "".join(f"{line}\n" for line in wanted)
    assert whole.record_count == len(records)
    assert [json.loads(one) for one in wanted]


def lines_of(prefix=""):
    return _core.RecordLines([f"{{{prefix}".encode(), *JSON_STEPS, b"}\n"])


OTHERS = [
    pytest.param(write_batch([record(1)], is_control=True), id="control"),
    pytest.param(write_batch([record(1), record(2)], last_offset=1), id="offset-behind-the-batch"),
    pytest.param(write_batch([record(2), record(2)], last_offset=5), id="offsets-not-rising"),
    pytest.param(write_batch([record(1, b"values")], codec=2)[:-1] + b"\xff", id="damaged-payload"),
]


@pytest.mark.parametrize("data", OTHERS)
def test_batch_that_is_not_plain_or_not_right_is_left_to_its_records(data):
    assert text_of_batch(RecordBatch(data, position=0), lines_of()) is None


def test_text_that_is_too_large_is_left_to_its_records(monkeypatch):
    batch = RecordBatch(write_batch([record(n, b"v" * 90) for n in range(10)]), position=0)
    sizes = [len(text_of_batch(batch, lines_of()).data), 4 * batch.size_in_bytes]
    for most, is_whole in ((max(sizes), True), (sizes[0] - 1, False)):
        monkeypatch.setattr(render, "MOST_TEXT_BYTES", most)
        assert (text_of_batch(batch, lines_of()) is not None) is is_whole


def test_unknown_field_of_a_line_is_refused():
    with pytest.raises(ValueError, match="no such field of a record: 'keys'"):
        _core.RecordLines(["keys"])
