"""Goal: `kstore groups` resets and deletes what its options name, as Kafka's tool does, but no group with members.
Method: roots that kstore writes; what is committed afterwards, compared with the plan of the dry run."""

from __future__ import annotations

import pytest

from kstore import (
    Consumer,
    GroupStateError,
    MemoryRecordsBuilder,
    Producer,
    TopicPartition,
    delete_group,
    delete_offsets,
    open_store,
    read_groups,
    reset_offsets,
)
from kstore.log.files.names import TOPIC_SETTINGS
from kstore.record.schemas.topics import coordinator_partition, encode_group_record
from kstore.record.validation import AppendOrigin
from tests.cli.runner import runner

OFFSETS = "__consumer_offsets"
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
START_MS = 1_700_000_000_000


@pytest.fixture
def kstore(monkeypatch, capsysbinary):
    return runner(monkeypatch, capsysbinary)


@pytest.fixture
def root(tmp_path):
    """A topic with offsets 2 to 9 in partition 0, a second apart, and none in partition 1; groups g and h."""
    with open_store(tmp_path / "root", "a") as store:
        store.create_topic("t", 2)
        store.create_topic(OFFSETS, 1)
        builder = MemoryRecordsBuilder()
        for number in range(10):
            builder.append(timestamp_ms=START_MS + 1000 * number, value=b"v")
        store.log("t", 0).append(builder.build())
        store.log("t", 0).delete_records(2)
        for group in ("g", "h"):
            with Consumer(store, group=group, topics=["t"]) as consumer:
                consumer.commit({T0: 5, T1: 0})
    return tmp_path / "root"


def committed(root, name="g"):
    return {
        one: offset.committed.offset
        for group in read_groups(root, groups=[name])
        for one, offset in group.offsets.items()
    }


def write(root, *records):
    builder = MemoryRecordsBuilder()
    for key, value in records:
        builder.append(timestamp_ms=1, key=key, value=value)
    with open_store(root, "a") as store:
        store.log(OFFSETS).append(builder.build(), origin=AppendOrigin.COORDINATOR)


CONSUMER_GROUP = (
    ({"groupId": "new"}, {"epoch": 3, "metadataHash": 0}, 3),
    ({"groupId": "new"}, {"assignmentEpoch": 3}, 6),
)


@pytest.mark.parametrize(
    ("target", "offset"),
    [
        (["--to-earliest"], 2),
        (["--to-latest"], 10),
        (["--to-current"], 5),
        (["--to-offset", 7], 7),
        (["--to-offset", 0], 2),
        (["--to-offset", 99], 10),
        (["--shift-by", 2], 7),
        (["--shift-by", -1], 4),
        (["--shift-by", -99], 2),
        (["--to-datetime", START_MS + 3500], 4),
        (["--to-datetime", START_MS * 2], 10),
        (["--by-duration", "P1D"], 10),
        (["--by-duration", "P20000D"], 2),
    ],
)
def test_offsets_are_reset_to_what_the_option_says(kstore, root, target, offset):
    arguments = ("groups", root, "--group", "g", "--reset", "--topic", "t:0", *target, "--json")
    (planned,) = kstore(*arguments, "--dry-run").objects()
    assert committed(root) == {T0: 5, T1: 0}
    run = kstore(*arguments)
    (written,) = run.objects()
    assert (run.status, planned.pop("written"), written.pop("written")) == (0, False, True)
    assert planned == written
    assert (written["committed"], written["offset"]) == (5, offset)
    assert committed(root) == {T0: offset, T1: 0}
    assert committed(root, "h") == {T0: 5, T1: 0}


def test_an_export_is_what_from_file_reads(kstore, root, tmp_path):
    arguments = ("groups", root, "--group", "g", "--reset")
    out = kstore(*arguments, "--all-topics", "--to-earliest", "--dry-run", "--export").out
    assert out == "t,0,2\nt,1,0\n"
    (tmp_path / "plan.csv").write_text("t,0,3\n\nt,0,4\n")
    assert kstore(*arguments, "--from-file", tmp_path / "plan.csv").status == 0
    assert committed(root) == {T0: 4, T1: 0}
    (tmp_path / "plan.csv").write_text("t,0\n")
    run = kstore(*arguments, "--from-file", tmp_path / "plan.csv")
    assert (run.status, "line 1" in run.err) == (2, True)


