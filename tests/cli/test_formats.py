"""Goal: `kstore cat --format` prints what its formats promise, whole batches as record by record.
Method: keys, values and headers of every kind, at every place in a word; CSV and JSON read by the standard library."""

from __future__ import annotations

import csv
import io
import itertools
import json
import random

import pytest

from kstore.cli.printing import cat
from tests.cli.runner import runner
from tests.making.batches import batch, record, write_partition
from tests.making.messages import packed_entry
from tests.reference.codec import write_batch, write_end_transaction_marker

LETTERS = "%t %p %o %k %K %s %S %R %T %h %%|"
FORMATS = ["json", "text", "csv", "hex", LETTERS]


@pytest.fixture
def kstore(monkeypatch, capsysbinary):
    return runner(monkeypatch, capsysbinary)


@pytest.fixture
def printed(monkeypatch, capsysbinary):
    """Return a function that runs `kstore cat` and returns its bytes, record by record if asked for."""

    def run(*arguments, one_by_one=False):
        with monkeypatch.context() as patched:
            if one_by_one:
                patched.setattr(cat, "text_of_batch", lambda *_, **__: None)
            patched.setattr("sys.argv", ["kstore", "cat", *map(str, arguments)])
            capsysbinary.readouterr()
            assert cat_main() == 0
        out, err = capsysbinary.readouterr()
        assert err == b""
        return out

    from kstore.cli import main as cat_main

    return run


def texts():
    """Bytes of every kind: each byte alone, in a word and after one; characters of each length; what is no UTF-8."""
    yield from (
        None,
        b"",
        b"<null>",
        b"<empty>",
        b"\\<null>",
        b"<nul>",
        b"null",
        b'""',
        b",",
        b"a\r\nb",
        b"NULL",
        b"\\N",
    )
    yield from (bytes([byte]) for byte in range(256))
    yield from (b"1234567" + bytes([byte]) + b"x" * 9 for byte in range(256))
    characters = [
        "é",
        "ž",
        "\u0085",
        "\u00a0",
        "\u200b",
        "\u2028",
        "漢",
        "\ue000",
        "\ufffd",
        "\uffff",
        "😀",
        "\U0010ffff",
    ]
    parts = [one.encode() for one in characters]
    parts += [b"\xed\xa0\x80", b"\xc0\x80", b"\xe0\x80\x80", b"\xf4\x90\x80\x80", b"\xf0\x90\x80", b"\xe2\x82", b"\xc3"]
    yield from (b"." * place + part + b"." * 9 for part in parts for place in range(9))
    yield from (b"." * place + part for part in parts for place in range(9))
    chosen = random.Random(33)
    yield from (b"".join(chosen.choices([*parts, b'"', b"\\", b"\n", b"text", b","], k=9)) for _ in range(300))


HEADERS = [(b"h", b""), (b"", None), (b"<null>", b"<null>"), (b"a\tb\xff", b'q"\xff'), ("ž".encode(), "ž,".encode())]


@pytest.fixture
def directory(tmp_path):
    """All texts as keys and as values, some with headers; a batch of each timestamp type, one of a producer."""
    values = list(texts())
    rows = [record(n, value, values[-n], headers=HEADERS[: n % 6]) for n, value in enumerate(values)]
    at = len(rows)
    producer = {"producer_id": 2**62, "producer_epoch": 7, "base_sequence": 2**31 - 2, "partition_leader_epoch": 9}
    times = [-(2**63), -62135596800001, -62135596800000, -2, -1, 0, 951782400000 - 1, 951868799999, 4107542400000]
    times += [253402300799999, 253402300800000, 2**63 - 1]
    data = [
        write_batch(rows[:200], codec=2),
        write_batch(rows[200:]),
        write_batch([record(at + n) for n in range(4)], is_transactional=True, **producer),
        write_batch([record(at + 4)], log_append_time_ms=1_700_000_000_123),
        *(write_batch([record(at + 5 + n, timestamp_ms=ms)]) for n, ms in enumerate(times)),
    ]
    return write_partition(tmp_path, [data], topic="a.b_c-d", partition=12)


@pytest.mark.parametrize("name", FORMATS)
def test_whole_batches_are_printed_as_their_records_are(printed, directory, name):
    whole = printed(directory, "--format", name)
    assert whole == printed(directory, "--format", name, one_by_one=True)
    assert len(whole) > 10_000


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(
    "options",
    [
        ["--from", 3, "--to", 190],
        ["--from", 150, "--limit", 120],
        ["--limit", 0],
        ["--since", "1600000000100ms", "--until", "1600000000250ms"],
        ["--until", str(2**63 - 1)],
    ],
    ids=["offsets", "limit", "none", "times", "last-time"],
)
def test_parts_of_batches_are_printed_as_their_records_are(printed, directory, name, options):
    whole = printed(directory, "--format", name, *options)
    assert whole == printed(directory, "--format", name, *options, one_by_one=True)


