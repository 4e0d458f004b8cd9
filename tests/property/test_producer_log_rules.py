"""Goal: over a log of Kafka's rules whose answers get lost, a record whose future succeeded is there once, in order.
Method: a model of that log behind a sink that loses, delays, doubles and refuses requests, drawn by a seed; futures,
callbacks and sent batches are compared with what the model holds."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any, NamedTuple

import pytest

from kstore.coordinator.producer_ids import ProducerIdAndEpoch
from kstore.errors import (
    BufferExhaustedError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    KStoreError,
    OutOfOrderSequenceError,
    ProducerStateError,
    RecordTooLargeError,
    StorageError,
)
from kstore.producer import Cluster, Node, ProduceResponse, TransactionManager
from kstore.producer.batches.batch import ProducerBatch
from kstore.types import TopicPartition
from tests.fakes.sending import CLUSTER, T0, T1, Producing

STEPS = 50
REMEMBERED = 5
LOST = ProduceResponse(-1, error=StorageError("timed out"), is_retriable=True)
REFUSED = ProduceResponse(-1, error=KStoreError("refused"))
TOO_LARGE = ProduceResponse(-1, error=RecordTooLargeError("too large"))
FAULTS = [
    "lose request",
    "lose answer",
    "delay",
    "double",
    "refuse",
    "try again",
    "too large",
    "fence",
    "nonsense",
    "end",
]


class Request(NamedTuple):
    """A batch on its way to the log."""

    topic_partition: TopicPartition
    producer_id: int
    epoch: int
    base_sequence: int
    values: tuple[bytes, ...]


class ModelProducer:
    """What a log knows of one producer: its epoch, its last sequence, the last batches as (request, base offset)."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.last_sequence = -1
        self.batches: deque[tuple[Request, int]] = deque(maxlen=REMEMBERED)


class ModelLog:
    """One partition.  Source: Kafka ProducerAppendInfo.checkSequence, ProducerStateEntry, KIP-890.

    Attributes: writers: who may append transactional data now, None if there are no transactions; undecided (values of
    the open transaction), committed.
    """

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self.producers: dict[int, ModelProducer] = {}
        self.writers: set[ProducerIdAndEpoch] | None = None
        self.undecided: list[bytes] = []
        self.committed: list[bytes] = []

    def append(self, request: Request) -> ProduceResponse:
        state = self.producers.get(request.producer_id)
        if self.writers is not None and (request.producer_id, request.epoch) not in self.writers:
            return refused(InvalidTxnStateError, request)
        if state is not None and request.epoch < state.epoch:
            return refused(InvalidProducerEpochError, request)
        if state is None or request.epoch > state.epoch:
            if request.base_sequence != 0:
                return refused(OutOfOrderSequenceError, request)
            state = self.producers[request.producer_id] = ModelProducer(request.epoch)
        for known, base_offset in state.batches:
            if known == request:
                return ProduceResponse(base_offset)
        if request.base_sequence != state.last_sequence + 1:
            return refused(OutOfOrderSequenceError, request)
        base_offset = len(self.values)
        self.values += request.values
        self.undecided += request.values
        state.last_sequence = request.base_sequence + len(request.values) - 1
        state.batches.append((request, base_offset))
        return ProduceResponse(base_offset)

    def mark(self, *, is_commit: bool) -> None:
        """End the open transaction."""
        self.writers = set()
        if is_commit:
            self.committed += self.undecided
        self.undecided.clear()

    def restart(self) -> None:
        """Forget all batches of a producer but its last one, as a broker does that starts from a snapshot."""
        for state in self.producers.values():
            while len(state.batches) > 1:
                state.batches.popleft()


def refused(kind: type[ProducerStateError], request: Request) -> ProduceResponse:
    error = kind("refused by the log", producer_id=request.producer_id, producer_epoch=request.epoch)
    return ProduceResponse(-1, error=error)


class ModelCoordinator:
    """Gives one transactional id its epochs, and writes the markers of its transactions into the model's logs."""

    def __init__(self, logs: dict[TopicPartition, ModelLog]) -> None:
        self.logs = logs
        self.epoch = -1
        for log in logs.values():
            log.writers = set()

    def init_producer_id(self, *_: Any, **__: Any) -> ProducerIdAndEpoch:
        self.epoch += 1
        return ProducerIdAndEpoch(7, self.epoch)

    def add_partitions(self, *given: Any, **_: Any) -> None:
        _, producer, partitions = given
        for one in partitions:
            self.logs[one].writers = {producer}

    def end_transaction(self, *_: Any, is_commit: bool, **__: Any) -> None:
        for log in self.logs.values():
            log.mark(is_commit=is_commit)


