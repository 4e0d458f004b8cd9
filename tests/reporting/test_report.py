"""Goal: a report says what is in a root, whether it is healthy and what holds it back, also of damaged roots; its page
loads nothing, is valid and shows hostile names as text.
Method: roots that kstore wrote, with one fault each, against verify; the page through a parser."""

from __future__ import annotations

import json
import os
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

import kstore
from kstore import LogConfig, Producer, Record, open_log, open_store
from kstore.record import with_records
from kstore.reporting import report as module
from kstore.reporting.charts import figure_of, rates_of, time_chart, volume_chart
from kstore.reporting.page import MOST_ROWS
from kstore.reporting.sections import Section, sections_of
from kstore.reporting.statistics import Rates
from kstore.reporting.units import number_text, size_text, span_text, time_text
from tests.cli.runner import runner
from tests.making.batches import batch, flip_bit, write_root

HOUR_MS = 3_600_000
BASE_MS = 1_700_000_000_000
VOID = {"meta", "input", "br"}
HOSTILE = b"<script>alert(1)</script>\x00\xff"


class Page(HTMLParser):
    """A page: its ids, links, texts and nesting; what it would load."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.targets: list[str] = []
        self.loads: list[str] = []
        self.open: list[str] = []
        self.headings: list[int] = []
        self.counts: dict[str, int] = {}
        self.texts: list[str] = []
        self.unnamed: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.counts[tag] = self.counts.get(tag, 0) + 1
        if "id" in given:
            self.ids.append(given["id"])
        for name in ("src", "href", "data", "srcset", "action"):
            if name in given:
                (self.targets if given[name].startswith("#") else self.loads).append(given[name])
        if given.get("role") in ("img", "region") and not given.get("aria-label"):
            self.unnamed.append(tag)
        if tag in ("h1", "h2", "h3"):
            self.headings.append(int(tag[1]))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("style", "script"):
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


def record(number: int, *, key: bytes | None = b"k", value: bytes = b"v") -> Record:
    return Record(timestamp_ms=BASE_MS + 1000 * number, key=key, value=value)


@pytest.fixture
def kstore_command(monkeypatch, capsysbinary):
    return runner(monkeypatch, capsysbinary)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """t-0: 60 records of a hostile key in several segments, a batch from the future and a late one; u-0: empty."""
    with open_store(tmp_path / "root", "a", LogConfig(segment_bytes=1500)) as store:
        store.create_topic("t")
        store.create_topic("u")
        log = store.log("t")
        for start in range(0, 50, 10):
            log.append(with_records([record(n, key=HOSTILE) for n in range(start, start + 10)], compression="gzip"))
        log.append(Record(timestamp_ms=store._env.wall_clock_ms() + 2 * HOUR_MS, key=b"future", value=b"v" * 500))
        log.append([record(3, key=b"late")])
    return tmp_path / "root"


def log_of(root: Path, name: str = "t-0") -> Path:
    return sorted((root / name).glob("*.log"))[0]


def partition_of(report: kstore.Report, name: str = "t") -> dict:
    (partition,) = [one for one in report.facts["partitions"] if one["topic"] == name]
    return partition


def test_facts_are_those_of_the_log(root: Path) -> None:
    facts = partition_of(kstore.report(root))
    with open_log(root / "t-0") as log:
        assert facts["size_in_bytes"] == log.size_in_bytes
        assert [segment["base_offset"] for segment in facts["segments"]] == [s.base_offset for s in log.segments]
        assert len(facts["segments"]) > 1
        batches = list(log.batches())
    assert (facts["records"], facts["batches"], facts["log_end_offset"]) == (52, len(batches), 52)
    assert sum(size for _, _, size in facts["rates"]["buckets"]) == sum(one.size_in_bytes for one in batches)
    assert {codec["codec"]: codec["batches"] for codec in facts["codecs"]} == {"gzip": 5, "none": 2}


def test_late_future_and_missing_timestamps_are_counted(root: Path) -> None:
    times = partition_of(kstore.report(root))["timestamps"]
    assert (times["late_batches"], times["future_batches"], times["batches_without"]) == (1, 1, 0)
    assert times["late_by_at_most_ms"] > 2 * HOUR_MS


def test_a_sound_root_is_unharmed_and_an_empty_partition_is_there(root: Path) -> None:
    report = kstore.report(root)
    assert report.is_unharmed
    assert partition_of(report, "u")["records"] == 0
    assert "No damage found." in Page(report.html).text


def test_damage_is_that_of_verify_and_the_rest_is_reported(root: Path) -> None:
    flip_bit(log_of(root), 100, bit=0)
    for deep in (False, True):
        report = kstore.report(root, deep=deep)
        facts = partition_of(report)
        assert not report.is_unharmed
        verified = kstore.verify(root, deep=deep)
        assert [one["reason"] for one in facts["damage"]] == [damage.reason for damage in verified.damage]
        assert facts["records"] == 42
        assert facts["damaged_offsets"] == [(0, 10)]
        assert facts["gaps"]["count"] == 0
    assert "Damaged: 1 damaged range in 1 partition." in Page(report.html).text


def test_a_second_look_at_a_damaged_segment_counts_its_batches_once(root: Path) -> None:
    before = partition_of(kstore.report(root))["batches"]
    flip_bit(log_of(root), 100, bit=0)
    facts = partition_of(kstore.report(root))
    assert facts["batches"] == before - 1
    assert [s["base_offset"] for s in facts["segments"]] == sorted({s["base_offset"] for s in facts["segments"]})


def test_an_unreadable_partition_is_reported_and_the_others_are_read(root: Path) -> None:
    os.rename(log_of(root), log_of(root).with_suffix(".kept"))
    for path in (root / "t-0").glob("*.log"):
        path.rename(path.with_suffix(".kept"))
    (root / "t-0" / "00000000000000000000.log").mkdir()
    report = kstore.report(root)
    assert not report.is_unharmed
    assert partition_of(report)["error"]
    assert partition_of(report, "u")["error"] is None
    assert "cannot be read" in Page(report.html).text


def test_gaps_between_batches_are_counted(tmp_path: Path) -> None:
    root = write_root(tmp_path / "root", {"t-0": [[batch(0, 3), batch(10, 2)]]})
    gaps = partition_of(kstore.report(root))["gaps"]
    assert (gaps["count"], gaps["offsets"], gaps["first"]) == (1, 7, [(3, 10)])


def test_open_and_aborted_transactions_hold_back(tmp_path: Path) -> None:
    with open_store(tmp_path / "root", "a") as store:
        store.create_topic("t")
        for name, ends in (("aborted", True), ("open", False)):
            producer = Producer(store, transactional_id=name)
            producer.init_transactions()
            producer.begin_transaction()
            producer.send("t", value=b"v").result(30) if not ends else producer.send("t", value=b"v")
            if ends:
                producer.flush()
                producer.abort_transaction()
                producer.close()
        report = kstore.report(tmp_path / "root")
        facts = partition_of(report)
        producer.abort_transaction()
        producer.close()
    assert (facts["transactions"]["aborted"], facts["transactions"]["open_count"]) == (1, 1)
    (opened,) = facts["transactions"]["open"]
    assert facts["last_stable_offset"] == opened["first_offset"] == 2
    assert "has had a transaction open for" in Page(report.html).text


def test_deep_adds_keys_and_ratios(root: Path) -> None:
    shallow, deep = partition_of(kstore.report(root)), partition_of(kstore.report(root, deep=True))
    assert shallow["largest_keys"] is None
    assert [key["records"] for key in deep["largest_keys"]] == [50, 1, 1]
    assert {codec["codec"]: codec["ratio"] is None for codec in deep["codecs"]} == {"gzip": False, "none": False}
    assert sum(count for _, count in deep["record_sizes"]) == 52


def test_unknown_files_are_named(root: Path) -> None:
    (root / "t-0" / "<b>notes").write_text("x")
    assert partition_of(kstore.report(root))["unknown_files"] == ["<b>notes"]


def test_page_loads_nothing_and_is_well_formed(root: Path) -> None:
    (root / "t-0" / "<script>alert(1)<").write_text("x")
    report = kstore.report(root, deep=True)
    page = Page(report.html)
    assert page.loads == []
    assert "url(" not in report.html.replace("url(#", "")
    assert "@import" not in report.html
    assert len(page.ids) == len(set(page.ids))
    assert {target.removeprefix("#") for target in page.targets} <= set(page.ids)
    assert page.counts["script"] == page.counts["main"] == page.counts["h1"] == page.counts["title"] - 0 == 1
    assert page.headings[0] == 1
    assert all(after - before <= 1 for before, after in zip(page.headings, page.headings[1:], strict=False))
    assert page.unnamed == []
    assert "<script>alert(1)</script>\\x00\\xff" in page.text
    assert len(report.html) < 2_000_000


def test_page_follows_the_theme_and_prints(root: Path) -> None:
    page = kstore.report(root).html
    assert "prefers-color-scheme: dark" in page
    assert "@media print" in page
    assert "var(--mark)" in page


def test_on_paper_the_first_rows_give_way_to_all_of_them(tmp_path: Path) -> None:
    write_root(tmp_path, {f"t{number:02d}-0": [[batch(0)]] for number in range(25)})
    page = kstore.report(tmp_path).html
    assert ".part:has(+ details[open]) { display: none; }" in page
    parts = re.findall(r'<div class="scroll part".*?</table>\n</div>\s*<(\w+)', page, re.DOTALL)
    assert set(parts) == {"details"}
    assert len(parts) == page.count(": the first 20 of 25")


def test_times_of_charts_have_24_hours() -> None:
    rates = Rates()
    for hour in range(20):
        rates.add(hour * 3_600_000, records=1, size_in_bytes=1)
    drawn = figure_of("", volume_chart(rates)).wide
    assert {"03:00", "15:00"} <= set(re.findall(r">(\d\d:\d\d)<", drawn))
    assert not re.search(r"[AP]M<", drawn)


def test_times_of_the_page_stay_on_one_line(root: Path) -> None:
    assert f'<td class="one-line">{time_text(BASE_MS)}</td>' in kstore.report(root).html


def test_thousands_of_rows_are_folded_under_the_first(tmp_path: Path) -> None:
    root = write_root(tmp_path / "root", {f"t-{n}": [[batch(0, 1)]] for n in range(MOST_ROWS + 1)})
    page = Page(kstore.report(root).html)
    assert "Partitions by size: the first 20 of 21" in page.text
    assert page.counts["input"] >= 1


def test_an_error_that_all_partitions_have_is_said_once(root: Path) -> None:
    facts = kstore.report(root).facts
    first, *others = partitions = facts["partitions"]
    for partition in partitions:
        partition["outlook"]["error"] = "no settings"
    section = outlook_of(facts)
    assert section.texts[0] == "Of all partitions: no settings."
    assert "no settings" not in {cell.text for row in section.tables[0].rows for cell in row}
    first["outlook"]["error"] = None
    assert errors_of(outlook_of(facts)) == [False] + [True] * len(others)
    facts["partitions"] = others
    assert errors_of(outlook_of(facts)) == [True]


def outlook_of(facts) -> Section:
    (section,) = [section for section in sections_of(facts) if section.id == "outlook"]
    return section


def errors_of(section: Section) -> list[bool]:
    return [row[-1].text == "no settings" for row in section.tables[0].rows]


def test_rates_of_partitions_are_added_in_the_coarsest_interval() -> None:
    fine = {"rates": {"bucket_ms": 1000, "buckets": [[0, 1, 10], [3000, 2, 20]]}}
    coarse = {"rates": {"bucket_ms": 4000, "buckets": [[0, 4, 40]]}}
    rates = rates_of([fine, coarse])
    assert (rates.bucket_ms, rates.buckets) == (4000, {0: [7, 70]})


def test_bars_of_a_few_minutes_in_three_years_can_be_seen() -> None:
    year_ms = 31_536_000_000
    rates = {"bucket_ms": 1000, "buckets": [[0, 1, 10], [1000, 2, 20], [3 * year_ms, 4, 40]]}
    total = rates_of([{"rates": rates}])
    first, last = sorted(total.buckets)
    assert (total.buckets[first], total.buckets[last]) == ([3, 30], [4, 40])
    assert 3 * year_ms / 128 < total.bucket_ms <= 3 * year_ms / 64


def test_times_beyond_those_of_a_chart_are_left_out_of_it() -> None:
    least, largest = -(2**63), 2**63 - 1
    rates = {"bucket_ms": 1000, "buckets": [[least, 1, 10], [0, 2, 20], [largest, 4, 40]]}
    total = rates_of([{"rates": rates}])
    assert (total.bucket_ms, len(total.buckets)) == (1000, 3)
    assert [bar["from"] for bar in volume_chart(total)(900)["data"]["values"]] == [0]
    times = {"by_offset": [[0, least, least], [1, 5, 6], [2, 7, largest]]}
    charted = time_chart([{"topic": "t", "partition": 0, "timestamps": times}])(900)["data"]["values"]
    assert [value["offset"] for value in charted] == [1]


def test_command_writes_the_page_and_exits_as_verify(kstore_command, root: Path, tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    run = kstore_command("report", root, "-o", target)
    assert (run.status, run.out) == (0, "")
    assert "no damage found" in run.err
    assert target.read_text().startswith("<!doctype html>")
    flip_bit(log_of(root), 100, bit=0)
    run = kstore_command("report", root, "-o", target)
    assert run.status == 1
    assert "Damaged: 1 damaged range" in target.read_text()


def test_command_prints_the_facts(kstore_command, root: Path) -> None:
    run = kstore_command("report", root / "t-0", "--json")
    assert run.status == 0
    facts = json.loads(run.out)
    assert facts["is_root"] is False
    assert [one["topic"] for one in facts["partitions"]] == ["t"]


def test_command_needs_a_file_or_json(kstore_command, root: Path) -> None:
    run = kstore_command("report", root)
    assert run.status == 2
    assert "-o report.html" in run.err


@pytest.mark.parametrize("place", [".", "t-0"])
def test_a_page_is_not_written_among_logs(kstore_command, root: Path, place: str) -> None:
    before = sorted(root.rglob("*"))
    run = kstore_command("report", root, "-o", root / place / "report.html")
    assert run.status == 2
    assert "in a directory of logs" in run.err
    assert sorted(root.rglob("*")) == before


def test_missing_packages_are_named(monkeypatch, root: Path) -> None:
    report = kstore.report(root)

    def page_of(_: object) -> str:
        raise ModuleNotFoundError("No module named 'vl_convert'", name="vl_convert")

    monkeypatch.setattr("kstore.reporting.page.page_of", page_of)
    with pytest.raises(ModuleNotFoundError, match=r"kstore\[report\]"):
        module.Report(report.facts).html  # noqa: B018


def test_notebooks_show_the_page(root: Path) -> None:
    shown = kstore.report(root, topics="u")._repr_html_()
    assert shown.startswith("<iframe")
    assert "<script" not in shown


def test_a_topic_that_is_not_there_is_an_error(root: Path) -> None:
    with pytest.raises(ValueError, match="topics not found: x"):
        kstore.report(root, topics=["t", "x"])


@pytest.mark.parametrize(
    ("size", "text"), [(None, "-"), (0, "0 B"), (999, "999 B"), (1000, "1 kB"), (999_600, "1 MB"), (2.5e9, "2.5 GB")]
)
def test_sizes(size: float | None, text: str) -> None:
    assert size_text(size) == text


def test_numbers_spans_and_times() -> None:
    assert [number_text(n) for n in (None, 0, 1234567, 0.5, 12345.6)] == ["-", "0", "1,234,567", "0.5", "12,346"]
    assert [span_text(n) for n in (None, 999, 1000, 90_000, 86_400_000)] == ["-", "999 ms", "1 s", "1.5 min", "1 d"]
    assert time_text(BASE_MS) == "2023-11-14 22:13:20"
    assert time_text(1 << 62) == f"{1 << 62} ms"