def test_json_option_is_the_format_json(printed, directory):
    assert printed(directory, "--json") == printed(directory, "--format", "json")
    assert printed(directory, "--json", "--format", "json") == printed(directory, "--json")
    assert printed(directory, "--format", "text") == printed(directory)


def as_text(data):
    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError:
        return None


def test_json_has_text_where_it_is_utf_8_and_the_fields_of_the_producer(printed, directory):
    rows = [json.loads(line) for line in printed(directory, "--json").split(b"\n")[:-1]]
    values = list(texts())
    assert [row["valueText"] for row in rows[: len(values)]] == [as_text(value) for value in values]
    assert rows[5]["headersText"] == [["h", ""], ["", None], ["<null>", "<null>"], ["a\tb\ufffd", None], ["ž", "ž,"]]
    names = ("producerId", "producerEpoch", "sequence", "isTransactional", "leaderEpoch")
    at = len(values)
    assert [[row[name] for name in names] for row in rows[at : at + 5]] == [
        [2**62, 7, 2**31 - 2, True, 9],
        [2**62, 7, 2**31 - 1, True, 9],
        [2**62, 7, 0, True, 9],
        [2**62, 7, 1, True, 9],
        [-1, -1, -1, False, 0],
    ]


def test_text_tells_null_and_empty_from_their_names_and_every_value_from_every_other(printed, tmp_path):
    values = list(dict.fromkeys(texts()))
    values = [value for value in values if value is None or b"\xc2" not in value]
    path = write_partition(tmp_path, [[write_batch([record(n, value) for n, value in enumerate(values)])]])
    shown = [line.split(b"\t")[4] for line in printed(path).split(b"\n")[:-1]]
    assert shown[:5] == [b"<null>", b"<empty>", b"\\<null>", b"\\<empty>", b"\\\\<null>"]
    assert len(set(shown)) == len(values)


def test_csv_tells_null_from_empty_and_is_read_back_by_others(printed, directory):
    out = printed(directory, "--format", "csv").decode()
    heading, *rows = csv.reader(io.StringIO(out, newline=""), strict=True)
    values = list(texts())
    assert heading == ["topic", "partition", "offset", "timestamp", "key", "value", "headers"]
    assert [row[5] for row in rows[: len(values)]] == [(value or b"").decode("utf-8", "replace") for value in values]
    assert [line.split(",", 5)[5].split(",")[-2] for line in out.split("\n")[1:2]] == [""]
    empty = printed(directory, "--format", "csv", "--from", 1, "--to", 2).split(b"\n")[1]
    assert b',"",' in empty
    assert json.loads(rows[5][6])[0] == ["h", ""]


def test_csv_names_control_records_where_they_are_asked_for(kstore, tmp_path):
    marker = write_end_transaction_marker(1, timestamp_ms=7, producer_id=5, producer_epoch=0, commit=True)
    path = write_partition(tmp_path, [[batch(0), marker]])
    rows = list(csv.DictReader(io.StringIO(kstore("cat", path, "--format", "csv", "--control").out)))
    assert [(row["key"], row["value"], row["controlType"]) for row in rows] == [
        ("k0", "v0", ""),
        ("", '{"version":0,"coordinatorEpoch":0}', "COMMIT"),
    ]


def test_heading_of_csv_stands_once_and_also_without_records(printed, tmp_path):
    for number in range(2):
        write_partition(tmp_path, [[batch(0), batch(1)]], topic="t", partition=number)
    assert printed(tmp_path, "--format", "csv").count(b"topic,") == 1
    assert printed(tmp_path, "--format", "csv", "--limit", 0).startswith(b"topic,partition,offset,")


def test_hex_shows_keys_values_and_headers_in_digits(printed, tmp_path):
    rows = [record(0, b"\x00\xff", None, headers=[(b"h", b"\n")]), record(1, b"", b"k")]
    path = write_partition(tmp_path, [[write_batch(rows)]])
    assert [line.split(b"\t")[3:] for line in printed(path, "--format", "hex").splitlines()] == [
        [b"<null>", b"00ff", b"h=0a"],
        [b"6b", b"<empty>"],
    ]


CASES = {
    "%t/%p/%o": b"t/3/0t/3/1",
    "%k(%K)=%s(%S)\\n": b"(-1)=value(5)\nkey(3)=(-1)\n",
    "%R": b"\x00\x00\x00\x05\xff\xff\xff\xff",
    "%T,": b"1600000000000,1600000000001,",
    "%h;": b"a=b,c=NULL,d=;;",
    "100%%\\t%o\\r\\n": b"100%\t0\r\n100%\t1\r\n",
    "\\x41\\x2a\\0101\\65\\0%o": b"A*AA\x000A*AA\x001",
    "\\0x42\\x141\\q\\\\%o": b"BAq\\0BAq\\1",
    "ž\\089%o\\": b"\xc5\xbe\x00890\\\xc5\xbe\x00891\\",
}


