"""Goal: on a terminal of 80 columns no table is wider, and no word or number of it is divided.
Method: each command that prints a table, on a root that a broker wrote, at 80 and at 1,000 columns: each word of the
one is a word of the other."""

from __future__ import annotations

import re
import sys
from io import StringIO
from pathlib import Path

import pytest

from kstore import Consumer, MemoryRecordsBuilder, Producer, open_store
from kstore.cli.output import Column, Output, Progress
from tests.cli.runner import Runner, Terminal, runner
from tests.golden.sets import unpack

COMMANDS = {
    "ls": ["ls"],
    "ls --topics": ["ls", "--topics"],
    "ls --human": ["ls", "--human"],
    "stat": ["stat"],
    "verify": ["verify"],
    "offsets": ["offsets", "--time", "latest"],
    "groups": ["groups"],
    "groups --list": ["groups", "--list"],
    "transactions": ["transactions"],
    "transactions --producers": ["transactions", "--producers"],
    "transactions --ids": ["transactions", "--ids"],
    "transactions --abort": ["transactions", "--transactional-id", "open-1-ms1", "--abort", "--dry-run"],
    "topics": ["topics"],
    "configs": ["configs"],
    "configs --all": ["configs", "--topic", "txn", "--all"],
    "metadata": ["metadata"],
    "recover": ["recover", "--dry-run"],
    "compact": ["compact", "--dry-run"],
    "delete-records": ["delete-records", "--topic", "txn", "--partition", "0", "--before", "300", "--dry-run"],
}
STYLES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
# They grow from one run to the next.
AGES = re.compile(r"\b\d+:\d\d:\d\d\b(?!\.)")
NEWS = re.compile(r"no room for: .*\n")


