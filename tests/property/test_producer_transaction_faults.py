"""Goal: whatever sink and disk do, a transaction told to be committed is whole and there once, any other is not there.
Method: random transactions over a real log and coordinator, a sink that breaks and a disk that fills up, by a seed."""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore.coordinator.producer_ids import ProducerIdAndEpoch
from kstore.errors import BufferExhaustedError, KStoreError, StorageError
from kstore.producer import TransactionCoordinator, TransactionManager
from kstore.store.store import WritableStore, open_store
from kstore.types import Ack, TopicPartition
from tests.fakes.sending import T0, T1, Producing
from tests.making.strategies import examples
from tests.property.test_producer_faults import FaultySink

TRANSACTIONS = 12


class FillingUp(TransactionCoordinator):
    """Finds no space by chance while is_full, before it does anything or when it is done."""

    is_full = False
    random = Random()

    def _space(self) -> None:
        if self.is_full and self.random.random() < 0.2:
            raise StorageError("no space", errno=errno.ENOSPC)

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Iterable[TopicPartition],
        *,
        ack: Ack = "written",
    ) -> None:
        self._space()
        super().add_partitions(transactional_id, producer, partitions, ack=ack)
        self._space()

    def end_transaction(
        self, transactional_id: str, producer: ProducerIdAndEpoch, *, is_commit: bool, ack: Ack = "written"
    ) -> None:
        self._space()
        super().end_transaction(transactional_id, producer, is_commit=is_commit, ack=ack)
        self._space()


class Run:
    """A transactional producer, what it was told, and what readers have to see therefore."""

    def __init__(self, store: WritableStore, random: Random) -> None:
        self.random = random
        self.coordinator = FillingUp(store, partition_count=1)
        self.coordinator.random = random
        self.manager = TransactionManager(transactional_id="id", coordinator=self.coordinator)
        self.sink = FaultySink(store, random)
        self.sink.coordinator = self.coordinator
        self.parts = Producing(
            self.sink,
            manager=self.manager,
            max_in_flight=random.choice([1, 5]),
            delivery_timeout_ms=random.choice([400, 5000]),
            linger_ms=random.choice([0, 30]),
        )
        self.count = 0
        self.committed: dict[TopicPartition, list[bytes]] = {T0: [], T1: []}

    def step(self, *, is_faulty: bool) -> None:
        self.sink.is_faulty = self.coordinator.is_full = is_faulty
        self.parts.sender._guarded_run()
        self.sink.is_faulty = self.coordinator.is_full = False
        self.parts.clock.now_ms += self.random.choice([0, 1, 30, 120])

    def await_(self, result: Any) -> None:
        """Wait for a call to end, in peace after a while.  Raises: its error."""
        for number in range(200):
            if result.is_completed:
                break
            self.step(is_faulty=number < 20)
        result.wait(0)

    def send(self, to: TopicPartition) -> tuple[TopicPartition, bytes, Any]:
        value = b"%06d" % self.count
        self.count += 1
        future = self.parts.append(value + bytes(self.random.randrange(400)), to=to)
        self.manager.maybe_add_partition(to)
        return to, value, future

    def transaction(self) -> None:
        self.manager.begin_transaction()
        sent = []
        try:
            for _ in range(self.random.randrange(8)):
                sent.append(self.send(self.random.choice([T0, T1])))
                if self.random.random() < 0.5:
                    self.step(is_faulty=True)
            if self.random.random() < 0.8:
                self.await_(self.manager.begin_commit())
                for to, value, future in sent:
                    assert future.exception(0) is None
                    self.committed[to].append(value)
                return
        except BufferExhaustedError:
            pass
        except KStoreError:
            assert self.manager.has_abortable_error
        self.await_(self.manager.begin_abort())
        assert all(future.done() for *_, future in sent)


@examples(20)
@given(seed=st.integers(0, 2**32))
def test_committed_transactions_are_whole_and_others_are_not_there(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    root: Path = tmp_path_factory.mktemp("faults") / "root"
    with pytest.MonkeyPatch.context() as monkeypatch, open_store(root, "a") as store:
        monkeypatch.setattr(logging.getLogger("kstore.producer"), "disabled", True)
        store.create_topic("t", 4)
        store.create_topic("__transaction_state", 1)
        run = Run(store, Random(seed))
        run.await_(run.manager.init_transactions())
        for _ in range(TRANSACTIONS):
            run.transaction()
        run.parts.check_at_rest()
        for one, values in run.committed.items():
            log = store.log(*one)
            assert log.last_stable_offset == log.log_end_offset
            assert [bytes(r.value or b"")[:6] for r in log.read(isolation="read_committed")] == values
