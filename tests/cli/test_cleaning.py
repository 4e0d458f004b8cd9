"""Goal: `kstore compact` and `kstore retention` do what the log's methods do, and say so; a dry run changes nothing.
Method: roots that kstore writes; the output compared, the files listed before and after."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from kstore import LogConfig, open_log, open_store
from kstore.env import DEFAULT_ENV
from kstore.record import Record
from kstore.store.settings.file import read_settings, write_settings
from tests.cli.runner import runner
from tests.making.batches import flip_bit

DAY_MS = 24 * 60 * 60 * 1000


@pytest.fixture
def kstore(monkeypatch, capsysbinary):
    return runner(monkeypatch, capsysbinary)


@pytest.fixture
def root(tmp_path):
    """t-0 has three segments, two of them ten days old; in each the same two keys."""
    now_ms = time.time_ns() // 10**6
    with open_store(tmp_path / "logs", "a", LogConfig(segment_ms=2**62)) as store:
        store.create_topic("t")
        store.create_topic("u")
        log = store.log("t")
        for age_days in (10, 10, 0):
            log.roll()
            for key in (b"a", b"b"):
                log.append(Record(timestamp_ms=now_ms - age_days * DAY_MS, key=key, value=b"v" * 50))
    return tmp_path / "logs"


def tree(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file() and path.name != ".lock"}


def test_compact_removes_what_has_a_newer_record(kstore, root):
    run = kstore("compact", root, "--topic", "t", "--json")
    assert (run.status, run.err) == (0, "")
    (shown,) = run.objects()
    assert {name: shown[name] for name in ("topic", "partition", "log_start_offset", "log_end_offset")} == {
        "topic": "t",
        "partition": 0,
        "log_start_offset": 0,
        "log_end_offset": 6,
    }
    assert (shown["clean_offset"], shown["records_read"], shown["records_kept"], shown["rounds"]) == (4, 4, 2, 1)
    assert shown["bytes_after"] < shown["bytes_before"]
    with open_log(root / "t-0") as log:
        assert [record.offset for record in log.read()] == [2, 3, 4, 5]


def test_compact_can_roll_first_and_shows_a_table(kstore, root):
    run = kstore("compact", root, "--topic", "t", "--roll")
    assert run.status == 0
    columns = "topic partition log start log end clean to records read records kept bytes before bytes after"
    assert " ".join(run.out.splitlines()[0].split()) == columns
    assert run.out.splitlines()[1].split()[:7] == ["t", "0", "0", "6", "6", "6", "2"]
    with open_log(root / "t-0") as log:
        assert [record.offset for record in log.read()] == [4, 5]
    assert (root / ".kafka_cleanshutdown").exists()


def test_compact_heeds_a_dirty_ratio(kstore, root):
    run = kstore("compact", root, "--topic", "t", "--min-dirty-ratio", "1", "--json")
    assert [one["rounds"] for one in run.objects()] == [0]


def test_compact_refuses_damage_and_goes_on(kstore, root):
    flip_bit(root / "t-0" / "00000000000000000000.log", 70, bit=0)
    run = kstore("compact", root, "--topic", "t", "--topic", "u", "--json")
    assert run.status == 1
    assert [one["topic"] for one in run.objects()] == ["u"]
    assert "CRC mismatch" in run.err


def test_retention_removes_what_is_due(kstore, root):
    run = kstore("retention", root, "--topic", "t", "--retention-ms", str(DAY_MS), "--json")
    assert run.status == 0
    assert [(one["topic"], one["base_offset"], one["end_offset"], one["reason"]) for one in run.objects()] == [
        ("t", 0, 2, "time"),
        ("t", 2, 4, "time"),
    ]
    assert [path.name for path in sorted((root / "t-0").glob("*.log*"))] == ["00000000000000000004.log"]


def test_a_dry_run_of_retention_changes_nothing(kstore, root):
    before = tree(root)
    run = kstore("retention", root, "--topic", "t", "--retention-bytes", "0", "--dry-run")
    assert run.status == 0
    assert [line.split()[:3] for line in run.out.splitlines()[1:]] == [
        ["t", "0", "0"],
        ["t", "0", "2"],
        ["t", "0", "4"],
    ]
    assert "dry run: nothing was changed" in run.err
    assert tree(root) == before


def test_retention_without_limits_removes_nothing(kstore, root):
    before = tree(root)
    run = kstore("retention", root)
    assert (run.status, run.out) == (0, "")
    assert "no segment is due" in run.err
    assert {path: data for path, data in tree(root).items() if path.suffix == ".log"} == {
        path: data for path, data in before.items() if path.suffix == ".log"
    }


@pytest.fixture
def internal(tmp_path):
    """A root with topics of brokers; in each three old records of one key."""
    root = tmp_path / "internal"
    with open_store(root, "a", LogConfig(segment_ms=2**62)) as store:
        for topic in ("__consumer_offsets", "__transaction_state", "__share_group_state"):
            store.create_topic(topic)
            for _ in range(3):
                store.log(topic).append(Record(timestamp_ms=1000, key=b"a", value=b"v"))
                store.log(topic).roll()
    return root


def test_compaction_of_a_root_includes_the_internal_topics_that_brokers_compact(kstore, internal):
    run = kstore("compact", internal, "--json")
    assert run.status == 0
    compacted = {one["topic"] for one in run.objects() if "records_kept" in one}
    assert compacted == {"__consumer_offsets", "__transaction_state"}
    assert kept(internal, "__consumer_offsets") == kept(internal, "__transaction_state") == [2]
    assert kept(internal, "__share_group_state") == [0, 1, 2]


def test_retention_removes_nothing_of_internal_topics_unless_they_are_named(kstore, internal):
    assert kstore("retention", internal, "--retention-ms", "1").status == 0
    assert kept(internal, "__consumer_offsets") == kept(internal, "__share_group_state") == [0, 1, 2]
    assert kstore("retention", internal, "--topic", "__consumer_offsets", "--retention-ms", "1").status == 0
    assert kept(internal, "__consumer_offsets") == []


@pytest.fixture
def settled(tmp_path):
    """A root that keeps settings: `state` is compacted, `events` is not, and both hold two old records of one key."""
    with open_store(tmp_path / "settled", "a", LogConfig(segment_ms=2**62)) as store:
        store.create_topic("state", config=LogConfig(cleanup_policy="compact", segment_ms=2**62))
        store.create_topic("events", config=LogConfig(retention_ms=2**62, segment_ms=2**62))
        store.create_topic("plain")
        for topic in ("state", "events", "plain"):
            for _ in range(2):
                store.log(topic).append(Record(timestamp_ms=1000, key=b"a", value=b"v"))
                store.log(topic).roll()
    return tmp_path / "settled"


def kept(root: Path, topic: str) -> list[int]:
    with open_log(root / f"{topic}-0") as log:
        return [record.offset for record in log.read()]


@pytest.mark.parametrize("options", [[], ["--dry-run"]])
def test_retention_goes_by_the_settings_that_the_root_keeps(kstore, settled, options):
    with open_store(settled, "a") as store:
        store.change_topic_config("events", {"retention_ms": 1})
    run = kstore("retention", settled, "--retention-ms", "2", "--json", *options)
    assert run.status == 0
    assert {one["topic"] for one in run.objects() if "reason" in one} == {"events"}
    assert {one["topic"]: one["partition"] for one in run.objects() if "passed_over" in one} == {"state": 0, "plain": 0}
    assert "passed over state: its cleanup policy is compact by kstore-topic-settings of its root" in run.err
    assert "passed over plain: its cleanup policy is not known" in run.err
    assert "to remove by the given limits: --topic plain" in run.err
    remaining = [[0, 1], [0, 1] if options else [], [0, 1]]
    assert [kept(settled, topic) for topic in ("state", "events", "plain")] == remaining


def test_a_limit_that_is_given_does_not_hold_for_a_topic_that_is_not_named(kstore, settled):
    with open_store(settled, "a", LogConfig(cleanup_policy="compact")) as store:
        store.change_topic_config("plain", {"cleanup_policy": "delete"})
    run = kstore("retention", settled, "--retention-ms", "1")
    assert run.status == 0
    assert "passed over plain: no limit of its age or size is known" in run.err
    assert kept(settled, "plain") == [0, 1]


def test_retention_removes_by_the_kept_limits_alone(kstore, settled):
    with open_store(settled, "a") as store:
        store.change_topic_config("events", {"retention_ms": 1})
    assert kstore("retention", settled).status == 0
    assert [kept(settled, topic) for topic in ("state", "events", "plain")] == [[0, 1], [], [0, 1]]


@pytest.mark.parametrize("topic", ["state", "events"])
def test_retention_of_a_topic_that_is_named_goes_by_the_options(kstore, settled, topic):
    assert kstore("retention", settled, "--topic", topic, "--retention-ms", "1").status == 0
    assert kept(settled, topic) == []


def test_retention_of_a_partition_directory_goes_by_the_options(kstore, settled):
    assert kstore("retention", settled / "state-0", "--retention-ms", "1").status == 0
    assert kept(settled, "state") == []


def test_retention_of_a_compacted_topic_that_is_named_without_limits_removes_nothing(kstore, settled):
    with open_store(settled, "a") as store:
        store.change_topic_config("state", {"retention_ms": 1})
    assert kstore("retention", settled, "--topic", "state").status == 0
    assert kept(settled, "state") == [0, 1]


def test_compact_passes_over_a_topic_that_the_root_does_not_say_is_compacted(kstore, settled):
    run = kstore("compact", settled, "--json")
    assert [one["topic"] for one in run.objects() if "records_kept" in one] == ["state"]
    assert [one["topic"] for one in run.objects() if "passed_over" in one] == ["events", "plain"]
    assert "passed over events: its cleanup policy is delete by kstore-topic-settings of its root" in run.err
    assert [kept(settled, topic) for topic in ("state", "events", "plain")] == [[1], [0, 1], [0, 1]]
    assert kstore("compact", settled, "--topic", "events", "--min-compaction-lag-ms", "0").status == 0
    assert kept(settled, "events") == [1]


def test_compact_heeds_the_kept_lag_unless_the_topic_is_named(kstore, settled):
    with open_store(settled, "a") as store:
        store.change_topic_config("state", {"min_compaction_lag_ms": 2**62})
    assert kstore("compact", settled, "--min-compaction-lag-ms", "0").status == 0
    assert kept(settled, "state") == [0, 1]
    assert kstore("compact", settled, "--topic", "state", "--min-compaction-lag-ms", "0").status == 0
    assert kept(settled, "state") == [1]


@pytest.mark.parametrize("command", ["compact", "retention"])
def test_damaged_settings_end_the_command_unless_all_topics_are_named(kstore, settled, command):
    (settled / "kstore-topic-settings").write_text("{}")
    options = ["--retention-ms", "1"] if command == "retention" else []
    run = kstore(command, settled, *options)
    assert run.status == 1
    assert "kstore-topic-settings" in run.err
    assert [kept(settled, topic) for topic in ("state", "events", "plain")] == [[0, 1]] * 3
    assert kstore(command, settled, "--topic", "plain", *options).status == 0
    assert kept(settled, "plain") != [0, 1]


@pytest.mark.parametrize("command", ["compact", "retention"])
def test_settings_that_do_not_fit_the_options_stop_only_their_topic(kstore, settled, command):
    with open_store(settled, "a") as store:
        for topic in ("events", "plain"):
            changes = {"cleanup_policy": "compact,delete", "retention_ms": 1, "max_compaction_lag_ms": 5}
            store.change_topic_config(topic, changes)
    damage_setting(settled, "events", "min_compaction_lag_ms", 6)
    run = kstore(command, settled)
    assert run.status == 1
    assert "settings of topic 'events'" in run.err
    assert "min_compaction_lag_ms" in run.err
    assert kept(settled, "events") == [0, 1]
    assert kept(settled, "plain") != [0, 1]


@pytest.mark.parametrize("command", ["compact", "retention"])
@pytest.mark.parametrize("policy", [5, ["compact"], None, {}])
def test_a_kept_policy_that_is_none_is_passed_over(kstore, settled, command, policy):
    damage_setting(settled, "state", "cleanup_policy", policy)
    run = kstore(command, settled)
    assert run.status == 0
    assert f"passed over state: its cleanup policy is {policy} by kstore-topic-settings" in run.err
    assert kept(settled, "state") == [0, 1]


def damage_setting(root: Path, topic: str, name: str, value: object) -> None:
    """Set one setting without a check, with a right checksum."""
    file = read_settings(str(root), DEFAULT_ENV)
    file.changed[topic][name] = value
    write_settings(str(root), file, DEFAULT_ENV)


@pytest.fixture
def keyless(tmp_path):
    """A root of which nobody said how its topic is cleaned: fifty records without a key, in two segments."""
    with open_store(tmp_path / "keyless", "a") as store:
        store.create_topic("events")
        for first in (0, 25):
            store.log("events").append([Record(timestamp_ms=1000 + first + at, value=b"hello") for at in range(25)])
            store.log("events").roll()
    return tmp_path / "keyless"


def test_compaction_of_a_root_passes_over_topics_that_are_not_known_to_be_compacted(kstore, keyless):
    before = tree(keyless / "events-0")
    run = kstore("compact", keyless, "--roll", "--drop-keyless", "--json")
    assert run.status == 0
    (shown,) = run.objects()
    assert (shown["topic"], shown["partition"]) == ("events", 0)
    assert shown["passed_over"].startswith("its cleanup policy is not known: the root does not say it")
    assert "passed over events: its cleanup policy is not known" in run.err
    assert tree(keyless / "events-0") == before


@pytest.mark.parametrize("options", [[], ["--dry-run"]])
def test_a_named_topic_with_records_without_a_key_is_refused_and_nothing_goes(kstore, keyless, options):
    run = kstore("compact", keyless, "--topic", "events", "--json", *options)
    assert run.status == 1
    (shown,) = run.objects()
    assert (shown["error"]["type"], shown["error"]["records_without_key"]) == ("KeylessRecordsError", 50)
    assert "would remove 50 records that have no key, the first at offset 0" in run.err
    assert "--topic events --drop-keyless" in run.err
    assert kept(keyless, "events") == list(range(50))


def test_records_without_a_key_go_if_the_topic_is_named_and_the_option_says_so(kstore, keyless):
    assert kstore("compact", keyless, "--topic", "events", "--drop-keyless").status == 0
    assert kept(keyless, "events") == []


def test_a_root_that_says_compact_of_a_topic_keeps_its_records_without_a_key(kstore, keyless):
    with open_store(keyless, "a") as store:
        store.change_topic_config("events", {"cleanup_policy": "compact"})
    assert kstore("compact", keyless, "--drop-keyless").status == 1
    assert kept(keyless, "events") == list(range(50))


@pytest.mark.parametrize("rolls", [[], ["--roll"]])
def test_a_dry_run_of_compact_shows_what_the_run_does_and_changes_nothing(kstore, root, rolls):
    before = tree(root)
    planned = kstore("compact", root, "--topic", "t", "--json", "--dry-run", *rolls)
    assert planned.status == 0
    assert "dry run: nothing was changed" in planned.err
    assert tree(root) == before
    done = kstore("compact", root, "--topic", "t", "--json", *rolls)
    assert planned.objects() == done.objects()
    assert done.objects()[0]["records_kept"] == 2
