"""Goal: the open transactions of a root are found in its logs, hanging ones are told by what coordinators know, and an
abortion ends them as a broker would.
Method: stores whose producers stop in their transactions; every answer also without snapshots."""

from __future__ import annotations

import shutil

import pytest

from kstore import (
    MemoryRecordsBuilder,
    Producer,
    TopicPartition,
    abort_transaction,
    open_log,
    open_store,
    planned_markers,
    read_transactions,
)
from kstore.coordinator.transaction.coordinator import TransactionCoordinator
from kstore.errors import TransactionStateError
from kstore.log.files.checkpoints import EpochEntry, write_leader_epoch_checkpoint
from kstore.log.files.names import LEADER_EPOCH_CHECKPOINT, TOPIC_SETTINGS
from kstore.record import ControlRecordType, EndTransactionMarker, with_end_transaction_marker
from kstore.record.control import control_record_value
from kstore.record.validation import AppendOrigin
from kstore.types import TRANSACTION_STATE_TOPIC
from tests.golden.sets import unpack

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
LIMIT_MS = 15 * 60 * 1000


def data(producer_id, epoch=0, sequence=0, timestamp_ms=1000, count=1):
    builder = MemoryRecordsBuilder(
        producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, is_transactional=True
    )
    for number in range(count):
        builder.append(timestamp_ms=timestamp_ms + number, value=b"v")
    return builder.build()


def marker(producer_id, epoch=0, coordinator_epoch=0, control_type=ControlRecordType.COMMIT):
    end = EndTransactionMarker(control_type=control_type, coordinator_epoch=coordinator_epoch)
    return with_end_transaction_marker(end, timestamp_ms=5000, producer_id=producer_id, producer_epoch=epoch)


def abandoned(store, transactional_id, partitions=(0, 1)):
    """Leave a transaction open, as a killed producer does."""
    producer = Producer(store, transactional_id=transactional_id)
    producer.init_transactions()
    producer.begin_transaction()
    for partition in partitions:
        producer.send("t", b"of " + transactional_id.encode(), partition=partition).result(10)
    producer._sender.force_close()


@pytest.fixture
def store(tmp_path):
    with open_store(tmp_path / "root", "a") as made:
        made.create_topic("t", 2)
        made.create_topic(TRANSACTION_STATE_TOPIC, 1)
        yield made


def only(found):
    (one,) = found
    return one


def markers_of(log):
    return [control_record_value(next(iter(batch.records())), batch) for batch in log.batches() if batch.is_control]


def test_an_open_transaction_has_the_extent_of_its_batches(store):
    log = store.log("t", 0)
    log.append(data(7))
    log.append(marker(7, coordinator_epoch=3), origin=AppendOrigin.COORDINATOR)
    log.append(data(8, timestamp_ms=2000))
    log.append(data(7, sequence=1, timestamp_ms=3000, count=2))
    log.append(data(7, sequence=3, timestamp_ms=4000, count=3))
    first, second = log.open_transactions()
    assert (first.producer_id, first.first_offset, first.last_offset, first.coordinator_epoch) == (8, 2, 2, -1)
    assert (second.producer_id, second.producer_epoch, second.coordinator_epoch) == (7, 0, 3)
    assert (second.first_offset, second.last_offset) == (3, 7)
    assert (second.first_timestamp_ms, second.last_timestamp_ms) == (3000, 4002)
    sizes = [batch.header.size_in_bytes for batch in log.batches()]
    assert second.size_in_bytes == sum(sizes[3:])
    assert log.last_stable_offset == 2


def test_open_transactions_are_found_without_snapshots_and_across_segments(store, tmp_path):
    log = store.log("t", 0)
    log.append(data(0))
    log.roll()
    log.append(data(0, sequence=1))
    for path in (tmp_path / "root" / "t-0").glob("*.snapshot"):
        path.unlink()
    with open_log(tmp_path / "root" / "t-0") as read:
        found = only(read.open_transactions())
    assert (found.producer_id, found.first_offset, found.last_offset) == (0, 0, 1)


