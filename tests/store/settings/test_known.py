"""Goal: what is known of a topic's settings is what its root says, from the source that says it, and nothing else.
Method: roots with settings of kstore's own, with metadata of a cluster written record by record, and of a broker."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from kstore import CorruptCheckpointError, LogConfig, Record, open_log, open_store
from kstore.config import DAY_MS
from kstore.env import DEFAULT_ENV
from kstore.log.files.root_files import MetaProperties, write_meta_properties, write_partition_metadata
from kstore.store.settings.file import SettingsFile, write_settings
from kstore.store.settings.known import KnownSettings
from tests.cli.runner import runner
from tests.golden.sets import PACKED_DIRECTORY, unpack
from tests.making import cluster
from tests.making.batches import flip_bit

T, U = uuid.UUID(int=7), uuid.UUID(int=8)


def known(root: Path) -> KnownSettings:
    return KnownSettings(str(root), DEFAULT_ENV)


def policy_of(root: Path, topic: str = "t") -> object:
    return known(root).of(topic).settings.get("cleanup_policy")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with a directory of t that has the id T."""
    (tmp_path / "root" / "t-0").mkdir(parents=True)
    write_partition_metadata(str(tmp_path / "root" / "t-0"), T)
    return tmp_path / "root"


def test_what_the_root_does_not_say_is_not_known(root: Path) -> None:
    found = known(root).of("t")
    assert (found.settings, found.is_compacted, found.is_deleted_from) == ({}, None, None)
    assert found.policy.startswith("its cleanup policy is not known: the root does not say it")


def test_settings_of_the_cluster_are_those_of_the_last_records(root: Path) -> None:
    cluster.write_metadata(
        root,
        [
            cluster.topic("t", T),
            cluster.config("t", "cleanup.policy", "delete"),
            cluster.config("t", "retention.ms", "5"),
            cluster.config("t", "cleanup.policy", "compact, delete"),
            cluster.config("t", "retention.ms", None),
            cluster.config("t", "min.cleanable.dirty.ratio", "0.25"),
            cluster.metadata(cluster.CONFIG, resourceType=4, resourceName="t", name="cleanup.policy", value="delete"),
        ],
    )
    found = known(root).of("t")
    assert found.settings == {"cleanup_policy": "compact,delete", "min_cleanable_dirty_ratio": 0.25}
    assert found.policy == "its cleanup policy is compact,delete by __cluster_metadata"
    assert found.is_compacted
    assert found.is_deleted_from


def test_an_empty_policy_of_the_cluster_neither_compacts_nor_deletes(root: Path) -> None:
    records = [
        cluster.topic("t", T),
        cluster.config("t", "retention.ms", "1"),
        cluster.config("t", "cleanup.policy", ""),
    ]
    cluster.write_metadata(root, records)
    assert known(root).of("t").settings == {"cleanup_policy": "delete", "retention_ms": -1, "retention_bytes": -1}


def test_settings_of_the_root_come_before_those_of_the_cluster(root: Path) -> None:
    cluster.write_metadata(root, [cluster.topic("t", T), cluster.config("t", "cleanup.policy", "compact")])
    write_settings(str(root), SettingsFile({"t": {"cleanup_policy": "delete"}}), DEFAULT_ENV)
    assert policy_of(root) == "delete"


def test_a_topic_that_was_removed_takes_its_settings_with_it(root: Path) -> None:
    records = [cluster.topic("t", U), cluster.config("t", "cleanup.policy", "compact")]
    records += [cluster.metadata(cluster.REMOVE, topicId=U), cluster.topic("t", T)]
    cluster.write_metadata(root, records)
    assert known(root).of("t").settings == {}


def test_settings_of_another_topic_of_the_same_name_do_not_count(root: Path) -> None:
    cluster.write_metadata(root, [cluster.topic("t", U), cluster.config("t", "cleanup.policy", "compact")])
    found = known(root).of("t")
    assert found.settings == {}
    assert f"another topic of this name, with the id {U}" in found.doubt


@pytest.mark.parametrize(("end", "policy"), [(cluster.END, "compact"), (cluster.ABORT, "delete"), (None, "delete")])
def test_a_transaction_of_metadata_counts_once_it_has_ended(root: Path, end: int | None, policy: str) -> None:
    records = [cluster.topic("t", T), cluster.config("t", "cleanup.policy", "delete"), cluster.metadata(cluster.BEGIN)]
    records.append(cluster.config("t", "cleanup.policy", "compact"))
    records += [] if end is None else [cluster.metadata(end)]
    cluster.write_metadata(root, records)
    assert policy_of(root) == policy


