"""Goal: `kstore groups` shows what read_groups returns, as a table and as JSON, and goes on after damage.
Method: roots that kstore writes, and one of a broker; the output compared."""

from __future__ import annotations

import pytest

from kstore import Consumer, OffsetAndMetadata, Producer, TopicPartition, open_store
from kstore.record.schemas.topics import coordinator_partition
from tests.cli.runner import runner
from tests.golden.sets import unpack
from tests.making.batches import flip_bit

OFFSETS = "__consumer_offsets"
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def kstore(monkeypatch, capsysbinary):
    return runner(monkeypatch, capsysbinary)


@pytest.fixture
def root(tmp_path):
    with open_store(tmp_path / "root", "a") as store:
        store.create_topic("t", 2)
        store.create_topic(OFFSETS, 2)
        store.create_topic("__transaction_state", 1)
        with Producer(store, transactional_id="x") as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send("t", b"v", partition=0)
            producer.commit_transaction()
            with Consumer(store, group="g", topics=["t"]) as consumer:
                consumer.commit({T0: OffsetAndMetadata(1, "text"), T1: 0})
            with Consumer(store, group="h") as consumer:
                consumer.commit({T1: 0})
            producer.begin_transaction()
            producer.send_offsets_to_transaction({T0: 2}, "g")
            producer._sender.force_close()
    return tmp_path / "root"


def test_groups_are_a_table_with_the_lag(kstore, root):
    run = kstore("groups", root)
    assert (run.status, run.err) == (0, "")
    head, *rows = [line.split() for line in run.out.splitlines()]
    assert " ".join(head) == "group state topic partition offset log end lag committed member host"
    assert [row[:7] for row in rows] == [
        ["g", "Empty", "t", "0", "1", "2", "1"],
        ["g", "Empty", "t", "1", "0", "0", "0"],
        ["h", "Empty", "t", "1", "0", "0", "0"],
    ]
    assert all(row[8:] == ["-", "-"] for row in rows)


def test_groups_are_json_objects(kstore, root):
    run = kstore("groups", root, "--json", "--group", "g")
    (shown,) = run.objects()
    assert run.status == 0
    first, second = shown.pop("offsets")
    (pending,) = shown.pop("pending")
    assert shown == {
        "group": "g",
        "type": "Classic",
        "state": "Empty",
        "protocol_type": "",
        "protocol": None,
        "leader": None,
        "epoch": None,
        "members": [],
    }
    assert first.pop("commit_timestamp") > 0
    assert first == {
        "topic": "t",
        "partition": 0,
        "offset": 1,
        "leader_epoch": None,
        "metadata": "text",
        "expire_timestamp": None,
        "log_end_offset": 2,
        "lag": 1,
        "log_start_offset": 0,
        "problem": None,
    }
    assert (second["offset"], second["lag"]) == (0, 0)
    assert (pending["topic"], pending["partition"], pending["offset"]) == ("t", 0, 2)


def test_a_group_that_is_not_there_is_wrong_use(kstore, root):
    run = kstore("groups", root, "--group", "h", "--group", "i", "--json")
    assert (run.status, [one["group"] for one in run.objects()]) == (2, ["h"])
    assert "no group i in" in run.err


def test_a_root_without_the_topic_is_wrong_use(kstore, tmp_path):
    with open_store(tmp_path / "root", "a"):
        pass
    run = kstore("groups", tmp_path / "root")
    assert (run.status, run.out) == (2, "")
    assert "has no topic __consumer_offsets" in run.err
    assert kstore("groups", tmp_path / "nowhere").status == 2


def test_damage_is_reported_and_the_other_groups_are_shown(kstore, root):
    number = coordinator_partition("g", partition_count=2)
    flip_bit(root / f"{OFFSETS}-{number}" / "00000000000000000000.log", 70, bit=0)
    run = kstore("groups", root, "--json")
    assert (run.status, [one["group"] for one in run.objects()]) == (1, ["h"])
    assert "CRC mismatch" in run.err


def test_names_can_not_control_the_terminal(kstore, root):
    name = "evil\x1b[2J\udcff"
    with open_store(root, "a") as store, Consumer(store, group=name) as consumer:
        consumer.commit({T0: 0})
    run = kstore("groups", root, "--group", name)
    assert "evil\\x1b[2J\\xff" in run.out
    assert "\x1b" not in run.out
    assert next(one["group"] for one in kstore("groups", root, "--json").objects()) == "evil\x1b[2J\ufffd"


def test_groups_of_a_broker_are_shown(kstore):
    run = kstore("groups", unpack("main-4.4.0", "trees") / "data", "--json")
    shown = {one["group"]: one for one in run.objects()}
    assert [*shown] == ["group-a", "group-b", "group-txn-0", "group-txn-1", "group-txn-2"]
    assert shown["group-a"]["epoch"] == 4
    offsets = {(one["topic"], one["partition"]): one["lag"] for one in shown["group-a"]["offsets"]}
    assert offsets == {("basic-gzip", 0): 0, ("basic-none", 0): 0, ("txn", 0): 9, ("txn", 1): 4, ("txn", 2): 4}
