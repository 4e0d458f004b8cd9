"""Goal: `kstore topics`, `configs`, `delete-records`, `delete-topic` and `move` do to a root what a broker would, only
where they know whose it is, and nothing in a dry run.
Method: roots that kstore writes, some with the metadata of a cluster; the files before and after."""

from __future__ import annotations

import json
import shutil
import uuid

import pytest

from kstore import Record, open_log, open_store
from kstore.config import LogConfig
from kstore.env import DEFAULT_ENV as LOCAL
from kstore.errors import LogLockedError, StorageError
from kstore.log.files.names import TOPIC_SETTINGS, find_partition
from kstore.log.files.root_files import id_text
from kstore.store.settings.file import read_settings
from kstore.store.upkeep.moving import move_partition
from kstore.types import TopicPartition
from tests.cli.runner import runner
from tests.making.cluster import config, topic, write_metadata

ID = uuid.UUID(int=300)
T0 = TopicPartition("t", 0)


@pytest.fixture
def kstore(monkeypatch, capsysbinary):
    return runner(monkeypatch, capsysbinary)


@pytest.fixture
def root(tmp_path):
    with open_store(tmp_path / "root", "a", cluster_id="c" * 22) as store:
        store.create_topic("t", 2, config={"segment_bytes": 200, "retention_ms": 7}, topic_id=ID)
        store.create_topic("u")
        log = store.log("t")
        for offset in range(20):
            log.append(Record(offset=0, timestamp_ms=0, value=b"%060d" % offset))
    return tmp_path / "root"


@pytest.fixture
def brokers_root(root):
    write_metadata(root, [topic("t", ID), config("t", "retention.ms", "9")])
    return root


def content(directory):
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


def records(directory):
    with open_log(directory) as log:
        return [(record.offset, record.value) for record in log.read()]


# Topics


def test_topics_are_listed_with_ids_and_settings(kstore, root):
    run = kstore("topics", root, "--json")
    assert [found["topic"] for found in run.objects()] == ["t", "u"]
    first = run.objects()[0]
    assert (first["partitions"], first["cluster"]) == ([0, 1], None)
    assert first["settings"] == {"cleanup.policy": "delete", "retention.ms": "7", "segment.bytes": "200"}
    assert "retention.ms=7" in kstore("topics", root, "--topic", "t").out
    run = kstore("topics", root, "--topic", "tt")
    assert (run.status, "did you mean t?" in run.err) == (2, True)


def test_topics_say_what_the_cluster_knows_of_them(kstore, brokers_root):
    assert [found["cluster"] for found in kstore("topics", brokers_root, "--json").objects()] == ["same", "missing"]
    write_metadata(brokers_root, [topic("t", uuid.UUID(int=301))])
    assert kstore("topics", brokers_root, "--json", "--topic", "t").objects()[0]["cluster"] == "another id"


def test_a_topic_is_created_with_settings_and_an_id(kstore, root):
    made = kstore(
        "topics", root, "--create", "new", "--partitions", 3, "--config", "cleanup.policy=delete, compact",
        "--config", "preallocate=false", "--id", "AAAAAAAAAAAAAAAAAAABLQ", "--json",
    )  # fmt: skip
    assert (made.status, made.objects()[0]["partitions"]) == (0, [0, 1, 2])
    with open_store(root) as store:
        assert [number for name, number in store.partitions if name == "new"] == [0, 1, 2]
        assert store.topic_id("new") == uuid.UUID(int=301)
    assert (
        kstore("topics", root, "--json", "--topic", "new").objects()[0]["settings"]["cleanup.policy"]
        == "delete,compact"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--create", "t"), "already exists"),
        (("--create", "a/b"), "a topic name has"),
        (("--create", "n", "--config", "retention.mss=1"), "did you mean retention.ms?"),
        (("--create", "n", "--config", "retention_ms=1"), "did you mean retention.ms?"),
        (("--create", "n", "--config", "retention.ms=x"), "retention.ms must be a whole number, got 'x'"),
        (("--create", "n", "--config", "preallocate=1"), "preallocate must be true or false"),
        (("--create", "n", "--config", "segment.bytes=1"), "segment.bytes must be from 14"),
        (("--create", "n", "--config", "min.insync.replicas=2"), "it is about replication"),
        (("--create", "n", "--config", "x"), "NAME=VALUE"),
        (("--create", "n", "--id", "x"), "an id must be"),
        (("--create", "n", "--alter", "t"), "two commands"),
        (("--alter", "t"), "needs --partitions"),
        (("--alter", "t", "--partitions", 1), "has 2 partitions already"),
        (("--alter", "x", "--partitions", 1), "no topic x"),
        (("--partitions", 1), "are for --create"),
    ],
)
@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_a_topic_that_cannot_be_made_is_wrong_use_and_changes_nothing(kstore, root, arguments, message, dry):
    before = content(root)
    run = kstore("topics", root, *arguments, *dry)
    assert (run.status, run.out) == (2, "")
    assert message in run.err
    if dry:
        assert content(root) == before
    assert kstore("topics", root).out.count("\n") == 3


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_a_topic_that_differs_from_another_only_by_dots_and_underscores_is_refused(kstore, root, dry):
    assert kstore("topics", root, "--create", "w.x_y").status == 0
    run = kstore("topics", root, "--create", "w_x.y", *dry)
    assert (run.status, run.out) == (2, "")
    assert "'w_x.y' collides with 'w.x_y'" in run.err
    assert kstore("topics", root, "--create", "w-x.y", *dry).status == 0