@pytest.fixture
def kstore(monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]) -> Runner:
    monkeypatch.setenv("TERM", "xterm")
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(type(sys.stdout), "isatty", lambda stream: stream is sys.stdout, raising=False)
    return runner(monkeypatch, capsysbinary)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_table_fits_into_80_columns(name: str, kstore: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    root = unpack("main-4.4.0", "trees") / "data"
    first, *options = COMMANDS[name]
    shown = {}
    for columns in (80, 1000):
        monkeypatch.setenv("COLUMNS", str(columns))
        shown[columns] = AGES.sub("", STYLES.sub("", kstore(first, root, *options).out))
    narrow = NEWS.sub("", shown[80])
    assert narrow.count("\n") > 1
    assert [line for line in narrow.splitlines() if len(line) > 80] == []
    assert set(re.split(r"[\s,]+", narrow)) - set(re.split(r"[\s,]+", shown[1000])) <= set(pieces_of_long(shown[1000]))


def pieces_of_long(text: str) -> list[str]:
    """Words of more than 24 characters may be divided: return all of their parts."""
    long = [word for word in re.split(r"[\s,]+", text) if len(word) > 24]
    return [word[a:b] for word in long for a in range(len(word)) for b in range(a + 1, len(word) + 1)]


def table(columns: list[Column], rows: list[list[str]], monkeypatch: pytest.MonkeyPatch, *, width: int) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    out = Output(stdout=stream, stderr=StringIO())
    out.table(columns, rows)
    out.flush()
    return STYLES.sub("", stream.bytes.getvalue().decode()).splitlines()


def test_cells_of_a_column_that_wraps_end_after_commas_and_spaces(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = [Column("topic"), Column("n", is_number=True), Column("settings", wraps=True)]
    rows = [["orders", "12", "retention.ms=-1,cleanup.policy=compact,a=1"], ["b", "3", "a=1"]]
    assert table(columns, rows, monkeypatch, width=40) == [
        "topic    n  settings",
        "orders  12  retention.ms=-1,",
        "            cleanup.policy=compact,a=1",
        "b        3  a=1",
    ]
    assert len(table(columns, rows, monkeypatch, width=60)) == 3


def test_a_word_longer_than_a_line_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    word = "".join(chr(ord("a") + number % 26) for number in range(100))
    lines = table([Column("key", wraps=True), Column("n", is_number=True)], [[word, "1"]], monkeypatch, width=50)
    assert max(map(len, lines)) == 50
    assert "".join(line.split()[0] for line in lines[1:]) == word
    assert [line for line in lines if line.endswith(" 1")] == lines[1:2]


def test_columns_are_left_out_by_rank_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = [Column("a"), Column("b", rank=1), Column("c", rank=2)]
    assert table(columns, [["1" * 10, "2" * 10, "3" * 10]], monkeypatch, width=24) == [
        "a           b",
        "1111111111  2222222222",
        "no room for: c",
    ]


def test_the_numbers_of_a_bar_are_whole_beside_a_long_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    out = Output(stdout=StringIO(), stderr=stream)
    with out.progress(Progress(label="x" * 249), total_bytes=lambda: 1_234_500_000):
        pass
    shown = STYLES.sub("", stream.bytes.getvalue().decode())
    assert "0.0/1.2 GB 0:00:00" in shown
    assert max(map(len, re.split(r"[\r\n]", shown))) <= 80


def test_names_of_the_greatest_length_are_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = [Column("topic"), Column("n", is_number=True), Column("id"), Column("x", rank=1)]
    lines = table(columns, [[LONG, "12345", "short", "y"], ["t", "1", LONG, "z"]], monkeypatch, width=80)
    assert max(map(len, lines)) == 80
    assert len(lines) == 1 + 2 * 8
    assert "no room for: x" not in lines
    assert "".join(line.split()[0] for line in lines[1:9]) == LONG
    assert lines[9].split()[2] + "".join(line.strip() for line in lines[10:]) == LONG


LONG = "".join("abcdefghi_"[number % 10] for number in range(249))
LONG_COMMANDS = {
    **{
        name: options
        for name, options in COMMANDS.items()
        if name != "metadata" and "--topic" not in options and "--abort" not in options
    },
    "configs --all": ["configs", "--topic", LONG, "--all"],
    "delete-records": ["delete-records", "--topic", LONG, "--partition", "0", "--before", "1", "--dry-run"],
    "groups --reset": ["groups", "--group", LONG, "--reset", "--to-earliest", "--all-topics", "--dry-run"],
    "groups --delete": ["groups", "--group", LONG, "--delete", "--dry-run"],
    "topics --topic": ["topics", "--topic", LONG],
}


@pytest.fixture(scope="module")
def long_names(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root whose topic, group and transactional id have the longest names."""
    root = tmp_path_factory.mktemp("long") / "root"
    with open_store(root, "a") as store:
        store.create_topic(LONG, config={"cleanup_policy": "compact,delete", "segment_bytes": 1 << 20})
        with Producer(store, transactional_id=LONG) as producer:
            producer.init_transactions()
            with producer.begin_transaction():
                producer.send(LONG, b"v", key=b"k")
        with Consumer(store, group=LONG, topics=[LONG], auto_offset_reset="earliest") as consumer:
            consumer.poll()
            consumer.commit()
        builder = MemoryRecordsBuilder(producer_id=4711, producer_epoch=0, base_sequence=0, is_transactional=True)
        builder.append(timestamp_ms=0, key=b"k", value=b"of a producer that was killed")
        store[LONG].append(builder.build())
    return root


@pytest.mark.parametrize("name", LONG_COMMANDS)
def test_names_of_249_characters_fit_into_80_columns(
    name: str, kstore: Runner, monkeypatch: pytest.MonkeyPatch, long_names: Path
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    first, *options = LONG_COMMANDS[name]
    done = kstore(first, long_names, *options)
    lines = STYLES.sub("", done.out).splitlines()
    assert done.status == 0
    assert len(lines) > 1
    assert [line for line in lines if len(line) > 80] == []