def test_a_new_group_is_made_by_a_reset(kstore, root):
    run = kstore("groups", root, "--group", "i", "--reset", "--topic", "t", "--to-latest")
    assert (run.status, "group i is new" in run.err) == (0, True)
    assert committed(root, "i") == {T0: 10, T1: 0}


def test_a_group_is_deleted_with_its_offsets_and_no_other(kstore, root):
    (one,) = kstore("groups", root, "--group", "g", "--delete", "--dry-run", "--json").objects()
    assert (len(one["offsets"]), one["written"], len(committed(root))) == (2, False, 2)
    assert kstore("groups", root, "--group", "g", "--delete").status == 0
    assert [group.group_id for group in read_groups(root)] == ["h"]
    assert kstore("groups", root, "--group", "g", "--delete").status == 2


def test_offsets_of_some_partitions_are_deleted(kstore, root):
    assert kstore("groups", root, "--group", "g", "--delete-offsets", "--topic", "t:1").status == 0
    assert (committed(root), committed(root, "h")) == ({T0: 5}, {T0: 5, T1: 0})
    assert kstore("groups", root, "--group", "g", "--delete-offsets", "--topic", "t:1").status == 2


def test_a_group_of_the_new_protocol_is_deleted_members_first(root):
    write(root, *(encode_group_record(key, value, type_id=kind, version=0) for key, value, kind in CONSUMER_GROUP))
    with open_store(root, "a") as store:
        reset_offsets(store, "new", {T0: 3})
        (group,) = read_groups(store, groups=["new"])
        assert (group.type, group.state, group.offsets[T0].committed.offset) == ("Consumer", "Empty", 3)
        start = store.log(OFFSETS).log_end_offset
        assert delete_group(store, "new") == 3
        removed = [record for record in store.log(OFFSETS).read() if record.offset >= start]
        assert [(record.key[:2], record.value) for record in removed] == [
            (b"\0\1", None),
            (b"\0\6", None),
            (b"\0\3", None),
        ]
        assert read_groups(store, groups=["new"]) == ()


def test_a_group_with_members_is_left_alone(kstore, root):
    member = {
        "instanceId": None,
        "rackId": None,
        "clientId": "c",
        "clientHost": "/10.0.0.7",
        "subscribedTopicNames": ["t"],
    }
    member |= {"subscribedTopicRegex": None, "rebalanceTimeoutMs": 1, "serverAssignor": None}
    key = {"groupId": "new", "memberId": "m"}
    records = [encode_group_record(key, value, type_id=kind, version=0) for key, value, kind in CONSUMER_GROUP]
    write(root, *records, encode_group_record(key, member, type_id=5, version=0))
    for action in (["--reset", "--topic", "t", "--to-latest"], ["--delete"], ["--delete-offsets", "--topic", "t"]):
        run = kstore("groups", root, "--group", "new", *action)
        assert (run.status, run.out) == (2, "")
        assert "expected no members, found 1, such as 'm' of /10.0.0.7" in run.err
    with open_store(root, "a") as store:
        with pytest.raises(GroupStateError) as caught:
            delete_offsets(store, "new", [T0])
        assert caught.value.kafka_code == 68
        with pytest.raises(GroupStateError) as caught:
            delete_offsets(store, "none", [T0])
        assert caught.value.kafka_code == 69


def test_offsets_of_an_open_transaction_are_deleted_too(root):
    with open_store(root, "a") as store:
        store.create_topic("__transaction_state", 1)
        producer = Producer(store, transactional_id="x")
        producer.init_transactions()
        producer.begin_transaction()
        producer.send_offsets_to_transaction({T0: 9}, "g")
        assert delete_group(store, "g") == 2
        producer.commit_transaction()
        producer.close()
        assert read_groups(store, groups=["g"]) == ()