def test_partitions_are_added_with_the_id_of_the_topic(kstore, root):
    before = content(root)
    dry = kstore("topics", root, "--alter", "t", "--partitions", 4, "--dry-run", "--json")
    (added,) = dry.objects()
    assert added == {"topic": "t", "action": "add partitions", "existed": True, "partitions": [2, 3], "dry_run": True}
    assert content(root) == before
    assert kstore("topics", root, "--alter", "t", "--partitions", 4).status == 0
    assert (root / "t-3" / "partition.metadata").read_bytes() == (root / "t-0" / "partition.metadata").read_bytes()


def test_a_topic_is_deleted_with_its_settings(kstore, root):
    before = content(root)
    assert kstore("delete-topic", root, "--topic", "t", "--dry-run").status == 0
    assert content(root) == before
    run = kstore("delete-topic", root, "--topic", "t", "--json")
    assert (run.status, run.objects()[0]["partitions"]) == (0, [0, 1])
    assert not [name for name in content(root) if name.startswith("t-")]
    assert kstore("configs", root, "--json").objects() == []
    assert kstore("delete-topic", root, "--topic", "t").status == 2


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("topics", "--create", "t", "--if-not-exists", "--partitions", 9), "topic t is already in"),
        (("topics", "--alter", "none", "--partitions", 4, "--if-exists"), "topic none is not in"),
        (("delete-topic", "--topic", "none", "--if-exists"), "topic none is not in"),
    ],
)
def test_a_topic_is_left_alone_on_a_condition(kstore, root, arguments, said, dry):
    before = content(root)
    run = kstore(arguments[0], root, *arguments[1:], *dry)
    assert (run.status, run.out, content(root)) == (0, "", before)
    assert said in run.err


@pytest.mark.parametrize("dry", [[], ["--dry-run"]], ids=["", "dry"])
def test_a_topic_that_is_left_alone_has_the_json_object_of_one_that_is_not(kstore, root, dry):
    def printed(*arguments):
        (found,) = kstore(*arguments, *dry, "--json").objects()
        return found

    common = {"topic": "t", "existed": True, "dry_run": bool(dry)}
    created = printed("topics", root, "--create", "t", "--if-not-exists", "--partitions", 9)
    assert created == {
        **common,
        "action": "create",
        "id": id_text(ID),
        "partitions": [0, 1],
        "settings": {"segment.bytes": "200", "retention.ms": "7", "cleanup.policy": "delete"},
    }
    assert created.keys() == printed("topics", root, "--create", "new").keys()
    none = {**common, "topic": "none", "existed": False, "partitions": []}
    altered = printed("topics", root, "--alter", "none", "--partitions", 4, "--if-exists")
    assert altered == {**none, "action": "add partitions"}
    assert altered.keys() == printed("topics", root, "--alter", "t", "--partitions", 4).keys()
    deleted = printed("delete-topic", root, "--topic", "none", "--if-exists")
    assert deleted == {**none, "action": "delete", "id": None, "size_in_bytes": 0}
    assert deleted.keys() == printed("delete-topic", root, "--topic", "t").keys()