def test_metadata_is_replayed_over_its_latest_snapshot(root: Path) -> None:
    tail = [cluster.config("t", "cleanup.policy", "delete"), cluster.config("t", "cleanup.policy", "compact")]
    directory = cluster.write_metadata(root, tail, base_offset=10)
    cluster.write_snapshot(directory, [cluster.topic("t", U)], end_offset=10)
    cluster.write_snapshot(directory, [cluster.topic("t", T)], end_offset=11)
    assert policy_of(root) == "compact"
    cluster.write_snapshot(directory, [cluster.topic("t", T), tail[0]], end_offset=12)
    assert policy_of(root) == "delete"


def gap(directory: Path) -> None:
    (directory / f"{0:020d}.log").rename(directory / f"{5:020d}.log")
    content = cluster.batch_of([cluster.topic("t", T), cluster.config("t", "cleanup.policy", "compact")], base_offset=5)
    (directory / f"{5:020d}.log").write_bytes(content)


def unknown_version(directory: Path) -> None:
    value = bytes((1, cluster.CONFIG, 9)) + b"\0" * 20
    (directory / f"{0:020d}.log").write_bytes(cluster.batch_of([cluster.topic("t", T), value]))


DAMAGES: dict[str, Callable[[Path], object]] = {
    "a bit of the log": lambda directory: flip_bit(directory / f"{0:020d}.log", 70, bit=1),
    "a snapshot without a footer": lambda directory: cluster.write_snapshot(
        directory, [cluster.topic("t", T)], end_offset=1, has_footer=False
    ),
    "records before the log start, and no snapshot": gap,
    "a version of a record that is not known": unknown_version,
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_nothing_is_known_of_a_cluster_whose_metadata_is_damaged(root: Path, damage: Callable[[Path], object]) -> None:
    records = [cluster.topic("t", T), cluster.config("t", "cleanup.policy", "compact")]
    damage(cluster.write_metadata(root, records))
    assert isinstance(known(root).damage, CorruptCheckpointError)
    assert known(root).of("t").settings == {}


def test_settings_that_are_not_understood_are_not_guessed(root: Path) -> None:
    cluster.write_metadata(root, [cluster.topic("t", T), cluster.config("t", "cleanup.policy", "archive")])
    found = known(root).of("t")
    assert found.settings == {}
    assert "not understood: cleanup_policy must be one of" in found.doubt


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("retention.ms", "NaN", "retention.ms must be a whole number, got 'NaN'"),
        ("retention.ms", "1_000", "retention.ms must be a whole number, got '1_000'"),
        ("retention.ms", "1e3", "retention.ms must be a whole number, got '1e3'"),
        ("min.cleanable.dirty.ratio", "half", "min.cleanable.dirty.ratio must be a number, got 'half'"),
        ("min.cleanable.dirty.ratio", "NaN", "min_cleanable_dirty_ratio must be from 0.0 to 1.0, got nan"),
    ],
)
def test_a_setting_that_is_no_number_says_so(root: Path, name: str, text: str, problem: str) -> None:
    cluster.write_metadata(root, [cluster.topic("t", T), cluster.config("t", name, text)])
    found = known(root).of("t")
    assert (found.settings, found.doubt.partition("not understood: ")[2]) == ({}, problem)


# A broker's root


def test_compaction_of_a_brokers_root_is_of_the_topics_that_its_metadata_calls_compacted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    (source,) = {path.parent for path in unpack("main-4.4.0", "trees").rglob("__cluster_metadata-0")}
    said = json.loads((PACKED_DIRECTORY / "main-4.4.0" / "topics.json").read_text())["topics"]
    compacted = {name for name, topic in said.items() if "compact" in topic["config"].get("cleanup.policy", "")}
    assert 0 < len(compacted) < len(said)
    facts = known(source)
    assert {name for name in said if facts.of(name).is_compacted} == compacted
    assert {name for name in said if facts.of(name).settings.get("retention_ms") == -1} == {
        name for name, topic in said.items() if topic["config"].get("retention.ms") == "-1"
    }
    root = Path(shutil.copytree(source, tmp_path / "root"))
    before = {path: path.read_bytes() for path in root.rglob("*.log")}
    run = runner(monkeypatch, capsysbinary)("compact", root, "--json", "--dry-run")
    shown = run.objects()
    internal = {"__consumer_offsets", "__transaction_state"}
    assert {one["topic"] for one in shown if "records_kept" in one} - internal == compacted & {
        one["topic"] for one in shown
    }
    assert {one["topic"] for one in shown if "passed_over" in one} & compacted == set()
    assert {path: path.read_bytes() for path in root.rglob("*.log")} == before


def deleted_by_maintenance(root: Path, config: LogConfig | None = None) -> int:
    """Append a record of long ago to a new topic, and return how many segments a pass removes of it."""
    with open_store(root, "a", config) as store:
        store.create_topic("events")
        store.log("events").append(Record(timestamp_ms=1000, key=b"k", value=b"v"))
        return len(store.run_maintenance().deleted_segments)