@pytest.mark.parametrize(
    "arguments",
    [
        ["--reset", "--to-latest", "--topic", "t"],
        ["--group", "g", "--group", "h", "--reset", "--to-latest", "--topic", "t"],
        ["--group", "g", "--reset", "--topic", "t"],
        ["--group", "g", "--reset", "--to-latest", "--to-earliest", "--topic", "t"],
        ["--group", "g", "--reset", "--to-latest"],
        ["--group", "g", "--reset", "--to-latest", "--topic", "t", "--all-topics"],
        ["--group", "g", "--reset", "--to-latest", "--topic", "t:x"],
        ["--group", "g", "--reset", "--to-latest", "--topic", "t:2"],
        ["--group", "g", "--reset", "--to-latest", "--topic", "u"],
        ["--group", "g", "--reset", "--by-duration", "1 day", "--topic", "t"],
        ["--group", "g", "--reset", "--delete"],
        ["--group", "g", "--delete", "--topic", "t"],
        ["--group", "g", "--delete", "--to-latest"],
        ["--group", "i", "--delete"],
        ["--group", "i", "--reset", "--shift-by", "1", "--topic", "t"],
        ["--to-offset", "0"],
        ["--dry-run"],
    ],
)
def test_options_that_do_not_go_together_change_nothing(kstore, root, arguments):
    run = kstore("groups", root, *arguments)
    assert (run.status, run.out) == (2, "")
    assert {one.group_id for one in read_groups(root)} == {"g", "h"}
    assert committed(root) == {T0: 5, T1: 0}


def test_groups_are_listed_by_state_and_type(kstore, root):
    write(root, *(encode_group_record(key, value, type_id=kind, version=0) for key, value, kind in CONSUMER_GROUP))
    run = kstore("groups", root, "--list")
    assert [line.split() for line in run.out.splitlines()[1:]] == [
        ["g", "Classic", "Empty", "-", "0", "2", "5"],
        ["h", "Classic", "Empty", "-", "0", "2", "5"],
        ["new", "Consumer", "Empty", "3", "0", "0", "-"],
    ]
    assert [one["group"] for one in kstore("groups", root, "--type", "consumer", "--json").objects()] == ["new"]
    assert kstore("groups", root, "--state", "stable", "--json").out == ""
    assert kstore("groups", root, "--state", "stabel").status == 2


def test_a_negative_lag_is_explained(kstore, root):
    with open_store(root, "a") as store:
        reset_offsets(store, "g", {T0: 12, T1: 0})
        reset_offsets(store, "h", {T0: 1})
    run = kstore("groups", root)
    assert "g, t-0: at the offset 12 no consumer goes on: it is above the log end 10" in run.err
    assert "h, t-0: at the offset 1 no consumer goes on: it is below the log start 2" in run.err
    first = kstore("groups", root, "--group", "g", "--json").objects()[0]["offsets"][0]
    assert (first["lag"], first["problem"][:23]) == (-2, "it is above the log end")


@pytest.mark.parametrize(
    "text", [f"t,0,{'9' * 5000}", f"t,{'9' * 5000},0", "t" * 200_000 + ",0,0", "t,0,\u0663", "t,0,-1"]
)
def test_a_file_of_offsets_that_are_none_changes_nothing(kstore, root, tmp_path, text):
    (tmp_path / "plan.csv").write_text(text + "\n", encoding="utf-8")
    run = kstore("groups", root, "--group", "g", "--reset", "--from-file", tmp_path / "plan.csv")
    assert (run.status, run.out) == (2, "")
    assert "expected" in run.err
    assert "topic,partition,offset" in run.err
    assert committed(root) == {T0: 5, T1: 0}


@pytest.mark.parametrize(
    "arguments", [("--topic", "t:" + "9" * 5000, "--to-earliest"), ("--by-duration", f"P{'9' * 5000}D")]
)
def test_numbers_without_end_are_wrong_use(kstore, root, arguments):
    topics = () if "--topic" in arguments else ("--topic", "t")
    run = kstore("groups", root, "--group", "g", "--reset", *topics, *arguments)
    assert (run.status, run.out) == (2, "")
    assert committed(root) == {T0: 5, T1: 0}


def test_a_new_group_whose_partition_is_not_in_the_root_is_not_reset(kstore, root):
    """By its three of fifty partitions a broker's root is like one with three."""
    with open_store(root, "a") as store:
        store.delete_topic(OFFSETS)
        store.create_topic(OFFSETS, 3)
    (root / TOPIC_SETTINGS).unlink()
    new = next(name for name in map("n{}".format, range(99)) if coordinator_partition(name, partition_count=50) > 2)
    for more in (["--dry-run"], []):
        run = kstore("groups", root, "--group", new, "--reset", "--topic", "t", "--to-latest", *more)
        assert (run.status, run.out) == (2, "")
        assert "does not show which it is" in run.err
    assert read_groups(root) == ()