def test_a_condition_that_holds_changes_nothing_of_the_command(kstore, root):
    assert kstore("topics", root, "--create", "n", "--if-not-exists").status == 0
    assert kstore("topics", root, "--alter", "n", "--partitions", 3, "--if-exists").status == 0
    assert kstore("delete-topic", root, "--topic", "n", "--if-exists", "--json").objects()[0]["partitions"] == [0, 1, 2]


@pytest.mark.parametrize(
    "arguments", [("--create", "n", "--if-exists"), ("--alter", "t", "--if-not-exists"), ("--if-exists",)]
)
def test_a_condition_of_another_command_is_wrong_use(kstore, root, arguments):
    assert kstore("topics", root, *arguments).status == 2


@pytest.mark.parametrize(
    ("arguments", "consequence"),
    [
        (("topics", "--create", "n"), "-stray"),
        (("topics", "--alter", "t", "--partitions", 4), "-stray"),
        (("delete-topic", "--topic", "t"), "makes the partitions again, empty"),
        (("configs", "--topic", "t", "--set", "retention.ms=8"), "brokers ignore kstore-topic-settings"),
    ],
)
def test_what_a_clusters_metadata_would_contradict_needs_force(kstore, brokers_root, arguments, consequence):
    command, *options = arguments
    before = content(brokers_root)
    run = kstore(command, brokers_root, *options)
    assert run.status == 2
    assert consequence in run.err
    assert "--force" in run.err
    assert content(brokers_root) == before
    run = kstore(command, brokers_root, *options, "--force")
    assert run.status == 0
    assert consequence in run.err
    assert content(brokers_root) != before


def test_a_root_that_kstore_did_not_make_needs_force(kstore, root):
    (root / "kstore-topic-settings").unlink()
    run = kstore("delete-topic", root, "--topic", "t")
    assert (run.status, "kstore did not make it" in run.err) == (2, True)


def test_nothing_is_made_in_a_directory_that_is_no_root(kstore, tmp_path):
    assert kstore("topics", tmp_path / "no", "--create", "n").status == 2
    assert not (tmp_path / "no").exists()
    (tmp_path / "file").write_text("x")
    run = kstore("topics", tmp_path, "--create", "n")
    assert (run.status, "is not a log.dirs root" in run.err) == (2, True)
    (tmp_path / "new").mkdir()
    assert kstore("topics", tmp_path / "new", "--create", "n").status == 0


def test_a_root_that_is_open_is_left_alone(kstore, root):
    with open_store(root, "a"):
        for arguments in (
            ("topics", root, "--create", "n"),
            ("delete-topic", root, "--topic", "t"),
            ("configs", root, "--topic", "t", "--set", "retention.ms=8"),
            ("delete-records", root, "--topic", "t", "--partition", 0, "--before", 1),
        ):
            run = kstore(*arguments)
            assert run.status != 0
            assert "writes there" in run.err


# Configs


def by_name(run):
    return {setting["name"]: setting for setting in run.objects()}


def test_configs_say_who_says_them(kstore, brokers_root):
    found = {
        setting["name"]: setting for setting in kstore("configs", brokers_root, "--topic", "t", "--json").objects()
    }
    assert found["retention.ms"]["value"] == "7"
    assert "kstore-topic-settings" in found["retention.ms"]["source"]
    kstore("configs", brokers_root, "--topic", "t", "--unset", "retention.ms", "--force")
    found = {
        setting["name"]: setting for setting in kstore("configs", brokers_root, "--topic", "t", "--json").objects()
    }
    assert (found["retention.ms"]["value"], found["retention.ms"]["source"]) == ("9", "__cluster_metadata")


def test_all_settings_that_the_cluster_has_are_shown(kstore, brokers_root):
    told = [config("t", name, value) for name, value in (("segment.bytes", "8"), ("max.message.bytes", "70"))]
    write_metadata(brokers_root, [topic("t", ID), *told, config("t", "min.insync.replicas", "2")])
    found = by_name(kstore("configs", brokers_root, "--topic", "t", "--json"))
    assert {name: (one["value"], one["source"], one["is_default"]) for name, one in found.items()} == {
        "cleanup.policy": ("delete", "kstore-topic-settings of its root", False),
        "max.message.bytes": ("70", "__cluster_metadata", False),
        "min.insync.replicas": ("2", "__cluster_metadata", False),
        "retention.ms": ("7", "kstore-topic-settings of its root", False),
        "segment.bytes": ("200", "kstore-topic-settings of its root", False),
    }
    (shown,) = kstore("topics", brokers_root, "--topic", "t", "--json").objects()
    assert (shown["settings"]["min.insync.replicas"], shown["settings"]["segment.bytes"]) == ("2", "200")
    write_metadata(brokers_root, [topic("t", uuid.UUID(int=9)), *told])
    assert "max.message.bytes" not in by_name(kstore("configs", brokers_root, "--topic", "t", "--json"))


