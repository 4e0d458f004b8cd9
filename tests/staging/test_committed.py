"""Goal: the versions that were committed are read back from the last committed record, and stay small.
Method: snapshots written to a log and read; snapshots of many applications; records of other formats."""

from __future__ import annotations

from pathlib import Path

import pytest

from kstore.errors import InvalidRecordError
from kstore.record import Record
from kstore.staging.committed import CommittedVersions
from kstore.store.store import open_store


def read(tmp_path: Path, *values: bytes) -> CommittedVersions:
    with open_store(tmp_path / "root", "a") as store:
        if "c" not in store.topics:
            store.create_topic("c")
        log = store.log("c")
        for value in values:
            log.append(Record(timestamp_ms=1, key=b"committed", value=value))
        return CommittedVersions.read(log)


def test_last_snapshot_counts(tmp_path: Path) -> None:
    assert read(tmp_path).version_of("q") is None
    first = CommittedVersions({}).with_version("q", 0).with_version("other id \ud800", 2**63 - 1)
    second = first.with_version("q", 1)
    found = read(tmp_path, first.value, second.value)
    assert [found.version_of(app_id) for app_id in ("q", "other id \ud800", "x")] == [1, 2**63 - 1, None]
    assert found.value == second.value


def test_applications_that_committed_longest_ago_go_when_there_are_too_many() -> None:
    versions = CommittedVersions({})
    names = [f"{number:04}" + "x" * 1500 for number in range(400)]
    for name in names:
        versions = versions.with_version("kept", 1).with_version(name, 5)
        assert len(versions.value) <= 256 * 1024
    assert versions.version_of("kept") == 1
    assert versions.version_of(names[-1]) == versions.version_of(names[-150]) == 5
    assert versions.version_of(names[0]) is None


def test_deleting_old_snapshots_keeps_the_last_one(tmp_path: Path) -> None:
    last = CommittedVersions({"q": 300})
    read(tmp_path, *(CommittedVersions({"q": number}).value for number in range(300)), last.value)
    with open_store(tmp_path / "root", "a") as store:
        log = store.log("c")
        versions = CommittedVersions.read(log)
        versions.delete_older(log)
        assert log.log_start_offset == 300
        assert CommittedVersions.read(log).version_of("q") == 300
        # Once more, when there is nothing before it.
        CommittedVersions.read(log).delete_older(log)
        assert CommittedVersions.read(log).version_of("q") == 300


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b"\xff",
        b'{"version": 2, "committed": {}}',
        b'{"version": 1}',
        b'{"version": 1, "committed": []}',
        b'{"version": 1, "committed": {"q": "1"}}',
        b'{"version": 1, "committed": {"q": 1.5}}',
        b'{"version": 1, "committed": {"q": true}}',
        b'{"version": 1, "committed": {"q": 1}, "committed": {"q": 2}}',
        b'{"version": 1, "committed": {"q": 9223372036854775808}}',
        b"[" * 100_000,
    ],
    ids=range(14),
)
def test_record_of_another_format_is_refused_with_its_place(tmp_path: Path, value: bytes) -> None:
    with pytest.raises(InvalidRecordError, match="expected the committed versions, in format 1, found") as found:
        read(tmp_path, CommittedVersions({}).value, value)
    assert found.value.base_offset == 1
    assert str(found.value.path).endswith("c-0")