def test_a_transaction_that_its_coordinator_has_does_not_hang(store):
    abandoned(store, "x")
    report = read_transactions(store, now_ms=2**42)
    assert [one.topic_partition for one in report.undecided] == [T0, T1]
    for one in report.undecided:
        assert (one.coordinator, one.hanging, one.state.transactional_id) == ("known", None, "x")
        assert one.holds_last_stable_offset
        assert one.start_ms == one.state.start_ms
        assert one.age_ms == 2**42 - one.start_ms
    assert [state.transactional_id for state in report.states] == ["x"]
    assert report.has_all_states


@pytest.mark.parametrize(("idle_ms", "hangs"), [(LIMIT_MS, False), (LIMIT_MS + 1, True)])
def test_a_transaction_without_a_coordinator_hangs_once_it_is_too_old(store, idle_ms, hangs):
    abandoned(store, "x", (1,))
    store.log("t", 0).append(data(4711))
    found = read_transactions(store, partitions=[T0], now_ms=1000 + idle_ms)
    one = only(found.undecided)
    assert (one.coordinator, one.idle_ms, one.hanging is not None) == ("unknown", idle_ms, hangs)
    if hangs:
        assert one.hanging == "no transactional id has producer 4711"


def test_a_transaction_of_another_partition_hangs(store):
    abandoned(store, "x", (1,))
    producer = read_transactions(store).states[0].producer
    store.log("t", 0).append(data(producer.producer_id, producer.epoch))
    one = only(read_transactions(store, partitions=[T0], now_ms=2**42).undecided)
    assert one.hanging == "transactional id 'x' is ONGOING, without this partition"


def test_data_of_an_earlier_epoch_does_not_hang_where_the_coordinator_will_write_a_marker(store):
    abandoned(store, "y", (0,))
    log = TransactionCoordinator(store)._log
    log.append(read_transactions(store).states[0].fenced(), ack="written")
    one = only(read_transactions(store, now_ms=2**42).undecided)
    assert (one.coordinator, one.hanging) == ("known", None)


def test_a_part_of_a_cluster_s_states_does_not_show_that_a_transaction_hangs(store, tmp_path):
    abandoned(store, "x", (1,))
    store.log("t", 0).append(data(4711))
    store.close()
    # As if a broker had made the root: ids of partition 0 of 50 are where they would be, were it the only one.
    (tmp_path / "root" / TOPIC_SETTINGS).unlink()
    found = read_transactions(tmp_path / "root", now_ms=2**42)
    assert [(one.coordinator, one.hanging) for one in found.undecided] == [("not here", None), ("known", None)]
    assert not found.has_all_states


def test_what_hangs_is_not_known_without_all_of_the_states(store, tmp_path):
    with open_store(tmp_path / "other", "a") as other:
        other.create_topic("t", 1)
        other.log("t", 0).append(data(4711))
        one = only(read_transactions(other, now_ms=2**42).undecided)
        assert (one.coordinator, one.hanging) == ("not here", None)
        with pytest.raises(TransactionStateError, match="does not have all of __transaction_state"):
            abort_transaction(other, one)
        assert markers_of(other.log("t", 0)) == []
        (written,) = abort_transaction(other, one, trusts_caller=True)
        assert (written.offset, other.log("t", 0).last_stable_offset) == (1, 2)


def test_the_marker_of_a_hanging_transaction_has_the_epochs_of_its_producer(store):
    log = store.log("t", 0)
    abandoned(store, "x", (1,))
    log.append(data(4711, epoch=2))
    log.append(marker(4711, epoch=2, coordinator_epoch=5), origin=AppendOrigin.COORDINATOR)
    log.append(data(4711, epoch=3))
    one = only(read_transactions(store, partitions=[T0], now_ms=2**42).undecided)
    planned = planned_markers(store, one)
    assert abort_transaction(store, one) == planned
    assert (planned[0].offset, planned[0].producer_epoch, planned[0].coordinator_epoch) == (3, 3, 5)
    end = markers_of(log)[-1]
    assert (end.control_type, end.coordinator_epoch) == (ControlRecordType.ABORT, 5)
    assert (log.last_stable_offset, log.open_transactions()) == (4, ())
    assert [one.first_offset for one in log.transactions().aborted] == [2]
    # The transaction of the other id is as it was.
    assert read_transactions(store).states[0].is_ongoing


