"""A transactional producer put together for tests: a real store and coordinator, a Sender that is told to run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kstore.producer.batches.waiting import TransactionalResult
from kstore.producer.sending.store_sink import StoreSink
from kstore.producer.transactions import TransactionManager
from kstore.types import TopicPartition
from tests.fakes.sending import T0, Producing

if TYPE_CHECKING:
    from typing_extensions import Self


class Moody(StoreSink):
    """Answers batches by a script first; what the script takes goes to the store."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.answers: list[Any] = []

    def send(self, node: Any, batches: Any, *, ack: Any) -> Any:
        if not self.answers:
            return super().send(node, batches, ack=ack)
        answer = self.answers.pop(0)
        return [answer(batch) for batch in batches]


class Transactional(Producing):
    """A transactional producer over a store."""

    manager: TransactionManager

    def __init__(
        self, store: Any, coordinator: Any, *, transactional_id: str = "id", ack: Any = "written", **options: Any
    ) -> None:
        self.store = store
        manager = TransactionManager(
            transactional_id=transactional_id, coordinator=coordinator, timeout_ms=60_000, ack=ack
        )
        super().__init__(Moody(store, coordinator=coordinator), manager=manager, ack=ack, **options)

    def end(self, result: TransactionalResult, *, runs: int = 10) -> None:
        self.run(runs)
        result.wait(0)

    def init(self) -> Self:
        self.end(self.manager.init_transactions())
        return self

    def begin(self) -> Self:
        self.manager.begin_transaction()
        return self

    def send(self, value: bytes = b"v", *, to: TopicPartition = T0) -> Any:
        future = self.append(value, to=to)
        self.manager.maybe_add_partition(to)
        return future

    def commit(self) -> None:
        self.end(self.manager.begin_commit())

    def abort(self) -> None:
        self.end(self.manager.begin_abort())

    def committed(self, topic_partition: TopicPartition = T0) -> list[bytes | None]:
        return [one.value for one in self.store.log(*topic_partition).read(isolation="read_committed")]

    def is_decided(self, topic_partition: TopicPartition = T0) -> bool:
        log = self.store.log(*topic_partition)
        return bool(log.last_stable_offset == log.log_end_offset)