def test_defaults_are_shown_on_request(kstore, root):
    assert kstore("configs", root, "--topic", "u", "--json").objects() == []
    found = {
        setting["name"]: setting for setting in kstore("configs", root, "--topic", "u", "--all", "--json").objects()
    }
    assert (found["retention.ms"]["value"], found["retention.ms"]["source"]) == ("-1", "the default of the root")
    assert (found["preallocate"]["value"], found["preallocate"]["is_default"]) == ("false", True)


def test_configs_are_set_and_unset(kstore, root):
    before = content(root)
    assert kstore("configs", root, "--topic", "t", "--set", "retention.ms=0", "--dry-run").status == 0
    assert content(root) == before
    run = kstore("configs", root, "--topic", "t", "--set", "retention.ms=0", "--set", "segment.ms=5", "--json")
    assert {setting["name"]: setting["value"] for setting in run.objects()}["retention.ms"] == "0"
    with open_store(root, "a") as store:
        assert (store.topic_config("t").retention_ms, store.topic_config("t").segment_ms) == (0, 5)
    assert kstore("configs", root, "--topic", "t", "--unset", "retention.ms").status == 0
    with open_store(root, "a") as store:
        assert (store.topic_config("t").retention_ms, store.topic_config("t").segment_ms) == (-1, 5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--topic", "t", "--set", "retention.ms=-2"), "retention.ms must be from -1"),
        (("--topic", "t", "--set", "min.compaction.lag.ms=9", "--set", "max.compaction.lag.ms=8"), "must not be above"),
        (("--topic", "t", "--set", "cleanup.policy=none"), "cleanup.policy must be one of"),
        (("--topic", "t", "--unset", "retention.m"), "did you mean retention.ms?"),
        (("--topic", "t", "--set", "retention.ms=1", "--unset", "retention.ms"), "both set and unset"),
        (("--topic", "x", "--set", "retention.ms=1"), "no topic x"),
        (("--set", "retention.ms=1"), "need one --topic"),
    ],
)
@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_a_setting_that_cannot_be_is_wrong_use(kstore, root, arguments, message, dry):
    before = (root / "kstore-topic-settings").read_bytes()
    run = kstore("configs", root, *arguments, *dry)
    assert run.status == 2
    assert message in run.err
    assert (root / "kstore-topic-settings").read_bytes() == before


# Records


def test_records_below_an_offset_are_deleted_and_the_checkpoint_says_so(kstore, root):
    before = content(root)
    arguments = ("delete-records", root, "--topic", "t", "--partition", 0, "--before", 7, "--json")
    (planned,) = kstore(*arguments, "--dry-run").objects()
    assert content(root) == before
    (done,) = kstore(*arguments).objects()
    assert {**done, "dry_run": True} == planned
    assert (done["earlier_log_start_offset"], done["log_start_offset"], done["segments"]) == (0, 7, 7)
    assert [offset for offset, _ in records(root / "t-0")] == list(range(7, 20))
    assert "t 0 7" in (root / "log-start-offset-checkpoint").read_text()
    (again,) = kstore("delete-records", root, "--topic", "t", "--partition", 0, "--before", 3, "--json").objects()
    assert (again["log_start_offset"], again["segments"]) == (7, 0)


def test_all_records_are_deleted_up_to_the_high_watermark(kstore, root):
    assert kstore("delete-records", root, "--topic", "t", "--partition", 0, "--before", -1).status == 0
    with open_log(root / "t-0") as log:
        assert (log.log_start_offset, log.log_end_offset) == (20, 20)


def test_records_above_the_high_watermark_cannot_be_deleted(kstore, root):
    before = content(root)
    run = kstore("delete-records", root, "--topic", "t", "--partition", 0, "--before", 21)
    assert (run.status, "high watermark 20, got 21" in run.err) == (2, True)
    assert content(root) == before


