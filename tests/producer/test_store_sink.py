"""Goal: what a Sender gives to a store lies in its logs once, in order, and as durable as was asked for.
Method: real stores in temporary folders; files that fail, that are full, that count their syncs; stores opened anew."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from kstore.config import MAX_INT64, LogConfig
from kstore.coordinator.transaction.coordinator import coordinator_of
from kstore.env import DEFAULT_ENV, LocalEnv
from kstore.errors import (
    InvalidTxnStateError,
    LogFailedError,
    OutOfOrderSequenceError,
    ProducerFencedError,
    RecordTooLargeError,
    RecordValidationError,
    StorageError,
    UnknownTopicOrPartitionError,
)
from kstore.producer import BufferPool, ProducerBatch
from kstore.producer.cluster import Node
from kstore.producer.sending.store_sink import StoreSink
from kstore.producer.transactions import TransactionManager
from kstore.record import MemoryRecords
from kstore.store.store import WritableStore, open_store
from kstore.types import TopicPartition
from tests.fakes.faults import Fault, FaultyEnv
from tests.fakes.sending import BATCH_SIZE, T0, T1, Producing
from tests.making import batches as builders
from tests.making.record_files import failing


def opened(root: Path, *, env: LocalEnv = DEFAULT_ENV, **options) -> WritableStore:
    # The records are older than producers get, by the clock of the machine.
    store = open_store(root, "a", LogConfig(producer_id_expiration_ms=MAX_INT64, **options), env=env)
    if "t" not in store.topics:
        store.create_topic("t", 4)
    return store


def values(store: WritableStore, topic_partition: TopicPartition = T0, **options) -> list[bytes | None]:
    return [record.value for record in store.log(*topic_partition).read(**options)]


@pytest.fixture
def store(tmp_path):
    with opened(tmp_path / "root") as store:
        yield store


def test_records_lie_in_the_log_with_the_offsets_that_were_told(store):
    parts = Producing(StoreSink(store))
    futures = [parts.append(b"%d" % number) for number in range(50)]
    parts.run()
    assert [future.result().offset for future in futures] == list(range(50))
    assert values(store) == [b"%d" % number for number in range(50)]
    parts.check_at_rest()


def test_cluster_is_the_stores_partitions_as_they_are_now(store):
    sink = StoreSink(store, node=Node(3))
    assert sink.cluster().partition_count("t") == 4
    assert sink.cluster() is sink.cluster()
    store.create_topic("u", 2)
    assert sink.cluster().topics == ("t", "u")
    assert sink.cluster().leader_for(TopicPartition("u", 1)) == Node(3)


def test_batch_for_another_node_is_a_mistake(store):
    with pytest.raises(ValueError, match="node"):
        StoreSink(store).send(Node(9), [], ack="written")


def test_log_append_time_is_told(tmp_path):
    with opened(tmp_path / "root", message_timestamp_type="LogAppendTime") as store:
        parts = Producing(StoreSink(store))
        future = parts.append()
        parts.run()
        (record,) = store.log(*T0).read()
        assert future.result().timestamp_ms == record.timestamp_ms


def test_flushed_batches_of_a_call_share_one_sync_of_each_log(store, monkeypatch):
    parts, flushed = Producing(StoreSink(store), ack="flushed"), []
    for one in (T0, T1):
        log = store.log(*one)
        flush = log.flush
        monkeypatch.setattr(log, "flush", lambda one=one, flush=flush: flushed.append(one) or flush())
    futures = [parts.append_batch(b"%d" % number)[0] for number in range(3)] + parts.append_batch(b"x", to=T1)
    parts.run()
    assert all(future.done() for future in futures)
    assert sorted(flushed) == [T0, T1]
    assert store.log(*T0).flushed_offset == 3


def test_sync_that_fails_fails_the_batches_of_its_log_and_no_others(store, monkeypatch):
    parts = Producing(StoreSink(store), ack="flushed")

    def failing():
        raise StorageError("sync", errno=errno.EIO)

    monkeypatch.setattr(store.log(*T0), "flush", failing)
    bad, good = parts.append(to=T0), parts.append(to=T1)
    parts.run()
    with pytest.raises(StorageError, match="sync"):
        bad.result()
    assert good.result().offset == 0
    parts.check_at_rest()


def test_refused_partition_does_not_keep_the_others_of_a_call_from_their_sync(tmp_path):
    with opened(tmp_path / "root") as store:
        store.create_topic("small", config=LogConfig(max_message_bytes=64))
        parts = Producing(StoreSink(store), ack="flushed")
        small = TopicPartition("small", 0)
        refused, taken = parts.append(bytes(200), to=small), parts.append(to=T1)
        parts.run()
        with pytest.raises(RecordTooLargeError):
            refused.result(0)
        assert taken.result(0).offset == 0
        assert store.log(*T1).flushed_offset == 1


def test_sync_that_fails_fails_every_batch_of_its_log(store, monkeypatch):
    parts = Producing(StoreSink(store), ack="flushed")

    def failing():
        raise StorageError("sync", errno=errno.EIO)

    monkeypatch.setattr(store.log(*T0), "flush", failing)
    futures = [parts.append_batch(b"%d" % number)[0] for number in range(3)]
    parts.run()
    assert [type(future.exception(0)) for future in futures] == [StorageError] * 3
    parts.check_at_rest()


def test_written_and_buffered_batches_are_not_synced(store, monkeypatch):
    log = store.log(*T0)
    monkeypatch.setattr(log, "flush", lambda: pytest.fail("flushed"))
    for ack in ("written", "buffered"):
        parts = Producing(StoreSink(store), ack=ack)
        parts.append()
        parts.run()
        parts.check_at_rest()
    assert log.log_end_offset == 2


def test_full_disk_is_tried_again_and_a_failed_log_is_not(store, monkeypatch):
    parts = Producing(StoreSink(store))
    log = store.log(*T0)
    append, errors = log.append_batches, [StorageError("full", errno=errno.ENOSPC)]

    def troubled(batches):
        if errors:
            raise errors.pop()
        return append(batches)

    monkeypatch.setattr(log, "append_batches", troubled)
    futures = parts.append_batch(b"0") + parts.append_batch(b"1")
    parts.run_until_done(*futures)
    assert values(store) == [b"0", b"1"]
    errors.append(LogFailedError("failed", errno=errno.ENOSPC))
    future = parts.append()
    parts.run()
    with pytest.raises(LogFailedError):
        future.result()
    parts.check_at_rest()


def test_full_disk_that_makes_a_log_fail_is_not_tried_again(tmp_path):
    """The write runs out of space halfway, and what it wrote can't be removed."""
    env = FaultyEnv()
    with opened(tmp_path / "root", env=env) as store:
        parts = Producing(StoreSink(store))
        parts.append(b"0")
        parts.run()
        env._fault = Fault(env.calls + 1, "short", is_for_good=True)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(os, "ftruncate", failing(errno.EIO))
            future = parts.append()
            parts.run()
        env.heal()
        assert future.done()
        error = future.exception()
        assert (type(error), error.errno) == (StorageError, errno.ENOSPC)
        assert values(store) == [b"0"]
        parts.check_at_rest()


