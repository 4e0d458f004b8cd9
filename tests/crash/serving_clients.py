"""The clients of `python -m tests.crash.serving`: each a thread with a client of librdkafka, that can be held."""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import confluent_kafka

PLAIN = "plain"
ONCE = "once"
COPIED = "copied"
GROUP = "copying"
READERS = "reading"
PARTITIONS_OF_COPIED = 2
TIMEOUT_S = 10.0
MOST_OUTSTANDING = 200
MOST_IN_TRANSACTION = 100
# A record that is produced, in the order of each producer.
NUMBER = struct.Struct(">q")
# A record that is copied: its number, the first one of its transaction, and how many the transaction has.
COPY = struct.Struct(">qqq")
# A producer waits this long after so many records, so that a log stays small.
_STEP_S = 0.01
_RECORDS_OF_STEP = 20
# Without a new bootstrap, after which librdkafka 2.16 may never send the request of a transaction that it owes.
_FAST = {
    "metadata.recovery.strategy": "none",
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 50,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 100,
    "topic.metadata.refresh.fast.interval.ms": 20,
    "log_level": 0,
}


class Client(threading.Thread):
    """Takes steps until it is ended.

    Attributes: error: what ended it, None if nothing did.
    """

    def __init__(self, bootstrap_servers: str) -> None:
        super().__init__(daemon=True)
        self.settings: dict[str, Any] = {"bootstrap.servers": bootstrap_servers, **_FAST}
        self.error: BaseException | None = None
        self._is_over = False
        self._goes_on = threading.Event()
        self._goes_on.set()
        self._is_held = threading.Event()
        self._pause = threading.Event()

    def run(self) -> None:
        try:
            while not self._is_over:
                if not self._goes_on.is_set() and self.is_settled():
                    self._is_held.set()
                    self._goes_on.wait()
                    self._is_held.clear()
                elif self._goes_on.is_set():
                    self.step()
                self._pause.wait(_STEP_S)
            self.close()
        except BaseException as error:  # noqa: BLE001
            self.error = error
            self._is_held.set()

    def step(self) -> None:
        raise NotImplementedError

    def is_settled(self) -> bool:
        """Whether nothing of it is under way; called again and again while the client is to be held."""
        return True

    def close(self) -> None:
        """Close what it has."""

    def ask_to_hold(self) -> None:
        self._goes_on.clear()

    def wait_held(self, timeout_s: float) -> None:
        """Return once nothing of it is under way.  Raises: AssertionError."""
        assert self._is_held.wait(timeout_s), f"{self.name} does not settle in {timeout_s} s"
        assert self.error is None, f"{self.name} failed: {self.error!r}"

    def go_on(self) -> None:
        self._goes_on.set()

    def end(self) -> None:
        self._is_over = True
        self._goes_on.set()
        self.join(6 * TIMEOUT_S)


class Numbering(Client):
    """Produces 0, 1, 2 and so on to a topic of one partition.

    Attributes: produced, told: how many, and how many of them were acknowledged; acknowledged: those that are, less
        those that were taken; failed: why others are not.
    """

    def __init__(self, bootstrap_servers: str, topic: str, **settings: object) -> None:
        super().__init__(bootstrap_servers)
        self.name = self.topic = topic
        self.produced = self.told = 0
        self.acknowledged: list[int] = []
        self.failed: list[str] = []
        self._producer = confluent_kafka.Producer({**self.settings, "acks": "all", "linger.ms": 0, **settings})

    def step(self) -> None:
        for _ in range(_RECORDS_OF_STEP):
            if len(self._producer) < MOST_OUTSTANDING:
                self._producer.produce(
                    self.topic, NUMBER.pack(self.produced), partition=0, on_delivery=self._telling(self.produced)
                )
                self.produced += 1
        self._producer.poll(0)

    def _telling(self, number: int) -> Callable[[object, object], None]:
        def told(error: object, _: object) -> None:
            if error is None:
                self.told += 1
                self.acknowledged.append(number)
            else:
                self.failed.append(f"{number}: {error}")

        return told

    def is_settled(self) -> bool:
        return self._producer.flush(_STEP_S) == 0

    def close(self) -> None:
        self._producer.flush(TIMEOUT_S)