def test_records_of_a_file_are_deleted_all_or_none_at_first(kstore, root, tmp_path):
    def file(*entries, version=1):
        path = tmp_path / "records.json"
        partitions = [{"topic": name, "partition": number, "offset": offset} for name, number, offset in entries]
        path.write_text(json.dumps({"partitions": partitions, "version": version}))
        return path

    before = content(root)
    assert kstore("delete-records", root, "--from-file", file(("t", 0, 5), ("t", 1, 1))).status == 2
    assert kstore("delete-records", root, "--from-file", file(("t", 0, 5), ("x", 0, 0))).status == 2
    assert kstore("delete-records", root, "--from-file", file(("t", 0, 5), ("t", 0, 6))).status == 2
    assert kstore("delete-records", root, "--from-file", file(version=2)).status == 2
    assert content(root) == before
    run = kstore("delete-records", root, "--from-file", file(("t", 0, 5), ("t", 1, -1)), "--json")
    assert [done["log_start_offset"] for done in run.objects()] == [5, 0]


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"partitions":[{}]}', '{"partitions":[{"topic":"t","partition":true,"offset":1}]}', "\xff"],
)
def test_a_file_that_is_none_says_what_is_expected(kstore, root, tmp_path, text):
    (tmp_path / "f").write_text(text, encoding="latin-1")
    run = kstore("delete-records", root, "--from-file", tmp_path / "f")
    assert (run.status, run.err.count('expected {"partitions"')) == (2, 1)


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_records_of_a_compacted_topic_are_not_deleted(kstore, root, dry):
    with open_store(root, "a") as store:
        store.create_topic("__consumer_offsets", 1)
        store.log("__consumer_offsets").append(Record(offset=0, timestamp_ms=0, key=b"", value=b""))
    before = content(root)
    run = kstore("delete-records", root, "--topic", "__consumer_offsets", "--partition", 0, "--before", -1, *dry)
    assert (run.status, run.out) == (2, "")
    assert "its cleanup policy is compact" in run.err
    assert content(root) == before


# Moves


@pytest.fixture
def other(tmp_path):
    with open_store(tmp_path / "other", "a", cluster_id="c" * 22):
        pass
    return tmp_path / "other"


def test_a_partition_is_moved_with_its_offsets_and_files(kstore, root, other):
    kstore("delete-records", root, "--topic", "t", "--partition", 0, "--before", 7)
    kept, elsewhere = content(root / "t-0"), content(root / "t-1")
    before = content(root), content(other)
    arguments = ("move", root, "--topic", "t", "--partition", 0, "--to", other, "--json")
    assert kstore(*arguments, "--dry-run").status == 0
    assert (content(root), content(other)) == before
    (moved,) = kstore(*arguments).objects()
    assert (moved["from"], moved["to"]) == (str(root / "t-0"), str(other / "t-0"))
    assert {name: data for name, data in content(other / "t-0").items() if name.endswith((".log", "metadata"))} == {
        name: data for name, data in kept.items() if name.endswith((".log", "metadata"))
    }
    assert [offset for offset, _ in records(other / "t-0")] == list(range(7, 20))
    assert sorted(path.name for path in root.iterdir() if path.is_dir()) == ["t-1", "u-0"]
    assert content(root / "t-1") == elsewhere
    for name, offset in (("log-start-offset-checkpoint", 7), ("recovery-point-offset-checkpoint", 20)):
        assert "t 0" not in (root / name).read_text()
        assert f"t 0 {offset}\n" in (other / name).read_text()
    with open_store(other, "a") as store:
        assert store.recovery_reports == {}
        assert store.log("t").append(Record(offset=0, timestamp_ms=0, value=b"on")).base_offset == 20


def test_the_settings_of_a_topic_move_with_its_partitions(kstore, root, other):
    with open_store(root) as store:
        before = store.topics
    assert before == ("t", "u")
    moved = ("--to", other, "--topic", "t", "--partition")
    for number in (0, 1):
        assert kstore("move", root, *moved, number, "--dry-run").status == 0
        assert ("t" in read_settings(str(other), LOCAL).changed) == bool(number)
        assert kstore("move", root, *moved, number).status == 0
        assert read_settings(str(other), LOCAL).changed["t"] == {
            "cleanup_policy": "delete",
            "retention_ms": 7,
            "segment_bytes": 200,
        }
        assert ("t" in read_settings(str(root), LOCAL).changed) == (number == 0)
    with open_store(other, "a") as store:
        assert store.overridden_topic_config("t") == {"retention_ms": 7, "segment_bytes": 200}
        assert (store.topic_config("t").retention_ms, store.topic_config("t").segment_bytes) == (7, 200)