class LossySink:
    """Takes requests to the logs while faults, drawn by a seed, befall them.

    Attributes: delayed (requests on their way); awaited (values of batches to be sent again); passed (batches that were
    sent before an earlier one was sent again).
    """

    def __init__(self, random: Random) -> None:
        self.random = random
        self.fault_chance = random.choice([0.05, 0.2, 0.5])
        self.faults = random.sample(FAULTS, random.randrange(1, len(FAULTS) + 1))
        self.is_faulty = False
        self.logs = {T0: ModelLog(), T1: ModelLog()}
        self.delayed: list[Request] = []
        self.awaited: dict[TopicPartition, set[bytes]] = {T0: set(), T1: set()}
        self.passed: list[Request] = []

    def cluster(self) -> Cluster:
        return CLUSTER

    def send(self, _: Node, batches: Sequence[ProducerBatch], **__: Any) -> Any:
        self.deliver_delayed()
        whole = self.random.choice(["raise", "raise behind"]) if self.is_hit(0.1) else "none"
        requests = [request_of(batch) for batch in batches]
        self.note_what_passes(requests)
        if whole == "raise":
            raise OSError("before")
        if self.is_hit(0.3):
            for log in self.logs.values():
                log.restart()
        first = {batch.topic_partition: batch for batch in reversed(batches)}
        answers = [
            self.answer(batch, request, is_first=first[batch.topic_partition] is batch)
            for batch, request in zip(batches, requests, strict=True)
        ]
        if whole == "raise behind":
            raise OSError("behind")
        self.note_what_is_awaited(requests, answers)
        return answers

    def is_hit(self, share: float = 1.0) -> bool:
        return self.is_faulty and self.random.random() < self.fault_chance * share

    def answer(self, batch: ProducerBatch, request: Request, *, is_first: bool) -> Any:
        fault = self.random.choice(self.faults) if self.is_hit() else "none"
        if fault == "too large":
            fault = "refuse" if batch.record_count == 1 else fault
        if fault == "lose request":
            return LOST
        if fault == "delay":
            self.delayed.append(request)
            return LOST
        if fault in {"refuse", "too large", "try again"}:
            return {"refuse": REFUSED, "too large": TOO_LARGE, "try again": LOST}[fault]
        if fault == "fence":
            return refused(InvalidProducerEpochError, request)
        log = self.logs[request.topic_partition]
        answer = log.append(request)
        if fault == "double":
            answer = log.append(request)
        if fault == "end" and answer.error is None and is_first:
            batch.complete(answer.base_offset)
        if fault == "nonsense":
            return self.random.choice([None, 7, ProduceResponse(-2)])
        return LOST if fault == "lose answer" else answer

    def deliver_delayed(self) -> None:
        """Let requests arrive whose senders gave them up for lost, in any order."""
        self.random.shuffle(self.delayed)
        while self.delayed and self.random.random() < 0.5:
            request = self.delayed.pop()
            self.logs[request.topic_partition].append(request)

    def note_what_passes(self, requests: Iterable[Request]) -> None:
        # What is raised here would be a fault of the sink.
        self.passed += [
            one for one in requests if any(value < one.values[0] for value in self.awaited[one.topic_partition])
        ]

    def note_what_is_awaited(self, requests: Iterable[Request], answers: Iterable[Any]) -> None:
        for request, answer in zip(requests, answers, strict=True):
            if isinstance(answer, ProduceResponse) and (
                answer.is_retriable or isinstance(answer.error, OutOfOrderSequenceError)
            ):
                self.awaited[request.topic_partition].update(request.values)
            else:
                self.awaited[request.topic_partition].difference_update(request.values)


def request_of(batch: ProducerBatch) -> Request:
    values = tuple(bytes(record.value or b"")[:6] for record in batch.records())
    return Request(batch.topic_partition, batch.producer_id, batch.producer_epoch, batch.base_sequence, values)