class Copying(Client):
    """Consumes ONCE, and produces each record to all partitions of COPIED, in transactions with the group's offsets.

    Attributes: committed (how many records), transactions, aborted, producers (how many there were).
    """

    name = COPIED

    def __init__(self, bootstrap_servers: str) -> None:
        super().__init__(bootstrap_servers)
        self.committed = self.transactions = self.aborted = self.producers = 0
        self._producer: Any = None
        self._consumer = confluent_kafka.Consumer(
            {
                **self.settings,
                "group.id": GROUP,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "fetch.error.backoff.ms": 20,
                "isolation.level": "read_committed",
            }
        )
        self._consumer.subscribe([ONCE])

    def step(self) -> None:
        messages = [one for one in self._consumer.consume(MOST_IN_TRANSACTION, 0.1) if one.error() is None]
        if not messages:
            return
        try:
            if self._producer is None:
                self._producer = confluent_kafka.Producer({**self.settings, "transactional.id": GROUP})
                self.producers += 1
                _again(lambda: self._producer.init_transactions(TIMEOUT_S))
            self._copy([NUMBER.unpack(one.value() or b"")[0] for one in messages], messages[-1])
        except confluent_kafka.KafkaException as error:
            self._recover(error)
        else:
            self.transactions += 1
            self.committed += len(messages)

    def _copy(self, numbers: list[int], last: Any) -> None:
        self._producer.begin_transaction()
        for number in numbers:
            for partition in range(PARTITIONS_OF_COPIED):
                value = COPY.pack(number, numbers[0], len(numbers))
                self._producer.produce(COPIED, value, partition=partition)
        offsets = [confluent_kafka.TopicPartition(ONCE, last.partition(), last.offset() + 1)]
        member = self._consumer.consumer_group_metadata()
        _again(lambda: self._producer.send_offsets_to_transaction(offsets, member, TIMEOUT_S))
        _again(lambda: self._producer.commit_transaction(TIMEOUT_S))

    def _recover(self, error: confluent_kafka.KafkaException) -> None:
        """End the transaction, or the producer, and read on from what is committed."""
        self.aborted += 1
        reason = error.args[0]
        if reason.txn_requires_abort():
            try:
                _again(lambda: self._producer.abort_transaction(TIMEOUT_S))
            except confluent_kafka.KafkaException:
                self._producer = None
        else:
            self._producer = None
        assigned = self._consumer.assignment()
        for place in _again(lambda: self._consumer.committed(assigned, TIMEOUT_S)) if assigned else ():
            place.offset = max(place.offset, 0)
            # One that was taken away is read from what is committed when it comes back.
            with suppress(confluent_kafka.KafkaException):
                self._consumer.seek(place)

    def close(self) -> None:
        self._consumer.close()


class Reading(Client):
    """Consumes PLAIN as the one member of a group, and commits what it has read, outside of transactions.

    Attributes: read: up to which offset it has read, and has at most committed; told: up to which a commit was
        acknowledged; commits: how many were.
    """

    name = READERS

    def __init__(self, bootstrap_servers: str) -> None:
        super().__init__(bootstrap_servers)
        self.read = self.told = self.commits = 0
        self._consumer = confluent_kafka.Consumer(
            {
                **self.settings,
                "group.id": READERS,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "fetch.error.backoff.ms": 20,
            }
        )
        self._consumer.subscribe([PLAIN])

    def step(self) -> None:
        position = None
        for message in self._consumer.consume(_RECORDS_OF_STEP, 0.1):
            if message.error() is None:
                assert message.offset() <= self.read, f"{PLAIN}: at {message.offset()} after {self.read}"
                position = message.offset() + 1
                self.read = max(self.read, position)
        if position is not None:
            # One that has no answer, or comes from a generation that is over, is read again, or committed later.
            with suppress(confluent_kafka.KafkaException):
                self._consumer.commit(offsets=[confluent_kafka.TopicPartition(PLAIN, 0, position)], asynchronous=False)
                self.told = max(self.told, position)
                self.commits += 1

    def close(self) -> None:
        self._consumer.close()


def _again(call: Callable[[], Any]) -> Any:
    """Call again as long as the client says that this may help."""
    while True:
        try:
            return call()
        except confluent_kafka.KafkaException as error:
            may_help = error.args[0].retriable() or error.args[0].code() in (
                confluent_kafka.KafkaError._TRANSPORT,
                confluent_kafka.KafkaError._TIMED_OUT,
            )
            if not may_help or error.args[0].txn_requires_abort():
                raise