def test_maintenance_deletes_nothing_of_a_root_that_kstore_created_unless_that_is_asked_for(tmp_path: Path) -> None:
    assert deleted_by_maintenance(tmp_path / "root") == 0
    assert '"defaults": {\n  "retention_ms": -1\n }' in (tmp_path / "root" / "kstore-topic-settings").read_text()
    assert deleted_by_maintenance(tmp_path / "asked", LogConfig(retention_ms=DAY_MS)) == 1
    assert deleted_by_maintenance(tmp_path / "other", LogConfig(segment_bytes=100)) == 0


def test_a_root_that_kstore_created_keeps_its_rule_when_a_broker_has_used_it(tmp_path: Path) -> None:
    root = tmp_path / "root"
    open_store(root, "a").close()
    (root / "bootstrap.checkpoint").write_bytes(b"")
    assert deleted_by_maintenance(root) == 0


@pytest.mark.parametrize("evidence", ["bootstrap.checkpoint", "__cluster_metadata-0", "meta.properties"])
def test_kafkas_week_holds_in_a_brokers_root(tmp_path: Path, evidence: str) -> None:
    root = tmp_path / "root"
    root.mkdir()
    version = 0 if evidence == "meta.properties" else 1
    write_meta_properties(str(root), MetaProperties(version, "cluster", 1))
    if evidence == "bootstrap.checkpoint":
        (root / evidence).write_bytes(b"")
    elif evidence == "__cluster_metadata-0":
        cluster.write_metadata(root, [cluster.topic("other", T)])
    assert deleted_by_maintenance(root) == 1


def test_nothing_is_deleted_unasked_of_a_root_of_which_nobody_says_who_created_it(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    write_meta_properties(str(root), MetaProperties(1, "cluster", 1))
    assert deleted_by_maintenance(root) == 0


def test_settings_of_the_cluster_hold_for_the_maintenance_of_its_root(root: Path) -> None:
    records = [cluster.topic("t", T), cluster.config("t", "retention.ms", "-1"), cluster.topic("u", U)]
    cluster.write_metadata(root, records)
    (root / "u-0").mkdir()
    write_partition_metadata(str(root / "u-0"), U)
    with open_store(root, "a") as store:
        for topic in ("t", "u"):
            store.log(topic).append(Record(timestamp_ms=1000, key=b"k", value=b"v"))
        assert [one.topic for one in store.run_maintenance().deleted_segments] == ["u"]


def test_maintenance_deletes_nothing_while_the_metadata_of_the_cluster_is_damaged(root: Path) -> None:
    directory = cluster.write_metadata(root, [cluster.topic("t", T)])
    flip_bit(directory / f"{0:020d}.log", 70, bit=1)
    with open_store(root, "a") as store:
        store.log("t").append(Record(timestamp_ms=1000, key=b"k", value=b"v"))
        report = store.run_maintenance()
        assert report.deleted_segments == {}
        assert [type(error) for error in report.failures.values()] == [CorruptCheckpointError]


@pytest.mark.parametrize("never", [-1, None])
def test_never_is_said_by_minus_one_and_by_none(tmp_path: Path, never: int | None) -> None:
    with open_store(tmp_path / "root", "a", LogConfig(retention_ms=1)) as store:
        store.create_topic("t")
        assert store.change_topic_config("t", {"retention_ms": never, "retention_bytes": never}).retention_ms == -1
        store.create_topic("u", config={"retention_ms": never})
        assert store.topic_config("u").retention_ms == -1
    assert LogConfig(retention_ms=never).retention_ms == -1  # type: ignore[arg-type]
    with open_store(tmp_path / "root", "a", LogConfig(retention_ms=1)) as store:
        assert store.topic_config("t").retention_ms == -1


def test_a_limit_is_kept_with_the_policy_by_which_it_was_asked_for(tmp_path: Path) -> None:
    root = tmp_path / "root"
    with open_store(root, "a", LogConfig(cleanup_policy="compact")) as store:
        store.create_topic("t", config={"retention_ms": 1})
    with open_store(root, "a") as store:
        assert store.topic_config("t").cleanup_policy == "compact"


def test_a_partition_that_open_log_makes_takes_over_no_settings_of_a_topic_that_is_gone(tmp_path: Path) -> None:
    root = tmp_path / "root"
    open_store(root, "a").close()
    write_settings(str(root), SettingsFile({"t": {"retention_ms": 1}, "u": {"retention_ms": 2}}), DEFAULT_ENV)
    open_log(root / "t-0", "a").close()
    assert known(root).of("t").settings == {}
    write_settings(str(root), SettingsFile({"t": {"retention_ms": 3}, "u": {"retention_ms": 2}}), DEFAULT_ENV)
    open_log(root / "t-1", "a").close()
    assert known(root).of("t").settings == {"retention_ms": 3}
    assert known(root).of("u").settings == {"retention_ms": 2}