class IdempotentRun:
    """A producer that sends numbered values for a while, with faults, and then in peace until nothing is left."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.sink = LossySink(self.random)
        self.manager = self.make_manager()
        self.parts = Producing(
            self.sink,
            manager=self.manager,
            max_in_flight=self.random.choice([1, 2, 5, 5]),
            delivery_timeout_ms=self.random.choice([400, 5000]),
            linger_ms=self.random.choice([0, 30]),
            retries=self.random.choice([2, 2**31 - 1]),
            compression=self.random.choice(["none", "none", "gzip"]),
        )
        self.sent: list[tuple[TopicPartition, bytes, Any]] = []
        self.heard: dict[TopicPartition, list[bytes]] = {T0: [], T1: []}
        self.results: dict[bytes, tuple[Any, Any]] = {}

    def make_manager(self) -> TransactionManager:
        return TransactionManager()

    def append(self, topic_partition: TopicPartition) -> Any:
        value = b"%06d" % len(self.sent)

        def on_delivery(metadata: Any, error: Any) -> None:
            self.heard[topic_partition].append(value)
            self.results[value] = metadata, error
            self.sink.awaited[topic_partition].discard(value)

        padded = value + bytes(self.random.randrange(600))
        future = self.parts.append(padded, to=topic_partition, callback=on_delivery)
        self.sent.append((topic_partition, value, future))
        return future

    def step(self, *, is_faulty: bool = True) -> None:
        self.sink.is_faulty = is_faulty
        with pytest.MonkeyPatch.context() as patch:
            if is_faulty and self.random.random() < 0.05:
                patch.setattr(ProducerBatch, "close", breaking_after(self.random.randrange(3)))
            self.parts.sender._guarded_run()
        self.parts.clock.now_ms += self.random.choice([0, 1, 30, 120, 300]) if is_faulty else 50

    def run(self) -> None:
        for _ in range(STEPS):
            for _ in range(self.random.randrange(5)):
                try:
                    self.append(self.random.choice([T0, T0, T0, T1]))
                except BufferExhaustedError:
                    break
            self.step()
        if self.random.random() < 0.2:
            self.parts.accumulator.abort_incomplete_batches()
            return
        self.settle()
        after = [self.append(one) for one in (T0, T1)]
        self.settle()
        assert [future.exception(0) for future in after] == [None, None]

    def settle(self) -> None:
        for _ in range(1000):
            if not self.parts.accumulator.has_incomplete:
                break
            self.step(is_faulty=False)
        self.parts.check_at_rest()

    def check(self) -> None:
        """Every future is done and true, and callbacks came in the order of the records."""
        assert not self.sink.passed
        assert all(future.done() for *_, future in self.sent)
        for topic_partition, heard in self.heard.items():
            assert heard == [value for to, value, _ in self.sent if to == topic_partition]
            values = self.sink.logs[topic_partition].values
            assert values == sorted(values)
        for topic_partition, value, future in self.sent:
            offsets = [at for at, one in enumerate(self.sink.logs[topic_partition].values) if one == value]
            if future.exception(0) is None:
                assert len(offsets) == 1, (value, offsets)
                assert future.result(0).offset in (-1, offsets[0])
            else:
                assert len(offsets) <= 1, (value, offsets)
            assert self.results[value][1] is future.exception(0)


class TransactionalRun(IdempotentRun):
    """A producer of transactions, which it commits or aborts as it likes, or aborts as it has to."""

    def make_manager(self) -> TransactionManager:
        return TransactionManager(transactional_id="id", coordinator=ModelCoordinator(self.sink.logs))

    def await_(self, result: Any) -> None:
        for number in range(200):
            if result.is_completed:
                break
            self.step(is_faulty=number < 20)
        result.wait(0)

    def run(self) -> None:
        self.committed: dict[TopicPartition, list[bytes]] = {T0: [], T1: []}
        self.await_(self.manager.init_transactions())
        for _ in range(STEPS // 5):
            before = len(self.sent)
            self.manager.begin_transaction()
            if not self.commits():
                self.await_(self.manager.begin_abort())
                continue
            for topic_partition, value, future in self.sent[before:]:
                assert future.exception(0) is None
                self.committed[topic_partition].append(value)
        self.parts.check_at_rest()

    def commits(self) -> bool:
        """Send, and commit unless something speaks against it; return whether that was done."""
        try:
            for _ in range(self.random.randrange(12)):
                topic_partition = self.random.choice([T0, T0, T0, T1])
                self.append(topic_partition)
                self.manager.maybe_add_partition(topic_partition)
                if self.random.random() < 0.4:
                    self.step()
            if self.random.random() < 0.2:
                return False
            self.await_(self.manager.begin_commit())
        except BufferExhaustedError:
            return False
        except KStoreError:
            assert self.manager.has_abortable_error
            return False
        return True

    def check(self) -> None:
        super().check()
        assert {one: log.committed for one, log in self.sink.logs.items()} == self.committed


def breaking_after(count: int) -> Callable[[ProducerBatch], None]:
    left = iter(range(count))
    close = ProducerBatch.close

    def breaking_close(batch: ProducerBatch) -> None:
        if next(left, None) is None:
            raise MemoryError("no memory to compress")
        close(batch)

    return breaking_close


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger("kstore.producer"), "disabled", True)


def explore(kind: type[IdempotentRun], seeds: range) -> None:
    for seed in seeds:
        try:
            run = kind(seed)
            run.run()
            run.check()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


KINDS = pytest.mark.parametrize("kind", [IdempotentRun, TransactionalRun], ids=["idempotent", "transactional"])


@KINDS
def test_record_whose_future_succeeded_is_in_the_log_once_whatever_answers_are_lost(kind: type[IdempotentRun]) -> None:
    explore(kind, range(300))


@pytest.mark.long
@KINDS
def test_record_whose_future_succeeded_is_in_the_log_once_in_10000_schedules(kind: type[IdempotentRun]) -> None:
    explore(kind, range(10_000))
