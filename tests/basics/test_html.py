"""Goal: what notebooks show of the objects that users hold is a small table with what they hold, and hostile names in
it stay text.
Method: an HTML parser reads each table back; topics, groups and reasons with markup in their names."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import pytest

import kstore
from kstore import Record, TopicPartition, open_log, open_store
from kstore._html import MOST_ROWS, fields_html, table_html
from kstore.consumer.groups import read_groups
from kstore.coordinator.group.metadata import Group, GroupOffset, Groups
from kstore.log.damage import Damage, SuspectedLoss
from kstore.log.recovery.context import DamageOutcome, RecoveryReport
from kstore.store.checks import VerificationReport
from kstore.types import OffsetAndMetadata
from tests.making.batches import batch, flip_bit, write_root

HOSTILE = "<script>alert(1)</script>\"'&"


class Tables(HTMLParser):
    """The captions, and the rows of cells of all tables; a tag that a small table does not have fails the test."""

    KNOWN = frozenset({"table", "caption", "thead", "tbody", "tr", "th", "td", "p"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.captions: list[str] = []
        self.rows: list[list[str]] = []
        self.after = ""
        self._in: str | None = None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in self.KNOWN
        assert {name for name, _ in attrs} <= {"style", "scope"}
        self._in = tag
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")
        elif tag == "caption":
            self.captions.append("")

    def handle_data(self, data: str) -> None:
        if self._in in ("td", "th"):
            self.rows[-1][-1] += data
        elif self._in == "caption":
            self.captions[-1] += data
        else:
            self.after += data


def tables_of(shown: object) -> Tables:
    return Tables(shown._repr_html_())  # type: ignore[attr-defined]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_root(tmp_path / "root", {f"{name}-0": [[batch(0, 3)], [batch(3, 2)]] for name in ("t", "u")})


def test_texts_are_escaped_and_numbers_have_separators() -> None:
    tables = Tables(table_html(HOSTILE, (HOSTILE, "n"), [(HOSTILE, 1234567)], count=1))
    assert tables.captions == [HOSTILE]
    assert tables.rows == [[HOSTILE, "n"], [HOSTILE, "1,234,567"]]
    assert Tables(fields_html("f", [(HOSTILE, HOSTILE), ("none", None)])).rows == [[HOSTILE, HOSTILE], ["none", "-"]]


def test_bytes_that_are_not_utf8_are_replaced() -> None:
    assert Tables(fields_html("f", [("name", "a\udcffb")])).rows == [["name", "a\ufffdb"]]


def test_a_table_ends_after_most_rows_and_says_how_many_there_are_more() -> None:
    for count, more in ((0, ""), (MOST_ROWS, ""), (MOST_ROWS + 1, "and 1 more")):
        tables = Tables(table_html("t", ("n",), ((number,) for number in range(count)), count=count))
        assert len(tables.rows) == 1 + min(count, MOST_ROWS)
        assert tables.after == more


def test_a_long_text_is_cut() -> None:
    ((_, shown),) = Tables(fields_html("f", [("n", "x" * 301)])).rows
    assert shown == "x" * 300 + "..."


def test_store_shows_its_topics(root: Path) -> None:
    with open_store(root) as store:
        tables = tables_of(store)
    assert tables.captions == [f"Store of {root}: 2 topics, 2 partitions"]
    assert tables.rows == [["topic", "partitions"], ["t", "1"], ["u", "1"]]
    assert tables_of(store).captions == [f"Store of {root}: 2 topics, 2 partitions, closed"]


@pytest.mark.parametrize("mode", ["r", "a"])
def test_log_shows_its_offsets_and_segments(root: Path, mode: str) -> None:
    log = open_log(root / "t-0", mode)  # type: ignore[call-overload]
    tables = tables_of(log)
    assert ["log_end_offset", "5"] in tables.rows
    assert [row[0] for row in tables.rows[-2:]] == ["0", "3"]
    log.close()
    assert ["is_closed", "True"] in tables_of(log).rows


def test_scan_shows_partitions_and_columns(root: Path) -> None:
    tables = tables_of(kstore.scan(root))
    assert [row[:4] for row in tables.rows[1:3]] == [["t", "0", "0", "log end"], ["u", "0", "0", "log end"]]
    assert ["offset", "int64"] in tables.rows
    assert [row[3] for row in tables_of(kstore.scan(root, end_offset=4)).rows[1:3]] == ["4", "4"]


def test_verification_report_shows_damage_first(root: Path) -> None:
    log = next((root / "u-0").glob("*.log"))
    flip_bit(log, 70, bit=0)
    tables = tables_of(kstore.verify(root))
    assert tables.captions[0].startswith("VerificationReport of 2 partitions: 1 damaged ranges, 1 proven losses")
    assert [row[0] for row in tables.rows[1:3]] == ["u", "t"]
    assert str(log) in [row[0] for row in tables.rows]


def test_verification_report_shows_losses() -> None:
    loss = SuspectedLoss(
        TopicPartition("t", 0), 5, None, "p", is_proven=True, evidence=HOSTILE, log_path="l", position=0
    )
    tables = tables_of(VerificationReport((), (), (loss,)))
    assert tables.rows[-1] == ["t-0", "5", "-", "True", HOSTILE]


def test_recovery_report_shows_what_was_done_about_damage() -> None:
    damage = Damage("p", 1, 2, HOSTILE)
    report = RecoveryReport(0, 9, 100, (3,), ("i",), (damage,), (), (DamageOutcome("truncated", 4, None),))
    tables = tables_of(report)
    assert ["truncated_bytes", "100"] in tables.rows
    assert tables.rows[-1] == ["p", "1", "2", HOSTILE, "truncated", "4", "-"]
    assert tables_of(report._replace(outcomes=())).rows[-1] == ["p", "1", "2", HOSTILE, "-", "-", "-"]
    assert tables_of(report._replace(damage=(), outcomes=())).captions == ["RecoveryReport: damaged"]


def test_groups_show_their_lag() -> None:
    partition = TopicPartition("t", 0)
    committed = OffsetAndMetadata(4)
    group = Group(
        group_id=HOSTILE,
        type="Classic",
        state="Empty",
        protocol_type="",
        protocol=None,
        leader=None,
        epoch=None,
        members=(),
        offsets={partition: GroupOffset(committed, 10), TopicPartition("gone", 0): GroupOffset(committed, None)},
        pending={},
    )
    assert tables_of(Groups([group])).rows[1] == [HOSTILE, "Classic", "Empty", "0", "2", "6"]
    assert tables_of(group).rows[1:] == [["t", "0", "4", "10", "6"], ["gone", "0", "4", "-", "-"]]


def test_read_groups_returns_groups_that_are_shown(tmp_path: Path) -> None:
    with open_store(tmp_path / "root", "a") as store:
        store.create_topic("t")
        store.log("t").append([Record(value=b"v")])
    assert tables_of(read_groups(tmp_path / "root")).captions == ["0 groups"]
