"""Goal: whatever two producers of one transactional id do and when, readers see what was committed, whole and once, and
a producer that was replaced can do nothing.
Method: random histories of a producer of version 1 and one of version 2 over a real store, with timeouts, lost answers,
restarts and crashes while a transaction ends, against a model of a page."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kstore.coordinator.producer_ids import MAX_PRODUCER_EPOCH, NO_PRODUCER, ProducerIdAndEpoch
from kstore.coordinator.transaction.coordinator import TransactionCoordinator
from kstore.coordinator.transaction.log import TransactionLog
from kstore.coordinator.transaction.state import TransactionState
from kstore.errors import LogFailedError, ProducerFencedError, ProducerStateError, TransactionStateError
from kstore.store.store import open_store
from kstore.types import TopicPartition
from tests.fakes.failing_store import FailingStore
from tests.fakes.sending import ManualClock
from tests.making.strategies import examples
from tests.making.transactions import data

PLACES = (TopicPartition("t", 0), TopicPartition("t", 1))
TIMEOUT_MS = 1000
NAMES = st.sampled_from(("old", "new"))
# The transaction.version that each producer has.
VERSIONS = {"old": 0, "new": 2}


class Client:
    """A producer: its id and epoch, and the next sequence of each partition."""

    def __init__(self) -> None:
        self.producer = NO_PRODUCER
        self.sequences: dict[TopicPartition, int] = {}

    def go_on_as(self, producer: ProducerIdAndEpoch) -> None:
        if producer != self.producer:
            self.producer, self.sequences = producer, {}


class Written(NamedTuple):
    place: TopicPartition
    value: bytes


class TransactionHistories(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.clock = ManualClock()
        self.clients = {name: Client() for name in VERSIONS}
        # The model: who may write, what is open, how the last transaction ended, and what readers see.
        self.current: str | None = None
        # Whether its transaction took too long: a producer of version 2 has to abort it, or to start anew.
        self.is_late = self.is_forgotten = False
        self.open: list[Written] | None = None
        self.last_outcome: bool | None = None
        self.committed: list[Written] = []
        self.values = 0

    @initialize(first_epoch=st.sampled_from((0, MAX_PRODUCER_EPOCH - 4)))
    def begin(self, first_epoch: int) -> None:
        with open_store(self.root, "a") as store:
            store.create_topic("t", 2)
            if first_epoch:
                state = TransactionState.first("id", timeout_ms=TIMEOUT_MS, now_ms=self.clock.wall_clock_ms())
                used = TransactionState(
                    transactional_id="id",
                    producer=state.producer._replace(epoch=first_epoch),
                    timeout_ms=TIMEOUT_MS,
                    last_update_ms=state.last_update_ms,
                )
                TransactionLog(store, partition_count=1).append(used, ack="written")
        self.start()

    def start(self) -> None:
        self.store = open_store(self.root, "a")
        self.failing = FailingStore(self.store)
        self.coordinator = TransactionCoordinator(self.failing, partition_count=1, clock=self.clock)

    @rule()
    def restart(self) -> None:
        self.is_forgotten = True
        self.store.close()
        self.start()

    @rule(name=NAMES)
    def init(self, name: str) -> None:
        self.clients[name].go_on_as(self.coordinator.init_producer_id("id", timeout_ms=TIMEOUT_MS))
        self.current, self.open, self.last_outcome, self.is_late = name, None, None, False

    @rule(name=NAMES, is_answer_lost=st.booleans())
    def init_again(self, name: str, is_answer_lost: bool) -> None:
        client = self.clients[name]
        if not client.producer.is_valid:
            return
        if name != self.current or (self.is_late and self.is_forgotten):
            with pytest.raises(ProducerFencedError):
                self.coordinator.init_producer_id("id", timeout_ms=TIMEOUT_MS, current=client.producer)
            return
        for _ in range(1 + is_answer_lost):
            producer = self.coordinator.init_producer_id("id", timeout_ms=TIMEOUT_MS, current=client.producer)
        client.go_on_as(producer)
        self.open, self.last_outcome, self.is_late = None, None, False

    @rule(name=NAMES, place=st.sampled_from(PLACES))
    def produce(self, name: str, place: TopicPartition) -> None:
        client, self.values = self.clients[name], self.values + 1
        value = b"%d" % self.values
        try:
            self.coordinator.add_partitions("id", client.producer, [place], client_version=VERSIONS[name])
            with self.coordinator.appending(client.producer, [place], transactional_id="id"):
                sequence = client.sequences.get(place, 0)
                self.store.log(*place).append(data(client.producer, sequence=sequence, count=1, value=value))
        except ProducerFencedError:
            assert name != self.current or self.is_late
            if client.producer.is_valid:
                with pytest.raises((ProducerStateError, ProducerFencedError)):
                    self.coordinator.appending(client.producer, [place], transactional_id="id").__enter__()
            return
        assert name == self.current
        assert not self.is_late
        client.sequences[place] = sequence + 1
        self.open = [*(self.open or ()), Written(place, value)]

    @rule(name=NAMES, is_commit=st.booleans(), is_answer_lost=st.booleans())
    def end(self, name: str, is_commit: bool, is_answer_lost: bool) -> None:
        client = self.clients[name]
        if name != self.current:
            with pytest.raises(ProducerFencedError):
                self.end_of(name, is_commit=is_commit)
        elif self.may_end(name, is_commit=is_commit):
            producer = self.end_of(name, is_commit=is_commit)
            if is_answer_lost:
                assert self.end_of(name, is_commit=is_commit) == producer
                with pytest.raises(TransactionStateError):
                    self.end_of(name, is_commit=not is_commit)
            assert (producer != client.producer) is (VERSIONS[name] == 2)
            self.ended(name, producer, is_commit=is_commit)
        else:
            with pytest.raises(TransactionStateError):
                self.end_of(name, is_commit=is_commit)

    @rule(name=NAMES, is_commit=st.booleans(), appends=st.integers(0, 4), is_restarted=st.booleans())
    def crash_while_it_ends(self, name: str, is_commit: bool, appends: int, is_restarted: bool) -> None:
        if name != self.current or self.open is None:
            return
        self.failing.left = appends
        with suppress(LogFailedError):
            self.end_of(name, is_commit=is_commit)
        self.failing.left = 10**9
        if is_restarted:
            self.restart()
        self.ended(name, self.end_of(name, is_commit=is_commit), is_commit=is_commit)

    @rule(waits_ms=st.sampled_from((1, TIMEOUT_MS // 2, TIMEOUT_MS + 1)))
    def time_passes(self, waits_ms: int) -> None:
        started_ms = None if self.open is None else self.coordinator.state("id").start_ms
        self.clock.now_ms += waits_ms
        is_late = started_ms is not None and self.clock.wall_clock_ms() - started_ms > TIMEOUT_MS
        assert self.coordinator.abort_expired() == is_late
        if is_late:
            self.is_late, self.is_forgotten = self.current == "new", False
            self.current, self.open = self.current if self.is_late else None, None

    @invariant()
    def readers_see_what_was_committed(self) -> None:
        if not hasattr(self, "store"):
            return
        for place in PLACES:
            log = self.store.log(*place)
            found = [record.value for record in log.read(isolation="read_committed")]
            assert found == [one.value for one in self.committed if one.place == place]
            if self.open is None:
                assert log.last_stable_offset == log.log_end_offset

    def end_of(self, name: str, *, is_commit: bool) -> ProducerIdAndEpoch:
        producer = self.clients[name].producer
        return self.coordinator.end_transaction("id", producer, is_commit=is_commit, client_version=VERSIONS[name])

    def may_end(self, name: str, *, is_commit: bool) -> bool:
        """Whether a request to end a transaction is answered; without one, as a repeated one of version 1, and as an
        abort of version 2."""
        if self.open is not None:
            return True
        return not is_commit if VERSIONS[name] == 2 else self.last_outcome is is_commit

    def ended(self, name: str, producer: ProducerIdAndEpoch, *, is_commit: bool) -> None:
        self.clients[name].go_on_as(producer)
        self.committed += (self.open or []) if is_commit else []
        self.open, self.last_outcome, self.is_late = None, is_commit, False

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
        shutil.rmtree(self.root)


TestTransactionHistories = TransactionHistories.TestCase
TestTransactionHistories.settings = examples(300, stateful_step_count=15)