def test_batch_too_large_for_the_topic_is_split(tmp_path):
    with opened(tmp_path / "root", max_message_bytes=400) as store:
        parts = Producing(StoreSink(store), is_idempotent=True)
        futures = [parts.append(b"%d" % number * 100) for number in range(8)]
        large = parts.append(b"x" * 500)
        parts.run_until_done(*futures, large)
        assert [future.result().offset for future in futures] == list(range(8))
        assert values(store) == [b"%d" % number * 100 for number in range(8)]
        with pytest.raises(RecordTooLargeError):
            large.result()
        parts.check_at_rest()


def test_record_that_the_topic_refuses_fails_by_itself(tmp_path):
    with opened(tmp_path / "root", cleanup_policy="compact") as store:
        parts = Producing(StoreSink(store))
        futures = [parts.append(b"0", key=b"k"), parts.append(b"1"), parts.append(b"2", key=b"k")]
        parts.run()
        refused = futures[1].exception()
        assert isinstance(refused, RecordValidationError)
        assert len(refused.errors) == 1
        assert not isinstance(futures[0].exception(), RecordValidationError)
        assert values(store) == []
        parts.check_at_rest()


def test_partition_that_is_gone_fails_its_batches(store):
    parts = Producing(StoreSink(store))
    sink = parts.sink
    cluster = sink.cluster()
    future = parts.append()
    sink._store = open_store(Path(store.root).parent / "empty", "a")
    sink.cluster = lambda: cluster
    parts.run()
    with pytest.raises(UnknownTopicOrPartitionError, match="t-0"):
        future.result()
    sink._store.close()


def test_closed_store_fails_the_batches_and_the_sender_ends(store):
    parts = Producing(StoreSink(store))
    future = parts.append()
    store.close()
    parts.sender.initiate_close()
    parts.sender.run()
    assert isinstance(future.exception(), StorageError)
    parts.check_at_rest()


# Idempotence