def test_a_known_transaction_is_aborted_in_all_its_partitions_and_its_producer_fenced(store):
    abandoned(store, "x")
    before = read_transactions(store).states[0].producer
    one = read_transactions(store, partitions=[T1]).undecided[0]
    planned = planned_markers(store, one)
    assert abort_transaction(store, one) == planned
    assert [(marker.topic_partition, marker.offset, marker.producer_epoch) for marker in planned] == [
        (T0, 1, before.epoch + 1),
        (T1, 1, before.epoch + 1),
    ]
    report = read_transactions(store)
    assert report.undecided == ()
    assert (report.states[0].status.name, report.states[0].producer.epoch) == ("COMPLETE_ABORT", before.epoch + 1)
    for partition in (0, 1):
        assert list(store.log("t", partition).read(isolation="read_committed")) == []
    with Producer(store, transactional_id="x") as producer:
        producer.init_transactions()


def test_a_transaction_with_partitions_elsewhere_is_not_aborted(store, tmp_path):
    abandoned(store, "x")
    one = read_transactions(store, partitions=[T0]).undecided[0]
    store.close()
    (tmp_path / "root" / "t-1").rename(tmp_path / "t-1")
    with open_store(tmp_path / "root", "a") as again:
        with pytest.raises(TransactionStateError, match="which has not t-1"):
            abort_transaction(again, one)
        assert len(again.log("t", 0).open_transactions()) == 1


def test_a_committed_transaction_is_not_aborted(store):
    abandoned(store, "x")
    coordinator = TransactionCoordinator(store)
    state = coordinator.state("x")
    coordinator._log.append(state.prepared(1, is_commit=True), ack="written")
    one = read_transactions(store, partitions=[T0], now_ms=2**42).undecided[0]
    assert (one.coordinator, one.hanging) == ("known", None)
    with pytest.raises(TransactionStateError, match="found PREPARE_COMMIT"):
        abort_transaction(store, one)


def test_a_transaction_is_aborted_once(store):
    abandoned(store, "x")
    store.log("t", 0).append(data(4711))
    one = next(found for found in read_transactions(store).undecided if found.transaction.producer_id == 4711)
    abort_transaction(store, one)
    with pytest.raises(TransactionStateError, match="found none"):
        abort_transaction(store, one)


def test_a_plan_has_the_coordinator_epoch_that_is_written(store, tmp_path):
    """A broker that only started has an epoch at the log end, which is forgotten when the log is opened again."""
    abandoned(store, "x", (0,))
    store.close()
    checkpoint = tmp_path / "root" / f"{TRANSACTION_STATE_TOPIC}-0" / LEADER_EPOCH_CHECKPOINT
    with open_log(checkpoint.parent) as log:
        write_leader_epoch_checkpoint(str(checkpoint), [EpochEntry(0, 0), EpochEntry(4, log.log_end_offset)])
    with open_store(tmp_path / "root") as reader:
        (planned,) = planned_markers(reader, only(read_transactions(reader).undecided))
    with open_store(tmp_path / "root", "a") as writer:
        (written,) = abort_transaction(writer, only(read_transactions(writer).undecided))
        (end,) = markers_of(writer.log("t"))
    assert planned == written
    assert planned.coordinator_epoch == end.coordinator_epoch


def test_the_metadata_of_the_cluster_shows_whether_the_root_has_all_states(tmp_path):
    source, root = unpack("main-4.4.0", "trees") / "data", tmp_path / "root"
    states = [path.name for path in source.glob(f"{TRANSACTION_STATE_TOPIC}-*")]
    assert 1 < len(states) < 50
    for name in ("__cluster_metadata-0", "txn-0", *states):
        shutil.copytree(source / name, root / name)
    assert read_transactions(root).has_all_states
    shutil.rmtree(root / max(states))
    assert not read_transactions(root).has_all_states
