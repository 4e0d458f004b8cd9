"""A producer's parts put together for tests: a clock that stands still, sinks that do as they are told, a Sender."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from kstore.errors import KStoreError, StorageError
from kstore.producer.batches.accumulator import BufferPool, RecordAccumulator
from kstore.producer.batches.batch import ProducerBatch
from kstore.producer.cluster import Cluster, Node, PartitionInfo
from kstore.producer.sending.sender import Sender
from kstore.producer.sink import ProduceResponse
from kstore.producer.transactions import TransactionManager
from kstore.types import TopicPartition

NODE = Node(0)
OTHER_NODE = Node(1)
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
CLUSTER = Cluster([PartitionInfo("t", number, NODE) for number in range(4)])
BATCH_SIZE = 1024
MEMORY = 64 * BATCH_SIZE

Answer = Callable[[ProducerBatch], ProduceResponse | None]


class ManualClock:
    """A clock that a test sets; the wall clock is ahead of the monotonic one."""

    def __init__(self) -> None:
        self.now_ms = 10_000

    def wall_clock_ms(self) -> int:
        return 1_700_000_000_000 + self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms


class Sent(NamedTuple):
    """A batch as a sink saw it."""

    topic_partition: TopicPartition
    values: list[bytes | None]
    base_sequence: int
    producer_epoch: int


def sent_of(batch: ProducerBatch) -> Sent:
    values = [record.value for record in batch.records()]
    return Sent(batch.topic_partition, values, batch.base_sequence, batch.producer_epoch)


def ok(base_offset: int) -> Answer:
    return lambda _: ProduceResponse(base_offset)


def fails(error: KStoreError, *, is_retriable: bool = False) -> Answer:
    return lambda _: ProduceResponse(-1, error=error, is_retriable=is_retriable)


def again() -> Answer:
    return fails(StorageError("not now"), is_retriable=True)


class ScriptedSink:
    """Answers each batch by the next of its answers, and without one as a log that takes everything.

    Attributes: answers (None: take it), calls (what each call of send got), acks (its node and ack), values (what was
    taken, by partition), error (to raise).
    """

    def __init__(self, cluster: Cluster = CLUSTER) -> None:
        self.now = cluster
        self.answers: deque[Answer | None] = deque()
        self.calls: list[list[Sent]] = []
        self.acks: list[tuple[Node, str]] = []
        self.values: dict[TopicPartition, list[bytes | None]] = {}
        self.error: Exception | None = None

    @property
    def sent(self) -> list[Sent]:
        return [one for call in self.calls for one in call]

    def cluster(self) -> Cluster:
        return self.now

    def send(self, node: Node, batches: Sequence[ProducerBatch], *, ack: str) -> list[ProduceResponse]:
        self.acks.append((node, ack))
        self.calls.append([sent_of(batch) for batch in batches])
        if self.error is not None:
            raise self.error
        return [self._answer(batch) for batch in batches]

    def _answer(self, batch: ProducerBatch) -> ProduceResponse:
        answer = self.answers.popleft() if self.answers else None
        response = answer(batch) if answer is not None else None
        taken = self.values.setdefault(batch.topic_partition, [])
        if response is None:
            response = ProduceResponse(len(taken))
        if response.error is None:
            taken += [record.value for record in batch.records()]
        return response


class Producing:
    """An accumulator, perhaps a transaction manager, a sink and a Sender that runs when it is told to."""

    def __init__(
        self,
        sink: Any = None,
        *,
        manager: TransactionManager | None = None,
        is_idempotent: bool = False,
        batch_size: int = BATCH_SIZE,
        memory: int = MEMORY,
        linger_ms: int = 0,
        delivery_timeout_ms: int = 5000,
        compression: str = "none",
        clock: Any = None,
        retry_backoff_ms: int = 100,
        max_block_ms: int = 0,
        partition_availability_timeout_ms: int = 0,
        **options: Any,
    ) -> None:
        self.max_block_ms = max_block_ms
        self.clock = ManualClock() if clock is None else clock
        self.sink = ScriptedSink() if sink is None else sink
        self.manager = TransactionManager() if manager is None and is_idempotent else manager
        self.pool = BufferPool(memory, batch_size, clock=self.clock)
        self.accumulator = RecordAccumulator(
            batch_size=batch_size,
            pool=self.pool,
            compression=compression,
            linger_ms=linger_ms,
            retry_backoff_ms=retry_backoff_ms,
            retry_backoff_max_ms=retry_backoff_ms,
            delivery_timeout_ms=delivery_timeout_ms,
            transaction_manager=self.manager,
            partition_availability_timeout_ms=partition_availability_timeout_ms,
            clock=self.clock,
        )
        self.sender = Sender(
            self.accumulator,
            self.sink,
            delivery_timeout_ms=delivery_timeout_ms,
            retry_backoff_ms=retry_backoff_ms,
            transaction_manager=self.manager,
            clock=self.clock,
            **options,
        )

    def append(
        self, value: bytes | None = b"v", *, to: TopicPartition = T0, callback: Any = None, key: bytes | None = None
    ) -> Any:
        """Append a record, wake the Sender if it should look, and return the record's future."""
        result = self.accumulator.append(
            to.topic,
            to.partition,
            self.clock.wall_clock_ms(),
            key,
            value,
            (),
            callback,
            max_time_to_block_ms=self.max_block_ms,
            now_ms=self.clock.monotonic_ms(),
            cluster=self.sink.cluster(),
        )
        if result.batch_is_full or result.new_batch_created:
            self.sender.wakeup()
        return result.future

    def append_batch(self, *values: bytes, to: TopicPartition = T0) -> list[Any]:
        """Append records that fill a batch of their own, as far as others are concerned."""
        futures = [self.append(value, to=to) for value in values]
        queue = self.accumulator.queue_of(to)
        with queue:
            queue.copy()[-1].close_for_record_appends()
        return futures

    def run(self, times: int = 1) -> None:
        for _ in range(times):
            self.sender.run_once()

    def run_until_done(self, *futures: Any, limit: int = 100) -> None:
        """Run until the futures are done, 50 ms passing each time."""
        for _ in range(limit):
            if all(future.done() for future in futures):
                return
            self.sender.run_once()
            self.clock.now_ms += 50
        raise AssertionError(f"not done: {[future for future in futures if not future.done()]}")

    def check_at_rest(self) -> None:
        """Nothing is under way, and all memory is back."""
        assert not self.accumulator.has_incomplete
        assert not self.accumulator.has_undrained
        assert self.pool.available_memory == self.pool.memory