@pytest.mark.parametrize("one_by_one", [False, True], ids=["whole", "one-by-one"])
@pytest.mark.parametrize(("letters", "expected"), CASES.items(), ids=CASES)
def test_letters_are_those_of_kcat(printed, tmp_path, letters, expected, one_by_one):
    rows = [
        record(0, b"value", None, headers=[(b"a", b"b"), (b"c", None), (b"d", b"")]),
        record(1, None, b"key"),
    ]
    path = write_partition(tmp_path, [[write_batch(rows)]], topic="t", partition=3)
    assert printed(path, "--format", letters, one_by_one=one_by_one) == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--format", "cvs"], "must be text, json, csv, hex or have letters such as %k, got 'cvs'; did you mean csv?"),
        (["--format", "%y"], "--format has '%y'; expected one of %t %p %o %k %K %s %S %R %T %h %%"),
        (["--format", "%o%"], "--format has '%'; expected one of"),
        (["--format", "\\xg"], "without hexadecimal digits"),
        (["--json", "--format", "csv"], "--json is --format json, and not --format csv"),
        (["--format", "hex", "--value", "string"], "--format hex shows bytes"),
    ],
)
def test_wrong_format_is_one_line_and_2(kstore, tmp_path, options, message):
    run = kstore("cat", write_partition(tmp_path, [[batch(0)]]), *options)
    assert (run.status, run.out) == (2, "")
    assert message in run.err
    assert run.err.count("\n") == 1


def test_decoded_keys_and_values_take_the_place_of_their_bytes(kstore, tmp_path):
    path = write_partition(
        tmp_path, [[write_batch([record(0, bytes(7) + b"\x05", b"<null>"), record(1, None, b"\\")])]]
    )
    options = ["--key", "string", "--value", "long"]
    assert kstore("cat", path, *options, "--format", "%k=%s(%S) ").out == "<null>=5(1) \\=(-1) "
    assert [line.split("\t")[3:] for line in kstore("cat", path, *options).out.splitlines()] == [
        ["\\<null>", "5"],
        ["\\\\", "<null>"],
    ]
    rows = [line.split(",")[4:6] for line in kstore("cat", path, *options, "--format", "csv").out.splitlines()[1:]]
    assert rows == [["<null>", "5"], ["\\", ""]]


LOSSY = {  # as java.lang.String of JDK 17 decodes them
    b"\xed\xa0\x80": 1,
    b"\xed\xbf\xbfA": 1,
    b"\xed\xa0A": 1,
    b"\xed\x80A": 1,
    b"\xe0\x80\x80": 3,
    b"\xf4\x90\x80\x80": 4,
    b"\xf0\x90\x80": 1,
    b"\xe2\x82A": 1,
    b"\xc0\x80": 2,
    b"\xff": 1,
    b"\xed\xa0\xed\xb0\x80": 2,
}


def test_strings_are_decoded_as_by_kafka_s_deserializer(kstore, tmp_path):
    path = write_partition(tmp_path, [[write_batch([record(n, value) for n, value in enumerate(LOSSY)])]])
    shown = kstore("cat", path, "--value", "string", "--format", "%s|").out.split("|")[:-1]
    assert shown == ["\ufffd" * count + "A" * value.endswith(b"A") for value, count in LOSSY.items()]


@pytest.mark.parametrize("name", FORMATS)
def test_search_and_follow_print_in_every_format(printed, tmp_path, name):
    path = write_partition(tmp_path, [[batch(0, 3)]])
    for option in (["--key-equals", "k1"], ["--follow", "--from", "1", "--limit", "1"]):
        assert printed(path, "--format", name, *option) == printed(path, "--format", name, "--from", 1, "--to", 2)


def test_old_batches_are_printed_in_every_format(printed, tmp_path):
    data = packed_entry(b"v", b"k", offset=0, magic=1) + packed_entry(None, b"k", offset=1, magic=1)
    path = write_partition(tmp_path, [[data]])
    assert printed(path, "--format", "%o %k %S %h;") == b"0 k 1 ;1 k -1 ;"
    assert [json.loads(line)["producerId"] for line in printed(path, "--json").splitlines()] == [-1, -1]


def test_every_pair_of_special_characters_stays_one_field_of_csv(printed, tmp_path):
    values = ["".join(pair) for pair in itertools.product('a",\r\n ', repeat=2)]
    path = write_partition(tmp_path, [[write_batch([record(n, value.encode()) for n, value in enumerate(values)])]])
    rows = list(csv.reader(io.StringIO(printed(path, "--format", "csv").decode(), newline=""), strict=True))
    assert [row[5] for row in rows[1:]] == values
