"""Goal: whatever breaks in a run of the Sender, futures are done, memory comes back, and every partition goes on.
Method: parts that fail where nothing should, once; a real log that knows sequences; run step by step."""

from __future__ import annotations

import logging

import pytest

from kstore.coordinator.transaction.coordinator import TransactionCoordinator
from kstore.errors import KStoreError, RecordTooLargeError
from kstore.producer.batches.batch import ProducerBatch
from kstore.producer.sending.store_sink import StoreSink
from kstore.producer.transactions import TransactionManager
from kstore.store.store import open_store
from tests.fakes.sending import T0, T1, Producing, ScriptedSink, again, fails

IDEMPOTENCE = pytest.mark.parametrize("is_idempotent", [False, True], ids=["plain", "idempotent"])


@pytest.fixture(autouse=True)
def quiet(caplog):
    caplog.set_level(logging.CRITICAL, logger="kstore.producer")


def broken(*_, **__):
    raise MemoryError("broken")


def run_broken(parts, monkeypatch, owner, name):
    """Let one run of the Sender break where that method is called."""
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, broken)
        parts.sender._guarded_run()


class Checking(ScriptedSink):
    """Asks a real log about each batch before it is taken, unless there is an answer."""

    def __init__(self, store):
        super().__init__()
        self._log = StoreSink(store)

    def _answer(self, batch):
        if self.answers:
            return super()._answer(batch)
        return self._log.send(self._log.cluster().nodes[0], [batch], ack="written")[0]


@pytest.fixture
def store(tmp_path):
    with open_store(tmp_path / "root", "a") as opened:
        opened.create_topic("t", 4)
        yield opened


def one_written_and_one_to_be_lost(store):
    parts = Producing(Checking(store), is_idempotent=True)
    written = parts.append_batch(b"0")
    parts.run()
    return parts, written, parts.append_batch(b"1")


@IDEMPOTENCE
@pytest.mark.parametrize("method", ["seal", "drained"])
def test_drain_that_breaks_off_fails_what_was_taken_out(monkeypatch, is_idempotent, method):
    parts = Producing(is_idempotent=is_idempotent)
    futures = parts.append_batch(b"0", b"1") + parts.append_batch(b"2", to=T1)
    run_broken(parts, monkeypatch, ProducerBatch, method)
    parts.run_until_done(*futures)
    assert any(isinstance(future.exception(), KStoreError) for future in futures)
    parts.check_at_rest()


@IDEMPOTENCE
@pytest.mark.parametrize("method", ["split", "reenqueued"])
def test_batches_that_are_put_back_survive_or_fail_when_that_breaks(monkeypatch, is_idempotent, method):
    parts = Producing(is_idempotent=is_idempotent)
    futures = parts.append_batch(b"0", b"1") + parts.append_batch(b"2", to=T1) + parts.append_batch(b"3")
    parts.sink.answers += [fails(RecordTooLargeError("too large")), again(), again()]
    run_broken(parts, monkeypatch, ProducerBatch, method)
    parts.run_until_done(*futures)
    assert any(isinstance(future.exception(), KStoreError) for future in futures)
    parts.check_at_rest()


@pytest.mark.parametrize("answer", [None, [None], 7], ids=["none", "no response", "no sequence"])
def test_partition_goes_on_behind_an_answer_that_is_none(monkeypatch, answer):
    parts = Producing(is_idempotent=True, max_in_flight=1)
    futures = parts.append_batch(b"0")
    with monkeypatch.context() as patch:
        patch.setattr(parts.sink, "send", lambda *_, **__: answer)
        parts.sender._guarded_run()
    assert isinstance(futures[0].exception(0), KStoreError)
    later = parts.append_batch(b"1")
    parts.run(2)
    assert later[0].result(0).offset == 0
    parts.check_at_rest()


def test_sequences_go_on_in_a_new_epoch_when_it_is_not_known_what_is_in_the_log(monkeypatch, store):
    parts, first, lost = one_written_and_one_to_be_lost(store)
    run_broken(parts, monkeypatch, ProducerBatch, "seal")
    later = parts.append_batch(b"2")
    parts.run(2)
    assert isinstance(lost[0].exception(0), KStoreError)
    assert [future.result(0).offset for future in first + later] == [0, 1]
    parts.check_at_rest()


def test_sequences_go_on_in_a_new_epoch_when_batches_to_be_sent_again_were_aborted(monkeypatch, store):
    parts, first, lost = one_written_and_one_to_be_lost(store)
    parts.sink.answers.append(again())
    parts.run()
    run_broken(parts, monkeypatch, parts.sink, "cluster")
    later = parts.append_batch(b"2")
    parts.run(2)
    assert isinstance(lost[0].exception(0), KStoreError)
    assert [future.result(0).offset for future in first + later] == [0, 1]
    parts.check_at_rest()


def test_transaction_whose_records_were_aborted_is_not_committed(monkeypatch, store):
    coordinator = TransactionCoordinator(store, partition_count=1)
    manager = TransactionManager(transactional_id="id", coordinator=coordinator)
    parts = Producing(StoreSink(store, coordinator=coordinator), manager=manager, linger_ms=1000)
    result = manager.init_transactions()
    parts.run(2)
    result.wait(0)
    manager.begin_transaction()
    lost = parts.append(to=T0)
    manager.maybe_add_partition(T0)
    parts.run()
    run_broken(parts, monkeypatch, parts.sink, "cluster")
    assert isinstance(lost.exception(0), KStoreError)
    with pytest.raises(KStoreError, match="broken"):
        manager.begin_commit()
    parts.check_at_rest()


def test_transaction_without_records_outlives_a_sink_that_does_not_answer_once(monkeypatch, store):
    coordinator = TransactionCoordinator(store, partition_count=1)
    manager = TransactionManager(transactional_id="id", coordinator=coordinator)
    parts = Producing(StoreSink(store, coordinator=coordinator), manager=manager)
    result = manager.init_transactions()
    parts.run(2)
    result.wait(0)
    manager.begin_transaction()
    run_broken(parts, monkeypatch, parts.sink, "cluster")
    kept = parts.append(to=T0)
    manager.maybe_add_partition(T0)
    result = manager.begin_commit()
    parts.run(5)
    result.wait(0)
    assert kept.result(0).offset == 0


@pytest.mark.parametrize("error", [ValueError("too long"), OSError("disk"), MemoryError("no")], ids=repr)
def test_coordinator_that_breaks_fails_who_waits_and_the_sender_ends(monkeypatch, store, error):
    coordinator = TransactionCoordinator(store, partition_count=1)
    manager = TransactionManager(transactional_id="id", coordinator=coordinator)
    parts = Producing(StoreSink(store, coordinator=coordinator), manager=manager)

    def init_producer_id(*_, **__):
        raise error

    monkeypatch.setattr(coordinator, "init_producer_id", init_producer_id)
    result = manager.init_transactions()
    parts.sender._guarded_run()
    with pytest.raises(KStoreError, match=str(error)):
        result.wait(0)
    parts.sender.initiate_close()
    parts.sender.start()
    assert parts.sender.join(60)