class ForgetfulSink(StoreSink):
    """Appends, and then says that it did not, as often as it is told to."""

    lies = 1

    def send(self, node, batches, *, ack):
        responses = super().send(node, batches, ack=ack)
        if self.lies:
            self.lies -= 1
            error = StorageError("the answer was lost")
            return [one._replace(error=error, is_retriable=True) for one in responses]
        return responses


@pytest.mark.parametrize("batches", [1, 2, 5])
def test_batches_whose_answer_was_lost_are_in_the_log_once(store, batches):
    parts = Producing(ForgetfulSink(store), is_idempotent=True)
    futures = [parts.append_batch(b"%d" % number)[0] for number in range(batches)]
    parts.run_until_done(*futures)
    assert values(store) == [b"%d" % number for number in range(batches)]
    assert [future.result().offset for future in futures] == list(range(batches))
    parts.check_at_rest()


@pytest.mark.parametrize("is_clean", [True, False], ids=["closed", "rolled"])
def test_batches_that_the_log_forgot_the_offsets_of_are_in_it_once(tmp_path, is_clean):
    """A snapshot keeps the last batch of a producer only; Kafka's producer writes the others twice."""
    sink = ForgetfulSink(opened(tmp_path / "root"))
    parts = Producing(sink, is_idempotent=True)
    futures = [parts.append_batch(b"%d" % number)[0] for number in range(4)]
    parts.run()
    sink._store.log(*T0).roll()
    if is_clean:
        sink._store.close()
        sink._store = opened(tmp_path / "root")
    parts.run_until_done(*futures)
    with sink._store as store:
        assert values(store) == [b"0", b"1", b"2", b"3"]
    told = [future.result().offset for future in futures]
    assert told[-1] == 3
    assert all(offset in (-1, place) for place, offset in enumerate(told))


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_producer_goes_on_where_the_log_has_lost_what_it_knew_of_it(store, kept):
    """Of a producer that is unknown any sequence is taken; one that is known too little of begins a new epoch."""
    parts = Producing(StoreSink(store), is_idempotent=True)
    parts.run_until_done(*(parts.append_batch(b"%d" % number)[0] for number in range(3)))
    store.log(*T0).truncate_to(kept)
    parts.run_until_done(*(parts.append_batch(b"%d" % number)[0] for number in range(3, 6)))
    assert values(store) == [*(b"%d" % number for number in range(kept)), b"3", b"4", b"5"]
    parts.check_at_rest()


def test_batch_of_which_the_log_has_only_the_start_counts_as_refused(store):
    producer = {"producer_id": 9, "producer_epoch": 0}
    log = store.log(*T0)
    log.append(MemoryRecords(builders.batch(0, 3, base_sequence=0, **producer)))
    pool = BufferPool(BATCH_SIZE, BATCH_SIZE)
    batch = ProducerBatch.open(T0, pool, pool.allocate(BATCH_SIZE, max_time_to_block_ms=0), now_ms=0)
    for number in range(3):
        batch.try_append(number, None, b"v", (), None, 0)
    batch.set_producer_state(base_sequence=1, is_transactional=False, **producer)
    (response,) = StoreSink(store).send(Node(0), [batch], ack="written")
    assert isinstance(response.error, OutOfOrderSequenceError)
    assert log.log_end_offset == 3


# Transactions


def in_transaction(store):
    coordinator = coordinator_of(store)
    manager = TransactionManager(transactional_id="id", coordinator=coordinator)
    parts = Producing(StoreSink(store, coordinator=coordinator), manager=manager)
    result = manager.init_transactions()
    parts.run()
    result.wait(0)
    manager.begin_transaction()
    return coordinator, manager, parts


def test_data_of_a_transaction_that_ended_meanwhile_is_not_appended(store):
    coordinator, manager, parts = in_transaction(store)
    future = parts.append()
    manager.maybe_add_partition(T0)
    manager.run_request(is_done=lambda: False)
    coordinator.end_transaction("id", manager.producer_id_and_epoch, is_commit=True)
    end = store.log(*T0).log_end_offset
    parts.run()
    assert isinstance(future.exception(), InvalidTxnStateError)
    assert store.log(*T0).log_end_offset == end
    assert manager.has_abortable_error


def test_data_of_a_fenced_producer_is_not_appended(store):
    coordinator, manager, parts = in_transaction(store)
    future = parts.append()
    manager.maybe_add_partition(T0)
    manager.run_request(is_done=lambda: False)
    coordinator.init_producer_id("id")
    parts.run()
    assert future.exception() is not None
    assert values(store) == []
    result = manager.begin_abort()
    parts.run(3)
    with pytest.raises(ProducerFencedError):
        result.wait(0)
