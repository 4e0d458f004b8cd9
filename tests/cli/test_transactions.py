"""Goal: `kstore transactions` shows who holds readers back, and aborts what its options name and nothing else.
Method: roots that kstore writes, and golden roots in which a broker left a transaction open; the output compared."""

from __future__ import annotations

import shutil

import pytest

from kstore import MemoryRecordsBuilder, open_log, open_store
from kstore.config import DAY_MS
from kstore.record import ControlRecordType, EndTransactionMarker, with_end_transaction_marker
from kstore.record.validation import AppendOrigin
from kstore.types import TRANSACTION_STATE_TOPIC
from tests.cli.runner import runner
from tests.golden.probes import answers
from tests.golden.sets import MAIN_SETS, golden_partitions, unpack
from tests.making.batches import flip_bit
from tests.making.collecting import over
from tests.store.test_open_transactions import abandoned, data


@pytest.fixture
def kstore(monkeypatch, capsysbinary):
    return runner(monkeypatch, capsysbinary)


@pytest.fixture
def root(tmp_path):
    with open_store(tmp_path / "root", "a") as store:
        store.create_topic("t", 2)
        store.create_topic(TRANSACTION_STATE_TOPIC, 1)
        abandoned(store, "x", (1,))
        store.log("t", 0).append(data(4711))
    return tmp_path / "root"


def state_of(root):
    """Every file of a root except of what opening it for writing leaves."""
    return {path.relative_to(root): path.read_bytes() for path in root.glob("*/*.log")}


def last_stable_offsets(set_name):
    """The last stable offsets of txn-0 and txn-1 by the broker's answers to read_committed fetches, -1 in some."""
    asked = [one for one in golden_partitions(set_name) if one.name in ("txn-0", "txn-1")]
    fetches = [
        [one for one in answers(partition)["fetches"] if one["isolation"] == "read_committed"] for partition in asked
    ]
    return [max(one["last_stable_offset"] for one in of_partition) for of_partition in fetches]


@over("set_name", MAIN_SETS)
def test_transactions_that_brokers_left_open_are_found(kstore, set_name):
    found = kstore("transactions", unpack(set_name, "trees") / "data", "--json").objects()
    assert [(one["topic"], one["partition"]) for one in found] == [("txn", 0), ("txn", 1)]
    assert [one["last_stable_offset"] for one in found] == last_stable_offsets(set_name)
    for one in found:
        assert one["holds_last_stable_offset"]
        assert (one["producer_id"], one["coordinator"], one["is_hanging"]) == (13, "known", False)
        assert one["state"]["transactional_id"].startswith("open-1-")
        assert (one["state"]["state"], one["last_offset"]) == ("ONGOING", one["first_offset"] + 3)


def test_a_broker_s_transaction_is_aborted_in_all_its_partitions(kstore, tmp_path):
    source, root = unpack("main-4.4.0", "trees") / "data", tmp_path / "root"
    root.mkdir()
    states = (f"{TRANSACTION_STATE_TOPIC}-{number}" for number in range(50))
    for name in ("__cluster_metadata-0", "txn-0", "txn-1", *states):
        if (source / name).exists():
            shutil.copytree(source / name, root / name)
    run = kstore("transactions", root, "--transactional-id", "open-1-ms1", "--abort", "--json")
    assert [(one["partition"], one["producer_epoch"], one["written"]) for one in run.objects()] == [
        (0, 1, True),
        (1, 1, True),
    ]
    assert kstore("transactions", root, "--json").out == ""
    (state,) = kstore("transactions", root, "--ids", "--transactional-id", "open-1-ms1", "--json").objects()
    assert (state["state"], state["partitions"]) == ("COMPLETE_ABORT", [])
    for number in (0, 1):
        with open_log(root / f"txn-{number}") as log:
            assert log.transactions().last_stable_offset == log.log_end_offset


def test_open_transactions_are_a_table(kstore, root):
    run = kstore("transactions", root, "--now", "2100-01-01")
    head, *rows = run.out.splitlines()
    assert head.split()[:5] == ["topic", "partition", "last", "stable", "first"]
    assert "no transactional id has producer 4711" in rows[0]
    assert "ONGOING" in rows[1]
    assert "as of 2100-01-01T00:00:00.000Z" in run.err


def test_only_hanging_ones_are_shown_and_aborted(kstore, root):
    (one,) = kstore("transactions", root, "--hanging", "--json").objects()
    assert (one["producer_id"], one["hanging"]) == (4711, "no transactional id has producer 4711")
    assert kstore("transactions", root, "--hanging", "--now", "1970-01-01T00:10:00", "--json").out == ""
    before = state_of(root)
    dry = kstore("transactions", root, "--hanging", "--abort", "--dry-run", "--json")
    assert state_of(root) == before
    (planned,) = dry.objects()
    (written,) = kstore("transactions", root, "--hanging", "--abort", "--json").objects()
    assert (planned.pop("written"), written.pop("written")) == (False, True)
    assert planned == written
    (left,) = kstore("transactions", root, "--json").objects()
    assert left["producer_id"] != 4711


def test_an_abortion_names_what_it_aborts(kstore, root):
    before = state_of(root)
    for arguments, reason in (
        (["--abort"], "needs to know which"),
        (["--dry-run"], "goes with --abort"),
        (["--abort", "--ids", "--hanging"], "exclude"),
        (["--abort", "--producer-id", "12"], "no open transaction"),
    ):
        run = kstore("transactions", root, *arguments)
        assert (run.status, run.out) == (2, "")
        assert reason in run.err
    assert state_of(root) == before


