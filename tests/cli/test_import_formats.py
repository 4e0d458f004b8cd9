"""Goal: `kstore import` takes kcat's JSON, CSV, lines and whole roots; a bad line is named in kstore's words, and the
import goes on from there. Method: small files, records compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from kstore import open_log
from kstore.cli.importing import rows
from kstore.errors import StorageError
from kstore.log.write.writable_log import WritableLog
from kstore.record import MemoryRecords
from tests.cli.runner import Runner, runner
from tests.making.batches import batch, write_root


@pytest.fixture
def kstore(monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]) -> Runner:
    return runner(monkeypatch, capsysbinary)


def records_in(path: Path) -> list[tuple[bytes | None, bytes | None]]:
    with open_log(path) as log:
        return [(one.key, one.value) for one in log.read()]


def test_lines_of_kcat_are_taken_byte_for_byte(kstore: Runner, tmp_path: Path) -> None:
    start = b'{"topic":"t","partition":0,"offset":7,"tstype":"create","ts":12,"broker":1,'
    lines = [
        start + b'"headers":["a","1","b",null],"key":"k\\n","payload":"\xff\xc3\xa9"}',
        start + b'"headers":{"a":["1","2"]},"key":null,"payload":null}',
        start + b'"key":"","payload":""}',
    ]
    (tmp_path / "in").write_bytes(b"\n".join(lines) + b"\n")
    assert kstore("import", tmp_path / "in", tmp_path / "new").status == 0
    with open_log(tmp_path / "new" / "t-0") as log:
        found = list(log.read())
    assert [(one.timestamp_ms, one.key, one.value, one.headers) for one in found] == [
        (12, b"k\n", b"\xff\xc3\xa9", (("a", b"1"), ("b", None))),
        (12, None, None, (("a", b"1"), ("a", b"2"))),
        (12, b"", b"", ()),
    ]


def test_columns_of_csv_are_named_or_numbered(kstore: Runner, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text('id,body,at\n1,"a ""b"",\nc",5\n2,NULL,6\n')
    options = ["--topic", "t", "--key-column", "id", "--timestamp-column", "at", "--null", "NULL"]
    assert kstore("import", tmp_path / "in.csv", tmp_path / "new", *options).status == 0
    assert records_in(tmp_path / "new" / "t-0") == [(b"1", b'a "b",\nc'), (b"2", None)]
    (tmp_path / "in.tsv").write_text("x\ty\n")
    numbered = ["--topic", "u", "--no-header", "--key-column", "2", "--value-column", "1"]
    assert kstore("import", tmp_path / "in.tsv", tmp_path / "new", *numbered).status == 0
    assert records_in(tmp_path / "new" / "u-0") == [(b"y", b"x")]


def test_lines_have_keys_with_a_separator(kstore: Runner, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_bytes(b"a:1:2\nb:\n")
    assert kstore("import", tmp_path / "in.txt", tmp_path / "new", "--topic", "t", "--key-separator", ":").status == 0
    assert records_in(tmp_path / "new" / "t-0") == [(b"a", b"1:2"), (b"b", b"")]
    assert kstore("import", tmp_path / "in.txt", tmp_path / "new", "--topic", "u", "--lines").status == 0
    assert records_in(tmp_path / "new" / "u-0") == [(None, b"a:1:2"), (None, b"b:")]


def test_a_bad_line_is_named_and_the_import_goes_on_from_there(kstore: Runner, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_bytes(b"a:1\nb:2\nc3\nd:4\n")
    options = ["--topic", "t", "--key-separator", ":"]
    run = kstore("import", tmp_path / "in.txt", tmp_path / "new", *options)
    assert (run.status, run.err.splitlines()) == (
        2,
        [
            "kstore: 2 records were appended to t-0, which ends at 2",
            "kstore: all lines before line 3 are imported: to go on there, --from-line 3",
            f"kstore: line 3 of {tmp_path / 'in.txt'} is not a record: expected a key, ':' and a value, found b'c3'",
        ],
    )
    assert kstore("import", tmp_path / "in.txt", tmp_path / "new", *options, "--from-line", "4").status == 0
    assert records_in(tmp_path / "new" / "t-0") == [(b"a", b"1"), (b"b", b"2"), (b"d", b"4")]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"", "expected JSON, found the end of the line at character 1"),
        (b'{"topic": x}', "expected JSON, found 'x}' at character 11"),
        (b'{"topic":"t","ts":1,"payload":{"a":1},"value_schema_id":3}', "payload was decoded from Avro by kcat"),
        (b'{"topic":"t","tstype":"create","ts":1,"payload":"v","headers":["a"]}', "headers must be keys and values"),
        (b'{"topic":"t","ts":1,"payload":"v","headers":{"a":5}}', "the values of a header must be in a list, found 5"),
        (b'{"topic":"t","ts":1,"payload":"v","headers":{"a":"xy"}}', "must be in a list, found 'xy'"),
    ],
)
def test_what_is_wrong_with_a_line_is_said_in_own_words(
    kstore: Runner, tmp_path: Path, line: bytes, reason: str
) -> None:
    (tmp_path / "in").write_bytes(line + b"\n")
    run = kstore("import", tmp_path / "in", tmp_path / "new")
    assert run.status == 2
    assert reason in run.err
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("is_written", [False, True])
def test_no_record_is_lost_or_twice_if_the_import_goes_on_after_a_batch_that_failed(
    kstore: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_written: bool
) -> None:
    values = [b"%03d" % number for number in range(50)]
    (tmp_path / "in.txt").write_bytes(b"\n".join(values))
    options = [tmp_path / "in.txt", tmp_path / "new", "--topic", "t", "--batch-bytes", "20"]
    unpatched, calls = WritableLog.append_as_follower, [0]

    def failing(log: WritableLog, records: MemoryRecords) -> object:
        calls[0] += 1
        if calls[0] == 4 and not is_written:
            raise StorageError("no space", path=log.path)
        done = unpatched(log, records)
        if calls[0] == 4:
            raise StorageError("cannot flush", path=log.path)
        return done

    with monkeypatch.context() as patch:
        patch.setattr(WritableLog, "append_as_follower", failing)
        run = kstore("import", *options)
    assert run.status == 1
    line = run.err.rpartition("--from-line ")[2].split()[0]
    assert kstore("import", *options, "--from-line", line).status == 0
    assert [value for _, value in records_in(tmp_path / "new" / "t-0")] == values


@pytest.mark.parametrize(
    ("name", "option", "reason"),
    [
        ("in.csv", ["--delimiter", "ab"], "--delimiter must be one character"),
        ("in.csv", ["--delimiter", '"'], "--delimiter must be one character"),
        ("in.csv", ["--delimiter", ""], "--delimiter must be one character"),
        ("in.txt", ["--key-separator", ""], "--key-separator must have at least one character"),
    ],
)
def test_separators_that_cannot_be_are_refused(
    kstore: Runner, tmp_path: Path, name: str, option: list[str], reason: str
) -> None:
    (tmp_path / name).write_bytes(b"a,b\n")
    run = kstore("import", tmp_path / name, tmp_path / "new", "--topic", "t", *option)
    assert run.status == 2
    assert reason in run.err


def test_the_mark_of_spreadsheets_is_no_part_of_the_first_column(kstore: Runner, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_bytes(b"\xef\xbb\xbfid,text\n1,\xef\xbb\xbfa\n")
    assert kstore("import", tmp_path / "in.csv", tmp_path / "new", "--topic", "t", "--key-column", "id").status == 0
    assert records_in(tmp_path / "new" / "t-0") == [(b"1", b"\xef\xbb\xbfa")]


@pytest.mark.parametrize("name", ["in.txt", "in.csv", "in"])
def test_a_line_that_no_batch_can_hold_is_refused_before_it_is_read_as_a_whole(
    kstore: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(rows, "_MOST_LINE_BYTES", 100)
    (tmp_path / name).write_bytes(b"x" * 99 + b"\n" + b"y" * 5000 + b"\n")
    run = kstore("import", tmp_path / name, tmp_path / "new", "--topic", "t")
    assert run.status == 2
    line = {"in": 1, "in.csv": 2, "in.txt": 2}[name]
    assert f"line {line} of {tmp_path / name}" in run.err


def test_a_root_is_imported_as_it_is(kstore: Runner, tmp_path: Path) -> None:
    root = write_root(tmp_path / "source", {"t-0": [[batch(5, 10)]]})
    assert kstore("import", root, tmp_path / "new", "--topic", "copy").status == 0
    with open_log(root / "t-0") as log, open_log(tmp_path / "new" / "copy-0") as copy:
        assert [bytes(one) for one in copy.batches()] == [bytes(one) for one in log.batches()]
    assert kstore("import", root, tmp_path / "other", "--keep-offsets").status == 2
