"""Goal: docs/results.md names every field of what calls return, docs/config.md every setting of a log, docs/producer.md
every setting of a producer, and docs/log.md every method of a log.
Method: the tables of the pages against the fields and members of the classes."""

from __future__ import annotations

import re

import kstore
from kstore.config import LogConfig
from kstore.producer import ProducerConfig
from tests.repo.snippets import ROOT

# Fields for those who read a planned range in another process, which no caller sets or needs.
INNER_FIELDS = {"files", "aborted", "identities", "last_batch", "skipped", "share", "is_live"}
# What only kstore's own packages call.
INNER_MEMBERS = {"marks", "open"}
ROW = re.compile(r"^\| `kstore\.(\w+)` \|(.*)\|$", re.MULTILINE)


def fields_of(kind: type) -> set[str]:
    """Return the fields of a named tuple or dataclass; none of another class."""
    return {*getattr(kind, "_fields", ()), *getattr(kind, "__dataclass_fields__", ())}


def test_page_names_the_fields_of_what_calls_return() -> None:
    rows = ROW.findall((ROOT / "docs" / "results.md").read_text())
    assert len({name for name, _ in rows}) == len(rows) > 20
    wrong = []
    for name, row in rows:
        left = fields_of(getattr(kstore, name)) - set(re.findall(r"\w+", row))
        wrong += [f"{name}.{field}" for field in sorted(left - (INNER_FIELDS if name == "ScanRange" else set()))]
    assert wrong == []


def test_page_lists_each_setting_of_a_log_once() -> None:
    rows = re.findall(r"^\| (`[^|]+`) \|", (ROOT / "docs" / "config.md").read_text(), re.MULTILINE)
    listed = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert sorted(listed) == sorted(LogConfig.__dataclass_fields__)


def test_page_lists_each_setting_of_a_producer() -> None:
    rows = re.findall(r"^\| (`[^|]+`) \|[^|]+\|(.+)\|$", (ROOT / "docs" / "producer.md").read_text(), re.MULTILINE)
    listed = {name for row in rows for text in row for name in re.findall(r"`(\w+)`", text)}
    assert sorted(ProducerConfig.__dataclass_fields__.keys() - listed) == []


def test_page_lists_each_member_of_a_log() -> None:
    public = (ROOT / "tests" / "repo" / "public_names.txt").read_text()
    members = set(re.findall(r"^(?:Log|WritableLog)\.(\w+)", public, re.MULTILINE)) - INNER_MEMBERS
    listed = set(re.findall(r"`(\w+)[`(]", (ROOT / "docs" / "log.md").read_text()))
    assert sorted(members - listed) == []


def test_methods_that_the_page_of_kafkas_classes_lists_exist() -> None:
    public = (ROOT / "tests" / "repo" / "public_names.txt").read_text()
    section = (ROOT / "docs" / "kafka-classes.md").read_text().partition("\n## What each of them can do\n")[2]
    rows = ROW.findall(section)
    assert len(rows) > 5
    wrong = []
    for name, row in rows:
        members = set(re.findall(rf"^{name}\.(\w+)", public, re.MULTILINE))
        wrong += [f"{name}.{member}" for member in re.findall(r"`(\w+)[`(]", row) if member not in members]
    assert wrong == []