def test_what_a_coordinator_may_commit_elsewhere_is_aborted_by_name_only(kstore, root):
    for path in root.glob(f"{TRANSACTION_STATE_TOPIC}-*"):
        shutil.rmtree(path)
    run = kstore("transactions", root, "--producer-id", 4711, "--abort")
    assert (run.status, run.out) == (2, "")
    assert "name it: --topic T --partition P --producer-id N" in run.err
    named = ("--topic", "t", "--partition", 0, "--start-offset", 0)
    assert kstore("transactions", root, *named, "--abort").status == 0
    assert kstore("transactions", root, "--topic", "t", "--partition", 0, "--json").out == ""


def test_nothing_is_aborted_beside_damage(kstore, root):
    flip_bit(root / "t-1" / "00000000000000000000.log", 8, bit=7)
    before = state_of(root)
    run = kstore("transactions", root, "--hanging", "--abort", "--dry-run")
    assert (run.status, run.out) == (1, "")
    assert "nothing was aborted" in run.err
    assert state_of(root) == before


def test_ids_are_listed(kstore, root):
    run = kstore("transactions", root, "--ids")
    assert run.out.splitlines()[1].split()[:2] == ["x", "ONGOING"]
    assert kstore("transactions", root, "--ids", "--transactional-id", "y").status == 2
    (one,) = kstore("transactions", root, "--ids", "--json").objects()
    assert one["partitions"] == [{"topic": "t", "partition": 1}]


def test_a_transaction_of_one_record_is_open(kstore, tmp_path):
    builder = MemoryRecordsBuilder(producer_id=0, producer_epoch=0, base_sequence=0, is_transactional=True)
    builder.append(timestamp_ms=0, value=b"")
    with open_store(tmp_path / "root", "a") as store:
        store.create_topic("t")
        store.log("t").append(builder.build())
    (one,) = kstore("transactions", tmp_path / "root", "--json", "--now", "5").objects()
    assert (one["producer_id"], one["first_offset"], one["start_timestamp"], one["age_ms"]) == (0, 0, 0, 5)


def test_all_producers_are_listed_as_a_broker_that_loads_the_log_knows_them(kstore, tmp_path):
    builder = MemoryRecordsBuilder(producer_id=5, producer_epoch=2, base_sequence=7)
    builder.append(timestamp_ms=1000, value=b"")
    builder.append(timestamp_ms=2000, value=b"")
    root = tmp_path / "root"
    with open_store(root, "a") as store:
        store.create_topic("t")
        store.log("t").append(builder.build())
        store.log("t").append(data(3, epoch=1, timestamp_ms=5000))
    found = kstore("transactions", root, "--producers", "--now", 2000 + DAY_MS - 1, "--json").objects()
    assert found == [
        {
            "topic": "t",
            "partition": 0,
            "producer_id": 3,
            "producer_epoch": 1,
            "coordinator_epoch": -1,
            "last_sequence": 0,
            "last_timestamp": 5000,
            "first_offset": 2,
        },
        {
            "topic": "t",
            "partition": 0,
            "producer_id": 5,
            "producer_epoch": 2,
            "coordinator_epoch": -1,
            "last_sequence": 8,
            "last_timestamp": 2000,
            "first_offset": None,
        },
    ]
    (later,) = kstore("transactions", root, "--producers", "--now", 2000 + DAY_MS, "--json").objects()
    assert later["producer_id"] == 3
    (one,) = kstore("transactions", root, "--producers", "--producer-id", 5, "--now", 3000, "--json").objects()
    assert one["producer_id"] == 5
    assert "5000" not in kstore("transactions", root, "--producers", "--now", 3000).out
    assert kstore("transactions", root, "--producers", "--hanging").status == 2


def test_producers_are_the_same_without_a_snapshot_and_with_a_damaged_one(kstore, tmp_path):
    root = tmp_path / "root"
    with open_store(root, "a") as store:
        store.create_topic("t", config={"segment_bytes": 200})
        for number in range(9):
            store.log("t").append(data(number % 4, sequence=number // 4, timestamp_ms=5000))
    ask = ("transactions", root, "--producers", "--now", 6000, "--json")
    known = kstore(*ask).objects()
    assert [one["last_sequence"] for one in known] == [2, 1, 1, 1]
    snapshots = sorted((root / "t-0").glob("*.snapshot"))
    assert len(snapshots) > 1
    before = {path.name for path in (root / "t-0").iterdir()}
    snapshots[-1].write_bytes(b"damaged")
    assert kstore(*ask).objects() == known
    assert {path.name for path in (root / "t-0").iterdir()} == before
    for path in snapshots:
        path.unlink()
    assert kstore(*ask).objects() == known
    assert kstore(*ask[:-2], 5000 + DAY_MS, "--json").objects() == known
    with open_store(root, "a") as store:
        for number in range(4):
            end = EndTransactionMarker(control_type=ControlRecordType.ABORT, coordinator_epoch=1)
            stop = with_end_transaction_marker(end, timestamp_ms=5500, producer_id=number, producer_epoch=0)
            store.log("t").append(stop, origin=AppendOrigin.COORDINATOR)
    for path in (root / "t-0").glob("*.snapshot"):
        path.unlink()
    assert len(kstore(*ask).objects()) == 4
    assert kstore(*ask[:-2], 5500 + DAY_MS, "--json").out == ""


def test_producers_whose_records_were_deleted_are_known(kstore, tmp_path):
    root = tmp_path / "root"
    with open_store(root, "a") as store:
        store.create_topic("t", config={"segment_bytes": 200})
        for number in range(9):
            builder = MemoryRecordsBuilder(producer_id=number, producer_epoch=0, base_sequence=0)
            builder.append(timestamp_ms=5000, value=bytes(40))
            store.log("t").append(builder.build())
        store.log("t").delete_records(8)
    found = kstore("transactions", root, "--producers", "--now", 6000, "--json").objects()
    assert [one["producer_id"] for one in found] == list(range(9))