def test_what_a_root_keeps_for_ever_by_default_stays_in_a_brokers_root(kstore, root, other):
    (other / TOPIC_SETTINGS).unlink()
    write_metadata(other, [topic("u", ID)])
    assert kstore("move", root, "--topic", "u", "--to", other).status == 0
    assert read_settings(str(other), LOCAL).changed == {"u": {"retention_ms": -1}}


def test_a_partition_is_not_moved_to_other_settings_of_its_topic(kstore, root, other):
    with open_store(other, "a") as store:
        store.create_topic("t", 3, config={"retention_ms": 8})
        directories = [path for path in other.iterdir() if path.name in ("t-0", "t-1")]
    for path in directories:
        shutil.rmtree(path)
    before = content(root), content(other)
    for dry in (["--dry-run"], []):
        run = kstore("move", root, "--topic", "t", "--partition", 0, "--to", other, *dry)
        assert (run.status, run.out) == (2, "")
        assert "has other settings of topic t" in run.err
    assert (content(root), content(other)) == before


@pytest.mark.parametrize("failing", range(1, 40, 3))
def test_a_move_that_fails_leaves_the_partition_whole_and_a_second_one_ends_it(root, other, monkeypatch, failing):
    env = type(find_partition(root / "t-0").env)
    wanted, count = records(root / "t-0"), 0

    def counted(name):
        made = getattr(env, name)

        def call(self, *arguments, **options):
            nonlocal count
            count += 1
            if count == failing:
                raise StorageError("no more", path=arguments[0])
            return made(self, *arguments, **options)

        return call

    directory = find_partition(root / "t-0")
    with monkeypatch.context() as patch:
        for name in ("rename", "sync_directory", "open_write", "make_directory", "unlink"):
            patch.setattr(env, name, counted(name))
        try:
            move_partition(directory, other)
        except StorageError:
            assert count >= failing
    whole = [place for place in (root, other) if (place / "t-0").exists()]
    assert whole
    assert all(records(place / "t-0") == wanted for place in whole)
    if root in whole:
        move_partition(find_partition(root / "t-0"), other)
    assert records(other / "t-0") == wanted
    assert not (root / "t-0").exists()
    assert not [path.name for path in other.iterdir() if path.name.endswith("-future")]


@pytest.mark.parametrize(
    "case", ["same", "missing", "no root", "another cluster", "another partition", "no name", "metadata"]
)
def test_a_move_that_is_none_is_wrong_use(kstore, root, other, tmp_path, case):
    arguments = ["--topic", "t", "--partition", "0"]
    target = {"same": root, "missing": tmp_path / "no"}.get(case, other)
    if case == "no root":
        (tmp_path / "empty").mkdir()
        target = tmp_path / "empty"
    elif case == "another cluster":
        (other / "meta.properties").write_text("version=1\ncluster.id=x\nnode.id=1\n")
    elif case == "another partition":
        with open_log(other / "t-0", "a", LogConfig()) as log:
            log.append(Record(offset=0, timestamp_ms=0, value=b"another"))
    elif case == "no name":
        arguments = []
    elif case == "metadata":
        write_metadata(root, [topic("t", ID)])
        arguments = ["--topic", "__cluster_metadata"]
    before = content(root)
    run = kstore("move", root, *arguments, "--to", target)
    assert run.status != 0
    assert content(root) == before
    assert (root / "t-0").exists()


def test_a_partition_that_is_written_is_not_moved(root, other):
    with open_log(root / "t-0", "a"), pytest.raises(LogLockedError):
        move_partition(find_partition(root / "t-0"), other)
    assert records(root / "t-0")


@pytest.mark.parametrize("case", ["target leads to source", "source leads to target", "root by another name"])
def test_a_move_through_a_link_keeps_the_only_copy(kstore, root, other, tmp_path, case):
    wanted, target = records(root / "t-0"), other
    if case == "target leads to source":
        (other / "t-0").symlink_to(root / "t-0")
    elif case == "source leads to target":
        (root / "t-0").rename(other / "t-0")
        (root / "t-0").symlink_to(other / "t-0")
    else:
        target = tmp_path / "link"
        target.symlink_to(root)
    run = kstore("move", root, "--topic", "t", "--partition", 0, "--to", target)
    assert run.status != 0
    assert ("is in" if case == "root by another name" else "found a link or file") in run.err
    assert records(root / "t-0") == wanted
